/** Clients of other vendors. docs/clients.md has their settings; test/clients.test.ts runs its snippets. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { BasicCredentials } from '@huaweicloud/huaweicloud-sdk-core';
import { ClientBuilder } from '@huaweicloud/huaweicloud-sdk-core/ClientBuilder.js';
import type { HcClient } from '@huaweicloud/huaweicloud-sdk-core/HcClient.js';
import { Region } from '@huaweicloud/huaweicloud-sdk-core/region/region.js';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Api, tokenRequest } from './api.ts';
import { CALLS, CATEGORIES, type KnownEvent, Oracle } from './oracle.ts';
import { Random } from './random.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const REGION = 'eu-test';
const HOSTNAMES = Array.from({ length: 25 }, (_, i) => `host-${String(i + 1).padStart(2, '0')}.example.com`);
const TO = Math.floor(Date.now() / 60_000) * 60_000 - 777;
const FROM = TO - 3 * 3_600_000 - 1_234;
const RANGE = { from: FROM, to: TO };
const QUERY = `from=${FROM}&to=${TO}`;
const EVENTS = randomEvents(new Random(20_261_115), 2_000);
const oracle = new Oracle(EVENTS);

let sandbox: Sandbox;
let installation: Installation;
let server: Server;
let api: Api;
let key: { access: string; secret: string };
let ids: Map<string, string>;

beforeAll(async () => {
  sandbox = new Sandbox();
  ({ installation, server, api } = await sandbox.service('--region', REGION));
  const events = EVENTS.map(({ hostname, attack, ...event }) => ({
    ...event,
    ...(hostname === null ? {} : { host: hostname }),
    ...(attack === null ? {} : { attack }),
  }));
  await sandbox.ingest(installation.project_id, events);
  key = await sandbox.runJson('key', 'add', '--user', 'admin');
  ids = await api.hostIds();
});

afterAll(() => sandbox.clear());

/** Some outside the range, some in the same second, some without a host. */
function randomEvents(random: Random, size: number): KnownEvent[] {
  return Array.from({ length: size }, (_, i) => {
    const attack = random.chance(0.5) ? random.pick(CATEGORIES) : null;
    return {
      time: random.chance(0.3) ? FROM + 5_000_000 + random.integer(0, 3_000) : FROM + i * 6_000,
      hostname: random.chance(0.05) ? null : random.pick(HOSTNAMES),
      request: attack === null || random.chance(0.7),
      attack,
      count: random.chance(0.1) ? random.integer(2, 100_000) : 1,
      url: `/${i % 9}`,
      ...(attack === null ? {} : { source: `203.0.113.${i % 50}`, rule: `${i % 7}` }),
      ...(i % 3 === 0 ? {} : { status: [200, 404, 502][i % 4] ?? 403, bytes_in: i, bytes_out: i * 1_000 }),
      ...(i % 5 === 1 && { upstream_status: i % 2 === 0 ? 0 : 200 }),
      blocked: attack === null || random.chance(0.3) ? undefined : random.chance(0.5),
    };
  });
}

