/** Reads chunks of a file in other threads before it is their turn. */
import type { ByteReader } from './byte-stream.ts';
import { type Checkpoints, chunkDigests } from './checkpoints.ts';
import type { ChunkContent, ChunkPlace, FilePart, ParsedChunk } from './chunk-parser.ts';
import { CHUNK_BYTES_MAX, cutLines, endsWithLineEnd, LineBlock, NEWLINE, wholeLinesLength } from './lines.ts';
import type { ChunkParsers } from './parser-threads.ts';
import { FileChanged, type PlainFile, type Sample } from './plain-file.ts';

/** Cuts the usual chunks: all but the end of the file, holes, and lines beyond the limit. */
interface ChunkSource {
  /** The next chunk; null before an unusual one. */
  peek(): Promise<ChunkPlace | null>;
  /** Takes the chunk that `peek` has returned. */
  take(): ChunkContent;
  /** The bytes of a chunk that was parsed. */
  bytesOf(parsed: ParsedChunk): Promise<Buffer>;
}

/** Copies chunks of a stream, because its memory is reused. */
export class StreamChunks implements ChunkSource {
  readonly #bytes: ByteReader;
  readonly #parsers: ChunkParsers;
  #insideLine: boolean;
  #next: Buffer = Buffer.alloc(0);

  constructor(bytes: ByteReader, insideLine: boolean, parsers: ChunkParsers) {
    this.#bytes = bytes;
    this.#insideLine = insideLine;
    this.#parsers = parsers;
  }

  async peek(): Promise<ChunkPlace | null> {
    // One byte more: then the next line does not fit, and a later chunk never extends this one.
    const visible = await this.#bytes.peek(CHUNK_BYTES_MAX + 1);
    const window = visible.subarray(0, CHUNK_BYTES_MAX);
    const { bytes, lines } = cutLines(window, wholeLinesLength(window), this.#insideLine, 1);
    const isUsual = visible.length > CHUNK_BYTES_MAX && lines instanceof LineBlock && endsWithLineEnd(bytes);
    if (!isUsual) return null;
    this.#next = bytes;
    const linesStart = bytes.length - lines.bytes.length;
    return { length: bytes.length, linesStart, firstNumber: lines.first };
  }

  take(): ArrayBuffer {
    const memory = this.#parsers.takeMemory();
    Buffer.from(memory).set(this.#next);
    this.#bytes.take(this.#next.length);
    this.#insideLine = false;
    return memory;
  }

  async bytesOf({ content, length }: ParsedChunk): Promise<Buffer> {
    return Buffer.from(content as ArrayBuffer, 0, length);
  }
}

/** Longer than most lines, so that one read finds the end of a chunk. */
const LAST_LINE_BYTES = 16_384;

/** Only finds the ends of chunks: threads read the file, which saves the main thread two copies. */
export class FileChunks implements ChunkSource {
  readonly #file: PlainFile;
  readonly #start: Sample;
  readonly #insideLine: boolean;
  #position: number;
  #length = 0;
  /** The end of the bytes that were searched for the end of the chunk before. */
  #searched = 0;

  constructor(file: PlainFile, start: Sample, position: number, insideLine: boolean) {
    this.#file = file;
    this.#start = start;
    this.#position = position;
    this.#insideLine = insideLine;
  }

  async peek(): Promise<ChunkPlace | null> {
    if (this.#insideLine) return null;
    const end = this.#position + CHUNK_BYTES_MAX;
    for (const length of [LAST_LINE_BYTES, CHUNK_BYTES_MAX]) {
      // One byte more, as in a stream.
      const bytes = await this.#file.read(end - length, length + 1);
      if (bytes.length <= length) return null;
      const newline = bytes.lastIndexOf(NEWLINE, length - 1);
      if (newline === -1) continue;
      this.#length = CHUNK_BYTES_MAX - length + newline + 1;
      // The chunk before would have ended here.
      if (this.#position + this.#length <= this.#searched) throw new FileChanged();
      return { length: this.#length, linesStart: 0, firstNumber: 1 };
    }
    return null;
  }

  take(): FilePart {
    const part = { fd: this.#file.fd, position: this.#position, start: this.#start };
    this.#searched = this.#position + CHUNK_BYTES_MAX;
    this.#position += this.#length;
    this.#file.report(this.#position);
    return part;
  }

  async bytesOf({ content, length, digests }: ParsedChunk): Promise<Buffer> {
    const bytes = await this.#file.read((content as FilePart).position, length);
    // The caller counts these bytes, but the next chunks follow those that the thread has hashed.
    if (chunkDigests(digests.after, bytes).id !== digests.id) throw new FileChanged();
    return bytes;
  }
}

export class ReadAhead {
  readonly #source: ChunkSource;
  readonly #checkpoints: Checkpoints;
  readonly #parsers: ChunkParsers;
  readonly #now: () => number;
  readonly #capacity: number;
  readonly #parsing: Promise<ParsedChunk>[] = [];
  #filling: Promise<void>;
  #isFirst = true;
  #hasEnded = false;
  #last: ParsedChunk | null = null;

  /** Takes chunks until `next` returns null, or `stop` resolves. */
  constructor(
    source: ChunkSource,
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

  /** The next chunk. Its memory is valid until the next call, or `stop`. Null before a chunk that the caller must read itself. */
  async next(): Promise<ParsedChunk | null> {
    this.#release(this.#last);
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

  bytesOf(parsed: ParsedChunk): Promise<Buffer> {
    return this.#source.bytesOf(parsed);
  }

  /** Takes no more chunks. Those that were taken still follow. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Resolves when the parsers have returned all memory. */
  async stop(): Promise<void> {
    this.#hasEnded = true;
    await this.#filling.catch(() => {});
    this.#release(this.#last);
    this.#last = null;
    for (const parsed of await Promise.allSettled(this.#parsing))
      if (parsed.status === 'fulfilled') this.#release(parsed.value);
  }

  #release(parsed: ParsedChunk | null): void {
    if (parsed !== null && !('fd' in parsed.content)) this.#parsers.returnMemory(parsed.content);
  }

  #fillAfter(before: Promise<void>): Promise<void> {
    const filling = before.then(() => this.#fill());
    // Reported by `next` when it is the turn of the chunk.
    filling.catch(() => {});
    return filling;
  }

  async #fill(): Promise<void> {
    while (!this.#hasEnded && this.#parsing.length < this.#capacity) {
      const place = await this.#source.peek();
      if (this.#hasEnded) return;
      const after = place !== null && this.#isFirst ? this.#checkpoints.beforeNext(place.length) : null;
      if (place === null || (this.#isFirst && after === null)) {
        this.#hasEnded = true;
        return;
      }
      this.#isFirst = false;
      const content = this.#source.take();
      const parsing = this.#parsers.parse({ ...place, content, now: this.#now(), after });
      // Reported when it is its turn.
      parsing.catch(() => {});
      this.#parsing.push(parsing);
    }
  }
}
