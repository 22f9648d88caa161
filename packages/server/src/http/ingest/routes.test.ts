/** Pushes as clients send them: in parts of any size, aborted anywhere, slowly, many at once, signed by strangers. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { sign } from '@wafstat/signer';
import fc from 'fast-check';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import { CHUNK_LINES_MAX, LINE_BYTES_MAX, LineBlock } from '../../ingest/lines.ts';
import { Pipeline } from '../../ingest/pipeline.ts';
import { createReader } from '../../ingest/reader.ts';
import { type Batch, type Store, StoreUnavailable } from '../../store/store.ts';
import { createApp } from '../app.ts';

const NOW = Date.UTC(2026, 10, 15, 12);
const HOUR_MS = 3_600_000;

let directory: string;
let identity: Identity;
let store: Store;
let app: FastifyInstance;
let project: string;
let token: string;
let key: { access: string; secret: string };
/** Called before each append; may throw. */
let beforeAppend: (batch: Batch) => void;
const sockets: Socket[] = [];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-ingest-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  await identity.administration.bootstrap(
    { domain: 'default', project: 'default', user: 'admin' },
    'password',
  );
  project = identity.administration.projectNamed('default').id;
  key = await identity.administration.addKey(identity.administration.userNamed('admin').id, '');
  beforeAppend = () => {};
  const memory = memoryStore(() => NOW);
  store = {
    ...memory,
    async append(batch) {
      beforeAppend(batch);
      return memory.append(batch);
    },
  };
  app = await createApp({
    store,
    identity,
    now: () => NOW,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 50_000_000,
    rateLimit: 0,
    limits: { retentionMs: 24 * HOUR_MS, hostsMax: 10 },
    logger: false,
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const login = await identity.authenticator.login(
    {
      user: { name: 'admin', domain: { name: 'default' } },
      password: 'password',
      scope: { project: { id: project } },
    },
    { address: '127.0.0.1', request_id: 'test', via: 'api' },
  );
  if (typeof login === 'string') throw new Error(login);
  token = login.text;
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function open(): Promise<Socket> {
  const { port } = app.server.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1' });
  sockets.push(socket);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

const head = (headers: Record<string, string | number>, query = '') =>
  `POST /ingest/v1/${project}${query} HTTP/1.1\r\n${Object.entries({ Host: 'waf.example.com', ...headers })
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n`;

const withToken = () => ({ 'X-Auth-Token': token });

/** The status and the body of the next response on the connection. */
async function response(socket: Socket): Promise<{ status: number; body: Record<string, unknown> }> {
  let text = '';
  for await (const part of socket.iterator({ destroyOnReturn: false })) {
    text += part;
    const [headers = '', body] = text.split('\r\n\r\n', 2);
    const length = Number(/content-length: (\d+)/i.exec(headers)?.[1] ?? -1);
    if (body !== undefined && body.length >= length && length >= 0) {
      return { status: Number(text.slice(9, 12)), body: JSON.parse(body) };
    }
  }
  throw new Error(`no response: ${text.slice(0, 100)}`);
}

async function push(body: string | Buffer, headers: Record<string, string | number> = {}, query = '') {
  const socket = await open();
  socket.write(head({ ...withToken(), 'Content-Length': Buffer.byteLength(body), ...headers }, query));
  socket.write(body);
  return response(socket);
}

async function counts(): Promise<{ requests: number; attacks: number }> {
  const [requests, attacks] = await store.count({
    project,
    edges: [0, NOW + 48 * HOUR_MS],
    rows: 'timeline',
  });
  return { requests: requests[0] ?? 0, attacks: attacks[0] ?? 0 };
}

const event = (i: number) => `{"time":${NOW - i},"host":"h${i % 20}.example.com"}\n`;
const events = (count: number) => Array.from({ length: count }, (_, i) => event(i)).join('');
const access = (i: number) =>
  `192.0.2.${i % 200} - - [15/Nov/2026:11:00:00 +0000] "GET /${i} HTTP/1.1" 200 5\n`;
/** An attack as ModSecurity writes it to the error log of nginx: two lines for one request. */
const attack = (i: number) =>
  [942_100, 949_110]
    .map(
      (rule) =>
        `2026/11/15 11:30:00 [error] 7#7: *${i} [client 192.0.2.9] ModSecurity: Access denied with code 403 (phase 2). Matched "Operator \`Ge' with parameter \`5' against variable \`TX:ANOMALY_SCORE' (Value: \`5' ) [file "/x/REQUEST-942.conf"] [line "1"] [id "${rule}"] [rev ""] [msg "SQL Injection"] [data ""] [severity "2"] [ver ""] [maturity "0"] [accuracy "0"] [tag "attack-sqli"] [hostname "h1.example.com"] [uri "/"] [unique_id "u${i}"] [ref ""], client: 192.0.2.9, server: h1.example.com, request: "GET / HTTP/1.1", host: "h1.example.com"\n`,
    )
    .join('');

/** Text that hardly compresses; the same each time. */
const noise = (length: number, seed = '') =>
  createHash('shake256', { outputLength: length }).update(seed).digest('base64').slice(0, length);

const bodies = fc
  .array(
    fc.constantFrom(
      events(CHUNK_LINES_MAX + 7),
      events(3),
      'nonsense\n',
      '\n',
      Array.from({ length: 500 }, (_, i) => access(i)).join(''),
      Array.from({ length: 40 }, (_, i) => attack(i)).join(''),
      `${noise(1_100_000)}\n`,
      event(1).trimEnd(),
    ),
    { minLength: 1, maxLength: 5 },
  )
  .map((parts) => parts.join(''));

async function sourceOf(where: Store, name: string) {
  const source = (await where.sources(project)).find((candidate) => candidate.name === name);
  if (source === undefined) throw new Error(`there is no source ${name}`);
  return source;
}

/** The same lines in a separate store, read at once and counted as one batch. */
async function oracle(text: string) {
  const reference = memoryStore(() => NOW);
  const pipeline = new Pipeline(reference, { retentionMs: 24 * HOUR_MS, hostsMax: 10 }, () => NOW);
  const lines = [...new LineBlock(Buffer.from(text), 1)].map((line) =>
    line.text.length > LINE_BYTES_MAX ? { ...line, text: null } : line,
  );
  const read = pipeline.read(lines, createReader({ format: 'auto' }), 'all');
  const counted = await pipeline.count(read, { project, source: { name: 'all', format: 'auto' } });
  if (counted.kind !== 'counted') throw new Error(counted.kind);
  const { accepted, dropped, first_drops, without_host } = counted.outcome;
  return {
    source: await sourceOf(reference, 'all'),
    response: { accepted, dropped, first_drops, without_host, duplicate: false },
  };
}

test('a push counts like a file: in any parts, compressed or not, aborted anywhere and retried with its key', async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(
      bodies,
      fc.boolean(),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 }),
      fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { maxLength: 3 }),
      async (text, isCompressed, splits, aborts) => {
        const source = `run ${++run}`;
        const query = `?source=${encodeURIComponent(source)}`;
        const body = isCompressed ? gzipSync(text) : Buffer.from(text);
        const headers = {
          ...withToken(),
          'Idempotency-Key': 'key',
          'Content-Length': body.length,
          ...(isCompressed ? { 'Content-Encoding': 'gzip' } : {}),
        };
        for (const abort of aborts) {
          const socket = await open();
          socket.write(head(headers, query));
          await new Promise<void>((sent) => {
            socket.write(body.subarray(0, Math.floor(body.length * abort)), () => sent());
          });
          for (let turn = 0; turn < 20 * abort; turn++) await nextTurn();
          socket.destroy();
        }
        const socket = await open();
        socket.write(head(headers, query));
        const places = splits.map((fraction) => Math.floor(fraction * body.length)).sort((a, b) => a - b);
        let start = 0;
        for (const place of [...places, body.length]) {
          socket.write(body.subarray(start, place));
          start = place;
          await nextTurn();
        }
        const first = await response(socket);
        expect(first.status).toBe(200);
        expect((await push(body, headers, query)).body).toMatchObject({ accepted: 0, duplicate: true });
        const expected = await oracle(text);
        const { events: counted, dropped, first_seen, last_seen } = await sourceOf(store, source);
        expect({ counted, dropped, first_seen, last_seen }).toEqual({
          counted: expected.source.events,
          dropped: expected.source.dropped,
          first_seen: expected.source.first_seen,
          last_seen: expected.source.last_seen,
        });
        if (aborts.length === 0) expect(first.body).toEqual(expected.response);
      },
    ),
    { numRuns: scaled(25) },
  );
});

