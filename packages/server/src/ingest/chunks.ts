/**
 * Cuts a stream of log lines into chunks of whole lines. Where a chunk ends depends on the bytes alone, and not on how
 * they arrive, so that the chunks of a stream that is sent again are the same.
 */
import { endOfHole, endOfLine, LINE_BYTES_MAX, LineBlock } from './blocks.ts';
import type { Line } from './pipeline.ts';

export const CHUNK_BYTES_MAX = LINE_BYTES_MAX;
/** Bounds the time of one transaction: some 50 ms if each line is about another host and another minute. */
export const CHUNK_LINES_MAX = 2_048;

const MEMORY_BYTES_MIN = 4_096;
const NEWLINE = 0x0a;

export interface Chunk {
  /** Counted from 0. */
  index: number;
  bytes: number;
  /** To be read before the next call of the chunker, which uses the memory again. */
  lines: Iterable<Line>;
  lineCount: number;
  isLast: boolean;
}

export class Chunker {
  #memory = Buffer.alloc(0);
  /** What is there and not in a chunk yet. */
  #start = 0;
  #end = 0;
  /** Line ends that were found so far in the chunk to come, and where the last one is; relative to `#start`. */
  #lines = 0;
  #wholeLines = 0;
  #scanned = 0;
  #isInsideLine = false;
  #index = 0;
  #lineNumber = 1;

  add(bytes: Uint8Array): void {
    const length = this.#end - this.#start;
    if (this.#end + bytes.length > this.#memory.length) {
      const needed = length + bytes.length;
      // At least twice of what is there, so that bytes that come one by one are not moved each time.
      const memory =
        needed * 2 > this.#memory.length
          ? Buffer.allocUnsafeSlow(Math.max(MEMORY_BYTES_MIN, needed * 2))
          : this.#memory;
      this.#memory.copy(memory, 0, this.#start, this.#end);
      this.#memory = memory;
      this.#start = 0;
      this.#end = length;
    }
    this.#memory.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  /** The next chunk, if enough is there to know where it ends; null also when the stream has ended and all is cut. */
  next(hasEnded: boolean): Chunk | null {
    const length = this.#end - this.#start;
    this.#scan(Math.min(length, CHUNK_BYTES_MAX));
    const isFull = this.#lines === CHUNK_LINES_MAX ? length > this.#wholeLines : length > CHUNK_BYTES_MAX;
    if (isFull) return this.#cut(false);
    return hasEnded && (length > 0 || this.#index === 0) ? this.#cut(true) : null;
  }

  #scan(end: number): void {
    const bytes = this.#memory;
    while (this.#lines < CHUNK_LINES_MAX && this.#scanned < end) {
      const newline = bytes.indexOf(NEWLINE, this.#start + this.#scanned) - this.#start;
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
    const window = this.#memory.subarray(this.#start, Math.min(this.#end, this.#start + CHUNK_BYTES_MAX));
    const first = this.#lineNumber;
    const lineCount = this.#lines;
    if (isLast || this.#wholeLines > 0) {
      const bytes = isLast ? window : window.subarray(0, this.#wholeLines);
      const rest = this.#isInsideLine ? endOfLine(bytes) : 0;
      const lines = new LineBlock(bytes.subarray(rest), first + (this.#isInsideLine ? 1 : 0));
      this.#isInsideLine = false;
      return this.#take(bytes.length, lines, lineCount, isLast);
    }
    // A hole is skipped by itself, so that the line behind it can be of any length that is allowed.
    const hole = this.#isInsideLine ? 0 : endOfHole(window, 0);
    if (hole > 0) return this.#take(hole, [], 0, false);
    const lines = this.#isInsideLine ? [] : [{ number: first, text: null }];
    this.#isInsideLine = true;
    return this.#take(window.length, lines, 1, false);
  }

  #take(bytes: number, lines: Iterable<Line>, lineCount: number, isLast: boolean): Chunk {
    this.#start += bytes;
    this.#lineNumber += this.#lines;
    this.#lines = 0;
    this.#wholeLines = 0;
    this.#scanned = 0;
    return { index: this.#index++, bytes, lines, lineCount, isLast };
  }
}
