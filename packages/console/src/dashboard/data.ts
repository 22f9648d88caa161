/** The data of the dashboard: which calls it needs, and what they add up to. */
import { type Client, type StatisticsQuery, type Timeline, WafstatError } from '@wafstat/client';
import type { Api } from '../api.ts';
import { type AttackSeries, totalsOf } from '../categories.ts';
import { type HostTotals, hostTotals, withoutHost } from '../host-totals.ts';
import { gridOf, total } from '../points.ts';
import {
  previousRange,
  previousShift,
  resolveRange,
  type SelectedRange,
  type Shift,
  type TimeRange,
} from '../time-range.ts';
import { countedCategories, type View } from '../view.ts';
import { segmentsOf, type Zone } from '../zone.ts';

/** More lines cannot be told apart. */
export const HOST_LINES_MAX = 10;

export interface HostTimeline extends Timeline {
  id: string;
  hostname: string;
}

/** Both timelines have the same points. */
export interface Period {
  range: TimeRange;
  timeline: Timeline;
  categories: AttackSeries[];
  /** The longest point of the API, if a clock change splits the range into points of different lengths; otherwise 0. */
  gridMs: number;
}

export interface PreviousPeriod extends Period {
  shift: Shift;
}

/** What the key figures need beside the timelines. */
export interface Details {
  blocked: number;
  detected: number;
  /** Requests in the busiest second. Null: too much data to compute it. */
  peak: number | null;
  hosts: HostTotals[];
  /** Null: every event has a host. */
  withoutHost: HostTotals | null;
}

/** What all calls of the dashboard have in common. */
export interface DashboardQuery {
  api: Api;
  project: string;
  selected: SelectedRange;
  hosts: readonly string[];
  zone: Zone;
  now: number;
  signal: AbortSignal;
}

/** Requests, and attacks of the categories that the view counts. */
export function countsOf({ timeline, categories }: Period, view: View) {
  const types = totalsOf(categories);
  const attacks = total(countedCategories(view).map((name) => types[name]));
  return { requests: totalOf(timeline.requests), attacks };
}

export function statisticsQuery({ selected, hosts, zone, now, signal }: DashboardQuery) {
  const range = resolveRange(selected, zone, now);
  return { ...range, signal, ...(hosts.length === 0 ? {} : { hosts }) };
}

export function readNow(query: DashboardQuery): Promise<Period> {
  return readPeriod(query.api.client(query.project), statisticsQuery(query), query.zone);
}

export async function readDetails(query: DashboardQuery): Promise<Details> {
  const client = query.api.client(query.project);
  const statistics = statisticsQuery(query);
  const [actions, peak, { items, ...whole }] = await Promise.all([
    client.attackActions(statistics),
    client.requestPeak(statistics).catch(noPeak),
    query.api.figures(query.project, statistics),
  ]);
  const countOf = (key: string) => actions.items.find((item) => item.key === key)?.num ?? 0;
  return {
    blocked: countOf('block'),
    detected: countOf('log'),
    peak: peak === null ? null : peak.qps,
    hosts: hostTotals(items),
    withoutHost: withoutHost(whole, items),
  };
}

function totalOf(points: readonly { num: number }[]): number {
  return total(points.map(({ num }) => num));
}

/** For many hosts, peaks may need more data than the service reads. */
function noPeak(failure: unknown): null {
  if (failure instanceof WafstatError && failure.status === 400) return null;
  throw failure;
}

type RangeQuery = StatisticsQuery & TimeRange;

/** One call for each part of the range with another offset from UTC. */
function readParts<T>(query: RangeQuery, zone: Zone, read: (part: RangeQuery) => Promise<T>): Promise<T[]> {
  const parts = segmentsOf(query, zone);
  return Promise.all(parts.map(({ from, to, offset }) => read({ ...query, from, to, timezone: offset })));
}

async function readTimeline(client: Client, query: RangeQuery, zone: Zone): Promise<Timeline> {
  const parts = await readParts(query, zone, (part) => client.timeline(part));
  return {
    requests: parts.flatMap(({ requests }) => requests),
    attacks: parts.flatMap(({ attacks }) => attacks),
  };
}

async function readPeriod(client: Client, query: RangeQuery, zone: Zone): Promise<Period> {
  const segments = segmentsOf(query, zone);
  const [timeline, parts] = await Promise.all([
    readTimeline(client, query, zone),
    readParts(query, zone, (part) => client.attackTimeline(part)),
  ]);
  return {
    range: { from: query.from, to: query.to },
    gridMs: segments.length === 1 ? 0 : Math.max(...segments.map(gridOf)),
    timeline,
    categories: (parts[0] ?? []).map(({ key }, i) => ({
      key,
      timeline: parts.flatMap((categories) => categories[i]?.timeline ?? []),
    })),
  };
}

/** The busiest of the hosts that the view shows. */
export async function readHostTimelines(query: DashboardQuery): Promise<HostTimeline[]> {
  const client = query.api.client(query.project);
  const statistics = statisticsQuery(query);
  const { items } = await query.api.figures(query.project, statistics);
  const busiest = items.toSorted((a, b) => total(b.requests) - total(a.requests)).slice(0, HOST_LINES_MAX);
  return Promise.all(
    busiest.map(async ({ id, hostname }) => ({
      id,
      hostname,
      ...(await readTimeline(client, { ...statistics, hosts: [id] }, query.zone)),
    })),
  );
}

/** Keeps the latest previous period: it changes once a minute, not with every refresh. */
export class PreviousPeriods {
  #key = '';
  #period: PreviousPeriod | null = null;

  async read(query: DashboardQuery): Promise<PreviousPeriod> {
    const { selected, zone } = query;
    const statistics = statisticsQuery(query);
    const shift = previousShift(selected, statistics, zone);
    const range = previousRange(statistics, shift, zone);
    const key = JSON.stringify([query.project, range, shift, query.hosts, zone.id]);
    if (this.#period === null || this.#key !== key) {
      const client = query.api.client(query.project);
      this.#period = { ...(await readPeriod(client, { ...statistics, ...range }, zone)), shift };
      this.#key = key;
    }
    return this.#period;
  }
}

/** The earliest event of the project. Null: there is none. */
export async function readFirstSeen(api: Api, project: string, signal: AbortSignal): Promise<number | null> {
  const { items } = await api.client(project).sources({ signal });
  const times = items.flatMap(({ first_seen }) => (first_seen === null ? [] : [first_seen]));
  return times.length === 0 ? null : Math.min(...times);
}
