import { expect, test } from 'vitest';
import { createNegotiation } from './send.ts';

test.each([
  [undefined, undefined],
  ['', undefined],
  ['identity', undefined],
  ['deflate, zstd', undefined],
  ['gzip, deflate, br', 'br'],
  ['gzip', 'gzip'],
  ['GZIP', 'gzip'],
  ['*', 'br'],
  ['br;q=0, gzip;q=0.5', 'gzip'],
  ['br;q=0.000, gzip;q=0', undefined],
  ['br;q=0.5, gzip;q=0.9', 'gzip'],
  ['br; q=0, *;q=0.1', 'gzip'],
  ['identity, br;q=0.5', undefined],
  ['brotli, x-gzip', undefined],
  [`${'a,'.repeat(120_000)}gzip`, undefined],
])('Accept-Encoding: %s gives %s', (header, expected) => {
  const negotiate = createNegotiation();
  expect(negotiate(header)).toBe(expected);
  expect(negotiate(header)).toBe(expected);
});

test('thousands of different headers give the same result as the first', () => {
  const negotiate = createNegotiation();
  for (let i = 0; i < 5_000; i++) expect(negotiate(`x${i}, gzip`)).toBe('gzip');
  expect(negotiate('br;q=0')).toBeUndefined();
});
