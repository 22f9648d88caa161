import fc from 'fast-check';
import { expect, test } from 'vitest';
import { attackDetails } from './attack-details.ts';

test.each([
  ['203.0.113.7', '203.0.113.7'],
  ['203.0.113.7:443', '203.0.113.7'],
  ['2001:DB8:0:0::1', '2001:db8::1'],
  ['[2001:db8::1]:8080', '2001:db8::1'],
  ['::ffff:203.0.113.7', '203.0.113.7'],
  ['unix:', undefined],
  ['fe80::1%eth0', undefined],
  ['', undefined],
])('source %s is kept as %s', (source, expected) => {
  expect(attackDetails({ source })?.source).toBe(expected);
});

test.each([
  ['/a/b?c=d', '/a/b'],
  ['https://www.example.com/a#b', '/a'],
  ['http://www.example.com', '/'],
  ['/a\u202eb\n', '/a%E2%80%AEb%0A'],
  ['-', undefined],
])('url %s is kept as %s', (url, expected) => {
  expect(attackDetails({ url })?.url).toBe(expected);
});

test('nothing said gives no details', () => {
  expect(attackDetails({ source: '', url: '', rule: '', country: 'Germany' })).toBeUndefined();
});

test('whatever a log says, details are bounded and printable', () => {
  const text = fc.string({ unit: 'binary', maxLength: 2_000 });
  fc.assert(
    fc.property(text, text, text, text, (source, url, rule, country) => {
      const details = attackDetails({ blocked: true, source, url: `/${url}`, rule, country });
      expect(Buffer.byteLength(details?.url ?? '')).toBeLessThanOrEqual(256);
      expect((details?.rule ?? '').length).toBeLessThanOrEqual(64);
      expect(`${details?.url}${details?.rule}`).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]/u);
    }),
  );
});
