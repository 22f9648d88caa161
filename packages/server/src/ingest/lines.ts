/** Lines in bytes: where they begin and end, and how a stream is cut into chunks of whole lines. */
import { ByteQueue } from './byte-stream.ts';
import { refuseCompressed } from './compression.ts';

/** Longer lines are dropped. */
export const LINE_BYTES_MAX = 1_048_576;

/** Lines that are counted in one transaction. The longest line fits into a chunk. */
export const CHUNK_BYTES_MAX = LINE_BYTES_MAX;

/** Bounds the transaction of a pushed chunk: about 50 ms if each line has a different host and minute. */
export const CHUNK_LINES_MAX = 2_048;

export const NEWLINE = 0x0a;
const NUL = 0x00;
const CARRIAGE_RETURN = 0x0d;
const HASH_SIGN = 0x23;

/** The offset of the line end, or the length if there is none. */
export function lineEnd(bytes: Buffer, from = 0): number {
  const newline = bytes.indexOf(NEWLINE, from);
  return newline === -1 ? bytes.length : newline;
}

/** The offset after the first line end, or the length if there is none. */
function nextLineStart(bytes: Buffer): number {
  return Math.min(lineEnd(bytes) + 1, bytes.length);
}

/** How many bytes are whole lines, including the last line end. */
export function wholeLinesLength(bytes: Buffer): number {
  return bytes.lastIndexOf(NEWLINE) + 1;
}

export function countLineEnds(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}

export function endsWithLineEnd(bytes: Buffer): boolean {
  return bytes[bytes.length - 1] === NEWLINE;
}

/**
 * The offset after the NUL bytes at `from`. A writer that keeps its offset after copytruncate leaves a hole before its
 * next line, as long as the log was. The hole belongs to no line.
 */
export function endOfHole(bytes: Buffer, from: number, end = bytes.length): number {
  let at = from;
  if (bytes[at] !== NUL) return at;
  // A hole can be gigabytes long; comparing whole blocks takes a tenth of the time.
  const step = ZEROS.length;
  while (at + step <= end && bytes.compare(ZEROS, 0, step, at, at + step) === 0) at += step;
  while (at < end && bytes[at] === NUL) at++;
  return at;
}

const ZEROS = Buffer.alloc(16_384);

/** Header lines are shorter: the column names of CloudFront take some 500 bytes. */
const HEADER_LINE_BYTES_MAX = 4_096;

/**
 * The offset of the first line that identifies a file: after holes, blank lines and headers like `#Version: 1.0`, which
 * all files of a log share. Stops at a header without a line end; `hasContent` is false then.
 */
export function contentStart(bytes: Buffer): number {
  let at = 0;
  for (;;) {
    at = endOfHole(bytes, at);
    if (bytes[at] === NEWLINE || bytes[at] === CARRIAGE_RETURN) at++;
    else if (bytes[at] !== HASH_SIGN) return at;
    else {
      const newline = bytes.subarray(at, at + HEADER_LINE_BYTES_MAX).indexOf(NEWLINE);
      if (newline === -1) return at;
      at += newline + 1;
    }
  }
}

/** Whether there is a line that identifies the file, or the beginning of one. */
export function hasContent(bytes: Buffer): boolean {
  const rest = bytes.subarray(contentStart(bytes));
  return rest.length > 0 && (rest[0] !== HASH_SIGN || rest.length >= HEADER_LINE_BYTES_MAX);
}

/** Whether the bytes after these continue a line; `before` says whether these bytes do. A hole begins no line. */
export function endsInsideLine(bytes: Buffer, before: boolean): boolean {
  if (endOfHole(bytes, 0) === bytes.length) return before;
  let end = bytes.length;
  while (bytes[end - 1] === NUL) end--;
  return bytes[end - 1] !== NEWLINE;
}

/** The text after the last line end. */
export function lastLineText(bytes: Buffer): string {
  return lineText(bytes, wholeLinesLength(bytes), bytes.length);
}

/** A part of a long line in a Kubernetes log: space at its end is in the middle of the line. */
const CRI_PART = /^\d{4}-\S{15,30} std(?:out|err) P[ :]/;

