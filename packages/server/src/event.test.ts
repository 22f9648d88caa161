import { expect, test } from 'vitest';
import { networkOf, normalHostname } from './event.ts';

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
