import { expect, test } from 'vitest';
import { simulate } from './simulate.ts';

const run = (seed: number, eventsMax: number) =>
  simulate({ seed, years: Number.POSITIVE_INFINITY, eventsMax });

test('the same seed is the same run, step by step', async () => {
  const [one, other, different] = [await run(7, 50), await run(7, 50), await run(8, 50)];
  expect(other).toEqual(one);
  expect(different.digest).not.toBe(one.digest);
});
