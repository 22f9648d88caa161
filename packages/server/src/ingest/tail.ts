/** One open file, counted from its last checkpoint in the store to its end, and again whenever it grows. */
import { reached } from '../rare-states.ts';
import type { FollowedPath, Store } from '../store/store.ts';
import { FIRST_BYTES, isErrorLog, type Outcome } from './batch-reader.ts';
import { Checkpoints, FIRST_LINE_BYTES_MAX, firstLineHash } from './checkpoints.ts';
import { MAGIC_BYTES, refuseCompressed } from './compression.ts';
import { addsRecord, type FileChunk, type FileIngest, isEmpty, nextChunk } from './file.ts';
import type { FileSystem, OpenFile } from './file-system.ts';
import { isWholeJson } from './formats/json.ts';
import { contentStart, countLineEnds, hasContent, LINE_BYTES_MAX } from './lines.ts';
import type { Pipeline } from './pipeline.ts';
import { hasSample, readAt, type Sample, sampleOf } from './plain-file.ts';
import { createReader, type LineReader } from './reader.ts';

/** Each read compares these bytes before the offset, and the first ones: a difference means that the file was truncated. */
const FINGERPRINT_BYTES = 256;

interface TailOptions {
  ingest: FileIngest;
  store: Store;
  pipeline: Pipeline;
  fs: FileSystem;
  /** Whether lines of an error log are counted one look later, because other logs may report the same requests. */
  holdsErrorLog?: boolean | undefined;
  counted(outcome: Outcome): void;
  /** Called when the first line of a file is counted. The result is stored in the same transaction. */
  begin(firstLineHash: string): FollowedPath;
}

/** How far a file has been counted. */
interface Progress {
  offset: number;
  /** The bytes before the offset. */
  fingerprint: Buffer;
  /** Of the first counted bytes: lines may all have the same length and the same end. */
  start: Sample | null;
  checkpoints: Checkpoints;
  reader: LineReader;
  lines: number;
  /** Null before anything is counted. */
  firstLineHash: string | null;
  /** The length of a file that ends inside a counted chunk. It is read again only if the length changes. */
  shorterCopyBytes: number | null;
}

export class Tail {
  readonly #options: TailOptions;
  readonly #handle: OpenFile;
  #progress: Progress;
  #isRotated = false;
  /** Undefined as long as its first lines do not show it. */
  #isErrorLog: boolean | undefined;
  /** The length of an error log at the end of the look before. */
  #seenBytes = 0;
  /** See `fileId`. */
  readonly id: string;

  private constructor(options: TailOptions, handle: OpenFile, id: string) {
    this.#options = options;
    this.#handle = handle;
    this.id = id;
    this.#progress = initialProgress(options);
  }

  /** `isRotated`: the file may be a copy of another one, made before all of the other was counted. */
  static async open(handle: OpenFile, options: TailOptions, isRotated: boolean): Promise<Tail> {
    const tail = new Tail(options, handle, fileId(await handle.stat()));
    await tail.locate(isRotated);
    return tail;
  }

  /** The hash of the first counted line, which a truncated file no longer has; null before anything is counted. */
  get countedFirstLineHash(): string | null {
    return this.#progress.firstLineHash;
  }

  get isErrorLog(): boolean {
    return this.#isErrorLog === true;
  }

