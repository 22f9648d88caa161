/** Kept attacks by HTTP: filters, pages, counters of the same state, single events and errors. */
import fc from 'fast-check';
import type { FastifyInstance } from 'fastify';
import { beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { checkDocumented } from '../../../../../test/documented.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { appOf } from '../../../../../test/routes-app.ts';
import { retryLater } from '../../errors.ts';
import { type AttackDetails, CATEGORIES, type Category } from '../../event.ts';
import type { Store } from '../../store/store.ts';
import { Admission } from './admission.ts';
import { statisticsRoutes } from './routes.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const HOUR_MS = 3_600_000;
const RANGE = `from=${NOW - 48 * HOUR_MS}&to=${NOW}`;
const HOSTNAMES = ['www.example.com', 'api.example.com', 'shop.example.org'];

interface Item {
  id: string;
  time: number;
  sip?: string;
  host?: string;
  host_id?: string;
  url?: string;
  attack: string;
  action: string;
  status?: string;
  region?: string;
  method?: string;
  rules?: { id: string; value?: string }[];
  count?: number;
}

interface List {
  total: number;
  items: Item[];
  attacks: number;
  kept: number;
  complete: boolean;
}

let app: FastifyInstance;
let store: Store;
let hosts: string[];

beforeEach(() => open(memoryStore(() => NOW)));

async function open(opened: Store, admission = patientAdmission()): Promise<void> {
  store = opened;
  app = appOf(statisticsRoutes(store, () => NOW, admission));
  const ids = await store.resolveHosts({ project: 'p', hostnames: HOSTNAMES, limit: 10 });
  hosts = ids.map((id) => id ?? '');
}

async function get(path: string, headers: Record<string, string> = {}) {
  const url = `/v1/p/waf/${path}`;
  const response = await app.inject({ url, headers });
  if (response.body !== '' && response.headers['content-encoding'] === undefined)
    checkDocumented('GET', url, response.statusCode, response.body);
  return response;
}

async function list(parameters: string, range = RANGE): Promise<List> {
  const response = await get(`event?${range}&${parameters}`);
  expect(response.body).toMatch(/^\{"total"/);
  return response.json();
}

interface Attack extends AttackDetails {
  time?: number;
  host?: number | null;
  attack?: Category;
  count?: number;
}

async function append(attacks: readonly Attack[]): Promise<void> {
  const events = attacks.map(({ time = NOW - 1, host = 0, attack = 'sqli', count = 1, ...details }) => ({
    time,
    hostId: host === null ? null : (hosts[host] ?? null),
    request: true,
    attack,
    count,
    details,
  }));
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
}

const text = fc.constantFrom('a', 'ab', 'b');
const someAttacks = fc.array(
  fc.record(
    {
      time: fc.integer({ min: 1, max: 50 }).map((n) => NOW - n * HOUR_MS),
      host: fc.constantFrom(null, 0, 1, 2),
      attack: fc.constantFrom<Category>('sqli', 'xss', 'cc'),
      blocked: fc.boolean(),
      source: fc.constantFrom('203.0.113.7', '203.0.113.70', '198.51.100.7', '2001:db8::7'),
      url: fc.constantFrom('/', '/login', '/admin/a', '/a,b'),
      country: fc.constantFrom('DE', 'FR'),
      id: text,
      method: fc.constantFrom('GET', 'POST'),
      status: fc.constantFrom(200, 403),
      rules: fc.array(fc.record({ id: text, value: text }, { requiredKeys: ['id'] }), { maxLength: 2 }),
    },
    { requiredKeys: ['time', 'host', 'attack'] },
  ),
  { maxLength: 40 },
);

/** Parameters with what they select, in terms of the items. */
const FILTERS: Readonly<Record<string, (item: Item) => boolean>> = {
  'ids=a': ({ id }) => id === 'a',
  'ids=a,b&ids=none': ({ id }) => id === 'a' || id === 'b',
  'attacks=sqli&attacks=cc': ({ attack }) => attack !== 'xss',
  'attacks[]=xss': ({ attack }) => attack === 'xss',
  'rules=a': ({ rules = [] }) => rules.some(({ id }) => id === 'a'),
  'sips=203.0.113.7': ({ sip }) => sip === '203.0.113.7',
  'sips=203.0.113.0/24,2001:db8::99/128': ({ sip = '' }) => /^(203|2001)/.test(sip),
  'sips=::ffff:198.51.100.7': ({ sip }) => sip === '198.51.100.7',
  'urls=/login': ({ url }) => url === '/login',
  'urls=/a*,/login': ({ url = '' }) => url === '/login' || url.startsWith('/a'),
  'urls=/a,b': ({ url }) => url === '/a,b',
  'actions=block': ({ action }) => action === 'block',
  'actions=log': ({ action }) => action === 'log',
  'actions=pass': () => false,
  'ip_countries=de': ({ region }) => region === 'DE',
  'response_codes=403': ({ status }) => status === '403',
  'methods=POST': ({ method }) => method === 'POST',
  'sip=113.7': ({ sip = '' }) => sip.includes('113.7'),
  'sip=203.0.113.7&query_mode=equal': ({ sip }) => sip === '203.0.113.7',
  'url=dmi': ({ url = '' }) => url.includes('dmi'),
  'url=/login&query_mode=equal': ({ url }) => url === '/login',
  'payload=b': ({ rules = [] }) => rules.some(({ value = '' }) => value.includes('b')),
  'payload=b&query_mode=equal': ({ rules = [] }) => rules.some(({ value }) => value === 'b'),
  'domain=EXAMPLE.com': ({ host = '' }) => host.endsWith('.com'),
  'domain=shop.example.org&query_mode=equal': ({ host }) => host === 'shop.example.org',
  'domain=none': () => false,
  'ndomain=example.com': ({ host = '' }) => !host.endsWith('.com'),
  'domains=www.example.com,Shop.example.org': ({ host = '' }) => /^(www|shop)/.test(host),
};

describe('the list', () => {
  test('has the events that all filters select, in order, with the counters of range, hosts and categories', async () => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        someAttacks,
        fc.uniqueArray(fc.constantFrom(...Object.keys(FILTERS)), { maxLength: 2 }),
        async (attacks, filters) => {
          await open(memoryStore(() => NOW));
          run++;
          await append(attacks);
          // A parameter that may be given once.
          fc.pre(new URLSearchParams(filters.join('&')).getAll('query_mode').length < 2);
          fc.pre(!filters.some((a) => filters.some((b) => a !== b && nameOf(a) === nameOf(b))));
          fc.pre(filters.length < 2 || !filters.some((filter) => filter.includes('query_mode')));
          const all = await list('pagesize=1000');
          const isSelected = (item: Item) => filters.every((filter) => FILTERS[filter]?.(item));
          const expected = all.items.filter(isSelected);
          const found = await list(`pagesize=1000&${filters.join('&')}`);
          expect(found.items).toEqual(expected);
          expect(found.total).toBe(expected.length);
          expect(found.complete).toBe(true);
          const [one] = filters;
          if (filters.length !== 1 || one === undefined) return;
          for (const name of ['ids', 'attacks', 'rules', 'sips', 'urls', 'actions', 'methods']) {
            if (nameOf(one) !== name) continue;
            const others = await list(`pagesize=1000&${one.replaceAll(name, `n${name}`)}`);
            expect(others.items).toEqual(all.items.filter((item) => !isSelected(item)));
          }
        },
      ),
      { numRuns: scaled(150) },
    );
    expect(run).toBeGreaterThan(0);
  });

  const nameOf = (filter: string) => /^\w+/.exec(filter)?.[0];

  test('has every field of an event under the name of the API family', async () => {
    const rules = [
      { id: '942100', variable: 'ARGS:q', value: "1' OR 1=1", severity: 'critical' },
      { id: '920350' },
    ];
    const request = { method: 'POST', url: '/login', query: 'q=1', status: 403, userAgent: 'curl/8' };
    const details = { ...request, source: '203.0.113.7', country: 'DE', blocked: true, rules, score: 10 };
    await append([{ time: NOW - 5, id: 'r1', ...details }]);
    await append([{ time: NOW - 4, host: null, attack: 'cc', count: 3 }]);
    const { items, ...rest } = await list('');
    expect(rest).toEqual({
      total: 2,
      matched_attacks: 4,
      attacks: 4,
      kept: 2,
      kept_attacks: 4,
      complete: true,
    });
    expect(items).toEqual([
      { id: expect.any(String), time: NOW - 4, attack: 'cc', action: 'log', count: 3 },
      {
        id: 'r1',
        time: NOW - 5,
        sip: '203.0.113.7',
        host: 'www.example.com',
        host_id: hosts[0],
        url: '/login',
        attack: 'sqli',
        rule: '942100',
        payload: "1' OR 1=1",
        payload_location: 'params',
        action: 'block',
        request_line: 'POST /login?q=1',
        status: '403',
        region: 'DE',
        method: 'POST',
        rules,
        score: 10,
        user_agent: 'curl/8',
      },
    ]);
  });

  test('says where in the request the first rule matched, if the variable tells', async () => {
    const locations: Record<string, string | undefined> = {
      'ARGS:q': 'params',
      ARGS_NAMES: 'params',
      QUERY_STRING: 'params',
      'ARGS_POST:q': 'body',
      REQUEST_BODY: 'body',
      REQUEST_URI: 'uri',
      REQUEST_FILENAME: 'uri',
      'REQUEST_HEADERS:User-Agent': 'header',
      'REQUEST_COOKIES:a': 'header',
      'TX:score': undefined,
    };
    await append(
      Object.keys(locations).map((variable) => ({ id: variable, rules: [{ id: '1', variable }] })),
    );
    const { items } = await list('pagesize=1000');
    const found = items.map((item) => [
      item.id,
      'payload_location' in item ? item.payload_location : undefined,
    ]);
    expect(Object.fromEntries(found)).toEqual(locations);
  });

  test.each([
    ['page', 1, 'pagesize'],
    ['offset', 0, 'limit'],
  ])('has each event once on the pages of %s, in either direction', async (page, first, size) => {
    await append(Array.from({ length: 10 }, (_, i) => ({ time: NOW - (i >> 1), url: `/${i}` })));
    const range = `from=${NOW - 100}&to=${NOW + 1}`;
    const { items: all } = await list('pagesize=1000', range);
    for (const direction of ['desc', 'asc']) {
      const pages: Item[] = [];
      for (let number = first; number < first + 4; number++) {
        const parameters = `${page}=${number}&${size}=3&sort_key=attack_time&sort_direction=${direction}`;
        const { items, total } = await list(parameters, range);
        expect(total).toBe(10);
        pages.push(...items);
      }
      expect(pages).toEqual(direction === 'desc' ? all : all.toReversed());
      for (const after of [first + 4, 1_000_000_000]) {
        expect((await list(`${page}=${after}&${size}=3`, range)).items).toEqual([]);
      }
    }
    expect((await list('')).items).toHaveLength(8);
    expect((await list('limit=1')).items).toHaveLength(1);
  });

  test('says how much is missing of an hour over the limit', async () => {
    await open(memoryStore(() => NOW, { eventsMax: 5 }));
    await append(Array.from({ length: 20 }, (_, i) => ({ url: `/${i}`, count: 2 })));
    await append([{ time: NOW - 10 * HOUR_MS, attack: 'xss', count: 7 }]);
    expect(await list('')).toMatchObject({ total: 6, attacks: 47, kept: 6, complete: false });
    expect(await list('')).toMatchObject({ matched_attacks: 17, kept_attacks: 17 });
    expect(await list('nsips=192.0.2.1&attacks=xss')).toMatchObject({ matched_attacks: 7, kept_attacks: 7 });
    expect(await list('urls=/none')).toMatchObject({ matched_attacks: 0, kept_attacks: 17 });
    expect(await list('attacks=xss')).toMatchObject({ total: 1, attacks: 7, kept: 1, complete: true });
    expect(await list('nattacks=sqli')).toMatchObject({ total: 1, attacks: 7, kept: 1, complete: true });
    expect(await list('nattacks=xss')).toMatchObject({ total: 5, attacks: 40, kept: 5, complete: false });
    expect(await list('urls=/none')).toMatchObject({ total: 0, attacks: 47, kept: 6, complete: false });
    expect(await list(`hosts=${hosts[1]}`)).toMatchObject({ total: 0, attacks: 0, kept: 0, complete: true });
  });

  test('and its counters are of one state, though events arrive meanwhile', async () => {
    const inner = memoryStore(() => NOW);
    let arriving = 2;
    await open({
      ...inner,
      async attacks(query) {
        const found = await inner.attacks(query);
        if (arriving-- > 0) await append([{ url: `/${arriving}` }]);
        return found;
      },
    });
    await append([{}]);
    expect(await list('')).toMatchObject({ total: 3, attacks: 3, kept: 3, complete: true });
    arriving = 1_000;
    const { attacks, kept, complete } = await list('');
    expect([attacks > kept, complete]).toEqual([true, false]);
  });

  test('supports conditional requests and the response of an empty range', async () => {
    await append([{}]);
    const { headers } = await get(`event?${RANGE}`);
    const again = await get(`event?${RANGE}`, { 'if-none-match': String(headers.etag) });
    expect([again.statusCode, again.body]).toEqual([304, '']);
    await append([{ url: '/other' }]);
    const changed = await get(`event?${RANGE}`, { 'if-none-match': String(headers.etag) });
    expect([changed.statusCode, changed.json().total]).toEqual([200, 2]);
    expect(await list('', `from=${NOW}&to=${NOW}`)).toEqual({
      total: 0,
      items: [],
      matched_attacks: 0,
      attacks: 0,
      kept: 0,
      kept_attacks: 0,
      complete: true,
    });
    expect((await get('event?recent=today&timezone=Europe/Berlin')).json().total).toBe(2);
  });
});

