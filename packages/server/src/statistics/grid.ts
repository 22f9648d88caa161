/** The points of a timeline: which interval a range gets, and where its edges stand. */

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** The first row whose range is long enough decides. All intervals divide a day, so local midnight is an edge. */
const INTERVALS = [
  { range_ms_max: DAY_MS, intervalMs: MINUTE_MS },
  { range_ms_max: 3 * DAY_MS, intervalMs: 5 * MINUTE_MS },
  { range_ms_max: 7 * DAY_MS, intervalMs: 10 * MINUTE_MS },
  { range_ms_max: 31 * DAY_MS, intervalMs: HOUR_MS },
  { range_ms_max: Number.POSITIVE_INFINITY, intervalMs: DAY_MS },
] as const;

/**
 * The edges of the points that partition `[from, to)`: `from`, every boundary of the local clock strictly
 * inside, `to`. Point i is `[edges[i], edges[i + 1])`. An empty range has no points, so no edges.
 */
export function gridEdges(from: number, to: number, offsetMs: number): number[] {
  if (from === to) return [];
  const interval = intervalOf(to - from);
  const firstBoundary = Math.floor((from + offsetMs) / interval) * interval + interval - offsetMs;
  const inside = Math.max(0, Math.ceil((to - firstBoundary) / interval));
  // At its final length from the start: to grow it to 1,441 edges took longer than to fill it.
  const edges = new Array<number>(inside + 2).fill(from);
  for (let i = 0; i < inside; i++) edges[i + 1] = firstBoundary + i * interval;
  edges[inside + 1] = to;
  return edges;
}

export function intervalOf(range_ms: number): number {
  for (const row of INTERVALS) if (range_ms <= row.range_ms_max) return row.intervalMs;
  throw new Error('the last row of INTERVALS has no upper bound');
}
