/** Failures of PostgreSQL: nothing may be lost or counted twice. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Database, type Run } from '../packages/server/src/postgres/database.ts';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { topListMethods } from '../packages/server/src/store/postgres/top-lists.ts';
import { type Batch, type Store, StoreUnavailable } from '../packages/server/src/store/store.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Random } from './random.ts';
import { freePort } from './web-server.ts';

const PGBOUNCER = '/usr/sbin/pgbouncer';
const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 6, 1, 12);
const ALL = { project: 'p', edges: [0, NOW + DAY_MS] };

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    const started: PostgresServer[] = [];
    let primary: PostgresServer;
    let schemas = 0;
    beforeAll(async () => {
      primary = await PostgresServer.start();
      started.push(primary);
    });
    afterAll(() => Promise.all(started.map((server) => server.stop())));

    const optionsOf = (ports: readonly number[], schema: string, timeoutMs = 10_000) => ({
      url: parseDatabaseUrl(
        `postgres://wafstat@${ports.map((port) => `127.0.0.1:${port}`).join(',')}/postgres`,
      ),
      password: PASSWORD,
      schema,
      usesTls: () => false,
      timeoutMs,
      connectionsMax: 5,
      mayMigrate: true,
    });
    const open = (...where: Parameters<typeof optionsOf>): Store =>
      postgresStore(optionsOf(...where), () => NOW);

    const batch = (id: string, count: number, time = NOW): Batch => ({
      project: 'p',
      source: { name: 'test', format: 'events' },
      id,
      events: Array.from({ length: count }, (_, i) => ({
        time: time - i * 1_000,
        hostId: null,
        request: true,
        attack: null,
        count: 1,
      })),
      dropped: {},
    });

    /** Retries until all are counted, and returns how each was. */
    async function appendAll(store: Store, batches: readonly Batch[]): Promise<Map<string, string>> {
      const kinds = new Map<string, string>();
      await Promise.all(
        batches.map(async (one) => {
          for (;;) {
            try {
              kinds.set(one.id ?? '', (await store.append(one)).kind);
              return;
            } catch (error) {
              if (!(error instanceof StoreUnavailable)) throw error;
              await sleep(10);
            }
          }
        }),
      );
      return kinds;
    }

    test('every batch counts once if connections break at random places', async () => {
      const schema = `trouble_${++schemas}`;
      const random = new Random(20_260_701);
      const proxy = await flakyProxy(`http://127.0.0.1:${primary.port}`, 0.05, () => random.next());
      const port = Number(new URL(proxy.url).port);
      const stores = [open([port], schema), open([port], schema), open([port], schema)];
      const batches: Batch[] = [];
      const outcomes = [];
      // Appends of several batches share round trips, so the number of cuts differs from run to run.
      while (batches.length < 60 || proxy.cuts() < 20) {
        const part = Array.from({ length: 6 }, (_, i) => batch(`batch-${batches.length + i}`, 1 + i));
        batches.push(...part);
        outcomes.push(...(await Promise.all(stores.map((store) => appendAll(store, part)))));
      }
      proxy.behave();
      const events = batches.reduce((sum, one) => sum + one.events.length, 0);
      for (const store of [...stores, open([primary.port], schema)]) {
        expect((await store.count({ ...ALL, rows: 'timeline' }))[0][0]).toBe(events);
        expect((await store.sources('p'))[0]?.events).toBe(events);
        await store.close();
      }
      // If a response was lost, the next attempt reports a duplicate: no batch was appended twice.
      for (const { id } of batches) {
        const times = outcomes.filter((kinds) => kinds.get(id ?? '') === 'appended').length;
        expect(times).toBeLessThanOrEqual(1);
      }
      await proxy.stop();
    });

    const random = new Random(7);
    test.each<[string, (chunk: Buffer) => Buffer]>([
      [
        'fields without an end',
        (chunk) => Buffer.concat([chunk.subarray(0, 5), chunk.subarray(5).fill(0xff)]),
      ],
      ['messages of length 0', (chunk) => Buffer.from(chunk).fill(0, 1, 5)],
      ['other messages than expected', (chunk) => Buffer.concat([Buffer.from('T\0\0\0\x06\0\0'), chunk])],
      ['row after row', (chunk) => Buffer.concat([Buffer.from('D\0\0\0\x06\x7f\xff', 'latin1'), chunk])],
      [
        'random bytes',
        (chunk) => Buffer.from(chunk.map((byte) => (random.next() < 0.1 ? random.integer(0, 255) : byte))),
      ],
    ])('a connection that sends %s fails, and the next one works', async (_, change) => {
      const schema = `trouble_${++schemas}`;
      const proxy = await flakyProxy(`http://127.0.0.1:${primary.port}`, 0, Math.random);
      const store = open([Number(new URL(proxy.url).port)], schema, 1_000);
      const count = async () => (await store.count({ ...ALL, rows: 'timeline' }))[0][0];
      await store.append(batch('first', 3));
      for (let i = 0; i < 3; i++) {
        proxy.corrupt(change);
        // A number that was changed cannot be recognized.
        await Promise.all([count().catch(() => 0), store.sources('p').catch(() => [])]);
        proxy.corrupt(null);
        const counted = () => count().catch(() => undefined);
        expect(await eventually(counted, 'a connection that works')).toBe(3);
      }
      expect(await store.append(batch('second', 2))).toMatchObject({ kind: 'appended' });
      expect(await count()).toBe(5);
      await store.close();
      await proxy.stop();
    });

    test('an append whose COMMIT gets no response says that its outcome is unknown', async () => {
      const schema = `trouble_${++schemas}`;
      const proxy = await flakyProxy(`http://127.0.0.1:${primary.port}`, 0, Math.random);
      proxy.cutAt(
        (chunk) => chunk.includes('COMMIT') && chunk.includes('segments'),
        (chunk) => chunk.includes('COMMIT'),
      );
      const [store, cut] = [open([primary.port], schema), open([Number(new URL(proxy.url).port)], schema)];
      await store.append(batch('first', 1));
      await expect(cut.append(batch('second', 1))).rejects.toMatchObject({ outcomeUnknown: true });
      expect(await store.append(batch('second', 1))).toEqual({ kind: 'duplicate' });
      expect((await store.count({ ...ALL, rows: 'timeline' }))[0][0]).toBe(2);
      await Promise.all([store.close(), cut.close()]);
      await proxy.stop();
      // Nothing is sent if there is no connection.
      const down = open([1], schema);
      await expect(down.append(batch('third', 1))).rejects.toMatchObject({ outcomeUnknown: false });
      await down.close();
    });

    test('an error after COMMIT is not hidden', async () => {
      const database = new Database(optionsOf([primary.port], 'public'));
      const failing = database.transaction(async (run) => {
        await run('COMMIT');
        throw new StoreUnavailable('too late');
      });
      await expect(failing).rejects.toThrow('too late');
      await database.close();
    });

    test('a failover to a synchronous standby loses nothing and counts nothing twice', async () => {
      const old = await PostgresServer.start();
      started.push(old);
      const standby = await PostgresServer.standbyOf(old);
      started.push(standby);
      old.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
      old.sql('SELECT pg_reload_conf()');
      const store = open([standby.port, old.port], 'failover');
      const standbyOnly = open([standby.port], 'failover');
      expect(await store.append(batch('first', 1))).toMatchObject({ kind: 'appended' });
      // It has the tables, but may lag behind.
      for (const refused of [
        standbyOnly.append(batch('no', 1)),
        standbyOnly.count({ ...ALL, rows: 'timeline' }),
        standbyOnly.check('queries'),
      ]) {
        await expect(refused).rejects.toThrow(/is a standby: only the primary is used/);
      }
      const batches = Array.from({ length: 200 }, (_, i) => batch(`batch-${i}`, 1 + (i % 3)));
      let acknowledged = 0;
      const appending = (async () => {
        for (const one of batches) {
          await appendAll(store, [one]);
          acknowledged++;
        }
      })();
      await eventually(() => acknowledged > 50 || undefined, 'some batches');
      await old.kill();
      await expect(store.check('queries')).rejects.toThrow(StoreUnavailable);
      const before = acknowledged;
      standby.promote();
      await appending;
      expect(before).toBeLessThan(batches.length);
      const events = 1 + batches.reduce((sum, one) => sum + one.events.length, 0);
      expect((await store.count({ ...ALL, rows: 'timeline' }))[0][0]).toBe(events);
      expect((await store.sources('p'))[0]?.events).toBe(events);
      for (const one of batches) expect(await store.append(one)).toEqual({ kind: 'duplicate' });
      expect((await standbyOnly.count({ ...ALL, rows: 'timeline' }))[0][0]).toBe(events);
      await Promise.all([store.close(), standbyOnly.close()]);
    });

    test('an append that began before old partitions were dropped counts what is after the horizon', async () => {
      const schema = `trouble_${++schemas}`;
      const [store, other] = [open([primary.port], schema), open([primary.port], schema)];
      const old = NOW - 60 * DAY_MS;
      await store.append(batch('first', 2, old));
      const horizon = NOW - 30 * DAY_MS;
      const [appended] = await Promise.all([
        Promise.all(Array.from({ length: 20 }, (_, i) => store.append(batch(`${i}`, 3, i % 2 ? old : NOW)))),
        other.prune(horizon),
      ]);
      expect(appended.every(({ kind }) => kind === 'appended')).toBe(true);
      expect(
        (await store.count({ project: 'p', edges: [0, horizon, NOW + 1], rows: 'timeline' }))[0],
      ).toEqual(Float64Array.of(0, 30));
      expect(await store.append(batch('late', 3, old))).toMatchObject({ beforeHorizon: 3 });
      const partitions = primary.sql(
        `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = '${schema}' AND c.relname ~ '^segments_[0-9]+$'`,
      );
      expect(Number(partitions)).toBeLessThanOrEqual(1);
      await Promise.all([store.close(), other.close()]);
    });

    const attacks = (
      id: string,
      time: number,
      urls: readonly string[],
      hostIds: (string | null)[] = [null],
    ) => ({
      ...batch(id, 0),
      events: hostIds.flatMap((hostId) =>
        urls.map((url) => ({
          time,
          hostId,
          request: true,
          attack: 'xss' as const,
          count: 1,
          details: { url },
        })),
      ),
    });

    test('retention deletes the rows of top lists to the hour, also while late attacks arrive', async () => {
      const schema = `trouble_${++schemas}`;
      const [store, other] = [open([primary.port], schema), open([primary.port], schema)];
      const limit = NOW - 30 * DAY_MS;
      const times = [NOW - 60 * DAY_MS, limit - 1, limit, NOW];
      for (const time of times) await store.append(attacks(`first ${time}`, time, ['/a', '/b']));
      await Promise.all([
        ...times.flatMap((time) =>
          Array.from({ length: 5 }, (_, i) => store.append(attacks(`${time} ${i}`, time, ['/c']))),
        ),
        other.prune(0, { topListsBefore: limit }),
      ]);
      const list = await store.top({ project: 'p', list: 'urls', limit: 9, from: 0, to: NOW + 1 });
      expect(list).toMatchObject({ attacks: 14, from: limit });
      expect((await store.count({ ...ALL, rows: 'timeline' }))[1][0]).toBe(28);
      // A pass deletes what an append that began before the one before it has added.
      await other.prune(0, { topListsBefore: limit });
      expect(primary.sql(`SELECT count(*), min(hour) FROM ${schema}.top_lists`)).toBe(
        `2|${limit / 3_600_000}`,
      );
      await Promise.all([store.close(), other.close()]);
    });

    test('top lists of many hosts with long URLs are read in parts, from the newest hour up to a limit', async () => {
      const schema = `trouble_${++schemas}`;
      const store = open([primary.port], schema);
      const names = { project: 'p', hostnames: ['a', 'b', 'c', 'd', 'e'], limit: 5 };
      const hosts = (await store.resolveHosts(names)) as string[];
      const urls = Array.from({ length: 500 }, (_, i) => `/${i}/${'x'.repeat(240)}`);
      for (const time of [NOW - 5 * DAY_MS, NOW - 3 * DAY_MS, NOW - DAY_MS, NOW]) {
        await store.append(attacks(`${time}`, time, urls, hosts));
      }
      const query = { project: 'p', list: 'urls' as const, limit: 2, from: 0, to: NOW + 1 };
      for (const selected of [hosts, undefined]) {
        const list = await store.top({ ...query, hosts: selected });
        expect(list).toMatchObject({ attacks: 10_000, distinct: selected ? 2_500 : expect.any(Number) });
        expect(list.items[0]).toMatchObject({ count: 4 });
        expect(list).not.toHaveProperty('shortened');
      }
      const database = new Database(optionsOf([primary.port], schema));
      // An hour of the project has about 260,000 bytes: it keeps 1,024 URLs.
      const limited = (bytesMax: number) => topListMethods(database, (action) => action(), bytesMax);
      const from = Math.floor((NOW - 3 * DAY_MS) / 3_600_000) * 3_600_000;
      expect(await limited(300_000).top(query)).toMatchObject({ attacks: 7_500, from, shortened: true });
      // Only the bytes of the list itself count.
      const sources = await limited(300_000).top({ ...query, list: 'sources' });
      expect(sources).not.toHaveProperty('shortened');
      await expect(limited(200_000).top(query)).rejects.toThrow('too much data to merge top lists');
      await Promise.all([database.close(), store.close()]);
    });

    test('change counters that reach their limit begin again, and each append changes the version', async () => {
      const schema = `trouble_${++schemas}`;
      const store = open([primary.port], schema);
      const range = { project: 'p', from: NOW - DAY_MS, to: NOW + 1 };
      await store.append(batch('first', 1));
      primary.sql(`UPDATE ${schema}.changes SET changes = ${2n ** 62n - 1n}`);
      const versions = [await store.version(range)];
      for (const id of ['second', 'third']) {
        expect(await store.append(batch(id, 1))).toMatchObject({ kind: 'appended' });
        versions.push(await store.version(range));
      }
      expect(new Set(versions).size).toBe(3);
      // Other projects do not matter.
      await store.append({ ...batch('first', 1), project: 'q' });
      expect(await store.version(range)).toBe(versions.at(-1));
      await store.close();
    });

    test('a connection pooler works in session mode, and is refused in transaction mode', async (context) => {
      if (!existsSync(PGBOUNCER)) {
        if (process.env.CI === 'true') throw new Error('pgbouncer is not installed');
        context.skip('needs apt-get install pgbouncer');
      }
      const users = join(mkdtempSync(join(tmpdir(), 'wafstat-pgbouncer-')), 'users');
      chmodSync(dirname(users), 0o755);
      writeFileSync(users, `"wafstat" "${PASSWORD}"`);
      context.onTestFinished(() => rmSync(dirname(users), { recursive: true }));
      for (const mode of ['session', 'transaction']) {
        const port = await freePort();
        const settings = join(dirname(users), `${mode}.ini`);
        writeFileSync(
          settings,
          `[databases]
           postgres = host=127.0.0.1 port=${primary.port}
           [pgbouncer]
           listen_addr = 127.0.0.1
           listen_port = ${port}
           unix_socket_dir =
           auth_type = plain
           auth_file = ${users}
           pool_mode = ${mode}`,
        );
        const asUser = process.getuid?.() === 0 ? ['-u', 'postgres'] : [];
        const pooler = spawn(PGBOUNCER, [...asUser, settings], { stdio: 'ignore' });
        context.onTestFinished(() => void pooler.kill());
        const store = open([port], `pooled_${mode}`);
        const appended = await eventually(
          () =>
            store.append(batch('first', 1)).then(
              ({ kind }) => kind,
              // The pooler may need some time to start.
              (error: Error) => (/ECONNREFUSED/.test(error.message) ? undefined : error.message),
            ),
          'the pooler to start',
        );
        expect(appended).toMatch(
          mode === 'session'
            ? /^appended$/
            : /is a connection pooler in transaction mode: use its session mode/,
        );
        await store.close();
      }
    });

    test('a transaction that cannot begin changes nothing', async () => {
      const database = new Database(optionsOf([primary.port], 'public'));
      await database.run('CREATE TABLE numbers (n int)');
      const insert = 'INSERT INTO numbers VALUES (1)';
      const running = database.transaction(async (run) => {
        await Promise.all([run('SELECT 1'), run('SELECT 2')]);
        await Promise.all([run(insert), run('COMMIT')]);
      }, 'BEGIN ISOLATION LEVEL UNKNOWN');
      await expect(running).rejects.toThrow(/syntax error/);
      await database.transaction((run) => run('SELECT 1'));
      expect(primary.sql('SELECT count(*) FROM public.numbers')).toBe('0');
      await database.close();
    });

    test('appends to a partition that was detached fail, and others do not', async () => {
      const schema = `trouble_${++schemas}`;
      const store = open([primary.port], schema);
      await store.append(batch('first', 1));
      const name = primary.sql(
        `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '${schema}.segments'::regclass`,
      );
      primary.sql(`ALTER TABLE ${schema}.segments DETACH PARTITION ${schema}.${name}`);
      await expect(store.append(batch('second', 1))).rejects.toThrow(/no partition of relation/);
      expect(await store.append(batch('old', 1, NOW - 30 * DAY_MS))).toMatchObject({ kind: 'appended' });
      await store.close();
    });

    test('after a statement without response, no connection from before is used', async () => {
      const database = new Database(optionsOf([primary.port], 'public'));
      const pidOf = async (run: Run) =>
        (await run<{ pid: number }>('SELECT pg_backend_pid() AS pid'))[0]?.pid ?? 0;
      // Two connections. As if their server had lost power.
      const pids = await database.transaction(async (first) => [
        await pidOf(first),
        await database.transaction(pidOf),
      ]);
      for (const pid of pids) process.kill(pid, 'SIGSTOP');
      try {
        await expect(database.run('SELECT 1', [], 100)).rejects.toThrow(/does not respond/);
        expect(pids).not.toContain(await database.transaction(pidOf));
      } finally {
        for (const pid of pids) process.kill(pid, 'SIGCONT');
        await database.close();
      }
    });

    test('a process that was itself busy or stopped does not blame the server', async () => {
      const database = new Database(optionsOf([primary.port], 'public'));
      for (const statements of [1, 2]) {
        const all = Array.from({ length: statements }, () => database.run<{ n: number }>('SELECT 1 AS n'));
        // Longer than the time for a connection: the timers fire before the responses are read.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6_000);
        expect(await Promise.all(all)).toEqual(Array(statements).fill([{ n: 1 }]));
      }
      await database.close();
    });

    test('a statement can have a shorter time limit than others', async () => {
      const database = new Database(optionsOf([primary.port], 'public'));
      await expect(database.run('SELECT pg_sleep(2)', [], 100)).rejects.toThrow(/does not respond/);
      await database.close();
    });

    test('without access to the schema, the error says so', async () => {
      const schema = `trouble_${++schemas}`;
      const owner = open([primary.port], schema);
      await owner.append(batch('first', 1));
      await owner.close();
      primary.sql(`CREATE ROLE stranger LOGIN PASSWORD '${PASSWORD}'`);
      const options = optionsOf([primary.port], schema);
      const store = postgresStore({ ...options, url: { ...options.url, user: 'stranger' } }, () => NOW);
      await expect(store.check('queries')).rejects.toThrow(`permission denied for schema ${schema}`);
      await store.close();
    });

    test('the settings of the server and of the user do not matter', async ({ onTestFinished }) => {
      onTestFinished(() => void primary.sql('ALTER ROLE wafstat RESET ALL'));
      const settings = {
        default_transaction_isolation: "'serializable'",
        bytea_output: "'escape'",
        max_parallel_workers_per_gather: '8',
        parallel_setup_cost: '0',
        parallel_tuple_cost: '0',
        min_parallel_table_scan_size: '0',
        min_parallel_index_scan_size: '0',
        force_parallel_mode: "'on'",
      };
      for (const [name, value] of Object.entries(settings))
        primary.sql(`ALTER ROLE wafstat SET ${name} = ${value}`);
      // A name that SQL must quote.
      const stores = [open([primary.port], 'User'), open([primary.port], 'User')];
      const appended = await Promise.all(
        Array.from({ length: 20 }, (_, i) => stores[i % 2]?.append(batch(`${i}`, 3, NOW - i * DAY_MS))),
      );
      expect(appended.map((each) => each?.kind)).toEqual(appended.map(() => 'appended'));
      const edges = Array.from({ length: 30 }, (_, i) => NOW + 500 + (i - 28) * DAY_MS);
      const [requests] = (await stores[0]?.count({ project: 'p', edges, rows: 'timeline' })) ?? [];
      expect(requests?.reduce((a, b) => a + b)).toBe(60);
      for (const store of stores) await store.close();
    });

    test('retention frees space behind a long query, and does not hold up the queries after it', async () => {
      const schema = `trouble_${++schemas}`;
      const store = open([primary.port], schema);
      const old = NOW - 60 * DAY_MS;
      await store.append(batch('old', 2, old));
      await store.append(batch('new', 3));
      const database = new Database(optionsOf([primary.port], schema, 60_000));
      const pruned = await database.transaction(async (run) => {
        await run('SELECT count(*) FROM segments');
        const pruning = store.prune(NOW - 30 * DAY_MS);
        // It waits for a tenth of a second at a time: starting psql can take longer.
        const waiting = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'";
        await eventually(
          async () => (await database.run(waiting)).length === 1 || undefined,
          'retention waits for the query',
        );
        expect((await store.count({ ...ALL, rows: 'timeline' }))[0][0]).toBe(3);
        expect(await store.append(batch('newer', 1))).toMatchObject({ kind: 'appended' });
        return { pruning };
      });
      await pruned.pruning;
      const partitions = primary.sql(
        `SELECT count(*) FROM pg_inherits WHERE inhparent = '${schema}.segments'::regclass`,
      );
      expect(partitions).toBe('1');
      await Promise.all([store.close(), database.close()]);
    });

    test('a query reads only the partitions of its range', async () => {
      const schema = `trouble_${++schemas}`;
      const store = open([primary.port], schema);
      for (let i = 0; i < 10; i++) await store.append(batch(`${i}`, 1, NOW - i * 8 * DAY_MS));
      expect((await store.count({ project: 'p', edges: [NOW - 500, NOW + 1], rows: 'timeline' }))[0][0]).toBe(
        1,
      );
      // Statistics are complete when a session has ended.
      await store.close();
      const read = await eventually(() => {
        const names = primary.sql(
          `SELECT relname FROM pg_stat_user_tables WHERE schemaname = '${schema}' AND relname LIKE 'segments%' AND idx_scan > 0`,
        );
        return names === '' ? undefined : names;
      }, 'statistics');
      expect(read).toBe(`segments_${Math.floor(NOW / (8 * DAY_MS))}`);
    });

    test('all batches of an old file are forgotten at once, and none of a file that still grows', async () => {
      const schema = `trouble_${++schemas}`;
      const store = open([primary.port], schema);
      const days = (file: string, last: number) =>
        Array.from({ length: 30 }, (_, i) => ({
          ...batch(`${file} ${i}`, 1, i === 29 ? last : NOW - (90 - i) * DAY_MS),
          link: {
            after: i === 0 ? '' : `${file} ${i - 1}`,
            siblings: [],
            bytes: 1,
            firstLineHash: '',
            readerState: '',
          },
        }));
      const growing = days('growing', NOW);
      // As if it were appended on those days.
      const finished = days('finished', NOW - 61 * DAY_MS).map((each) => ({ ...each, project: 'q' }));
      for (const each of [...growing, ...finished])
        expect(await store.append(each)).toMatchObject({ kind: 'appended' });
      primary.sql(
        `UPDATE ${schema}.batches SET day = (${NOW} / ${DAY_MS}) - 90 + split_part(id, ' ', 2)::int
         WHERE id NOT LIKE 'growing 29'`,
      );
      await store.prune(NOW - 30 * DAY_MS);
      const left = (project: string) =>
        Number(primary.sql(`SELECT count(*) FROM ${schema}.batches WHERE project = '${project}'`));
      expect([left('p'), left('q')]).toEqual([30, 0]);
      expect(await store.append(growing[0] as Batch)).toEqual({ kind: 'duplicate' });
      // What is kept is not looked at again until the file is old.
      expect(primary.sql(`SELECT DISTINCT day FROM ${schema}.batches`)).toBe(
        String(Math.floor(NOW / DAY_MS)),
      );
      await store.close();
    });
  },
);
