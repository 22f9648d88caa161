/** The read side: counts by row and point, and the version of a time range. */
import { BoundedCache, cacheShare, VersionedCache } from '../../cache.ts';
import { CATEGORIES, type Category, OVERVIEW_GROUPS } from '../../event.ts';
import { ChangeCounter } from '../../lmdb/change-counter.ts';
import { accumulate, rowsOf } from '../cells.ts';
import { SLICE_MS, Slices } from '../slices.ts';
import { CACHE_BYTES, StoreDamaged, type TimeRange } from '../store.ts';
import {
  ALL_CELLS,
  CHUNKS_PER_LEVEL,
  ChunkCache,
  HostSets,
  type KINDS,
  partKey,
  SharedChunks,
} from './chunk-cache.ts';
import {
  accumulateList,
  accumulateTotals,
  addCells,
  type CountArray,
  compact,
  listCells,
  toRunningTotals,
} from './decoded-cells.ts';
import { type ChunkPlan, COUNTERS, cellsIn, EXACT, type Level, MINUTES, planChunks } from './levels.ts';
import { checkAbsence, matchesHostKey, matchesProjectKey, RecordReader } from './records.ts';
import {
  allChanges,
  CHANGES,
  changesOf,
  deletedHosts,
  metaValue,
  type ProjectRecord,
  type ReadOptions,
  type Schema,
  saltOf,
} from './schema.ts';

/**
 * Counts the whole project if `hosts` is undefined. Returns the points row by row; in a promise if there is so much to read
 * that other work needs a turn in between.
 */
export type Counter = (
  project: string,
  hosts: readonly string[] | undefined,
  edges: readonly number[],
  ignoreHorizon?: boolean,
) => Float64Array | Promise<Float64Array>;

const HOUR_MS = 3_600_000;

/** A query beyond these limits runs in slices. At the limits it takes about 4 ms if nothing is decoded yet. */
const RECORDS_AT_ONCE_MAX = 512;
const NUMBERS_AT_ONCE_MAX = 1_048_576;

/** The cells of a cut minute are cached if its records have up to this many bytes: most cells have one or two. */
export const LISTED_BYTES_MAX = 16_384;

/** About 4 MB, some 40 selections of a thousand hosts: the length of their IDs, and 64 bytes per host for the rest. */
const SELECTION_BYTES_MAX = 4_194_304;
const SELECTIONS_MAX = 10_000;
/** About 400 KB. */
const ABSENCES_MAX = 10_000;

/**
 * The rows of a timeline are requests and attacks; a distribution has one row per category. The rows of `byCategory` are
 * requests, attacks by category, and blocked attacks by category. Those of `byGroup` are OVERVIEW_GROUPS without ATTACK,
 * which is the sum of the others.
 */
export function createCounters(
  schema: Schema,
  sliceMs = SLICE_MS,
  lookups = createLookups(schema),
): {
  timeline: Counter;
  distribution: Counter;
  byCategory: Counter;
  byGroup: Counter;
} {
  const timelineRows = rowsOf({ requests: 0, attacks: () => 1 });
  const distributionRows = rowsOf({ attacks: (category) => category });
  const rows = rowsOf({
    requests: 0,
    attacks: (category) => 1 + category,
    blocked: (category) => 1 + CATEGORIES.length + category,
  });
  const groupRows = rowsOf({ requests: 0, attacks: (category) => groupOf(CATEGORIES[category]) });
  const counter = (kind: (typeof KINDS)[number], rowOf: Int8Array, rowCount: number) =>
    createCounter(schema, lookups, new ChunkCache(lookups.chunks, kind), rowOf, rowCount, sliceMs);
  return {
    timeline: counter('timeline', timelineRows, 2),
    distribution: counter('distribution', distributionRows, CATEGORIES.length),
    byCategory: counter('byCategory', rows, 1 + 2 * CATEGORIES.length),
    byGroup: counter('byGroup', groupRows, 5),
  };
}

/** The position of the first group that contains the category. */
function groupOf(category: Category | undefined): number {
  return Object.values(OVERVIEW_GROUPS).findIndex((group) => category && group?.includes(category));
}

export type Lookups = ReturnType<typeof createLookups>;

export function createLookups(schema: Schema, cacheBytes = CACHE_BYTES) {
  const hostSets = new HostSets();
  const scopesOf = createScopeLookup(schema);
  return {
    changes: new ChangeCounter(
      () => allChanges(schema),
      () => schema.root.resetReadTxn(),
    ),
    chunks: new SharedChunks(cacheShare('chunks', cacheBytes)),
    hostSets,
    absences: new BoundedCache<number, number>({ name: 'absences', entriesMax: ABSENCES_MAX, unitBytes: 40 }),
    scopesOf,
    select: createSelector(hostSets, scopesOf),
    findProject: createProjectLookup(schema),
  };
}

