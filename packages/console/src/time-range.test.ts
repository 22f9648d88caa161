import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../test/random.ts';
import { clock, day } from './format.ts';
import {
  edgesBefore,
  PRESETS,
  type PresetName,
  previousRange,
  previousShift,
  RANGE_DAYS_MAX,
  rangeProblem,
  resolveRange,
  type SelectedRange,
  shiftedRange,
  type TimeRange,
  timeBefore,
} from './time-range.ts';
import { fixedZone, parseZone, startOfDay, type Zone } from './zone.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.UTC(2026, 6, 15, 10, 30);

test('days begin at local midnight', () => {
  const at = (hours: number) => resolveRange({ preset: 'today' }, fixedZone(hours * HOUR_MS), NOW);
  expect(at(0)).toEqual({ from: Date.UTC(2026, 6, 15), to: NOW });
  expect(at(14)).toEqual({ from: Date.UTC(2026, 6, 15, 10), to: NOW });
  expect(at(-11)).toEqual({ from: Date.UTC(2026, 6, 14, 11), to: NOW });
});

test('each preset has the length that it names', () => {
  const range = (preset: PresetName) => resolveRange({ preset }, fixedZone(0), NOW);
  expect(range('1hour')).toEqual({ from: NOW - HOUR_MS, to: NOW });
  expect(range('6hours')).toEqual({ from: NOW - 6 * HOUR_MS, to: NOW });
  expect(range('24hours')).toEqual({ from: NOW - DAY_MS, to: NOW });
  expect(range('yesterday')).toEqual({ from: Date.UTC(2026, 6, 14), to: Date.UTC(2026, 6, 15) });
  expect(range('7days')).toEqual({ from: NOW - 168 * HOUR_MS, to: NOW });
  expect(range('30days')).toEqual({ from: NOW - 30 * DAY_MS, to: NOW });
  expect(range('90days')).toEqual({ from: NOW - 90 * DAY_MS, to: NOW });
  // 15 July 2026 is a Wednesday.
  expect(range('thisweek')).toEqual({ from: Date.UTC(2026, 6, 13), to: NOW });
  expect(range('lastweek')).toEqual({ from: Date.UTC(2026, 6, 6), to: Date.UTC(2026, 6, 13) });
  const monday = resolveRange({ preset: 'thisweek' }, fixedZone(0), Date.UTC(2026, 6, 13));
  expect(monday).toEqual({ from: Date.UTC(2026, 6, 13), to: Date.UTC(2026, 6, 13) });
});

const rangeBefore = (selected: SelectedRange, range: TimeRange, zone: Zone) =>
  previousRange(range, previousShift(selected, range, zone), zone);

test('the previous range has the same length and does not overlap', () => {
  const spans = (Object.keys(PRESETS) as PresetName[]).map((preset) => ({ preset }));
  for (const selected of [...spans, { from: NOW - 5_000, to: NOW }]) {
    const range = resolveRange(selected, fixedZone(2 * HOUR_MS), NOW);
    const before = rangeBefore(selected, range, fixedZone(2 * HOUR_MS));
    expect(before.to - before.from).toBe(range.to - range.from);
    expect(before.to).toBeLessThanOrEqual(range.from);
  }
});

test('days begin at local midnight across a clock change', () => {
  const berlin = parseZone('Europe/Berlin');
  const now = Date.UTC(2026, 9, 26, 11);
  if (berlin === null) throw new Error('the zone is unknown');
  expect(resolveRange({ preset: 'lastweek' }, berlin, now)).toEqual({
    from: Date.UTC(2026, 9, 18, 22),
    to: Date.UTC(2026, 9, 25, 23),
  });
  expect(resolveRange({ preset: '7days' }, berlin, now)).toEqual({ from: now - 168 * HOUR_MS, to: now });
  expect(resolveRange({ preset: 'yesterday' }, berlin, now)).toEqual({
    from: Date.UTC(2026, 9, 24, 22),
    to: Date.UTC(2026, 9, 25, 23),
  });
});

