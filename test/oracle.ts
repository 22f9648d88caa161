/** Expected results: counts the single events in the range. Written from the rules of the API, without server code. */
import type { Distribution, Timeline } from './api.ts';

export const CATEGORIES = [
  'xss',
  'sqli',
  'cmdi',
  'cc',
  'custom',
  'illegal',
  'lfi',
  'robot',
  'antitamper',
  'rfi',
  'vuln',
  'whiteblackip',
  'webshell',
] as const;

export interface KnownEvent {
  time: number;
  hostname: string | null;
  request: boolean;
  attack: (typeof CATEGORIES)[number] | null;
  count: number;
  blocked?: boolean | undefined;
  source?: string | undefined;
  url?: string | undefined;
  rule?: string | undefined;
  country?: string | undefined;
  status?: number | undefined;
  upstream_status?: number | undefined;
  bytes_in?: number | undefined;
  bytes_out?: number | undefined;
}

export interface Query {
  from: number;
  to: number;
  offsetMinutes: number;
  /** An IANA name, instead of the offset. */
  zone?: string | undefined;
  /** Undefined: the whole project, including events without a host. */
  hostnames: ReadonlySet<string> | undefined;
  /** By name. Lists of URLs have them. */
  hostIds?: ReadonlyMap<string, string>;
}

/** `eventsIn`: the events of the same hosts in another range. */
type Compute = (
  events: readonly KnownEvent[],
  query: Query,
  eventsIn: (from: number, to: number) => readonly KnownEvent[],
) => unknown;

/** The calls about values of attacks. All attacks are kept, so they count the range to the millisecond. */
const TOP_CALLS: Readonly<Record<string, Compute>> = {
  'event/attack/source?top=3': (events, query) => {
    const { items, ...list } = topValues(events, query, sourceOf, 3);
    return { ...list, items: items.map(({ key, num, error }) => ({ ip: key, num, error })) };
  },
  'event/attack/source/num': (events, query) => {
    const { total, items: _items, ...coverage } = topValues(events, query, sourceOf, 1);
    return { sip: total, ...coverage };
  },
  'overviews/attack/ip': (events, query) => topValues(events, query, sourceOf, 5),
  'overviews/attack/url?top=4': (events, query) => topUrls(events, query, 4),
  'overviews/attack/rule?top=1000': (events, query) => topValues(events, query, ({ rule }) => rule, 1_000),
  'overviews/attack/rule?attacks=sqli,xss': (events, query) =>
    topValues(
      events.filter(({ attack }) => attack === 'sqli' || attack === 'xss'),
      query,
      ({ rule }) => rule,
      5,
    ),
  'overviews/attack/country?top=2': (events, query) => topValues(events, query, ({ country }) => country, 2),
  'overviews/classification?top=2': (events, query) => ({
    domain: topDomains(events, 2),
    attack_type: top(byCategory(events), 2),
    ip: topValues(events, query, sourceOf, 2),
    url: topUrls(events, query, 2),
    geo: topValues(events, query, ({ country }) => country, 2),
  }),
};

