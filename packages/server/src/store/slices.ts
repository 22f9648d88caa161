/**
 * Long work, in slices between which the event loop does other work. Work is a generator that yields wherever it may be
 * interrupted, at least once per millisecond.
 */
import { TimeSlicer } from '../fair-queue.ts';

/** How long work holds the event loop at a time. */
export const SLICE_MS = 3;
/** Each step is a slice of its own: for steps that take a few milliseconds. */
export const STEP_BY_STEP = -1;

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
  #start = performance.now();

  constructor(lengthMs = SLICE_MS) {
    this.#lengthMs = lengthMs;
  }

  async run<T>(steps: Generator<void, T>): Promise<T> {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
      if (performance.now() - this.#start <= this.#lengthMs) continue;
      await Slices.#slicer.nextTurn('');
      this.#start = performance.now();
    }
  }
}
