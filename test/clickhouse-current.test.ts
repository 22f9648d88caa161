/** The store on a current release of ClickHouse, as an engine within this process. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ClickHouseClient, createClient } from '@clickhouse/client';
import { describe } from 'vitest';
import { clickhouseStore, migrate } from '../packages/server/src/store/clickhouse/clickhouse.ts';
import { durableStoreConformance } from '../packages/server/src/store/conformance.ts';

const HOME = new URL('chdb/', import.meta.url);
const isThere = existsSync(new URL('node_modules/chdb', HOME));
/** npm has the engine for this platform. Elsewhere there is nothing to run. */
const mustBeThere = process.env.CI === 'true' && process.platform === 'linux' && process.arch === 'x64';
const SHARE = 0.3;

describe.skipIf(!isThere && !mustBeThere)('with chdb (npm install, in the folder test/chdb)', () => {
  durableStoreConformance(
    'the current engine',
    async (now) => {
      const require = createRequire(HOME);
      const { createChdbConnection } = require('chdb/connection');
      const { drainPending } = require('chdb');
      const path = mkdtempSync(join(tmpdir(), 'wafstat-chdb-'));
      const connect = (): ClickHouseClient => createClient({ connection: createChdbConnection({ path }) });
      // The engine has one folder, and a connection one database: the one that is there.
      const options = {
        urls: ['chdb:'],
        database: 'default',
        user: 'default',
        password: '',
        timeout_ms: 30_000,
        replicated: false,
      };
      await migrate(options, connect);
      let store = clickhouseStore(options, now, connect);
      return {
        store,
        async reopen() {
          await store.close();
          store = clickhouseStore(options, now, connect);
          return store;
        },
        async destroy() {
          await store.close();
          await drainPending();
          rmSync(path, { recursive: true });
        },
      };
    },
    SHARE,
  );
});