test('a late retry of the first half of a line is not joined with the next line', async () => {
  const docker = (log: string) =>
    `${JSON.stringify({ log, stream: 'stdout', time: new Date(NOW).toISOString() })}\n`;
  const line = `${JSON.stringify({ time: NOW, host: 'www.example.com', attack: 'xss' })}\n`;
  const send = async (name: string, log: string) =>
    (await push(docker(log), { 'Idempotency-Key': name }, '?source=docker')).body;
  expect(await send('first half', line.slice(0, 20))).toMatchObject({ accepted: 0 });
  expect(await send('second half', line.slice(20))).toMatchObject({ accepted: 1 });
  expect(await send('first half', line.slice(0, 20))).toMatchObject({ duplicate: true });
  expect(await send('next line', line)).toMatchObject({ accepted: 1, dropped: {} });
});

test('a push is a 503 if the store fails halfway, and a retry with its key counts the missing chunks', async () => {
  const body = events(5 * CHUNK_LINES_MAX);
  let appended = 0;
  beforeAppend = () => {
    if (++appended === 3) throw new StoreUnavailable('away');
  };
  const failed = await push(body, { 'Idempotency-Key': 'k' });
  expect([failed.status, failed.body.error_code]).toEqual([503, 'WAF.5001']);
  beforeAppend = () => {};
  const retried = await push(body, { 'Idempotency-Key': 'k' });
  expect(retried.body).toMatchObject({ duplicate: false });
  expect(retried.body.accepted).toBeLessThan(5 * CHUNK_LINES_MAX);
  expect(await counts()).toEqual({ requests: 5 * CHUNK_LINES_MAX, attacks: 0 });
});

