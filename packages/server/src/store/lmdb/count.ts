/** The read side: counts by row and point, and the version of a time range. */
import { BoundedCache, cacheShare, VersionedCache } from '../../cache.ts';
import { ChangeCounter } from '../../lmdb/change-counter.ts';
import { accumulate, type CountArray } from '../cells.ts';
import { type ChunkPlan, clip, type Level, planChunks } from '../plan.ts';
import { LAYOUTS, ROWS, type RowsName, splitRows } from '../rows.ts';
import { finish, SLICE_MS, Slices } from '../slices.ts';
import { type AnyCounts, CACHE_BYTES, type CountQuery, StoreDamaged, type TimeRange } from '../store.ts';
import { CHUNKS_PER_LEVEL, ChunkCache, partKey, SharedChunks } from './chunk-cache.ts';
import {
  accumulateList,
  accumulateTotals,
  addCells,
  compact,
  listCells,
  toRunningTotals,
} from './decoded-cells.ts';
import type { HostLists } from './host-lists.ts';
import { checkAbsence, matchesHostKey, matchesProjectKey, RecordReader } from './records.ts';
import {
  allChanges,
  COUNTERS,
  cellsIn,
  changesOf,
  EXACT,
  LEVELS,
  type MetaKey,
  MINUTES,
  metaValue,
  type ProjectRecord,
  type ReadOptions,
  type Schema,
} from './schema.ts';

/** In a promise if there is so much to read that other work needs a turn in between. */
export type Counter = (query: CountQuery) => AnyCounts | Promise<AnyCounts>;

/** Lists of the cells of a cut minute are cached up to this length, about 40,000 cells: more would evict everything else. */
const LISTED_NUMBERS_MAX = 131_072;

/** About 4 MB, some 40 selections of a thousand hosts: the length of their IDs, and 64 bytes per host for the rest. */
const SELECTION_BYTES_MAX = 4_194_304;
const SELECTIONS_MAX = 10_000;

export type Lookups = ReturnType<typeof createLookups>;

export function createLookups(schema: Schema, cacheBytes = CACHE_BYTES) {
  return {
    changes: new ChangeCounter(
      () => allChanges(schema),
      () => schema.root.resetReadTxn(),
    ),
    chunks: new SharedChunks(cacheShare('chunks', cacheBytes)),
    ...createSelector(schema),
    findProject: createProjectLookup(schema),
  };
}

/** The rows of a query. With `byHost`, each host has its own. */
function shapeOf({ rows, edges, byHost }: CountQuery, hosts: number) {
  const { rowOf, count } = LAYOUTS[rows];
  const [rowCount, rowsPerHost] = byHost ? [count * hosts, count] : [count, 0];
  return { rowOf, rowCount, rowsPerHost, points: edges.length - 1 };
}

function resultOf(
  { rows, byHost, edges }: CountQuery,
  ids: readonly string[],
  counts: Float64Array,
): AnyCounts {
  const layout = LAYOUTS[rows];
  const points = edges.length - 1;
  if (!byHost) return splitRows(layout, counts, points);
  const hosts = new Map<string, Float64Array[]>();
  const length = layout.count * points;
  for (const [host, id] of ids.entries()) {
    if (hasCounts(counts, host * length, (host + 1) * length))
      hosts.set(id, splitRows(layout, counts, points, host * layout.count));
  }
  return hosts;
}

function hasCounts(counts: Float64Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (counts[i] !== 0) return true;
  return false;
}

