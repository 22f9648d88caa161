/** `POST /v3/auth/tokens`: request and response as in the specification. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Api, call, login, requestToken, tokenRequest } from './api.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;

beforeAll(async () => {
  installation = await sandbox.init('--domain', 'acme', '--project', 'shop', '--user', 'alice');
  server = await sandbox.serve(['--region', 'north']);
});
afterAll(() => sandbox.clear());

/** The status of a call with this token. */
async function statusWith(token: unknown): Promise<number> {
  const { address } = server;
  return (await new Api(address, installation.project_id, String(token)).get('connections')).status;
}

test('the request of the specification returns a project token in X-Subject-Token', async () => {
  const response = await requestToken(server.address, tokenRequest(installation));
  expect(response.status).toBe(201);
  expect(response.headers['content-type']).toMatch(/^application\/json/);
  expect(await statusWith(response.headers['x-subject-token'])).toBe(200);
});

test('the response has user, project, expiry and catalog', async () => {
  const { text } = await requestToken(server.address, tokenRequest(installation));
  const { domain_id, project_id, user_id } = installation;
  const domain = { id: domain_id, name: 'acme' };
  const endpoint = (url: unknown) => ({
    id: expect.any(String),
    interface: 'public',
    region: 'north',
    region_id: 'north',
    url,
  });
  const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  const service = (type: string, url: unknown) =>
    expect.objectContaining({ type, name: expect.any(String), endpoints: [endpoint(url)] });
  expect(JSON.parse(text)).toMatchObject({
    token: {
      methods: ['password'],
      issued_at: time,
      expires_at: time,
      user: { id: user_id, name: 'alice', domain, password_expires_at: null },
      project: { id: project_id, name: 'shop', domain },
      roles: expect.arrayContaining([{ id: expect.any(String), name: expect.any(String) }]),
      catalog: [
        service('identity', expect.stringContaining(server.address)),
        // The base URL: without a version or a trailing slash.
        service('waf', server.address),
        service('premium-waf', `${server.address}/v1/${project_id}`),
      ],
    },
  });
});

test('a token is valid for 24 hours from its issue', async () => {
  const before = Date.now();
  const { text } = await requestToken(server.address, tokenRequest(installation));
  const { issued_at, expires_at } = JSON.parse(text).token;
  expect(Date.parse(expires_at) - Date.parse(issued_at)).toBe(24 * 3_600_000);
  expect(Date.parse(issued_at) >= before && Date.parse(issued_at) <= Date.now()).toBe(true);
});

test('a new token does not revoke an older one', async () => {
  const older = await login(server.address, installation);
  await login(server.address, installation);
  expect(await statusWith(older.token)).toBe(200);
});

describe('user and project can be given in several ways', () => {
  test.each<[string, (made: Installation) => object]>([
    ['user name and domain name', () => ({ name: 'alice', domain: { name: 'acme' } })],
    ['user name and domain ID', ({ domain_id }) => ({ name: 'alice', domain: { id: domain_id } })],
    ['user ID', ({ user_id }) => ({ id: user_id })],
  ])('the user by %s', async (_, user) => {
    const body = tokenRequest(installation);
    const password = { user: { ...user(installation), password: installation.password } };
    const identity = { methods: ['password'], password };
    const response = await requestToken(server.address, { auth: { ...body.auth, identity } });
    expect(response.status).toBe(201);
    expect(await statusWith(response.headers['x-subject-token'])).toBe(200);
  });

  test.each<[string, (made: Installation) => object]>([
    ['ID', ({ project_id }) => ({ id: project_id })],
    ['name and domain name', () => ({ name: 'shop', domain: { name: 'acme' } })],
    ['name and domain ID', ({ domain_id }) => ({ name: 'shop', domain: { id: domain_id } })],
  ])('the project by %s', async (_, project) => {
    const { auth } = tokenRequest(installation);
    const scope = { project: project(installation) };
    const response = await requestToken(server.address, { auth: { ...auth, scope } });
    expect(response.status).toBe(201);
    expect(await statusWith(response.headers['x-subject-token'])).toBe(200);
  });
});

