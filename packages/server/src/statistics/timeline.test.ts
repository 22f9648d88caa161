import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RANGE_MS_MAX } from './range.ts';
import { gridEdges, intervalOf } from './timeline.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NOON = Date.UTC(2026, 6, 1, 12);

test.each([
  [1, MINUTE],
  [DAY, MINUTE],
  [DAY + 1, 5 * MINUTE],
  [3 * DAY, 5 * MINUTE],
  [3 * DAY + 1, 10 * MINUTE],
  [7 * DAY, 10 * MINUTE],
  [7 * DAY + 1, HOUR],
  [31 * DAY, HOUR],
  [31 * DAY + 1, DAY],
  [RANGE_MS_MAX, DAY],
])('a range of %i ms has an interval of %i ms', (range, want) => {
  expect(intervalOf(range)).toBe(want);
});

test('a range inside one interval is one point', () => {
  expect(gridEdges(NOON + 1, NOON + 2, 0)).toEqual([NOON + 1, NOON + 2]);
});

test('a boundary at the start or the end adds no empty point', () => {
  expect(gridEdges(NOON, NOON + 2 * MINUTE, 0)).toEqual([NOON, NOON + MINUTE, NOON + 2 * MINUTE]);
});

test('with +05:45 the hours end at a quarter past in UTC', () => {
  const edges = gridEdges(NOON, NOON + 8 * DAY, (5 * 60 + 45) * MINUTE);
  expect(edges[1]).toBe(NOON + 15 * MINUTE);
  expect(edges[2]).toBe(NOON + HOUR + 15 * MINUTE);
});

test('days end at local midnight', () => {
  const [, first] = gridEdges(NOON, NOON + 40 * DAY, 8 * HOUR);
  expect(first).toBe(Date.UTC(2026, 6, 1, 16));
});

test('the points partition any range at the boundaries of any local clock', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: NOON }),
      fc.oneof(fc.integer({ min: 0, max: 2 * DAY }), fc.integer({ min: 0, max: RANGE_MS_MAX })),
      fc.integer({ min: -12 * 60, max: 14 * 60 }),
      (from, length, minutes) => {
        const edges = gridEdges(from, from + length, minutes * MINUTE);
        if (length === 0) {
          expect(edges).toEqual([]);
          return;
        }
        const interval = intervalOf(length);
        expect(edges[0]).toBe(from);
        expect(edges.at(-1)).toBe(from + length);
        for (const [i, edge] of edges.entries()) {
          if (i > 0) expect(edge).toBeGreaterThan(edges[i - 1] ?? 0);
          if (i > 0 && i < edges.length - 1) expect(Math.abs((edge + minutes * MINUTE) % interval)).toBe(0);
        }
        expect(edges.length).toBeLessThanOrEqual(Math.ceil(length / interval) + 2);
      },
    ),
  );
});
