/** Log lines pushed over HTTP. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { sign } from '@wafstat/signer';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login, sum } from './api.ts';
import { eventually } from './process.ts';
import { Random, scaled } from './random.ts';
import { describeEmbedded, type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';

const START = Date.now() - 3_600_000;
const MONTHS = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ');
const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let api: Api;
let project: { id: string; name: string };
let projects = 0;

beforeAll(async () => {
  installation = await sandbox.init();
  server = await sandbox.serve();
});

afterAll(() => sandbox.clear());

beforeEach(async () => {
  project = await sandbox.runJson('project', 'add', `p${++projects}`);
  api = await login(server.address, { ...installation, project_id: project.id });
});

interface Pushed {
  accepted: number;
  dropped: Record<string, number>;
  first_drops: { line: number; reason: string; text: string }[];
  without_host: number;
  duplicate: boolean;
}

async function push(
  body: string | Buffer,
  query = '',
  headers: Record<string, string> = {},
): Promise<HttpResponse & { json: Pushed }> {
  const response = await call(server.address, `/ingest/v1/${project.id}${query}`, {
    method: 'POST',
    headers: { 'X-Auth-Token': api.token, ...headers },
    body,
  });
  return { ...response, json: JSON.parse(response.text) };
}

async function requests(caller = api): Promise<number> {
  return sum((await caller.timeline(`from=${START}&to=${START + 1_000_000}`)).requests);
}

const events = (count: number, first = 0) =>
  Array.from({ length: count }, (_, i) => ({ time: START + first + i, host: 'a.example.com' }));

describe('pushed lines', () => {
  test('are counted when the response arrives, which reports dropped lines', async () => {
    const { status, json } = await push(
      `${ndjson(events(3))}nonsense\n${ndjson(events(2, 3))}`,
      '?source=edge&format=events',
    );
    expect(status).toBe(200);
    expect(json).toMatchObject({
      accepted: 5,
      dropped: { not_json: 1 },
      first_drops: [{ line: 4, reason: 'not_json', text: 'nonsense' }],
      duplicate: false,
    });
    expect(await requests()).toBe(5);
    const { items } = await api.getJson<{ items: object[] }>('connections');
    expect(items).toMatchObject([{ name: 'edge', format: 'events', events: 5, dropped: { not_json: 1 } }]);
  });

  test.each([
    ['compressed with xz', Buffer.from('fd377a585a000004', 'hex')],
    ['compressed with bzip2', Buffer.from('425a6839314159265359b2a6c1e300000a5980001040', 'hex')],
    ['compressed with zstd', Buffer.from('28b52ffd24', 'hex')],
    ['compressed with gzip', gzipSync(ndjson(events(3)))],
    ['a zip archive', Buffer.from('PK\u0003\u0004')],
    ['a tar archive', Buffer.from(`${'access.log'.padEnd(257, '\0')}ustar  \0root`)],
  ])('that are %s are refused, also inside gzip', async (what, start) => {
    const body = Buffer.concat([start, Buffer.from(ndjson(events(3_000)))]);
    const headers = { 'Content-Encoding': 'gzip' };
    for (const response of [await push(body), await push(gzipSync(body), '', headers)]) {
      expect(response.status).toBe(400);
      expect(response.text).toContain(
        `the body is ${what}: send plain text, or gzip with Content-Encoding: gzip`,
      );
    }
    expect(await requests()).toBe(0);
    expect(await api.getJson('connections')).toMatchObject({ items: [] });
  });

  test('with a host that is not a host name are refused', async () => {
    for (const [host, problem] of [
      ['bad host', 'must be a host name, such as www.example.com'],
      ['https://a.example', 'must be a host name, such as www.example.com, not a URL'],
    ] as const) {
      const { status, text } = await push(ndjson([{ time: START }]), `?host=${encodeURIComponent(host)}`);
      expect(status).toBe(400);
      expect(text).toContain(`host is '${host}', but ${problem}`);
    }
    expect(await requests()).toBe(0);
  });

  test('with the same Idempotency-Key count once per source', async () => {
    const headers = { 'Idempotency-Key': 'batch 1' };
    expect((await push(ndjson(events(3)), '', headers)).json).toMatchObject({
      accepted: 3,
      duplicate: false,
    });
    expect((await push(ndjson(events(3)), '', headers)).json).toMatchObject({ accepted: 0, duplicate: true });
    expect((await push(ndjson(events(3)), '?source=other', headers)).json).toMatchObject({ accepted: 3 });
    expect((await push(ndjson(events(3)))).json).toMatchObject({ accepted: 3 });
    expect((await push(ndjson(events(3)))).json).toMatchObject({ accepted: 3 });
    expect(await requests()).toBe(12);
  });

  test('with a hash of the body as their key do not get in the way of a file with the same lines', async () => {
    const body = ndjson(events(3));
    const key = createHash('sha256').update(body).digest('hex');
    await push(body, '?source=edge', { 'Idempotency-Key': key });
    await sandbox.ingest(project.id, events(3), '--source', 'edge');
    expect(await requests()).toBe(6);
  });

  test('split by a container runtime are joined across requests, also after a retry', async () => {
    const record = JSON.stringify({ time: START, host: 'a.example.com', attack: 'xss', request: false });
    const parts = [record.slice(0, 20), record.slice(20, 50), `${record.slice(50)}\n`];
    const bodies = parts.map((log) =>
      JSON.stringify({ log, stream: 'stdout', time: '2026-07-01T12:00:00Z' }),
    );
    const responses: Pushed[] = [];
    for (const [i, body] of bodies.entries()) {
      const headers = { 'Idempotency-Key': `part ${i}` };
      responses.push((await push(body, '', headers)).json, (await push(body, '', headers)).json);
    }
    expect(responses.map(({ accepted, duplicate }) => `${accepted} ${duplicate}`)).toEqual([
      '0 false',
      '0 true',
      '0 false',
      '0 true',
      '1 false',
      '0 true',
    ]);
    expect(responses.every(({ dropped }) => Object.keys(dropped).length === 0)).toBe(true);
  });

  test('can be restricted to registered hosts', async () => {
    await sandbox.runJson('host', 'add', 'known.example.com', '--project', project.id);
    const body = ndjson([
      { time: START, host: 'known.example.com' },
      { time: START, host: 'unknown.example.com' },
    ]);
    expect((await push(body, '?hosts=registered')).json.accepted).toBe(2);
    expect([...(await api.hostIds()).keys()]).toEqual(['known.example.com']);
    expect(await requests()).toBe(2);
  });

  test('in 20 concurrent chunked requests are all counted', async () => {
    const responses = await Promise.all(
      Array.from({ length: 20 }, () => push(ndjson(events(1)), '', { 'Transfer-Encoding': 'chunked' })),
    );
    expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(await requests()).toBe(20);
  });

  test('of many megabytes are a duplicate when sent again with the same key', async () => {
    const body = ndjson(events(100_000));
    const headers = { 'Idempotency-Key': 'large' };
    const first = await push(body, '', headers);
    expect(first.json).toMatchObject({ accepted: 100_000, dropped: {}, without_host: 0, duplicate: false });
    expect((await push(body, '', headers)).json).toMatchObject({ accepted: 0, duplicate: true });
    const compressed = await push(gzipSync(body), '', { ...headers, 'Content-Encoding': 'gzip' });
    expect(compressed.json).toMatchObject({ accepted: 0, duplicate: true });
    expect(await requests()).toBe(100_000);
  });

  test('of a broken upload are completed by a retry with the same key', async () => {
    const body = ndjson(events(100_000));
    for (const part of [0.2, 0.9]) {
      const socket = await beginPush(body.length, 'Idempotency-Key: broken\r\n');
      await new Promise<void>((resolve) => socket.write(body.slice(0, body.length * part), () => resolve()));
      await eventually(
        async () => ((await requests()) > 50_000 * part ? true : undefined),
        'a part of the upload to be counted',
      );
      socket.destroy();
    }
    const retried = await push(body, '', { 'Idempotency-Key': 'broken' });
    expect(retried.json.duplicate).toBe(false);
    expect(retried.json.accepted).toBeLessThan(50_000);
    expect(await requests()).toBe(100_000);
  });

  test('of a new source beyond the limit are refused, also by the command line', async () => {
    const own = new Sandbox();
    try {
      const { api: caller } = await own.service('--sources-max', '2');
      const send = (source: string) =>
        call(caller.address, `/ingest/v1/${caller.project}?source=${source}`, {
          method: 'POST',
          headers: { 'X-Auth-Token': caller.token },
          body: ndjson(events(1)),
        });
      for (const source of ['a', 'b', 'a']) expect((await send(source)).status).toBe(200);
      const refused = await send('c');
      expect(refused.status).toBe(400);
      expect(JSON.parse(refused.text).error_msg).toBe(
        "source 'c' is new, but the project has reached its limit of 2 sources: use one of them, or raise --sources-max",
      );
      expect((await send('b')).status).toBe(200);
      const file = own.write('events.ndjson', ndjson(events(1)));
      const ingest = (...more: string[]) =>
        own.run(['ingest', '--data', own.data, '--project', 'default', '--source', 'd', ...more, file]);
      const ended = await ingest('--sources-max', '2');
      expect([ended.status, ended.stderr]).toEqual([
        1,
        expect.stringContaining("wafstat: source 'd' is new"),
      ]);
      expect((await ingest()).status).toBe(0);
      const page = await caller.getJson<{ total: number; items: { name: string }[] }>(
        'connections?offset=1&limit=1',
      );
      expect([page.total, page.items.map(({ name }) => name)]).toEqual([3, ['b']]);
      expect((await caller.getJson<{ items: object[] }>('connections')).items).toHaveLength(3);
    } finally {
      await own.clear();
    }
  });
});

describeEmbedded('requests that push lines', () => {
  test('may be compressed with gzip', async () => {
    const { json } = await push(gzipSync(ndjson(events(1_000))), '', { 'Content-Encoding': 'gzip' });
    expect(json.accepted).toBe(1_000);
    const broken = await push('not gzip', '', { 'Content-Encoding': 'gzip' });
    expect([broken.status, JSON.parse(broken.text).error_code]).toEqual([400, 'WAF.1001']);
    const bomb = await push(gzipSync(Buffer.alloc(140 * 1_048_576)), '', { 'Content-Encoding': 'gzip' });
    expect([bomb.status, JSON.parse(bomb.text).error_code]).toEqual([413, 'WAF.7001']);
  });

  test.each(['x', '"', '[', '{}', ''])(
    'may not decompress to very many lines like %j; what was counted before the refusal counts once',
    async (line) => {
      const body = gzipSync(`${ndjson(events(3_000))}${`${line}\n`.repeat(4_000_000)}`);
      const headers = { 'Content-Encoding': 'gzip', 'Idempotency-Key': 'bomb' };
      for (let i = 0; i < 2; i++) {
        const { status, text } = await push(body, '', headers);
        expect([status, JSON.parse(text).error_code]).toEqual([413, 'WAF.7001']);
        expect(JSON.parse(text).error_msg).toContain('send it without compression');
        expect(await requests()).toBe(3_000);
      }
      const { items } = await api.getJson<{ items: { dropped: Record<string, number> }[] }>('connections');
      const dropped = Object.values(items[0]?.dropped ?? {}).reduce((a, b) => a + b, 0);
      expect(dropped).toBeLessThan((1_048_576 + 200 * body.length) / 32);
    },
  );

  test.each([
    ['short lines, compressed 67 to 1', 110, 67],
    ['long lines, compressed 100 to 1', 250, 100],
  ])('may hold a repetitive log of %s', async (_, lineBytes, ratio) => {
    const random = new Random(1);
    const count = Math.round(3_000_000 / lineBytes);
    const lines: string[] = [];
    let body = Buffer.alloc(0);
    // More random characters until the log compresses no better than this.
    for (let digits = 0.02; ; digits *= 1.2) {
      lines.length = 0;
      for (let i = 0; i < count; i++) {
        const time = START + Math.floor((i / count) * 20) * 1_000;
        const id = random.next() < digits ? String(random.next()) : '0';
        const event = JSON.stringify({ time, host: 'a.example.com', url: `/health?id=${id}` });
        lines.push(`${event.slice(0, -1)}${' '.repeat(Math.max(0, lineBytes - 1 - event.length))}}`);
      }
      body = gzipSync(`${lines.join('\n')}\n`);
      if (lines.length * lineBytes < ratio * body.length) break;
    }
    const { json } = await push(body, '', { 'Content-Encoding': 'gzip' });
    expect(json.accepted).toBe(count);
  });

  test('may hold an access log, also with a line that is too long', async () => {
    const time = new Date(START).toISOString();
    const stamp = `${time.slice(8, 10)}/${MONTHS[Number(time.slice(5, 7)) - 1]}/${time.slice(0, 4)}:${time.slice(11, 19)}`;
    const line = (host: string) =>
      `${host} 192.0.2.1 - - [${stamp} +0000] "GET / HTTP/1.1" 200 5 "-" "curl"\n`;
    const lines = line('a.example.com').repeat(500) + line('b.example.com').repeat(300);
    const alone = await push(lines, '?source=alone');
    expect(alone.json).toMatchObject({ accepted: 800, dropped: {} });
    const long = await push(`${lines}${'x'.repeat(1_100_000)}\n${lines}`, '?source=long');
    expect(long.json).toMatchObject({ accepted: 1_600, dropped: { line_too_long: 1 } });
    expect(long.json.first_drops[0]).toMatchObject({ line: 801, reason: 'line_too_long' });
    expect([...(await api.hostIds()).keys()]).toEqual(['a.example.com', 'b.example.com']);
    const { requests: points } = await api.timeline(`from=${START - 1_000}&to=${START + 1_000_000}`);
    expect(sum(points)).toBe(2_400);
  });

  test('need the role ingest, by token or by signature', async () => {
    const add = async (name: string, role: string) => {
      const { password } = await sandbox.runJson<{ password: string }>(
        'user',
        'add',
        name,
        '--role',
        role,
        '--project',
        project.id,
      );
      return { ...installation, project_id: project.id, user: name, password };
    };
    const reader = await login(server.address, await add(`reader${projects}`, 'reader'));
    const refused = await push(ndjson(events(1)), '', { 'X-Auth-Token': reader.token });
    expect([refused.status, JSON.parse(refused.text).error_code]).toEqual([403, 'WAF.9002']);
    await add(`sender${projects}`, 'ingest');
    const key = await sandbox.runJson<{ access: string; secret: string }>(
      'key',
      'add',
      '--user',
      `sender${projects}`,
    );
    const path = `/ingest/v1/${project.id}?source=signed`;
    const body = ndjson(events(2));
    const headers = await sign({ method: 'POST', url: `${server.address}${path}`, body }, key);
    const sent = await call(server.address, path, { method: 'POST', headers: { ...headers }, body });
    expect([sent.status, JSON.parse(sent.text).accepted]).toEqual([200, 2]);
    const changed = await call(server.address, path, {
      method: 'POST',
      headers: { ...headers },
      body: `${body}${body}`,
    });
    expect(changed.status).toBe(401);
  });

  test('count once with one signature, and the signature covers the idempotency key', async () => {
    const user = `replayed${projects}`;
    await sandbox.runJson('user', 'add', user, '--role', 'ingest', '--project', project.id);
    const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', user);
    const path = `/ingest/v1/${project.id}?source=replayed`;
    const body = ndjson(events(3_000));
    const signed = async (headers: Record<string, string>, secondsAgo = 0) => ({
      ...headers,
      ...(await sign({ method: 'POST', url: `${server.address}${path}`, headers, body }, key, {
        now: () => Date.now() - secondsAgo * 1_000,
      })),
    });
    const send = async (headers: Record<string, string>) => {
      const { status, text } = await call(server.address, path, { method: 'POST', headers, body });
      const { accepted, duplicate, error_msg: message } = JSON.parse(text);
      return { status, accepted, duplicate, message };
    };
    const first = await signed({}, 10);
    expect(await send(first)).toMatchObject({ accepted: 3_000, duplicate: false });
    expect(await send(first)).toMatchObject({ accepted: 0, duplicate: true });
    expect(await send({ ...first, 'Idempotency-Key': 'other' })).toMatchObject({
      status: 400,
      message: 'the signature does not cover Idempotency-Key: sign the header, too',
    });
    expect(await send(await signed({}, 20))).toMatchObject({ accepted: 3_000, duplicate: false });
    const keyed = await signed({ 'Idempotency-Key': 'mine' }, 10);
    expect(await send(keyed)).toMatchObject({ accepted: 3_000, duplicate: false });
    expect(await send(keyed)).toMatchObject({ accepted: 0, duplicate: true });
    expect(await send({ ...keyed, 'Idempotency-Key': 'other' })).toMatchObject({ status: 401 });
    expect(await send(await signed({ 'Idempotency-Key': 'mine' }, 20))).toMatchObject({ duplicate: true });
    expect(await requests()).toBe(9_000);
  });

  test('may use an access key with HTTP Basic authentication, for shippers that cannot sign', async () => {
    await sandbox.runJson('user', 'add', `shipper${projects}`, '--role', 'ingest', '--project', project.id);
    const key = await sandbox.runJson<{ access: string; secret: string }>(
      'key',
      'add',
      '--user',
      `shipper${projects}`,
    );
    const basic = (secret: string) => `Basic ${Buffer.from(`${key.access}:${secret}`).toString('base64')}`;
    const send = (method: string, path: string, secret: string) =>
      call(server.address, path, {
        method,
        headers: { Authorization: basic(secret) },
        body: ndjson(events(2)),
      });
    const path = `/ingest/v1/${project.id}`;
    expect((await send('POST', path, key.secret)).status).toBe(200);
    const wrong = await send('POST', path, 'wrong');
    expect([wrong.status, JSON.parse(wrong.text).error_msg]).toEqual([401, 'the secret access key is wrong']);
    expect((await send('POST', '/v3.0/OS-CREDENTIAL/credentials', key.secret)).status).toBe(401);
    expect(await requests()).toBe(2);
    // A token wins over the Basic credentials of a proxy in front.
    const headers = { Authorization: basic('wrong'), 'X-Auth-Token': api.token };
    const withToken = await call(server.address, path, { method: 'POST', headers, body: ndjson(events(1)) });
    expect(withToken.status).toBe(200);
  });

  test('may give a pattern for access lines, and a time zone by name', async () => {
    const local = new Date(START + 7_201_000).toISOString().slice(0, 19).replace('T', ' ');
    const pattern = encodeURIComponent('%{%F %T}t %v "%r"');
    const body = `${local} shop.example.com "GET / HTTP/1.1"\nelse\n`;
    const { json } = await push(body, `?timezone=Etc/GMT-2&pattern=${pattern}`);
    expect(json).toMatchObject({ accepted: 1, dropped: { unknown_format: 1 } });
    expect([...(await api.hostIds()).keys()]).toEqual(['shop.example.com']);
    expect(await requests()).toBe(1);
  });

  test.each([
    ['?format=none', /^format is 'none', but must be one of auto, /],
    ['?timezone=8', /^timezone is '8'/],
    [
      '?timezone=Europe/Berlinn',
      /^timezone is 'Europe\/Berlinn', but must be an offset like \+08:00.*or an IANA/,
    ],
    ['?pattern=%24host', /^pattern is '\$host', but must contain the time/],
    ['?pattern=%25t&format=events', /^pattern is for access logs, but format is events/],
    ['?hosts=some', /^hosts is 'some', but must be one of auto, registered/],
    [`?source=${'x'.repeat(129)}`, /^source must have 1 to 128 characters/],
  ])('with %s are refused, and the error names the parameter', async (query, message) => {
    const { status, text } = await push(ndjson(events(1)), query);
    expect(status).toBe(400);
    expect(JSON.parse(text).error_msg).toMatch(message);
  });

  test('of other projects are served while one project has many slow uploads', async () => {
    const slow = await Promise.all(Array.from({ length: 20 }, () => beginPush(500_000_000)));
    for (const socket of slow) socket.write('x'.repeat(100_000));
    const other = await sandbox.runJson<{ id: string }>('project', 'add', `p${++projects}`);
    const otherApi = await login(server.address, { ...installation, project_id: other.id });
    const body = ndjson(events(50_000));
    const response = await call(server.address, `/ingest/v1/${other.id}`, {
      method: 'POST',
      headers: { 'X-Auth-Token': otherApi.token },
      body,
    });
    expect([response.status, JSON.parse(response.text).accepted]).toEqual([200, 50_000]);
    // Announced bytes reserve no memory, so the project itself can push too.
    expect((await push(body)).json.accepted).toBe(50_000);
    for (const socket of slow) socket.destroy();
  });

  test('end with 401 if the credentials are revoked while they arrive', async () => {
    const [first, rest] = [ndjson(events(1)), ndjson(events(1, 1))];
    const socket = await beginPush(first.length + rest.length, 'Connection: close\r\n');
    socket.write(first);
    const { token } = api;
    const headers = { 'X-Auth-Token': token, 'X-Subject-Token': token };
    await call(server.address, '/v3/auth/tokens', { method: 'DELETE', headers });
    await sleep(1_010);
    socket.write(rest);
    let response = '';
    for await (const chunk of socket) response += chunk;
    expect(response).toMatch(/^HTTP\/1.1 401 /);
    expect(response).toContain('the token in X-Auth-Token has been revoked');
    api = await login(server.address, { ...installation, project_id: project.id });
    expect(await requests()).toBe(0);
  });

  test('may have 12 MiB with a signature, and not a byte more', async () => {
    const user = `large${projects}`;
    await sandbox.runJson('user', 'add', user, '--role', 'ingest', '--project', project.id);
    const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', user);
    const path = `/ingest/v1/${project.id}`;
    const send = async (bytes: number) => {
      const body = Buffer.alloc(bytes, ' ');
      body.write(ndjson(events(1)));
      const signed = await sign({ method: 'POST', url: `${server.address}${path}`, body }, key);
      return call(server.address, path, { method: 'POST', headers: { ...signed }, body });
    };
    const fitting = await send(12 * 1_048_576);
    expect([fitting.status, JSON.parse(fitting.text).accepted]).toEqual([200, 1]);
    const large = await send(12 * 1_048_576 + 1);
    expect(large.status).toBe(413);
    expect(JSON.parse(large.text).error_msg).toBe(
      'request body exceeds 12 MiB, the limit of signed requests: send it with a token',
    );
  });
});

/** Sends the headers of a push with this Content-Length, but no body. */
async function beginPush(bytes: number, headers = ''): Promise<Socket> {
  const { hostname, port } = new URL(server.address);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(
    `POST /ingest/v1/${project.id} HTTP/1.1\r\nHost: ${hostname}\r\nX-Auth-Token: ${api.token}\r\n`,
  );
  socket.write(`${headers}Expect: 100-continue\r\nContent-Length: ${bytes}\r\n\r\n`);
  // 100 Continue: the server has read the headers.
  await once(socket, 'data');
  return socket;
}

