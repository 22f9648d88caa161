/**
 * The checkpoints of a file: which of its bytes have been counted. A file is cut into chunks of whole lines; the ID of a
 * chunk is a hash of the ID of the chunk before it and of its own bytes, and the store keeps it with the counts, in
 * the same transaction. So a file is identified by its content, not its name: if it is ingested again, has grown, was
 * renamed, or the process crashed, only new bytes are counted.
 *
 * Reader states contain what a log says about incomplete requests, so they are stored encrypted. The key is derived from
 * the bytes of the file, too: only a process that reads the file again can decrypt them.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  type Hash,
  randomBytes,
} from 'node:crypto';
import { reached } from '../rare-states.ts';
import { isStart, startWith } from '../store/batches.ts';
import type { BatchLink, NewLink, Store } from '../store/store.ts';
import { isWholeJson } from './formats/json.ts';
import {
  CHUNK_BYTES_MAX,
  contentStart,
  endsInsideLine,
  hasContent,
  LINE_BYTES_MAX,
  lastLineText,
  lineEnd,
  NEWLINE,
} from './lines.ts';

/** How much of the first line after holes and headers identifies a file. */
export const FIRST_LINE_BYTES_MAX = 4_096;

/**
 * How much of that line finds the first chunk in the store. More than the address, time and path of an access line, and
 * less than a JSON record, so that files of JSON without line ends have a key, too. New files that share it are siblings, and
 * conflict with each other while they are counted: 2,000 of them take 15 times as long as others.
 */
const START_BYTES = 256;

export interface FileSource {
  project: string;
  source: { name: string; format: string };
}

/** Returns at least this number of the next bytes, or all that are left. */
type Peek = (bytes: number) => Promise<Buffer>;

export class Checkpoints {
  readonly #store: Store;
  readonly #file: FileSource;
  /** The ID of the chunk before the current one, or the start of the file, and all chunks after it that the store knows. */
  #after = '';
  #keyBefore: Buffer = Buffer.alloc(0);
  #siblings: string[] = [];
  #links: BatchLink[] = [];
  /** The hash of the first line that `nextCounted` has seen without its end. */
  #partialLineHash: string | null = null;
  /** The current chunk, which grows up to CHUNK_BYTES_MAX so that the chain of a followed file stays short. */
  #hash: Hash | ChunkDigests = chunkHash('');
  /** The result of the last `extend`. */
  #extended = { hash: this.#hash, summary: summaryOf(Buffer.alloc(0), false) };
  #bytes = 0;
  #id: string | null = null;
  #firstLineHash = '';
  /** False while the chunk has only holes and headers. */
  #hasFirstLine = false;
  #flushes = 0;
  /** The bytes up to the next line end belong to a line that was counted, or dropped for its length. */
  insideLine = false;

  constructor(store: Store, file: FileSource) {
    this.#store = store;
    this.#file = file;
  }

