/** The write side: one group of batches in one transaction. */

import { EVENT_COUNT_MAX, type Event } from '../../event.ts';
import { dayOf, fromLinkRecord, isLinkCurrent, isStart, startWith, toLinkRecord } from '../batches.ts';
import {
  type Additions,
  additionsOf,
  cellCode,
  FIRST_BLOCKED,
  FIRST_CATEGORY,
  FIRST_PEAK,
  MinutePeaks,
  mergeCells,
  packCell,
  REQUESTS,
  seriesTotals,
  sumCells,
} from '../cells.ts';
import {
  type CountedEvents,
  countedEvents,
  FlaggedRequests,
  NO_REQUESTS,
  type RequestRecord,
  weighRequests,
} from '../flagged-requests.ts';
import { derivedId } from '../ids.ts';
import type { Level } from '../plan.ts';
import { RecordWriter } from '../record-bytes.ts';
import { finish } from '../slices.ts';
import { newSource, updateSource } from '../sources.ts';
import {
  type Appended,
  type AppendLimits,
  type Batch,
  type BatchLink,
  type BatchRecord,
  type FollowedPath,
  storedCategory,
} from '../store.ts';
import { weighTopLists } from '../top-records.ts';
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

/** What the batches of a project add, and the merges with stored records as far as they are known. */
class Group {
  readonly counts = new GroupCounts();
  readonly lists: GroupTopLists;
  readonly requests: FlaggedRequests;
  readonly batches: CountedBatch[] = [];
  /** The scopes of hosts by ID; null if the host is not registered. */
  readonly scopes = new Map<string, number | null>();
  latest: number;
  readonly #project: ProjectRecord;
  readonly #horizon: number;

  constructor(schema: Schema, project: ProjectRecord, requestsMax: number, room?: { bytes: number }) {
    this.lists = new GroupTopLists(schema, room);
    this.requests = openRequests(schema, project, requestsMax);
    this.latest = project.latest;
    this.#project = project;
    this.#horizon = metaValue(schema, 'horizon');
  }

