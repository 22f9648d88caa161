import fc from 'fast-check';
import { expect, test } from 'vitest';
import { outcomes, readLines } from '../../../fixtures/read-fixture.ts';
import { tryParse } from './json.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);

test('tryParse equals JSON.parse for any text', () => {
  const parse = (text: string): unknown => {
    try {
      return JSON.parse(text);
    } catch {
      return undefined;
    }
  };
  const space = fc.string({
    unit: fc.constantFrom(' ', '\t', '\n', '\r', '\v', '\ufeff', '\u00a0'),
    maxLength: 2,
  });
  const body = fc.oneof(
    fc.json(),
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.constantFrom('', 'null', 'true', 'false', 'NaN', '-1', '-', '+1', '.5', '"', "'a'", '[', '{}'),
  );
  const text = fc.tuple(space, body, space).map((parts) => parts.join(''));
  fc.assert(
    fc.property(text, (any) => {
      expect(tryParse(any)).toEqual(parse(any));
    }),
    { numRuns: 1_000 },
  );
});

test('JSON printed over several lines is dropped as json_fragment', () => {
  const lines = ['{', '"timestamp": 1782901230456,', '"labels": [', '{', '},', ']', '}'];
  expect(new Set(outcomes(readLines(lines)))).toEqual(new Set(['json_fragment']));
});

test('objects on one line count up to where the line was cut', () => {
  const event = `{"time":${TIME},"host":"a}{\\"b"}`;
  expect(outcomes(readLines([`${event}${event} ${event}`]))).toEqual(['request', 'request', 'request']);
  expect(outcomes(readLines([`${event}${event.slice(0, -3)}`]))).toEqual(['request', 'not_json']);
  expect(outcomes(readLines([`[${event},${event},5]`]))).toEqual(['request', 'request', 'not_an_object']);
});

test('an object is an envelope only if `records` is its only field', () => {
  const records = [{ time: 1 }, { time: 2 }];
  expect(outcomes(readLines([JSON.stringify({ records })]))).toEqual(['request', 'request']);
  // Otherwise it is a record with such a field.
  expect(outcomes(readLines([JSON.stringify({ time: 1, host: 'a', records })]))).toEqual(['request']);
});

test('the number of records on a line is limited', () => {
  for (const line of ['{}'.repeat(20_000), `[${'{},'.repeat(20_000)}{}]`]) {
    const parsed = outcomes(readLines([line]));
    expect(parsed).toHaveLength(10_001);
    expect(parsed.at(-1)).toBe('too_many_records');
  }
});

test('each record in an envelope counts, with several envelopes on a line too, up to the limit', () => {
  const event = `{"time":${TIME}}`;
  expect(outcomes(readLines([`{"records":[${event},${event}]}{"records":[${event}]}`]))).toHaveLength(3);
  const many = outcomes(readLines([`{"records":[${`${event},`.repeat(10_000)}${event}]}`]));
  expect(many).toHaveLength(10_001);
  expect(many.at(-1)).toBe('too_many_records');
});
