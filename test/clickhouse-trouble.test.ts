/** Failures of ClickHouse, PostgreSQL and processes: nothing may be lost or counted twice. */
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Database } from '../packages/server/src/postgres/database.ts';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { appendGroup } from '../packages/server/src/store/clickhouse/append.ts';
import { readSnapshot } from '../packages/server/src/store/clickhouse/attempts.ts';
import {
  type ClickHouseOptions,
  clickhouseStore,
  migrate,
} from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { compactProject, deleteReplaced } from '../packages/server/src/store/clickhouse/compact.ts';
import { counted } from '../packages/server/src/store/clickhouse/count.ts';
import { readPeaks } from '../packages/server/src/store/clickhouse/peaks.ts';
import { Shards } from '../packages/server/src/store/clickhouse/schema.ts';
import { Server } from '../packages/server/src/store/clickhouse/server.ts';
import { memoryStore } from '../packages/server/src/store/memory.ts';
import {
  type Appended,
  type Batch,
  QueryTooLarge,
  type Store,
  StoreNotWritable,
  StoreUnavailable,
  TOP_KEYS_DEFAULT,
} from '../packages/server/src/store/store.ts';
import { ALWAYS, clickhouseOptions, NEVER } from './clickhouse-options.ts';
import { CLICKHOUSE, type ClickHouse, startClickHouse, startSmallClickHouse } from './clickhouse-server.ts';
import { type FlakyProxy, flakyProxy } from './flaky-proxy.ts';
import { POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Random, scaled } from './random.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const DAY_MS = 86_400_000;
/** How long an attempt may stay open. */
const LIFETIME_MS = 60_000;
const ALL = { project: 'p', edges: [0, NOW + DAY_MS] };

