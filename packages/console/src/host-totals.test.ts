import { expect, test } from 'vitest';
import { HOST_COMPARE, hostTotals } from './host-totals.ts';

const HOSTS = hostTotals([
  { id: '1', hostname: 'b', requests: [5, 5], attacks: [1] },
  { id: '2', hostname: 'a', requests: [10], attacks: [0] },
  { id: '3', hostname: 'c', requests: [1], attacks: [1] },
  { id: '4', hostname: 'd', requests: [0], attacks: [9] },
]);

test('each order lists the largest first, and ties by name', () => {
  const names = Object.entries(HOST_COMPARE).map(([sort, compare]) => [
    sort,
    HOSTS.toSorted(compare)
      .map(({ hostname }) => hostname)
      .join(''),
  ]);
  expect(Object.fromEntries(names)).toEqual({
    requests: 'abcd',
    attacks: 'dbca',
    rate: 'dcba',
    name: 'abcd',
  });
});
