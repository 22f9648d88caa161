import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type FastifyInstance, fastify } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { queryAdmitted } from '../../diagnostics.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import type { Store } from '../../store/store.ts';
import { createApp } from '../app.ts';
import { mount } from '../route.ts';
import { fileRoutes } from './console-routes.ts';

const START = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;
type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

const CONSOLE = { 'x-wafstat-console': '1' };

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-console-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe('a session', () => {
  const clock = { now: START };
  let identity: Identity;
  let app: FastifyInstance;
  let project: string;
  let store: Store;

  beforeEach(async () => {
    clock.now = START;
    identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now);
    const names = { domain: 'default', project: 'default', user: 'admin' };
    project = (await identity.administration.bootstrap(names, 'password')).project.id;
    store = memoryStore(() => clock.now);
    app = await createApp({
      store,
      identity,
      now: () => clock.now,
      catalog: { publicUrl: null, region: 'eu' },
      bodyBytesMax: 1_048_576,
      rateLimit: 0,
      limits: { retentionMs: 180 * 24 * HOUR_MS, hostsMax: 1_000 },
      trustProxy: '10.0.0.1',
      admission: patientAdmission(),
      logger: false,
    });
  });

  afterEach(async () => {
    await app.close();
    await identity.close();
  });

  function signIn(options: { headers?: Record<string, string>; remoteAddress?: string } = {}) {
    const { headers = {}, remoteAddress = '192.0.2.1' } = options;
    return app.inject({
      method: 'POST',
      url: '/console/api/session',
      headers: { ...CONSOLE, ...headers },
      remoteAddress,
      payload: { user: 'admin', domain: 'default', password: 'password' },
    });
  }

  async function cookie(): Promise<string> {
    return String((await signIn()).headers['set-cookie']?.[0]).split(';')[0] ?? '';
  }

  const connections = (headers: Record<string, string>) =>
    app.inject({ url: `/v1/${project}/connections`, headers });

  async function figures(payload: object, headers?: Record<string, string>) {
    const url = `/console/api/projects/${project}/figures`;
    const sent = headers ?? { ...CONSOLE, cookie: await cookie() };
    return app.inject({ method: 'POST', url, headers: sent, payload });
  }

  test('gets figures between edges, by category, and of each host', async () => {
    const host = await store.addHost({ project, hostname: 'a.example', limit: 9 });
    if (host.kind === 'full') throw new Error('there is no room for a host');
    const event = { time: START, hostId: null, request: true, attack: null, count: 1 } as const;
    const attack = { ...event, hostId: host.host.id, attack: 'sqli', count: 2 } as const;
    const events = [
      event,
      { ...attack, time: START + 10 },
      { ...attack, time: START + 20, details: { blocked: true } },
    ];
    await store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
    const edges = [START, START + 10, START + 10, START + 20, START + 30];
    const whole = {
      requests: [1, 0, 2, 2],
      attacks: { sqli: [0, 0, 2, 2] },
      blocked: { sqli: [0, 0, 0, 2] },
    };
    const first_seen = START;
    expect((await figures({ edges })).json()).toEqual({ first_seen, ...whole, items: [] });
    const own = { id: host.host.id, hostname: 'a.example', requests: [0, 0, 2, 2], attacks: [0, 0, 2, 2] };
    expect((await figures({ edges, by_host: true })).json()).toEqual({ first_seen, ...whole, items: [own] });
    const { requests, peak } = (await figures({ edges, hosts: [host.host.id], peak: true })).json();
    expect({ requests, peak }).toEqual({ requests: [0, 0, 2, 2], peak: 4 });
    const noXss = { edges, by_host: true, filter: { attacks: ['xss'] } };
    expect((await figures(noXss)).json()).toMatchObject({
      attacks: {},
      blocked: {},
      items: [{ requests: [0, 0, 2, 2], attacks: [0, 0, 0, 0] }],
    });
  });

  test('gets figures of the attacks that a filter selects, of all requests, and how many attacks are kept', async () => {
    const added = await store.addHost({ project, hostname: 'a.example', limit: 9 });
    if (added.kind === 'full') throw new Error('there is no room for a host');
    const attack = { time: START, hostId: added.host.id, request: true, attack: 'sqli', count: 1 } as const;
    const events = [
      { ...attack, details: { id: '1', source: '192.0.2.1', blocked: true } },
      { ...attack, time: START + 10, details: { id: '2', source: '192.0.2.1' } },
      { ...attack, hostId: null, details: { id: '3', source: '192.0.2.2' } },
    ];
    await store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
    const edges = [START, START + 10, START + 20];
    expect((await figures({ edges, by_host: true, filter: { sips: ['192.0.2.1'] } })).json()).toEqual({
      first_seen: START,
      requests: [2, 1],
      attacks: { sqli: [1, 1] },
      blocked: { sqli: [1, 0] },
      kept: { attacks: 3, kept: 3 },
      items: [{ id: added.host.id, hostname: 'a.example', requests: [0, 0], attacks: [1, 1] }],
    });
    const others = await figures({ edges, filter: { nsips: ['192.0.2.0/31'] } });
    expect(others.json().attacks).toEqual({ sqli: [1, 0] });
  });

  test.each([
    ['no edges', {}, 'edges must be a list of 2 to 2002 times'],
    ['one edge', { edges: [1] }, 'edges must be'],
    ['edges in the wrong order', { edges: [2, 1] }, 'none before another'],
    ['an edge that is no number', { edges: [1, '2'] }, 'edges must be'],
    ['too many edges', { edges: Array.from({ length: 2_003 }, (_, i) => i) }, 'edges must be'],
    ['a range of more than ten years', { edges: [0, 1e12] }, 'more than ten years apart'],
    ['hosts that are no list', { edges: [0, 1], hosts: 'a' }, 'hosts must be a list'],
    ['a malformed host', { edges: [0, 1], hosts: ['a/b'] }, 'an ID is 1 to 64'],
    ['a filter that is no list', { edges: [0, 1], filter: { sips: '192.0.2.1' } }, 'filter must be'],
    ['a malformed filter', { edges: [0, 1], filter: { sips: ['x'] } }, 'must be an IP address'],
    ['a flag that is none', { edges: [0, 1], by_host: 'x' }, 'by_host must be true or false'],
  ])('gets no figures for %s', async (_name, payload, message) => {
    const response = await figures(payload);
    expect([response.statusCode, response.json().error_msg]).toEqual([400, expect.stringContaining(message)]);
  });

  test('does not replace a password that was set while the old one was checked', async () => {
    const { authenticator, administration } = identity;
    const confirm = authenticator.confirmPassword.bind(authenticator);
    authenticator.confirmPassword = async (...args) => {
      const checked = await confirm(...args);
      await administration.setPassword(args[0].id, 'set by another');
      return checked;
    };
    const changed = await app.inject({
      method: 'POST',
      url: `/v3/users/${administration.users()[0]?.id}/password`,
      headers: { ...CONSOLE, cookie: await cookie() },
      payload: { user: { original_password: 'password', password: 'new password' } },
    });
    expect(changed.statusCode).toBe(400);
    expect(changed.json().error.message).toContain('meanwhile');
    const from = { address: '192.0.2.1', via: 'console' } as const;
    const admin = { name: 'admin', domain: { name: 'default' } };
    expect(await authenticator.signIn(admin, 'set by another', from)).toMatchObject({
      user: { name: 'admin' },
    });
  });

  test.each([
    ['session', 'a body'],
    ['token', 'a body'],
    ['session', 'an empty body'],
    ['token', 'an empty body'],
  ])(
    'or a token whose user is disabled while the body arrives changes nothing: %s, %s',
    async (kind, content) => {
      const { authenticator, administration } = identity;
      const [user] = administration.users();
      if (user === undefined) throw new Error('there is no user');
      const from = { address: '127.0.0.1', via: 'api' } as const;
      const login = {
        user: { id: user.id },
        password: 'password',
        scope: { domain: { id: user.domain_id } },
      };
      const token = await authenticator.login(login, from);
      const headers =
        kind === 'session' ? { ...CONSOLE, cookie: await cookie() } : { 'x-auth-token': Object(token).text };
      const call =
        content === 'a body'
          ? { method: 'POST', path: '/v3/projects', payload: JSON.stringify({ project: { name: 'new' } }) }
          : { method: 'DELETE', path: `/v3/projects/${project}`, payload: '' };
      const method = kind === 'session' ? 'checkSession' : 'checkToken';
      const check = authenticator[method].bind(authenticator) as (text: string) => Promise<never>;
      const checked = new Promise<void>((resolve) => {
        authenticator[method] = (text: string) => check(text).finally(resolve);
      });
      const { port } = new URL(await app.listen({ port: 0, host: '127.0.0.1' }));
      const chunked = { 'transfer-encoding': 'chunked' };
      const sent = request({ port, ...call, headers: { ...headers, ...chunked } });
      const response = once(sent, 'response');
      sent.flushHeaders();
      await checked;
      await administration.setEnabled('user', user.id, false, { confirm: user.name });
      sent.end(call.payload);
      const [{ statusCode }] = await response;
      expect(statusCode).toBe(401);
      expect(administration.projects().map(({ name }) => name)).toEqual(['default']);
    },
  );

  test('shares the limit of queries with the API when it gets figures', async () => {
    const headers = { ...CONSOLE, cookie: await cookie() };
    const { count } = store;
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    store.count = async (query) => gate.then(() => count(query));
    const calls = Array.from({ length: 66 }, (_, i) => {
      const url = `/v1/${project}/waf/event/timeline?from=0&to=${i + 1}&step=1`;
      return i % 2 ? figures({ edges: [0, 1] }, headers) : app.inject({ url, headers });
    });
    const codes: string[] = [];
    for (const one of calls) void one.then((response) => codes.push(response.json().error_code));
    await expect.poll(() => codes).toEqual(['WAF.3004', 'WAF.3004']);
    open();
    await Promise.all(calls);
  });

  test('lets others take their turn between the figures of two hosts', async () => {
    for (const hostname of ['a', 'b', 'c']) await store.addHost({ project, hostname, limit: 9 });
    const { count } = store;
    store.count = async (query) => {
      // Longer than a turn of the event loop should take.
      for (const end = performance.now() + 6; performance.now() < end; );
      return count(query);
    };
    let admitted = 0;
    const end = queryAdmitted.subscribe(() => void admitted++);
    expect((await figures({ edges: [0, 1], by_host: true })).json().items).toHaveLength(3);
    end();
    expect(admitted).toBe(4);
  });

  test('is a cookie that scripts cannot read, with the __Host- prefix unless on insecure loopback', async () => {
    const cookieOf = async (options: Parameters<typeof signIn>[0]) =>
      String((await signIn(options)).headers['set-cookie']?.[0]);
    const attributes = 'Path=/; HttpOnly; SameSite=Strict; Max-Age=43200';
    const plain = new RegExp(`^wafstat_session=[\\w.-]+; ${attributes}$`);
    const secure = new RegExp(`^__Host-wafstat_session=[\\w.-]+; ${attributes}; Secure$`);
    for (const host of ['localhost', 'localhost:8080', '127.0.0.1:8080', '[::1]:8080'])
      expect(await cookieOf({ headers: { host } })).toMatch(plain);
    const forwarded = { 'x-forwarded-proto': 'https' };
    expect(await cookieOf({ headers: forwarded, remoteAddress: '10.0.0.1' })).toMatch(secure);
    // Only the header of a trusted proxy counts.
    expect(await cookieOf({ headers: forwarded })).toMatch(plain);
    expect(await cookieOf({ headers: { host: 'waf.example.com' } })).toMatch(secure);
  });

  test('is not started for a browser on plain HTTP beyond loopback, which would drop the cookie', async () => {
    const host = 'waf.example.com';
    const response = await signIn({ headers: { host, origin: `http://${host}` } });
    expect([response.statusCode, response.json().error_msg]).toEqual([403, expect.stringContaining('HTTPS')]);
    expect((await signIn({ headers: { host, origin: `https://${host}` } })).statusCode).toBe(201);
  });

  test('is rejected under the plain cookie name if the cookie must be secure: another host could have set it', async () => {
    const headers = { host: 'waf.example.com' };
    const [pair = ''] = String((await signIn({ headers })).headers['set-cookie']?.[0]).split(';');
    expect((await connections({ ...headers, cookie: pair })).statusCode).toBe(200);
    const planted = pair.replace('__Host-', '');
    expect((await connections({ ...headers, cookie: planted })).statusCode).toBe(401);
  });

  test('expires after 12 hours with a 401', async () => {
    const headers = { cookie: await cookie() };
    clock.now += 12 * HOUR_MS - 1;
    expect((await connections(headers)).statusCode).toBe(200);
    clock.now += 1;
    const response = await connections(headers);
    expect(response.statusCode).toBe(401);
    expect(response.json()).toEqual({
      error_code: 'WAF.9001',
      error_msg: 'the session has expired: sign in again',
    });
  });

  test('is rejected if it started in the future, because the clock was set back', async () => {
    const headers = { cookie: await cookie() };
    clock.now -= 60_000;
    expect((await connections(headers)).statusCode).toBe(200);
    clock.now -= 1;
    const response = await connections(headers);
    expect([response.statusCode, response.json().error_msg]).toEqual([
      401,
      expect.stringContaining('set back'),
    ]);
  });

  test('does not count if the request has a token', async () => {
    const headers = { cookie: await cookie(), 'x-auth-token': 'wrong' };
    expect((await connections(headers)).statusCode).toBe(401);
    expect((await connections({ cookie: 'other=1' })).json().error_msg).toContain('X-Auth-Token');
  });

  test('is rejected if it was modified', async () => {
    const whole = await cookie();
    for (const broken of [whole.slice(0, -1), `${whole}x`, 'wafstat_session=x.y', 'wafstat_session=']) {
      expect((await connections({ cookie: broken })).statusCode).toBe(401);
    }
  });

  test('forbids caching of responses', async () => {
    const response = await app.inject({ url: '/console/api/session', headers: { cookie: await cookie() } });
    expect(response.headers['cache-control']).toBe('no-store');
    expect(response.json()).toMatchObject({
      user: { name: 'admin', domain: 'default', access: 'both' },
      administers_domain: true,
      projects: [{ id: project, name: 'default', roles: ['admin'] }],
    });
  });
});

