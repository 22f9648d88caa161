/** Coraza cannot be run here: its fixtures are written by hand. Real engines are in engines.test.ts. */
import { expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines } from '../../../fixtures/read-fixture.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);

test('Coraza: times in seconds or nanoseconds, rules as fields or as text', () => {
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

test('Coraza: a custom rule that stopped the request wins over a protocol rule', () => {
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

test('Coraza: a stopped request is an attack even without rules', () => {
  const [line = ''] = fixtureLines('coraza-json.log');
  const record = JSON.parse(line);
  expect(outcomes(readLines([JSON.stringify({ ...record, messages: [] })]))).toEqual(['vuln']);
});