test('a retry counts the requests of a failed push, and a next push does not count those of a successful one', async () => {
  const body = attack(1) + attack(2);
  beforeAppend = () => {
    throw new StoreUnavailable('away');
  };
  expect((await push(body)).status).toBe(503);
  beforeAppend = () => {};
  expect((await push(body)).body).toMatchObject({ accepted: 2 });
  expect((await push(body)).body).toMatchObject({ accepted: 0 });
  expect(await counts()).toEqual({ requests: 0, attacks: 2 });
});

test('two simultaneous pushes of one source count a request that is in both only once', async () => {
  const body = Array.from({ length: 100 }, (_, i) => attack(i)).join('');
  const padding = events(2 * CHUNK_LINES_MAX);
  await Promise.all([push(padding + body), push(body), push(body + padding), push(body)]);
  expect((await counts()).attacks).toBe(100);
});

test('a long push leaves the event loop free', async () => {
  let turns = 0;
  let isRunning = true;
  const pushed = push(Buffer.alloc(800_000, 'x\n')).finally(() => {
    isRunning = false;
  });
  for (; isRunning; turns++) await nextTurn();
  expect((await pushed).body).toMatchObject({ accepted: 0, dropped: { unknown_format: 400_000 } });
  expect(turns).toBeGreaterThan(400_000 / CHUNK_LINES_MAX);
});

