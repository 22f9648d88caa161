/**
 * How fast the service is: against its limit, and against what one could use instead. All in one run on one machine.
 *
 *   npm run bench [-- --quick]
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkAnswers, startCandidates } from './candidates.mjs';
import { measureSpeed } from './measures/speed.mjs';
import { prepare } from './prepare.mjs';
import { Processes } from './processes.mjs';
import { queries } from './requests.mjs';

const quick = process.argv.includes('--quick');
const started = performance.now();
const log = (text) => console.error(`${((performance.now() - started) / 1_000).toFixed(0).padStart(5)} s  ${text}`);

const prepared = await prepare(quick, log);
const { folder } = prepared;
const processes = new Processes();
try {
  const { 'timeline, 30 days, 1,000 hosts': wide, ...compared } = queries(prepared);
  log('starting the candidates');
  const candidates = await startCandidates(processes, prepared, compared);
  log('comparing their answers');
  await checkAnswers(candidates, compared);
  const pace = { folder, log, rounds: quick ? 2 : 5, seconds: quick ? 1 : 2 };
  const speed = await measureSpeed({ ...pace, candidates, queries: compared });
  console.log(speed);
} finally {
  await processes.stop();
}
