/**
 * The store with counts in ClickHouse and everything else in PostgreSQL: the methods of the contract. attempts.ts and
 * append.ts make it count exactly once, count.ts is the read side, compact.ts keeps it small.
 */

import { Database, type DatabaseOptions } from '../../postgres/database.ts';
import { ProjectCommits } from '../group-commit.ts';
import { NOT_DELETED } from '../postgres/hosts.ts';
import { prune, pruneExamples } from '../postgres/prune.ts';
import { recordMethods } from '../postgres/records.ts';
import { pruneTopLists, topListMethods } from '../postgres/top-lists.ts';
import { groupSeries, type Store, StoreUnavailable, TOP_KEYS_DEFAULT } from '../store.ts';
import { appendGroup } from './append.ts';
import { COMPACTION, type CompactionSettings, Compactor, forgetBefore } from './compact.ts';
import { Counter, REPLACED_MS } from './count.ts';
import { dumpEvents } from './dump.ts';
import { emptyPeaks, readPeaks } from './peaks.ts';
import {
  type Connect,
  dropCellsBefore,
  migrate as migrateTables,
  type ShardOptions,
  Shards,
} from './schema.ts';

export interface ClickHouseOptions extends ShardOptions {
  postgres: DatabaseOptions;
  /** Whether to create missing tables at the first use. */
  mayMigrate?: boolean | undefined;
  compaction?: Partial<CompactionSettings> | undefined;
  /** How many values a top list keeps per hour, and project or host. */
  topKeys?: number | undefined;
}

/** Time for an attempt besides its statements. */
const GRACE_MS = 60_000;

export function clickhouseStore(
  options: ClickHouseOptions,
  now: () => number = Date.now,
  connect?: Connect,
): Store {
  const { topKeys = TOP_KEYS_DEFAULT } = options;
  const database = new Database(options.postgres);
  const shards = new Shards(options, connect);
  const counter = new Counter(database, shards);
  const compactor = new Compactor(database, shards, { ...COMPACTION, ...options.compaction });
  const lifetimeMs = options.timeoutMs + options.postgres.timeoutMs + GRACE_MS;
  let closed = false;
  let checked: Promise<void> | null = null;

  async function available<T>(action: () => Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    checked ??= shards.check(database, options.mayMigrate ?? false).catch((error) => {
      checked = null;
      throw error;
    });
    await checked;
    return action();
  }

  const commits = new ProjectCommits((project, batches) =>
    available(() =>
      appendGroup(database, shards, batches, now(), lifetimeMs, topKeys).finally(() =>
        compactor.add(project),
      ),
    ),
  );

  return {
    ...recordMethods(database, available, now),
    ...topListMethods(database, available),

    append: (batch) => available(() => commits.append(batch)),

    series: ({ edges, ...selection }) => available(() => counter.timeline(selection, edges)),

    totals: ({ from, to, ...selection }) => available(() => counter.distribution(selection, { from, to })),

    seriesByCategory: ({ edges, ...selection }) => available(() => counter.byCategory(selection, edges)),

    seriesByGroup: ({ edges, ...selection }) =>
      available(async () => groupSeries(await counter.byCategory(selection, edges))),

    peaks: ({ edges, ...selection }) =>
      available(async () => {
        const peaks = await counter.read(selection, (server, snapshot) =>
          readPeaks(server, snapshot, selection, edges),
        );
        return peaks ?? emptyPeaks(edges);
      }),

    attacksByHost: ({ from, to, ...selection }) =>
      available(async () => {
        const attacks = await counter.attacksByHost(selection, { from, to });
        const rows = await database.run<{ id: string; number: number }>(
          `SELECT id, number FROM hosts WHERE project = $1 AND number = ANY($2::int[]) AND ${NOT_DELETED}`,
          [selection.project, [...attacks.keys()]],
        );
        return new Map(rows.map(({ id, number }) => [id, attacks.get(number) ?? 0]));
      }),

    async *events(project) {
      yield* await available(async () => dumpEvents(database, counter, project));
    },

    prune: (before, limits = {}) =>
      available(async () => {
        const { topListsBefore = before, stop } = limits;
        await pruneExamples(database, topListsBefore, stop);
        await compactor.addAll();
        await prune(database, before, limits, async (freed) => {
          for (let shard = 0; shard < shards.count && !stop?.aborted; shard++) {
            await dropCellsBefore(await shards.get(shard), options.database, freed - REPLACED_MS);
          }
          await forgetBefore(database, freed);
        });
        await pruneTopLists(database, topListsBefore, stop);
      }),

    ping: () =>
      available(async () => {
        await database.run('SELECT 1');
        // While one of several shards is down, the projects of the others are available.
        const pings = Array.from({ length: shards.count }, async (_, i) => (await shards.get(i)).ping());
        await Promise.any(pings).catch(({ errors }: AggregateError) => {
          throw errors[0];
        });
      }),

    async close() {
      if (closed) return;
      await commits.idle();
      closed = true;
      await compactor.close();
      await Promise.all([database.close(), shards.close()]);
    },
  };
}

/** Resolves to whether all tables exist, or else can be created. Changes nothing. */
export async function inspect(options: ClickHouseOptions, connect?: Connect): Promise<boolean> {
  const database = new Database(options.postgres);
  const shards = new Shards(options, connect);
  try {
    return await shards.inspect(database, options.mayMigrate ?? false);
  } finally {
    await Promise.all([database.close(), shards.close()]);
  }
}

/** Creates or upgrades the tables in PostgreSQL and ClickHouse. Can be repeated. */
export async function migrate(options: ClickHouseOptions, connect?: Connect): Promise<void> {
  const database = new Database(options.postgres);
  try {
    await migrateTables(database, options, connect);
  } finally {
    await database.close();
  }
}
