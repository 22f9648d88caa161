import { type FileHandle, open } from 'node:fs/promises';
import { crc32, createInflateRaw, type InflateRaw } from 'node:zlib';

/** What one read costs besides does not show at this length. */
const READ_BYTES = 1_048_576;

/**
 * The bytes of a log file, unpacked when it is gzip, whatever its name says. A chunk is good until the next. An open
 * file is read from its start, and closed at the end.
 */
export function openLog(file: string | FileHandle): AsyncIterable<Uint8Array> {
  return unpacked(chunksOf(file));
}

/** One piece of memory for all chunks: new memory for each would cost more than reading them. */
async function* chunksOf(pathOrFile: string | FileHandle): AsyncGenerator<Uint8Array> {
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

/** The same for a stream. */
export async function* unpacked(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const chunks = stream[Symbol.asyncIterator]();
  try {
    const first = await chunks.next();
    if (first.done) return;
    const input = new PackedInput(first.value, chunks);
    if (!(await input.startsMember())) {
      yield* input.remaining();
      return;
    }
    // A gzip file may have several members. Like gzip, ignore what follows the last one: it is padding, or damage.
    do yield* member(input);
    while (await input.startsMember());
  } finally {
    await chunks.return?.();
  }
}

const MAGIC = [0x1f, 0x8b] as const;
const HEADER_BYTES = 10;
const FLAGS_AT = 3;
const HAS_EXTRA = 4;
const HAS_NAME = 8;
const HAS_COMMENT = 16;
const HAS_CHECKSUM = 2;

/** RFC 1952, section 2.3. Not createGunzip, which fails at what follows the last member and loses lines in front of it. */
async function* member(input: PackedInput): AsyncGenerator<Uint8Array> {
  const flags = (await input.take(HEADER_BYTES))[FLAGS_AT] ?? 0;
  if (flags & HAS_EXTRA) await input.take((await input.take(2)).readUInt16LE());
  if (flags & HAS_NAME) await input.skipText();
  if (flags & HAS_COMMENT) await input.skipText();
  if (flags & HAS_CHECKSUM) await input.take(2);
  const inflate = createInflateRaw({ chunkSize: INFLATED_BYTES });
  const fed = feed(inflate, input).catch((error: Error) => inflate.destroy(error));
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
    await fed;
  }
  const trailer = await input.take(8);
  if (trailer.readUInt32LE(0) !== checksum || trailer.readUInt32LE(4) !== bytes) {
    throw Object.assign(new Error('incorrect data check'), { code: 'Z_DATA_ERROR' });
  }
}

/** The most that one chunk of unpacked bytes has. */
const INFLATED_BYTES = 65_536;

/** Hands over chunks until the member ends, and leaves the bytes behind it in the input. */
async function feed(inflate: InflateRaw, input: PackedInput): Promise<void> {
  let isDone = false;
  // At the end of a member the stream ends, and never says that the chunk was written.
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

class PackedInput {
  readonly #chunks: AsyncIterator<Uint8Array>;
  /** What was read and not yet used. A chunk is good until the next is read, and the next is read when it is empty. */
  rest: Uint8Array;

  constructor(first: Uint8Array, chunks: AsyncIterator<Uint8Array>) {
    this.rest = first;
    this.#chunks = chunks;
  }

  /** False at the end. */
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
    return MAGIC.every((byte, at) => this.rest[at] === byte);
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
    if (this.rest.length < bytes) throw endsEarly();
    const taken = Buffer.from(this.rest.subarray(0, bytes));
    this.rest = this.rest.subarray(bytes);
    return taken;
  }

  /** Skips a text that ends with a zero byte. */
  async skipText(): Promise<void> {
    while (await this.fill()) {
      const end = this.rest.indexOf(0);
      this.rest = this.rest.subarray(end === -1 ? this.rest.length : end + 1);
      if (end !== -1) return;
    }
    throw endsEarly();
  }

  async #atLeast(bytes: number): Promise<void> {
    while (this.rest.length < bytes) {
      // A copy, because the memory of a chunk is used again for the next.
      const before = Buffer.from(this.rest);
      const next = await this.#chunks.next();
      if (next.done) {
        this.rest = before;
        return;
      }
      this.rest = Buffer.concat([before, next.value]);
    }
  }
}

function endsEarly(): Error {
  return Object.assign(new Error('unexpected end of file'), { code: 'Z_BUF_ERROR' });
}
