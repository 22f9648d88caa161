import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { gridEdges } from '../../statistics/timeline.ts';
import { columnsOf } from './columns.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** An answer of the service to a range: the points that it would have, with these numbers in turn. */
function timelineOf(from: number, to: number, offsetMs: number, nums: readonly number[]) {
  const times = gridEdges(from, to, offsetMs).slice(1);
  const series = (shift: number) =>
    times.map((time, i) => ({ time, num: nums[(i + shift) % nums.length] ?? 0 }));
  return { requests: series(0), attacks: series(1) };
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

describe('columns', () => {
  test('for any range and any width, count everything once, in order, without gaps', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2 ** 41 }),
        fc.oneof(
          fc.integer({ min: 1, max: 2 * DAY_MS }),
          fc.integer({ min: 1, max: 60 * DAY_MS }),
          fc.integer({ min: 1, max: 3_653 * DAY_MS }),
        ),
        fc.integer({ min: -48, max: 56 }).map((quarters) => quarters * 15 * MINUTE_MS),
        fc.integer({ min: 20, max: 300 }),
        fc.array(fc.nat(), { minLength: 1, maxLength: 7 }),
        (from, length_ms, offsetMs, columnsMax, nums) => {
          const to = from + length_ms;
          const timeline = timelineOf(from, to, offsetMs, nums);
          const { columns, spanMs } = columnsOf(timeline, from, offsetMs, columnsMax);
          expect(sum(columns.map(({ requests }) => requests))).toBe(
            sum(timeline.requests.map(({ num }) => num)),
          );
          expect(sum(columns.map(({ attacks }) => attacks))).toBe(
            sum(timeline.attacks.map(({ num }) => num)),
          );
          expect(columns.length).toBeLessThanOrEqual(columnsMax);
          expect(columns.map(({ start }) => start)).toEqual([
            from,
            ...columns.slice(0, -1).map(({ end }) => end),
          ]);
          expect(columns.at(-1)?.end).toBe(to);
          for (const { start, end } of columns) {
            expect(end).toBeGreaterThan(start);
            expect(end - start).toBeLessThanOrEqual(spanMs);
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  test('a range with no more points than columns is left as it is', () => {
    const timeline = timelineOf(0, 10 * MINUTE_MS, 0, [1, 2, 3]);
    const { columns, spanMs } = columnsOf(timeline, 0, 0, 10);
    expect(columns.map(({ requests }) => requests)).toEqual(timeline.requests.map(({ num }) => num));
    expect(spanMs).toBe(MINUTE_MS);
  });

  test('begin at round times of the local clock', () => {
    const offsetMs = 5.75 * HOUR_MS;
    const from = Date.UTC(2026, 6, 1, 10, 7);
    const { columns, spanMs } = columnsOf(timelineOf(from, from + DAY_MS, offsetMs, [1]), from, offsetMs, 60);
    expect(spanMs).toBe(30 * MINUTE_MS);
    expect(columns[0]).toEqual({ start: from, end: Date.UTC(2026, 6, 1, 10, 15), requests: 8, attacks: 8 });
    for (const { start } of columns.slice(1)) expect((start + offsetMs) % spanMs).toBe(0);
  });

  test('an empty range has none', () => {
    expect(columnsOf({ requests: [], attacks: [] }, 0, 0, 10).columns).toEqual([]);
  });
});
