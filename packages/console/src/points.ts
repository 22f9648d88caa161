/** From the points of the API to what is drawn: as fine as the width allows, with boundaries on the local clock. */
import type { Point } from '@wafstat/client';
import { clock, day } from './format.ts';
import { fromLocal, toLocal, type Zone } from './zone.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/** Steps under a day divide it, so that boundaries are at round times of the local clock. */
const STEPS_MS = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * DAY_MS),
];

/** Ticks have more steps to choose from, or a day on a narrow screen and a month would have two or three. */
const TICK_STEPS_MS = [...STEPS_MS, ...[4, 8, 72, 96, 120, 240].map((hours) => hours * 60 * MINUTE_MS)].sort(
  (a, b) => a - b,
);

function stepOf({ from, to }: { from: number; to: number }, countMax: number, steps = STEPS_MS): number {
  return steps.find((step) => (to - from) / step <= countMax) ?? 364 * DAY_MS;
}

/** The length of a point of the API, by the length of the range. */
export function gridOf({ from, to }: { from: number; to: number }): number {
  const days = (to - from) / DAY_MS;
  if (days <= 1) return MINUTE_MS;
  if (days <= 3) return 5 * MINUTE_MS;
  if (days <= 7) return 10 * MINUTE_MS;
  return days <= 31 ? 60 * MINUTE_MS : DAY_MS;
}

/**
 * The boundaries of about `pointsMax` points at most, each at least `gridMs` long: point i is from `edges[i]` to
 * `edges[i + 1]`.
 */
export function drawnEdges(
  ends: readonly number[],
  from: number,
  zone: Zone,
  pointsMax: number,
  gridMs = 0,
): number[] {
  const stepMs = Math.max(stepOf({ from, to: ends.at(-1) ?? from }, pointsMax), gridMs);
  if (ends.length <= pointsMax && gridMs === 0) return [from, ...ends];
  const bucket = (end: number | undefined) =>
    end === undefined ? null : Math.ceil(toLocal(end, zone) / stepMs);
  return [from, ...ends.filter((end, i) => bucket(end) !== bucket(ends[i + 1]))];
}

/** The length of a point; the first and the last may be shorter. A clock change makes one longer, but not on the clock. */
export function pointLength(edges: readonly number[], zone: Zone): number {
  const lengths = edges.slice(1).map((edge, i) => {
    const start = edges[i] ?? edge;
    return Math.min(edge - start, toLocal(edge, zone) - toLocal(start, zone));
  });
  return Math.max(0, ...lengths);
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
export function timeTicks(from: number, to: number, zone: Zone, ticksMax: number): number[] {
  const stepMs = stepOf({ from, to }, ticksMax, TICK_STEPS_MS);
  const ticks: number[] = [];
  const end = toLocal(to, zone);
  for (let local = Math.ceil(toLocal(from, zone) / stepMs) * stepMs; local <= end; local += stepMs) {
    const tick = fromLocal(local, zone);
    // A local time that the clock skips would repeat the next tick.
    if (tick > (ticks.at(-1) ?? from - 1) && tick <= to) ticks.push(tick);
  }
  return ticks;
}

/** The day at midnight, otherwise the time. The first tick has the day and the year, and so has each new year. */
export function tickLabels(ticks: readonly number[], zone: Zone): string[] {
  const yearOf = (tick: number) => new Date(toLocal(tick, zone)).getUTCFullYear();
  return ticks.map((tick, i) => {
    const isMidnight = toLocal(tick, zone) % DAY_MS === 0;
    const before = ticks[i - 1];
    const label = isMidnight ? day(tick, zone) : clock(tick, zone);
    if (before !== undefined && yearOf(before) === yearOf(tick)) return label;
    return `${label}\n${isMidnight ? '' : `${day(tick, zone)} `}${yearOf(tick)}`;
  });
}
