import { expect, test } from 'vitest';
import { ApiError } from '../errors.ts';
import { UTC, zoneOf } from '../zone.ts';
import { parseRange, RANGE_MS_MAX, type RangeParameters, rangeWarning } from './range.ts';

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
  [{ from: '0', to: String(RANGE_MS_MAX + 1) }, /more than ten years apart: query a shorter range$/],
  [
    { from: '1767225600', to: '1767312000000' },
    /ten years .*; times of 10 digits look like seconds: from and to are milliseconds, so multiply by 1000$/,
  ],
  [{ from: '1767225600000', to: '1767312000' }, /is after .*look like seconds/],
  [
    { recent: 'tomorrow' },
    /^recent is 'tomorrow', but must be one of today, yesterday, 3days, 1week, 1month/,
  ],
  [{ recent: 'constructor' }, /^recent is 'constructor'/],
])('%j is refused with a message that names the parameter', (parameters, message) => {
  const [code, text] = failure(() => parseRange(parameters, UTC, NOW));
  expect(code).toBe('WAF.1025');
  expect(text).toMatch(message);
});

test('an empty range and the longest range are allowed', () => {
  expect(parseRange({ from: '5', to: '5' }, UTC, NOW)).toEqual({ from: 5, to: 5 });
  expect(parseRange({ from: '0', to: String(RANGE_MS_MAX) }, UTC, NOW)).toEqual({
    from: 0,
    to: RANGE_MS_MAX,
  });
});

test.each([
  ['today', '+00:00', MIDNIGHT, NOW],
  ['yesterday', '+00:00', MIDNIGHT - DAY, MIDNIGHT],
  ['3days', '+00:00', MIDNIGHT - 2 * DAY, NOW],
  ['1week', '+00:00', MIDNIGHT - 6 * DAY, NOW],
  ['1month', '+00:00', MIDNIGHT - 29 * DAY, NOW],
  // At 20:30 UTC it is the 16th in Shanghai, where the day began at 16:00 UTC.
  ['today', '+08:00', MIDNIGHT + 16 * HOUR, NOW],
  ['yesterday', 'Asia/Shanghai', MIDNIGHT - 8 * HOUR, MIDNIGHT + 16 * HOUR],
  ['today', '-05:00', MIDNIGHT + 5 * HOUR, NOW],
])('recent=%s in %s', (recent, zone, from, to) => {
  expect(parseRange({ recent, from: 'nonsense' }, zoneOf(zone), NOW)).toEqual({ from, to });
});

test.each([
  ['yesterday', '2026-03-30T12:00+02:00', '2026-03-29T00:00+01:00', '2026-03-30T00:00+02:00'],
  ['3days', '2026-03-30T12:00+02:00', '2026-03-28T00:00+01:00', '2026-03-30T12:00+02:00'],
  ['today', '2026-10-25T12:00+01:00', '2026-10-25T00:00+02:00', '2026-10-25T12:00+01:00'],
  ['1month', '2026-10-31T12:00+01:00', '2026-10-02T00:00+02:00', '2026-10-31T12:00+01:00'],
])('recent=%s in Europe/Berlin on %s follows the clock', (recent, now, from, to) => {
  const range = { from: Date.parse(from), to: Date.parse(to) };
  expect(parseRange({ recent }, zoneOf('Europe/Berlin'), Date.parse(now))).toEqual(range);
});

test('a range in seconds has a warning, other ranges have none', () => {
  expect(rangeWarning({ from: 1_767_225_600, to: 1_767_312_000 })).toContain('multiply by 1000');
  expect(rangeWarning({ from: 0, to: 1_767_312_000 })).toBeNull();
  expect(rangeWarning({ from: 1_767_225_600_000, to: 1_767_312_000_000 })).toBeNull();
});
