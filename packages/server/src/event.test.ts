import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { attackDetails, dropExample, networkOf, normalHostname } from './event.ts';

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
  ['/a b ', '/a%20b%20'],
  ['/Grüße/日本語/😀', '/Grüße/日本語/😀'],
  ['@evil.example/a', '/@evil.example/a'],
  ['*', '*'],
  ['-', undefined],
])('URL %s is stored as %s', (url, expected) => {
  expect(attackDetails({ url })?.url).toBe(expected);
});

test.each([
  ['no-break space', '\u00a0'],
  ['soft hyphen', '\u00ad'],
  ['combining grapheme joiner', '\u034f'],
  ['Arabic letter mark', '\u061c'],
  ['Hangul filler', '\u3164'],
  ['half-width Hangul filler', '\uffa0'],
  ['Ogham space', '\u1680'],
  ['zero-width space', '\u200b'],
  ['right-to-left isolate', '\u2067'],
  ['line separator', '\u2028'],
  ['Braille blank', '\u2800'],
  ['ideographic space', '\u3000'],
  ['variation selector', '\ufe0f'],
  ['byte order mark', '\ufeff'],
  ['private use', '\ue000'],
  ['unassigned', '\u{e0fff}'],
  ['tag', '\u{e0041}'],
  ['variation selector 17', '\u{e0100}'],
  ['Khitan filler', '\u{16fe4}'],
  ['null notehead', '\u{1d159}'],
  ['lone surrogate', '\udc00'],
])('%s is visible in URLs and rules, and in no host name', (_, character) => {
  // In UTF-8, a lone surrogate becomes U+FFFD.
  const encoded = encodeURIComponent(Buffer.from(character).toString());
  expect(attackDetails({ url: `/a${character}b`, rule: `a${character}b` })).toEqual({
    url: `/a${encoded}b`,
    rule: `a${encoded}b`,
  });
  expect(normalHostname(`shop${character}.example.com`)).toBeNull();
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

test.each([
  ['203.0.113.7', '203.0.113.7', '203.0.113.0/24'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64', '2001:db8:1::/48'],
  ['2001:db8::1', '2001:db8::/64', '2001:db8::/48'],
  ['2001:db8:0:7::', '2001:db8:0:7::/64', '2001:db8::/48'],
  ['2001:0:0:7::1', '2001:0:0:7::/64', '2001::/48'],
  ['::1', '::/64', '::/48'],
  ['fe80::1:2:3:4:5', 'fe80:0:0:1::/64', 'fe80::/48'],
  ['198.51.100.0/24', '198.51.100.0/24', '198.51.100.0/24'],
])('the networks of %s are %s and %s', (address, ranked, prefix) => {
  expect(networkOf(address, { ipv4: 32, ipv6: 64 })).toBe(ranked);
  expect(networkOf(address, { ipv4: 24, ipv6: 48 })).toBe(prefix);
});

describe('an example of a dropped line', () => {
  test.each([
    ['GET /a?token=S&x=S HTTP/1.1', 'GET /a?... HTTP/1.1'],
    ['192.0.2.7 "GET /a" Cookie: id="S"; b=S', '192.0.2.7 "GET /a" Cookie: ...'],
    ['Set-Cookie: S; Path=/', 'Set-Cookie: ...'],
    ['{"Authorization":"Basic S","host":"a"}', '{"Authorization":"...","host":"a"}'],
    ['{"Cookie":["a=\\"S\\"; b=S"],"host":"a"}', '{"Cookie":["..."],"host":"a"}'],
    ['{"name":"cookie","value":"S"},{"name":"b"}', '{"name":"cookie","value":"..."},{"name":"b"}'],
    ['{"log":"{\\"proxy-authorization\\":\\"S\\"}"}', '{"log":"{\\"proxy-authorization\\":\\"..."}'],
    ['sent Bearer S.S-S= and went on', 'sent Bearer ... and went on'],
    ['user=a&password=S&x=1', 'user=a&password=...&x=1'],
    ['{"passwd": "S \\" S", "x": 1, "pwd":S}', '{"passwd": "...", "x": 1, "pwd":...}'],
    ["X-Api-Key: S, client_secret='S'", "X-Api-Key: ..., client_secret='...'"],
    ["against variable `ARGS:password' (Value: `S' )", "against variable `ARGS:password' (Value: `...' )"],
    ['found within REQUEST_COOKIES:session_id: S', 'found within REQUEST_COOKIES:session_id: ...'],
    ['"cookie":"S', '"cookie":"...'],
    ['https://u:S@www.example.com/', 'https://...@www.example.com/'],
    ['the word password, and a cookie', 'the word password, and a cookie'],
  ])('has no secrets: %s', (line, shown) => {
    expect(dropExample(line)).toBe(shown);
  });
});
