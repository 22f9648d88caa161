/**
 * Decoded counters, kept between queries: dashboards query the last day or month again and again, and decoding is most of
 * the cost of a query (docs/decisions/0012).
 */
import { BoundedCache } from '../../cache.ts';
import type { CountArray } from '../cells.ts';
import { ROWS, type RowsName } from '../rows.ts';

interface DecodedChunk {
  /** The change counter of the chunk when it was decoded. It is in the file, so it counts changes of all processes. */
  changes: number;
  /** The global change counter when the chunk was last found unchanged. */
  allChanges: number;
  /** By the key of a selection (count.ts), or by `partKey`. */
  numbers: Map<number, CountArray>;
  /** The weight of all numbers. */
  bytes: number;
}

const CHUNKS_MAX = 10_000;
/** The share of the limit for one chunk and kind of query: beyond it, the numbers of old ranges would evict everything else. */
const CHUNK_SHARE = 1 / 4;
/** What an entry takes besides its numbers: a typed array has its own buffer, outside of the heap. Measured. */
const ENTRY_BYTES = 400;

/** More chunks than a level has in a thousand years. */
export const CHUNKS_PER_LEVEL = 2 ** 27;
const LEVELS_MAX = 4;

/** Each kind of query caches its own numbers. */
type Kind = RowsName | `${RowsName}ByHost` | 'peaks';
const KINDS: readonly string[] = Object.keys(ROWS).flatMap((rows) => [rows, `${rows}ByHost`]);

/** More cells than a chunk of counters has. */
const CELLS_END = 1_024;

/** The key of the sums of one run of cells, which take a hundredth of the running totals. Unlike that of a selection, it has a fraction. */
export function partKey(key: number, [first = 0, end = 0]: readonly number[]): number {
  return key + (first * CELLS_END + end) / CELLS_END ** 2;
}

/**
 * All kinds of queries share the limit. The default of 16 MB is enough for timelines of the last day of 1,450 hosts, or of
 * the last month of 2,880, with counts of 16 bits.
 */
export class SharedChunks extends BoundedCache<number, DecodedChunk> {
  readonly chunkBytesMax: number;

  constructor(bytesMax: number) {
    super({
      name: 'chunks',
      entriesMax: CHUNKS_MAX,
      weightMax: Math.max(1, bytesMax),
      weight: ({ bytes }) => bytes,
    });
    this.chunkBytesMax = bytesMax * CHUNK_SHARE;
  }
}

export class ChunkCache {
  readonly #chunks: SharedChunks;
  readonly #firstKey: number;

  constructor(chunks: SharedChunks, kind: Kind) {
    this.#chunks = chunks;
    this.#firstKey = (1 + KINDS.indexOf(kind)) * LEVELS_MAX * CHUNKS_PER_LEVEL;
  }

  /** Undefined unless it is cached and the chunk has been found unchanged. */
  find(level: number, chunk: number, allChanges: number, key: number): CountArray | undefined {
    const known = this.#chunks.get(this.#firstKey + level * CHUNKS_PER_LEVEL + chunk);
    return known?.allChanges === allChanges ? known.numbers.get(key) : undefined;
  }

  /** Access to what is cached of one chunk. `readChanges` reads its change counter. */
  open(level: number, chunk: number, allChanges: number, readChanges: () => number) {
    const chunkKey = this.#firstKey + level * CHUNKS_PER_LEVEL + chunk;
    const decoded = this.#current(chunkKey, allChanges, readChanges);
    return {
      get: (key: number): CountArray | undefined => decoded.numbers.get(key),
      /** Returns what is cached now: another query in slices may have added the same. */
      put: (key: number, numbers: CountArray): CountArray => {
        const known = decoded.numbers.get(key);
        if (known !== undefined) return known;
        if (decoded.bytes > this.#chunks.chunkBytesMax) {
          decoded.numbers.clear();
          decoded.bytes = 0;
        }
        decoded.numbers.set(key, numbers);
        decoded.bytes += numbers.byteLength + ENTRY_BYTES;
        // Added again, because the cache weighs an entry when it is added.
        this.#chunks.delete(chunkKey);
        this.#chunks.set(chunkKey, decoded);
        return numbers;
      },
    };
  }

  #current(chunkKey: number, allChanges: number, readChanges: () => number): DecodedChunk {
    const known = this.#chunks.get(chunkKey);
    if (known?.allChanges === allChanges) return known;
    const changes = readChanges();
    if (known?.changes !== changes) return { changes, allChanges, numbers: new Map(), bytes: 0 };
    known.allChanges = allChanges;
    return known;
  }
}
