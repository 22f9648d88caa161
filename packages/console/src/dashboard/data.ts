/** The data of the dashboard: which calls it needs, and what they add up to. */
import type { Api, HostFigures, Kept } from '../api.ts';
import { type Counts, replacePoints, slicePoints, sumOf, total } from '../counts.ts';
import { countedCategories, type Filter, keptFilters } from '../filters.ts';
import { edgesOf } from '../points.ts';
import { remPx } from '../theme.ts';
import {
  type Compared,
  edgesBefore,
  previousShift,
  RANGE_DAYS_MAX,
  resolveRange,
  type SelectedRange,
  type TimeRange,
} from '../time-range.ts';
import type { Zone } from '../zone.ts';

/** More lines cannot be told apart. */
export const HOST_LINES_MAX = 10;
/** Narrower points cannot be told apart. */
const POINT_WIDTH_REM = 0.3;
const POINTS_MAX = 1_000;
/** A refresh loads this many points: events arrive a little late. */
const TAIL_POINTS = 5;

/** Counts of the points between edges. */
export interface Period {
  edges: readonly number[];
  counts: Counts;
  /** Undefined: the counters were counted, which have all attacks. */
  kept: Kept | undefined;
}

export interface Dashboard extends Period {
  range: TimeRange;
  /** The previous period. Null: the range is too long to have one. */
  before: Period | null;
  /** The earliest event of the project. Null: there is none. */
  firstSeen: number | null;
}

export interface HostLines {
  edges: readonly number[];
  hosts: readonly HostFigures[];
}

/** What all calls of the dashboard have in common. */
export interface DashboardQuery {
  api: Api;
  project: string;
  selected: SelectedRange;
  compared: Compared;
  hosts: readonly string[];
  filters: readonly Filter[];
  zone: Zone;
  now: number;
  signal: AbortSignal;
}

/** Requests, attacks of the categories that count, and those of them that were blocked. */
export function totalsIn({ counts }: Period, filters: readonly Filter[]) {
  const names = countedCategories(filters);
  const [attacks, blocked] = [counts.attacks, counts.blocked].map((rows) => total(sumOf(rows, names)));
  return { requests: total(counts.requests), attacks: attacks ?? 0, blocked: blocked ?? 0 };
}

export function statisticsQuery({ selected, hosts, zone, now, signal }: DashboardQuery) {
  const range = resolveRange(selected, zone, now);
  return { ...range, signal, ...(hosts.length === 0 ? {} : { hosts }) };
}

/**
 * Both periods in one call. With the same edges as `latest`, which are those of the same minute, only the last points. All
 * categories are counted, so that others can be chosen. Kept attacks are counted period by period: each says how many are kept.
 */
export async function readDashboard(query: DashboardQuery, latest: Dashboard | null): Promise<Dashboard> {
  const { api, project, selected, hosts, zone, now, signal } = query;
  const filters = keptFilters(query.filters);
  const read = async (edges: readonly number[]) => {
    const hasResponses = filters.length === 0;
    const query = { edges, hosts, filters, hasResponses, signal };
    const { first_seen, kept, ...counts } = await api.figures(project, query);
    return { firstSeen: first_seen, kept, counts };
  };
  const range = resolveRange(selected, zone, now);
  const edges = edgesOf(range, zone, pointsMax());
  const hasBefore = range.to - range.from <= (RANGE_DAYS_MAX / 2) * 86_400_000;
  const shift = previousShift(selected, range, zone, query.compared);
  const before = hasBefore ? edgesBefore(edges, shift, zone).map((edge) => Math.min(edge, range.from)) : [];
  const common = { range, edges };
  if (latest?.edges.join() === edges.join()) {
    const start = Math.max(0, edges.length - 1 - TAIL_POINTS);
    const { firstSeen, counts } = await read(edges.slice(start));
    return { ...latest, firstSeen, counts: replacePoints(latest.counts, start, counts) };
  }
  if (filters.length > 0) {
    const [own, earlier] = await Promise.all([read(edges), hasBefore ? read(before) : null]);
    return { ...common, ...own, before: earlier && { ...earlier, edges: before } };
  }
  const { counts, ...own } = await read([...before, ...edges]);
  return {
    ...common,
    ...own,
    counts: slicePoints(counts, before.length),
    // The point between the periods is in neither of them.
    before: hasBefore
      ? { edges: before, counts: slicePoints(counts, 0, before.length - 1), kept: undefined }
      : null,
  };
}

/** By the width of the timeline, which is beside the categories on a wide screen. */
function pointsMax(): number {
  const width = innerWidth > 1_000 ? innerWidth - 26 * remPx() : innerWidth;
  return Math.min(POINTS_MAX, Math.max(40, (width - 60) / (POINT_WIDTH_REM * remPx())));
}

/** The hosts that the view selects, each with one point: the range. And the busiest second, and annotations. */
export function readHosts(query: DashboardQuery) {
  const { from, to } = resolveRange(query.selected, query.zone, query.now);
  const { hosts, filters, signal } = query;
  return query.api.figures(query.project, {
    ...{ edges: [from, to], hosts, filters, signal },
    byHost: true,
    hasPeak: true,
    hasAnnotations: true,
  });
}

/** The hosts with the most requests, or the most attacks if a filter selects some, over time. */
export async function readHostLines(
  query: DashboardQuery,
  hosts: readonly HostFigures[],
): Promise<HostLines> {
  const edges = edgesOf(resolveRange(query.selected, query.zone, query.now), query.zone, pointsMax());
  const row = keptFilters(query.filters).length > 0 ? 'attacks' : 'requests';
  const busiest = hosts.toSorted((a, b) => total(b[row]) - total(a[row])).slice(0, HOST_LINES_MAX);
  if (busiest.length === 0) return { edges, hosts: [] };
  const ids = busiest.map(({ id }) => id);
  const { items } = await query.api.figures(query.project, {
    edges,
    hosts: ids,
    filters: query.filters,
    byHost: true,
    signal: query.signal,
  });
  return { edges, hosts: ids.flatMap((id) => items.filter((host) => host.id === id)) };
}
