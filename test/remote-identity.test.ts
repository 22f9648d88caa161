/** A service with `--identity-url`, against a fake, because Keystone cannot run everywhere; test/keystone.test.ts has a real one. */
import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { canonicalRequest, sdkDate, sign } from '@wafstat/signer';
import { scopedKey, scopedStringToSign, scopeLine } from '@wafstat/signer/scoped';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Api, call, type HttpResponse } from './api.ts';
import { FakeKeystone, type Key } from './fake-keystone.ts';
import { eventually, wholeLines } from './process.ts';
import { Sandbox, type Server } from './sandbox.ts';

const PASSWORD = 'of the service';
const sandbox = new Sandbox();
const keystone = new FakeKeystone();
const shop = keystone.addProject('shop');
const other = keystone.addProject('other');
const serviceUser = keystone.addUser('wafstat', PASSWORD, { system: ['reader'] });
/** Caches lookups for a second. */
let server: Server;
const TIMELINE = `/v1/${shop.id}/waf/event/timeline?from=0&to=1`;

beforeAll(async () => {
  await keystone.start();
  server = await serve(keystone.address);
});

afterAll(async () => {
  await sandbox.clear();
  await keystone.stop();
});

const options = (url: string, user = 'wafstat') => ['--identity-url', url, '--identity-user', user];
const ENV = { WAFSTAT_IDENTITY_PASSWORD: PASSWORD };

const serve = (url: string, cache = '1s') =>
  sandbox.serve([...options(url), '--identity-cache', cache], { env: ENV });

const newUser = (name: string, ...roles: string[]) =>
  keystone.addUser(name, 'of a user', { [shop.id]: roles });
const apiOf = (user: ReturnType<typeof newUser>) =>
  new Api(server.address, shop.id, keystone.newToken(user, shop.id));

async function signed(key: Key, path: string, { address } = server): Promise<HttpResponse> {
  const headers = await sign({ method: 'GET', url: `${address}${path}` }, key);
  return call(address, path, { headers: { ...headers } });
}

function signedScoped(key: Key, path: string): Promise<HttpResponse> {
  const date = sdkDate(Date.now());
  const scope = { date: date.slice(0, 8), region: 'eu-test', service: 'waf' };
  const headers = { host: new URL(server.address).host, 'x-sdk-date': date };
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
  const [pathname = '', query = ''] = path.split('?');
  const canonical = canonicalRequest({ method: 'GET', path: pathname, query, headers, bodyHash: sha256('') });
  const hmac = (secret: string | Uint8Array, text: string) =>
    createHmac('sha256', secret).update(text).digest();
  const text = scopedStringToSign(date, scope, sha256(canonical));
  const signature = hmac(scopedKey(key.secret, scope, hmac), text).toString('hex');
  const credential = `Credential=${key.access}/${scopeLine(scope)}`;
  const Authorization = `SDK-HMAC-SHA256 ${credential}, SignedHeaders=host;x-sdk-date, Signature=${signature}`;
  return call(server.address, path, { headers: { ...headers, Authorization } });
}

const basic = ({ access, secret }: Key) => ({
  Authorization: `Basic ${Buffer.from(`${access}:${secret}`).toString('base64')}`,
});

const push = (headers: Record<string, string>) =>
  call(server.address, `/ingest/v1/${shop.id}?format=events&source=shipper`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ time: Date.now() }),
  });

describe('a token', () => {
  test('is valid in its project, with the roles of its names', async () => {
    const seen: Record<string, number[]> = {};
    for (const role of ['reader', 'ingest', 'admin', 'heat_stack_owner']) {
      const api = apiOf(newUser(role, role));
      const pushed = await push({ 'X-Auth-Token': api.token });
      seen[role] = [(await api.get('connections')).status, pushed.status];
    }
    expect(seen).toEqual({
      reader: [200, 403],
      ingest: [403, 200],
      admin: [200, 200],
      heat_stack_owner: [403, 403],
    });
  });

  test('used by many requests at once is looked up once', async () => {
    // It caches for longer than the requests take.
    const { address } = await serve(keystone.address, '60m');
    const api = new Api(address, shop.id, keystone.newToken(newUser('busy', 'reader'), shop.id));
    const lookups = () => keystone.calls.filter((line) => line === 'GET /v3/auth/tokens').length;
    const before = lookups();
    const responses = await Promise.all(Array.from({ length: 20 }, () => api.get('connections')));
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([200]));
    expect(lookups() - before).toBe(1);
  });

  test('that is wrong, missing or malformed is a 401', async () => {
    const error_msg = 'Keystone rejects the token in X-Auth-Token';
    for (const token of ['forged', '', ' ', 'x'.repeat(100_000), 'ÿ', 'a,b;c=d', '../../v3']) {
      const { status, text } = await new Api(server.address, shop.id, token).get('connections');
      expect([status, JSON.parse(text)]).toEqual([401, { error_code: 'WAF.9001', error_msg }]);
    }
    expect((await call(server.address, TIMELINE)).status).toBe(401);
  });

  test('for another project or for the system is a 403', async () => {
    const user = keystone.addUser('elsewhere', '', { [other.id]: ['admin'], system: ['admin'] });
    for (const scope of [other.id, 'system']) {
      const api = new Api(server.address, shop.id, keystone.newToken(user, scope));
      const { status, text } = await api.get('connections');
      expect([status, JSON.parse(text).error_code]).toEqual([403, 'WAF.9002']);
    }
  });
});

