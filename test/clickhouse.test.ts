import { afterAll, beforeAll, describe } from 'vitest';
import { clickhouseStore, migrate } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { CLICKHOUSE, CLUSTER, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** A batch takes some 50 ms, a thousand times as long as in the embedded store, and a case has six queries. */
const SHARE = 0.1;

describe.skipIf(!CLICKHOUSE.isInstalled() && process.env.CI !== 'true')(
  `with clickhouse-server (${CLICKHOUSE.needs})`,
  () => {
    for (const [name, shards] of [
      ['ClickHouse 18.16', 1],
      ['a cluster of two shards', 2],
    ] as const) {
      describe(name, () => {
        let clickhouse: ClickHouse;
        let databases = 0;
        beforeAll(async () => {
          clickhouse = await startClickHouse(shards);
        });
        afterAll(() => clickhouse?.stop());

        durableStoreConformance(
          name,
          async (now) => {
            const options = {
              urls: clickhouse.urls,
              cluster: shards === 1 ? undefined : CLUSTER,
              database: `test_${++databases}`,
              user: 'default',
              password: '',
              timeoutMs: 30_000,
              replicated: false,
            };
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
      });
    }
  },
);
