/** Whether two workers serve twice as much as one, with a query that costs the load generator little. */
import { availableParallelism } from 'node:os';
import { startService } from '../candidates.mjs';
import { processorTime } from '../processes.mjs';
import { generateLoad } from '../wrk.mjs';

/** Two workers, the load generator, and one for everything else. */
const CORES_MIN = 4;
const WARM_UP = 10;

/**
 * Returns `{by, ratios: [two / one, one per round]}`: of the speeds, or, where the load generator would take one of the
 * cores from the workers, of the responses per processor time: if these are equal, two workers are twice as fast.
 */
export async function measureWorkers({ directory, prepared, processes, requests, rounds, seconds, log }) {
  const one = await startService(processes, prepared.measured.data);
  const two = await startService(processes, prepared.measured.data, '--workers', '2');
  const hasCores = availableParallelism() >= CORES_MIN;
  const ratios = [];
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'workers: warming up' : `workers: round ${round} of ${rounds}`);
    const speeds = [];
    for (const { address, pid } of [one, two]) {
      const before = processorTime(pid);
      // Each of two workers gets half of the requests, and its code is compiled later.
      const load = { directory, address, requests, seconds: round === 0 ? WARM_UP * seconds : seconds };
      const { per_s } = await generateLoad(load);
      const used_s = (processorTime(pid) - before) / 1_000;
      const workers = pid === one.pid ? 1 : 2;
      speeds.push(hasCores ? per_s : (workers * per_s * seconds) / used_s);
    }
    if (round > 0) ratios.push(speeds[1] / speeds[0]);
  }
  await one.stop();
  await two.stop();
  return { by: hasCores ? 'speed' : 'by responses per processor time', ratios };
}