function createCounter(
  schema: Schema,
  { changes, hostSets, absences, select, findProject }: Lookups,
  cache: ChunkCache,
  rowOf: Int8Array,
  rowCount: number,
  sliceMs: number,
): Counter {
  /**
   * For a single point, such as that of a distribution, only the sum of each row is cached. Minutes are excluded: their
   * running totals are short, and a range that ends now moves on every minute.
   */
  const isOnePart = ({ level, runs }: ChunkPlan, points: number) =>
    points === 1 && runs.length === 4 && level < MINUTES.id;

  /** Undefined unless everything is cached. */
  function countCached(
    key: number,
    plan: readonly ChunkPlan[],
    points: number,
    changesNow: number,
  ): Float64Array | undefined {
    const out = new Float64Array(rowCount * points);
    for (const planned of plan) {
      const { level, chunk, runs } = planned;
      const isPart = isOnePart(planned, points);
      const known = cache.find(level, chunk, changesNow, partKey(key, isPart ? runs : ALL_CELLS));
      if (known === undefined) return undefined;
      if (isPart) addTo(out, known);
      else if (level === EXACT.id) accumulateList(known, runs, points, out);
      else accumulateTotals(known, cellsIn(level), runs, points, out);
    }
    return out;
  }

  /** Yields when a slice is over. Without `slices`, the first step is the last. */
  function* count(
    { scopes, key }: Selected,
    plan: readonly ChunkPlan[],
    points: number,
    changesNow: number,
    read?: ReadOptions,
    slices?: Slices,
  ): Generator<void, Float64Array> {
    const out = new Float64Array(rowCount * points);
    const reader = new RecordReader(schema, { read, known: { absences, allChanges: changesNow } });
    function* readRecords(level: number, chunk: number, use: (record: Uint8Array) => void) {
      for (const scope of scopes) {
        const record = reader.read(level, chunk, scope);
        if (record !== undefined) use(record);
        if (slices?.isOver(record)) yield;
      }
    }
    for (const planned of plan) {
      const { level, chunk, runs } = planned;
      const cached = cache.open(level, chunk, changesNow, () =>
        readChanges(schema, reader, level, chunk, read),
      );
      const isPart = isOnePart(planned, points);
      const part = key === undefined ? undefined : partKey(key, isPart ? runs : ALL_CELLS);
      const put = (numbers: CountArray) => (part === undefined ? numbers : cached.put(part, numbers));
      let known = part === undefined ? undefined : cached.get(part);
      if (level === EXACT.id) {
        if (known !== undefined) {
          accumulateList(known, runs, points, out);
          continue;
        }
        const list: number[] = [];
        let bytes = 0;
        yield* readRecords(level, chunk, (record) => {
          accumulate(record, runs, rowOf, points, out);
          bytes += record.length;
          if (part !== undefined && bytes <= LISTED_BYTES_MAX) listCells(record, rowOf, list);
        });
        if (bytes <= LISTED_BYTES_MAX) put(compact(list));
      } else if (isPart) {
        if (known === undefined) {
          const sums = new Float64Array(rowCount);
          yield* readRecords(level, chunk, (record) => accumulate(record, runs, rowOf, 1, sums));
          known = put(compact(sums));
        }
        addTo(out, known);
      } else {
        const cells = cellsIn(level);
        if (known === undefined) {
          const sums = new Float64Array(rowCount * (cells + 1));
          yield* readRecords(level, chunk, (record) => addCells(record, rowOf, cells, sums));
          known = put(toRunningTotals(sums, rowCount, cells));
        }
        accumulateTotals(known, cells, runs, points, out);
      }
    }
    return out;
  }

  function countInSlices(
    selected: Selected,
    points: number,
    planIn: (read: ReadOptions) => readonly ChunkPlan[],
  ): Promise<Float64Array> {
    return inSlices(schema, sliceMs, (read, slices) =>
      count(selected, planIn(read), points, allChanges(schema, read), read, slices),
    );
  }

  /** Undefined for an unknown project. `changesNow`: the current value of the counter. */
  function prepare(
    projectId: string,
    hosts: readonly string[] | undefined,
    edges: readonly number[],
    changesNow: number,
    ignoreHorizon: boolean,
  ) {
    const { project, horizon, deleted } = findProject(projectId, changesNow);
    if (project === undefined) return undefined;
    const selected = select(project, hosts, deleted);
    return { project, selected, plan: planChunks(clip(edges, ignoreHorizon ? 0 : horizon, project.latest)) };
  }

  return (projectId, hosts, edges, ignoreHorizon = false) => {
    const points = edges.length - 1;
    const known = prepare(projectId, hosts, edges, changes.get(), ignoreHorizon);
    const cached =
      known?.selected.key === undefined
        ? undefined
        : countCached(known.selected.key, known.plan, points, changes.get());
    if (cached !== undefined) return cached;
    // The cached chunks and those that are read must be of one snapshot.
    const changesNow = changes.renew();
    const prepared = prepare(projectId, hosts, edges, changesNow, ignoreHorizon);
    if (prepared === undefined) return new Float64Array(rowCount * points);
    const { project, selected, plan } = prepared;
    // The only step of `count` returns the counts.
    if (!isLarge(selected.scopes, plan, rowCount))
      return count(selected, plan, points, changesNow).next().value as Float64Array;
    const key = selected.key ?? hostSets.idOf(selected.scopes);
    return countInSlices({ ...selected, key }, points, (read) => {
      const { latest } = schema.projects.get(projectId, read) ?? project;
      return planChunks(clip(edges, ignoreHorizon ? 0 : metaValue(schema, 'horizon', read), latest));
    });
  };
}

