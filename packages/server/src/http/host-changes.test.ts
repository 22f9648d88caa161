import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sign } from '@wafstat/signer';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { allRecords } from '../audit/audit-trail.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import type { Role } from '../identity/records.ts';
import { createApp } from './app.ts';

const NOW = Date.UTC(2026, 6, 1);
let directory: string;
let identity: Identity;
let app: FastifyInstance;
let projects: { own: string; other: string };

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-hosts-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const names = { domain: 'default', project: 'own', user: 'admin' };
  const { domain, project } = await identity.administration.bootstrap(names, 'password');
  const other = await identity.administration.addProject(domain.id, 'other');
  projects = { own: project.id, other: other.id };
  for (const role of ['reader', 'ingest', 'admin'] satisfies Role[]) {
    await identity.administration.addUser({
      name: `${role} of own`,
      domain_id: domain.id,
      access: 'both',
      password: 'password',
      roles: { [project.id]: [role] },
    });
  }
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
  rmSync(directory, { recursive: true });
});

async function tokenOf(name: string, project = projects.own): Promise<Record<string, string>> {
  const user = { name, password: 'password', domain: { name: 'default' } };
  const scope = { project: { id: project } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return { 'x-auth-token': String(response.headers['x-subject-token']) };
}

const hostsOf = (project: string) => `/v1/${project}/waf/instance`;

async function call(method: 'POST' | 'PATCH' | 'DELETE', url: string, headers: object, payload?: object) {
  const response = await app.inject({
    method,
    url,
    headers: { ...headers },
    ...(payload ? { payload } : {}),
  });
  return { status: response.statusCode, body: response.body === '' ? null : response.json() };
}

test('an administrator adds, renames and deletes a host with a token, and the audit trail has it', async () => {
  const headers = await tokenOf('admin of own');
  const hosts = hostsOf(projects.own);
  const added = await call('POST', hosts, headers, { hostname: 'WWW.example.com', server: [] });
  const { id } = added.body;
  expect(added).toEqual({
    status: 200,
    body: { id, hostid: id, hostname: 'www.example.com', timestamp: NOW },
  });
  const again = await call('POST', hosts, headers, { hostname: 'www.example.com' });
  expect([again.status, again.body.error_msg]).toEqual([400, expect.stringContaining('already has a host')]);
  const renamed = await call('PATCH', `${hosts}/${id}`, headers, { hostname: 'shop.example.com' });
  expect(renamed.body).toMatchObject({ id, hostname: 'shop.example.com' });
  expect((await call('PATCH', `${hosts}/${id}`, headers, { hostname: 'not a name' })).status).toBe(400);
  expect((await call('DELETE', `${hosts}/${id}`, headers)).status).toBe(204);
  expect((await call('DELETE', `${hosts}/${id}`, headers)).status).toBe(404);
  expect((await call('PATCH', `${hosts}/${id}`, headers, { hostname: 'x.example.com' })).status).toBe(404);
  const recorded: unknown[] = [];
  for (const record of await allRecords(identity.audit))
    if (record !== 'damaged' && record.object.type === 'host')
      recorded.push([record.action, record.outcome, record.user, record.via]);
  const done = ['host.add', 'host.rename', 'host.delete'].map((action) => [
    action,
    'done',
    'admin of own',
    'api',
  ]);
  expect(recorded).toEqual(expect.arrayContaining(done));
});

test('a request that is signed with an access key adds a host', async () => {
  const { id } = identity.administration.userNamed('admin of own');
  const key = await identity.administration.addKey(id, '');
  const url = `http://localhost${hostsOf(projects.own)}`;
  const body = JSON.stringify({ hostname: 'signed.example.com' });
  const signed = { method: 'POST', url, headers: { 'content-type': 'application/json' }, body } as const;
  const headers = await sign(signed, key, { now: () => NOW });
  const sent = { ...signed.headers, ...headers };
  const response = await app.inject({ method: 'POST', url, headers: sent, payload: body });
  expect(response.json()).toMatchObject({ hostname: 'signed.example.com' });
});

test('other roles, other projects and Basic credentials change no host', async () => {
  const headers = await tokenOf('admin', projects.other);
  const { body: host } = await call('POST', hostsOf(projects.other), headers, { hostname: 'a.example' });
  const { id } = identity.administration.userNamed('admin of own');
  const { access, secret } = await identity.administration.addKey(id, '');
  const basic = { authorization: `Basic ${Buffer.from(`${access}:${secret}`).toString('base64')}` };
  const attempts: [string, object, number][] = [
    [projects.own, await tokenOf('reader of own'), 403],
    [projects.own, await tokenOf('ingest of own'), 403],
    [projects.other, await tokenOf('admin of own'), 403],
    // The user administers both projects, but the token is for one.
    [projects.other, await tokenOf('admin', projects.own), 403],
    [projects.own, basic, 401],
    [projects.own, {}, 401],
  ];
  for (const [project, credentials, status] of attempts) {
    const path = `${hostsOf(project)}/${host.id}`;
    expect((await call('POST', hostsOf(project), credentials, { hostname: 'b.example' })).status).toBe(
      status,
    );
    expect((await call('PATCH', path, credentials, { hostname: 'b.example' })).status).toBe(status);
    expect((await call('DELETE', path, credentials)).status).toBe(status);
  }
  // The ID of a host of another project is unknown in the own one.
  const own = await tokenOf('admin of own');
  expect((await call('DELETE', `${hostsOf(projects.own)}/${host.id}`, own)).status).toBe(404);
  const listed = await app.inject({ url: hostsOf(projects.other), headers: { ...headers } });
  expect(listed.json().items).toMatchObject([{ id: host.id, hostname: 'a.example' }]);
});
