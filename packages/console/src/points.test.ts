import fc from 'fast-check';
import { expect, test } from 'vitest';
import { drawnPoints, tickLabel, timeTicks, total } from './points.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const FROM = Date.UTC(2026, 6, 1);

function timeline(ends: readonly number[], counts: readonly number[]) {
  const requests = ends.map((time, i) => ({ time, num: counts[i] ?? 0 }));
  return { requests, attacks: requests.map(({ time }) => ({ time, num: 1 })) };
}

const minutes = (n: number) => Array.from({ length: n }, (_, i) => FROM + (i + 1) * MINUTE_MS);

test('few points are drawn as they are', () => {
  const ends = minutes(3);
  const points = drawnPoints(timeline(ends, [1, 2, 3]), FROM, 0, 10);
  expect(points).toEqual({ edges: [FROM, ...ends], requests: [1, 2, 3], attacks: [1, 1, 1] });
});

test('many points are merged between round times of the local clock', () => {
  const points = drawnPoints(timeline(minutes(60), []), FROM + 0, 345 * MINUTE_MS, 12);
  expect(points.edges).toEqual(Array.from({ length: 13 }, (_, i) => FROM + i * 5 * MINUTE_MS));
  expect(points.attacks).toEqual(Array.from({ length: 12 }, () => 5));
});

test('ten years have more than one point', () => {
  const days = Array.from({ length: 3_650 }, (_, i) => FROM + (i + 1) * 1_440 * MINUTE_MS);
  const points = drawnPoints(timeline(days, []), FROM, 0, 300);
  expect(points.attacks.length).toBeGreaterThan(200);
  expect(points.attacks.length).toBeLessThanOrEqual(300);
});

test('no count is lost, at any width and in any time zone', () => {
  const counts = fc.array(fc.nat(1_000), { minLength: 1, maxLength: 500 });
  const offset = fc.integer({ min: -720, max: 840 }).map((n) => n * MINUTE_MS);
  fc.assert(
    fc.property(counts, offset, fc.integer({ min: 40, max: 400 }), (given, offsetMs, pointsMax) => {
      const points = drawnPoints(timeline(minutes(given.length), given), FROM, offsetMs, pointsMax);
      expect(total(points.requests)).toBe(total(given));
      expect(total(points.attacks)).toBe(given.length);
      expect(points.edges).toHaveLength(points.requests.length + 1);
      expect(points.edges.toSorted((a, b) => a - b)).toEqual(points.edges);
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
