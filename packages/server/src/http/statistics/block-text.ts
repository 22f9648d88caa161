/**
 * The text of the points of a block. Most series of attacks have few points that are not zero, and the text of zeros depends
 * only on the times, so all series, hosts and projects share it (docs/decisions/0012).
 */
import { BoundedCache } from '../../cache.ts';
import { BytesPart, type Deflated, deflatePieces, type Part } from '../shared-parts.ts';
import { type PointsText, pointsText, slice, ZERO_POINT_BYTES } from './timeline-json.ts';

/**
 * Four hours of minutes, or ten days of hours. With more points, counting those of the newest block takes longer after each
 * change; with fewer, sending a day by minute takes longer: 38 us in 15 parts, 44 us in 28.
 */
export const BLOCK_POINTS = 240;
/**
 * A series with up to this many points that are not zero takes a quarter of the memory, but each of them is two more pieces to
 * send, which takes 1.3 us. That pays off where many views share the cache (docs/decisions/0012).
 */
const SPARSE_POINTS_MAX = 8;
/** So many series take little memory anyway. */
const DENSE_SERIES_MAX = 2;
/** The zeros of about a month by minute. */
const ZERO_BYTES_MAX = 2_097_152;
/** The memory of the objects around the text of a series. */
const TEXT_OVERHEAD_BYTES = 640;
/** The most that a sparse series takes if it is compressed: about 800 bytes, more with long numbers, and a buffer. */
const SPARSE_DEFLATED_BYTES = 1_280;

/** Points of one series, with a comma after each. Positions are those in the block. */
interface SeriesText {
  /** The most memory that it takes, a compressed part included. */
  readonly memoryBytes: number;
  /** The points from `from` to before `to`. */
  part(from: number, to: number): Part;
}

/** Points of all series of a block. */
export class BlockText {
  readonly #series: readonly SeriesText[];
  #latest: { from: number; to: number; parts: readonly Part[] } | undefined;

  constructor(series: readonly SeriesText[]) {
    this.#series = series;
  }

