/** A log file that is not compressed. It may be truncated and written again while it is read. */
import { reached } from '../rare-states.ts';
import { openLog, READ_BYTES } from './byte-stream.ts';
import { CompressedInput, isRead, kindOf } from './compression.ts';
import { type FileSystem, NODE_FILES, type OpenFile } from './file-system.ts';
import { endOfHole } from './lines.ts';

/** A file was truncated or overwritten while it was read. Nothing was counted wrongly; a new run counts the rest. */
export class FileChanged extends Error {
  constructor() {
    super('the file was truncated or overwritten while it was read');
    reached('file.changed-during-read');
  }
}

/** Bytes that a file had, usually its first ones. Other bytes in their place mean that it was truncated and written again. */
export interface Sample {
  offset: number;
  bytes: Uint8Array;
}

/** More than the headers of a log and its first line usually take. */
const SAMPLE_BYTES = 4_096;

/**
 * A sample of the bytes that a file has at the offset: the first ones after a hole, and the end of the hole. If the hole has
 * become shorter during the read, the bytes after it are from the middle of the new content.
 */
export function sampleOf(offset: number, bytes: Buffer): Sample {
  const hole = endOfHole(bytes, 0);
  const start = Math.max(0, hole - (hole === bytes.length ? SAMPLE_BYTES : 1));
  return { offset: offset + start, bytes: Uint8Array.from(bytes.subarray(start, start + SAMPLE_BYTES)) };
}

/**
 * Whether a file still has these bytes. Called after each read of other bytes, not before it: the file can change during the
 * read. Lines that are added change nothing.
 */
export function hasSample(fd: number, { offset, bytes }: Sample, fs = NODE_FILES): boolean {
  const now = Buffer.allocUnsafe(bytes.length);
  return fillSync(fd, offset, now, fs) && now.equals(bytes);
}

/** Returns false if the file ends before the buffer is full. */
export function fillSync(fd: number, offset: number, buffer: Buffer, { readSync } = NODE_FILES): boolean {
  for (let length = 0; length < buffer.length; ) {
    const bytesRead = readSync(fd, buffer, length, buffer.length - length, offset + length);
    if (bytesRead === 0) return false;
    length += bytesRead;
  }
  return true;
}

/** Returns fewer bytes if the file ends before. */
export async function readAt(handle: OpenFile, offset: number, bytes: number): Promise<Buffer> {
  const buffer = spare.length >= bytes ? spare : Buffer.allocUnsafeSlow(bytes);
  spare = Buffer.alloc(0);
  let length = 0;
  while (length < bytes) {
    const { bytesRead } = await handle.read(buffer, length, bytes - length, offset + length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  if (buffer.length > spare.length) spare = buffer;
  return Buffer.from(buffer.subarray(0, length));
}

/** `follow` asks for a megabyte at each look, and mostly gets nothing: allocating it took half of the time. */
let spare = Buffer.alloc(0);

/** A regular file that is not compressed: it can be read at any offset, also by other threads. */
export class PlainFile implements AsyncIterable<Uint8Array> {
  readonly #handle: OpenFile;
  readonly #onRead: (bytes: number) => void;
  readonly #readBytes: number;
  readonly #fs: FileSystem;
  /** `onRead` has reported all bytes before this offset. */
  #reported = 0;
  #start: Sample = { offset: 0, bytes: new Uint8Array(0) };

  /** `bytes`: about how long the file is, so that a short one takes little memory. */
  constructor(
    handle: OpenFile,
    onRead: (bytes: number) => void = () => {},
    bytes = READ_BYTES,
    fs = NODE_FILES,
  ) {
    this.#handle = handle;
    this.#onRead = onRead;
    this.#fs = fs;
    this.#readBytes = Math.min(READ_BYTES, Math.max(SAMPLE_BYTES, bytes));
  }

  /** A PlainFile, or the content of a compressed file (`turn`: see `decompress`). Throws CompressedInput if it is an archive. */
  static async open(
    path: string,
    onRead?: (bytes: number) => void,
    bytes?: number,
    turn?: Promise<unknown>,
    fs = NODE_FILES,
  ): Promise<AsyncIterable<Uint8Array>> {
    const handle = await fs.open(path);
    const file = new PlainFile(handle, onRead, bytes, fs);
    try {
      const start = await file.read(0, SAMPLE_BYTES);
      file.#start = sampleOf(0, start);
      const kind = kindOf(start);
      if (kind === null) return file;
      if (!isRead(kind)) throw new CompressedInput(kind);
    } catch (error) {
      await file.close();
      throw error;
    }
    return openLog(handle, onRead, bytes, turn);
  }

  get fd(): number {
    return this.#handle.fd;
  }

  /** Null while only NUL bytes were read: they do not identify a file. */
  get start(): Sample | null {
    return this.#start.bytes.some((byte) => byte !== 0) ? this.#start : null;
  }

  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    return this.from(0);
  }

  /** Each chunk is valid until the next one. Throws FileChanged if the file no longer has its start. */
  async *from(offset: number): AsyncGenerator<Uint8Array> {
    const buffer = Buffer.allocUnsafeSlow(this.#readBytes);
    for (let position = offset; ; ) {
      const { bytesRead } = await this.#handle.read(buffer, 0, buffer.length, position);
      const bytes = buffer.subarray(0, bytesRead);
      const known = this.#start;
      if (position === 0 || this.start === null) this.#start = sampleOf(position, bytes);
      const isSame = [known, this.#start].every((sample) => hasSample(this.fd, sample, this.#fs));
      if (!isSame) throw new FileChanged();
      if (bytesRead === 0) return;
      position += bytesRead;
      this.report(position);
      yield bytes;
    }
  }

  /** Returns fewer bytes if the file ends before. */
  read(position: number, length: number): Promise<Buffer> {
    return readAt(this.#handle, position, length);
  }

  /** The file is read up to this offset. */
  report(position: number): void {
    if (position > this.#reported) this.#onRead(position - this.#reported);
    this.#reported = Math.max(position, this.#reported);
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}
