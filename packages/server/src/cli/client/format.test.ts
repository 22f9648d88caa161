import { expect, test } from 'vitest';
import { zoneOf } from '../../zone.ts';
import { dateTime, durationText, isoTime, table, tickLabel } from './format.ts';

const NOON = Date.UTC(2026, 6, 1, 12, 34, 56, 789);
const HOUR_MS = 3_600_000;

test('times are shown in the time zone', () => {
  expect(dateTime(NOON, zoneOf('+00:00'), 'minutes')).toBe('2026-07-01 12:34');
  expect(dateTime(NOON, zoneOf('-12:00'), 'seconds')).toBe('2026-07-01 00:34:56');
  expect(isoTime(NOON, zoneOf('+00:00'))).toBe('2026-07-01T12:34:56.789Z');
  expect(isoTime(NOON, zoneOf('+14:00'))).toBe('2026-07-02T02:34:56.789+14:00');
  expect(Date.parse(isoTime(NOON, zoneOf('+14:00')))).toBe(NOON);
  const berlin = zoneOf('Europe/Berlin');
  expect(isoTime(NOON, berlin)).toBe('2026-07-01T14:34:56.789+02:00');
  expect(isoTime(Date.UTC(2026, 11, 1), berlin)).toBe('2026-12-01T01:00:00.000+01:00');
  expect(tickLabel(Date.UTC(2026, 6, 2))).toBe('07-02');
  expect(tickLabel(Date.UTC(2026, 6, 1, 16))).toBe('16:00');
});

test.each([
  [20 * 60_000, '20 minutes'],
  [HOUR_MS, '1 hour'],
  [1.5 * HOUR_MS, '1 hour 30 minutes'],
  [168 * HOUR_MS, '7 days'],
  [45_000, '45 seconds'],
  [7, '7 ms'],
])('%i ms are %s', (ms, text) => {
  expect(durationText(ms)).toBe(text);
});

test('a table has names on the left, counts on the right, and sums at the end', () => {
  expect(
    table(
      ['until (+00:00)', 'requests', 'attacks'],
      [
        ['2026-07-01 12:00:00', 1_234_567, 0],
        ['2026-07-01 12:01:00', 12, 1],
      ],
    ),
  ).toEqual([
    'until (+00:00)        requests  attacks',
    '2026-07-01 12:00:00  1,234,567        0',
    '2026-07-01 12:01:00         12        1',
    'total                1,234,579        1',
  ]);
});

test('a table without rows has zero sums', () => {
  expect(table(['category', 'count'], [])).toEqual(['category  count', 'total         0']);
});
