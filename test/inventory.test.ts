/** Hosts and log sources of a project. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, login, sum } from './api.ts';
import { eventually } from './process.ts';
import { type Installation, KEEP_ALL, metricsUrl, Sandbox, type Server } from './sandbox.ts';

const T = Date.UTC(2025, 5, 1, 12, 0, 0, 1);
const DAY = `from=${T}&to=${T + 86_400_000}`;

interface HostList {
  total: number;
  items: { id: string; hostname: string; timestamp: number }[];
}

interface SourceList {
  total: number;
  items: { id: string; name: string; hosts: string[] }[];
}

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let api: Api;
let projects = 0;

beforeAll(async () => {
  ({ installation, server } = await sandbox.service(...KEEP_ALL, '--metrics-listen', '0'));
});
afterAll(() => sandbox.clear());

/** Each test has its own project. */
beforeEach(async () => {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  api = await login(server.address, { ...installation, project_id: id });
});

const ingest = (events: readonly object[], ...args: string[]) =>
  sandbox.ingest(api.project, events, ...KEEP_ALL, ...args);
const requestsOf = async (filter = '') => sum((await api.timeline(`${DAY}${filter}`)).requests);

describe('the list of hosts', () => {
  test('is empty in a new project', async () => {
    expect(await api.getJson('waf/instance')).toEqual({ total: 0, items: [] });
  });

  test('loses a host that is deleted; its counts stay in the project, and a new line registers it again', async () => {
    await ingest([{ time: T, host: 'a.example' }]);
    const [before] = (await api.getJson<HostList>('waf/instance')).items;
    const remove = (host: string) =>
      sandbox.run(['host', 'delete', host, '--yes', '--project', api.project, '--data', sandbox.data]);
    expect(await remove('a.example')).toMatchObject({ status: 0, stdout: '' });
    expect(await remove('a.example')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('no host'),
    });
    expect(await api.getJson('waf/instance')).toEqual({ total: 0, items: [] });
    expect([await requestsOf(), await requestsOf(`&hosts=${before?.id}`)]).toEqual([1, 0]);
    await ingest([{ time: T + 1, host: 'a.example' }]);
    const [again] = (await api.getJson<HostList>('waf/instance')).items;
    expect(again?.id).not.toBe(before?.id);
    expect([await requestsOf(), await requestsOf(`&hosts=${again?.id}`)]).toEqual([2, 1]);
  });

  test('does not lose a host if another is named like its ID, until it is clear which one is meant', async () => {
    await ingest([{ time: T, host: 'a.example' }]);
    const [host] = (await api.getJson<HostList>('waf/instance')).items;
    await ingest([{ time: T, host: host?.id }]);
    const remove = (given = '') =>
      sandbox.run(['host', 'delete', given, '--yes', '--project', api.project, '--data', sandbox.data]);
    expect(await remove(host?.id)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('is the ID of one host and the name of another'),
    });
    expect((await remove('a.example')).status).toBe(0);
    const { items } = await api.getJson<HostList>('waf/instance');
    expect(items.map(({ hostname }) => hostname)).toEqual([host?.id]);
  });

  test('is sorted by name, has pages, and always includes the total', async () => {
    const before = Date.now();
    await ingest(['c', 'a', 'd', 'b', 'e'].map((name, i) => ({ time: T + i, host: `${name}.example` })));
    const { total, items } = await api.getJson<HostList>('waf/instance');
    expect(total).toBe(5);
    expect(items.map(({ hostname }) => hostname)).toEqual('abcde'.split('').map((name) => `${name}.example`));
    for (const { id, timestamp } of items) {
      expect(id).toMatch(/^[0-9a-f]{32}$/);
      expect(timestamp >= before && timestamp <= Date.now()).toBe(true);
    }
    const part = (query: string) => api.getJson<HostList>(`waf/instance?${query}`);
    // Open Telekom Cloud counts pages from 0, Huawei Cloud from 1.
    expect(await part('offset=1&limit=2')).toEqual({ total: 5, items: items.slice(2, 4) });
    expect(await part('page=2&pagesize=2')).toEqual({ total: 5, items: items.slice(2, 4) });
    expect(await part('limit=1')).toEqual({ total: 5, items: items.slice(0, 1) });
    expect(await part('offset=1')).toEqual({ total: 5, items: [] });
    expect(await part('limit=-1')).toEqual({ total: 5, items });
  });

  test('can be searched by a part of the name, with the total of the matches', async () => {
    await ingest(['www.shop.example', 'shop.test', 'blog.example'].map((host) => ({ time: T, host })));
    const { total, items } = await api.getJson<HostList>('waf/instance?hostname=shop&limit=1');
    expect(total).toBe(2);
    expect(items.map(({ hostname }) => hostname)).toEqual(['shop.test']);
    expect(await api.getJson('waf/instance?hostname=nothing')).toEqual({ total: 0, items: [] });
  });
});

