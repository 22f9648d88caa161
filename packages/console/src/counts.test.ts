import { ATTACK_TYPES } from '@wafstat/client';
import { expect, test } from 'vitest';
import { replacePoints, slicePoints, sumOf, totalsOf, withAllCategories } from './counts.ts';

const COUNTS = withAllCategories({
  requests: [10, 20, 30],
  attacks: { sqli: [1, 2, 3], xss: [0, 0, 7] },
  blocked: { sqli: [1, 0, 1] },
});

test('categories without attacks are zero in every point', () => {
  expect(Object.keys(COUNTS.attacks)).toEqual(ATTACK_TYPES);
  expect(COUNTS.attacks.lfi).toEqual([0, 0, 0]);
  expect(COUNTS.blocked.xss).toEqual([0, 0, 0]);
});

test('categories add up in each point, and points by category', () => {
  expect(sumOf(COUNTS.attacks, ['sqli', 'xss'])).toEqual([1, 2, 10]);
  expect(sumOf(COUNTS.attacks, [])).toEqual([0, 0, 0]);
  expect(totalsOf(COUNTS.attacks)).toMatchObject({ sqli: 6, xss: 7, lfi: 0 });
});

test('a tail replaces the last points of every row', () => {
  const tail = withAllCategories({ requests: [31, 40], attacks: { rfi: [5, 0] }, blocked: {} });
  const joined = replacePoints(COUNTS, 2, tail);
  expect(joined.requests).toEqual([10, 20, 31, 40]);
  expect(joined.attacks).toMatchObject({ sqli: [1, 2, 0, 0], xss: [0, 0, 0, 0], rfi: [0, 0, 5, 0] });
  expect(joined.blocked.sqli).toEqual([1, 0, 0, 0]);
  expect(slicePoints(joined, 1, 3).requests).toEqual([20, 31]);
});
