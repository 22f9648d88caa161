/** Settings of a store on ClickHouse and PostgreSQL, with databases of its own. */
import type { ClickHouseOptions } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { parseDatabaseUrl } from '../packages/server/src/store/postgres/url.ts';
import { PASSWORD } from './postgres-server.ts';

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
