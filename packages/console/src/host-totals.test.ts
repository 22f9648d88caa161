import { expect, test } from 'vitest';
import { withAllCategories } from './counts.ts';
import { hostTotals, NO_HOST, withoutHost } from './host-totals.ts';

const counts = (requests: number, sqli: number, xss = 0) =>
  withAllCategories({ requests: [requests], attacks: { sqli: [sqli], xss: [xss] }, blocked: {} });

test('only the selected categories count', () => {
  const items = [{ id: '1', hostname: 'a', ...counts(5, 2, 3) }];
  expect(hostTotals(items, ['xss'])).toEqual([{ id: '1', hostname: 'a', requests: 5, attacks: 3 }]);
});

test('what no host has is the rest of the project', () => {
  const hosts = hostTotals([
    { id: '1', hostname: 'a', ...counts(5, 1) },
    { id: '2', hostname: 'b', ...counts(2, 0, 1) },
  ]);
  expect(withoutHost(counts(7, 1, 1), hosts)).toBeNull();
  const rest = { id: NO_HOST, hostname: 'No host', requests: 3, attacks: 4 };
  expect(withoutHost(counts(10, 5, 1), hosts)).toEqual(rest);
});
