import { expect, test } from 'vitest';
import { ApiError } from '../errors.ts';
import { parseRange, parseTimezone, RANGE_MS_MAX, type RangeParameters } from './range.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const NOW = Date.UTC(2026, 6, 15, 20, 30);
const MIDNIGHT = Date.UTC(2026, 6, 15);

const failure = (action: () => unknown): [string, string] => {
  try {
    action();
  } catch (error) {
    if (error instanceof ApiError) return [error.code, error.message];
    throw error;
  }
  return ['none', ''];
};

test.each<[RangeParameters, RegExp]>([
  [{}, /^from is required/],
  [{ from: '1' }, /^to is required/],
  [{ from: '', to: '1' }, /^from is '', but must be an integer/],
  [{ from: 'x', to: '1' }, /^from is 'x'/],
  [{ from: '1.5', to: '2' }, /^from is '1.5'/],
  [{ from: '1e3', to: '2000' }, /^from is '1e3'/],
  [{ from: '0x10', to: '2000' }, /^from is '0x10'/],
  [{ from: '-1', to: '1' }, /^from is '-1', but must be from 0 to/],
  [{ from: '1', to: '99999999999999999999' }, /^to is '9+', but must be from 0 to/],
  [{ from: '2', to: '1' }, /^from \(2\) is after to \(1\)/],
  [{ from: '0', to: String(RANGE_MS_MAX + 1) }, /more than ten years/],
  [
    { recent: 'tomorrow' },
    /^recent is 'tomorrow', but must be one of today, yesterday, 3days, 1week, 1month/,
  ],
  [{ recent: 'constructor' }, /^recent is 'constructor'/],
])('%j is refused with a message that names the parameter', (parameters, message) => {
  const [code, text] = failure(() => parseRange(parameters, 0, NOW));
  expect(code).toBe('WAF.1025');
  expect(text).toMatch(message);
});

test('an empty range and the longest range are allowed', () => {
  expect(parseRange({ from: '5', to: '5' }, 0, NOW)).toEqual({ from: 5, to: 5 });
  expect(parseRange({ from: '0', to: String(RANGE_MS_MAX) }, 0, NOW)).toEqual({ from: 0, to: RANGE_MS_MAX });
});

test.each([
  ['today', 0, MIDNIGHT, NOW],
  ['yesterday', 0, MIDNIGHT - DAY, MIDNIGHT],
  ['3days', 0, MIDNIGHT - 2 * DAY, NOW],
  ['1week', 0, MIDNIGHT - 6 * DAY, NOW],
  ['1month', 0, MIDNIGHT - 29 * DAY, NOW],
  // At 20:30 UTC it is the 16th in Shanghai, where the day began at 16:00 UTC.
  ['today', 8 * HOUR, MIDNIGHT + 16 * HOUR, NOW],
  ['yesterday', 8 * HOUR, MIDNIGHT - 8 * HOUR, MIDNIGHT + 16 * HOUR],
  ['today', -5 * HOUR, MIDNIGHT + 5 * HOUR, NOW],
])('recent=%s with an offset of %i ms', (recent, offset, from, to) => {
  expect(parseRange({ recent, from: 'nonsense' }, offset, NOW)).toEqual({ from, to });
});

test.each([
  [undefined, 0],
  ['+00:00', 0],
  ['-00:00', 0],
  ['+08:00', 480],
  [' 08:00', 480],
  ['+05:45', 345],
  ['-12:00', -720],
  ['+14:00', 840],
  ['-03:30', -210],
])('timezone %j is %i minutes', (text, minutes) => {
  expect(parseTimezone(text) === minutes * 60_000).toBe(true);
});

test.each(['', '8', '+8:00', '08:00', '+08:60', '+14:01', '-12:01', '+99:00', 'UTC', '+08:00 ', '+0800'])(
  'timezone %j is refused',
  (text) => {
    expect(failure(() => parseTimezone(text))[0]).toBe('WAF.1001');
  },
);

test('messages quote only the beginning of a long value', () => {
  expect(failure(() => parseTimezone('x'.repeat(10_000)))[1].length).toBeLessThan(200);
});
