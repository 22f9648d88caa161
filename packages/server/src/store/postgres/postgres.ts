/** The store on PostgreSQL: the methods of the contract. append.ts is the write side, count.ts the read side. */
import { randomBytes } from 'node:crypto';
import { Database, type DatabaseOptions } from '../../postgres/database.ts';
import { ProjectCommits } from '../group-commit.ts';
import { LAYOUTS, splitRows } from '../rows.ts';
import {
  type AnyCounts,
  appendLimits,
  type CountQuery,
  type Counts,
  HOUR_MS,
  type Store,
  StoreNotWritable,
  type StoreOptions,
  StoreUnavailable,
} from '../store.ts';
import { appendGroup } from './append.ts';
import { attackMethods, deleteAttacks, HOURS_END } from './attacks.ts';
import { putFollowedPath } from './coordination.ts';
import { Counter } from './count.ts';
import { areTablesDistributed, createWorkerProbe, type Distributed, distributeTables } from './distribute.ts';
import { dumpEvents } from './dump.ts';
import { NOT_DELETED } from './hosts.ts';
import { findPeaks } from './peaks.ts';
import { free, moveHorizon, pruneExamples } from './prune.ts';
import { recordMethods } from './records.ts';
import { checkTables, dropPartitions, migrate as migrateTables } from './schema.ts';
import { pruneTopLists, topListMethods } from './top-lists.ts';

const WRITE_CHECK_BYTES = 65_536;
const FAILED_PROJECTS_MAX = 1_000;
const DISTRIBUTE_MS_MAX = 7 * 86_400_000;

interface PostgresOptions extends DatabaseOptions, StoreOptions {
  /** Whether to create missing tables at the first use. */
  mayMigrate: boolean;
}

export function postgresStore(options: PostgresOptions, now: () => number = Date.now): Store {
  const appendOptions = appendLimits(options);
  const database = new Database(options);
  const counter = new Counter(database, now);
  const findWithoutWorker = createWorkerProbe(database);
  let closed = false;
  let checked: Promise<void> | null = null;
  let distributed: Promise<boolean> | null = null;
  /** Why the last append failed, if PostgreSQL serves queries but accepts no writes. */
  let notWritable: StoreNotWritable | null = null;

  async function available<T>(action: () => Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    checked ??= checkTables(database, options.mayMigrate).catch((error) => {
      checked = null;
      throw error;
    });
    await checked;
    return action();
  }

  async function noteWrites<T>(write: () => Promise<T>): Promise<T> {
    try {
      const result = await available(write);
      notWritable = null;
      return result;
    } catch (error) {
      if (error instanceof StoreNotWritable) notWritable = error;
      throw error;
    }
  }

  /** Projects whose last append failed because a server did not respond. */
  const failed = new Set<string>();
  const commits = new ProjectCommits(async (batches) => {
    const project = batches[0]?.project ?? '';
    try {
      const results = await noteWrites(() => appendGroup(database, batches, now(), appendOptions));
      failed.delete(project);
      return results;
    } catch (error) {
      if (error instanceof StoreUnavailable && failed.size < FAILED_PROJECTS_MAX) failed.add(project);
      throw error;
    }
  });

  async function count(query: CountQuery): Promise<AnyCounts> {
    const layout = LAYOUTS[query.rows];
    const counts = await counter.count(query);
    const points = query.edges.length - 1;
    const rowsOf = (number: number) =>
      splitRows(layout, counts.get(number) ?? new Float64Array(layout.count * points), points);
    if (!query.byHost) return rowsOf(0);
    const counted = [...counts].filter(([, sums]) => sums.some((n) => n > 0));
    const hosts = await database.run<{ id: string; number: number }>(
      `SELECT id, number FROM hosts WHERE project = $1 AND number = ANY($2::int[]) AND ${NOT_DELETED}`,
      [query.project, counted.map(([number]) => number)],
    );
    return new Map(hosts.map(({ id, number }) => [id, rowsOf(number)]));
  }

  const { batches, putSource, ...records } = recordMethods(database, available, now);
  const { attackHours, putAttackHour, ...attacks } = attackMethods(database, available);
  const { topSlices, putTopSlices, deleteDetails, ...topLists } = topListMethods(
    database,
    available,
    undefined,
    options.cacheBytes,
  );

  return {
    ...records,
    ...topLists,
    ...attacks,

    append: (batch) => available(() => commits.append(batch)),

    count: <Q extends CountQuery>(query: Q) =>
      available(() => count(query)) as Promise<unknown> as Promise<Counts<Q>>,

    peaks: ({ edges, ...selection }) => available(() => findPeaks(database, selection, edges)),

    transfer: {
      async *events(project) {
        yield* await available(async () => dumpEvents(database, project));
      },
      batches,
      putSource,
      topSlices,
      putTopSlices,
      attackHours,
      putAttackHour,
    },

    deleteDetails: async (project) => {
      await deleteDetails(project);
      await deleteAttacks(database, HOURS_END, { project });
    },

    prune: (before, limits = {}) =>
      available(async () => {
        const { topListsBefore = before, stop } = limits;
        const { freed, listsBefore } = await moveHorizon(database, before, limits);
        await pruneExamples(database, topListsBefore, stop);
        // Deletes rows first: a backup can delay the dropping of partitions for hours.
        await pruneTopLists(database, listsBefore, stop);
        await deleteAttacks(database, Math.ceil(listsBefore / HOUR_MS), { stop });
        await free(database, freed, stop);
        await dropPartitions(database, ['top_lists', 'attacks'], listsBefore, stop);
      }),

    unavailableProjects: () =>
      available(async () => {
        distributed ??= areTablesDistributed(database).catch((error) => {
          distributed = null;
          throw error;
        });
        return (await distributed) ? findWithoutWorker(failed) : [];
      }),

    async check(what) {
      if (what === 'queries') return available(async () => void (await database.run('SELECT 1')));
      await available(() => database.checkWritable());
      // A server that gets no pushes because it is not ready must notice that there is space again.
      if (notWritable !== null) await noteWrites(() => tryWrite(database));
    },

    async close() {
      if (closed) return;
      await commits.idle();
      closed = true;
      await database.close();
    },
  };
}

/** Creates the tables. Can be repeated. */
export async function migrate(options: DatabaseOptions): Promise<void> {
  await withDatabase(options, migrateTables);
}

/** Also distributes the tables over the workers of Citus. */
export async function migrateDistributed(options: DatabaseOptions): Promise<Distributed> {
  // All rows are copied, in one transaction.
  return withDatabase({ ...options, timeoutMs: DISTRIBUTE_MS_MAX }, async (database) => {
    await migrateTables(database);
    return distributeTables(database);
  });
}

async function withDatabase<T>(
  options: DatabaseOptions,
  action: (database: Database) => Promise<T>,
): Promise<T> {
  const database = new Database(options);
  try {
    return await action(database);
  } finally {
    await database.close();
  }
}

/** Writes so much that a table must grow, and rolls back. */
async function tryWrite(database: Database): Promise<void> {
  const record = JSON.stringify(randomBytes(WRITE_CHECK_BYTES).toString('base64'));
  await database.transaction((run) =>
    Promise.all([putFollowedPath(run, '', 'check', record), run('ROLLBACK')]),
  );
}
