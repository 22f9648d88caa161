/** From the points of the API to what is drawn: as fine as the width allows, with boundaries on the local clock. */
import type { Timeline } from '@wafstat/client';
import { clock, day } from './format.ts';

export interface Points {
  /** One more than there are points: point i is from `edges[i]` to `edges[i + 1]`. */
  edges: number[];
  requests: number[];
  attacks: number[];
}

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/** Steps under a day divide it, so that boundaries are at round times of the local clock. */
const STEPS_MS = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * DAY_MS),
];

function stepOf({ from, to }: { from: number; to: number }, countMax: number): number {
  return STEPS_MS.find((step) => (to - from) / step <= countMax) ?? 364 * DAY_MS;
}

/** Adds up neighbours until there are at most `pointsMax`. No count is lost or split. */
export function drawnPoints(timeline: Timeline, from: number, offsetMs: number, pointsMax: number): Points {
  const ends = timeline.requests.map(({ time }) => time);
  const stepMs = stepOf({ from, to: ends.at(-1) ?? from }, pointsMax);
  const mustMerge = ends.length > pointsMax;
  const points: Points = { edges: [from], requests: [], attacks: [] };
  let bucket = Number.NaN;
  for (const [i, end] of ends.entries()) {
    const bucketOfEnd = mustMerge ? Math.ceil((end + offsetMs) / stepMs) : i;
    if (bucketOfEnd === bucket) points.edges.pop();
    else {
      points.requests.push(0);
      points.attacks.push(0);
    }
    bucket = bucketOfEnd;
    points.edges.push(end);
    addToLast(points.requests, timeline.requests[i]?.num ?? 0);
    addToLast(points.attacks, timeline.attacks[i]?.num ?? 0);
  }
  return points;
}

function addToLast(counts: number[], n: number): void {
  const last = counts.length - 1;
  counts[last] = (counts[last] ?? 0) + n;
}

export function total(counts: readonly number[]): number {
  return counts.reduce((sum, n) => sum + n, 0);
}

/** The ticks of the time axis, at round times of the local clock. */
export function timeTicks(from: number, to: number, offsetMs: number, ticksMax: number): number[] {
  const stepMs = stepOf({ from, to }, ticksMax);
  const ticks: number[] = [];
  const first = Math.ceil((from + offsetMs) / stepMs) * stepMs - offsetMs;
  for (let tick = first; tick <= to; tick += stepMs) ticks.push(tick);
  return ticks;
}

/** The day at midnight, otherwise the time. */
export function tickLabel(tick: number, offsetMs: number): string {
  return (tick + offsetMs) % DAY_MS === 0 ? day(tick, offsetMs) : clock(tick, offsetMs);
}
