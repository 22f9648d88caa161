/** Where the axes of a plot have their ticks, and what stands there. */
import type { Columns } from './columns.ts';
import { tickLabel } from './local-time.ts';
import { count } from './numbers.ts';

export interface Scale {
  /** The value at the upper end, at least 1. */
  top: number;
  ticks: number[];
}

/** Numbers that are easy to add up. */
const STEPS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
const TICKS_MAX = 6;

/** From 0 to a round number that nothing is above, with two rows or more to a tick. */
export function scaleOf(largest: number, rows: number): Scale {
  const wanted = Math.max(1, largest) / Math.min(TICKS_MAX, Math.max(1, Math.floor(rows / 2)));
  const power = 10 ** Math.max(0, Math.floor(Math.log10(wanted)));
  const step = STEPS.map((n) => n * power).find((n) => n >= wanted && Number.isInteger(n)) ?? 10 * power;
  const steps = Math.max(1, Math.ceil(largest / step));
  return { top: steps * step, ticks: Array.from({ length: steps + 1 }, (_, i) => i * step) };
}

const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 2 });

/** `12,000`, but `50K` and `1.5M` on a long scale: a label must not take the room of the plot. */
export function scaleLabel(value: number, { top }: Scale): string {
  return top < 100_000 ? count(value) : COMPACT.format(value);
}

export interface TimeTick {
  /** The cell from the left. */
  cell: number;
  label: string;
}

const MINUTE_MS = 60_000;
const TICK_STEPS_MS = [
  ...[1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 4, 7, 14, 28, 56, 91, 182, 364, 728, 1_820].map((days) => days * 1_440 * MINUTE_MS),
];
/** As long as `12:00` and `07-01`. */
const LABEL_CELLS = 5;
const LABEL_CELLS_LEFT = Math.floor(LABEL_CELLS / 2);
const GAP_CELLS = 3;

/** Ticks at the left edge of columns that begin at a round time of the local clock. */
export function timeTicks(
  { columns, spanMs }: Columns,
  cellsPerColumn: number,
  offsetMs: number,
): TimeTick[] {
  const roomy = (step: number) => (step / spanMs) * cellsPerColumn >= LABEL_CELLS + GAP_CELLS;
  const step = TICK_STEPS_MS.find((candidate) => candidate % spanMs === 0 && roomy(candidate));
  if (step === undefined) return [];
  const cells = columns.length * cellsPerColumn;
  return columns.flatMap(({ start }, i) => {
    const cell = i * cellsPerColumn;
    // A label is centred under its tick, and must not run out of the plot.
    const fits = cell + LABEL_CELLS_LEFT < cells;
    return fits && (start + offsetMs) % step === 0 ? [{ cell, label: tickLabel(start, offsetMs) }] : [];
  });
}

/** The line below the axis, which stands at `axisCell`. */
export function timeLabels(ticks: readonly TimeTick[], axisCell: number): string {
  return ticks.reduce(
    (line, { cell, label }) => `${line.padEnd(axisCell + 1 + cell - LABEL_CELLS_LEFT)}${label}`,
    '',
  );
}
