/** The data of the dashboard: which calls it needs, and what they add up to. */
import {
  type AttackTypes,
  type Client,
  type StatisticsQuery,
  type Timeline,
  WafstatError,
} from '@wafstat/client';
import type { Api, HostFigures } from '../api.ts';
import { type AttackSeries, totalsOf } from '../categories.ts';
import { type HostTotals, hostTotals } from '../host-totals.ts';
import { gridOf, total } from '../points.ts';
import { previousRange, resolveRange, type SelectedRange, type TimeRange } from '../time-range.ts';
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

export interface DashboardData {
  now: Period;
  before: Period;
  /** All categories of the range. */
  types: AttackTypes;
  requests: number;
  /** Of the categories that the view counts. */
  attacks: number;
  requestsBefore: number;
  attacksBefore: number;
  blocked: number;
  detected: number;
  /** Requests in the busiest second. Null: too much data to compute it. */
  peak: number | null;
  hosts: HostTotals[];
  /** Null: the view has no lines per host. */
  hostTimelines: HostTimeline[] | null;
}

export interface DashboardQuery {
  api: Api;
  project: string;
  view: View;
  zone: Zone;
  now: number;
  signal: AbortSignal;
}

export async function readDashboard(
  query: DashboardQuery,
  previous: PreviousPeriods,
): Promise<DashboardData> {
  const { api, project, view, zone, signal } = query;
  const client = api.client(project);
  const range = resolveRange(view.selectedRange, zone, query.now);
  const filter = view.hosts.length === 0 ? {} : { hosts: view.hosts };
  const statistics = { ...range, ...filter, signal };
  const [now, before, actions, peak, { items }] = await Promise.all([
    readPeriod(client, statistics, zone),
    previous.read(client, { ...previousRange(view.selectedRange, range), ...filter, signal }, zone),
    client.attackActions(statistics),
    client.requestPeak(statistics).catch(noPeak),
    api.figures(project, statistics),
  ]);
  const hosts = hostTotals(items);
  const countOf = (key: string) => actions.items.find((item) => item.key === key)?.num ?? 0;
  const types = totalsOf(now.categories);
  const attacksOf = (counts: AttackTypes) => total(countedCategories(view).map((name) => counts[name]));
  return {
    now,
    before,
    types,
    requests: totalOf(now.timeline.requests),
    attacks: attacksOf(types),
    requestsBefore: totalOf(before.timeline.requests),
    attacksBefore: attacksOf(totalsOf(before.categories)),
    blocked: countOf('block'),
    detected: countOf('log'),
    peak: peak === null ? null : peak.qps,
    hosts,
    hostTimelines: view.byHost ? await readHostTimelines(client, statistics, zone, items) : null,
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

async function readPeriod(client: Client, query: RangeQuery, zone: Zone): Promise<Period> {
  const segments = segmentsOf(query, zone);
  const parts = await Promise.all(
    segments.map(async ({ from, to, offset }) => {
      const part = { ...query, from, to, timezone: offset };
      return Promise.all([client.timeline(part), client.attackTimeline(part)]);
    }),
  );
  const [first] = parts;
  return {
    range: { from: query.from, to: query.to },
    gridMs: segments.length === 1 ? 0 : Math.max(...segments.map(gridOf)),
    timeline: {
      requests: parts.flatMap(([timeline]) => timeline.requests),
      attacks: parts.flatMap(([timeline]) => timeline.attacks),
    },
    categories: (first?.[1] ?? []).map(({ key }, i) => ({
      key,
      timeline: parts.flatMap(([, categories]) => categories[i]?.timeline ?? []),
    })),
  };
}

/** The busiest of the hosts that the view shows. */
async function readHostTimelines(
  client: Client,
  query: RangeQuery,
  zone: Zone,
  hosts: readonly HostFigures[],
): Promise<HostTimeline[]> {
  const busiest = hosts.toSorted((a, b) => total(b.requests) - total(a.requests)).slice(0, HOST_LINES_MAX);
  return Promise.all(
    busiest.map(async ({ id, hostname }) => {
      const parts = await Promise.all(
        segmentsOf(query, zone).map(({ from, to, offset }) =>
          client.timeline({ ...query, from, to, timezone: offset, hosts: [id] }),
        ),
      );
      const requests = parts.flatMap((part) => part.requests);
      return { id, hostname, requests, attacks: parts.flatMap((part) => part.attacks) };
    }),
  );
}

/** Keeps the latest previous period: it changes once a minute, not with every refresh. */
export class PreviousPeriods {
  #key = '';
  #period: Period | null = null;

  async read(client: Client, query: RangeQuery, zone: Zone): Promise<Period> {
    const key = JSON.stringify([query.from, query.to, query.hosts, zone.id]);
    if (this.#period === null || this.#key !== key) {
      this.#period = await readPeriod(client, query, zone);
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

export function dashboardKey(project: string, view: View, zone: Zone): string {
  const selected: SelectedRange = view.selectedRange;
  return JSON.stringify([
    project,
    selected,
    zone.id,
    view.hosts,
    view.categories,
    view.excluded,
    view.byHost,
  ]);
}
