/** The tables, keys and checksums of a statistics file. docs/storage.md describes them in prose. */
import { randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Database, DatabaseOptions, Key, Transaction } from 'lmdb';
import { closingOnError, commitSync, inspectLmdb, openLmdb, openReadOnly } from '../../lmdb/files.ts';
import type { LinkRecord, StoredBatch } from '../batches.ts';
import type { Generations, RequestRecord } from '../flagged-requests.ts';
import type { Level } from '../plan.ts';
import { HEAD_BYTES } from '../record-bytes.ts';
import {
  type FollowedPath,
  type Host,
  type RetentionNote,
  type Source,
  StoreDamaged,
  StoreUnavailable,
} from '../store.ts';

/** Increased when other releases cannot read new files. Lower versions are those of development builds. */
export const STORAGE_VERSION = 7;

const MINUTE_MS = 60_000;

/**
 * From coarse to fine. A chunk of cells is one record. Quarter hours serve time zones with offsets like +05:30, whose
 * hours and days would otherwise be summed from minutes. The finest level holds exact milliseconds; queries read it only
 * for minutes that an edge cuts. docs/storage.md explains the chunk lengths.
 *
 * The exact level has the highest ID, so that live traffic appends at the end of the tree: there LMDB fills its pages,
 * elsewhere it splits them (10 MB instead of 22 for a month of six quiet hosts).
 */
export const LEVELS = [
  { id: 0, cellMs: 60 * MINUTE_MS, cellsPerChunk: 384 },
  { id: 1, cellMs: 15 * MINUTE_MS, cellsPerChunk: 384 },
  { id: 2, cellMs: MINUTE_MS, cellsPerChunk: 120 },
  { id: 3, cellMs: 1, cellsPerChunk: MINUTE_MS },
] as const satisfies readonly Level[];

export const MINUTES = LEVELS[2];
export const EXACT = LEVELS[3];
/** The index of a level is its ID. */
export const COUNTERS = [LEVELS[0], LEVELS[1], LEVELS[2]] as const;

/** The cells of a chunk of counters; 0 for the exact level. */
export function cellsIn(level: number): number {
  return COUNTERS[level]?.cellsPerChunk ?? 0;
}

export interface ProjectRecord {
  /** Repeats the key, to detect a damaged key. */
  id: string;
  scope: number;
  /** The number of hosts. */
  hosts: number;
  /** The time of the latest event: queries of later times read nothing. */
  latest: number;
  /** Counts changes of its records in `cells` and `top-lists`: what was read before the latest one may have changed. */
  appends: number;
  /** Of its flagged requests. */
  generations: Generations;
}

/** Only the time if all else is empty. */
export type StoredRequest =
  | number
  | [
      time: number,
      logs: RequestRecord['logs'],
      others?: RequestRecord['others'] | null,
      waiting?: number | undefined,
    ];

export interface HostRecord extends Host {
  scope: number;
  /** The scope of the project: repeats the key, together with the ID. */
  project: number;
}

export interface SourceRecord extends Omit<Source, 'hosts'> {
  number: number;
}

/** lmdb-js accepts the options and returns plain bytes for long values, but its types do not say so. */
export type BinaryTable = Omit<Database<Buffer, Buffer>, 'getBinaryFast'> & {
  getBinaryFast(id: Buffer, options?: ReadOptions): Uint8Array | undefined;
};

/** Takes a record to write, with its checksum, or null to remove it. Both buffers are valid until the next call. */
export type PutRecord = (table: 'cells' | 'topLists' | 'attacks', key: Buffer, value: Buffer | null) => void;

/** A snapshot over several turns of the event loop. Without one, reads see the latest commit. */
export interface ReadOptions {
  transaction: Transaction;
}

export type Schema = ReturnType<typeof openTables>;

export function openSchema(path: string): Schema {
  const schema = openTables(path);
  closingOnError(schema.root, () => checkVersion(schema, path));
  return schema;
}

/** The ID of the file, if it has one yet. Rejects if this release cannot read the file. Changes nothing. */
export async function inspectStatistics(path: string): Promise<number | undefined> {
  return inspectLmdb(path, async (opened) => {
    const schema = openTables(opened, true);
    try {
      checkKnownVersion(schema.version.get('version'), path);
      return metaValue(schema, 'born');
    } finally {
      await schema.root.close();
    }
  });
}

/** Reopens the file: the same object, with new tables. */
export async function reopenSchema(schema: Schema, path: string): Promise<void> {
  await schema.root.close();
  Object.assign(schema, openTables(path));
}

