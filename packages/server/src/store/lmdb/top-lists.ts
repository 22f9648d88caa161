/** Top lists in the file: the records of ../top-records.ts by hour and scope. */
import type { AttackDetails } from '../../event.ts';
import { isDeletedHost } from '../ids.ts';
import {
  coveredHours,
  type ErrorPages,
  HOUR_MS,
  StoreDamaged,
  type TopList,
  type TopQuery,
  type TopSlice,
} from '../store.ts';
import { TopFinder, type TopSnapshot } from '../top-finder.ts';
import {
  addToRecords,
  checkRecord,
  decodeRecord,
  selectOwn,
  selectSummaries,
  TopAdditions,
} from '../top-records.ts';
import { inSnapshot, type Lookups, scopesOf } from './count.ts';
import { AbsenceCheck } from './records.ts';
import {
  addChecksum,
  allChanges,
  CHECKSUM_BYTES,
  COUNTERS,
  cellsSeed,
  changesOf,
  countChange,
  countChunkChange,
  keySteps,
  LEVELS,
  metaValue,
  type ProjectRecord,
  type PutRecord,
  type ReadOptions,
  type Schema,
  withoutChecksum,
} from './schema.ts';

/** Time comes first, so that live traffic writes at the end of the tree. */
function listsKey(hour: number, scope: number): Buffer {
  const key = Buffer.allocUnsafe(8);
  key.writeUInt32BE(hour, 0);
  key.writeUInt32BE(scope, 4);
  return key;
}

export function parseListsKey(key: Buffer): { hour: number; scope: number } {
  if (key.length !== 8) throw new StoreDamaged(`invalid key ${key.toString('hex')} in the table top-lists`);
  return { hour: key.readUInt32BE(0), scope: key.readUInt32BE(4) };
}

/** Throws if the record is damaged. */
export function withoutListsChecksum(key: Buffer, stored: Uint8Array): Uint8Array {
  const { hour, scope } = parseListsKey(key);
  const body = withoutChecksum(stored, cellsSeed(0, hour, scope));
  if (body === undefined) throw new StoreDamaged(recordName(hour, scope));
  return body;
}

function recordName(hour: number, scope: number): string {
  return `the record of the hour ${hour}, scope ${scope} of the table top-lists`;
}

/** Passes a record with its checksum. */
function putRecord(put: PutRecord, hour: number, scope: number, record: Uint8Array): void {
  const value = Buffer.allocUnsafe(CHECKSUM_BYTES + record.length);
  value.set(record, CHECKSUM_BYTES);
  put('topLists', listsKey(hour, scope), addChecksum(value, cellsSeed(0, hour, scope)));
}

/** No list has hours that begin before this. */
function topListsBefore(schema: Schema, read?: ReadOptions): number {
  return metaValue(schema, 'topLists', read);
}

/** Lists of hours that begin before this are deleted. */
export function keptListsFrom(schema: Schema): number {
  return Math.max(topListsBefore(schema), metaValue(schema, 'freed'));
}

/** Attacks of a group of batches of one project. */
export class GroupTopLists {
  readonly #project: ProjectRecord;
  readonly #before: number;
  readonly #additions = new TopAdditions();
  /** The scopes of hosts by ID. */
  readonly #scopes = new Map<string, number>();

  constructor(schema: Schema, project: ProjectRecord) {
    this.#project = project;
    this.#before = keptListsFrom(schema);
  }

