import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import SwaggerParser from '@apidevtools/swagger-parser';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { sign } from '@wafstat/signer';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../test/admission.ts';
import { memoryStore } from '../../../../test/memory-store.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import type { Store } from '../store/store.ts';
import { createApp } from './app.ts';

const START = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;

let directory: string;
let identity: Identity;
let app: FastifyInstance;
let store: Store;
let project: string;
let logged: string;
const clock = { now: START };

beforeEach(async () => {
  clock.now = START;
  logged = '';
  directory = mkdtempSync(join(tmpdir(), 'wafstat-app-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now);
  const names = { domain: 'default', project: 'default', user: 'admin' };
  project = (await identity.administration.bootstrap(names, 'password')).project.id;
  store = memoryStore(() => clock.now);
  const stream = new Writable({
    write(chunk, _encoding, done) {
      logged += chunk;
      done();
    },
  });
  app = await createApp({
    store,
    identity,
    now: () => clock.now,
    catalog: { publicUrl: 'https://waf.example.com', region: 'eu' },
    bodyBytesMax: 20 * 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * 24 * HOUR_MS, hostsMax: 1_000 },
    admission: patientAdmission(),
    logger: { level: 'info', stream },
  });
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function login(): Promise<string> {
  const user = { name: 'admin', password: 'password', domain: { name: 'default' } };
  const auth = {
    identity: { methods: ['password'], password: { user } },
    scope: { project: { id: project } },
  };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  expect(response.statusCode).toBe(201);
  return String(response.headers['x-subject-token']);
}

function timeline(headers: Record<string, string>) {
  return app.inject({ url: `/v1/${project}/waf/event/timeline?from=0&to=60000`, headers });
}

describe('failures of the service', () => {
  test('a store that does not respond is a 503, and not ready', async () => {
    const token = await login();
    await store.close();
    const response = await timeline({ 'x-auth-token': token });
    expect(response.statusCode).toBe(503);
    expect(response.json()).toEqual({
      error_code: 'WAF.5001',
      error_msg: 'the store is unavailable; retry later',
    });
    expect(response.headers['retry-after']).toBe('5');
    const ready = await app.inject({ url: '/readyz' });
    expect(ready.statusCode).toBe(503);
    expect((await app.inject({ url: '/healthz' })).statusCode).toBe(200);
  });

  test('a bug is a 500 without details, which are in the log under the request ID', async () => {
    const token = await login();
    store.count = () => Promise.reject(new Error('the inner workings'));
    const response = await timeline({ 'x-auth-token': token });
    expect(response.statusCode).toBe(500);
    expect(response.json().error_code).toBe('WAF.5000');
    expect(response.body).not.toContain('inner workings');
    const line = logged.split('\n').find((text) => text.includes('inner workings'));
    expect(line).toContain(String(response.headers['x-request-id']));
  });
});

describe('a token', () => {
  test('is valid for 24 hours, then a 401 says that it has expired', async () => {
    const token = await login();
    clock.now += 24 * HOUR_MS - 1;
    expect((await timeline({ 'x-auth-token': token })).statusCode).toBe(200);
    clock.now += 1;
    const response = await timeline({ 'x-auth-token': token });
    expect(response.statusCode).toBe(401);
    expect(response.json()).toEqual({
      error_code: 'WAF.9001',
      error_msg: 'the token in X-Auth-Token has expired: request a new one',
    });
    expect(response.headers['x-token-refusal']).toBe('expired');
    expect((await timeline({ 'x-auth-token': 'x' })).headers['x-token-refusal']).toBe('unknown');
    expect((await timeline({})).headers['x-token-refusal']).toBeUndefined();
  });

  test('is never in the log, nor is a password or a signature', async () => {
    const token = await login();
    await timeline({ 'x-auth-token': token });
    await timeline({ 'x-auth-token': 'garbage' });
    expect(logged).toContain('"status":200');
    expect(logged).toContain('"user":"admin"');
    expect(logged).not.toContain(token.slice(-20));
    expect(logged).not.toMatch(/secret|garbage|X-Auth-Token/i);
  });
});

describe('a signed request', () => {
  const url = 'http://waf.example.com/v1/PROJECT/waf/event/timeline?from=0&to=60000';

  async function signed(
    change: { secret?: string; body?: Buffer; at?: number; method?: 'GET' | 'POST' } = {},
  ) {
    const user = identity.administration.userNamed('admin');
    const [known] = identity.administration.keysOf(user.id);
    if (known) await identity.administration.removeKey(known.access);
    const key = await identity.administration.addKey(user.id, '');
    const target = { method: change.method ?? 'GET', url: url.replace('PROJECT', project) };
    const request = change.body === undefined ? target : { ...target, body: change.body };
    const secret = change.secret ?? key.secret;
    const headers = await sign(
      request,
      { access: key.access, secret },
      { now: () => change.at ?? clock.now },
    );
    return { key, headers: { host: 'waf.example.com', ...headers } };
  }

  function send(headers: Record<string, string>, body?: Buffer) {
    const payload = body === undefined ? {} : { payload: body };
    return app.inject({ method: 'GET', url: url.replace('PROJECT', project).slice(22), headers, ...payload });
  }

  test('is accepted with and without a body', async () => {
    expect((await send((await signed()).headers)).statusCode).toBe(200);
    const body = Buffer.from('a body');
    const { headers } = await signed({ body });
    expect((await send(headers, body)).statusCode).toBe(200);
    expect((await send(headers, Buffer.from('another'))).statusCode).toBe(401);
  });

  test('with a wrong secret gets the canonical request of the service', async () => {
    const response = await send((await signed({ secret: 'wrong' })).headers);
    expect(response.statusCode).toBe(401);
    const { error_code, error_msg } = response.json();
    expect(error_code).toBe('WAF.9001');
    expect(error_msg).toContain(
      `GET|/v1/${project}/waf/event/timeline/|from=0&to=60000|host:waf.example.com|x-sdk-date:`,
    );
    expect(error_msg).toMatch(
      /\|\|host;x-sdk-date\|e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855$/,
    );
  });

  test('with a clock 16 minutes off is a 401 that names the header', async () => {
    const response = await send((await signed({ at: START - 16 * 60_000 })).headers);
    expect(response.statusCode).toBe(401);
    expect(response.json().error_msg).toMatch(/^X-Sdk-Date is more than 15 minutes off/);
  });

  test('may have a body of 64 KiB, and not a byte more, with a token or a signature', async () => {
    const body = Buffer.alloc(65_537);
    const fitting = body.subarray(1);
    expect((await send((await signed({ body: fitting })).headers, fitting)).statusCode).toBe(200);
    const response = await send((await signed({ body })).headers, body);
    expect(response.statusCode).toBe(413);
    expect(response.json()).toEqual({ error_code: 'WAF.7001', error_msg: 'request body exceeds 64 KiB' });
    const withToken = await app.inject({
      url: `/v1/${project}/connections`,
      headers: { 'x-auth-token': await login() },
      payload: body,
    });
    expect(withToken.statusCode).toBe(413);
  });

  test('of a disabled or deleted key or a console-only user is refused, each with its own message', async () => {
    const { administration } = identity;
    const { headers, key } = await signed();
    await administration.changeKey(key.access, { status: 'inactive' });
    expect((await send(headers)).json().error_msg).toBe('the access key is disabled');
    await administration.removeKey(key.access);
    expect((await send(headers)).json().error_msg).toBe('unknown access key');
    const { domain_id } = administration.userNamed('admin');
    const roles = { [project]: ['reader' as const] };
    const carol = await administration.addUser({
      name: 'carol',
      domain_id,
      access: 'console',
      password: 'password',
      roles,
    });
    const carolKey = await administration.addKey(carol.id, '');
    const added = await sign({ method: 'GET', url: url.replace('PROJECT', project) }, carolKey, {
      now: () => clock.now,
    });
    const response = await send({ host: 'waf.example.com', ...added });
    expect(response.statusCode).toBe(403);
    expect(response.json().error_msg).toBe(
      'This user only supports console access, not programmatic access.',
    );
  });

  test('of a user without a role in the project is a 403 that does not reveal whether the project exists', async () => {
    const { key } = await signed();
    await identity.administration.addProject(
      (await identity.administration.domainNamed('default')).id,
      'other',
    );
    const bob = await identity.administration.addUser({
      name: 'bob',
      domain_id: identity.administration.domainNamed('default').id,
      access: 'both',
      password: 'password',
      roles: { [identity.administration.projectNamed('other').id]: ['reader'] },
    });
    const bobKey = await identity.administration.addKey(bob.id, '');
    for (const [path, want] of [
      [project, 403],
      ['f'.repeat(32), 403],
      [identity.administration.projectNamed('other').id, 200],
    ] as const) {
      const target = `http://waf.example.com/v1/${path}/connections`;
      const added = await sign({ method: 'GET', url: target }, bobKey, { now: () => clock.now });
      const response = await app.inject({
        url: target.slice(22),
        headers: { host: 'waf.example.com', ...added },
      });
      expect(response.statusCode).toBe(want);
    }
    expect(key.access).not.toBe(bobKey.access);
  });
});

describe('a request that no route matches', () => {
  test.each([
    ['PATCH', '/v1/p/waf/event/timeline', 'GET, HEAD'],
    ['PROPFIND', '/v1/p/waf/event/timeline/', 'GET, HEAD'],
    ['PUT', '/v1/a%2Fb/%77af/instance?limit=1', 'GET, HEAD, POST'],
    ['PUT', '/v3/auth/tokens', 'DELETE, GET, HEAD, POST'],
    ['PUT', '/', 'GET, HEAD'],
  ] as const)('%s %s is a 405 with the methods of the path', async (method, url, allow) => {
    const response = await app.inject({ method: method as 'PUT', url });
    expect(response.statusCode).toBe(405);
    expect(response.headers.allow).toBe(allow);
    expect(response.body).toContain(`${method} is not a method of this path: use ${allow}`);
  });

  test.each(['/v1/p', '/v1/p/waf/event/timeline/x', '/openapiXjson', '/ingest/v1/', '/V3'])(
    'POST %s is a 404',
    async (url) => {
      expect((await app.inject({ method: 'POST', url })).statusCode).toBe(404);
    },
  );

  test('is refused for its method or path, not for the size of its body', async () => {
    const request = { method: 'PUT', payload: Buffer.alloc(70_000) } as const;
    const response = await app.inject({ ...request, url: `/ingest/v1/${project}` });
    expect([response.statusCode, response.headers.allow]).toEqual([405, 'POST']);
    expect((await app.inject({ ...request, url: '/nothing' })).statusCode).toBe(404);
  });
});

describe('the OpenAPI file', () => {
  test('equals docs/openapi.json (npx vitest run app.test -u writes it)', async () => {
    const served = (await app.inject({ url: '/openapi.json' })).json();
    expect(served.openapi).toBe('3.1.0');
    await expect(`${JSON.stringify(served, null, 2)}\n`).toMatchFileSnapshot('../../../../docs/openapi.json');
  });

  test('has no errors and no warnings of Redocly and swagger-parser', async () => {
    const source = (await app.inject({ url: '/openapi.json' })).body;
    const config = await createConfig({ extends: ['recommended'] });
    const problems = async (text: string) =>
      (await lintFromString({ source: text, absoluteRef: '/openapi.json', config })).map(
        ({ ruleId, message, location }) => `${ruleId}: ${message} (${location[0]?.pointer})`,
      );
    expect(await problems(source)).toEqual([]);
    // The rules apply.
    expect(await problems(source.replace('"servers"', '"x-servers"'))).toHaveLength(1);
    await SwaggerParser.validate(JSON.parse(source));
  });

  test('describes every path except aliases and pages', async () => {
    const { paths } = (await app.inject({ url: '/openapi.json' })).json();
    expect(Object.keys(paths)).toEqual(
      expect.arrayContaining([
        '/v1/{project_id}/waf/event/timeline',
        '/v1/{project_id}/waf/event/attack/type',
        '/v1/{project_id}/waf/instance',
        '/v1/{project_id}/connections',
        '/v3/auth/tokens',
        '/v3.0/OS-CREDENTIAL/credentials',
        '/healthz',
        '/readyz',
      ]),
    );
  });
});