/** Does not check the contents, which may be damaged. */
export function openTables(path: string, readOnly = false) {
  const { table: openTable, ...file } = readOnly ? openReadOnly(path) : openLmdb(path);
  const table = <V, K extends Key>(name: string) =>
    openTable<V, K>(name, { encoder: checkedJson(name) } as DatabaseOptions);
  return closingOnError(file.root, () => ({
    ...file,
    meta: table<number, MetaKey | 'version'>('meta'),
    /** Only the version has no checksum: other releases must be able to read and reject it. */
    version: openTable<number, 'version'>('meta', { encoding: 'json' }),
    notes: table<RetentionNote, 'retention'>('notes'),
    /** Key: level, chunk, scope (1, 4 and 4 bytes, big endian). Time before scope, so that live traffic writes in one place. */
    cells: openTable<Buffer, Buffer>('cells', { encoding: 'binary', keyEncoding: 'binary' }) as BinaryTable,
    projects: table<ProjectRecord, string>('projects'),
    hosts: table<HostRecord, [project: number, id: string]>('hosts'),
    hostnames: table<string, [project: number, hostname: string]>('hostnames'),
    sources: table<SourceRecord, [project: number, name: string]>('sources'),
    sourceHosts: table<true, [source: number, host: string]>('source-hosts'),
    batches: table<StoredBatch, [source: number, id: string]>('batches'),
    batchLinks: table<LinkRecord, [source: number, after: string, id: string]>('batch-links'),
    /** The path itself may be longer than a key. */
    followed: table<FollowedPath, [project: number, source: string, pathId: string]>('followed'),
    batchDays: table<true, [day: number, source: number, id: string]>('batch-days'),
    /** Flagged requests. Generation before source, so that the oldest can be deleted without an index. */
    requests: table<StoredRequest, [project: number, generation: number, source: number, key: string]>(
      'requests',
    ),
    /** Key: hour, scope of the project, number (4 bytes each, big endian). */
    attacks: openTable<Buffer, Buffer>('attacks', {
      encoding: 'binary',
      keyEncoding: 'binary',
    }) as BinaryTable,
    /** Key: hour, scope (4 bytes each, big endian). */
    topLists: openTable<Buffer, Buffer>('top-lists', {
      encoding: 'binary',
      keyEncoding: 'binary',
    }) as BinaryTable,
  }));
}

function checkVersion(schema: Schema, path: string): void {
  const { meta } = schema;
  const version = schema.version.get('version');
  if (version === STORAGE_VERSION) {
    for (const key of META_KEYS) metaValue(schema, key);
    return;
  }
  if (version !== undefined) checkKnownVersion(version, path);
  // Writes only to a new file: a stopped process may hold the write lock.
  commitSync(schema, () => {
    // Another process may have been faster.
    if (schema.version.get('version') === STORAGE_VERSION) return;
    // Distinguishes this file from an earlier one at the same path.
    meta.putSync('born', Date.now());
    changeAllVersions(schema);
    for (const key of META_KEYS) if (!meta.doesExist(key)) meta.putSync(key, 0);
    schema.version.putSync('version', STORAGE_VERSION);
  });
}

/** `verify` and `repair` must not take a file of another version for a damaged one. */
export function checkKnownVersion(version: number | undefined, path: string): void {
  if (version === STORAGE_VERSION) return;
  const isOlder = typeof version === 'number' && version < STORAGE_VERSION;
  throw new StoreUnavailable(
    `${path} has storage version ${version}, but this release reads version ${STORAGE_VERSION}: ` +
      (isOlder
        ? 'a development build wrote it. Move it away, and ingest the logs again'
        : 'use a newer release'),
  );
}

/** Every file of this version has these from its first transaction on: a missing one is damage. */
export const META_KEYS = [
  'born',
  'changes',
  /** Changes when a host is deleted: entries cached by host ID are valid until then. */
  'deletedHosts',
  'horizon',
  'freed',
  /** The number of renamed hosts: a rename changes no count, so no version either. */
  'renamedHosts',
  /** A random number in the version of every range, so that nobody can guess a version. */
  'salt',
  'scopes',
  'sources',
  'topLists',
] as const;

export type MetaKey = (typeof META_KEYS)[number];

export function metaValue({ meta }: Schema, key: MetaKey, read?: ReadOptions): number {
  const value = meta.get(key, read);
  if (typeof value !== 'number') throw new StoreDamaged(`the record '${key}' of the table meta is missing`);
  return value;
}

/** Project and host scopes are larger than 0 and less than this: while a batch is appended they have 24 bits. */
export const SCOPES_MAX = 2 ** 24;

/** The scope under which a chunk keeps its change counter. No project or host has it. */
export const CHANGES = 0;

/** Pass `key` to reuse a buffer. */
export function cellsKey(level: number, chunk: number, scope: number, key = Buffer.allocUnsafe(9)): Buffer {
  key[0] = level;
  key.writeUInt32BE(chunk, 1);
  key.writeUInt32BE(scope, 5);
  return key;
}

/**
 * Passes all keys in parts, each for a separate write transaction. `keysFrom` returns those from a key on, which has been
 * passed before; undefined for the first.
 */
export function* keySteps<K>(
  keysFrom: (start: K | undefined, limit: number) => Iterable<K>,
  use: (keys: K[]) => void,
  limit = KEYS_PER_STEP,
): Generator<() => void> {
  let last: K | undefined;
  for (let isDone = false; !isDone; ) {
    yield () => {
      const keys = [...keysFrom(last, limit)];
      use(keys);
      last = keys.at(-1) ?? last;
      isDone = keys.length < limit;
    };
  }
}

