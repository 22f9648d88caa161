import { describe, expect, test } from 'vitest';
import { createReader } from '../reader.ts';
import { fixedZone } from './time-zone.ts';

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
    ['with more fields', `192.0.2.7 - - ${STAMP} "GET / HTTP/1.1" 200 6 "-" "curl/8" "-" 0.003`],
    ['with a user', `::1 - ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with a user name of several words', `::1 - ann b c ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with identd', `192.0.2.7 ann ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with identd and no user', `192.0.2.7 ann - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['without a client', `- - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with forwarded addresses', `192.0.2.7, 192.0.2.8 - - ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['with three forwarded addresses', `192.0.2.7, 192.0.2.8, ::1 - ann ${STAMP} "GET / HTTP/1.1" 200 6`],
    ['that is not HTTP', `192.0.2.7 - - ${STAMP} "\\x16\\x03\\x01" 400 150`],
    ['that timed out', `192.0.2.7 - - ${STAMP} "-" 408 -`],
    ['that was cut', `192.0.2.7 - - ${STAMP} "GET /aaaaaaaaaaaaaaaa`],
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
  `192.0.2.7 - - ${STAMP}`,
  `${STAMP} "GET / HTTP/1.1" 200 6`,
  'hello',
  '',
])('%j is not an access line', (line) => {
  expect(read(line)).toEqual([{ kind: 'dropped', reason: 'unknown_format', format: 'none' }]);
});

describe('a request after a quoted X-Forwarded-For', () => {
  test.each([
    [
      'of several addresses',
      `"10.5.102.222, 199.96.1.1" 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1 "-" "x"`,
    ],
    ['that is empty', `"-" 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1 "-" "x"`],
    ['and of an IPv6 client', `"-" ::1 - ann ${STAMP} "GET / HTTP/1.1" 200 1`],
    ['with an escaped quote', `"a\\" b\\\\" 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1`],
    // The client chooses all of it but its end.
    ['that holds a time', `"[01/Jan/2020:00:00:00 +0000] " 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1`],
    ['that holds a line', `"x.example.com ::1 - - [01/Jan/2020:00:00:00 +0000] " ::1 - - ${STAMP} "GET /"`],
    ['that holds HAProxy', `"x [06/Feb/2009:12:14:14.655] y" 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1`],
    ['that holds nginx', `"202/07/01 10:20:30 [error] " 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1`],
  ])('%s', (_, line) => {
    expect(read(line)).toEqual(record());
    expect(read(line, 'shop.example.com')).toEqual(record('shop.example.com'));
  });

  test('has the virtual host that follows it', () => {
    const line = `"203.0.113.7" shop.example.com:443 10.2.1.185 - - ${STAMP} "GET / HTTP/1.1" 200 1`;
    expect(read(line)).toEqual(record('shop.example.com:443'));
  });
});

test.each([
  `"log": "192.0.2.7 - - ${STAMP} \\"GET / HTTP/1.1\\" 200 1",`,
  `"log" : "192.0.2.7 - - ${STAMP} "`,
  `"192.0.2.7 - - ${STAMP} \\"GET / HTTP/1.1\\" 200 1",`,
])('%s is a part of JSON', (line) => {
  expect(read(line)).toEqual([{ kind: 'dropped', reason: 'json_fragment', format: 'none' }]);
});

test.each([`"a" b`, `"a`, `"a" 192.0.2.7 - - [time] "GET / HTTP/1.1" 200 1`])(
  '%s is not a part of JSON',
  (line) => {
    expect(read(line)).toEqual([{ kind: 'dropped', reason: 'unknown_format', format: 'none' }]);
  },
);

test.each(['60', '99'])('second %s is a bad time', (second) => {
  const line = `192.0.2.7 - - [10/Dec/2025:09:25:${second} +0000] "GET / HTTP/1.1" 200 6`;
  expect(read(line)).toEqual([{ kind: 'dropped', reason: 'bad_time', format: 'access' }]);
});

describe('as JSON', () => {
  const TIME = Date.UTC(2026, 6, 1, 10, 20, 30, 456);
  const read = (fields: object, offsetMinutes = 0) =>
    createReader({ format: 'auto', zone: fixedZone(offsetMinutes) }).read(JSON.stringify(fields), 0)[0];

  test.each([
    [{ msec: '1782901230.456', host: 'a.example.com', status: '200' }, 'a.example.com'],
    [{ msec: 1782901230.456, http_host: 'a.example.com', status: 200 }, 'a.example.com'],
    [
      { time_iso8601: '2026-07-01T18:20:30.456+08:00', server_name: 'a.example.com', request: 'GET /' },
      'a.example.com',
    ],
    [
      { '@timestamp': '2026-07-01T10:20:30.456Z', host: '-', http_host: 'b.example.com', status: 404 },
      'b.example.com',
    ],
    [{ timestamp: 1782901230456, host: { name: 'beat' }, request_method: 'GET' }, undefined],
    [{ time: '2026-07-01T10:20:30.456Z', request_uri: '/', host: '' }, undefined],
    [
      {
        ts: 1782901230.456,
        logger: 'http.log.access',
        level: 'info',
        msg: 'handled request',
        request: { host: 'c.example.com' },
        status: 200,
      },
      'c.example.com',
    ],
    [{ start_time: '2026-07-01T10:20:30.456Z', authority: 'd.example.com', method: 'GET' }, 'd.example.com'],
    [
      { start_time: '2026-07-01T10:20:30.456Z', ':authority': 'd.example.com', response_code: 200 },
      'd.example.com',
    ],
    [
      { StartUTC: '2026-07-01T10:20:30.456Z', domain: 'd.example.com', RequestMethod: 'GET' },
      'd.example.com',
    ],
    [{ timestamp: 1782901230456, RequestHost: 'd.example.com', status: 200 }, 'd.example.com'],
    [
      {
        '@timestamp': '2026-07-01T10:20:30.456Z',
        'url.domain': 'e.example.com',
        'http.request.method': 'GET',
        host: 'machine',
      },
      'e.example.com',
    ],
    [
      {
        '@timestamp': '2026-07-01T10:20:30.456Z',
        url: { domain: 'e.example.com', path: '/' },
        http: { response: { status_code: 200 } },
        host: { name: 'machine' },
      },
      'e.example.com',
    ],
  ])('%j is a request', (fields, host) => {
    expect(read(fields)).toMatchObject({
      kind: 'record',
      format: 'access-json',
      record: { time: TIME, request: true },
    });
    expect(read(fields)).toHaveProperty('record.host', host);
  });

  test('a time without a zone is in the zone of the log', () => {
    const fields = { time_local: '2026-07-01T18:20:30.456', status: 200 };
    expect(read(fields, 480)).toMatchObject({ record: { time: TIME } });
  });

  test('an event may have any additional field', () => {
    const event = { time: TIME, attack: 'sqli', status: 403, method: 'GET' };
    expect(read(event)).toMatchObject({ format: 'events', record: { attack: 'sqli' } });
    expect(read({ time: TIME, request: false, status: 1 })).toMatchObject({ format: 'events' });
  });

  test('unknown JSON is dropped as unknown_format', () => {
    expect(read({ some: 'thing' })).toMatchObject({ reason: 'unknown_format', format: 'none' });
    expect(read({ status: 200, msec: 'never' })).toMatchObject({ reason: 'bad_time', format: 'access-json' });
  });
});
