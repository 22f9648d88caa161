/** Clients that hold connections: unfinished requests, too many connections, unread responses. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Identity, openIdentity } from '../identity/identity.ts';
import { memoryStore } from '../store/memory.ts';
import { createApp } from './app.ts';

let directory: string;
let identity: Identity;
let app: FastifyInstance;
let logged = '';
const sockets: Socket[] = [];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-connections-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), Date.now);
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
    timeouts: { headersMs: 200, stalledMs: 3_000, requestMs: 300, ignoredBodyMs: 100 },
    logger: { level: 'warn', stream },
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
});

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
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\nX-Unfinished: ');
  const [response] = await once(socket, 'data');
  expect(String(response)).toContain('the request took too long to arrive');
  if (!serverSide.destroyed) await once(serverSide, 'close');
  expect(serverSide.destroyed).toBe(true);
});

test('connections over the limit are closed and logged', async () => {
  await Promise.all([open(), open(), open()]);
  const over = await open();
  over.resume();
  await once(over, 'end');
  expect(logged).toContain('refused 1 connections: 3 are open (--max-connections)');
});

test('a client that does not read its responses loses the connection', async () => {
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

test('a client that does not finish the body of a small request gets an error, and its descriptor is freed', async () => {
  const serving = served();
  const socket = await open();
  const serverSide = await serving;
  socket.write('POST /v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{');
  const [response] = await once(socket, 'data');
  expect(String(response)).toContain('the request took too long to arrive');
  if (!serverSide.destroyed) await once(serverSide, 'close');
});

test('a client that keeps sending a refused body loses the connection', async () => {
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
