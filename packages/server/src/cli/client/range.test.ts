import { expect, test } from 'vitest';
import type { Origin } from '../../config.ts';
import { rangeOf, rangeProblems } from './range.ts';

const NOW = 1_000_000;
const origins =
  (given: Record<string, ReturnType<Origin>>): Origin =>
  (name) =>
    given[name];

test('the range is the last time until now, unless something else is said', () => {
  const none = origins({});
  const last = 1_000;
  expect(rangeOf({ from: undefined, to: undefined, last }, none, NOW)).toEqual({ from: 999_000, to: NOW });
  expect(rangeOf({ from: undefined, to: 5_000, last }, none, NOW)).toEqual({ from: 4_000, to: 5_000 });
  expect(rangeOf({ from: 7, to: undefined, last }, none, NOW)).toEqual({ from: 7, to: NOW });
  expect(rangeOf({ from: 7, to: 9, last }, none, NOW)).toEqual({ from: 7, to: 9 });
  expect(rangeOf({ from: undefined, to: 500, last }, none, NOW)).toEqual({ from: 0, to: 500 });
});

test('a start and a length contradict each other, but the command line wins over the environment', () => {
  expect(rangeProblems(origins({ from: 'command line', last: 'command line' }))).toHaveLength(1);
  expect(rangeProblems(origins({ from: 'command line' }))).toEqual([]);
  const mixed = origins({ from: 'environment', last: 'command line' });
  expect(rangeProblems(mixed)).toEqual([]);
  expect(rangeOf({ from: 7, to: undefined, last: 1_000 }, mixed, NOW)).toEqual({ from: 999_000, to: NOW });
  const reversed = origins({ from: 'command line', last: 'environment' });
  expect(rangeOf({ from: 7, to: undefined, last: 1_000 }, reversed, NOW)).toEqual({ from: 7, to: NOW });
});
