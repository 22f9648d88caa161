/** The overview calls of the API family: totals, timelines and top lists, computed from the counts of the store. */
import { CATEGORIES, OVERVIEW_GROUPS } from '../event.ts';
import type { CategorySeries, Selection, Store, TimeRange } from '../store/store.ts';
import { DAY_MS, gridEdges, type TimelineQuery } from './timeline.ts';

export interface Count {
  key: string;
  num: number;
}

export interface TopList<Item = Count> {
  /** Distinct keys with a count, before the list is cut. */
  total: number;
  items: Item[];
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

/** With the positions of the categories in CATEGORIES. */
const GROUPS = Object.entries(OVERVIEW_GROUPS).map(([key, categories]) => ({
  key,
  numbers: categories?.map((name) => CATEGORIES.indexOf(name)) ?? [],
}));

/** Requests, the four groups of attacks, and all attacks. */
export async function overviewTotals(store: Store, query: RangeQuery): Promise<Count[]> {
  const groups = groupSeries(await categorySeries(store, query, wholeRange(query)));
  return groups.map(({ key, counts }) => ({ key, num: counts[0] ?? 0 }));
}

/** Like `overviewTotals`, for each point. */
export async function overviewTimeline(store: Store, query: OverviewTimelineQuery): Promise<KeyedTimeline> {
  const edges = edgesOf(query);
  return { ends: edges.slice(1), series: groupSeries(await categorySeries(store, query, edges)) };
}

/** Attacks by category, in the order of CATEGORIES. */
export async function attackTimeline(store: Store, query: OverviewTimelineQuery): Promise<KeyedTimeline> {
  const edges = edgesOf(query);
  const { attacks } = await categorySeries(store, query, edges);
  const series = CATEGORIES.map((key, i) => ({ key, counts: attacks[i] ?? new Float64Array(0) }));
  return { ends: edges.slice(1), series };
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
  const edges = edgesOf(query);
  const peaks = await peaksOf(store, query, edges);
  const series = GROUPS.map(({ key }, i) => ({ key, counts: peaks[i] ?? new Float64Array(0) }));
  return { ends: edges.slice(1), series };
}

/** Requests in the busiest second of the range. */
export async function requestPeak(store: Store, query: RangeQuery): Promise<number> {
  const [requests] = await peaksOf(store, query, wholeRange(query));
  return requests?.[0] ?? 0;
}

export async function attackTotal(store: Store, query: RangeQuery): Promise<number> {
  return sum(await store.totals(query));
}

/** The categories that have attacks. */
export async function topCategories(store: Store, query: RangeQuery, top?: number): Promise<TopList> {
  const counts = await store.totals(query);
  return topList(
    CATEGORIES.map((key, i) => ({ key, num: counts[i] ?? 0 })),
    top,
  );
}

/** The names of the hosts that have attacks. */
export async function topHosts(store: Store, query: RangeQuery, top: number): Promise<TopList> {
  const [attacks, hosts] = await Promise.all([store.attacksByHost(query), store.hosts(query.project)]);
  const names = new Map(hosts.map(({ id, hostname }) => [id, hostname]));
  const counts = Array.from(attacks, ([id, num]) => ({ key: names.get(id) ?? id, num }));
  return topList(counts, top);
}

/** Attacks that the log reports as blocked, and all others. Both are always listed. */
export async function attackActions(store: Store, query: RangeQuery): Promise<TopList> {
  const { attacks, blocked } = await categorySeries(store, query, wholeRange(query));
  const first = (series: Float64Array[]) => series.reduce((total, counts) => total + (counts[0] ?? 0), 0);
  const block = first(blocked);
  const items = [
    { key: 'block', num: block },
    { key: 'log', num: first(attacks) - block },
  ];
  return { total: items.filter(({ num }) => num > 0).length, items: items.sort(compareCounts) };
}

/** Largest first, equal counts by key. Keys without a count are left out. */
export function topList(counts: readonly Count[], top = counts.length): TopList {
  const counted = counts.filter(({ num }) => num > 0).sort(compareCounts);
  return { total: counted.length, items: counted.slice(0, top) };
}

function compareCounts(a: Count, b: Count): number {
  return b.num - a.num || (a.key < b.key ? -1 : 1);
}

/** Each of OVERVIEW_GROUPS, as the sum of its categories. All attacks are the sum of the other groups of attacks. */
function groupSeries({ requests, attacks }: CategorySeries): { key: string; counts: Float64Array }[] {
  const groups = GROUPS.slice(1, -1).map(({ key, numbers }) => ({
    key,
    counts: sumSeries(attacks.filter((_, number) => numbers.includes(number))),
  }));
  const all = sumSeries(groups.map(({ counts }) => counts));
  return [{ key: 'ACCESS', counts: requests }, ...groups, { key: 'ATTACK', counts: all }];
}

function sumSeries([first = new Float64Array(0), ...others]: readonly Float64Array[]): Float64Array {
  if (others.length === 0) return first;
  const sums = first.slice();
  for (const counts of others) {
    for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] ?? 0) + (counts[i] ?? 0);
  }
  return sums;
}

/** Stores take at least two edges; an empty range has none. */
async function categorySeries(
  store: Store,
  { project, hosts }: Selection,
  edges: readonly number[],
): Promise<CategorySeries> {
  if (edges.length > 0) return store.seriesByCategory({ project, hosts, edges });
  const none = () => CATEGORIES.map(() => new Float64Array(0));
  return { requests: new Float64Array(0), attacks: none(), blocked: none() };
}

async function peaksOf(
  store: Store,
  { project, hosts }: Selection,
  edges: readonly number[],
): Promise<Float64Array[]> {
  return edges.length > 0 ? store.peaks({ project, hosts, edges }) : [];
}

function edgesOf({ from, to, offsetMs, byDay }: OverviewTimelineQuery): number[] {
  return byDay ? gridEdges(from, to, offsetMs, DAY_MS) : gridEdges(from, to, offsetMs);
}

/** One point. */
function wholeRange({ from, to }: TimeRange): number[] {
  return from === to ? [] : [from, to];
}

function sum(counts: Float64Array): number {
  return counts.reduce((total, count) => total + count, 0);
}
