/** Failures of PostgreSQL: nothing may be lost or counted twice. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { type Batch, type Store, StoreUnavailable } from '../packages/server/src/store/store.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Random } from './random.ts';

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

    const open = (ports: readonly number[], schema: string, timeoutMs = 10_000): Store =>
      postgresStore(
        {
          url: parseDatabaseUrl(
            `postgres://wafstat@${ports.map((port) => `127.0.0.1:${port}`).join(',')}/postgres`,
          ),
          password: PASSWORD,
          schema,
          usesTls: () => false,
          timeoutMs,
          connectionsMax: 5,
          mayMigrate: true,
        },
        () => NOW,
      );

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
      const batches = Array.from({ length: 60 }, (_, i) => batch(`batch-${i}`, 1 + (i % 5)));
      const outcomes = [];
      for (let i = 0; i < batches.length; i += 6) {
        const part = batches.slice(i, i + 6);
        outcomes.push(...(await Promise.all(stores.map((store) => appendAll(store, part)))));
      }
      expect(proxy.cuts()).toBeGreaterThan(20);
      proxy.behave();
      const events = batches.reduce((sum, one) => sum + one.events.length, 0);
      for (const store of [...stores, open([primary.port], schema)]) {
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

    test('a failover to a synchronous standby loses nothing and counts nothing twice', async () => {
      const old = await PostgresServer.start();
      started.push(old);
      const standby = await PostgresServer.standbyOf(old);
      started.push(standby);
      old.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
      old.sql('SELECT pg_reload_conf()');
      const store = open([standby.port, old.port], 'failover');
      const readOnly = open([standby.port], 'failover');
      expect(await store.append(batch('first', 1))).toMatchObject({ kind: 'appended' });
      // It has the tables, but must not be asked to write.
      await expect(readOnly.append(batch('no', 1))).rejects.toThrow(/accepts no writes/);
      await expect(readOnly.checkWrites()).rejects.toThrow(/accepts no writes/);
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
      await expect(store.ping()).rejects.toThrow(StoreUnavailable);
      const before = acknowledged;
      standby.promote();
      await appending;
      expect(before).toBeLessThan(batches.length);
      const events = 1 + batches.reduce((sum, one) => sum + one.events.length, 0);
      expect((await store.series(ALL)).requests[0]).toBe(events);
      expect((await store.sources('p'))[0]?.events).toBe(events);
      for (const one of batches) expect(await store.append(one)).toEqual({ kind: 'duplicate' });
      await Promise.all([store.close(), readOnly.close()]);
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
      expect((await store.series({ project: 'p', edges: [0, horizon, NOW + 1] })).requests).toEqual(
        Float64Array.of(0, 30),
      );
      expect(await store.append(batch('late', 3, old))).toMatchObject({ beforeHorizon: 3 });
      const partitions = primary.sql(
        `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = '${schema}' AND c.relname ~ '^segments_[0-9]+$'`,
      );
      expect(Number(partitions)).toBeLessThanOrEqual(1);
      await Promise.all([store.close(), other.close()]);
    });
  },
);
