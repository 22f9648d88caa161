/** Whether two workers serve twice as much as one, with a query that costs the load generator little. */
import { mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { startService } from '../candidates.mjs';
import { processorTime } from '../processes.mjs';
import { generateLoad } from '../wrk.mjs';

/** Two workers, the load generator, and one for everything else. */
const CORES_MIN = 4;
const WARM_UP = 10;

/**
 * Returns `{by, ratios, separate}`, a ratio per round: of two workers to one, and of two services that share nothing but the
 * machine to one, which is what the machine allows. They compare the speeds, or, where the load generator would take one of
 * the cores from the workers, the responses per processor time: if these are equal, two workers are twice as fast.
 */
export async function measureWorkers({ directory, prepared, processes, requests, rounds, seconds, log }) {
  const start = (...args) => startService(processes, prepared.measured.data, ...args);
  const one = [await start()];
  const two = [await start('--workers', '2')];
  const separate = [await start(), await start()];
  const hasCores = availableParallelism() >= CORES_MIN;
  /** Responses per second, or per second of processor time of two workers or services. */
  const measure = async (services, workers, seconds) => {
    const usedSoFar_ms = () => services.reduce((sum, { pid }) => sum + processorTime(pid), 0);
    const before = usedSoFar_ms();
    const loads = services.map(({ address }, i) => {
      // Each load generator has its own script.
      const own = join(directory, `load-${i}`);
      mkdirSync(own, { recursive: true });
      return generateLoad({ directory: own, address, requests, seconds });
    });
    const per_s = (await Promise.all(loads)).reduce((sum, load) => sum + load.per_s, 0);
    return hasCores ? per_s : (workers * per_s * seconds) / ((usedSoFar_ms() - before) / 1_000);
  };
  const result = { by: hasCores ? 'speed' : 'by responses per processor time', ratios: [], separate: [] };
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'workers: warming up' : `workers: round ${round} of ${rounds}`);
    // Each of two workers gets half of the requests, and its code is compiled later.
    const length = round === 0 ? WARM_UP * seconds : seconds;
    const alone = await measure(one, 1, length);
    const workers = await measure(two, 2, length);
    const services = await measure(separate, 2, length);
    if (round === 0) continue;
    result.ratios.push(workers / alone);
    result.separate.push(services / alone);
  }
  for (const { stop } of [...one, ...two, ...separate]) await stop();
  return result;
}
