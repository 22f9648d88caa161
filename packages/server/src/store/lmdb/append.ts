/** The write side: one group of batches in one transaction. */
import { isDeepStrictEqual } from 'node:util';
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
import { countedEvents, FlaggedRequests } from '../flagged-requests.ts';
import { derivedId } from '../ids.ts';
import { RecordWriter } from '../record-bytes.ts';
import { finish } from '../slices.ts';
import { newSource, updateSource } from '../sources.ts';
import {
  type Appended,
  type Batch,
  type BatchLink,
  type BatchRecord,
  type FollowedPath,
  storedCategory,
} from '../store.ts';
import { weighTopLists } from '../top-records.ts';
import { COUNTERS, EXACT, type Level } from './levels.ts';
import { RecordReader } from './records.ts';
import {
  addChecksum,
  cellsKey,
  cellsSeed,
  countChange,
  countChunkChange,
  metaValue,
  type ProjectRecord,
  SCOPES_MAX,
  type Schema,
  type SourceRecord,
} from './schema.ts';
import { GroupTopLists, putRecord } from './top-lists.ts';

/** What a group adds, and its merges with stored records as far as they are known. */
class Group {
  readonly counts = new GroupCounts();
  readonly lists: GroupTopLists;
  readonly #batches: CountedBatches = new Map();
  readonly #horizon: number;

  constructor(schema: Schema, room?: { bytes: number }) {
    this.lists = new GroupTopLists(schema, room);
    this.#horizon = metaValue(schema, 'horizon');
  }

  *add(batch: Batch, counted: CountedBatch): Generator<void, void> {
    this.#batches.set(batch, counted);
    const { project, scopes, events } = counted;
    const owner = { id: batch.project, scope: project.scope };
    for (const [i, event] of events.entries()) {
      if (i % EVENTS_PER_STEP === EVENTS_PER_STEP - 1) yield;
      const { time, attack, details, hostId, count } = event;
      const scope = hostId === null ? null : (scopes.get(hostId) ?? null);
      this.counts.add(event, project.scope, scope);
      if (attack === null || details === undefined) continue;
      this.lists.add(
        { time, attack, details },
        count,
        owner,
        scope === null ? null : { id: hostId ?? '', scope },
      );
    }
  }