describe.skipIf((!CLICKHOUSE.isInstalled() || !POSTGRES.isInstalled()) && process.env.CI !== 'true')(
  `with clickhouse-server and postgresql (${CLICKHOUSE.needs} ${POSTGRES.needs})`,
  () => {
    let clickhouse: ClickHouse;
    let postgres: PostgresServer;
    beforeAll(async () => {
      [clickhouse, postgres] = await Promise.all([startClickHouse(3), PostgresServer.start()]);
    });
    afterAll(() => Promise.all([clickhouse?.stop(), postgres?.stop()]));

    /** New tables on one shard or more, and what is needed to look inside. */
    async function createTables(shards = 1, timeoutMs = 20_000) {
      const options = clickhouseOptions(clickhouse.urls.slice(0, shards), postgres.url, timeoutMs);
      await migrate(options);
      const database = new Database(options.postgres);
      const inner = new Shards(options);
      await inner.check(database, false);
      return {
        options,
        database,
        shards: inner,
        open: (changes: Partial<ClickHouseOptions> = {}, now = () => NOW): Store =>
          clickhouseStore({ ...options, ...changes }, now),
        server: () => inner.get(0),
        async unfinished(): Promise<number> {
          const [row] = await database.run<{ n: number }>('SELECT count(*) AS n FROM attempts');
          return row?.n ?? 0;
        },
        expire: () => database.run(`UPDATE attempts SET expires = now() - interval '1 second'`),
        compact: (project = 'p') => compactProject(database, inner, project, ALWAYS, NEVER),
        async close() {
          await Promise.all([database.close(), inner.close()]);
        },
      };
    }

    test('totals equal the oracle, wherever appends end and whenever their rows arrive', async () => {
      const tables = await createTables();
      const { database, shards } = tables;
      const store = tables.open();
      let run = 0;
      const fault = fc.constantFrom(
        'none',
        'none',
        'not opened',
        'rows arrive later',
        'killed after the insert',
        'killed before the insert',
        'insert without a response',
        'close without a response',
        'waits before it closes',
      );
      const event = fc.record({
        time: fc.oneof(
          fc.integer({ min: NOW - 200_000, max: NOW }),
          fc.integer({ min: 0, max: 9 }).map((days) => NOW - days * DAY_MS),
        ),
        host: fc.integer({ min: 0, max: 2 }),
        request: fc.boolean(),
        attack: fc.constantFrom(null, 'xss' as const, 'cc' as const),
        count: fc.integer({ min: 1, max: 1_000 }),
        details: fc.record({ url: fc.constantFrom('/', '/login') }),
      });
      const step = fc.oneof(
        {
          weight: 5,
          arbitrary: fc.record({
            kind: fc.constant('append' as const),
            id: fc.integer({ min: 0, max: 5 }),
            fault,
            skewMs: fc.constantFrom(0, 3_600_000, -3_600_000),
          }),
        },
        {
          weight: 1,
          arbitrary: fc.record({
            kind: fc.constant('append during compaction' as const),
            id: fc.integer({ min: 0, max: 5 }),
          }),
        },
        {
          weight: 4,
          arbitrary: fc.record({
            kind: fc.constantFrom(
              'expire' as const,
              'compact' as const,
              'continue' as const,
              'arrive' as const,
              'delete' as const,
              'old snapshot' as const,
            ),
          }),
        },
      );
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(event, { maxLength: 8 }), { minLength: 6, maxLength: 6 }),
          fc.array(step, { minLength: 1, maxLength: 14 }),
          fc.array(fc.integer({ min: NOW - 2 * DAY_MS, max: NOW + 1 }), { minLength: 2, maxLength: 5 }),
          async (drawn, steps, times) => {
            const project = `p${run++}`;
            const oracle = memoryStore(() => NOW);
            const hostnames = ['a.example', 'b.example'];
            const hosts = await store.resolveHosts({ project, hostnames, limit: 10 });
            await oracle.resolveHosts({ project, hostnames, limit: 10 });
            const late: { server: Server; rows: readonly object[] }[] = [];
            const edges = [0, ...times.toSorted((a, b) => a - b), NOW + DAY_MS];
            const check = async () => {
              for (const selection of [{ project }, { project, hosts: [hosts[0] ?? ''] }]) {
                expect(await store.seriesByCategory({ ...selection, edges })).toEqual(
                  await oracle.seriesByCategory({ ...selection, edges }),
                );
                expect(await store.peaks({ ...selection, edges })).toEqual(
                  await oracle.peaks({ ...selection, edges }),
                );
                const urls = { list: 'urls' as const, from: 0, to: NOW + DAY_MS, limit: 10 };
                expect(await store.top({ ...selection, ...urls })).toEqual(
                  await oracle.top({ ...selection, ...urls }),
                );
              }
              const range = { from: NOW - DAY_MS - 1, to: NOW };
              expect(await store.attacksByHost({ project, ...range })).toEqual(
                await oracle.attacksByHost({ project, ...range }),
              );
              const [source] = await oracle.sources(project);
              expect((await store.sources(project))[0]?.events).toBe(source?.events);
            };
            const batchOf = (id: number): Batch => ({
              project,
              source: { name: 's', format: 'events' },
              id: `${id}`,
              events: (drawn[id] ?? []).map(({ host, ...rest }) => ({
                ...rest,
                hostId: hosts[host] ?? null,
              })),
              dropped: {},
            });
            const waiting: (() => Promise<void>)[] = [];
            /** A compaction waits for open attempts, here in vain. */
            const limit = async () => {
              const open = await database.run(
                'SELECT FROM attempts WHERE project = $1 AND NOT aborted AND expires > now()',
                [project],
              );
              return open.length === 0 ? NEVER : AbortSignal.timeout(20);
            };
            for (const one of steps) {
              if (one.kind === 'append') {
                const batch = batchOf(one.id);
                const world = new FaultyWorld(database, shards, one.fault, late);
                const appending = appendGroup(
                  world.database,
                  world.shards,
                  [batch],
                  NOW + one.skewMs,
                  LIFETIME_MS,
                  TOP_KEYS_DEFAULT,
                );
                const finish = async () => {
                  const outcome = await appending.catch((error: unknown) => {
                    if (!(error instanceof StoreUnavailable)) throw error;
                    return null;
                  });
                  if (outcome === null && !world.hasClosed) return;
                  const expected = await oracle.append(batch);
                  if (outcome !== null) expect(outcome).toEqual([expected]);
                };
                if (await world.waits(appending)) {
                  waiting.push(async () => {
                    world.resume();
                    await finish();
                  });
                } else await finish();
              } else if (one.kind === 'append during compaction') {
                const get = async (number: number) => {
                  const batch = batchOf(one.id);
                  expect(await store.append(batch)).toEqual(await oracle.append(batch));
                  return shards.get(number);
                };
                const during = { choose: () => 0, get } as unknown as Shards;
                await compactProject(database, during, project, ALWAYS, await limit());
              } else if (one.kind === 'continue') {
                for (const next of waiting.splice(0)) await next();
              } else if (one.kind === 'expire') {
                await database.run(
                  `UPDATE attempts SET expires = now() - interval '1 second' WHERE project = $1`,
                  [project],
                );
              } else if (one.kind === 'compact') {
                await compactProject(database, shards, project, ALWAYS, await limit());
              } else if (one.kind === 'arrive') {
                for (const { server, rows } of late.splice(0)) await server.insert('cells', rows);
              } else if (one.kind === 'delete') await deleteReplaced(database, shards, ALWAYS);
              else {
                // A query that was slow between its snapshot and its statement.
                const snapshot = await readSnapshot(database, project);
                if (snapshot === null) continue;
                const sum = async () => {
                  const { where, values } = counted(snapshot);
                  const sql = `SELECT sum(requests) + sum(attacks) AS n FROM cells WHERE ${where} AND level = 1`;
                  const [row] = await (await shards.get(0)).select<{ n: string }>(sql, values);
                  return row?.n;
                };
                const before = await sum();
                await compactProject(database, shards, project, ALWAYS, await limit());
                expect(await sum()).toBe(before);
              }
            }
            await check();
            for (const next of waiting.splice(0)) await next();
            await check();
            // In the end, nothing is left over.
            await database.run(
              `UPDATE attempts SET expires = now() - interval '1 second' WHERE project = $1`,
              [project],
            );
            while (await compactProject(database, shards, project, ALWAYS, NEVER));
            const left = await database.run('SELECT FROM attempts WHERE project = $1', [project]);
            expect(left).toHaveLength(0);
            for (const { server, rows } of late.splice(0)) await server.insert('cells', rows);
            await check();
          },
        ),
        { numRuns: scaled(12) },
      );
      await store.close();
      await tables.close();
    });

    test('an append during which time is freed is in the top lists of all hours that are kept', async () => {
      const tables = await createTables();
      const store = tables.open();
      const attack = { hostId: null, request: true, attack: 'xss', count: 1 } as const;
      const events = [40, 20, 0].map((days) => ({
        ...attack,
        time: NOW - days * DAY_MS,
        details: { url: `/${days}` },
      }));
      const world = new FaultyWorld(tables.database, tables.shards, 'waits before it closes', []);
      const batches = [{ ...batch('x', 1), events }];
      const appending = appendGroup(
        world.database,
        world.shards,
        batches,
        NOW,
        LIFETIME_MS,
        TOP_KEYS_DEFAULT,
      );
      expect(await world.waits(appending)).toBe(true);
      await store.prune(NOW - 10 * DAY_MS, { freeBefore: NOW - 30 * DAY_MS, topListsBefore: 0 });
      world.resume();
      expect(await appending).toMatchObject([{ kind: 'appended' }]);
      await store.restoreHorizon(0);
      const { items } = await store.top({ project: 'p', list: 'urls', from: 0, to: NOW + 1, limit: 10 });
      expect(items.map(({ key, count }) => [key, count])).toEqual([
        ['/0', 1],
        ['/20', 1],
      ]);
      expect((await store.series(ALL)).attacks[0]).toBe(2);
      await store.close();
      await tables.close();
    });

    test('a compaction after a host was deleted keeps the counts of all hosts', async () => {
      const { open, compact, close } = await createTables();
      const store = open();
      const ids = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b', 'c'], limit: 10 });
      const request = { request: true, attack: null, count: 1 };
      const events = ids.map((hostId, i) => ({ ...request, hostId, time: NOW + i }));
      await store.append({ ...batch('x', 0), events });
      await store.deleteHost({ project: 'p', id: ids[0] ?? '' });
      const read = async () => {
        // The range cuts a minute, whose milliseconds are read from the rows of all hosts.
        const all = await store.series({ project: 'p', edges: [NOW, NOW + 10] });
        const last = await store.series({ project: 'p', hosts: [ids[2] ?? ''], edges: [NOW, NOW + 10] });
        return [all.requests[0], last.requests[0]];
      };
      expect(await read()).toEqual([3, 1]);
      await compact();
      expect(await read()).toEqual([3, 1]);
      await store.close();
      await close();
    });

    test('a source does not have a host that is deleted during an append', async () => {
      const tables = await createTables();
      const store = tables.open();
      const ids = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b'], limit: 10 });
      const request = { request: true, attack: null, count: 1, time: NOW };
      const events = ids.map((hostId) => ({ ...request, hostId }));
      const world = new FaultyWorld(tables.database, tables.shards, 'waits before it closes', []);
      const appending = appendGroup(
        world.database,
        world.shards,
        [{ ...batch('x', 0), events }],
        NOW,
        LIFETIME_MS,
        TOP_KEYS_DEFAULT,
      );
      expect(await world.waits(appending)).toBe(true);
      await store.deleteHost({ project: 'p', id: ids[0] ?? '' });
      world.resume();
      expect(await appending).toMatchObject([{ kind: 'appended' }]);
      expect((await store.sources('p')).map(({ hosts }) => hosts)).toEqual([[ids[1]]]);
      expect((await store.series(ALL)).requests[0]).toBe(2);
      await store.close();
      await tables.close();
    });

    test('every batch counts once if connections to both databases break at random places', async () => {
      const tables = await createTables();
      const random = new Random(20_260_701);
      const proxies: FlakyProxy[] = [
        await flakyProxy(clickhouse.urls[0] ?? '', 0.1, () => random.next()),
        await flakyProxy(`http://127.0.0.1:${postgres.port}`, 0.03, () => random.next()),
      ];
      const [http, tcp] = proxies.map(({ url }) => url) as [string, string];
      const flaky = {
        urls: [http],
        postgres: {
          ...tables.options.postgres,
          url: parseDatabaseUrl(`postgres://wafstat@127.0.0.1:${new URL(tcp).port}/postgres`),
        },
      };
      const stores = [tables.open(flaky), tables.open(flaky), tables.open(flaky)];
      const batches = Array.from({ length: 60 }, (_, i) => batch(`batch-${i}`, 1 + (i % 5)));
      const outcomes = await Promise.all(
        stores.map((store, i) => appendAll(store, i === 0 ? batches : batches.toReversed())),
      );
      for (const proxy of proxies) {
        expect(proxy.cuts()).toBeGreaterThan(5);
        proxy.behave();
      }
      const events = batches.reduce((sum, one) => sum + one.events.length, 0);
      for (const store of [...stores, tables.open()]) {
        expect((await store.series(ALL)).requests[0]).toBe(events);
        expect((await store.sources('p'))[0]?.events).toBe(events);
        await store.close();
      }
      // If a response was lost, the next attempt reports a duplicate: no batch was appended twice.
      for (const { id } of batches) {
        const times = outcomes.filter((kinds) => kinds.get(id ?? '') === 'appended').length;
        expect(times).toBeLessThanOrEqual(1);
      }
      await Promise.all(proxies.map((proxy) => proxy.stop()));
      // Attempts whose outcome was unknown disappear without a trace.
      await tables.expire();
      await tables.compact();
      expect(await tables.unfinished()).toBe(0);
      const store = tables.open();
      expect((await store.series(ALL)).requests[0]).toBe(events);
      await store.close();
      await tables.close();
    });

    test('an append that hangs until another process has aborted it starts again, and counts once', async () => {
      const tables = await createTables();
      const store = tables.open();
      await store.append(batch('before', 1));
      clickhouse.servers[0]?.pause();
      const hanging = store.append(batch('hangs', 2));
      await eventually(async () => (await tables.unfinished()) === 1 || undefined, 'the attempt');
      await tables.expire();
      const compacting = tables.compact();
      await eventually(
        async () =>
          (await tables.database.run('SELECT FROM attempts WHERE aborted')).length === 1 || undefined,
        'the abort',
      );
      clickhouse.servers[0]?.resume();
      await compacting;
      expect(await hanging).toMatchObject({ kind: 'appended' });
      expect(await store.append(batch('hangs', 2))).toEqual({ kind: 'duplicate' });
      expect((await store.series(ALL)).requests[0]).toBe(3);
      await tables.compact();
      expect(await tables.unfinished()).toBe(0);
      await store.close();
      await tables.close();
    });

    test('a server that hangs causes errors in bounded time, and works again after it resumes', async () => {
      const { open, close } = await createTables();
      const [store, hasty] = [open(), open({ timeoutMs: 1_000 })];
      await store.append(batch('before', 1));
      await appendAll(hasty, [batch('before', 1)]);
      clickhouse.servers[0]?.pause();
      const outcomes = await Promise.allSettled([
        hasty.append(batch('late', 2)),
        hasty.series(ALL),
        hasty.ping(),
      ]);
      for (const outcome of outcomes) {
        expect(outcome).toMatchObject({
          status: 'rejected',
          reason: expect.objectContaining({
            message: expect.stringMatching(/does not respond: no response within [12] s/),
          }),
        });
      }
      clickhouse.servers[0]?.resume();
      await appendAll(hasty, [batch('late', 2)]);
      expect((await store.series(ALL)).requests[0]).toBe(3);
      await Promise.all([store.close(), hasty.close()]);
      await close();
    });

    test('a process that was itself busy or stopped does not blame the server', async () => {
      const [url = ''] = clickhouse.urls;
      const server = new Server({
        url,
        database: 'default',
        user: 'default',
        password: '',
        timeoutMs: 3_000,
      });
      await eventually(
        () =>
          server.ping().then(
            () => true,
            () => undefined,
          ),
        'a connection',
      );
      const selecting = server.select('SELECT sleep(1) AS slept');
      await sleep(200);
      // The timers fire before the response is read.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000);
      expect(await selecting).toEqual([{ slept: 0 }]);
      await server.close();
    });

    test('while a shard is down, its projects are unavailable, retries open no attempts, and others work', async () => {
      const { open, shards, unfinished, close } = await createTables(2);
      const store = open();
      const projects = Array.from({ length: 20 }, (_, i) => `project ${i}`);
      const [here = '', there = ''] = [0, 1].map((shard) =>
        projects.find((name) => shards.choose(name) === shard),
      );
      for (const project of [here, there]) await store.append({ ...batch('first', 1), project });
      await clickhouse.servers[1]?.kill();
      const retry = { ...batch('retry', 2), project: there };
      for (let i = 0; i < 10; i++) await expect(store.append(retry)).rejects.toThrow(StoreUnavailable);
      expect(await unfinished()).toBeLessThanOrEqual(1);
      await expect(store.series({ ...ALL, project: there })).rejects.toThrow(StoreUnavailable);
      await store.append({ ...batch('second', 2), project: here });
      expect((await store.series({ ...ALL, project: here })).requests[0]).toBe(3);
      await store.ping();
      await clickhouse.servers[1]?.start();
      await appendAll(store, [retry]);
      expect((await store.series({ ...ALL, project: there })).requests[0]).toBe(3);
      await store.close();
      await close();
    });

    test('an attempt whose insert fails as a whole is removed', async () => {
      const { open, unfinished, server, close } = await createTables();
      const store = open();
      // The project is not a number, so the insert fails.
      await (await server()).run(
        'ALTER TABLE cells ADD COLUMN refused UInt64 MATERIALIZED toUInt64(project)',
      );
      for (let i = 0; i < 3; i++)
        await expect(store.append(batch('x', 2))).rejects.toThrow(/failed on ClickHouse at .*: Code: 6,/);
      expect(await unfinished()).toBe(0);
      await (await server()).run('ALTER TABLE cells DROP COLUMN refused');
      await store.append(batch('x', 2));
      expect((await store.series(ALL)).requests[0]).toBe(2);
      await store.close();
      await close();
    });

    test('while too many appends are unfinished, new ones are refused; they disappear without new ones', async () => {
      const { database, open, unfinished, compact, close } = await createTables();
      const store = open();
      await store.append(batch('first', 1));
      await database.run(
        `INSERT INTO attempts (project, number, first, expires, days)
         SELECT 'p', number, number, now(), '{20635}' FROM generate_series(1, 256) AS number`,
      );
      await expect(store.append(batch('x', 2))).rejects.toThrow(/256 appends to the project are unfinished/);
      expect((await store.series(ALL)).requests[0]).toBe(1);
      await compact();
      expect(await unfinished()).toBe(0);
      await store.append(batch('x', 2));
      expect((await store.series(ALL)).requests[0]).toBe(3);
      await store.close();
      await close();
    });

    test('an aborted append that wrote to many days is forgotten only when all of them are compacted', async () => {
      const { database, open, unfinished, compact, close } = await createTables();
      const store = open();
      await store.append(batch('first', 1));
      await database.run(
        `INSERT INTO attempts (project, number, first, aborted, expires, days)
         SELECT 'p', attempt + 1, attempt + 1, true, now(), ARRAY(SELECT generate_series(20000, 20099)) FROM projects`,
      );
      await database.run('UPDATE projects SET attempt = attempt + 1');
      expect([await compact(), await unfinished()]).toEqual([true, 1]);
      expect([await compact(), await unfinished()]).toEqual([false, 0]);
      expect((await store.series(ALL)).requests[0]).toBe(1);
      await store.close();
      await close();
    });

    test('small appends are compacted in the background, and the rows that they had are deleted', async () => {
      const { open, server, close } = await createTables();
      const store = open({ compaction: { attemptsMin: 10, rowsMin: 0, replacedMs: 0, everyMs: 10 } });
      const rows = async () => {
        const [row] = await (await server()).select<{ n: string }>('SELECT count() AS n FROM cells');
        return Number(row?.n);
      };
      let appended = 0;
      await eventually(async () => {
        await store.append(batch(`${appended}`, 2));
        appended++;
        // Each append has four rows.
        return appended > 40 && (await rows()) < 2 * appended ? true : undefined;
      }, 'fewer rows');
      expect((await store.series(ALL)).requests[0]).toBe(2 * appended);
      await store.close();
      await close();
    });

    test('after a failover that lost commits, batches that are sent again count once', async () => {
      const old = await PostgresServer.start();
      const standby = await PostgresServer.standbyOf(old);
      try {
        const url = `postgres://wafstat@127.0.0.1:${old.port},127.0.0.1:${standby.port}/postgres`;
        const options = clickhouseOptions(clickhouse.urls.slice(0, 1), url);
        await migrate(options);
        const store = clickhouseStore(options, () => NOW);
        await store.append(batch('first', 1));
        await eventually(
          () => standby.sql(`SELECT count(*) FROM ${options.database}.batches`) === '1' || undefined,
          'the standby',
        );
        await standby.kill();
        for (let i = 0; i < 5; i++) await store.append(batch(`lost ${i}`, 2));
        await old.kill();
        await standby.run();
        standby.promote();
        await eventually(
          () => standby.sql('SELECT pg_is_in_recovery()') === 'f' || undefined,
          'the promotion',
        );
        await expect(store.ping().then(() => store.ping())).resolves.toBeUndefined();
        expect((await store.series(ALL)).requests[0]).toBe(1);
        for (let i = 0; i < 5; i++) await appendAll(store, [batch(`lost ${i}`, 2)]);
        expect((await store.series(ALL)).requests[0]).toBe(11);
        await store.close();
      } finally {
        await Promise.all([old.stop(), standby.stop()]);
      }
    });

    test('after PostgreSQL was restored from an older dump and migrated, batches that are sent again count once', async () => {
      const { options, database, open, close } = await createTables();
      let store = open();
      await store.append(batch('first', 1));
      const [before] = await database.run<{ attempt: number }>('SELECT attempt FROM projects');
      for (let i = 0; i < 3; i++) await store.append(batch(`lost ${i}`, 2));
      await store.append({ ...batch('lost', 4), project: 'lost' });
      await store.close();
      await database.run(`DELETE FROM batches WHERE id <> 'first'`);
      await database.run(`DELETE FROM projects WHERE project = 'lost'`);
      await database.run('UPDATE projects SET attempt = $1', [before?.attempt ?? 0]);
      for (let i = 0; i < 2; i++) await migrate(options);
      store = open();
      expect((await store.series(ALL)).requests[0]).toBe(1);
      for (let i = 0; i < 3; i++) await store.append(batch(`lost ${i}`, 2));
      await store.append({ ...batch('lost', 4), project: 'lost' });
      expect((await store.series(ALL)).requests[0]).toBe(7);
      expect((await store.series({ ...ALL, project: 'lost' })).requests[0]).toBe(4);
      await store.close();
      await close();
    });

    test('shards must keep their order, can be added at the end, and belong to one installation', async () => {
      const { options, open, close } = await createTables(2);
      const [first = '', second = '', third = ''] = clickhouse.urls;
      const projects = Array.from({ length: 12 }, (_, i) => `project ${i}`);
      const store = open();
      for (const project of projects) await store.append({ ...batch('x', 1), project });
      const failure = async (changes: Partial<ClickHouseOptions>) => {
        const other = open(changes);
        const outcomes = await Promise.allSettled(
          projects.map((project) => other.series({ ...ALL, project })),
        );
        await other.close();
        return outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [`${outcome.reason}`] : []))[0];
      };
      expect(await failure({ urls: [second, first] })).toMatch(
        /is shard [12], but --clickhouse-url lists it as shard [12]/,
      );
      expect(await failure({ urls: [first] })).toMatch(/there are 2 shards, but --clickhouse-url lists 1/);
      expect(await failure({ urls: [first, second, third] })).toMatch(
        /append them to the list and run 'wafstat migrate'/,
      );
      const schema = `${options.database}_other`;
      const elsewhere = { postgres: { ...options.postgres, schema }, mayMigrate: true };
      expect(await failure(elsewhere)).toMatch(/belongs to other tables in PostgreSQL/);
      await expect(migrate({ ...options, urls: [first] })).rejects.toThrow(/shards cannot be removed/);
      await migrate({ ...options, urls: [first, second, third] });
      const larger = open({ urls: [first, second, third] });
      for (const project of [...projects, 'new 1', 'new 2', 'new 3', 'new 4'])
        await larger.append({ ...batch('y', 1), project });
      for (const project of projects) expect((await larger.series({ ...ALL, project })).requests[0]).toBe(2);
      await larger.close();
      await store.close();
      await close();
    });

    test('tables of older releases, replicated tables and lost tables are errors that say what to do', async () => {
      const { options, open, server, close } = await createTables();
      const shard = await server();
      const failure = async () => {
        const store = open();
        await store.append(batch('x', 1)).catch((error) => error.message);
        const message = await store.append(batch('x', 1)).catch((error) => error.message);
        await store.close();
        return message;
      };
      await shard.run('CREATE TABLE ledger (key String) ENGINE = MergeTree ORDER BY key');
      expect(await failure()).toMatch(
        /tables of an older release.*'wafstat copy --from clickhouse --to lmdb'/,
      );
      await expect(migrate(options)).rejects.toThrow(/Nothing was changed/);
      await shard.run('DROP TABLE ledger');
      await shard.run('DROP TABLE cells');
      await shard.run('CREATE TABLE cells (project String) ENGINE = ReplacingMergeTree ORDER BY project');
      expect(await failure()).toMatch(/has the engine ReplacingMergeTree, but only MergeTree is supported/);
      await shard.run('DROP TABLE cells');
      await shard.run('DROP TABLE shard');
      expect(await failure()).toMatch(/has no tables/);
      await expect(migrate(options)).rejects.toThrow(/has lost the counts of shard 1/);
      await close();
    });

    test('a schema of the PostgreSQL store is not used', async () => {
      const { options, database, close } = await createTables();
      const { migrate: migratePostgres } = await import('../packages/server/src/store/postgres/postgres.ts');
      await expect(migratePostgres(options.postgres)).rejects.toThrow(
        /belongs to a different kind of store than --store postgres: choose another --postgres-schema/,
      );
      await database.run(`SELECT 1`);
      await close();
    });

    test('peaks of too many events are refused', async () => {
      const { open, server, database, close } = await createTables();
      const store = open();
      await store.append(batch('x', 10));
      const snapshot = await readSnapshot(database, 'p');
      if (snapshot === null) throw new Error('no snapshot');
      await expect(readPeaks(await server(), snapshot, { project: 'p' }, ALL.edges, 0)).rejects.toThrow(
        QueryTooLarge,
      );
      await store.close();
      await close();
    });

    test('on a full disk of ClickHouse, appends are refused; after that they count once', async (context) => {
      const disk = await startSmallClickHouse(48 * 1_048_576);
      if (disk === null) {
        if (process.env.CI === 'true') throw new Error('tmpfs cannot be mounted');
        return context.skip('tmpfs cannot be mounted');
      }
      try {
        const options = clickhouseOptions(disk.urls, postgres.url);
        await migrate(options);
        const store = clickhouseStore(options, () => NOW);
        await store.append(batch('first', 1));
        const filler = `${disk.directory}/filler`;
        spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1M', 'count=100'], { stdio: 'ignore' });
        for (let i = 0; i < 5; i++)
          await expect(store.append(batch('second', 2))).rejects.toThrow(StoreNotWritable);
        expect((await store.series(ALL)).requests[0]).toBe(1);
        const database = new Database(options.postgres);
        expect((await database.run('SELECT FROM attempts')).length).toBeLessThanOrEqual(5);
        await database.close();
        spawnSync('rm', [filler]);
        await appendAll(store, [batch('second', 2)]);
        expect((await store.series(ALL)).requests[0]).toBe(3);
        await store.close();
      } finally {
        await disk.stop();
      }
    });
  },
);

