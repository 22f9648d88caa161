/** What stands where in the file: docs/storage.md describes each of these in prose. */
import type { Database, DatabaseOptions, Key, Transaction } from 'lmdb';
import { createPrivateFiles } from '../../lmdb/files.ts';
import { openLmdb, openReadOnly, writeAtOnce } from '../../lmdb/open.ts';
import {
  type FollowedPath,
  type Host,
  type LinkRecord,
  type RetentionNote,
  type Source,
  StoreDamaged,
  StoreUnavailable,
} from '../store.ts';
import { CHECKSUM_BYTES, checkedJson, hasChecksum, seal, unseal } from './checksum.ts';

/** Raised when older releases cannot read new files. Since 2, every value has a checksum. */
export const STORAGE_VERSION = 2;

/** Read as it is, and raised to STORAGE_VERSION at the first start. */
const VERSION_WITHOUT_CHECKSUMS = 1;

export interface ProjectRecord {
  /** The key again: by it a damaged key is noticed. Missing in records of storage version 1. */
  id?: string;
  scope: number;
  /** How many hosts it has. */
  hosts: number;
  /** No event is later: a query for the next ten years need not look for them. */
  latest: number;
}

export interface HostRecord extends Host {
  scope: number;
  /** The scope of its project: with the ID this is the key again. Missing in records of storage version 1. */
  project?: number;
}

export interface SourceRecord extends Omit<Source, 'hosts'> {
  number: number;
}

export interface BatchRecord {
  /** The day from which on the batch may be forgotten once the horizon has reached it. */
  day: number;
  after?: string;
}

/** lmdb-js takes the options and answers plain bytes for long values, but its types do not say so. */
type CellsTable = Omit<Database<Buffer, Buffer>, 'getBinaryFast'> & {
  getBinaryFast(id: Buffer, options?: ReadOptions): Uint8Array | undefined;
};

/** A snapshot that is kept over several turns of the event loop. Without one, reads see the latest commit. */
export interface ReadOptions {
  transaction: Transaction;
}

export type MetaKey =
  | 'version'
  | 'born'
  | 'changes'
  | 'horizon'
  | 'freed'
  | 'scopes'
  | 'sources'
  | 'unchecked';

export type Schema = ReturnType<typeof openTables>;

export function openSchema(path: string): Schema {
  createPrivateFiles(path);
  const schema = openTables(path, false);
  try {
    checkVersion(schema, path);
  } catch (error) {
    schema.root.close();
    throw error;
  }
  return schema;
}

/** Opens the file again. The record stays the same object, with new tables. */
export async function reopenSchema(schema: Schema, path: string): Promise<void> {
  await schema.root.close();
  Object.assign(schema, openTables(path, false));
}

/** Changes nothing in the file. Files of both versions can be opened so. */
export function openSchemaReadOnly(path: string): Schema {
  return openTables(path, true);
}

/** Without a look at what is in it: that may be damaged. */
export function openSchemaForRepair(path: string): Schema {
  return openTables(path, false);
}

function openTables(path: string, readOnly: boolean) {
  const { root, table: openTable } = readOnly ? openReadOnly(path) : openLmdb(path);
  const table = <V, K extends Key>(name: string) =>
    openTable<V, K>(name, { encoder: checkedJson(name) } as DatabaseOptions);
  return {
    root,
    meta: table<number, MetaKey>('meta'),
    /** The version alone has no checksum: releases that know of none must be able to read and refuse it. */
    version: openTable<number, 'version'>('meta', { encoding: 'json' }),
    notes: table<RetentionNote, 'retention'>('notes'),
    /** Level, chunk, scope: 1, 4 and 4 bytes, big endian. Time before scope, so that live traffic writes in one place. */
    cells: openTable<Buffer, Buffer>('cells', { encoding: 'binary', keyEncoding: 'binary' }) as CellsTable,
    projects: table<ProjectRecord, string>('projects'),
    hosts: table<HostRecord, [project: number, id: string]>('hosts'),
    hostnames: table<string, [project: number, hostname: string]>('hostnames'),
    sources: table<SourceRecord, [project: number, name: string]>('sources'),
    sourceHosts: table<true, [source: number, host: string]>('source-hosts'),
    batches: table<BatchRecord, [source: number, id: string]>('batches'),
    batchLinks: table<LinkRecord, [source: number, after: string, id: string]>('batch-links'),
    /** The path itself may be longer than a key. */
    followed: table<FollowedPath, [project: number, source: string, pathId: string]>('followed'),
    batchDays: table<true, [day: number, source: number, id: string]>('batch-days'),
  };
}

