/** The embedded store. This file is the contract's verbs; append.ts writes, levels.ts and cells.ts read. */
import { CommitFailed, commit } from '../../lmdb-commit.ts';
import { type Soon, whenKnown } from '../../soon.ts';
import { OncePerTurn } from '../../while-unchanged.ts';
import { GroupCommit } from '../group.ts';
import { derivedId } from '../ids.ts';
import {
  type AddedHost,
  type Appended,
  type Batch,
  type Host,
  type NewHost,
  NO_SOURCE,
  type RenamedHost,
  type Source,
  type Store,
  StoreDamaged,
  StoreUnavailable,
} from '../store.ts';
import { appendGroup, linksAfter, nextScope, openProject } from './append.ts';
import { createCounter, DISTRIBUTION_ROWS, TIMELINE_ROWS } from './count.ts';
import { dumpBatches, dumpEvents, putSource } from './dump.ts';
import { pruneSteps } from './prune.ts';
import {
  allChanges,
  type HostRecord,
  metaValue,
  openSchema,
  type ProjectRecord,
  type Schema,
} from './schema.ts';
import { createVersions } from './versions.ts';

export function lmdbStore(path: string, now: () => number = Date.now): Store {
  const schema = openSchema(path);
  const { root } = schema;
  const timelines = createCounter(schema, TIMELINE_ROWS);
  const distributions = createCounter(schema, DISTRIBUTION_ROWS);
  const changes = new OncePerTurn(() => allChanges(schema));
  const versionOf = createVersions(schema, changes);
  const counting = new Pending();
  let closed = false;

  const write = <T>(action: () => T): Promise<T> =>
    available(() => commit(root, action).finally(() => changes.forget()));

  const appends = new GroupCommit<Batch, Appended>(
    (batch) => batch.events.length,
    (batches) => write(() => appendGroup(schema, batches, now())),
  );

  async function available<T>(action: () => T | Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    try {
      return await action();
    } catch (error) {
      throw asUnavailable(error);
    }
  }

  function availableAtOnce<T>(action: () => T): T {
    if (closed) throw new StoreUnavailable('the store is closed');
    try {
      return action();
    } catch (error) {
      throw asUnavailable(error);
    }
  }

  return {
    fileId: metaValue(schema, 'born'),

    append: (batch) =>
      closed ? Promise.reject(new StoreUnavailable('the store is closed')) : appends.add(batch),

    series: ({ project, hosts, edges }) =>
      available(() => {
        const points = edges.length - 1;
        return whenKnown(counting.track(timelines(project, hosts, edges)), (counts) => ({
          requests: counts.subarray(0, points),
          attacks: counts.subarray(points),
        }));
      }),

    totals: ({ project, hosts, from, to }) =>
      available(() => counting.track(distributions(project, hosts, [from, to]))),

    version: ({ from, to }) => availableAtOnce(() => versionOf(from, to)),

    batchesAfter: (project, source, after) =>
      available(() => {
        const known = sourceNumber(schema, project, source);
        return known === undefined ? [] : linksAfter(schema, known, after);
      }),

    addHost: (host) =>
      available(async () => {
        const project = schema.projects.get(host.project);
        const found = project && findHost(schema, project, host);
        return found ?? (await write(() => addHost(schema, host, now())));
      }),

    renameHost: ({ project, id, hostname }) => write(() => renameHost(schema, project, id, hostname)),

    hosts: (project) =>
      available(() => {
        const known = schema.projects.get(project);
        if (known === undefined) return [];
        const range = schema.hosts.getRange({ start: [known.scope], end: [known.scope + 1] });
        return [...range]
          .map(({ value }) => publicHost(value))
          .sort((a, b) => (a.hostname < b.hostname ? -1 : 1));
      }),

    sources: (project) => available(() => listSources(schema, project)),

    async *events(project) {
      yield* await available(() => dumpEvents(schema, project));
    },

    async *batches(project, source) {
      const number = await available(() => sourceNumber(schema, project, source));
      if (number !== undefined) yield* dumpBatches(schema, number);
    },

    putSource: (project, source, batches) => write(() => putSource(schema, project, source, batches)),

    prune: (before, stop) =>
      available(async () => {
        for (const step of pruneSteps(schema, before)) {
          if (stop?.aborted || closed) return;
          await write(step);
        }
      }),

    ping: () => available(() => void schema.meta.get('version')),

    async close() {
      if (closed) return;
      await appends.idle();
      closed = true;
      // They hold a snapshot, which must not be closed under them.
      await counting.idle();
      await root.close();
    },
  };
}