export function createCounter(
  schema: Schema,
  { changes, chunks, select, findProject }: Lookups,
  hostLists: HostLists,
  sliceMs = SLICE_MS,
): Counter {
  const caches = Object.fromEntries(
    Object.keys(ROWS).map((rows) => [
      rows,
      [new ChunkCache(chunks, rows as RowsName), new ChunkCache(chunks, `${rows as RowsName}ByHost`)],
    ]),
  ) as Record<RowsName, [ChunkCache, ChunkCache]>;
  const cacheOf = ({ rows, byHost }: CountQuery) => caches[rows][byHost ? 1 : 0];

  /**
   * For a single point, only the sum of each row is cached: after an append, the attacks of each of 1,000 hosts take 11 ms
   * instead of 20. Minutes are excluded: their running totals are short, and a range that ends now moves on every minute.
   */
  const isOnePart = ({ level, runs }: ChunkPlan, points: number) =>
    points === 1 && runs.length === 4 && level < MINUTES.id;

  /** What a query counts while the change counter has this value. Hosts are missing if their list has to be read. */
  function open({ edges, ignoreHorizon, ...query }: CountQuery, changesNow: number) {
    const { project, horizon, deleted } = findProject(query.project, changesNow);
    if (project === undefined) return { project, plan: [] };
    const selected =
      query.byHost && query.hosts === undefined
        ? hostLists.findCounted(project, changesNow)
        : select(project, query.hosts, deleted);
    return {
      project,
      selected,
      plan: planChunks(clip(edges, ignoreHorizon ? 0 : horizon, project.latest), LEVELS),
    };
  }

  /** Without a reader, undefined unless everything is cached: that needs no snapshot, which takes longer than all the rest. */
  function* count(
    query: CountQuery,
    { scopes, ids, key: selection }: Selected,
    plan: readonly ChunkPlan[],
    changesNow: number,
    reader?: RecordReader,
  ): Generator<void, AnyCounts | undefined> {
    const cache = cacheOf(query);
    const shape = shapeOf(query, scopes.length);
    const { rowCount, points } = shape;
    const out = new Float64Array(rowCount * points);
    for (const planned of plan) {
      const { level, chunk, runs } = planned;
      const isPart = isOnePart(planned, points);
      const key = isPart ? partKey(selection, runs) : selection;
      let known: CountArray | undefined;
      if (reader === undefined) known = cache.find(level, chunk, changesNow, key);
      else {
        const cached = cache.open(level, chunk, changesNow, () => reader.changes(level, chunk));
        known = cached.get(key) ?? (yield* readNumbers(planned, scopes, shape, reader, isPart));
        if (level !== EXACT.id || known.length <= LISTED_NUMBERS_MAX) known = cached.put(key, known);
      }
      if (known === undefined) return undefined;
      if (isPart) addTo(out, known);
      else if (level === EXACT.id) accumulateList(known, runs, points, out);
      else accumulateTotals(known, cellsIn(level), runs, points, out);
    }
    return resultOf(query, ids, out);
  }

  function* listHosts(id: string, found: ProjectRecord, read: ReadOptions): Generator<void, Selected> {
    // New hosts do not change the counter.
    const project = schema.projects.get(id, read) ?? found;
    const listed = yield* hostLists.list(project, read);
    if (listed.ids.length !== project.hosts)
      throw new StoreDamaged(`the project has ${project.hosts} hosts, but ${listed.ids.length} records`);
    return listed;
  }

  return (query) => {
    const before = changes.get();
    const known = open(query, before);
    const cached = known.selected && finish(count(query, known.selected, known.plan, before));
    if (cached !== undefined) return cached;
    // The cached chunks and those that are read must be of one snapshot.
    const changesNow = changes.renew();
    const { project: found, selected, plan } = open(query, changesNow);
    if (found === undefined) {
      const { rowCount, points } = shapeOf(query, 0);
      return resultOf(query, [], new Float64Array(rowCount * points));
    }
    return inSnapshot(schema, async (read) => {
      const slices = new Slices(sliceMs);
      const hosts = selected ?? (await slices.run(listHosts(query.project, found, read)));
      const reader = new RecordReader(schema, { read });
      // With a reader, there are always counts.
      return (await slices.run(count(query, hosts, plan, changesNow, reader))) as AnyCounts;
    });
  };
}

