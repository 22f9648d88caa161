/** What hostile or broken clients cannot do: each test is an attack that once worked. */
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { sign } from '@wafstat/signer';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../test/admission.ts';
import { memoryStore } from '../../../../test/memory-store.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import type { Store } from '../store/store.ts';
import { createApp } from './app.ts';

const START = Date.UTC(2026, 6, 1);
const DAY_MS = 86_400_000;
const OWNER = '192.0.2.1';
const STRANGER = '198.51.100.66';

let directory: string;
let identity: Identity;
let app: FastifyInstance;
let project: string;
let domain: string;
let logged: string;
let sleeping: (() => void)[];
const clock = { now: START };

beforeEach(async () => {
  clock.now = START;
  logged = '';
  sleeping = [];
  directory = mkdtempSync(join(tmpdir(), 'wafstat-abuse-'));
  // Delays last until the test ends them.
  const sleep = () => new Promise<void>((resolve) => sleeping.push(resolve));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now, {
    sleep,
  });
  const names = { domain: 'default', project: 'default', user: 'admin' };
  const created = await identity.administration.bootstrap(names, 'password');
  project = created.project.id;
  domain = created.domain.id;
  app = await appWith();
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

function appWith({
  trustProxy,
  store = memoryStore(() => clock.now),
}: {
  trustProxy?: string;
  store?: Store;
} = {}): Promise<FastifyInstance> {
  const stream = new Writable({
    write(chunk, _encoding, done) {
      logged += chunk;
      done();
    },
  });
  return createApp({
    store,
    identity,
    now: () => clock.now,
    catalog: { publicUrl: 'https://waf.example.com', region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * DAY_MS, hostsMax: 1_000 },
    trustProxy,
    admission: patientAdmission(),
    logger: { level: 'info', stream },
  });
}

interface Attempt {
  name?: string;
  password?: string;
  from?: string;
  scope?: object;
}

function login({ name = 'admin', password = 'password', from = OWNER, scope }: Attempt = {}) {
  const user = { name, password, domain: { name: 'default' } };
  const auth = {
    identity: { methods: ['password'], password: { user } },
    scope: scope ?? { project: { id: project } },
  };
  return app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth }, remoteAddress: from });
}

async function tokenFor(scope?: object): Promise<string> {
  const response = await login(scope ? { scope } : {});
  expect(response.statusCode).toBe(201);
  return String(response.headers['x-subject-token']);
}

