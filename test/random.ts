/**
 * Randomness of the tests, and a setup file of every run.
 * FUZZ_SEED repeats a failed property test with the seed that fast-check printed; FUZZ_SCALE=10 makes property tests and
 * kill loops ten times as long.
 */
const { FUZZ_SEED: seed, FUZZ_SCALE: scale = '1' } = process.env;

/** How often to repeat something random. */
export function scaled(runs: number): number {
  return Math.ceil(runs * Number(scale));
}

/** Well before a test times out. */
const PROPERTY_MS_MAX = 120_000;

/** Parameters of a long property test: on a busy machine it ends early, with the runs that it has had by then. */
export function upTo(runs: number): {
  numRuns: number;
  interruptAfterTimeLimit?: number;
  markInterruptAsFailure?: boolean;
} {
  const numRuns = scaled(runs);
  return scale === '1'
    ? { numRuns, interruptAfterTimeLimit: PROPERTY_MS_MAX, markInterruptAsFailure: false }
    : { numRuns };
}

if (seed !== undefined || scale !== '1') {
  const { default: fc } = await import('fast-check');
  const global = fc.readConfigureGlobal();
  // Property tests without a number of runs have the default of fast-check.
  fc.configureGlobal({ ...global, numRuns: scaled(100), ...(seed !== undefined && { seed: Number(seed) }) });
}

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