function checkVersion(schema: Schema, path: string): void {
  const { root, meta } = schema;
  const version = schema.version.get('version');
  if (version === STORAGE_VERSION) {
    for (const key of META_KEYS) metaValue(schema, key);
    return;
  }
  if (version !== undefined && version !== VERSION_WITHOUT_CHECKSUMS) {
    throw new StoreUnavailable(
      `${path} has storage version ${version}, but this release reads versions up to ${STORAGE_VERSION}`,
    );
  }
  // Only a new file, or one of the version before, is written to: another process may hold the write lock, and be stopped.
  writeAtOnce(path, root, () => {
    // Another process may have been first.
    if (schema.version.get('version') === STORAGE_VERSION) return;
    // Sets this file apart from another one that may have stood in its place.
    meta.putSync('born', meta.get('born') ?? Date.now());
    meta.putSync('unchecked', version === undefined ? 0 : 1);
    for (const key of META_KEYS) if (!meta.doesExist(key)) meta.putSync(key, 0);
    schema.version.putSync('version', STORAGE_VERSION);
  });
}

/** All that a file of this version has, from its first transaction on: one that is missing is damage. */
export const META_KEYS = ['born', 'changes', 'horizon', 'scopes', 'sources', 'unchecked'] as const;

export function metaValue({ meta }: Schema, key: (typeof META_KEYS)[number], read?: ReadOptions): number {
  const value = meta.get(key, read);
  if (typeof value !== 'number') throw new StoreDamaged(`the record '${key}' of the table meta is missing`);
  return value;
}

/** No project or host has this number: under it stands how often a chunk has changed. */
export const CHANGES = 0;

/** Pass `key` to have it overwritten instead of a new one made. */
export function cellsKey(
  level: number,
  chunk: number,
  scope: number,
  key: Buffer = Buffer.allocUnsafe(9),
): Buffer {
  key[0] = level;
  key.writeUInt32BE(chunk, 1);
  key.writeUInt32BE(scope, 5);
  return key;
}

/** Whether some values may be from before there were checksums. */
export function mayLackChecksums(schema: Schema): boolean {
  return schema.version.get('version') === VERSION_WITHOUT_CHECKSUMS || metaValue(schema, 'unchecked') === 1;
}

/** Ties the checksum of a record in `cells` to its key. */
export function cellsSeed(level: number, chunk: number, scope: number): number {
  return (Math.imul(chunk, 0x9e3779b1) ^ Math.imul(scope, 0x85ebca6b) ^ (level << 30)) >>> 0;
}

/** How often anything has changed that is counted, or where counting begins. */
export function allChanges(schema: Schema, read?: ReadOptions): number {
  return metaValue(schema, 'changes', read);
}

export function countChange(schema: Schema): void {
  schema.meta.putSync('changes', allChanges(schema) + 1);
}

/** How often the counters of a chunk have changed, of whatever project or host; undefined when there are none. */
export function changesOf(
  cells: Schema['cells'],
  level: number,
  chunk: number,
  key?: Buffer,
  read?: ReadOptions,
): number | undefined {
  const stored = cells.getBinaryFast(cellsKey(level, chunk, CHANGES, key), read);
  return stored === undefined ? undefined : decodeChanges(stored, level, chunk);
}

export function decodeChanges(stored: Uint8Array, level: number, chunk: number): number {
  const body = hasChecksum(stored) ? unseal(stored, cellsSeed(level, chunk, CHANGES)) : stored.subarray(0);
  if (body?.length !== 8) throw new StoreDamaged(recordName(level, chunk, CHANGES));
  return new DataView(body.buffer, body.byteOffset).getFloat64(0);
}

/** Tells every process that what it has decoded of the chunk is out of date. */
export function countChunkChange({ cells }: Schema, level: number, chunk: number): void {
  const changes = Buffer.allocUnsafe(CHECKSUM_BYTES + 8);
  changes.writeDoubleBE((changesOf(cells, level, chunk) ?? 0) + 1, CHECKSUM_BYTES);
  cells.putSync(cellsKey(level, chunk, CHANGES), seal(changes, cellsSeed(level, chunk, CHANGES)));
}

/** For error messages. */
export function recordName(level: number, chunk: number, scope: number): string {
  return `the record of level ${level}, chunk ${chunk}, scope ${scope} of the table cells`;
}
