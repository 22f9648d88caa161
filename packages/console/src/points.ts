/** Where points and ticks are: as many as the width allows, at round times of the local clock. */
import { clock, day } from './format.ts';
import type { TimeRange } from './time-range.ts';
import { dayOf, formatOffset, fromLocal, startOfDay, toLocal, type Zone } from './zone.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Steps under a day divide it. */
const STEPS_MS = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * DAY_MS),
];

/** Ticks have more steps to choose from, or a day on a narrow screen and a month would have two or three. */
const TICK_STEPS_MS = [...STEPS_MS, ...[4, 8, 72, 96, 120, 240].map((hours) => hours * HOUR_MS)].sort(
  (a, b) => a - b,
);

function stepOf({ from, to }: TimeRange, countMax: number, steps = STEPS_MS): number {
  return steps.find((step) => (to - from) / step <= countMax) ?? 364 * DAY_MS;
}

/**
 * The edges of about `pointsMax` points at most: point i is from `edges[i]` to `edges[i + 1]`. All but the first and the last
 * have the same length, also across a clock change; only days have 23 or 25 hours then.
 */
export function edgesOf(range: TimeRange, zone: Zone, pointsMax: number): number[] {
  const { from, to } = range;
  const stepMs = stepOf(range, pointsMax);
  const days = stepMs / DAY_MS;
  const offset = zone.offsetAt(to);
  const first = Math.floor(days >= 1 ? dayOf(from, zone) / days : (from + offset) / stepMs);
  const boundary = (n: number) => (days >= 1 ? startOfDay(n * days, zone) : n * stepMs - offset);
  const edges = [from];
  for (let n = first + 1; boundary(n) < to; n++) edges.push(boundary(n));
  return [...edges, to];
}

/** The edges of points of the same length, whatever the clock shows: for small charts and totals. */
export function equalParts({ from, to }: TimeRange, points: number): number[] {
  return Array.from({ length: points + 1 }, (_, i) => Math.round(from + ((to - from) * i) / points));
}

/** The length of a point; the first and the last may be shorter. */
export function pointLength(edges: readonly number[]): number {
  return Math.max(0, ...edges.slice(1).map((edge, i) => edge - (edges[i] ?? edge)));
}

/** The ticks of the time axis. */
export function timeTicks(from: number, to: number, zone: Zone, ticksMax: number): number[] {
  const stepMs = stepOf({ from, to }, ticksMax, TICK_STEPS_MS);
  const ticks: number[] = [];
  // Hours that the clock repeats have a tick each.
  const isExact = stepMs <= HOUR_MS;
  const offset = zone.offsetAt(from);
  const end = isExact ? to + offset : toLocal(to, zone);
  for (let local = Math.ceil((from + offset) / stepMs) * stepMs; local <= end; local += stepMs) {
    const tick = isExact ? local - offset : fromLocal(local, zone);
    // A local time that the clock skips would repeat the next tick.
    if (tick > (ticks.at(-1) ?? from - 1) && tick <= to) ticks.push(tick);
  }
  return ticks;
}

/**
 * The day at midnight, otherwise the time. The first tick has the day and the year, and so has each new year; the first
 * after a clock change has the offset.
 */
export function tickLabels(ticks: readonly number[], zone: Zone): string[] {
  const yearOf = (tick: number) => new Date(toLocal(tick, zone)).getUTCFullYear();
  return ticks.map((tick, i) => {
    const isMidnight = toLocal(tick, zone) % DAY_MS === 0;
    const before = ticks[i - 1];
    const label = isMidnight ? day(tick, zone) : clock(tick, zone);
    if (before === undefined || yearOf(before) !== yearOf(tick))
      return `${label}\n${isMidnight ? '' : `${day(tick, zone)} `}${yearOf(tick)}`;
    const offset = zone.offsetAt(tick);
    return offset === zone.offsetAt(before) ? label : `${label}\n${formatOffset(offset)}`;
  });
}

/** The ticks of an axis of counts: 0 to at least `most`, in at most four whole steps. */
export function countTicks(most: number): number[] {
  const steps = Array.from({ length: 16 }, (_, power) => [1, 2, 2.5, 5].map((n) => n * 10 ** power)).flat();
  const step = steps.find((n) => Number.isInteger(n) && n * 4 >= most) ?? most;
  return Array.from({ length: Math.max(1, Math.ceil(most / step)) + 1 }, (_, i) => i * step);
}