  /** Whether exactly these batches count, with the same events. */
  isCurrent(schema: Schema, counted: CountedBatches): boolean {
    const isSame = (one: CountedBatch, other: CountedBatch | undefined) =>
      other !== undefined &&
      isDeepStrictEqual(one.sameRequests, other.sameRequests) &&
      [...one.scopes].every(([id, scope]) => other.scopes.get(id) === scope);
    return (
      metaValue(schema, 'horizon') === this.#horizon &&
      this.lists.isCurrent(schema) &&
      this.#batches.size === counted.size &&
      [...counted].every(([batch, one]) => isSame(one, this.#batches.get(batch)))
    );
  }
}

/** What counts of a batch. */
interface CountedBatch {
  project: ProjectRecord;
  /** The scopes of hosts by ID; null if the host is not registered. */
  scopes: ReadonlyMap<string, number | null>;
  /** Those since the horizon, without what another log has counted. */
  events: readonly Event[];
  /** As in Appended. With the horizon, they determine the events. */
  sameRequests: readonly number[];
}

type CountedBatches = Map<Batch, CountedBatch>;

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
  topKeys: number,
): Generator<void, Group> {
  const room = { bytes: PREPARED_BYTES_MAX };
  const group = new Group(schema, room);
  const horizon = metaValue(schema, 'horizon');
  /** By source name. A batch sees the requests of those before it. */
  const requests = new Map<string, FlaggedRequests>();
  for (const batch of batches) {
    const project = schema.projects.get(batch.project);
    if (project === undefined) continue;
    const { name } = batch.source;
    const source = schema.sources.get([project.scope, name]);
    const isDuplicate =
      batch.id !== undefined && source && schema.batches.doesExist([source.number, batch.id]);
    if (isDuplicate) continue;
    const { counted: events, sameRequests } = countedEvents(batch.events, horizon, () => {
      const known = requests.get(name) ?? openRequests(schema, source?.number ?? NO_NUMBER);
      requests.set(name, known);
      return known;
    });
    const scopes = new Map<string, number | null>();
    for (const { hostId } of events) if (hostId !== null) hostScope(schema, project, hostId, scopes);
    yield* group.add(batch, { project, scopes, events, sameRequests });
  }
  yield* group.counts.merge(schema, () => {}, room);
  yield* group.lists.merge(schema, topKeys, () => {});
  return group;
}

/** The number of a source that does not exist yet. */
const NO_NUMBER = 0;

export interface AppendLimits {
  /** How many values a top list keeps per hour, and project or host. */
  topKeys: number;
  /** How many flagged requests a source remembers. */
  requestsMax: number;
}

/** Runs inside a write transaction. If this throws, the caller must roll back. */
export function appendGroup(
  schema: Schema,
  batches: readonly Batch[],
  now: number,
  { topKeys, requestsMax }: AppendLimits,
  prepared?: Group,
): Appended[] {
  const counted: CountedBatches = new Map();
  const horizon = metaValue(schema, 'horizon');
  const results = batches.map((batch) => appendBatch(schema, batch, counted, horizon, now, requestsMax));
  const group = prepared?.isCurrent(schema, counted) ? prepared : new Group(schema);
  if (group !== prepared) {
    for (const [batch, one] of counted) finish(group.add(batch, one));
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
  return results;
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
  return events.length + RECORD_WEIGHT * records + weighTopLists(events);
}

/** Writes everything but the counts of a batch, which the whole group writes at once. */
function appendBatch(
  schema: Schema,
  batch: Batch,
  countedBatches: CountedBatches,
  horizon: number,
  now: number,
  requestsMax: number,
): Appended {
  const project = openProject(schema, batch.project);
  const source = openSource(schema, project, batch.project, batch.source);
  const exists = (id: string) => schema.batches.doesExist([source.number, id]);
  if (batch.id !== undefined && exists(batch.id)) return { kind: 'duplicate' };
  const siblings = (after: string) => idsAfter(schema, source.number, after);
  if (batch.link && !isLinkCurrent(batch.link, exists, siblings)) return { kind: 'conflict' };

  const scopes = new Map<string, number | null>();
  let latest = project.latest;
  let withoutHost = 0;
  let unknownHosts = 0;
  let requests: FlaggedRequests | null = null;
  const { counted, beforeHorizon, sameRecords, sameRequests } = countedEvents(batch.events, horizon, () => {
    requests = openRequests(schema, source.number);
    return requests;
  });
  for (const { time, hostId, recordCount = 1 } of counted) {
    if (hostId === null || hostScope(schema, project, hostId, scopes) === null) {
      withoutHost += recordCount;
      if (hostId !== null) unknownHosts += recordCount;
    }
    if (time > latest) latest = time;
  }
  countedBatches.set(batch, { project, scopes, events: counted, sameRequests });
  schema.projects.putSync(batch.project, { ...project, latest });

  for (const [id, scope] of scopes) {
    if (scope !== null && !schema.sourceHosts.doesExist([source.number, id])) {
      schema.sourceHosts.putSync([source.number, id], true);
    }
  }
  const updated = updateSource(source, batch, counted, withoutHost, sameRecords);
  schema.sources.putSync([project.scope, batch.source.name], updated);
  if (requests !== null) putRequests(schema, source.number, requests, requestsMax);
  if (batch.followed) putFollowed(schema, project, batch.followed);
  if (batch.id !== undefined) {
    const { id, link } = batch;
    const day = dayOf(Math.max(now, latest));
    if (link?.replaces !== undefined) deleteBatch(schema, source.number, link.replaces);
    putBatch(schema, source.number, link ? { id, day, link } : { id, day });
  }
  return {
    kind: 'appended',
    beforeHorizon,
    withoutHost,
    unknownHosts,
    ...(sameRequests.length > 0 && { sameRequests }),
  };
}

function openRequests({ requests, requestNumbers }: Schema, source: number): FlaggedRequests {
  const latest = requestNumbers.getKeys({
    start: [source + 1, 0],
    end: [source, 0],
    reverse: true,
    limit: 1,
  });
  const [last = [source, 0]] = [...latest];
  return new FlaggedRequests(last[1], (key) => requests.get([source, key]));
}

/** Writes the changes, and forgets the oldest requests: at most a few more than were added, because a limit may be lowered. */
function putRequests(
  schema: Schema,
  source: number,
  { changes, last }: FlaggedRequests,
  requestsMax: number,
): void {
  for (const [key, record] of changes) {
    const known = schema.requests.get([source, key]);
    if (known !== undefined && known.number !== record?.number)
      schema.requestNumbers.removeSync([source, known.number]);
    if (record === null) schema.requests.removeSync([source, key]);
    else schema.requests.putSync([source, key], record);
    if (record !== null && known?.number !== record.number)
      schema.requestNumbers.putSync([source, record.number], key);
  }
  const oldest = schema.requestNumbers.getRange({
    start: [source, 0],
    end: [source, last - requestsMax + 1],
    limit: 2 * changes.size,
  });
  for (const { key, value } of [...oldest]) {
    schema.requestNumbers.removeSync(key);
    schema.requests.removeSync([source, value]);
  }
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

function hostScope(
  { hosts }: Schema,
  project: ProjectRecord,
  id: string,
  known: Map<string, number | null>,
): number | null {
  let scope = known.get(id);
  if (scope === undefined) {
    scope = hosts.get([project.scope, id])?.scope ?? null;
    known.set(id, scope);
  }
  return scope;
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
