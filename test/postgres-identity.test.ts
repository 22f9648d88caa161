/** Identity in PostgreSQL: the conformance suite, and a database that stalls, loses changes or is killed. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { openAuditTable } from '../packages/server/src/audit/audit-table.ts';
import {
  type AuditTrail,
  AuditUnavailable,
  allRecords,
  newAuditEntry,
} from '../packages/server/src/audit/audit-trail.ts';
import { AlreadyInitialised, IdentityUnavailable } from '../packages/server/src/identity/errors.ts';
import { createIdentity } from '../packages/server/src/identity/identity.ts';
import { type IdentityStore, STALENESS_MS_MAX } from '../packages/server/src/identity/identity-store.ts';
import type { NewToken } from '../packages/server/src/identity/local-authenticator.ts';
import { openPostgresIdentity } from '../packages/server/src/identity/postgres-identity.ts';
import { masterKeyFingerprint } from '../packages/server/src/identity/secrets.ts';
import { Database } from '../packages/server/src/postgres/database.ts';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { checkTables } from '../packages/server/src/store/postgres/schema.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { identityConformance, REVOCATIONS_KEPT } from './identity-conformance.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';

const DOMAIN = { id: 'd1', name: 'default', enabled: true };
const DAY_MS = 86_400_000;
/** Timers may fire slightly early. */
const BOUND_MS = STALENESS_MS_MAX + 10;
const HERE = { address: '127.0.0.1', via: 'api' } as const;

