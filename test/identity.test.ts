/** Keystone routes, tokens and access keys. */
import { execFile } from 'node:child_process';
import { createHash, createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { canonicalRequest, sdkDate, sign } from '@wafstat/signer';
import { scopedKey, scopedStringToSign, scopeLine } from '@wafstat/signer/scoped';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Api,
  call,
  type HttpResponse,
  login,
  loginToDomain,
  requestToken,
  tokenRequest,
} from './api.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const MINUTE_MS = 60_000;
const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let api: Api;

interface Key {
  access: string;
  secret: string;
}

beforeAll(async () => {
  ({ installation, server, api } = await sandbox.service('--region', 'eu-test'));
});

afterAll(() => sandbox.clear());

async function newUser(name: string, ...args: string[]) {
  const added = await sandbox.runJson<{ id: string; password: string }>(
    ...['user', 'add', name, '--project', 'default', ...args],
  );
  return {
    ...installation,
    user: name,
    ...added,
    account: { ...installation, user: name, password: added.password },
  };
}

function newKey(user: string): Promise<Key> {
  return sandbox.runJson<Key>('key', 'add', '--user', user);
}

async function signed(
  key: Key,
  path: string,
  { body, now = Date.now() }: { body?: Buffer; now?: number } = {},
): Promise<HttpResponse> {
  const request = { method: 'GET', url: `${server.address}${path}`, ...(body && { body }) };
  const headers = await sign(request, key, { now: () => now });
  return call(server.address, path, body ? withBody(body, { ...headers }) : { headers: { ...headers } });
}

/** Node.js sets no Content-Length for a GET. */
function withBody(body: Buffer, headers: Record<string, string> = {}) {
  return { body, headers: { ...headers, 'Content-Length': body.length } };
}

const statistics = (query = 'from=0&to=1') => `/v1/${installation.project_id}/waf/event/timeline?${query}`;

test('passwords are stored at the cost that OWASP recommends', () => {
  const bytes = readFileSync(join(sandbox.data, 'identity.mdb'));
  expect(bytes.includes('$argon2id$v=19$m=19456,t=2,p=1$')).toBe(true);
});

describe('discovery', () => {
  test('the version list is at /identity/, the version at /v3 and /identity/v3', async () => {
    const list = await call(server.address, '/identity/');
    expect(list.status).toBe(300);
    const [version] = JSON.parse(list.text).versions.values;
    expect(version).toMatchObject({
      id: 'v3.6',
      status: 'stable',
      links: [{ rel: 'self', href: `${server.address}/identity/v3/` }],
    });
    for (const path of ['/v3', '/v3/', '/identity/v3', '/identity/v3/']) {
      const response = await call(server.address, path);
      expect(response.status).toBe(200);
      expect(JSON.parse(response.text).version.id).toBe('v3.6');
    }
  });

  test('the base has the versions of both APIs, and the console for browsers', async () => {
    const list = await call(server.address, '/', { headers: { Accept: 'application/json' } });
    expect([list.status, list.headers.vary]).toEqual([300, 'Accept']);
    const hrefs = JSON.parse(list.text).versions.values.map(
      ({ id, links: [self] }: { id: string; links: { href: string }[] }) => [id, self?.href],
    );
    expect(hrefs).toEqual([
      ['v1.0', `${server.address}/`],
      ['v3.6', `${server.address}/identity/v3/`],
      ['v99.0', `${server.address}/`],
    ]);
    expect((await call(server.address, '/', { headers: { Accept: 'text/html' } })).status).toBe(302);
  });

  test('the catalog has all services in the region', async () => {
    const { text } = await requestToken(server.address, tokenRequest(installation));
    const endpoint = { interface: 'public', region: 'eu-test', region_id: 'eu-test' };
    expect(JSON.parse(text).token.catalog).toMatchObject([
      { type: 'identity', endpoints: [{ ...endpoint, url: `${server.address}/identity/v3` }] },
      { type: 'waf', name: 'waf', endpoints: [{ ...endpoint, url: server.address }] },
      {
        type: 'premium-waf',
        endpoints: [{ ...endpoint, url: `${server.address}/v1/${installation.project_id}` }],
      },
    ]);
    const without = await call(server.address, '/identity/v3/auth/tokens?nocatalog', {
      method: 'POST',
      body: JSON.stringify(tokenRequest(installation)),
    });
    expect(without.status).toBe(201);
    expect(JSON.parse(without.text).token).not.toHaveProperty('catalog');
  });
});