  /** `host`: null without a registered host. */
  add(
    attack: { time: number; attack: string; details: AttackDetails },
    count: number,
    host: { id: string; scope: number } | null,
  ): void {
    if (Math.floor(attack.time / HOUR_MS) * HOUR_MS < this.#before) return;
    if (host !== null) this.#scopes.set(host.id, host.scope);
    this.#additions.add(attack, count, host?.id ?? null);
  }

  addPages(pages: ErrorPages, host: { id: string; scope: number } | null): void {
    if (pages.hour * HOUR_MS < this.#before) return;
    if (host !== null) this.#scopes.set(host.id, host.scope);
    this.#additions.addPages(pages, host?.id ?? null);
  }

  /** Passes the changed records to `put`, hour by hour. The transaction of the counters, which writes them, counts the change. */
  *merge(schema: Schema, keysMax: number, put: PutRecord): Generator<void, void> {
    const reader = new ListsReader(schema);
    const { id: project, scope } = this.#project;
    const scopeOf = (hostId: string | null) =>
      hostId === null ? scope : (this.#scopes.get(hostId) ?? schema.hosts.get([scope, hostId])?.scope);
    for (const [hour, additions] of [...this.#additions.hours].sort(([a], [b]) => a - b)) {
      const read = (hostId: string | null) => {
        const of = scopeOf(hostId);
        return of === undefined ? undefined : reader.read(hour, of);
      };
      for (const { hostId, record } of yield* addToRecords({ additions, read, project, keysMax })) {
        const of = scopeOf(hostId);
        // A divided joint record may contain a deleted host, whose attacks remain in the record of the project.
        if (of !== undefined) putRecord(put, hour, of, record);
      }
    }
  }
}

function hostScope({ hosts }: Schema, project: string, projectScope: number, hostId: string): number {
  const host = hosts.get([projectScope, hostId]);
  if (host === undefined) throw new Error(`the project ${project} has no host ${hostId}`);
  return host.scope;
}

/** Checked reads: a record that is damaged, or not found because a key is damaged, is an error. */
class ListsReader {
  readonly #schema: Schema;
  readonly #read: ReadOptions | undefined;
  readonly #absence: AbsenceCheck;

  constructor(schema: Schema, read?: ReadOptions) {
    this.#schema = schema;
    this.#read = read;
    this.#absence = new AbsenceCheck(schema.topLists, withoutListsChecksum, read);
  }

  /** Valid until the next read. */
  read(hour: number, scope: number): Uint8Array | undefined {
    const key = listsKey(hour, scope);
    const stored = this.#schema.topLists.getBinaryFast(key, this.#read);
    if (stored !== undefined) return withoutListsChecksum(key, stored);
    this.#absence.check(key, () => recordName(hour, scope));
    return undefined;
  }

  /** The checksum of a record, without verifying it; 0 if there is no record. */
  checksum(hour: number, scope: number): number {
    const stored = this.#schema.topLists.getBinaryFast(listsKey(hour, scope), this.#read);
    return stored === undefined ? 0 : Buffer.from(stored.subarray(0, CHECKSUM_BYTES)).readUInt32BE(0);
  }
}

/** A level with change counters, which count the changes of all projects: eight for a month. */
const CHANGE_LEVEL = LEVELS[1];
const CHUNK_HOURS = (CHANGE_LEVEL.cellMs * CHANGE_LEVEL.cellsPerChunk) / HOUR_MS;

/** The state of the records of some hours. Every change of a list also changes the record of its project. */
interface ListsState {
  /** The change counter of the file when the state was last found to be current. */
  changes: number;
  /** The change counters of the chunks. */
  chunks: Float64Array;
  /** The checksum of the record of the project in each hour. */
  checksums: Float64Array;
  /** Differs after a host is deleted, whose records stay. */
  deleted: number;
}

export function createTopFinder(
  schema: Schema,
  { findProject }: Lookups,
  bytesMax?: number,
  cacheBytes?: number,
): (query: TopQuery) => Promise<TopList> {
  const finder = new TopFinder<ListsState>(
    (query, action) => inSnapshot(schema, (read) => action(openSnapshot(query, read))),
    bytesMax,
    cacheBytes,
  );
  return (query) => finder.find(query);

  function openSnapshot(query: TopQuery, read: ReadOptions): TopSnapshot<ListsState> {
    const { project: projectId, hosts, list, ...range } = query;
    const { project } = findProject(projectId, allChanges(schema));
    const horizon = Math.max(metaValue(schema, 'horizon', read), topListsBefore(schema, read));
    const covered = coveredHours(range, horizon);
    const latest = schema.projects.get(projectId, read)?.latest ?? 0;
    const scope = project?.scope ?? 0;
    // In key order, which is also the order in the file.
    const selected =
      hosts && (project ? [...scopesOf(schema, project, hosts)] : []).map(([of, id]) => ({ id, of }));
    const ids = selected?.map(({ id }) => id);
    const reader = new ListsReader(schema, read);
    return {
      covered,
      first: Math.max(covered.from / HOUR_MS, firstHour(schema, read)),
      end: Math.min(covered.to / HOUR_MS, Math.floor(latest / HOUR_MS) + 1),
      state: (from, to, before) => stateOf(reader, scope, from, to, before, read),
      *records(from, to) {
        for (let hour = to - 1; hour >= from; hour--) {
          const stored = reader.read(hour, scope);
          const summaries = stored === undefined ? [] : selectSummaries(decodeRecord(stored), list, ids);
          yield { hour, bytes: stored?.length ?? 0, summaries: summaries ?? [] };
          if (summaries !== null) continue;
          for (const { id, of } of selected ?? []) {
            const own = reader.read(hour, of);
            if (own === undefined) continue;
            yield { hour, bytes: own.length, summaries: selectOwn(decodeRecord(own).sections, list, id) };
          }
        }
      },
    };
  }

  /** Late events of other projects change the counter of a chunk, but not the checksums of this project. */
  function stateOf(
    reader: ListsReader,
    scope: number,
    from: number,
    to: number,
    known: ListsState | undefined,
    read: ReadOptions,
  ): ListsState {
    const changes = allChanges(schema, read);
    if (known?.changes === changes) return known;
    const first = Math.floor(from / CHUNK_HOURS);
    const chunks = new Float64Array(Math.ceil(to / CHUNK_HOURS) - first).map(
      (_, i) => changesOf(schema.cells, CHANGE_LEVEL.id, first + i, read) ?? 0,
    );
    const checksums = new Float64Array(to - from).map((_, i) => {
      const chunk = Math.floor((from + i) / CHUNK_HOURS) - first;
      const isSame = known?.chunks[chunk] === chunks[chunk];
      return isSame ? (known?.checksums[i] ?? 0) : reader.checksum(from + i, scope);
    });
    const deleted = metaValue(schema, 'deletedHosts', read);
    const isCurrent =
      known?.deleted === deleted && known.checksums.every((checksum, i) => checksum === checksums[i]);
    return known && isCurrent
      ? Object.assign(known, { changes, chunks })
      : { changes, chunks, checksums, deleted };
  }
}

/** The end of the hours in keys. */
export const HOURS_END = 2 ** 32;

/** The first hour of all lists, HOURS_END if there is none: a range may begin years before. */
function firstHour({ topLists }: Schema, read: ReadOptions): number {
  for (const { key, value } of topLists.getRange({ limit: 1, ...read })) {
    withoutListsChecksum(key, value);
    return parseListsKey(key).hour;
  }
  return HOURS_END;
}

const RECORDS_PER_STEP = 500;

/** The keys from `start` on, of hours before `end`. */
function keysFrom({ topLists }: Schema, start = listsKey(0, 0), limit = RECORDS_PER_STEP, end = HOURS_END) {
  return topLists.getKeys({ start, ...(end < HOURS_END && { end: listsKey(end, 0) }), limit });
}

/** Each step is for a separate write transaction. */
export function* pruneTopListsSteps(schema: Schema, before: number, freed: number): Generator<() => void> {
  yield () => {
    // Rounded to hours, so that versions do not change more often.
    const next = Math.ceil(before / HOUR_MS) * HOUR_MS;
    if (next <= topListsBefore(schema)) return;
    schema.meta.putSync('topLists', next);
    countChange(schema);
  };
  const end = Math.ceil(Math.max(topListsBefore(schema), freed) / HOUR_MS);
  yield* keySteps<Buffer>(
    (start, limit) => keysFrom(schema, start, limit, end),
    (keys) => {
      for (const key of keys) schema.topLists.removeSync(key);
    },
    RECORDS_PER_STEP,
  );
}

/** Each step is for a separate write transaction. */
export function* deleteTopListsSteps(schema: Schema, projectId: string): Generator<() => void> {
  const project = schema.projects.get(projectId);
  if (project === undefined) return;
  const scopes = new Set([project.scope]);
  for (const { value } of schema.hosts.getRange({ start: [project.scope], end: [project.scope + 1] })) {
    scopes.add(value.scope);
  }
  yield* keySteps<Buffer>(
    (start, limit) => keysFrom(schema, start, limit),
    (keys) => {
      const own = keys.filter((key) => scopes.has(key.readUInt32BE(4)));
      for (const key of own) schema.topLists.removeSync(key);
      countHourChanges(
        schema,
        projectId,
        own.map((key) => key.readUInt32BE(0)),
      );
    },
    RECORDS_PER_STEP,
  );
}

/** Counts changes of lists without a change of counts. */
export function countHourChanges(schema: Schema, projectId: string, hours: readonly number[]): void {
  const project = schema.projects.get(projectId);
  if (hours.length === 0 || project === undefined) return;
  countChange(schema);
  schema.projects.putSync(projectId, { ...project, appends: project.appends + 1 });
  for (const { id, cellMs, cellsPerChunk } of COUNTERS) {
    const chunks = new Set(hours.map((hour) => Math.floor((hour * HOUR_MS) / (cellMs * cellsPerChunk))));
    for (const chunk of chunks) countChunkChange(schema, id, chunk);
  }
}

/** Bounds the memory of a part: a record can have a few hundred kilobytes. */
const BYTES_PER_PART = 4 * 1_024 * 1_024;

/** Yields parts. The slices of the whole project come last. */
export function* dumpTopSlices(schema: Schema, projectId: string): Generator<TopSlice[]> {
  const project = schema.projects.get(projectId);
  if (project === undefined) return;
  const hosts = new Map<number, string | null>();
  for (const { value } of schema.hosts.getRange({ start: [project.scope], end: [project.scope + 1] })) {
    if (!isDeletedHost(value)) hosts.set(value.scope, value.id);
  }
  yield* dumpSlices(schema, hosts);
  yield* dumpSlices(schema, new Map([[project.scope, null]]));
}

/** The first hour that queries cover. */
export function firstListedHour(schema: Schema, read?: ReadOptions): number {
  return Math.ceil(Math.max(metaValue(schema, 'horizon', read), topListsBefore(schema, read)) / HOUR_MS);
}

/** `hostIds`: by scope. */
function* dumpSlices(schema: Schema, hostIds: ReadonlyMap<number, string | null>): Generator<TopSlice[]> {
  const first = firstListedHour(schema);
  let part: TopSlice[] = [];
  let bytes = 0;
  let last = listsKey(first, 0);
  for (let length = RECORDS_PER_STEP; length === RECORDS_PER_STEP; ) {
    const keys = [...keysFrom(schema, last)];
    length = keys.length;
    for (const key of keys) {
      const { hour, scope } = parseListsKey(key);
      // The last key of a part is the first of the next.
      if (key.equals(last)) continue;
      last = key;
      const hostId = hostIds.get(scope);
      const stored = hostId === undefined ? undefined : schema.topLists.getBinary(key);
      if (hostId === undefined || stored === undefined) continue;
      const record = new Uint8Array(withoutListsChecksum(key, stored));
      part.push({ hostId, hour, record });
      bytes += record.length;
      if (bytes < BYTES_PER_PART && part.length < RECORDS_PER_STEP) continue;
      yield part;
      [part, bytes] = [[], 0];
    }
  }
  if (part.length > 0) yield part;
}

/** Runs inside a write transaction. The project and its hosts must exist. */
export function putTopSlices(schema: Schema, projectId: string, slices: readonly TopSlice[]): void {
  const project = schema.projects.get(projectId);
  const horizon = metaValue(schema, 'horizon');
  const before = keptListsFrom(schema);
  const put: PutRecord = (_, key, value) => value && schema.topLists.putSync(key, value);
  const kept = slices.filter(({ hour }) => hour * HOUR_MS >= before && (hour + 1) * HOUR_MS > horizon);
  for (const { hostId, hour, record } of kept) {
    const of = project?.scope ?? 0;
    checkRecord(record);
    putRecord(put, hour, hostId === null ? of : hostScope(schema, projectId, of, hostId), record);
  }
  countHourChanges(
    schema,
    projectId,
    kept.map(({ hour }) => hour),
  );
}