  /** The next chunk of the file and the reader state after it, if it has been counted. */
  async nextCounted(
    peek: Peek,
    peekFirstLine: Peek = peek,
  ): Promise<{ bytes: Buffer; readerState: string } | null> {
    // The first line rules out nearly all other files, so they need not be hashed.
    const start = isStart(this.#after) ? await peekContent(peek, peekFirstLine) : null;
    if (start !== null) {
      this.#after = startOf(start.subarray(0, CHUNK_BYTES_MAX));
      this.#partialLineHash =
        lineEnd(start, contentStart(start)) === start.length ? firstLineHash(start) : null;
    }
    this.#links = await this.#store.batchesAfter(this.#file.project, this.#file.source.name, this.#after);
    this.#siblings = this.#links.map(({ id }) => id);
    if (this.#links.length === 0) return null;
    return this.#findCounted(peek, start ?? (await peekContent(peek, peekFirstLine)));
  }

  async #findCounted(peek: Peek, start: Buffer): Promise<{ bytes: Buffer; readerState: string } | null> {
    const hashes = possibleFirstLineHashes(start);
    const candidates = this.#links.filter(
      (link) => link.bytes === 0 || hashes.has(link.firstLineHash) || beginsFirstLine(link, start),
    );
    if (candidates.length > 1) reached('checkpoints.several-candidates');
    for (const link of candidates.sort((one, other) => other.bytes - one.bytes)) {
      const bytes = (await peek(link.bytes)).subarray(0, link.bytes);
      if (bytes.length < link.bytes) {
        reached('checkpoints.file-shorter-than-chunk');
        continue;
      }
      const hash = chunkHash(this.#after).update(bytes);
      if (!hasHash(link, hash)) {
        reached('checkpoints.candidate-differs');
        continue;
      }
      if (beginsFirstLine(link, start)) reached('checkpoints.first-line-has-grown');
      if (link.readerState !== '') reached('checkpoints.reader-state-restored');
      const key = stateKey(this.#keyBefore, hash);
      this.#begin(link.id, key);
      this.insideLine = continuesLine(bytes, this.insideLine);
      return { bytes, readerState: decryptState(link.readerState, key) };
    }
    return null;
  }

  /** Whether the next bytes are only the beginning of a counted chunk: the file is a copy that was made earlier. */
  isShorterCopy(bytes: Buffer): boolean {
    // Holes and headers are the same in every file.
    if (bytes.length > 0 && !hasContent(bytes)) return false;
    const longer = this.#links.filter((link) => link.bytes > bytes.length);
    // After counted chunks, part of a line identifies nothing, but the chunk that continues there was counted.
    if (!isStart(this.#after) && lineEnd(bytes) === bytes.length) return longer.length > 0;
    return longer.some((link) => link.firstLineHash === firstLineHash(bytes));
  }

  /**
   * Whether the next bytes are those of the file that `nextCounted` has looked for: it may have been empty, or have been
   * replaced. Otherwise its chunks must be looked for again.
   */
  isStartOf(bytes: Buffer | ChunkDigests): boolean {
    if (this.#id !== null || !isStart(this.#after)) return true;
    const start = 'after' in bytes ? bytes.start : startOf(bytes);
    // A hole, or headers, before a line that only `nextCounted` has seen.
    const isBeforeContent = start === '' && !('after' in bytes ? bytes.hasContent : hasContent(bytes));
    // Counted chunks were not found by a part of their first line.
    const lineHash = 'after' in bytes ? bytes.firstLineHash : firstLineHash(bytes);
    const isSameLine = this.#partialLineHash === null || this.#partialLineHash === lineHash;
    return isBeforeContent || (start === this.#after && isSameLine);
  }

  /** The ID of the chunk before the next bytes, '' for the first chunk; null if they extend the current chunk. */
  beforeNext(bytes: number): string | null {
    if (this.#id === null) return idBefore(this.#after);
    return this.#bytes + bytes > CHUNK_BYTES_MAX && bytes > 0 ? this.#id : null;
  }

  /**
   * The ID and the link under which to append the next bytes, which extend the current chunk. Pass digests instead of bytes
   * for a whole chunk that no later bytes will extend.
   */
  extend(
    bytes: Buffer | ChunkDigests,
    readerState: string,
  ): { id: string; link: NewLink; summary: ChunkSummary } {
    const before = this.beforeNext(bytes.length);
    if (before !== null && this.#id !== null) {
      reached('checkpoints.chunk-full');
      this.#begin(before, stateKey(this.#keyBefore, this.#hash));
    }
    const hash = 'after' in bytes ? bytes : extended(this.#hash, bytes);
    if ('after' in hash && hash.after !== before) throw new Error('the digests follow another chunk');
    const summary = 'after' in bytes ? bytes : summaryOf(bytes, this.insideLine);
    this.#extended = { hash, summary };
    const link = {
      after: this.#after,
      bytes: this.#bytes + bytes.length,
      firstLineHash: this.#hasFirstLine ? this.#firstLineHash : summary.firstLineHash,
      readerState: encryptState(readerState, () => stateKey(this.#keyBefore, hash)),
      siblings: this.#siblings,
      replaces: this.#id ?? undefined,
    };
    const digest = idOf(hash);
    // A flush of pending records has no new bytes, but needs a new ID.
    return { id: bytes.length > 0 ? digest : `${digest}+${this.#flushes + 1}`, link, summary };
  }

  /** Must be called when the result of the last `extend` has been appended. */
  advance(id: string): void {
    const { hash, summary } = this.#extended;
    this.#siblings = [...this.#siblings.filter((sibling) => sibling !== this.#id), id];
    if (!this.#hasFirstLine) this.#firstLineHash = summary.firstLineHash;
    this.#hasFirstLine ||= summary.hasContent;
    this.#hash = hash;
    this.#bytes += summary.length;
    this.#flushes = summary.length > 0 ? 0 : this.#flushes + 1;
    this.#id = id;
    this.insideLine = summary.endsInsideLine;
  }

  #begin(after: string, key: Buffer): void {
    this.#after = after;
    this.#keyBefore = key;
    this.#siblings = [];
    this.#links = [];
    this.#hash = chunkHash(after);
    this.#bytes = 0;
    this.#hasFirstLine = false;
    this.#id = null;
    this.#flushes = 0;
  }
}

/** What a checkpoint needs of some bytes, besides their hash. */
interface ChunkSummary {
  length: number;
  firstLineHash: string;
  hasContent: boolean;
  endsInsideLine: boolean;
}

function summaryOf(bytes: Buffer, insideLine: boolean): ChunkSummary {
  return {
    length: bytes.length,
    firstLineHash: firstLineHash(bytes),
    hasContent: hasContent(bytes),
    endsInsideLine: continuesLine(bytes, insideLine),
  };
}

/**
 * Whether the bytes after these belong to a line that needs no further reading. Bytes after whole JSON are read as a line of
 * their own: more objects may follow without a line end, as when one file of objects is appended to another.
 */
function continuesLine(bytes: Buffer, before: boolean): boolean {
  if (!endsInsideLine(bytes, before)) return false;
  const isDropped = bytes.indexOf(NEWLINE) === -1 && (before || bytes.length >= LINE_BYTES_MAX);
  return isDropped || !isWholeJson(lastLineText(bytes));
}

/** Everything that is computed from the bytes of a whole chunk, so that another thread can do it. */
export interface ChunkDigests extends ChunkSummary {
  /** The ID of the chunk before it. */
  after: string;
  id: string;
  /** See `startOf`. */
  start: string;
  /** The input of `stateKey`. */
  state: Uint8Array;
}

/** Computes the digests of a chunk, whose last line must have its end. */
export function chunkDigests(after: string, bytes: Buffer): ChunkDigests {
  const hash = chunkHash(after).update(bytes);
  return {
    ...summaryOf(bytes, false),
    after,
    id: idOf(hash),
    start: startOf(bytes),
    state: stateDigest(hash),
  };
}

/** `after` is an ID, or a start, which is not a part of the hash. */
function chunkHash(after: string): Hash {
  return createHash('sha256').update(idBefore(after));
}

function idBefore(after: string): string {
  return isStart(after) ? '' : after;
}

/** What the first chunk of a file with these first bytes follows. It does not change while the file grows, once it is known. */
export function startOf(bytes: Buffer): string {
  const content = bytes.subarray(contentStart(bytes));
  const line = content.subarray(0, Math.min(lineEnd(content), START_BYTES));
  const isKnown = hasContent(bytes) && (line.length === START_BYTES || line.length < content.length);
  return isKnown ? startWith(createHash('sha256').update(line).digest('hex').slice(0, 16)) : '';
}

function extended(hash: Hash | ChunkDigests, bytes: Buffer): Hash {
  if ('after' in hash) throw new Error('only the digests of the chunk are known, so it cannot grow');
  return hash.copy().update(bytes);
}

function idOf(chunk: Hash | ChunkDigests): string {
  return 'after' in chunk ? chunk.id : chunk.copy().digest('hex');
}

/**
 * The added text makes the key differ from the ID, which is stored. No chunk ends with it, because it has no line end and
 * is not a record.
 */
function stateDigest(chunk: Hash | ChunkDigests): Uint8Array {
  return 'after' in chunk ? chunk.state : chunk.copy().update('reader state').digest();
}

function hasHash(link: BatchLink, hash: Hash): boolean {
  return link.id.split('+', 1)[0] === hash.copy().digest('hex');
}

/** Keys are chained, because a state can contain what earlier chunks say, and a short chunk could be guessed. */
function stateKey(keyBefore: Buffer, chunk: Hash | ChunkDigests): Buffer {
  return createHmac('sha256', keyBefore).update(stateDigest(chunk)).digest();
}

const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

function encryptState(state: string, key: () => Buffer): string {
  if (state === '') return '';
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key(), nonce);
  const encrypted = [nonce, cipher.update(state), cipher.final(), cipher.getAuthTag()];
  return Buffer.concat(encrypted).toString('base64');
}

function decryptState(text: string, key: Buffer): string {
  if (text === '') return '';
  const bytes = Buffer.from(text, 'base64');
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES));
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
  return decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
}

/** The bytes up to the end of the first line after holes and headers, or FIRST_LINE_BYTES_MAX of it. */
async function peekContent(peek: Peek, peekFirstLine: Peek): Promise<Buffer> {
  let bytes = await peekFirstLine(FIRST_LINE_BYTES_MAX);
  for (;;) {
    const content = bytes.subarray(contentStart(bytes));
    if (content.length >= FIRST_LINE_BYTES_MAX || lineEnd(content) < content.length) return bytes;
    // A pipe shows line by line what it has. A longer hole may have any length.
    const more = await peek(bytes.length < FIRST_LINE_BYTES_MAX ? bytes.length + 1 : CHUNK_BYTES_MAX);
    if (more.length <= bytes.length || more.length >= CHUNK_BYTES_MAX) return more;
    bytes = more;
  }
}

/** The hashes of chunks that may begin with these bytes, including one that ends before the first line of content. */
function possibleFirstLineHashes(bytes: Buffer): Set<string> {
  const hashes = new Set([firstLineHash(bytes)]);
  if (contentStart(bytes) > 0 || !hasContent(bytes)) hashes.add(lineHash(Buffer.alloc(0)));
  return hashes;
}

/** Whether the chunk may have ended inside the first line, which was counted without its line end and has grown since. */
function beginsFirstLine({ bytes, firstLineHash: hash }: BatchLink, start: Buffer): boolean {
  const from = contentStart(start);
  return bytes > from && bytes < lineEnd(start, from) && hash === firstLineHash(start.subarray(0, bytes));
}

/** The hash of the first line after holes and headers, without its line end, which may not have been written yet. */
export function firstLineHash(bytes: Buffer): string {
  return lineHash(hasContent(bytes) ? bytes.subarray(contentStart(bytes)) : Buffer.alloc(0));
}

function lineHash(bytes: Buffer): string {
  const line = bytes.subarray(0, Math.min(lineEnd(bytes), FIRST_LINE_BYTES_MAX));
  return createHash('sha256').update(line).digest('hex').slice(0, 16);
}
