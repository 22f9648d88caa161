/**
 * The checkpoints of a file: which of its bytes have been counted. A file is cut into chunks of whole lines; the id of a
 * chunk is a hash of the id of the chunk before it and of its own bytes, and the store keeps it with the counts, in
 * the same transaction. So content identifies a file, not its name: if it is ingested again, has grown, was renamed,
 * or the process crashed, only new bytes are counted.
 */
import { createHash, type Hash } from 'node:crypto';
import type { BatchLink, NewLink, Store } from '../store/store.ts';
import { contentStart, endOfHole, endOfLine, endsInsideLine, endsLine, hasContent } from './blocks.ts';

/** Small batches of a followed file grow into one chunk up to this length, so that a chain stays short. */
export const CHUNK_BYTES_MAX = 1_048_576;

/** How much of the first line behind holes and headers tells files apart. */
export const FIRST_LINE_BYTES_MAX = 4_096;

export interface FileSource {
  project: string;
  source: { name: string; format: string };
}

/** A chunk at this position that was already counted. */
export interface KnownChunk {
  bytes: Buffer;
  readerState: string;
}

export class Checkpoints {
  readonly #store: Store;
  readonly #file: FileSource;
  /** The id of the chunk before the current one, and the ids of all chunks that the store knows behind it. */
  #after = '';
  #siblings: string[] = [];
  #links: BatchLink[] = [];
  /** The current chunk: what it says so far, and the id it is stored under. */
  #hash: Hash = chunkHash('');
  #extended: Hash = this.#hash;
  #bytes = 0;
  #id: string | null = null;
  #firstLineHash = '';
  /** False as long as the chunk is nothing but holes and headers: the first line behind them makes the head. */
  #hasFirstLine = false;
  #flushes = 0;
  /** The last line so far has no end: what comes up to the next line end belongs to it. */
  insideLine = false;

  constructor(store: Store, file: FileSource) {
    this.#store = store;
    this.#file = file;
  }

