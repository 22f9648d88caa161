/** The service on PostgreSQL: a full disk, clocks that differ, stopped processes, the same lines in several processes. */
import { spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login, sum } from './api.ts';
import { flakyProxy } from './flaky-proxy.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';

const HOUR_MS = 3_600_000;
const DISK_BYTES = 256 * 1_048_576;
const FAKETIME = `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu/faketime/libfaketime.so.1`;

/** PostgreSQL must not get space back by itself while the disk is full, however long a test takes. */
const PARAMETERS = {
  autovacuum: 'off',
  checkpoint_timeout: '1d',
  // The recovery after a crash can succeed, and deletes old segments of the log.
  restart_after_crash: 'off',
};

interface Service {
  server: Server;
  api: Api;
}

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    let disk: string;
    let isMounted: boolean;
    let postgres: PostgresServer;
    let sandbox: Sandbox;
    let installation: Installation;
    let store: string[];
    let start: number;
    let schemas = 0;
    beforeAll(async () => {
      disk = mkdtempSync(join(tmpdir(), 'wafstat-disk-'));
      isMounted =
        spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=755`, 'tmpfs', disk]).status === 0;
      postgres = await PostgresServer.start({ directory: disk, parameters: PARAMETERS });
    });
    afterAll(async () => {
      await postgres?.stop();
      if (isMounted) spawnSync('umount', [disk]);
      rmSync(disk, { recursive: true, force: true });
    });
    beforeEach(async () => {
      sandbox = new Sandbox();
      installation = await sandbox.init();
      start = Date.now() - HOUR_MS;
      store = [
        ...['--store', 'postgres', '--postgres-url', postgres.url],
        ...['--postgres-password-file', sandbox.write('password', `${PASSWORD}\n`)],
        ...['--postgres-schema', `faults_${++schemas}`],
      ];
    });
    afterEach(async () => {
      rmSync(join(disk, 'ballast'), { force: true });
      await sandbox.clear();
    });

    const events = (count: number, first = start) =>
      Array.from({ length: count }, (_, i) => ({
        time: first + i,
        host: `h${i % 7}.example`,
        attack: 'xss',
      }));

    async function serve(args: readonly string[] = [], env: Record<string, string> = {}): Promise<Service> {
      const server = await sandbox.serve([...store, ...args], { env });
      return { server, api: await login(server.address, installation) };
    }

    const push = ({ server, api }: Service, key: string, lines: readonly object[]): Promise<HttpResponse> =>
      call(server.address, `/ingest/v1/${installation.project_id}`, {
        method: 'POST',
        headers: { 'X-Auth-Token': api.token, 'Idempotency-Key': key },
        body: ndjson(lines),
      });

    async function pushUntilCounted(service: Service, key: string, lines: readonly object[]): Promise<void> {
      await eventually(async () => {
        const { status } = await push(service, key, lines);
        if (status !== 200) expect(status).toBe(503);
        return status === 200 || undefined;
      }, `${key} to be counted`);
    }

    async function counted({ api }: Service): Promise<number> {
      const { requests } = await api.timeline(`from=${start - 48 * HOUR_MS}&to=${start + 48 * HOUR_MS}`);
      return sum(requests);
    }

    function expectRefused({ status, headers, text }: HttpResponse, sentence: RegExp): void {
      expect([status, JSON.parse(text).error_msg]).toEqual([503, expect.stringMatching(sentence)]);
      expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    }

    test('while the disk of PostgreSQL is full, pushes get 503, queries work, and nothing is lost', async (context) => {
      if (!isMounted) {
        if (process.env.CI === 'true') throw new Error('tmpfs cannot be mounted');
        context.skip('tmpfs cannot be mounted: run the test as root');
      }
      const service = await serve();
      let pushed = 0;
      /** Each batch is in other minutes, so that tables must grow. */
      const next = () => push(service, `batch ${pushed}`, events(500, start - pushed * 60_000));
      const fill = async () => {
        for (;;) {
          const response = await next();
          if (response.status !== 200) return response;
          pushed++;
        }
      };
      const ballast = join(disk, 'ballast');
      // A new segment of its log: if one ended while the disk is full, PostgreSQL would stop.
      for (const statement of ['SELECT pg_switch_wal()', 'CHECKPOINT']) postgres.sql(statement);
      const { bavail, bsize } = statfsSync(disk);
      writeFileSync(ballast, Buffer.alloc(bavail * bsize - 1_048_576));
      expectRefused(await fill(), /^the disk is full; nothing was changed; retry later$/);
      expect(pushed).toBeGreaterThan(0);
      expect(await counted(service)).toBe(pushed * 500);
      const ready = () => call(service.server.address, '/readyz');
      expectRefused(await ready(), /writes fail, queries still work: the disk is full/);
      expect((await call(service.server.address, '/healthz')).status).toBe(200);

      rmSync(ballast);
      // Load balancers send no pushes before that.
      await eventually(async () => (await ready()).status === 200 || undefined, 'the service to be ready');
      expect((await next()).status).toBe(200);
      pushed++;
      expect(await counted(service)).toBe(pushed * 500);

      // Without space for its log, PostgreSQL stops.
      writeFileSync(ballast, '');
      const rest = statfsSync(disk);
      appendFileSync(ballast, Buffer.alloc(rest.bavail * rest.bsize));
      await eventually(() => {
        try {
          return void postgres.sql(
            "SELECT pg_logical_emit_message(false, '', repeat(md5(random()::text), 300000))",
          );
        } catch {
          return true;
        }
      }, 'PostgreSQL to stop');
      expectRefused(await next(), /^the store is unavailable/);
      expectRefused(await ready(), /^the store is unavailable/);
      rmSync(ballast);
      await postgres.kill();
      await postgres.run();
      await pushUntilCounted(service, `batch ${pushed}`, events(500, start - pushed * 60_000));
      pushed++;
      expect(await counted(service)).toBe(pushed * 500);
      expect(
        sum(await service.api.distribution(`from=${start - 48 * HOUR_MS}&to=${start + 48 * HOUR_MS}`)),
      ).toBe(pushed * 500);
      expect((await ready()).status).toBe(200);
    });

    test('processes whose clocks differ by an hour count the same events once, and remove none too early', async (context) => {
      if (!existsSync(FAKETIME)) {
        if (process.env.CI === 'true') throw new Error('libfaketime is not installed');
        context.skip('needs apt-get install libfaketime');
      }
      const clock = (offset: string) => ({
        LD_PRELOAD: FAKETIME,
        FAKETIME: offset,
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      });
      const retention = ['--retention', '1d'];
      const right = await serve(retention);
      // Nearly a day old: an hour more, and it would be too old.
      await pushUntilCounted(right, 'old', events(50, start - 22.5 * HOUR_MS));
      const behind = await serve(retention, clock('-1h'));
      const ahead = await serve(retention, clock('+1h'));
      const services = [right, behind, ahead];
      const responses = await Promise.all(
        services.flatMap((service) =>
          Array.from({ length: 10 }, (_, i) => push(service, `${i}`, events(20))),
        ),
      );
      expect(responses.map(({ status }) => status)).toEqual(responses.map(() => 200));
      expect(responses.filter(({ text }) => !JSON.parse(text).duplicate)).toHaveLength(10);
      // Retention runs at the start of each; a clock that is behind does not move the horizon.
      for (const { server } of [right, ahead]) {
        await eventually(
          () => server.process.stderr.includes('the horizon moves from') || undefined,
          'the horizon to move',
        );
      }
      for (const service of services) expect(await counted(service)).toBe(250);
      const horizon = Number(postgres.sql(`SELECT horizon FROM faults_${schemas}.retention`));
      expect(horizon).toBeLessThanOrEqual(Date.now() - 24 * HOUR_MS);
      expect(postgres.sql(`SELECT freed_before FROM faults_${schemas}.retention`)).toBe('0');
    });

    test('a process that is stopped in a transaction delays its project for a bounded time, and counts once', async (context) => {
      const proxy = await flakyProxy(postgres.url, 0, Math.random);
      context.onTestFinished(() => proxy.stop());
      const url = postgres.url.replace(String(postgres.port), new URL(proxy.url).port);
      // The other one gives up long before PostgreSQL ends the transaction, also on a slow machine.
      const [stopped, other] = [
        await serve(['--postgres-url', url, '--postgres-timeout', '10']),
        await serve(['--postgres-timeout', '1']),
      ];
      const inTransaction = () =>
        postgres.sql(
          `SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xid IS NOT NULL`,
        ) === '1';
      await pushUntilCounted(stopped, 'first', events(500));
      // The process waits for a response in its transaction when it is stopped.
      proxy.hold((chunk) => chunk.includes('BEGIN'));
      const pushing = pushUntilCounted(stopped, 'second', events(500, start + 1_000));
      pushing.catch(() => {});
      await eventually(() => inTransaction() || undefined, 'an open transaction');
      stopped.server.process.signal('SIGSTOP');
      proxy.release();
      expectRefused(await push(other, 'other', events(10)), /retry later/);
      // Other projects do not wait, and queries do not either.
      const project = await sandbox.runJson<{ id: string }>(
        'project',
        'add',
        'second',
        '--domain',
        installation.domain,
      );
      const file = sandbox.write('events.ndjson', ndjson(events(10)));
      const where = ['--project', project.id, ...store, '--data', sandbox.data];
      expect((await sandbox.run(['ingest', ...where, '--format', 'events', file])).stdout).toMatch(
        /^accepted +10$/m,
      );
      expect(await counted(other)).toBeGreaterThan(0);
      // PostgreSQL ends the transaction of the stopped process.
      await pushUntilCounted(other, 'other', events(10));
      stopped.server.process.signal('SIGCONT');
      await pushing;
      expect([await counted(other), await counted(stopped)]).toEqual([1_010, 1_010]);
    });

    test('a growing file that several processes follow and ingest at the same time counts once', async () => {
      const service = await serve();
      const log = sandbox.write('events.ndjson', ndjson(events(1_000)));
      const where = ['--data', sandbox.data, '--project', installation.project_id, ...store];
      const options = [...where, '--format', 'events', '--source', 'file', log];
      const following = [1, 2].map(() => sandbox.start(['follow', ...options]));
      let lines = 1_000;
      for (let i = 0; i < 3; i++) {
        const ingests = [1, 2].map(() => sandbox.start(['ingest', ...options]).end());
        appendFileSync(log, ndjson(events(3_000)));
        lines += 3_000;
        for (const { status } of await Promise.all(ingests)) expect(status).toBe(0);
      }
      await eventually(async () => (await counted(service)) >= lines || undefined, 'all lines');
      for (const follow of following) {
        follow.signal('SIGTERM');
        expect((await follow.end()).status).toBe(0);
      }
      expect(await counted(service)).toBe(lines);
      const { items } = await service.api.getJson<{ items: { events: number }[] }>('connections');
      expect(items.map((source) => source.events)).toEqual([lines]);
    });
  },
);
