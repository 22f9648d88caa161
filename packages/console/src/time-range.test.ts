import { expect, test } from 'vitest';
import {
  allOffsets,
  formatOffset,
  PRESETS,
  type PresetName,
  parseOffset,
  previousRange,
  RANGE_DAYS_MAX,
  rangeProblem,
  resolveRange,
} from './time-range.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.UTC(2026, 6, 15, 10, 30);

test('days begin at local midnight', () => {
  const at = (hours: number) => resolveRange({ preset: 'today' }, hours * HOUR_MS, NOW);
  expect(at(0)).toEqual({ from: Date.UTC(2026, 6, 15), to: NOW });
  expect(at(14)).toEqual({ from: Date.UTC(2026, 6, 15, 10), to: NOW });
  expect(at(-11)).toEqual({ from: Date.UTC(2026, 6, 14, 11), to: NOW });
});

test('each preset has the length that it names', () => {
  const range = (preset: PresetName) => resolveRange({ preset }, 0, NOW);
  expect(range('1hour')).toEqual({ from: NOW - HOUR_MS, to: NOW });
  expect(range('24hours')).toEqual({ from: NOW - DAY_MS, to: NOW });
  expect(range('yesterday')).toEqual({ from: Date.UTC(2026, 6, 14), to: Date.UTC(2026, 6, 15) });
  expect(range('3days')).toEqual({ from: Date.UTC(2026, 6, 13), to: NOW });
  expect(range('7days')).toEqual({ from: Date.UTC(2026, 6, 9), to: NOW });
  expect(range('30days')).toEqual({ from: Date.UTC(2026, 5, 16), to: NOW });
});

test('the previous range has the same length and does not overlap', () => {
  const spans = (Object.keys(PRESETS) as PresetName[]).map((preset) => ({ preset }));
  for (const selected of [...spans, { from: NOW - 5_000, to: NOW }]) {
    const range = resolveRange(selected, 2 * HOUR_MS, NOW);
    const before = previousRange(selected, range);
    expect(before.to - before.from).toBe(range.to - range.from);
    expect(before.to).toBeLessThanOrEqual(range.from);
  }
});

test('half a day is compared with the same half of the day before', () => {
  const today = resolveRange({ preset: 'today' }, 0, NOW);
  expect(previousRange({ preset: 'today' }, today)).toEqual({
    from: Date.UTC(2026, 6, 14),
    to: NOW - DAY_MS,
  });
});

test('a custom range has a start before its end, and is at most as long as the API allows', () => {
  expect(rangeProblem({ from: 0, to: RANGE_DAYS_MAX * DAY_MS })).toBeNull();
  expect(rangeProblem({ from: 0, to: RANGE_DAYS_MAX * DAY_MS + 1 })).toBe('Choose at most 3,653 days.');
  expect(rangeProblem({ from: 1, to: 1 })).toBe('The start must be before the end.');
  expect(rangeProblem({ from: Number.NaN, to: 1 })).toBe('The start must be before the end.');
});

test('every offset in the list is valid in the API', () => {
  const offsets = allOffsets();
  expect(offsets.at(0)).toBe('-12:00');
  expect(offsets.at(-1)).toBe('+14:00');
  for (const offset of offsets) expect(formatOffset(parseOffset(offset) ?? Number.NaN)).toBe(offset);
});

test('other offsets are not valid', () => {
  expect(['+14:15', '-12:01', '08:00', '+8:00', '+08:60', ''].map(parseOffset)).toEqual(Array(6).fill(null));
});
