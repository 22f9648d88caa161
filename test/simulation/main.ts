/** `npm run simulate -- --seed 42 --years 1`. */
import { execFileSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { RARE_STATES } from '../../packages/server/src/rare-states.ts';
import { type Report, shortestFailure, simulate, unreached } from './simulate.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    years: { type: 'string', default: '0.1' },
    events: { type: 'string' },
    trace: { type: 'boolean', default: false },
  },
});
const seed = numberOf('--seed', values.seed ?? String(Math.floor(Math.random() * 2 ** 31)));
const years = numberOf('--years', values.events === undefined ? values.years : 'Infinity');
const eventsMax = values.events === undefined ? undefined : numberOf('--events', values.events);
const trace = values.trace ? (line: string) => console.error(line) : undefined;

console.log(`seed ${seed}, commit ${commit()}`);
const startedAt = performance.now();
const report = await simulate({ seed, years, ...(eventsMax && { eventsMax }), ...(trace && { trace }) });
print(report, (performance.now() - startedAt) / 1_000);
if (report.failure !== null) {
  console.log(`\nFAILED after ${report.events} events: ${text(report.failure)}`);
  const shortest = trace ? null : await shortestFailure(seed, report.eventsToRepeat);
  if (shortest) console.log(`shortest failure found: ${shortest.events} events: ${text(shortest.failure)}`);
  const events = (shortest ?? report).eventsToRepeat;
  console.log(`to repeat it: npm run simulate -- --seed ${seed} --events ${events} --trace`);
  process.exitCode = 1;
}

function print(result: Report, seconds: number): void {
  const { days, lines, steps, events, kills, rotations, checks, pushes, clockJumps, reached, digest } =
    result;
  const missing = unreached(result);
  console.log(
    `simulated time ${days.toFixed(1)} days in ${seconds.toFixed(1)} s: ${lines} lines, ${events} events, ${kills} kills, ` +
      `${rotations} rotations, ${pushes} pushes, ${clockJumps} wrong clocks, ${steps} steps, ${checks} checks`,
  );
  console.log(
    `states reached ${reached.size} of ${RARE_STATES.length}${missing.length > 0 ? `, not: ${missing.join(', ')}` : ''}`,
  );
  console.log(`digest ${digest}`);
}

function text(failure: unknown): string {
  return failure instanceof Error && failure.name !== 'CheckFailed' ? String(failure.stack) : String(failure);
}

function numberOf(option: string, value: string): number {
  const number = Number(value);
  if (number > 0) return number;
  console.error(`${option} ${value} must be a number above 0`);
  process.exit(2);
}

function commit(): string {
  try {
    const git = (...args: string[]) =>
      execFileSync('git', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
    const head = git('rev-parse', '--short=12', 'HEAD');
    const isChanged = git('status', '--porcelain') !== '';
    return isChanged ? `${head} with changes` : head;
  } catch {
    return 'unknown';
  }
}
