import { expect, test } from 'vitest';
import {
  ago,
  axisCount,
  change,
  compactCount,
  date,
  duration,
  exactDuration,
  formatBytes,
  formatRange,
  formatTime,
  rateChange,
  share,
} from './format.ts';
import { fixedZone, parseZone } from './zone.ts';

const HOUR_MS = 3_600_000;
const UTC = fixedZone(0);
const NOON = Date.UTC(2026, 10, 14, 12);

test('counts are exact up to six digits', () => {
  expect([0, 999_999, 1_234_567, 9_876_543_210].map(compactCount)).toEqual([
    '0',
    '999,999',
    '1.235M',
    '9.877B',
  ]);
  expect([9_999, 12_000, 1_500_000].map(axisCount)).toEqual(['9,999', '12K', '1.5M']);
});

test('a share is a percentage, and a tiny one is not shown as 0', () => {
  expect([share(1, 4), share(1, 100_000), share(0, 5), share(0, 0)]).toEqual(['25.0%', '<0.1%', '0.0%', '–']);
});

test('a change is in percent, as a factor, or in percentage points', () => {
  expect(change(110, 100)).toEqual({ text: '+10.0%', direction: 'up' });
  expect(change(50, 100)).toEqual({ text: '−50.0%', direction: 'down' });
  expect(change(0, 0)).toEqual({ text: 'no change', direction: 'same' });
  expect(change(3, 0)).toEqual({ text: 'none before', direction: 'new' });
  expect(change(2_000, 100)).toEqual({ text: '20×', direction: 'up' });
  expect(change(2_000_000, 100)).toEqual({ text: '>1,000×', direction: 'up' });
  expect(rateChange(0.03, 0.02)).toEqual({ text: '+1.0 pp', direction: 'up' });
  // 0.2% and 1.2%.
  expect(rateChange(0.0024, 0.0115)).toEqual({ text: '−1.0 pp', direction: 'down' });
  expect(rateChange(0.02, 0.0201)).toEqual({ text: 'no change', direction: 'same' });
});

test('times are in the selected time zone, without needless parts', () => {
  expect(formatTime(NOON, fixedZone(5.75 * HOUR_MS))).toBe('14 Nov 2026, 17:45');
  expect(formatTime(NOON + 1_500, UTC)).toBe('14 Nov 2026, 12:00:01');
  expect(formatRange(NOON, NOON + 300_000, UTC)).toBe('14 Nov, 12:00 – 12:05');
  expect(formatRange(NOON, NOON + 24 * HOUR_MS, UTC)).toBe('14 Nov, 12:00 – 15 Nov, 12:00');
  expect(formatRange(NOON, NOON + 24 * HOUR_MS, fixedZone(12 * HOUR_MS))).toBe('Sun, 15 Nov');
  expect(formatRange(NOON, NOON + 72 * HOUR_MS, fixedZone(12 * HOUR_MS))).toBe('15 Nov – 17 Nov');
  const berlin = parseZone('Europe/Berlin') ?? UTC;
  expect(formatRange(Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 9, 25, 23), berlin)).toBe('Sun, 25 Oct');
});

test('years are named if they are not the current one', () => {
  const [january, lastYear] = [Date.UTC(2027, 0, 2), Date.UTC(2025, 10, 14)];
  expect([NOON, lastYear].map((time) => date(time, UTC, NOON))).toEqual(['14 Nov', '14 Nov 2025']);
  expect(formatRange(NOON, NOON + 300_000, UTC, january)).toBe('14 Nov 2026, 12:00 – 12:05');
  expect(formatRange(lastYear, lastYear + 24 * HOUR_MS, UTC, NOON)).toBe('Fri, 14 Nov 2025');
  // Without the current time, it is the year of the end: a day that ends the year is in that year.
  expect(formatRange(Date.UTC(2026, 11, 30), january, UTC)).toBe('30 Dec 2026 – 1 Jan');
  expect(formatRange(Date.UTC(2026, 11, 30), Date.UTC(2027, 0, 1), UTC)).toBe('30 Dec – 31 Dec');
});

test('durations and ages are rounded', () => {
  expect([5_000, 300_000, 2 * HOUR_MS, 24 * HOUR_MS].map(duration)).toEqual(['5 s', '5 min', '2 h', '1 day']);
  expect(
    [NOON, NOON - 61_000, NOON - 5 * HOUR_MS, NOON - 72 * HOUR_MS].map((time) => ago(time, NOON)),
  ).toEqual(['0 s ago', '1 min ago', '5 h ago', '3 days ago']);
});

test('durations are in whole days if possible', () => {
  expect([1, 24, 36, 720, 876_600].map((hours) => exactDuration(hours * 3_600_000))).toEqual([
    '1 hour',
    '1 day',
    '36 hours',
    '30 days',
    '36,525 days',
  ]);
});

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_000, '1 kB'],
  [1_250, '1.3 kB'],
  [30_000_000, '30 MB'],
  [2.5e15, '2.5 PB'],
])('%d bytes are %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});
