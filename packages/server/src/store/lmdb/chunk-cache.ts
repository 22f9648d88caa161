/**
 * Decoded counters, kept between queries: dashboards query the last day or month again and again, and decoding is most of
 * the cost of a query (docs/decisions/0012).
 */
import { BoundedCache } from '../../cache.ts';

interface DecodedChunk {
  /** The change counter of the chunk when it was decoded. It is in the file, so it counts changes of all processes. */
  changes: number;
  /** The global change counter when the chunk was last found unchanged. */
  allChanges: number;
  /** Running totals (see cells.ts) by scope, or by the ID of a host set. */
  totals: Map<number, Float64Array>;
  numbers: number;
}

/** 32 MB of eight bytes each: for timelines the last day of 1,250 hosts, or the last month of 1,770. */
const NUMBERS_MAX = 4_194_304;
const CHUNKS_MAX = 10_000;
/** The overhead of an entry, in numbers. */
const ENTRY_NUMBERS = 16;

/** More than a level has chunks in a thousand years. */
export const CHUNKS_PER_LEVEL = 2 ** 27;

export class ChunkCache {
  readonly #chunks: BoundedCache<number, DecodedChunk>;

  constructor(numbersMax = NUMBERS_MAX) {
    this.#chunks = new BoundedCache({
      name: 'chunks',
      entriesMax: CHUNKS_MAX,
      weightMax: Math.max(1, numbersMax),
      weight: ({ numbers }) => numbers,
      unitBytes: 8,
    });
  }

  /** Undefined unless the totals are cached and the chunk has been found unchanged. */
  find(level: number, chunk: number, allChanges: number, scope: number): Float64Array | undefined {
    const known = this.#chunks.get(level * CHUNKS_PER_LEVEL + chunk);
    return known?.allChanges === allChanges ? known.totals.get(scope) : undefined;
  }

  /** Access to the totals of one chunk. `readChanges` reads its change counter. */
  open(level: number, chunk: number, allChanges: number, readChanges: () => number) {
    const key = level * CHUNKS_PER_LEVEL + chunk;
    const decoded = this.#current(key, allChanges, readChanges);
    return {
      get: (scope: number): Float64Array | undefined => decoded.totals.get(scope),
      put: (scope: number, totals: Float64Array): Float64Array => {
        decoded.totals.set(scope, totals);
        decoded.numbers += totals.length + ENTRY_NUMBERS;
        // Added again, because the cache weighs an entry when it is added.
        this.#chunks.delete(key);
        this.#chunks.set(key, decoded);
        return totals;
      },
    };
  }

  #current(key: number, allChanges: number, readChanges: () => number): DecodedChunk {
    const known = this.#chunks.get(key);
    if (known?.allChanges === allChanges) return known;
    const changes = readChanges();
    if (known?.changes !== changes) return { changes, allChanges, totals: new Map(), numbers: 0 };
    known.allChanges = allChanges;
    return known;
  }
}

/** The length of all host sets as text: some hundred sets of a thousand hosts. */
const HOST_SET_CHARACTERS_MAX = 1_048_576;
const HOST_SETS_MAX = 10_000;

/**
 * IDs of host sets, under which the chunk cache keeps their sums: a dashboard queries the same hundred hosts each time,
 * over a range that has moved (docs/decisions/0012). IDs are negative, unlike scopes, and never reused, because the
 * cache may still have the sums of an evicted set.
 */
export class HostSets {
  readonly #ids = new BoundedCache<string, number>({
    name: 'host_sets',
    entriesMax: HOST_SETS_MAX,
    weightMax: HOST_SET_CHARACTERS_MAX,
    weight: (_, name) => name.length,
  });
  #lastId = 0;

  /** Undefined for one host, and the first time: the sums of a set that is queried only once are not worth keeping. */
  idIfRepeated(scopes: readonly number[]): number | undefined {
    if (scopes.length < 2) return undefined;
    const before = this.#lastId;
    const id = this.idOf(scopes);
    return id < before ? undefined : id;
  }

  idOf(scopes: readonly number[]): number {
    const name = scopes.toSorted((a, b) => a - b).join();
    const known = this.#ids.get(name);
    if (known !== undefined) return known;
    this.#lastId--;
    this.#ids.set(name, this.#lastId);
    return this.#lastId;
  }
}
