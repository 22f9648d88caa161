/** Top lists in the file: one record of ../top-records.ts for each hour and scope. */
import { BoundedCache } from '../../cache.ts';
import type { AttackDetails } from '../../event.ts';
import {
  coveredHours,
  HOUR_MS,
  isDeletedHost,
  QueryTooLarge,
  StoreDamaged,
  storedCategory,
  TOP_LISTS,
  type TopList,
  type TopListName,
  type TopQuery,
  type TopSlice,
} from '../store.ts';
import { checkSummary, hostPrefix, KeyHash, TopMerge } from '../top-lists.ts';
import {
  addToSections,
  decodeSections,
  encodeSections,
  type Sections,
  TopAdditions,
} from '../top-records.ts';
import { inSlices, type Lookups, SLICE_MS, type Slices } from './count.ts';
import { COUNTERS, LEVELS, type Level } from './levels.ts';
import { type Neighbours, neighboursOf } from './records.ts';
import {
  addChecksum,
  allChanges,
  CHECKSUM_BYTES,
  cellsSeed,
  changesOf,
  countChange,
  countChunkChange,
  metaValue,
  type ProjectRecord,
  type ReadOptions,
  type Schema,
  withoutChecksum,
} from './schema.ts';

/** Time comes first, so that live traffic writes at the end of the tree. */
export function listsKey(hour: number, scope: number, key = Buffer.allocUnsafe(8)): Buffer {
  key.writeUInt32BE(hour, 0);
  key.writeUInt32BE(scope, 4);
  return key;
}

export function parseListsKey(key: Buffer): { hour: number; scope: number } {
  if (key.length !== 8) throw new StoreDamaged(`invalid key ${key.toString('hex')} in the table top-lists`);
  return { hour: key.readUInt32BE(0), scope: key.readUInt32BE(4) };
}

/** The summaries in a record by list. Throws if the record is damaged. */
export function checkedSections(key: Buffer, stored: Uint8Array): Sections {
  const { hour, scope } = parseListsKey(key);
  const body = withoutChecksum(stored, cellsSeed(0, hour, scope));
  if (body === undefined) throw new StoreDamaged(recordName(hour, scope));
  return decodeSections(body);
}

function recordName(hour: number, scope: number): string {
  return `the record of the hour ${hour}, scope ${scope} of the table top-lists`;
}

function putSections({ topLists }: Schema, hour: number, scope: number, sections: Sections): void {
  const value = encodeSections(sections, CHECKSUM_BYTES);
  topLists.putSync(listsKey(hour, scope), addChecksum(value, cellsSeed(0, hour, scope)));
}

/** No list has hours that begin before this. Missing in files of releases without top lists. */
export function topListsBefore({ meta }: Schema, read?: ReadOptions): number {
  return meta.get('topLists', read) ?? 0;
}

/** Attacks of a group of batches, of any project. */
export class GroupTopLists {
  readonly #before: number;
  readonly #projects = new Map<string, TopAdditions<number>>();

  constructor(schema: Schema) {
    this.#before = topListsBefore(schema);
  }

  add(
    attack: { time: number; attack: string; details: AttackDetails },
    count: number,
    project: { id: string; scope: number },
    host: { id: string; scope: number } | null,
  ): void {
    if (Math.floor(attack.time / HOUR_MS) * HOUR_MS < this.#before) return;
    let additions = this.#projects.get(project.id);
    if (additions === undefined) {
      additions = new TopAdditions();
      this.#projects.set(project.id, additions);
    }
    additions.add(attack, count, project.scope, host);
  }

  /** In key order. Runs inside the write transaction of the counters, which also counts the change. */
  write(schema: Schema, keysMax: number): void {
    const reader = new SectionReader(schema);
    const records = [...this.#projects].flatMap(([project, additions]) =>
      additions.records().map((record) => ({ project, record })),
    );
    records.sort(({ record: a }, { record: b }) => a.hour - b.hour || a.scope - b.scope);
    for (const { project, record } of records) {
      const { hour, scope } = record;
      const sections = reader.read(hour, scope);
      addToSections(sections, record, project, keysMax);
      putSections(schema, hour, scope, sections);
    }
  }
}

/** Checked reads: a record that is damaged, or not found because a key is damaged, is an error. */
class SectionReader {
  readonly #schema: Schema;
  readonly #read: ReadOptions | undefined;
  readonly #key = Buffer.allocUnsafe(8);
  /** Keys with nothing in between. */
  #gap: Neighbours | null = null;