/** 0 for a chunk without counters. A damaged key must not look like one. */
export function readChanges(
  schema: Schema,
  records: RecordReader,
  level: number,
  chunk: number,
  read?: ReadOptions,
): number {
  if (level === EXACT.id) {
    // Exact records have no change counter of their own.
    return readChanges(schema, records, MINUTES.id, Math.floor(chunk / MINUTES.cellsPerChunk), read);
  }
  const found = changesOf(schema.cells, level, chunk, read);
  if (found === undefined) records.checkAbsence(level, chunk, CHANGES);
  return found ?? 0;
}

function isLarge(scopes: readonly number[], plan: readonly ChunkPlan[], rowCount: number): boolean {
  if (scopes.length === 1) return false;
  if (scopes.length * plan.length > RECORDS_AT_ONCE_MAX) return true;
  const cells = plan.reduce((sum, { level }) => sum + (level === EXACT.id ? 0 : cellsIn(level)), 0);
  return scopes.length * cells * rowCount > NUMBERS_AT_ONCE_MAX;
}

function addTo(out: Float64Array, sums: CountArray): void {
  for (let i = 0; i < sums.length; i++) out[i] = (out[i] ?? 0) + (sums[i] ?? 0);
}

/**
 * Runs work over several turns of the event loop. It yields when a slice is over, and reads one snapshot, so that its
 * result contains all of a concurrent batch or nothing of it.
 */
export async function inSlices<T>(
  schema: Schema,
  sliceMs: number,
  start: (read: ReadOptions, slices: Slices) => Generator<void, T>,
): Promise<T> {
  const read = { transaction: schema.root.useReadTransaction() };
  const slices = new Slices(sliceMs);
  try {
    const work = start(read, slices);
    for (;;) {
      const { done, value } = work.next();
      if (done) return value;
      await slices.next();
    }
  } finally {
    read.transaction.done();
  }
}

/**
 * Limits edges to the time from the horizon to the latest event: there is nothing to count outside. Edges after the latest
 * event move to the end of its hour: for an edge within the newest minute, all its milliseconds would have to be read.
 */
export function clip(edges: readonly number[], horizon: number, latest: number): readonly number[] {
  if ((edges[0] ?? 0) >= horizon && (edges.at(-1) ?? 0) <= latest) return edges;
  const end = (Math.floor(latest / HOUR_MS) + 1) * HOUR_MS;
  return edges.map((edge) => (edge > latest ? end : Math.min(Math.max(edge, horizon), end)));
}

/** The scopes that a query counts. */
export interface Selected {
  /** In key order, which is also the order in the file. */
  scopes: readonly number[];
  /** Their host IDs. Empty for the whole project. */
  ids: readonly string[];
  /** The key of their sums in the chunk cache; undefined if they are not worth caching. */
  key: number | undefined;
}

type ScopeLookup = ReturnType<typeof createScopeLookup>;

/**
 * Caches whole selections: a lookup of each host takes half as long as the rest of a query. Cached until a host is deleted:
 * the scope of a host never changes.
 */