/** Reads the numbers of a chunk that the cache keeps (decoded-cells.ts): sums of a run, running totals, or a list of cells. */
function* readNumbers(
  { level, chunk, runs }: ChunkPlan,
  scopes: readonly number[],
  { rowOf, rowCount, rowsPerHost }: ReturnType<typeof shapeOf>,
  reader: RecordReader,
  isPart: boolean,
): Generator<void, CountArray> {
  const cells = cellsIn(level);
  const numbersPerRow = isPart ? 1 : cells + 1;
  const sums = new Float64Array(level === EXACT.id ? 0 : rowCount * numbersPerRow);
  const list: number[] = [];
  for (const [host, scope] of scopes.entries()) {
    const record = reader.read(level, chunk, scope);
    const row = host * rowsPerHost;
    const ofHost = sums.subarray(row * numbersPerRow);
    if (record !== undefined) {
      if (isPart) accumulate(record, runs, rowOf, 1, ofHost);
      else if (level === EXACT.id) listCells(record, rowOf, list, row);
      else addCells(record, rowOf, cells, ofHost);
    }
    yield;
  }
  if (isPart) return compact(sums);
  return level === EXACT.id ? compact(list) : toRunningTotals(sums, rowCount, cells);
}

function addTo(out: Float64Array, sums: CountArray): void {
  for (let i = 0; i < sums.length; i++) out[i] = (out[i] ?? 0) + (sums[i] ?? 0);
}

/**
 * Reads one snapshot over several turns of the event loop, so that the result contains all of a concurrent batch or
 * nothing of it.
 */
export async function inSnapshot<T>(schema: Schema, action: (read: ReadOptions) => Promise<T>): Promise<T> {
  const read = { transaction: schema.root.useReadTransaction() };
  try {
    return await action(read);
  } finally {
    read.transaction.done();
  }
}

/** The scopes that a query counts. */
export interface Selected {
  /** In key order, which is also the order in the file. */
  scopes: readonly number[];
  /** Their host IDs. Empty for the whole project. */
  ids: readonly string[];
  /** The key of their sums in the chunk cache. */
  key: number;
}

/** The hosts of repeated queries, and keys for their sums in the chunk cache. */
function createSelector(schema: Schema) {
  const known = new BoundedCache<string, Selected & { deleted: number; hosts: number }>({
    name: 'selections',
    entriesMax: SELECTIONS_MAX,
    weightMax: SELECTION_BYTES_MAX,
    weight: ({ scopes }, name) => name.length + 64 * scopes.length,
  });
  let lastKey = 0;
  /** Negative, unlike scopes, and never reused: the chunk cache may still have the sums of an evicted selection. */
  const nextKey = () => --lastKey;

  function select(project: ProjectRecord, ids: readonly string[] | undefined, deleted: number): Selected {
    if (ids === undefined) return { scopes: [project.scope], ids: [], key: project.scope };
    const name = `${project.scope} ${ids.join()}`;
    const cached = known.get(name);
    // The scope of a host never changes, but an unknown host may be registered.
    const isComplete = cached?.scopes.length === ids.length || cached?.hosts === project.hosts;
    if (cached?.deleted === deleted && isComplete) return cached;
    const hosts = scopesOf(schema, project, ids);
    const scopes = [...hosts.keys()];
    const key = scopes.length === 1 ? (scopes[0] ?? 0) : nextKey();
    const selected = { scopes, ids: [...hosts.values()], key, deleted, hosts: project.hosts };
    known.set(name, selected);
    return selected;
  }

  return { select, nextKey };
}

/** Host IDs by scope, in key order. Unknown hosts are absent. */
export function scopesOf(
  schema: Schema,
  project: ProjectRecord,
  ids: readonly string[],
): Map<number, string> {
  const scopes: [scope: number, id: string][] = [];
  for (const id of ids) {
    const key: [number, string] = [project.scope, id];
    const host = schema.hosts.get(key);
    if (host === undefined) checkAbsence(schema.hosts, key, matchesHostKey);
    else if (!matchesHostKey(key, host)) throw new StoreDamaged(`the key of the host ${id}`);
    else scopes.push([host.scope, id]);
  }
  return new Map(scopes.sort(([a], [b]) => a - b));
}

