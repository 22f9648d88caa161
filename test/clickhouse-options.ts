/** Stores on ClickHouse and PostgreSQL, with databases of their own. */

import { Database } from '../packages/server/src/postgres/database.ts';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import {
  type ClickHouseOptions,
  clickhouseStore,
  migrate,
} from '../packages/server/src/store/clickhouse/clickhouse.ts';
import {
  COMPACTION,
  compactProject,
  deleteReplaced,
} from '../packages/server/src/store/clickhouse/compact.ts';
import { type Connect, Shards } from '../packages/server/src/store/clickhouse/schema.ts';
import type { Batch, Store } from '../packages/server/src/store/store.ts';
import { PASSWORD } from './postgres-server.ts';
import type { DurableStoreUnderTest } from './store-conformance/suite.ts';

/** Compacts everything, and deletes what it replaced at once. */
export const ALWAYS = { ...COMPACTION, attemptsMin: 1, rowsMin: 0, replacedMs: 0 };
export const NEVER: AbortSignal = new AbortController().signal;

let databases = 0;

export function clickhouseOptions(urls: readonly string[], postgresUrl: string, timeoutMs = 30_000) {
  const name = `test_${process.pid}_${++databases}`;
  return {
    urls,
    database: name,
    user: 'default',
    password: '',
    timeoutMs,
    postgres: {
      url: parseDatabaseUrl(postgresUrl),
      password: PASSWORD,
      schema: name,
      usesTls: () => false,
      timeoutMs,
      connectionsMax: 10,
    },
  } satisfies ClickHouseOptions;
}

/** A store that compacts the project after every other append, and sometimes deletes the rows that were replaced. */
export async function compactingStore(
  options: ClickHouseOptions,
  now: () => number,
  connect?: Connect,
): Promise<DurableStoreUnderTest> {
  await migrate(options, connect);
  const database = new Database(options.postgres);
  const shards = new Shards(options, connect);
  await shards.check(database, false);
  let appends = 0;
  const open = (): Store => {
    const store = clickhouseStore(options, now, connect);
    const append = async (batch: Batch) => {
      const result = await store.append(batch);
      if (++appends % 2 === 0) await compactProject(database, shards, batch.project, ALWAYS, NEVER);
      if (appends % 10 === 0) await deleteReplaced(database, shards, ALWAYS);
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
}
