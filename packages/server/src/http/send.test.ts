import { expect, test } from 'vitest';
import { contentCoding } from './send.ts';

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
  expect(contentCoding(header)).toBe(expected);
});
