/** Batches on disk, and the check that makes the chunks of a file count once. */
import { reached } from '../rare-states.ts';
import type { BatchLink, BatchRecord, NewLink } from './store.ts';

const START = 'start:';

/**
 * What the first chunk of a file follows: a key of how the file starts, so that among thousands of files few have to be
 * compared. '' if the start does not distinguish the file, for example before its first line is complete.
 */
export function startWith(key: string): string {
  return `${START}${key}`;
}

/** Whether a chunk that follows this is the first one of its file. */
export function isStart(after: string): boolean {
  return after === '' || after.startsWith(START);
}

/** A link with its field names on disk. */
export interface LinkRecord {
  bytes: number;
  first_line_hash: string;
  reader_state: string;
}

export function toLinkRecord({ bytes, firstLineHash, readerState }: Omit<BatchLink, 'id'>): LinkRecord {
  return { bytes, first_line_hash: firstLineHash, reader_state: readerState };
}

export function fromLinkRecord({ bytes, first_line_hash, reader_state }: LinkRecord): Omit<BatchLink, 'id'> {
  return { bytes, firstLineHash: first_line_hash, readerState: reader_state };
}

/** A batch record on disk. Its link is stored separately. */
export type StoredBatch = Pick<BatchRecord, 'day'> & { after?: string };

/** The day of a batch. */
export function dayOf(time: number): number {
  return Math.floor(time / 86_400_000);
}

/**
 * Whether the chunks around a new one are still as its reader found them: its predecessor exists, the links after that
 * are its siblings, and nothing follows the chunk that it replaces. Otherwise another process counts the same file,
 * and appending would count lines twice.
 */
export function isLinkCurrent(
  link: NewLink,
  exists: (id: string) => boolean,
  idsAfter: (id: string) => readonly string[],
): boolean {
  const siblings = new Set(link.siblings);
  const found = idsAfter(link.after);
  const hasPredecessor = isStart(link.after) || exists(link.after);
  const hasSiblings = found.length === siblings.size && found.every((id) => siblings.has(id));
  const isLast = link.replaces === undefined || idsAfter(link.replaces).length === 0;
  if (!hasPredecessor) reached('batches.predecessor-gone');
  if (!hasSiblings) reached('batches.appended-elsewhere');
  if (!isLast) reached('batches.extended-elsewhere');
  return hasPredecessor && hasSiblings && isLast;
}

/** Links of a source, by the batch that they follow. */
export class ChunkLinks {
  readonly #ids = new Map<string, Set<string>>();

  add(after: string, id: string): void {
    const ids = this.#ids.get(after);
    if (ids === undefined) this.#ids.set(after, new Set([id]));
    else ids.add(id);
  }

  delete(after: string, id: string): void {
    this.#ids.get(after)?.delete(id);
  }

  /** See `batchesAfter`. */
  idsAfter(after: string): string[] {
    if (!isStart(after)) return [...(this.#ids.get(after) ?? [])];
    const starts = after === '' ? [...this.#ids.keys()].filter(isStart) : ['', after];
    return starts.flatMap((start) => [...(this.#ids.get(start) ?? [])]);
  }
}