describe('an access key', () => {
  test('signs requests in both variants, in its project only', async () => {
    const user = keystone.addUser('signer', '', { [shop.id]: ['reader'], [other.id]: ['reader'] });
    const key = keystone.addKey(user, shop.id);
    expect((await signed(key, TIMELINE)).status).toBe(200);
    expect((await signedScoped(key, TIMELINE)).status).toBe(200);
    expect((await signed(key, `/v1/${other.id}/connections`)).status).toBe(403);
  });

  test('that is wrong or unknown is a 401, with the canonical request', async () => {
    const key = keystone.addKey(newUser('mistaken', 'reader'), shop.id);
    const wrong = await signed({ ...key, secret: 'wrong' }, TIMELINE);
    expect([wrong.status, JSON.parse(wrong.text).error_msg]).toEqual([
      401,
      expect.stringContaining(`GET|/v1/${shop.id}/waf/event/timeline/|from=0&to=1|`),
    ]);
    const unknown = await signed({ access: 'NONE', secret: 'x' }, TIMELINE);
    expect([unknown.status, JSON.parse(unknown.text).error_msg]).toEqual([401, 'unknown access key']);
  });

  test('works with HTTP Basic authentication, for log shippers and for reading', async () => {
    const key = keystone.addKey(newUser('shipper', 'ingest', 'reader'), shop.id);
    expect(JSON.parse((await push(basic(key))).text)).toMatchObject({ accepted: 1 });
    expect((await call(server.address, TIMELINE, { headers: basic(key) })).status).toBe(200);
    const wrong = { headers: basic({ ...key, secret: 'wrong' }) };
    expect((await push(wrong.headers)).status).toBe(401);
    expect((await call(server.address, TIMELINE, wrong)).status).toBe(401);
  });
});

describe('after a revocation, within the cache time', () => {
  /** Waits for the refusal, for much longer than --identity-cache: the machine may be busy. */
  async function refused(send: () => Promise<HttpResponse>): Promise<[number, string]> {
    const { status, text } = await eventually(async () => {
      const response = await send();
      return response.status === 200 ? undefined : response;
    }, 'a refusal after the cache time');
    return [status, JSON.parse(text).error_msg];
  }

  test('tokens are refused', async () => {
    const revocations: ((api: Api, user: ReturnType<typeof newUser>) => void)[] = [
      ({ token }) => keystone.revokeToken(token),
      (_, user) => {
        user.enabled = false;
      },
      (_, user) => {
        user.roles = {};
      },
    ];
    await Promise.all(
      revocations.map(async (revoke) => {
        const user = newUser('leaving', 'reader');
        const api = apiOf(user);
        expect((await api.get('connections')).status).toBe(200);
        revoke(api, user);
        expect(await refused(() => api.get('connections'))).toEqual([
          401,
          'Keystone rejects the token in X-Auth-Token',
        ]);
      }),
    );
  });

  test('keys are refused, with the reason', async () => {
    const revocations: [(user: ReturnType<typeof newUser>, key: Key) => void, number, string][] = [
      [(_, key) => keystone.deleteKey(key), 401, 'unknown access key'],
      [
        (user) => {
          user.enabled = false;
        },
        401,
        'the user of the access key is disabled',
      ],
      [
        (user) => {
          user.roles = {};
        },
        403,
        "missing role 'reader' in this project",
      ],
    ];
    await Promise.all(
      revocations.map(async ([revoke, status, message]) => {
        const user = newUser('keyed', 'reader');
        const key = keystone.addKey(user, shop.id);
        expect((await signed(key, TIMELINE)).status).toBe(200);
        revoke(user, key);
        expect(await refused(() => signed(key, TIMELINE))).toEqual([status, message]);
      }),
    );
  });

  test('a disabled project refuses keys and tokens', async () => {
    const project = keystone.addProject('closing');
    const user = keystone.addUser('closing', '', { [project.id]: ['reader'] });
    const key = keystone.addKey(user, project.id);
    const path = `/v1/${project.id}/connections`;
    const api = new Api(server.address, project.id, keystone.newToken(user, project.id));
    const both = async () => [(await api.get('connections')).status, (await signed(key, path)).status];
    expect(await both()).toEqual([200, 200]);
    project.enabled = false;
    expect((await refused(() => api.get('connections')))[0]).toBe(401);
    expect((await refused(() => signed(key, path)))[0]).toBe(403);
  });
});