/** Every statistics call, with parameters, after `waf/`: what it returns for the events in the range. */
export const CALLS: Readonly<Record<string, Compute>> = {
  'event/timeline': (events, query) => {
    const points = split(events, pointEnds(query));
    return { requests: countPoints(points, isRequest), attacks: countPoints(points, isAttack) };
  },
  'event/attack/type': (events) => {
    const counts = byCategory(events);
    return Object.fromEntries(CATEGORIES.map((name) => [name, counts.get(name) ?? 0]));
  },
  'event/attack/num': (events) => ({ attack_num: count(events, isAttack) }),
  'event/attack/domain?top=3': (events) => {
    const { total, items } = top(byHost(events), 3);
    return { total, items: items.map(({ key, num }) => ({ host: key, num })) };
  },
  'event/request/peak': (events) => ({ qps: busiestSecond(events.filter(isRequest)) }),
  'overviews/statistics': (events) => GROUPS.map(([key, isIn]) => ({ key, num: count(events, isIn) })),
  ...withDays('overviews/request/timeline', (points) =>
    GROUPS.map(([key, isIn]) => ({ key, timeline: countPoints(points, isIn) })),
  ),
  ...withDays('overviews/qps/timeline', (points) =>
    GROUPS.map(([key, isIn]) => ({
      key,
      timeline: points.map(({ start, time, events }) => ({
        time,
        num: Math.round((count(events, isIn) * 1_000) / (time - start)),
      })),
    })),
  ),
  ...withDays('overviews/qps/timeline?display_option=1', (points) =>
    GROUPS.map(([key, isIn]) => ({
      key,
      timeline: points.map(({ time, events }) => ({ time, num: busiestSecond(events.filter(isIn)) })),
    })),
  ),
  ...withDays('overviews/attack/timeline', (points) =>
    CATEGORIES.map((key) => ({ key, timeline: countPoints(points, ({ attack }) => attack === key) })),
  ),
  ...withDays('overviews/response-code/timeline', (points) => byCode(points, ({ status = 0 }) => status)),
  ...withDays('overviews/response-code/timeline?response_source=UPSTREAM', (points) =>
    byCode(points, ({ status = 0, upstream_status = status }) => upstream_status),
  ),
  'overviews/bandwidth/timeline': (_, query, eventsIn) => bandwidth(query, eventsIn, undefined, averageRate),
  'overviews/bandwidth/timeline?group_by=DAY': (_, query, eventsIn) =>
    bandwidth(query, eventsIn, DAY_MS, averageRate),
  'overviews/bandwidth/timeline?display_option=1': (_, query, eventsIn) =>
    bandwidth(query, eventsIn, undefined, peakRate),
  'overviews/abnormal': (_, query, eventsIn) => errorPages(query, eventsIn, 404, 5),
  'overviews/abnormal?code=502&top=1000': (_, query, eventsIn) => errorPages(query, eventsIn, 502, 1_000),
  'overviews/attack/top-domains': (events) => topDomains(events, 5),
  'overviews/attack/top-domains?top=1000': (events) => topDomains(events, 1_000),
  'overviews/attack/distribution': (events) => top(byCategory(events), CATEGORIES.length),
  'overviews/attack/action-types': actions,
  ...TOP_CALLS,
  // The older paths of the SDK of 2021.
  'event/url': (events) => ({ qps: busiestSecond(events.filter(isRequest)) }),
  'event/domain/url': (events, query) => topUrls(events, query, 5),
  'overviews/attack/domain': (events) => topDomains(events, 5),
  'overviews/attack/action': actions,
  'overviews/attack/region': (events, query) => topValues(events, query, ({ country }) => country, 5),
};

/** The series of each code that occurs, ascending; then that of requests without a code. */
function byCode(points: readonly KnownPoint[], codeOf: (event: KnownEvent) => number) {
  const requests = points.flatMap(({ events }) => events).filter(isRequest);
  const codes = [...new Set(requests.map(codeOf))].sort((a, b) => (a || 1_000) - (b || 1_000));
  return codes.map((code) => ({
    key: code === 0 ? 'none' : String(code),
    timeline: countPoints(points, (event) => isRequest(event) && codeOf(event) === code),
  }));
}

type Bytes = (event: KnownEvent) => number;
const BANDWIDTH: readonly (readonly [string, Bytes])[] = [
  ['IN_BANDWIDTH', ({ bytes_in = 0 }) => bytes_in],
  ['OUT_BANDWIDTH', ({ bytes_out = 0 }) => bytes_out],
  ['BANDWIDTH', ({ bytes_in = 0, bytes_out = 0 }) => bytes_in + bytes_out],
];

/** Bytes are kept by minute: the first and the last point cover the minutes that the range cuts. */
function bandwidth(
  query: Query,
  eventsIn: Parameters<Compute>[2],
  intervalMs: number | undefined,
  rateOf: (events: readonly KnownEvent[], bytesOf: Bytes, ms: number) => number,
) {
  const ends = pointEnds(query, intervalMs);
  const points = ends.map((time, i) => {
    const start = Math.floor((ends[i - 1] ?? query.from) / MINUTE_MS) * MINUTE_MS;
    const end = i === ends.length - 1 ? Math.ceil(time / MINUTE_MS) * MINUTE_MS : time;
    return { time, ms: end - start, events: eventsIn(start, end).filter(isRequest) };
  });
  return BANDWIDTH.map(([key, bytesOf]) => ({
    key,
    timeline: points.map(({ time, ms, events }) => ({ time, num: rateOf(events, bytesOf, ms) })),
  }));
}

