/** Long work in slices of a few milliseconds, between which the event loop does other work. */
import { TimeSlicer } from '../fair-queue.ts';

/** How long work holds the event loop at a time. */
export const SLICE_MS = 3;

/** About 0.2 ms of work: reading the clock more often would take as long as reading small records. */
const BYTES_PER_CLOCK_READ = 16_384;
const RECORD_BYTES_MIN = 1_024;

/** Runs all steps at once. */
export function finish<T>(steps: Generator<void, T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * Yields to the event loop after each slice of work. All queries of the process share the turns, one slice in each: with
 * two slices per turn, admission would reject the queries of everyone else.
 */
export class Slices {
  static readonly #slicer = new TimeSlicer();
  readonly #lengthMs: number;
  #recordBytes = 0;
  #start = performance.now();

  constructor(lengthMs = SLICE_MS) {
    this.#lengthMs = lengthMs;
  }

  /** Call after each record, with its size: the record of a busy minute takes as long as a hundred others. */
  isOver(record?: Uint8Array): boolean {
    this.#recordBytes += RECORD_BYTES_MIN + (record?.length ?? 0);
    if (this.#recordBytes < BYTES_PER_CLOCK_READ) return false;
    this.#recordBytes = 0;
    return performance.now() - this.#start > this.#lengthMs;
  }

  async next(): Promise<void> {
    await Slices.#slicer.nextTurn('');
    this.#start = performance.now();
  }

  /** Runs work whose steps take about a millisecond. */
  async run<T>(steps: Generator<void, T>): Promise<T> {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
      if (performance.now() - this.#start > this.#lengthMs) await this.next();
    }
  }
}
