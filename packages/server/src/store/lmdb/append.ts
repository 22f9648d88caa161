/** The write side: one group of batches in one transaction. */
import type { Event } from '../../event.ts';
import { fromLinkRecord, isStart, startWith, toLinkRecord } from '../batches.ts';
import { type Additions, additionsOf, mergeCells, peaksOf, seriesTotals } from '../cells.ts';
import {
  type BatchDecision,
  type CountedBatch,
  type Decision,
  decide,
  decideBatches,
  decideSources,
  type KnownProject,
} from '../decide.ts';
import {
  type FlaggedRequests,
  type Generations,
  NO_REQUESTS,
  type RequestRecord,
} from '../flagged-requests.ts';
import { derivedId } from '../ids.ts';
import { addToLevel, MinuteCells, minuteOf } from '../minutes.ts';
import type { Level } from '../plan.ts';
import { RecordWriter } from '../record-bytes.ts';
import { finish } from '../slices.ts';
import { newSource } from '../sources.ts';
import type { Appended, AppendLimits, Batch, BatchLink, BatchRecord, FollowedPath } from '../store.ts';
import { chunkOfHour, GroupAttacks } from './attacks.ts';
import { RecordReader } from './records.ts';
import {
  addChecksum,
  COUNTERS,
  cellsKey,
  cellsSeed,
  countChange,
  countChunkChange,
  EXACT,
  LEVELS,
  MINUTES,
  metaValue,
  type ProjectRecord,
  type PutRecord,
  SCOPES_MAX,
  type Schema,
  type SourceRecord,
  type StoredRequest,
} from './schema.ts';
import { GroupTopLists, keptListsFrom } from './top-lists.ts';

/** A project as a group of batches finds it. */
class StoredProject implements KnownProject {
  readonly record: ProjectRecord;
  readonly horizon: number;
  /** The scopes of hosts by ID; null if the host is not registered. */
  readonly #scopes = new Map<string, number | null>();
  readonly #sources = new Map<string, number | undefined>();
  readonly #schema: Schema;
  /** While these are the same, so are the records of the project. */
  readonly #state: readonly number[];

  constructor(schema: Schema, record: ProjectRecord) {
    this.#schema = schema;
    this.record = record;
    this.horizon = metaValue(schema, 'horizon');
    this.#state = [
      record.appends,
      this.horizon,
      keptListsFrom(schema),
      metaValue(schema, 'deletedHosts'),
      // Repairs change it.
      metaValue(schema, 'salt'),
    ];
  }

  get generations(): Generations {
    return this.record.generations;
  }

  hasHost = (id: string) => this.scopeOf(id) !== null;

  scopeOf(id: string): number | null {
    let scope = this.#scopes.get(id);
    if (scope === undefined) {
      scope = this.#schema.hosts.get([this.record.scope, id])?.scope ?? null;
      this.#scopes.set(id, scope);
    }
    return scope;
  }

  dayOfBatch = (source: string, id: string) => {
    const number = this.#numberOf(source);
    return number === undefined ? undefined : this.#schema.batches.get([number, id])?.day;
  };

  idsAfter = (source: string, after: string) => {
    const number = this.#numberOf(source);
    return number === undefined ? [] : idsAfter(this.#schema, number, after);
  };

  request = (source: string, key: string): RequestRecord | undefined => {
    const number = this.#numberOf(source);
    if (number === undefined) return undefined;
    const first = Math.max(NO_REQUESTS.generation, this.generations.generation - 1);
    for (let { generation } = this.generations; generation >= first; generation--) {
      const stored = this.#schema.requests.get([this.record.scope, generation, number, key]);
      if (stored !== undefined) return { generation, ...decodeRequest(stored) };
    }
    return undefined;
  };

  #numberOf(source: string): number | undefined {
    if (!this.#sources.has(source)) {
      this.#sources.set(source, this.#schema.sources.get([this.record.scope, source])?.number);
    }
    return this.#sources.get(source);
  }

  /** Whether everything is still as it was read. A host may be new: its events count as if they had arrived before it. */
  isCurrent(now: StoredProject): boolean {
    return this.#state.every((value, i) => value === now.#state[i]);
  }
}

/** What a group of batches adds. */
interface Group {
  project: StoredProject;
  decision: Decision;
  counts: GroupCounts;
  lists: GroupTopLists;
  attacks: GroupAttacks;
  /** The merges with stored records, if they were made before the transaction. */
  writes?: readonly Parameters<PutRecord>[];
}

