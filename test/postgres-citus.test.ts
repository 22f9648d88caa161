/** The store on a Citus cluster: the contract of a store, and the migration of existing tables. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrateDistributed, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { CITUS, CitusCluster } from './citus.ts';
import { PASSWORD } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Sandbox } from './sandbox.ts';
import { NOW } from './store-conformance/data.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** An append takes some ten milliseconds on a busy machine. */
const SHARE = 0.05;
const DAY_MS = 86_400_000;
const DISTRIBUTED = [
  ...['projects', 'hosts', 'sources', 'source_hosts', 'batches', 'followed_paths', 'changes'],
  ...['segments', 'rollups', 'top_lists', 'attacks', 'requests'],
];

describe.skipIf(!CITUS.isInstalled())(`with Citus (${CITUS.needs})`, () => {
  let cluster: CitusCluster;
  let schemas = 0;
  /** Schemas that no store uses. */
  const free: string[] = [];
  beforeAll(async () => {
    cluster = await CitusCluster.start();
  });
  afterAll(() => cluster?.stop());

  /** Distributing tables takes longer than emptying them. */
  async function emptyTables(): Promise<string> {
    const used = free.pop();
    if (used === undefined) {
      const schema = `test_${++schemas}`;
      await migrateDistributed(cluster.options(schema));
      return schema;
    }
    cluster.coordinator.sql(
      `SET search_path = ${used}; TRUNCATE ${DISTRIBUTED.join(', ')};
       UPDATE retention SET horizon = 0, freed_before = 0, note = NULL, top_lists_before = 0`,
    );
    return used;
  }

  durableStoreConformance(
    'Citus',
    async (now, limits) => {
      const schema = await emptyTables();
      const options = { ...cluster.options(schema), ...limits };
      let store = postgresStore(options, now);
      return {
        store,
        another: () => postgresStore(options, now),
        async reopen() {
          await store.close();
          store = postgresStore(options, now);
          return store;
        },
        async destroy() {
          await store.close();
          free.push(schema);
        },
      };
    },
    SHARE,
  );

  test('retention waits for a long read on a worker, but queries do not wait for it', async () => {
    const schema = await emptyTables();
    const store = postgresStore(cluster.options(schema), () => NOW);
    const old = NOW - 100 * DAY_MS;
    const event = { hostId: null, request: true, attack: null, count: 1 };
    const source = { name: 's', format: 'events' };
    const events = [old, NOW].map((time) => ({ ...event, time }));
    await store.append({ project: 'p', source, id: '1', events, dropped: {} });
    const partition = Math.floor(old / (8 * DAY_MS));
    const worker = cluster.workers.find(({ port }) => port === cluster.portOf(schema, 'p'));
    const table = `segments_${partition}`;
    const id = `get_shard_id_for_distribution_column('${schema}.${table}', 'p')`;
    const shard = `${table}_${cluster.coordinator.sql(`SELECT ${id}`)}`;
    const reading = worker
      ?.query(`SELECT pg_sleep(600) FROM ${schema}.${shard}`)
      .catch((error: Error) => error.message);
    const isReading = `SELECT count(*) FROM pg_locks WHERE relation = '${schema}.${shard}'::regclass AND granted`;
    await eventually(() => worker?.sql(isReading) === '1' || undefined, 'the read');
    let isPruned = false;
    const pruning = store.prune(NOW - 50 * DAY_MS).then(() => {
      isPruned = true;
    });
    const requests = async () =>
      (await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' }))[0][0];
    for (let i = 0; i < 10; i++) expect(await requests()).toBeLessThanOrEqual(2);
    expect(isPruned).toBe(false);
    worker?.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'");
    await pruning;
    expect(await reading).toContain('terminating connection');
    expect(await requests()).toBe(1);
    expect(worker?.sql(`SELECT to_regclass('${schema}.${shard}') IS NULL`)).toBe('t');
    await store.close();
  });

  describe('wafstat migrate --distributed', () => {
    const sandbox = new Sandbox();
    afterAll(() => sandbox.clear());
    const migrate = (schema: string, database = 'postgres') =>
      sandbox.run(['migrate', '--distributed', '--postgres-schema', schema], {
        env: {
          WAFSTAT_POSTGRES_URL: cluster.coordinator.url
            .replace('@', `:${encodeURIComponent(PASSWORD)}@`)
            .replace(/\w+$/, database),
        },
      });

    test('distributes existing tables with their rows, says what it did, and can be repeated', async () => {
      const options = { ...cluster.options('existing'), mayMigrate: true };
      const local = postgresStore(options, () => NOW);
      const project = { project: 'p', hostnames: ['a.example'], limit: 9 };
      const [hostId = null] = await local.resolveHosts(project);
      const append = (id: string, time: number) => ({
        project: 'p',
        source: { name: 's', format: 'events' },
        id,
        events: [{ time, hostId, request: true, attack: 'xss' as const, count: 3, details: { url: '/a' } }],
        dropped: {},
      });
      for (const [i, days] of [0, 20, 40].entries()) await local.append(append(`${i}`, NOW - days * DAY_MS));
      const query = { project: 'p', edges: [0, NOW - DAY_MS, NOW + 1], rows: 'timeline' } as const;
      const before = await local.count(query);
      expect(await local.unavailableProjects?.()).toEqual([]);
      await local.close();

      const workers = cluster.workers.map(({ port }) => `127.0.0.1:${port}`).join(', ');
      const { status, stdout, stderr } = await migrate('existing');
      expect([status, stderr]).toEqual([0, '']);
      expect(stdout.split('\n').slice(1)).toEqual([
        `distributed ${[...DISTRIBUTED, 'retention'].join(', ')}; workers: ${workers}`,
        '',
      ]);
      expect((await migrate('existing')).stdout).toMatch(/^the tables were distributed already; workers: /m);
      const kinds = cluster.coordinator.sql(
        `SELECT citus_table_type, count(*) FROM citus_tables WHERE table_name::text ~ '^existing\\.[a-z_]+$' GROUP BY 1 ORDER BY 1`,
      );
      expect(kinds).toBe(`distributed|${DISTRIBUTED.length}\nreference|1`);
      // Nothing is left on the coordinator.
      expect(cluster.coordinator.sql(`SELECT pg_relation_size('existing.sources')`)).toBe('0');

      const store = postgresStore(options, () => NOW);
      expect(await store.count(query)).toEqual(before);
      expect(await store.append(append('1', NOW))).toEqual({ kind: 'duplicate' });
      // In a month that has no partitions yet.
      expect(await store.append(append('new', NOW - 100 * DAY_MS))).toMatchObject({ kind: 'appended' });
      const [, attacks] = await store.count(query);
      expect(attacks).toEqual(before[1].map((n, i) => (i === 0 ? n + 3 : n)));
      expect(await store.unavailableProjects?.()).toEqual([]);
      await store.close();
    });

    test('refuses a database without the extension', async () => {
      cluster.coordinator.sql('CREATE DATABASE plain');
      const { status, stdout, stderr } = await migrate('wafstat', 'plain');
      expect([status, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(/^wafstat: the database has no extension citus: set shared_preload_libraries/);
    });
  });
});
