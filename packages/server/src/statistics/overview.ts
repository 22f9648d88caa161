/** The overview calls of the API family: totals, timelines and top lists, computed from the counts of the store. */
import { CATEGORIES, OVERVIEW_GROUPS } from '../event.ts';
import type { Selection, Store, TimeRange, TopQuery } from '../store/store.ts';
import { DAY_MS, gridEdges, type TimelineQuery } from './timeline.ts';

export interface Count {
  key: string;
  num: number;
}

/** The most frequent keys. Not to be confused with `TopList` of the store, which ranks values of attacks. */
interface TopCounts<Item = Count> {
  /** Distinct keys with a count, before the list is cut. */
  total: number;
  items: Item[];
}

/** A value of attacks. It has from `num` to `num + error` attacks. */
export interface BoundedCount extends Count {
  error: number;
}

/** `total` is the number of distinct values; `error` and `distinct_is` are those of the store's list. */
export interface TopAttacks<Item = BoundedCount> extends TopCounts<Item> {
  /** The exact number of attacks that have a value. */
  attacks: number;
  distinct_is: 'exact' | 'estimate' | 'minimum';
  error: number;
  /** The hours that the counts cover. */
  from: number;
  to: number;
  /** The counts do not cover all hours of the range, because it has too much data. */
  shortened?: true;
}

export interface UrlCount extends BoundedCount {
  /** Null without a registered host. Then the name is empty. */
  host_id: string | null;
  host: string;
}

export interface KeyedTimeline {
  /** `ends[i]` is the end of point i; all series have one number per point. */
  ends: readonly number[];
  series: readonly { key: string; counts: Float64Array }[];
}

export interface OverviewTimelineQuery extends TimelineQuery {
  /** One point per local day, whatever the length of the range. */
  byDay: boolean;
}

type RangeQuery = Selection & TimeRange;

const GROUPS = Object.keys(OVERVIEW_GROUPS);

/** Requests, the four groups of attacks, and all attacks. */
export async function overviewTotals(store: Store, query: RangeQuery): Promise<Count[]> {
  const { from, to } = query;
  const counts = from === to ? [] : await store.seriesByGroup({ ...selectionOf(query), edges: [from, to] });
  return GROUPS.map((key, i) => ({ key, num: counts[i]?.[0] ?? 0 }));
}

/** Like `overviewTotals`, for each point. */
async function overviewTimeline(store: Store, query: OverviewTimelineQuery): Promise<KeyedTimeline> {
  return keyedTimeline(edgesOf(query), GROUPS, (edges) =>
    store.seriesByGroup({ ...selectionOf(query), edges }),
  );
}

/** The average of a point is the count divided by the seconds of the point, rounded to the nearest integer. */
export async function averageQpsTimeline(store: Store, query: OverviewTimelineQuery): Promise<KeyedTimeline> {
  const { ends, series } = await overviewTimeline(store, query);
  const averages = series.map(({ key, counts }) => ({ key, counts: average(counts, ends, query.from) }));
  return { ends, series: averages };
}

function average(counts: Float64Array, ends: readonly number[], from: number): Float64Array {
  const averages = new Float64Array(counts.length);
  let start = from;
  for (let i = 0; i < counts.length; i++) {
    const end = ends[i] ?? start;
    averages[i] = Math.round(((counts[i] ?? 0) * 1_000) / (end - start));
    start = end;
  }
  return averages;
}

/** The peak of a point is the count in its busiest second. */
export async function peakQpsTimeline(store: Store, query: OverviewTimelineQuery): Promise<KeyedTimeline> {
  return keyedTimeline(edgesOf(query), GROUPS, (edges) => store.peaks({ ...selectionOf(query), edges }));
}

/** Requests in the busiest second of the range. */
export async function requestPeak(store: Store, query: RangeQuery): Promise<number> {
  const { from, to } = query;
  if (from === to) return 0;
  const [requests] = await store.peaks({ ...selectionOf(query), edges: [from, to] });
  return requests?.[0] ?? 0;
}

export async function attackTotal(store: Store, query: RangeQuery): Promise<number> {
  return sum(await store.totals(query));
}

