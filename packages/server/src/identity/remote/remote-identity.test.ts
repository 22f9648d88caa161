import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createApp } from '../../http/app.ts';
import { memoryStore } from '../../store/memory.ts';
import { type Identity, openIdentity } from '../identity.ts';
import { openRemoteIdentity, type RemoteIdentity } from './remote-identity.ts';

const HOUR_MS = 3_600_000;
/** The default limit of uWSGI; a proxy in front of it responds 502. */
const HEADER_LENGTH_MAX = 4_096;
const clock = { now: 0 };
let directory: string;
let identity: Identity;
let app: FastifyInstance;
let remote: RemoteIdentity;
/** Method and path of every request to the service. */
let calls: string[];

beforeEach(async () => {
  clock.now = Date.UTC(2026, 6, 1);
  calls = [];
  const now = () => clock.now;
  directory = mkdtempSync(join(tmpdir(), 'wafstat-remote-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), now);
  const names = { domain: 'default', project: 'default', user: 'admin' };
  const { domain } = await identity.administration.bootstrap(names, 'password');
  await identity.administration.addUser({
    name: 'service',
    domain_id: domain.id,
    access: 'programmatic',
    password: 'password',
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
  const baseUrl = await app.listen({ host: '127.0.0.1', port: 0 });
  const user = { name: 'service', domain: 'default', password: 'password' };
  remote = openRemoteIdentity({ baseUrl, user, cacheTtlMs: 60_000, now });
});

afterEach(async () => {
  await remote.close();
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function token(): Promise<string> {
  const project = { id: identity.administration.project('default').id };
  const login = {
    user: { name: 'admin', domain: { name: 'default' } },
    password: 'password',
    scope: { project },
  };
  const issued = await identity.authenticator.login(login, { address: 'here', via: 'api' });
  if (typeof issued === 'string') throw new Error(issued);
  return issued.text;
}

const logins = () => calls.filter((line) => line === 'POST /v3/auth/tokens').length;

test('the token of the service user is renewed one minute before it expires', async () => {
  await remote.check();
  clock.now += 24 * HOUR_MS - 60_001;
  await remote.authenticator.checkToken(await token());
  expect(logins()).toBe(1);
  clock.now += 1;
  expect(await remote.authenticator.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
  expect(logins()).toBe(2);
});

test('a cached token is rejected when it expires', async () => {
  const text = await token();
  clock.now += 24 * HOUR_MS - 1;
  expect(await remote.authenticator.checkToken(text)).toMatchObject({ user: { name: 'admin' } });
  const before = calls.length;
  clock.now += 1;
  expect(await remote.authenticator.checkToken(text)).toBe('expired');
  expect(calls.length).toBe(before);
});

test('a request on an idle connection that the service has closed is retried', async () => {
  for (let i = 0; i < 20; i++) {
    expect(await remote.authenticator.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
    app.server.closeIdleConnections();
  }
});

test('lookups for other users do not count against the rate limit of the service user', async () => {
  const texts = await Promise.all(Array.from({ length: 20 }, token));
  const checked = await Promise.all(texts.map((text) => remote.authenticator.checkToken(text)));
  expect(checked.every((result) => typeof result === 'object')).toBe(true);
  expect(logins()).toBe(1);
});

test('concurrent calls over the limit are refused, not queued', async () => {
  const texts = Array.from({ length: 300 }, (_, i) => `unknown ${i}`);
  const settled = await Promise.allSettled(texts.map(async (text) => remote.authenticator.checkToken(text)));
  const refused = settled.filter(({ status }) => status === 'rejected');
  expect(refused.length).toBe(300 - 256);
  expect(String((refused[0] as PromiseRejectedResult).reason)).toMatch(/256 calls to .* are in progress/);
  // The service is available, so the next call succeeds.
  expect(await remote.authenticator.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
});

test('an error response to one call does not affect the next: otherwise anyone could lock out all users', async () => {
  await remote.check();
  const longToken = 'x'.repeat(HEADER_LENGTH_MAX + 1);
  await expect(remote.authenticator.checkToken(longToken)).rejects.toThrow(/responded 502 to GET/);
  expect(await remote.authenticator.checkToken(await token())).toMatchObject({ user: { name: 'admin' } });
});
