/** The store on a current release of ClickHouse, as an engine in this process. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ClickHouseClient, createClient } from '@clickhouse/client';
import { afterAll, beforeAll, describe } from 'vitest';
import { clickhouseOptions, compactingStore } from './clickhouse-options.ts';
import { CHDB } from './clickhouse-server.ts';
import { POSTGRES, PostgresServer } from './postgres-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** clickhouse.test.ts runs more: this is about what another release might read or write differently. */
const SHARE = 0.02;

describe.skipIf((!CHDB.isInstalled() || !POSTGRES.isInstalled()) && process.env.CI !== 'true')(
  `with chdb and postgresql (${CHDB.needs} ${POSTGRES.needs})`,
  () => {
    let postgres: PostgresServer;
    beforeAll(async () => {
      postgres = await PostgresServer.start();
    });
    afterAll(() => postgres?.stop());

    durableStoreConformance(
      'the current engine',
      async (now) => {
        const require = createRequire(CHDB.home);
        const { createChdbConnection } = require('chdb/connection');
        const { drainPending } = require('chdb');
        const path = mkdtempSync(join(tmpdir(), 'wafstat-chdb-'));
        const connect = (): ClickHouseClient => createClient({ connection: createChdbConnection({ path }) });
        // The engine has one directory, and a connection only sees the existing database.
        const options = { ...clickhouseOptions(['chdb:'], postgres.url), database: 'default' };
        const target = await compactingStore(options, now, connect);
        return {
          ...target,
          async destroy() {
            await target.destroy();
            await drainPending();
            rmSync(path, { recursive: true });
          },
        };
      },
      { share: SHARE, isOtherRelease: true },
    );
  },
);