describe('a malformed request is a 400 that names the value and the fix', () => {
  test.each([
    ['sip_s=1', "there is no parameter 'sip_s': use from, to"],
    ['ip=203.0.113.7', "there is no parameter 'ip'"],
    ['Attacks=sqli', "there is no parameter 'Attacks'"],
    ['attacks=sql', "attacks is 'sql', but must be one of xss, sqli"],
    ['nattacks=', "nattacks is '', but must be one of"],
    ['sips=203.0.113', "sips is '203.0.113', but must be an IP address or a network, like 192.0.2.0/24"],
    ['sips=203.0.113.0/33', "sips is '203.0.113.0/33'"],
    ['sips=203.0.113.0/', "sips is '203.0.113.0/'"],
    ['nsips=2001:db8::/129', "nsips is '2001:db8::/129'"],
    ['urls=login', "urls is 'login', but must be a path without a query, like /login, or a prefix"],
    ['urls=/a?b=1', "urls is '/a?b=1'"],
    ['actions=deny', "actions is 'deny', but must be one of block, log, pass"],
    ['ip_countries=Germany', "ip_countries is 'Germany', but must be a country code of two letters"],
    ['response_codes=4xx', "response_codes is '4xx', but must be a response code from 100 to 999"],
    ['methods=G%20T', "methods is 'G T', but must be a method"],
    ['ids=', "ids is '', but must not be empty"],
    ['payload=', "payload is '', but must not be empty: leave it out"],
    ['sip=a&sip=b', 'sip is given 2 times'],
    ['query_mode=like', "query_mode is 'like', but must be one of contain, equal"],
    ['sip=1.2.3&query_mode=equal', "sip is '1.2.3', but must be an IP address"],
    ['sip=1.2.3.4&sips=1.2.3.4&query_mode=equal', 'select the same: use one of them'],
    ['domains=', "domains is '', but must be a host name"],
    ['hosts=a%20b', "hosts is 'a b'"],
    ['page=0', "page is '0', but must be a whole number from 1"],
    ['pagesize=1001', "pagesize is '1001', but must be a whole number from 1 to 1000"],
    ['limit=-1', "limit is '-1', but must be a whole number from 1 to 1000"],
    ['page=1&limit=5', 'use either offset and limit or page and pagesize'],
    ['marker=abc', 'marker is not supported: use offset and limit'],
    ['sort_key=time', "sort_key is 'time', but must be one of attack_time"],
    ['sort_direction=up', "sort_direction is 'up', but must be one of desc, asc"],
    [
      `ids=${Array.from({ length: 1_001 }, (_, i) => i)}`,
      'ids has 1001 values, but at most 1000 are allowed',
    ],
  ])('%s', async (parameters, message) => {
    const response = await get(`event?${RANGE}&${parameters}`);
    expect([response.statusCode, response.json().error_msg]).toEqual([400, expect.stringContaining(message)]);
  });

  test('without a range', async () => {
    expect((await get('event')).json().error_code).toBe('WAF.1025');
  });
});