describe('host names from logs', () => {
  test('are the same host regardless of case, port and a final dot', async () => {
    await ingest(['Shop.Example', 'shop.example:8443', 'shop.example.'].map((host) => ({ time: T, host })));
    const ids = await api.hostIds();
    expect([...ids.keys()]).toEqual(['shop.example']);
    expect(await requestsOf(`&hosts=${ids.get('shop.example')}`)).toBe(3);
  });

  test('beyond the limit of the project count in its total only', async () => {
    const names = ['one.example', 'two.example', 'three.example', 'one.example'];
    const { stdout } = await ingest(
      names.map((host) => ({ time: T, host })),
      '--hosts-max',
      '2',
    );
    expect(stdout).toMatch(/^without a host +1\n {2}not registered +1$/m);
    const ids = await api.hostIds();
    expect([...ids.keys()]).toEqual(['one.example', 'two.example']);
    expect(await requestsOf()).toBe(4);
    expect(await requestsOf(`&hosts=${[...ids.values()].join(',')}`)).toBe(3);
  });

  test('can be restricted to registered hosts', async () => {
    const { id } = await sandbox.runJson<{ id: string }>(
      'host',
      'add',
      'shop.example',
      '--project',
      api.project,
    );
    const events = ['shop.example', 'evil.example'].map((host) => ({ time: T, host }));
    await ingest(events, '--hosts', 'registered');
    expect([...(await api.hostIds()).keys()]).toEqual(['shop.example']);
    expect(await requestsOf(`&hosts=${id}`)).toBe(1);
    expect(await requestsOf()).toBe(2);
  });

  test('can be replaced by the registered ID in an event', async () => {
    await sandbox.runJson('host', 'add', 'shop.example', '--id', 'shop-1', '--project', api.project);
    await ingest([{ time: T, host_id: 'shop-1' }]);
    expect(await requestsOf('&hosts=shop-1')).toBe(1);
  });
});

describe('the list of log sources', () => {
  test('is empty in a new project', async () => {
    expect(await api.getJson('connections')).toEqual({ total: 0, items: [] });
  });

  test('has accepted and dropped counts, reasons and times for each source', async () => {
    await ingest(
      [
        { time: T + 5, host: 'a.example' },
        { time: T, host: 'b.example', attack: 'cc', count: 100 },
        { time: 'yesterday' },
        { time: T, attack: 'magic' },
        { time: T, attack: 'magic' },
      ],
      '--source',
      'edge',
    );
    await ingest([{ time: T + 9, host: 'a.example' }], '--source', 'edge');
    await ingest([{ time: T - 7 }], '--source', 'office');
    const ids = await api.hostIds();
    const list = await api.getJson<SourceList>('connections');
    const id = expect.stringMatching(/^[0-9a-f]{32}$/);
    const format = 'events';
    expect(list).toEqual({
      total: 2,
      items: [
        {
          id,
          name: 'edge',
          format,
          hosts: [...ids.values()].sort(),
          events: 3,
          without_host: 0,
          dropped: { bad_time: 1, bad_attack: 2 },
          first_seen: T,
          last_seen: T + 9,
        },
        {
          id,
          name: 'office',
          format,
          hosts: [],
          events: 1,
          without_host: 1,
          dropped: {},
          first_seen: T - 7,
          last_seen: T - 7,
        },
      ],
    });
    expect(list.items[0]?.id).not.toBe(list.items[1]?.id);
  });
});

