/** Where the time axis has its marks: at round times of the local clock, few enough to be read. */
import { clock, day } from './format.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const STEPS_MS = [
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR_MS),
  ...[1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * DAY_MS),
];

export function timeTicks(from: number, to: number, offsetMs: number, ticks_max: number): number[] {
  const step_ms = STEPS_MS.find((step) => (to - from) / step <= ticks_max) ?? STEPS_MS.at(-1) ?? DAY_MS;
  const ticks: number[] = [];
  const first = Math.ceil((from + offsetMs) / step_ms) * step_ms - offsetMs;
  for (let tick = first; tick <= to; tick += step_ms) ticks.push(tick);
  return ticks;
}

/** Midnight is told by its day. */
export function tickLabel(tick: number, offsetMs: number): string {
  return (tick + offsetMs) % DAY_MS === 0 ? day(tick, offsetMs) : clock(tick, offsetMs);
}
