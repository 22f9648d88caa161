/** One project sends far more queries than the service can compute; other projects are still served. */
import http from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Api, call, type HttpResponse, login } from './api.ts';
import { eventually } from './process.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const HOSTS = 1_000;
/** More than the limit of 64 per user, so that both limits apply. */
const CONNECTIONS_PER_USER = 70;
const USERS = 6;
const REQUESTS_PER_CONNECTION = 5;
const HOUR_MS = 3_600_000;

const sandbox = new Sandbox();
const END = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const RANGE = `from=${END - 3 * HOUR_MS}&to=${END}`;
let installation: Installation;
let server: Server;
let other: Api;
let floods: Api[];
let hosts: string;

beforeAll(async () => {
  installation = await sandbox.init();
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', 'flood');
  const users: { user: string; password: string }[] = [];
  for (let i = 0; i < USERS; i++) {
    const user = `user${i}`;
    const { password } = await sandbox.runJson<{ password: string }>(
      'user',
      'add',
      user,
      '--project',
      'flood',
    );
    users.push({ user, password });
  }
  const names = Array.from({ length: HOSTS }, (_, i) => `www${i}.example.com`);
  await sandbox.ingest(
    'flood',
    names.map((host, i) => ({ time: END - HOUR_MS + i, host, attack: 'xss' })),
  );
  await sandbox.ingest(installation.project_id, [{ time: END - HOUR_MS, host: 'a.example.com' }]);
  server = await sandbox.serve(['--rate-limit', '0', '--log-level', 'error']);
  other = await login(server.address, installation);
  floods = [];
  for (const user of users) {
    floods.push(await login(server.address, { ...installation, ...user, project_id: id }));
  }
  hosts = (await hostIds(floods[0] as Api)).join(',');
});
afterAll(() => sandbox.clear());

async function hostIds(api: Api): Promise<string[]> {
  const { items } = await api.getJson<{ items: { id: string }[] }>('waf/instance');
  expect(items).toHaveLength(HOSTS);
  return items.map(({ id }) => id);
}

/** Bypasses the response cache. */
const UNCACHED = { headers: { 'Cache-Control': 'no-cache' } };

function expensive(api: Api, agent: http.Agent): Promise<HttpResponse> {
  // Not on a minute boundary, so that single events are read too.
  const range = `from=${END - 3 * HOUR_MS + 1}&to=${END - 1}`;
  const headers = { ...UNCACHED.headers, 'X-Auth-Token': api.token };
  return call(server.address, `/v1/${api.project}/waf/event/timeline?${range}&hosts=${hosts}`, {
    headers,
    agent,
  });
}

function countsOf(responses: readonly HttpResponse[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of responses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

test('part of a flood of one project is refused, and other projects are served', async () => {
  const agent = new http.Agent({ keepAlive: true });
  server.process.signal('SIGSTOP');
  const flooded: HttpResponse[] = [];
  let isDone = false;
  const connection = async (api: Api) => {
    for (let i = 0; i < REQUESTS_PER_CONNECTION; i++) flooded.push(await expensive(api, agent));
  };
  const flood = Promise.all(
    floods.flatMap((api) => Array.from({ length: CONNECTIONS_PER_USER }, () => connection(api))),
  ).finally(() => {
    isDone = true;
  });
  // All requests of the first round have arrived when the service goes on, however fast or busy the machine is.
  const sent = () =>
    Object.values(agent.sockets)
      .flatMap((sockets) => sockets ?? [])
      .filter(({ bytesWritten }) => bytesWritten > 0).length;
  await eventually(() => sent() === USERS * CONNECTIONS_PER_USER || undefined, 'all requests to be sent');
  server.process.signal('SIGCONT');
  const healthy: HttpResponse[] = [];
  const others: HttpResponse[] = [];
  while (!isDone) {
    healthy.push(await call(server.address, '/healthz'));
    others.push(await other.get(`waf/event/timeline?${RANGE}`, UNCACHED));
  }
  await flood;
  agent.destroy();

  expect(flooded).toHaveLength(USERS * CONNECTIONS_PER_USER * REQUESTS_PER_CONNECTION);
  const counts = countsOf(flooded);
  expect(Object.keys(counts).sort()).toEqual(['200', '429', '503']);
  for (const { status, headers, text } of flooded) {
    if (status === 200) continue;
    expect(headers['retry-after']).toBe('1');
    expect(JSON.parse(text).error_code).toBe(status === 503 ? 'WAF.5001' : 'WAF.3004');
  }
  expect(new Set(healthy.map(({ status }) => status))).toEqual(new Set([200]));
  const served = countsOf(others)[200] ?? 0;
  expect(served).toBeGreaterThan(0);
  expect(served / others.length).toBeGreaterThan((counts[200] ?? 0) / flooded.length);
  for (const { status } of others) expect([200, 503]).toContain(status);
});

test('after the flood every request is served', async () => {
  const agent = new http.Agent();
  for (const api of floods) {
    const { status, text } = await expensive(api, agent);
    expect(status).toBe(200);
    const { attacks } = JSON.parse(text) as { attacks: { num: number }[] };
    expect(attacks.reduce((sum, { num }) => sum + num, 0)).toBe(HOSTS);
  }
  expect((await other.timeline(RANGE)).requests.reduce((sum, { num }) => sum + num, 0)).toBe(1);
  expect((await call(server.address, '/readyz')).status).toBe(200);
});
