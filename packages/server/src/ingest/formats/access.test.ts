import { describe, expect, test } from 'vitest';
import { createReader } from '../reader.ts';

const TIME = Date.UTC(2025, 11, 10, 9, 25, 32);
const STAMP = '[10/Dec/2025:09:25:32 +0000]';
const read = (line: string, host?: string) => createReader({ format: 'auto', host }).read(line, 0);
const record = (host?: string) => [
  {
    kind: 'record',
    format: 'access',
    record: expect.objectContaining({ time: TIME, host, request: true, attack: null }),
  },
];

describe('a request in an access log', () => {
  test.each([
    ['common', `192.0.2.7 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['combined', `192.0.2.7 - - ${STAMP} "GET / HTTP/1.1" 200 6 "-" "curl/8"`],
    ['with more behind', `192.0.2.7 - - ${STAMP} "GET / HTTP/1.1" 200 6 "-" "curl/8" "-" 0.003`],
    ['with a user', `::1 - ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with a user name of several words', `::1 - ann b c ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with identd', `192.0.2.7 ann ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with identd and no user', `192.0.2.7 ann - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['without a client', `- - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with forwarded addresses', `192.0.2.7, 192.0.2.8 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with three forwarded addresses', `192.0.2.7, 192.0.2.8, ::1 - ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['that is none of HTTP', `192.0.2.7 - - ${STAMP} "\\x16\\x03\\x01" 400 150`],
    ['that timed out', `192.0.2.7 - - ${STAMP} "-" 408 -`],
    ['that was cut on its way', `192.0.2.7 - - ${STAMP} "GET /aaaaaaaaaaaaaaaa`],
    ['whose user name holds a time', `::1 - [01/Jan/2020:00:00:00 +0000] ${STAMP} "GET / HTTP/1.1" 200 6`],
  ])('%s', (_, line) => {
    expect(read(line)).toEqual(record());
    expect(read(line, 'shop.example.com')).toEqual(record('shop.example.com'));
  });

  test.each([
    ['shop.example.com', `shop.example.com 192.0.2.7 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['shop.example.com:443', `shop.example.com:443 192.0.2.7 - ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['[2001:db8::1]:443', `[2001:db8::1]:443 2001:db8::7 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['www.example.com:443', `www.example.com:443 203.0.113.7, 10.0.0.1 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['shop.example.com', `shop.example.com 203.0.113.7, ::1, 10.0.0.1 - ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['192.0.2.1:80', `192.0.2.1:80 192.0.2.7 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
  ])('with the virtual host %s in front', (host, line) => {
    expect(read(line)).toEqual(record(host));
    expect(read(line, 'other.example.com')).toEqual(record(host));
  });
});

test.each([
  `192.0.2.7 - - [10/Dec/2025:09:25:32] "GET / HTTP/1.1" 200 6`,
  `192.0.2.7 - - [10/Dec/2025:09:25:99 +0000] "GET / HTTP/1.1" 200 6`,
  `192.0.2.7 - - ${STAMP}`,
  `${STAMP} "GET / HTTP/1.1" 200 6`,
  'hello',
  '',
])('%j is no line of an access log', (line) => {
  expect(read(line)).toEqual([{ kind: 'dropped', reason: 'unknown_format', format: 'none' }]);
});
