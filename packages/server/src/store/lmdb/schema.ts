/** What stands where in the file: docs/storage.md describes each of these in prose. */
import type { Key } from 'lmdb';
import { openLmdb, writeAtOnce } from '../../lmdb-open.ts';
import { type BatchLink, type Host, type RetentionNote, type Source, StoreUnavailable } from '../store.ts';

/** Raised when old files can no longer be read as they are. */
export const STORAGE_VERSION = 1;

export interface ProjectRecord {
  scope: number;
  /** How many hosts it has. */
  hosts: number;
  /** No event is later: a query for the next ten years need not look for them. */
  latest: number;
}

export interface HostRecord extends Host {
  scope: number;
}

export interface SourceRecord extends Omit<Source, 'hosts'> {
  number: number;
}

export interface BatchRecord {
  /** The day from which on the batch may be forgotten once the horizon has reached it. */
  day: number;
  after?: string;
}

export type LinkRecord = Omit<BatchLink, 'id'>;

export type Schema = ReturnType<typeof openTables>;

export function openSchema(path: string): Schema {
  const schema = openTables(path);
  checkVersion(schema, path);
  return schema;
}

/** Opens the file again. The record stays the same object, with new tables. */
export async function reopenSchema(schema: Schema, path: string): Promise<void> {
  await schema.root.close();
  Object.assign(schema, openTables(path));
}

function openTables(path: string) {
  const { root, table: openTable } = openLmdb(path);
  const table = <V, K extends Key>(name: string) => openTable<V, K>(name, { encoding: 'json' });
  return {
    root,
    meta: table<number, 'version' | 'born' | 'changes' | 'horizon' | 'freed' | 'scopes' | 'sources'>('meta'),
    notes: table<RetentionNote, 'retention'>('notes'),
    /** Level, chunk, scope: 1, 4 and 4 bytes, big endian. Time before scope, so that live traffic writes in one place. */
    cells: openTable<Uint8Array, Buffer>('cells', { encoding: 'binary', keyEncoding: 'binary' }),
    projects: table<ProjectRecord, string>('projects'),
    hosts: table<HostRecord, [project: number, id: string]>('hosts'),
    hostnames: table<string, [project: number, hostname: string]>('hostnames'),
    sources: table<SourceRecord, [project: number, name: string]>('sources'),
    sourceHosts: table<true, [source: number, host: string]>('source-hosts'),
    batches: table<BatchRecord, [source: number, id: string]>('batches'),
    batchLinks: table<LinkRecord, [source: number, after: string, id: string]>('batch-links'),
    batchDays: table<true, [day: number, source: number, id: string]>('batch-days'),
  };
}

function checkVersion({ root, meta }: Schema, path: string): void {
  // Only a new file is written to: another process may hold the write lock, and be stopped.
  if (!meta.doesExist('version') || !meta.doesExist('born')) {
    writeAtOnce(path, root, () => {
      // Sets this file apart from another one that may have stood in its place.
      if (!meta.doesExist('born')) meta.putSync('born', Date.now());
      if (!meta.doesExist('version')) meta.putSync('version', STORAGE_VERSION);
    });
  }
  const version = meta.get('version');
  if (version !== STORAGE_VERSION) {
    throw new StoreUnavailable(
      `${path} has storage version ${version}, but this release reads version ${STORAGE_VERSION}`,
    );
  }
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

/** How often anything has changed that is counted, or where counting begins. */
export function allChanges({ meta }: Schema): number {
  return meta.get('changes') ?? 0;
}

export function countChange({ meta }: Schema): void {
  meta.putSync('changes', (meta.get('changes') ?? 0) + 1);
}

/** How often the counters of a chunk have changed, of whatever project or host. */
export function changesOf(cells: Schema['cells'], level: number, chunk: number, key?: Buffer): number {
  const changes = cells.getBinaryFast(cellsKey(level, chunk, CHANGES, key));
  return changes === undefined ? 0 : new DataView(changes.buffer, changes.byteOffset).getFloat64(0);
}
