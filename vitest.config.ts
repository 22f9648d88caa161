import { existsSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

/** 155 packages that take a minute to install: where someone has it, it is tested with; nobody is made to have it. */
const hasKeystone = existsSync('/usr/bin/keystone-wsgi-public');

export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['packages/*/src/**/*.test.ts'], testTimeout: 60_000 } },
      {
        test: {
          name: 'blackbox',
          include: ['test/**/*.test.ts'],
          exclude: hasKeystone ? [] : ['test/keystone.test.ts'],
          testTimeout: 300_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
