/** Two services on one store: the first has the identity store, the second queries it (`--identity-url`). */
import { execFile, spawnSync } from 'node:child_process';
import { createHash, createHmac } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { canonicalRequest, sdkDate, sign } from '@wafstat/signer';
import { scopedKey, scopedStringToSign, scopeLine } from '@wafstat/signer/scoped';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import {
  type Api,
  Api as Caller,
  call,
  type HttpResponse,
  login,
  loginToDomain,
  requestToken,
  tokenRequest,
} from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { describeEmbedded, type Installation, Sandbox, type Server } from './sandbox.ts';

interface Key {
  access: string;
  secret: string;
}

const sandbox = new Sandbox();
let installation: Installation;
let password: string;
/** Has the identity store. */
let keeper: Server;
/** Queries it, and caches the results for a second. */
let asker: Server;

beforeAll(async () => {
  installation = await sandbox.init();
  ({ password } = await sandbox.runJson<{ password: string }>(
    ...['user', 'add', 'asker', '--role', 'identity', '--access', 'programmatic'],
  ));
  keeper = await sandbox.serve(['--region', 'eu-test']);
  asker = await serveAsking(keeper.address, '1s');
});

afterAll(() => sandbox.clear());

function serveAsking(address: string, cache: string, ...args: string[]): Promise<Server> {
  const asking = ['--identity-url', address, '--identity-user', 'asker', '--identity-cache', cache];
  return sandbox.serve([...asking, ...args], { env: { WAFSTAT_IDENTITY_PASSWORD: password } });
}

async function newUser(name: string, ...args: string[]) {
  const added = await sandbox.runJson<{ id: string; password: string }>('user', 'add', name, ...args);
  return { ...installation, user: name, password: added.password };
}

const newKey = (user: string) => sandbox.runJson<Key>('key', 'add', '--user', user);
const admin = (...args: string[]) => sandbox.run([...args, '--data', sandbox.data]);
const statistics = () => `/v1/${installation.project_id}/waf/event/timeline?from=0&to=1`;
/** The same token at another service. */
const at = (server: Server, { project, token }: Api) => new Caller(server.address, project, token);

async function signed(
  server: Server,
  key: Key,
  path: string,
  method = 'GET',
  body = '',
): Promise<HttpResponse> {
  const headers = await sign({ method, url: `${server.address}${path}`, body: Buffer.from(body) }, key);
  return call(server.address, path, { method, headers: { ...headers }, ...(body && { body }) });
}