/** The categories that have attacks. */
export async function topCategories(store: Store, query: RangeQuery, top?: number): Promise<TopCounts> {
  const counts = await store.totals(query);
  return topCounts(
    CATEGORIES.map((key, i) => ({ key, num: counts[i] ?? 0 })),
    top,
  );
}

/** The names of the hosts that have attacks. */
export async function topHosts(store: Store, query: RangeQuery, top: number): Promise<TopCounts> {
  const [attacks, hosts] = await Promise.all([store.attacksByHost(query), store.hosts(query.project)]);
  const names = new Map(hosts.map(({ id, hostname }) => [id, hostname]));
  const counts = Array.from(attacks, ([id, num]) => ({ key: names.get(id) ?? id, num }));
  return topCounts(counts, top);
}

/** Attacks that the log reports as blocked, and all others. Both are always listed. */
export async function attackActions(store: Store, query: RangeQuery): Promise<TopCounts> {
  const { from, to } = query;
  const { attacks, blocked } =
    from === to
      ? { attacks: [], blocked: [] }
      : await store.seriesByCategory({ ...selectionOf(query), edges: [from, to] });
  const total = (series: Float64Array[]) => series.reduce((sum, counts) => sum + (counts[0] ?? 0), 0);
  const items = [
    { key: 'block', num: total(blocked) },
    { key: 'log', num: total(attacks) - total(blocked) },
  ];
  return { total: items.length, items: items.sort(compareCounts) };
}

/** The most frequent sources, rules or countries of attacks. */
export async function topAttacks(store: Store, query: TopQuery): Promise<TopAttacks> {
  const { items, ...list } = await topOf(store, query);
  return { ...list, items: items.map(({ key, count, error }) => ({ key, num: count, error })) };
}

/** The most frequent URLs of attacks. The same path on two hosts is two items. */
export async function topUrls(store: Store, query: Omit<TopQuery, 'list'>): Promise<TopAttacks<UrlCount>> {
  const [{ items, ...list }, hosts] = await Promise.all([
    topOf(store, { ...query, list: 'urls' }),
    store.hosts(query.project),
  ]);
  const names = new Map(hosts.map(({ id, hostname }) => [id, hostname]));
  const urls = items.map(({ key, hostId = null, count, error }) => ({
    key,
    num: count,
    host: hostId === null ? '' : (names.get(hostId) ?? hostId),
    host_id: hostId,
    error,
  }));
  return { ...list, items: urls };
}

async function topOf(store: Store, query: TopQuery) {
  const { distinct, attacks, distinctIs, error, from, to, shortened, items } = await store.top(query);
  const coverage = { from, to, ...(shortened && { shortened }) };
  return { total: distinct, attacks, distinct_is: distinctIs, error, ...coverage, items };
}

/** Largest first, equal counts by key. Keys without a count are left out. */
function topCounts(counts: readonly Count[], top = counts.length): TopCounts {
  const counted = counts.filter(({ num }) => num > 0).sort(compareCounts);
  return { total: counted.length, items: counted.slice(0, top) };
}

function compareCounts(a: Count, b: Count): number {
  return b.num - a.num || (a.key < b.key ? -1 : 1);
}

/** An empty range has no points; stores take at least one. */
async function keyedTimeline(
  edges: readonly number[],
  keys: readonly string[],
  count: (edges: readonly number[]) => Promise<Float64Array[]>,
): Promise<KeyedTimeline> {
  const all = edges.length === 0 ? [] : await count(edges);
  const series = keys.map((key, i) => ({ key, counts: all[i] ?? new Float64Array(0) }));
  return { ends: edges.slice(1), series };
}

function selectionOf({ project, hosts }: Selection): Selection {
  return { project, hosts };
}

function edgesOf({ from, to, offsetMs, byDay }: OverviewTimelineQuery): number[] {
  return byDay ? gridEdges(from, to, offsetMs, DAY_MS) : gridEdges(from, to, offsetMs);
}

function sum(counts: Float64Array): number {
  return counts.reduce((total, count) => total + count, 0);
}
