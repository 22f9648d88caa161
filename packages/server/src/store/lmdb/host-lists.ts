/** Lists of all hosts of a project. */
import type { RangeOptions } from 'lmdb';
import { BoundedCache } from '../../cache.ts';
import { isDeletedHost } from '../ids.ts';
import { Slices } from '../slices.ts';
import { type Host, StoreDamaged } from '../store.ts';
import { inSnapshot, type Lookups, type Selected } from './count.ts';
import { publicHost } from './hosts.ts';
import { matchesHostKey } from './records.ts';
import {
  allChanges,
  type HostRecord,
  metaValue,
  type ProjectRecord,
  type ReadOptions,
  type Schema,
} from './schema.ts';

/** The hosts of a project, except deleted ones. */
interface HostList extends Selected {
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
export function createHostLists(schema: Schema, { nextKey }: Lookups) {
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
      cached.deleted === metaValue(schema, 'deletedHosts', read) &&
      cached.renamed === metaValue(schema, 'renamedHosts', read);
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
      key: nextKey(),
      hosts: found.map(publicHost).sort((a, b) => (a.hostname < b.hostname ? -1 : 1)),
      count: project.hosts,
      deleted: metaValue(schema, 'deletedHosts', read),
      renamed: metaValue(schema, 'renamedHosts', read),
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
      return inSnapshot(schema, async (read) => {
        const steps = list(schema.projects.get(projectId, read) ?? project, read);
        return (await new Slices().run(steps)).hosts;
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