test('half a day is compared with the same half of the day before', () => {
  const today = resolveRange({ preset: 'today' }, fixedZone(0), NOW);
  expect(rangeBefore({ preset: 'today' }, today, fixedZone(0))).toEqual({
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

test('a range that ends now ends with the minute', () => {
  const range = resolveRange({ preset: '1hour' }, fixedZone(0), NOW + 1);
  expect(range).toEqual({ from: NOW + 60_000 - HOUR_MS, to: NOW + 60_000 });
});

test('a range is shifted by its length, days by whole days, and never into the future', () => {
  const hour = { from: NOW - HOUR_MS, to: NOW };
  const utc = fixedZone(0);
  expect(shiftedRange(hour, utc, -1, NOW)).toEqual({ from: NOW - 2 * HOUR_MS, to: NOW - HOUR_MS });
  expect(shiftedRange(hour, utc, 1, NOW)).toBeNull();
  const yesterday = { from: Date.UTC(2026, 6, 14), to: Date.UTC(2026, 6, 15) };
  expect(shiftedRange({ preset: 'today' }, utc, -1, NOW)).toEqual(yesterday);
  expect(shiftedRange(yesterday, utc, 1, NOW)).toEqual({
    from: Date.UTC(2026, 6, 15),
    to: Date.UTC(2026, 6, 16),
  });
});

test.each([
  ['Europe/Berlin', Date.UTC(2026, 9, 26, 11), '24 Oct 00:00, 25 Oct 00:00, 26 Oct 00:00'],
  ['Europe/Berlin', Date.UTC(2026, 2, 30, 11), '28 Mar 00:00, 29 Mar 00:00, 30 Mar 00:00'],
  // The clock skips midnight of 6 September.
  ['America/Santiago', Date.UTC(2026, 8, 7, 12), '5 Sep 00:00, 6 Sep 01:00, 7 Sep 00:00'],
])('days shift by local days across a clock change in %s', (id, now, days) => {
  const zone = parseZone(id);
  if (zone === null) throw new Error('the zone is unknown');
  const text = (time: number) => `${day(time, zone)} ${clock(time, zone)}`;
  const yesterday = resolveRange({ preset: 'yesterday' }, zone, now);
  const before = shiftedRange({ preset: 'yesterday' }, zone, -1, now);
  if (before === null) throw new Error('there is no earlier day');
  expect([before.from, before.to, yesterday.to].map(text).join(', ')).toBe(days);
  expect(shiftedRange(before, zone, 1, now)).toEqual(yesterday);
  const week = shiftedRange({ preset: 'thisweek' }, zone, -1, now);
  expect(week?.to).toBe(resolveRange({ preset: 'thisweek' }, zone, now).from);
  expect([week?.from, week?.to].map((time) => clock(time ?? 0, zone))).toEqual(['00:00', '00:00']);
});

test.each([
  [
    'Europe/Berlin',
    Date.UTC(2026, 9, 26, 11),
    '24 Oct 00:00 to 25 Oct 00:00',
    '25 Oct 00:00 to 25 Oct 12:00',
  ],
  [
    'Europe/Berlin',
    Date.UTC(2026, 2, 30, 11),
    '28 Mar 00:00 to 29 Mar 00:00',
    '29 Mar 00:00 to 29 Mar 13:00',
  ],
  // The clock skips midnight of 6 September.
  ['America/Santiago', Date.UTC(2026, 8, 7, 12), '5 Sep 00:00 to 6 Sep 01:00', '6 Sep 01:00 to 6 Sep 09:00'],
])('days are compared with local days across a clock change in %s', (id, now, dayBefore, yesterday) => {
  const zone = parseZone(id);
  if (zone === null) throw new Error('the zone is unknown');
  const compared = (selected: SelectedRange) => {
    const { from, to } = rangeBefore(selected, resolveRange(selected, zone, now), zone);
    return [from, to].map((time) => `${day(time, zone)} ${clock(time, zone)}`).join(' to ');
  };
  expect(compared({ preset: 'yesterday' })).toBe(dayBefore);
  expect(compared({ preset: 'today' })).toBe(yesterday);
  // The days of a custom range are days too.
  expect(compared(resolveRange({ preset: 'yesterday' }, zone, now))).toBe(dayBefore);
});

const zones = fc.constantFrom(
  ...['Europe/Berlin', 'America/Santiago', 'Australia/Lord_Howe', '+05:45'].map(
    (id) => parseZone(id) ?? fixedZone(0),
  ),
);

test('whole days are compared with the whole days that end where they begin', () => {
  const firstDay = fc.integer({ min: 16_436, max: 21_915 });
  fc.assert(
    fc.property(zones, firstDay, fc.integer({ min: 1, max: 100 }), (zone, first, days) => {
      const range = { from: startOfDay(first, zone), to: startOfDay(first + days, zone) };
      expect(rangeBefore(range, range, zone)).toEqual({
        from: startOfDay(first - days, zone),
        to: range.from,
      });
    }),
    { numRuns: scaled(100) },
  );
});

test('each point is compared with a part of the previous period, in order and without gaps', () => {
  const times = fc.integer({ min: Date.UTC(2015, 0, 1), max: Date.UTC(2030, 0, 1) });
  fc.assert(
    fc.property(zones, times, fc.integer({ min: 1, max: 9 }), (zone, from, days) => {
      const edges = Array.from({ length: 49 * days }, (_, i) => from + (i * HOUR_MS) / 2);
      const before = edgesBefore(edges, { days }, zone);
      expect(before).toEqual(before.toSorted((a, b) => a - b));
      expect(before[0]).toBeLessThanOrEqual(timeBefore(from, { days }, zone));
      expect(before.at(-1)).toBe(timeBefore(edges.at(-1) ?? 0, { days }, zone));
    }),
    { numRuns: scaled(100) },
  );
});

test('hours shift by hours across a clock change', () => {
  const berlin = parseZone('Europe/Berlin');
  if (berlin === null) throw new Error('the zone is unknown');
  const to = Date.UTC(2026, 9, 25, 4, 30);
  const shifted = { from: to - 2 * DAY_MS, to: to - DAY_MS };
  expect(shiftedRange({ from: to - DAY_MS, to }, berlin, -1, to)).toEqual(shifted);
});