function averageRate(events: readonly KnownEvent[], bytesOf: Bytes, ms: number): number {
  return Math.round((events.reduce((sum, event) => sum + bytesOf(event), 0) * 1_000) / ms);
}

function peakRate(events: readonly KnownEvent[], bytesOf: Bytes): number {
  const minutes = new Map<number, KnownEvent[]>();
  for (const event of events) {
    const minute = Math.floor(event.time / MINUTE_MS);
    minutes.set(minute, [...(minutes.get(minute) ?? []), event]);
  }
  return Math.max(0, ...Array.from(minutes.values(), (some) => averageRate(some, bytesOf, MINUTE_MS)));
}

/** Pages are kept by hour. */
function errorPages(query: Query, eventsIn: Parameters<Compute>[2], code: number, size: number) {
  const from = Math.floor(query.from / HOUR_MS) * HOUR_MS;
  const to = Math.ceil(query.to / HOUR_MS) * HOUR_MS;
  const events = eventsIn(from, to).filter(({ request, status }) => request && status === code);
  const asAttacks = events.map((event) => ({ ...event, attack: 'xss' as const }));
  const { attacks, ...list } = topUrls(asAttacks, { ...query, from, to }, size);
  const { total, ...rest } = list;
  return { total, requests: attacks, ...rest };
}

function actions(events: readonly KnownEvent[]) {
  const blocked = count(events, (event) => isAttack(event) && event.blocked === true);
  const counts = new Map([
    ['block', blocked],
    ['log', count(events, isAttack) - blocked],
  ]);
  return { total: 2, items: sorted(counts) };
}

interface KnownPoint {
  start: number;
  time: number;
  events: KnownEvent[];
}

/** The call as it is, and with one point per local day. */
function withDays(path: string, expected: (points: readonly KnownPoint[]) => unknown): typeof CALLS {
  const byDay = `${path}${path.includes('?') ? '&' : '?'}group_by=DAY`;
  return {
    [path]: (events, query) => expected(split(events, pointEnds(query), query.from)),
    [byDay]: (events, query) => expected(split(events, pointEnds(query, DAY_MS), query.from)),
  };
}

/** What the six keys of the overviews count. */
const GROUPS: readonly (readonly [string, (event: KnownEvent) => boolean])[] = [
  ['ACCESS', isRequest],
  ['CRAWLER', ({ attack }) => attack === 'robot'],
  ['CC', ({ attack }) => attack === 'cc'],
  ['PRECISE', ({ attack }) => attack === 'custom' || attack === 'whiteblackip'],
  [
    'WEB_ATTACK',
    ({ attack }) => attack !== null && !['robot', 'cc', 'custom', 'whiteblackip'].includes(attack),
  ],
  ['ATTACK', isAttack],
];

function isRequest({ request }: KnownEvent): boolean {
  return request;
}

function isAttack({ attack }: KnownEvent): boolean {
  return attack !== null;
}

function count(events: readonly KnownEvent[], isIn: (event: KnownEvent) => boolean): number {
  return events.reduce((sum, event) => sum + (isIn(event) ? event.count : 0), 0);
}

function countPoints(points: readonly KnownPoint[], isIn: (event: KnownEvent) => boolean) {
  return points.map(({ time, events }) => ({ time, num: count(events, isIn) }));
}

function busiestSecond(events: readonly KnownEvent[]): number {
  const seconds = tally(events, ({ time }) => String(Math.floor(time / 1_000)));
  return [...seconds.values()].reduce((most, num) => Math.max(most, num), 0);
}

function byHost(events: readonly KnownEvent[]): Map<string, number> {
  return tally(
    events.filter((event) => isAttack(event) && event.hostname !== null),
    ({ hostname }) => String(hostname),
  );
}

function byCategory(events: readonly KnownEvent[]): Map<string, number> {
  return tally(events.filter(isAttack), ({ attack }) => String(attack));
}