type Fault =
  | 'none'
  | 'not opened'
  | 'rows arrive later'
  | 'killed after the insert'
  | 'killed before the insert'
  | 'insert without a response'
  | 'close without a response'
  | 'waits before it closes';

/** The databases as a process sees them that is killed or cut off at some point of an append. */
class FaultyWorld {
  readonly database: Database;
  readonly shards: Shards;
  /** Whether the attempt was closed although its process did not see that. */
  hasClosed = false;
  #isDead = false;
  #resume: (() => void) | null = null;
  /** Resolves when the append waits. */
  readonly #waiting: Promise<void>;

  resume(): void {
    this.#resume?.();
  }

  /** False if it ends first. */
  waits(appending: Promise<unknown>): Promise<boolean> {
    return Promise.race([
      this.#waiting.then(() => true),
      appending.then(
        () => false,
        () => false,
      ),
    ]);
  }

  constructor(
    database: Database,
    shards: Shards,
    fault: Fault,
    late: { server: Server; rows: readonly object[] }[],
  ) {
    const die = () => {
      this.#isDead = true;
      throw new StoreUnavailable('killed');
    };
    let transactions = 0;
    let startWaiting = () => {};
    this.#waiting = new Promise((resolve) => {
      startWaiting = resolve;
    });
    this.database = {
      schema: database.schema,
      run: (...args: Parameters<Database['run']>) => (this.#isDead ? die() : database.run(...args)),
      transaction: async (action: Parameters<Database['transaction']>[0], begin?: string) => {
        if (this.#isDead) die();
        transactions++;
        // The first one reads, the second one opens, the third one closes.
        if (fault === 'not opened' && transactions === 2) die();
        if (fault === 'waits before it closes' && transactions === 3) {
          const resumed = new Promise<void>((resolve) => {
            this.#resume = resolve;
          });
          startWaiting();
          await resumed;
        }
        const result = await database.transaction(action, begin);
        if (fault === 'close without a response' && result === true) {
          this.hasClosed = true;
          die();
        }
        return result;
      },
    } as unknown as Database;
    const insert = async (server: Server, table: string, rows: readonly object[]) => {
      if (fault === 'killed before the insert') die();
      if (fault === 'rows arrive later') late.push({ server, rows: structuredClone(rows) as object[] });
      else await server.insert(table, rows);
      if (fault === 'killed after the insert') die();
      if (fault === 'rows arrive later' || fault === 'insert without a response')
        throw new StoreUnavailable('no response');
    };
    this.shards = {
      choose: (project: string) => shards.choose(project),
      ready: (number: number) => shards.ready(number),
      failed: () => {},
      get: async (number: number) => {
        const server = await shards.get(number);
        return { insert: (table: string, rows: readonly object[]) => insert(server, table, rows) };
      },
    } as unknown as Shards;
  }
}

/** Retries until each batch is counted, as senders do. Returns the outcome of each. */
async function appendAll(store: Store, batches: readonly Batch[]): Promise<Map<string, Appended['kind']>> {
  const kinds = new Map<string, Appended['kind']>();
  for (const one of batches) {
    while (!kinds.has(one.id ?? '')) {
      try {
        kinds.set(one.id ?? '', (await store.append(one)).kind);
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        await sleep(10);
      }
    }
  }
  return kinds;
}

function batch(id: string, requests: number): Batch {
  return {
    project: 'p',
    source: { name: 'test', format: 'events' },
    id,
    events: Array.from({ length: requests }, (_, i) => ({
      time: NOW - i,
      hostId: null,
      request: true,
      attack: null,
      count: 1,
    })),
    dropped: {},
  };
}