describe('the vendor’s JavaScript SDK', () => {
  type Parameters = Record<string, string | number | string[] | undefined>;
  interface Hosts {
    total: number;
    items: { id: string; hostid: string; hostname: string; timestamp: number }[];
  }

  function credentials(): BasicCredentials {
    return new BasicCredentials().withAk(key.access).withSk(key.secret);
  }

  function builder(): ClientBuilder<HcClient> {
    return new ClientBuilder<HcClient>((client: HcClient) => client);
  }

  /** Sends a request as the vendor's generated service clients do: they leave the project ID to the credentials. */
  async function get<T>(path: string, queryParams: Parameters = {}, client = clientOfProject()): Promise<T> {
    const given = Object.entries(queryParams).filter(([, value]) => value !== undefined);
    const response = await client.sendRequest({
      method: 'GET',
      url: `/v1/{project_id}/${path}`,
      contentType: 'application/json',
      queryParams: { enterprise_project_id: 'all_granted_eps', ...Object.fromEntries(given) },
      pathParams: {},
      headers: { 'Content-Type': 'application/json;charset=utf8', 'X-Language': 'en-us' },
    });
    // The SDK adds the status to the parsed body, even to an array.
    const { httpStatusCode, ...fields } = response;
    expect(httpStatusCode).toBe(200);
    return JSON.parse(JSON.stringify(Array.isArray(response) ? response : fields));
  }

  function clientOfProject(): HcClient {
    return builder()
      .withCredential(credentials().withProjectId(installation.project_id))
      .withEndpoint(server.address)
      .build();
  }

  const someHosts = HOSTNAMES.slice(3, 10);
  const idsOf = (hostnames: readonly string[]) => hostnames.map((name) => ids.get(name) ?? '');
  /** SDKs type `hosts` and `instances` as a list in some calls, and as a string in others. */
  const FILTERS: [string, string[] | undefined, () => Parameters][] = [
    ['the project', undefined, () => ({})],
    ['a list of hosts', someHosts, () => ({ hosts: idsOf(someHosts).reverse() })],
    ['hosts as text', someHosts, () => ({ hosts: idsOf(someHosts).join(',') })],
    ['one host', ['host-01.example.com'], () => ({ hosts: idsOf(['host-01.example.com'])[0] })],
    ['instances as text', someHosts, () => ({ instances: idsOf(someHosts).join(',') })],
  ];

  test('the tests below cover every statistics call of the service', async () => {
    const response = await fetch(`${server.address}/openapi.json`);
    const api = (await response.json()) as { paths: Record<string, { get?: { tags?: string[] } }> };
    const statistics = Object.entries(api.paths).filter(([, { get }]) => get?.tags?.includes('statistics'));
    // They depend on GeoIP files and on the history before the range: calls.test.ts and situation-call.test.ts test them.
    const others = ['overviews/attack/network', 'overviews/situation'];
    const paths = new Set([...Object.keys(CALLS).map((call) => call.split('?')[0]), ...others]);
    const expected = [...paths].map((path) => `/v1/{project_id}/waf/${path}`);
    expect(statistics.map(([path]) => path).toSorted()).toEqual(expected.toSorted());
  });

  test.each(FILTERS)('every statistics call returns the numbers of %s', async (_, hostnames, filter) => {
    for (const call of Object.keys(CALLS)) {
      const [path = '', parameters] = call.split('?');
      const own = Object.fromEntries(new URLSearchParams(parameters));
      const expected = oracle.expected(call, {
        ...RANGE,
        offsetMinutes: 0,
        hostnames: hostnames && new Set(hostnames),
        hostIds: ids,
      });
      expect({ call, response: await get(`waf/${path}`, { ...RANGE, ...own, ...filter() }) }).toEqual({
        call,
        response: expected,
      });
    }
  });

  test('a time zone and two hosts are signed', async () => {
    const hostnames = new Set(['host-02.example.com', 'host-05.example.com']);
    const hosts = idsOf([...hostnames]).reverse();
    expect(await get('waf/event/timeline', { ...RANGE, timezone: '+05:45', hosts })).toEqual(
      oracle.timeline({ ...RANGE, offsetMinutes: 345, hostnames }),
    );
  });

  const HOST_LISTS = ['waf/instance', 'composite-waf/host', 'premium-waf/host'];
  const PAGE_SIZES = [1, 7, 10, 25, 100];

  test.each(HOST_LISTS)('%s: both vendors’ ways to page list each of 25 hosts once', async (path) => {
    for (const size of PAGE_SIZES) {
      // Huawei Cloud: pages from 1, until all are seen.
      const byPage: string[] = [];
      for (let page = 1, total = Infinity; byPage.length < total; page++) {
        const hosts = await get<Hosts>(path, { page, pagesize: size });
        if (hosts.items.length === 0) break;
        total = hosts.total;
        byPage.push(...hosts.items.map(({ hostname }) => hostname));
      }
      expect({ size, hosts: byPage }).toEqual({ size, hosts: HOSTNAMES });

      // Open Telekom Cloud: its SDK sends only `limit` at first, then the page from 0 in `offset`.
      const byOffset: string[] = [];
      for (let offset: number | undefined, total = Infinity; byOffset.length < total; ) {
        const hosts = await get<Hosts>(path, { offset, limit: size });
        if (hosts.items.length === 0) break;
        total = hosts.total;
        offset = (offset ?? 0) + 1;
        byOffset.push(...hosts.items.map(({ hostname }) => hostname));
      }
      expect({ size, hosts: byOffset }).toEqual({ size, hosts: HOSTNAMES });
    }
    for (const all of [
      {},
      { pagesize: -1 },
      { page: 1, pagesize: -1 },
      { limit: -1 },
      { offset: 0, limit: -1 },
    ]) {
      const { total, items } = await get<Hosts>(path, all);
      expect([total, items.map(({ hostname }) => hostname)]).toEqual([25, HOSTNAMES]);
    }
  });

  test('hosts can be found by name and read by ID', async () => {
    const { total, items } = await get<Hosts>('waf/instance', { page: 1, pagesize: 10, hostname: 'HOST-2' });
    expect([total, items.length]).toEqual([6, 6]);
    expect(await get<Hosts>('waf/instance', { policyname: 'strict' })).toEqual({ total: 0, items: [] });
    const [first] = items;
    expect(first).toMatchObject({ hostname: 'host-20.example.com', hostid: first?.id });
    expect(await get(`waf/instance/${first?.id}`)).toEqual(first);
  });

  test('both vendors’ ways to page list each event once, and their counts add up to the counter', async () => {
    interface Events {
      total: number;
      items: { id: string; time: number; attack: string; status?: string; count?: number }[];
      attacks: number;
      complete: boolean;
    }
    const filter = { ...RANGE, attacks: ['sqli', 'xss'], hosts: idsOf(someHosts) };
    const all = await get<Events>('waf/event', { ...filter, pagesize: 1_000 });
    expect(all.items.length).toBeGreaterThan(20);
    expect(new Set(all.items.map((item) => JSON.stringify(item))).size).toBe(all.total);
    for (const [name, first, size] of [
      ['page', 1, 'pagesize'],
      ['offset', 0, 'limit'],
    ] as const) {
      const items = [];
      // Terraform reads until a page is empty.
      for (let page = first; ; page++) {
        const part = await get<Events>('waf/event', { ...filter, [name]: page, [size]: 3 });
        expect([part.total, part.attacks, part.complete]).toEqual([all.total, all.attacks, true]);
        if (part.items.length === 0) break;
        items.push(...part.items);
      }
      expect(items).toEqual(all.items);
    }
    const { attack_num } = await get<{ attack_num: number }>('waf/event/attack/num', RANGE);
    const every = await get<Events>('waf/event', { ...RANGE, pagesize: 1_000 });
    expect([every.attacks, every.complete, every.items.length]).toEqual([attack_num, true, every.total]);
    expect(every.items.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(attack_num);
    const [one] = all.items;
    expect((await get<Events>(`waf/event/${one?.id}`)).items).toContainEqual(one);
  });

  test.each(['waf/tag/threat/map', 'waf/map/threat'])('%s names the categories', async (path) => {
    const { threats, locale } = await get<{ threats: string[]; locale: object }>(path, { lang: 'en-us' });
    expect([threats, Object.keys(locale)]).toEqual([CATEGORIES, CATEGORIES]);
  });

  test('finds the project by the name of the region, as with credentials without a project ID', async () => {
    const { id } = await sandbox.runJson<{ id: string }>('project', 'add', REGION);
    await sandbox.ingest(id, [{ time: FROM, host: 'a.example.com', attack: 'sqli', count: 9 }]);
    const client = builder()
      .withCredential(credentials().withIamEndpoint(server.address))
      .withRegion(new Region(REGION, server.address))
      .build();
    expect(await get('waf/event/attack/num', RANGE, client)).toEqual({ attack_num: 9 });
  });

  test('an algorithm for derived credentials, which wafstat does not have, is named in the exception', async () => {
    const derived = credentials()
      .withProjectId(installation.project_id)
      .withDerivedPredicate(() => true);
    const client = builder()
      .withCredential(derived)
      .withRegion(new Region(REGION, server.address))
      .withDerivedAuthServiceName('waf')
      .build();
    await expect(get('waf/event/attack/num', RANGE, client)).rejects.toMatchObject({
      httpStatusCode: 401,
      errorMsg: expect.stringContaining('V11-HMAC-SHA256'),
    });
  });

  test.each([
    ['waf/async-job/1', 404, 'WAF.4000', 'wafstat does not keep exports of events'],
    ['waf/event/none', 404, 'WAF.4000', 'has no event with the ID'],
    ['waf/event?sips=10.0.0.0/33&recent=today', 400, 'WAF.1001', "sips is '10.0.0.0/33'"],
    [`waf/instance/${'0'.repeat(32)}`, 404, 'WAF.4000', 'has no host with the ID'],
    ['waf/event/attack/num', 400, 'WAF.1025', 'from'],
    ['waf/overviews/abnormal?code=403&recent=today', 400, 'WAF.1001', "code is '403'"],
    ['waf/policy', 404, 'WAF.4000', 'wafstat does not keep the configuration of a WAF'],
    ['composite-waf/host?protect_status=1', 400, 'WAF.1001', 'protect_status'],
    ['composite-waf/host?waf_type=cloud', 400, 'WAF.1001', 'waf_type'],
    ['composite-waf/host?is_https=true', 400, 'WAF.1001', 'is_https'],
  ])(
    '%s: the exception has the status, the code, the reason and the request ID',
    async (call, httpStatusCode, errorCode, reason) => {
      const [path = '', query] = call.split('?');
      const parameters = Object.fromEntries(new URLSearchParams(query));
      await expect(get(path, parameters)).rejects.toMatchObject({
        httpStatusCode,
        errorCode,
        errorMsg: expect.stringContaining(reason),
        requestId: expect.stringMatching(/./),
      });
    },
  );
});

const PYTHON = '/usr/bin/python3';
const hasModule = (name: string) => existsSync(`/usr/lib/python3/dist-packages/${name}`);
const hasKeystoneauth = hasModule('keystoneauth1');

test.skipIf(!hasKeystoneauth && process.env.CI !== 'true')(
  'keystoneauth works with the identity address alone, and logs in again when its token is revoked (needs: apt-get install python3-keystoneauth1)',
  async () => {
    const given = { ...installation, identity: `${server.address}/identity`, query: QUERY, region: REGION };
    const script = fileURLToPath(new URL('keystone-client.py', import.meta.url));
    const printed = await output(PYTHON, [script], JSON.stringify(given));
    const timeline = oracle.timeline({ ...RANGE, offsetMinutes: 0, hostnames: undefined });
    expect(JSON.parse(printed)).toEqual({ first: timeline, second: timeline, renewed: true });
  },
);

/** A list of openstacksdk that pages as the SDK of Open Telekom Cloud does, which extends openstacksdk. */
const LIST_HOSTS = `
import json, sys
import openstack
from openstack import proxy, resource

class Host(resource.Resource):
    base_path = "/waf/instance"
    resources_key = "items"
    allow_list = True
    hostname = resource.Body("hostname")
    _query_mapping = resource.QueryParameters("limit", "offset")

    @classmethod
    def _get_next_link(cls, uri, response, data, marker, limit, total_yielded):
        if total_yielded >= data["total"]:
            return None, {}
        return uri, {"limit": limit, "offset": total_yielded // limit}

given = json.load(sys.stdin)
connection = openstack.connect(
    auth_url=given["identity"], username=given["user"], password=given["password"],
    user_domain_name=given["domain"], project_id=given["project_id"], region_name=given["region"])
endpoint = connection.endpoint_for("waf") + "/v1/" + given["project_id"]
waf = proxy.Proxy(connection.session, service_type="waf", endpoint_override=endpoint)
waf._connection = connection
lists = [[host.hostname for host in Host.list(waf, **query)] for query in given["queries"]]
json.dump(lists, sys.stdout)
`;
const hasOpenstacksdk = hasModule('openstack');

test.skipIf(!hasOpenstacksdk && process.env.CI !== 'true')(
  'openstacksdk pages through the hosts (needs: apt-get install python3-openstacksdk)',
  async () => {
    const queries = [{}, ...[1, 7, 10, 25, 100].map((limit) => ({ limit }))];
    const given = { ...installation, identity: `${server.address}/identity`, region: REGION, queries };
    const printed = await output(PYTHON, ['-c', LIST_HOSTS], JSON.stringify(given));
    expect(JSON.parse(printed)).toEqual(queries.map(() => HOSTNAMES));
  },
);

const hasOpenstack = hasModule('openstackclient') && hasOpenstacksdk;

test.skipIf(!hasOpenstack && process.env.CI !== 'true').each(['admin', 'reader'] as const)(
  'openstacksdk and the openstack command work for the role %s with any address of the service (needs: apt-get install python3-openstacksdk python3-openstackclient)',
  async (role) => {
    // A new installation: the commands list all users and projects.
    const sandbox = new Sandbox();
    onTestFinished(() => sandbox.clear());
    const { installation, server } = await sandbox.service('--region', REGION);
    const reader = await sandbox.runJson<{ id: string; password: string }>(
      ...['user', 'add', 'reporter', '--project', 'default', '--role', 'reader'],
    );
    const account =
      role === 'admin'
        ? installation
        : { ...installation, user: 'reporter', user_id: reader.id, password: reader.password };
    // The settings of the command: where they are, and the address with and without the version.
    const variants = [
      ['clouds.yaml', ''],
      ['clouds.yaml', '/v3'],
      ['environment', '/v3'],
      ['environment', ''],
    ].slice(role === 'admin' ? 0 : -1);
    const given = {
      ...account,
      address: server.address,
      paths: ['', '/v3', '/', '/identity', '/identity/v3'],
      variants,
      region: REGION,
      clouds: sandbox.path('clouds.yaml'),
      role,
    };
    const script = fileURLToPath(new URL('openstack-client.py', import.meta.url));
    const result = JSON.parse(await output(PYTHON, [script], JSON.stringify(given)));
    const { project_id, domain_id } = installation;
    const url = `${server.address}/v1/${project_id}/connections`;
    expect(result.urls).toEqual(given.paths.map(() => Array(5).fill(url)));
    expect(result.sdk).toEqual([project_id, domain_id, ['default']]);
    const { user_id } = account;
    const printed = {
      token: [user_id, project_id],
      catalog: ['identity', 'waf', 'premium-waf'],
      project: project_id,
      projects: ['default'],
      user: user_id,
    };
    expect(result.commands).toEqual(variants.map(() => printed));
    // The last project cannot be deleted by mistake.
    const changes = [['ingest'], false, false, true, ['admin', 'reporter', 'default']];
    expect(result.changes).toEqual(role === 'reader' ? undefined : changes);
    expect(result.administration).toEqual(
      role === 'reader'
        ? 1
        : {
            users: ['admin', 'reporter'],
            'of the domain': ['admin', 'reporter'],
            roles: ['reader', 'ingest', 'admin'],
            assignments: [['reporter@default', 'reader', 'default@default']],
          },
    );
  },
);

test('curl reads with an access key as user and password, and HEAD works too', async () => {
  await sandbox.runJson('user', 'add', 'grafana', '--project', 'default', '--role', 'reader');
  const { access, secret } = await sandbox.runJson<{ access: string; secret: string }>(
    ...['key', 'add', '--user', 'grafana'],
  );
  const url = `${server.address}/v1/${installation.project_id}/waf/event/attack/type?${QUERY}`;
  const user = ['--silent', '--user', `${access}:${secret}`];
  const expected = oracle.distribution({ ...RANGE, offsetMinutes: 0, hostnames: undefined });
  expect(JSON.parse(await output('curl', [...user, url]))).toEqual(expected);
  expect(await output('curl', [...user, '--head', url])).toMatch(/^HTTP\/1\.1 200 /);
  // curl sends the credentials only after a challenge.
  expect(JSON.parse(await output('curl', [...user, '--anyauth', url]))).toEqual(expected);
  const identity = await output('curl', [...user, '--include', `${server.address}/v3/projects`]);
  expect(identity).toMatch(/^HTTP\/1\.1 401 /);
});

test('curl gets a token with the request of the specification, and queries with it', async () => {
  const headers = await output('curl', [
    ...['--silent', '--dump-header', '-', '--output', '/dev/null'],
    ...['--header', 'Content-Type: application/json'],
    ...['--data', JSON.stringify(tokenRequest(installation))],
    `${server.address}/v3/auth/tokens`,
  ]);
  expect(headers).toMatch(/^HTTP\/1\.1 201 /);
  const token = /^x-subject-token: (.*)$/im.exec(headers)?.[1]?.trim();
  const url = `${server.address}/v1/${installation.project_id}/waf/event/attack/type?${QUERY}`;
  const body = await output('curl', ['--silent', '--header', `X-Auth-Token: ${token}`, url]);
  expect(JSON.parse(body)).toEqual(oracle.distribution({ ...RANGE, offsetMinutes: 0, hostnames: undefined }));
});

function output(command: string, args: string[], stdin = ''): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = execFile(command, args, (error, stdout, stderr) => {
      if (error) reject(new Error(`${command} failed: ${stderr}`));
      else resolve(stdout);
    });
    child.stdin?.end(stdin);
  });
}
