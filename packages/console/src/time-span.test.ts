import { expect, test } from 'vitest';
import { PRESETS, type PresetName, rangeBefore, rangeOf } from './time-span.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.UTC(2026, 6, 15, 10, 30);

test('days begin at local midnight', () => {
  const at = (hours: number) => rangeOf({ preset: 'today' }, hours * HOUR_MS, NOW);
  expect(at(0)).toEqual({ from: Date.UTC(2026, 6, 15), to: NOW });
  expect(at(14)).toEqual({ from: Date.UTC(2026, 6, 15, 10), to: NOW });
  expect(at(-11)).toEqual({ from: Date.UTC(2026, 6, 14, 11), to: NOW });
});

test('each preset is as long as it says', () => {
  const range = (preset: PresetName) => rangeOf({ preset }, 0, NOW);
  expect(range('1hour')).toEqual({ from: NOW - HOUR_MS, to: NOW });
  expect(range('24hours')).toEqual({ from: NOW - DAY_MS, to: NOW });
  expect(range('yesterday')).toEqual({ from: Date.UTC(2026, 6, 14), to: Date.UTC(2026, 6, 15) });
  expect(range('3days')).toEqual({ from: Date.UTC(2026, 6, 13), to: NOW });
  expect(range('7days')).toEqual({ from: Date.UTC(2026, 6, 9), to: NOW });
  expect(range('30days')).toEqual({ from: Date.UTC(2026, 5, 16), to: NOW });
});

test('the span before has the same length and never overlaps', () => {
  const spans = (Object.keys(PRESETS) as PresetName[]).map((preset) => ({ preset }));
  for (const span of [...spans, { from: NOW - 5_000, to: NOW }]) {
    const range = rangeOf(span, 2 * HOUR_MS, NOW);
    const before = rangeBefore(span, range);
    expect(before.to - before.from).toBe(range.to - range.from);
    expect(before.to).toBeLessThanOrEqual(range.from);
  }
});

test('half a day is held against the same half of the day before', () => {
  const today = rangeOf({ preset: 'today' }, 0, NOW);
  expect(rangeBefore({ preset: 'today' }, today)).toEqual({ from: Date.UTC(2026, 6, 14), to: NOW - DAY_MS });
});
