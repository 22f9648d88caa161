/** Checked reads of `cells`: a record that is damaged, or not found because a key is damaged, is an error, never a zero. */

import { compareKeys, type Database, type Key } from 'lmdb';
import { recordsRead } from '../../diagnostics.ts';
import { tryTo } from '../../lmdb/commit.ts';
import type { Level } from '../plan.ts';
import { StoreDamaged } from '../store.ts';
import {
  type BinaryTable,
  CHANGES,
  cellsKey,
  cellsSeed,
  changesOf,
  decodeChanges,
  EXACT,
  type HostRecord,
  LEVELS,
  levelRange,
  MINUTES,
  type ProjectRecord,
  type ReadOptions,
  recordName,
  type Schema,
  withoutChecksum,
} from './schema.ts';

interface ReaderOptions {
  /** The snapshot to read. Default: the latest commit. */
  read?: ReadOptions | undefined;
  /** Whether to verify that a missing record was never written (about 10 us). */
  checksAbsence?(level: number): boolean;
}

/** Reads records of one snapshot, for a query or a transaction. */
export class RecordReader {
  readonly #schema: Schema;
  readonly #read: ReadOptions | undefined;
  readonly #checksAbsence: (level: number) => boolean;
  readonly #key = Buffer.allocUnsafe(9);
  readonly #absence: AbsenceCheck;

  constructor(schema: Schema, { read, checksAbsence = () => true }: ReaderOptions = {}) {
    this.#schema = schema;
    this.#read = read;
    this.#checksAbsence = checksAbsence;
    this.#absence = new AbsenceCheck(schema.cells, checkEntry, read);
  }

  /** The sections of the record, valid until the next read. Undefined if there is none. */
  read(level: number, chunk: number, scope: number): Uint8Array | undefined {
    const stored = this.#schema.cells.getBinaryFast(cellsKey(level, chunk, scope, this.#key), this.#read);
    if (stored !== undefined) {
      recordsRead.publish(1);
      return checkedSections(level, chunk, scope, stored);
    }
    if (this.#checksAbsence(level)) this.#checkAbsence(level, chunk, scope);
    return undefined;
  }

  /** The change counter of a chunk, 0 without counters. A damaged key must not look like that. */
  changes(level: number, chunk: number): number {
    // Exact records have no change counter of their own.
    if (level === EXACT.id) return this.changes(MINUTES.id, Math.floor(chunk / MINUTES.cellsPerChunk));
    const found = changesOf(this.#schema.cells, level, chunk, this.#read);
    if (found === undefined) this.#checkAbsence(level, chunk, CHANGES);
    return found ?? 0;
  }

  #checkAbsence(level: number, chunk: number, scope: number): void {
    this.#absence.check(cellsKey(level, chunk, scope), () => recordName(level, chunk, scope));
  }
}

/**
 * A record is not found because it was never written, or because a key is damaged: its own, or one that misled the
 * search. Then the search ends next to the damaged key, or between keys that are out of order. So the neighbours are
 * checked: two intact ones prove that nothing is missing between them.
 */
export class AbsenceCheck {
  readonly #table: BinaryTable;
  readonly #checkEntry: (key: Buffer, stored: Buffer) => void;
  readonly #read: ReadOptions | undefined;
  /** Keys with nothing in between. Undefined at an end of the table. */
  #gap: { before: Buffer | undefined; after: Buffer | undefined } | null = null;

  /** `checkEntry` throws if a record does not belong to its key. */
  constructor(
    table: BinaryTable,
    checkEntry: (key: Buffer, stored: Buffer) => void,
    read: ReadOptions | undefined,
  ) {
    this.#table = table;
    this.#checkEntry = checkEntry;
    this.#read = read;
  }