  /** Decides what counts of a batch, after those before it. Reads only. */
  *add(schema: Schema, batch: Batch): Generator<void, void> {
    const { scope: projectScope } = this.#project;
    const owner = { id: batch.project, scope: projectScope };
    const { counted, ...drops } = yield* countedEvents(batch, this.#horizon, this.requests);
    const hosts = new Set<string>();
    let [withoutHost, unknownHosts] = [0, 0];
    for (const [i, event] of counted.entries()) {
      if (i % EVENTS_PER_STEP === EVENTS_PER_STEP - 1) yield;
      const { time, attack, details, hostId, count, recordCount = 1 } = event;
      const scope = hostId === null ? null : this.#scopeOf(schema, hostId);
      if (scope === null) {
        withoutHost += recordCount;
        if (hostId !== null) unknownHosts += recordCount;
      } else if (hostId !== null) hosts.add(hostId);
      if (time > this.latest) this.latest = time;
      this.counts.add(event, projectScope, scope);
      if (attack === null || details === undefined) continue;
      this.lists.add(
        { time, attack, details },
        count,
        owner,
        scope === null ? null : { id: hostId ?? '', scope },
      );
    }
    this.batches.push({ batch, counted, ...drops, hosts, withoutHost, unknownHosts });
  }

  /** Whether it is what a new group of these batches would be. */
  isCurrent(schema: Schema, project: ProjectRecord, batches: readonly Batch[]): boolean {
    return (
      metaValue(schema, 'horizon') === this.#horizon &&
      this.lists.isCurrent(schema) &&
      project.appends === this.#project.appends &&
      this.batches.length === batches.length &&
      this.batches.every(({ batch }, i) => batch === batches[i]) &&
      [...this.scopes].every(([id, scope]) => readScope(schema, project, id) === scope)
    );
  }

  #scopeOf(schema: Schema, hostId: string): number | null {
    let scope = this.scopes.get(hostId);
    if (scope === undefined) {
      scope = readScope(schema, this.#project, hostId);
      this.scopes.set(hostId, scope);
    }
    return scope;
  }
}

/** What counts of a batch. */
interface CountedBatch extends CountedEvents {
  batch: Batch;
  /** The registered hosts of its events. */
  hosts: ReadonlySet<string>;
  /** As in Appended. */
  withoutHost: number;
  unknownHosts: number;
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
  { topKeys, requestsMax }: AppendLimits,
): Generator<void, Group | undefined> {
  const project = schema.projects.get(batches[0]?.project ?? '');
  if (project === undefined) return undefined;
  const room = { bytes: PREPARED_BYTES_MAX };
  const group = new Group(schema, project, requestsMax, room);
  for (const batch of batches) {
    const source = schema.sources.get([project.scope, batch.source.name]);
    // Whether its link is current depends on the batches before it, which are not written yet.
    const isDuplicate =
      source && batch.id !== undefined && schema.batches.doesExist([source.number, batch.id]);
    if (!isDuplicate) yield* group.add(schema, batch);
  }
  yield* group.counts.merge(schema, () => {}, room);
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
  const projectId = batches[0]?.project ?? '';
  const project = openProject(schema, projectId);
  const sources = new Map<string, SourceRecord>();
  const outcomes = batches.map((batch) => {
    const { name } = batch.source;
    const source = sources.get(name) ?? openSource(schema, project, projectId, batch.source);
    sources.set(name, source);
    const outcome = outcomeOf(schema, source, batch);
    if (outcome === null) putNewBatch(schema, source.number, batch, Math.max(now, project.latest));
    return outcome;
  });
  const counting = batches.filter((_, i) => outcomes[i] === null);
  const group = prepared?.isCurrent(schema, project, counting)
    ? prepared
    : new Group(schema, project, requestsMax);
  if (group !== prepared) for (const batch of counting) finish(group.add(schema, batch));
  const appended = group.batches.map((counted) => putCounted(schema, project, sources, counted)).values();
  if (counting.length > 0) {
    putRequests(schema, project, sources, group.requests);
    schema.projects.putSync(projectId, {
      ...project,
      latest: Math.max(project.latest, group.latest),
      appends: (project.appends ?? 0) + 1,
      generations: group.requests.generations,
    });
  }
  countChange(schema);
  const key = Buffer.allocUnsafe(9);
  let [level, chunk] = [-1, -1];
  const put = (record: RecordAdditions, value: Buffer) => {
    if (record.level !== EXACT.id && (record.level !== level || record.chunk !== chunk)) {
      ({ level, chunk } = record);
      countChunkChange(schema, level, chunk);
    }
    schema.cells.putSync(cellsKey(record.level, record.chunk, record.scope, key), value);
  };
  finish(group.counts.merge(schema, put));
  finish(group.lists.merge(schema, topKeys, (hour, scope, record) => putRecord(schema, hour, scope, record)));
  // Every batch without an outcome was put.
  return outcomes.map((outcome) => outcome ?? (appended.next().value as Appended));
}

/** Null if the batch counts. */
function outcomeOf(schema: Schema, { number }: SourceRecord, { id, link }: Batch): Appended | null {
  const exists = (other: string) => schema.batches.doesExist([number, other]);
  if (id !== undefined && exists(id)) return { kind: 'duplicate' };
  const siblings = (after: string) => idsAfter(schema, number, after);
  return link && !isLinkCurrent(link, exists, siblings) ? { kind: 'conflict' } : null;
}

/** The cost of writing a record, relative to adding an event to it. */
const RECORD_WEIGHT = 24;

/** The cost of a batch, roughly in microseconds. Exact if the events of each host are sorted by time. */
export function weighBatch({ events }: Batch): number {
  const minutes = new Map<string | null, number>();
  let records = 0;
  for (const { time, hostId } of events) {
    const minute = Math.floor(time / EXACT.cellsPerChunk);
    if (minutes.get(hostId) === minute) continue;
    minutes.set(hostId, minute);
    records++;
  }
  return events.length + RECORD_WEIGHT * records + weighTopLists(events) + weighRequests(events);
}

function putNewBatch(schema: Schema, source: number, { id, link, events }: Batch, since: number): void {
  if (id === undefined) return;
  const day = dayOf(events.reduce((latest, { time }) => Math.max(latest, time), since));
  if (link?.replaces !== undefined) deleteBatch(schema, source, link.replaces);
  putBatch(schema, source, link ? { id, day, link } : { id, day });
}

/** Writes what a batch changes in its source. */
function putCounted(
  schema: Schema,
  project: ProjectRecord,
  sources: Map<string, SourceRecord>,
  {
    batch,
    counted,
    hosts,
    beforeHorizon,
    withoutHost,
    unknownHosts,
    sameRecords,
    sameRequests,
  }: CountedBatch,
): Appended {
  const { name } = batch.source;
  const source = sourceOf(sources, name);
  for (const id of hosts) {
    if (!schema.sourceHosts.doesExist([source.number, id]))
      schema.sourceHosts.putSync([source.number, id], true);
  }
  const updated = updateSource(source, batch, counted, withoutHost, sameRecords);
  sources.set(name, updated);
  schema.sources.putSync([project.scope, name], updated);
  if (batch.followed) putFollowed(schema, project, batch.followed);
  return {
    kind: 'appended',
    beforeHorizon,
    withoutHost,
    unknownHosts,
    ...(sameRequests.length > 0 && { sameRequests }),
  };
}

function sourceOf(sources: ReadonlyMap<string, SourceRecord>, name: string): SourceRecord {
  const source = sources.get(name);
  if (source === undefined) throw new Error(`the source ${name} of a group was not opened`);
  return source;
}

function openRequests(
  { requests, sources }: Schema,
  { scope, generations = NO_REQUESTS }: ProjectRecord,
  requestsMax: number,
): FlaggedRequests {
  const numbers = new Map<string, number | undefined>();
  const numberOf = (name: string) => {
    if (!numbers.has(name)) numbers.set(name, sources.get([scope, name])?.number);
    return numbers.get(name);
  };
  return new FlaggedRequests(generations, requestsMax, (name, key) => {
    const source = numberOf(name);
    if (source === undefined) return undefined;
    const first = Math.max(NO_REQUESTS.generation, generations.generation - 1);
    for (let { generation } = generations; generation >= first; generation--) {
      const stored = requests.get([scope, generation, source, key]);
      if (stored !== undefined) return { generation, ...decodeRequest(stored) };
    }
    return undefined;
  });
}

/** Writes the changes, and deletes forgotten requests: twice as many as were added, until none is left. */
function putRequests(
  schema: Schema,
  { scope }: ProjectRecord,
  sources: ReadonlyMap<string, SourceRecord>,
  { sources: changed, generation, firstKnown }: FlaggedRequests,
): void {
  let puts = 0;
  for (const [name, { changes }] of changed) {
    const { number } = sourceOf(sources, name);
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
  const project = { id, scope: nextScope(schema), hosts: 0, latest: 0 };
  schema.projects.putSync(id, project);
  return project;
}

/** A scope is the number of a project or a host, for which counts are kept. */
export function nextScope({ meta }: Schema): number {
  const scope = (meta.get('scopes') ?? 0) + 1;
  if (scope >= SCOPES_MAX)
    throw new Error(`the store has reached its limit of ${SCOPES_MAX} projects and hosts`);
  meta.putSync('scopes', scope);
  return scope;
}

export function openSource(
  schema: Schema,
  project: ProjectRecord,
  projectId: string,
  source: Batch['source'],
): SourceRecord {
  const fresh = newSource(derivedId('source', projectId, source.name), source);
  const known = schema.sources.get([project.scope, source.name]);
  if (known) return { ...fresh, ...known };
  const number = (schema.meta.get('sources') ?? 0) + 1;
  schema.meta.putSync('sources', number);
  return { ...fresh, number };
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
  /** The record before, without its checksum. */
  stored: Buffer | undefined;
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
  readonly #merged = new Map<RecordAdditions, MergedRecord>();

  add(event: Event, project: number, host: number | null): void {
    if (!(event.count >= 1 && event.count <= EVENT_COUNT_MAX))
      throw new Error(`an event has the count ${event.count}`);
    const minute = Math.floor(event.time / EXACT.cellsPerChunk);
    const cell = event.time - minute * EXACT.cellsPerChunk;
    if (event.request) this.#addCell(minute, project, host, cellCode(REQUESTS, cell), event.count);
    if (event.attack !== null) {
      const category = storedCategory(event.attack);
      const add = (series: number) =>
        this.#addCell(minute, project, host, cellCode(series + category, cell), event.count);
      add(FIRST_CATEGORY);
      if (event.details?.blocked === true) add(FIRST_BLOCKED);
    }
  }

  #addCell(minute: number, project: number, host: number | null, code: number, count: number): void {
    const packed = packCell(code, count);
    this.#list(minute * SCOPES_MAX + project).push(packed);
    if (host !== null) this.#list(minute * SCOPES_MAX + host).push(packed);
  }

  #list(key: number): number[] {
    const list = this.#minutes.get(key) ?? [];
    if (list.length === 0) this.#minutes.set(key, list);
    return list;
  }

