import { existsSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import { CHDB, CLICKHOUSE } from './test/clickhouse-server.ts';

const BLACK_BOX = { testTimeout: 300_000, hookTimeout: 120_000 };

/** They mostly wait for servers, so two at a time; the others measure time, and run alone. */
const TWO_AT_A_TIME = { maxWorkers: 2, sequence: { groupOrder: 1 } };
const ONE_AT_A_TIME = { maxWorkers: 1, sequence: { groupOrder: 2 } };

/** The tests of what is stored and asked, once more on the other store. */
const OVER_CLICKHOUSE = {
  test: {
    name: 'clickhouse',
    include: ['api', 'crash', 'exact-counts', 'identity-elsewhere', 'inventory', 'push', 'retention'].map(
      (name) => `test/${name}.test.ts`,
    ),
    globalSetup: 'test/clickhouse-setup.ts',
    ...BLACK_BOX,
    ...TWO_AT_A_TIME,
  },
};

/** 155 packages that take a minute to install: where someone has it, it is tested with; nobody is made to have it. */
const hasKeystone = existsSync('/usr/bin/keystone-wsgi-public');

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.ts'],
          testTimeout: 60_000,
          setupFiles: 'test/fuzz-setup.ts',
          ...TWO_AT_A_TIME,
        },
      },
      {
        test: {
          name: 'stores',
          include: ['test/clickhouse*.test.ts'],
          exclude: CHDB.mustBeThere || CHDB.isThere() ? [] : ['test/clickhouse-current.test.ts'],
          ...BLACK_BOX,
          ...TWO_AT_A_TIME,
        },
      },
      {
        test: {
          name: 'blackbox',
          include: ['test/**/*.test.ts'],
          exclude: ['test/clickhouse*.test.ts', ...(hasKeystone ? [] : ['test/keystone.test.ts'])],
          setupFiles: 'test/fuzz-setup.ts',
          ...BLACK_BOX,
          ...ONE_AT_A_TIME,
        },
      },
      ...(CLICKHOUSE.isThere() || process.env.CI === 'true' ? [OVER_CLICKHOUSE] : []),
    ],
  },
});
