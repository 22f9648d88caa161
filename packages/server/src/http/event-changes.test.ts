/** Deleting kept attacks, and who may read them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkDocumented } from '../../../../test/documented.ts';
import { memoryStore } from '../../../../test/memory-store.ts';
import { type AuditRecord, allRecords } from '../audit/audit-trail.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import type { Store } from '../store/store.ts';
import { createApp } from './app.ts';

const NOW = Date.UTC(2026, 6, 1);
let directory: string;
let identity: Identity;
let store: Store;
let app: FastifyInstance;
let project: string;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-events-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const names = { domain: 'default', project: 'own', user: 'admin' };
  const made = await identity.administration.bootstrap(names, 'password');
  project = made.project.id;
  await identity.administration.addUser({
    name: 'reader',
    domain_id: made.domain.id,
    access: 'both',
    password: 'password',
    roles: { [project]: ['reader'] },
  });
  store = memoryStore(() => NOW);
  await start('reader');
  const [hostId = null] = await store.resolveHosts({ project, hostnames: ['a.example'], limit: 1 });
  const sources = ['203.0.113.7', '203.0.113.7', '203.0.113.8', '198.51.100.1'];
  const events = sources.map((source, i) => {
    const details = { source, id: String(i) };
    return {
      time: NOW - i,
      hostId: i === 3 ? hostId : null,
      request: true,
      attack: 'xss' as const,
      count: 1,
      details,
    };
  });
  await store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function start(eventsRole: 'reader' | 'admin'): Promise<void> {
  app = await createApp({
    store,
    identity,
    now: () => NOW,
    catalog: { publicUrl: 'https://waf.example.com', region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * 86_400_000, hostsMax: 1_000 },
    logger: false,
    eventsRole,
  });
}

async function tokenOf(name: string): Promise<Record<string, string>> {
  const user = { name, password: 'password', domain: { name: 'default' } };
  const scope = { project: { id: project } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return { 'x-auth-token': String(response.headers['x-subject-token']) };
}

async function call(method: 'GET' | 'DELETE', path: string, headers: Record<string, string>) {
  const url = `/v1/${project}/waf/${path}`;
  const response = await app.inject({ method, url, headers });
  const isJson = String(response.headers['content-type']).startsWith('application/json');
  if (isJson) checkDocumented(method, url, response.statusCode, response.body);
  return { status: response.statusCode, body: isJson ? response.json() : response.body };
}

const RANGE = `from=${NOW - 1_000}&to=${NOW + 1}`;

test('an administrator deletes the events that filters select; counts stay, and the audit trail names the filters and the number', async () => {
  const headers = await tokenOf('admin');
  const idsLeft = async () =>
    (await call('GET', `event?${RANGE}`, headers)).body.items.map(({ id }: { id: string }) => id);
  expect((await call('DELETE', 'event?sips=203.0.113.7', headers)).body).toEqual({ deleted: 2 });
  expect(await idsLeft()).toEqual(['2', '3']);
  expect((await call('DELETE', 'event?sips=203.0.113.7', headers)).body).toEqual({ deleted: 0 });
  expect((await call('DELETE', 'event?domain=a.ex&nids=3', headers)).body).toEqual({ deleted: 0 });
  expect((await call('DELETE', 'event?domain=a.ex', headers)).body).toEqual({ deleted: 1 });
  expect(await idsLeft()).toEqual(['2']);
  expect((await call('GET', `event/attack/num?${RANGE}`, headers)).body).toEqual({ attack_num: 4 });
  expect((await call('GET', `event?${RANGE}`, headers)).body).toMatchObject({ kept: 1, complete: false });
  const records = (await allRecords(identity.audit)).filter(
    (record) => record !== 'damaged' && record.action === 'events.delete',
  );
  // One before the change, and one with the number of deleted events.
  expect(records).toHaveLength(8);
  expect(records[0]).toMatchObject({
    outcome: 'done',
    user: 'admin',
    via: 'api',
    object: { type: 'project', id: project },
    before: { filters: ['sips'] },
  });
  const [first, second] = records as AuditRecord[];
  expect(second).toEqual({ ...first, time: second?.time, after: { deleted: 2 } });
  expect(JSON.stringify(records)).not.toContain('203.0.113');
});

test.each([
  ['event', 'deleting needs a filter that selects events'],
  ['event?nsips=203.0.113.7', 'deleting needs a filter that selects events'],
  ['event?query_mode=equal', 'deleting needs a filter that selects events'],
  ['event?sips=203.0.113', "sips is '203.0.113'"],
  ['event?sips=203.0.113.7&from=0&to=1', "there is no parameter 'from'"],
])('DELETE %s is a 400', async (path, message) => {
  const { status, body } = await call('DELETE', path, await tokenOf('admin'));
  expect([status, body.error_msg]).toEqual([400, expect.stringContaining(message)]);
  const query = { project, from: 0, to: NOW + 1, isAscending: true, offset: 0, limit: 0 };
  expect((await store.attacks({ ...query, filter: { include: {}, exclude: {} } })).total).toBe(4);
});

test('readers read events, unless the service requires the role admin, and never delete any', async () => {
  const paths = [`event?${RANGE}`, 'event/1', 'event/dump', 'event/dump/2026-07-01.csv', `tuning?${RANGE}`];
  const statuses = async (user: string) => {
    const headers = await tokenOf(user);
    return Promise.all(paths.map(async (path) => (await call('GET', path, headers)).status));
  };
  expect(await statuses('reader')).toEqual([200, 200, 200, 200, 200]);
  expect((await call('DELETE', 'event?ids=1', await tokenOf('reader'))).status).toBe(403);
  const dumps = await call('GET', 'event/dump', await tokenOf('reader'));
  expect(dumps.body.items[0].url).toMatch(/^https:\/\/waf\.example\.com\/v1\//);
  await app.close();
  await start('admin');
  expect(await statuses('reader')).toEqual([403, 403, 403, 403, 403]);
  expect(await statuses('admin')).toEqual([200, 200, 200, 200, 200]);
  expect((await call('GET', `event/attack/num?${RANGE}`, await tokenOf('reader'))).status).toBe(200);
});
