/** Clients that hold connections: unfinished requests, too many connections, unread responses. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import { createApp } from './app.ts';
import { drain, type Timeouts } from './connections.ts';

let directory: string;
let identity: Identity;
let app: FastifyInstance;
let logged = '';
/** The paths of the requests that the service has begun to serve. */
let started: string[] = [];
const startedDocuments = () => started.filter((url) => url === '/openapi.json').length;
const sockets: Socket[] = [];

beforeEach(async () => {
  logged = '';
  started = [];
  directory = mkdtempSync(join(tmpdir(), 'wafstat-connections-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), Date.now);
});

/** The other timeouts are the defaults: a machine that pauses must not exceed those that a test is not about. */
async function listen(timeouts: Partial<Timeouts> = {}): Promise<void> {
  const stream = new Writable({
    write(chunk, _encoding, done) {
      logged += chunk;
      done();
    },
  });
  app = await createApp({
    store: memoryStore(),
    identity,
    now: Date.now,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 86_400_000, hostsMax: 10 },
    maxConnections: 3,
    timeouts,
    logger: { level: 'warn', stream },
  });
  app.addHook('onRequest', async ({ url }) => void started.push(url));
  await app.listen({ host: '127.0.0.1', port: 0 });
}

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

/** A client that never closes its side. */
async function open(): Promise<Socket> {
  const { port } = app.server.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  sockets.push(socket);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** The server's side of the next connection. */
async function served(): Promise<Socket> {
  const [socket] = (await once(app.server, 'connection')) as [Socket];
  return socket;
}

test('a client that does not finish its headers gets an error, and its descriptor is freed', async () => {
  await listen({ headersMs: 200 });
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\nX-Unfinished: ');
  const [response] = await once(socket, 'data');
  expect(String(response)).toContain('the request took too long to arrive');
  if (!serverSide.destroyed) await once(serverSide, 'close');
  expect(serverSide.destroyed).toBe(true);
});

test('a connection that a browser has opened in advance is closed without a response', async () => {
  await listen({ headersMs: 200 });
  const socket = await open();
  let received = '';
  socket.on('data', (bytes) => {
    received += bytes;
  });
  await once(socket, 'end');
  expect(received).toBe('');
});

test('connections over the limit are closed and logged', async () => {
  await listen();
  await Promise.all([open(), open(), open()]);
  const over = await open();
  over.resume();
  await once(over, 'end');
  expect(logged).toContain('refused 1 connections: 3 are open (--max-connections)');
});

test('a client that does not read its responses loses the connection', async () => {
  await listen({ stalledMs: 3_000 });
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.pause();
  // Far more than the buffers between the two hold.
  const requests = 'GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(500);
  socket.write(requests);
  await once(serverSide, 'close');
  expect(serverSide.destroyed).toBe(true);
});

/** Waits until the connections have made no progress for many event-loop turns, with a request of another one in between. */
async function settled(progress: () => number): Promise<void> {
  let before = -1;
  while (progress() !== before) {
    before = progress();
    const other = await open();
    other.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(other, 'data');
    other.destroy();
    for (let i = 0; i < 100; i++) await setImmediate();
  }
}

test('a connection with an unread response is not served further', async () => {
  await listen();
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.pause();
  const count = 200;
  socket.write('GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(count));
  await settled(startedDocuments);
  // The buffers between the two hold a few; one more waits.
  expect(startedDocuments()).toBeLessThan(count / 2);
  expect(serverSide.writableLength).toBeLessThan(1_000_000);
  // The rest is served, in order, when the client reads.
  const ids: string[] = [];
  let tail = '';
  socket.on('data', (bytes: Buffer) => {
    const text = tail + bytes.toString('latin1');
    const found = [...text.matchAll(/X-Request-Id: (\w+)\r/g)];
    ids.push(...found.map(([, id = '']) => id));
    tail = found.length > 0 ? '' : text.slice(-60);
  });
  socket.resume();
  await vi.waitFor(() => expect(ids).toHaveLength(count), 60_000);
  expect(ids).toEqual(ids.toSorted());
});

test('a client that does not finish the body of a small request gets an error, and its descriptor is freed', async () => {
  await listen({ requestMs: 300 });
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.write('POST /v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{');
  const [response] = await once(socket, 'data');
  expect(String(response)).toContain('the request took too long to arrive');
  if (!serverSide.destroyed) await once(serverSide, 'close');
});

test('a client that keeps sending a refused body loses the connection', async () => {
  await listen({ ignoredBodyMs: 100 });
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.write(`POST /ingest/v1/p HTTP/1.1\r\nHost: x\r\nX-Auth-Token: x\r\nContent-Length: 1000000\r\n\r\n`);
  const sending = setInterval(() => socket.write('x'), 10);
  const [response] = await once(socket, 'data');
  expect(String(response)).toContain('HTTP/1.1 401');
  if (!serverSide.destroyed) await once(serverSide, 'close');
  clearInterval(sending);
});

test.each([
  ['many headers', `POST /v3/auth/tokens HTTP/1.1\r\nHost: x\r\n${'A: b\r\n'.repeat(2_100)}`],
  ['a malformed path', 'POST /%zz HTTP/1.1\r\nHost: x\r\n'],
])('a client that hides a slow body behind %s loses the connection', async (_what, start) => {
  await listen({ ignoredBodyMs: 100 });
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.write(`${start}Content-Length: 60000\r\n\r\n{`);
  const [response] = await once(socket, 'data');
  expect(String(response)).toMatch(/^HTTP\/1.1 400 /);
  const slow = setInterval(() => socket.write('x'), 20);
  if (!serverSide.destroyed) await once(serverSide, 'close');
  clearInterval(slow);
  expect(serverSide.destroyed).toBe(true);
});

test('a request that arrives while the process is stopped during shutdown gets a response', async () => {
  await listen();
  const socket = await open();
  let received = '';
  socket.setEncoding('utf8').on('data', (text: string) => {
    received += text;
  });
  const closed = once(socket, 'end');
  const request = 'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n';
  socket.write(request);
  await vi.waitFor(() => expect(received).toContain('"status":"ok"'), 60_000);
  const drained = drain(app, 0);
  while (!app.stopping) await setImmediate();
  await setImmediate();
  received = '';
  socket.write(request);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
  await drained;
  await Promise.all([app.close(), closed]);
  expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\nConnection: close\r\n/is);
  expect(received).toContain('"status":"ok"');
});
