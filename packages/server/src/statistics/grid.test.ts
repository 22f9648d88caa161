import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { pointEnds } from '../../../../test/oracle.ts';
import { scaled } from '../../../../test/random.ts';
import { OffsetZone, UTC, zoneOf } from '../zone.ts';
import { gridEdges, intervalOf, startOfDay } from './grid.ts';
import { RANGE_MS_MAX } from './range.ts';

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
  expect(gridEdges(NOON + 1, NOON + 2, UTC)).toEqual([NOON + 1, NOON + 2]);
});

test('a boundary at the start or the end adds no empty point', () => {
  expect(gridEdges(NOON, NOON + 2 * MINUTE, UTC)).toEqual([NOON, NOON + MINUTE, NOON + 2 * MINUTE]);
});

test('with +05:45 the hours end at a quarter past in UTC', () => {
  const edges = gridEdges(NOON, NOON + 8 * DAY, new OffsetZone(5 * 60 + 45));
  expect(edges[1]).toBe(NOON + 15 * MINUTE);
  expect(edges[2]).toBe(NOON + HOUR + 15 * MINUTE);
});

test('days end at local midnight', () => {
  const [, first] = gridEdges(NOON, NOON + 40 * DAY, new OffsetZone(8 * 60));
  expect(first).toBe(Date.UTC(2026, 6, 1, 16));
});

