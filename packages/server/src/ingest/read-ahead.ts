/** Reads chunks of a file in other threads before it is their turn. */
import { type Checkpoints, chunkDigests } from './checkpoints.ts';
import type { FilePart, ParsedChunk } from './chunk-parser.ts';
import { CHUNK_BYTES_MAX, NEWLINE } from './lines.ts';
import type { ChunkParsers } from './parser-threads.ts';
import { FileChanged, type PlainFile, type Sample } from './plain-file.ts';

/** Longer than most lines, so that one read finds the end of a chunk. */
const LAST_LINE_BYTES = 16_384;

/**
 * Cuts the usual chunks: all but the end of the file, holes, and lines beyond the limit. Only finds their ends: threads read
 * the file, which saves the main thread two copies.
 */
export class FileChunks {
  readonly #file: PlainFile;
  readonly #start: Sample;
  #position: number;
  #length = 0;
  /** The end of the bytes that were searched for the end of the chunk before. */
  #searched = 0;

  constructor(file: PlainFile, start: Sample, position: number) {
    this.#file = file;
    this.#start = start;
    this.#position = position;
  }

  /** The length of the next chunk; null before an unusual one. */
  async peek(): Promise<number | null> {
    const end = this.#position + CHUNK_BYTES_MAX;
    for (const length of [LAST_LINE_BYTES, CHUNK_BYTES_MAX]) {
      // One byte more: then the next line does not fit, and a later chunk never extends this one.
      const bytes = await this.#file.read(end - length, length + 1);
      if (bytes.length <= length) return null;
      const newline = bytes.lastIndexOf(NEWLINE, length - 1);
      if (newline === -1) continue;
      this.#length = CHUNK_BYTES_MAX - length + newline + 1;
      // The chunk before would have ended here.
      if (this.#position + this.#length <= this.#searched) throw new FileChanged();
      return this.#length;
    }
    return null;
  }

  /** Takes the chunk that `peek` has found. */
  take(): FilePart {
    const part = { fd: this.#file.fd, position: this.#position, length: this.#length, start: this.#start };
    this.#searched = this.#position + CHUNK_BYTES_MAX;
    this.#position += this.#length;
    this.#file.report(this.#position);
    return part;
  }

  /** The bytes of a chunk that was parsed. */
  async bytesOf({ part, digests }: ParsedChunk): Promise<Buffer> {
    const bytes = await this.#file.read(part.position, part.length);
    // The caller counts these bytes, but the next chunks follow those that the thread has hashed.
    if (chunkDigests(digests.after, bytes).id !== digests.id) throw new FileChanged();
    return bytes;
  }
}

export class ReadAhead {
  readonly #source: FileChunks;
  readonly #checkpoints: Checkpoints;
  readonly #parsers: ChunkParsers;
  readonly #now: () => number;
  readonly #capacity: number;
  readonly #parsing: Promise<ParsedChunk>[] = [];
  #filling: Promise<void>;
  #isFirst = true;
  #hasEnded = false;

  /** Takes chunks until `next` returns null, or `stop` resolves. */
  constructor(
    source: FileChunks,
    checkpoints: Checkpoints,
    parsers: ChunkParsers,
    capacity: number,
    now: () => number,
  ) {
    this.#source = source;
    this.#checkpoints = checkpoints;
    this.#parsers = parsers;
    this.#capacity = capacity;
    this.#now = now;
    this.#filling = this.#fillAfter(Promise.resolve());
  }

  /** The next chunk. Null before a chunk that the caller must read itself. */
  async next(): Promise<ParsedChunk | null> {
    if (this.#parsing.length === 0) await this.#filling.catch(() => {});
    const parsing = this.#parsing.shift();
    if (parsing === undefined) {
      await this.#filling;
      return null;
    }
    this.#filling = this.#fillAfter(this.#filling);
    return parsing;
  }

  /** Whether another chunk will follow: `next` will not return null. */
  get hasNext(): boolean {
    return this.#parsing.length > 0;
  }

  bytesOf(parsed: ParsedChunk): Promise<Buffer> {
    return this.#source.bytesOf(parsed);
  }

  /** Takes no more chunks. Those that were taken still follow. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Resolves when no thread reads the file. */
  async stop(): Promise<void> {
    this.#hasEnded = true;
    await this.#filling.catch(() => {});
    await Promise.allSettled(this.#parsing);
  }

  #fillAfter(before: Promise<void>): Promise<void> {
    const filling = before.then(() => this.#fill());
    // Reported by `next` when it is the turn of the chunk.
    filling.catch(() => {});
    return filling;
  }

  async #fill(): Promise<void> {
    while (!this.#hasEnded && this.#parsing.length < this.#capacity) {
      const length = await this.#source.peek();
      if (this.#hasEnded) return;
      const after = length !== null && this.#isFirst ? this.#checkpoints.beforeNext(length) : null;
      if (length === null || (this.#isFirst && after === null)) {
        this.#hasEnded = true;
        return;
      }
      this.#isFirst = false;
      const parsing = this.#parsers.parse({ part: this.#source.take(), now: this.#now(), after });
      // Reported when it is its turn.
      parsing.catch(() => {});
      this.#parsing.push(parsing);
    }
  }
}