function createSelector(hostSets: HostSets, scopesOf: ScopeLookup) {
  const known = new BoundedCache<string, Selected>({
    name: 'selections',
    entriesMax: SELECTIONS_MAX,
    weightMax: SELECTION_BYTES_MAX,
    weight: ({ scopes }, name) => name.length + 64 * scopes.length,
  });
  let deletedBefore = 0;
  return (project: ProjectRecord, ids: readonly string[] | undefined, deleted: number): Selected => {
    if (ids === undefined) return { scopes: [project.scope], ids: [], key: project.scope };
    if (deleted !== deletedBefore) known.clear();
    deletedBefore = deleted;
    const name = `${project.scope} ${ids.join()}`;
    const found = known.get(name);
    if (found !== undefined) return found;
    const hosts = scopesOf(project, ids);
    const scopes = [...hosts.keys()];
    const key = scopes.length === 1 ? scopes[0] : hostSets.idIfRepeated(scopes);
    const selected = { scopes, ids: [...hosts.values()], key };
    // An unknown host may be registered later.
    if (selected.key !== undefined && scopes.length === ids.length) known.set(name, selected);
    return selected;
  };
}

/** Host IDs by scope, in key order. */
function createScopeLookup(schema: Schema) {
  return (project: ProjectRecord, ids: readonly string[]): Map<number, string> => {
    const scopes: [scope: number, id: string][] = [];
    for (const id of ids) {
      const key: [number, string] = [project.scope, id];
      const host = schema.hosts.get(key);
      if (host === undefined) {
        checkAbsence(schema.hosts, key, matchesHostKey);
        continue;
      }
      if (!matchesHostKey(key, host)) throw new StoreDamaged(`the key of the host ${id}`);
      scopes.push([host.scope, id]);
    }
    return new Map(scopes.sort(([a], [b]) => a - b));
  };
}

interface FoundProject {
  project: ProjectRecord | undefined;
  horizon: number;
  /** Deleted hosts of all projects. */
  deleted: number;
}

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
      deleted: deletedHosts(schema),
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

interface Marks {
  /** The change counter when they were read. */
  changes: number;
  /** Tells this file from others. */
  file: string;
  horizon: number;
  listsBefore: number;
  deleted: number;
}

/** `changes`: the global change counter. While it is the same, so is everything that versions are made of. */
export function createVersions(schema: Schema, changes: ChangeCounter): (range: TimeRange) => string {
  /** The sums of the change counters of ranges of chunks. */
  const sums = new VersionedCache<number, number>('versions', () => changes.get());
  let marks: Marks = { changes: -1, file: '', horizon: 0, listsBefore: 0, deleted: 0 };
  const currentMarks = () => {
    if (marks.changes !== changes.get()) {
      marks = {
        changes: changes.renew(),
        file: `${metaValue(schema, 'born').toString(36)}.${saltOf(schema).toString(36)}`,
        horizon: metaValue(schema, 'horizon'),
        listsBefore: schema.meta.get('topLists') ?? 0,
        deleted: deletedHosts(schema),
      };
    }
    return marks;
  };
  const sumOf = (level: Level, first: number, end: number): number => {
    const key = (level.id * CHUNKS_PER_LEVEL + first) * RANGE_CHUNKS + Math.max(0, end - first);
    const known = sums.get(key);
    if (known !== undefined) return known;
    changes.renew();
    let sum = 0;
    for (let chunk = first; chunk < end; chunk++) sum += changesOf(schema.cells, level.id, chunk) ?? 0;
    // A new change counter clears the cache.
    sums.get(key);
    sums.set(key, sum);
    return sum;
  };

  /**
   * Every level counts every change, so one level is enough. The finer it is, the less it covers outside of the range.
   * The counters change by random numbers, so the sum changes whenever one of them does, but for a chance of 1 in 2^40.
   * Chunks before the horizon are left out: freeing them changes no count. All of this takes 1 us, a hash of the counters 2.7 us.
   */
  const compute = ({ from, to }: TimeRange): string => {
    const { file, horizon, listsBefore, deleted } = currentMarks();
    const level = COUNTERS.findLast((one) => to - from <= VERSION_CHUNKS_MAX * chunkMs(one)) ?? COUNTERS[0];
    const first = Math.floor(Math.max(from, horizon) / chunkMs(level));
    const sum = sumOf(level, first, Math.ceil(to / chunkMs(level)));
    const limits = `${horizon > from ? horizon : ''}.${listsBefore > from ? listsBefore : ''}`;
    return `${file}.${limits}.${deleted || ''}.${sum}`;
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
