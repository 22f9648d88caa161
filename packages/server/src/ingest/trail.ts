/**
 * The checkpoints of a file: which of its bytes have been counted. A file is cut into pieces of whole lines; the id of a
 * piece is a hash of the id of the piece before it and of its own bytes, and the store keeps it with the counts, in
 * the same transaction. So content identifies a file, not its name: if it is ingested again, has grown, was renamed,
 * or the process crashed, only new bytes are counted.
 */
import { createHash, type Hash } from 'node:crypto';
import type { BatchLink, NewLink, Store } from '../store/store.ts';
import { contentStart, endOfHole, endOfLine, endsInsideLine, endsLine, hasContent } from './blocks.ts';

/** Small batches of a followed file grow into one piece up to this length, so that a chain stays short. */
export const PIECE_BYTES_MAX = 1_048_576;

/** How much of the first line behind holes and headers tells files apart. */
export const FIRST_LINE_BYTES_MAX = 4_096;

export interface FileSource {
  project: string;
  source: { name: string; format: string };
}

/** A chunk at this position that was already counted. */
export interface KnownPiece {
  bytes: Buffer;
  carry: string;
}

export class Checkpoints {
  readonly #store: Store;
  readonly #file: FileSource;
  /** The id of the piece before the current one, and the ids of all pieces that the store knows behind it. */
  #after = '';
  #siblings: string[] = [];
  #links: BatchLink[] = [];
  /** The current piece: what it says so far, and the id it is stored under. */
  #hash: Hash = pieceHash('');
  #extended: Hash = this.#hash;
  #bytes = 0;
  #id: string | null = null;
  #head = '';
  /** False as long as the piece is nothing but holes and headers: the first line behind them makes the head. */
  #hasHead = false;
  #flushes = 0;
  /** The last line so far has no end: what comes up to the next line end belongs to it. */
  insideLine = false;

  constructor(store: Store, file: FileSource) {
    this.#store = store;
    this.#file = file;
  }

  /** The piece that comes next and has been counted; `peek` shows at least so many of the next bytes, if they are there. */
  async known(
    peek: (bytes: number) => Promise<Buffer>,
    peekHead: (bytes: number) => Promise<Buffer> = peek,
  ): Promise<KnownPiece | null> {
    const links = await this.#store.batchesAfter(this.#file.project, this.#file.source.name, this.#after);
    this.#links = links;
    this.#siblings = links.map(({ id }) => id);
    if (links.length === 0) return null;
    // Nearly all other files are told apart by their first line, and need not be hashed.
    const heads = headsOf(await peekContent(peek, peekHead));
    const candidates = links.filter((link) => link.bytes === 0 || heads.has(link.head));
    for (const link of candidates.sort((one, other) => other.bytes - one.bytes)) {
      const bytes = (await peek(link.bytes)).subarray(0, link.bytes);
      if (bytes.length === link.bytes && saysWhat(link, this.#after, bytes)) {
        this.#begin(link.id);
        this.insideLine = endsInsideLine(bytes, this.insideLine);
        return { bytes, carry: link.carry };
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
    return longer.some((link) => link.head === firstLineHash(bytes));
  }

  /** What to append for the bytes that come next: an id, and a link that makes the current piece longer. */
  extend(bytes: Buffer, carry: string): { id: string; link: NewLink } {
    if (this.#id !== null && this.#bytes + bytes.length > PIECE_BYTES_MAX && bytes.length > 0)
      this.#begin(this.#id);
    this.#extended = this.#hash.copy().update(bytes);
    const digest = this.#extended.copy().digest('hex');
    // Without new bytes the id must be another one all the same: what was open has been counted now.
    const id = bytes.length > 0 ? digest : `${digest}+${this.#flushes + 1}`;
    const { replaces, siblings } = { replaces: this.#id ?? undefined, siblings: this.#siblings };
    const head = this.#hasHead ? this.#head : firstLineHash(bytes);
    const link = { after: this.#after, bytes: this.#bytes + bytes.length, head, carry, siblings, replaces };
    return { id, link };
  }

  /** The append of what `extend` gave last has succeeded. */
  advance(id: string, bytes: Buffer): void {
    this.#siblings = [...this.#siblings.filter((sibling) => sibling !== this.#id), id];
    if (!this.#hasHead) this.#head = firstLineHash(bytes);
    this.#hasHead ||= hasContent(bytes);
    this.#hash = this.#extended;
    this.#bytes += bytes.length;
    this.#flushes = bytes.length > 0 ? 0 : this.#flushes + 1;
    this.#id = id;
    this.insideLine = endsInsideLine(bytes, this.insideLine);
  }

  /** A new piece behind the one with this id. */
  #begin(after: string): void {
    this.#after = after;
    this.#siblings = [];
    this.#links = [];
    this.#hash = pieceHash(after);
    this.#bytes = 0;
    this.#hasHead = false;
    this.#id = null;
    this.#flushes = 0;
  }
}

function pieceHash(after: string): Hash {
  return createHash('sha256').update(after);
}

/** Up to the end of the first line behind holes and headers, or as much of it as tells files apart. */
async function peekContent(
  peek: (bytes: number) => Promise<Buffer>,
  peekHead: (bytes: number) => Promise<Buffer>,
): Promise<Buffer> {
  let bytes = await peekHead(FIRST_LINE_BYTES_MAX);
  for (;;) {
    const content = bytes.subarray(contentStart(bytes));
    if (content.length >= FIRST_LINE_BYTES_MAX || endOfLine(content) < content.length || endsLine(content))
      return bytes;
    // A pipe shows what it has, line by line. A longer hole may be of any length.
    const more = await peek(bytes.length < FIRST_LINE_BYTES_MAX ? bytes.length + 1 : PIECE_BYTES_MAX);
    if (more.length <= bytes.length || more.length >= PIECE_BYTES_MAX) return more;
    bytes = more;
  }
}

/** The heads of pieces that may begin with these bytes: also of one that ends before the first line of content. */
function headsOf(bytes: Buffer): Set<string> {
  const heads = new Set([firstLineHash(bytes)]);
  if (contentStart(bytes) > 0 || !hasContent(bytes)) {
    heads.add(hashOf(Buffer.alloc(0)));
    // Earlier releases took a header for the first line, and still earlier ones a hole for a part of the line.
    heads.add(earlierFirstLineHash(bytes));
    heads.add(lineHash(bytes));
  }
  return heads;
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

function saysWhat(link: BatchLink, after: string, bytes: Buffer): boolean {
  return link.id.split('+', 1)[0] === pieceHash(after).update(bytes).digest('hex');
}
