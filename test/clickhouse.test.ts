import { afterAll, beforeAll, describe } from 'vitest';
import { clickhouseStore, migrate } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { clickhouseOptions } from './clickhouse-options.ts';
import { CLICKHOUSE, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { POSTGRES, PostgresServer } from './postgres-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** A batch takes some 20 ms. */
const SHARE = 0.1;

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
        let store = clickhouseStore(options, now);
        return {
          store,
          another: () => clickhouseStore(options, now),
          async reopen() {
            await store.close();
            store = clickhouseStore(options, now);
            return store;
          },
          destroy: () => store.close(),
        };
      },
      { share: SHARE },
    );
  },
);
