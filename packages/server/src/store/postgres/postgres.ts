/** The store on PostgreSQL: the methods of the contract. append.ts is the write side, count.ts the read side. */
import { createHash } from 'node:crypto';
import { CATEGORIES } from '../../event.ts';
import { GroupCommit } from '../group-commit.ts';
import {
  type Appended,
  type Batch,
  type CategorySeries,
  compareFollowed,
  derivedId,
  type FollowedPath,
  groupSeries,
  NO_SOURCE,
  newSource,
  type Selection,
  type Source,
  type Store,
  StoreNotWritable,
  StoreUnavailable,
  type TimeRange,
  withoutTopLists,
} from '../store.ts';
import { appendGroup, lockProject, putFollowedPath } from './append.ts';
import { Counter } from './count.ts';
import { Database, type DatabaseOptions, type Row } from './database.ts';
import { type BatchColumns, dumpBatches, dumpEvents, putSource } from './dump.ts';
import { addHost, hostsOfProject, renameHost, resolveHosts } from './hosts.ts';
import { findPeaks } from './peaks.ts';
import { prune, readRetention, restoreHorizon } from './prune.ts';
import { CHANGES_MS, checkTables, migrate as migrateTables } from './schema.ts';

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
    checked ??= checkTables(database, options.mayMigrate).catch((error) => {
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
    ...withoutTopLists('PostgreSQL'),

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

    version: (range) => available(() => versionOf(database, range)),

    batchesAfter: (project, source, after) =>
      available(async () => {
        const rows = await database.run<BatchColumns>(
          `SELECT b.id, b.bytes, b.first_line_hash, b.reader_state
           FROM sources s JOIN batches b ON b.project = s.project AND b.source = s.number
           WHERE s.project = $1 AND s.name = $2 AND b.after = $3`,
          [project, source, after],
        );
        return rows.map(({ id, bytes, first_line_hash, reader_state }) => ({
          id,
          bytes,
          firstLineHash: first_line_hash,
          readerState: reader_state,
        }));
      }),

    followedPaths: (project) =>
      available(async () => {
        const rows = await database.run<{ record: FollowedPath }>(
          'SELECT record FROM followed_paths WHERE project = $1',
          [project],
        );
        return rows.map(({ record }) => record).sort(compareFollowed);
      }),

    putFollowedPath: (project, followed) =>
      available(() =>
        database.transaction(async (run) => {
          const id = derivedId('path', followed.source, followed.path);
          await Promise.all([
            lockProject(run, project),
            putFollowedPath(run, project, id, JSON.stringify(followed)),
            run('COMMIT'),
          ]);
        }),
      ),

    addHost: (host) => available(() => addHost(database, host, now())),
    resolveHosts: (names) => available(() => resolveHosts(database, names, now())),
    renameHost: (host) => available(() => renameHost(database, host)),
    hosts: (project) => available(() => hostsOfProject(database, project)),
    sources: (project) => available(() => listSources(database, project)),

    async *events(project) {
      yield* await available(async () => dumpEvents(database, project));
    },

    async *batches(project, source) {
      yield* await available(async () => dumpBatches(database, project, source));
    },

    putSource: (project, source, batches) => available(() => putSource(database, project, source, batches)),

    prune: (before, { freeBefore = before, stop } = {}) =>
      available(() => prune(database, before, freeBefore, stop)),

    retention: () => available(() => readRetention(database)),

    noteRetention: (note) =>
      available(async () => {
        await database.run('UPDATE retention SET note = $1::text::json', [JSON.stringify(note)]);
      }),

    restoreHorizon: (to) => available(() => restoreHorizon(database, to)),

    ping: () => available(async () => void (await database.run('SELECT 1'))),

    checkWrites: () =>
      available(async () => {
        const [row] = await database.run<{ readonly: boolean }>(
          `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS readonly`,
        );
        if (row?.readonly) {
          throw new StoreNotWritable(
            'PostgreSQL accepts no writes: it is a standby',
            'the database is read-only',
          );
        }
      }),

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
    await migrateTables(database);
  } finally {
    await database.close();
  }
}

/** A sum of change counters, which only grow. */
async function versionOf(database: Database, { from, to }: TimeRange): Promise<string> {
  const [row] = await database.run<{ changes: string; horizon: number }>(
    `SELECT (SELECT sum(changes)::text FROM changes WHERE chunk >= $1 AND chunk <= $2) AS changes, horizon
     FROM retention`,
    [Math.floor(from / CHANGES_MS), Math.floor(to / CHANGES_MS)],
  );
  const horizon = row?.horizon ?? 0;
  const text = `${row?.changes} ${horizon > from ? horizon : ''}`;
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}

async function listSources(database: Database, project: string): Promise<Source[]> {
  const rows = await database.run<Row & { record: Omit<Source, 'hosts'>; hosts: string[] }>(
    `SELECT s.record, ARRAY(
       SELECT h.id FROM source_hosts r JOIN hosts h ON h.project = r.project AND h.number = r.host
       WHERE r.project = s.project AND r.source = s.number
     ) AS hosts FROM sources s WHERE s.project = $1`,
    [project],
  );
  return rows
    .filter(({ record }) => record.name !== NO_SOURCE.name)
    .map(({ record, hosts }) => ({ ...newSource(record.id, record), ...record, hosts: hosts.sort() }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}
