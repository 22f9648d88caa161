/** The write side: one group of batches in one transaction. */
import type { Event } from '../../event.ts';
import { fromLinkRecord, isStart, startWith, toLinkRecord } from '../batches.ts';
import { type Additions, additionsOf, MinutePeaks, mergeCells, seriesTotals, sumCells } from '../cells.ts';
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
import { KnownMerges } from '../known-merges.ts';
import { addToLevel, packEvent } from '../minutes.ts';
import type { Level } from '../plan.ts';
import { RecordWriter } from '../record-bytes.ts';
import { finish } from '../slices.ts';
import { newSource } from '../sources.ts';
import type { Appended, AppendLimits, Batch, BatchLink, BatchRecord, FollowedPath } from '../store.ts';
import { RecordReader } from './records.ts';
import {
  addChecksum,
  COUNTERS,
  cellsKey,
  cellsSeed,
  countChange,
  countChunkChange,
  EXACT,
  metaValue,
  type ProjectRecord,
  SCOPES_MAX,
  type Schema,
  type SourceRecord,
  type StoredRequest,
} from './schema.ts';
import { GroupTopLists, putRecord } from './top-lists.ts';

/** A project as a group of batches finds it. */
class StoredProject implements KnownProject {
  readonly record: ProjectRecord;
  readonly horizon: number;
  /** The scopes of hosts by ID; null if the host is not registered. */
  readonly #scopes = new Map<string, number | null>();
  readonly #sources = new Map<string, number | undefined>();
  readonly #schema: Schema;

  constructor(schema: Schema, record: ProjectRecord) {
    this.#schema = schema;
    this.record = record;
    this.horizon = metaValue(schema, 'horizon');
  }

  get generations(): Generations {
    return this.record.generations;
  }

  hasHost = (id: string) => this.scopeOf(id) !== null;

