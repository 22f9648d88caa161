import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaleLabel, scaleOf, timeLabels, timeTicks } from './axes.ts';

const HOUR_MS = 3_600_000;

describe('the scale of counts', () => {
  test('has whole numbers at even distances, from 0 to something that no value is above', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.integer({ min: 3, max: 100 }), (largest, rows) => {
        const { top, ticks } = scaleOf(largest, rows);
        expect(top).toBeGreaterThanOrEqual(Math.max(1, largest));
        expect(ticks[0]).toBe(0);
        expect(ticks.at(-1)).toBe(top);
        expect(ticks.every(Number.isInteger)).toBe(true);
        expect(ticks.length).toBeLessThanOrEqual(7);
      }),
    );
  });

  test.each([
    [0, 8, [0, 1]],
    [1, 8, [0, 1]],
    [7, 8, [0, 2, 4, 6, 8]],
    [958, 8, [0, 250, 500, 750, 1_000]],
    [3_239, 20, [0, 600, 1_200, 1_800, 2_400, 3_000, 3_600]],
  ])('of values up to %i in %i rows', (largest, rows, ticks) => {
    expect(scaleOf(largest, rows).ticks).toEqual(ticks);
  });

  test('is labelled in one style', () => {
    const label = (value: number, top: number) => scaleLabel(value, { top, ticks: [] });
    expect([label(0, 80_000), label(80_000, 80_000)]).toEqual(['0', '80,000']);
    expect([label(0, 200_000), label(50_000, 200_000), label(2_500_000, 1e7)]).toEqual(['0', '50K', '2.5M']);
  });
});

describe('the ticks of time', () => {
  const columns = (from: number, count: number, spanMs: number) => ({
    columns: Array.from({ length: count }, (_, i) => ({
      start: from + i * spanMs,
      end: from + (i + 1) * spanMs,
      requests: 0,
      attacks: 0,
    })),
    spanMs,
  });

  test('stand at round times of the local clock, and name the day where one begins', () => {
    const from = Date.UTC(2026, 6, 1, 11, 15);
    expect(timeTicks(columns(from, 24, HOUR_MS), 2, 5.75 * HOUR_MS)).toEqual([
      { cell: 6, label: '20:00' },
      { cell: 14, label: '07-02' },
      { cell: 22, label: '04:00' },
      { cell: 30, label: '08:00' },
      { cell: 38, label: '12:00' },
    ]);
  });

  test('have their labels centred below them', () => {
    const ticks = [
      { cell: 0, label: '18:00' },
      { cell: 12, label: '07-02' },
    ];
    expect(timeLabels(ticks, 3)).toBe('  18:00       07-02');
  });

  test('keep their labels apart, and inside the plot', () => {
    fc.assert(
      fc.property(
        fc.nat({ max: 1e6 }),
        fc.integer({ min: 1, max: 300 }),
        fc.constantFrom(1 / 60, 1 / 3, 1, 8, 24, 168),
        fc.integer({ min: 1, max: 9 }),
        (hour, count, span_h, cellsPerColumn) => {
          const spanMs = span_h * HOUR_MS;
          const ticks = timeTicks(columns(hour * HOUR_MS, count, spanMs), cellsPerColumn, 0);
          for (const [i, { cell }] of ticks.entries()) {
            expect(cell + 3).toBeLessThanOrEqual(count * cellsPerColumn);
            if (i > 0) expect(cell - (ticks[i - 1]?.cell ?? 0)).toBeGreaterThanOrEqual(8);
          }
        },
      ),
    );
  });
});
