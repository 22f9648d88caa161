/** A real Keystone as identity service, where installed (apt-get install python3-keystone). */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { sign } from '@wafstat/signer';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Api, call, type HttpResponse, requestToken } from './api.ts';
import { FakeKeystone } from './fake-keystone.ts';
import { Keystone } from './keystone-server.ts';
import { eventually } from './process.ts';
import { Sandbox, type Server } from './sandbox.ts';

const SERVICE_PASSWORD = 'of the service';
const PASSWORD = 'of a user';
const sandbox = new Sandbox();
let keystone: Keystone;
let server: Server;
let shop: string;
let other: string;

interface Key {
  access: string;
  secret: string;
}

beforeAll(async () => {
  keystone = await Keystone.start('eu-test');
  const service = await keystone.create('user', {
    name: 'wafstat',
    password: SERVICE_PASSWORD,
    domain_id: 'default',
  });
  await keystone.request('PUT', `/system/users/${service}/roles/${await keystone.roleId('reader')}`);
  shop = await keystone.create('project', { name: 'shop', domain_id: 'default' });
  other = await keystone.create('project', { name: 'other', domain_id: 'default' });
  server = await serve();
});

afterAll(async () => {
  await sandbox.clear();
  await keystone?.stop();
});

function serve(user = 'wafstat', url = keystone.address): Promise<Server> {
  const options = ['--identity-url', url, '--identity-user', user, '--identity-domain', 'Default'];
  const env = { WAFSTAT_IDENTITY_PASSWORD: SERVICE_PASSWORD };
  return sandbox.serve([...options, '--identity-cache', '1s'], { env });
}

async function newUser(name: string, roles: Record<string, string[]>): Promise<string> {
  const id = await keystone.create('user', { name, password: PASSWORD, domain_id: 'default' });
  for (const [project, names] of Object.entries(roles)) {
    for (const role of names) {
      await keystone.request('PUT', `/projects/${project}/users/${id}/roles/${await keystone.roleId(role)}`);
    }
  }
  return id;
}

/** Created with a token of the user. */
async function newKey(user: string, user_id: string): Promise<Key> {
  const token = await keystone.login(user, PASSWORD, { project: { id: shop } });
  const created = await keystone.request<{ credential: Key }>(
    'POST',
    `/users/${user_id}/credentials/OS-EC2`,
    { tenant_id: shop },
    token,
  );
  return created.credential;
}

async function signed(key: Key, path: string, method = 'GET'): Promise<HttpResponse> {
  const headers = await sign({ method, url: `${server.address}${path}` }, key);
  return call(server.address, path, { method, headers: { ...headers } });
}

const apiOf = async (user: string, project = shop) =>
  new Api(server.address, project, await keystone.login(user, PASSWORD, { project: { id: project } }));

const push = (token: string) =>
  call(server.address, `/ingest/v1/${shop}?format=events`, {
    method: 'POST',
    headers: { 'X-Auth-Token': token },
  });

function refused(send: () => Promise<HttpResponse>): Promise<number> {
  return eventually(async () => {
    const { status } = await send();
    return status === 200 ? undefined : status;
  }, 'a refusal');
}

describe('a token of Keystone', () => {
  test('is valid, and its roles apply by name', async () => {
    await newUser('reading', { [shop]: ['reader'] });
    await newUser('sending', { [shop]: ['ingest'] });
    await newUser('both', { [shop]: ['admin'] });
    await newUser('foreign', { [shop]: ['heat_stack_owner'] });
    const seen: Record<string, number[]> = {};
    for (const name of ['reading', 'sending', 'both', 'foreign']) {
      const api = await apiOf(name);
      seen[name] = [(await api.get('connections')).status, (await push(api.token)).status];
    }
    expect(seen).toEqual({ reading: [200, 403], sending: [403, 200], both: [200, 200], foreign: [403, 403] });
  });

  test('is valid for its project only', async () => {
    await newUser('elsewhere', { [shop]: ['reader'], [other]: ['reader'] });
    const { token } = await apiOf('elsewhere', other);
    expect((await new Api(server.address, other, token).get('connections')).status).toBe(200);
    const { status, text } = await new Api(server.address, shop, token).get('connections');
    expect([status, JSON.parse(text).error_code]).toEqual([403, 'WAF.9002']);
  });

  test('that is revoked, or of a disabled user, is refused after the cache time', async () => {
    const id = await newUser('leaving', { [shop]: ['reader'] });
    const first = await apiOf('leaving');
    expect((await first.get('connections')).status).toBe(200);
    const headers = { 'X-Auth-Token': first.token, 'X-Subject-Token': first.token };
    expect((await call(keystone.address, '/v3/auth/tokens', { method: 'DELETE', headers })).status).toBe(204);
    expect(await refused(() => first.get('connections'))).toBe(401);
    const second = await apiOf('leaving');
    expect((await second.get('connections')).status).toBe(200);
    await keystone.request('PATCH', `/users/${id}`, { user: { enabled: false } });
    expect(await refused(() => second.get('connections'))).toBe(401);
  });
});