  check(key: Buffer, name: () => string): void {
    if (this.#gap !== null && isBetween(this.#gap.before, key, this.#gap.after)) return;
    const [before, after] = [this.#neighbour(key, true), this.#neighbour(key, false)];
    // Without a neighbour, this is an end of the table. LMDB also treats a damaged key of length 0 as an end.
    const isEnd =
      (before !== undefined || this.#end(false)?.equals(after ?? key) !== false) &&
      (after !== undefined || this.#end(true)?.equals(before ?? key) !== false);
    if (!isEnd || !isBetween(before, key, after))
      throw new StoreDamaged(`keys are out of order next to ${name()}`);
    this.#gap = { before, after };
  }

  #neighbour(key: Buffer, reverse: boolean): Buffer | undefined {
    const [found] = this.#table.getRange({ start: key, reverse, limit: 1, ...this.#read });
    if (found) this.#checkEntry(found.key, found.value);
    return found?.key;
  }

  #end(reverse: boolean): Buffer | undefined {
    return [...this.#table.getKeys({ reverse, limit: 1, ...this.#read })][0];
  }
}

function isBetween(before: Buffer | undefined, key: Buffer, after: Buffer | undefined): boolean {
  return (!before || before.compare(key) < 0) && (!after || key.compare(after) < 0);
}

/** The same check for a JSON table. `matches` tells whether a value belongs to its key. */
export function checkAbsence<K extends Key, V>(
  table: Database<V, K>,
  key: K,
  matches: (key: K, value: V) => boolean,
): void {
  for (const reverse of [true, false]) {
    for (const { key: found, value } of table.getRange({ start: key, reverse, limit: 1 })) {
      const order = compareKeys(found, key);
      if ((reverse ? order < 0 : order > 0) && matches(found, value)) continue;
      throw new StoreDamaged(`a key next to ${JSON.stringify(key)}`);
    }
  }
}

export function matchesProjectKey(key: string, { id }: ProjectRecord): boolean {
  return id === key;
}

export function matchesHostKey([scope, hostId]: [number, string], { id, project }: HostRecord): boolean {
  return id === hostId && project === scope;
}

/** Checks any entry of the table. */
export function checkEntry(key: Buffer, stored: Buffer): void {
  const level = key[0] ?? 0;
  if (key.length !== 9 || level >= LEVELS.length) {
    throw new StoreDamaged(`invalid key ${key.toString('hex')} in the table cells`);
  }
  const [chunk, scope] = [key.readUInt32BE(1), key.readUInt32BE(5)];
  if (scope === CHANGES) decodeChanges(stored, level, chunk);
  else checkedSections(level, chunk, scope, stored);
}

/** The record without its checksum. Throws if it is damaged. */
function checkedSections(level: number, chunk: number, scope: number, stored: Uint8Array): Uint8Array {
  const sections = withoutChecksum(stored, cellsSeed(level, chunk, scope));
  if (sections === undefined) throw new StoreDamaged(recordName(level, chunk, scope));
  return sections;
}

export const SCOPES_END = 0xffff_ffff;
/** The end of chunk numbers, which damaged keys may exceed. */
export const CHUNKS_END = 0xffff_ffff;

/** The chunks of a level that have records. */
export function* chunksOf(schema: Schema, level: Level, first = 0): Generator<number> {
  let chunk = nextChunk(schema, level, first);
  for (; chunk < CHUNKS_END; chunk = nextChunk(schema, level, chunk + 1)) yield chunk;
}

/** The next chunk with records, or Infinity. */
export function nextChunk({ cells }: Schema, level: Level, from: number): number {
  const [key] = from > CHUNKS_END ? [] : cells.getKeys({ ...levelRange(level, from), limit: 1 });
  return key?.readUInt32BE(1) ?? Number.POSITIVE_INFINITY;
}

/** The records of one chunk. `sections` is null if the record is damaged. */
export function* records(
  schema: Schema,
  level: Level,
  chunk: number,
  from = CHANGES + 1,
  to = SCOPES_END,
): Generator<{ scope: number; sections: Uint8Array | null }> {
  const range = { start: cellsKey(level.id, chunk, from), end: cellsKey(level.id, chunk, to) };
  for (const { key, value } of schema.cells.getRange(range)) {
    const scope = key.readUInt32BE(5);
    const sections = tryTo(() => checkedSections(level.id, chunk, scope, value));
    yield { scope, sections };
  }
}
