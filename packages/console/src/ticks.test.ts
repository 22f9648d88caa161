import { expect, test } from 'vitest';
import { tickLabel, timeTicks } from './ticks.ts';

const HOUR_MS = 3_600_000;
const FROM = Date.UTC(2026, 6, 1);

test('marks stand at round times of the local clock', () => {
  const ticks = timeTicks(FROM, FROM + 24 * HOUR_MS, 5.75 * HOUR_MS, 9);
  expect(ticks.map((tick) => tickLabel(tick, 5.75 * HOUR_MS))).toEqual([
    '06:00',
    '09:00',
    '12:00',
    '15:00',
    '18:00',
    '21:00',
    '2 Jul',
    '03:00',
  ]);
});

test('there are never many more than asked for', () => {
  for (const hours of [0.1, 1, 24, 24 * 7, 24 * 365, 24 * 3_650]) {
    expect(timeTicks(FROM, FROM + hours * HOUR_MS, 0, 10).length).toBeLessThanOrEqual(11);
  }
});
