import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import { memoryStore } from '../../store/memory.ts';
import { createApp } from '../app.ts';

const NOW = Date.UTC(2026, 6, 1);
let folder: string;
let identity: Identity;
let app: FastifyInstance;
let installation: Awaited<ReturnType<Identity['administration']['bootstrap']>>;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'wafstat-lookup-'));
  identity = await openIdentity(join(folder, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const { administration } = identity;
  installation = await administration.bootstrap(
    { domain: 'default', project: 'default', user: 'admin' },
    'secret',
  );
  await administration.addUser({
    name: 'service',
    domain_id: installation.domain.id,
    access: 'programmatic',
    password: 'secret',
    roles: {},
    system_role: 'identity',
  });
  app = await createApp({
    store: memoryStore(() => NOW),
    identity,
    now: () => NOW,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * 86_400_000, hostsMax: 1_000 },
    logger: false,
  });
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(folder, { recursive: true });
});

async function login(name: string, scope: object) {
  const user = { name, password: 'secret', domain: { name: 'default' } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return {
    status: response.statusCode,
    body: response.json(),
    token: String(response.headers['x-subject-token']),
  };
}

const SYSTEM = { system: { all: true } };
const hashOf = (access: string) => createHash('sha256').update(access).digest('hex');

async function get(
  url: string,
  token: string,
  more: { headers?: Record<string, string>; remoteAddress?: string } = {},
) {
  const { headers, ...rest } = more;
  const response = await app.inject({ url, headers: { 'x-auth-token': token, ...headers }, ...rest });
  return { status: response.statusCode, body: response.json(), headers: response.headers };
}

test('a user with the role identity gets a token for the system and can look up every record', async () => {
  const { status, body, token } = await login('service', SYSTEM);
  expect([status, body.token]).toMatchObject([201, { system: { all: true }, roles: [{ name: 'identity' }] }]);
  const { user, project, domain } = installation;
  const { access, secret } = await identity.administration.addKey(user.id, '');
  const credential = await get(`/v3/credentials/${hashOf(access)}`, token);
  expect(credential.body.credential).toMatchObject({ type: 'ec2', user_id: user.id, status: 'active' });
  expect(JSON.parse(credential.body.credential.blob)).toEqual({ access, secret });
  expect(credential.headers['cache-control']).toBe('no-store');
  expect((await get(`/identity/v3/users/${user.id}`, token)).body.user).toEqual({
    id: user.id,
    name: 'admin',
    domain_id: domain.id,
    enabled: true,
    access: 'both',
    password_expires_at: null,
    options: {},
  });
  expect((await get(`/v3/projects/${project.id}`, token)).body.project).toMatchObject({ enabled: true });
  expect((await get(`/v3/domains/${domain.id}`, token)).body.domain).toMatchObject({ enabled: true });
  // A project inherits the roles of its domain.
  const roles = `/v3/role_assignments?user.id=${user.id}&scope.project.id=${project.id}&effective&include_names`;
  expect((await get(roles, token)).body.role_assignments).toMatchObject([
    { role: { name: 'admin' }, scope: { project: { id: project.id } }, user: { id: user.id } },
  ]);
  const own = await login('admin', { project: { id: project.id } });
  const checked = await get('/v3/auth/tokens?nocatalog', token, {
    headers: { 'x-subject-token': own.token },
  });
  expect([checked.status, checked.body.token.user.name]).toEqual([200, 'admin']);
});

test('the secret of a disabled key is not returned, and a deleted key is not found', async () => {
  const { token } = await login('service', SYSTEM);
  const { access } = await identity.administration.addKey(installation.user.id, '');
  await identity.administration.changeKey(access, { status: 'inactive' });
  const { body } = await get(`/v3/credentials/${hashOf(access)}`, token);
  expect([body.credential.status, JSON.parse(body.credential.blob)]).toEqual(['inactive', { access }]);
  await identity.administration.removeKey(access);
  expect((await get(`/v3/credentials/${hashOf(access)}`, token)).status).toBe(404);
  for (const path of ['users', 'projects', 'domains', 'credentials']) {
    expect((await get(`/v3/${path}/none`, token)).status).toBe(404);
  }
});

test('nobody else can look up records, not even an administrator of the domain', async () => {
  expect((await login('admin', SYSTEM)).status).toBe(401);
  const { access } = await identity.administration.addKey(installation.user.id, '');
  const scopes = [{ project: { id: installation.project.id } }, { domain: { id: installation.domain.id } }];
  for (const scope of scopes) {
    const { status, token } = await login('admin', scope);
    expect(status).toBe(201);
    for (const path of [
      `credentials/${hashOf(access)}`,
      `users/${installation.user.id}`,
      'role_assignments',
    ]) {
      const response = await get(`/v3/${path}`, token);
      expect([response.status, JSON.stringify(response.body)]).toEqual([
        403,
        expect.not.stringContaining(access),
      ]);
    }
  }
});

test('the role grants nothing else: no statistics and no revoking of tokens; revoking it revokes its tokens', async () => {
  const { token } = await login('service', SYSTEM);
  const own = await login('admin', { project: { id: installation.project.id } });
  const response = await get(`/v1/${installation.project.id}/connections`, token);
  expect([response.status, response.body.error_code]).toEqual([403, 'WAF.9002']);
  const headers = { 'x-auth-token': token, 'x-subject-token': own.token };
  const revoked = await app.inject({ method: 'DELETE', url: '/v3/auth/tokens', headers });
  expect(revoked.statusCode).toBe(404);
  expect((await login('service', { project: { id: installation.project.id } })).status).toBe(401);
  await identity.administration.changeSystemRole('revoke', identity.administration.user('service').id);
  expect((await get(`/v3/users/${installation.user.id}`, token)).status).toBe(401);
});

test('records are not sent over plain HTTP to other machines', async () => {
  const { token } = await login('service', SYSTEM);
  const response = await get(`/v3/users/${installation.user.id}`, token, { remoteAddress: '192.0.2.1' });
  expect([response.status, response.body.error.message]).toEqual([
    403,
    'this call needs HTTPS, or a client on the same machine',
  ]);
});