describe('records without a host', () => {
  const access = '192.0.2.7 - - [01/Jun/2025:12:00:01 +0000] "GET / HTTP/1.1" 200 6 "-" "-"\n';
  const source = ['--data', sandbox.data, '--source', 'nginx'];

  test('are reported with the fix in the summary, in the list of sources and by the API', async () => {
    const options = [...source, '--project', api.project];
    const file = sandbox.write('access.log', access.repeat(3));
    const run = await sandbox.run(['ingest', ...options, ...KEEP_ALL, file]);
    expect(run.stdout).toMatch(/^without a host +3\n {2}not named +3$/m);
    expect(run.stderr).toBe(
      "3 records have no host, so they count in the project's total only. " +
        'Name the host in the log (nginx: log_format with $host, Apache: %v), or pass --host NAME.\n',
    );
    expect(await requestsOf()).toBe(3);
    expect(await api.getJson('connections')).toMatchObject({ items: [{ events: 3, without_host: 3 }] });
    const list = await sandbox.run(['source', 'list', '--data', sandbox.data, '--project', api.project]);
    expect(list.stdout).toMatch(/^nginx +access +3 events +3 without a host /);
    expect(list.stderr).toMatch(/log_format with \$host.*--host NAME/);
  });

  test('do not occur when --host is given', async () => {
    const options = [...source, '--project', api.project, '--host', 'shop.example'];
    const run = await sandbox.run(['ingest', ...options, ...KEEP_ALL, sandbox.write('access.log', access)]);
    expect(run.stdout).not.toContain('without a host');
    expect(run.stderr).toBe('');
    const list = await sandbox.run(['source', 'list', '--data', sandbox.data, '--project', api.project]);
    expect(list.stdout).toContain(' 0 without a host ');
    expect(list.stderr).toBe('');
    expect(await requestsOf(`&hosts=${(await api.hostIds()).get('shop.example')}`)).toBe(1);
  });
});

test('projects do not see each other’s hosts, sources and counts', async () => {
  const { id: other } = await sandbox.runJson<{ id: string }>('project', 'add', 'other');
  await sandbox.ingest(other, [{ time: T, host: 'a.example', attack: 'xss' }], ...KEEP_ALL);
  const hosts = await sandbox.runJson<{ id: string }[]>('host', 'list', '--project', other);
  expect(hosts).toHaveLength(1);
  expect(await requestsOf()).toBe(0);
  expect(await requestsOf(`&hosts=${hosts[0]?.id}`)).toBe(0);
  expect(sum(await api.distribution(DAY))).toBe(0);
  expect(await api.getJson('waf/instance')).toEqual({ total: 0, items: [] });
  expect(await api.getJson('connections')).toEqual({ total: 0, items: [] });
});

test('counts far beyond 2^32 are exact', async () => {
  await ingest(
    Array.from({ length: 5_001 }, (_, i) => ({ time: T + i, attack: 'cc', count: 1_000_000 - (i % 2) })),
  );
  const exact = 5_001 * 1_000_000 - 2_500;
  expect(await requestsOf()).toBe(exact);
  expect((await api.distribution(DAY)).cc).toBe(exact);
});

test('metrics show the sources of a project, and what another process counts', async () => {
  const url = await metricsUrl(server);
  const labels = `domain="default",project="project-${projects}"`;
  const scrape = async () => (await (await fetch(url)).text()).split('\n');
  const lineWith = (text: string) =>
    eventually(async () => (await scrape()).find((line) => line.includes(text)), `a line with ${text}`);
  await ingest([{ time: T, attack: 'xss', count: 3 }], '--source', 'log');
  const newest = `wafstat_source_last_event_timestamp_seconds{${labels},source="log"} `;
  expect(await lineWith(newest)).toBe(`${newest}${T / 1_000}`);
  await ingest([{ time: T, attack: 'xss', blocked: true, count: 4 }, { nonsense: 1 }], '--source', 'log');
  await lineWith(`wafstat_requests_total{${labels}} 7`);
  await lineWith(`wafstat_attacks_total{${labels},category="xss"} 7`);
  await lineWith(`wafstat_blocked_attacks_total{${labels},category="xss"} 4`);
  await lineWith(`wafstat_ingest_records_total{${labels},format="events"} 2`);
  await lineWith(`wafstat_ingest_dropped_records_total{${labels},format="events",reason="bad_time"} 1`);
  await lineWith('wafstat_store_writable 1');
});