test('the service gets a new token when its own is revoked', async () => {
  keystone.revokeTokensOf(serviceUser);
  expect((await apiOf(newUser('later', 'reader')).get('connections')).status).toBe(200);
});

test('there is no identity API, and the response says where to get a token', async () => {
  for (const path of [
    '/v3',
    '/v3/auth/tokens?nocatalog',
    '/v3.0/OS-CREDENTIAL/credentials',
    '/identity/v3/x',
  ]) {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const { status, text } = await call(server.address, path, { method });
      expect([status, JSON.parse(text)]).toEqual([
        404,
        {
          error: {
            code: 404,
            title: 'Not Found',
            message:
              `there is no path ${path.split('?')[0]}: this service accepts tokens and access keys of an external ` +
              'Keystone; request tokens there (OS_AUTH_URL)',
          },
        },
      ]);
    }
  }
  const { status, text } = await call(server.address, '/');
  expect([status, JSON.parse(text).versions.values.map(({ id }: { id: string }) => id)]).toEqual([
    300,
    ['v1.0', 'v99.0'],
  ]);
});

test('query commands work with a token or an access key; for a password, the error names Keystone', async () => {
  const user = newUser('operator', 'reader');
  const { access, secret } = keystone.addKey(user, shop.id);
  const query = (args: string[], env: Record<string, string>) =>
    sandbox.run(['types', '--url', server.address, '--project', shop.id, ...args], { env });
  const { token } = apiOf(user);
  expect(await query([], { WAFSTAT_TOKEN: token })).toMatchObject({ status: 0, stderr: '' });
  const key = { WAFSTAT_AK: access, WAFSTAT_SK: secret };
  expect(await query([], key)).toMatchObject({ status: 0, stderr: '' });
  const { status, stderr } = await query(['--user', 'operator'], { WAFSTAT_PASSWORD: 'of a user' });
  expect([status, stderr]).toEqual([1, expect.stringContaining('request tokens there (OS_AUTH_URL)')]);
});

test('there is no console', async () => {
  for (const path of ['/', '/console', '/console/hosts']) {
    const { status, text } = await call(server.address, path, { headers: { accept: 'text/html' } });
    expect([status, JSON.parse(text).error_msg]).toEqual([
      404,
      'there is no console here, because users and projects are in an external Keystone',
    ]);
  }
});

test('the log has no secret', async () => {
  const user = newUser('quiet', 'reader');
  const key = keystone.addKey(user, shop.id);
  const { token } = apiOf(user);
  expect((await new Api(server.address, shop.id, token).get('connections')).status).toBe(200);
  const { status, headers } = await signed(key, TIMELINE);
  expect(status).toBe(200);
  const { process } = server;
  const id = String(headers['x-request-id']);
  await eventually(() => wholeLines(process.stderr).find((line) => line.includes(id)), 'a line in the log');
  for (const secret of [key.secret, PASSWORD, token])
    expect(process.stdout + process.stderr).not.toContain(secret);
});

