import { describe, expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines, recordsOf } from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';
import { fixedZone } from './time-zone.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);
const HOST = 'shop.example.com';

test('Envoy: every object is a request; one over a rate limit is also an attack', () => {
  const parsed = readFixture('envoy.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'request + cc', 'request']);
  for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME + 456, host: HOST });
  expect(recordsOf(parsed)[2]?.details).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: '00000000-0000-0000-0000-000000000000',
    method: 'GET',
    url: '/',
    query: 'a=1',
    status: 429,
    userAgent: 'example/1',
  });
});

test('Envoy in text: the host is not what a client writes into quotes, and connections are no requests', () => {
  const parsed = readFixture('envoy-text.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'request + cc', 'other_log_line']);
  for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME + 456, host: HOST });
});

test('Zoraxy: requests, with and without the time of the logger, are not an error log', () => {
  const parsed = readFixture('zoraxy.log');
  expect(outcomes(parsed)).toEqual(['other_log_line', 'request', 'request', 'request']);
  expect(new Set(parsed.map(({ format }) => format))).toEqual(new Set(['zoraxy']));
  expect(recordsOf(parsed).map(({ host }) => host)).toEqual([HOST, HOST, '[2001:db8::1]:8443']);
  const [first] = recordsOf(readFixture('zoraxy.log', { zone: fixedZone(60) }));
  expect(first?.time).toBe(TIME + 456 - 3_600_000);
});

describe('IIS', () => {
  test('the columns are those of the last #Fields line', () => {
    const parsed = readFixture('iis.log');
    expect(outcomes(parsed)).toEqual(['request', 'request', 'request', 'request']);
    expect(recordsOf(parsed)).toMatchObject([
      { time: TIME, host: 'Shop.example.com:443' },
      { time: TIME, host: HOST },
      { time: TIME, host: undefined },
      { time: TIME, host: undefined },
    ]);
    // Times are in UTC, whatever the zone of other logs.
    expect(recordsOf(readFixture('iis.log', { zone: fixedZone(60) }))[0]?.time).toBe(TIME);
  });

  test('another process continues with the same columns', () => {
    const lines = fixtureLines('iis.log');
    const first = createReader({ format: 'auto' });
    for (const line of lines.slice(0, 5)) first.read(line, 0);
    const second = createReader({ format: 'auto' }, first.state());
    expect(second.read(lines[5] ?? '', 0)).toMatchObject([{ format: 'iis', record: { host: HOST } }]);
    expect(outcomes(readLines(lines.slice(5, 6)))).toEqual(['unknown_format']);
  });

  test('a line with other columns, or a time that does not exist, is dropped', () => {
    const lines = fixtureLines('iis.log').slice(0, 4);
    const [, , , , line = ''] = fixtureLines('iis.log');
    expect(outcomes(readLines([...lines, `${line} x`]))).toEqual(['bad_record']);
    expect(outcomes(readLines([...lines, line.replace('10:20:30', '10:20:60')]))).toEqual(['bad_time']);
    expect(outcomes(readLines([...lines, line], { format: 'iis' }))).toEqual(['request']);
  });
});

test('Traefik: every object and every line is a request', () => {
  for (const record of recordsOf(readFixture('traefik.log')))
    expect(record).toMatchObject({ time: TIME + 456, host: HOST, request: true });
  expect(outcomes(readFixture('traefik-clf.log'))).toEqual(['request', 'request']);
});

describe('HAProxy', () => {
  test('the host comes from the URL, the first captured header or the TLS handshake', () => {
    const parsed = readFixture('haproxy.log');
    expect(outcomes(parsed)).toEqual([
      'request',
      'request',
      'request',
      'request',
      'request',
      'other_log_line',
      'request',
      'request',
    ]);
    expect(recordsOf(parsed).map(({ host }) => host)).toEqual([
      HOST,
      HOST,
      undefined,
      'www.example.com:18183',
      'www.example.com',
      '[::1]:18186',
      undefined,
    ]);
  });

  test('times are in the zone of the log', () => {
    const [line = ''] = fixtureLines('haproxy.log');
    expect(recordsOf(readLines([line], { zone: fixedZone(60) }))).toMatchObject([
      { time: Date.UTC(2026, 10, 15, 11, 18, 13, 490) },
    ]);
  });

  test('second 60 is a bad time', () => {
    const [line = ''] = fixtureLines('haproxy.log');
    const leap = line.replace(/:\d\d(\.\d{3}\])/, ':60$1');
    expect(outcomes(readLines([leap]))).toEqual(['bad_time']);
  });

  test('a captured header that does not look like a host is ignored', () => {
    const [line = ''] = fixtureLines('haproxy.log');
    for (const captured of ['Mozilla/5.0 (X11)', '', '-', 'a b']) {
      const other = line.replace('{shop.example.com', `{${captured}`);
      expect(recordsOf(readLines([other]))).toMatchObject([{ host: undefined }]);
    }
  });
});