describe('the calls of the console', () => {
  let identity: Identity;
  let app: FastifyInstance;
  let store: Store;
  let ids: { domain: string; project: string; admin: string };
  let admin: string;

  beforeEach(async () => {
    identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => START);
    const names = { domain: 'default', project: 'default', user: 'admin' };
    const { domain, project, user } = await identity.administration.bootstrap(names, 'password');
    ids = { domain: domain.id, project: project.id, admin: user.id };
    store = memoryStore(() => START);
    app = await createApp({
      store,
      identity,
      now: () => START,
      catalog: { publicUrl: null, region: 'eu' },
      bodyBytesMax: 1_048_576,
      rateLimit: 0,
      limits: { retentionMs: 180 * 24 * HOUR_MS, hostsMax: 1_000 },
      admission: patientAdmission(),
      topListsMs: 30 * 24 * HOUR_MS,
      installed: {
        program: '/opt/wafstat',
        options: ['--data', '/var/lib/wafstat'],
        counting: ['--attack-sources', 'off'],
      },
      logger: false,
    });
    admin = await signIn('admin', 'password');
  });

  afterEach(async () => {
    await app.close();
    await identity.close();
  });

  async function signIn(user: string, password: string, domain = 'default'): Promise<string> {
    const payload = { user, domain, password };
    const response = await call('POST', 'session', payload, '');
    return String(response.headers['set-cookie']?.[0]).split(';')[0] ?? '';
  }

  function call(method: Method, path: string, payload?: object, cookie = admin) {
    const headers = { ...CONSOLE, cookie };
    return app.inject({ method, url: `/console/api/${path}`, headers, ...(payload ? { payload } : {}) });
  }

  /** A call of Keystone, with the session. */
  function keystone(
    method: Method,
    path: string,
    payload?: object,
    cookie = admin,
    headers: object = CONSOLE,
  ) {
    const sent = { ...headers, cookie };
    return app.inject({ method, url: path, headers: sent, ...(payload ? { payload } : {}) });
  }

  const PASSWORD = 'a password';

  async function addUser(name: string, ...roles: string[]): Promise<string> {
    const response = await keystone('POST', '/v3/users', { user: { name, password: PASSWORD } });
    expect(response.statusCode).toBe(201);
    const { id } = response.json().user;
    for (const role of roles) expect((await keystone('PUT', roleOf(id, role))).statusCode).toBe(204);
    return id;
  }

  const roleOf = (user: string, role: string) => `/v3/projects/${ids.project}/users/${user}/roles/${role}`;

  test('create a user, change the roles, reset the password, and delete the user', async () => {
    const id = await addUser('alice');
    const session = () => call('GET', 'session', undefined, alice);
    let alice = await signIn('alice', PASSWORD);
    expect((await session()).json().projects).toEqual([]);
    for (const role of ['reader', 'ingest']) await keystone('PUT', roleOf(id, role));
    expect((await session()).json().projects).toMatchObject([{ roles: ['reader', 'ingest'] }]);
    expect((await keystone('DELETE', roleOf(id, 'ingest'))).statusCode).toBe(204);
    expect((await session()).json().projects).toMatchObject([{ roles: ['reader'] }]);

    await keystone('PATCH', `/v3/users/${id}`, { user: { password: 'another one' } });
    expect((await session()).json().error_msg).toContain('the password was changed');
    alice = await signIn('alice', 'another one');
    expect((await session()).statusCode).toBe(200);
    expect((await keystone('DELETE', `/v3/users/${id}`)).statusCode).toBe(204);
    expect((await session()).json().error_msg).toBe('the user of the session has been deleted');
  });

  test('users change their own password, and only the session that did it goes on', async () => {
    const id = await addUser('alice');
    const [first, second] = [await signIn('alice', PASSWORD), await signIn('alice', PASSWORD)];
    const change = (user: object, cookie: string, path = id) =>
      keystone('POST', `/v3/users/${path}/password`, { user }, cookie);
    const wrong = await change({ original_password: 'wrong', password: 'new password' }, first);
    expect([wrong.statusCode, wrong.json().error.message]).toEqual([400, 'the old password is wrong']);
    const right = { original_password: PASSWORD, password: 'new password' };
    expect((await change({ ...right, password: 'short' }, first)).statusCode).toBe(400);
    expect((await change(right, first, ids.admin)).statusCode).toBe(403);
    const changed = await change(right, first);
    expect(changed.statusCode).toBe(204);
    const third = String(changed.headers['set-cookie']?.[0]).split(';')[0];
    const states = [first, second, third].map((cookie) => call('GET', 'session', undefined, cookie));
    expect((await Promise.all(states)).map(({ statusCode }) => statusCode)).toEqual([401, 401, 200]);
  });

  test('administrators manage the access keys of others, and see no secret again', async () => {
    const id = await addUser('alice');
    const path = '/v3.0/OS-CREDENTIAL/credentials';
    const created = await keystone('POST', path, { credential: { user_id: id, description: 'ci' } });
    const { access, secret } = created.json().credential;
    expect([access.length, secret.length]).toEqual([20, 40]);
    const changed = await keystone('PUT', `${path}/${access}`, { credential: { status: 'inactive' } });
    expect(changed.json().credential).toMatchObject({ status: 'inactive' });
    const listed = await keystone('GET', `${path}?domain_id=${ids.domain}`);
    expect(listed.body).not.toContain(secret);
    expect(listed.json().credentials).toMatchObject([
      { access, user_id: id, description: 'ci', status: 'inactive' },
    ]);
    const alice = await signIn('alice', PASSWORD);
    expect((await keystone('GET', path, undefined, alice)).json().credentials).toHaveLength(1);
    expect((await keystone('GET', `${path}?domain_id=${ids.domain}`, undefined, alice)).statusCode).toBe(403);
    expect((await keystone('GET', `${path}?domain_id=other`)).statusCode).toBe(403);
    expect((await keystone('DELETE', `${path}/${access}`)).statusCode).toBe(204);
  });

  test('nobody locks everyone out by accident', async () => {
    // Only users of the domain can manage it in the console.
    const foreign = await identity.administration.addDomain('foreign');
    await identity.administration.addUser({
      name: 'operator',
      domain_id: foreign.id,
      access: 'both',
      password: 'password',
      roles: { [ids.domain]: ['admin'] },
    });
    const own = `/v3/users/${ids.admin}`;
    const project = `/v3/projects/${ids.project}`;
    const refusals = [
      await keystone('PATCH', own, { user: { enabled: false } }),
      await keystone('PATCH', own, { user: { password: 'set by whoever sits there' } }),
      await keystone('DELETE', `${own}?confirm=admin`),
      await keystone('DELETE', `/v3/domains/${ids.domain}/users/${ids.admin}/roles/admin`),
      await keystone('PATCH', project, { project: { enabled: false } }),
      await keystone('DELETE', `${project}?confirm=other`),
    ];
    expect(refusals.map((response) => response.json().error.message)).toEqual([
      'you cannot disable yourself in the console',
      'you cannot set your password without the old one in the console',
      'you cannot delete yourself in the console',
      expect.stringContaining('last administrator of the domain'),
      expect.stringContaining('last enabled project of the domain'),
      expect.stringContaining('last enabled project of the domain'),
    ]);
    expect((await keystone('DELETE', `${project}?confirm=default`)).statusCode).toBe(204);
    expect((await call('GET', 'session')).json()).toMatchObject({ administers_domain: true, projects: [] });
  });

  /** Every change that a session can make, with bodies that would be accepted. */
  const changes = (user: string, host: string): [Method, string, object?][] => [
    ['POST', '/v3/users', { user: { name: 'mallory', password: PASSWORD } }],
    ['PATCH', `/v3/users/${user}`, { user: { password: 'hijacked' } }],
    ['DELETE', `/v3/users/${user}`],
    [
      'POST',
      `/v3/users/${ids.admin}/password`,
      { user: { original_password: 'password', password: 'hijacked' } },
    ],
    ['POST', '/v3/projects', { project: { name: 'x' } }],
    ['PATCH', `/v3/projects/${ids.project}?confirm=default`, { project: { enabled: false } }],
    ['DELETE', `/v3/projects/${ids.project}?confirm=default`],
    ['PUT', roleOf(user, 'admin')],
    ['DELETE', roleOf(user, 'reader')],
    ['PUT', `/v3/domains/${ids.domain}/users/${user}/roles/admin`],
    ['DELETE', `/identity/v3/domains/${ids.domain}/users/${user}/roles/reader`],
    ['POST', '/v3.0/OS-CREDENTIAL/credentials', { credential: { user_id: user } }],
    ['POST', `/v1/${ids.project}/waf/instance`, { hostname: 'new.example' }],
    ['PATCH', `/v1/${ids.project}/waf/instance/${host}`, { hostname: 'new.example' }],
    ['DELETE', `/v1/${ids.project}/waf/instance/${host}`],
  ];

  async function addHost(): Promise<string> {
    const added = await keystone('POST', `/v1/${ids.project}/waf/instance`, { hostname: 'a.example' });
    expect(added.statusCode).toBe(200);
    return added.json().id;
  }

  const state = async () => ({
    users: identity.administration.users(),
    projects: identity.administration.projects(),
    keys: identity.administration.users().flatMap(({ id }) => identity.administration.keysOf(id)),
    hosts: await store.hosts(ids.project),
  });

  test.each([
    ['a form', {}],
    ['a form that sends JSON', { 'content-type': 'text/plain', origin: 'https://evil.example' }],
    ['a script with the header', { ...CONSOLE, origin: 'https://evil.example' }],
    ['a script on a sibling host', { ...CONSOLE, 'sec-fetch-site': 'same-site' }],
    ['a script on another site', { ...CONSOLE, 'sec-fetch-site': 'cross-site' }],
    ['a sandboxed frame', { ...CONSOLE, origin: 'null' }],
  ])('the page of an attacker cannot use the cookie for a change: %s', async (_, headers) => {
    const user = await addUser('alice', 'reader');
    const host = await addHost();
    const before = await state();
    for (const [method, path, payload] of changes(user, host)) {
      const response = await keystone(method, path, payload, admin, headers);
      expect([method, path, response.statusCode]).toEqual([method, path, 403]);
      expect(response.headers['access-control-allow-origin']).toBeUndefined();
    }
    expect(await state()).toEqual(before);
  });

  test('sessions of readers, and of administrators of another domain, change nothing', async () => {
    const { administration } = identity;
    const user = await addUser('alice', 'reader');
    const host = await addHost();
    const foreign = await administration.addDomain('foreign');
    await administration.addUser({
      name: 'stranger',
      domain_id: foreign.id,
      access: 'both',
      password: PASSWORD,
      roles: { [foreign.id]: ['admin'] },
    });
    const before = await state();
    const calls = changes(user, host);
    for (const cookie of [await signIn('alice', PASSWORD), await signIn('stranger', PASSWORD, 'foreign')]) {
      for (const [method, path, payload] of calls) {
        // Users may create a key of their own; a stranger may create users and projects of the own domain.
        if (path.endsWith('credentials') || path === '/v3/users' || path === '/v3/projects') continue;
        const { statusCode } = await keystone(method, path, payload, cookie);
        expect([method, path, [403, 404].includes(statusCode)]).toEqual([method, path, true]);
      }
      for (const path of [`/v3/users/${ids.admin}`, '/v3/role_assignments?scope.project.id=x'])
        expect((await keystone('GET', path, undefined, cookie)).body).not.toContain(ids.admin);
    }
    const alice = await signIn('alice', PASSWORD);
    for (const [method, path, payload] of calls.filter(([, path]) => /v3\/(users|projects)$/.test(path)))
      expect((await keystone(method, path, payload, alice)).statusCode).toBe(403);
    const key = { credential: { user_id: ids.admin } };
    expect((await keystone('POST', '/v3.0/OS-CREDENTIAL/credentials', key, alice)).statusCode).toBe(403);
    expect(await state()).toEqual(before);
  });

  test('a session of an administrator of several domains shows only the own one', async () => {
    const foreign = await identity.administration.addDomain('foreign');
    await identity.administration.addProject(foreign.id, 'theirs');
    await identity.administration.addUser({
      name: 'stranger',
      domain_id: foreign.id,
      access: 'both',
      password: PASSWORD,
      roles: { [foreign.id]: ['reader'] },
    });
    await identity.administration.changeRole('grant', ids.admin, foreign.id, 'admin');
    const { users } = (await keystone('GET', '/v3/users')).json();
    expect(users.map(({ name }: { name: string }) => name)).toEqual(['admin']);
    const { role_assignments } = (await keystone('GET', '/v3/role_assignments')).json();
    expect(role_assignments).toMatchObject([
      { user: { id: ids.admin }, scope: { domain: { id: ids.domain } } },
    ]);
    expect(role_assignments).toHaveLength(1);
    const elsewhere = { user: { name: 'x', password: PASSWORD, domain_id: foreign.id } };
    expect((await keystone('POST', '/v3/users', elsewhere)).statusCode).toBe(403);
  });

  test('a session cannot be exchanged for a token, nor describe or revoke one', async () => {
    for (const method of ['GET', 'DELETE'] as const) {
      const headers = { ...CONSOLE, 'x-subject-token': admin.split('=')[1] ?? '' };
      expect((await keystone(method, '/v3/auth/tokens', undefined, admin, headers)).statusCode).toBe(401);
    }
    const identityOf = { methods: ['token'], token: { id: admin.split('=')[1] } };
    const payload = { auth: { identity: identityOf, scope: { domain: { id: ids.domain } } } };
    expect((await keystone('POST', '/v3/auth/tokens', payload)).statusCode).toBe(401);
  });

  test('without a session, its state is an empty response and no error', async () => {
    expect((await call('GET', 'session', undefined, '')).statusCode).toBe(204);
    expect((await call('GET', 'session', undefined, 'wafstat_session=x.y')).statusCode).toBe(401);
  });

  test('a session knows how long top lists are kept', async () => {
    expect((await call('GET', 'session')).json()).toMatchObject({ top_lists_ms: 30 * 24 * HOUR_MS });
  });

  test('only administrators see examples of dropped lines and paths on the server', async () => {
    await store.append({
      project: ids.project,
      source: { name: 'web1', format: 'auto' },
      events: [],
      dropped: { not_json: 2 },
      examples: { not_json: { text: 'oops', time: 1 } },
    });
    await addUser('alice', 'reader');
    const alice = await signIn('alice', PASSWORD);
    const sources = `projects/${ids.project}/sources`;
    const setup = `projects/${ids.project}/setup`;
    expect((await call('GET', sources)).json()).toMatchObject({
      now: START,
      items: [{ name: 'web1', dropped: { not_json: 2 }, examples: { not_json: 'oops' } }],
    });
    expect((await call('GET', setup)).json()).toEqual({
      program: '/opt/wafstat',
      options: ['--data', '/var/lib/wafstat'],
      counting: ['--attack-sources', 'off'],
      can_create_key: true,
    });
    expect((await call('GET', sources, undefined, alice)).json().items[0].examples).toEqual({});
    expect((await call('GET', setup, undefined, alice)).json()).toEqual({
      program: null,
      options: [],
      counting: ['--attack-sources', 'off'],
      can_create_key: false,
    });
    await identity.administration.addDomain('another customer');
    expect((await call('GET', setup)).json()).toEqual({
      program: null,
      options: [],
      counting: ['--attack-sources', 'off'],
      can_create_key: true,
    });
    const key = `projects/${ids.project}/ingest-key`;
    expect((await call('POST', key, {}, alice)).statusCode).toBe(403);
    const listed = await app.inject({
      url: `/v1/${ids.project}/connections`,
      headers: { cookie: admin },
    });
    expect(listed.body).not.toContain('oops');
  });

  test('create a key that sends logs to one project and reads nothing', async () => {
    const { user, access, secret } = (await call('POST', `projects/${ids.project}/ingest-key`)).json();
    expect(user).toBe('ingest-default');
    const authorization = `Basic ${Buffer.from(`${access}:${secret}`).toString('base64')}`;
    const send = (url: string, method: 'GET' | 'POST') =>
      app.inject({ method, url, headers: { authorization }, payload: JSON.stringify({ time: START }) });
    expect((await send(`/ingest/v1/${ids.project}`, 'POST')).json()).toMatchObject({ accepted: 1 });
    expect((await send(`/v1/${ids.project}/connections`, 'GET')).statusCode).toBe(403);
    expect((await call('POST', `projects/${ids.project}/ingest-key`)).json().user).toBe('ingest-default');
    expect((await call('POST', `projects/${ids.project}/ingest-key`)).json().error_msg).toContain(
      'already has 2 access keys',
    );
    // A user of the same name who can do more gets no key.
    const id = identity.administration.userNamed('ingest-default').id;
    await identity.administration.changeRole('grant', id, ids.project, 'reader');
    for (const click of ['first', 'second']) {
      const { user } = (await call('POST', `projects/${ids.project}/ingest-key`)).json();
      expect(user, click).toBe(`ingest-${ids.project.slice(0, 16)}`);
    }
    const other = identity.administration
      .users()
      .find(({ name }) => name === `ingest-${ids.project.slice(0, 16)}`);
    await identity.administration.setEnabled('user', other?.id ?? '', false);
    expect((await call('POST', `projects/${ids.project}/ingest-key`)).json().error_msg).toContain(
      'can do more than send logs, or are disabled',
    );
  });

  test('a page that does not exist is a page with the status 404; a call is JSON', async () => {
    const missing = await app.inject({ url: '/console/nope?x=1' });
    expect([missing.statusCode, missing.headers['content-type']]).toEqual([404, 'text/html; charset=utf-8']);
    expect(missing.headers['content-security-policy']).toContain("default-src 'none'");
    expect((await app.inject({ url: '/console/api/nope' })).json().error_code).toBe('WAF.4000');
    expect((await app.inject({ url: '/console/assets/nope.js' })).json().error_code).toBe('WAF.4000');
    expect((await app.inject({ url: '/console/nope', method: 'POST' })).json().error_code).toBe('WAF.4000');
  });
});

