/** What stands where in the file: docs/storage.md describes each of these in prose. */
import { type Key, open } from 'lmdb';
import {
  type BatchLink,
  type FollowedPath,
  type Host,
  type RetentionNote,
  type Source,
  StoreUnavailable,
} from '../store.ts';

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

function openTables(path: string) {
  const root = open({
    path,
    noSubdir: true,
    maxDbs: 16,
    // Plain LMDB commits: when one has returned, it is on disk. The alternative (overlapping sync) gains
    // nothing here, where concurrent appends already share a commit.
    overlappingSync: false,
  });
  const table = <V, K extends Key>(name: string) => root.openDB<V, K>(name, { encoding: 'json' });
  return {
    root,
    meta: table<number, 'version' | 'born' | 'changes' | 'horizon' | 'freed' | 'scopes' | 'sources'>('meta'),
    notes: table<RetentionNote, 'retention'>('notes'),
    /** Level, chunk, scope: 1, 4 and 4 bytes, big endian. Time before scope, so that live traffic writes in one place. */
    cells: root.openDB<Uint8Array, Buffer>('cells', { encoding: 'binary', keyEncoding: 'binary' }),
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

function checkVersion({ root, meta }: Schema, path: string): void {
  root.transactionSync(() => {
    const version = meta.get('version');
    // Sets this file apart from another one that may have stood in its place.
    if (!meta.doesExist('born')) meta.putSync('born', Date.now());
    if (version === undefined) meta.putSync('version', STORAGE_VERSION);
    else if (version !== STORAGE_VERSION) {
      throw new StoreUnavailable(
        `${path} has storage version ${version}, but this release reads version ${STORAGE_VERSION}`,
      );
    }
  });
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