/** Reads only. */
function* openGroup(
  schema: Schema,
  project: StoredProject,
  batches: readonly Batch[],
  now: number,
  { requestsMax, eventsMax }: AppendLimits,
): Generator<void, Group> {
  const decision = yield* decide(batches, project, now, requestsMax);
  const counts = new GroupCounts();
  const lists = new GroupTopLists(schema, project.record);
  const attacks = new GroupAttacks();
  const hostOf = (id: string | null) => {
    const scope = id === null ? null : project.scopeOf(id);
    return id === null || scope === null ? null : { id, scope };
  };
  for (const { batch, events } of decision.counted) {
    for (const pages of batch.pages ?? []) lists.addPages(pages, hostOf(pages.hostId));
    for (const [i, event] of events.entries()) {
      if (i % EVENTS_PER_STEP === EVENTS_PER_STEP - 1) yield;
      const { time, attack, details, hostId, count } = event;
      const scope = hostId === null ? null : project.scopeOf(hostId);
      counts.add(event, project.record.scope, scope);
      if (attack === null) continue;
      const host = hostId === null || scope === null ? null : { id: hostId, scope };
      if (eventsMax > 0) attacks.add(event, host?.id ?? null);
      if (details === undefined) continue;
      lists.add({ time, attack, details }, count, host);
    }
  }
  return { project, decision, counts, lists, attacks };
}

/** Passes the changed records to `put`. */
function* mergeGroup(
  schema: Schema,
  { project, counts, lists, attacks }: Group,
  { topKeys, eventsMax }: AppendLimits,
  put: PutRecord,
): Generator<void, void> {
  yield* counts.merge(schema, put);
  yield* lists.merge(schema, topKeys, put);
  yield* attacks.merge(schema, project.record, eventsMax, put);
}

const EVENTS_PER_STEP = 500;
/** A group that changes more is merged in its transaction. Full records have some 100 KB, and a batch can change thousands of them. */
const PREPARED_BYTES_MAX = 64 * 1_024 * 1_024;

/**
 * Computes what a transaction will write, before it begins: a transaction holds the event loop, and the write lock of all
 * processes. If something changes in the meantime, all is computed again in the transaction.
 */
export function* prepareGroup(
  schema: Schema,
  batches: readonly Batch[],
  now: number,
  limits: AppendLimits,
): Generator<void, Group | undefined> {
  const record = schema.projects.get(batches[0]?.project ?? '');
  if (record === undefined) return undefined;
  const group = yield* openGroup(schema, new StoredProject(schema, record), batches, now, limits);
  const writes: Parameters<PutRecord>[] = [];
  let bytes = 0;
  const keep: PutRecord = (table, key, value) => {
    writes.push([table, Buffer.from(key), value && Buffer.from(value)]);
    bytes += value?.length ?? 0;
  };
  for (const _ of mergeGroup(schema, group, limits, keep)) {
    if (bytes > PREPARED_BYTES_MAX) return group;
    yield;
  }
  return { ...group, writes };
}

/** Runs inside a write transaction. All batches are of one project. If this throws, the caller must roll back. */
export function appendGroup(
  schema: Schema,
  batches: readonly Batch[],
  now: number,
  limits: AppendLimits,
  prepared?: Group,
): Appended[] {
  const record = openProject(schema, batches[0]?.project ?? '');
  const project = new StoredProject(schema, record);
  const decided = decideBatches(batches, project, now);
  const isCurrent =
    prepared?.project.isCurrent(project) &&
    prepared.decision.batches.outcomes.every((outcome, i) => outcome === decided.outcomes[i]);
  const group = prepared && isCurrent ? prepared : finish(openGroup(schema, project, batches, now, limits));
  const { counted, results, requests, newest } = group.decision;
  if (counted.length === 0) return results;
  const sources = putSources(schema, record, counted);
  putBatches(schema, sources, decided);
  for (const { batch } of counted) if (batch.followed) putFollowed(schema, record, batch.followed);
  putRequests(schema, record, sources, requests);
  schema.projects.putSync(record.id, {
    ...record,
    latest: Math.max(record.latest, newest),
    appends: record.appends + 1,
    generations: requests.generations,
  });
  countChange(schema);
  const changed = new Set<number>();
  const countOnce = (level: number, chunk: number) => {
    const key = chunk * LEVELS.length + level;
    if (changed.has(key)) return;
    changed.add(key);
    countChunkChange(schema, level, chunk);
  };
  const put: PutRecord = (table, key, value) => {
    if (value === null) schema[table].removeSync(key);
    else schema[table].putSync(key, value);
    if (table === 'cells' && key[0] !== EXACT.id) countOnce(key[0] ?? 0, key.readUInt32BE(1));
    // Blocks of the hour before may have been merged.
    if (table === 'attacks') countOnce(MINUTES.id, chunkOfHour(key.readUInt32BE(0)));
  };
  if (group.writes) for (const write of group.writes) put(...write);
  else finish(mergeGroup(schema, group, limits, put));
  return results;
}

