/** The store on PostgreSQL: the methods of the contract. append.ts is the write side, count.ts the read side. */
import { CATEGORIES } from '../../event.ts';
import { GroupCommit } from '../group-commit.ts';
import {
  type Appended,
  type Batch,
  type CategorySeries,
  groupSeries,
  type Selection,
  type Store,
  StoreUnavailable,
} from '../store.ts';
import { appendGroup } from './append.ts';
import { Counter } from './count.ts';
import { Database, type DatabaseOptions } from './database.ts';
import { dumpEvents } from './dump.ts';
import { findPeaks } from './peaks.ts';
import { prune } from './prune.ts';
import { recordMethods } from './records.ts';
import { COUNT_TABLES, checkTables, dropPartitions, migrate as migrateTables } from './schema.ts';

export interface PostgresOptions extends DatabaseOptions {
  /** Whether to create missing tables at the first use. */
  mayMigrate: boolean;
}

export function postgresStore(options: PostgresOptions, now: () => number = Date.now): Store {
  const database = new Database(options);
  const counter = new Counter(database, now);
  /** Projects do not wait for each other. */
  const appends = new Map<string, GroupCommit<Batch, Appended>>();
  let closed = false;
  let checked: Promise<void> | null = null;

  async function available<T>(action: () => Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    checked ??= checkTables(database, options.mayMigrate, COUNT_TABLES).catch((error) => {
      checked = null;
      throw error;
    });
    await checked;
    return action();
  }

  function append(batch: Batch): Promise<Appended> {
    const { project } = batch;
    let group = appends.get(project);
    if (group === undefined) {
      group = new GroupCommit<Batch, Appended>(
        ({ events }) => events.length,
        (batches) => available(() => appendGroup(database, batches, now())),
        (error) => error instanceof StoreUnavailable,
      );
      appends.set(project, group);
    }
    return group.add(batch);
  }

  async function seriesByCategory(selection: Selection, edges: readonly number[]): Promise<CategorySeries> {
    const points = edges.length - 1;
    const counts = await counter.byCategory(selection, edges);
    const row = (i: number) => counts.subarray(i * points, (i + 1) * points);
    return {
      requests: row(0),
      attacks: CATEGORIES.map((_, i) => row(1 + i)),
      blocked: CATEGORIES.map((_, i) => row(1 + CATEGORIES.length + i)),
    };
  }

  return {
    ...recordMethods(database, available, now),

    append: (batch) => available(() => append(batch)),

    series: ({ edges, ...selection }) =>
      available(async () => {
        const points = edges.length - 1;
        const counts = await counter.timeline(selection, edges);
        return { requests: counts.subarray(0, points), attacks: counts.subarray(points) };
      }),

    totals: ({ from, to, ...selection }) => available(() => counter.distribution(selection, { from, to })),

    seriesByCategory: ({ edges, ...selection }) => available(() => seriesByCategory(selection, edges)),

    seriesByGroup: ({ edges, ...selection }) =>
      available(async () => groupSeries(await seriesByCategory(selection, edges))),

    peaks: ({ edges, ...selection }) => available(() => findPeaks(database, selection, edges)),

    attacksByHost: ({ from, to, ...selection }) =>
      available(async () => {
        const attacks = await counter.attacksByHost(selection, { from, to });
        const rows = await database.run<{ id: string; number: number }>(
          'SELECT id, number FROM hosts WHERE project = $1 AND number = ANY($2::int[])',
          [selection.project, [...attacks.keys()]],
        );
        return new Map(rows.map(({ id, number }) => [id, attacks.get(number) ?? 0]));
      }),

    async *events(project) {
      yield* await available(async () => dumpEvents(database, project));
    },

    prune: (before, { freeBefore = before, stop } = {}) =>
      available(() =>
        prune(database, before, freeBefore, stop, (freed) => dropPartitions(database, freed, stop)),
      ),

    ping: () => available(async () => void (await database.run('SELECT 1'))),

    async close() {
      if (closed) return;
      await Promise.all([...appends.values()].map((group) => group.idle()));
      closed = true;
      await database.close();
    },
  };
}

/** Creates or upgrades the tables. Can be repeated. */
export async function migrate(options: DatabaseOptions): Promise<void> {
  const database = new Database(options);
  try {
    await migrateTables(database, COUNT_TABLES);
  } finally {
    await database.close();
  }
}
