/** Several identical processes on PostgreSQL: users, keys and sessions are shared, and no process has a data directory. */
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login, sum } from './api.ts';
import { CONSOLE } from './console-fixtures.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';
import { NGINX, startBalancer } from './web-server.ts';

const START = Date.now() - 3_600_000;
const RANGE = `from=${START}&to=${START + 1_000_000}`;
/** Changes hold everywhere within a second. Timers may fire slightly early. */
const BOUND_MS = 1_010;
const LISTENS = 'wafstat listens on ';

const events = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ time: START + i, host: `h${i % 7}.example`, attack: 'xss' }));

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    const sandbox = new Sandbox();
    let postgres: PostgresServer;
    /** All that a process knows. */
    let env: { WAFSTAT_STORE: string; WAFSTAT_POSTGRES_URL: string };
    let servers: [Server, Server];
    let installation: Installation;

    async function serve(more: Readonly<Record<string, string>> = {}): Promise<Server> {
      const process = sandbox.start(['serve', '--listen', '127.0.0.1:0', '--trust-proxy', '127.0.0.1'], {
        env: { ...env, ...more },
      });
      const line = await process.line(LISTENS);
      return { process, address: line.slice(LISTENS.length) };
    }

    const run = (args: readonly string[], more: Readonly<Record<string, string>> = {}) =>
      sandbox.run(args, { env: { ...env, ...more } });

    async function runJson<T>(...args: string[]): Promise<T> {
      const { status, stdout, stderr } = await run([...args, '--json']);
      expect([status, stderr]).toEqual([0, '']);
      return JSON.parse(stdout);
    }

    beforeAll(async () => {
      postgres = await PostgresServer.start();
      env = {
        WAFSTAT_STORE: 'postgres',
        WAFSTAT_POSTGRES_URL: postgres.url.replace('@', `:${encodeURIComponent(PASSWORD)}@`),
      };
      // On an empty database, at the same time.
      servers = (await Promise.all([serve(), serve()])) as [Server, Server];
      const passwords = () =>
        servers.flatMap(({ process }) => /^password (\S+)/m.exec(process.stdout)?.[1] ?? []);
      const [password, ...others] = await eventually(
        () => (passwords().length > 0 ? passwords() : undefined),
        'the password',
      );
      expect([password?.length, others]).toEqual([24, []]);
      const [project] = await runJson<{ id: string; domain_id: string }[]>('project', 'list');
      const [user] = await runJson<{ id: string }[]>('user', 'list');
      installation = {
        domain: 'default',
        project: 'default',
        user: 'admin',
        password: password ?? '',
        domain_id: project?.domain_id ?? '',
        project_id: project?.id ?? '',
        user_id: user?.id ?? '',
      };
    });
    afterAll(async () => {
      await sandbox.clear();
      await postgres?.stop();
    });

    const get = (server: Server, token: string, path = `/v1/${installation.project_id}/waf/instance`) =>
      call(server.address, path, { headers: { 'X-Auth-Token': token } });

    const push = (address: string, api: Api, key: string, count = 100): Promise<HttpResponse> =>
      call(address, `/ingest/v1/${api.project}`, {
        method: 'POST',
        headers: { 'X-Auth-Token': api.token, 'Idempotency-Key': key },
        body: ndjson(events(count)),
      });

    async function newAccount(name: string, ...args: string[]) {
      const added = await runJson<{ id: string; password: string }>(
        'user',
        'add',
        name,
        '--domain',
        'default',
        ...args,
      );
      return { ...installation, user: name, ...added };
    }

    async function signIn(address: string, { user, password }: { user: string; password: string }) {
      const body = JSON.stringify({ domain: 'default', user, password });
      const response = await call(address, '/console/api/session', {
        method: 'POST',
        headers: CONSOLE,
        body,
      });
      expect(response.status).toBe(201);
      return (
        String(response.headers['set-cookie']?.find((each) => each.includes('session'))).split(';', 1)[0] ??
        ''
      );
    }

    test('every command needs nothing but the store and its URL in the environment', async () => {
      await runJson('domain', 'add', 'acme');
      await runJson('project', 'add', 'shop', '--domain', 'acme');
      const alice = await runJson<{ id: string }>(
        ...['user', 'add', 'alice', '--domain', 'acme', '--project', 'shop', '--role', 'ingest'],
      );
      const silent = [
        ['user', 'grant', alice.id, '--project', 'shop', '--role', 'reader'],
        ['user', 'revoke', alice.id, '--project', 'shop', '--role', 'ingest'],
        ['user', 'disable', 'alice'],
        ['user', 'enable', 'alice'],
        ['project', 'disable', 'shop'],
        ['project', 'enable', 'shop'],
      ];
      for (const args of silent) expect(await run(args)).toMatchObject({ status: 0, stdout: '', stderr: '' });
      expect((await run(['user', 'password', 'alice'])).stdout).toMatch(/^password \S{24} /);
      const key = await runJson<{ access: string }>('key', 'add', '--user', 'alice');
      expect(await runJson('key', 'list', '--user', 'alice')).toMatchObject([{ access: key.access }]);
      for (const verb of [['disable'], ['enable'], ['delete', '--yes']])
        expect(await run(['key', ...verb, key.access])).toMatchObject({ status: 0, stderr: '' });
      await runJson('host', 'add', 'a.example', '--project', 'shop');
      expect(await runJson('host', 'list', '--project', 'shop')).toMatchObject([{ hostname: 'a.example' }]);
      const log = sandbox.write('shop.ndjson', ndjson(events(30)));
      const ingested = await run(['ingest', '--project', 'shop', '--format', 'events', log]);
      expect(ingested.stdout).toMatch(/^accepted +30$/m);
      const following = sandbox.start(['follow', '--project', 'shop', '--format', 'events', log], { env });
      await eventually(() => following.stderr.includes('wafstat follows') || undefined, 'follow to start');
      following.signal('SIGTERM');
      expect((await following.end()).status).toBe(0);
      expect(await runJson('source', 'list', '--project', 'shop')).toMatchObject([{ events: 30 }]);
      await eventually(
        async () => (await runJson<{ horizon: number }>('horizon')).horizon > 0 || undefined,
        'retention to set a horizon, which can be moved back',
      );
      await runJson('horizon', '--set', '2020-01-01T00:00:00Z');
      expect(await runJson('horizon')).toMatchObject({ horizon: Date.UTC(2020, 0) });
      expect((await run(['migrate'])).stdout).toMatch(/tables in the schema wafstat are ready/);

      const audit = await runJson<{ action: string; outcome: string; user: string }[]>('audit');
      const actions = audit.map(({ action }) => action);
      expect(actions.slice(0, 3).toSorted()).toEqual([
        'installation.create',
        'service.start',
        'service.start',
      ]);
      expect(actions.slice(3)).toEqual([
        ...[
          'domain.add',
          'project.add',
          'user.add',
          'role.grant',
          'role.revoke',
          'user.disable',
          'user.enable',
        ],
        ...['project.disable', 'project.enable', 'user.set_password', 'key.add', 'key.update', 'key.update'],
        ...['key.delete', 'host.add', 'horizon.set'],
      ]);
      expect(new Set(audit.map(({ outcome }) => outcome))).toEqual(new Set(['done']));
      expect((await run(['audit', '--action', 'host'])).stdout).toMatch(
        /done +local:\S+ +host\.add +host a\.example/,
      );

      for (const args of [['verify'], ['repair'], ['compact'], ['backup', '--to', sandbox.path('backup')]]) {
        const { status, stderr } = await run(args);
        expect([status, stderr]).toEqual([
          2,
          expect.stringContaining('this command is for data directories'),
        ]);
      }
      expect((await run(['init'])).stderr).toMatch(
        /the schema wafstat of \S+ already has a wafstat installation/,
      );
      for (const args of [
        ['user', 'delete', 'alice', '--yes'],
        ['project', 'delete', 'shop', '--yes'],
        ['domain', 'delete', 'acme', '--yes'],
      ])
        expect((await run(args)).status).toBe(0);
      expect(readdirSync(sandbox.directory)).toEqual(['shop.ndjson']);
    });

    test('tokens, keys and sessions of one process work on the other; revoked ones stop within a second', async () => {
      const [one, two] = servers;
      const account = await newAccount('bob', '--project', 'default', '--role', 'admin');
      // At once: a process reads the newest records before it refuses anyone.
      const api = await login(two.address, account);
      expect((await get(one, api.token)).status).toBe(200);
      await expect(login(two.address, { ...account, password: 'wrong' })).rejects.toThrow('401');
      await eventually(async () => {
        const refused = await runJson<object[]>('audit', '--action', 'login', '--user', 'bob');
        return refused.length === 1 || undefined;
      }, 'the refused login in the audit trail');
      const session = await signIn(one.address, account);
      const whoAmI = (server: Server, cookie: string) =>
        call(server.address, '/console/api/session', { headers: { ...CONSOLE, Cookie: cookie } });
      for (const server of servers) expect((await whoAmI(server, session)).status).toBe(200);

      const revoked = await call(one.address, '/v3/auth/tokens', {
        method: 'DELETE',
        headers: { 'X-Auth-Token': api.token, 'X-Subject-Token': api.token },
      });
      expect(revoked.status).toBe(204);
      expect((await get(one, api.token)).status).toBe(401);
      const key = await runJson<{ access: string; secret: string }>('key', 'add', '--user', 'bob');
      const basic = `Basic ${Buffer.from(`${key.access}:${key.secret}`).toString('base64')}`;
      const withKey = (server: Server) =>
        call(server.address, `/v1/${installation.project_id}/waf/instance`, {
          headers: { Authorization: basic },
        });
      for (const server of servers) expect((await withKey(server)).status).toBe(200);
      await run(['user', 'revoke', 'bob', '--project', 'default', '--role', 'admin']);
      await sleep(BOUND_MS);
      expect((await get(two, api.token)).status).toBe(401);
      for (const server of servers) expect((await withKey(server)).status).toBe(403);

      // A new password on one process; the new session continues on the other.
      const { id } = JSON.parse((await whoAmI(one, session)).text).user;
      const passwords = { original_password: account.password, password: 'another password' };
      const changed = await call(two.address, `/v3/users/${id}/password`, {
        method: 'POST',
        headers: { ...CONSOLE, Cookie: session },
        body: JSON.stringify({ user: passwords }),
      });
      expect(changed.status).toBe(204);
      const next =
        changed.headers['set-cookie']?.find((each) => each.includes('session'))?.split(';', 1)[0] ?? '';
      expect((await whoAmI(one, next)).status).toBe(200);
      for (const server of servers) expect((await whoAmI(server, session)).status).toBe(401);
      await run(['user', 'delete', 'bob', '--yes']);
      for (const server of servers) expect((await whoAmI(server, next)).status).toBe(401);
    });

    test('while PostgreSQL stalls, requests get 503 instead of old rights, and later work again', async () => {
      const [one] = servers;
      const api = await login(one.address, installation);
      postgres.pause();
      try {
        await sleep(BOUND_MS);
        const refused = await get(one, api.token);
        expect(refused.status).toBe(503);
        expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
        expect(refused.text).toContain('users and permissions cannot be looked up now');
      } finally {
        postgres.resume();
      }
      await eventually(async () => (await get(one, api.token)).status === 200 || undefined, 'a response');
      await eventually(
        async () => (await call(one.address, '/readyz')).status === 200 || undefined,
        'readiness',
      );
    });

    test('a killed process leaves every change with its audit entry, and every entry with its change', async () => {
      const acknowledged: string[] = [];
      for (let i = 0; i < 3; i++) {
        const server = await serve();
        const session = await signIn(server.address, installation);
        const add = async (name: string) => {
          const { status } = await call(server.address, '/v3/projects', {
            method: 'POST',
            headers: { ...CONSOLE, Cookie: session },
            body: JSON.stringify({ project: { name } }),
          });
          expect(status).toBe(201);
          acknowledged.push(name);
        };
        let isKilled = false;
        const adding = Array.from({ length: 3 }, async (_, worker) => {
          for (let j = 0; !isKilled; j++) {
            await add(`killed ${i} ${worker} ${j}`).catch((error) => {
              if (!isKilled) throw error;
            });
          }
        });
        const before = acknowledged.length;
        await eventually(() => acknowledged.length >= before + 5 + i || undefined, 'some projects');
        isKilled = true;
        await server.process.kill();
        await Promise.all(adding);
      }
      const names = (await runJson<{ name: string }[]>('project', 'list')).map(({ name }) => name);
      const records = await runJson<{ object: { name: string } }[]>('audit', '--action', 'project.add');
      const added = (all: string[]) => all.filter((name) => name.startsWith('killed')).toSorted();
      expect(added(names)).toEqual(added(records.map(({ object }) => object.name)));
      expect(names).toEqual(expect.arrayContaining(acknowledged));
    });

    test('a master key of your own stays out of the database, and another one is refused', async () => {
      const [own, other] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)].map((each) => each.toString('base64'));
      const schema = { WAFSTAT_POSTGRES_SCHEMA: 'own_key' };
      expect((await run(['user', 'list'], schema)).stderr).toMatch(
        /has no wafstat installation: create one with/,
      );
      expect((await run(['init'], { ...schema, WAFSTAT_MASTER_KEY: own ?? '' })).status).toBe(0);
      expect(postgres.sql('SELECT master_key IS NULL FROM own_key.identity_state')).toBe('t');
      expect((await run(['user', 'list'], { ...schema, WAFSTAT_MASTER_KEY: own ?? '' })).status).toBe(0);
      expect((await run(['user', 'list'], schema)).stderr).toMatch(
        /does not contain the master key: set WAFSTAT_MASTER_KEY/,
      );
      // The trail is readable without the key, which may be lost.
      expect((await run(['audit', '--json'], schema)).stdout).toContain('installation.create');
      const refused = await sandbox
        .start(['serve', '--listen', '127.0.0.1:0'], {
          env: { ...env, ...schema, WAFSTAT_MASTER_KEY: other ?? '' },
        })
        .end();
      expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining('another master key')]);
    });

    test('a process that starts while PostgreSQL is down waits for it, with its workers', async () => {
      await postgres.kill();
      const starting = sandbox.start(['serve', '--listen', '127.0.0.1:0', '--workers', '2'], { env });
      const log = sandbox.write('followed.ndjson', ndjson(events(10)));
      const following = sandbox.start(['follow', '--project', 'default', '--format', 'events', log], { env });
      for (const each of [starting, following])
        await eventually(() => each.stderr.includes('; retrying') || undefined, 'a warning');
      const once = await run(['ingest', '--project', 'default', '--format', 'events', log]);
      expect([once.status, once.stderr]).toEqual([1, expect.stringContaining('does not respond')]);
      await postgres.run();
      const address = (await starting.line(LISTENS)).slice(LISTENS.length);
      const api = await login(address, installation);
      for (let i = 0; i < 4; i++) expect((await api.get('waf/instance')).status).toBe(200);
      await eventually(async () => {
        const { requests } = await api.timeline(RANGE);
        return sum(requests) === 10 || undefined;
      }, 'the followed lines');
      for (const each of [starting, following]) {
        each.signal('SIGTERM');
        expect((await each.end()).status).toBe(0);
      }
      // Those that ran before have recovered, too.
      for (const { address } of servers)
        await eventually(
          async () => (await call(address, '/readyz')).status === 200 || undefined,
          'readiness',
        );
    });

    test.each([
      [5, 'a development build created them'],
      [99, 'use a newer release'],
    ])('tables of version %i are refused', async (version, advice) => {
      const schema = { WAFSTAT_POSTGRES_SCHEMA: `version_${version}` };
      expect((await run(['migrate'], schema)).status).toBe(0);
      postgres.sql(`UPDATE version_${version}.schema_version SET version = ${version}`);
      for (const command of [['migrate'], ['init'], ['init', '--postgres-migrate', 'never']]) {
        const { status, stderr } = await run(command, schema);
        expect([status, stderr]).toEqual([1, expect.stringContaining(`have version ${version}, but`)]);
        expect(stderr).toContain(advice);
      }
    });

    test('a schema of another program is refused', async () => {
      postgres.sql('CREATE SCHEMA foreign_one; CREATE TABLE foreign_one.schema_version (version int)');
      for (const command of [['migrate'], ['init'], ['serve', '--check']]) {
        const { status, stderr } = await run(command, { WAFSTAT_POSTGRES_SCHEMA: 'foreign_one' });
        expect([status, stderr]).toEqual([1, expect.stringContaining('belongs to another program')]);
      }
    });

    test('top lists of several processes are one, bounded by --top-keys, and go with their project', async () => {
      const { id } = await runJson<{ id: string }>('project', 'add', 'tops', '--domain', 'default');
      const account = await newAccount('tina', '--project', 'tops', '--role', 'reader');
      const { token } = await login(servers[0].address, { ...account, project_id: id });
      const log = sandbox.write(
        'tops.ndjson',
        ndjson(events(40).map((one, i) => ({ ...one, host: 'one', time: START, source: `198.51.${i}.7` }))),
      );
      const ingest = (source: string, ...options: string[]) =>
        run(['ingest', log, '--project', id, '--format', 'events', '--source', source, ...options]);
      const counted = await Promise.all(['one', 'other'].map((source) => ingest(source)));
      expect(counted.map(({ status }) => status)).toEqual([0, 0]);
      const path = `/v1/${id}/waf/overviews/attack/ip?${RANGE}&top=100`;
      const top = async (server: Server) => JSON.parse((await get(server, token, path)).text);
      for (const server of servers) {
        const { attacks, total, distinct_is, items } = await top(server);
        expect([attacks, total, distinct_is, items.length]).toEqual([80, 40, 'exact', 40]);
        expect(items[0]).toMatchObject({ num: 2, error: 0 });
      }
      // These attacks are not kept, so lists come from the summaries.
      const third = await ingest('third', '--top-keys', '16', '--events-max', '0');
      expect(third.status).toBe(0);
      for (const server of servers) {
        const { attacks, distinct_is, items } = await top(server);
        expect([attacks, distinct_is, items.length]).toEqual([120, 'estimate', 16]);
      }
      const rows = () => postgres.sql(`SELECT count(*) FROM wafstat.top_lists WHERE project = '${id}'`);
      // One row for the project, one for the host.
      expect(rows()).toBe('2');
      expect((await run(['project', 'delete', 'tops', '--yes'])).status).toBe(0);
      expect(rows()).toBe('0');
    });

    test('a data directory is copied with all IDs, passwords, keys and tokens', async () => {
      const source = new Sandbox();
      const { installation: old, server, api } = await source.service();
      const account = { ...old, user: 'carol', ...(await source.runJson<object>('user', 'add', 'carol')) };
      await source.runJson('key', 'add', '--user', 'carol');
      await server.process.kill();
      const schema = { WAFSTAT_POSTGRES_SCHEMA: 'copied' };
      const copied = await run(['copy-identity', '--data', source.data], schema);
      expect(copied).toMatchObject({
        status: 0,
        stdout: 'copied and verified: 1 domains, 1 projects, 2 users and 1 access keys\n',
      });
      const again = await run(['copy-identity', '--data', source.data], schema);
      expect([again.status, again.stderr]).toEqual([
        1,
        expect.stringMatching(/nothing was copied: .* already has/),
      ]);
      const spoiled = { WAFSTAT_POSTGRES_SCHEMA: 'spoiled' };
      expect((await run(['migrate'], spoiled)).status).toBe(0);
      postgres.sql(
        `CREATE FUNCTION spoiled.spoil() RETURNS trigger LANGUAGE plpgsql
           AS 'BEGIN NEW.id = ''x''; RETURN NEW; END';
         CREATE TRIGGER spoil BEFORE INSERT ON spoiled.identity_records
           FOR EACH ROW WHEN (NEW.kind = 'key') EXECUTE FUNCTION spoiled.spoil()`,
      );
      const differs = await run(['copy-identity', '--data', source.data], spoiled);
      expect([differs.status, differs.stderr]).toEqual([
        1,
        expect.stringContaining('verification failed: the records differ'),
      ]);
      const next = await serve(schema);
      expect((await get(next, api.token, `/v1/${old.project_id}/waf/instance`)).status).toBe(200);
      await login(next.address, account as Installation & { password: string });
      expect(JSON.parse((await run(['audit', '--json'], schema)).stdout)[0]).toMatchObject({
        action: 'installation.create',
        after: { copied_from: source.data, records: { user: 2, key: 1 } },
      });
      await next.process.kill();
      await source.clear();
    });

    test.skipIf(!NGINX.isInstalled() && process.env.CI !== 'true')(
      `behind nginx, totals are exact although a process and the primary are killed during pushes (${NGINX.needs})`,
      async () => {
        const primary = await PostgresServer.start();
        const stops: (() => Promise<unknown>)[] = [() => primary.stop()];
        try {
          const standby = await PostgresServer.standbyOf(primary);
          stops.push(() => standby.stop());
          primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
          primary.sql('SELECT pg_reload_conf()');
          const [first = '', second] = [primary, standby].map(({ port }) => `127.0.0.1:${port}`);
          const url = env.WAFSTAT_POSTGRES_URL.replace(/127\.0\.0\.1:\d+/, `${first},${second}`);
          const both = { WAFSTAT_POSTGRES_URL: url };
          const created = await run(['init', '--json'], both);
          const account = JSON.parse(created.stdout) as Installation;
          const pair = (await Promise.all([serve(both), serve(both)])) as [Server, Server];
          const balancer = await startBalancer([
            new URL(pair[0].address).host,
            new URL(pair[1].address).host,
          ]);
          stops.unshift(() => Promise.all([balancer.stop(), pair[1].process.kill()]));
          const api = await login(balancer.address, account);
          const session = await signIn(balancer.address, account);
          /** Retries as log shippers do: the proxy returns 502 for a request that the killed process had. */
          async function pushUntilCounted(key: string): Promise<void> {
            await eventually(async () => {
              const { status } = await push(balancer.address, api, key);
              if (status !== 200) expect([502, 503, 504, 429]).toContain(status);
              return status === 200 || undefined;
            }, `batch ${key} to be counted`);
          }
          let [begun, counted, over] = [0, 0, false];
          const more = (count: number, what: string) => {
            const target = counted + count;
            return eventually(() => counted >= target || undefined, what);
          };
          const pushing = Promise.all(
            Array.from({ length: 4 }, async () => {
              while (!over) {
                await pushUntilCounted(`batch ${begun++}`);
                counted++;
              }
            }),
          );
          pushing.catch(() => {});
          await more(10, 'the first batches');
          await pair[0].process.kill();
          await more(10, 'batches at the other process');
          await primary.kill();
          standby.promote();
          await more(10, 'batches on the new primary');
          over = true;
          await pushing;
          // Once more, as a shipper does that has lost its position.
          await Promise.all(Array.from({ length: begun }, (_, i) => pushUntilCounted(`batch ${i}`)));
          const { requests, attacks } = await api.timeline(RANGE);
          expect([sum(requests), sum(attacks)]).toEqual([begun * 100, begun * 100]);
          const seen = await call(balancer.address, '/console/api/session', {
            headers: { ...CONSOLE, Cookie: session },
          });
          expect(seen.status).toBe(200);
        } finally {
          for (const stop of stops) await stop();
        }
      },
    );
  },
);
