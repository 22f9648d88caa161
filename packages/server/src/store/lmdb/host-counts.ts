/** Lists of all hosts of a project, and their attacks. */
import type { RangeOptions } from 'lmdb';
import { BoundedCache } from '../../cache.ts';
import { accumulate, accumulateList, listCells } from '../cells.ts';
import { isDeletedHost } from '../ids.ts';
import { SLICE_MS, type Slices } from '../slices.ts';
import { type Host, StoreDamaged, type TimeRange } from '../store.ts';
import { ALL_CELLS, ChunkCache, partKey } from './chunk-cache.ts';
import {
  clip,
  inSlices,
  LISTED_BYTES_MAX,
  type Lookups,
  readChanges,
  rowsOf,
  type Selected,
} from './count.ts';
import { publicHost } from './hosts.ts';
import { type ChunkPlan, EXACT, planChunks } from './levels.ts';
import { matchesHostKey, RecordReader } from './records.ts';
import {
  allChanges,
  deletedHosts,
  type HostRecord,
  metaValue,
  type ProjectRecord,
  type ReadOptions,
  renamedHosts,
  type Schema,
} from './schema.ts';

/** The hosts of a project, except deleted ones. */
interface HostList extends Selected {
  /** Sorted by name. */
  hosts: readonly Host[];
}

export type HostLists = ReturnType<typeof createHostLists>;

/** Some 20 MB. */
const LISTED_HOSTS_MAX = 100_000;
const LISTS_MAX = 10_000;
const HOSTS_PER_PART = 256;

/** Reads the hosts of a project in parts, 5 us per host, and caches them until one is added, renamed or deleted. */
export function createHostLists(schema: Schema, { hostSets }: Lookups) {
  const known = new BoundedCache<number, HostList & { count: number; deleted: number; renamed: number }>({
    name: 'host_lists',
    entriesMax: LISTS_MAX,
    weightMax: LISTED_HOSTS_MAX,
    weight: ({ ids }) => ids.length,
    unitBytes: 200,
  });
  return function* (project: ProjectRecord, read: ReadOptions): Generator<void, HostList> {
    const [deleted, renamed] = [deletedHosts(schema, read), renamedHosts(schema, read)];
    const cached = known.get(project.scope);
    const isSame =
      cached?.count === project.hosts && cached.deleted === deleted && cached.renamed === renamed;
    if (isSame) return cached;
    const found = yield* recordsOf(schema, project, read);
    found.sort((a, b) => a.scope - b.scope);
    const scopes = found.map(({ scope }) => scope);
    const list = {
      scopes,
      ids: found.map(({ id }) => id),
      key: hostSets.idOf(scopes),
      hosts: found.map(publicHost).sort((a, b) => (a.hostname < b.hostname ? -1 : 1)),
      count: project.hosts,
      deleted,
      renamed,
    };
    known.set(project.scope, list);
    return list;
  };
}

function* recordsOf({ hosts }: Schema, { scope }: ProjectRecord, read: ReadOptions) {
  const found = new Map<number, HostRecord>();
  let start: [number] | [number, string] = [scope];
  for (;;) {
    const range: RangeOptions = { start, end: [scope + 1], limit: HOSTS_PER_PART, ...read };
    const part = [...hosts.getRange(range)];
    for (const { key, value } of part) {
      if (!matchesHostKey(key, value)) throw new StoreDamaged(`the key of the host ${value.id}`);
      if (!isDeletedHost(value)) found.set(value.scope, value);
      // The last host of a part is the first of the next.
      start = key;
    }
    if (part.length < HOSTS_PER_PART) return [...found.values()];
    yield;
  }
}

/** Attacks by host ID. A host without attacks is absent. */
export type HostCounter = (
  project: string,
  hosts: readonly string[] | undefined,
  range: TimeRange,
) => Promise<Map<string, number>>;

export function createHostCounter(
  schema: Schema,
  { absences, chunks, hostSets, select, findProject }: Lookups,
  hostLists: HostLists,
  sliceMs = SLICE_MS,
): HostCounter {
  const rowOf = rowsOf({ attacks: () => 0 });
  /** For counters: the attacks of each host, by host set and cells. For cut minutes: the cells of all hosts, by host set. */
  const cache = new ChunkCache(chunks, 'attacksByHost');

  /** The attacks of each scope. */
  function* count(
    { scopes, key = hostSets.idOf(scopes) }: Selected,
    plan: readonly ChunkPlan[],
    read: ReadOptions,
    slices: Slices,
  ): Generator<void, Float64Array> {
    const changes = allChanges(schema, read);
    const records = new RecordReader(schema, { read, known: { absences, allChanges: changes } });
    const attacks = new Float64Array(scopes.length);
    const sum = new Float64Array(1);
    for (const { level, chunk, runs } of plan) {
      const cached = cache.open(level, chunk, changes, () =>
        readChanges(schema, records, level, chunk, read),
      );
      const isExact = level === EXACT.id;
      const part = partKey(key, isExact ? ALL_CELLS : runs);
      // Only a short range has two parts in a chunk of counters.
      const known = isExact || runs.length === 4 ? cached.get(part) : undefined;
      if (known !== undefined) {
        if (isExact) accumulateList(known, runs, 1, attacks);
        else for (const [host, n] of known.entries()) attacks[host] = (attacks[host] ?? 0) + n;
        continue;
      }
      const counts = new Float64Array(scopes.length);
      const list: number[] = [];
      let bytes = 0;
      for (const [host, scope] of scopes.entries()) {
        const record = records.read(level, chunk, scope);
        if (record !== undefined) {
          accumulate(record, runs, rowOf, 1, sum.fill(0));
          counts[host] = sum[0] ?? 0;
          attacks[host] = (attacks[host] ?? 0) + (sum[0] ?? 0);
          bytes += record.length;
          if (isExact && bytes <= LISTED_BYTES_MAX) listCells(record, rowOf, list, host);
        }
        if (slices.isOver(record)) yield;
      }
      if (!isExact && runs.length === 4) cached.put(part, counts);
      if (isExact && bytes <= LISTED_BYTES_MAX) cached.put(part, Float64Array.from(list));
    }
    return attacks;
  }

  return async (projectId, ids, { from, to }) => {
    const { project: found, deleted } = findProject(projectId, allChanges(schema));
    if (found === undefined) return new Map();
    return inSlices(schema, sliceMs, function* (read, slices) {
      const project = schema.projects.get(projectId, read) ?? found;
      const selected = ids === undefined ? yield* hostLists(project, read) : select(project, ids, deleted);
      if (ids === undefined && selected.ids.length !== project.hosts) {
        throw new StoreDamaged(`the project has ${project.hosts} hosts, but ${selected.ids.length} records`);
      }
      const edges = clip([from, to], metaValue(schema, 'horizon', read), project.latest);
      const attacks = yield* count(selected, planChunks(edges), read, slices);
      const byId = new Map<string, number>();
      for (const [host, n] of attacks.entries()) if (n > 0) byId.set(selected.ids[host] ?? '', n);
      return byId;
    });
  };
}