/** Returns the number of each source by name. */
function putSources(
  schema: Schema,
  project: ProjectRecord,
  counted: readonly CountedBatch[],
): ReadonlyMap<string, number> {
  const numbers = new Map<string, number>();
  const sources = decideSources(counted, (source) => openSource(schema, project, source));
  for (const [name, { record, hosts }] of sources) {
    const { number } = record;
    numbers.set(name, number);
    schema.sources.putSync([project.scope, name], record);
    for (const id of hosts) {
      if (!schema.sourceHosts.doesExist([number, id])) schema.sourceHosts.putSync([number, id], true);
    }
  }
  return numbers;
}

function putBatches(
  schema: Schema,
  sources: ReadonlyMap<string, number>,
  { added, removed }: BatchDecision,
): void {
  for (const { source, id } of removed) deleteBatch(schema, numberOf(sources, source), id);
  for (const { source, record } of added) putBatch(schema, numberOf(sources, source), record);
}

function numberOf(sources: ReadonlyMap<string, number>, name: string): number {
  const number = sources.get(name);
  if (number === undefined) throw new Error(`the source ${name} of a group was not opened`);
  return number;
}

/** Writes the changes, and deletes forgotten requests: twice as many as were added, until none is left. */
function putRequests(
  schema: Schema,
  { scope }: ProjectRecord,
  sources: ReadonlyMap<string, number>,
  { sources: changed, generation, firstKnown }: FlaggedRequests,
): void {
  let puts = 0;
  for (const [name, { changes }] of changed) {
    const number = numberOf(sources, name);
    // In key order, which is the fastest for the B-tree.
    for (const key of [...changes.keys()].sort()) {
      const record = changes.get(key) ?? null;
      puts++;
      if (record !== null) {
        schema.requests.putSync([scope, record.generation, number, key], encodeRequest(record));
        continue;
      }
      for (const each of [generation, firstKnown]) schema.requests.removeSync([scope, each, number, key]);
    }
  }
  if (puts === 0) return;
  const forgotten = schema.requests.getKeys({
    start: [scope] as never,
    end: [scope, firstKnown] as never,
    limit: 2 * puts,
  });
  for (const key of [...forgotten]) schema.requests.removeSync(key);
}

function encodeRequest({ time, logs, others, waiting }: RequestRecord): StoredRequest {
  if (waiting !== undefined) return [time, logs, others ?? null, waiting];
  if (others !== undefined) return [time, logs, others];
  return logs.length > 0 ? [time, logs] : time;
}

export function decodeRequest(stored: StoredRequest): Omit<RequestRecord, 'generation'> {
  if (typeof stored === 'number') return { time: stored, logs: [] };
  const [time, logs, others, waiting] = stored;
  return { time, logs, ...(others && { others }), ...(waiting !== undefined && { waiting }) };
}

export function putFollowed(schema: Schema, project: ProjectRecord, followed: FollowedPath): void {
  const { source, path } = followed;
  schema.followed.putSync([project.scope, source, derivedId('path', source, path)], followed);
}

export function putBatch(schema: Schema, source: number, { id, day, link }: BatchRecord): void {
  schema.batches.putSync([source, id], link ? { day, after: link.after } : { day });
  schema.batchDays.putSync([day, source, id], true);
  if (link) schema.batchLinks.putSync([source, link.after, id], toLinkRecord(link));
}

export function deleteBatch(schema: Schema, source: number, id: string): void {
  const known = schema.batches.get([source, id]);
  if (known === undefined) return;
  if (known.after !== undefined) schema.batchLinks.removeSync([source, known.after, id]);
  schema.batches.removeSync([source, id]);
  schema.batchDays.removeSync([known.day, source, id]);
}

/** Keeps a batch until a later day. */
export function keepBatchUntil(schema: Schema, source: number, id: string, day: number): void {
  const known = schema.batches.get([source, id]);
  if (known === undefined) return;
  schema.batchDays.removeSync([known.day, source, id]);
  schema.batchDays.putSync([day, source, id], true);
  schema.batches.putSync([source, id], { ...known, day });
}

export function linksAfter({ batchLinks }: Schema, source: number, after: string): BatchLink[] {
  const entries = keysAfter(source, after).flatMap((range) => [...batchLinks.getRange(range)]);
  return entries.map(({ key: [, , id], value }) => ({ id, ...fromLinkRecord(value) }));
}

export function idsAfter({ batchLinks }: Schema, source: number, after: string): string[] {
  const keys = keysAfter(source, after).flatMap((range) => [...batchLinks.getKeys(range)]);
  return keys.map(([, , id]) => id);
}

