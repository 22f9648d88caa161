/** The service on PostgreSQL in operation: several processes, and a database that fails and returns. */
import { appendFileSync, rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { generate } from 'selfsigned';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login, sum } from './api.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually, type Process } from './process.ts';
import { Random, scaled } from './random.ts';
import { type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';

const START = Date.now() - 3_600_000;
const RANGE = `from=${START}&to=${START + 1_000_000}`;
const RESTARTS = scaled(4);

const events = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ time: START + i, host: `h${i % 7}.example`, attack: 'xss' }));

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    let postgres: PostgresServer;
    let certificate: { cert: string; private: string };
    let sandbox: Sandbox;
    let installation: Installation;
    let store: string[];
    let schemas = 0;
    beforeAll(async () => {
      certificate = await generate([{ name: 'commonName', value: '127.0.0.1' }], {
        keySize: 2048,
        extensions: [{ name: 'subjectAltName', altNames: [{ type: 7, ip: '127.0.0.1' }] }],
      });
      postgres = await PostgresServer.start({
        fsync: true,
        tls: { cert: certificate.cert, key: certificate.private },
      });
    });
    afterAll(() => postgres?.stop());
    beforeEach(async () => {
      sandbox = new Sandbox();
      installation = await sandbox.init();
      store = [
        ...['--store', 'postgres', '--postgres-url', postgres.url],
        ...['--postgres-password-file', sandbox.write('password', `${PASSWORD}\n`)],
        ...['--postgres-schema', `service_${++schemas}`],
      ];
    });
    afterEach(() => sandbox.clear());

    const push = (server: Server, api: Api, key: string, count = 100): Promise<HttpResponse> =>
      call(server.address, `/ingest/v1/${installation.project_id}`, {
        method: 'POST',
        headers: { 'X-Auth-Token': api.token, 'Idempotency-Key': key },
        body: ndjson(events(count)),
      });

    /** Retries after 503 and 429, as log shippers do. */
    async function pushUntilCounted(
      server: Server,
      api: Api,
      key: string,
      onRefusal = () => {},
    ): Promise<void> {
      for (;;) {
        const { status, headers, text } = await push(server, api, key);
        if (status === 200) return;
        onRefusal();
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

    test('ingest continues when PostgreSQL is back, and counts each line once', async () => {
      const server = await sandbox.serve(store);
      const api = await login(server.address, installation);
      const log = sandbox.write('events.ndjson', '');
      const where = ['--data', sandbox.data, '--project', installation.project_id, ...store];
      // Few events of many bytes, because each chunk of a megabyte is one transaction.
      const lines = ndjson(events(20_000).map((event) => ({ ...event, padding: 'x'.repeat(1_000) })));
      let ingest: Process;
      let count = 0;
      do {
        appendFileSync(log, lines);
        const before = count;
        count += 20_000;
        ingest = sandbox.start(['ingest', ...where, '--format', 'events', log]);
        const counted = async () => sum((await api.timeline(RANGE)).requests);
        await eventually(async () => (await counted()) > before || undefined, 'a chunk');
        await postgres.kill();
        const warns = () => ingest.stderr.includes('; retrying') || ingest.hasEnded || undefined;
        await eventually(warns, 'a warning');
        await postgres.run();
        expect((await ingest.end()).status).toBe(0);
        const isBack = async () => (await api.get('waf/instance')).status === 200 || undefined;
        await eventually(isBack, 'the service');
        // If this process paused, everything was counted before the kill.
      } while (!ingest.stderr.includes('; retrying') && count < 100_000);
      expect(ingest.stderr).toContain('; retrying');
      await expectRequests(api, count);
    });

    test(`totals are exact after ${RESTARTS} crashes of PostgreSQL and of wafstat during push and follow`, async () => {
      const random = new Random(12);
      let server = await sandbox.serve(store);
      let api = await login(server.address, installation);
      const log = sandbox.write('events.ndjson', '');
      const where = ['--data', sandbox.data, '--project', installation.project_id, ...store];
      const follow = () => sandbox.start(['follow', ...where, '--format', 'events', '--source', 'file', log]);
      let following = follow();
      let pushed = 0;
      let written = 0;
      let refusals = 0;
      let over = false;
      const pushing = (async () => {
        // Ends after a batch that was acknowledged: one that got no response may have been counted.
        for (let isLast = false; !isLast; ) {
          try {
            await pushUntilCounted(server, api, `batch ${pushed}`, () => refusals++);
            pushed++;
            isLast = over;
          } catch (error) {
            // The connection to a killed process. The retry goes to its successor.
            if (!(error instanceof Error && 'code' in error)) throw error;
            await sleep(50);
          }
        }
      })();
      const writing = (async () => {
        for (; !over; written += 50) {
          appendFileSync(log, ndjson(events(50)));
          await sleep(30);
        }
      })();
      for (let i = 0; i < RESTARTS; i++) {
        const before = pushed;
        await eventually(() => pushed > before || undefined, 'another batch');
        await sleep(random.integer(0, 200));
        await postgres.kill();
        await sleep(random.integer(0, 300));
        await postgres.run();
        await following.kill();
        following = follow();
        await server.process.kill();
        const next = await sandbox.serve(store);
        api = await login(next.address, installation);
        server = next;
      }
      over = true;
      await Promise.all([pushing, writing]);
      expect(pushed).toBeGreaterThanOrEqual(RESTARTS);
      expect(refusals).toBeGreaterThan(0);
      await eventually(async () => {
        const { requests } = await api.timeline(RANGE);
        return sum(requests) >= pushed * 100 + written || undefined;
      }, 'the followed lines');
      // Nothing arrives later.
      await sleep(1_000);
      await expectRequests(api, pushed * 100 + written);
      following.signal('SIGTERM');
      expect((await following.end()).status).toBe(0);
      const sources = await api.getJson<{ items: { name: string; events: number }[] }>('connections');
      expect(sources.items.map(({ events }) => events).toSorted((a, b) => a - b)).toEqual(
        [pushed * 100, written].toSorted((a, b) => a - b),
      );
    });

    test('while PostgreSQL is down, also at startup, the service returns 503, and it recovers', async () => {
      await postgres.kill();
      const server = await sandbox.serve(store);
      const api = await login(server.address, installation);
      for (const path of ['/readyz', `/v1/${api.project}/waf/event/timeline?${RANGE}`]) {
        const answer = await call(server.address, path, { headers: { 'X-Auth-Token': api.token } });
        expect(answer.status).toBe(503);
        expect(JSON.parse(answer.text).error_msg).toMatch(/the store is unavailable; retry later/);
      }
      expect((await call(server.address, '/healthz')).status).toBe(200);
      const refused = await push(server, api, 'early');
      expect(refused.status).toBe(503);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      // A log that grows meanwhile is read from where it was.
      const log = sandbox.write('events.ndjson', ndjson(events(30)));
      const where = ['--data', sandbox.data, '--project', installation.project_id, ...store];
      const follow = sandbox.start(['follow', ...where, '--format', 'events', log]);
      appendFileSync(log, ndjson(events(20)));
      await postgres.run();
      await pushUntilCounted(server, api, 'early');
      await eventually(async () => {
        const { requests } = await api.timeline(RANGE);
        return sum(requests) >= 150 || undefined;
      }, 'the followed lines');
      await expectRequests(api, 150);
      expect((await call(server.address, '/readyz')).status).toBe(200);
      follow.signal('SIGTERM');
      expect((await follow.end()).status).toBe(0);
    });

    test('while PostgreSQL hangs, pushes are refused in bounded time, and none counts twice', async () => {
      const server = await sandbox.serve([...store, '--postgres-timeout', '3']);
      const api = await login(server.address, installation);
      await pushUntilCounted(server, api, 'first');
      postgres.pause();
      const outcomes = await Promise.all(Array.from({ length: 4 }, (_, i) => push(server, api, `late ${i}`)));
      expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set([503]));
      postgres.resume();
      for (let i = 0; i < 4; i++) await pushUntilCounted(server, api, `late ${i}`);
      await expectRequests(api, 500);
    });

    test('hosts, sources and the horizon are managed on the command line', async () => {
      const file = sandbox.write('events.ndjson', ndjson(events(30)));
      const where = ['--data', sandbox.data, '--project', 'default', ...store];
      const ingested = await sandbox.run(['ingest', ...where, '--format', 'events', file]);
      expect(ingested.stdout).toMatch(/^accepted +30$/m);
      expect((await sandbox.run(['host', 'add', 'new.example', ...where])).status).toBe(0);
      const hosts = await sandbox.run(['host', 'list', ...where, '--json']);
      expect(JSON.parse(hosts.stdout)).toHaveLength(8);
      const sources = await sandbox.run(['source', 'list', ...where, '--json']);
      expect(JSON.parse(sources.stdout)).toMatchObject([{ events: 30 }]);
      const horizon = await sandbox.run(['horizon', ...store, '--json']);
      expect(JSON.parse(horizon.stdout)).toMatchObject({ freed_before: 0 });
    });

    test('after a copy to PostgreSQL and back, ingest continues where it stopped', async () => {
      const file = sandbox.write('events.ndjson', ndjson(events(2_000)));
      const ingest = (...more: string[]) =>
        sandbox.run(['ingest', '--data', sandbox.data, '--project', 'default', ...more, file]);
      const copy = (...direction: string[]) =>
        sandbox.run([
          'copy',
          '--data',
          sandbox.data,
          '--project',
          'default',
          ...direction,
          ...store.slice(2),
        ]);
      expect(await copy('--to', 'postgres')).toMatchObject({
        status: 0,
        stderr: expect.stringMatching(/the project default has no requests and no attacks in the store lmdb/),
      });
      expect((await ingest()).stdout).toMatch(/^accepted +2000$/m);
      for (let i = 0; i < 2; i++) {
        const { status, stdout } = await copy('--to', 'postgres');
        expect([status, stdout]).toEqual([
          0,
          'copied and verified: both stores have 2000 requests and 2000 attacks, and the same top lists and kept attacks\n',
        ]);
      }
      expect((await ingest(...store)).stdout).toMatch(/^read before +2000$/m);
      appendFileSync(file, ndjson(events(10)));
      expect((await ingest(...store)).stdout).toMatch(/^accepted +10$/m);

      // Both stores have counts of their own now: adding one to the other would count twice.
      for (const to of ['lmdb', 'postgres']) {
        const mixed = await copy('--to', to);
        expect([mixed.status, mixed.stderr]).toEqual([1, expect.stringMatching(/nothing was copied: /)]);
      }
      rmSync(sandbox.path('data/statistics.mdb'));
      expect((await sandbox.run(['repair', '--data', sandbox.data, '--accept-statistics'])).status).toBe(0);
      expect((await copy('--to', 'lmdb')).stdout).toMatch(/copied and verified: both stores/);
      expect((await ingest()).stdout).toMatch(/^read before +2010$/m);
      for (const [more, problem] of [
        [['--to', 'postgres', ...store.slice(2)], /--data .* is required/],
        [['--to', 'postgres', '--data', sandbox.data], /--postgres-url .* is required/],
        [['--to', 'lmdb', '--data', sandbox.data], /--postgres-url .* is required/],
      ] as const) {
        const refused = await sandbox.run(['copy', '--project', 'default', ...more]);
        expect([refused.status, refused.stderr]).toEqual([2, expect.stringMatching(problem)]);
      }
    });

    test('missing tables, a wrong password and unverified TLS are errors that say what to do', async () => {
      const serve = ['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0', ...store];
      const ca = sandbox.write('ca.pem', certificate.cert);
      for (const [wrong, sentence] of [
        [['--postgres-migrate', 'never'], /has no tables; create them with 'wafstat migrate'/],
        [
          ['--postgres-password-file', sandbox.write('wrong', 'no')],
          /denied access: password authentication failed/,
        ],
        [
          ['--postgres-url', `${postgres.url}nowhere`],
          /denied access: database "postgresnowhere" does not exist/,
        ],
        [
          ['--postgres-url', `${postgres.url}?sslmode=verify-full`],
          /cannot be used: self-signed certificate/,
        ],
        [
          [
            '--postgres-url',
            `postgres://wafstat@localhost:${postgres.port}/postgres?sslmode=verify-full&sslrootcert=${ca}`,
          ],
          /cannot be used: .*does not match certificate/,
        ],
      ] as const) {
        const ended = await sandbox.run([...serve, ...wrong]);
        expect([ended.status, ended.stderr]).toEqual([1, expect.stringMatching(sentence)]);
        expect(ended.stderr).not.toContain(PASSWORD);
      }
      const verified = ['--postgres-url', `${postgres.url}?sslmode=verify-full&sslrootcert=${ca}`];
      for (let i = 0; i < 2; i++) {
        const { status, stdout } = await sandbox.run(['migrate', ...store.slice(2), ...verified]);
        expect([status, stdout]).toEqual([
          0,
          expect.stringMatching(/^the tables in the schema service_\d+ are ready on/),
        ]);
      }
      const file = sandbox.write('events.ndjson', ndjson(events(10)));
      const where = ['--project', installation.project_id, ...store, ...verified];
      const ingest = ['ingest', ...where, '--format', 'events', '--postgres-migrate', 'never', file];
      expect((await sandbox.run(ingest)).stdout).toMatch(/^accepted +10$/m);
      expect((await sandbox.run(ingest)).stdout).toMatch(/^read before +10$/m);
    });
  },
);
