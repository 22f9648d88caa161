/** The bytes of a log file or stream: read, decompressed if they are compressed, and buffered. */
import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { crc32, createInflateRaw, type InflateRaw, inflateRawSync } from 'node:zlib';
import { DECOMPRESSORS, kindOf, MAGIC_BYTES, refuseCompressed } from './compression.ts';
import type { OpenFile } from './file-system.ts';

export const READ_BYTES = 1_048_576;
const READ_BYTES_MIN = 4_096;

/**
 * The content of a log file in UTF-8, decompressed if it is compressed, whatever its name. Throws CompressedInput if it is not text. Each
 * chunk is valid until the next one. A file handle is read from its current position and closed at the end. `onRead` gets
 * the number of bytes of each read. `bytes`: about how long the file is, so that a short one takes
 * little memory. `turn`: see `decompress`.
 */
export function openLog(
  file: string | OpenFile,
  onRead: (bytes: number) => void = () => {},
  bytes = READ_BYTES,
  turn?: Promise<unknown>,
): AsyncIterable<Uint8Array> {
  return decompress(readChunks(file, onRead, Math.min(READ_BYTES, bytes)), turn);
}

/** One buffer for all chunks: allocating one for each would cost more than reading. */
async function* readChunks(
  pathOrFile: string | OpenFile,
  onRead: (bytes: number) => void,
  bytes: number,
): AsyncGenerator<Uint8Array> {
  const file = typeof pathOrFile === 'string' ? await open(pathOrFile, 'r') : pathOrFile;
  try {
    const buffer = Buffer.allocUnsafeSlow(Math.max(bytes, READ_BYTES_MIN));
    for (;;) {
      // Without a position, because it may be a pipe.
      const { bytesRead } = await file.read(buffer, 0, buffer.length, null);
      if (bytesRead === 0) return;
      onRead(bytesRead);
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/**
 * Decompresses a stream, and decodes UTF-16. Throws CompressedInput if the result is not text. If many streams are read at
 * once, `turn` resolves when this one may take more memory: for a program, or for more than BEFORE_TURN_BYTES_MAX.
 */
export async function* decompress(
  stream: AsyncIterable<Uint8Array>,
  turn?: Promise<unknown>,
): AsyncGenerator<Uint8Array> {
  const input = new ByteReader(inflate(stream, turn));
  try {
    // Not more than a line: the next one may come much later.
    const start = await input.peekLine(MAGIC_BYTES);
    const isUtf16 = kindOf(start) === 'utf16';
    if (!isUtf16) refuseCompressed(start);
    yield* isUtf16 ? decodeUtf16(input.rest(), start[0] === 0xff) : input.rest();
  } finally {
    await input.close();
  }
}

/** A thousand lines. Larger files need not share commits. */
export const BEFORE_TURN_BYTES_MAX = 262_144;

async function* inflate(
  stream: AsyncIterable<Uint8Array>,
  turn?: Promise<unknown>,
): AsyncGenerator<Uint8Array> {
  const input = new ByteReader(stream);
  try {
    const kind = kindOf(await input.peekLine(MAGIC_BYTES));
    if (kind === 'gzip') {
      let bytes = 0;
      for await (const chunk of inflateGzip(input)) {
        bytes += chunk.length;
        if (bytes > BEFORE_TURN_BYTES_MAX) await turn;
        yield chunk;
      }
    } else if (kind !== null && DECOMPRESSORS[kind]) {
      await turn;
      yield* runProgram(DECOMPRESSORS[kind], input);
    } else yield* input.rest();
  } finally {
    await input.close();
  }
}

async function* inflateGzip(input: ByteReader): AsyncGenerator<Uint8Array> {
  // A gzip file may have several members. Like gzip, ignore padding or garbage after the last one.
  do yield* inflateMember(input);
  while (isGzip(await input.peek(2)));
  if (input.failure) throw input.failure;
}

/** To UTF-8. A character that is not complete at the end is left out: a file may be read while it is written. */
async function* decodeUtf16(
  stream: AsyncIterable<Uint8Array>,
  isLittleEndian: boolean,
): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder(isLittleEndian ? 'utf-16le' : 'utf-16be');
  for await (const chunk of stream) yield Buffer.from(decoder.decode(chunk, { stream: true }));
}

/** The program that decompresses a file is not installed. */
export class ProgramMissing extends Error {}

/** Passes the input through a program. Throws like gzip if it fails, after what it has written. */
async function* runProgram(
  { command: [program = '', ...args], package: name }: { command: string[]; package: string },
  input: ByteReader,
): AsyncGenerator<Uint8Array> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  const ended = new Promise<{ status: number | null; error?: NodeJS.ErrnoException }>((resolve) => {
    child.once('error', (error) => resolve({ status: null, error }));
    child.once('close', (status) => resolve({ status }));
  });
  let message = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    message = `${message}${text}`.slice(0, MESSAGE_LENGTH_MAX);
  });
  // It does not read on after damage.
  child.stdin.on('error', () => {});
  const feeding = pipeline(input.rest(), child.stdin).catch(() => {});
  try {
    yield* child.stdout;
    const { status, error } = await ended;
    if (error?.code === 'ENOENT')
      throw new ProgramMissing(`the program ${program} is not installed: install the package ${name}`);
    if (input.failure) throw input.failure;
    if (status !== 0)
      throw Object.assign(error ?? new Error(message.trim() || `${program} failed`), {
        code: 'Z_DATA_ERROR',
      });
  } finally {
    child.kill();
    child.stdin.destroy();
    await feeding;
  }
}

