import { expect, test } from 'vitest';
import { HOST_COMPARE, hostTotals, NO_HOST, withoutHost } from './host-totals.ts';

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

test('what no host has is the rest of the project', () => {
  const items = [
    { id: '1', hostname: 'a', requests: [2, 3], attacks: [1, 0] },
    { id: '2', hostname: 'b', requests: [1, 1], attacks: [0, 1] },
  ];
  expect(withoutHost({ requests: [3, 4], attacks: [1, 1] }, items)).toBeNull();
  const rest = { id: NO_HOST, hostname: 'No host', requests: 3, attacks: 4 };
  expect(withoutHost({ requests: [5, 5], attacks: [1, 5] }, items)).toEqual(rest);
});
