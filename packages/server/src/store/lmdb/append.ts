/** The write side: one group of batches in one transaction. */
import { EVENT_COUNT_MAX, type Event } from '../../event.ts';
import { dayOf, fromLinkRecord, isLinkCurrent, toLinkRecord } from '../batches.ts';
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
import { derivedId } from '../ids.ts';
import { RecordWriter } from '../record-bytes.ts';
import { newSource, updateSource } from '../sources.ts';
import {
  type Appended,
  type Batch,
  type BatchLink,
  type BatchRecord,
  type FollowedPath,
  isStart,
  startWith,
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
import { GroupTopLists } from './top-lists.ts';

/** Runs inside a write transaction. If this throws, the caller must roll back. */
export function appendGroup(
  schema: Schema,
  batches: readonly Batch[],
  now: number,
  topKeys: number,
): Appended[] {
  const group = new GroupCounts();
  const lists = new GroupTopLists(schema);
  const horizon = metaValue(schema, 'horizon');
  const results = batches.map((batch) => appendBatch(schema, batch, group, lists, horizon, now));
  const writer = new RecordWriter();
  const records = new RecordReader(schema, { checksAbsence: (level) => level !== EXACT.id });
  const key = Buffer.allocUnsafe(9);
  const put = (additions: RecordAdditions, peaks?: MinutePeaks) => {
    const { level, chunk, scope } = additions;
    // The record is checked before the merge: a new checksum over damaged counts would hide the damage.
    mergeCells(records.read(level, chunk, scope), additions, writer, peaks);
    const value = addChecksum(writer.withHead(), cellsSeed(level, chunk, scope));
    schema.cells.putSync(cellsKey(level, chunk, scope, key), value);
  };
  countChange(schema);
  const peaks = new MinutePeaks();
  for (const additions of group.exactRecords()) {
    put(additions, peaks);
    group.addToCounters(additions.chunk, additions.scope, peaks.raised());
  }
  let [level, chunk] = [-1, -1];
  for (const additions of group.counterRecords()) {
    if (additions.level !== level || additions.chunk !== chunk) {
      ({ level, chunk } = additions);
      countChunkChange(schema, level, chunk);
    }
    put(additions);
  }
  lists.write(schema, topKeys);
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

/** Writes everything but the cells of a batch, which the whole group writes at once. */
function appendBatch(
  schema: Schema,
  batch: Batch,
  group: GroupCounts,
  lists: GroupTopLists,
  horizon: number,
  now: number,
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
  let beforeHorizon = 0;
  for (const event of batch.events) {
    const { recordCount = 1 } = event;
    if (event.time < horizon) {
      beforeHorizon += recordCount;
      continue;
    }
    const scope = event.hostId === null ? null : hostScope(schema, project, event.hostId, scopes);
    if (scope === null) {
      withoutHost += recordCount;
      if (event.hostId !== null) unknownHosts += recordCount;
    }
    if (event.time > latest) latest = event.time;
    group.add(event, project.scope, scope);
    const { attack, details, hostId, count } = event;
    if (attack === null || details === undefined) continue;
    const owner = { id: batch.project, scope: project.scope };
    lists.add({ time: event.time, attack, details }, count, owner, scope === null ? null : hostId);
  }
  schema.projects.putSync(batch.project, { ...project, latest });

  for (const [id, scope] of scopes) {
    if (scope !== null && !schema.sourceHosts.doesExist([source.number, id])) {
      schema.sourceHosts.putSync([source.number, id], true);
    }
  }
  const counted = beforeHorizon === 0 ? batch.events : batch.events.filter(({ time }) => time >= horizon);
  const updated = updateSource(source, batch, counted, withoutHost);
  schema.sources.putSync([project.scope, batch.source.name], updated);
  if (batch.followed) putFollowed(schema, project, batch.followed);
  if (batch.id !== undefined) {
    const { id, link } = batch;
    const day = dayOf(Math.max(now, latest));
    if (link?.replaces !== undefined) deleteBatch(schema, source.number, link.replaces);
    putBatch(schema, source.number, link ? { id, day, link } : { id, day });
  }
  return { kind: 'appended', beforeHorizon, withoutHost, unknownHosts };
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

/** Sums the events of a group into additions to records: at every level, for their host and for their project. */
class GroupCounts {
  /** Packed cells (packCell) by minute and scope, in order of arrival. */
  readonly #minutes = new Map<number, number[]>();
  /** Counts by cellCode, for each chunk and scope. */
  readonly #counters = COUNTERS.map((level) => ({ level, records: new Map<number, Map<number, number>>() }));

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

  /** Yields in key order, which is the fastest for the B-tree. Also computes what `counterRecords` yields. */
  *exactRecords(): Generator<RecordAdditions> {
    for (const key of [...this.#minutes.keys()].sort((a, b) => a - b)) {
      const minute = Math.floor(key / SCOPES_MAX);
      const scope = key % SCOPES_MAX;
      const exact = sumCells(this.#minutes.get(key) ?? []);
      this.addToCounters(minute, scope, seriesTotals(exact));
      yield { level: EXACT.id, chunk: minute, scope, ...exact };
    }
  }

  addToCounters(minute: number, scope: number, cells: readonly [series: number, count: number][]): void {
    if (cells.length === 0) return;
    for (const { level, records } of this.#counters) addToLevel(level, records, minute, scope, cells);
  }

  /** Yields in key order within each level. */
  *counterRecords(): Generator<RecordAdditions> {
    for (const { level, records } of this.#counters) {
      for (const key of [...records.keys()].sort((a, b) => a - b)) {
        const additions = additionsOf(records.get(key) ?? new Map());
        yield { level: level.id, chunk: Math.floor(key / SCOPES_MAX), scope: key % SCOPES_MAX, ...additions };
      }
    }
  }
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
