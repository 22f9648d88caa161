/** ClickHouse fails in every way it can: nothing may be lost, or counted twice. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { clickhouseStore, migrate } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import type { Appended, Batch, Store } from '../packages/server/src/store/store.ts';
import { StoreUnavailable } from '../packages/server/src/store/store.ts';
import { CLICKHOUSE, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { Random } from './random.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const ALL = { project: 'p', edges: [0, NOW + 86_400_000] };

describe.skipIf(!CLICKHOUSE.isThere() && process.env.CI !== 'true')(
  `with clickhouse-server (${CLICKHOUSE.needs})`,
  () => {
    let clickhouse: ClickHouse;
    let databases = 0;
    beforeAll(async () => {
      clickhouse = await startClickHouse();
    });
    afterAll(() => clickhouse?.stop());

    /** A database of its own, and stores on it by any way. */
    async function database() {
      const options = {
        urls: clickhouse.urls,
        database: `trouble_${++databases}`,
        user: 'default',
        password: '',
        timeout_ms: 5_000,
        replicated: false,
      };
      await migrate(options);
      return (urls = clickhouse.urls, timeout_ms = options.timeout_ms): Store =>
        clickhouseStore({ ...options, urls, timeout_ms }, () => NOW);
    }

    test('answers that are lost, requests that are cut: every batch counts once', async () => {
      const open = await database();
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
      // Where the answer was lost, the next attempt hears of a duplicate: no batch was appended twice.
      for (const { id } of batches) {
        const times = outcomes.filter((kinds) => kinds.get(id ?? '') === 'appended').length;
        expect(times).toBeLessThanOrEqual(1);
      }
      await proxy.stop();
    });

    test('a server that stands still is told of in bounded time, and goes on where it stopped', async () => {
      const open = await database();
      const store = open(clickhouse.urls, 1_000);
      await store.append(batch('before', 1));
      clickhouse.servers[0]?.pause();
      const began = Date.now();
      const outcomes = await Promise.allSettled([
        store.append(batch('late', 2)),
        store.series(ALL),
        store.ping(),
      ]);
      for (const outcome of outcomes) {
        expect(outcome).toMatchObject({
          status: 'rejected',
          reason: expect.objectContaining({
            message: expect.stringMatching(/does not answer: no answer within [12] s/),
          }),
        });
      }
      expect(Date.now() - began).toBeLessThan(10_000);
      clickhouse.servers[0]?.resume();
      await appendAll(store, [batch('late', 2)]);
      expect((await store.series(ALL)).requests[0]).toBe(3);
      await store.close();
    });
  },
);

/** Tries again until each batch is counted, as every sender does; answers the last word on each. */
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
