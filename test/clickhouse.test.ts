import { afterAll, beforeAll, describe } from 'vitest';
import { clickhouseStore, migrate } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { COMPACTION, compactProject } from '../packages/server/src/store/clickhouse/compact.ts';
import { Shards } from '../packages/server/src/store/clickhouse/schema.ts';
import { Database } from '../packages/server/src/store/postgres/database.ts';
import type { Batch, Store } from '../packages/server/src/store/store.ts';
import { clickhouseOptions } from './clickhouse-options.ts';
import { CLICKHOUSE, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { POSTGRES, PostgresServer } from './postgres-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** A batch takes some 20 ms. */
const SHARE = 0.1;
const ALWAYS = { ...COMPACTION, attemptsMin: 1, rowsMin: 0 };
const NEVER = new AbortController().signal;

describe.skipIf((!CLICKHOUSE.isInstalled() || !POSTGRES.isInstalled()) && process.env.CI !== 'true')(
  `with clickhouse-server and postgresql (${CLICKHOUSE.needs} ${POSTGRES.needs})`,
  () => {
    let clickhouse: ClickHouse;
    let postgres: PostgresServer;
    beforeAll(async () => {
      [clickhouse, postgres] = await Promise.all([startClickHouse(2), PostgresServer.start()]);
    });
    afterAll(() => Promise.all([clickhouse?.stop(), postgres?.stop()]));

    durableStoreConformance(
      'ClickHouse 18.16',
      async (now) => {
        const options = clickhouseOptions(clickhouse.urls, postgres.url);
        await migrate(options);
        const database = new Database(options.postgres);
        const shards = new Shards(options);
        await shards.check(database, false);
        /** Compacts everything after every other append. */
        const open = (): Store => {
          const store = clickhouseStore(options, now);
          let appends = 0;
          const append = async (batch: Batch) => {
            const result = await store.append(batch);
            if (++appends % 2 === 0) await compactProject(database, shards, batch.project, ALWAYS, NEVER);
            return result;
          };
          return { ...store, append };
        };
        let store = open();
        return {
          store,
          another: open,
          async reopen() {
            await store.close();
            store = open();
            return store;
          },
          async destroy() {
            await Promise.all([store.close(), database.close(), shards.close()]);
          },
        };
      },
      { share: SHARE },
    );
  },
);