  constructor(schema: Schema, read?: ReadOptions) {
    this.#schema = schema;
    this.#read = read;
  }

  /** Valid until the next read. */
  read(hour: number, scope: number): Sections {
    const key = listsKey(hour, scope, this.#key);
    const stored = this.#schema.topLists.getBinaryFast(key, this.#read);
    if (stored !== undefined) return checkedSections(key, stored);
    const { before, after } = this.#gap ?? {};
    const isInGap =
      this.#gap !== null &&
      (before === undefined || before.compare(key) < 0) &&
      (after === undefined || key.compare(after) < 0);
    if (isInGap) return [];
    const name = recordName(hour, scope);
    this.#gap = neighboursOf(this.#schema.topLists, Buffer.from(key), checkedSections, name, this.#read);
    return [];
  }
}

/** The slices of a query without those of its last two hours, as long as they do not change. */
interface Base {
  merge: TopMerge;
  /** The change counter of the file when the base was last found to be current. */
  changes: number;
  /** Those of its chunks. */
  chunks: Float64Array;
}

/** Its chunks are the shortest that have change counters: two hours. */
const CHANGE_LEVEL: Level = LEVELS[2];
const CHUNK_HOURS = (CHANGE_LEVEL.cellMs * CHANGE_LEVEL.cellsPerChunk) / HOUR_MS;

/** Of summaries: some seconds of work, as for many hosts during a flood. A flood of a month in one project has 15 MB. */
const QUERY_BYTES_MAX = 256 * 1_024 * 1_024;

const BASES_MAX = 1_000;
const BASE_BYTES_MAX = 64 * 1_024 * 1_024;

interface SelectedScope {
  scope: number;
  prefix: string;
}

/**
 * Live traffic changes the last hours of a range only. So all others are merged once, into a base, and a query merges
 * the last chunk with it.
 */
export function createTopFinder(
  schema: Schema,
  { hostSets, scopesOf, findProject }: Lookups,
  bytesMax = QUERY_BYTES_MAX,
): (query: TopQuery) => Promise<TopList> {
  const bases = new BoundedCache<string, Base>({
    entriesMax: BASES_MAX,
    weightMax: BASE_BYTES_MAX,
    weight: ({ merge, chunks }) => merge.bytes + chunks.byteLength,
  });

  return async ({ project: projectId, hosts, list, categories, limit, ...range }) => {
    const hash = new KeyHash(projectId);
    const selected = categories === undefined ? null : categories.map(storedCategory).sort((a, b) => a - b);
    const known = findProject(projectId, allChanges(schema)).project;
    const scopes = known === undefined ? [] : selectedScopes(known, hosts, list);
    return inSlices(schema, SLICE_MS, function* (read, slices) {
      const horizon = Math.max(metaValue(schema, 'horizon', read), topListsBefore(schema, read));
      const covered = coveredHours(range, horizon);
      const latest = schema.projects.get(projectId, read)?.latest ?? 0;
      const first = Math.max(covered.from / HOUR_MS, firstHour(schema, read));
      const end = Math.min(covered.to / HOUR_MS, Math.floor(latest / HOUR_MS) + 1);
      const split = Math.max(first, Math.floor((end - 1) / CHUNK_HOURS) * CHUNK_HOURS);
      const reader = new SectionReader(schema, read);
      let bytes = 0;
      const merge = function* (from: number, to: number): Generator<void, TopMerge> {
        const merged = new TopMerge(hash, selected);
        for (let hour = from; hour < to; hour++) {
          for (const { scope, prefix } of scopes) {
            const summary = reader.read(hour, scope)[TOP_LISTS.indexOf(list)];
            bytes += summary?.length ?? 0;
            if (bytes > bytesMax) throw new QueryTooLarge('merge top lists');
            if (summary !== undefined) merged.add(summary, prefix);
            if (slices.isOver(summary)) yield;
          }
        }
        return merged;
      };
      const hostSet =
        hosts === undefined ? scopes[0]?.scope : hostSets.idOf(scopes.map(({ scope }) => scope));
      const name = `${hosts === undefined} ${hostSet} ${list} ${selected} ${first} ${split}`;
      const base = yield* findBase(name, first, split, read, slices, merge);
      return { ...covered, ...base.list(yield* merge(split, end), list, limit) };
    });
  };

  function selectedScopes(
    project: ProjectRecord,
    hosts: readonly string[] | undefined,
    list: TopListName,
  ): SelectedScope[] {
    if (hosts === undefined) return [{ scope: project.scope, prefix: '' }];
    const prefixes = new Map<number, string>();
    for (const id of hosts) {
      for (const scope of scopesOf(project, [id])) prefixes.set(scope, list === 'urls' ? hostPrefix(id) : '');
    }
    // In key order, which is also the order in the file.
    return Array.from(prefixes, ([scope, prefix]) => ({ scope, prefix })).sort((a, b) => a.scope - b.scope);
  }

  function* findBase(
    name: string,
    first: number,
    end: number,
    read: ReadOptions,
    slices: Slices,
    merge: (from: number, to: number) => Generator<void, TopMerge>,
  ): Generator<void, TopMerge> {
    const changes = allChanges(schema, read);
    const found = bases.get(name);
    if (found?.changes === changes) return found.merge;
    const firstChunk = Math.floor(first / CHUNK_HOURS);
    const chunks = new Float64Array(Math.max(0, Math.ceil(end / CHUNK_HOURS) - firstChunk));
    for (let i = 0; i < chunks.length; i++) {
      chunks[i] = changesOf(schema.cells, CHANGE_LEVEL.id, firstChunk + i, read) ?? 0;
      if (slices.isOver()) yield;
    }
    const isCurrent = found?.chunks.every((count, i) => count === chunks[i]);
    const merged = found && isCurrent ? found.merge : yield* merge(first, end);
    bases.set(name, { merge: merged, changes, chunks });
    return merged;
  }
}

/** The end of the hours in keys. */
const HOURS_END = 2 ** 32;

/** The first hour of all lists, HOURS_END if there is none: a range may begin years before. */
function firstHour({ topLists }: Schema, read: ReadOptions): number {
  for (const { key, value } of topLists.getRange({ limit: 1, ...read })) {
    checkedSections(key, value);
    return parseListsKey(key).hour;
  }
  return HOURS_END;
}

const RECORDS_PER_STEP = 500;

/** The keys of all records, in parts. Pass the last key to get the next part. */
function keysAfter({ topLists }: Schema, last: Buffer | null, before = Number.POSITIVE_INFINITY): Buffer[] {
  const range = {
    ...(last && { start: last }),
    ...(before < 2 ** 32 && { end: listsKey(before, 0) }),
    limit: RECORDS_PER_STEP + 1,
  };
  return [...topLists.getKeys(range)].filter((key) => last === null || key.compare(last) > 0);
}

/** Each step is for a separate write transaction. */
export function* pruneTopListsSteps(schema: Schema, before: number, freed: number): Generator<() => void> {
  yield () => {
    // By the hour, so that versions do not change more often.
    const next = Math.ceil(before / HOUR_MS) * HOUR_MS;
    if (next <= topListsBefore(schema)) return;
    schema.meta.putSync('topLists', next);
    countChange(schema);
  };
  const end = Math.ceil(Math.max(topListsBefore(schema), freed) / HOUR_MS);
  for (let isDone = false; !isDone; ) {
    yield () => {
      const keys = keysAfter(schema, null, end);
      for (const key of keys) schema.topLists.removeSync(key);
      isDone = keys.length <= RECORDS_PER_STEP;
    };
  }
}

/** Each step is for a separate write transaction. */
export function* deleteTopListsSteps(schema: Schema, projectId: string): Generator<() => void> {
  const project = schema.projects.get(projectId);
  if (project === undefined) return;
  const scopes = new Set([project.scope]);
  for (const { value } of schema.hosts.getRange({ start: [project.scope], end: [project.scope + 1] })) {
    scopes.add(value.scope);
  }
  let last: Buffer | null = null;
  for (let isDone = false; !isDone; ) {
    yield () => {
      const keys = keysAfter(schema, last);
      const own = keys.filter((key) => scopes.has(key.readUInt32BE(4)));
      for (const key of own) schema.topLists.removeSync(key);
      countHourChanges(
        schema,
        own.map((key) => key.readUInt32BE(0)),
      );
      last = keys.at(-1) ?? last;
      isDone = keys.length < RECORDS_PER_STEP;
    };
  }
}

/** For changes of lists without a change of counts. */
function countHourChanges(schema: Schema, hours: readonly number[]): void {
  if (hours.length === 0) return;
  countChange(schema);
  for (const { id, cellMs, cellsPerChunk } of COUNTERS) {
    const chunks = new Set(hours.map((hour) => Math.floor((hour * HOUR_MS) / (cellMs * cellsPerChunk))));
    for (const chunk of chunks) countChunkChange(schema, id, chunk);
  }
}

export function* dumpTopSlices(schema: Schema, projectId: string): Generator<TopSlice[]> {
  const project = schema.projects.get(projectId);
  if (project === undefined) return;
  const hostIds = new Map<number, string | null>([[project.scope, null]]);
  for (const { value } of schema.hosts.getRange({ start: [project.scope], end: [project.scope + 1] })) {
    if (!isDeletedHost(value)) hostIds.set(value.scope, value.id);
  }
  let last: Buffer | null = null;
  for (;;) {
    const keys = keysAfter(schema, last);
    const part: TopSlice[] = [];
    for (const key of keys) {
      const { hour, scope } = parseListsKey(key);
      const hostId = hostIds.get(scope);
      const stored = hostId === undefined ? undefined : schema.topLists.getBinary(key);
      if (hostId === undefined || stored === undefined || hour * HOUR_MS < topListsBefore(schema)) continue;
      for (const [list, summary] of checkedSections(key, stored).entries()) {
        const name = TOP_LISTS[list];
        if (name && summary) part.push({ hostId, list: name, hour, summary: Uint8Array.from(summary) });
      }
    }
    if (part.length > 0) yield part;
    last = keys.at(-1) ?? null;
    if (keys.length < RECORDS_PER_STEP) return;
  }
}

/** Runs inside a write transaction. The project and its hosts must exist. */
export function putTopSlices(schema: Schema, projectId: string, slices: readonly TopSlice[]): void {
  const project = schema.projects.get(projectId);
  const reader = new SectionReader(schema);
  for (const { hostId, list, hour, summary } of slices) {
    const scope = hostId === null ? project?.scope : schema.hosts.get([project?.scope ?? 0, hostId])?.scope;
    if (scope === undefined) throw new Error(`the project ${projectId} has no host ${hostId}`);
    checkSummary(summary);
    const sections = reader.read(hour, scope);
    sections[TOP_LISTS.indexOf(list)] = summary;
    putSections(schema, hour, scope, sections);
  }
  countHourChanges(
    schema,
    slices.map(({ hour }) => hour),
  );
}
