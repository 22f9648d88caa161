/** Full disks, failing disks and stopped processes: queries still work, changes are refused, counts stay exact. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login, sum } from './api.ts';
import { eventually, PROGRAM, type Process } from './process.ts';
import { type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';

const START = Date.now() - 3_600_000;
const PUSHERS = 8;
const FAULTS = 4;
const FAKETIME = `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu/faketime/libfaketime.so.1`;

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

interface Service {
  installation: Installation;
  server: Server;
  api: Api;
}

/** Writes beyond this size fail with EFBIG, which the store must treat like a full disk. */
function limitFileSize({ pid }: Process, bytes: number | 'unlimited'): void {
  execFileSync('prlimit', ['--pid', String(pid), `--fsize=${bytes}:`]);
}

function push({ api }: Service, events: readonly object[], key?: string): Promise<HttpResponse> {
  return call(api.address, `/ingest/v1/${api.project}`, {
    method: 'POST',
    headers: { 'X-Auth-Token': api.token, ...(key && { 'Idempotency-Key': key }) },
    body: ndjson(events),
  });
}

function logout({ api }: Service, token: string): Promise<HttpResponse> {
  const headers = { 'X-Auth-Token': api.token, 'X-Subject-Token': token };
  return call(api.address, '/v3/auth/tokens', { method: 'DELETE', headers });
}

const ready = async ({ server }: Service) => (await call(server.address, '/readyz')).status;
const isReady = (service: Service) => async () => (await ready(service)) === 200 || undefined;
const counted = async ({ api }: Service) =>
  sum((await api.timeline(`from=${START}&to=${START + 3_600_000}`)).requests);
const events = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ time: START + i, host: `${i % 7}.example` }));

function expectRefused(response: HttpResponse, reason: string): void {
  expect(response.text).toContain(reason);
  // Paths are for the log.
  expect(response.text).not.toContain(sandbox.directory);
  expect(response.status).toBe(503);
  expect(Number(response.headers['retry-after'])).toBeGreaterThan(0);
}

describe('a disk that takes no more writes', () => {
  test('changes are refused, queries work, and everything works again once there is space', async () => {
    const service = await sandbox.service();
    const { server, installation } = service;
    const { token } = await login(server.address, installation);
    expect((await push(service, events(100))).status).toBe(200);

    limitFileSize(server.process, 4_096);
    const refused = await push(service, events(50), 'batch 1');
    expectRefused(refused, 'the disk is full');
    expect(refused.text).toContain('the disk is full; nothing was changed; retry later');
    const logged = /the disk is full: cannot write .*statistics\.mdb .*; nothing was changed/;
    await eventually(() => logged.test(server.process.stderr) || undefined, 'the log to name the file');
    expectRefused(await logout(service, token), 'the disk is full');
    expectRefused(await call(server.address, '/readyz'), 'writes fail, queries still work: the disk is full');
    expect((await call(server.address, '/healthz')).status).toBe(200);
    expect(await counted(service)).toBe(100);
    // A login writes nothing; the token is still valid because the logout was refused.
    await login(server.address, installation);
    expect((await logout({ ...service, api: { ...service.api, token } as Api }, 'x')).status).not.toBe(401);

    limitFileSize(server.process, 'unlimited');
    await eventually(isReady(service), 'the service to be ready again');
    expect(JSON.parse((await push(service, events(50), 'batch 1')).text)).toMatchObject({ accepted: 50 });
    expect(JSON.parse((await push(service, events(50), 'batch 1')).text)).toMatchObject({ duplicate: true });
    expect((await logout(service, token)).status).toBe(204);
    expect(await counted(service)).toBe(150);
    server.process.signal('SIGTERM');
    expect((await server.process.end()).status).toBe(0);
  });

  test('pushes that are retried until they succeed count once', async () => {
    const service = await sandbox.service();
    const { server } = service;
    let acknowledged = 0;
    let refused = 0;
    let isDone = false;
    const pushers = Array.from({ length: PUSHERS }, async (_, pusher) => {
      for (let batch = 0; !isDone; batch++) {
        for (;;) {
          const { status, text } = await push(service, events(20), `${pusher} ${batch}`);
          if (status === 200) break;
          expect(`${status} ${text}`).toMatch(/^503 .*the disk is full/);
          refused++;
        }
        acknowledged += 20;
      }
    });
    for (let fault = 0; fault < FAULTS; fault++) {
      const [before, refusedBefore] = [acknowledged, refused];
      await eventually(() => acknowledged > before + 200 || undefined, 'pushes to be counted');
      // A different limit each time: near the start or the end of the file.
      limitFileSize(server.process, 4_096 * (2 + fault * 20));
      await eventually(() => refused > refusedBefore + 20 || undefined, 'pushes to be refused');
      limitFileSize(server.process, 'unlimited');
    }
    isDone = true;
    await Promise.all(pushers);
    expect(await counted(service)).toBe(acknowledged);
  });

  test('commands fail with a message, and follow continues where it stopped', async () => {
    const service = await sandbox.service();
    const { installation } = service;
    const log = sandbox.write('access.ndjson', ndjson(events(500)));
    const options = ['--data', sandbox.data, '--project', installation.project_id, '--format', 'events'];
    const program = ['prlimit', '--fsize=8192:', process.execPath, PROGRAM] as const;
    const limited = (...args: string[]) => sandbox.start(args, { program }).end();

    const ingest = await limited('ingest', ...options, log);
    expect(ingest.stderr).toMatch(/^wafstat: the disk is full: cannot write .*; nothing was changed$/m);
    expect(ingest.status).toBe(1);
    const user = await limited('user', 'add', 'ann', '--data', sandbox.data, '--role', 'reader');
    expect(user.stderr).toMatch(/^wafstat: the disk is full/m);
    expect(user.status).toBe(1);

    const follow = sandbox.start(['follow', ...options, log], { program });
    await eventually(() => follow.stderr.includes('the disk is full') || undefined, 'follow to fail');
    expect(await counted(service)).toBe(0);
    limitFileSize(follow, 'unlimited');
    await eventually(async () => (await counted(service)) === 500 || undefined, 'follow to continue');
  });
});

