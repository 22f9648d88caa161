import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createApp } from '../../http/app.ts';
import { memoryStore } from '../../store/memory.ts';
import { type Identity, openIdentity } from '../identity.ts';
import { openRemoteIdentity, type RemoteIdentity } from './remote.ts';

const HOUR_MS = 3_600_000;
/** That of uWSGI, when nothing is said: behind a proxy the answer is 502. */
const HEADER_LENGTH_MAX = 4_096;
const clock = { now: 0 };
let folder: string;
let identity: Identity;
let app: FastifyInstance;
let remote: RemoteIdentity;
/** Method and path of all that the service was asked. */
let calls: string[];

beforeEach(async () => {
  clock.now = Date.UTC(2026, 6, 1);
  calls = [];
  const now = () => clock.now;
  folder = mkdtempSync(join(tmpdir(), 'wafstat-remote-'));
  identity = await openIdentity(join(folder, 'identity.mdb'), Buffer.alloc(32, 7), now);
  const names = { domain: 'default', project: 'default', user: 'admin' };
  const { domain } = await identity.administration.found(names, 'secret');
  await identity.administration.addUser({
    name: 'asker',
    domain_id: domain.id,
    access: 'programmatic',
    password: 'secret',
    roles: {},
    system_role: 'identity',
  });
  app = await createApp({
    store: memoryStore(now),
    identity,
    now,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 1,
    limits: { retentionMs: 180 * 24 * HOUR_MS, hostsMax: 1_000 },
    logger: false,
  });
  app.addHook('onRequest', async ({ method, url, headers }, reply) => {
    calls.push(`${method} ${url.split('?')[0]}`);
    if (String(headers['x-subject-token']).length > HEADER_LENGTH_MAX) return reply.code(502).send();
  });
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  const user = { name: 'asker', domain: 'default', password: 'secret' };
  remote = openRemoteIdentity({ address, user, cacheTtlMs: 60_000, now });
});

afterEach(async () => {
  await remote.close();
  await app.close();
  await identity.close();
  rmSync(folder, { recursive: true });
});

async function token(): Promise<string> {
  const project = { id: identity.administration.project('default').id };
  const login = {
    user: { name: 'admin', domain: { name: 'default' } },
    password: 'secret',
    scope: { project },
  };
  const issued = await identity.authentication.login(login, { address: 'here', via: 'api' });
  if (typeof issued === 'string') throw new Error(issued);
  return issued.text;
}

const logins = () => calls.filter((line) => line === 'POST /v3/auth/tokens').length;

test('its own token is renewed a minute before it expires, and only then', async () => {
  await remote.check();
  clock.now += 24 * HOUR_MS - 60_001;
  await remote.authentication.checkToken(await token());
  expect(logins()).toBe(1);
  clock.now += 1;
  expect(await remote.authentication.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
  expect(logins()).toBe(2);
});

test('a token is void when it expires, though it is remembered', async () => {
  const text = await token();
  clock.now += 24 * HOUR_MS - 1;
  expect(await remote.authentication.checkToken(text)).toMatchObject({ user: { name: 'admin' } });
  const before = calls.length;
  clock.now += 1;
  expect(remote.authentication.checkToken(text)).toBe('expired');
  expect(calls.length).toBe(before);
});

test('a connection that the service has closed meanwhile is no failure', async () => {
  for (let i = 0; i < 20; i++) {
    expect(await remote.authentication.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
    app.server.closeIdleConnections();
  }
});

test('who asks for others is not held to the rate of one user', async () => {
  const texts = await Promise.all(Array.from({ length: 20 }, token));
  const checked = await Promise.all(texts.map((text) => remote.authentication.checkToken(text)));
  expect(checked.every((answer) => typeof answer === 'object')).toBe(true);
  expect(logins()).toBe(1);
});

test('more calls at once than there is room for are refused, not collected', async () => {
  const texts = Array.from({ length: 300 }, (_, i) => `made-up ${i}`);
  const settled = await Promise.allSettled(texts.map(async (text) => remote.authentication.checkToken(text)));
  const refused = settled.filter(({ status }) => status === 'rejected');
  expect(refused.length).toBe(300 - 256);
  expect(String((refused[0] as PromiseRejectedResult).reason)).toMatch(/256 calls to .* are under way/);
  // The service is not away: who comes next is served.
  expect(await remote.authentication.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
});

test('an error in answer to one call is not held against the next: strangers would shut out everybody', async () => {
  await remote.check();
  const stranger = 'x'.repeat(HEADER_LENGTH_MAX + 1);
  await expect(remote.authentication.checkToken(stranger)).rejects.toThrow(/answered 502 to GET/);
  expect(await remote.authentication.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
});
