/** Records of `cells`, checked: what is damaged, or missing because a key is damaged, is an error and never a zero. */
import { compareKeys, type Database, type Key } from 'lmdb';
import { StoreDamaged } from '../store.ts';
import { isWellFormed } from './cells.ts';
import { hasChecksum, unseal } from './checksum.ts';
import { EXACT, LEVELS } from './levels.ts';
import {
  CHANGES,
  cellsKey,
  cellsSeed,
  decodeChanges,
  type HostRecord,
  mayLackChecksums,
  type ProjectRecord,
  type ReadOptions,
  recordName,
  type Schema,
} from './schema.ts';
import { SCOPES_MAX } from './tally.ts';

interface Options {
  /** The snapshot to read; without one, the latest commit. */
  read?: ReadOptions | undefined;
  /** Whether to verify that a missing record was never written (about 10 us). */
  checksAbsence?(level: number): boolean;
  /** What is known to be absent already, and at which count of changes. */
  known?: { absences: KnownAbsences; changes: number } | undefined;
}

/** Exact records that are not there: unlike counters they are looked up in each query. */
export class KnownAbsences {
  readonly #changes = new Map<number, number>();

  has(chunk: number, scope: number, changes: number): boolean {
    return this.#changes.get(chunk * SCOPES_MAX + scope) === changes;
  }

  add(chunk: number, scope: number, changes: number): void {
    if (this.#changes.size >= ABSENCES_MAX) this.#changes.clear();
    this.#changes.set(chunk * SCOPES_MAX + scope, changes);
  }
}

/** Some 400 KB. */
const ABSENCES_MAX = 10_000;

/** Keys of one chunk between which there is nothing, both ends excluded. */
interface Gap {
  level: number;
  chunk: number;
  after: number;
  before: number;
}

/** For reads of one snapshot: a query, a transaction. */
export class RecordReader {
  readonly #schema: Schema;
  readonly #read: ReadOptions | undefined;
  readonly #checksAbsence: (level: number) => boolean;
  readonly #known: Options['known'];
  readonly #key = Buffer.allocUnsafe(9);
  #gap: Gap = { level: -1, chunk: -1, after: 0, before: 0 };

  constructor(schema: Schema, { read, checksAbsence = () => true, known }: Options = {}) {
    this.#schema = schema;
    this.#read = read;
    this.#known = known;
    this.#checksAbsence = checksAbsence;
  }

  /** The sections of the record, which the next read overwrites; undefined when there is none. */
  read(level: number, chunk: number, scope: number): Uint8Array | undefined {
    const stored = this.#schema.cells.getBinaryFast(cellsKey(level, chunk, scope, this.#key), this.#read);
    if (stored !== undefined) return checkedSections(this.#schema, level, chunk, scope, stored);
    if (!this.#checksAbsence(level)) return undefined;
    const known = level === EXACT.id ? this.#known : undefined;
    if (known?.absences.has(chunk, scope, known.changes)) return undefined;
    this.checkAbsence(level, chunk, scope);
    known?.absences.add(chunk, scope, known.changes);
    return undefined;
  }

  /**
   * A record is not found either because it was never written, or because a key was damaged: its own, or one that led
   * the search astray. In the latter case the search ends beside the damaged key, or between keys out of order. So the
   * neighbours tell. Two intact ones vouch for everything between them.
   */
  checkAbsence(level: number, chunk: number, scope: number): void {
    const gap = this.#gap;
    if (gap.level === level && gap.chunk === chunk && gap.after < scope && scope < gap.before) return;
    const key = cellsKey(level, chunk, scope);
    const before = this.#neighbour(key, true);
    const after = this.#neighbour(key, false);
    // Without a neighbour this is an end of the table. LMDB also takes a damaged key of no length for one.
    const isEnd =
      (before !== undefined || this.#end(false)?.equals(after ?? key) !== false) &&
      (after !== undefined || this.#end(true)?.equals(before ?? key) !== false);
    if (!isEnd || (before && before.compare(key) >= 0) || (after && after.compare(key) <= 0)) {
      throw new StoreDamaged(
        `keys of the table cells are out of order beside ${recordName(level, chunk, scope)}`,
      );
    }
    const isOfChunk = (other: Buffer | undefined) => other?.[0] === level && other.readUInt32BE(1) === chunk;
    this.#gap = {
      level,
      chunk,
      after: before && isOfChunk(before) ? before.readUInt32BE(5) : -1,
      before: after && isOfChunk(after) ? after.readUInt32BE(5) : Number.POSITIVE_INFINITY,
    };
  }

  /** The first key of the table, or the last. */
  #end(reverse: boolean): Buffer | undefined {
    for (const key of this.#schema.cells.getKeys({ reverse, limit: 1, ...this.#read })) return key;
    return undefined;
  }

  /** The key beside this one, its record checked. */
  #neighbour(key: Buffer, reverse: boolean): Buffer | undefined {
    const options = { start: key, reverse, limit: 1, ...this.#read };
    for (const { key: found, value } of this.#schema.cells.getRange(options)) {
      checkEntry(this.#schema, found, value);
      return found;
    }
    return undefined;
  }
}

/**
 * The same for a table of JSON: a key that is not found is compared with its neighbours. `matches` says whether a value
 * belongs to the key that it stands under.
 */
export function checkAbsence<K extends Key, V>(
  table: Database<V, K>,
  key: K,
  matches: (key: K, value: V) => boolean,
): void {
  for (const reverse of [true, false]) {
    for (const { key: found, value } of table.getRange({ start: key, reverse, limit: 1 })) {
      const order = compareKeys(found, key);
      if ((reverse ? order < 0 : order > 0) && matches(found, value)) continue;
      throw new StoreDamaged(`a key beside ${JSON.stringify(key)}`);
    }
  }
}

export function isProject(key: string, { id }: ProjectRecord): boolean {
  return id === undefined || id === key;
}

export function isHostOf([scope, hostId]: [number, string], { id, project }: HostRecord): boolean {
  return id === hostId && (project === undefined || project === scope);
}

/** Any record of the table, by the key that it stands under. */
export function checkEntry(schema: Schema, key: Buffer, stored: Buffer): void {
  if (key.length !== 9 || (key[0] ?? 0) >= LEVELS.length) {
    throw new StoreDamaged(`the key ${key.toString('hex')} of the table cells is none`);
  }
  const level = key[0] ?? 0;
  const [chunk, scope] = [key.readUInt32BE(1), key.readUInt32BE(5)];
  if (scope === CHANGES) decodeChanges(stored, level, chunk);
  else checkedSections(schema, level, chunk, scope, stored);
}

/** The record without its checksum. Throws when it is damaged. */
export function checkedSections(
  schema: Schema,
  level: number,
  chunk: number,
  scope: number,
  stored: Uint8Array,
): Uint8Array {
  if (hasChecksum(stored)) {
    const sections = unseal(stored, cellsSeed(level, chunk, scope));
    if (sections !== undefined) return sections;
  } else {
    // Written by a release without checksums: all that can be said is whether it can be decoded. A copy, because the
    // next read overwrites it.
    const sections = Buffer.from(stored.subarray(0, stored.length));
    if (mayLackChecksums(schema) && isWellFormed(sections, LEVELS[level]?.cellsPerChunk ?? 0))
      return sections;
  }
  throw new StoreDamaged(recordName(level, chunk, scope));
}
