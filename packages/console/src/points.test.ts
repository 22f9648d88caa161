import fc from 'fast-check';
import { expect, test } from 'vitest';
import { countsBetween, drawnEdges, pointLength, tickLabels, timeTicks, total } from './points.ts';
import { fixedZone, parseZone } from './zone.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const UTC = fixedZone(0);
const NEPAL = fixedZone(345 * MINUTE_MS);
const FROM = Date.UTC(2026, 6, 1);

const minutes = (n: number) => Array.from({ length: n }, (_, i) => FROM + (i + 1) * MINUTE_MS);
const points = (counts: readonly number[]) =>
  minutes(counts.length).map((time, i) => ({ time, num: counts[i] ?? 0 }));

test('few points are drawn unchanged', () => {
  const edges = drawnEdges(minutes(3), FROM, UTC, 10);
  expect(edges).toEqual([FROM, ...minutes(3)]);
  expect(countsBetween(edges, points([1, 2, 3]))).toEqual([1, 2, 3]);
});

test('many points are merged between round times of the local clock', () => {
  const edges = drawnEdges(minutes(60), FROM, fixedZone(345 * MINUTE_MS), 12);
  expect(edges).toEqual(Array.from({ length: 13 }, (_, i) => FROM + i * 5 * MINUTE_MS));
  expect(countsBetween(edges, points(Array(60).fill(1)))).toEqual(Array(12).fill(5));
});

test('ten years have more than one point', () => {
  const days = Array.from({ length: 3_650 }, (_, i) => FROM + (i + 1) * 1_440 * MINUTE_MS);
  const edges = drawnEdges(days, FROM, UTC, 300);
  expect(edges.length).toBeGreaterThan(200);
  expect(edges.length).toBeLessThanOrEqual(301);
});

test('no count is lost, at any width and in any time zone', () => {
  const counts = fc.array(fc.nat(1_000), { minLength: 1, maxLength: 500 });
  const offset = fc.integer({ min: -720, max: 840 }).map((n) => n * MINUTE_MS);
  fc.assert(
    fc.property(counts, offset, fc.integer({ min: 40, max: 400 }), (given, offsetMs, pointsMax) => {
      const edges = drawnEdges(minutes(given.length), FROM, fixedZone(offsetMs), pointsMax);
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
  const ticks = timeTicks(FROM, FROM + 24 * HOUR_MS, NEPAL, 9);
  expect(tickLabels(ticks, NEPAL)).toEqual([
    '06:00\n1 Jul 2026',
    '09:00',
    '12:00',
    '15:00',
    '18:00',
    '21:00',
    '2 Jul',
    '03:00',
  ]);
});

test('the time axis has at least half of the ticks that fit', () => {
  for (const hours of [1, 6, 24, 7 * 24, 30 * 24, 90 * 24]) {
    for (const ticksMax of [3.4, 5, 7.7, 12]) {
      const { length } = timeTicks(FROM, FROM + hours * HOUR_MS, UTC, ticksMax);
      expect([hours, ticksMax, length >= Math.floor(ticksMax / 2)]).toEqual([hours, ticksMax, true]);
    }
  }
});

test('a new year is named, and clock changes neither repeat nor shift a tick', () => {
  const year = timeTicks(Date.UTC(2026, 11, 29), Date.UTC(2027, 0, 3), UTC, 8);
  expect(tickLabels(year, UTC)).toEqual([
    '29 Dec\n2026',
    '30 Dec',
    '31 Dec',
    '1 Jan\n2027',
    '2 Jan',
    '3 Jan',
  ]);
  const berlin = parseZone('Europe/Berlin') ?? UTC;
  const spring = timeTicks(Date.UTC(2026, 2, 29, 0), Date.UTC(2026, 2, 29, 3), berlin, 4);
  expect(tickLabels(spring, berlin)).toEqual(['01:00\n29 Mar 2026', '03:00', '04:00', '05:00']);
  const autumn = timeTicks(Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 9, 25, 23), berlin, 5);
  expect(tickLabels(autumn, berlin)).toEqual(['25 Oct\n2026', '06:00', '12:00', '18:00', '26 Oct']);
});

test('points are merged to the coarsest grid of a range that a clock change splits', () => {
  const berlin = parseZone('Europe/Berlin') ?? UTC;
  const change = Date.UTC(2026, 9, 25, 1);
  const hours = Array.from({ length: 24 * 8 + 3 }, (_, i) => change - (24 * 8 + 3 - 1 - i) * HOUR_MS);
  const days = Array.from({ length: 40 }, (_, i) => Date.UTC(2026, 9, 25, 23) + i * 24 * HOUR_MS);
  const edges = drawnEdges([...hours, ...days], Date.UTC(2026, 9, 16, 22), berlin, 1_000, 24 * HOUR_MS);
  const locals = edges.map((edge) => new Date(edge + berlin.offsetAt(edge)).getUTCHours());
  expect(new Set(locals)).toEqual(new Set([0]));
  expect(edges).toHaveLength(1 + 8 + 40);
});

test('points of 6 hours have this length across clock changes in both directions', () => {
  const berlin = parseZone('Europe/Berlin') ?? UTC;
  for (const from of [Date.UTC(2026, 9, 16, 22), Date.UTC(2026, 2, 16, 23)]) {
    const hours = Array.from({ length: 30 * 24 }, (_, i) => from + (i + 1) * HOUR_MS);
    expect(pointLength(drawnEdges(hours, from, berlin, 130), berlin)).toBe(6 * HOUR_MS);
    // Minutes that the clock skips are not part of a point.
    expect(pointLength([from, ...hours], berlin)).toBe(HOUR_MS);
  }
});

test('there is at most one tick more than allowed', () => {
  for (const hours of [0.1, 1, 24, 24 * 7, 24 * 365, 24 * 3_650]) {
    expect(timeTicks(FROM, FROM + hours * HOUR_MS, UTC, 10).length).toBeLessThanOrEqual(11);
  }
});
