/**
 * Counters that have been decoded, for the next query: those of the last day or month are asked for again and again,
 * and to decode them is most of what a query costs (docs/decisions/0012). What is kept of a chunk is good as long as
 * the chunk has not changed, which its count of changes in the file tells, whichever process wrote.
 */

/** Running totals (see cells.ts) by scope. */
interface DecodedChunk {
  /** How often the chunk had changed when it was decoded. */
  changes: number;
  /** How often anything had changed when this was last found to be still so. */
  allChanges: number;
  scopes: Map<number, Float64Array>;
  numbers: number;
}

/** 32 MB of eight bytes each: for timelines the last day of 1,250 hosts, or the last month of 1,770. */
const NUMBERS_MAX = 4_194_304;

/** More than a level has chunks in a thousand years. */
const CHUNKS_MAX = 2 ** 27;

/** What an entry takes besides its numbers, counted as such. */
const ENTRY_NUMBERS = 16;

export class DecodedChunks {
  readonly #numbersMax: number;
  /** In the order in which they were first asked for, so the first is the one to forget. */
  readonly #chunks = new Map<number, DecodedChunk>();
  #numbers = 0;

  constructor(numbersMax = NUMBERS_MAX) {
    this.#numbersMax = numbersMax;
  }

  /** Answers a function from a scope of the chunk to its running totals, which `make` is asked for when they are not kept. */
  chunk(
    level: number,
    chunk: number,
    allChanges: number,
    changesOf: () => number,
    make: (scope: number) => Float64Array,
  ): (scope: number) => Float64Array {
    const { get, keep } = this.open(level, chunk, allChanges, changesOf);
    return (scope) => get(scope) ?? keep(scope, make(scope));
  }

  /** The same, for callers that compute totals in several turns. */
  open(level: number, chunk: number, allChanges: number, changesOf: () => number) {
    const key = level * CHUNKS_MAX + chunk;
    const decoded = this.#current(key, allChanges, changesOf);
    return {
      get: (scope: number): Float64Array | undefined => decoded.scopes.get(scope),
      keep: (scope: number, totals: Float64Array): Float64Array => {
        this.#keep(key, decoded, scope, totals);
        return totals;
      },
    };
  }

  #current(key: number, allChanges: number, changesOf: () => number): DecodedChunk {
    const known = this.#chunks.get(key);
    if (known?.allChanges === allChanges) return known;
    const changes = changesOf();
    if (known?.changes === changes) {
      known.allChanges = allChanges;
      return known;
    }
    this.#forget(key);
    const empty = { changes, allChanges, scopes: new Map(), numbers: 0 };
    this.#chunks.set(key, empty);
    return empty;
  }

  #keep(key: number, decoded: DecodedChunk, scope: number, totals: Float64Array): void {
    const numbers = totals.length + ENTRY_NUMBERS;
    for (const oldest of this.#chunks.keys()) {
      if (this.#numbers + numbers <= this.#numbersMax) break;
      this.#forget(oldest);
    }
    // It may have been the oldest itself.
    if (this.#chunks.get(key) !== decoded) return;
    decoded.scopes.set(scope, totals);
    decoded.numbers += numbers;
    this.#numbers += numbers;
  }

  #forget(key: number): void {
    this.#numbers -= this.#chunks.get(key)?.numbers ?? 0;
    this.#chunks.delete(key);
  }
}