/** About 10 ms of work: queries and appends wait no longer than that for a step. */
export const KEYS_PER_STEP = 2_000;

/** The keys of a level, from a chunk on. */
export function levelRange({ id }: Level, first = 0): { start: Buffer; end: Buffer } {
  return { start: cellsKey(id, first, 0), end: cellsKey(id + 1, 0, 0) };
}

/** Binds the checksum of a record in `cells` to its key. */
export function cellsSeed(level: number, chunk: number, scope: number): number {
  return (Math.imul(chunk, 0x9e3779b1) ^ Math.imul(scope, 0x85ebca6b) ^ (level << 30)) >>> 0;
}

/** The global change counter: counts changes of counters and of the horizon. */
export function allChanges(schema: Schema, read?: ReadOptions): number {
  return metaValue(schema, 'changes', read);
}

export function changeAllVersions({ meta }: Schema): void {
  meta.putSync('salt', randomInt(SALT_END));
}

/** The largest range of `randomInt`. */
const SALT_END = 2 ** 48 - 1;

/**
 * What versions are made of grows by a random number and starts over at a limit. Counting by one, copies of a file would have
 * the same version after different changes: a client of the original would get 304 from a restored backup.
 */
export function nextChanges(changes: number): number {
  return (changes + randomInt(1, ADDED_END)) % CHANGES_END;
}

const ADDED_END = 2 ** 40;
/** The sum of 512 counters is an exact floating-point number. A version has up to 16, or one for each 16 days. */
const CHANGES_END = 2 ** 44;

export function countChange(schema: Schema): void {
  schema.meta.putSync('changes', allChanges(schema) + 1);
}

/** The change counter of a chunk, for all projects and hosts. Undefined if the chunk has no counters. */
export function changesOf(
  cells: Schema['cells'],
  level: number,
  chunk: number,
  read?: ReadOptions,
): number | undefined {
  const stored = cells.getBinaryFast(cellsKey(level, chunk, CHANGES), read);
  return stored === undefined ? undefined : decodeChanges(stored, level, chunk);
}

export function decodeChanges(stored: Uint8Array, level: number, chunk: number): number {
  const body = withoutChecksum(stored, cellsSeed(level, chunk, CHANGES));
  if (body?.length !== 8) throw new StoreDamaged(recordName(level, chunk, CHANGES));
  return new DataView(body.buffer, body.byteOffset).getFloat64(0);
}

/** Invalidates the decoded chunk in every process. */
export function countChunkChange(schema: Schema, level: number, chunk: number): void {
  putChanges(schema, level, chunk, nextChanges(changesOf(schema.cells, level, chunk) ?? 0));
}

export function putChanges({ cells }: Schema, level: number, chunk: number, changes: number): void {
  const value = Buffer.allocUnsafe(CHECKSUM_BYTES + 8);
  value.writeDoubleBE(changes, CHECKSUM_BYTES);
  cells.putSync(cellsKey(level, chunk, CHANGES), addChecksum(value, cellsSeed(level, chunk, CHANGES)));
}

/** The name of a record in error messages. */
export function recordName(level: number, chunk: number, scope: number): string {
  return `the record of level ${level}, chunk ${chunk}, scope ${scope} of the table cells`;
}

export const CHECKSUM_BYTES = HEAD_BYTES;

/** The highest bit of a checksum is always set, so that zeros never match. */
const CHECKSUM_BIT = 0x8000_0000;

/** Fills in the first four bytes. The seed binds the value to its key: under another key it does not match. */
export function addChecksum(value: Buffer, seed: number): Buffer {
  value.writeUInt32BE((crc32(value.subarray(CHECKSUM_BYTES), seed) | CHECKSUM_BIT) >>> 0, 0);
  return value;
}

/**
 * The value without its checksum, or undefined if the checksum does not match. lmdb-js passes short values in a larger
 * buffer whose `length` only `subarray` respects, and long ones as plain bytes of the mapped file.
 */
export function withoutChecksum(value: Uint8Array, seed: number): Uint8Array | undefined {
  if (value.length < CHECKSUM_BYTES) return undefined;
  const body = value.subarray(CHECKSUM_BYTES);
  const high = ((value[0] ?? 0) << 24) | ((value[1] ?? 0) << 16);
  const stored = high | ((value[2] ?? 0) << 8) | (value[3] ?? 0);
  return stored === (crc32(body, seed) | CHECKSUM_BIT) ? body : undefined;
}

/** JSON after a checksum. */
export function checkedJson(table: string) {
  return {
    encode(value: unknown): Buffer {
      const text = JSON.stringify(value);
      const bytes = Buffer.allocUnsafe(CHECKSUM_BYTES + Buffer.byteLength(text));
      bytes.write(text, CHECKSUM_BYTES);
      return addChecksum(bytes, 0);
    },
    decode(value: Uint8Array): unknown {
      const text = withoutChecksum(value, 0);
      if (text === undefined) throw new StoreDamaged(`a record of the table ${table} has a wrong checksum`);
      try {
        return JSON.parse(Buffer.from(text).toString());
      } catch {
        throw new StoreDamaged(`a record of the table ${table} is not JSON`);
      }
    },
  };
}
