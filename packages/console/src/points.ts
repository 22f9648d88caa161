/** From the points of the API to what is drawn: as fine as the width allows, with boundaries on the local clock. */
import type { Point } from '@wafstat/client';
import { clock, day } from './format.ts';

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

/** The boundaries of about `pointsMax` points at most: point i is from `edges[i]` to `edges[i + 1]`. */
export function drawnEdges(
  ends: readonly number[],
  from: number,
  offsetMs: number,
  pointsMax: number,
): number[] {
  if (ends.length <= pointsMax) return [from, ...ends];
  const stepMs = stepOf({ from, to: ends.at(-1) ?? from }, pointsMax);
  const bucket = (end: number | undefined) =>
    end === undefined ? null : Math.ceil((end + offsetMs) / stepMs);
  return [from, ...ends.filter((end, i) => bucket(end) !== bucket(ends[i + 1]))];
}

/** Adds up the points between the edges. No count is lost or split. */
export function countsBetween(edges: readonly number[], points: readonly Point[]): number[] {
  const counts = edges.slice(1).map(() => 0);
  const last = counts.length - 1;
  let i = 0;
  for (const { time, num } of points) {
    while (i < last && time > (edges[i + 1] ?? time)) i++;
    counts[i] = (counts[i] ?? 0) + num;
  }
  return counts;
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
