import { describe, expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines } from '../../fixtures/read-fixture.ts';
import { LOG_FORMATS } from './formats/format.ts';
import { JSON_FORMATS, TEXT_FORMATS } from './formats/registry.ts';
import { createReader } from './reader.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);
const ACCESS = '192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200 6';

describe('a reader without a format', () => {
  test('recognizes each line on its own, so that a stream may mix formats', () => {
    const lines = [
      `{"time":${TIME},"attack":"xss"}`,
      ACCESS,
      '2026/07/01 10:20:30 [notice] 1#1: start worker processes',
      ...fixtureLines('modsecurity2-native.log').slice(0, 3),
      // The stream has an error log, so a client may have written the block: lines inside it are counted too.
      ACCESS,
      ...fixtureLines('modsecurity2-native.log').slice(3),
      'something else',
      ACCESS,
    ];
    const parsed = readLines(lines);
    expect(parsed.slice(0, 3).map(({ format }) => format)).toEqual(['events', 'access', 'nginx-error']);
    expect(outcomes(parsed).slice(-2)).toEqual(['unknown_format', 'request']);
    expect(parsed.filter(({ format }) => format === 'access')).toHaveLength(3);
    // Without an error log, a line inside an open block belongs to the block.
    const withoutErrorLog = readLines(lines.toSpliced(2, 1));
    expect(withoutErrorLog.filter(({ format }) => format === 'access')).toHaveLength(2);
  });

  test('returns the format of each record and each drop', () => {
    expect(new Set(readFixture('lts.log').map(({ format }) => format))).toEqual(new Set(['lts']));
    expect(readLines(['{', 'x', '{"a":1}']).map(({ format }) => format)).toEqual(['none', 'none', 'none']);
  });
});

describe('a reader with a format', () => {
  test('recognizes no other format', () => {
    expect(outcomes(readLines([ACCESS], { format: 'events' }))).toEqual(['not_json']);
    expect(outcomes(readLines([`{"time":${TIME}}`], { format: 'access' }))).toEqual(['unknown_format']);
    expect(outcomes(readLines([ACCESS], { format: 'modsecurity-native' }))).toEqual(['unknown_format']);
    expect(outcomes(readLines([`{"time":${TIME}}`], { format: 'aws-waf' }))).toEqual(['bad_time']);
  });

  test('parses lines that it would not have recognized', () => {
    const line = JSON.stringify({ time: '2026-07-01T10:20:30Z', vhost: 'shop.example.com', bytes: 5 });
    expect(readLines([line], { format: 'access-json' })).toMatchObject([
      { record: { time: TIME, host: 'shop.example.com' } },
    ]);
  });
});

test('the host option applies only to logs that name no host', () => {
  const host = 'other.example.com';
  expect(readLines([ACCESS], { host })).toMatchObject([{ record: { host } }]);
  for (const name of ['modsecurity3-json.log', 'aws-waf.log', 'nginx-error.log', 'caddy-terminal.log']) {
    for (const each of readFixture(name, { host })) {
      if (each.kind === 'record') expect(each.record.host).not.toBe(host);
    }
  }
  const nameless = fixtureLines('apache-error.log').map((line) => line.replace('"shop.example.com"', '""'));
  const records = readLines(nameless, { host }).filter(({ kind }) => kind === 'record');
  expect(records.some((each) => each.kind === 'record' && each.record.host === host)).toBe(true);
});

test('overrides decide the category of single rules', () => {
  const overrides = new Map([
    ['942100', 'custom' as const],
    ['10001', null],
  ]);
  const counted = outcomes(readFixture('modsecurity2-json.log', { overrides }));
  expect(counted.toSorted()).toEqual(['custom', 'not_an_attack', 'not_an_attack', 'robot', 'xss', 'xss']);
});

test.each(['{x', '}x', '{}', ']x', '[]x', '{"a":1}', '{"time":"2026-07-01T10:20:30Z","attack":"xss"}'])(
  'a client that sends the host %s does not hide its request',
  (host) => {
    expect(readLines([`${host}:443 ${ACCESS}`])).toMatchObject([
      { kind: 'record', format: 'access', record: { host: `${host}:443`, request: true, attack: null } },
    ]);
  },
);

test('broken JSON is reported as such', () => {
  expect(outcomes(readLines(['{"time":', '}', '{x', `{"time":${TIME}}{"a"`]))).toEqual([
    'not_json',
    'json_fragment',
    'not_json',
    'request',
    'not_json',
  ]);
});

test('an event in a stream with an error log is not recognized: a client may have written it there', () => {
  const event = `{"time":${TIME},"attack":"sqli","host":"victim.example","count":1000000}`;
  const error = '2026/07/01 10:20:30 [error] 1#1: *1 FastCGI sent in stderr: "PHP message: ';
  expect(outcomes(readLines([event, error, event]))).toEqual([
    'request + sqli',
    'other_log_line',
    'unknown_format',
  ]);
  expect(outcomes(readLines([event, error, event], { format: 'events' }))).toEqual([
    'request + sqli',
    'not_json',
    'request + sqli',
  ]);
});

test('logs with independent lines leave no reader state', () => {
  const reader = createReader({ format: 'auto' });
  for (const line of [...fixtureLines('nginx-combined.log'), ...fixtureLines('aws-waf.log')])
    reader.read(line, 0);
  expect(reader.state()).toBe('');
});

test('every format on the command line has a parser', () => {
  const named = new Set([...TEXT_FORMATS, ...JSON_FORMATS].map(({ name }) => name));
  expect([...named, 'modsecurity-native'].toSorted()).toEqual([...LOG_FORMATS].toSorted());
});