  /** Determines again how much of the file has been counted. */
  async locate(isRotated: boolean): Promise<void> {
    this.#isRotated = isRotated;
    this.#seenBytes = 0;
    const progress = initialProgress(this.#options);
    await this.#skipCounted(progress, isRotated);
    this.#progress = progress;
  }

  async #skipCounted(progress: Progress, isRotated: boolean): Promise<void> {
    const { checkpoints } = progress;
    // Read the size once: a copy that grows between reads would look like a new file.
    const { size } = await this.#handle.stat();
    const peek = (bytes: number) =>
      readAt(this.#handle, progress.offset, Math.min(bytes, Math.max(0, size - progress.offset)));
    for (;;) {
      const known = await checkpoints.nextCounted(peek);
      if (known === null) break;
      reached('tail.resumed');
      advance(progress, known.bytes);
      progress.reader = createReader(this.#options.ingest.reader, known.readerState);
    }
    const rest = isRotated ? await peek(LINE_BYTES_MAX) : null;
    const isShorterCopy = rest !== null && checkpoints.isShorterCopy(rest);
    if (isShorterCopy) reached('tail.shorter-copy');
    progress.shorterCopyBytes = isShorterCopy ? progress.offset + rest.length : null;
  }

  /** Throws CompressedInput if nothing is counted yet and the file is not text. */
  async refuseCompressed(): Promise<void> {
    if (this.#progress.offset === 0) refuseCompressed(await readAt(this.#handle, 0, MAGIC_BYTES));
  }

  /**
   * Counts the next chunk. `more`: there is another one, or may be. `grown`: it was the last one, so far. `end`: there was
   * none. `truncated`: the counted bytes have changed.
   */
  async read(): Promise<'more' | 'grown' | 'end' | 'truncated'> {
    if (await this.#isShorterCopy()) return 'end';
    const visible = await this.#unread();
    if (visible === null) return 'truncated';
    const unread = await this.#released(visible);
    const { checkpoints, lines } = this.#progress;
    const chunk = nextChunk(unread, checkpoints.insideLine, lines + 1);
    if (!(await this.#count(chunk, 'aged'))) return 'more';
    if (chunk.unfinishedBytes > 0) reached('tail.line-unfinished');
    if (chunk.bytes.length === 0) return 'end';
    // Not another read to find out: a log that never rests would be read and counted all the time, line by line.
    return unread.length === LINE_BYTES_MAX ? 'more' : 'grown';
  }

  /**
   * Counts pending records and a last line without an end. False if another process counted them first, or the file was
   * truncated.
   */
  async finish(): Promise<boolean> {
    if (await this.#isShorterCopy()) return true;
    const unread = await this.#unread();
    if (unread === null) return false;
    const { checkpoints, lines, reader } = this.#progress;
    const trialReader = () => createReader(this.#options.ingest.reader, reader.state());
    const isWholeLine = (text: string) => isWholeJson(text) || addsRecord(text, trialReader);
    const chunk = nextChunk(unread, checkpoints.insideLine, lines + 1, isWholeLine);
    if (chunk.bytes.length > 0) reached('tail.last-line-without-end');
    return this.#count(chunk, 'all');
  }

  /** Null if the file is empty. */
  async firstLineHash(): Promise<string | null> {
    const start = await readFirstLine(this.#handle);
    return start.length === 0 ? null : firstLineHash(start);
  }

  stat() {
    return this.#handle.stat();
  }

  close(): Promise<void> {
    return this.#handle.close();
  }

  /** The next bytes; null if the file was truncated. */
  async #unread(): Promise<Buffer | null> {
    const { offset, fingerprint, start: first } = this.#progress;
    const start = offset - fingerprint.length;
    const seen = await readAt(this.#handle, start, fingerprint.length + LINE_BYTES_MAX);
    const hasStart = first === null || hasSample(this.#handle.fd, first, this.#options.fs);
    if (!hasStart || !seen.subarray(0, fingerprint.length).equals(fingerprint)) {
      reached('tail.truncated');
      return null;
    }
    // The file may have been truncated and written again during the read.
    const isSame = hasSample(this.#handle.fd, sampleOf(start, seen), this.#options.fs);
    if (!isSame) reached('tail.file-changed-during-read');
    return isSame ? seen.subarray(fingerprint.length) : null;
  }

  /** The bytes that may be counted now: of an error log, those that it had at the look before. */
  async #released(unread: Buffer): Promise<Buffer> {
    if (!this.#options.holdsErrorLog) return unread;
    const { offset } = this.#progress;
    if (this.#isErrorLog === undefined && unread.length > 0) {
      const start = await readAt(this.#handle, 0, FIRST_BYTES);
      if (isErrorLog(start)) this.#isErrorLog = true;
      else if (start.length === FIRST_BYTES) this.#isErrorLog = false;
    }
    if (!this.isErrorLog) return unread;
    const released = unread.subarray(0, Math.max(0, this.#seenBytes - offset));
    if (released.length < unread.length) this.#seenBytes = (await this.stat()).size;
    return released;
  }

  async #isShorterCopy(): Promise<boolean> {
    const { shorterCopyBytes } = this.#progress;
    if (shorterCopyBytes === null) return false;
    const { size } = await this.#handle.stat();
    // A copy that is still being written is not read from its start each time.
    if (size > shorterCopyBytes) {
      reached('tail.shorter-copy-grown');
      await this.#skipCounted(this.#progress, true);
    } else if (size < shorterCopyBytes) {
      reached('tail.shorter-copy-replaced');
      await this.locate(true);
    }
    return this.#progress.shorterCopyBytes !== null;
  }

  /**
   * False if another process counted these lines first, or the file was empty or another one when it was opened: nothing was
   * counted, and the position is determined again.
   */
  async #count({ bytes, lines }: FileChunk, flush: 'all' | 'aged'): Promise<boolean> {
    const { ingest, pipeline, counted, begin } = this.#options;
    const progress = this.#progress;
    if (bytes.length === 0 && flush === 'aged' && !pipeline.hasAged(progress.reader)) return true;
    if (!progress.checkpoints.isStartOf(bytes)) {
      reached('tail.other-start');
      await this.locate(this.#isRotated);
      return false;
    }
    // A copy of the reader: if the append fails, the lines are read again at the next look.
    const reader = createReader(ingest.reader, progress.reader.state());
    const read = pipeline.read(lines, reader, flush);
    if (bytes.length === 0 && isEmpty(read)) return true;
    const doubt = pipeline.doubt(read, ingest.project);
    if (doubt) throw doubt;
    const { id, link, summary } = progress.checkpoints.extend(bytes, reader.state());
    const result = await pipeline.count(read, {
      project: ingest.project,
      source: ingest.source,
      id,
      link,
      // Holes and headers are the same in every file.
      ...(progress.firstLineHash === null && summary.hasContent
        ? { followed: begin(summary.firstLineHash) }
        : {}),
    });
    if (result.kind !== 'counted') {
      reached(result.kind === 'conflict' ? 'tail.conflict' : 'tail.counted-elsewhere');
      // The other process may read a copy that has more lines than this file.
      await this.locate(true);
      return false;
    }
    progress.checkpoints.advance(id);
    progress.reader = reader;
    advance(progress, bytes);
    counted(result.outcome);
    return true;
  }
}

/** Device and inode, which a rename keeps. */
export function fileId({ dev, ino }: { dev: number; ino: number }): string {
  return `${dev}:${ino}`;
}

/** The first line after holes and headers, as far as it identifies the file. Empty if there is none. */
export async function readFirstLine(handle: OpenFile): Promise<Buffer> {
  let offset = 0;
  for (;;) {
    const wanted = offset === 0 ? FIRST_LINE_BYTES_MAX : LINE_BYTES_MAX;
    const bytes = await readAt(handle, offset, wanted);
    const start = contentStart(bytes);
    if (hasContent(bytes))
      return offset + start === 0 ? bytes : readAt(handle, offset + start, FIRST_LINE_BYTES_MAX);
    if (bytes.length < wanted) return Buffer.alloc(0);
    offset += start;
  }
}

function initialProgress({ store, ingest }: TailOptions): Progress {
  return {
    offset: 0,
    fingerprint: Buffer.alloc(0),
    start: null,
    checkpoints: new Checkpoints(store, ingest),
    reader: createReader(ingest.reader),
    lines: 0,
    firstLineHash: null,
    shorterCopyBytes: null,
  };
}

function advance(progress: Progress, bytes: Buffer): void {
  if (progress.firstLineHash === null && hasContent(bytes)) progress.firstLineHash = firstLineHash(bytes);
  if (progress.offset === 0) progress.start = sampleOf(0, bytes);
  progress.offset += bytes.length;
  progress.lines += countLineEnds(bytes);
  const before = bytes.length >= FINGERPRINT_BYTES ? bytes : Buffer.concat([progress.fingerprint, bytes]);
  progress.fingerprint = Buffer.from(before.subarray(Math.max(0, before.length - FINGERPRINT_BYTES)));
}
