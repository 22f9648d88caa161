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
let found: Awaited<ReturnType<Identity['administration']['found']>>;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'wafstat-directory-'));
  identity = await openIdentity(join(folder, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const { administration } = identity;
  found = await administration.found({ domain: 'default', project: 'default', user: 'admin' }, 'secret');
  await administration.addUser({
    name: 'asker',
    domain_id: found.domain.id,
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
  const answer = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return { status: answer.statusCode, body: answer.json(), token: String(answer.headers['x-subject-token']) };
}

const SYSTEM = { system: { all: true } };
const hashOf = (access: string) => createHash('sha256').update(access).digest('hex');

async function get(
  url: string,
  token: string,
  more: { headers?: Record<string, string>; remoteAddress?: string } = {},
) {
  const { headers, ...rest } = more;
  const answer = await app.inject({ url, headers: { 'x-auth-token': token, ...headers }, ...rest });
  return { status: answer.statusCode, body: answer.json(), headers: answer.headers };
}

test('the role identity gets a token for the system, with which it looks up all that a call hangs on', async () => {
  const { status, body, token } = await login('asker', SYSTEM);
  expect([status, body.token]).toMatchObject([201, { system: { all: true }, roles: [{ name: 'identity' }] }]);
  const { user, project, domain } = found;
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
  // A role in the domain is one in its projects.
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

test('the secret of a key that is disabled stays where it is, and a deleted key is not found', async () => {
  const { token } = await login('asker', SYSTEM);
  const { access } = await identity.administration.addKey(found.user.id, '');
  await identity.administration.changeKey(access, { status: 'inactive' });
  const { body } = await get(`/v3/credentials/${hashOf(access)}`, token);
  expect([body.credential.status, JSON.parse(body.credential.blob)]).toEqual(['inactive', { access }]);
  await identity.administration.removeKey(access);
  expect((await get(`/v3/credentials/${hashOf(access)}`, token)).status).toBe(404);
  for (const path of ['users', 'projects', 'domains', 'credentials']) {
    expect((await get(`/v3/${path}/none`, token)).status).toBe(404);
  }
});

test('nobody else looks up anything, an administrator of the domain included', async () => {
  expect((await login('admin', SYSTEM)).status).toBe(401);
  const { access } = await identity.administration.addKey(found.user.id, '');
  const scopes = [{ project: { id: found.project.id } }, { domain: { id: found.domain.id } }];
  for (const scope of scopes) {
    const { status, token } = await login('admin', scope);
    expect(status).toBe(201);
    for (const path of [`credentials/${hashOf(access)}`, `users/${found.user.id}`, 'role_assignments']) {
      const answer = await get(`/v3/${path}`, token);
      expect([answer.status, JSON.stringify(answer.body)]).toEqual([
        403,
        expect.not.stringContaining(access),
      ]);
    }
  }
});

test('the role gives nothing but that: no numbers, no revoking of tokens, and it ends when it is taken away', async () => {
  const { token } = await login('asker', SYSTEM);
  const own = await login('admin', { project: { id: found.project.id } });
  const answer = await get(`/v1/${found.project.id}/connections`, token);
  expect([answer.status, answer.body.error_code]).toEqual([403, 'WAF.9002']);
  const headers = { 'x-auth-token': token, 'x-subject-token': own.token };
  const revoked = await app.inject({ method: 'DELETE', url: '/v3/auth/tokens', headers });
  expect(revoked.statusCode).toBe(404);
  expect((await login('asker', { project: { id: found.project.id } })).status).toBe(401);
  await identity.administration.setSystemRole(identity.administration.user('asker').id, false);
  expect((await get(`/v3/users/${found.user.id}`, token)).status).toBe(401);
});

test('nothing of it leaves the machine in plain text', async () => {
  const { token } = await login('asker', SYSTEM);
  const answer = await get(`/v3/users/${found.user.id}`, token, { remoteAddress: '192.0.2.1' });
  expect([answer.status, answer.body.error.message]).toEqual([
    403,
    'this call needs HTTPS, or a caller on the same machine',
  ]);
});
