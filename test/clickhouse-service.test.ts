/** The service on ClickHouse and PostgreSQL in operation: several processes, and servers that fail and restart. */
import { appendFileSync, rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login, sum } from './api.ts';
import { CLICKHOUSE, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Random } from './random.ts';
import { type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';

const START = Date.now() - 3_600_000;
const RANGE = `from=${START}&to=${START + 1_000_000}`;
const RESTARTS = 6;

const events = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ time: START + i, host: `h${i % 7}.example`, attack: 'xss' }));

describe.skipIf((!CLICKHOUSE.isInstalled() || !POSTGRES.isInstalled()) && process.env.CI !== 'true')(
  `with clickhouse-server and postgresql (${CLICKHOUSE.needs} ${POSTGRES.needs})`,
  () => {
    let clickhouse: ClickHouse;
    let postgres: PostgresServer;
    let sandbox: Sandbox;
    let installation: Installation;
    let store: string[];
    let databases = 0;
    beforeAll(async () => {
      [clickhouse, postgres] = await Promise.all([startClickHouse(), PostgresServer.start()]);
    });
    afterAll(() => Promise.all([clickhouse?.stop(), postgres?.stop()]));
    beforeEach(async () => {
      sandbox = new Sandbox();
      installation = await sandbox.init();
      store = [
        ...['--store', 'clickhouse', '--clickhouse-url', clickhouse.urls.join(',')],
        ...['--clickhouse-database', `service_${++databases}`],
        ...['--postgres-url', postgres.url, '--postgres-password-file', sandbox.write('password', PASSWORD)],
        ...['--postgres-schema', `service_${databases}`],
      ];
    });
    afterEach(() => sandbox.clear());

    const push = (server: Server, api: Api, key: string, count = 100): Promise<HttpResponse> =>
      call(server.address, `/ingest/v1/${installation.project_id}`, {
        method: 'POST',
        headers: { 'X-Auth-Token': api.token, 'Idempotency-Key': key },
        body: ndjson(events(count)),
      });

    /** Retries after 503 and 429, as log shippers do. Returns the number of retries. */
    async function pushUntilCounted(server: Server, api: Api, key: string, count = 100): Promise<number> {
      for (let refusals = 0; ; refusals++) {
        const { status, headers, text } = await push(server, api, key, count);
        if (status === 200) return refusals;
        expect([429, 503]).toContain(status);
        expect(Number(headers['retry-after'])).toBeGreaterThan(0);
        expect(JSON.parse(text).error_msg).toMatch(/retry later/);
        await sleep(50);
      }
    }

    async function expectRequests(api: Api, expected: number): Promise<void> {
      const { requests, attacks } = await api.timeline(RANGE);
      expect([sum(requests), sum(attacks)]).toEqual([expected, expected]);
      expect(sum(await api.distribution(RANGE))).toBe(expected);
    }

    test('batches that two processes receive at once count once, and both return the same counts', async () => {
      const servers = await Promise.all([sandbox.serve(store), sandbox.serve(store)]);
      const apis = await Promise.all(servers.map(({ address }) => login(address, installation)));
      const keys = Array.from({ length: 20 }, (_, i) => `batch ${i}`);
      const outcomes = await Promise.all(
        servers.flatMap((server, i) => keys.map((key) => push(server, apis[i] as Api, key))),
      );
      expect(outcomes.map(({ status }) => status)).toEqual(outcomes.map(() => 200));
      const counted = outcomes.filter(({ text }) => !JSON.parse(text).duplicate);
      expect(counted).toHaveLength(keys.length);
      for (const api of apis) await expectRequests(api, keys.length * 100);
      expect((await (apis[0] as Api).hostIds()).size).toBe(7);
    });

    test(`totals are exact after ${RESTARTS} crashes of either database during push and follow`, async () => {
      const random = new Random(11);
      const server = await sandbox.serve(store);
      const api = await login(server.address, installation);
      const log = sandbox.write('events.ndjson', '');
      const options = ['--data', sandbox.data, '--project', installation.project_id, ...store];
      const follow = sandbox.start(['follow', ...options, '--format', 'events', '--source', 'file', log]);
      let pushed = 0;
      let written = 0;
      let refusals = 0;
      let isDone = false;
      const pushing = (async () => {
        for (; !isDone; pushed++) refusals += await pushUntilCounted(server, api, `batch ${pushed}`);
      })();
      const writing = (async () => {
        for (; !isDone; written += 50) {
          appendFileSync(log, ndjson(events(50)));
          await sleep(30);
        }
      })();
      for (let i = 0; i < RESTARTS; i++) {
        const before = pushed;
        await eventually(() => pushed > before || undefined, 'another batch');
        await sleep(random.integer(0, 200));
        if (i % 2 === 0) {
          await clickhouse.servers[0]?.kill();
          await sleep(random.integer(0, 300));
          await clickhouse.servers[0]?.start();
        } else {
          await postgres.kill();
          await sleep(random.integer(0, 300));
          await postgres.run();
        }
      }
      isDone = true;
      await Promise.all([pushing, writing]);
      expect(pushed).toBeGreaterThanOrEqual(RESTARTS);
      expect(refusals).toBeGreaterThan(0);
      await eventually(async () => {
        const { requests } = await api.timeline(RANGE);
        return sum(requests) === pushed * 100 + written || undefined;
      }, 'the followed lines');
      // Nothing arrives later.
      await sleep(1_000);
      await expectRequests(api, pushed * 100 + written);
      follow.signal('SIGTERM');
      expect((await follow.end()).status).toBe(0);
      const sources = await api.getJson<{ items: { name: string; events: number }[] }>('connections');
      expect(sources.items.map(({ events }) => events).toSorted((a, b) => a - b)).toEqual(
        [pushed * 100, written].toSorted((a, b) => a - b),
      );
    });

    test('a process that is paused while another one aborts its append counts it once, although its rows arrive', async () => {
      const server = await sandbox.serve(store);
      const api = await login(server.address, installation);
      await pushUntilCounted(server, api, 'first');
      const attempts = `service_${databases}_clickhouse.attempts`;
      for (let i = 0; i < 3; i++) {
        clickhouse.servers[0]?.pause();
        const pushing = pushUntilCounted(server, api, `paused ${i}`);
        await eventually(
          () => postgres.sql(`SELECT count(*) FROM ${attempts} WHERE NOT aborted`) === '1' || undefined,
          'an open attempt',
        );
        server.process.signal('SIGSTOP');
        // As another process does after the time limit of the append.
        postgres.sql(`UPDATE ${attempts} SET aborted = true`);
        clickhouse.servers[0]?.resume();
        await sleep(100);
        server.process.signal('SIGCONT');
        await pushing;
        await expectRequests(api, (i + 2) * 100);
      }
    });

    test('while ClickHouse is down, also at startup, the service returns 503, and it recovers', async () => {
      const [first] = clickhouse.servers;
      await first?.kill();
      const server = await sandbox.serve(store);
      const api = await login(server.address, installation);
      for (const path of ['/readyz', `/v1/${api.project}/waf/event/timeline?${RANGE}`]) {
        const response = await call(server.address, path, { headers: { 'X-Auth-Token': api.token } });
        expect(response.status).toBe(503);
        expect(JSON.parse(response.text).error_msg).toMatch(/the store is unavailable; retry later/);
      }
      expect((await call(server.address, '/healthz')).status).toBe(200);
      expect((await push(server, api, 'early')).status).toBe(503);
      await first?.start();
      await pushUntilCounted(server, api, 'early');
      await expectRequests(api, 100);
      expect((await call(server.address, '/readyz')).status).toBe(200);
    });

    test('while ClickHouse hangs, pushes are refused in bounded time, and none counts twice', async () => {
      const server = await sandbox.serve([...store, '--clickhouse-timeout', '3']);
      const api = await login(server.address, installation);
      await pushUntilCounted(server, api, 'first');
      for (const one of clickhouse.servers) one.pause();
      const outcomes = await Promise.all(
        Array.from({ length: 4 }, (_, i) => push(server, api, `large ${i}`, 20_000)),
      );
      expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set([503]));
      for (const one of clickhouse.servers) one.resume();
      for (let i = 0; i < 4; i++) await pushUntilCounted(server, api, `large ${i}`, 20_000);
      await expectRequests(api, 80_100);
    });

    test('after a copy to ClickHouse and back, ingest continues where it stopped', async () => {
      const file = sandbox.write('events.ndjson', ndjson(events(2_000)));
      const ingest = (...more: string[]) =>
        sandbox.run(['ingest', '--data', sandbox.data, '--project', 'default', ...more, file]);
      const copy = (to: string, data = sandbox.data) =>
        sandbox.run(['copy', '--data', data, '--project', 'default', '--to', to, ...store.slice(2)]);
      expect((await ingest()).stdout).toMatch(/^accepted +2000$/m);
      for (let i = 0; i < 2; i++) {
        const { status, stdout } = await copy('clickhouse');
        expect([status, stdout]).toEqual([
          0,
          'copied and verified: both stores have 2000 requests and 2000 attacks, and the same top lists\n',
        ]);
      }
      expect((await ingest(...store)).stdout).toMatch(/^read before +2000$/m);
      appendFileSync(file, ndjson(events(10)));
      expect((await ingest(...store)).stdout).toMatch(/^accepted +10$/m);

      const elsewhere = await sandbox.run([
        ...[
          'copy',
          '--data',
          sandbox.data,
          '--project',
          'default',
          '--from',
          'clickhouse',
          '--to',
          'postgres',
        ],
        ...store.slice(2),
      ]);
      expect([elsewhere.status, elsewhere.stdout]).toEqual([0, expect.stringMatching(/copied and verified/)]);

      // Both stores have counts of their own now: adding one to the other would count twice.
      for (const to of ['lmdb', 'clickhouse']) {
        const mixed = await copy(to);
        expect([mixed.status, mixed.stderr]).toEqual([1, expect.stringMatching(/nothing was copied: /)]);
      }
      expect((await ingest(...store)).stdout).toMatch(/^read before +2010$/m);
      rmSync(sandbox.path('data/statistics.mdb'));
      expect((await sandbox.run(['repair', '--data', sandbox.data, '--accept-statistics'])).status).toBe(0);
      expect((await copy('lmdb')).stdout).toMatch(/copied and verified: both stores have/);
      expect((await ingest()).stdout).toMatch(/^read before +2010$/m);
      const api = await login((await sandbox.serve()).address, installation);
      await expectRequests(api, 2_010);
    });

    test('a machine that only ships logs needs the ID of the project, but no data directory', async () => {
      const file = sandbox.write('events.ndjson', ndjson(events(30)));
      const ingest = (project: string, ...more: string[]) =>
        sandbox.run(['ingest', '--project', project, ...more, file]);
      expect((await ingest(installation.project_id, ...store)).stdout).toMatch(/^accepted +30$/m);
      // The users and projects of this installation are in its data directory, not in PostgreSQL.
      const named = await ingest('default', ...store);
      expect([named.status, named.stderr]).toEqual([1, expect.stringMatching(/has no wafstat installation/)]);
      const embedded = await ingest(installation.project_id);
      expect([embedded.status, embedded.stderr]).toEqual([2, expect.stringMatching(/--data .* is required/)]);
      const api = await login((await sandbox.serve(store)).address, installation);
      await expectRequests(api, 30);
    });

    test('with --clickhouse-migrate never, missing tables are an error, until migrate creates them', async () => {
      const options = ['--data', sandbox.data, '--project', 'default', ...store];
      const file = sandbox.write('events.ndjson', ndjson(events(10)));
      const args = ['ingest', ...options, '--format', 'events', '--clickhouse-migrate', 'never', file];
      const refused = await sandbox.run(args);
      expect([refused.status, refused.stderr]).toEqual([
        1,
        expect.stringMatching(/has no tables; create them with 'wafstat migrate'/),
      ]);
      const serve = ['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0', ...store];
      for (const [wrong, sentence] of [
        [['--clickhouse-migrate', 'never'], /has no tables; create them/],
        [['--clickhouse-user', 'nobody'], /denied access: .*nobody/],
      ] as const) {
        const ended = await sandbox.run([...serve, ...wrong]);
        expect([ended.status, ended.stderr]).toEqual([1, expect.stringMatching(sentence)]);
      }
      const migrate = ['migrate', ...store.slice(2)];
      for (let i = 0; i < 2; i++) expect((await sandbox.run(migrate)).status).toBe(0);
      expect((await sandbox.run(args)).stdout).toMatch(/^accepted +10$/m);
      expect((await sandbox.run(args)).stdout).toMatch(/^read before +10$/m);
    });
  },
);