/** The text of a line, without a hole before it. */
export function lineText(block: Buffer, start: number, end: number): string {
  const text = block.toString('utf8', endOfHole(block, start, end), end);
  const trimmed = text.trim();
  return trimmed.length < text.length && CRI_PART.test(text) ? text : trimmed;
}

/** Consecutive lines in memory, to be read one by one, or many at once (access-lines.ts). */
export class LineBlock implements Iterable<{ number: number; text: string }> {
  readonly bytes: Buffer;
  /** The number of the first line. */
  readonly first: number;

  constructor(bytes: Buffer, first: number) {
    this.bytes = bytes;
    this.first = first;
  }

  /** Skips blank lines, but counts them. */
  *[Symbol.iterator](): Generator<{ number: number; text: string }> {
    let number = this.first;
    for (let start = 0; start < this.bytes.length; number++) {
      const end = lineEnd(this.bytes, start);
      const text = lineText(this.bytes, start, end);
      if (text.length > 0) yield { number, text };
      start = end + 1;
    }
  }
}

export interface Line {
  /** Counted from 1 in its file or request. */
  number: number;
  /** Null for a line beyond the length limit, which was not kept. */
  text: string | null;
}

/** The first lines of a window that is full or has whole lines, and the bytes that they take. */
export function cutLines(
  window: Buffer,
  wholeLines: number,
  insideLine: boolean,
  firstNumber: number,
): { bytes: Buffer; lines: Iterable<Line> } {
  // The rest of a line that was counted, or dropped for its length, when its beginning was read.
  const rest = insideLine ? nextLineStart(window) : 0;
  if (insideLine || wholeLines > 0 || window.length === 0) {
    const bytes = window.subarray(0, Math.max(rest, wholeLines));
    return { bytes, lines: new LineBlock(bytes.subarray(rest), firstNumber + (insideLine ? 1 : 0)) };
  }
  // A hole is a chunk of its own, so that the line after it may have the full length.
  const hole = endOfHole(window, 0);
  if (hole > 0) return { bytes: window.subarray(0, hole), lines: [] };
  return { bytes: window, lines: [{ number: firstNumber, text: null }] };
}

/** Line ends in the bytes before the lines: 1 after the rest of a line that was dropped for its length. */
export function lineEndsBefore(lines: Iterable<Line>, bytes: Buffer): number {
  return lines instanceof LineBlock ? countLineEnds(bytes.subarray(0, bytes.length - lines.bytes.length)) : 0;
}

export interface Chunk {
  /** Counted from 0. */
  index: number;
  bytes: number;
  /** Valid until the next call of the chunker, which reuses the memory. */
  lines: Iterable<Line>;
  lineCount: number;
  isLast: boolean;
}

/**
 * Cuts a stream into chunks of whole lines. Where a chunk ends depends only on the bytes, not on how they arrive, so a
 * stream that is sent again has the same chunks.
 */
export class Chunker {
  readonly #queue = new ByteQueue();
  /** Line ends found so far in the next chunk, and the offset after the last of them. */
  #lines = 0;
  #wholeLines = 0;
  #scanned = 0;
  #isInsideLine = false;
  #index = 0;
  #lineNumber = 1;

  add(bytes: Uint8Array): void {
    this.#queue.add(bytes);
  }

  /**
   * The next chunk. Null if its end is not known yet, or if the stream has ended and all of it was returned. Throws
   * CompressedInput if the stream is not text.
   */
  next(hasEnded: boolean): Chunk | null {
    const { length } = this.#queue.bytes;
    this.#scan(Math.min(length, CHUNK_BYTES_MAX));
    const isFull = this.#lines === CHUNK_LINES_MAX ? length > this.#wholeLines : length > CHUNK_BYTES_MAX;
    if (isFull) return this.#cut(false);
    return hasEnded && (length > 0 || this.#index === 0) ? this.#cut(true) : null;
  }

  #scan(end: number): void {
    while (this.#lines < CHUNK_LINES_MAX && this.#scanned < end) {
      const newline = this.#queue.bytes.indexOf(NEWLINE, this.#scanned);
      if (newline < 0 || newline >= end) {
        this.#scanned = end;
        return;
      }
      this.#lines++;
      this.#wholeLines = newline + 1;
      this.#scanned = newline + 1;
    }
  }