describe('a token', () => {
  test('can be validated and revoked by its owner and by the administrator', async () => {
    const { account } = await newUser('checked');
    const own = await login(server.address, account);
    const about = (method: string, caller: Api, subject: Api) =>
      call(server.address, '/v3/auth/tokens', {
        method,
        headers: { 'X-Auth-Token': caller.token, 'X-Subject-Token': subject.token },
      });
    const checked = await about('GET', own, own);
    expect(checked.status).toBe(200);
    expect(checked.headers['x-subject-token']).toBe(own.token);
    expect(JSON.parse(checked.text).token).toMatchObject({
      user: { name: 'checked', domain: { name: 'default' } },
      project: { id: installation.project_id },
      roles: [{ name: 'reader' }],
    });
    expect((await about('HEAD', api, own)).status).toBe(200);
    expect((await about('GET', own, api)).status).toBe(404);
    expect((await about('DELETE', own, own)).status).toBe(204);
    const refused = await own.get('connections');
    expect(refused.status).toBe(401);
    expect(JSON.parse(refused.text).error_msg).toBe(
      'the token in X-Auth-Token has been revoked: request a new one',
    );
    expect((await about('GET', api, own)).status).toBe(404);
  });

  test.each(['by name', 'by ID'])(
    'for a project without a domain is for the project in the domain of the user, given %s',
    async (given) => {
      const { user, user_id, domain, password, project, project_id } = installation;
      const account = given === 'by ID' ? { id: user_id } : { name: user, domain: { name: domain } };
      const body = JSON.stringify({
        auth: {
          identity: { methods: ['password'], password: { user: { ...account, password } } },
          scope: { project: { name: project } },
        },
      });
      const headers = { 'Content-Type': 'application/json' };
      const issued = await call(server.address, '/v3/auth/tokens', { method: 'POST', headers, body });
      expect([issued.status, JSON.parse(issued.text).token.project?.id]).toEqual([201, project_id]);
    },
  );

  test('is in the header X-Subject-Token, in this letter case', async () => {
    const body = JSON.stringify(tokenRequest(installation));
    const args = [
      '-si',
      `${server.address}/v3/auth/tokens`,
      '-H',
      'Content-Type: application/json',
      '-d',
      body,
    ];
    const { stdout } = await promisify(execFile)('curl', args);
    expect(stdout).toMatch(/^X-Subject-Token: \S+\r$/m);
  });

  test('for a domain lists projects, but cannot query', async () => {
    const { auth } = tokenRequest(installation);
    const scope = { domain: { name: 'default' } };
    const response = await requestToken(server.address, { auth: { ...auth, scope } });
    expect(JSON.parse(response.text).token.domain).toMatchObject({ name: 'default' });
    const headers = { 'X-Auth-Token': String(response.headers['x-subject-token']) };
    const projects = await call(server.address, '/v3/auth/projects', { headers });
    expect(JSON.parse(projects.text).projects).toMatchObject([
      { id: installation.project_id, name: 'default' },
    ]);
    const query = await call(server.address, statistics(), { headers });
    expect(query.status).toBe(403);
    expect(JSON.parse(query.text).error_code).toBe('WAF.9002');
    // A project wins when both are given.
    const both = await requestToken(server.address, {
      auth: { ...auth, scope: { ...scope, ...auth.scope } },
    });
    expect(JSON.parse(both.text).token.project).toMatchObject({ id: installation.project_id });
  });

  test('is revoked when its user is disabled, loses the role or gets a new password', async () => {
    const { account } = await newUser('mortal');
    const admin = (...args: string[]) => sandbox.run([...args, '--data', sandbox.data]);
    const message = async (caller: Api) => JSON.parse((await caller.get('connections')).text).error_msg;
    let caller = await login(server.address, account);
    await admin('user', 'disable', 'mortal');
    expect(await message(caller)).toBe('the user of the token in X-Auth-Token is disabled');
    const refused = await requestToken(server.address, tokenRequest(account));
    expect([refused.status, JSON.parse(refused.text).error.message]).toEqual([401, 'The user is disabled.']);
    await admin('user', 'enable', 'mortal');
    const superseded =
      'the token in X-Auth-Token was issued before the password was changed or the user was disabled: request a new one';
    expect(await message(caller)).toBe(superseded);
    caller = await login(server.address, account);
    await admin('user', 'revoke', 'mortal', '--project', 'default');
    expect(await message(caller)).toBe(
      'the user of the token in X-Auth-Token no longer has a role in its project',
    );
    await admin('user', 'grant', 'mortal', '--project', 'default');
    await admin('user', 'password', 'mortal');
    expect(await message(caller)).toBe(superseded);
    await admin('user', 'delete', 'mortal', '--yes');
    expect(await message(caller)).toBe('the user of the token in X-Auth-Token has been deleted');
  });

  test('is not issued to a console-only user', async () => {
    const { account } = await newUser('console-only', '--access', 'console');
    const refused = await requestToken(server.address, tokenRequest(account));
    expect([refused.status, JSON.parse(refused.text)]).toEqual([
      403,
      {
        error: {
          code: 403,
          title: 'Forbidden',
          message: 'This user only supports console access, not programmatic access.',
        },
      },
    ]);
  });

  test('is refused in the same way for an unknown user and a wrong password', async () => {
    const wrong = await requestToken(server.address, tokenRequest({ ...installation, password: 'wrong' }));
    const unknown = await requestToken(server.address, tokenRequest({ ...installation, user: 'nobody' }));
    expect(wrong.status).toBe(401);
    expect(wrong.text).toBe(unknown.text);
    expect(JSON.parse(wrong.text).error.message).toBe('The username or password is wrong.');
  });
});

