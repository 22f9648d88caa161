import { existsSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import { CHDB, CLICKHOUSE } from './test/clickhouse-server.ts';

/** Files share a worker process: to load the modules again for each takes longer than many of them run. */
const COMMON = { isolate: false, setupFiles: 'test/random.ts' };
const BLACK_BOX = {
  ...COMMON,
  testTimeout: 300_000,
  hookTimeout: 120_000,
  // What was built runs as it is, not transformed by Vite.
  server: { deps: { external: [/packages\/\w+\/dist\//] } },
};

/** Tests of what is stored, once more on ClickHouse. */
const OVER_CLICKHOUSE = {
  test: {
    name: 'clickhouse',
    include: ['crash', 'exact-counts', 'remote-identity', 'inventory', 'push', 'retention'].map(
      (name) => `test/${name}.test.ts`,
    ),
    globalSetup: 'test/clickhouse-setup.ts',
    ...BLACK_BOX,
  },
};

/** Keystone has 155 Debian packages, so its tests run only where it is installed. */
const hasKeystone = existsSync('/usr/bin/keystone-wsgi-public');

export default defineConfig({
  test: {
    maxWorkers: 3,
    projects: [
      { test: { name: 'unit', include: ['packages/*/src/**/*.test.ts'], testTimeout: 60_000, ...COMMON } },
      {
        test: {
          name: 'stores',
          include: ['test/clickhouse*.test.ts'],
          exclude: CHDB.mustBeThere || CHDB.isThere() ? [] : ['test/clickhouse-current.test.ts'],
          ...BLACK_BOX,
        },
      },
      {
        test: {
          name: 'console',
          include: ['test/console*.test.ts'],
          globalSetup: 'test/console-setup.ts',
          ...BLACK_BOX,
        },
      },
      {
        test: {
          name: 'blackbox',
          include: ['test/**/*.test.ts'],
          exclude: [
            'test/clickhouse*.test.ts',
            'test/console*.test.ts',
            ...(hasKeystone ? [] : ['test/keystone.test.ts']),
          ],
          ...BLACK_BOX,
        },
      },
      ...(CLICKHOUSE.isThere() || process.env.CI === 'true' ? [OVER_CLICKHOUSE] : []),
    ],
  },
});
