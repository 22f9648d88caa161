import { describe, expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines, recordsOf } from '../../../fixtures/read-fixture.ts';
import { fixedZone } from './time-zone.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);
const HOST = 'shop.example.com';

test('Envoy: every object is a request; one over a rate limit is also an attack', () => {
  const parsed = readFixture('envoy.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'request + cc', 'request']);
  for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME + 456, host: HOST });
  expect(recordsOf(parsed)[2]?.details).toEqual({ blocked: true, source: '192.0.2.7', url: '/' });
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

  test('a captured header that does not look like a host is ignored', () => {
    const [line = ''] = fixtureLines('haproxy.log');
    for (const captured of ['Mozilla/5.0 (X11)', '', '-', 'a b']) {
      const other = line.replace('{shop.example.com', `{${captured}`);
      expect(recordsOf(readLines([other]))).toMatchObject([{ host: undefined }]);
    }
  });
});
