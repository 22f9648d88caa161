/**
 * Decoded counters, kept between queries: dashboards query the last day or month again and again, and decoding is most of
 * the cost of a query (docs/decisions/0012).
 */
import { BoundedCache } from '../../cache.ts';
import { ROWS, type RowsName } from '../rows.ts';
import type { CountArray } from './decoded-cells.ts';

interface DecodedChunk {
  /** The change counter of the chunk when it was decoded. It is in the file, so it counts changes of all processes. */
  changes: number;
  /** The global change counter when the chunk was last found unchanged. */
  allChanges: number;
  /** Numbers that serve all ranges, by `partKey`. */
  totals: Map<number, CountArray>;
  /** Numbers that serve one range, oldest first. */
  ranges: Map<number, CountArray>;
  /** The weight of everything, and of `ranges` alone. */
  bytes: number;
  rangeBytes: number;
}

const CHUNKS_MAX = 10_000;
/** The share of the limit for the ranges of one chunk and kind of query: 430 ranges of a thousand hosts. */
const RANGES_SHARE = 1 / 16;
/** What an entry takes besides its numbers: a typed array has its own buffer, outside of the heap. Measured. */
const ENTRY_BYTES = 400;

/** More chunks than a level has in a thousand years. */
export const CHUNKS_PER_LEVEL = 2 ** 27;
const LEVELS_MAX = 4;
/** More cells than a chunk of counters has. */
const CELLS_END = 1_024;

/** Each kind of query caches its own numbers. */
type Kind = RowsName | `${RowsName}ByHost` | 'peaks';
const KINDS: readonly string[] = Object.keys(ROWS).flatMap((rows) => [rows, `${rows}ByHost`]);

/**
 * All kinds of queries share the limit. The default of 16 MB is enough for timelines of the last day of 1,450 hosts, or of
 * the last month of 2,880, with counts of 16 bits.
 */
export class SharedChunks extends BoundedCache<number, DecodedChunk> {
  readonly rangeBytesMax: number;

  constructor(bytesMax: number) {
    super({
      name: 'chunks',
      entriesMax: CHUNKS_MAX,
      weightMax: Math.max(1, bytesMax),
      weight: ({ bytes }) => bytes,
    });
    this.rangeBytesMax = bytesMax * RANGES_SHARE;
  }
}

export const ALL_CELLS: readonly number[] = [];

/**
 * The key of numbers that serve only some cells of a chunk, such as the sums of a range, which take a hundredth of the
 * running totals. With ALL_CELLS, the key of numbers that serve all ranges.
 */
export function partKey(scope: number, [first = 0, end = 0]: readonly number[]): number {
  return (scope * CELLS_END + first) * CELLS_END + end;
}

function partsWith({ totals, ranges }: DecodedChunk, part: number): Map<number, CountArray> {
  return part % (CELLS_END * CELLS_END) === 0 ? totals : ranges;
}

export class ChunkCache {
  readonly #chunks: SharedChunks;
  readonly #firstKey: number;

  constructor(chunks: SharedChunks, kind: Kind) {
    this.#chunks = chunks;
    this.#firstKey = (1 + KINDS.indexOf(kind)) * LEVELS_MAX * CHUNKS_PER_LEVEL;
  }

  /** Undefined unless it is cached and the chunk has been found unchanged. */
  find(level: number, chunk: number, allChanges: number, part: number): CountArray | undefined {
    const known = this.#chunks.get(this.#firstKey + level * CHUNKS_PER_LEVEL + chunk);
    return known?.allChanges === allChanges ? partsWith(known, part).get(part) : undefined;
  }

  /** Access to what is cached of one chunk. `readChanges` reads its change counter. */
  open(level: number, chunk: number, allChanges: number, readChanges: () => number) {
    const key = this.#firstKey + level * CHUNKS_PER_LEVEL + chunk;
    const decoded = this.#current(key, allChanges, readChanges);
    return {
      get: (part: number): CountArray | undefined => partsWith(decoded, part).get(part),
      /** Returns what is cached now: another query in slices may have added the same. */
      put: (part: number, numbers: CountArray): CountArray => {
        const known = partsWith(decoded, part).get(part);
        if (known !== undefined) return known;
        this.#add(decoded, part, numbers);
        // Added again, because the cache weighs an entry when it is added.
        this.#chunks.delete(key);
        this.#chunks.set(key, decoded);
        return numbers;
      },
    };
  }

  #add(decoded: DecodedChunk, part: number, numbers: CountArray): void {
    const parts = partsWith(decoded, part);
    parts.set(part, numbers);
    decoded.bytes += numbers.byteLength + ENTRY_BYTES;
    if (parts !== decoded.ranges) return;
    decoded.rangeBytes += numbers.byteLength + ENTRY_BYTES;
    // A moving range leaves old entries behind in a chunk that is always in use. The new entry stays, however large.
    for (const [oldest, { byteLength }] of parts) {
      if (decoded.rangeBytes <= this.#chunks.rangeBytesMax || oldest === part) return;
      parts.delete(oldest);
      decoded.bytes -= byteLength + ENTRY_BYTES;
      decoded.rangeBytes -= byteLength + ENTRY_BYTES;
    }
  }

  #current(key: number, allChanges: number, readChanges: () => number): DecodedChunk {
    const known = this.#chunks.get(key);
    if (known?.allChanges === allChanges) return known;
    const changes = readChanges();
    if (known?.changes !== changes) {
      return { changes, allChanges, totals: new Map(), ranges: new Map(), bytes: 0, rangeBytes: 0 };
    }
    known.allChanges = allChanges;
    return known;
  }
}
