/** The write side: one group of batches in one transaction. */
import type { Event } from '../../event.ts';
import { derivedId } from '../ids.ts';
import {
  type Appended,
  type Batch,
  type BatchLink,
  type FollowedPath,
  linkHolds,
  linkOfRecord,
  linkRecord,
  newSource,
  type RememberedBatch,
  tallySource,
} from '../store.ts';
import { mergeCells, Writer } from './cells.ts';
import { EXACT } from './levels.ts';
import { RecordReader } from './records.ts';
import {
  cellsKey,
  cellsSeed,
  countChange,
  countChunkChange,
  metaValue,
  type ProjectRecord,
  type Schema,
  type SourceRecord,
} from './schema.ts';
import { SCOPES_MAX, Tally } from './tally.ts';

const DAY_MS = 86_400_000;

/** Runs inside a write transaction; when it throws, the caller must roll back. */
export function appendGroup(schema: Schema, batches: readonly Batch[], now: number): Appended[] {
  const tally = new Tally();
  const horizon = metaValue(schema, 'horizon');
  const results = batches.map((batch) => appendBatch(schema, batch, tally, horizon, now));
  const writer = new Writer();
  const records = new RecordReader(schema, { checksAbsence: (level) => level !== EXACT.id });
  const key = Buffer.allocUnsafe(9);
  let [level, chunk] = [-1, -1];
  countChange(schema);
  for (const additions of tally.records()) {
    if (additions.level !== EXACT.id && (additions.level !== level || additions.chunk !== chunk)) {
      ({ level, chunk } = additions);
      countChunkChange(schema, level, chunk);
    }
    // Checked before it is added to: a new checksum over damaged counts would hide them for good.
    mergeCells(records.read(additions.level, additions.chunk, additions.scope), additions, writer);
    const sealed = writer.sealed(cellsSeed(additions.level, additions.chunk, additions.scope));
    schema.cells.putSync(cellsKey(additions.level, additions.chunk, additions.scope, key), sealed);
  }
  return results;
}

/** What an event costs that is in a record of its own, compared to one that shares its record with others. */
const RECORD_WEIGHT = 24;

/** Roughly the microseconds that a batch takes. Exact where the events of a host come in the order of time. */
export function weighBatch({ events }: Batch): number {
  const minutes = new Map<string | null, number>();
  let records = 0;
  for (let start = 0; start < events.length; start = endOfRun(events, start)) {
    const { time, hostId } = events[start] as Event;
    const minute = Math.floor(time / EXACT.cellsPerChunk);
    if (minutes.get(hostId) === minute) continue;
    minutes.set(hostId, minute);
    records++;
  }
  return events.length + RECORD_WEIGHT * records;
}

/** Everything of a batch but its cells, which the whole group adds at once. */
function appendBatch(schema: Schema, batch: Batch, tally: Tally, horizon: number, now: number): Appended {
  const project = openProject(schema, batch.project);
  const source = openSource(schema, project, batch.project, batch.source);
  if (batch.id !== undefined && schema.batches.doesExist([source.number, batch.id]))
    return { kind: 'duplicate' };
  const exists = (id: string) => schema.batches.doesExist([source.number, id]);
  if (batch.link && !linkHolds(batch.link, exists, (after) => linksAfter(schema, source.number, after))) {
    return { kind: 'conflict' };
  }

  const scopes = new Map<string, number | null>();
  let latest = project.latest;
  let withoutHost = 0;
  let unknownHosts = 0;
  let beforeHorizon = 0;
  for (let start = 0, end = 0; start < batch.events.length; start = end) {
    end = endOfRun(batch.events, start);
    const event = batch.events[start] as Event;
    const times = end - start;
    if (event.time < horizon) {
      beforeHorizon += times;
      continue;
    }
    const scope = event.hostId === null ? null : hostScope(schema, project, event.hostId, scopes);
    if (scope === null) {
      withoutHost += times;
      if (event.hostId !== null) unknownHosts += times;
    }
    if (event.time > latest) latest = event.time;
    tally.add(event, times, project.scope, scope);
  }
  schema.projects.putSync(batch.project, { ...project, latest });

  for (const [id, scope] of scopes) {
    if (scope !== null && !schema.sourceHosts.doesExist([source.number, id])) {
      schema.sourceHosts.putSync([source.number, id], true);
    }
  }
  // Nearly always all of them are, and need no copy.
  const counted = beforeHorizon === 0 ? batch.events : batch.events.filter(({ time }) => time >= horizon);
  const { hosts: _, ...tallied } = tallySource({ ...source, hosts: [] }, batch, counted, withoutHost);
  schema.sources.putSync([project.scope, batch.source.name], { ...tallied, number: source.number });
  if (batch.followed) putFollowed(schema, project, batch.followed);
  if (batch.id !== undefined) rememberBatch(schema, source.number, batch, batch.id, Math.max(now, latest));
  return { kind: 'appended', beforeHorizon, withoutHost, unknownHosts };
}

/** Many access lines of one host and second are one and the same event, again and again: it is looked at once. */
function endOfRun(events: readonly Event[], start: number): number {
  let end = start + 1;
  while (end < events.length && events[end] === events[start]) end++;
  return end;
}

function rememberBatch(schema: Schema, source: number, batch: Batch, id: string, latest: number): void {
  const day = Math.floor(latest / DAY_MS);
  const { link } = batch;
  if (link?.replaces !== undefined) forgetBatch(schema, source, link.replaces);
  putBatch(schema, source, link ? { id, day, link } : { id, day });
}

export function putFollowed(schema: Schema, project: ProjectRecord, followed: FollowedPath): void {
  const { source, path } = followed;
  schema.followed.putSync([project.scope, source, derivedId('path', source, path)], followed);
}

export function putBatch(schema: Schema, source: number, { id, day, link }: RememberedBatch): void {
  schema.batches.putSync([source, id], link ? { day, after: link.after } : { day });
  schema.batchDays.putSync([day, source, id], true);
  if (link) {
    schema.batchLinks.putSync([source, link.after, id], linkRecord(link));
  }
}

export function forgetBatch(schema: Schema, source: number, id: string): void {
  const known = schema.batches.get([source, id]);
  if (known === undefined) return;
  if (known.after !== undefined) schema.batchLinks.removeSync([source, known.after, id]);
  schema.batches.removeSync([source, id]);
  schema.batchDays.removeSync([known.day, source, id]);
}

/** Not to be forgotten before this day. */
export function keepBatch(schema: Schema, source: number, id: string, day: number): void {
  const known = schema.batches.get([source, id]);
  if (known === undefined) return;
  schema.batchDays.removeSync([known.day, source, id]);
  schema.batchDays.putSync([day, source, id], true);
  schema.batches.putSync([source, id], { ...known, day });
}

export function linksAfter({ batchLinks }: Schema, source: number, after: string): BatchLink[] {
  const range = batchLinks.getRange({ start: [source, after, ''], end: [source, after, '\uffff'] });
  return [...range].map(({ key: [, , id], value }) => ({ id, ...linkOfRecord(value) }));
}

export function openProject(schema: Schema, id: string): ProjectRecord {
  const known = schema.projects.get(id);
  if (known) return known;
  const project = { id, scope: nextScope(schema), hosts: 0, latest: 0 };
  schema.projects.putSync(id, project);
  return project;
}

/** Numbers of projects and hosts alike: each is a scope that counts are kept for. */
export function nextScope({ meta }: Schema): number {
  const scope = (meta.get('scopes') ?? 0) + 1;
  if (scope >= SCOPES_MAX) throw new Error(`the store holds its limit of ${SCOPES_MAX} projects and hosts`);
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
