import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@wafstat/client';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkDocumented } from '../../../../test/documented.ts';
import { memoryStore } from '../../../../test/memory-store.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import type { Role } from '../identity/records.ts';
import { createApp } from './app.ts';

const NOW = Date.UTC(2026, 6, 1);

let directory: string;
let identity: Identity;
let app: FastifyInstance;
let project: string;
const tokens = new Map<string, string>();

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-annotation-routes-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const { administration } = identity;
  const names = { domain: 'default', project: 'own', user: 'admin' };
  const made = await administration.bootstrap(names, 'password');
  project = made.project.id;
  for (const role of ['reader', 'ingest'] satisfies Role[]) {
    const roles = { [project]: [role] };
    const user = {
      name: role,
      domain_id: made.domain.id,
      access: 'both',
      password: 'password',
      roles,
    } as const;
    await administration.addUser(user);
  }
  app = await createApp({
    store: memoryStore(() => NOW),
    identity,
    now: () => NOW,
    catalog: { publicUrl: null, region: 'r' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: NOW, hostsMax: 10 },
    logger: false,
  });
  for (const name of ['admin', 'reader', 'ingest']) {
    const user = { name, password: 'password', domain: { name: 'default' } };
    const identityOf = { methods: ['password'], password: { user } };
    const payload = { auth: { identity: identityOf, scope: { project: { id: project } } } };
    const { headers } = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload });
    tokens.set(name, String(headers['x-subject-token']));
  }
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function call(user: string, method: 'GET' | 'POST' | 'DELETE', path = '', payload?: object) {
  const url = `/v1/${project}/waf/annotations${path}`;
  const headers = { 'X-Auth-Token': tokens.get(user) ?? '' };
  const response = await app.inject({ method, url, headers, ...(payload && { payload }) });
  if (response.body !== '') checkDocumented(method, url, response.statusCode, response.body);
  return { status: response.statusCode, body: response.body === '' ? null : response.json() };
}

test('readers list the annotations of a range, users with the role ingest add them, administrators delete them', async () => {
  const { status, body: release } = await call('ingest', 'POST', '', { text: 'release 4.2' });
  expect([status, release]).toEqual([
    200,
    { id: expect.any(String), time: NOW, text: 'release 4.2', link: null },
  ]);
  const link = 'https://git.example.com/rules/17';
  const { body: rule } = await call('admin', 'POST', '', { text: 'rule off', time: NOW - 1_000, link });
  expect(rule).toMatchObject({ time: NOW - 1_000, link });
  expect((await call('reader', 'GET')).body).toEqual({ total: 2, items: [release, rule] });
  const listed = async (query: string) => (await call('reader', 'GET', query)).body.items;
  expect(await listed(`?from=${NOW - 1_000}&to=${NOW}`)).toEqual([rule]);
  expect(await listed(`?from=${NOW}`)).toEqual([release]);
  expect((await call('reader', 'GET', '?host=a')).status).toBe(400);
  expect((await call('reader', 'GET', '?from=2&to=1')).body.error_msg).toBe('from (2) is after to (1)');
  expect((await call('admin', 'POST', '', { text: 'no link', time: 1, link: null })).status).toBe(200);
  expect(await listed('?to=2')).toMatchObject([{ text: 'no link', link: null }]);
  await call('admin', 'DELETE', `/${(await listed('?to=2'))[0].id}`);

  expect((await call('reader', 'POST', '', { text: 'x' })).status).toBe(403);
  expect((await call('ingest', 'GET')).status).toBe(403);
  expect((await call('ingest', 'DELETE', `/${rule.id}`)).status).toBe(403);
  expect((await call('admin', 'DELETE', `/${rule.id}`)).status).toBe(204);
  expect((await call('admin', 'DELETE', `/${rule.id}`)).status).toBe(404);
  expect((await call('reader', 'GET')).body).toEqual({ total: 1, items: [release] });
});

test('the typed client adds, lists and deletes annotations', async () => {
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  const token = tokens.get('admin') ?? '';
  const client = createClient({ url, projectId: project, credentials: { token } });
  const added = await client.addAnnotation({ text: 'release 4.2', time: NOW - 1 });
  expect(await client.annotations({ from: NOW - 1, to: NOW })).toEqual({ total: 1, items: [added] });
  await client.deleteAnnotation(added.id);
  expect(await client.annotations()).toEqual({ total: 0, items: [] });
});

test('a mistake is a 400 that names the field', async () => {
  for (const [payload, message] of [
    [{ text: 'x'.repeat(201) }, 'text must have 1 to 200 characters'],
    [{ text: 'a\u202eb' }, 'without invisible characters'],
    [{}, 'text must be a non-empty string'],
    [{ text: 'x', link: 'javascript:alert(1)' }, 'link must be an http or https URL'],
    [{ text: 'x', link: `https://a.example/${'x'.repeat(500)}` }, 'of up to 500 characters'],
    [{ text: 'x', time: -1 }, 'time must be a whole number of milliseconds'],
    [{ text: 'x', time: 'now' }, 'time must be a number of milliseconds'],
    [{ text: 'x', at: NOW }, "there is no field 'at'"],
  ] as const) {
    const { status, body } = await call('admin', 'POST', '', payload);
    expect([status, body.error_msg]).toEqual([400, expect.stringContaining(message)]);
  }
});

test('a project keeps the latest 1,000 annotations', async () => {
  await identity.alerts.change((write) => {
    for (let i = 1; i <= 1_000; i++)
      write.putAnnotation({ id: `a${i}`, project_id: project, time: i, text: 'x', link: null });
  });
  const listed = async () => (await call('admin', 'GET')).body.items;
  const { status, body } = await call('admin', 'POST', '', { text: 'one more' });
  expect(status).toBe(200);
  const kept: { id: string; time: number }[] = await listed();
  expect(kept).toHaveLength(1_000);
  expect([kept[0]?.id, kept.at(-1)?.time]).toEqual([body.id, 2]);
  const earlier = await call('admin', 'POST', '', { text: 'earlier than all others', time: 1 });
  expect([earlier.status, earlier.body.error_msg]).toEqual([
    400,
    expect.stringContaining('has 1000 later annotations'),
  ]);
  expect(await listed()).toEqual(kept);
});