/** For `eventually`. */
const succeeds = (work: Promise<unknown> | undefined) =>
  Promise.resolve(work).then(
    () => true,
    () => undefined,
  );

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
      revocationsKept: REVOCATIONS_KEPT,
      checkTables: (database: Database) => checkTables(database, true),
    });
    const newSchema = () => `identity_${++schemas}`;
    const open = (schema: string, now = Date.now) => openPostgresIdentity(optionsOf(schema), now);

    const masterKey = Buffer.alloc(32, 1);
    const identityOf = (store: IdentityStore, audit: AuditTrail) =>
      createIdentity({ store, audit, masterKey, now: Date.now, name: 'test' });
    async function openIdentity(schema: string) {
      const store = await open(schema);
      return identityOf(store, store.audit);
    }
    async function bootstrap(schema: string) {
      const store = await open(schema);
      const key = { fingerprint: masterKeyFingerprint(masterKey), key: null };
      const { administration } = await identityOf(store.forBootstrap(key), store.audit);
      const names = { domain: 'default', project: 'default', user: 'admin' };
      const created = await administration.bootstrap(names, 'password');
      await store.close();
      return created;
    }

    identityConformance('PostgreSQL', async (now) => {
      const schema = newSchema();
      const store = await open(schema, now);
      const { audit } = store;
      const another = () => open(schema, now);
      return { store, audit, another, destroy: () => store.close() };
    });

    test('a revocation holds in another process within a second', async () => {
      const schema = newSchema();
      const [one, two] = [await open(schema), await open(schema)];
      await one.change((write) => write.revoke({ id: 't', expires_at: Date.now() + DAY_MS }, Date.now()));
      await sleep(BOUND_MS);
      await two.confirm();
      expect(two.get('revoked', 't') !== undefined).toBe(true);
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
      await eventually(() => succeeds(two.confirm()), 'the store to recover');
      expect(two.get('revoked', 't') !== undefined).toBe(true);
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
        expect(store.get('domain', 'd1')).toEqual(DOMAIN);
      } finally {
        server.resume();
      }
      await eventually(() => succeeds(store.confirm()), 'the store to recover');
      await store.change((write) => write.remove('domain', DOMAIN));
      expect(store.list('domain')).toEqual([]);
      await store.close();
    });

    test('a process that was itself busy or stopped does not blame the database', async () => {
      const store = await open(newSchema());
      const refreshed = store.refresh();
      // Longer than a request waits: the timer fires before the response is read.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, BOUND_MS);
      expect(await refreshed).toBe(false);
      await store.close();
    });

    test('tokens are exchanged for those of new projects at once, and not at all while the database stalls', async () => {
      const schema = newSchema();
      const { domain, project, user } = await bootstrap(schema);
      const [one, two] = [await openIdentity(schema), await openIdentity(schema)];
      const scope = { project: { id: project.id } };
      const login = { user: { id: user.id }, password: 'password', scope };
      const { text: token } = (await two.authenticator.login(login, HERE)) as NewToken;
      const exchange = (id: string) =>
        two.authenticator.exchange({ token, scope: { project: { id } } }, HERE);
      for (const name of ['second', 'third']) {
        const { id } = await one.administration.addProject(domain.id, name);
        expect(await exchange(id)).toMatchObject({ description: { scope: { project: { id } } } });
      }
      server.pause();
      try {
        await sleep(BOUND_MS);
        await expect(two.authenticator.checkToken(token)).rejects.toThrow(IdentityUnavailable);
        await expect(exchange(project.id)).rejects.toThrow(IdentityUnavailable);
      } finally {
        server.resume();
      }
      await eventually(() => succeeds(exchange(project.id)), 'the store to recover');
      await Promise.all([one.close(), two.close()]);
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
        expect(each.list('domain')).toEqual([DOMAIN, { ...DOMAIN, id: 'd2', name: 'other' }]);
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
        await eventually(() => succeeds(one.refresh()), 'the new primary');
        await one.change((write) => write.put('domain', { ...DOMAIN, enabled: false }));
        await eventually(() => succeeds(two.refresh()), 'the new primary');
        expect(two.list('domain')).toEqual([{ ...DOMAIN, enabled: false }]);
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
      expect(two.list('domain')).toEqual([{ ...DOMAIN, id: 'd2' }]);
      await Promise.all([one.close(), two.close()]);
    });

    test('a large copy is written and read in parts, because the time of a statement is limited', async () => {
      const schema = newSchema();
      const domains = Array.from({ length: 4_001 }, (_, i) => ({
        ...DOMAIN,
        id: `d${i}`,
        name: `name ${i}`,
      }));
      const records = domains.map((value) => ({ kind: 'domain' as const, id: value.id, value }));
      const key = { fingerprint: masterKeyFingerprint(masterKey), key: null };
      const one = await open(schema);
      const rowCounts: number[] = [];
      let inserts = 0;
      let insertsMax = 0;
      let begins = 0;
      let beginsBeforeLast = -1;
      function* slowRecords() {
        for (const record of records) {
          beginsBeforeLast = begins;
          yield record;
        }
      }
      const send = pg.Client.prototype.query as (this: pg.Client, query: unknown) => Promise<pg.QueryResult>;
      const query = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(async function (
        this: pg.Client,
        ...[sent]: [pg.QueryConfig]
      ) {
        const isInsert = sent.text?.startsWith('INSERT INTO identity_records') ?? false;
        if (sent.text === 'BEGIN') begins++;
        if (isInsert) insertsMax = Math.max(insertsMax, ++inserts);
        const result = await send.call(this, sent).finally(() => isInsert && inserts--);
        rowCounts.push(result.rowCount ?? 0);
        return result;
      } as never);
      const entry = newAuditEntry({ user: 'a', via: 'api' }, 'installation.create', { type: 'installation' });
      await one.copyFrom(slowRecords(), key, entry);
      const two = await open(schema);
      query.mockRestore();
      expect(Math.max(...rowCounts)).toBe(2_000);
      // A transaction that is idle for longer than its limit is ended by the server.
      expect(beginsBeforeLast).toBe(0);
      expect(begins).toBeGreaterThan(0);
      // The time of a statement begins when it is queued, not when the server gets it.
      expect(insertsMax).toBe(1);
      // Not as a list: a message about 4,001 differences takes long.
      expect(domains.filter(({ id, name }) => two.get('domain', id)?.name !== name)).toEqual([]);
      expect(two.list('domain').length).toBe(domains.length);
      await Promise.all([one.close(), two.close()]);
    });

    test('a process whose clock is days behind does not hide deletions from others', async () => {
      const schema = newSchema();
      const [late, one, two] = [
        await open(schema, () => Date.now() - 2 * DAY_MS),
        await open(schema),
        await open(schema),
      ];
      await one.change((write) => write.put('domain', DOMAIN));
      await two.refresh();
      await late.change((write) => write.remove('domain', DOMAIN));
      await one.change((write) => write.put('domain', { ...DOMAIN, id: 'd2', name: 'other' }));
      await two.refresh();
      expect(two.list('domain').map(({ id }) => id)).toEqual(['d2']);
      await Promise.all([late.close(), one.close(), two.close()]);
    });

    test('a process whose clock is days ahead does not forget revocations, even if there are many', async () => {
      const options = { ...optionsOf(newSchema()), revocationsKept: 0 };
      const ahead = () => Date.now() + 2 * DAY_MS;
      const early = await openPostgresIdentity(options, ahead);
      const one = await openPostgresIdentity(options, Date.now);
      await one.change((write) => write.revoke({ id: 't', expires_at: Date.now() + DAY_MS }, Date.now()));
      await early.change((write) => write.revoke({ id: 'u', expires_at: ahead() + DAY_MS }, ahead()));
      await one.refresh();
      expect([one.get('revoked', 't') !== undefined, one.get('revoked', 'u') !== undefined]).toEqual([
        true,
        true,
      ]);
      await Promise.all([early.close(), one.close()]);
    });

    test('exactly one of several processes creates the installation', async () => {
      const schema = newSchema();
      const stores = await Promise.all(Array.from({ length: 4 }, () => open(schema)));
      const created = await Promise.allSettled(
        stores.map((store, i) =>
          store
            .forBootstrap({ fingerprint: `fingerprint ${i}`, key: `key ${i}` })
            .change((write) => write.put('domain', { ...DOMAIN, id: `d${i}` })),
        ),
      );
      const winner = created.findIndex(({ status }) => status === 'fulfilled');
      for (const [i, each] of created.entries()) {
        if (i !== winner) expect(each).toMatchObject({ reason: expect.any(AlreadyInitialised) });
      }
      for (const store of stores) {
        await store.refresh();
        expect(store.list('domain').map(({ id }) => id)).toEqual([`d${winner}`]);
        expect(await store.masterKey()).toEqual({
          fingerprint: `fingerprint ${winner}`,
          key: `key ${winner}`,
        });
        await store.close();
      }
    });

    test('a process does not use the installation of another master key that replaces its own', async () => {
      const schema = newSchema();
      const store = await open(schema);
      const setFingerprint = (fingerprint: string) =>
        server.sql(`UPDATE ${schema}.identity_state SET master_key_mark = '${fingerprint}'`);
      setFingerprint('own');
      expect(await store.matchesMasterKey('own')).toBe(true);
      setFingerprint('other');
      await expect(store.refresh()).rejects.toThrow(/a different installation/);
      await expect(store.change((write) => write.put('domain', DOMAIN))).rejects.toThrow(
        /a different installation/,
      );
      setFingerprint('own');
      await eventually(() => succeeds(store.refresh()), 'the store to recover');
      expect(store.list('domain')).toEqual([]);
      await store.close();
    });

    test('the audit trail reports a database that refuses its records, and does not hide other errors', async () => {
      const schema = newSchema();
      const store = await open(schema);
      const entry = newAuditEntry({ user: 'a', via: 'api' }, 'user.add', { type: 'user' });
      store.audit.mirror(() => {
        throw new RangeError('a defect');
      });
      await expect(store.audit.append(entry)).rejects.toThrow(RangeError);
      await expect(store.audit.note(entry)).rejects.toThrow(RangeError);
      server.sql(`ALTER TABLE ${schema}.audit_trail ADD CHECK (bytes < 0) NOT VALID`);
      await expect(store.audit.append(entry)).rejects.toThrow(AuditUnavailable);
      await store.audit.note(entry);
      expect(server.sql(`SELECT count(*) FROM ${schema}.audit_trail`)).toBe('2');
      await store.close();
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
      for (const record of await allRecords(trail))
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
      // Many at once take several changes: one that takes too long would fail, and so would all after it.
      server.sql(
        `INSERT INTO ${schema}.audit_trail (bytes, record) SELECT 2, '{}' FROM generate_series(1, 25000);
         UPDATE ${schema}.identity_state SET audit_bytes = audit_bytes + 50000`,
      );
      const left: number[] = [];
      for (let i = 0; i < 3; i++) {
        await trail.append(newAuditEntry({ user: 'a', via: 'api' }, 'user.add', { type: 'user' }));
        left.push(Number(server.sql(`SELECT count(*) FROM ${schema}.audit_trail`)));
      }
      expect(left).toEqual([names.length + 15_001, names.length + 5_002, expect.any(Number)]);
      expect(Number(server.sql(`SELECT sum(bytes) FROM ${schema}.audit_trail`))).toBeLessThanOrEqual(10_000);
      await database.close();
      await store.close();
    });
  },
);