function tally(events: readonly KnownEvent[], keyOf: (event: KnownEvent) => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const event of events) {
    const key = keyOf(event);
    counts.set(key, (counts.get(key) ?? 0) + event.count);
  }
  return counts;
}

function topDomains(events: readonly KnownEvent[], size: number) {
  const { total, items } = top(byHost(events), size);
  return { total, items: items.map((item) => ({ ...item, web_tag: '' })) };
}

function top(counts: ReadonlyMap<string, number>, size: number) {
  const counted = sorted(counts).filter(({ num }) => num > 0);
  return { total: counted.length, items: counted.slice(0, size) };
}

/** An IPv6 address counts in its /64 network. The addresses here have four groups before the `::`. */
function sourceOf({ source }: KnownEvent): string | undefined {
  return source?.replace(/^(([0-9a-f]+:){4}):[0-9a-f]+$/, '$1:/64');
}

function topValues(
  events: readonly KnownEvent[],
  query: Query,
  keyOf: (event: KnownEvent) => string | undefined,
  size: number,
) {
  const counted = events.filter((event) => isAttack(event) && keyOf(event) !== undefined);
  const { total, items } = top(
    tally(counted, (event) => String(keyOf(event))),
    size,
  );
  return {
    total,
    attacks: count(counted, isAttack),
    distinct_is: 'exact',
    error: 0,
    from: query.from,
    to: query.to,
    items: items.map((item) => ({ ...item, error: 0 })),
  };
}

/** Equal counts are sorted by the ID of the host, then by the path. */
function topUrls(events: readonly KnownEvent[], query: Query, size: number) {
  const idOf = (hostname: string | null) => (hostname && query.hostIds?.get(hostname)) ?? '';
  const names = new Map([...(query.hostIds ?? [])].map(([name, id]) => [id, name]));
  const { items, ...list } = topValues(
    events,
    query,
    ({ hostname, url }) => url && `${idOf(hostname)} ${url}`,
    size,
  );
  const urls = items.map(({ key, num, error }) => {
    const [id = '', url] = key.split(' ', 2);
    return { key: url, num, host: names.get(id) ?? '', host_id: id || null, error };
  });
  return { ...list, items: urls };
}

function sorted(counts: ReadonlyMap<string, number>): { key: string; num: number }[] {
  const items = [...counts].map(([key, num]) => ({ key, num }));
  return items.sort((a, b) => (a.num === b.num ? (a.key < b.key ? -1 : 1) : b.num - a.num));
}

/** The events of each point. They are sorted by time. */
function split(events: readonly KnownEvent[], ends: readonly number[], from = 0): KnownPoint[] {
  const points = ends.map((time, i) => ({ start: ends[i - 1] ?? from, time, events: [] as KnownEvent[] }));
  let point = 0;
  for (const event of events) {
    while (event.time >= (ends[point] ?? Number.POSITIVE_INFINITY)) point++;
    const inPoint = points[point];
    if (inPoint === undefined) throw new Error('an event after the last point');
    inPoint.events.push(event);
  }
  return points;
}

export class Oracle {
  /** By time. */
  readonly #events: readonly KnownEvent[];

  constructor(events: readonly KnownEvent[]) {
    this.#events = events.toSorted((a, b) => a.time - b.time);
  }

  timeline(query: Query): Timeline {
    return this.expected('event/timeline', query) as Timeline;
  }

  distribution(query: Query): Distribution {
    return this.expected('event/attack/type', query) as Distribution;
  }

  /** `path` is one of CALLS. */
  expected(path: string, query: Query): unknown {
    const compute = CALLS[path];
    if (compute === undefined) throw new Error(`the oracle does not know ${path}`);
    return compute(this.#matching(query), query, (from, to) => this.#matching({ ...query, from, to }));
  }

  #matching({ from, to, hostnames }: Query): KnownEvent[] {
    const inRange = this.#events.slice(this.#firstAtOrAfter(from), this.#firstAtOrAfter(to));
    return hostnames
      ? inRange.filter(({ hostname }) => hostname !== null && hostnames.has(hostname))
      : inRange;
  }

