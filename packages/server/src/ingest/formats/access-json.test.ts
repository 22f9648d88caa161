import { expect, test } from 'vitest';
import { createReader } from '../reader.ts';
import { fixedZone } from './time-zone.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30, 456);
const read = (fields: object, offset_minutes = 0) =>
  createReader({ format: 'auto', zone: fixedZone(offset_minutes) }).read(JSON.stringify(fields), 0)[0];

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
  [{ StartUTC: '2026-07-01T10:20:30.456Z', domain: 'd.example.com', RequestMethod: 'GET' }, 'd.example.com'],
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

test('a time without a zone is placed by the zone of the source', () => {
  const fields = { time_local: '2026-07-01T18:20:30.456', status: 200 };
  expect(read(fields, 480)).toMatchObject({ record: { time: TIME } });
});

test('an event of the normal form stays one, whatever else it carries', () => {
  const event = { time: TIME, attack: 'sqli', status: 403, method: 'GET' };
  expect(read(event)).toMatchObject({ format: 'events', record: { attack: 'sqli' } });
  expect(read({ time: TIME, request: false, status: 1 })).toMatchObject({ format: 'events' });
});

test('JSON of no known form says so', () => {
  expect(read({ some: 'thing' })).toMatchObject({ reason: 'unknown_format', format: 'none' });
  expect(read({ status: 200, msec: 'never' })).toMatchObject({ reason: 'bad_time', format: 'access-json' });
});
