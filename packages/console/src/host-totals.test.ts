import { expect, test } from 'vitest';
import { withAllCategories } from './counts.ts';
import { hostTotals, NO_HOST, withoutHost } from './host-totals.ts';

const counts = (requests: number, sqli: number, xss = 0) =>
  withAllCategories({ requests: [requests], attacks: { sqli: [sqli], xss: [xss] }, blocked: {} });

test('what no host has is the rest of the project', () => {
  const hosts = hostTotals([
    { id: '1', hostname: 'a', requests: [3, 2], attacks: [0, 1] },
    { id: '2', hostname: 'b', requests: [2, 0], attacks: [1, 0] },
  ]);
  expect(hosts[0]).toEqual({ id: '1', hostname: 'a', requests: 5, attacks: 1 });
  expect(withoutHost(counts(7, 1, 1), hosts)).toBeNull();
  const rest = { id: NO_HOST, hostname: 'No host', requests: 3, attacks: 4 };
  expect(withoutHost(counts(10, 5, 1), hosts)).toEqual(rest);
});
