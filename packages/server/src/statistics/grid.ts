/** The points of a timeline: which interval a range gets, and where points begin and end on the local clock. */
import type { Zone } from '../zone.ts';

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

export function intervalOf(rangeMs: number): number {
  return INTERVALS.find(({ rangeMsMax }) => rangeMs <= rangeMsMax)?.intervalMs ?? DAY_MS;
}

/**
 * The edges of the points that partition `[from, to)`: `from`, every boundary of the local clock strictly inside, and
 * `to`. Point i is `[edges[i], edges[i + 1])`. An empty range has no points and no edges.
 *
 * A boundary is where the local clock shows a multiple of the interval, or skips one. A clock that is set back shows some
 * multiples twice, but a day begins only once.
 */
export function gridEdges(
  from: number,
  to: number,
  zone: Zone,
  intervalMs = intervalOf(to - from),
): number[] {
  if (from === to) return [];
  const edges = [from];
  const isDaily = intervalMs === DAY_MS;
  // At `from`, the clock may have been set back to the day before.
  const start = isDaily ? from - DAY_MS : from;
  let offset = zone.offsetAt(start);
  /** The next boundary in local time. */
  let next = Math.floor((start + offset) / intervalMs) * intervalMs + intervalMs;
  const addUntil = (end: number) => {
    for (; next - offset < end; next += intervalMs) if (next - offset > from) edges.push(next - offset);
  };
  for (const { at, after } of zone.changesIn(start, to)) {
    addUntil(at);
    offset = after;
    const local = at + offset;
    if (local >= next) {
      if (at > from) edges.push(at);
      next = Math.floor(local / intervalMs) * intervalMs + intervalMs;
    } else if (!isDaily) {
      next = Math.ceil(local / intervalMs) * intervalMs;
    }
  }
  addUntil(to);
  edges.push(to);
  return edges;
}

/** When a local day begins: at midnight, or later if the clock skips it. Days are counted from 1 January 1970. */
export function startOfDay(day: number, zone: Zone): number {
  const starts = gridEdges((day - 1) * DAY_MS, (day + 2) * DAY_MS, zone, DAY_MS).slice(1, -1);
  return starts.find((start) => start + zone.offsetAt(start) >= day * DAY_MS) ?? day * DAY_MS;
}
