/** Formats of engines that could not be run here: fixtures written by hand from their documentation and source. */
import { expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines } from '../../../fixtures/read-fixture.ts';
import { fixedZone } from './time-zone.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);

test('Coraza in JSON: seconds or nanoseconds, with the rule as fields or as text', () => {
  const parsed = readFixture('coraza-json.log');
  expect(outcomes(parsed)).toEqual(['sqli', 'sqli', 'not_an_attack']);
  expect(parsed[0]).toMatchObject({ record: { time: TIME + 456, host: 'shop.example.com', request: false } });
  expect(parsed[1]).toMatchObject({ record: { time: TIME } });
  for (const each of parsed.slice(0, 2)) {
    expect(each).toMatchObject({
      record: { details: { blocked: true, source: '192.0.2.7', url: '/', rule: '942100' } },
    });
  }
});

test('Coraza in JSON: an own rule that stopped the request wins over a protocol rule', () => {
  const record = JSON.parse(fixtureLines('coraza-json.log')[0] ?? '');
  const messages = [
    { data: { id: 920350, severity: 4, ver: 'OWASP_CRS/4.7.0', tags: [] } },
    { data: { id: 10001, severity: 0, ver: '', tags: [] } },
  ];
  const read = (is_interrupted: boolean) =>
    outcomes(
      readLines([JSON.stringify({ transaction: { ...record.transaction, is_interrupted }, messages })]),
    );
  expect(read(true)).toEqual(['custom']);
  expect(read(false)).toEqual(['illegal']);
});

test('Coraza in JSON: a request that was stopped is an attack, even if no rule is named', () => {
  const [line = ''] = fixtureLines('coraza-json.log');
  const record = JSON.parse(line);
  expect(outcomes(readLines([JSON.stringify({ ...record, messages: [] })]))).toEqual(['vuln']);
});

test('Caddy with Coraza: rules joined by their id, and access lines, in JSON and as on a terminal', () => {
  const parsed = readFixture('caddy.log');
  expect(outcomes(parsed)).toEqual(['other_log_line', 'request', 'sqli']);
  expect(parsed.map(({ format }) => format)).toEqual(['caddy', 'access-json', 'caddy']);
  expect(parsed[2]).toMatchObject({
    record: {
      time: TIME + 456,
      host: 'shop.example.com',
      details: { blocked: true, source: '192.0.2.7', url: '/', rule: '942100' },
    },
  });
  const onTerminal = readFixture('caddy-terminal.log', { zone: fixedZone(60) });
  expect(outcomes(onTerminal)).toEqual(['other_log_line', 'sqli']);
  expect(onTerminal[1]).toMatchObject({ record: { time: TIME + 456 - 3_600_000 } });
});

test("the vendor's logs: requests from the access log, attacks from the attack log", () => {
  const parsed = readFixture('lts.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'lfi', 'whiteblackip', 'robot', 'vuln']);
  for (const each of parsed) {
    expect(each).toMatchObject({ record: { time: TIME, host: 'shop.example.com', hostId: undefined } });
  }
  const details = parsed.map((each) => (each.kind === 'record' ? each.record.details : null));
  expect(details.slice(0, 2)).toEqual([undefined, undefined]);
  const said = { source: '192.0.2.7', url: '/', rule: '040002' };
  expect(details.slice(2)).toEqual([true, false, true, true].map((blocked) => ({ blocked, ...said })));
});

test("the vendor's attack log: two alarms of one request are one attack", () => {
  const alarm = (attack: string) =>
    JSON.stringify({
      category: 'attack',
      hostid: 'h',
      attack,
      requestid: 'r',
      'attack-time': '2026-07-01T10:20:30Z',
    });
  expect(outcomes(readLines([alarm('xss'), alarm('sqli')]))).toEqual(['xss', 'same_request']);
  expect(outcomes(readLines([alarm('')]))).toEqual(['bad_record']);
  expect(readLines([alarm('xss')])).toMatchObject([{ record: { host: undefined, hostId: 'h' } }]);
});

test('AWS WAF: every object is a request, blocked and counted ones are attacks too', () => {
  const parsed = readFixture('aws-waf.log');
  expect(outcomes(parsed)).toEqual([
    'request',
    'request + xss',
    'request + cc',
    'request + sqli',
    'request + custom',
    'request + illegal',
    'request + robot',
    'request + whiteblackip',
  ]);
  for (const each of parsed) {
    expect(each).toMatchObject({ format: 'aws-waf', record: { time: TIME + 456, host: 'shop.example.com' } });
  }
  const details = parsed.map((each) => (each.kind === 'record' ? each.record.details : null));
  expect(details[0]).toBeUndefined();
  expect(details[1]).toEqual({
    blocked: true,
    source: '192.0.2.7',
    url: '/',
    rule: 'CrossSiteScripting_QUERYARGUMENTS',
    country: 'NL',
  });
  // Rules that count let the request through.
  const blocked = details.slice(1).map((each) => each?.blocked);
  expect(blocked).toContain(false);
});

test('JSON over several lines is no record, and says what to do', () => {
  const lines = ['{', '"timestamp": 1782901230456,', '"labels": [', '{', '},', ']', '}'];
  expect(new Set(outcomes(readLines(lines)))).toEqual(new Set(['json_fragment']));
});

test('objects without a line end between them are counted up to where the line was cut', () => {
  const event = `{"time":${TIME},"host":"a}{\\"b"}`;
  expect(outcomes(readLines([`${event}${event} ${event}`]))).toEqual(['request', 'request', 'request']);
  expect(outcomes(readLines([`${event}${event.slice(0, -3)}`]))).toEqual(['request', 'not_json']);
  expect(outcomes(readLines([`[${event},${event},5]`]))).toEqual(['request', 'request', 'not_an_object']);
});

test('an object is an envelope only if it has nothing but records', () => {
  const records = [{ time: 1 }, { time: 2 }];
  expect(outcomes(readLines([JSON.stringify({ records })]))).toEqual(['request', 'request']);
  // Else it is a record that has such a field.
  expect(outcomes(readLines([JSON.stringify({ time: 1, host: 'a', records })]))).toEqual(['request']);
});

test('a line that is nothing but records has a limit', () => {
  for (const line of ['{}'.repeat(20_000), `[${'{},'.repeat(20_000)}{}]`]) {
    const parsed = outcomes(readLines([line]));
    expect(parsed).toHaveLength(10_001);
    expect(parsed.at(-1)).toBe('too_many_records');
  }
});

test('logs of other vendors are not taken for ours because they have a time', () => {
  const azure = {
    time: '2026-07-01T10:20:30Z',
    category: 'FrontDoorHealthProbeLog',
    properties: {},
  };
  const google = { timestamp: '2026-07-01T10:20:30Z', httpRequest: { status: 403 }, jsonPayload: {} };
  expect(outcomes(readLines([azure, google].map((each) => JSON.stringify(each))))).toEqual([
    'unknown_format',
    'unknown_format',
  ]);
});