  #cut(isLast: boolean): Chunk {
    const window = this.#queue.bytes.subarray(0, CHUNK_BYTES_MAX);
    if (this.#index === 0) refuseCompressed(window);
    const wholeLines = isLast ? window.length : this.#wholeLines;
    const { bytes, lines } = cutLines(window, wholeLines, this.#isInsideLine, this.#lineNumber);
    const lineCount = this.#lines;
    this.#isInsideLine = endsInsideLine(bytes, this.#isInsideLine);
    this.#queue.take(bytes.length);
    this.#lineNumber += lineCount;
    this.#lines = 0;
    this.#wholeLines = 0;
    this.#scanned = 0;
    return { index: this.#index++, bytes: bytes.length, lines, lineCount, isLast };
  }
}

const ONES = 0x01010101;
const HIGH_BITS = 0x80808080 | 0;
const ASCII_MAX = 0x7f;
const SPACE = 0x20;

/**
 * Searches bytes four at a time and compares them eight at a time, in the byte order of the processors. One pass finds the
 * end of a word and its hash.
 */
export class Words {
  readonly bytes: Buffer;
  readonly #view: DataView;
  /** The hash of the last word that `wordEnd` found. */
  hash = 0;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /**
   * Returns the offset of the first space, or -1 if there is none. A space may be missed in the last three bytes before
   * `end`. Sets `hash`.
   */
  wordEnd(start: number, end: number): number {
    const view = this.#view;
    let hash = 0;
    for (let at = start; at + 4 <= end; at += 4) {
      const word = view.getInt32(at, true);
      const spaces = zeroBytes(word ^ (SPACE * ONES));
      if (spaces !== 0) {
        const bits = 24 - Math.clz32(spaces & -spaces);
        this.hash = (Math.imul(hash, 31) + (word & ((1 << bits) - 1))) | 0;
        return at + (bits >> 3);
      }
      hash = (Math.imul(hash, 31) + word) | 0;
    }
    return -1;
  }

  /** The offset of an ASCII byte, or -1 if it is absent, or after `stop` or a byte that is not ASCII. */
  find(byte: number, from: number, end: number, stop: number): number {
    const view = this.#view;
    const wanted = byte * ONES;
    const stops = stop * ONES;
    let at = from;
    for (; at + 4 <= end; at += 4) {
      const word = view.getInt32(at, true);
      const zeros = zeroBytes(word ^ wanted);
      const all = zeros | zeroBytes(word ^ stops) | (word & HIGH_BITS);
      if (all === 0) continue;
      const first = all & -all;
      return (first & zeros) === 0 ? -1 : at + ((31 - Math.clz32(first)) >> 3);
    }
    for (; at < end; at++) {
      const found = view.getUint8(at);
      if (found === byte) return at;
      if (found === stop || found > ASCII_MAX) return -1;
    }
    return -1;
  }

  /**
   * Whether the bytes at two offsets are the same, compared as numbers of eight bytes. Exact if both are ASCII, or one is
   * ASCII without NUL bytes: only -0 and NaN compare differently from their bytes.
   */
  isSame(one: number, other: number, length: number): boolean {
    const view = this.#view;
    const last = length - 8;
    for (let i = 0; i < last; i += 8)
      if (view.getFloat64(one + i, true) !== view.getFloat64(other + i, true)) return false;
    if (last >= 0) return view.getFloat64(one + last, true) === view.getFloat64(other + last, true);
    for (let i = 0; i < length; i++) if (view.getUint8(one + i) !== view.getUint8(other + i)) return false;
    return true;
  }
}

/** Sets the high bit of each zero byte; the lowest bit set belongs to the first one. */
function zeroBytes(word: number): number {
  return (word - ONES) & ~word & HIGH_BITS;
}