  /** The most memory that it takes, compressed parts included. */
  get memoryBytes(): number {
    return [...new Set(this.#series)].reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
  }

  /** One part per series. They are kept, with their compressed forms, until others are needed. */
  parts(from: number, to: number): readonly Part[] {
    if (this.#latest?.from !== from || this.#latest.to !== to)
      this.#latest = { from, to, parts: this.#series.map((series) => series.part(from, to)) };
    return this.#latest.parts;
  }
}

class DenseText implements SeriesText {
  readonly memoryBytes: number;
  readonly #first: number;
  readonly #text: PointsText;

  constructor(first: number, ends: readonly number[], values: Float64Array) {
    this.#first = first;
    this.#text = pointsText(ends, values);
    // Compressed, numbers of one digit take up to a fifth of the text, longer ones more.
    const deflatedShare = this.#text.starts === undefined ? 0.2 : 0.3;
    this.memoryBytes = TEXT_OVERHEAD_BYTES + bytesOf(this.#text) * (1 + deflatedShare);
  }

  part(from: number, to: number): Part {
    return new BytesPart(slice(this.#text, from - this.#first, to - this.#first));
  }
}

/** Few points are not zero. */
class SparseText implements SeriesText {
  readonly memoryBytes: number;
  readonly #zeros: Zeros;
  readonly #positions: Uint8Array;
  readonly #text: PointsText;

  constructor(
    first: number,
    ends: readonly number[],
    values: Float64Array,
    indices: readonly number[],
    zeros: Zeros,
  ) {
    this.#zeros = zeros;
    this.#positions = Uint8Array.from(indices, (i) => first + i);
    this.#text = pointsText(
      indices.map((i) => ends[i] ?? 0),
      Float64Array.from(indices, (i) => values[i] ?? 0),
    );
    this.memoryBytes = TEXT_OVERHEAD_BYTES + bytesOf(this.#text) + SPARSE_DEFLATED_BYTES;
  }

  part(from: number, to: number): Part {
    const [positions, text] = [this.#positions, this.#text];
    const first = positions.findLastIndex((position) => position < from) + 1;
    const end = positions.findLastIndex((position) => position < to) + 1;
    return first === end
      ? new ZeroPart(this.#zeros, from, to)
      : new SparsePart(this.#zeros, from, to, { positions, text, first, end });
  }
}

/** Points that are not zero: from `first` to before `end` of those in `positions`, whose texts follow each other. */
interface SparsePoints {
  positions: Uint8Array;
  text: PointsText;
  first: number;
  end: number;
}

class ZeroText implements SeriesText {
  readonly memoryBytes = TEXT_OVERHEAD_BYTES;
  readonly #zeros: Zeros;

  constructor(zeros: Zeros) {
    this.#zeros = zeros;
  }

  part(from: number, to: number): Part {
    return new ZeroPart(this.#zeros, from, to);
  }
}

/** Looks up a block with one series, in which all points are zero. */
type Zeros = () => BlockText;

export class ZeroTexts {
  readonly #texts = new BoundedCache<string, BlockText>({
    name: 'timeline_zeros',
    entriesMax: ZERO_BYTES_MAX / TEXT_OVERHEAD_BYTES,
    weightMax: ZERO_BYTES_MAX,
    weight: ({ memoryBytes }) => memoryBytes,
  });

  /**
   * The zeros of the block that begins at `start`. Parts look them up whenever they are sent: if they kept them, they would
   * take more memory than they weigh.
   */
  of(start: number, intervalMs: number): Zeros {
    const key = `${start} ${intervalMs}`;
    return () => {
      const known = this.#texts.get(key);
      if (known !== undefined) return known;
      const ends = Array.from({ length: BLOCK_POINTS }, (_, i) => start + (i + 1) * intervalMs);
      const text = new BlockText([new DenseText(0, ends, new Float64Array(BLOCK_POINTS))]);
      this.#texts.set(key, text);
      return text;
    };
  }
}

/** Shares its bytes and its compressed form with all others of the same points. */
class ZeroPart implements Part {
  readonly length: number;
  readonly #zeros: Zeros;
  readonly #from: number;
  readonly #to: number;

  constructor(zeros: Zeros, from: number, to: number) {
    this.length = (to - from) * ZERO_POINT_BYTES;
    this.#zeros = zeros;
    this.#from = from;
    this.#to = to;
  }

  get #part(): Part {
    return this.#zeros().parts(this.#from, this.#to)[0] ?? NOTHING;
  }

  get pieces(): readonly Buffer[] {
    return this.#part.pieces;
  }

  get deflated(): Deflated | undefined {
    return this.#part.deflated;
  }

  get blocks(): Part[] {
    return [this];
  }

  deflate(): Deflated {
    return this.#part.deflate();
  }
}

class SparsePart implements Part {
  readonly length: number;
  deflated: Deflated | undefined;
  readonly #zeros: Zeros;
  readonly #from: number;
  readonly #to: number;
  readonly #points: SparsePoints;

  constructor(zeros: Zeros, from: number, to: number, points: SparsePoints) {
    this.#zeros = zeros;
    this.#from = from;
    this.#to = to;
    this.#points = points;
    const { text, first, end } = points;
    this.length = (to - from - (end - first)) * ZERO_POINT_BYTES + slice(text, first, end).length;
  }

  /** The points, and slices of the zeros between them. */
  get pieces(): readonly Buffer[] {
    const [zeros = NOTHING] = this.#zeros().parts(this.#from, this.#to);
    const [bytes = EMPTY] = zeros.pieces;
    const { positions, text, first, end } = this.#points;
    const pieces: Buffer[] = [];
    let at = 0;
    for (let i = first; i < end; i++) {
      const start = ((positions[i] ?? 0) - this.#from) * ZERO_POINT_BYTES;
      if (at < start) pieces.push(bytes.subarray(at, start));
      pieces.push(slice(text, i, i + 1));
      at = start + ZERO_POINT_BYTES;
    }
    if (at < bytes.length) pieces.push(bytes.subarray(at));
    return pieces;
  }

  get blocks(): Part[] {
    return [this];
  }

  deflate(): Deflated {
    this.deflated ??= deflatePieces(this.pieces);
    return this.deflated;
  }
}

function bytesOf({ bytes, starts }: PointsText): number {
  return bytes.length + (starts?.byteLength ?? 0);
}

const EMPTY = Buffer.alloc(0);
const NOTHING = new BytesPart(EMPTY);

/**
 * `first`: the position of the first point. `ends`: the end of each point. `values`: a number for each point, by series.
 * Only for times from TIME_MIN to TIME_MAX.
 */
export function blockText(
  first: number,
  ends: readonly number[],
  values: readonly Float64Array[],
  zeros: Zeros,
): BlockText {
  const zero = new ZeroText(zeros);
  const sparseMax = values.length > DENSE_SERIES_MAX ? SPARSE_POINTS_MAX : 0;
  const series = values.map((ofSeries) => {
    const indices = nonZero(ofSeries, sparseMax + 1);
    if (indices.length === 0) return zero;
    return indices.length <= sparseMax
      ? new SparseText(first, ends, ofSeries, indices, zeros)
      : new DenseText(first, ends, ofSeries);
  });
  return new BlockText(series);
}

/** The indices of the first values that are not zero, up to `limit` of them. */
function nonZero(values: Float64Array, limit: number): number[] {
  const indices: number[] = [];
  for (let i = 0; i < values.length && indices.length < limit; i++) if (values[i] !== 0) indices.push(i);
  return indices;
}
