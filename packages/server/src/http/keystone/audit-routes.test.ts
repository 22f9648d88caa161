import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkDocumented } from '../../../../../test/documented.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import type { AuditRecord } from '../../audit/audit-trail.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import type { Role } from '../../identity/records.ts';
import { createApp } from '../app.ts';

const START = Date.UTC(2026, 6, 1);
const clock = { now: START };
let directory: string;
let identity: Identity;
let app: FastifyInstance;
let admin: string;

beforeEach(async () => {
  clock.now = START;
  directory = mkdtempSync(join(tmpdir(), 'wafstat-audit-routes-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now);
  await identity.administration.bootstrap(
    { domain: 'default', project: 'default', user: 'admin' },
    'password',
  );
  app = await createApp({
    store: memoryStore(() => clock.now),
    identity,
    now: () => clock.now,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * 86_400_000, hostsMax: 1_000 },
    logger: false,
  });
  admin = await login('admin', 'default');
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function login(name: string, domain: string, scope: object = { domain: { name: domain } }) {
  const user = { name, password: 'password', domain: { name: domain } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return String(response.headers['x-subject-token']);
}

async function get(url: string, token = admin) {
  const response = await app.inject({ url, headers: { 'x-auth-token': token } });
  checkDocumented('GET', url, response.statusCode, response.body);
  const body = response.json();
  const records: AuditRecord[] = body.audit_records;
  const next: string | null = body.links?.next ?? null;
  return { status: response.statusCode, body, records, next: next && new URL(next) };
}

const actionsOf = (records: readonly AuditRecord[]) => records.map(({ action }) => action);

test('lists who changed what, when and from where, newest first', async () => {
  const { domain_id } = identity.administration.userNamed('admin');
  clock.now += 1_000;
  const response = await app.inject({
    method: 'POST',
    url: '/v3/projects',
    headers: { 'x-auth-token': admin },
    payload: { project: { name: 'shop' } },
  });
  const { status, records, next } = await get('/v3/audit_records');
  expect([status, next]).toEqual([200, null]);
  expect(actionsOf(records)).toEqual(['project.add', 'installation.create']);
  expect(records[0]).toMatchObject({
    time: '2026-07-01T00:00:01.000Z',
    user: 'admin',
    via: 'api',
    address: '127.0.0.1',
    request_id: response.headers['x-request-id'],
    object: { type: 'project', name: 'shop' },
    domain_id,
    outcome: 'done',
  });
});

test('filters by time, user and action', async () => {
  const { administration } = identity;
  const { id: domainId } = administration.domainNamed('default');
  const { id: userId } = administration.userNamed('admin');
  const byAdmin = administration.as({ user: 'admin', user_id: userId, via: 'console' });
  for (const name of ['a', 'b', 'c']) {
    clock.now += 1_000;
    await administration.addProject(domainId, name);
    await byAdmin.addKey(userId, name).catch(() => {});
  }
  const namesOf = async (query: string) =>
    (await get(`/v3/audit_records?${query}`)).records.map(({ action, object }) => object.name ?? action);
  expect(await namesOf(`from=${START + 2_000}&to=${START + 3_000}`)).toEqual(['key.add', 'b']);
  expect(await namesOf(`from=${START + 2_001}&action=project`)).toEqual(['c']);
  expect(await namesOf('action=project.add')).toEqual(['c', 'b', 'a']);
  expect(await namesOf('user=admin')).toEqual(['key.add', 'key.add', 'key.add']);
  expect(await namesOf(`user=${userId}&action=key.add`)).toHaveLength(3);
  expect(await namesOf('user=local:unknown&action=project')).toHaveLength(3);
  expect(await namesOf('user=nobody')).toEqual([]);
});

test('pages have each record once, while more are added', async () => {
  const { administration } = identity;
  const { id } = administration.domainNamed('default');
  for (let i = 0; i < 25; i++) await administration.addProject(id, `p${i}`);
  const names: (string | undefined)[] = [];
  for (let page: string | null = '/v3/audit_records?limit=10&action=project'; page !== null; ) {
    const { records, next } = await get(page);
    names.push(...records.map(({ object }) => object.name));
    await administration.addProject(id, `later${names.length}`);
    page = next && next.pathname + next.search;
  }
  expect(names).toEqual(Array.from({ length: 25 }, (_, i) => `p${24 - i}`));
});

test('a page ends after 10,000 records that do not match', async () => {
  const line = {
    id: 'x',
    user: 'x',
    via: 'api',
    action: 'login',
    object: { type: 'user' },
    outcome: 'refused',
  };
  const text = `${JSON.stringify({ time: '2026-07-01T00:00:00.000Z', ...line })}\n`;
  writeFileSync(join(directory, 'audit.log'), text.repeat(10_000), { flag: 'a' });
  const first = await get('/v3/audit_records?action=installation');
  expect(first.records).toEqual([]);
  const second = await get(`/v3/audit_records${first.next?.search}`);
  expect(actionsOf(second.records)).toEqual(['installation.create']);
  expect(second.next).toBeNull();
});

test('an administrator sees the own domain only, also what was deleted; starts if there is no other', async () => {
  const { administration, audit } = identity;
  await audit.append({
    id: '1',
    user: 'local:root',
    via: 'command line',
    action: 'service.start',
    object: { type: 'service' },
    outcome: 'done',
  });
  expect(actionsOf((await get('/v3/audit_records')).records)).toContain('service.start');
  const other = await administration.addDomain('other');
  const project = await administration.addProject(other.id, 'theirs');
  const given = { domain_id: other.id, access: 'both', password: 'password' } as const;
  const boss = await administration.addUser({ ...given, name: 'boss', roles: { [other.id]: ['admin'] } });
  const gone = await administration.addUser({ ...given, name: 'gone', roles: {} });
  await administration.changeRole('grant', gone.id, project.id, 'reader');
  const { access } = await administration.addKey(gone.id, '');
  await administration.changeKey(access, { status: 'inactive' });
  await administration.removeKey(access);
  await administration.setEnabled('user', gone.id, false);
  await administration.removeUser(gone.id);
  await identity.authenticator.login(
    { user: { id: boss.id }, password: 'wrong', scope: { domain: { id: other.id } } },
    { address: '192.0.2.1', via: 'api' },
  );
  const theirs = await get('/v3/audit_records', await login('boss', 'other'));
  expect(actionsOf(theirs.records)).toEqual([
    'login',
    'user.delete',
    'user.disable',
    'key.delete',
    'key.update',
    'key.add',
    'role.grant',
    'user.add',
    'user.add',
    'project.add',
    'domain.add',
  ]);
  expect(actionsOf((await get('/v3/audit_records')).records)).toEqual(['installation.create']);
});

test('refuses others, and wrong parameters', async () => {
  const { administration } = identity;
  const { id: domain_id } = administration.domainNamed('default');
  const { id: projectId } = administration.projectNamed('default');
  const roles: Record<string, Role[]> = { [projectId]: ['admin'] };
  await administration.addUser({ name: 'bob', domain_id, access: 'both', password: 'password', roles });
  const bob = await login('bob', 'default', { project: { id: projectId } });
  expect((await get('/v3/audit_records', bob)).status).toBe(403);
  for (const [query, message] of [
    ['from=x', "from is 'x'"],
    ['action=users', "action is 'users', but must be one of installation, installation.create, service"],
    ['limit=1001', "limit is '1001'"],
    ['marker=1-1', "marker is '1-1', but must be that of links.next"],
    ['users=bob', "there is no parameter 'users'"],
    ['user=a&user=b', 'user is given 2 times'],
  ]) {
    const { status, body } = await get(`/v3/audit_records?${query}`);
    expect([status, body.error.message]).toEqual([400, expect.stringContaining(message ?? '')]);
  }
});

test('records of a deleted domain stay hidden from administrators of the last one', async () => {
  const { administration } = identity;
  const other = await administration.addDomain('other');
  const { id } = await administration.addProject(other.id, 'secret');
  await administration.removeProject(id, memoryStore());
  await administration.removeDomain(other.id);
  const { records } = await get('/v3/audit_records');
  expect(records.filter(({ domain_id }) => domain_id === other.id)).toEqual([]);
  expect(actionsOf(records)).toContain('installation.create');
});