test('a push may take longer to count than the idle timeout of its connection', async () => {
  const serving = once(app.server, 'connection');
  const socket = await open();
  const [serverSide] = (await serving) as [Socket];
  const idleMs: (number | undefined)[] = [];
  beforeAppend = () => idleMs.push(serverSide.timeout);
  socket.write(head({ ...withToken(), 'Content-Length': event(1).length }) + event(1));
  expect((await response(socket)).body).toMatchObject({ accepted: 1 });
  // None while it is counted, and one again afterwards.
  expect(idleMs).toEqual([0]);
  expect(serverSide.timeout).toBeGreaterThan(0);
});

test('a push with more host names than the limit counts in the total', async () => {
  const body = Array.from({ length: 50_000 }, (_, i) => `h${i}.x ${access(i)}`).join('');
  expect((await push(gzipSync(body), { 'Content-Encoding': 'gzip' })).body).toMatchObject({
    accepted: 50_000,
    without_host: 49_990,
  });
});

test('200 aborted connections with pipelined pushes leak nothing', async () => {
  const one = head({ ...withToken(), 'Content-Length': 10_000_000 }, '?source=aborted');
  const whole = head({ ...withToken(), 'Content-Length': event(1).length }) + event(1);
  const aborted = await Promise.all(Array.from({ length: 200 }, () => open()));
  // Together more than the share of one project.
  for (const socket of aborted) socket.write(`${whole}${whole}${one}${'x'.repeat(600_000)}`);
  for (let turn = 0; turn < 1_000; turn++) await nextTurn();
  for (const socket of aborted) socket.destroy();
  const large = events(20_000);
  for (let i = 0; i < 3; i++) expect((await push(large)).status).toBe(200);
});

test('a stranger who knows the ID of an access key can neither fill the memory nor block its owner', async () => {
  const url = `http://waf.example.com/ingest/v1/${project}`;
  const body = events(20);
  const forged = await sign(
    { method: 'POST', url, body: 'other' },
    { ...key, secret: 'wrong' },
    { now: () => NOW },
  );
  const before = process.memoryUsage().arrayBuffers;
  const strangers = await Promise.all(Array.from({ length: 60 }, () => open()));
  const garbage = Buffer.alloc(5_000_000);
  for (const socket of strangers) {
    socket.write(head({ ...forged, 'Content-Length': 12_000_000 }));
    socket.write(garbage);
  }
  for (let turn = 0; turn < 2_000; turn++) await nextTurn();
  // The strangers have sent 300 MB.
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(150_000_000);
  const signed = await sign({ method: 'POST', url, body }, key, { now: () => NOW });
  const other = await identity.administration.addKey(identity.administration.userNamed('admin').id, '');
  const ofOther = await sign({ method: 'POST', url, body }, other, { now: () => NOW });
  // Another key from the same address has a separate share.
  const socket = await open();
  socket.write(head({ ...ofOther, 'Content-Length': body.length }));
  socket.write(body);
  expect((await response(socket)).body).toMatchObject({ accepted: 20 });
  for (const stranger of strangers) stranger.destroy();
  const owner = await open();
  owner.write(head({ ...signed, 'Content-Length': body.length }));
  owner.write(body);
  expect((await response(owner)).body).toMatchObject({ accepted: 20 });
});

test('a signed push is refused before its body is sent if the key has no role', async () => {
  const bob = await identity.administration.addUser({
    name: 'bob',
    domain_id: identity.administration.domainNamed('default').id,
    access: 'both',
    password: 'password',
    roles: { [project]: ['reader'] },
  });
  const bobKey = await identity.administration.addKey(bob.id, '');
  const url = `http://waf.example.com/ingest/v1/${project}`;
  const headers = await sign({ method: 'POST', url, body: 'x' }, bobKey, { now: () => NOW });
  const socket = await open();
  socket.write(head({ ...headers, 'Content-Length': 12_000_000 }));
  expect((await response(socket)).status).toBe(403);
});

test('a body that was modified in transit counts nothing, however long it is', async () => {
  const url = `http://waf.example.com/ingest/v1/${project}`;
  const body = events(3 * CHUNK_LINES_MAX);
  const headers = await sign({ method: 'POST', url, body }, key, { now: () => NOW });
  const socket = await open();
  socket.write(head({ ...headers, 'Content-Length': body.length }));
  socket.write(body.replace('h1.', 'h2.'));
  expect((await response(socket)).status).toBe(401);
  expect(await counts()).toEqual({ requests: 0, attacks: 0 });
});

