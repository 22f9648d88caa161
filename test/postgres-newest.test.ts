/** The store on the newest release of PostgreSQL. All other tests use that of Debian. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { migrate, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { NEWEST_POSTGRES, PASSWORD, PostgresServer } from './postgres-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

const SHARE = 0.05;

describe.skipIf(!NEWEST_POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with the newest postgresql (${NEWEST_POSTGRES.needs})`,
  () => {
    let directory: string;
    let server: PostgresServer;
    let schemas = 0;
    beforeAll(async () => {
      directory = mkdtempSync(join(tmpdir(), 'wafstat-newest-postgres-'));
      server = await PostgresServer.start({ programs: NEWEST_POSTGRES.copyTo(directory) });
    });
    afterAll(async () => {
      await server?.stop();
      rmSync(directory, { recursive: true, force: true });
    });

    test('the release is newer than that of Debian', () => {
      expect(Number(server.sql('SHOW server_version_num'))).toBeGreaterThanOrEqual(180_000);
    });

    durableStoreConformance(
      'PostgreSQL',
      async (now, limits) => {
        const options = {
          url: parseDatabaseUrl(server.url),
          password: PASSWORD,
          schema: `test_${++schemas}`,
          usesTls: () => false,
          // Random queries can take longer on a busy machine.
          timeoutMs: 120_000,
          connectionsMax: 10,
          mayMigrate: false,
          ...limits,
        };
        await migrate(options);
        let store = postgresStore(options, now);
        return {
          store,
          another: () => postgresStore(options, now),
          async reopen() {
            await store.close();
            store = postgresStore(options, now);
            return store;
          },
          destroy: () => store.close(),
        };
      },
      SHARE,
    );
  },
);