test('a token can be exchanged for one of another scope, which expires with it', async () => {
  const first = await requestToken(server.address, tokenRequest(installation));
  const token = String(first.headers['x-subject-token']);
  const exchange = (id: unknown, scope: object) =>
    requestToken(server.address, { auth: { identity: { methods: ['token'], token: { id } }, scope } });
  const domain = await exchange(token, { domain: { name: 'acme' } });
  expect(domain.status).toBe(201);
  const project = await exchange(domain.headers['x-subject-token'], { project: { name: 'shop' } });
  expect([project.status, await statusWith(project.headers['x-subject-token'])]).toEqual([201, 200]);
  const [given, made] = [first, project].map(({ text }) => JSON.parse(text).token);
  expect(made).toMatchObject({
    methods: ['password', 'token'],
    project: { id: installation.project_id },
    expires_at: given.expires_at,
    audit_ids: [expect.any(String), given.audit_ids[0]],
  });
  // A domain token can create access keys, which outlive it, so an exchanged token cannot be one.
  const headers = { 'X-Auth-Token': String(domain.headers['x-subject-token']) };
  const body = JSON.stringify({ credential: { user_id: installation.user_id } });
  const keys = '/v3.0/OS-CREDENTIAL/credentials';
  expect((await call(server.address, keys, { method: 'POST', headers, body })).status).toBe(403);
  expect((await call(server.address, keys, { headers })).status).toBe(403);

  const refused = async (id: unknown, scope: object) => {
    const { status, text } = await exchange(id, scope);
    return [status, JSON.parse(text).error.message];
  };
  const shop = { project: { id: installation.project_id } };
  expect(await refused('x.y', shop)).toEqual([401, expect.stringContaining('auth.identity.token.id')]);
  expect(await refused(5, shop)).toEqual([400, expect.stringContaining('auth.identity.token.id')]);
  expect(await refused(token, {})).toEqual([400, expect.stringContaining('auth.scope')]);
  expect(await refused(token, { system: { all: true } })).toEqual([
    400,
    expect.stringContaining('auth.scope'),
  ]);
  expect((await refused(token, { project: { id: 'f'.repeat(32) } }))[0]).toBe(401);
  const revoke = { 'X-Auth-Token': token, 'X-Subject-Token': token };
  await call(server.address, '/v3/auth/tokens', { method: 'DELETE', headers: revoke });
  expect((await refused(token, shop))[0]).toBe(401);
  expect(await statusWith(project.headers['x-subject-token'])).toBe(401);
});

describe('refused requests', () => {
  const refusal = async (body: unknown) => {
    const { status, text } = await requestToken(server.address, body);
    const { error, ...rest } = JSON.parse(text);
    expect(rest).toEqual({});
    expect(error.code).toBe(status);
    return { status, title: error.title, message: error.message };
  };

  test('a wrong password and an unknown user get the same response', async () => {
    const wrong = { ...installation, password: 'guess' };
    const first = await refusal(tokenRequest(wrong));
    expect(first).toEqual({ status: 401, title: 'Unauthorized', message: expect.stringMatching(/password/) });
    expect(await refusal(tokenRequest({ ...wrong, user: 'nobody' }))).toEqual(first);
    expect(await refusal(tokenRequest({ ...wrong, domain: 'nowhere' }))).toEqual(first);
    expect(await refusal(tokenRequest({ ...wrong, password: 'x'.repeat(5_000) }))).toEqual(first);
  });

  test('an unknown project and one of another user get the same response', async () => {
    const { status } = await refusal(tokenRequest({ ...installation, project_id: 'f'.repeat(32) }));
    expect(status).toBe(401);
  });

  test.each<[string, (body: ReturnType<typeof tokenRequest>) => unknown]>([
    ['auth.scope', ({ auth }) => ({ auth: { identity: auth.identity } })],
    ['auth.scope', ({ auth }) => ({ auth: { ...auth, scope: {} } })],
    [
      'auth.identity.methods',
      ({ auth }) => ({ auth: { ...auth, identity: { ...auth.identity, methods: [] } } }),
    ],
    ['auth.identity.password.user.password', ({ auth }) => withUser(auth, { password: 5 })],
    ['auth.identity.password.user.name', ({ auth }) => withUser(auth, { name: '' })],
    ['auth.identity.password.user.domain', ({ auth }) => withUser(auth, { domain: {} })],
    ['auth', () => []],
    ['auth', () => null],
    ['JSON', () => '{"auth":'],
    ['body', () => ''],
  ])('a body without its %s is a 400 that names it', async (name, spoil) => {
    const { status, title, message } = await refusal(spoil(tokenRequest(installation)));
    expect(status).toBe(400);
    expect(title).toBe('Bad Request');
    expect(message).toContain(name);
  });

  test('another method is a 405 and another path a 404, in the error format of identity', async () => {
    const put = await call(server.address, '/v3/auth/tokens', { method: 'PUT' });
    expect(put.status).toBe(405);
    expect(put.headers.allow).toContain('POST');
    expect(JSON.parse(put.text).error.code).toBe(405);
    const path = await call(server.address, '/v3/no/such/path');
    expect(path.status).toBe(404);
    expect(JSON.parse(path.text).error).toMatchObject({ code: 404, title: 'Not Found' });
  });
});

function withUser(auth: ReturnType<typeof tokenRequest>['auth'], fields: object) {
  const user = { ...auth.identity.password.user, ...fields };
  return { auth: { ...auth, identity: { ...auth.identity, password: { user } } } };
}
