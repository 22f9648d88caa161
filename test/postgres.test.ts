import { afterAll, beforeAll, describe } from 'vitest';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { migrate, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { durableStoreConformance } from './store-conformance.ts';

/** A batch takes some milliseconds. */
const SHARE = 0.5;

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    let server: PostgresServer;
    let schemas = 0;
    beforeAll(async () => {
      server = await PostgresServer.start();
    });
    afterAll(() => server?.stop());

    durableStoreConformance(
      'PostgreSQL',
      async (now, topKeys) => {
        const options = {
          url: parseDatabaseUrl(server.url),
          password: PASSWORD,
          schema: `test_${++schemas}`,
          usesTls: () => false,
          timeoutMs: 30_000,
          connectionsMax: 10,
          mayMigrate: false,
          topKeys,
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
