import { afterAll, beforeAll, describe } from 'vitest';
import { clickhouseOptions, compactingStore } from './clickhouse-options.ts';
import { CLICKHOUSE, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { POSTGRES, PostgresServer } from './postgres-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** A batch takes some 20 ms, and a compaction as much. */
const SHARE = 0.05;

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
      (now, topKeys) =>
        compactingStore({ ...clickhouseOptions(clickhouse.urls, postgres.url), topKeys }, now),
      { share: SHARE },
    );
  },
);
