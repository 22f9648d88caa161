/**
 * Randomness of the tests, and a setup file of every run.
 * FUZZ_SEED repeats a failed property test with the seed that fast-check printed. FUZZ_SCALE is the share of the random cases
 * that run: a tenth by default, 1 for all that a test names, 10 for a long search. FUZZ_SHRINK=0 ends a test with the first case
 * that fails, without a search for a smaller one.
 */
import fc from 'fast-check';

const { FUZZ_SEED: seed, FUZZ_SCALE: scale = '0.1', FUZZ_SHRINK: shrink } = process.env;

/** Fewer cases than this prove little; a few kills or restarts are cheap. */
const CASES_MIN = 5;

/**
 * How often to repeat something random. `cases`: what a search that takes its time needs. `share`: of them, where each takes
 * long and others search the same code.
 */
export function scaled(cases: number, share = 1): number {
  const all = Math.ceil(cases * share);
  return Math.max(Math.ceil(all * Number(scale)), Math.min(all, Math.max(2, Math.ceil(CASES_MIN * share))));
}

/** On a busy machine, a property test ends with the cases that it has had by then: well before the test times out. */
const PROPERTY_MS_MAX = 120_000;

fc.configureGlobal({
  ...fc.readConfigureGlobal(),
  // For property tests without a number of runs: the default of fast-check.
  numRuns: scaled(100),
  ...(Number(scale) <= 1 && { interruptAfterTimeLimit: PROPERTY_MS_MAX, markInterruptAsFailure: false }),
  ...(seed !== undefined && { seed: Number(seed) }),
  ...(shrink === '0' && { endOnFailure: true }),
});

/** A seeded generator (mulberry32), so that a failure can be repeated. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** From 0 (inclusive) to 1 (exclusive). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** An integer from `min` to `max`, both inclusive. */
  integer(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.integer(0, values.length - 1)];
    if (value === undefined) throw new Error('nothing to pick from');
    return value;
  }

  /** `size` different values in random order. */
  sample<T>(values: readonly T[], size: number): T[] {
    const left = [...values];
    return Array.from({ length: size }, () => left.splice(this.integer(0, left.length - 1), 1)).flat();
  }
}