describe('the console files', () => {
  async function serveFiles(): Promise<FastifyInstance> {
    const app = fastify();
    mount(app, fileRoutes(directory));
    return app;
  }

  test('are compressed if the browser supports it, and cached as long as their names stay the same', async () => {
    mkdirSync(join(directory, 'assets'));
    writeFileSync(join(directory, 'index.html'), '<!doctype html>');
    writeFileSync(join(directory, 'assets', 'index-abc.js'), 'plain');
    writeFileSync(join(directory, 'assets', 'index-abc.js.br'), 'br');
    writeFileSync(join(directory, 'assets', 'index-abc.js.gz'), 'gz');
    const app = await serveFiles();
    const get = (url: string, coding = '') => app.inject({ url, headers: { 'accept-encoding': coding } });
    for (const [coding, body] of [
      ['gzip, deflate, br', 'br'],
      ['gzip;q=1.0', 'gz'],
      ['identity', 'plain'],
    ] as const) {
      const response = await get('/console/assets/index-abc.js', coding);
      expect(response.body).toBe(body);
      expect(response.headers['cache-control']).toContain('immutable');
      expect(response.headers['content-type']).toBe('text/javascript; charset=utf-8');
    }
    const page = await get('/console/hosts');
    expect(page.headers['cache-control']).toBe('no-cache');
    expect(page.headers['content-security-policy']).not.toContain('unsafe');
    expect((await get('/console/assets/..%2Findex.html')).statusCode).toBe(404);
    expect((await get('/console/assets/index-abc.js.br')).statusCode).toBe(404);
    await app.close();
  });

  test('are replaced by a hint if the console is not built', async () => {
    const app = await serveFiles();
    const response = await app.inject({ url: '/console' });
    expect(response.statusCode).toBe(200);
    expect(response.body).toContain('npm run setup');
    await app.close();
  });
});
