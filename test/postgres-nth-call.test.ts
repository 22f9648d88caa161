/** Each statement of an operation fails in turn, or the connection breaks before or after it. Then another process repeats it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { migrate, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { type Store, StoreUnavailable } from '../packages/server/src/store/store.ts';
import { memoryStore } from './memory-store.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { type Fault, failNth, observeCalls } from './simulation/nth-call/calls.ts';
import { batch, fill, HORIZON, isBetween, stateOf, statesOf } from './simulation/nth-call/state.ts';
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

    /** `check` gets the error of the operation; null if it has succeeded. Resolves to whether nothing has changed. */
    async function failEachStatement(
      prepare: () => Promise<Options>,
      run: (options: Options) => Promise<unknown>,
      check: (options: Options, error: unknown) => Promise<boolean>,
      faults = FAULTS,
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
      for (const fault of faults) {
        let unchanged: Options | null = null;
        for (let n = 0; n < statements; n++) {
          const tables: Options = unchanged ?? (await prepare());
          try {
            const error = await observeCalls(failNth(n, fault), () => run(tables)).then(
              () => null,
              (reason: unknown) => reason,
            );
            unchanged = (await check(tables, error)) ? tables : null;
            // Then the next attempt is the same as with new tables.
            if (unchanged && n + 1 < statements) continue;
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
          const state = await withStore(options, stateOf);
          expect(possible).toContain(state);
          return state === before;
        },
      );
    });

    test('prune', async () => {
      const prune = (store: Store) => store.prune(HORIZON);
      const { before, after } = await statesOf(prune);
      await failEachStatement(
        prepared,
        (options) => withStore(options, prune),
        async (options, error) => {
          const state = await withStore(options, stateOf);
          if (error === null) expect(state).toBe(after);
          else expect(isBetween(state, before, after)).toBe(true);
          return state === before;
        },
        // Its steps do not depend on each other: a connection lost before one is a connection lost after another.
        ['error', 'lost after'],
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
          return state !== empty;
        },
      );
    });
  },
);