function signedScoped(server: Server, key: Key, path: string): Promise<HttpResponse> {
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

/** Waits until the log has a line for every response so far. */
async function logged(server: Server): Promise<void> {
  const { headers } = await call(server.address, '/healthz');
  const id = String(headers['x-request-id']);
  await eventually(
    () => wholeLines(server.process.stderr).find((line) => line.includes(id)),
    'a line in the log',
  );
}

/** How often the second service has requested a path of the first, according to its log. */
async function lookups(path: string): Promise<number> {
  await logged(keeper);
  const lines = wholeLines(keeper.process.stderr).map(
    (line): { method?: string; path?: string; user?: string } => JSON.parse(line),
  );
  return lines.filter((line) => line.method === 'GET' && line.path === path && line.user === 'asker').length;
}

describeEmbedded('a service with --identity-url', () => {
  describe('a token', () => {
    test('is valid at both services, whichever issued it', async () => {
      const direct = await login(keeper.address, installation);
      expect((await at(asker, direct).get('connections')).status).toBe(200);
      const through = await login(asker.address, installation);
      expect((await through.get('connections')).status).toBe(200);
      expect((await at(keeper, through).get('connections')).status).toBe(200);
    });

    test('comes with a catalog of the service that the client called', async () => {
      const { status, text } = await requestToken(asker.address, tokenRequest(installation));
      expect(status).toBe(201);
      expect(JSON.parse(text).token.catalog).toMatchObject([
        { type: 'identity', endpoints: [{ region: 'eu-test', url: `${asker.address}/identity/v3` }] },
        { type: 'waf', endpoints: [{ region: 'eu-test', url: asker.address }] },
      ]);
    });

    test('used by many requests at once is looked up once', async () => {
      const api = at(asker, await login(keeper.address, installation));
      const before = await lookups('/v3/auth/tokens');
      const answers = await Promise.all(Array.from({ length: 20 }, () => api.get('connections')));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
      expect((await lookups('/v3/auth/tokens')) - before).toBe(1);
    });

    test('that is wrong, missing or malformed is a 401', async () => {
      const refused = async (token: string) => {
        const { status, text } = await new Caller(asker.address, installation.project_id, token).get(
          'connections',
        );
        return [status, JSON.parse(text)];
      };
      const error_msg = 'the identity service rejects the token in X-Auth-Token';
      for (const token of ['forged', '', ' ', 'x'.repeat(100_000), 'ÿ', 'a,b;c=d', '../../v3']) {
        expect(await refused(token)).toEqual([401, { error_code: 'WAF.9001', error_msg }]);
      }
      expect((await call(asker.address, statistics())).status).toBe(401);
    });

    test('for a domain is refused', async () => {
      const { auth } = tokenRequest(installation);
      const body = { auth: { ...auth, scope: { domain: { name: 'default' } } } };
      const { headers } = await requestToken(asker.address, body);
      const api = new Caller(asker.address, installation.project_id, String(headers['x-subject-token']));
      const { status, text } = await api.get('connections');
      expect([status, JSON.parse(text).error_code]).toEqual([403, 'WAF.9002']);
    });
  });

  describe('permissions are the same at both services', () => {
    const CALLS = [
      ['GET', 'waf/event/timeline?from=0&to=1'],
      ['GET', 'waf/event/attack/type?from=0&to=1'],
      ['GET', 'waf/instance'],
      ['GET', 'connections'],
      ['POST', 'ingest'],
    ] as const;

    test.each([
      ['reader', '--project', 'default'],
      ['ingest', '--project', 'default'],
      ['admin', '--project', 'default'],
      ['reader'],
      ['admin'],
    ])('role %s %s %s', async (role, ...project) => {
      const account = await newUser(`${role}-${project.length}`, '--role', role, ...project);
      const other = await sandbox.runJson<{ id: string }>('project', 'add', `of-${role}-${project.length}`);
      const key = await newKey(account.user);
      const api = await login(keeper.address, account);
      const seen: [own: unknown[], asking: unknown[]] = [[], []];
      for (const id of [installation.project_id, other.id]) {
        for (const [method, path] of CALLS) {
          const url = path === 'ingest' ? `/ingest/v1/${id}?format=events` : `/v1/${id}/${path}`;
          for (const [i, server] of [keeper, asker].entries()) {
            const byToken = await call(server.address, url, {
              method,
              headers: { 'X-Auth-Token': api.token },
            });
            const byKey = await signed(server, key, url, method);
            seen[i]?.push([url, byToken.status, byToken.text, byKey.status, byKey.text]);
          }
        }
      }
      expect(seen[1]).toEqual(seen[0]);
      expect(JSON.stringify(seen[1])).toContain('200');
      expect(JSON.stringify(seen[1])).toContain('403');
    });

    test('a console-only user is refused, by token and by key', async () => {
      const account = await newUser('console', '--access', 'console');
      expect((await requestToken(asker.address, tokenRequest(account))).status).toBe(403);
      const { status, text } = await signed(asker, await newKey('console'), statistics());
      expect([status, JSON.parse(text).error_msg]).toEqual([
        403,
        'This user only supports console access, not programmatic access.',
      ]);
    });
  });

  describe('an access key', () => {
    test('signs requests in both variants, also identity requests', async () => {
      await newUser('signer', '--project', 'default');
      const key = await newKey('signer');
      expect((await signed(asker, key, statistics())).status).toBe(200);
      expect((await signedScoped(asker, key, statistics())).status).toBe(200);
      for (const path of ['/v3/auth/projects', '/identity/v3/projects?name=default']) {
        const { status, text } = await signed(asker, key, path);
        expect([status, JSON.parse(text).projects]).toMatchObject([200, [{ id: installation.project_id }]]);
      }
    });

    test('that is wrong or unknown is a 401, with the canonical request', async () => {
      await newUser('mistaken');
      const key = await newKey('mistaken');
      const wrong = await signed(asker, { ...key, secret: 'wrong' }, statistics());
      expect([wrong.status, JSON.parse(wrong.text).error_msg]).toEqual([
        401,
        expect.stringContaining(`GET|/v1/${installation.project_id}/waf/event/timeline/|from=0&to=1|`),
      ]);
      const unknown = await signed(asker, { access: 'NONE', secret: 'x' }, statistics());
      expect([unknown.status, JSON.parse(unknown.text).error_msg]).toEqual([401, 'unknown access key']);
    });

    test('works with HTTP Basic authentication for log shippers', async () => {
      await newUser('shipper', '--role', 'ingest');
      const { access, secret } = await newKey('shipper');
      const push = (word: string) =>
        call(asker.address, `/ingest/v1/${installation.project_id}?format=events&source=shipper`, {
          method: 'POST',
          headers: { Authorization: `Basic ${Buffer.from(`${access}:${word}`).toString('base64')}` },
          body: JSON.stringify({ time: Date.now() }),
        });
      expect(JSON.parse((await push(secret)).text)).toMatchObject({ accepted: 1 });
      expect((await push('wrong')).status).toBe(401);
    });

    test('works with HTTP Basic authentication for reading', async () => {
      await newUser('grafana', '--project', 'default', '--role', 'reader');
      const { access, secret } = await newKey('grafana');
      const read = (path: string, word: string) =>
        call(asker.address, path, {
          headers: { Authorization: `Basic ${Buffer.from(`${access}:${word}`).toString('base64')}` },
        });
      expect((await read(statistics(), secret)).status).toBe(200);
      expect((await read(statistics(), 'wrong')).status).toBe(401);
      expect((await read('/v3/projects', secret)).status).toBe(401);
      await admin('user', 'revoke', 'grafana', '--project', 'default', '--role', 'reader');
      await eventually(
        async () => (await read(statistics(), secret)).status === 403 || undefined,
        'the end of the cache time',
      );
    });

    test('the address of the second service is enough to log in and to exchange tokens', async () => {
      const { text } = await call(asker.address, '/');
      const { values } = JSON.parse(text).versions;
      const identity = values.find(({ id }: { id: string }) => id === 'v3.6').links[0].href;
      expect(identity).toBe(`${asker.address}/identity/v3/`);
      const domain = await loginToDomain(asker.address, installation);
      const { auth } = tokenRequest(installation);
      const exchanged = await requestToken(asker.address, {
        auth: { ...auth, identity: { methods: ['token'], token: { id: domain.token } } },
      });
      const token = String(exchanged.headers['x-subject-token']);
      expect(
        (await new Caller(asker.address, installation.project_id, token).get('connections')).status,
      ).toBe(200);
    });

    test('can be created and deleted through the second service', async () => {
      const owner = await loginToDomain(asker.address, await newUser('owner'));
      const headers = { 'X-Auth-Token': owner.token, 'Content-Type': 'application/json' };
      const path = '/v3.0/OS-CREDENTIAL/credentials';
      const { id } = JSON.parse(
        (
          await call(asker.address, '/v3/auth/tokens', {
            headers: { ...headers, 'X-Subject-Token': owner.token },
          })
        ).text,
      ).token.user;
      const body = JSON.stringify({ credential: { user_id: id } });
      const made = await call(asker.address, path, { method: 'POST', headers, body });
      const { credential } = JSON.parse(made.text);
      expect(made.status).toBe(201);
      expect((await signed(asker, credential, statistics())).status).toBe(200);
      const gone = await call(asker.address, `${path}/${credential.access}`, { method: 'DELETE', headers });
      expect([gone.status, gone.text]).toEqual([204, '']);
    });
  });

  describe('after a revocation', () => {
    /** Waits for the refusal, for much longer than --identity-cache: the machine may be busy. */
    async function refused(ask: () => Promise<HttpResponse>, status: number): Promise<string> {
      const refusal = await eventually(async () => {
        const answer = await ask();
        return answer.status === 200 ? undefined : answer;
      }, 'a refusal after the cache time');
      expect(refusal.status).toBe(status);
      return JSON.parse(refusal.text).error_msg;
    }

    test.each([
      ['the user is disabled', ['user', 'disable', 'USER']],
      ['the user is deleted', ['user', 'delete', 'USER']],
      ['the password is changed', ['user', 'password', 'USER']],
      ['the role is taken away', ['user', 'revoke', 'USER']],
    ])('a token is refused after the cache time when %s', async (what, command) => {
      const user = what.replaceAll(' ', '-');
      const api = at(asker, await login(keeper.address, await newUser(user)));
      expect((await api.get('connections')).status).toBe(200);
      expect((await admin(...command.map((word) => (word === 'USER' ? user : word)))).status).toBe(0);
      await refused(() => api.get('connections'), 401);
    });

    test('a token is refused after the cache time when revoked at the first service, at once when revoked at the second', async () => {
      const account = await newUser('leaver');
      const revoke = (server: Server, { token }: Api) =>
        call(server.address, '/v3/auth/tokens', {
          method: 'DELETE',
          headers: { 'X-Auth-Token': token, 'X-Subject-Token': token },
        });
      const first = at(asker, await login(keeper.address, account));
      expect((await first.get('connections')).status).toBe(200);
      expect((await revoke(keeper, first)).status).toBe(204);
      await refused(() => first.get('connections'), 401);
      const second = await login(asker.address, account);
      expect((await second.get('connections')).status).toBe(200);
      expect((await revoke(asker, second)).status).toBe(204);
      expect((await second.get('connections')).status).toBe(401);
    });

    test.each([
      ['is disabled', ['key', 'disable', 'KEY'], 401, 'the access key is disabled'],
      ['is deleted', ['key', 'delete', 'KEY'], 401, 'unknown access key'],
      ['has a disabled user', ['user', 'disable', 'USER'], 401, 'the user of the access key is disabled'],
      ['has a user without a role', ['user', 'revoke', 'USER'], 403, "missing role 'reader' in this project"],
    ] as const)(
      'a key is refused after the cache time when it %s',
      async (what, command, status, sentence) => {
        const user = `key-${what.replaceAll(' ', '-')}`;
        await newUser(user);
        const key = await newKey(user);
        const ask = () => signed(asker, key, statistics());
        expect((await ask()).status).toBe(200);
        const words = command.map((word) => (word === 'USER' ? user : word === 'KEY' ? key.access : word));
        expect((await admin(...words)).status).toBe(0);
        expect(await refused(ask, status)).toBe(sentence);
      },
    );

    test('a disabled project refuses keys and tokens', async () => {
      const { id } = await sandbox.runJson<{ id: string }>('project', 'add', 'closing');
      const account = { ...(await newUser('closing', '--project', 'closing')), project_id: id };
      const key = await newKey('closing');
      const api = at(asker, await login(keeper.address, account));
      const path = `/v1/${id}/connections`;
      expect([(await api.get('connections')).status, (await signed(asker, key, path)).status]).toEqual([
        200, 200,
      ]);
      expect((await admin('project', 'disable', 'closing')).status).toBe(0);
      await refused(() => api.get('connections'), 401);
      await refused(() => signed(asker, key, path), 403);
    });
  });

  test('the second service gets a new token when its own is revoked', async () => {
    expect((await admin('user', 'disable', 'asker')).status).toBe(0);
    expect((await admin('user', 'enable', 'asker')).status).toBe(0);
    const api = at(asker, await login(keeper.address, installation));
    expect((await api.get('connections')).status).toBe(200);
  });

  test('the console is at the first service only, and the second says so', async () => {
    const headers = { accept: 'text/html' };
    for (const path of ['/', '/console', '/console/hosts']) {
      const { status, text } = await call(asker.address, path, { headers });
      expect([status, JSON.parse(text).error_msg]).toEqual([
        404,
        'there is no console here: open the console of the identity service',
      ]);
    }
  });

  describe('forwarding', () => {
    test('reaches only identity paths', async () => {
      for (const path of ['/v3/../v1/x', '/v3/%2e%2E/v1/x', '/identity/v3/./x', '/v3/..', '/v3/..;/x']) {
        const { status, text } = await call(asker.address, path);
        expect([status, JSON.parse(text).error.message]).toEqual([
          404,
          'paths with dot segments are not forwarded',
        ]);
      }
    });

    test('refuses a body that is too large', async () => {
      const { status } = await requestToken(asker.address, 'x'.repeat(200_000));
      expect(status).toBe(413);
    });

    test('returns the response of the identity service with its own request ID', async () => {
      const { status, text, headers } = await requestToken(
        asker.address,
        tokenRequest({ ...installation, password: 'x' }),
      );
      expect([status, JSON.parse(text).error.message]).toEqual([401, 'The username or password is wrong.']);
      await logged(asker);
      const lines = wholeLines(asker.process.stderr).filter((line) =>
        line.includes(String(headers['x-request-id'])),
      );
      expect(lines).toHaveLength(1);
    });
  });

  test('no secret is in the log of either', async () => {
    await newUser('quiet');
    const key = await newKey('quiet');
    const api = at(asker, await login(asker.address, installation));
    expect((await api.get('connections')).status).toBe(200);
    expect((await signed(asker, key, statistics())).status).toBe(200);
    for (const { process } of [keeper, asker]) {
      const said = process.stdout + process.stderr;
      for (const secret of [key.secret, password, installation.password, api.token.split('.').at(-1) ?? '']) {
        expect(said).not.toContain(secret);
      }
    }
  });

  const PYTHON = '/usr/bin/python3';
  const hasKeystoneauth = spawnSync(PYTHON, ['-c', 'import keystoneauth1'], { stdio: 'ignore' }).status === 0;

  test.skipIf(!hasKeystoneauth && process.env.CI !== 'true')(
    'keystoneauth works with the address of the second service (needs: apt-get install python3-keystoneauth1)',
    async () => {
      const given = {
        ...installation,
        identity: `${asker.address}/identity`,
        query: 'from=0&to=1',
        region: 'eu-test',
      };
      const script = fileURLToPath(new URL('keystone-client.py', import.meta.url));
      const printed = await new Promise<string>((resolve, reject) => {
        const child = execFile(PYTHON, [script], (error, stdout, stderr) =>
          error ? reject(new Error(stderr)) : resolve(stdout),
        );
        child.stdin?.end(JSON.stringify(given));
      });
      const timeline = await (await login(keeper.address, installation)).timeline('from=0&to=1');
      expect(JSON.parse(printed)).toEqual({ first: timeline, second: timeline, renewed: true });
    },
  );

  test('a service with the embedded store needs a data folder', async () => {
    const args = ['serve', '--identity-url', keeper.address, '--identity-user', 'asker', '--store', 'lmdb'];
    for (const given of [args, args.slice(0, -2)]) {
      const { status, stderr } = await sandbox.run(given, { env: { WAFSTAT_IDENTITY_PASSWORD: password } });
      expect([status, stderr]).toEqual([2, 'wafstat: --data (or WAFSTAT_DATA) is required\n']);
    }
  });

  describe('without the identity service', () => {
    test('cached credentials work for the cache time, then requests get 503 until it is back', async () => {
      const other = new Sandbox();
      try {
        const made = await other.init();
        const added = ['user', 'add', 'asker', '--role', 'identity'];
        const secret = await other.runJson<{ password: string }>(...added);
        const key = await other.runJson<Key>('key', 'add', '--user', 'admin');
        const first = await other.serve();
        const env = { WAFSTAT_IDENTITY_PASSWORD: secret.password };
        const asking = [
          '--identity-url',
          first.address,
          '--identity-user',
          'asker',
          '--identity-cache',
          '4s',
        ];
        const second = await other.serve(asking, { env });
        const ready = () => call(second.address, '/readyz');
        expect((await ready()).status).toBe(200);
        const api = at(second, await login(first.address, made));
        const path = `/v1/${made.project_id}/connections`;
        const both = async () => [
          (await api.get('connections')).status,
          (await signed(second, key, path)).status,
        ];
        expect(await both()).toEqual([200, 200]);
        await first.process.kill();
        expect(await both()).toEqual([200, 200]);
        const notReady = await eventually(async () => {
          const answer = await ready();
          return answer.status === 200 ? undefined : answer;
        }, 'not being ready');
        expect([notReady.status, JSON.parse(notReady.text)]).toEqual([
          503,
          { error_code: 'WAF.5001', error_msg: 'the identity service is unavailable; retry later' },
        ]);
        await eventually(async () => ((await both()).join() === '503,503' ? true : undefined), 'two 503');
        const refused = await api.get('connections');
        expect([refused.status, refused.headers['retry-after']]).toEqual([503, '5']);
        const forwarded = await requestToken(second.address, tokenRequest(made));
        expect([forwarded.status, JSON.parse(forwarded.text).error.code]).toEqual([503, 503]);
        expect((await call(second.address, '/healthz')).status).toBe(200);
        await other.serve(['--listen', new URL(first.address).host]);
        await eventually(
          async () => ((await ready()).status === 200 ? true : undefined),
          'being ready again',
        );
        expect(await both()).toEqual([200, 200]);
      } finally {
        await other.clear();
      }
    });

    test('requests get 503 when it accepts connections but never responds', async () => {
      const { createServer } = await import('node:net');
      const silent = createServer().listen(0, '127.0.0.1');
      try {
        await new Promise((resolve) => silent.once('listening', resolve));
        const { port } = silent.address() as { port: number };
        const server = await serveAsking(`http://127.0.0.1:${port}`, '1s');
        const { status } = await new Caller(server.address, installation.project_id, 'x').get('connections');
        expect(status).toBe(503);
        await server.process.kill();
      } finally {
        silent.close();
      }
    });

    test('the service starts, and logs that it waits', async () => {
      const server = await serveAsking('http://127.0.0.1:9', '1s');
      expect((await call(server.address, '/readyz')).status).toBe(503);
      expect(server.process.stderr).toContain('no response from http://127.0.0.1:9: ECONNREFUSED');
    });
  });

  describe('the service does not start', () => {
    const start = (args: string[], env: Record<string, string> = {}) =>
      sandbox.run(['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0', ...args], { env });

    test.each([
      ['a wrong password', 'asker', 'wrong'],
      ['an unknown user', 'nobody', 'wrong'],
    ])('with %s', async (_, user, WAFSTAT_IDENTITY_PASSWORD) => {
      const args = ['--identity-url', keeper.address, '--identity-user', user];
      const { status, stdout, stderr } = await start(args, { WAFSTAT_IDENTITY_PASSWORD });
      expect([status, stdout, stderr]).toEqual([
        1,
        '',
        `wafstat: the identity service rejects user '${user}' of domain 'default': ` +
          'the password is wrong, or the user has no role in the system\n',
      ]);
    });

    test('as a user without the role identity, not even as an administrator', async () => {
      const file = sandbox.write('password', `${installation.password}\n`);
      const args = [
        '--identity-url',
        keeper.address,
        '--identity-user',
        'admin',
        '--identity-password-file',
        file,
      ];
      const { status, stderr } = await start(args);
      expect([status, stderr]).toEqual([1, expect.stringContaining("user 'admin' of domain 'default'")]);
    });

    test('with settings that contradict each other', async () => {
      const { status, stderr } = await start(['--identity-url', 'http://identity.example.com']);
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
});

if (inject('clickhouseUrl') !== undefined) {
  test('a service with remote identity and remote store needs no data folder', async () => {
    const args = [
      'serve',
      '--listen',
      '127.0.0.1:0',
      '--identity-url',
      keeper.address,
      '--identity-user',
      'asker',
    ];
    const process = sandbox.start(args, { env: { WAFSTAT_IDENTITY_PASSWORD: password } });
    const address = (await process.line('wafstat listens on ')).slice('wafstat listens on '.length);
    const api = await login(address, installation);
    const body = JSON.stringify({ time: Date.now() });
    const headers = { 'X-Auth-Token': api.token };
    const path = `/ingest/v1/${installation.project_id}?format=events&source=stateless`;
    const pushed = await call(address, path, { method: 'POST', headers, body });
    expect([pushed.status, JSON.parse(pushed.text).accepted]).toEqual([200, 1]);
    const seen = await at(keeper, api).get('connections');
    expect(JSON.parse(seen.text).items).toContainEqual(
      expect.objectContaining({ name: 'stateless', events: 1 }),
    );
  });
}
