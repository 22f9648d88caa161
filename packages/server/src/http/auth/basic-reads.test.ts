/** Access keys as HTTP Basic credentials, for clients that can only read. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import type { FastifyInstance, InjectOptions } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { openAuditFile } from '../../audit/audit-file.ts';
import { allRecords } from '../../audit/audit-trail.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import { createApp } from '../app.ts';

const NOW = Date.UTC(2026, 6, 1);
const ELSEWHERE = '192.0.2.7';
const CHALLENGE = 'Basic realm="wafstat"';
let directory: string;
let identity: Identity;
let projectId: string;
let key: { access: string; secret: string };
const apps: FastifyInstance[] = [];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-basic-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const names = { domain: 'default', project: 'default', user: 'admin' };
  projectId = (await identity.administration.bootstrap(names, 'password')).project.id;
  key = await newKey('grafana', ['reader']);
});

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function serve(options: Partial<Parameters<typeof createApp>[0]> = {}): Promise<FastifyInstance> {
  const app = await createApp({
    store: memoryStore(() => NOW),
    identity,
    now: () => NOW,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * 86_400_000, hostsMax: 1_000 },
    admission: patientAdmission(),
    logger: false,
    ...options,
  });
  apps.push(app);
  return app;
}

async function newKey(name: string, roles: ('reader' | 'ingest' | 'admin')[]) {
  const { administration } = identity;
  const user = await administration.addUser({
    name,
    domain_id: administration.onlyDomain(undefined).id,
    access: 'both',
    password: 'password',
    roles: { [projectId]: roles },
  });
  return administration.addKey(user.id, '');
}

const basic = ({ access, secret }: { access: string; secret: string }) =>
  `Basic ${Buffer.from(`${access}:${secret}`).toString('base64')}`;

async function read(app: FastifyInstance, authorization: string, more: InjectOptions = {}) {
  const { headers, ...rest } = more;
  const response = await app.inject({
    url: `/v1/${projectId}/connections`,
    headers: { authorization, ...headers },
    ...rest,
  });
  const body = response.body === '' ? {} : response.json();
  return {
    status: response.statusCode,
    message: body.error_msg ?? body.error?.message,
    headers: response.headers,
  };
}

test('a key with the role reader reads with GET and HEAD', async () => {
  const app = await serve();
  for (const path of ['connections', 'waf/instance', 'waf/event/timeline?from=0&to=1']) {
    for (const method of ['GET', 'HEAD'] as const) {
      expect((await read(app, basic(key), { url: `/v1/${projectId}/${path}`, method })).status).toBe(200);
    }
  }
  // The scheme has no letter case.
  expect((await read(app, basic(key).replace('Basic', 'bASIC'))).status).toBe(200);
});

test('keys without the role, of another project, disabled or unknown are refused', async () => {
  const app = await serve();
  const sender = await newKey('shipper', ['ingest']);
  expect(await read(app, basic(sender))).toMatchObject({
    status: 403,
    message: expect.stringMatching('reader'),
  });
  const { id } = await identity.administration.addProject(
    identity.administration.onlyDomain(undefined).id,
    'other',
  );
  expect((await read(app, basic(key), { url: `/v1/${id}/connections` })).status).toBe(403);
  expect((await read(app, basic(await newKey('chief', ['admin'])))).status).toBe(200);
  for (const secret of ['', key.secret.slice(0, -1), `${key.secret}x`, key.secret.toLowerCase()])
    expect((await read(app, basic({ ...key, secret }))).status).toBe(401);
  await identity.administration.changeKey(key.access, { status: 'inactive' });
  expect(await read(app, basic(key))).toMatchObject({ status: 401, message: 'the access key is disabled' });
  await identity.administration.removeKey(key.access);
  expect(await read(app, basic(key))).toMatchObject({
    status: 401,
    message: expect.stringMatching(/^unknown access key\b/),
  });
});

test('a user name and a password are refused, and the message says what to send instead', async () => {
  const app = await serve();
  const message =
    'unknown access key: Basic takes an access key ID and its secret, not a user name and password';
  const login = basic({ access: 'admin', secret: 'password' });
  expect(await read(app, login)).toMatchObject({ status: 401, message });
  const push = { method: 'POST', url: `/ingest/v1/${projectId}`, payload: '{}' } as const;
  expect(await read(app, login, push)).toMatchObject({ status: 401, message });
});

test('a request without credentials learns of Basic where it is accepted', async () => {
  const without = async (app: FastifyInstance, more: InjectOptions = {}) => {
    const body = (await app.inject({ url: `/v1/${projectId}/connections`, ...more })).json();
    return body.error_msg ?? body.error.message;
  };
  const others = 'the request has no credentials: send a token in X-Auth-Token';
  const withBasic = `${others}, a signature in Authorization, or an access key ID and its secret as Basic credentials`;
  const withoutBasic = `${others} or a signature in Authorization`;
  const push = { method: 'POST', url: `/ingest/v1/${projectId}`, payload: '{}' } as const;
  const app = await serve();
  expect(await without(app)).toBe(withBasic);
  expect(await without(app, push)).toBe(withBasic);
  expect(await without(app, { url: '/v3.0/OS-CREDENTIAL/credentials' })).toBe(withoutBasic);
  // Where the secret would cross the network unencrypted, it must not be sent.
  expect(await without(app, { remoteAddress: ELSEWHERE })).toBe(withoutBasic);
  expect(await without(await serve({ basicReads: false }))).toBe(withoutBasic);
});

test('the name of a project in the path is refused with its ID, if the caller has a role in it', async () => {
  const app = await serve();
  const { administration } = identity;
  const domain_id = administration.onlyDomain(undefined).id;
  const hidden = await administration.addProject(domain_id, 'hidden');
  const named = (name: string, headers: Record<string, string> = { authorization: basic(key) }) =>
    app.inject({ url: `/v1/${name}/connections`, headers });
  const message = `'default' is the name of a project: put its ID in the path, ${projectId}`;
  const scope = { project: { id: projectId } };
  const login = { user: { name: 'admin', domain: { id: domain_id } }, password: 'password', scope };
  const token = await identity.authenticator.login(login, { address: '127.0.0.1', via: 'api' });
  if (typeof token === 'string') throw new Error(token);
  for (const headers of [{ authorization: basic(key) }, { 'x-auth-token': token.text }]) {
    const response = await named('default', headers);
    expect([response.statusCode, response.json()]).toEqual([
      403,
      { error_code: 'WAF.9002', error_msg: message },
    ]);
    const others = await Promise.all(['hidden', 'no-such-project'].map((name) => named(name, headers)));
    expect(others[0]?.body).toBe(others[1]?.body);
    expect(others[0]?.body).not.toContain(hidden.id);
  }
  // Anyone who knows an access key ID can send a signature that is not verified yet.
  const authorization = `SDK-HMAC-SHA256 Access=${key.access}, SignedHeaders=host;x-sdk-date, Signature=${'0'.repeat(64)}`;
  const push = await app.inject({
    method: 'POST',
    url: '/ingest/v1/default',
    headers: { host: 'waf.example.com', 'x-sdk-date': '20260701T000000Z', authorization },
    payload: '{}',
  });
  expect(push.statusCode).toBe(403);
  expect(push.body).not.toContain(projectId);
});

describe('the network', () => {
  test('must be encrypted, or the client on the same machine; headers of strangers do not count', async () => {
    const app = await serve();
    for (const headers of [
      {},
      { 'x-forwarded-proto': 'https' },
      { 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'https' },
      { forwarded: 'for=127.0.0.1;proto=https' },
      { host: 'localhost' },
    ]) {
      for (const secret of [key.secret, 'wrong']) {
        const refused = await read(app, basic({ ...key, secret }), { remoteAddress: ELSEWHERE, headers });
        // The same for a correct and a wrong secret, and no invitation to send one.
        expect([refused.status, refused.message, refused.headers['www-authenticate']]).toEqual([
          403,
          expect.stringContaining('needs HTTPS'),
          undefined,
        ]);
      }
    }
    for (const remoteAddress of ['127.0.0.1', '::1', '::ffff:127.0.0.1'])
      expect((await read(app, basic(key), { remoteAddress })).status).toBe(200);
  });

  test('behind a proxy on the same machine that is not trusted counts as remote', async () => {
    const app = await serve();
    for (const header of ['x-forwarded-for', 'x-forwarded-proto', 'x-real-ip', 'forwarded', 'via']) {
      const options = { remoteAddress: '127.0.0.1', headers: { [header]: '203.0.113.9' } };
      expect((await read(app, basic(key), options)).status).toBe(403);
    }
  });

  test('behind a trusted proxy is what the proxy says', async () => {
    const app = await serve({ trustProxy: '10.0.0.1' });
    const via = (headers: Record<string, string>, remoteAddress = '10.0.0.1') =>
      read(app, basic(key), { remoteAddress, headers }).then(({ status }) => status);
    expect(await via({ 'x-forwarded-for': ELSEWHERE, 'x-forwarded-proto': 'https' })).toBe(200);
    expect(await via({ 'x-forwarded-for': ELSEWHERE, 'x-forwarded-proto': 'http' })).toBe(403);
    // The proxy appends the address that it sees, and its protocol.
    expect(await via({ 'x-forwarded-for': `127.0.0.1, ${ELSEWHERE}` })).toBe(403);
    expect(await via({ 'x-forwarded-for': ELSEWHERE, 'x-forwarded-proto': 'https, http' })).toBe(403);
    expect(await via({ 'x-forwarded-proto': 'https' }, ELSEWHERE)).toBe(403);
  });
});

test('malformed credentials are a 401, whatever their bytes', async () => {
  const app = await serve();
  const encoded = (bytes: string | Buffer) => `Basic ${Buffer.from(bytes).toString('base64')}`;
  const { access, secret } = key;
  for (const authorization of [
    'Basic ',
    'Basic !!!',
    'Basic  =',
    encoded(access),
    encoded(`:${secret}`),
    encoded(`${access}:`),
    encoded(`${access}:${secret}:`),
    encoded(`${access}:x:${secret}`),
    encoded(`${access} :${secret}`),
    encoded(`${access.toLowerCase()}:${secret}`),
    encoded(Buffer.concat([Buffer.from(`${access}:`), Buffer.from([0xff, 0xfe, 0])])),
    encoded(Buffer.from([0xff, 0x3a, 0xff])),
    encoded(`${access}:${'x'.repeat(100_000)}`),
    encoded(`${'x'.repeat(1_000)}:${secret}`),
    `${basic(key)} x`,
    `${basic(key)}, ${basic(key)}`,
  ]) {
    expect((await read(app, authorization)).status, authorization.slice(0, 80)).toBe(401);
  }
  const any = fc.uint8Array({ maxLength: 80 }).map((bytes) => encoded(Buffer.from(bytes)));
  const near = fc
    .tuple(fc.nat({ max: access.length + secret.length }), fc.integer({ min: 0, max: 255 }))
    .map(([at, byte]) => {
      const bytes = Buffer.from(`${access}:${secret}`);
      bytes[at] = (bytes[at] ?? 0) === byte ? byte ^ 1 : byte;
      return encoded(bytes);
    });
  await fc.assert(
    fc.asyncProperty(fc.oneof(any, near), async (authorization) => {
      // 429 after too many of them.
      expect((await read(app, authorization, { remoteAddress: '::1' })).status).not.toBe(200);
    }),
    { numRuns: scaled(30) },
  );
});

test('identity, pushes without the role, and the console do not accept it', async () => {
  const app = await serve();
  const chief = await newKey('chief', ['admin']);
  for (const url of [
    '/v3/projects',
    '/identity/v3/auth/catalog',
    '/v3.0/OS-CREDENTIAL/credentials',
    '/v3/users',
  ]) {
    const { status, headers } = await read(app, basic(chief), { url });
    expect([url, status, headers['www-authenticate']]).toEqual([url, 401, undefined]);
  }
  const CONSOLE = { 'x-wafstat-console': '1' };
  for (const [method, url] of [
    ['GET', `/console/api/projects/${projectId}/setup`],
    ['POST', `/console/api/projects/${projectId}/figures`],
  ] as const) {
    const { status, headers } = await read(app, basic(chief), { method, url, headers: CONSOLE });
    expect([url, status, headers['www-authenticate']]).toEqual([url, 401, undefined]);
  }
  const push = { method: 'POST', url: `/ingest/v1/${projectId}?format=events` } as const;
  expect((await read(app, basic(key), push)).status).toBe(403);
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH'] as const)
    expect((await read(app, basic(chief), { method })).status).toBe(405);
});

test('a token and a session take precedence', async () => {
  const app = await serve();
  expect((await read(app, basic(key), { headers: { 'x-auth-token': 'x.y' } })).message).toMatch(/token/);
  // As sent by the browser of a console behind a proxy that has Basic authentication of its own.
  const cookie = { cookie: 'wafstat_session=x.y', host: 'localhost' };
  const refused = await read(app, basic({ access: 'proxy', secret: 'user' }), { headers: cookie });
  expect([refused.status, refused.message]).toEqual([401, expect.stringContaining('session')]);
});

test('browsers get no challenge, and other clients only where they may send credentials', async () => {
  const app = await serve();
  const url = `/v1/${projectId}/connections`;
  const challengeFor = async (headers: Record<string, string>, more: InjectOptions = {}) => {
    const { statusCode, headers: sent } = await app.inject({ url, headers, ...more });
    expect(statusCode).toBe(401);
    return sent['www-authenticate'];
  };
  expect(await challengeFor({ 'user-agent': 'curl/8' })).toBe(CHALLENGE);
  expect(await challengeFor({ authorization: basic({ ...key, secret: 'wrong' }) })).toBe(CHALLENGE);
  expect(await challengeFor({ 'sec-fetch-mode': 'cors' })).toBeUndefined();
  expect(await challengeFor({ 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64)' })).toBeUndefined();
  expect(await challengeFor({ cookie: 'wafstat_session=x.y', host: 'localhost' })).toBeUndefined();
  expect(await challengeFor({ 'x-auth-token': 'x.y' })).toBeUndefined();
  expect(await challengeFor({ authorization: 'SDK-HMAC-SHA256 x' })).toBeUndefined();
  expect(await challengeFor({}, { remoteAddress: ELSEWHERE })).toBeUndefined();
});

test('the setting turns it off, for reads only', async () => {
  const app = await serve({ basicReads: false });
  const { status, message, headers } = await read(app, basic(key));
  expect([status, message, headers['www-authenticate']]).toEqual([
    401,
    'Basic authentication is off here: send a token, or sign the request',
    undefined,
  ]);
  const push = { method: 'POST', url: `/ingest/v1/${projectId}?format=events` } as const;
  expect((await read(app, basic(await newKey('shipper', ['ingest'])), push)).status).toBe(200);
});

test('wrong secrets are recorded with the owner of the key, and never the secret', async () => {
  const app = await serve();
  await read(app, basic({ ...key, secret: 'guessed' }));
  await read(app, basic({ access: 'nobody', secret: 'guessed' }));
  const found: unknown[] = [];
  for (const record of await allRecords(openAuditFile(directory, Date.now)))
    if (record !== 'damaged' && record.action === 'login') found.push(record);
  expect(found).toMatchObject([
    { user: 'grafana', outcome: 'refused', reason: 'wrong_secret', via: 'api', address: '127.0.0.1' },
    { user: null, outcome: 'refused', reason: 'unknown_key' },
  ]);
  expect(JSON.stringify(found)).not.toContain('guessed');
});

test('callers are limited like any other', async () => {
  const app = await serve({ rateLimit: 2 });
  const statuses: number[] = [];
  for (let i = 0; i < 3; i++) statuses.push((await read(app, basic(key))).status);
  expect(statuses).toEqual([200, 200, 429]);
});
