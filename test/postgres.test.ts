import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Database } from '../packages/server/src/postgres/database.ts';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { startWith } from '../packages/server/src/store/batches.ts';
import { migrate, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import type { LimitOptions } from '../packages/server/src/store/store.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { NOW } from './store-conformance/data.ts';
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

    async function newTables(limits?: LimitOptions) {
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
      return options;
    }

    test('sessions commit to disk, whatever the settings of the user', async () => {
      server.sql('ALTER ROLE wafstat SET synchronous_commit = off');
      const database = new Database(await newTables());
      expect(await database.run('SHOW synchronous_commit')).toEqual([{ synchronous_commit: 'on' }]);
      await database.close();
      server.sql('ALTER ROLE wafstat RESET synchronous_commit');
    });

    test('lookups of many small files share statements', async () => {
      const store = postgresStore(await newTables(), () => NOW);
      const append = (id: string, after: string, name = 's') =>
        store.append({
          project: 'p',
          source: { name, format: 'events' },
          id,
          link: { after, bytes: 1, firstLineHash: '', readerState: '', siblings: [] },
          events: [],
          dropped: {},
        });
      const starts = Array.from({ length: 64 }, (_, i) => startWith(`start ${i}`));
      for (const [i, start] of starts.slice(0, 10).entries()) await append(`file ${i}`, start);
      await append('second', 'file 3');
      await append('other', starts[0] ?? '', 'other');
      const run = vi.spyOn(Database.prototype, 'run');
      const lookups = [...starts, 'file 3', '', 'nothing'].map((after) =>
        store.batchesAfter('p', 's', after),
      );
      const other = store.batchesAfter('p', 'other', starts[0] ?? '');
      const found = (await Promise.all(lookups)).map((links) => links.map(({ id }) => id).sort());
      const ids = Array.from({ length: 10 }, (_, i) => `file ${i}`);
      const expected = [...ids.map((id) => [id]), ...starts.slice(10).map(() => []), ['second'], ids, []];
      expect(found).toEqual(expected);
      expect((await other).map(({ id }) => id)).toEqual(['other']);
      // One for the unknown start.
      expect(run.mock.calls.length).toBeLessThanOrEqual(3);
      run.mockRestore();
      await store.close();
    });

    durableStoreConformance(
      'PostgreSQL',
      async (now, limits) => {
        const options = await newTables(limits);
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
