import { describe, expect, test } from 'vitest';
import { OffsetZone, UTC, zoneOf } from '../../zone.ts';
import { givenTime, RANGE_OPTIONS, rangeOf, rangeProblems } from './range.ts';

const BERLIN = zoneOf('Europe/Berlin');
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const at = (text: string) => Date.parse(text);
/** A Wednesday, three days after the clock was set back in Berlin. */
const NOW = at('2026-10-28T10:00:00+01:00');

type Source = Parameters<typeof rangeOf>[1];
const given = (...names: string[]) => ((name) => (names.includes(name) ? 'cli' : undefined)) as Source;

/** The range of these options, as the command line gives them. */
function range(options: { from?: string; to?: string; last?: string }, timezone = BERLIN, now = NOW) {
  const values = {
    from: options.from === undefined ? undefined : givenTime(options.from),
    to: options.to === undefined ? undefined : givenTime(options.to),
    last: RANGE_OPTIONS.last.parse(options.last ?? '24h'),
    timezone,
  };
  expect(rangeProblems(values, given(...Object.keys(options)), now)).toEqual([]);
  return rangeOf(values, given(...Object.keys(options)), now);
}

describe('the range of a query', () => {
  test('is the last 24 hours by default', () => {
    expect(range({})).toEqual({ from: NOW - DAY_MS, to: NOW });
    expect(range({ to: '5000' })).toEqual({ from: 0, to: 5_000 });
    expect(range({ from: '7' })).toEqual({ from: 7, to: NOW });
    expect(range({ from: '7', to: '9' })).toEqual({ from: 7, to: 9 });
  });

  test('has a length that is given with its end or its start, but not with both', () => {
    expect(range({ from: '7', last: '1h' })).toEqual({ from: 7, to: 7 + HOUR_MS });
    expect(range({ to: '7200000', last: '1h' })).toEqual({ from: HOUR_MS, to: 2 * HOUR_MS });
    const values = { from: givenTime('7'), to: givenTime('7'), timezone: UTC };
    expect(rangeProblems(values, given('from', 'to'), NOW)).toEqual([]);
    expect(rangeProblems(values, given('from', 'to', 'last'), NOW)).toEqual([
      'use only two of --from, --to and --last: they determine the third',
    ]);
  });

  test('of 7d is 168 hours up to now, also across a change of the clock', () => {
    expect(range({ last: '7d' })).toEqual({ from: NOW - 168 * HOUR_MS, to: NOW });
    expect(new Date(NOW - 168 * HOUR_MS).toISOString()).toBe('2026-10-21T09:00:00.000Z');
    // Eleven o'clock in summer time, an hour later than now.
    expect(BERLIN.offsetAt(NOW - 168 * HOUR_MS) - BERLIN.offsetAt(NOW)).toBe(HOUR_MS);
  });
});

describe('a date', () => {
  test('is its beginning as --from, and its end as --to', () => {
    expect(range({ from: '2026-07-01', to: '2026-07-01' })).toEqual({
      from: at('2026-07-01T00:00:00+02:00'),
      to: at('2026-07-02T00:00:00+02:00'),
    });
    expect(range({ from: '2026-07-01', to: '2026-07-02' }, new OffsetZone(-330))).toEqual({
      from: at('2026-07-01T00:00:00-05:30'),
      to: at('2026-07-03T00:00:00-05:30'),
    });
  });

  test.each([
    ['Europe/Berlin', '2026-03-29', 23, 'the clock is set forward'],
    ['Europe/Berlin', '2026-10-25', 25, 'the clock is set back'],
    ['Europe/Berlin', '2026-10-26', 24, 'nothing happens'],
    // Midnight does not exist.
    ['America/Santiago', '2026-09-06', 23, 'the clock is set forward at midnight'],
    ['America/Havana', '2026-11-01', 25, 'the clock is set back to midnight'],
    ['Australia/Lord_Howe', '2026-04-05', 24.5, 'the clock is set back by half an hour'],
  ])('in %s, %s has %d hours: %s', (zone, date, hours) => {
    const { from, to } = range({ from: date, to: date }, zoneOf(zone), at('2027-01-01T00:00:00Z'));
    expect((to - from) / HOUR_MS).toBe(hours);
  });

  test('that does not exist is refused', () => {
    for (const text of ['2026-02-30', '2026-13-01', '2026-07-01 24:30', '1 July', 'tomorrow', '2026-7-1', ''])
      expect(() => givenTime(text), text).toThrow('must be a date like 2026-07-01');
  });
});

test('a time without an offset is local', () => {
  expect(range({ from: '2026-07-01 14:00', to: '2026-07-01T14:00:30.5' })).toEqual({
    from: at('2026-07-01T14:00:00+02:00'),
    to: at('2026-07-01T14:00:30.500+02:00'),
  });
  expect(range({ from: '2026-07-01T14:00:00Z' }).from).toBe(at('2026-07-01T14:00:00Z'));
  // The clock shows 02:30 twice on one day: the first time counts. On another day, it goes from 02:00 to 03:00.
  expect(range({ from: '2026-10-25 02:30' }).from).toBe(at('2026-10-25T02:30:00+02:00'));
  expect(range({ from: '2026-03-29 02:30' }).from).toBe(at('2026-03-29T03:30:00+02:00'));
});

test('today, yesterday and weeks are calendar spans', () => {
  expect(range({ from: 'today' })).toEqual({ from: at('2026-10-28T00:00:00+01:00'), to: NOW });
  expect(range({ from: 'yesterday', to: 'yesterday' })).toEqual({
    from: at('2026-10-27T00:00:00+01:00'),
    to: at('2026-10-28T00:00:00+01:00'),
  });
  expect(range({ from: 'this week' })).toEqual({ from: at('2026-10-26T00:00:00+01:00'), to: NOW });
  // Its last day has 25 hours.
  expect(range({ from: 'last week', to: 'last week' })).toEqual({
    from: at('2026-10-19T00:00:00+02:00'),
    to: at('2026-10-26T00:00:00+01:00'),
  });
  // In Berlin it is the next day already.
  const late = at('2026-10-27T23:30:00Z');
  expect(range({ from: 'today' }, BERLIN, late).from).toBe(at('2026-10-28T00:00:00+01:00'));
  expect(range({ from: 'today' }, UTC, late).from).toBe(at('2026-10-27T00:00:00Z'));
  // A Monday and a Sunday.
  for (const day of ['2026-10-26T00:00:00+01:00', '2026-11-01T23:59:59+01:00'])
    expect(range({ from: 'this week' }, BERLIN, at(day)).from).toBe(at('2026-10-26T00:00:00+01:00'));
});
