/** From the points of the API to those that are drawn: as fine as the width allows, on the same clock. */
import type { Timeline } from '@wafstat/client';

export interface Points {
  /** One more than there are points: point i is from `edges[i]` until `edges[i + 1]`. */
  edges: number[];
  requests: number[];
  attacks: number[];
}

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/** Those under a day divide it, so that points end where the local clock is round. */
const STEPS_MS = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 7, 14, 28, 84].map((days) => days * DAY_MS),
];

/** Adds up neighbours until there are at most `points_max`; no count is lost or split. */
export function drawnPoints(timeline: Timeline, from: number, offsetMs: number, points_max: number): Points {
  const ends = timeline.requests.map(({ time }) => time);
  const to = ends.at(-1) ?? from;
  const step_ms = STEPS_MS.find((step) => (to - from) / step <= points_max) ?? 364 * DAY_MS;
  const merge = ends.length > points_max;
  const points: Points = { edges: [from], requests: [], attacks: [] };
  let bucket = Number.NaN;
  for (const [i, end] of ends.entries()) {
    const bucketOfEnd = merge ? Math.ceil((end + offsetMs) / step_ms) : i;
    if (bucketOfEnd === bucket) points.edges.pop();
    else {
      points.requests.push(0);
      points.attacks.push(0);
    }
    bucket = bucketOfEnd;
    points.edges.push(end);
    add(points.requests, timeline.requests[i]?.num ?? 0);
    add(points.attacks, timeline.attacks[i]?.num ?? 0);
  }
  return points;
}

export function total(counts: readonly number[]): number {
  return counts.reduce((sum, n) => sum + n, 0);
}

function add(counts: number[], n: number): void {
  const last = counts.length - 1;
  counts[last] = (counts[last] ?? 0) + n;
}