/** Concurrent, because they wait most of the time. */
describe.concurrent('without Keystone', () => {
  test('cached credentials work for the cache time, then requests get 503 until it is back', async () => {
    const unsteady = new FakeKeystone();
    const project = unsteady.addProject('shop');
    unsteady.addUser('wafstat', PASSWORD, { system: ['reader'] });
    const user = unsteady.addUser('alice', '', { [project.id]: ['reader'] });
    const key = unsteady.addKey(user, project.id);
    await unsteady.start();
    const [{ address }, patient] = [
      await serve(unsteady.address, '1s'),
      await serve(unsteady.address, '60m'),
    ];
    const ready = () => call(address, '/readyz');
    const token = unsteady.newToken(user, project.id);
    const api = new Api(address, project.id, token);
    const both = async (at = address) => [
      (await new Api(at, project.id, token).get('connections')).status,
      (await signed(key, `/v1/${project.id}/connections`, { ...server, address: at })).status,
    ];
    expect((await ready()).status).toBe(200);
    expect(await both()).toEqual([200, 200]);
    expect(await both(patient.address)).toEqual([200, 200]);
    await unsteady.stop();
    expect(await both(patient.address)).toEqual([200, 200]);
    const notReady = await eventually(async () => {
      const response = await ready();
      return response.status === 200 ? undefined : response;
    }, 'a 503 of /readyz');
    expect([notReady.status, JSON.parse(notReady.text)]).toEqual([
      503,
      { error_code: 'WAF.5001', error_msg: 'users and permissions cannot be looked up now; retry later' },
    ]);
    await eventually(
      async () => ((await both()).join() === '503,503' ? true : undefined),
      'two 503 responses',
    );
    expect((await api.get('connections')).headers['retry-after']).toBe('5');
    expect((await call(address, '/healthz')).status).toBe(200);
    await unsteady.start();
    await eventually(async () => ((await ready()).status === 200 ? true : undefined), 'a 200 of /readyz');
    expect(await both()).toEqual([200, 200]);
    await unsteady.stop();
  });

  test('requests get 503 when it accepts connections but never responds', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    try {
      await once(silent, 'listening');
      const { port } = silent.address() as AddressInfo;
      const { address, process } = await serve(`http://127.0.0.1:${port}`);
      expect((await new Api(address, shop.id, 'x').get('connections')).status).toBe(503);
      await process.kill();
    } finally {
      silent.close();
    }
  });

  test('the service starts, logs that it waits, and needs no data directory with an external store', async () => {
    const store = ['--store', 'postgres', '--postgres-url', 'postgres://wafstat@127.0.0.1:9/wafstat'];
    const args = ['serve', '--listen', '127.0.0.1:0', ...options('http://127.0.0.1:9'), ...store];
    const process = sandbox.start(args, { env: ENV });
    const line = await process.line('wafstat listens on ');
    const { status } = await call(line.slice('wafstat listens on '.length), '/readyz');
    expect(status).toBe(503);
    const message = 'no response from http://127.0.0.1:9: ECONNREFUSED';
    await eventually(() => process.stderr.includes(message) || undefined, message);
  });
});

describe('the service does not start', () => {
  const start = (args: string[], env: Record<string, string> = ENV) =>
    sandbox.run(['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0', ...args], { env });

  test('with a wrong password, as an unknown user, or as a user without a role on the system', async () => {
    keystone.addUser('outsider', PASSWORD, { [shop.id]: ['admin'] });
    const file = sandbox.write('password', 'wrong\n');
    for (const [user, more] of [
      ['wafstat', ['--identity-password-file', file]],
      ['nobody', []],
      ['outsider', []],
    ] as const) {
      const { status, stdout, stderr } = await start([...options(keystone.address, user), ...more]);
      expect([status, stdout, stderr]).toEqual([
        1,
        '',
        `wafstat: Keystone rejects user '${user}' of domain 'default': ` +
          'the password is wrong, or the user has no role on the system\n',
      ]);
    }
  });

  test('with a wafstat as Keystone', async () => {
    const wafstat = new Sandbox();
    try {
      const { server } = await wafstat.service();
      const { status, stderr } = await start(options(server.address));
      expect([status, stderr]).toEqual([
        1,
        'wafstat: Keystone issues no tokens for the system: ' +
          '--identity-url must be the address of a Keystone v3\n',
      ]);
    } finally {
      await wafstat.clear();
    }
  });

  test('with the embedded store and without a data directory', async () => {
    const args = ['serve', ...options(keystone.address)];
    for (const given of [args, [...args, '--store', 'lmdb']]) {
      const { status, stderr } = await sandbox.run(given, { env: ENV });
      expect([status, stderr]).toEqual([2, 'wafstat: --data (or WAFSTAT_DATA) is required\n']);
    }
  });

  test('with settings that contradict each other', async () => {
    const { status, stderr } = await start(['--identity-url', 'http://identity.example.com'], {});
    expect([status, wholeLines(stderr)]).toEqual([
      2,
      [
        "wafstat: --identity-url is 'http://identity.example.com', but must be https on non-loopback addresses, because it returns secret access keys",
        'wafstat: --identity-url requires --identity-user',
        'wafstat: --identity-url requires --identity-password-file or WAFSTAT_IDENTITY_PASSWORD',
      ],
    ]);
  });
});
