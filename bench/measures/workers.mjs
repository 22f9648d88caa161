/** Whether two processes serve twice as much as one, with a query that costs the load generator little. */
import { startService } from '../candidates.mjs';
import { generateLoad } from '../wrk.mjs';

/** Returns `[speed of two / speed of one, one per round]`. */
export async function measureWorkers({ directory, prepared, processes, requests, rounds, seconds, log }) {
  const one = await startService(processes, prepared.measured.data);
  const two = await startService(processes, prepared.measured.data, '--workers', '2');
  const ratios = [];
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'workers: warming up' : `workers: round ${round} of ${rounds}`);
    const speeds = [];
    for (const { address } of [one, two]) {
      speeds.push((await generateLoad({ directory, address, requests, seconds })).per_s);
    }
    if (round > 0) ratios.push(speeds[1] / speeds[0]);
  }
  await one.stop();
  await two.stop();
  return ratios;
}
