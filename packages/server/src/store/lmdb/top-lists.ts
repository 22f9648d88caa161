/** Top lists in the file: one record for each hour, list and scope. The summaries are those of ../top-lists.ts. */
import { BoundedCache } from '../../cache.ts';
import type { AttackDetails } from '../../event.ts';
import { RecordWriter } from '../cells.ts';
import {
  coveredHours,
  HOUR_MS,
  StoreDamaged,
  storedCategory,
  TOP_LISTS,
  type TopList,
  type TopListName,
  type TopQuery,
  type TopSlice,
  topKey,
} from '../store.ts';
import {
  addCount,
  type CategoryCounts,
  checkSummary,
  hostPrefix,
  KeyHash,
  TopMerge,
  TopSummary,
} from '../top-lists.ts';
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
  type ReadOptions,
  SCOPES_MAX,
  type Schema,
  withoutChecksum,
} from './schema.ts';

/** Time comes first, so that live traffic writes at the end of the tree. */
export function sliceKey(hour: number, list: number, scope: number, key = Buffer.allocUnsafe(9)): Buffer {
  key.writeUInt32BE(hour, 0);
  key[4] = list;
  key.writeUInt32BE(scope, 5);
  return key;
}

export function parseSliceKey(key: Buffer): { hour: number; list: TopListName; scope: number } {
  const list = TOP_LISTS[key[4] ?? -1];
  if (key.length !== 9 || list === undefined)
    throw new StoreDamaged(`invalid key ${key.toString('hex')} in the table top-lists`);
  return { hour: key.readUInt32BE(0), list, scope: key.readUInt32BE(5) };
}

/** The summary in a record. Throws if the record is damaged. */
export function checkedSummary(key: Buffer, stored: Uint8Array): Uint8Array {
  const { hour, list, scope } = parseSliceKey(key);
  const summary = withoutChecksum(stored, cellsSeed(TOP_LISTS.indexOf(list), hour, scope));
  if (summary === undefined) throw new StoreDamaged(sliceName(hour, list, scope));
  return summary;
}

function sliceName(hour: number, list: TopListName, scope: number): string {
  return `the record of ${list} in the hour ${hour}, scope ${scope} of the table top-lists`;
}

/** No list has hours that begin before this. Missing in files of releases without top lists. */
export function topListsBefore({ meta }: Schema, read?: ReadOptions): number {
  return meta.get('topLists', read) ?? 0;
}

/** Attacks of a group of batches by slice. */
export class TopAdditions {
  readonly #before: number;
  readonly #slices = new Map<number, { hash: KeyHash; additions: Map<string, CategoryCounts> }>();
  readonly #hashes = new Map<string, KeyHash>();

  constructor(schema: Schema) {
    this.#before = topListsBefore(schema);
  }

  add(
    { time, attack, details }: { time: number; attack: string; details: AttackDetails },
    count: number,
    project: { id: string; scope: number },
    host: { id: string; scope: number } | null,
  ): void {
    const hour = Math.floor(time / HOUR_MS);
    if (hour * HOUR_MS < this.#before) return;
    const category = storedCategory(attack);
    for (let list = 0; list < TOP_LISTS.length; list++) {
      const name = TOP_LISTS[list] as TopListName;
      const key = topKey(name, details);
      if (key === undefined) continue;
      const prefix = name === 'urls' ? hostPrefix(host?.id ?? null) : '';
      const slice = (hour * TOP_LISTS.length + list) * SCOPES_MAX;
      this.#add(slice + project.scope, prefix + key, category, count, project.id, '');
      if (host) this.#add(slice + host.scope, key, category, count, project.id, prefix);
    }
  }

  #add(slice: number, key: string, category: number, count: number, project: string, prefix: string): void {
    let known = this.#slices.get(slice);
    if (known === undefined) {
      known = { hash: this.#hash(project, prefix), additions: new Map() };
      this.#slices.set(slice, known);
    }
    const counts = known.additions.get(key);
    if (counts) addCount(counts, category, count);
    else known.additions.set(key, [category, count]);
  }

  #hash(project: string, prefix: string): KeyHash {
    const name = `${project} ${prefix}`;
    const hash = this.#hashes.get(name) ?? new KeyHash(project, prefix);
    this.#hashes.set(name, hash);
    return hash;
  }

  /** In key order. Runs inside the write transaction of the counters, which also counts the change. */
  write(schema: Schema, keysMax: number): void {
    const writer = new RecordWriter();
    const reader = new SliceReader(schema);
    for (const slice of [...this.#slices.keys()].sort((a, b) => a - b)) {
      const { hash, additions } = this.#slices.get(slice) ?? {};
      if (!hash || !additions) continue;
      const scope = slice % SCOPES_MAX;
      const rest = (slice - scope) / SCOPES_MAX;
      const list = rest % TOP_LISTS.length;
      const hour = (rest - list) / TOP_LISTS.length;
      const stored = reader.read(hour, list, scope);
      const summary = stored === undefined ? new TopSummary() : TopSummary.decode(stored);
      summary.add(additions, keysMax, hash);
      summary.encode(writer);
      putSlice(schema, hour, list, scope, writer.withHead());
    }
  }
}

function putSlice({ topLists }: Schema, hour: number, list: number, scope: number, value: Buffer): void {
  topLists.putSync(sliceKey(hour, list, scope), addChecksum(value, cellsSeed(list, hour, scope)));
}

/** Checked reads: a record that is damaged, or not found because a key is damaged, is an error. */
class SliceReader {
  readonly #schema: Schema;
  readonly #read: ReadOptions | undefined;
  readonly #key = Buffer.allocUnsafe(9);
  /** Keys with nothing in between. */
  #gap: Neighbours | null = null;

