/** Export of events and batches to another store, and import of a source from one. */
import type { Event } from '../../event.ts';
import { fromLinkRecord } from '../batches.ts';
import { eventsOfCells, readCells } from '../cells.ts';
import { isDeletedHost } from '../ids.ts';
import { type BatchRecord, type Source, StoreDamaged } from '../store.ts';
import { openProject, openSource, putBatch } from './append.ts';
import { chunksOf, records } from './records.ts';
import { EXACT, metaValue, recordName, type Schema } from './schema.ts';

/** Bounds the memory for a part to a few megabytes. */
const EVENTS_PER_PART = 20_000;
const BATCHES_PER_PART = 1_000;

/** Reads the exact milliseconds minute by minute. A part consists of whole minutes; its id is the first of them. */
export function* dumpEvents(schema: Schema, projectId: string): Generator<{ id: string; events: Event[] }> {
  const project = schema.projects.get(projectId);
  if (project === undefined) return;
  const horizon = metaValue(schema, 'horizon');
  const hosts = new Map<number, string>();
  for (const { value } of schema.hosts.getRange({ start: [project.scope], end: [project.scope + 1] })) {
    if (!isDeletedHost(value)) hosts.set(value.scope, value.id);
  }
  let part: { id: string; events: Event[] } | null = null;
  for (const minute of chunksOf(schema, EXACT, Math.floor(horizon / EXACT.cellsPerChunk))) {
    const scopes = readMinute(schema, minute);
    const all = scopes.get(project.scope);
    if (all === undefined) continue;
    part ??= { id: `minute ${minute}`, events: [] };
    for (const event of eventsOf(minute, all, scopes, hosts)) {
      if (event.time >= horizon) part.events.push(event);
    }
    if (part.events.length >= EVENTS_PER_PART) {
      yield part;
      part = null;
    }
  }
  if (part) yield part;
}

/** The records by scope. */
function readMinute(schema: Schema, minute: number): Map<number, Uint8Array> {
  const found = new Map<number, Uint8Array>();
  for (const { scope, sections } of records(schema, EXACT, minute)) {
    if (sections === null) throw new StoreDamaged(recordName(EXACT.id, minute, scope));
    found.set(scope, Uint8Array.from(sections));
  }
  return found;
}

/** The events of the hosts, then the rest of the project's events, which have no host. */
function* eventsOf(
  minute: number,
  all: Uint8Array,
  scopes: ReadonlyMap<number, Uint8Array>,
  hosts: ReadonlyMap<number, string>,
): Generator<Event> {
  const rest = new Map(readCells(all));
  for (const [scope, record] of scopes) {
    const hostId = hosts.get(scope);
    if (hostId === undefined) continue;
    const cells = new Map(readCells(record));
    // The bytes of the hosts may be more than the limit of the project's sum.
    for (const [code, count] of cells) rest.set(code, Math.max(0, (rest.get(code) ?? 0) - count));
    yield* eventsOfCells(minute * EXACT.cellsPerChunk, cells, hostId);
  }
  yield* eventsOfCells(minute * EXACT.cellsPerChunk, rest, null);
}

export function* dumpBatches(schema: Schema, source: number): Generator<BatchRecord[]> {
  let part: BatchRecord[] = [];
  for (const { key, value } of schema.batches.getRange({ start: [source, ''], end: [source + 1, ''] })) {
    const [, id] = key;
    const { day, after } = value;
    const link = after === undefined ? undefined : schema.batchLinks.get([source, after, id]);
    part.push(
      after === undefined || link === undefined
        ? { id, day }
        : { id, day, link: { ...fromLinkRecord(link), after } },
    );
    if (part.length === BATCHES_PER_PART) {
      yield part;
      part = [];
    }
  }
  if (part.length > 0) yield part;
}

/** Runs inside a write transaction. */
export function putSource(
  schema: Schema,
  projectId: string,
  { hosts, ...source }: Source,
  batches: readonly BatchRecord[],
): void {
  const project = openProject(schema, projectId);
  const { number } = openSource(schema, project, source);
  schema.sources.putSync([project.scope, source.name], { ...source, number });
  for (const host of hosts) schema.sourceHosts.putSync([number, host], true);
  for (const batch of batches) putBatch(schema, number, batch);
}