  /** The position of the first event that is not before `time`. */
  #firstAtOrAfter(time: number): number {
    let [low, high] = [0, this.#events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#events[middle]?.time ?? 0) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 86_400_000;

/** The times in the range that are multiples of the interval in local time, and the end of the range. */
export function pointEnds(
  { from, to, offsetMinutes, zone }: Pick<Query, 'from' | 'to' | 'offsetMinutes' | 'zone'>,
  intervalMs = intervalOf(to - from),
): number[] {
  if (from === to) return [];
  if (zone !== undefined) return [...boundariesIn(from, to, zone, intervalMs), to];
  const localMs = from + offsetMinutes * MINUTE_MS;
  const sinceBoundaryMs = ((localMs % intervalMs) + intervalMs) % intervalMs;
  const ends: number[] = [];
  for (let end = from - sinceBoundaryMs + intervalMs; end < to; end += intervalMs) ends.push(end);
  return [...ends, to];
}

/** Zones change their clock, and clocks show whole minutes, at multiples of this. */
const QUARTER_MS = 15 * MINUTE_MS;

/** Reads the clock at every time that can be a boundary, and just before it. */
function boundariesIn(from: number, to: number, zone: string, intervalMs: number): number[] {
  const stepMs = Math.min(intervalMs, 5 * MINUTE_MS, QUARTER_MS);
  const isDaily = intervalMs === DAY_MS;
  const intervalAt = (time: number) => Math.floor(clockAt(time, zone) / intervalMs);
  const boundaries: number[] = [];
  // A day has begun when the clock first shows it, also if it is set back to the day before.
  let latest = Math.max(...[0, 1, 2, 3, 4].map((hours) => intervalAt(from - (hours * HOUR_MS) / 2)));
  for (let time = Math.floor(from / stepMs) * stepMs + stepMs; time < to; time += stepMs) {
    const interval = intervalAt(time);
    const isWhole = clockAt(time, zone) % intervalMs === 0;
    if (isDaily ? interval > latest : isWhole || interval > intervalAt(time - 1)) boundaries.push(time);
    latest = Math.max(latest, interval);
  }
  return boundaries;
}

const clocks = new Map<string, { format: Intl.DateTimeFormat; quarters: Map<number, number> }>();

/** What a clock in the zone shows, as if it were UTC. */
export function clockAt(time: number, zone: string): number {
  const { format, quarters } = clocks.get(zone) ?? {
    format: new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short', timeStyle: 'medium' }),
    quarters: new Map<number, number>(),
  };
  clocks.set(zone, { format, quarters });
  const quarter = Math.floor(time / QUARTER_MS) * QUARTER_MS;
  const shown = quarters.get(quarter) ?? Date.parse(`${format.format(quarter).replace(' ', 'T')}Z`);
  quarters.set(quarter, shown);
  return shown + time - quarter;
}

function intervalOf(rangeMs: number): number {
  if (rangeMs <= DAY_MS) return MINUTE_MS;
  if (rangeMs <= 3 * DAY_MS) return 5 * MINUTE_MS;
  if (rangeMs <= 7 * DAY_MS) return 10 * MINUTE_MS;
  if (rangeMs <= 31 * DAY_MS) return 60 * MINUTE_MS;
  return DAY_MS;
}

/** `+05:45` for 345. */
export function timezoneText(offsetMinutes: number): string {
  const minutes = Math.abs(offsetMinutes);
  const digits = (n: number) => String(n).padStart(2, '0');
  return `${offsetMinutes < 0 ? '-' : '+'}${digits(Math.floor(minutes / 60))}:${digits(minutes % 60)}`;
}

/**
 * A time zone where it is about noon, so that no midnight passes during a test, and the start of its day. Never whole hours,
 * so that a default of UTC fails.
 */
export function zoneAtNoon(): { offsetMinutes: number; midnight: number } {
  const minutesToNoon = 12 * 60 - Math.floor((Date.now() % DAY_MS) / MINUTE_MS);
  const rounded = Math.round(minutesToNoon / 15) * 15;
  const offsetMinutes = rounded % 60 === 0 ? rounded + 15 : rounded;
  const offsetMs = offsetMinutes * MINUTE_MS;
  return { offsetMinutes, midnight: Math.floor((Date.now() + offsetMs) / DAY_MS) * DAY_MS - offsetMs };
}