type LinkKey = [source: number, after: string, id: string];

/** The keys of the links of `batchesAfter`. */
function keysAfter(source: number, after: string): { start: LinkKey; end: LinkKey }[] {
  const range = (first: string, last = first) => {
    return { start: [source, first, ''] as LinkKey, end: [source, last, '\uffff'] as LinkKey };
  };
  if (after === '') return [range(''), range(startWith(''), startWith('\uffff'))];
  return isStart(after) ? [range(''), range(after)] : [range(after)];
}

export function openProject(schema: Schema, id: string): ProjectRecord {
  const known = schema.projects.get(id);
  if (known) return known;
  const scope = nextScope(schema);
  const project = { id, scope, hosts: 0, latest: 0, appends: 0, generations: NO_REQUESTS };
  schema.projects.putSync(id, project);
  return project;
}

/** A scope is the number of a project or a host, for which counts are kept. */
export function nextScope(schema: Schema): number {
  const scope = metaValue(schema, 'scopes') + 1;
  if (scope >= SCOPES_MAX)
    throw new Error(`the store has reached its limit of ${SCOPES_MAX} projects and hosts`);
  schema.meta.putSync('scopes', scope);
  return scope;
}

export function openSource(schema: Schema, project: ProjectRecord, source: Batch['source']): SourceRecord {
  const known = schema.sources.get([project.scope, source.name]);
  if (known) return known;
  const number = metaValue(schema, 'sources') + 1;
  schema.meta.putSync('sources', number);
  return { ...newSource(project.id, source), number };
}

interface RecordAdditions extends Additions {
  level: number;
  chunk: number;
  scope: number;
}

/** Counters of a level by chunk and scope: counts by cellCode. */
type Counters = { level: Level; records: Map<number, Map<number, number>> }[];

/** Sums the events of a group into additions to records: at every level, for their host and for their project. */
class GroupCounts {
  /** By minute and scope. */
  readonly #minutes = new Map<number, MinuteCells>();

  add(event: Event, project: number, host: number | null): void {
    if (!event.request && event.attack === null) return;
    const minute = minuteOf(event) * SCOPES_MAX;
    this.#cells(minute + project).add(event);
    if (host !== null) this.#cells(minute + host).add(event);
  }

  #cells(key: number): MinuteCells {
    let cells = this.#minutes.get(key);
    if (cells === undefined) {
      cells = new MinuteCells();
      this.#minutes.set(key, cells);
    }
    return cells;
  }

  /** Passes the changed records to `put`, first exact ones, then counters by level. In key order, which is the fastest for the B-tree. */
  *merge(schema: Schema, put: PutRecord): Generator<void, void> {
    const records = new RecordReader(schema, { checksAbsence: (level) => level !== EXACT.id });
    const writer = new RecordWriter();
    const key = Buffer.allocUnsafe(9);
    const merge = (record: RecordAdditions) => {
      const { level, chunk, scope } = record;
      // The record is checked before the merge: a new checksum over damaged counts would hide the damage.
      mergeCells(records.read(level, chunk, scope), record, writer);
      const value = addChecksum(writer.withHead(), cellsSeed(level, chunk, scope));
      put('cells', cellsKey(level, chunk, scope, key), value);
    };
    const counters: Counters = COUNTERS.map((level) => ({ level, records: new Map() }));
    for (const [minute, cells] of [...this.#minutes].sort(([a], [b]) => a - b)) {
      const record = recordOf(EXACT.id, minute, cells.sum());
      merge(record);
      // The merge of counters keeps the larger peak.
      addToCounters(counters, record, [...seriesTotals(record), ...peaksOf(writer.bytes())]);
      yield;
    }
    for (const { level, records: changed } of counters) {
      for (const chunk of [...changed.keys()].sort((a, b) => a - b)) {
        merge(recordOf(level.id, chunk, additionsOf(changed.get(chunk) ?? new Map())));
        yield;
      }
    }
  }
}

/** `key`: of the chunk and the scope. */
function recordOf(level: number, key: number, additions: Additions): RecordAdditions {
  return { level, chunk: Math.floor(key / SCOPES_MAX), scope: key % SCOPES_MAX, ...additions };
}

function addToCounters(
  counters: Counters,
  { chunk: minute, scope }: RecordAdditions,
  cells: readonly [series: number, count: number][],
): void {
  if (cells.length === 0) return;
  for (const { level, records } of counters) {
    addToLevel(level, minute, cells, (chunk) => {
      const key = chunk * SCOPES_MAX + scope;
      const known = records.get(key) ?? new Map<number, number>();
      records.set(key, known);
      return known;
    });
  }
}