  /**
   * Passes the changed records to `put`, first exact ones, then counters by level. The value is valid until the next call.
   * Merges are kept as long as there is room, and not repeated while the stored record is the same.
   */
  *merge(
    schema: Schema,
    put: (record: RecordAdditions, value: Buffer) => void,
    room = { bytes: 0 },
  ): Generator<void, void> {
    const records = new RecordReader(schema, { checksAbsence: (level) => level !== EXACT.id });
    const writer = new RecordWriter();
    const peaks = new MinutePeaks();
    let isKnown = true;
    const merge = (record: RecordAdditions, recordPeaks?: MinutePeaks) => {
      const { level, chunk, scope } = record;
      // The record is checked before the merge: a new checksum over damaged counts would hide the damage.
      const stored = records.read(level, chunk, scope);
      const known = this.#merged.get(record);
      if (known && isSameRecord(known.stored, stored)) return known;
      isKnown = false;
      mergeCells(stored, record, writer, recordPeaks);
      const value = addChecksum(writer.withHead(), cellsSeed(level, chunk, scope));
      const raised = recordPeaks?.raised() ?? [];
      room.bytes -= value.length + (stored?.length ?? 0);
      if (room.bytes >= 0) {
        this.#merged.set(record, {
          stored: stored && Buffer.from(stored),
          value: Buffer.from(value),
          raised,
        });
      }
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

function isSameRecord(one: Buffer | undefined, other: Uint8Array | undefined): boolean {
  return one === undefined || other === undefined ? one === other : one.equals(other);
}

function addToCounters(
  counters: Counters,
  { chunk: minute, scope }: RecordAdditions,
  cells: readonly [series: number, count: number][],
): void {
  if (cells.length === 0) return;
  for (const { level, records } of counters) addToLevel(level, records, minute, scope, cells);
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

function addToLevel(
  level: Level,
  records: Map<number, Map<number, number>>,
  minute: number,
  scope: number,
  totals: readonly [series: number, count: number][],
): void {
  const cell = Math.floor((minute * EXACT.cellsPerChunk) / level.cellMs);
  const chunk = Math.floor(cell / level.cellsPerChunk);
  const key = chunk * SCOPES_MAX + scope;
  const cells = records.get(key) ?? new Map<number, number>();
  records.set(key, cells);
  for (const [series, total] of totals) {
    const code = cellCode(series, cell - chunk * level.cellsPerChunk);
    const known = cells.get(code) ?? 0;
    cells.set(code, series >= FIRST_PEAK ? Math.max(known, total) : known + total);
  }
}