  constructor(schema: Schema, read?: ReadOptions) {
    this.#schema = schema;
    this.#read = read;
  }

  /** Valid until the next read. */
  read(hour: number, list: number, scope: number): Uint8Array | undefined {
    const key = sliceKey(hour, list, scope, this.#key);
    const stored = this.#schema.topLists.getBinaryFast(key, this.#read);
    if (stored !== undefined) return checkedSummary(key, stored);
    const { before, after } = this.#gap ?? {};
    const isInGap =
      this.#gap !== null &&
      (before === undefined || before.compare(key) < 0) &&
      (after === undefined || key.compare(after) < 0);
    if (isInGap) return undefined;
    const name = sliceName(hour, TOP_LISTS[list] ?? 'sources', scope);
    this.#gap = neighboursOf(this.#schema.topLists, Buffer.from(key), checkedSummary, name, this.#read);
    return undefined;
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
  sliceMs = SLICE_MS,
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
    const scopes: SelectedScope[] =
      known === undefined
        ? []
        : hosts === undefined
          ? [{ scope: known.scope, prefix: '' }]
          : hosts
              .flatMap((id) =>
                scopesOf(known, [id]).map((scope) => ({
                  scope,
                  prefix: list === 'urls' ? hostPrefix(id) : '',
                })),
              )
              .filter(({ scope }, i, all) => all.findIndex((other) => other.scope === scope) === i)
              .sort((a, b) => a.scope - b.scope);
    return inSlices(schema, sliceMs, function* (read, slices) {
      const horizon = Math.max(metaValue(schema, 'horizon', read), topListsBefore(schema, read));
      const covered = coveredHours(range, horizon);
      const latest = schema.projects.get(projectId, read)?.latest ?? 0;
      const first = covered.from / HOUR_MS;
      const end = Math.min(covered.to / HOUR_MS, Math.floor(latest / HOUR_MS) + 1);
      const split = Math.max(first, Math.floor((end - 1) / CHUNK_HOURS) * CHUNK_HOURS);
      const reader = new SliceReader(schema, read);
      const merge = function* (from: number, to: number): Generator<void, TopMerge> {
        const merged = new TopMerge(hash, selected);
        for (let hour = from; hour < to; hour++) {
          for (const { scope, prefix } of scopes) {
            const summary = reader.read(hour, TOP_LISTS.indexOf(list), scope);
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

const SLICES_PER_STEP = 500;

/** The keys of all slices, in parts. Pass the last key to get the next part. */
function keysAfter({ topLists }: Schema, last: Buffer | null, before = Number.POSITIVE_INFINITY): Buffer[] {
  const range = {
    ...(last && { start: last }),
    ...(before < 2 ** 32 && { end: sliceKey(before, 0, 0) }),
    limit: SLICES_PER_STEP + 1,
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
      isDone = keys.length <= SLICES_PER_STEP;
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
      const own = keys.filter((key) => scopes.has(key.readUInt32BE(5)));
      for (const key of own) schema.topLists.removeSync(key);
      countHourChanges(
        schema,
        own.map((key) => key.readUInt32BE(0)),
      );
      last = keys.at(-1) ?? last;
      isDone = keys.length < SLICES_PER_STEP;
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
    hostIds.set(value.scope, value.id);
  }
  let last: Buffer | null = null;
  for (;;) {
    const keys = keysAfter(schema, last);
    const part: TopSlice[] = [];
    for (const key of keys) {
      const { hour, list, scope } = parseSliceKey(key);
      const hostId = hostIds.get(scope);
      const stored = hostId === undefined ? undefined : schema.topLists.getBinary(key);
      if (hostId === undefined || stored === undefined || hour * HOUR_MS < topListsBefore(schema)) continue;
      part.push({ hostId, list, hour, summary: Uint8Array.from(checkedSummary(key, stored)) });
    }
    if (part.length > 0) yield part;
    last = keys.at(-1) ?? null;
    if (keys.length < SLICES_PER_STEP) return;
  }
}

/** Runs inside a write transaction. The project and its hosts must exist. */
export function putTopSlices(schema: Schema, projectId: string, slices: readonly TopSlice[]): void {
  const project = schema.projects.get(projectId);
  for (const { hostId, list, hour, summary } of slices) {
    const scope = hostId === null ? project?.scope : schema.hosts.get([project?.scope ?? 0, hostId])?.scope;
    if (scope === undefined) throw new Error(`the project ${projectId} has no host ${hostId}`);
    checkSummary(summary);
    const value = Buffer.concat([Buffer.alloc(CHECKSUM_BYTES), summary]);
    putSlice(schema, hour, TOP_LISTS.indexOf(list), scope, value);
  }
  countHourChanges(
    schema,
    slices.map(({ hour }) => hour),
  );
}