describe('an event', () => {
  test('is found by its ID, with all that share it', async () => {
    await append([{ id: 'a/b' }, { id: 'a/b', url: '/2' }, { id: 'c' }]);
    const response = await get(`event/${encodeURIComponent('a/b')}`);
    expect(response.json()).toMatchObject({ total: 2, items: [{ id: 'a/b' }, { id: 'a/b' }] });
    const unknown = await get('event/none');
    expect([unknown.statusCode, unknown.json().error_msg]).toEqual([
      404,
      expect.stringContaining("no event with the ID 'none'"),
    ]);
    expect((await get('event/c?from=0')).statusCode).toBe(400);
  });

  test('without an ID in its log has one that stays the same, and is found by reading one millisecond', async () => {
    const ranges: number[] = [];
    const inner = memoryStore(() => NOW);
    await open({
      ...inner,
      attacks(query) {
        ranges.push(query.to - query.from);
        return inner.attacks(query);
      },
    });
    await append([{ url: '/1' }, { url: '/2' }]);
    const [item] = (await list('urls=/1')).items;
    await append([{ url: '/1' }, { id: 'mr1ktpts-0123456789abcdef' }]);
    ranges.length = 0;
    const found = await get(`event/${item?.id}`);
    expect(found.json()).toEqual({ total: 1, items: [{ ...item, count: 2 }] });
    expect(ranges).toEqual([1]);
    // An ID of a log that looks like a generated one.
    expect((await get('event/mr1ktpts-0123456789abcdef')).json().total).toBe(1);
    await store.deleteHost({ project: 'p', id: hosts[0] ?? '' });
    const { host: _, host_id: __, ...rest } = { ...item, count: 2 };
    expect((await get(`event/${item?.id}`)).json().items).toEqual([rest]);
  });

  test('does not hide calls with a path of their own', async () => {
    expect((await get(`event/timeline?${RANGE}`)).json()).toHaveProperty('requests');
    expect((await get(`event/attack/num?${RANGE}`)).json()).toEqual({ attack_num: 0 });
  });
});

