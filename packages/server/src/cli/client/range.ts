/** The range of a query: `--from`, `--to` and `--last`, with the days and local times of `--timezone`. */
import { parseZone } from '../../ingest/formats/time-zone.ts';
import { parseTime } from '../../ingest/formats/timestamps.ts';
import { DAY_MS, startOfDay } from '../../statistics/grid.ts';
import { type Zone, zoneOf } from '../../zone.ts';
import { duration, option, type Source, timestamp, type Values } from '../options.ts';
import type { QueryRange } from './plot.ts';

/** `--from` is the start of what it names, `--to` the end: of a day or a week, or of an instant, where both are the same. */
export interface GivenTime {
  text: string;
  resolve(zone: Zone, now: number): QueryRange;
}

type Days = readonly [first: number, end: number];

/** Days since 1 January 1970, which was a Thursday. Weeks begin on Monday. */
const monday = (today: number) => today - ((today + 3) % 7);
const SPANS: ReadonlyMap<string, (today: number) => Days> = new Map([
  ['today', (today) => [today, today + 1]],
  ['yesterday', (today) => [today - 1, today]],
  ['this week', (today) => [monday(today), monday(today) + 7]],
  ['last week', (today) => [monday(today) - 7, monday(today)]],
]);

const SPAN_NAMES = [...SPANS.keys()].join(', ');

export function givenTime(text: string): GivenTime {
  const [, date = '', clock] =
    /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?))?$/.exec(text) ?? [];
  const local = parseTime(`${date}T${clock ?? '00:00'}Z`);
  const day = local === null || clock !== undefined ? null : local / DAY_MS;
  const days = day === null ? SPANS.get(text) : (): Days => [day, day + 1];
  if (days !== undefined) {
    const resolve = (zone: Zone, now: number) => {
      const [first, end] = days(Math.floor((now + zone.offsetAt(now)) / DAY_MS));
      return { from: startOfDay(first, zone), to: startOfDay(end, zone) };
    };
    return { text, resolve };
  }
  const instant = (time: number) => ({ from: time, to: time });
  if (local !== null) return { text, resolve: (zone) => instant(parseZone(zone.name).toUtc(local)) };
  try {
    const time = timestamp(text);
    return { text, resolve: () => instant(time) };
  } catch {
    throw new Error(
      `must be a date like 2026-07-01, a time like '2026-07-01 12:00' or 2026-07-01T12:00:00+08:00, ${SPAN_NAMES}, ` +
        'or milliseconds since the epoch',
    );
  }
}

export const TIMEZONE = option(
  '--timezone <zone>',
  'time zone of days and of the output: an offset like +08:00, or a name like Europe/Berlin',
  zoneOf,
  { default: '+00:00' },
);

export const RANGE_OPTIONS = {
  last: option(
    '--last <time>',
    'length of the range, like 24h, 7d (168 hours) or 90m; it ends now, or at --to, or begins at --from',
    duration('mhd', '1m', '3653d', '24h, 7d or 90m'),
    { default: '24h' },
  ),
  from: option(
    '--from <time>',
    `start of the range: a date like 2026-07-01, a time like '2026-07-01 12:00', ${SPAN_NAMES}, ISO 8601, or milliseconds`,
    givenTime,
  ),
  to: option(
    '--to <time>',
    'end of the range, exclusive, in the same forms; of a date, its end [default: now]',
    givenTime,
  ),
  timezone: TIMEZONE,
};

type RangeValues = Values<typeof RANGE_OPTIONS>;
type RangeSource = Source<typeof RANGE_OPTIONS>;

export function rangeProblems(
  { from, to, timezone }: Partial<RangeValues>,
  source: RangeSource,
  now: number,
): string[] {
  if ((['from', 'to', 'last'] as const).every((name) => source(name) !== undefined))
    return ['use only two of --from, --to and --last: they determine the third'];
  if (from === undefined || timezone === undefined || source('last') !== undefined) return [];
  const start = from.resolve(timezone, now).from;
  if (to !== undefined)
    return start > to.resolve(timezone, now).to ? [`--from (${from.text}) is after --to (${to.text})`] : [];
  // A value that cannot be parsed is given, too.
  if (source('to') !== undefined || start <= now) return [];
  return [`--from (${from.text}) is in the future: give --to or --last`];
}

/** With `--from`, only a length that is given determines the end, not the default one. */
export function rangeOf(
  { from, to, last, timezone }: RangeValues,
  source: RangeSource,
  now: number,
): QueryRange {
  const start = from?.resolve(timezone, now).from;
  if (start !== undefined && source('last') !== undefined) return { from: start, to: start + last };
  const end = to?.resolve(timezone, now).to ?? now;
  return { from: start ?? Math.max(0, end - last), to: end };
}
