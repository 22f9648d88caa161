import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CATEGORIES } from '../../event.ts';
import { createReader } from '../reader.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30, 456);
const parseEvent = (line: string) => createReader({ format: 'events' }).read(line, 0)[0];
const parse = (fields: object) => parseEvent(JSON.stringify(fields));
const reasonOf = (line: string) => {
  const parsed = parseEvent(line);
  return parsed?.kind === 'dropped' ? parsed.reason : 'counted';
};

test('the minimal event is a time: one request without a host', () => {
  expect(parse({ time: TIME })).toEqual({
    kind: 'record',
    format: 'events',
    record: { time: TIME, host: undefined, hostId: undefined, request: true, attack: null, count: 1 },
  });
});

test('all fields are read, and unknown ones ignored', () => {
  const fields = {
    time: TIME,
    host: 'a',
    host_id: 'b',
    request: false,
    attack: 'sqli',
    count: 1_000_000,
    ip: '::1',
  };
  expect(parse(fields)).toEqual({
    kind: 'record',
    format: 'events',
    record: { time: TIME, host: 'a', hostId: 'b', request: false, attack: 'sqli', count: 1_000_000 },
  });
  for (const attack of CATEGORIES)
    expect(parse({ time: TIME, attack })).toMatchObject({ record: { attack } });
});

test('details are normalized, and ignored without an attack', () => {
  const details = { blocked: false, source: '2001:DB8::0:1', url: '/a?b=c', rule: '942100', country: 'de' };
  expect(parse({ time: TIME, attack: 'sqli', ...details })).toMatchObject({
    record: {
      details: {
        blocked: false,
        source: '2001:db8::1',
        url: '/a',
        query: 'b=c',
        rule: '942100',
        country: 'DE',
      },
    },
  });
  expect(parse({ time: TIME, ...details })).toMatchObject({ record: { attack: null, details: undefined } });
  expect(parse({ time: TIME, attack: 'sqli', blocked: null, source: null })).toMatchObject({
    record: { details: undefined },
  });
  // Every field alone, because events without any of them are parsed by a shorter path.
  for (const [name, value] of Object.entries({
    blocked: true,
    source: '192.0.2.7',
    url: '/',
    rule: '1',
    country: 'DE',
    id: '1',
    method: 'GET',
    status: 403,
    score: 5,
    rules: [{ id: '1' }],
  }))
    expect(parse({ time: TIME, attack: 'sqli', [name]: value })).toMatchObject({
      record: { details: { [name]: value } },
    });
});

test.each([
  { blocked: 'yes' },
  { blocked: 1 },
  { source: 'localhost' },
  { source: 7 },
  { source: '' },
  { url: '' },
  { url: '-' },
  { url: ['/'] },
  { rule: 942100 },
  { country: 'Germany' },
  { country: '' },
])('%j is rejected', (details) => {
  expect(parse({ time: TIME, attack: 'sqli', ...details })).toMatchObject({ reason: 'bad_details' });
});

test.each([
  ['2026-07-01T10:20:30.456Z', TIME],
  ['2026-07-01T18:20:30.456+08:00', TIME],
  ['2026-07-01T18:20:30,456+0800', TIME],
  ['2026-07-01 04:35:30.456-05:45', TIME],
  ['2026-07-01T10:20:30.4569999Z', TIME],
  ['2026-07-01T10:20:30Z', TIME - 456],
  ['2026-07-01T10:20Z', TIME - 30_456],
  ['2026-07-01T18:20:30.456+08', TIME],
  ['2026-07-01T10:20:30.4Z', TIME - 56],
  ['2024-02-29T00:00:00Z', Date.UTC(2024, 1, 29)],
])('%s is a time', (time, want) => {
  expect(parse({ time })).toMatchObject({ record: { time: want } });
});

test.each([
  ['2026-07-01T10:20:30.456'],
  ['2026-02-30T00:00:00Z'],
  ['2026-13-01T00:00:00Z'],
  ['2026-07-01T24:00:00Z'],
  ['2026-07-01T10:60:00Z'],
  ['2026-07-01'],
  ['1782901230456'],
  [''],
  [1.5],
  [1e300],
  [null],
  [true],
  [[]],
])('%j is not a time', (time) => {
  expect(parse({ time })).toMatchObject({ kind: 'dropped', reason: 'bad_time' });
});

test.each([
  ['', 'not_json'],
  ['{"time":', 'not_json'],
  ['nonsense', 'not_json'],
  ['[]', 'not_an_object'],
  ['null', 'not_an_object'],
  ['5', 'not_an_object'],
  [`{"time":${TIME},"host":5}`, 'bad_host'],
  [`{"time":${TIME},"host_id":"a b"}`, 'bad_host'],
  [`{"time":${TIME},"host_id":""}`, 'bad_host'],
  [`{"time":${TIME},"request":"yes"}`, 'bad_request'],
  [`{"time":${TIME},"attack":"SQLI"}`, 'bad_attack'],
  [`{"time":${TIME},"attack":"constructor"}`, 'bad_attack'],
  [`{"time":${TIME},"attack":1}`, 'bad_attack'],
  [`{"time":${TIME},"count":0}`, 'bad_count'],
  [`{"time":${TIME},"count":1000001}`, 'bad_count'],
  [`{"time":${TIME},"count":1.5}`, 'bad_count'],
  [`{"time":${TIME},"count":"1"}`, 'bad_count'],
  [`{"time":${TIME},"request":false}`, 'nothing_to_count'],
  [`{"time":${TIME},"host":null,"attack":null}`, 'counted'],
])('%s: %s', (line, want) => {
  expect(reasonOf(line)).toBe(want);
});

test('any text and any JSON is a record or a drop reason, never an exception', () => {
  const hostile = fc.oneof(fc.string({ unit: 'binary' }), fc.json(), fc.constant('['.repeat(100_000)));
  fc.assert(
    fc.property(hostile, (line) => {
      expect(['record', 'dropped']).toContain(parseEvent(line)?.kind);
    }),
  );
});