  /** The chunk that comes next and has been counted; `peek` shows at least so many of the next bytes, if they are there. */
  async known(
    peek: (bytes: number) => Promise<Buffer>,
    peekFirstLine: (bytes: number) => Promise<Buffer> = peek,
  ): Promise<KnownChunk | null> {
    const links = await this.#store.batchesAfter(this.#file.project, this.#file.source.name, this.#after);
    this.#links = links;
    this.#siblings = links.map(({ id }) => id);
    if (links.length === 0) return null;
    // Nearly all other files are told apart by their first line, and need not be hashed.
    const hashes = firstLineHashesOf(await peekContent(peek, peekFirstLine));
    const candidates = links.filter((link) => link.bytes === 0 || hashes.has(link.firstLineHash));
    for (const link of candidates.sort((one, other) => other.bytes - one.bytes)) {
      const bytes = (await peek(link.bytes)).subarray(0, link.bytes);
      if (bytes.length === link.bytes && hasContentOf(link, this.#after, bytes)) {
        this.#begin(link.id);
        this.insideLine = endsInsideLine(bytes, this.insideLine);
        return { bytes, readerState: link.readerState };
      }
    }
    return null;
  }

  /** Whether what comes next is only the beginning of something that was counted: a copy that was made earlier. */
  isShorterCopy(bytes: Buffer): boolean {
    // Holes and headers are all alike: with nothing behind them, there is nothing to count.
    if (bytes.length > 0 && !hasContent(bytes)) return false;
    const longer = this.#links.filter((link) => link.bytes > bytes.length);
    // Inside a file, less than a line tells nothing, but what follows there has been counted.
    if (this.#after !== '' && endOfLine(bytes) === bytes.length && !endsLine(bytes)) return longer.length > 0;
    return longer.some((link) => link.firstLineHash === firstLineHash(bytes));
  }

  /** What to append for the bytes that come next: an id, and a link that makes the current chunk longer. */
  extend(bytes: Buffer, readerState: string): { id: string; link: NewLink } {
    if (this.#id !== null && this.#bytes + bytes.length > CHUNK_BYTES_MAX && bytes.length > 0)
      this.#begin(this.#id);
    this.#extended = this.#hash.copy().update(bytes);
    const digest = this.#extended.copy().digest('hex');
    // Without new bytes the id must be another one all the same: what was open has been counted now.
    const id = bytes.length > 0 ? digest : `${digest}+${this.#flushes + 1}`;
    const { replaces, siblings } = { replaces: this.#id ?? undefined, siblings: this.#siblings };
    const ownHash = this.#hasFirstLine ? this.#firstLineHash : firstLineHash(bytes);
    const link = {
      after: this.#after,
      bytes: this.#bytes + bytes.length,
      firstLineHash: ownHash,
      readerState,
      siblings,
      replaces,
    };
    return { id, link };
  }

  /** The append of what `extend` gave last has succeeded. */
  advance(id: string, bytes: Buffer): void {
    this.#siblings = [...this.#siblings.filter((sibling) => sibling !== this.#id), id];
    if (!this.#hasFirstLine) this.#firstLineHash = firstLineHash(bytes);
    this.#hasFirstLine ||= hasContent(bytes);
    this.#hash = this.#extended;
    this.#bytes += bytes.length;
    this.#flushes = bytes.length > 0 ? 0 : this.#flushes + 1;
    this.#id = id;
    this.insideLine = endsInsideLine(bytes, this.insideLine);
  }

  /** A new chunk behind the one with this id. */
  #begin(after: string): void {
    this.#after = after;
    this.#siblings = [];
    this.#links = [];
    this.#hash = chunkHash(after);
    this.#bytes = 0;
    this.#hasFirstLine = false;
    this.#id = null;
    this.#flushes = 0;
  }
}

function chunkHash(after: string): Hash {
  return createHash('sha256').update(after);
}

/** Up to the end of the first line behind holes and headers, or as much of it as tells files apart. */
async function peekContent(
  peek: (bytes: number) => Promise<Buffer>,
  peekFirstLine: (bytes: number) => Promise<Buffer>,
): Promise<Buffer> {
  let bytes = await peekFirstLine(FIRST_LINE_BYTES_MAX);
  for (;;) {
    const content = bytes.subarray(contentStart(bytes));
    if (content.length >= FIRST_LINE_BYTES_MAX || endOfLine(content) < content.length || endsLine(content))
      return bytes;
    // A pipe shows what it has, line by line. A longer hole may be of any length.
    const more = await peek(bytes.length < FIRST_LINE_BYTES_MAX ? bytes.length + 1 : CHUNK_BYTES_MAX);
    if (more.length <= bytes.length || more.length >= CHUNK_BYTES_MAX) return more;
    bytes = more;
  }
}

/** The hashes of chunks that may begin with these bytes: also of one that ends before the first line of content. */
function firstLineHashesOf(bytes: Buffer): Set<string> {
  const hashes = new Set([firstLineHash(bytes)]);
  if (contentStart(bytes) > 0 || !hasContent(bytes)) {
    hashes.add(hashOf(Buffer.alloc(0)));
    // Earlier releases took a header for the first line, and still earlier ones a hole for a part of the line.
    hashes.add(earlierFirstLineHash(bytes));
    hashes.add(lineHash(bytes));
  }
  return hashes;
}

/**
 * Of the first line behind holes and headers, without its end, which may be yet to come; a long one is told by its
 * beginning.
 */
export function firstLineHash(bytes: Buffer): string {
  return lineHash(hasContent(bytes) ? bytes.subarray(contentStart(bytes)) : Buffer.alloc(0));
}

/** As earlier releases stored it: a header line is the first line too. */
export function earlierFirstLineHash(bytes: Buffer): string {
  return lineHash(bytes.subarray(endOfHole(bytes, 0)));
}

function lineHash(bytes: Buffer): string {
  const line = bytes.subarray(0, endOfLine(bytes));
  return hashOf(
    line.subarray(0, Math.min(endsLine(line) ? line.length - 1 : line.length, FIRST_LINE_BYTES_MAX)),
  );
}

function hashOf(text: Buffer): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

function hasContentOf(link: BatchLink, after: string, bytes: Buffer): boolean {
  return link.id.split('+', 1)[0] === chunkHash(after).update(bytes).digest('hex');
}
