/** `--workers`: several processes on one port. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { beginTokenRequest, call, exchangeRequest, login, stopsListening } from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { scaled } from './random.ts';
import { ndjson, Sandbox, type Server } from './sandbox.ts';

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

/** In a process group, so that no worker survives the test. */
const serveTwo = () => sandbox.serve(['--workers', '2'], { group: true });

/** The processes that have responded so far, according to the log. */
function respondingPids({ process: { stderr } }: Server): Set<number> {
  const lines = wholeLines(stderr).map((line): { pid: number; status?: number } => JSON.parse(line));
  return new Set(lines.filter(({ status }) => status !== undefined).map(({ pid }) => pid));
}

/** Sends requests on new connections until this many processes have responded. */
function callUntilServedBy(server: Server, count: number): Promise<number[]> {
  return eventually(async () => {
    const { status } = await call(server.address, '/healthz', { headers: { connection: 'close' } });
    expect(status).toBe(200);
    const pids = respondingPids(server);
    return pids.size >= count ? [...pids] : undefined;
  }, `responses of ${count} processes`);
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const allGone = (pids: readonly number[]) =>
  eventually(() => pids.every((pid) => !runs(pid)) || undefined, 'the end of all workers');

test('both workers respond, and the address is printed once', async () => {
  const installation = await sandbox.init();
  const server = await serveTwo();
  const pids = await callUntilServedBy(server, 2);
  expect(pids).not.toContain(server.process.pid);
  expect(server.process.stdout.match(/wafstat listens on/g)).toHaveLength(1);
  expect(await server.process.line('console: ')).toBe(`console: ${server.address}/console/`);
  // A token issued by one worker is valid at the other.
  const api = await login(server.address, installation);
  for (let i = 0; i < 10; i++) {
    expect((await api.get('connections', { headers: { connection: 'close' } })).status).toBe(200);
  }
  server.process.signal('SIGTERM');
  expect(await server.process.end()).toMatchObject({ status: 0, signal: null });
  await allGone(pids);
});

test('all threads of a worker share one heap of malloc', async () => {
  await sandbox.init();
  const server = await serveTwo();
  for (const pid of await callUntilServedBy(server, 2)) {
    expect(readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')).toContain('MALLOC_ARENA_MAX=1');
  }
});

test('the first start creates one installation', async () => {
  const { process } = await serveTwo();
  await process.line('password ');
  expect(process.stdout.match(/^password /gm)).toHaveLength(1);
});

test('a killed worker is replaced while the other keeps responding', async () => {
  await sandbox.init();
  const server = await serveTwo();
  const [victim = 0] = await callUntilServedBy(server, 2);
  process.kill(victim, 'SIGKILL');
  await allGone([victim]);
  const pids = await callUntilServedBy(server, 3);
  expect(server.process.stderr).toContain(`worker ${victim} ended by SIGKILL; starting another`);
  server.process.signal('SIGTERM');
  expect((await server.process.end()).status).toBe(0);
  await allGone(pids);
});

test('connections of a killed worker are closed, also one that it had not accepted yet', async () => {
  await sandbox.init();
  const server = await serveTwo();
  const [victim = 0] = await callUntilServedBy(server, 2);
  process.kill(victim, 'SIGSTOP');
  const { hostname, port } = new URL(server.address);
  const sockets = Array.from({ length: 8 }, () => connect(Number(port), hostname).on('error', () => {}));
  try {
    const outcomes: string[] = [];
    for (const socket of sockets) {
      socket.setEncoding('utf8').once('data', (text: string) => outcomes.push(text));
      socket.once('close', () => outcomes.push('closed'));
      socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
    }
    // The primary passes one connection to the stopped worker, and the others to the one that confirms them.
    await eventually(() => outcomes.length === 7 || undefined, 'the responses of the other worker');
    process.kill(victim, 'SIGKILL');
    await eventually(() => outcomes.length === 8 || undefined, 'the end of the last connection');
    expect(outcomes[7]).toBe('closed');
    for (const outcome of outcomes.slice(0, 7)) expect(outcome).toMatch(/^HTTP\/1\.1 200 /);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
});

test('a worker that hangs is killed and replaced', async () => {
  await sandbox.init();
  const server = await serveTwo();
  const [victim = 0] = await callUntilServedBy(server, 2);
  process.kill(victim, 'SIGSTOP');
  await allGone([victim]);
  const message = `worker ${victim} has not responded for 10 s`;
  await eventually(() => server.process.stderr.includes(message) || undefined, message);
  await callUntilServedBy(server, 3);
});

test('no worker outlives a killed parent or keeps the store locked', async () => {
  const installation = await sandbox.init();
  for (let round = 1; round <= scaled(2); round++) {
    const server = await serveTwo();
    const pids = await callUntilServedBy(server, 2);
    const { project, token } = await login(server.address, installation);
    const body = ndjson(Array.from({ length: 500 }, (_, i) => ({ time: Date.now() - i })));
    const headers = { 'X-Auth-Token': token, connection: 'close' };
    let pushed = 0;
    const push = async () => {
      while (
        (await call(server.address, `/ingest/v1/${project}`, { method: 'POST', headers, body })).status ===
        200
      )
        pushed++;
    };
    // Each ends with a request that fails.
    const pushing = Promise.allSettled(Array.from({ length: 8 }, push));
    await eventually(() => pushed > 40 || undefined, 'some pushes');
    server.process.signal('SIGKILL');
    await allGone(pids);
    await pushing;
    const hostname = `new-${round}.example`;
    const added = await sandbox.runJson('host', 'add', hostname, '--project', project);
    expect(added).toMatchObject({ hostname });
  }
});

test.each([
  ['the parent', 'signal'],
  ['the whole process group, as init systems do', 'signalGroup'],
] as const)('SIGTERM to %s: requests in flight are served before all processes end', async (_, signal) => {
  const installation = await sandbox.init();
  const server = await serveTwo();
  const pids = await callUntilServedBy(server, 2);
  const body = JSON.stringify(exchangeRequest(await login(server.address, installation)));
  const slow = await beginTokenRequest(server.address, body);
  try {
    server.process[signal]('SIGTERM');
    await stopsListening(server.address);
    // The idle worker ends first.
    await eventually(() => pids.some((pid) => !runs(pid)) || undefined, 'the end of a worker');
    slow.send(body);
    await slow.receives('201 Created');
    expect(await server.process.end()).toMatchObject({ status: 0, signal: null });
  } finally {
    slow.end();
    await allGone(pids);
  }
});

test('a port in use ends all processes with an error message', async () => {
  const { address } = await sandbox.serve();
  const { host } = new URL(address);
  const args = ['serve', '--data', sandbox.data, '--listen', host, '--workers', '2'];
  const { status, stderr } = await sandbox.start(args).end();
  expect(status).toBeGreaterThan(0);
  expect(stderr).toContain(`cannot listen on ${host}`);
});
