import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import type { RareState } from '../../packages/server/src/rare-states.ts';
import { type Report, simulate, unreached } from './simulate.ts';

/** 11 simulated days, and about 7: some 30 s of processor time together. */
const FIXED = { seed: 6, years: 0.03 };
const FRESH = { seed: freshSeed(), years: 0.02 };

/** Another one for each commit: two runs of the same commit agree. Random outside of a repository. */
function freshSeed(): number {
  const { stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' });
  return stdout ? Number.parseInt(stdout.slice(0, 7), 16) : Math.floor(Math.random() * 2 ** 28);
}

/** If the fixed seed no longer reaches one of these, the simulation tests less than before. */
const CORE: readonly RareState[] = [
  'batches.duplicate',
  'file.resumed',
  'follow.compressed-file-read',
  'follow.known-file-skipped',
  'follow.live-file-missing',
  'follow.live-file-replaced',
  'follow.recent-file-kept-open',
  'follow.retiring-file-finished',
  'follow.retiring-file-grown',
  'follow.rotated-between-read-and-commit',
  'follow.rotated-file-vanished',
  'retention.clock-jumped',
  'retention.space-freed',
  'tail.counted-elsewhere',
  'tail.line-unfinished',
  'tail.resumed',
];

function expectNoFailure({ seed, eventsToRepeat, failure }: Report): void {
  const command = `npm run simulate -- --seed ${seed} --events ${eventsToRepeat}`;
  console.log(`to repeat this simulation: ${command}`);
  if (failure !== null) throw new Error(`failed. To repeat it: ${command} --trace`, { cause: failure });
}

test('the same seed is the same run, step by step', async () => {
  const run = (seed: number) => simulate({ seed, years: Number.POSITIVE_INFINITY, eventsMax: 50 });
  const [one, other, different] = [await run(7), await run(7), await run(8)];
  expect(other).toEqual(one);
  expect(different.digest).not.toBe(one.digest);
});

test('all invariants hold with a fixed seed, which reaches the core states', async () => {
  const report = await simulate(FIXED);
  expectNoFailure(report);
  expect(unreached(report).filter((state) => CORE.includes(state))).toEqual([]);
});

test('all invariants hold with a fresh seed', async () => {
  const report = await simulate(FRESH);
  expectNoFailure(report);
  expect(report.checks).toBeGreaterThan(1);
});
