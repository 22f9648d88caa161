/** The busiest second of each point, from the seconds of one minute at a time. */
import { accumulate, addAllAttacks, GROUP_ROWS, GROUPS } from './cells.ts';
import type { ChunkPlan } from './plan.ts';

const SECOND_MS = 1_000;

/** Peaks by group and point. */
export class Peaks {
  readonly points: number;
  readonly #peaks: Float64Array;

  constructor(points: number) {
    this.points = points;
    this.#peaks = new Float64Array(GROUPS.length * points);
  }

  get(group: number, point: number): number {
    return this.#peaks[group * this.points + point] ?? 0;
  }

  raise(group: number, point: number, n: number): void {
    if (n > this.get(group, point)) this.#peaks[group * this.points + point] = n;
  }

  rows(): Float64Array[] {
    return GROUPS.map((_, group) => this.#peaks.subarray(group * this.points, (group + 1) * this.points));
  }
}

/** The counts of a minute by group and slot: a second, or the part of one within a point. */
export class MinuteSlots {
  /** As runs (plan.ts) of exact milliseconds. */
  readonly #runs: number[] = [];
  readonly #points: number[] = [];
  readonly #counts: Float64Array;

  /** `runs`: the cells of each point within the minute. */
  constructor(runs: ChunkPlan['runs']) {
    for (const { point, first, end } of partsOf(runs)) {
      for (let at = first; at < end; ) {
        const slotEnd = Math.min(end, (Math.floor(at / SECOND_MS) + 1) * SECOND_MS);
        this.#runs.push(at, slotEnd, this.#points.length, slotEnd - at);
        this.#points.push(point);
        at = slotEnd;
      }
    }
    this.#counts = new Float64Array(GROUPS.length * this.#points.length);
  }

  /** Adds a record of exact milliseconds. */
  add(record: Uint8Array): void {
    accumulate(record, this.#runs, GROUP_ROWS, this.#points.length, this.#counts);
  }

  /** Raises the peaks of the points, counted from `firstPoint`, to the counts of their slots. Then the minute is empty again. */
  raise(peaks: Peaks, firstPoint = 0): void {
    addAllAttacks(this.#counts);
    const slots = this.#points.length;
    for (let group = 0; group < GROUPS.length; group++) {
      for (let slot = 0; slot < slots; slot++)
        peaks.raise(group, firstPoint + (this.#points[slot] ?? 0), this.#counts[group * slots + slot] ?? 0);
    }
    this.#counts.fill(0);
  }
}

/** The cells of each point of the runs (plan.ts). */
export function* partsOf(runs: ChunkPlan['runs']): Generator<{ point: number; first: number; end: number }> {
  for (let run = 0; run < runs.length; run += 4) {
    const end = runs[run + 1] ?? 0;
    const cellsInPoint = runs[run + 3] ?? 1;
    let point = runs[run + 2] ?? 0;
    for (let first = runs[run] ?? 0; first < end; first += cellsInPoint) {
      yield { point, first, end: Math.min(end, first + cellsInPoint) };
      point++;
    }
  }
}
