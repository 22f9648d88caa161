import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { memoryStore } from '../../../../../test/memory-store.ts';
import type { AuditRecord } from '../../audit/audit-trail.ts';
import { allRecords } from '../../audit/audit-trail.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import { createApp } from '../app.ts';

const NOW = Date.UTC(2026, 6, 1);
let directory: string;
let identity: Identity;
let app: FastifyInstance;
let installation: Awaited<ReturnType<Identity['administration']['bootstrap']>>;
let admin: string;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-change-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  installation = await identity.administration.bootstrap(
    { domain: 'default', project: 'default', user: 'admin' },
    'password',
  );
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
  admin = (await login('admin', 'password', { domain: { id: installation.domain.id } })).token;
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function login(name: string, password: string, scope: object) {
  const user = { name, password, domain: { name: 'default' } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return { status: response.statusCode, token: String(response.headers['x-subject-token']) };
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

async function call(method: Method, url: string, payload?: object, token = admin) {
  const headers = { 'x-auth-token': token };
  const response = await app.inject({ method, url, headers, ...(payload ? { payload } : {}) });
  return { status: response.statusCode, body: response.body === '' ? null : response.json() };
}

async function addUser(name: string) {
  const { status, body } = await call('POST', '/v3/users', { user: { name, password: 'password' } });
  expect(status).toBe(201);
  return body.user as { id: string };
}

async function audited(): Promise<AuditRecord[]> {
  const records: AuditRecord[] = [];
  for (const record of await allRecords(identity.audit)) if (record !== 'damaged') records.push(record);
  return records;
}

test('an administrator creates a user, grants a role, sets a password, disables and deletes the user', async () => {
  const { project, domain } = installation;
  const { body } = await call('POST', '/v3/users', {
    user: { name: 'alice', password: 'password', domain_id: domain.id, access: 'programmatic' },
  });
  const { id } = body.user;
  expect(body.user).toMatchObject({
    name: 'alice',
    domain_id: domain.id,
    enabled: true,
    access: 'programmatic',
  });
  const scope = { project: { id: project.id } };
  expect((await login('alice', 'password', scope)).status).toBe(401);

  const role = `/v3/projects/${project.id}/users/${id}/roles`;
  expect((await call('PUT', `${role}/reader`)).status).toBe(204);
  const { token } = await login('alice', 'password', scope);
  const reads = async () => (await call('GET', `/v1/${project.id}/connections`, undefined, token)).status;
  expect(await reads()).toBe(200);
  expect((await call('DELETE', `${role}/reader`)).status).toBe(204);
  expect(await reads()).toBe(401);
  expect((await call('PUT', `${role}/reader`)).status).toBe(204);
  expect((await call('PUT', `${role}/owner`)).status).toBe(404);
  expect(await reads()).toBe(200);

  expect((await call('PATCH', `/v3/users/${id}`, { user: { password: 'another one' } })).status).toBe(200);
  expect(await reads()).toBe(401);
  expect((await login('alice', 'another one', scope)).status).toBe(201);
  const disabled = await call('PATCH', `/identity/v3/users/${id}`, {
    user: { name: 'alice', enabled: false },
  });
  expect([disabled.status, disabled.body.user.enabled]).toEqual([200, false]);
  expect((await call('PATCH', `/v3/users/${id}`, { user: { name: 'bob' } })).body.error.message).toBe(
    'user.name cannot be changed',
  );
  expect((await call('DELETE', `/v3/users/${id}`)).status).toBe(204);
  expect((await call('DELETE', `/v3/users/${id}`)).status).toBe(404);
  expect((await audited()).map(({ action }) => action)).toEqual([
    'installation.create',
    'user.add',
    'login',
    'role.grant',
    'role.revoke',
    'role.grant',
    'user.set_password',
    'user.disable',
    'user.delete',
  ]);
});

test('an administrator creates, disables and deletes a project', async () => {
  const created = await call('POST', '/v3/projects', { project: { name: 'shop', enabled: false } });
  expect([created.status, created.body.project.enabled]).toEqual([201, false]);
  const path = `/v3/projects/${created.body.project.id}`;
  expect((await call('PATCH', path, { project: { enabled: true } })).body.project.enabled).toBe(true);
  expect((await call('DELETE', path)).status).toBe(204);
  expect((await call('GET', path)).status).toBe(404);
});

test('several changes in one call are made together, or not at all', async () => {
  const path = `/v3/users/${installation.user.id}`;
  const change = { user: { password: 'another password', enabled: false } };
  expect((await call('PATCH', path, change)).status).toBe(400);
  const scope = { domain: { id: installation.domain.id } };
  expect((await login('admin', 'password', scope)).status).toBe(201);
  await call('POST', '/v3/users', { user: { name: 'bob', password: 'password', enabled: false } });
  const { id } = await addUser('alice');
  expect((await call('PATCH', `/v3/users/${id}`, change)).body.user.enabled).toBe(false);
  await call('PATCH', `/v3/users/${id}`, { user: { enabled: true } });
  const ofDomain = `/v3/domains/${installation.domain.id}/users/${id}/roles/reader`;
  await call('PUT', ofDomain);
  expect((await login('alice', 'another password', scope)).status).toBe(201);
  const records = await audited();
  expect(records.slice(1).map(({ action, outcome, object }) => [action, outcome, object.name])).toEqual([
    ['user.set_password', 'refused', 'admin'],
    ['user.disable', 'refused', 'admin'],
    // The user is created as disabled, not enabled first.
    ['user.add', 'done', 'bob'],
    ['user.add', 'done', 'alice'],
    ['user.set_password', 'done', 'alice'],
    ['user.disable', 'done', 'alice'],
    ['user.enable', 'done', 'alice'],
    ['role.grant', 'done', 'alice'],
  ]);
  expect(records.find(({ object }) => object.name === 'bob')?.after).toMatchObject({ enabled: false });
});

test('the last administrator and the last enabled project go only if the call names them', async () => {
  const { domain, project, user } = installation;
  const own = `/v3/domains/${domain.id}/users/${user.id}/roles/admin`;
  for (const [method, url, name, payload] of [
    ['PATCH', `/v3/projects/${project.id}`, 'default', { project: { enabled: false } }],
    ['DELETE', `/v3/projects/${project.id}`, 'default', undefined],
    ['PATCH', `/v3/users/${user.id}`, 'admin', { user: { enabled: false } }],
    ['DELETE', `/v3/users/${user.id}`, 'admin', undefined],
    ['DELETE', own, 'admin', undefined],
  ] as const) {
    for (const query of ['', '?confirm=', '?confirm=other']) {
      const { status, body } = await call(method, `${url}${query}`, payload);
      expect([url, status, body.error.message]).toEqual([
        url,
        400,
        expect.stringContaining(`repeat the call with confirm=${name}`),
      ]);
    }
  }
  expect((await audited()).filter(({ outcome }) => outcome === 'refused')).toHaveLength(15);

  const other = await addUser('other');
  await call('PUT', `/v3/domains/${domain.id}/users/${other.id}/roles/admin`);
  // A disabled administrator does not count.
  expect((await call('PATCH', `/v3/users/${other.id}`, { user: { enabled: false } })).status).toBe(200);
  expect((await call('DELETE', own)).status).toBe(400);
  expect((await call('PATCH', `/v3/users/${other.id}`, { user: { enabled: true } })).status).toBe(200);
  expect((await call('DELETE', `/v3/projects/${project.id}?confirm=default`)).status).toBe(204);
  expect((await call('DELETE', own)).status).toBe(204);
});

test('readers, tokens of a project, exchanged tokens and other domains change nothing', async () => {
  const { domain, project } = installation;
  const { administration } = identity;
  const foreign = await administration.addDomain('foreign');
  const victim = await administration.addUser({
    name: 'victim',
    domain_id: foreign.id,
    access: 'both',
    password: 'password',
    roles: {},
  });
  const reader = await administration.addUser({
    name: 'reader',
    domain_id: domain.id,
    access: 'both',
    password: 'password',
    roles: { [domain.id]: ['reader'] },
  });
  const ofDomain = { domain: { id: domain.id } };
  const ofReader = (await login('reader', 'password', ofDomain)).token;
  const ofProject = (await login('admin', 'password', { project: { id: project.id } })).token;
  const exchange = { auth: { identity: { methods: ['token'], token: { id: ofProject } }, scope: ofDomain } };
  const exchanged = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: exchange });
  for (const token of [ofReader, ofProject, String(exchanged.headers['x-subject-token'])]) {
    expect(
      (await call('POST', '/v3/users', { user: { name: 'x', password: 'password' } }, token)).status,
    ).toBe(403);
    expect((await call('DELETE', `/v3/users/${reader.id}`, undefined, token)).status).toBe(403);
  }
  expect((await call('DELETE', `/v3/users/${victim.id}`)).status).toBe(404);
  const elsewhere = { user: { name: 'x', password: 'password', domain_id: foreign.id } };
  expect((await call('POST', '/v3/users', elsewhere)).status).toBe(403);
  const role = `/v3/domains/${foreign.id}/users/${reader.id}/roles/admin`;
  expect((await call('PUT', role)).status).toBe(404);
  expect(administration.users().map(({ name }) => name)).toEqual(['admin', 'reader', 'victim']);
});