describe('an access key of Keystone', () => {
  test('signs requests in its project, with roles granted through a group', async () => {
    const id = await newUser('grouped', { [shop]: ['ingest'], [other]: ['reader'] });
    const key = await newKey('grouped', id);
    expect((await signed(key, `/v1/${shop}/connections`)).status).toBe(403);
    const group = await keystone.create('group', { name: 'readers', domain_id: 'default' });
    await keystone.request('PUT', `/groups/${group}/users/${id}`);
    const reader = await keystone.roleId('reader');
    await keystone.request('PUT', `/projects/${shop}/groups/${group}/roles/${reader}`);
    await eventually(
      async () => ((await signed(key, `/v1/${shop}/connections`)).status === 200 ? true : undefined),
      'the role of the group',
    );
    expect((await signed(key, `/ingest/v1/${shop}?format=events`, 'POST')).status).toBe(200);
    expect((await signed(key, `/v1/${other}/connections`)).status).toBe(403);
    expect((await signed({ ...key, secret: 'wrong' }, `/v1/${shop}/connections`)).status).toBe(401);
  });

  test('that is deleted, or of a disabled user or domain, is refused after the cache time', async () => {
    const path = `/v1/${shop}/connections`;
    const id = await newUser('keyed', { [shop]: ['reader'] });
    const first = await newKey('keyed', id);
    const second = await newKey('keyed', id);
    expect([(await signed(first, path)).status, (await signed(second, path)).status]).toEqual([200, 200]);
    await keystone.request('DELETE', `/users/${id}/credentials/OS-EC2/${first.access}`);
    expect(await refused(() => signed(first, path))).toBe(401);
    await keystone.request('PATCH', `/users/${id}`, { user: { enabled: false } });
    expect(await refused(() => signed(second, path))).toBe(401);
    const domain = await keystone.create('domain', { name: 'closing' });
    const guest = await keystone.create('user', { name: 'guest', password: PASSWORD, domain_id: domain });
    await keystone.request(
      'PUT',
      `/projects/${shop}/users/${guest}/roles/${await keystone.roleId('reader')}`,
    );
    const key = { access: 'GUEST', secret: 'of a guest' };
    await keystone.create('credential', {
      type: 'ec2',
      blob: JSON.stringify(key),
      user_id: guest,
      project_id: shop,
    });
    expect((await signed(key, path)).status).toBe(200);
    await keystone.request('PATCH', `/domains/${domain}`, { domain: { enabled: false } });
    expect(await refused(() => signed(key, path))).toBe(401);
  });

  test('of an application credential or a trust is refused: it may do less than its user', async () => {
    const user_id = await newUser('applied', { [shop]: ['reader', 'admin'] });
    for (const [i, delegated] of [{}, { app_cred_id: 'one' }, { trust_id: 'one' }].entries()) {
      const key = { access: `APPLIED-${i}`, secret: 'of less' };
      const blob = JSON.stringify({ ...key, ...delegated });
      await keystone.create('credential', { type: 'ec2', blob, user_id, project_id: shop });
      expect((await signed(key, `/v1/${shop}/connections`)).status).toBe(i === 0 ? 200 : 401);
    }
  });
});

