import fc from 'fast-check';
import { expect, test } from 'vitest';
import { attackDetails, normalHostname } from './event.ts';

test.each([
  ['203.0.113.7', '203.0.113.7'],
  ['203.0.113.7:443', '203.0.113.7'],
  ['2001:DB8:0:0::1', '2001:db8::1'],
  ['[2001:db8::1]:8080', '2001:db8::1'],
  ['::ffff:203.0.113.7', '203.0.113.7'],
  ['unix:', undefined],
  ['fe80::1%eth0', undefined],
  ['', undefined],
])('source %s is stored as %s', (source, expected) => {
  expect(attackDetails({ source })?.source).toBe(expected);
});

test.each([
  ['/a/b?c=d', '/a/b'],
  ['https://www.example.com/a#b', '/a'],
  ['http://www.example.com', '/'],
  ['/a\u202eb\n', '/a%E2%80%AEb%0A'],
  ['-', undefined],
])('URL %s is stored as %s', (url, expected) => {
  expect(attackDetails({ url })?.url).toBe(expected);
});

test('without valid fields there are no details', () => {
  expect(attackDetails({ source: '', url: '', rule: '', country: 'Germany' })).toBeUndefined();
});

test('details are printable and limited in length, whatever the log contains', () => {
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

test.each([
  ['Example.COM', 'example.com'],
  [' example.com. ', 'example.com'],
  ['example.com:8443', 'example.com'],
  ['example.com:', 'example.com'],
  ['[2001:DB8::1]:443', '[2001:db8::1]'],
  ['2001:db8::1', '2001:db8::1'],
  ['<script>alert(1)</script>', '<script>alert(1)</script>'],
  ['münchen.example', 'münchen.example'],
  ['', null],
  [':80', null],
  // The text after the colon is neither a port nor part of an IPv6 address.
  ['shop.example.com:80-', null],
  ['shop.example.com:http', null],
  ['shop.example.com:80:80', null],
  ['[shop:example]', null],
  ['a b', null],
  ['a\u0000b', null],
  ['\ud800', null],
  // What decoders make of bytes that are not UTF-8, and of lone surrogates.
  ['sh\ufffdp.example.com', null],
  ['x'.repeat(254), null],
])('host name %j is registered as %j', (text, want) => {
  expect(normalHostname(text)).toBe(want);
});