interface FoundProject {
  project: ProjectRecord | undefined;
  horizon: number;
  /** Deleted hosts of all projects. */
  deleted: number;
}

/** Cached: without it, 30 days by hour take 82 us of processor time instead of 33. */
function createProjectLookup(schema: Schema) {
  let changes = -1;
  const known = new VersionedCache<string, FoundProject>('projects', () => changes);
  return (id: string, changesNow: number): FoundProject => {
    changes = changesNow;
    const cached = known.get(id);
    if (cached !== undefined) return cached;
    const found = {
      project: schema.projects.get(id),
      horizon: metaValue(schema, 'horizon'),
      deleted: metaValue(schema, 'deletedHosts'),
    };
    const { project } = found;
    // Not cached if missing: a new project does not change the counter until it has counts.
    if (project === undefined) checkAbsence(schema.projects, id, matchesProjectKey);
    else if (!matchesProjectKey(id, project)) throw new StoreDamaged(`the key of the project ${id}`);
    else known.set(id, found);
    return found;
  };
}

/** The version of a range is made of at most this many change counters. */
const VERSION_CHUNKS_MAX = 16;
/** More chunks than a range has at the coarsest level. */
const RANGE_CHUNKS = 2 ** 20;

/** `changes`: the global change counter. While it is the same, so is everything that versions are made of. */
export function createVersions(schema: Schema, changes: ChangeCounter): (range: TimeRange) => string {
  /** Values of `meta`, and sums of the change counters of ranges of chunks: without them, a version takes 50 us instead of 1. */
  const known = new VersionedCache<MetaKey | number, number>('versions', () => changes.get());
  const cached = (key: MetaKey | number, read: () => number): number => {
    const found = known.get(key);
    if (found !== undefined) return found;
    changes.renew();
    const value = read();
    // A new change counter clears the cache.
    known.get(key);
    known.set(key, value);
    return value;
  };
  const meta = (key: MetaKey) => cached(key, () => metaValue(schema, key));
  const sumOf = (level: Level, first: number, end: number): number => {
    const key = (level.id * CHUNKS_PER_LEVEL + first) * RANGE_CHUNKS + Math.max(0, end - first);
    return cached(key, () => {
      let sum = 0;
      for (let chunk = first; chunk < end; chunk++) sum += changesOf(schema.cells, level.id, chunk) ?? 0;
      return sum;
    });
  };

  /**
   * Every level counts every change, so one level is enough. The finer it is, the less it covers outside of the range.
   * The counters change by random numbers, so the sum changes whenever one of them does, but for a chance of 1 in 2^40.
   * Chunks before the horizon are left out: freeing them changes no count. All of this takes 1 us, a hash of the counters 2.7 us.
   */
  const compute = ({ from, to }: TimeRange): string => {
    const [horizon, listsBefore] = [meta('horizon'), meta('topLists')];
    const level = COUNTERS.findLast((one) => to - from <= VERSION_CHUNKS_MAX * chunkMs(one)) ?? COUNTERS[0];
    const first = Math.floor(Math.max(from, horizon) / chunkMs(level));
    const sum = sumOf(level, first, Math.ceil(to / chunkMs(level)));
    const limits = `${horizon > from ? horizon : ''}.${listsBefore > from ? listsBefore : ''}`;
    return `${meta('born')}.${meta('salt')}.${limits}.${meta('deletedHosts')}.${sum}`;
  };

  return (range) => {
    for (;;) {
      const before = changes.get();
      const version = compute(range);
      // Otherwise the version is made of two snapshots.
      if (changes.get() === before) return version;
    }
  };
}

function chunkMs({ cellMs, cellsPerChunk }: Level): number {
  return cellMs * cellsPerChunk;
}