test('a body over the limit is refused, with and without Content-Length', async () => {
  const socket = await open();
  socket.write(head({ ...withToken(), 'Content-Length': 50_000_001 }));
  const announced = await response(socket);
  expect([announced.status, announced.body.error_msg]).toEqual([413, 'request body exceeds 50000000 bytes']);
  const chunked = await open();
  chunked.write(head({ ...withToken(), 'Transfer-Encoding': 'chunked' }));
  const part = Buffer.alloc(1_000_000, `${'x'.repeat(999)}\n`);
  for (let i = 0; i < 51; i++) {
    chunked.write(`${part.length.toString(16)}\r\n`);
    chunked.write(part);
    chunked.write('\r\n');
  }
  expect((await response(chunked)).status).toBe(413);
});

test.each([
  ['a short one', 'x'.repeat(1_000_000)],
  ['short lines', 'x\n'.repeat(30_000)],
  // 5 MB, 153 times its size.
  [
    'a long one',
    Array.from({ length: 500 }, (_, i) => `${'x'.repeat(10_000)}${noise(60, `${i}`)}\n`).join(''),
  ],
])('a body that compresses well is counted: %s', async (_what, body) => {
  expect((await push(gzipSync(body), { 'Content-Encoding': 'gzip' })).status).toBe(200);
});

test.each([
  ['a long line', Buffer.alloc(70_000_000)],
  // Less than 1 MiB, but not with 32 bytes for each line.
  ['short lines', 'x\n'.repeat(40_000)],
  // 15 MB, 255 times its size.
  [
    'many lines',
    Array.from({ length: 1_500 }, (_, i) => `${'x'.repeat(10_000)}${noise(30, `${i}`)}\n`).join(''),
  ],
])(
  'a body that decompresses to more than 1 MiB and 200 times its size is refused: %s',
  async (_what, body) => {
    const refused = await push(gzipSync(body), { 'Content-Encoding': 'gzip' });
    expect([refused.status, refused.body.error_msg]).toEqual([
      413,
      'request body decompresses to more than 1 MiB and 200 times its size, with 32 bytes added to each line: send it without compression',
    ]);
  },
);

const future = (count: number) => `{"time":${NOW + 48 * HOUR_MS}}\n`.repeat(count);

test('a push with lines in the future after others is counted, not refused', async () => {
  const body = events(CHUNK_LINES_MAX) + future(CHUNK_LINES_MAX);
  expect(await push(body)).toMatchObject({
    status: 200,
    body: { accepted: CHUNK_LINES_MAX, dropped: { in_future: CHUNK_LINES_MAX } },
  });
  expect(await counts()).toMatchObject({ requests: CHUNK_LINES_MAX });
});

test('a push without a line in time is refused as a whole, and one line in time is enough', async () => {
  const chunks = 10;
  const { status, body } = await push(future(chunks * CHUNK_LINES_MAX));
  expect([status, body.error_msg]).toEqual([
    503,
    expect.stringMatching(
      /^nothing was counted: .* 2026-11-17T12:00:00.000Z; .* 2026-11-15T12:00:00.000Z; check/,
    ),
  ]);
  expect(await store.sources(project)).toEqual([]);
  expect(await push(future(chunks * CHUNK_LINES_MAX) + event(1))).toMatchObject({
    status: 200,
    body: { accepted: 1, dropped: { in_future: chunks * CHUNK_LINES_MAX } },
  });
});

test('a push is not refused after a part of it was handed over', async () => {
  const junk = 'no log line\n'.repeat(CHUNK_LINES_MAX);
  expect(await push(junk + future(1))).toMatchObject({
    status: 200,
    body: { dropped: { unknown_format: CHUNK_LINES_MAX, in_future: 1 } },
  });
});
