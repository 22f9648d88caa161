import { expect, test } from 'vitest';
import { simulate } from './simulate.ts';

const run = (seed: number, eventsMax: number) =>
  simulate({ seed, years: Number.POSITIVE_INFINITY, eventsMax });

test('the same seed is the same run, step by step', async () => {
  const [one, other, different] = [await run(7, 100), await run(7, 100), await run(8, 100)];
  expect(one.failure).toBeNull();
  expect(other.digest).toBe(one.digest);
  expect(different.digest).not.toBe(one.digest);
});
