import fc from 'fast-check';
import { expect, test } from 'vitest';
import { countsBetween, drawnEdges, tickLabel, timeTicks, total } from './points.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const FROM = Date.UTC(2026, 6, 1);

const minutes = (n: number) => Array.from({ length: n }, (_, i) => FROM + (i + 1) * MINUTE_MS);
const points = (counts: readonly number[]) =>
  minutes(counts.length).map((time, i) => ({ time, num: counts[i] ?? 0 }));

test('few points are drawn as they are', () => {
  const edges = drawnEdges(minutes(3), FROM, 0, 10);
  expect(edges).toEqual([FROM, ...minutes(3)]);
  expect(countsBetween(edges, points([1, 2, 3]))).toEqual([1, 2, 3]);
});

test('many points are merged between round times of the local clock', () => {
  const edges = drawnEdges(minutes(60), FROM, 345 * MINUTE_MS, 12);
  expect(edges).toEqual(Array.from({ length: 13 }, (_, i) => FROM + i * 5 * MINUTE_MS));
  expect(countsBetween(edges, points(Array(60).fill(1)))).toEqual(Array(12).fill(5));
});

test('ten years have more than one point', () => {
  const days = Array.from({ length: 3_650 }, (_, i) => FROM + (i + 1) * 1_440 * MINUTE_MS);
  const edges = drawnEdges(days, FROM, 0, 300);
  expect(edges.length).toBeGreaterThan(200);
  expect(edges.length).toBeLessThanOrEqual(301);
});

test('no count is lost, at any width and in any time zone', () => {
  const counts = fc.array(fc.nat(1_000), { minLength: 1, maxLength: 500 });
  const offset = fc.integer({ min: -720, max: 840 }).map((n) => n * MINUTE_MS);
  fc.assert(
    fc.property(counts, offset, fc.integer({ min: 40, max: 400 }), (given, offsetMs, pointsMax) => {
      const edges = drawnEdges(minutes(given.length), FROM, offsetMs, pointsMax);
      const drawn = countsBetween(edges, points(given));
      expect(drawn).toHaveLength(edges.length - 1);
      expect(edges.toSorted((a, b) => a - b)).toEqual(edges);
      // Each drawn point is the sum of the points that end in it.
      const minuteOf = (edge: number) => (edge - FROM) / MINUTE_MS;
      for (const [i, n] of drawn.entries()) {
        const [start, end] = [edges[i] ?? 0, edges[i + 1] ?? 0].map(minuteOf);
        expect(n).toBe(total(given.slice(start, end)));
      }
      expect([edges[0], edges.at(-1)]).toEqual([FROM, minutes(given.length).at(-1)]);
    }),
  );
});

test('ticks are at round times of the local clock', () => {
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

test('there is at most one tick more than allowed', () => {
  for (const hours of [0.1, 1, 24, 24 * 7, 24 * 365, 24 * 3_650]) {
    expect(timeTicks(FROM, FROM + hours * HOUR_MS, 0, 10).length).toBeLessThanOrEqual(11);
  }
});
