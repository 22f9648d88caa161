/** Two shards with two replicas each: counts are visible at once, and one replica may be down. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Event } from '../packages/server/src/event.ts';
import {
  type ClickHouseOptions,
  clickhouseStore,
  migrate,
} from '../packages/server/src/store/clickhouse/clickhouse.ts';
import type { Batch, Store } from '../packages/server/src/store/store.ts';
import {
  CLICKHOUSE,
  CLUSTER,
  type ClickHouse,
  startClickHouse,
  startZooKeeper,
  ZOOKEEPER,
} from './clickhouse-server.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const HOSTS = 8;

describe.skipIf((!CLICKHOUSE.isInstalled() || !ZOOKEEPER.isInstalled()) && process.env.CI !== 'true')(
  `with replicas of clickhouse-server (${CLICKHOUSE.needs}, ${ZOOKEEPER.needs})`,
  () => {
    let zookeeper: Awaited<ReturnType<typeof startZooKeeper>>;
    let clickhouse: ClickHouse;
    let store: Store;
    let events: Event[];
    beforeAll(async () => {
      zookeeper = await startZooKeeper();
      clickhouse = await startClickHouse(2, zookeeper.port);
      const options: ClickHouseOptions = {
        urls: clickhouse.urls,
        cluster: CLUSTER,
        database: 'replicated',
        user: 'default',
        password: '',
        timeoutMs: 10_000,
        replicated: true,
      };
      for (let i = 0; i < 2; i++) await migrate(options);
      store = clickhouseStore(options, () => NOW);
      events = await Promise.all(
        Array.from({ length: HOSTS }, async (_, i) => {
          const added = await store.addHost({ project: 'p', hostname: `${i}.example`, limit: 100 });
          const hostId = 'host' in added ? added.host.id : null;
          return { time: NOW - i, hostId, request: true, attack: null, count: 1 };
        }),
      );
    });
    afterAll(async () => {
      await store?.close();
      await clickhouse?.stop();
      await zookeeper?.stop();
    });

    const batch = (id: string): Batch => ({
      project: 'p',
      source: { name: 'test', format: 'events' },
      id,
      events,
      dropped: {},
    });
    const requests = async () => (await store.series({ project: 'p', edges: [0, NOW + 1] })).requests[0];

    test('counts are visible at once, although replication is asynchronous', async () => {
      for (let i = 1; i <= 40; i++) {
        await store.append(batch(`batch ${i}`));
        expect(await Promise.all([requests(), requests(), requests()])).toEqual(
          [1, 1, 1].map(() => i * HOSTS),
        );
      }
    });

    test('appends and queries work while a replica is down', async () => {
      const before = (await requests()) ?? 0;
      // The second replica of the first shard, then the first one of the second shard, which served the queries so far.
      for (const [i, victim] of [clickhouse.servers[2], clickhouse.servers[1]].entries()) {
        await victim?.kill();
        await store.append(batch(`without ${i}`));
        expect(await requests()).toBe(before + (i + 1) * HOSTS);
        await victim?.start();
        expect(await store.append(batch(`without ${i}`))).toEqual({ kind: 'duplicate' });
      }
    });
  },
);
