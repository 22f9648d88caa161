/** The points of a timeline: which interval a range gets, and where its points begin and end. */
import type { Selection, Store } from '../store/store.ts';
import type { Range } from './range.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/**
 * The first row that is long enough for the range applies; longer ranges have one point per day. All intervals divide a
 * day, so local midnight is an edge.
 */
const INTERVALS = [
  { rangeMsMax: DAY_MS, intervalMs: MINUTE_MS },
  { rangeMsMax: 3 * DAY_MS, intervalMs: 5 * MINUTE_MS },
  { rangeMsMax: 7 * DAY_MS, intervalMs: 10 * MINUTE_MS },
  { rangeMsMax: 31 * DAY_MS, intervalMs: HOUR_MS },
] as const;

export interface TimelineQuery extends Range {
  project: string;
  /** Undefined for the whole project. IDs that the project does not have count as zero. */
  hosts: readonly string[] | undefined;
  /** The offset of the local clock from UTC. */
  offsetMs: number;
}

/**
 * The edges of the points that partition `[from, to)`: `from`, every boundary of the local clock strictly inside, and
 * `to`. Point i is `[edges[i], edges[i + 1])`. An empty range has no points and no edges.
 */
export function gridEdges(
  from: number,
  to: number,
  offsetMs: number,
  intervalMs = intervalOf(to - from),
): number[] {
  if (from === to) return [];
  const firstBoundary = Math.floor((from + offsetMs) / intervalMs) * intervalMs + intervalMs - offsetMs;
  const edges = [from];
  for (let edge = firstBoundary; edge < to; edge += intervalMs) edges.push(edge);
  edges.push(to);
  return edges;
}

export function intervalOf(rangeMs: number): number {
  return INTERVALS.find(({ rangeMsMax }) => rangeMs <= rangeMsMax)?.intervalMs ?? DAY_MS;
}

/** What is counted in each point: requests and attacks, or one of them by group or by category. */
export type Rows = 'timeline' | 'groups' | 'categories' | 'peaks';

/** The count of each point, by row. Point i is `[edges[i], edges[i + 1])`. One query, and so one snapshot. */
export async function countPoints(
  store: Store,
  rows: Rows,
  query: Selection & { edges: readonly number[] },
): Promise<readonly Float64Array[]> {
  return rows === 'peaks' ? store.peaks(query) : store.count({ ...query, rows });
}
