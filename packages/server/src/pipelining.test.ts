import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import { requestShed } from './diagnostics.ts';
import { PIPELINE_LIMITS, serveInTurn } from './pipelining.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const WAIT = { timeout: 60_000 };
/** Far more than the buffers of the system hold. */
const LARGE = Buffer.alloc(32_000_000);

let server: Server;
const clients: Socket[] = [];
const shed: string[] = [];
requestShed.subscribe((reason) => shed.push(reason));

async function listen(serve: RequestListener, limits: Partial<typeof PIPELINE_LIMITS> = {}): Promise<void> {
  server = createServer();
  serveInTurn(server, serve, { ...PIPELINE_LIMITS, ...limits });
  await once(server.listen(0, '127.0.0.1'), 'listening');
}

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  shed.length = 0;
  await new Promise((resolve) => server.close(resolve));
});

/** Both sides of a new connection whose client does not read. */
async function open(localAddress = '127.0.0.1'): Promise<{ client: Socket; side: Socket }> {
  const { port } = server.address() as AddressInfo;
  const client = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => {});
  clients.push(client);
  client.pause();
  const [[side]] = await Promise.all([once(server, 'connection'), once(client, 'connect')]);
  return { client, side: side as Socket };
}

test('pipelined requests are served one after the other, one per event-loop turn', async () => {
  const turns: number[] = [];
  let turn = 0;
  let inProgress = 0;
  let isDone = false;
  await listen(async (_request, response) => {
    expect(++inProgress).toBe(1);
    turns.push(turn);
    response.end('x', () => inProgress--);
  });
  const counting = (async () => {
    for (; !isDone; turn++) await setImmediate();
  })();
  const { client } = await open();
  client.resume().write(REQUEST.repeat(50));
  await vi.waitFor(() => expect(turns).toHaveLength(50), WAIT);
  isDone = true;
  await counting;
  expect(new Set(turns).size).toBe(50);
});

test('requests whose connection closes before their turn are not served', async () => {
  let served = 0;
  await listen(() => served++);
  const { client, side } = await open();
  client.write(REQUEST.repeat(50));
  await vi.waitFor(() => expect(served).toBe(1), WAIT);
  client.destroy();
  await once(side, 'close');
  for (let i = 0; i < 100; i++) await setImmediate();
  expect(served).toBe(1);
});

test.each([
  ['small requests', REQUEST.repeat(200)],
  ['large headers', `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(15_000)}\r\n\r\n`.repeat(50)],
  ['bodies', `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 15000\r\n\r\n${'a'.repeat(15_000)}`.repeat(50)],
])('a connection on which too much waits is closed: %s', async (_what, requests) => {
  let served = 0;
  await listen(() => served++, { waitingBytesMax: 500_000 });
  const { client, side } = await open();
  client.write(requests);
  await once(side, 'close');
  expect(served).toBe(1);
  expect(shed).toEqual(['pipelined']);
});

test('what waits on all connections is bounded, and freed when they close', async () => {
  await listen(() => {}, { waitingBytesTotal: 300_000 });
  const first = await open();
  first.client.write(REQUEST.repeat(60));
  const second = await open();
  second.client.write(REQUEST.repeat(60));
  await Promise.race([once(first.side, 'close'), once(second.side, 'close')]);
  expect(shed).toEqual(['pipelined']);
  for (const { client, side } of [first, second]) {
    client.destroy();
    if (!side.closed) await once(side, 'close');
  }
  const third = await open();
  third.client.write(REQUEST.repeat(60));
  const fourth = await open();
  fourth.client.write(REQUEST.repeat(5));
  await vi.waitFor(() => expect(fourth.side.bytesRead).toBe(5 * REQUEST.length), WAIT);
  expect(shed).toEqual(['pipelined']);
});

test('over the limit on what waits, the largest connection of the client that holds most is closed', async () => {
  await listen(() => {}, { waitingBytesTotal: 300_000 });
  const connections = [];
  for (const [address, count] of [
    ['127.0.0.1', 30],
    ['127.0.0.2', 15],
    ['127.0.0.2', 25],
    ['127.0.0.2', 20],
    ['127.0.0.3', 5],
  ] as const) {
    const connection = await open(address);
    connections.push(connection);
    connection.client.write(REQUEST.repeat(count));
    await vi.waitFor(() => expect(connection.side.bytesRead).toBe(count * REQUEST.length), WAIT);
  }
  expect(connections.map(({ side }) => side.destroyed)).toEqual([false, false, true, false, false]);
  expect(shed).toEqual(['pipelined']);
});

test('over the limit on unsent bytes, the largest connection of the client that holds most is closed', async () => {
  await listen(({ url }, response) => response.end(LARGE.subarray(0, Number(url?.slice(1)))), {
    unsentBytesTotal: 80_000_000,
  });
  const ask = async ({ client, side }: { client: Socket; side: Socket }, bytes: number) => {
    client.write(REQUEST.replace('/', `/${bytes}`));
    await vi.waitFor(() => expect(side.writableLength).toBeGreaterThan(0), WAIT);
  };
  const reader = await open();
  await ask(reader, 32_000_000);
  const strangers = [];
  for (const bytes of [20_000_000, 22_000_000, 18_000_000]) {
    const stranger = await open('127.0.0.2');
    strangers.push(stranger);
    await ask(stranger, bytes);
  }
  expect(strangers.map(({ side }) => side.destroyed)).toEqual([false, true, false]);
  expect(reader.side.destroyed).toBe(false);
  let received = 0;
  reader.client.resume().on('data', ({ length }: Buffer) => {
    received += length;
  });
  await vi.waitFor(() => expect(received).toBeGreaterThan(32_000_000), WAIT);
  // The limit allows another one that is not read.
  reader.client.pause();
  await ask(reader, 32_000_000);
  expect(shed).toEqual(['unread']);
});

test('a single response may exceed the limit on unsent bytes', async () => {
  await listen((_request, response) => response.end(LARGE), { unsentBytesTotal: 1 });
  const { client } = await open();
  let received = 0;
  client.resume().on('data', ({ length }: Buffer) => {
    received += length;
  });
  client.write(REQUEST);
  await vi.waitFor(() => expect(received).toBeGreaterThan(LARGE.length), WAIT);
});

test('a client that reads too slowly loses the connection', async () => {
  await listen((_request, response) => response.end(LARGE), { unsentMs: 500 });
  const { client, side } = await open();
  client.write(REQUEST);
  // One byte at a time: data moves, so the connection does not count as stalled.
  client.on('readable', () => client.read(1));
  await once(side, 'close');
  expect(shed).toEqual(['unread']);
});
