/** Reads chunks of a file in other threads before it is their turn. */
import type { ByteReader } from './byte-stream.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { ParsedChunk } from './chunk-parser.ts';
import { CHUNK_BYTES_MAX, cutLines, endsInsideLine, LineBlock, wholeLinesLength } from './lines.ts';
import type { ChunkParsers } from './parser-threads.ts';

export class ReadAhead {
  readonly #bytes: ByteReader;
  readonly #checkpoints: Checkpoints;
  readonly #parsers: ChunkParsers;
  readonly #now: () => number;
  readonly #capacity: number;
  readonly #parsing: Promise<ParsedChunk>[] = [];
  #filling: Promise<void>;
  #insideLine: boolean;
  #isFirst = true;
  #hasEnded = false;
  #last: ParsedChunk | null = null;

  /** Takes bytes until `next` returns null, or `stop` resolves. */
  constructor(
    bytes: ByteReader,
    checkpoints: Checkpoints,
    parsers: ChunkParsers,
    capacity: number,
    now: () => number,
  ) {
    this.#bytes = bytes;
    this.#checkpoints = checkpoints;
    this.#parsers = parsers;
    this.#capacity = capacity;
    this.#now = now;
    this.#insideLine = checkpoints.insideLine;
    this.#filling = this.#fillAfter(Promise.resolve());
  }

  /** The next chunk. Its memory is valid until the next call, or `stop`. Null before a chunk that the caller must read itself. */
  async next(): Promise<ParsedChunk | null> {
    if (this.#last !== null) this.#parsers.returnMemory(this.#last.memory);
    this.#last = null;
    if (this.#parsing.length === 0) await this.#filling.catch(() => {});
    const parsing = this.#parsing.shift();
    if (parsing === undefined) {
      await this.#filling;
      return null;
    }
    this.#filling = this.#fillAfter(this.#filling);
    this.#last = await parsing;
    return this.#last;
  }

  /** Whether another chunk will follow: `next` will not return null. */
  get hasNext(): boolean {
    return this.#parsing.length > 0;
  }

  /** Takes no more bytes. Chunks that were taken still follow. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Resolves when the parsers have returned all memory. */
  async stop(): Promise<void> {
    this.#hasEnded = true;
    await this.#filling.catch(() => {});
    if (this.#last !== null) this.#parsers.returnMemory(this.#last.memory);
    this.#last = null;
    for (const parsed of await Promise.allSettled(this.#parsing)) {
      if (parsed.status === 'fulfilled') this.#parsers.returnMemory(parsed.value.memory);
    }
  }

  #fillAfter(before: Promise<void>): Promise<void> {
    const filling = before.then(() => this.#fill());
    // Reported by `next` when it is the turn of the chunk.
    filling.catch(() => {});
    return filling;
  }

  async #fill(): Promise<void> {
    while (!this.#hasEnded && this.#parsing.length < this.#capacity) {
      // If there is one byte more, the next line does not fit, and later bytes never extend this chunk.
      const visible = await this.#bytes.peek(CHUNK_BYTES_MAX + 1);
      if (this.#hasEnded) return;
      const window = visible.subarray(0, CHUNK_BYTES_MAX);
      const { bytes, lines } = cutLines(window, wholeLinesLength(window), this.#insideLine, 1);
      const after = this.#isFirst ? this.#checkpoints.beforeNext(bytes.length) : null;
      // Rare chunks are left to the caller: the end of the file, a hole, a line beyond the limit.
      const isUsual = visible.length > CHUNK_BYTES_MAX && lines instanceof LineBlock;
      if (!isUsual || (this.#isFirst && after === null)) {
        this.#hasEnded = true;
        return;
      }
      this.#isFirst = false;
      this.#insideLine = endsInsideLine(bytes, this.#insideLine);
      const memory = this.#parsers.takeMemory();
      Buffer.from(memory).set(bytes);
      const parsing = this.#parsers.parse({
        memory,
        length: bytes.length,
        linesStart: bytes.length - lines.bytes.length,
        firstNumber: lines.first,
        now: this.#now(),
        after,
      });
      // Reported when it is its turn.
      parsing.catch(() => {});
      this.#parsing.push(parsing);
      this.#bytes.take(bytes.length);
    }
  }
}
