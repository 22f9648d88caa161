/** One ClickHouse for all files of a run. Each sandbox uses a separate database. */
import type { TestProject } from 'vitest/node';
import { startClickHouse } from './clickhouse-server.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    clickhouseUrl: string | undefined;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const clickhouse = await startClickHouse();
  project.provide('clickhouseUrl', clickhouse.urls[0]);
  return clickhouse.stop;
}
