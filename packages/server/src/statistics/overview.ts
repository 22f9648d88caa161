/** The overview calls of the API family: totals, timelines and top lists, computed from the counts of the store. */
import { CATEGORIES, OVERVIEW_GROUPS } from '../event.ts';
import type { Host, Selection, Store, TimeRange, TopItem, TopList, TopQuery } from '../store/store.ts';
import type { Points } from './points-cache.ts';
import type { TimelineQuery } from './timeline.ts';

/** What the statistics of attacks need of a store. */
export type Statistics = Pick<Store, 'count' | 'top' | 'hosts'>;

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
interface BoundedCount extends Count {
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

export interface NetworkCount extends BoundedCount {
  name: string;
}

export interface OverviewTimelineQuery extends TimelineQuery {
  /** One point per local day, whatever the length of the range. */
  byDay: boolean;
}

type RangeQuery = Selection & TimeRange;
type EdgesQuery = Selection & { edges: readonly number[] };

const GROUPS = Object.keys(OVERVIEW_GROUPS);

/** Requests, the four groups of attacks, and all attacks. */
export async function overviewTotals(store: Store, query: RangeQuery): Promise<Count[]> {
  const counts = await store.count({ ...onePoint(query), rows: 'groups' });
  return GROUPS.map((key, i) => ({ key, num: counts[i]?.[0] ?? 0 }));
}

/** Counts per second: the count of each point divided by its seconds, rounded to the nearest integer. */
export function averagesOf({ edges, counts }: Points): Points {
  const averages = counts.map((ofRow) => ofRow.map((count, i) => average(count, edges, i)));
  return { edges, counts: averages };
}

function average(count: number, edges: readonly number[], point: number): number {
  return Math.round((count * 1_000) / ((edges[point + 1] ?? 0) - (edges[point] ?? 0)));
}

/** Requests in the busiest second of the range. */
export async function requestPeak(store: Store, query: RangeQuery): Promise<number> {
  const [requests] = await store.peaks(onePoint(query));
  return requests?.[0] ?? 0;
}

export async function attackTotal(store: Statistics, query: RangeQuery): Promise<number> {
  const [attacks] = await store.count({ ...onePoint(query), rows: 'attacks' });
  return attacks[0] ?? 0;
}

/** In the order of CATEGORIES. */
export async function attacksByCategory(store: Statistics, query: RangeQuery): Promise<number[]> {
  const counts = await store.count({ ...onePoint(query), rows: 'categories' });
  return counts.map(([count = 0]) => count);
}

/** The categories that have attacks. */
export async function topCategories(store: Statistics, query: RangeQuery, top?: number): Promise<TopCounts> {
  const counts = await attacksByCategory(store, query);
  return topCounts(
    CATEGORIES.map((key, i) => ({ key, num: counts[i] ?? 0 })),
    top,
  );
}

/** The names of the hosts that have attacks. */
export async function topHosts(store: Statistics, query: RangeQuery, top: number): Promise<TopCounts> {
  const [counted, hosts] = await Promise.all([
    store.count({ ...onePoint(query), rows: 'attacks', byHost: true }),
    store.hosts(query.project),
  ]);
  const attacks = Array.from(counted, ([id, [row]]): [string, number] => [id, row[0] ?? 0]);
  const candidates = new Map(mostFrequent(attacks, top));
  const names = namesOf(candidates, hosts);
  const counts = Array.from(candidates, ([id, num]) => ({ key: names.get(id) ?? id, num }));
  return { total: attacks.length, items: topCounts(counts, top).items };
}

/** All that can be among the first: of equal counts, the names decide. Naming and sorting all hosts takes longer. */
export function mostFrequent(counts: [id: string, num: number][], top: number): [id: string, num: number][] {
  if (counts.length <= top) return counts;
  const least =
    Float64Array.from(counts, ([, num]) => num)
      .sort()
      .at(-top) ?? 0;
  return counts.filter(([, num]) => num >= least);
}

/** The names of some hosts by ID. */
function namesOf(ids: { has(id: string): boolean }, hosts: readonly Host[]): Map<string, string> {
  const names = new Map<string, string>();
  for (const { id, hostname } of hosts) if (ids.has(id)) names.set(id, hostname);
  return names;
}

/** Attacks that the log reports as blocked, and all others. Both are always listed. */
export async function attackActions(store: Statistics, query: RangeQuery): Promise<TopCounts> {
  const [[attacks = 0], [blocked = 0]] = await store.count({ ...onePoint(query), rows: 'actions' });
  const items = [
    { key: 'block', num: blocked },
    { key: 'log', num: attacks - blocked },
  ];
  return { total: items.length, items: items.sort(compareCounts) };
}

/** The most frequent sources, rules or countries of attacks. */
export async function topAttacks(store: Statistics, query: TopQuery): Promise<TopAttacks> {
  return toTopAttacks(await store.top(query), ({ key, count, error }) => ({ key, num: count, error }));
}

/** The most frequent URLs of attacks. The same path on two hosts is two items. */
export function topUrls(store: Statistics, query: Omit<TopQuery, 'list'>): Promise<TopAttacks<UrlCount>> {
  return topPaths(store, { ...query, list: 'urls' });
}

/** The most frequent paths of requests with an error. */
export async function topPages(store: Statistics, query: Omit<TopQuery, 'list'>) {
  const { total, attacks: requests, ...list } = await topPaths(store, { ...query, list: 'pages' });
  return { total, requests, ...list };
}

async function topPaths(store: Statistics, query: TopQuery): Promise<TopAttacks<UrlCount>> {
  const [list, hosts] = await Promise.all([store.top(query), store.hosts(query.project)]);
  const names = namesOf(new Set(list.items.map(({ hostId }) => hostId)), hosts);
  return toTopAttacks(list, ({ key, hostId = null, count, error }) => ({
    key,
    num: count,
    host: hostId === null ? '' : (names.get(hostId) ?? hostId),
    host_id: hostId,
    error,
  }));
}

/**
 * The networks with the most attacks, from the sources. Attacks of sources that are not kept may come from any network: so
 * many more each can have.
 */
export async function topNetworks(
  store: Statistics,
  { limit, ...query }: Omit<TopQuery, 'list'>,
  networkOf: (source: string) => { id: string; name: string } | undefined,
): Promise<TopAttacks<NetworkCount>> {
  const sources = await store.top({ ...query, list: 'sources', limit: Number.MAX_SAFE_INTEGER });
  const networks = new Map<string, Count & { name: string }>();
  let error = sources.attacks;
  let attacks = 0;
  for (const { key: source, count } of sources.items) {
    error -= count;
    const network = networkOf(source);
    if (network === undefined) continue;
    const { id: key, name } = network;
    attacks += count;
    networks.set(key, { key, name, num: count + (networks.get(key)?.num ?? 0) });
  }
  const items = [...networks.values()].sort(compareCounts).slice(0, limit);
  const { from, to, shortened } = sources;
  return {
    ...{ total: networks.size, attacks, distinct_is: error === 0 ? 'exact' : 'minimum', error, from, to },
    ...(shortened && { shortened }),
    items: items.map((item) => ({ ...item, error })),
  };
}

function toTopAttacks<Item>(list: TopList, toItem: (item: TopItem) => Item): TopAttacks<Item> {
  const { distinct, attacks, distinctIs, error, from, to, shortened, items } = list;
  const coverage = { from, to, ...(shortened && { shortened }) };
  return { total: distinct, attacks, distinct_is: distinctIs, error, ...coverage, items: items.map(toItem) };
}

/** Largest first, equal counts by key. Keys without a count are left out. */
function topCounts(counts: readonly Count[], top = counts.length): TopCounts {
  const counted = counts.filter(({ num }) => num > 0).sort(compareCounts);
  return { total: counted.length, items: counted.slice(0, top) };
}

function compareCounts(a: Count, b: Count): number {
  return b.num - a.num || (a.key < b.key ? -1 : 1);
}

function onePoint({ project, hosts, from, to }: RangeQuery): EdgesQuery {
  return { project, hosts, edges: [from, to] };
}