describe('the dump', () => {
  const DAY_MS = 24 * HOUR_MS;
  const TODAY = Date.UTC(2026, 6, 1);

  test('has one file for each local day with events, newest first', async () => {
    await append([
      { time: TODAY - 10 * DAY_MS },
      { time: TODAY - 1, url: '/1' },
      { time: TODAY - 1, url: '/2' },
      { time: TODAY + 1 },
    ]);
    const dump = (day: string, total: number, start: number, timezone: string) => ({
      id: day,
      filename: `${day}.csv`,
      total,
      url: `http://localhost:80/v1/p/waf/event/dump/${day}.csv${timezone}`,
      timestamp: Math.min(start + DAY_MS, NOW),
      start,
      end: start + DAY_MS,
    });
    expect((await get('event/dump')).json()).toEqual({
      total: 3,
      items: [
        dump('2026-07-01', 1, TODAY, ''),
        dump('2026-06-30', 2, TODAY - DAY_MS, ''),
        dump('2026-06-21', 1, TODAY - 10 * DAY_MS, ''),
      ],
    });
    const start = TODAY - 2 * HOUR_MS;
    expect((await get('event/dump?timezone=Europe/Berlin&page=1&pagesize=1')).json()).toEqual({
      total: 2,
      items: [dump('2026-07-01', 3, start, '?timezone=Europe%2FBerlin')],
    });
    expect((await get('event/dump?limit=1&offset=2')).json().items).toHaveLength(1);
    expect((await get('event/dump?from=0&to=1')).statusCode).toBe(400);
  });

  test('file has each event once, oldest first, with harmless cells', async () => {
    const times = Array.from({ length: 2_600 }, (_, i) => TODAY + (i < 1_200 ? 5 * HOUR_MS : i * 10_000));
    await append(times.map((time, i) => ({ time, url: `/${i}`, host: null })));
    await append([{ time: TODAY + DAY_MS - 1, userAgent: '=cmd|"x"', rules: [{ id: '-1', value: '@a,b' }] }]);
    await append([{ time: TODAY - 1 }, { time: TODAY + DAY_MS }]);
    const { body, headers } = await app.inject({ url: '/v1/p/waf/event/dump/2026-07-01.csv' });
    expect(headers).toMatchObject({
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': 'attachment; filename="2026-07-01.csv"',
    });
    const [header = '', ...rows] = body.split('\r\n').slice(0, -1);
    expect(header).toMatch(/^time,sip,.*rules,untrusted_host,untrusted_id,.*untrusted_user_agent$/);
    expect(rows).toHaveLength(2_601);
    expect(new Set(rows).size).toBe(2_601);
    const written = rows.map((row) => row.slice(0, 24));
    expect(written).toEqual(written.toSorted());
    expect(rows.at(-1)).toMatch(
      /^2026-07-01T23:59:59.999Z,,,sqli,log,,,1,'-1,www.example.com,\w+-.{16},,,,,"'@a,b","'=cmd\|""x"""$/,
    );
    // HEAD downloads nothing.
    const head = await app.inject({ method: 'HEAD', url: '/v1/p/waf/event/dump/2026-07-01.csv' });
    expect([head.statusCode, head.body]).toEqual([200, '']);
  });

  test('a user has at most four downloads at a time', async () => {
    await append([{ time: NOW - 1 }]);
    let [started, resume] = [0, () => {}];
    const isResumed = new Promise<void>((resolve) => {
      resume = resolve;
    });
    const { attacks } = store;
    store.attacks = async (query) => {
      started++;
      await isResumed;
      return attacks(query);
    };
    const download = () => app.inject({ url: '/v1/p/waf/event/dump/2026-07-01.csv' });
    const waiting = Array.from({ length: 4 }, download);
    await expect.poll(() => started).toBe(4);
    expect((await download()).statusCode).toBe(429);
    resume();
    expect((await Promise.all(waiting)).map(({ statusCode }) => statusCode)).toEqual(Array(4).fill(200));
    await expect.poll(async () => (await download()).statusCode).toBe(200);
  });

  test('file is whole though the service sheds queries', async () => {
    let shed = 0;
    class Overloaded extends Admission {
      override run<T>(project: string, user: string, query: () => Promise<T>): Promise<T> {
        if (shed++ % 3 < 2) throw retryLater('WAF.5001', 'the service is overloaded', 0);
        return super.run(project, user, query);
      }
    }
    await open(
      memoryStore(() => NOW),
      new Overloaded(() => 0),
    );
    await append(Array.from({ length: 30 }, (_, i) => ({ time: TODAY + (i / 2) * HOUR_MS, url: `/${i}` })));
    const { statusCode, body } = await app.inject({ url: '/v1/p/waf/event/dump/2026-07-01.csv' });
    expect([statusCode, body.trimEnd().split('\r\n').length]).toEqual([200, 31]);
    expect(shed).toBe(3 * 24);
  });

  test.each([
    ['2026-7-1.csv', 404],
    ['2026-07-01', 404],
    ['2026-13-01.csv', 404],
    ['2026-02-31.csv', 404],
    ['2026-07-01.csvx', 404],
    ['2026-07-01.csv?timezone=Mars', 400],
    ['2026-07-01.csv?sips=1.2.3.4', 400],
    ['1969-12-31.csv', 200],
  ])('%s is a %i', async (path, status) => {
    expect((await app.inject({ url: `/v1/p/waf/event/dump/${path}` })).statusCode).toBe(status);
  });
});

test('every category can be a filter', async () => {
  await append(CATEGORIES.map((attack) => ({ attack })));
  for (const name of CATEGORIES)
    expect(await list(`attacks=${name}`)).toMatchObject({ total: 1, attacks: 1, items: [{ attack: name }] });
});
