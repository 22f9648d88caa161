/** The embedded store: the methods of the contract. append.ts is the write side, count.ts the read side. */
import { dirname } from 'node:path';
import { CommitFailed, Committer, isLmdbError } from '../../lmdb/commit.ts';
import { closingOnError, FreeSpace } from '../../lmdb/files.ts';
import { reached } from '../../rare-states.ts';
import { GroupCommit, ProjectCommits, weighBatch } from '../group-commit.ts';
import { resolveHosts } from '../resolve-hosts.ts';
import { Slices, STEP_BY_STEP } from '../slices.ts';
import { groupSources } from '../sources.ts';
import {
  type Appended,
  appendLimits,
  type Batch,
  type CountQuery,
  type Counts,
  compareFollowed,
  NO_SOURCE,
  type ProjectSources,
  type Source,
  type Store,
  StoreDamaged,
  StoreNotWritable,
  type StoreOptions,
  StoreUnavailable,
} from '../store.ts';
import { appendGroup, linksAfter, openProject, prepareGroup, putFollowed } from './append.ts';
import { AttackReader, deleteAttacksSteps, dumpAttacks, eraseAttacks, putAttackHour } from './attacks.ts';
import { createCounter, createLookups, createVersions } from './count.ts';
import { dumpBatches, dumpEvents, putSource } from './dump.ts';
import { createHostLists } from './host-lists.ts';
import {
  addHost,
  addHosts,
  deleteHost,
  findHost,
  NEW_NAMES_PER_TRANSACTION,
  readHostnames,
  renameHost,
} from './hosts.ts';
import { createPeakFinder } from './peaks.ts';
import {
  deleteExamplesSteps,
  deleteRequestsSteps,
  pruneSteps,
  readRetention,
  restoreHorizon,
} from './prune.ts';
import { metaValue, openSchema, reopenSchema, type Schema, STORAGE_VERSION } from './schema.ts';
import { createTopFinder, deleteTopListsSteps, dumpTopSlices, HOURS_END, putTopSlices } from './top-lists.ts';

/** Batches of one project. */
interface ProjectGroup {
  batches: readonly Batch[];
  prepared?: Parameters<typeof appendGroup>[4];
  weight: number;
}

/** Lighter groups, in microseconds of work, are computed in the transaction itself. */
const PREPARED_WEIGHT_MIN = 5_000;