/** Ends all delays until the attempts are over. */
async function settled<T>(attempts: readonly PromiseLike<T>[]): Promise<T[]> {
  let isDone = false;
  const all = Promise.all(attempts).finally(() => {
    isDone = true;
  });
  while (!isDone) {
    for (const end of sleeping.splice(0)) end();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return all;
}

describe('logins', () => {
  test('waiting attempts of one stranger do not block the logins of others', async () => {
    await settled(
      Array.from({ length: 51 }, (_, i) => login({ name: `guess ${i}`, password: 'x', from: STRANGER })),
    );
    const waiting = Array.from({ length: 64 }, (_, i) =>
      login({ name: `guess ${i}`, password: 'x', from: STRANGER }),
    );
    expect((await login()).statusCode).toBe(201);
    const responses = await settled(waiting);
    const refused = responses.filter(({ statusCode }) => statusCode === 429);
    expect(refused.length).toBeGreaterThan(0);
    for (const { headers } of refused) expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  });

  test('wrong logins from the same address do not lock out a user who logged in from there before', async () => {
    expect((await login()).statusCode).toBe(201);
    const names = Array.from({ length: 60 }, (_, i) => `guess ${i % 20}`);
    await settled(names.map((name) => login({ name, password: 'x' })));
    const waiting = names.map((name) => login({ name, password: 'x' }));
    expect((await login()).statusCode).toBe(201);
    await settled(waiting);
  });

  test('guesses at a user from the same address do not lock out the browser that the user signed in with', async () => {
    const signIn = (cookie = '') =>
      app.inject({
        method: 'POST',
        url: '/console/api/session',
        headers: { 'x-wafstat-console': '1', cookie },
        remoteAddress: OWNER,
        payload: { user: 'admin', domain: 'default', password: 'password' },
      });
    const [, device = ''] = [(await signIn()).headers['set-cookie']]
      .flat()
      .map((text) => String(text).split(';')[0]);
    /** Makes so many wrong attempts that some are refused and the others wait. */
    async function crowded() {
      let doneCount = 0;
      const attempts = Array.from({ length: 30 }, async () => {
        const { statusCode } = await login({ password: 'x' });
        doneCount++;
        return statusCode;
      });
      // Known pairs with delays of a second have 15 places.
      while (doneCount < 15) await new Promise((resolve) => setImmediate(resolve));
      return attempts;
    }
    await settled(Array.from({ length: 10 }, () => login({ password: 'x' })));
    const crowd = await crowded();
    expect((await signIn()).statusCode).toBe(429);
    expect((await signIn(device)).statusCode).toBe(201);
    // The cookie alone grants no access.
    const opened = await app.inject({ url: '/v3/projects', headers: { cookie: device } });
    expect(opened.statusCode).toBe(401);
    await settled(crowd);
    // A changed password ends it.
    await identity.administration.setPassword(
      identity.administration.userNamed('admin').id,
      'another password',
    );
    await settled(Array.from({ length: 10 }, () => login({ password: 'x' })));
    const again = await crowded();
    expect((await signIn(device)).statusCode).toBe(429);
    await settled(again);
  });

  test('guesses at one account from many addresses do not lock out the owner, who is known', async () => {
    expect((await login()).statusCode).toBe(201);
    const guess = (i: number) => login({ password: 'x', from: `198.51.${i >> 8}.${i & 255}` });
    await settled(Array.from({ length: 22 }, (_, i) => guess(i)));
    const waiting = Array.from({ length: 30 }, (_, i) => guess(i + 100));
    expect((await login()).statusCode).toBe(201);
    await settled(waiting);
  });

  test('passwords over the limit are not counted, so they cannot evict the failures of an account', async () => {
    const guess = (password: string) => login({ password, from: STRANGER });
    const long = 'x'.repeat(1_025);
    for (let i = 0; i < 100; i++) expect((await guess(long)).statusCode).toBe(401);
    expect(sleeping).toEqual([]);
    await settled(Array.from({ length: 6 }, () => guess('wrong')));
    const delayed = guess('wrong');
    while (sleeping.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect((await settled([delayed]))[0]?.statusCode).toBe(401);
  });

  test('a client that resets its connection at once still has an address in the log', async () => {
    await app.listen({ host: '127.0.0.1', port: 0 });
    const port = (app.server.address() as AddressInfo).port;
    const body = JSON.stringify({ auth: {} });
    const request = `POST /v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    for (let i = 0; i < 50; i++) {
      await new Promise<void>((resolve) => {
        const socket = connect(port, '127.0.0.1', () => {
          socket.write(request, () => socket.resetAndDestroy());
        });
        socket.on('close', () => resolve()).on('error', () => {});
      });
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(logged).not.toContain('"level":50');
  });

  test('signatures are never throttled: wrong ones do not delay valid ones', async () => {
    const { access, secret } = await identity.administration.addKey(
      identity.administration.userNamed('admin').id,
      '',
    );
    const url = `http://localhost:80/v1/${project}/connections`;
    const call = async (given: { access: string; secret: string }) =>
      app.inject({
        url,
        headers: await sign({ method: 'GET', url }, given, { now: () => clock.now }),
        remoteAddress: OWNER,
      });
    for (let i = 0; i < 120; i++) {
      const wrong = i % 2 ? { access, secret: 'wrong' } : { access: `NOSUCHKEY${i}`, secret };
      expect((await call(wrong)).statusCode).toBe(401);
    }
    expect((await call({ access, secret })).statusCode).toBe(200);
    expect(sleeping).toEqual([]);
  });

  test.each([
    ['garbage', '10.0.0.1'],
    ['203.0.113.9, <script>', '10.0.0.1'],
    ['garbage, 203.0.113.9', '203.0.113.9'],
    ['unknown', '10.0.0.1'],
    ['1.2.3.4.5', '10.0.0.1'],
    ['', '10.0.0.1'],
    ['203.0.113.9', '203.0.113.9'],
    ['203.0.113.9:4711', '203.0.113.9'],
    ['[2001:db8::9]:4711', '2001:db8::9'],
    ['198.51.100.1, 203.0.113.9, 10.0.0.1', '203.0.113.9'],
  ])('X-Forwarded-For %j of a trusted proxy is recorded as %s', async (forwarded, address) => {
    const trusting = await appWith({ trustProxy: '10.0.0.1' });
    const addresses: unknown[] = [];
    trusting.addHook('onRequest', async (request) => {
      addresses.push(request.ip);
    });
    const headers = { 'x-forwarded-for': forwarded };
    for (let i = 0; i < 2; i++)
      await trusting.inject({ url: '/healthz', headers, remoteAddress: '10.0.0.1' });
    await trusting.close();
    expect(addresses).toEqual([address, address]);
    const isMalformed = /[^0-9a-f.:, [\]]|\d(\.\d){4}/.test(forwarded);
    const warnings = logged.split('\n').filter((line) => line.includes('is not a list of addresses'));
    expect(warnings).toHaveLength(isMalformed ? 1 : 0);
  });

  test('X-Forwarded-For without --trust-proxy logs one warning that says what to do', async () => {
    const forwarded = { 'x-forwarded-for': '203.0.113.9' };
    for (let i = 0; i < 3; i++)
      await app.inject({ url: '/healthz', headers: forwarded, remoteAddress: '10.0.0.1' });
    const warnings = logged.split('\n').filter((line) => line.includes('--trust-proxy'));
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain('10.0.0.1');
    logged = '';
    const trusting = await appWith({ trustProxy: '10.0.0.1' });
    await trusting.inject({ url: '/healthz', headers: forwarded, remoteAddress: '10.0.0.1' });
    expect(logged).not.toContain('--trust-proxy');
    await trusting.close();
  });
});

describe('access keys', () => {
  const PATH = '/v3.0/OS-CREDENTIAL/credentials';

  /** Makes every call that manages keys, with these headers; returns the statuses. */
  async function manage(
    headers: (method: 'POST' | 'GET' | 'PUT' | 'DELETE', url: string, body: string) => Promise<object>,
  ) {
    const userId = identity.administration.userNamed('admin').id;
    const { access } = await identity.administration.addKey(userId, 'target');
    const calls = [
      ['POST', PATH, JSON.stringify({ credential: { user_id: userId } })],
      ['GET', PATH, ''],
      ['GET', `${PATH}/${access}`, ''],
      ['PUT', `${PATH}/${access}`, JSON.stringify({ credential: { description: 'x' } })],
      ['DELETE', `${PATH}/${access}`, ''],
    ] as const;
    const responses = [];
    for (const [method, url, payload] of calls)
      responses.push(
        await app.inject({ method, url, payload, headers: { ...(await headers(method, url, payload)) } }),
      );
    return responses;
  }

  test('are not managed with a token for a project', async () => {
    const token = await tokenFor();
    const responses = await manage(async () => ({ 'x-auth-token': token }));
    expect(responses.map(({ statusCode }) => statusCode)).toEqual([403, 403, 403, 403, 403]);
    expect(responses[0]?.json().error.message).toContain('domain');
  });

  test('are not managed with an access key', async () => {
    const own = await identity.administration.addKey(identity.administration.userNamed('admin').id, 'own');
    const responses = await manage((method, path, body) =>
      sign({ method, url: `http://localhost:80${path}`, ...(body ? { body: Buffer.from(body) } : {}) }, own, {
        now: () => clock.now,
      }),
    );
    expect(responses.map(({ statusCode }) => statusCode)).toEqual([403, 403, 403, 403, 403]);
  });

  test('are managed with a token for the domain', async () => {
    const token = await tokenFor({ domain: { id: domain } });
    const responses = await manage(async () => ({ 'x-auth-token': token }));
    expect(responses.map(({ statusCode }) => statusCode)).toEqual([201, 200, 200, 200, 204]);
  });
});

describe('headers', () => {
  async function raw(request: string): Promise<string> {
    await app.listen({ host: '127.0.0.1', port: 0 });
    const bound = app.server.address();
    const socket = connect(typeof bound === 'object' && bound ? bound.port : 0, '127.0.0.1');
    socket.write(request);
    return text(socket);
  }

  test('a request with two Host headers is a 400', async () => {
    const response = await raw('GET /healthz HTTP/1.1\r\nHost: a\r\nhost: b\r\nConnection: close\r\n\r\n');
    expect(response).toMatch(/^HTTP\/1.1 400 /);
    expect(response).toContain('Host');
  });

  test.each([
    ['a fragment that cannot be decoded', '/nope#%'],
    ['240,000 characters', `/v1/${'a'.repeat(240_000)}`],
  ])('a path with %s is a 404', async (_what, path) => {
    const response = await raw(`POST ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    expect(response).toMatch(/^HTTP\/1.1 404 /);
    expect(response.length).toBeLessThan(1_000);
  });

  test('credentials in a URL are not logged', async () => {
    await raw('GET http://key:secret@a/v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    expect(logged).toContain('"path":"http://a/v1/x"');
    expect(logged).not.toContain('secret');
  });

  test('the response to bytes that are not HTTP has nosniff', async () => {
    expect(await raw('nonsense\r\n\r\n')).toMatch(
      /^HTTP\/1.1 400 [\s\S]*\r\nX-Content-Type-Options: nosniff\r\n/,
    );
  });

  test('every response has nosniff', async () => {
    const token = await tokenFor();
    const range = 'from=0&to=60000';
    const urls = ['/healthz', '/none', '/v3', `/v1/${project}/waf/event/timeline?${range}`, '/console'];
    for (const url of urls) {
      const { headers } = await app.inject({ url, headers: { 'x-auth-token': token } });
      expect([url, headers['x-content-type-options']]).toEqual([url, 'nosniff']);
    }
  });

  test('tokens and secrets are not cached', async () => {
    const issued = await login({ scope: { domain: { id: domain } } });
    const headers = { 'x-auth-token': String(issued.headers['x-subject-token']) };
    const payload = { credential: { user_id: identity.administration.userNamed('admin').id } };
    const responses = [
      issued,
      await app.inject({
        url: '/v3/auth/tokens',
        headers: { ...headers, 'x-subject-token': headers['x-auth-token'] },
      }),
      await app.inject({ method: 'POST', url: '/v3.0/OS-CREDENTIAL/credentials', headers, payload }),
    ];
    for (const response of responses) expect(response.headers['cache-control']).toBe('no-store');
  });

  test('a host name with bidirectional control characters is not registered', async () => {
    const { normalHostname } = await import('../event.ts');
    for (const name of ['a\u202ecom.b', 'a\u200b.example', 'so\u00adft.example', 'x\u{e0041}.example'])
      expect(normalHostname(name)).toBe(null);
  });
});

test('queries of clients that have disconnected are not computed', async () => {
  let computed = 0;
  let release: (() => void) | undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const store = memoryStore(() => clock.now);
  const counting = {
    ...store,
    count: (async (query) => {
      computed++;
      await released;
      return store.count(query);
    }) as typeof store.count,
  };
  const token = await tokenFor();
  await app.close();
  app = await appWith({ store: counting });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const query = (minute: number) =>
    `GET /v1/${project}/waf/event/timeline?from=0&to=${minute * 60_000} HTTP/1.1\r\nHost: a\r\nX-Auth-Token: ${token}\r\n\r\n`;
  const sockets = Array.from({ length: 40 }, (_, i) => {
    const socket = connect(port, '127.0.0.1');
    socket.write(query(i + 1));
    return socket;
  });
  await expect.poll(() => computed).toBe(16);
  for (const socket of sockets) socket.resetAndDestroy();
  await expect.poll(() => connectionCount(app)).toBe(0);
  release?.();
  await app.close();
  expect(computed).toBe(16);
  expect(logged).not.toContain('"level":50');
});

function connectionCount({ server }: FastifyInstance): Promise<number> {
  return new Promise((resolve, reject) =>
    server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
  );
}

test('a token from the future is refused: none stays valid after the clock is set back', async () => {
  clock.now = Date.UTC(2040, 0);
  const token = await tokenFor();
  const check = () => app.inject({ url: `/v1/${project}/connections`, headers: { 'x-auth-token': token } });
  expect((await check()).statusCode).toBe(200);
  clock.now -= 60_000;
  expect((await check()).statusCode).toBe(200);
  clock.now -= 1;
  const response = await check();
  expect(response.statusCode).toBe(401);
  expect(response.json().error_msg).toContain('future');
});
