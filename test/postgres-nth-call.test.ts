/** Each statement of an operation fails in turn, or the connection breaks before or after it. Then another process repeats it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { migrate, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { type Store, StoreUnavailable } from '../packages/server/src/store/store.ts';
import { memoryStore } from './memory-store.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { type Fault, failNth, observeCalls } from './simulation/nth-call/calls.ts';
import { batch, fill, stateOf, statesOf } from './simulation/nth-call/state.ts';
import { NOW } from './store-conformance/data.ts';

const FAULTS: readonly Fault[] = ['error', 'lost before', 'lost after'];

type Options = Parameters<typeof postgresStore>[0];

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    let server: PostgresServer;
    let schemas = 0;
    beforeAll(async () => {
      server = await PostgresServer.start({ fsync: false });
    });
    afterAll(() => server?.stop());

    const newOptions = (): Options => ({
      url: parseDatabaseUrl(server.url),
      password: PASSWORD,
      schema: `nth_${++schemas}`,
      usesTls: () => false,
      timeoutMs: 30_000,
      connectionsMax: 2,
      mayMigrate: false,
    });

    async function withStore<T>(options: Options, action: (store: Store) => Promise<T>): Promise<T> {
      const store = postgresStore(options, () => NOW);
      try {
        return await action(store);
      } finally {
        await store.close();
      }
    }

    async function prepared(): Promise<Options> {
      const options = newOptions();
      await migrate(options);
      await withStore(options, fill);
      return options;
    }

    /** `check` gets the error of the operation; null if it has succeeded. */
    async function failEachStatement(
      prepare: () => Promise<Options>,
      run: (options: Options) => Promise<unknown>,
      check: (options: Options, error: unknown) => Promise<void>,
    ): Promise<void> {
      let statements = 0;
      const options = await prepare();
      await observeCalls(
        () => {
          statements++;
          return undefined;
        },
        () => run(options),
      );
      await check(options, null);
      expect(statements).toBeGreaterThan(5);
      for (const fault of FAULTS) {
        for (let n = 0; n < statements; n++) {
          const tables = await prepare();
          try {
            const error = await observeCalls(failNth(n, fault), () => run(tables)).then(
              () => null,
              (reason: unknown) => reason,
            );
            await check(tables, error);
            await run(tables);
            await check(tables, null);
          } catch (error) {
            throw new Error(
              `statement ${n + 1} of ${statements}, ${fault}, and then: ${(error as Error).message}`,
              { cause: error },
            );
          }
        }
      }
    }

    test('append', async () => {
      const { before, after, hosts } = await statesOf((store, ids) => store.append(batch('new', ids)));
      await failEachStatement(
        prepared,
        (options) => withStore(options, (store) => store.append(batch('new', hosts))),
        async (options, error) => {
          const isUnknown = error instanceof StoreUnavailable && error.outcomeUnknown;
          const possible = isUnknown ? [before, after] : [error === null ? after : before];
          expect(possible).toContain(await withStore(options, stateOf));
        },
      );
    });

    test('migrate', async () => {
      const empty = await stateOf(memoryStore(() => NOW));
      await failEachStatement(
        async () => newOptions(),
        migrate,
        async (options, error) => {
          const state = await withStore(options, stateOf).catch(String);
          if (error === null) expect(state).toBe(empty);
          else expect(state === empty || state.includes("create them with 'wafstat migrate'")).toBe(true);
        },
      );
    });
  },
);