const MESSAGE_LENGTH_MAX = 500;

export function isGzip(bytes: Buffer): boolean {
  return bytes[0] === 0x1f && bytes[1] === 0x8b;
}

const HEADER_BYTES = 10;
const FLAGS_OFFSET = 3;
const HAS_CHECKSUM = 2;
const HAS_EXTRA = 4;
const HAS_NAME = 8;
const HAS_COMMENT = 16;
const INFLATED_CHUNK_BYTES = 65_536;

/** RFC 1952, section 2.3. createGunzip fails at garbage after the last member and loses lines before it. */
async function* inflateMember(input: ByteReader): AsyncGenerator<Uint8Array> {
  const flags = (await take(input, HEADER_BYTES))[FLAGS_OFFSET] ?? 0;
  if (flags & HAS_EXTRA) await take(input, (await take(input, 2)).readUInt16LE());
  if (flags & HAS_NAME) await skipString(input);
  if (flags & HAS_COMMENT) await skipString(input);
  if (flags & HAS_CHECKSUM) await take(input, 2);
  const whole = inflateAtOnce(await input.peek(1));
  if (whole !== null) {
    input.take(whole.taken);
    yield whole.bytes;
    await checkTrailer(input, crc32(whole.bytes), whole.bytes.length);
    return;
  }
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
  await checkTrailer(input, checksum, bytes);
}

async function checkTrailer(input: ByteReader, checksum: number, bytes: number): Promise<void> {
  const trailer = await take(input, 8);
  if (trailer.readUInt32LE(0) !== checksum || trailer.readUInt32LE(4) !== bytes) {
    throw Object.assign(new Error('incorrect data check'), { code: 'Z_DATA_ERROR' });
  }
}

/** About a millisecond of work. */
const AT_ONCE_BYTES_MAX = 16_384;
const AT_ONCE_INFLATED_BYTES_MAX = 262_144;

/** A short member that is there as a whole: a stream would take ten times as long. Null if it is longer, or damaged. */
function inflateAtOnce(input: Buffer): { bytes: Buffer; taken: number } | null {
  if (input.length === 0 || input.length > AT_ONCE_BYTES_MAX) return null;
  try {
    const inflated = inflateRawSync(input, { info: true, maxOutputLength: AT_ONCE_INFLATED_BYTES_MAX });
    // With `info`, the result is an object, which the types do not know.
    const { buffer, engine } = inflated as unknown as { buffer: Buffer; engine: InflateRaw };
    return { bytes: buffer, taken: engine.bytesWritten };
  } catch {
    return null;
  }
}

/** Writes chunks until the member ends, and leaves the bytes after it in the input. */
async function feed(inflate: InflateRaw, input: ByteReader): Promise<void> {
  let isDone = false;
  // At the end of a member the stream ends without calling back for the last write.
  const ended = new Promise<void>((resolve) => {
    inflate.once('end', resolve).once('close', resolve);
  }).then(() => {
    isDone = true;
  });
  while (!isDone) {
    const chunk = await input.peek(1);
    if (chunk.length === 0) break;
    const before = inflate.bytesWritten;
    const written = new Promise<void>((resolve) => {
      inflate.write(chunk, () => resolve());
    });
    await Promise.race([written, ended]);
    input.take(inflate.bytesWritten - before);
  }
  if (isDone) return;
  if (input.failure) throw input.failure;
  inflate.end();
}

/** Valid until the next `peek`. */
async function take(input: ByteReader, bytes: number): Promise<Buffer> {
  const next = await input.peek(bytes);
  if (next.length < bytes) throw unexpectedEnd(input);
  input.take(bytes);
  return next.subarray(0, bytes);
}

/** Skips a string that ends with a zero byte. */
async function skipString(input: ByteReader): Promise<void> {
  for (;;) {
    const next = await input.peek(1);
    if (next.length === 0) throw unexpectedEnd(input);
    const end = next.indexOf(0);
    input.take(end === -1 ? next.length : end + 1);
    if (end !== -1) return;
  }
}

function unexpectedEnd({ failure }: ByteReader): unknown {
  return failure ?? Object.assign(new Error('unexpected end of file'), { code: 'Z_BUF_ERROR' });
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

  /** Returns at least this many of the next bytes, or all that are left. Valid until the next call. */
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

  /** Returns at least one whole line, or `bytes` bytes, or all that are left. */
  async peekLine(bytes: number): Promise<Buffer> {
    let seen = this.#queue.bytes;
    while (seen.length < bytes && !this.#ended && !seen.includes('\n'))
      seen = await this.peek(seen.length + 1);
    return seen;
  }

  take(bytes: number): void {
    this.#queue.take(bytes);
  }

  /** All that is left, without copying it. */
  async *rest(): AsyncGenerator<Uint8Array> {
    yield this.#queue.bytes;
    if (this.failure) throw this.failure;
    yield* { [Symbol.asyncIterator]: () => this.#chunks };
  }

  /** Closes the stream, for a caller that stops before its end. */
  async close(): Promise<void> {
    await this.#chunks.return?.();
  }
}