test('kill -9 of the server during pushes: acknowledged batches are counted, and a retry counts once', async () => {
  const random = new Random(3);
  const own = new Sandbox();
  try {
    const installed = await own.init();
    let batch = 0;
    let running = await own.serve();
    let caller = await login(running.address, installed);
    // On a busy machine, the first servers may be killed before a batch is counted.
    for (let kills = 0; kills < scaled(5) || batch === 0; ) {
      // Long enough for some batches on the slowest store, and short enough to interrupt others.
      const killing = setTimeout(() => running.process.signal('SIGKILL'), 20 + random.next() * 600);
      try {
        for (;;) {
          const response = await call(running.address, `/ingest/v1/${installed.project_id}`, {
            method: 'POST',
            headers: { 'X-Auth-Token': caller.token, 'Idempotency-Key': `batch ${batch}` },
            body: ndjson(events(100)),
          });
          expect(response.status).toBe(200);
          batch++;
        }
      } catch (error) {
        // The connection broke: the same batch is sent again to the next server.
        if (!/ECONN|hang up|EPIPE/.test(String(error))) throw error;
        clearTimeout(killing);
        await running.process.kill();
        kills++;
        running = await own.serve();
        caller = await login(running.address, installed);
      }
    }
    const last = await call(running.address, `/ingest/v1/${installed.project_id}`, {
      method: 'POST',
      headers: { 'X-Auth-Token': caller.token, 'Idempotency-Key': `batch ${batch}` },
      body: ndjson(events(100)),
    });
    expect(last.status).toBe(200);
    expect(batch).toBeGreaterThan(0);
    expect(await requests(caller)).toBe((batch + 1) * 100);
  } finally {
    await own.clear();
  }
});