/** Needs the right to mount a file system. */
const mounted: string[] = [];
function mountSmall(directory: string, bytes: number): boolean {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes},mode=700`, 'tmpfs', directory]).status !== 0)
    return false;
  mounted.push(directory);
  return true;
}

describe('a file system that fills up', () => {
  afterEach(async () => {
    await sandbox.clear().catch(() => {});
    for (const directory of mounted.splice(0)) spawnSync('umount', [directory]);
  });

  test('space is reserved for revocations, which work on a full disk', async (context) => {
    if (!mountSmall(sandbox.data, 32 * 1_048_576)) {
      if (process.env.CI === 'true') throw new Error('tmpfs cannot be mounted');
      context.skip('tmpfs cannot be mounted');
    }
    const service = await sandbox.service();
    const { server, installation } = service;
    expect((await push(service, events(100))).status).toBe(200);
    const ballast = join(sandbox.data, 'ballast');
    const free = () => {
      const { bavail, bsize } = statfsSync(sandbox.data);
      return bavail * bsize;
    };

    writeFileSync(ballast, Buffer.alloc(free() - 1_048_576));
    const refused = await eventually(async () => {
      const response = await push(service, events(1));
      return response.status === 200 ? undefined : response;
    }, 'the reserve to be respected');
    expectRefused(refused, 'the disk is full; nothing was changed');
    const logged = `${sandbox.data} has ${free()} bytes free, less than the`;
    await eventually(() => server.process.stderr.includes(logged) || undefined, 'the log to name the path');
    expectRefused(await call(server.address, '/readyz'), 'the disk is full');
    const before = await counted(service);

    writeFileSync(ballast, Buffer.alloc(free()), { flag: 'a' });
    expect(free()).toBe(0);
    for (let i = 0; i < 20; i++) {
      const { token } = await login(server.address, installation);
      expect((await logout(service, token)).status).toBe(204);
    }
    expect(await counted(service)).toBe(before);

    // The next process starts on the full disk and serves queries.
    server.process.signal('SIGTERM');
    expect((await server.process.end()).status).toBe(0);
    const next = await sandbox.serve();
    const restarted = { installation, server: next, api: await login(next.address, installation) };
    expect(await counted(restarted)).toBe(before);

    rmSync(ballast);
    await eventually(isReady(restarted), 'the service to be ready again');
    expect((await push(restarted, events(10))).status).toBe(200);
    expect(await counted(restarted)).toBe(before + 10);
  });
});

describe('a stopped process that holds the write lock', () => {
  const BLOCK_LINES = 1_000;
  const STOPS_MAX = 1_000;

  const MESSAGE = 'another process holds the write lock';

  interface Stopped {
    /** How many events were pushed before. */
    pushed: number;
    /** Lets the ingest continue to its end, and resolves to the number of its lines. */
    finish(): Promise<number>;
  }

  /**
   * Stops an ingest in the middle of a transaction: pushes are refused as long as it holds the lock. Its input has no end
   * before `finish`, however long this process pauses.
   */
  async function stopInTransaction(service: Service): Promise<Stopped> {
    const block = ndjson(events(BLOCK_LINES));
    let blocks = 0;
    let isOver = false;
    const stdin = Readable.from(
      (function* () {
        for (; !isOver; blocks++) yield block;
      })(),
    );
    const options = [
      '--data',
      sandbox.data,
      '--project',
      service.installation.project_id,
      '--format',
      'events',
    ];
    const ingest = sandbox.start(['ingest', ...options, '-'], { stdin });
    const finish = async () => {
      isOver = true;
      ingest.signal('SIGCONT');
      expect((await ingest.end()).status).toBe(0);
      return blocks * BLOCK_LINES;
    };
    await eventually(async () => (await counted(service)) > 0 || undefined, 'the ingest to count');
    for (let pushed = 0; ; pushed++) {
      ingest.signal('SIGSTOP');
      const response = await push(service, events(1), `push ${pushed}`);
      if (response.status !== 200) {
        expectRefused(response, MESSAGE);
        return { pushed, finish };
      }
      if (pushed === STOPS_MAX) throw new Error(`the ingest held no lock in ${STOPS_MAX} stops`);
      ingest.signal('SIGCONT');
      // At a different moment of a transaction each time.
      await new Promise((resolve) => setTimeout(resolve, pushed % 7));
    }
  }

  test('pushes are refused after 5 s, queries work, and after it continues everything counts once', async () => {
    const service = await sandbox.service();
    const { server } = service;
    const { pushed, finish } = await stopInTransaction(service);
    const others = Array.from({ length: PUSHERS }, () => push(service, events(10), 'same'));
    const before = await counted(service);
    for (const other of await Promise.all(others)) expectRefused(other, MESSAGE);
    expectRefused(await call(server.address, '/readyz'), MESSAGE);
    // More pushes than the thread pool has threads: logins and queries must still find one.
    await Promise.all(Array.from({ length: 6 }, () => push(service, events(10), 'same')));
    await login(server.address, service.installation);
    expect(await counted(service)).toBe(before);

    const lines = await finish();
    await eventually(isReady(service), 'the service to be ready again');
    expect(await counted(service)).toBe(lines + pushed);
    expect(JSON.parse((await push(service, events(10), 'same')).text)).toMatchObject({ accepted: 10 });
    expect(JSON.parse((await push(service, events(10), 'same')).text)).toMatchObject({ duplicate: true });
    expect(await counted(service)).toBe(lines + pushed + 10);
  });

  test('the service stops and starts, with one process or several', async () => {
    const service = await sandbox.service();
    const { finish } = await stopInTransaction(service);
    service.server.process.signal('SIGTERM');
    expect(await service.server.process.end()).toMatchObject({ status: null, signal: 'SIGTERM' });

    for (const args of [[], ['--workers', '2']]) {
      const server = await sandbox.serve(args);
      const next = { ...service, server, api: await login(server.address, service.installation) };
      expect(await counted(next)).toBeGreaterThan(0);
      expectRefused(await push(next, events(10)), MESSAGE);
      server.process.signal('SIGTERM');
      const { status, signal } = await server.process.end();
      expect(signal ?? status).toBe(args.length > 0 ? 0 : 'SIGTERM');
    }
    expect(await finish()).toBeGreaterThan(0);
  });

  test('a command fails with a message', async () => {
    const service = await sandbox.service();
    const { finish } = await stopInTransaction(service);
    const args = ['host', 'add', 'new.example', '--data', sandbox.data, '--project', 'default'];
    const host = await sandbox.start(args).end();
    expect(host.stderr).toMatch(/^wafstat: another process holds the write lock of .*statistics\.mdb/m);
    expect(host.signal).toBe('SIGTERM');
    expect(await finish()).toBeGreaterThan(0);
  });
});

/** A clock 26 hours behind, as on a machine that starts without a battery, until `correct`. */
describe.skipIf(!existsSync(FAKETIME) && process.env.CI !== 'true')('a clock that is behind', () => {
  const LINES = 1_000;
  const lines = () =>
    ndjson(Array.from({ length: LINES }, (_, i) => ({ time: START + i, host: 'a.example' })));

  function slowClock() {
    const file = sandbox.write('clock', '-26h\n');
    return {
      env: {
        LD_PRELOAD: FAKETIME,
        FAKETIME_TIMESTAMP_FILE: file,
        FAKETIME_NO_CACHE: '1',
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      },
      correct: () => writeFileSync(file, '+0\n'),
    };
  }

  const sourceOptions = (project: string) => [
    '--data',
    sandbox.data,
    '--project',
    project,
    '--format',
    'events',
  ];
  const accepted = async (project: string) =>
    (await sandbox.runJson<{ events: number }[]>('source', 'list', '--project', project))[0]?.events ?? 0;

  test('follow waits, says so, and counts every line when the clock is right', async () => {
    const { project_id: project } = await sandbox.init();
    const clock = slowClock();
    const log = sandbox.write('live.ndjson', lines());
    const follow = sandbox.start(['follow', ...sourceOptions(project), log], { env: clock.env });
    await eventually(
      () => follow.stderr.includes('more than 24 hours in the future') || undefined,
      'the reason in the log',
    );
    expect(await accepted(project)).toBe(0);
    clock.correct();
    await eventually(async () => (await accepted(project)) === LINES || undefined, 'all lines to be counted');
    await eventually(() => follow.stderr.includes('reading continues') || undefined, 'the end of the wait');
  });

  test('ingest has status 1 and marks nothing as read', async () => {
    const { project_id: project } = await sandbox.init();
    const log = sandbox.write('log.ndjson', lines());
    const args = ['ingest', ...sourceOptions(project), log];
    const refused = await sandbox.start(args, { env: slowClock().env }).end();
    expect(refused.status).toBe(1);
    expect(refused.stderr).toContain(
      'no line is in time, and the first that is more than 24 hours in the future',
    );
    expect((await sandbox.run(args)).status).toBe(0);
    expect(await accepted(project)).toBe(LINES);
  });

  test('a push is refused, and counts when it is sent again with the same key', async () => {
    const installation = await sandbox.init();
    const clock = slowClock();
    const server = await sandbox.serve([], { env: clock.env });
    const service = { installation, server, api: await login(server.address, installation) };
    const sent = Array.from({ length: 3 }, (_, i) => ({ time: START + i }));
    expectRefused(await push(service, sent, 'key'), 'nothing was counted: no line is in time');
    clock.correct();
    const api = await login(server.address, installation);
    expect(JSON.parse((await push({ ...service, api }, sent, 'key')).text)).toMatchObject({
      accepted: 3,
      duplicate: false,
    });
  });
});

test('lines in the future among others are dropped, and stop nothing', async () => {
  const { project_id: project } = await sandbox.init();
  const future = Array.from({ length: 600 }, (_, i) => ({ time: START + 400 * 86_400_000 + i }));
  const first = sandbox.write('future.ndjson', ndjson(future.splice(0, 100)));
  const log = sandbox.write('mixed.ndjson', ndjson([...future, ...events(500)]));
  const args = ['ingest', '--data', sandbox.data, '--project', project, '--format', 'events', first, log];
  const { status, stdout } = await sandbox.run(args);
  expect([status, /accepted +500/.test(stdout), /dropped +600/.test(stdout)]).toEqual([0, true, true]);
});