test('the points partition any range at the boundaries of any local clock', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: NOON }),
      fc.oneof(fc.integer({ min: 0, max: 2 * DAY }), fc.integer({ min: 0, max: RANGE_MS_MAX })),
      fc.integer({ min: -12 * 60, max: 14 * 60 }),
      (from, length, minutes) => {
        const edges = gridEdges(from, from + length, new OffsetZone(minutes));
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

describe('in a named zone', () => {
  /** The lengths of the points in hours, by the local time at which they begin. */
  function pointsOf(zone: string, start: string, days: number, intervalMs: number): [string, number][] {
    const clock = zoneOf(zone);
    const edges = gridEdges(Date.parse(start), Date.parse(start) + days * DAY, clock, intervalMs);
    return edges.slice(1).map((end, i) => {
      const begin = edges[i] ?? 0;
      return [new Date(begin + clock.offsetAt(begin)).toISOString().slice(5, 16), (end - begin) / HOUR];
    });
  }

  test('a day has 23 hours in spring and 25 in autumn', () => {
    expect(pointsOf('Europe/Berlin', '2026-03-28T00:00+01:00', 3, DAY)).toEqual([
      ['03-28T00:00', 24],
      ['03-29T00:00', 23],
      ['03-30T00:00', 24],
      ['03-31T00:00', 1],
    ]);
    expect(pointsOf('Europe/Berlin', '2026-10-25T00:00+02:00', 1, DAY)).toEqual([['10-25T00:00', 24]]);
    expect(pointsOf('Europe/Berlin', '2026-10-24T00:00+02:00', 3, DAY)).toEqual([
      ['10-24T00:00', 24],
      ['10-25T00:00', 25],
      ['10-26T00:00', 23],
    ]);
  });

  test('shorter points keep their length when the clock changes by whole ones', () => {
    expect(pointsOf('Europe/Berlin', '2026-03-29T00:00+01:00', 1 / 6, HOUR)).toEqual([
      ['03-29T00:00', 1],
      ['03-29T01:00', 1],
      ['03-29T03:00', 1],
      ['03-29T04:00', 1],
    ]);
    expect(pointsOf('Europe/Berlin', '2026-10-25T01:00+02:00', 1 / 6, HOUR)).toEqual([
      ['10-25T01:00', 1],
      ['10-25T02:00', 1],
      ['10-25T02:00', 1],
      ['10-25T03:00', 1],
    ]);
    for (const start of ['2026-04-03T15:00Z', '2026-10-02T15:00Z']) {
      const lengths = pointsOf('Australia/Lord_Howe', start, 2, HOUR / 6).map(([, hours]) => hours);
      expect(new Set(lengths)).toEqual(new Set([1 / 6]));
    }
  });

  test('a change by half an hour makes one hour shorter in spring, and one longer in autumn', () => {
    expect(pointsOf('Australia/Lord_Howe', '2026-10-04T01:00+10:30', 1 / 9.6, HOUR)).toEqual([
      ['10-04T01:00', 1],
      ['10-04T02:30', 0.5],
      ['10-04T03:00', 1],
    ]);
    expect(pointsOf('Australia/Lord_Howe', '2026-04-05T00:00+11:00', 1 / 6.856, HOUR).slice(0, 3)).toEqual([
      ['04-05T00:00', 1],
      ['04-05T01:00', 1.5],
      ['04-05T02:00', 1],
    ]);
  });

  test.each([
    // Samoa and Kwajalein crossed the date line.
    ['Pacific/Apia', '2011-12-29T00:00-10:00', 3, ['12-29T00:00', '12-31T00:00', '01-01T00:00']],
    ['Pacific/Kwajalein', '1993-08-20T00:00-12:00', 3, ['08-20T00:00', '08-22T00:00', '08-23T00:00']],
    // The clock skips midnight.
    ['America/Sao_Paulo', '2018-11-03T00:00-03:00', 2, ['11-03T00:00', '11-04T01:00', '11-05T00:00']],
    // The clock is set back to midnight, to the hour before it, and from a minute after it.
    ['Atlantic/Azores', '2026-10-24T00:00+00:00', 2, ['10-24T00:00', '10-25T00:00']],
    ['America/Nuuk', '2026-10-24T00:00-01:00', 2, ['10-24T00:00', '10-25T00:00']],
    ['America/St_Johns', '2010-11-06T00:00-02:30', 2, ['11-06T00:00', '11-07T00:00']],
    ['America/St_Johns', '2010-11-07T00:00:30-02:30', 1, ['11-07T00:00']],
    ['America/St_Johns', '2010-11-07T23:01-03:30', 1, ['11-07T23:01', '11-08T00:00']],
  ])('each day of %s begins once', (zone, start, days, starts) => {
    const points = pointsOf(zone, start, days, DAY).map(([begin]) => begin);
    expect(points.slice(0, starts.length)).toEqual(starts);
    expect(new Set(points).size).toBe(points.length);
  });

  test('a clock that is set back over midnight does not begin the day again', () => {
    // 6 November, 23:30 for the second time.
    const from = Date.parse('2010-11-06T23:30-03:30');
    expect(gridEdges(from, from + DAY, zoneOf('America/St_Johns'), DAY)).toEqual([
      from,
      Date.parse('2010-11-08T00:00-03:30') > from + DAY ? from + DAY : Date.parse('2010-11-08T00:00-03:30'),
    ]);
  });

  const ZONES = [
    'Europe/Berlin',
    'America/New_York',
    'Australia/Lord_Howe',
    'Atlantic/Azores',
    'America/Nuuk',
    'Africa/Casablanca',
    'Asia/Beirut',
    'Asia/Kathmandu',
    'Pacific/Chatham',
    'Etc/GMT+8',
    'UTC',
  ];
  const START = Date.UTC(2025, 8, 1);
  const END = Date.UTC(2026, 11, 1);
  /** Times near clock changes, and any others. */
  const near = (zone: string) => {
    const changes = zoneOf(zone).changesIn(START, END);
    const any = fc.integer({ min: START, max: END });
    return changes.length === 0
      ? any
      : fc.oneof(
          any,
          fc
            .tuple(fc.constantFrom(...changes), fc.integer({ min: -100, max: 100 }))
            .map(([{ at }, quarters]) => at + quarters * 15 * MINUTE),
        );
  };
  const query = fc.constantFrom(...ZONES).chain((zone) =>
    fc.record({
      zone: fc.constant(zone),
      from: near(zone),
      length: fc.oneof(
        fc.integer({ min: 1, max: DAY }),
        fc.integer({ min: 1, max: 8 * DAY }),
        fc.integer({ min: 1, max: 40 * DAY }),
      ),
      intervalMs: fc.constantFrom(undefined, DAY, HOUR),
    }),
  );

  test('points end where a clock on the wall shows it', () => {
    fc.assert(
      fc.property(query, ({ zone, from, length, intervalMs }) => {
        const to = from + length;
        const expected = pointEnds({ from, to, offsetMinutes: 0, zone }, intervalMs ?? intervalOf(length));
        expect(gridEdges(from, to, zoneOf(zone), intervalMs)).toEqual([from, ...expected]);
      }),
      { numRuns: scaled(200) },
    );
  });

  test('boundaries do not depend on where the range begins', () => {
    fc.assert(
      fc.property(query, fc.nat(3 * DAY), ({ zone, from, length, intervalMs = DAY }, later) => {
        const [clock, to] = [zoneOf(zone), from + later + length];
        const inner = gridEdges(from, to, clock, intervalMs).filter((edge) => edge > from + later);
        expect(gridEdges(from + later, to, clock, intervalMs).slice(1)).toEqual(inner);
      }),
      { numRuns: scaled(200) },
    );
  });

  test('a day begins when its date is first shown', () => {
    const days = (text: string) => Date.parse(text) / DAY;
    const start = (zone: string, text: string) =>
      new Date(startOfDay(days(text), zoneOf(zone))).toISOString();
    expect(start('Europe/Berlin', '2026-03-29')).toBe('2026-03-28T23:00:00.000Z');
    expect(start('Europe/Berlin', '2026-03-30')).toBe('2026-03-29T22:00:00.000Z');
    expect(start('America/Sao_Paulo', '2018-11-04')).toBe('2018-11-04T03:00:00.000Z');
    expect(start('Atlantic/Azores', '2026-10-25')).toBe('2026-10-25T00:00:00.000Z');
    // A day that was skipped begins with the next one.
    expect(start('Pacific/Apia', '2011-12-30')).toBe(start('Pacific/Apia', '2011-12-31'));
    expect(start('Pacific/Kiritimati', '2026-07-01')).toBe('2026-06-30T10:00:00.000Z');
    expect(start('Etc/GMT+12', '2026-07-01')).toBe('2026-07-01T12:00:00.000Z');
  });

  test('ranges far in the future have points too', () => {
    const to = Number.MAX_SAFE_INTEGER;
    expect(gridEdges(to - RANGE_MS_MAX, to, zoneOf('Europe/Berlin')).length).toBeGreaterThan(3_600);
  });
});
