/** A timeline of any number of points in as many columns as there is room for. */
import type { Timeline } from '@wafstat/client';

/** From `start` until just before `end`. */
export interface Column {
  start: number;
  end: number;
  requests: number;
  attacks: number;
}

export interface Columns {
  columns: Column[];
  /** How much time a column spans; the first and the last one may be cut by the range. */
  spanMs: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** Lengths of time that people think in, so that columns begin at times that they name. */
const SPANS_MS: readonly number[] = [
  ...[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30].map((n) => n * MINUTE_MS),
  ...[1, 2, 3, 4, 6, 8, 12].map((n) => n * HOUR_MS),
  ...[1, 2, 3, 4, 5, 7, 10, 14, 21, 28].map((n) => n * DAY_MS),
];

/** Every point counts whole in one column, so the columns add up to what the points add up to. */
export function columnsOf(timeline: Timeline, from: number, offsetMs: number, columnsMax: number): Columns {
  const points = timeline.requests.map(({ time, num }, i) => ({
    start: timeline.requests[i - 1]?.time ?? from,
    end: time,
    requests: num,
    attacks: timeline.attacks[i]?.num ?? 0,
  }));
  const intervalMs = points.reduce((longest, { start, end }) => Math.max(longest, end - start), 0);
  if (points.length <= columnsMax) return { columns: points, spanMs: intervalMs };
  const spanMs = spanOf(points, intervalMs, offsetMs, columnsMax);
  const columns: Column[] = [];
  for (const point of points) {
    const last = columns.at(-1);
    if (last === undefined || place(last.start, spanMs, offsetMs) !== place(point.start, spanMs, offsetMs)) {
      columns.push({ ...point });
      continue;
    }
    last.end = point.end;
    last.requests += point.requests;
    last.attacks += point.attacks;
  }
  return { columns, spanMs };
}

/** The shortest that fits and that no point straddles. */
function spanOf(points: readonly Column[], intervalMs: number, offsetMs: number, columnsMax: number): number {
  const first = points[0]?.start ?? 0;
  const last = points.at(-1)?.start ?? 0;
  const fits = (spanMs: number) =>
    place(last, spanMs, offsetMs) - place(first, spanMs, offsetMs) < columnsMax;
  const known = SPANS_MS.find((spanMs) => spanMs % intervalMs === 0 && fits(spanMs));
  // Twice the even share leaves room for the two columns that the range cuts, whatever their number.
  return known ?? intervalMs * Math.ceil((2 * points.length) / columnsMax);
}

/** The number of the column that a time is in, counted from the first local midnight of 1970. */
function place(time: number, spanMs: number, offsetMs: number): number {
  return Math.floor((time + offsetMs) / spanMs);
}