describe('an access key', () => {
  test('can be created, listed, disabled and deleted over HTTP; the limit is two', async () => {
    const { id, account } = await newUser('owner');
    await sandbox.run(['user', 'grant', 'owner', '--role', 'reader', '--data', sandbox.data]);
    const owner = await loginToDomain(server.address, account);
    const credentials = async (method: string, path = '', credential?: object) => {
      const headers = { 'X-Auth-Token': owner.token, 'Content-Type': 'application/json' };
      const body = credential ? { body: JSON.stringify({ credential }) } : {};
      const response = await call(server.address, `/v3.0/OS-CREDENTIAL/credentials${path}`, {
        method,
        headers,
        ...body,
      });
      return { status: response.status, ...(response.text ? JSON.parse(response.text) : {}) };
    };
    const created = await credentials('POST', '', { user_id: id, description: 'first' });
    expect(created).toMatchObject({
      status: 201,
      credential: { user_id: id, description: 'first', status: 'active' },
    });
    const key: Key = created.credential;
    expect((await signed(key, statistics())).status).toBe(200);
    await credentials('POST', '', { user_id: id, description: 'second' });
    const third = await credentials('POST', '', { user_id: id, description: 'third' });
    expect([third.status, third.error.message]).toEqual([
      400,
      "akSkNumExceed: user 'owner' already has 2 access keys, the maximum: delete one first, with DELETE /v3.0/OS-CREDENTIAL/credentials/{access}",
    ]);
    const listed = await credentials('GET', `?user_id=${id}`);
    expect(listed.credentials).toHaveLength(2);
    expect(JSON.stringify(listed)).not.toContain('secret');
    const disabled = await credentials('PUT', `/${key.access}`, { status: 'inactive' });
    expect(disabled.credential).toMatchObject({ access: key.access, status: 'inactive' });
    const refused = await signed(key, statistics());
    expect([refused.status, JSON.parse(refused.text).error_msg]).toEqual([401, 'the access key is disabled']);
    expect((await credentials('DELETE', `/${key.access}`)).status).toBe(204);
    expect((await credentials('GET', `/${key.access}`)).status).toBe(404);
    expect((await credentials('POST', '', { user_id: installation.user_id })).status).toBe(403);
    const { token } = await login(server.address, account);
    const refusedToken = await call(server.address, '/v3.0/OS-CREDENTIAL/credentials', {
      headers: { 'X-Auth-Token': token },
    });
    expect([refusedToken.status, refusedToken.text]).toEqual([403, expect.stringContaining('domain')]);
  });

  test('from the CSV file of the command line signs a query', async () => {
    await newUser('filed');
    const file = sandbox.path('credentials.csv');
    const { status } = await sandbox.run([
      'key',
      'add',
      '--user',
      'filed',
      '--csv',
      file,
      '--data',
      sandbox.data,
    ]);
    expect(status).toBe(0);
    const [header, line = ''] = readFileSync(file, 'utf8').split('\n');
    expect(header).toBe('User Name,Access Key Id,Secret Access Key');
    const [, access = '', secret = ''] = line.split(',');
    expect(
      (await signed({ access, secret }, statistics('from=0&to=1&timezone=%2B08:00&hosts=b&hosts=a'))).status,
    ).toBe(200);
  });

  test('signs identity requests: projects, catalog and domains', async () => {
    const key = await newKey('admin');
    for (const path of [
      '/v3/projects?name=default',
      '/v3/auth/projects',
      '/v3/auth/catalog',
      '/v3/auth/domains',
    ]) {
      expect((await signed(key, path)).status).toBe(200);
    }
    const named = await signed(key, '/v3/projects?name=default');
    expect(JSON.parse(named.text).projects).toMatchObject([{ id: installation.project_id }]);
    expect(JSON.parse((await signed(key, '/v3/projects?name=none')).text).projects).toEqual([]);
  });

  test('lists projects in pages, each with a link to the next', async () => {
    const key = await newKey('admin');
    for (let i = 0; i < 5; i++) await sandbox.runJson('project', 'add', `paged-${i}`);
    type Listed = { projects: { id: string }[]; links: { next: string | null } };
    const list = async (path: string): Promise<Listed> => JSON.parse((await signed(key, path)).text);
    const all = await list('/v3/projects');
    expect(all.links.next).toBeNull();
    expect(all.projects.length).toBeGreaterThanOrEqual(6);
    const found: string[] = [];
    for (let next: string | null = '/v3/projects?limit=2'; next; ) {
      const page: Listed = await list(next);
      expect(page.projects.length).toBeLessThanOrEqual(2);
      found.push(...page.projects.map(({ id }) => id));
      next = page.links.next?.slice(server.address.length) ?? null;
    }
    expect(found).toEqual(all.projects.map(({ id }) => id));
    const unknown = await signed(key, '/v3/projects?limit=2&marker=none');
    expect([unknown.status, JSON.parse(unknown.text).error.message]).toEqual([
      400,
      "marker is 'none', but must be that of links.next of the previous page",
    ]);
  });

  test('signs with the scoped algorithm', async () => {
    await newUser('scoped');
    const key = await newKey('scoped');
    const path = statistics();
    const date = sdkDate(Date.now());
    const scope = { date: date.slice(0, 8), region: 'eu-test', service: 'waf' };
    const headers = { host: new URL(server.address).host, 'x-sdk-date': date };
    const bodyHash = createHash('sha256').update('').digest('hex');
    const [pathname = '', query = ''] = path.split('?');
    const canonical = canonicalRequest({ method: 'GET', path: pathname, query, headers, bodyHash });
    const hash = createHash('sha256').update(canonical).digest('hex');
    const hmac = (secret: string | Uint8Array, text: string) =>
      createHmac('sha256', secret).update(text).digest();
    const signature = hmac(
      scopedKey(key.secret, scope, hmac),
      scopedStringToSign(date, scope, hash),
    ).toString('hex');
    const credential = `Credential=${key.access}/${scopeLine(scope)}`;
    const Authorization = `SDK-HMAC-SHA256 ${credential}, SignedHeaders=host;x-sdk-date, Signature=${signature}`;
    expect((await call(server.address, path, { headers: { ...headers, Authorization } })).status).toBe(200);
  });

  test('is refused with a date 16 minutes off, a wrong secret, or a body of 64 KiB and one byte', async () => {
    await newUser('refused');
    const key = await newKey('refused');
    const late = await signed(key, statistics(), { now: Date.now() - 16 * MINUTE_MS });
    expect([late.status, JSON.parse(late.text).error_code]).toEqual([401, 'WAF.9001']);
    expect(JSON.parse(late.text).error_msg).toMatch(/^X-Sdk-Date is more than 15 minutes off/);
    const wrong = await signed({ ...key, secret: 'wrong' }, statistics());
    expect(wrong.status).toBe(401);
    expect(JSON.parse(wrong.text).error_msg).toContain(
      `GET|/v1/${installation.project_id}/waf/event/timeline/|from=0&to=1|`,
    );
    const body = Buffer.alloc(65_537);
    const large = await signed(key, statistics(), { body });
    expect([large.status, JSON.parse(large.text).error_code]).toEqual([413, 'WAF.7001']);
    expect((await signed(key, statistics(), { body: body.subarray(1) })).status).toBe(200);
    expect((await api.get('connections', withBody(body))).status).toBe(413);
  });

  test('of a console-only user or a user without the role is a 403', async () => {
    await newUser('console-key', '--access', 'console');
    const refused = await signed(await newKey('console-key'), statistics());
    expect([refused.status, JSON.parse(refused.text).error_msg]).toEqual([
      403,
      'This user only supports console access, not programmatic access.',
    ]);
    await newUser('sender', '--role', 'ingest');
    const sender = await signed(await newKey('sender'), statistics());
    expect([sender.status, JSON.parse(sender.text).error_msg]).toEqual([
      403,
      "missing role 'reader' in this project",
    ]);
  });
});