test('a change of a user or project that is being deleted does not reach a record of another domain that is named like its ID', async () => {
  const { domain } = installation;
  const { administration } = identity;
  const foreign = await administration.addDomain('foreign');
  const { id } = await addUser('alice');
  const twin = await administration.addUser({
    name: id,
    domain_id: foreign.id,
    access: 'both',
    password: 'password',
    roles: {},
  });
  const statuses = async (calls: Promise<{ status: number }>[]) =>
    (await Promise.all(calls)).map(({ status }) => status);
  const user = `/v3/users/${id}`;
  const [deletions, changes] = await Promise.all([
    statuses([call('DELETE', user), call('DELETE', user)]),
    statuses([
      call('PUT', `/v3/domains/${domain.id}/users/${id}/roles/admin`),
      call('PATCH', user, { user: { password: 'another password' } }),
      call('PATCH', user, { user: { enabled: false } }),
    ]),
  ]);
  // Which of the calls comes first is open.
  expect(deletions.sort()).toEqual([204, 404]);
  for (const status of changes) expect([200, 204, 404]).toContain(status);
  expect(administration.users()).toContainEqual(twin);

  const { body } = await call('POST', '/v3/projects', { project: { name: 'shop' } });
  const project = `/v3/projects/${body.project.id}`;
  const shop = await administration.addProject(foreign.id, body.project.id);
  await administration.addProject(foreign.id, 'other');
  const both = await statuses([call('DELETE', project), call('DELETE', project)]);
  expect(both.sort()).toEqual([204, 404]);
  expect(administration.projects()).toContainEqual(shop);
});
