/** The bytes of a log file or stream: read, decompressed if they are gzip, and buffered. */
import { type FileHandle, open } from 'node:fs/promises';
import { crc32, createInflateRaw, type InflateRaw } from 'node:zlib';

const READ_BYTES = 1_048_576;

/**
 * The content of a log file, decompressed if it is gzip, whatever its name. Each chunk is valid until the next one. A
 * file handle is read from its current position and closed at the end.
 */
export function openLog(file: string | FileHandle): AsyncIterable<Uint8Array> {
  return decompress(readChunks(file));
}

/** One buffer for all chunks: allocating one for each would cost more than reading. */
async function* readChunks(pathOrFile: string | FileHandle): AsyncGenerator<Uint8Array> {
  const file = typeof pathOrFile === 'string' ? await open(pathOrFile, 'r') : pathOrFile;
  try {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    for (;;) {
      // Without a position, because it may be a pipe.
      const { bytesRead } = await file.read(buffer, 0, READ_BYTES, null);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** Decompresses a stream if it is gzip. */
export async function* decompress(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const chunks = stream[Symbol.asyncIterator]();
  try {
    const input = new GzipInput(chunks);
    if (!(await input.startsMember())) {
      yield* input.remaining();
      return;
    }
    // A gzip file may have several members. Like gzip, ignore padding or garbage after the last one.
    do yield* inflateMember(input);
    while (await input.startsMember());
  } finally {
    await chunks.return?.();
  }
}

const MAGIC = [0x1f, 0x8b] as const;
const HEADER_BYTES = 10;
const FLAGS_OFFSET = 3;
const HAS_CHECKSUM = 2;
const HAS_EXTRA = 4;
const HAS_NAME = 8;
const HAS_COMMENT = 16;
const INFLATED_CHUNK_BYTES = 65_536;

/** RFC 1952, section 2.3. createGunzip fails at garbage after the last member and loses lines before it. */
async function* inflateMember(input: GzipInput): AsyncGenerator<Uint8Array> {
  const flags = (await input.take(HEADER_BYTES))[FLAGS_OFFSET] ?? 0;
  if (flags & HAS_EXTRA) await input.take((await input.take(2)).readUInt16LE());
  if (flags & HAS_NAME) await input.skipString();
  if (flags & HAS_COMMENT) await input.skipString();
  if (flags & HAS_CHECKSUM) await input.take(2);
  const inflate = createInflateRaw({ chunkSize: INFLATED_CHUNK_BYTES });
  const feeding = feed(inflate, input).catch((error: Error) => inflate.destroy(error));
  let checksum = 0;
  let bytes = 0;
  try {
    for await (const chunk of inflate) {
      checksum = crc32(chunk, checksum);
      bytes = (bytes + chunk.length) % 2 ** 32;
      yield chunk;
    }
  } finally {
    inflate.destroy();
    await feeding;
  }
  const trailer = await input.take(8);
  if (trailer.readUInt32LE(0) !== checksum || trailer.readUInt32LE(4) !== bytes) {
    throw Object.assign(new Error('incorrect data check'), { code: 'Z_DATA_ERROR' });
  }
}

/** Writes chunks until the member ends, and leaves the bytes after it in the input. */
async function feed(inflate: InflateRaw, input: GzipInput): Promise<void> {
  let isDone = false;
  // At the end of a member the stream ends without calling back for the last write.
  const ended = new Promise<void>((resolve) => {
    inflate.once('end', resolve).once('close', resolve);
  }).then(() => {
    isDone = true;
  });
  while (!isDone && (await input.fill())) {
    const chunk = input.rest;
    const before = inflate.bytesWritten;
    const written = new Promise<void>((resolve) => {
      inflate.write(chunk, () => resolve());
    });
    await Promise.race([written, ended]);
    input.rest = chunk.subarray(inflate.bytesWritten - before);
  }
  if (!isDone) inflate.end();
}

class GzipInput {
  readonly #chunks: AsyncIterator<Uint8Array>;
  /** Read and not used yet: a view of the last chunk, which is valid until the next one is read. */
  rest: Uint8Array = new Uint8Array();

  constructor(chunks: AsyncIterator<Uint8Array>) {
    this.#chunks = chunks;
  }

  /** False at the end of the input. */
  async fill(): Promise<boolean> {
    while (this.rest.length === 0) {
      const next = await this.#chunks.next();
      if (next.done) return false;
      this.rest = next.value;
    }
    return true;
  }

  async startsMember(): Promise<boolean> {
    await this.#atLeast(MAGIC.length);
    return MAGIC.every((byte, i) => this.rest[i] === byte);
  }

  async *remaining(): AsyncGenerator<Uint8Array> {
    while (await this.fill()) {
      const chunk = this.rest;
      this.rest = new Uint8Array();
      yield chunk;
    }
  }

  async take(bytes: number): Promise<Buffer> {
    await this.#atLeast(bytes);
    if (this.rest.length < bytes) throw unexpectedEnd();
    const taken = Buffer.from(this.rest.subarray(0, bytes));
    this.rest = this.rest.subarray(bytes);
    return taken;
  }

  /** Skips a string that ends with a zero byte. */
  async skipString(): Promise<void> {
    while (await this.fill()) {
      const end = this.rest.indexOf(0);
      this.rest = this.rest.subarray(end === -1 ? this.rest.length : end + 1);
      if (end !== -1) return;
    }
    throw unexpectedEnd();
  }

  async #atLeast(bytes: number): Promise<void> {
    while ((await this.fill()) && this.rest.length < bytes) {
      // A copy, because the next chunk reuses the memory.
      const before = Buffer.from(this.rest);
      const next = await this.#chunks.next();
      this.rest = next.done ? before : Buffer.concat([before, next.value]);
      if (next.done) return;
    }
  }
}

function unexpectedEnd(): Error {
  return Object.assign(new Error('unexpected end of file'), { code: 'Z_BUF_ERROR' });
}

const QUEUE_BYTES_MIN = 4_096;

/** Bytes that wait to be taken, in memory that is reused. */
export class ByteQueue {
  #memory = Buffer.allocUnsafeSlow(0);
  /** Valid until the next `add`. */
  bytes: Buffer = this.#memory;

  add(chunk: Uint8Array): void {
    const waiting = this.bytes;
    const length = waiting.length + chunk.length;
    let start = waiting.byteOffset;
    if (start + length > this.#memory.length) {
      start = 0;
      // Twice as much, so that bytes that arrive one by one are not moved each time.
      if (length > this.#memory.length)
        this.#memory = Buffer.allocUnsafeSlow(Math.max(QUEUE_BYTES_MIN, 2 * length));
      this.#memory.set(waiting, 0);
    }
    this.#memory.set(chunk, start + waiting.length);
    this.bytes = this.#memory.subarray(start, start + length);
  }

  take(bytes: number): void {
    this.bytes = this.bytes.subarray(bytes);
  }
}

/** Lets a caller look at the next bytes of a stream before taking them. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #queue = new ByteQueue();
  #ended = false;
  /** The error that ended the stream early. */
  failure: unknown = null;

  constructor(stream: AsyncIterable<Uint8Array>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** At least `bytes` of the next bytes, or all that are left. Valid until the next call. */
  async peek(bytes: number): Promise<Buffer> {
    while (this.#queue.bytes.length < bytes && !this.#ended) {
      const next = await this.#chunks.next().catch((error: unknown) => {
        // The bytes before it are valid. Callers check `failure` at the end.
        this.failure = error;
        return { done: true } as const;
      });
      if (next.done) this.#ended = true;
      else this.#queue.add(next.value);
    }
    return this.#queue.bytes;
  }

  /** At least one whole line, or `bytes`, or all that are left. */
  async peekLine(bytes: number): Promise<Buffer> {
    let seen = this.#queue.bytes;
    while (seen.length < bytes && !this.#ended && !seen.includes('\n'))
      seen = await this.peek(seen.length + 1);
    return seen;
  }

  take(bytes: number): void {
    this.#queue.take(bytes);
  }

  /** Closes the stream, for a caller that stops before its end. */
  async close(): Promise<void> {
    await this.#chunks.return?.();
  }
}