  scopeOf(id: string): number | null {
    let scope = this.#scopes.get(id);
    if (scope === undefined) {
      scope = readScope(this.#schema, this.record, id);
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

  /** Whether what was read of `record`, the horizon and hosts is still the same. */
  isCurrent(record: ProjectRecord): boolean {
    return (
      metaValue(this.#schema, 'horizon') === this.horizon &&
      record.appends === this.record.appends &&
      [...this.#scopes].every(([id, scope]) => readScope(this.#schema, record, id) === scope)
    );
  }
}

/** What a group of batches adds, and the merges with stored records as far as they are known. */
interface Group {
  project: StoredProject;
  decision: Decision;
  counts: GroupCounts;
  lists: GroupTopLists;
}

/** Reads only. `room`: how much is kept of merges. */
function* openGroup(
  schema: Schema,
  project: StoredProject,
  batches: readonly Batch[],
  now: number,
  requestsMax: number,
  room = { bytes: 0 },
): Generator<void, Group> {
  const decision = yield* decide(batches, project, now, requestsMax);
  const counts = new GroupCounts(room);
  const lists = new GroupTopLists(schema, project.record, room);
  for (const { events } of decision.counted) {
    for (const [i, event] of events.entries()) {
      if (i % EVENTS_PER_STEP === EVENTS_PER_STEP - 1) yield;
      const { time, attack, details, hostId, count } = event;
      const scope = hostId === null ? null : project.scopeOf(hostId);
      counts.add(event, project.record.scope, scope);
      if (attack === null || details === undefined) continue;
      const host = hostId === null || scope === null ? null : { id: hostId, scope };
      lists.add({ time, attack, details }, count, host);
    }
  }
  return { project, decision, counts, lists };
}

const EVENTS_PER_STEP = 500;
/** What is kept of a prepared group. Full records have some 100 KB, and a batch can change thousands of them. */
const PREPARED_BYTES_MAX = 64 * 1_024 * 1_024;

/**
 * Computes what a transaction will write, before it begins: a transaction holds the event loop, and the write lock of all
 * processes. What changes in the meantime is computed again in the transaction.
 */
export function* prepareGroup(
  schema: Schema,
  batches: readonly Batch[],
  now: number,
  { topKeys, requestsMax }: AppendLimits,
): Generator<void, Group | undefined> {
  const record = schema.projects.get(batches[0]?.project ?? '');
  if (record === undefined) return undefined;
  const room = { bytes: PREPARED_BYTES_MAX };
  const project = new StoredProject(schema, record);
  const group = yield* openGroup(schema, project, batches, now, requestsMax, room);
  yield* group.counts.merge(schema, () => {});
  yield* group.lists.merge(schema, topKeys, () => {});
  return group;
}

/** Runs inside a write transaction. All batches are of one project. If this throws, the caller must roll back. */
export function appendGroup(
  schema: Schema,
  batches: readonly Batch[],
  now: number,
  { topKeys, requestsMax }: AppendLimits,
  prepared?: Group,
): Appended[] {
  const record = openProject(schema, batches[0]?.project ?? '');
  const project = new StoredProject(schema, record);
  const decided = decideBatches(batches, project, now);
  const isCurrent =
    prepared?.project.isCurrent(record) &&
    prepared.lists.isCurrent(schema) &&
    prepared.decision.batches.outcomes.every((outcome, i) => outcome === decided.outcomes[i]);
  const group =
    prepared && isCurrent ? prepared : finish(openGroup(schema, project, batches, now, requestsMax));
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
  const key = Buffer.allocUnsafe(9);
  let [level, chunk] = [-1, -1];
  const put = (additions: RecordAdditions, value: Buffer) => {
    if (additions.level !== EXACT.id && (additions.level !== level || additions.chunk !== chunk)) {
      ({ level, chunk } = additions);
      countChunkChange(schema, level, chunk);
    }
    schema.cells.putSync(cellsKey(additions.level, additions.chunk, additions.scope, key), value);
  };
  finish(group.counts.merge(schema, put));
  finish(group.lists.merge(schema, topKeys, (hour, scope, list) => putRecord(schema, hour, scope, list)));
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

/** The keys of the links for which `isAfter` holds. */
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

function readScope({ hosts }: Schema, project: ProjectRecord, id: string): number | null {
  return hosts.get([project.scope, id])?.scope ?? null;
}

interface RecordAdditions extends Additions {
  level: number;
  chunk: number;
  scope: number;
}

interface MergedRecord {
  value: Buffer;
  raised: [series: number, peak: number][];
}

/** Counters of a level by chunk and scope: counts by cellCode. */
type Counters = { level: Level; records: Map<number, Map<number, number>> }[];

/** Sums the events of a group into additions to records: at every level, for their host and for their project. */
class GroupCounts {
  /** Packed cells (packCell) by minute and scope, in order of arrival. */
  readonly #minutes = new Map<number, number[]>();
  #exact: RecordAdditions[] | null = null;
  /** Additions to counters, which depend on the peaks of exact records. */
  #counters: RecordAdditions[] | null = null;
  readonly #known: KnownMerges<RecordAdditions, MergedRecord>;

  /** `room`: how much is kept of merges. */
  constructor(room: { bytes: number }) {
    this.#known = new KnownMerges(room);
  }

  add(event: Event, project: number, host: number | null): void {
    packEvent(event, (minute, packed) => {
      this.#list(minute * SCOPES_MAX + project).push(packed);
      if (host !== null) this.#list(minute * SCOPES_MAX + host).push(packed);
    });
  }

  #list(key: number): number[] {
    const list = this.#minutes.get(key) ?? [];
    if (list.length === 0) this.#minutes.set(key, list);
    return list;
  }

  /**
   * Passes the changed records to `put`, first exact ones, then counters by level. The value is valid until the next call.
   * Merges are not repeated while the stored record is the same.
   */
  *merge(schema: Schema, put: (record: RecordAdditions, value: Buffer) => void): Generator<void, void> {
    const records = new RecordReader(schema, { checksAbsence: (level) => level !== EXACT.id });
    const writer = new RecordWriter();
    const peaks = new MinutePeaks();
    let isKnown = true;
    const merge = (record: RecordAdditions, recordPeaks?: MinutePeaks) => {
      const { level, chunk, scope } = record;
      // The record is checked before the merge: a new checksum over damaged counts would hide the damage.
      const stored = records.read(level, chunk, scope);
      const known = this.#known.get(record, stored);
      if (known) return known;
      isKnown = false;
      mergeCells(stored, record, writer, recordPeaks);
      const value = addChecksum(writer.withHead(), cellsSeed(level, chunk, scope));
      const raised = recordPeaks?.raised() ?? [];
      this.#known.keep(record, stored, value.length, () => ({ value: Buffer.from(value), raised }));
      return { value, raised };
    };
    const counters: Counters = COUNTERS.map((level) => ({ level, records: new Map() }));
    for (const record of this.#exactRecords()) {
      const { value, raised } = merge(record, peaks);
      put(record, value);
      addToCounters(counters, record, seriesTotals(record));
      addToCounters(counters, record, raised);
      yield;
    }
    if (!isKnown || this.#counters === null) this.#counters = yield* counterRecords(counters);
    for (const record of this.#counters) {
      put(record, merge(record).value);
      yield;
    }
  }

  /** In key order, which is the fastest for the B-tree. */
  #exactRecords(): RecordAdditions[] {
    this.#exact ??= [...this.#minutes.keys()]
      .sort((a, b) => a - b)
      .map((key) => {
        const cells = sumCells(this.#minutes.get(key) ?? []);
        return { level: EXACT.id, chunk: Math.floor(key / SCOPES_MAX), scope: key % SCOPES_MAX, ...cells };
      });
    return this.#exact;
  }
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

/** In key order within each level. */
function* counterRecords(counters: Counters): Generator<void, RecordAdditions[]> {
  const additions: RecordAdditions[] = [];
  for (const { level, records } of counters) {
    for (const key of [...records.keys()].sort((a, b) => a - b)) {
      const cells = additionsOf(records.get(key) ?? new Map());
      additions.push({
        level: level.id,
        chunk: Math.floor(key / SCOPES_MAX),
        scope: key % SCOPES_MAX,
        ...cells,
      });
      yield;
    }
  }
  return additions;
}
