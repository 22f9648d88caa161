/** Identity in PostgreSQL: the conformance suite, and a database that stalls, loses changes or is killed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openAuditTable } from '../packages/server/src/audit/audit-table.ts';
import { newAuditEntry } from '../packages/server/src/audit/audit-trail.ts';
import { AlreadyInitialised, IdentityUnavailable } from '../packages/server/src/identity/errors.ts';
import { RECORDS_MS_MAX } from '../packages/server/src/identity/identity-store.ts';
import { openPostgresIdentity } from '../packages/server/src/identity/postgres-identity.ts';
import { Database } from '../packages/server/src/postgres/database.ts';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { checkTables, POSTGRES_TABLES } from '../packages/server/src/store/postgres/schema.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { identityConformance } from './identity-conformance.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';

const DOMAIN = { id: 'd1', name: 'default', enabled: true };
const DAY_MS = 86_400_000;
/** Timers may fire slightly early. */
const BOUND_MS = RECORDS_MS_MAX + 10;

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    let server: PostgresServer;
    let schemas = 0;
    beforeAll(async () => {
      server = await PostgresServer.start();
    });
    afterAll(() => server?.stop());

    const optionsOf = (schema: string) => ({
      url: parseDatabaseUrl(server.url),
      password: PASSWORD,
      schema,
      usesTls: () => false,
      timeoutMs: 10_000,
      connectionsMax: 4,
      checkTables: (database: Database) => checkTables(database, true, POSTGRES_TABLES),
    });
    const newSchema = () => `identity_${++schemas}`;
    const open = (schema: string, now = Date.now) => openPostgresIdentity(optionsOf(schema), now);

    identityConformance('PostgreSQL', async (now) => {
      const schema = newSchema();
      const store = await open(schema, now);
      return { store, audit: store.audit, another: () => open(schema, now), destroy: () => store.close() };
    });

    test('a revocation holds in another process within a second', async () => {
      const schema = newSchema();
      const [one, two] = [await open(schema), await open(schema)];
      await one.change((write) => write.revoke({ id: 't', expires_at: Date.now() + DAY_MS }, Date.now()));
      await sleep(BOUND_MS);
      await two.confirm();
      expect(two.isRevoked('t')).toBe(true);
      await Promise.all([one.close(), two.close()]);
    });

    test('a response that arrives late confirms only what was true when it was requested', async () => {
      const schema = newSchema();
      const proxy = await flakyProxy(server.url, 0, Math.random);
      const one = await open(schema);
      const url = parseDatabaseUrl(server.url.replace(String(server.port), new URL(proxy.url).port));
      const two = await openPostgresIdentity({ ...optionsOf(schema), url }, Date.now);
      proxy.hold();
      await eventually(() => proxy.held() > 0 || undefined, 'the response to a poll');
      await one.change((write) => write.revoke({ id: 't', expires_at: Date.now() + DAY_MS }, Date.now()));
      await sleep(BOUND_MS);
      proxy.release();
      // As soon as that response has arrived.
      await eventually(
        () =>
          two.confirm()?.then(
            () => true,
            () => undefined,
          ) ?? true,
        'the store to recover',
      );
      expect(two.isRevoked('t')).toBe(true);
      await Promise.all([one.close(), two.close()]);
      await proxy.stop();
    });

    test('while the database stalls, the age of the records is unknown: confirm rejects, and later recovers', async () => {
      const store = await open(newSchema());
      await store.change((write) => write.put('domain', DOMAIN));
      await store.confirm();
      server.pause();
      try {
        await sleep(BOUND_MS);
        await expect(store.confirm()).rejects.toThrow(IdentityUnavailable);
        await expect(store.refresh()).rejects.toThrow(IdentityUnavailable);
        // The records themselves are still there.
        expect(store.domain('d1')).toEqual(DOMAIN);
      } finally {
        server.resume();
      }
      await eventually(async () => {
        try {
          await store.confirm();
          return true;
        } catch {
          return undefined;
        }
      }, 'the store to recover');
      await store.change((write) => write.remove('domain', DOMAIN));
      expect(store.domains()).toEqual([]);
      await store.close();
    });

    test('changes that the database has lost are lost in every process', async () => {
      const schema = newSchema();
      const [one, two] = [await open(schema), await open(schema)];
      await one.change((write) => write.put('domain', DOMAIN));
      const [kept] = server.sql(`SELECT changes FROM ${schema}.identity_state`).split('\n');
      await one.change((write) => write.put('domain', { ...DOMAIN, enabled: false }));
      await two.refresh();
      // As after a failover to a standby that did not have the last change. The next one is another.
      const restore = [
        `UPDATE ${schema}.identity_state SET changes = ${kept}`,
        `DELETE FROM ${schema}.identity_changes WHERE change > ${kept}`,
        `UPDATE ${schema}.identity_records SET change = ${kept}, value = '${JSON.stringify(DOMAIN)}'`,
      ];
      server.sql(restore.join('; '));
      await one.change((write) => write.put('domain', { ...DOMAIN, id: 'd2', name: 'other' }));
      await two.refresh();
      for (const each of [one, two]) {
        expect(each.domains()).toEqual([DOMAIN, { ...DOMAIN, id: 'd2', name: 'other' }]);
      }
      await Promise.all([one.close(), two.close()]);
    });

    test('after the primary is killed, a promoted standby has every change, and all stores use it', async () => {
      const primary = await PostgresServer.start();
      const standby = await PostgresServer.standbyOf(primary);
      try {
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        primary.sql('SELECT pg_reload_conf()');
        await eventually(
          () => primary.sql('SELECT sync_state FROM pg_stat_replication') === 'sync' || undefined,
          'synchronous replication',
        );
        const url = `postgres://wafstat@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`;
        const options = { ...optionsOf('failover'), url: parseDatabaseUrl(url) };
        const [one, two] = [
          await openPostgresIdentity(options, Date.now),
          await openPostgresIdentity(options, Date.now),
        ];
        await one.change((write) => write.put('domain', DOMAIN));
        await primary.kill();
        await expect(two.refresh()).rejects.toThrow(IdentityUnavailable);
        await expect(one.change((write) => write.remove('domain', DOMAIN))).rejects.toThrow(
          IdentityUnavailable,
        );
        standby.promote();
        await eventually(
          () =>
            one.refresh().then(
              () => true,
              () => undefined,
            ),
          'the new primary',
        );
        await one.change((write) => write.put('domain', { ...DOMAIN, enabled: false }));
        await eventually(
          () =>
            two.refresh().then(
              () => true,
              () => undefined,
            ),
          'the new primary',
        );
        expect(two.domains()).toEqual([{ ...DOMAIN, enabled: false }]);
        await Promise.all([one.close(), two.close()]);
      } finally {
        await Promise.all([primary.stop(), standby.stop()]);
      }
    });

    test('deleted records are forgotten after a day, and copies that are older are loaded again', async () => {
      const schema = newSchema();
      const clock = { now: Date.now() };
      const now = () => clock.now;
      const [one, two] = [await open(schema, now), await open(schema, now)];
      await one.change((write) => write.put('domain', DOMAIN));
      await two.refresh();
      await one.change((write) => write.remove('domain', DOMAIN));
      clock.now += DAY_MS + 1;
      await one.change((write) => write.put('domain', { ...DOMAIN, id: 'd2' }));
      expect(server.sql(`SELECT count(*) FROM ${schema}.identity_records`)).toBe('1');
      expect(server.sql(`SELECT count(*) FROM ${schema}.identity_changes`)).toBe('1');
      await two.refresh();
      expect(two.domains()).toEqual([{ ...DOMAIN, id: 'd2' }]);
      await Promise.all([one.close(), two.close()]);
    });

    test('exactly one of several processes creates the installation', async () => {
      const schema = newSchema();
      const stores = await Promise.all(Array.from({ length: 4 }, () => open(schema)));
      const created = await Promise.allSettled(
        stores.map((store, i) =>
          store
            .creating({ mark: `mark ${i}`, key: `key ${i}` })
            .change((write) => write.put('domain', { ...DOMAIN, id: `d${i}` })),
        ),
      );
      const winner = created.findIndex(({ status }) => status === 'fulfilled');
      for (const [i, each] of created.entries()) {
        if (i !== winner) expect(each).toMatchObject({ reason: expect.any(AlreadyInitialised) });
      }
      for (const store of stores) {
        await store.refresh();
        expect(store.domains().map(({ id }) => id)).toEqual([`d${winner}`]);
        expect(await store.masterKey()).toEqual({ mark: `mark ${winner}`, key: `key ${winner}` });
        await store.close();
      }
    });

    test('the audit trail has a limited size: the oldest records are deleted', async () => {
      const schema = newSchema();
      const store = await open(schema);
      const database = new Database(optionsOf(schema));
      const trail = openAuditTable(database, (work) => work(), Date.now, 10_000);
      for (let i = 0; i < 100; i++)
        await trail.append(
          newAuditEntry({ user: 'a', via: 'api' }, 'user.add', { type: 'user', name: `${i}` }),
        );
      const names: string[] = [];
      for await (const record of trail.records())
        if (record !== 'damaged') names.push(record.object.name ?? '');
      expect(names).toEqual(names.map((_, i) => String(100 - names.length + i)));
      const [size, counted] = server
        .sql(
          `SELECT sum(bytes), (SELECT audit_bytes FROM ${schema}.identity_state) FROM ${schema}.audit_trail`,
        )
        .split('|')
        .map(Number);
      expect(size).toBe(counted);
      expect(size).toBeLessThanOrEqual(10_000);
      expect(size).toBeGreaterThan(5_000);
      await database.close();
      await store.close();
    });
  },
);