test('keystoneauth finds our address in the catalog, and logs in again when its token is revoked', async () => {
  await newUser('client', { [shop]: ['reader'] });
  const waf = await keystone.create('service', { type: 'waf', name: 'waf' });
  const endpoint = { interface: 'public', region_id: 'eu-test' };
  await keystone.create('endpoint', { ...endpoint, service_id: waf, url: server.address });
  const given = {
    identity: keystone.address,
    user: 'client',
    password: PASSWORD,
    domain: 'Default',
    project_id: shop,
    query: 'from=0&to=1',
    region: 'eu-test',
    revocation_seconds: 60,
  };
  const script = fileURLToPath(new URL('keystone-client.py', import.meta.url));
  const printed = await new Promise<string>((resolve, reject) => {
    const child = execFile('/usr/bin/python3', [script], (error, stdout, stderr) =>
      error ? reject(new Error(stderr)) : resolve(stdout),
    );
    child.stdin?.end(JSON.stringify(given));
  });
  const timeline = await (await apiOf('client')).timeline('from=0&to=1');
  expect(JSON.parse(printed)).toEqual({ first: timeline, second: timeline, renewed: true });
});

test('the address may include the version', async () => {
  await newUser('versioned', { [shop]: ['reader'] });
  const token = await keystone.login('versioned', PASSWORD, { project: { id: shop } });
  const { address } = await serve('wafstat', `${keystone.address}/v3/`);
  expect((await new Api(address, shop, token).get('connections')).status).toBe(200);
});

test('a user without a system role is refused at start', async () => {
  await keystone.create('user', { name: 'outsider', password: SERVICE_PASSWORD, domain_id: 'default' });
  await expect(serve('outsider')).rejects.toThrow(/rejects user 'outsider' .* no role on the system/);
});

test('the fake Keystone responds like this one', async () => {
  const user = { name: 'compared', password: PASSWORD };
  const id = await newUser(user.name, { [shop]: ['reader'] });
  const key = await newKey(user.name, id);
  const real = { address: keystone.address, user: id, project: shop, key };

  const fake = new FakeKeystone();
  await fake.start();
  try {
    fake.addUser('wafstat', SERVICE_PASSWORD, { system: ['reader'] });
    const project = fake.addProject('shop').id;
    const other = fake.addUser(user.name, user.password, { [project]: ['reader'] });
    const faked = {
      address: fake.address,
      user: other.id,
      project,
      key: fake.addKey(other, project),
    };
    expect(await responses(faked)).toEqual(await responses(real));
  } finally {
    await fake.stop();
  }
});

/** The status and the structure of the responses to all calls that wafstat makes. */
async function responses(at: { address: string; user: string; project: string; key: Key }) {
  const logIn = (name: string, password: string, scope: object) => {
    const user = { name, password, domain: { name: 'Default' } };
    return requestToken(at.address, {
      auth: { identity: { methods: ['password'], password: { user } }, scope },
    });
  };
  const system = { system: { all: true } };
  const service = await logIn('wafstat', SERVICE_PASSWORD, system);
  const caller = await logIn('compared', PASSWORD, { project: { id: at.project } });
  const tokenOf = ({ headers }: HttpResponse) => String(headers['x-subject-token']);
  const get = (path: string, token = tokenOf(service), subject = tokenOf(caller)) =>
    call(at.address, `/v3/${path}`, { headers: { 'X-Auth-Token': token, 'X-Subject-Token': subject } });
  const credential = createHash('sha256').update(at.key.access).digest('hex');
  const query = `user.id=${at.user}&scope.project.id=${at.project}&effective&include_names`;
  const all = {
    service,
    caller,
    wrongPassword: await logIn('wafstat', 'wrong', system),
    noSystemRole: await logIn('compared', PASSWORD, system),
    token: await get('auth/tokens?nocatalog'),
    unknownToken: await get('auth/tokens?nocatalog', undefined, 'unknown'),
    user: await get(`users/${at.user}`),
    unknownUser: await get('users/unknown'),
    project: await get(`projects/${at.project}`),
    domain: await get('domains/default'),
    credential: await get(`credentials/${credential}`),
    unknownCredential: await get(`credentials/${'0'.repeat(64)}`),
    roles: await get(`role_assignments?${query}`),
    unknownCaller: await get(`users/${at.user}`, 'unknown'),
    refusedCaller: await get(`role_assignments?${query}`, tokenOf(caller)),
  };
  return Object.fromEntries(
    Object.entries(all).map(([name, { status, text }]) => [name, [status, structure(JSON.parse(text))]]),
  );
}

/** Names of fields and types of values, without the catalog, which wafstat does not request. */
function structure(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(structure);
  if (typeof value !== 'object' || value === null) return value === null ? null : typeof value;
  const fields = Object.entries(value).filter(([name]) => name !== 'catalog');
  return Object.fromEntries(fields.map(([name, inner]) => [name, structure(inner)]));
}
