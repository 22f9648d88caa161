import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { CITUS } from './test/citus.ts';
import { POSTGRES } from './test/postgres-server.ts';

const FREE_BYTES_MIN = 4 * 2 ** 30;

/**
 * Temporary files are in memory if /dev/shm has enough space and programs can run from it: tests wait for the disk less
 * (lmdb.test.ts takes two thirds of the time), and databases no longer search it for inodes.
 */
if (mayHoldFiles('/dev/shm')) process.env.TMPDIR = '/dev/shm';

function mayHoldFiles(directory: string): boolean {
  if (!existsSync('/proc/mounts')) return false;
  const mount = readFileSync('/proc/mounts', 'utf8').match(
    new RegExp(`^\\S+ ${directory} tmpfs (\\S+)`, 'm'),
  );
  if (mount === null || /noexec/.test(mount[1] ?? '')) return false;
  const { bavail, bsize } = statfsSync(directory);
  return bavail * bsize > FREE_BYTES_MIN;
}

/** Files share a worker process: loading the modules for each file takes longer than many of them run. */
const COMMON = {
  isolate: false,
  setupFiles: ['test/random.ts', 'test/processor-time.ts'],
  // These only end what hangs: no test depends on how fast the machine is.
  testTimeout: 600_000,
  hookTimeout: 300_000,
  expect: { poll: { timeout: 180_000 } },
};
const BLACK_BOX = {
  ...COMMON,
  setupFiles: [...COMMON.setupFiles, 'test/failed-processes.ts'],
  // Run the build output as it is, not transformed by Vite.
  server: { deps: { external: [/packages\/\w+\/dist\//] } },
};

/** Tests that depend on the store, repeated on PostgreSQL. */
const ON_ANY_STORE = ['check', 'crash', 'exact-counts', 'inventory', 'push', 'retention'];
const ON_POSTGRES = {
  test: {
    name: 'postgres',
    include: ON_ANY_STORE.map((name) => `test/${name}.test.ts`),
    globalSetup: 'test/postgres-server.ts',
    ...BLACK_BOX,
  },
};

/** Random queries, on a Citus cluster. */
const ON_CITUS = {
  test: {
    name: 'citus',
    include: ['test/exact-counts.test.ts'],
    globalSetup: 'test/citus.ts',
    ...BLACK_BOX,
  },
};

/** Keystone needs 155 Debian packages, so its tests run only where it is installed. */
const hasKeystone = existsSync('/usr/bin/keystone-wsgi-public');

/** Long files run first and short unit tests last, so that no worker idles at the end. */
const PROJECT_ORDER = ['stores', 'blackbox', 'postgres', 'citus', 'console', 'unit'];
/** The files of each project that take longest, in the order in which they run. */
const LONG_FILES = [
  ...[
    'postgres-citus',
    'postgres-nth-call',
    'postgres-service',
    'postgres',
    'postgres-newest',
    'postgres-trouble',
    'postgres-faults',
    'postgres-citus-faults',
    'postgres-alerts',
    'postgres-cluster',
    'postgres-identity',
  ],
  ...['nth-call', 'alerts', 'data-directory', 'packaging', 'faults', 'follow'],
  ...['tuning', 'ingest', 'workers', 'lifecycle', 'simulation', 'crash', 'web-servers', 'operations'],
  ...['several-logs', 'push', 'exact-counts', 'interop', 'clients', 'packages', 'metrics', 'cli', 'grafana'],
  ...[
    'console',
    'console-accessibility',
    'console-management',
    'console-access',
    'console-attacks',
    'console-categories',
  ],
  ...['lmdb', 'oracle', 'calls', 'routes', 'connections', 'damage', 'file', 'replay', 'unwrap', 'hostile'],
  ...['read-ahead', 'situation-call', 'live-charts', 'abuse'],
].map((name) => `${name}.test.ts`);

class LongFilesFirst extends BaseSequencer {
  override async sort(specifications: TestSpecification[]): Promise<TestSpecification[]> {
    const project = ({ project: { name } }: TestSpecification) => PROJECT_ORDER.indexOf(name);
    const file = ({ moduleId }: TestSpecification) => {
      const index = LONG_FILES.indexOf(basename(moduleId));
      return index === -1 ? LONG_FILES.length : index;
    };
    return specifications.toSorted((a, b) => project(a) - project(b) || file(a) - file(b));
  }
}

export default defineConfig({
  test: {
    // Transformed modules: a run of unchanged sources need not compile them again.
    experimental: { fsModuleCache: true, fsModuleCachePath: '.cache/vitest' },
    // Black-box tests often wait: for a process to start, a timeout to pass or a database to fail.
    maxWorkers: 2 * availableParallelism(),
    sequence: { sequencer: LongFilesFirst },
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.ts'],
          alias: { '@node-rs/argon2': fileURLToPath(new URL('test/cheap-argon2.ts', import.meta.url)) },
          ...COMMON,
        },
      },
      {
        test: {
          name: 'stores',
          include: ['test/postgres*.test.ts'],
          ...BLACK_BOX,
        },
      },
      {
        test: {
          name: 'console',
          include: ['test/console*.test.ts', 'test/demo.test.ts'],
          globalSetup: 'test/console-setup.ts',
          ...BLACK_BOX,
        },
      },
      {
        test: {
          name: 'blackbox',
          include: ['test/**/*.test.ts'],
          exclude: [
            'test/postgres*.test.ts',
            'test/console*.test.ts',
            'test/demo.test.ts',
            ...(hasKeystone ? [] : ['test/keystone.test.ts']),
          ],
          ...BLACK_BOX,
        },
      },
      ...(POSTGRES.isInstalled() || process.env.CI === 'true' ? [ON_POSTGRES] : []),
      ...(CITUS.isInstalled() ? [ON_CITUS] : []),
    ],
  },
});
