import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatRange } from './format.ts';
import { countTicks, edgesOf, equalParts, pointLength, tickLabels, timeTicks } from './points.ts';
import { fixedZone, parseZone, toLocal } from './zone.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const UTC = fixedZone(0);
const NEPAL = fixedZone(345 * MINUTE_MS);
const BERLIN = parseZone('Europe/Berlin') ?? UTC;
const FROM = Date.UTC(2026, 6, 1);

test('points begin and end at round times of the local clock', () => {
  const hour = { from: FROM, to: FROM + HOUR_MS };
  expect(edgesOf(hour, NEPAL, 12)).toEqual(equalParts(hour, 12));
  expect(edgesOf({ from: FROM + 1, to: FROM + 3 * MINUTE_MS + 1 }, UTC, 100)).toEqual([
    FROM + 1,
    ...[1, 2, 3].map((n) => FROM + n * MINUTE_MS),
    FROM + 3 * MINUTE_MS + 1,
  ]);
  const locals = edgesOf({ from: FROM, to: FROM + DAY_MS }, NEPAL, 30).map((edge) => toLocal(edge, NEPAL));
  expect(new Set(locals.slice(1, -1).map((local) => local % HOUR_MS))).toEqual(new Set([0]));
});

test('ten years have more than one point, and not more than fit', () => {
  const edges = edgesOf({ from: FROM, to: FROM + 3_650 * DAY_MS }, UTC, 300);
  expect(edges.length).toBeGreaterThan(200);
  expect(edges.length).toBeLessThanOrEqual(302);
});

test('points cover the range in order, and all inner ones are equally long, in any zone and across clock changes', () => {
  const zones = fc.constantFrom(
    ...['Europe/Berlin', 'America/St_Johns', 'Australia/Lord_Howe', '+05:45'].map(
      (id) => parseZone(id) ?? UTC,
    ),
  );
  const starts = fc.integer({ min: Date.UTC(2020, 0, 1), max: Date.UTC(2030, 0, 1) });
  const lengths = fc.integer({ min: 1, max: 400 * DAY_MS });
  fc.assert(
    fc.property(
      zones,
      starts,
      lengths,
      fc.integer({ min: 40, max: 400 }),
      (zone, from, lengthMs, pointsMax) => {
        const to = from + lengthMs;
        const edges = edgesOf({ from, to }, zone, pointsMax);
        expect([edges[0], edges.at(-1)]).toEqual([from, to]);
        expect(edges.length).toBeLessThanOrEqual(pointsMax + 3);
        const inner = edges.slice(2, -1).map((edge, i) => edge - (edges[i + 1] ?? 0));
        const days = inner.map((ms) => ms / DAY_MS);
        // Local days have 23 to 25 hours.
        const isDays = days.every((n) => Math.abs(n - Math.round(n)) * 24 < 1.1 && Math.round(n) >= 1);
        if (!isDays) expect(new Set(inner).size).toBeLessThanOrEqual(1);
        expect(inner.every((ms) => ms > 0)).toBe(true);
      },
    ),
  );
});

test('the day of a clock change has points of five minutes only, and its hours are told apart', () => {
  const [from, to] = [Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 9, 25, 23)];
  const edges = edgesOf({ from, to }, BERLIN, 310);
  const lengths = edges.slice(1).map((edge, i) => (edge - (edges[i] ?? 0)) / MINUTE_MS);
  expect(new Set(lengths)).toEqual(new Set([5]));
  const rows = edges.slice(1).map((edge, i) => formatRange(edges[i] ?? 0, edge, BERLIN));
  expect(new Set(rows).size).toBe(rows.length);
  expect(rows).toContain('25 Oct, 02:55 (+02:00) – 02:00 (+01:00)');
  expect(rows).toContain('25 Oct, 02:50 – 02:55 (+02:00)');
  expect(rows).toContain('25 Oct, 02:50 – 02:55 (+01:00)');
  expect(rows[0]).toBe('25 Oct, 00:00 – 00:05 (+02:00)');
});

test('days are local days across a clock change', () => {
  const range = { from: Date.UTC(2026, 9, 16, 22), to: Date.UTC(2026, 10, 25, 23) };
  const edges = edgesOf(range, BERLIN, 60);
  expect(edges).toHaveLength(41);
  expect(new Set(edges.map((edge) => toLocal(edge, BERLIN) % DAY_MS))).toEqual(new Set([0]));
});

test('the axis of counts has a tick at or above the highest value, and at most five', () => {
  expect(countTicks(8_000)).toEqual([0, 2_000, 4_000, 6_000, 8_000]);
  expect(countTicks(0)).toEqual([0, 1]);
  expect(countTicks(3)).toEqual([0, 1, 2, 3]);
  expect(countTicks(81)).toEqual([0, 25, 50, 75, 100]);
  fc.assert(
    fc.property(fc.nat(1e12), (most) => {
      const ticks = countTicks(most);
      expect(ticks.at(-1)).toBeGreaterThanOrEqual(most);
      expect(ticks.length).toBeLessThanOrEqual(5);
      expect(ticks.every(Number.isInteger)).toBe(true);
      if (most > 1) expect(ticks.at(-2)).toBeLessThan(most);
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
  const spring = timeTicks(Date.UTC(2026, 2, 29, 0), Date.UTC(2026, 2, 29, 3), BERLIN, 4);
  expect(tickLabels(spring, BERLIN)).toEqual(['01:00\n29 Mar 2026', '03:00\n+02:00', '04:00', '05:00']);
  const autumn = timeTicks(Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 9, 25, 23), BERLIN, 5);
  expect(tickLabels(autumn, BERLIN)).toEqual(['25 Oct\n2026', '06:00\n+01:00', '12:00', '18:00', '26 Oct']);
  const twice = timeTicks(Date.UTC(2026, 9, 24, 23), Date.UTC(2026, 9, 25, 2), BERLIN, 4);
  expect(tickLabels(twice, BERLIN)).toEqual(['01:00\n25 Oct 2026', '02:00', '02:00\n+01:00', '03:00']);
});

test('the length of a point is that of the inner ones', () => {
  expect(pointLength(edgesOf({ from: FROM + 1, to: FROM + 30 * DAY_MS }, BERLIN, 130))).toBe(6 * HOUR_MS);
});

test('there is at most one tick more than allowed', () => {
  for (const hours of [0.1, 1, 24, 24 * 7, 24 * 365, 24 * 3_650]) {
    expect(timeTicks(FROM, FROM + hours * HOUR_MS, UTC, 10).length).toBeLessThanOrEqual(11);
  }
});