/** Queries that take several turns. */
class Pending {
  readonly #promises = new Set<Promise<unknown>>();

  track<T>(result: Soon<T>): Soon<T> {
    if (!(result instanceof Promise)) return result;
    this.#promises.add(result);
    const forget = () => this.#promises.delete(result);
    result.then(forget, forget);
    return result;
  }

  async idle(): Promise<void> {
    await Promise.allSettled(this.#promises);
  }
}

/** LMDB's own failures carry its error number; ours do not, and are bugs. */
function asUnavailable(error: unknown): unknown {
  const isItsOwn = error instanceof Error && 'code' in error && typeof error.code === 'number';
  if (!isItsOwn && !(error instanceof CommitFailed)) return error;
  if (isItsOwn && DAMAGE_CODES.includes(error.code as number)) {
    return new StoreDamaged(`LMDB reports ${error.message}`, { cause: error });
  }
  return new StoreUnavailable(`the embedded store failed: ${error.message}`, { cause: error });
}

/** MDB_PAGE_NOTFOUND, MDB_CORRUPTED, MDB_PANIC, MDB_INVALID. */
const DAMAGE_CODES: readonly number[] = [-30797, -30796, -30795, -30793];

function addHost(schema: Schema, wanted: NewHost, now: number): AddedHost {
  const project = openProject(schema, wanted.project);
  // Asked again inside the transaction: another process may have been first.
  const found = findHost(schema, project, wanted);
  if (found) return found;
  const host = {
    id: wanted.id ?? freeHostId(schema, project, wanted),
    hostname: wanted.hostname,
    created: wanted.created ?? now,
  };
  const record = { ...host, scope: nextScope(schema), project: project.scope };
  schema.hosts.putSync([project.scope, host.id], record);
  schema.hostnames.putSync([project.scope, host.hostname], host.id);
  schema.projects.putSync(wanted.project, { ...project, hosts: project.hosts + 1 });
  return { kind: 'added', host };
}

function renameHost(schema: Schema, projectId: string, id: string, hostname: string): RenamedHost {
  const project = schema.projects.get(projectId);
  const known = project && schema.hosts.get([project.scope, id]);
  if (project === undefined || known === undefined) return { kind: 'unknown' };
  const idOfName = schema.hostnames.get([project.scope, hostname]);
  const other = idOfName === undefined ? undefined : schema.hosts.get([project.scope, idOfName]);
  if (other && other.id !== id) return { kind: 'name_taken', host: publicHost(other) };
  const renamed = { ...known, hostname };
  schema.hostnames.removeSync([project.scope, known.hostname]);
  schema.hostnames.putSync([project.scope, hostname], id);
  schema.hosts.putSync([project.scope, id], renamed);
  return { kind: 'renamed', host: publicHost(renamed) };
}

function publicHost({ id, hostname, created }: HostRecord): Host {
  return { id, hostname, created };
}

/** What there is to say without adding anything: a full project is told of here, so a flood of names writes nothing. */
function findHost(schema: Schema, project: ProjectRecord, wanted: NewHost): AddedHost | undefined {
  const idOfName = schema.hostnames.get([project.scope, wanted.hostname]);
  const id = idOfName ?? wanted.id;
  const known = id === undefined ? undefined : schema.hosts.get([project.scope, id]);
  if (known === undefined) return project.hosts >= wanted.limit ? { kind: 'full' } : undefined;
  return { kind: idOfName === undefined ? 'id_taken' : 'exists', host: publicHost(known) };
}

function freeHostId(schema: Schema, project: ProjectRecord, wanted: NewHost): string {
  for (let attempt = 0; ; attempt++) {
    const id = derivedId('host', wanted.project, wanted.hostname, attempt);
    if (!schema.hosts.doesExist([project.scope, id])) return id;
  }
}

function sourceNumber(schema: Schema, project: string, source: string): number | undefined {
  const known = schema.projects.get(project);
  return known && schema.sources.get([known.scope, source])?.number;
}

function listSources(schema: Schema, project: string): Source[] {
  const known = schema.projects.get(project);
  if (known === undefined) return [];
  const range = schema.sources.getRange({ start: [known.scope], end: [known.scope + 1] });
  const listed = [...range].filter(({ value }) => value.name !== NO_SOURCE.name);
  const sources = listed.map(({ value: { number, ...source } }) => {
    const hosts = schema.sourceHosts.getKeys({ start: [number], end: [number + 1] });
    return { ...source, hosts: [...hosts].map(([, id]) => id).sort() };
  });
  return sources.sort((a, b) => (a.name < b.name ? -1 : 1));
}
