import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type FastifyInstance, fastify } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import { memoryStore } from '../../store/memory.ts';
import { createApp } from '../app.ts';
import { mount } from '../route.ts';
import { fileRoutes } from './files.ts';

const START = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;
const CONSOLE = { 'x-wafstat-console': '1' };

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'wafstat-console-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('a session', () => {
  const clock = { now: START };
  let identity: Identity;
  let app: FastifyInstance;
  let project: string;

  beforeEach(async () => {
    clock.now = START;
    identity = await openIdentity(join(folder, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now);
    const names = { domain: 'default', project: 'default', user: 'admin' };
    project = (await identity.administration.found(names, 'secret')).project.id;
    app = await createApp({
      store: memoryStore(() => clock.now),
      identity,
      now: () => clock.now,
      catalog: { publicUrl: null, region: 'eu' },
      bodyBytesMax: 1_048_576,
      rateLimit: 0,
      limits: { retentionMs: 180 * 24 * HOUR_MS, hostsMax: 1_000 },
      trustProxy: '10.0.0.1',
      logger: false,
    });
  });

  afterEach(async () => {
    await app.close();
    await identity.close();
  });

  function signIn(options: { headers?: Record<string, string>; remoteAddress?: string } = {}) {
    const { headers = {}, remoteAddress = '192.0.2.1' } = options;
    return app.inject({
      method: 'POST',
      url: '/console/api/session',
      headers: { ...CONSOLE, ...headers },
      remoteAddress,
      payload: { user: 'admin', domain: 'default', password: 'secret' },
    });
  }

  async function cookie(): Promise<string> {
    return String((await signIn()).headers['set-cookie']?.[0]).split(';')[0] ?? '';
  }

  const connections = (headers: Record<string, string>) =>
    app.inject({ url: `/v1/${project}/connections`, headers });

  test('is a cookie that scripts cannot read, with the __Host- prefix unless on insecure loopback', async () => {
    const cookieOf = async (options: Parameters<typeof signIn>[0]) =>
      String((await signIn(options)).headers['set-cookie']?.[0]);
    const attributes = 'Path=/; HttpOnly; SameSite=Strict; Max-Age=43200';
    const plain = new RegExp(`^wafstat_session=[\\w.-]+; ${attributes}$`);
    const secure = new RegExp(`^__Host-wafstat_session=[\\w.-]+; ${attributes}; Secure$`);
    for (const host of ['localhost', 'localhost:8080', '127.0.0.1:8080', '[::1]:8080'])
      expect(await cookieOf({ headers: { host } })).toMatch(plain);
    const forwarded = { 'x-forwarded-proto': 'https' };
    expect(await cookieOf({ headers: forwarded, remoteAddress: '10.0.0.1' })).toMatch(secure);
    // Only a trusted proxy may say so.
    expect(await cookieOf({ headers: forwarded })).toMatch(plain);
    expect(await cookieOf({ headers: { host: 'waf.example.com' } })).toMatch(secure);
  });

  test('is not opened for a browser on plain HTTP beyond loopback, which would drop the cookie', async () => {
    const host = 'waf.example.com';
    const answer = await signIn({ headers: { host, origin: `http://${host}` } });
    expect([answer.statusCode, answer.json().error_msg]).toEqual([403, expect.stringContaining('HTTPS')]);
    expect((await signIn({ headers: { host, origin: `https://${host}` } })).statusCode).toBe(201);
  });

  test('under the plain name is none where the cookie is secure: another host could have planted it', async () => {
    const headers = { host: 'waf.example.com' };
    const [pair = ''] = String((await signIn({ headers })).headers['set-cookie']?.[0]).split(';');
    expect((await connections({ ...headers, cookie: pair })).statusCode).toBe(200);
    const planted = pair.replace('__Host-', '');
    expect((await connections({ ...headers, cookie: planted })).statusCode).toBe(401);
  });

  test('lasts twelve hours, then a 401 says that it has expired', async () => {
    const headers = { cookie: await cookie() };
    clock.now += 12 * HOUR_MS - 1;
    expect((await connections(headers)).statusCode).toBe(200);
    clock.now += 1;
    const answer = await connections(headers);
    expect(answer.statusCode).toBe(401);
    expect(answer.json()).toEqual({
      error_code: 'WAF.9001',
      error_msg: 'the session has expired: sign in again',
    });
  });

  test('that began in the future is refused, because the clock was set back', async () => {
    const headers = { cookie: await cookie() };
    clock.now -= 60_000;
    expect((await connections(headers)).statusCode).toBe(200);
    clock.now -= 1;
    const answer = await connections(headers);
    expect([answer.statusCode, answer.json().error_msg]).toEqual([401, expect.stringContaining('set back')]);
  });

  test('gives way to credentials that were sent on purpose', async () => {
    const headers = { cookie: await cookie(), 'x-auth-token': 'wrong' };
    expect((await connections(headers)).statusCode).toBe(401);
    expect((await connections({ cookie: 'other=1' })).json().error_msg).toContain('X-Auth-Token');
  });

  test('that was tampered with is none', async () => {
    const whole = await cookie();
    for (const broken of [whole.slice(0, -1), `${whole}x`, 'wafstat_session=x.y', 'wafstat_session=']) {
      expect((await connections({ cookie: broken })).statusCode).toBe(401);
    }
  });

  test('sees what is never kept in a cache', async () => {
    const answer = await app.inject({ url: '/console/api/session', headers: { cookie: await cookie() } });
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(answer.json()).toMatchObject({
      user: { name: 'admin', domain: 'default', access: 'both' },
      administers_domain: true,
      projects: [{ id: project, name: 'default', roles: ['admin'] }],
    });
  });
});

describe('the files of the console', () => {
  async function served(): Promise<FastifyInstance> {
    const app = fastify();
    mount(app, fileRoutes(folder));
    return app;
  }

  test('come packed when the browser understands it, and stay as long as their names', async () => {
    mkdirSync(join(folder, 'assets'));
    writeFileSync(join(folder, 'index.html'), '<!doctype html>');
    writeFileSync(join(folder, 'assets', 'index-abc.js'), 'plain');
    writeFileSync(join(folder, 'assets', 'index-abc.js.br'), 'br');
    writeFileSync(join(folder, 'assets', 'index-abc.js.gz'), 'gz');
    const app = await served();
    const get = (url: string, coding = '') => app.inject({ url, headers: { 'accept-encoding': coding } });
    for (const [coding, body] of [
      ['gzip, deflate, br', 'br'],
      ['gzip;q=1.0', 'gz'],
      ['identity', 'plain'],
    ] as const) {
      const answer = await get('/console/assets/index-abc.js', coding);
      expect(answer.body).toBe(body);
      expect(answer.headers['cache-control']).toContain('immutable');
      expect(answer.headers['content-type']).toBe('text/javascript; charset=utf-8');
    }
    const page = await get('/console/hosts');
    expect(page.headers['cache-control']).toBe('no-cache');
    expect(page.headers['content-security-policy']).not.toContain('unsafe');
    expect((await get('/console/assets/..%2Findex.html')).statusCode).toBe(404);
    expect((await get('/console/assets/index-abc.js.br')).statusCode).toBe(404);
    await app.close();
  });

  test('that were not built are said not to be', async () => {
    const app = await served();
    const answer = await app.inject({ url: '/console' });
    expect(answer.statusCode).toBe(200);
    expect(answer.body).toContain('npm run setup');
    await app.close();
  });
});
