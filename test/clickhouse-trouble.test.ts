/** Failures of ClickHouse: nothing may be lost or counted twice. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readPeaks } from '../packages/server/src/store/clickhouse/cells.ts';
import { clickhouseStore, migrate } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { Ledger, type LedgerState } from '../packages/server/src/store/clickhouse/ledger.ts';
import { Server } from '../packages/server/src/store/clickhouse/server.ts';
import type { Appended, Batch, Store } from '../packages/server/src/store/store.ts';
import { QueryTooLarge, StoreUnavailable } from '../packages/server/src/store/store.ts';
import { CLICKHOUSE, CLUSTER, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { eventually } from './process.ts';
import { Random } from './random.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const ALL = { project: 'p', edges: [0, NOW + 86_400_000] };

describe.skipIf(!CLICKHOUSE.isInstalled() && process.env.CI !== 'true')(
  `with clickhouse-server (${CLICKHOUSE.needs})`,
  () => {
    let clickhouse: ClickHouse;
    let databases = 0;
    beforeAll(async () => {
      clickhouse = await startClickHouse(2);
    });
    afterAll(() => clickhouse?.stop());

    /** A new database on one server or on two shards, and stores on it. */
    async function createDatabase(cluster?: string) {
      const options = {
        urls: cluster === undefined ? clickhouse.urls.slice(0, 1) : clickhouse.urls,
        cluster,
        database: `trouble_${++databases}`,
        user: 'default',
        password: '',
        timeoutMs: 5_000,
        replicated: false,
      };
      await migrate(options);
      const server = new Server({ ...options, url: options.urls[0] ?? '' });
      return {
        name: options.database,
        options,
        server,
        ledger: new Ledger(server, options),
        open: (urls = options.urls, timeoutMs = options.timeoutMs): Store =>
          clickhouseStore({ ...options, urls, timeoutMs }, () => NOW),
        async state(): Promise<LedgerState> {
          return (await new Ledger(server, options).read([])).state;
        },
      };
    }

    test('every batch counts once if responses are lost and requests are interrupted', async () => {
      const { open } = await createDatabase();
      const random = new Random(20_260_701);
      const proxy = await flakyProxy(clickhouse.urls[0] ?? '', 0.1, () => random.next());
      const stores = [open([proxy.url]), open([proxy.url]), open([proxy.url])];
      const batches = Array.from({ length: 60 }, (_, i) => batch(`batch-${i}`, 1 + (i % 5)));
      const outcomes = await Promise.all(
        stores.map((store, i) => appendAll(store, i === 0 ? batches : batches.toReversed())),
      );
      expect(proxy.cuts()).toBeGreaterThan(20);
      proxy.behave();
      const events = batches.reduce((sum, one) => sum + one.events.length, 0);
      for (const store of [...stores, open()]) {
        expect((await store.series(ALL)).requests[0]).toBe(events);
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

    test('a second ClickHouse user is rejected until migrate makes it the only one', async () => {
      const { options, open } = await createDatabase();
      const second = { ...options, user: 'second' };
      const store = clickhouseStore(second, () => NOW);
      await expect(store.append(batch('x', 1))).rejects.toThrow(/all processes must use the same one/);
      // The version of the user is a time in seconds.
      await sleep(1_100);
      await migrate(second);
      expect(await store.append(batch('x', 1))).toMatchObject({ kind: 'appended' });
      const first = open();
      await expect(first.ping()).rejects.toThrow(/written by the ClickHouse user second/);
      await Promise.all([store.close(), first.close()]);
    });

    test('tables of version 1 are refused until migrate upgrades them, and then count blocked attacks', async () => {
      const { options, open, server } = await createDatabase();
      const attack = { time: NOW, hostId: null, request: true, attack: 'sqli' as const, count: 1 };
      const first = open();
      await first.append({ ...batch('old', 0), events: [attack] });
      await first.close();
      await server.run(`INSERT INTO ledger (key, version, value, written) SELECT 'schema', 9, '1', now()`);
      const store = open();
      await expect(store.ping()).rejects.toThrow(
        "have version 1, but this release needs version 2; stop all older processes and run 'wafstat migrate'",
      );
      await migrate(options);
      await store.append({ ...batch('new', 0), events: [{ ...attack, details: { blocked: true } }] });
      const { requests, attacks, blocked } = await store.seriesByCategory(ALL);
      const sum = (rows: Float64Array[]) => rows.reduce((total, row) => total + (row[0] ?? 0), 0);
      expect([requests[0], sum(attacks), sum(blocked)]).toEqual([2, 2, 1]);
      await store.close();
      // `serve` creates tables, but does not upgrade them.
      await server.run(`INSERT INTO ledger (key, version, value, written) SELECT 'schema', 99, '1', now()`);
      const automatic = clickhouseStore({ ...options, mayMigrate: true }, () => NOW);
      await expect(automatic.series(ALL)).rejects.toThrow('have version 1');
      await automatic.close();
      await server.close();
    });

    test('a query for the busiest seconds of too many events is refused', async () => {
      const { open, server, ledger } = await createDatabase();
      const store = open();
      const event = { hostId: null, request: true, attack: null, count: 1 };
      const events = [0, 1, 2, 1_000].map((ms) => ({ ...event, time: NOW + ms }));
      await store.append({ ...batch('x', 0), events });
      const snapshot = await ledger.read([]);
      const peaks = (eventsMax: number) =>
        readPeaks(server, snapshot, { project: 'p' }, [NOW, NOW + 5_000], eventsMax);
      expect((await peaks(4))[0]).toEqual(Float64Array.of(3));
      await expect(peaks(3)).rejects.toThrow(QueryTooLarge);
      await store.close();
      await server.close();
    });

    test('a server that hangs causes errors in bounded time, and works again after it resumes', async () => {
      const { open } = await createDatabase();
      const store = open(undefined, 1_000);
      await store.append(batch('before', 1));
      clickhouse.servers[0]?.pause();
      const outcomes = await Promise.allSettled([
        store.append(batch('late', 2)),
        store.series(ALL),
        store.ping(),
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
      await appendAll(store, [batch('late', 2)]);
      expect((await store.series(ALL)).requests[0]).toBe(3);
      await store.close();
    });

    test('concurrent callers wait in bounded time for a commit that hangs', async () => {
      const { open, name } = await createDatabase();
      const store = open(undefined, 1_000);
      await store.append(batch('before', 1));
      // Like a statement whose client is gone and whose disk hangs.
      const stuck = new URL(`/?query_id=wafstat-ledger-${name}`, clickhouse.urls[0]);
      const body = 'SELECT sleepEachRow(1) FROM numbers(8) SETTINGS max_block_size = 1';
      let isFinished = false;
      const finished = fetch(stuck, { method: 'POST', body })
        .then((response) => response.text())
        .finally(() => {
          isFinished = true;
        });
      await sleep(300);
      const outcomes = await Promise.allSettled([
        store.append(batch('late', 2)),
        ...Array.from({ length: 20 }, (_, i) =>
          store.addHost({ project: 'p', hostname: `${i}.example`, limit: 100 }),
        ),
      ]);
      expect(isFinished).toBe(false);
      for (const outcome of outcomes) {
        expect(outcome).toMatchObject({ status: 'rejected', reason: expect.any(StoreUnavailable) });
      }
      await finished;
      await appendAll(store, [batch('late', 2)]);
      expect((await store.series(ALL)).requests[0]).toBe(3);
      expect(await store.addHost({ project: 'p', hostname: '1.example', limit: 100 })).toMatchObject({
        kind: 'added',
      });
      await store.close();
    });

    test('while a shard is down, retries open no more attempts', async () => {
      const { open, state, server } = await createDatabase(CLUSTER);
      const store = open();
      const events = await Promise.all(
        Array.from({ length: 16 }, async (_, i) => {
          const added = await store.addHost({ project: 'p', hostname: `${i}.example`, limit: 100 });
          const hostId = 'host' in added ? added.host.id : null;
          return { time: NOW - i, hostId, request: true, attack: null, count: 1 };
        }),
      );
      const everywhere = { ...batch('everywhere', 0), events };
      await clickhouse.servers[1]?.kill();
      for (let i = 0; i < 10; i++) await expect(store.append(everywhere)).rejects.toThrow(StoreUnavailable);
      expect((await state()).open).toHaveLength(1);
      await clickhouse.servers[1]?.start();
      await appendAll(store, [everywhere, batch('another', 1)]);
      expect((await store.series(ALL)).requests[0]).toBe(17);
      expect((await state()).open).toHaveLength(1);
      await store.close();
      await server.close();
    });

    test('an attempt whose insert fails as a whole is removed', async () => {
      const { open, state, server } = await createDatabase();
      const store = open();
      // The project is not a number, so the insert fails.
      await server.run('ALTER TABLE cells ADD COLUMN refused UInt64 MATERIALIZED toUInt64(project)');
      for (let i = 0; i < 3; i++)
        await expect(store.append(batch('x', 2))).rejects.toThrow(/failed on ClickHouse at .*: Code: 6,/);
      expect((await state()).open).toEqual([]);
      await server.run('ALTER TABLE cells DROP COLUMN refused');
      await store.append(batch('x', 2));
      expect((await store.series(ALL)).requests[0]).toBe(2);
      await store.close();
      await server.close();
    });

    test('rows of a removed key are deleted once no older value is left, so that none reappears', async () => {
      const { ledger, server, name } = await createDatabase();
      for (const [i, value] of ['known', ''].entries()) {
        await server.run(
          `INSERT INTO ledger (key, version, value, written)
           SELECT 'batch/p/s/x', {version:UInt64}, {value:String}, now() - 200000`,
          { version: i + 1, value },
        );
      }
      const number = async (sql: string) => Number((await server.select<{ n: string }>(sql))[0]?.n);
      const rows = () => number(`SELECT count() AS n FROM ledger WHERE key = 'batch/p/s/x'`);
      const deleteRemoved = async () => {
        await ledger.deleteRemoved(1);
        const runningMutations = `SELECT count() AS n FROM system.mutations WHERE database = '${name}' AND NOT is_done`;
        await eventually(async () => (await number(runningMutations)) === 0 || undefined, 'the deletion');
      };
      await deleteRemoved();
      await server.run('OPTIMIZE TABLE ledger FINAL');
      expect(await rows()).toBe(1);
      await deleteRemoved();
      expect(await rows()).toBe(0);
      await server.close();
    });

    test('many batches are read and deleted in parts', async () => {
      const { open } = await createDatabase();
      const store = open();
      const day = Math.floor(NOW / 86_400_000);
      const source = {
        id: 's',
        name: 's',
        format: 'events',
        hosts: [],
        events: 0,
        without_host: 0,
        dropped: {},
      };
      const batches = Array.from({ length: 2_500 }, (_, i) => ({
        id: `${i}`,
        day,
        link: { after: i === 0 ? '' : `${i - 1}`, bytes: 1, firstLineHash: '', readerState: '' },
      }));
      await store.putSource('p', { ...source, first_seen: null, last_seen: null }, batches);
      const found: typeof batches = [];
      for await (const part of store.batches('p', 's')) {
        expect(part.length).toBeLessThanOrEqual(1_000);
        found.push(...(part as typeof batches));
      }
      expect(found.toSorted((a, b) => Number(a.id) - Number(b.id))).toEqual(batches);
      await store.prune(NOW + 86_400_000);
      expect(await store.batchesAfter('p', 's', '2498')).toEqual([]);
      await store.close();
    });
  },
);

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