export function lmdbStore(path: string, now: () => number = Date.now, options: StoreOptions = {}): Store {
  const limits = appendLimits(options);
  const schema = openSchema(path);
  const fileId = closingOnError(schema.root, () => metaValue(schema, 'born'));
  const lookups = createLookups(schema, options.cacheBytes);
  const hostLists = createHostLists(schema, lookups);
  const count = createCounter(schema, lookups, hostLists);
  const findPeaks = createPeakFinder(schema, lookups);
  const findTop = createTopFinder(schema, lookups, undefined, options.cacheBytes);
  const attacks = new AttackReader(schema);
  const { changes } = lookups;
  const versionOf = createVersions(schema, changes);
  let sliced: Promise<void> = Promise.resolve();
  let closed = false;

  /** Remembers queries that run over several turns: they hold a snapshot of the open file. */
  const track = <T>(result: T | Promise<T>): T | Promise<T> => {
    if (result instanceof Promise) sliced = Promise.allSettled([sliced, result]).then(() => {});
    return result;
  };

  const committer = new Committer({
    path,
    root: () => schema.root,
    checkPath: () => schema.checkPath(),
    async reopen() {
      await sliced;
      await reopenSchema(schema, path);
    },
    probe: () => schema.version.putSync('version', STORAGE_VERSION),
  });
  const space = new FreeSpace(dirname(path));

  const write = <T>(action: () => T): Promise<T> =>
    available(() => committer.run(action).finally(() => changes.forget()));
  /** Writes a change that makes the file larger. */
  const grow = <T>(action: () => T): Promise<T> => available(() => space.check()).then(() => write(action));

  /** Other errors, such as a damaged record, concern one batch. */
  const failsAll = (error: unknown) => error instanceof StoreNotWritable;
  /** Groups of different projects. */
  const commits = new GroupCommit<ProjectGroup, Appended[]>(
    ({ weight }) => weight,
    (groups) =>
      grow(() =>
        groups.map(({ batches, prepared }) => appendGroup(schema, batches, now(), limits, prepared)),
      ),
    failsAll,
  );
  const commitGroup = async (batches: readonly Batch[]): Promise<Appended[]> => {
    const weight = batches.reduce((sum, batch) => sum + weighBatch(batch), 0);
    // A few attacks may rewrite a large block.
    const keepsAttacks =
      limits.eventsMax > 0 && batches.some(({ events }) => events.some(({ attack }) => attack !== null));
    if (weight <= PREPARED_WEIGHT_MIN && !keepsAttacks) return commits.add({ batches, weight });
    // It fails if another process changes what it reads. The transaction computes the group then, and reports damage.
    const preparing = new Slices().run(prepareGroup(schema, batches, now(), limits)).catch(() => undefined);
    const prepared = await track(preparing);
    return commits.add({ batches, weight, ...(prepared && { prepared }) });
  };
  const appends = new ProjectCommits(commitGroup, failsAll);

  async function available<T>(action: () => T | Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    try {
      return await action();
    } catch (error) {
      throw asUnavailable(error);
    }
  }

  return {
    fileId,

    append: (batch) => available(() => appends.append(batch)),

    count: <Q extends CountQuery>(query: Q) =>
      available(() => track(count(query))) as Promise<unknown> as Promise<Counts<Q>>,

    peaks: ({ project, hosts, edges }) => available(() => track(findPeaks(project, hosts, edges))),

    top: (query) => available(() => track(findTop(query))),

    attacks: (query) => available(() => track(attacks.list(query))),

    countAttacks: (query) => available(() => track(attacks.count(query))),

    scanAttacks: (query, visit) => available(() => track(attacks.scan(query, visit))),

    eraseAttacks: (id, filter) =>
      available(async () => {
        const project = schema.projects.get(id);
        return project ? eraseAttacks(schema, project, filter, write) : 0;
      }),

    version: (range) => available(() => versionOf(range)),

    hasFastVersions: true,

    batchesAfter: (project, source, after) =>
      available(() => {
        const known = sourceNumber(schema, project, source);
        return known === undefined ? [] : linksAfter(schema, known, after);
      }),

    followedPaths: (project) =>
      available(() => {
        const range = schema.followed.getRange(keysOfProject(schema, project));
        return [...range].map(({ value }) => value).sort(compareFollowed);
      }),

    putFollowedPath: (project, followed) =>
      write(() => putFollowed(schema, openProject(schema, project), followed)),

    addHost: (host) =>
      available(async () => {
        const project = schema.projects.get(host.project);
        const found = project && findHost(schema, project, host);
        return found ?? (await grow(() => addHost(schema, host, now())));
      }),

    resolveHosts: (names) =>
      available(() =>
        resolveHosts(
          names,
          NEW_NAMES_PER_TRANSACTION,
          () => new Slices(STEP_BY_STEP).run(readHostnames(schema, names)),
          (newNames) =>
            grow(() => addHosts(schema, names, newNames, now()))
              // The next lookups must see the names that other processes have registered.
              .finally(() => schema.root.resetReadTxn()),
        ),
      ),

    renameHost: ({ project, id, hostname }) => write(() => renameHost(schema, project, id, hostname)),

    deleteHost: ({ project, id }) => write(() => deleteHost(schema, project, id)),

    hosts: (project) => available(async () => [...(await track(hostLists.hosts(project)))]),

    sources: (project) => available(() => listSources(schema, project)),
    projects: () => available(() => listProjects(schema)),

    transfer: {
      async *events(project) {
        yield* await available(() => dumpEvents(schema, project));
      },

      async *batches(project, source) {
        const number = await available(() => sourceNumber(schema, project, source));
        if (number !== undefined) yield* dumpBatches(schema, number);
      },

      putSource: (project, source, batches) => grow(() => putSource(schema, project, source, batches)),

      async *topSlices(project) {
        yield* await available(() => dumpTopSlices(schema, project));
      },

      putTopSlices: (project, slices) => grow(() => putTopSlices(schema, project, slices)),

      async *attackHours(id) {
        const project = await available(() => schema.projects.get(id));
        if (project) yield* dumpAttacks(schema, project);
      },

      putAttackHour: (project, hour) => grow(() => putAttackHour(schema, project, hour)),
    },

    deleteDetails: (project) =>
      available(async () => {
        for (const step of deleteExamplesSteps(schema, Number.POSITIVE_INFINITY, project)) await write(step);
        for (const step of deleteTopListsSteps(schema, project)) await write(step);
        const record = schema.projects.get(project);
        if (record) for (const step of deleteAttacksSteps(schema, HOURS_END, record)) await write(step);
        for (const step of deleteRequestsSteps(schema, Number.POSITIVE_INFINITY, project)) await write(step);
      }),

    prune: (before, options = {}) =>
      available(async () => {
        for (const step of pruneSteps(schema, before, options)) {
          if (options.stop?.aborted || closed) {
            reached('prune.stopped');
            return;
          }
          await write(step);
        }
      }),

    retention: () => available(() => readRetention(schema)),
    noteRetention: (note, previous) =>
      write(() => {
        const { passedAt } = schema.notes.get('retention') ?? {};
        if (passedAt === previous?.passedAt) schema.notes.putSync('retention', note);
      }),
    restoreHorizon: (to) => write(() => restoreHorizon(schema, to)),

    check: (what) =>
      available(async () => {
        schema.version.get('version');
        if (what === 'appends') await committer.check().then(() => space.check());
      }),

    async close() {
      if (closed) return;
      await appends.idle();
      closed = true;
      await sliced;
      await committer.close();
    },
  };
}

