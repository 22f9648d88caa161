/** Lists of all hosts of a project, and their attacks. */
import type { RangeOptions } from 'lmdb';
import { BoundedCache } from '../../cache.ts';
import { accumulate, rowsOf } from '../cells.ts';
import { isDeletedHost } from '../ids.ts';
import { SLICE_MS, type Slices } from '../slices.ts';
import { type Host, StoreDamaged, type TimeRange } from '../store.ts';
import { ALL_CELLS, ChunkCache, partKey } from './chunk-cache.ts';
import { clip, inSlices, LISTED_BYTES_MAX, type Lookups, readChanges, type Selected } from './count.ts';
import { accumulateList, type CountArray, compact, listCells } from './decoded-cells.ts';
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
  key: number;
  /** Sorted by name. */
  hosts: readonly Host[];
  count: number;
  deleted: number;
  renamed: number;
  /** The change counter of the file when the list was last found to be current. */
  changes: number;
}

export type HostLists = ReturnType<typeof createHostLists>;

/** Some 20 MB. */
const LISTED_HOSTS_MAX = 100_000;
const LISTS_MAX = 10_000;
const HOSTS_PER_PART = 256;

/** Reads the hosts of a project in parts, 5 us per host, and caches them until one is added, renamed or deleted. */
export function createHostLists(schema: Schema, { hostSets }: Lookups) {
  const known = new BoundedCache<number, HostList>({
    name: 'host_lists',
    entriesMax: LISTS_MAX,
    weightMax: LISTED_HOSTS_MAX,
    weight: ({ ids }) => ids.length,
    unitBytes: 200,
  });

  /** Undefined unless a current list is cached. */
  function find(project: ProjectRecord, read?: ReadOptions): HostList | undefined {
    const cached = known.get(project.scope);
    const isCurrent =
      cached?.count === project.hosts &&
      cached.deleted === deletedHosts(schema, read) &&
      cached.renamed === renamedHosts(schema, read);
    return isCurrent ? cached : undefined;
  }

  function* list(project: ProjectRecord, read: ReadOptions): Generator<void, HostList> {
    const changes = allChanges(schema, read);
    const cached = find(project, read);
    if (cached !== undefined) return Object.assign(cached, { changes });
    const found = yield* recordsOf(schema, project, read);
    found.sort((a, b) => a.scope - b.scope);
    const scopes = found.map(({ scope }) => scope);
    const list = {
      scopes,
      ids: found.map(({ id }) => id),
      key: hostSets.idOf(scopes),
      hosts: found.map(publicHost).sort((a, b) => (a.hostname < b.hostname ? -1 : 1)),
      count: project.hosts,
      deleted: deletedHosts(schema, read),
      renamed: renamedHosts(schema, read),
      changes,
    };
    known.set(project.scope, list);
    return list;
  }

  return {
    list,

    /**
     * The cached list if it has all hosts with counts: a new host has none until the change counter differs. Names may be
     * outdated.
     */
    findCounted({ scope }: ProjectRecord, changes: number): HostList | undefined {
      const cached = known.get(scope);
      return cached?.changes === changes ? cached : undefined;
    },

    /** Sorted by name. */
    hosts(projectId: string): readonly Host[] | Promise<readonly Host[]> {
      const project = schema.projects.get(projectId);
      if (project === undefined) return [];
      const cached = find(project);
      if (cached !== undefined) return cached.hosts;
      return inSlices(schema, SLICE_MS, function* (read) {
        return (yield* list(schema.projects.get(projectId, read) ?? project, read)).hosts;
      });
    },
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
) => Map<string, number> | Promise<Map<string, number>>;

export function createHostCounter(
  schema: Schema,
  { changes, absences, chunks, hostSets, select, findProject }: Lookups,
  hostLists: HostLists,
  sliceMs = SLICE_MS,
): HostCounter {
  const rowOf = rowsOf({ attacks: () => 0 });
  /** For counters: the attacks of each host, by host set and cells. For cut minutes: the cells of all hosts, by host set. */
  const cache = new ChunkCache(chunks, 'attacksByHost');

  function addKnown(attacks: Float64Array, known: CountArray, { level, runs }: ChunkPlan): void {
    if (level === EXACT.id) accumulateList(known, runs, 1, attacks);
    else
      for (let host = 0; host < known.length; host++)
        attacks[host] = (attacks[host] ?? 0) + (known[host] ?? 0);
  }

  /** The key of the cells in the cache. Undefined for two runs of counters, which only a short range has: they are not cached. */
  function partOf(key: number, { level, runs }: ChunkPlan): number | undefined {
    if (level === EXACT.id) return partKey(key, ALL_CELLS);
    return runs.length === 4 ? partKey(key, runs) : undefined;
  }

  /** Undefined unless everything is cached. Needs no snapshot, which takes longer than everything here. */
  function countCached(
    projectId: string,
    ids: readonly string[] | undefined,
    { from, to }: TimeRange,
  ): Map<string, number> | undefined {
    const changesNow = changes.get();
    const { project, horizon, deleted } = findProject(projectId, changesNow);
    if (project === undefined) return undefined;
    const selected =
      ids === undefined ? hostLists.findCounted(project, changesNow) : select(project, ids, deleted);
    if (selected?.key === undefined) return undefined;
    const attacks = new Float64Array(selected.scopes.length);
    for (const planned of planChunks(clip([from, to], horizon, project.latest))) {
      const part = partOf(selected.key, planned);
      const known =
        part === undefined ? undefined : cache.find(planned.level, planned.chunk, changesNow, part);
      if (known === undefined) return undefined;
      addKnown(attacks, known, planned);
    }
    return byId(selected, attacks);
  }

  /** The attacks of each scope. */
  function* count(
    { scopes, key = hostSets.idOf(scopes) }: Selected,
    plan: readonly ChunkPlan[],
    read: ReadOptions,
    slices: Slices,
  ): Generator<void, Float64Array> {
    const changesNow = allChanges(schema, read);
    const records = new RecordReader(schema, { read, known: { absences, allChanges: changesNow } });
    const attacks = new Float64Array(scopes.length);
    const sum = new Float64Array(1);
    for (const planned of plan) {
      const { level, chunk, runs } = planned;
      const cached = cache.open(level, chunk, changesNow, () =>
        readChanges(schema, records, level, chunk, read),
      );
      const isExact = level === EXACT.id;
      const part = partOf(key, planned);
      const known = part === undefined ? undefined : cached.get(part);
      if (known !== undefined) {
        addKnown(attacks, known, planned);
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
      if (part === undefined) continue;
      if (!isExact) cached.put(part, compact(counts));
      else if (bytes <= LISTED_BYTES_MAX) cached.put(part, compact(list));
    }
    return attacks;
  }

  return (projectId, ids, range) => {
    const cached = countCached(projectId, ids, range);
    if (cached !== undefined) return cached;
    const { project: found, deleted } = findProject(projectId, changes.renew());
    if (found === undefined) return new Map();
    return inSlices(schema, sliceMs, function* (read, slices) {
      const project = schema.projects.get(projectId, read) ?? found;
      const selected =
        ids === undefined ? yield* hostLists.list(project, read) : select(project, ids, deleted);
      if (ids === undefined && selected.ids.length !== project.hosts) {
        throw new StoreDamaged(`the project has ${project.hosts} hosts, but ${selected.ids.length} records`);
      }
      const edges = clip([range.from, range.to], metaValue(schema, 'horizon', read), project.latest);
      return byId(selected, yield* count(selected, planChunks(edges), read, slices));
    });
  };
}

function byId({ ids }: Selected, attacks: Float64Array): Map<string, number> {
  const counts = new Map<string, number>();
  for (let host = 0; host < attacks.length; host++) {
    const n = attacks[host] ?? 0;
    if (n > 0) counts.set(ids[host] ?? '', n);
  }
  return counts;
}