/** Errors that do not come from LMDB are bugs. */
function asUnavailable(error: unknown): unknown {
  if (error instanceof CommitFailed)
    return new StoreNotWritable(error.message, error.trouble, {
      cause: error,
      outcomeUnknown: error.outcomeUnknown,
    });
  if (!isLmdbError(error)) return error;
  if (DAMAGE_CODES.includes(error.code)) {
    return new StoreDamaged(`LMDB reports ${error.message}`, { cause: error });
  }
  return new StoreUnavailable(`the embedded store failed: ${error.message}`, { cause: error });
}

/** MDB_PAGE_NOTFOUND, MDB_CORRUPTED, MDB_INVALID. After MDB_PANIC the committer reopens the file. */
const DAMAGE_CODES: readonly number[] = [-30797, -30796, -30793];

function sourceNumber(schema: Schema, project: string, source: string): number | undefined {
  const known = schema.projects.get(project);
  return known && schema.sources.get([known.scope, source])?.number;
}

/** The keys of a project in a table whose keys begin with its scope. Nothing for an unknown project. */
function keysOfProject(schema: Schema, project: string): { start: [number]; end: [number] } {
  const scope = schema.projects.get(project)?.scope ?? 0;
  return { start: [scope], end: [scope === 0 ? 0 : scope + 1] };
}

function listProjects(schema: Schema): ProjectSources[] {
  const ids = new Map([...schema.projects.getRange()].map(({ key, value: { scope } }) => [scope, key]));
  const records = schema.sources.getRange().map(({ key: [scope], value: { number: _, ...source } }) => {
    const project = ids.get(scope);
    if (project === undefined) throw new StoreDamaged(`the project of the source ${source.id}`);
    return [project, source] as const;
  });
  return groupSources(records);
}

function listSources(schema: Schema, project: string): Source[] {
  const range = schema.sources.getRange(keysOfProject(schema, project));
  const listed = [...range].filter(({ value }) => value.name !== NO_SOURCE.name);
  const sources = listed.map(({ value: { number, ...source } }) => {
    const hosts = schema.sourceHosts.getKeys({ start: [number], end: [number + 1] });
    return { ...source, hosts: [...hosts].map(([, id]) => id).sort() };
  });
  return sources.sort((a, b) => (a.name < b.name ? -1 : 1));
}
