/** Every statistics call: exact numbers, sums that agree between calls, conditional requests, compression and errors. */
import { readFileSync } from 'node:fs';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import type { FastifyInstance } from 'fastify';
import { beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { checkDocumented } from '../../../../../test/documented.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { geoIpOf } from '../../../../../test/mmdb.ts';
import { CALLS, type KnownEvent, Oracle, type Query, timezoneText } from '../../../../../test/oracle.ts';
import { scaled } from '../../../../../test/random.ts';
import { appOf } from '../../../../../test/routes-app.ts';
import { type AttackDetails, CATEGORIES, PAGE_CODES } from '../../event.ts';
import { attacksByCategory } from '../../statistics/overview.ts';
import { QueryTooLarge, type Store } from '../../store/store.ts';
import type {} from '../connections.ts';
import { inventoryRoutes, NOT_KEPT } from './inventory-routes.ts';
import { statisticsRoutes } from './routes.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const DAY_MS = 86_400_000;
const HOSTNAMES = ['a.example', 'b.example', 'c.example', 'd.example', 'e.example', 'f.example', 'g.example'];
const PATHS = Object.keys(CALLS);
const HOST_LISTS = ['waf/instance', 'composite-waf/host', 'premium-waf/host'];
const CATEGORY_LISTS = ['waf/tag/threat/map', 'waf/map/threat'];
const RANGE = `from=${NOW - DAY_MS}&to=${NOW}`;

let app: FastifyInstance;
let store: Store;

beforeEach(() => open());

function open(limits: Parameters<typeof memoryStore>[1] = {}): void {
  store = memoryStore(() => NOW, limits);
  app = appOf([...statisticsRoutes(store, () => NOW, patientAdmission()), ...inventoryRoutes(store)]);
}

async function get(path: string, headers: Record<string, string> = {}, project = 'p') {
  const url = `/v1/${project}/${path}`;
  const response = await app.inject({ url, headers });
  const { 'content-type': type, 'content-encoding': coding } = response.headers;
  if (type === 'application/json; charset=utf-8' && coding === undefined)
    checkDocumented('GET', url, response.statusCode, response.body);
  return response;
}

const withParameters = (path: string, parameters: string) =>
  `waf/${path}${path.includes('?') ? '&' : '?'}${parameters}`;

async function failureOf(path: string) {
  const response = await get(path);
  return [response.statusCode, response.json().error_code, response.json().error_msg];
}

async function addHosts(project: string, hostnames: readonly string[]): Promise<Map<string, string>> {
  const ids = await store.resolveHosts({ project, hostnames, limit: 10_000 });
  return new Map(hostnames.map((hostname, i) => [hostname, String(ids[i])]));
}

async function append(project: string, known: readonly KnownEvent[]): Promise<Map<string, string>> {
  const ids = await addHosts(project, HOSTNAMES);
  const events = known.map(({ time, hostname, request, attack, count, ...more }) => {
    const {
      status,
      upstream_status: upstreamStatus,
      bytes_in: bytesIn,
      bytes_out: bytesOut,
      ...details
    } = more;
    const hostId = hostname === null ? null : (ids.get(hostname) ?? null);
    const response = { status, upstreamStatus, bytesIn, bytesOut };
    return { time, hostId, request, attack, count, details: details as AttackDetails, ...response };
  });
  const pages = events.flatMap(({ time, hostId, request, status = 0, count, details: { url } }) => {
    const code = PAGE_CODES.indexOf(status);
    if (!request || code === -1 || url === undefined) return [];
    const paths = new Map([[url, count]]);
    return [{ hour: Math.floor(time / 3_600_000), hostId, code, paths, lost: 0, error: 0 }];
  });
  await store.append({ project, source: { name: 's', format: 'events' }, events, pages, dropped: {} });
  return ids;
}

const someEvents = fc.array(
  fc
    .record({
      // Often in the same second, or at a boundary.
      time: fc.oneof(
        fc.integer({ min: NOW - 40 * DAY_MS, max: NOW + 1_000 }),
        fc.integer({ min: NOW - 3_000, max: NOW + 1_000 }),
        fc.integer({ min: -80, max: 1 }).map((halfDays) => NOW + (halfDays * DAY_MS) / 2),
      ),
      hostname: fc.constantFrom(null, ...HOSTNAMES),
      request: fc.boolean(),
      attack: fc.constantFrom(null, ...CATEGORIES),
      count: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 1_000_000 })),
      response: fc.record({
        status: fc.constantFrom(undefined, 200, 204, 404, 500, 502),
        upstream_status: fc.constantFrom(undefined, 0, 200, 502),
        bytes_in: fc.constantFrom(undefined, 0, 100_000),
        bytes_out: fc.constantFrom(undefined, 1, 1_000_000_000),
      }),
      details: fc.record(
        {
          blocked: fc.boolean(),
          source: fc.oneof(
            fc.nat(4).map((n) => `203.0.113.${n}`),
            fc.tuple(fc.integer({ min: 1, max: 3 }), fc.nat(2)).map(([net, n]) => `2001:db8:1:${net}::${n}`),
          ),
          url: fc.constantFrom('/', '/login', '/a', '/b'),
          rule: fc.constantFrom('942100', '941100', '913100', '1'),
          country: fc.constantFrom('DE', 'FR', 'CN'),
        },
        { requiredKeys: [] },
      ),
    })
    .map(({ details: { url, ...details }, response, ...event }) =>
      event.attack === null
        ? { ...event, ...response, request: true, url }
        : { ...event, ...response, ...details, ...(url !== undefined && { url }) },
    ),
  { maxLength: 40 },
);

const someQueries: fc.Arbitrary<Query> = fc
  .record({
    length: fc.oneof(
      fc.integer({ min: 0, max: 3_000 }),
      fc.integer({ min: 0, max: DAY_MS }),
      fc.integer({ min: 0, max: 41 * DAY_MS }),
    ),
    end: fc.oneof(fc.constant(NOW), fc.integer({ min: NOW - DAY_MS, max: NOW + 2_000 })),
    offsetMinutes: fc.integer({ min: -12 * 4, max: 14 * 4 }).map((quarters) => quarters * 15),
    hostnames: fc.option(fc.uniqueArray(fc.constantFrom(...HOSTNAMES), { minLength: 1 })),
  })
  .map(({ length, end, offsetMinutes, hostnames }) => ({
    from: end - length,
    to: end,
    offsetMinutes,
    hostnames: hostnames === null ? undefined : new Set(hostnames),
  }));

describe('numbers', () => {
  /** The responses of all calls to one query, by path. */
  async function responses(project: string, query: Query, ids: ReadonlyMap<string, string>) {
    const hosts = [...(query.hostnames ?? [])].map((hostname) => `&hosts=${ids.get(hostname)}`).join('');
    const timezone = encodeURIComponent(query.zone ?? timezoneText(query.offsetMinutes));
    const parameters = `from=${query.from}&to=${query.to}&timezone=${timezone}${hosts}`;
    const bodies: Record<string, string> = {};
    for (const path of PATHS) {
      bodies[path] = (await get(withParameters(path, parameters), {}, project)).body;
    }
    return bodies;
  }

  let projects = 0;

  async function compareAll(events: readonly KnownEvent[], query: Query): Promise<void> {
    const project = `p${projects++}`;
    const ids = await append(project, events);
    const oracle = new Oracle(events);
    const expected = PATHS.map((path) => [
      path,
      JSON.stringify(oracle.expected(path, { ...query, hostIds: ids })),
    ]);
    expect(await responses(project, query, ids)).toEqual(Object.fromEntries(expected));
  }

  test('every call returns what a count of the events gives', async () => {
    await fc.assert(fc.asyncProperty(someEvents, someQueries, compareAll), { numRuns: scaled(20) });
  });

  test.each([
    ['Europe/Berlin', '2026-03-29T01:00Z'],
    ['Europe/Berlin', '2026-10-25T01:00Z'],
    ['Australia/Lord_Howe', '2026-04-04T15:00Z'],
    ['Australia/Lord_Howe', '2026-10-03T15:30Z'],
    ['Pacific/Apia', '2011-12-30T10:00Z'],
  ])('every call is exact in %s around the clock change of %s', async (zone, change) => {
    await fc.assert(
      fc.asyncProperty(someEvents, someQueries, fc.integer({ min: -4, max: 120 }), (events, query, hours) => {
        const shift = Date.parse(change) + (hours * DAY_MS) / 24 - NOW;
        const shifted = events.map((event) => ({ ...event, time: event.time + shift }));
        return compareAll(shifted, { ...query, from: query.from + shift, to: query.to + shift, zone });
      }),
      { numRuns: scaled(5) },
    );
  });

  test('the sums of all calls agree', async () => {
    type Counts = { key: string; num: number }[];
    type Series = { key: string; timeline: { time: number; num: number }[] }[];
    const sum = (counts: readonly { num: number }[]) => counts.reduce((total, { num }) => total + num, 0);
    await fc.assert(
      fc.asyncProperty(someEvents, someQueries, async (events, query) => {
        const project = `p${projects++}`;
        const bodies = await responses(project, query, await append(project, events));
        const response = <T>(path: string): T => JSON.parse(bodies[path] ?? '');
        const totals = response<Counts>('overviews/statistics');
        const attacks = totals.at(-1)?.num ?? Number.NaN;
        expect({
          timeline: sum(response<{ attacks: Counts }>('event/timeline').attacks),
          types: Object.values(response<Record<string, number>>('event/attack/type')).reduce((a, b) => a + b),
          number: response<{ attack_num: number }>('event/attack/num').attack_num,
          distribution: sum(response<{ items: Counts }>('overviews/attack/distribution').items),
          actions: sum(response<{ items: Counts }>('overviews/attack/action-types').items),
          byCategory: sum(response<Series>('overviews/attack/timeline').flatMap(({ timeline }) => timeline)),
          byDay: sum(
            response<Series>('overviews/attack/timeline?group_by=DAY').flatMap(({ timeline }) => timeline),
          ),
          groups: sum(totals.slice(1, -1)),
        }).toEqual({
          timeline: attacks,
          types: attacks,
          number: attacks,
          distribution: attacks,
          actions: attacks,
          byCategory: attacks,
          byDay: attacks,
          groups: attacks,
        });
        for (const path of ['overviews/request/timeline', 'overviews/request/timeline?group_by=DAY']) {
          const series = response<Series>(path);
          expect(series.map(({ timeline }) => sum(timeline))).toEqual(totals.map(({ num }) => num));
          for (const [i, { num }] of series.at(-1)?.timeline.entries() ?? []) {
            expect(series.slice(1, -1).reduce((all, { timeline }) => all + (timeline[i]?.num ?? 0), 0)).toBe(
              num,
            );
          }
        }
        const peaks = response<Series>('overviews/qps/timeline?display_option=1')[0]?.timeline ?? [];
        const { qps } = response<{ qps: number }>('event/request/peak');
        // A second that a point cuts is whole only in the peak of the range.
        for (const { num } of peaks) expect(num).toBeLessThanOrEqual(qps);
        const domains = response<{ items: Counts }>('overviews/attack/top-domains?top=1000').items;
        const withHost = events.filter(({ hostname }) => hostname !== null);
        const all = { ...query, hostnames: query.hostnames ?? new Set(HOSTNAMES) };
        const { attack_num } = new Oracle(withHost).expected('event/attack/num', all) as {
          attack_num: number;
        };
        expect(sum(domains)).toBe(attack_num);
      }),
      { numRuns: scaled(20) },
    );
  });

  test('a range in seconds is answered with a warning', async () => {
    for (const path of ['event/timeline', 'event/attack/domain']) {
      const seconds = await get(withParameters(path, 'from=1767225600&to=1767312000'));
      expect([seconds.statusCode, seconds.headers.warning]).toEqual([
        200,
        '299 - "times of 10 digits look like seconds: from and to are milliseconds, so multiply by 1000"',
      ]);
      expect((await get(withParameters(path, RANGE))).headers.warning).toBeUndefined();
    }
  });

  test('an empty range returns zeros, with all keys', async () => {
    await append('p', [{ time: NOW, hostname: null, request: true, attack: 'xss', count: 1 }]);
    const keys = ['ACCESS', 'CRAWLER', 'CC', 'PRECISE', 'WEB_ATTACK', 'ATTACK'];
    const range = `from=${NOW}&to=${NOW}`;
    const json = async (path: string) => (await get(withParameters(path, range))).json();
    expect(await json('overviews/statistics')).toEqual(keys.map((key) => ({ key, num: 0 })));
    for (const path of ['request/timeline', 'qps/timeline', 'qps/timeline?display_option=1']) {
      expect(await json(`overviews/${path}`)).toEqual(keys.map((key) => ({ key, timeline: [] })));
    }
    expect(await json('overviews/attack/timeline')).toEqual(CATEGORIES.map((key) => ({ key, timeline: [] })));
    expect(await json('event/request/peak')).toEqual({ qps: 0 });
    expect(await json('event/attack/num')).toEqual({ attack_num: 0 });
    expect(await json('overviews/attack/action-types')).toEqual({
      total: 2,
      items: [
        { key: 'block', num: 0 },
        { key: 'log', num: 0 },
      ],
    });
    for (const path of [
      'event/attack/domain',
      'overviews/attack/top-domains',
      'overviews/attack/distribution',
    ])
      expect(await json(path)).toEqual({ total: 0, items: [] });
    const nothing = { attacks: 0, distinct_is: 'exact', error: 0, from: NOW, to: NOW };
    for (const path of [
      'event/attack/source',
      ...['ip', 'url', 'rule', 'country'].map((n) => `overviews/attack/${n}`),
    ])
      expect(await json(path)).toEqual({ total: 0, ...nothing, items: [] });
    expect(await json('event/attack/source/num')).toEqual({ sip: 0, ...nothing });
  });

  test('an average divides by the seconds of its point, even if the range cuts it', async () => {
    const request = { hostname: null, request: true, attack: null };
    await append('p', [
      { ...request, time: NOW, count: 89 },
      { ...request, time: NOW + 60_000, count: 90 },
      { ...request, time: NOW + 120_000, count: 90 },
    ]);
    const path = withParameters('overviews/qps/timeline', `from=${NOW}&to=${NOW + 180_000 - 57_000}`);
    const [access] = (await get(path)).json();
    // 89 and 90 in 60 s, and 90 in 3 s.
    expect(access.timeline.map(({ num }: { num: number }) => num)).toEqual([1, 2, 30]);
  });
});

describe('responses', () => {
  const urls = [
    ...PATHS.map((path) => withParameters(path, RANGE)),
    ...HOST_LISTS,
    ...CATEGORY_LISTS,
    // The ID of the first host.
    'waf/instance/h1',
  ];
  const attack: KnownEvent = {
    time: NOW - 1,
    hostname: 'a.example',
    request: true,
    attack: 'sqli',
    count: 1,
    source: '203.0.113.7',
    url: '/login',
    rule: '942100',
    country: 'DE',
  };

  beforeEach(async () => {
    await store.addHost({ project: 'p', hostname: 'one.example', id: 'h1', limit: 1_000 });
    await append('p', [attack]);
  });

  test.each(urls)('%s sends an ETag, and 304 if the client sends it back', async (url) => {
    const first = await get(url);
    expect(first.statusCode).toBe(200);
    expect(first.headers).toMatchObject({
      'cache-control': 'private, no-cache',
      vary: 'Accept-Encoding',
      'content-type': 'application/json; charset=utf-8',
    });
    const etag = String(first.headers.etag);
    const again = await get(url, { 'if-none-match': etag });
    expect([again.statusCode, again.body]).toEqual([304, '']);
    const head = await app.inject({ method: 'HEAD', url: `/v1/p/${url}` });
    expect([head.statusCode, head.body, head.headers.etag]).toEqual([200, '', etag]);
    expect(Number(head.headers['content-length'])).toBe(first.rawPayload.length);
  });

  test.each(PATHS)('%s sends a different ETag when the counts change', async (path) => {
    const url = withParameters(path, RANGE);
    const { etag } = (await get(url)).headers;
    await append(
      'p',
      [404, 502].map((status) => ({ ...attack, count: 60_000, status, bytes_out: 9 ** 9 })),
    );
    const changed = await get(url, { 'if-none-match': String(etag) });
    expect(changed.statusCode).toBe(200);
    expect(changed.headers.etag).not.toBe(etag);
  });

  test.each([
    'event/attack/domain',
    'overviews/attack/top-domains',
    'overviews/attack/url',
    'overviews/classification',
  ])('%s sends another ETag when a host is renamed', async (path) => {
    const url = withParameters(path, RANGE);
    const { etag } = (await get(url)).headers;
    const id = (await store.hosts('p')).find(({ hostname }) => hostname === 'a.example')?.id ?? '';
    await store.renameHost({ project: 'p', id, hostname: 'renamed.example' });
    const renamed = await get(url, { 'if-none-match': String(etag) });
    expect(renamed.statusCode).toBe(200);
    expect(renamed.body).toContain('renamed.example');
  });

  test.each([
    ['event/url', 'event/request/peak'],
    ['overviews/attack/domain', 'overviews/attack/top-domains'],
    ['overviews/attack/action', 'overviews/attack/action-types'],
    ['overviews/attack/region', 'overviews/attack/country'],
    ['event/domain/url', 'overviews/attack/url'],
  ])('%s is the older path of %s', async (older, newer) => {
    await append('p', [{ ...attack, count: 7_310 }]);
    const [some, others] = [await get(withParameters(older, RANGE)), await get(withParameters(newer, RANGE))];
    expect(some.statusCode).toBe(200);
    expect(some.body).toMatch(/731[01]/);
    expect(some.body).toBe(others.body);
    expect(some.headers.etag).toBe(others.headers.etag);
  });

  test('a host has one domain name', async () => {
    const domains = await get('waf/overviews/h1/domains');
    expect(domains.json()).toEqual({ total: 1, items: ['one.example'] });
    expect((await failureOf('waf/overviews/h2/domains')).slice(0, 2)).toEqual([404, 'WAF.4000']);
    expect((await failureOf('waf/overviews/a.b/domains')).slice(0, 2)).toEqual([400, 'WAF.1003']);
  });

  test.each(urls)('%s is compressed if it is large', async (url) => {
    await addHosts(
      'p',
      Array.from({ length: 40 }, (_, i) => `host-${i}.example`),
    );
    const plain = await get(url);
    const isLarge = plain.rawPayload.length >= 1_400;
    for (const [coding, decompress] of [
      ['br', brotliDecompressSync],
      ['gzip', gunzipSync],
    ] as const) {
      const response = await get(url, { 'accept-encoding': coding });
      expect(response.statusCode).toBe(200);
      expect(response.headers['content-encoding']).toBe(isLarge ? coding : undefined);
      const body = isLarge ? decompress(response.rawPayload) : response.rawPayload;
      expect(body.equals(plain.rawPayload)).toBe(true);
    }
  });

  test('a cached response equals a newly computed one', async () => {
    const step = fc.record({
      count: fc.option(fc.integer({ min: NOW - 2 * DAY_MS, max: NOW + DAY_MS })),
      rename: fc.option(fc.nat(3).map((n) => `name-${n}.example`)),
      url: fc.constantFrom(...urls),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        for (const { count, rename, url } of steps) {
          if (count !== null) await append('p', [{ ...attack, time: count }]);
          if (rename !== null) await store.renameHost({ project: 'p', id: 'h1', hostname: rename });
          const cached = await get(url);
          const computed = await get(url, { 'cache-control': 'no-cache' });
          expect([cached.statusCode, computed.statusCode]).toEqual([200, 200]);
          expect(cached.body).toBe(computed.body);
          expect(cached.headers.etag).toBe(computed.headers.etag);
        }
      }),
      { numRuns: scaled(30) },
    );
  });
});

describe('a wrong parameter is a 400', () => {
  test.each(PATHS)('no range for %s', async (path) => {
    const [status, code, message] = await failureOf(`waf/${path}`);
    expect([status, code]).toEqual([400, 'WAF.1025']);
    expect(message).toMatch(/^from is required/);
  });

  test.each([
    ['overviews/request/timeline?group_by=HOUR', "group_by is 'HOUR', but must be one of DAY"],
    ['overviews/qps/timeline?group_by=day', "group_by is 'day', but must be one of DAY"],
    ['overviews/attack/timeline?group_by=', "group_by is '', but must be one of DAY"],
    ['overviews/qps/timeline?display_option=2', "display_option is '2', but must be one of 0, 1"],
    ['overviews/attack/top-domains?top=0', "top is '0', but must be a whole number from 1 to 1000"],
    ['event/attack/domain?top=1001', "top is '1001', but must be a whole number from 1 to 1000"],
    ['overviews/classification?top=x', "top is 'x', but must be a whole number from 1 to 1000"],
    ['overviews/statistics?policyname=a', "there is no parameter 'policyname': hosts is the only filter"],
    ['event/attack/num?instance_id=a', "there is no parameter 'instance_id': use hosts"],
    ['event/request/peak?Instances=a', "there is no parameter 'Instances': use hosts"],
    ['overviews/attack/ip?top=1001', "top is '1001', but must be a whole number from 1 to 1000"],
    ['overviews/attack/rule?attacks=sqli,SQLI', "attacks is 'SQLI', but must be one of xss, sqli, cmdi"],
    ['event/attack/source?attacks=', "attacks is '', but must be one of xss, sqli, cmdi"],
    ['event/attack/source/num?attacks[]=a', "attacks is 'a', but must be one of xss, sqli, cmdi"],
    [
      'overviews/attack/url?attack_type=xss',
      "there is no parameter 'attack_type': the filters are hosts, attacks,",
    ],
    [
      'overviews/attack/url?category=xss',
      "there is no parameter 'category': the filters are hosts, attacks,",
    ],
    ['overviews/attack/country?ip=::1', "there is no parameter 'ip': the filters are hosts, attacks,"],
    ['event/attack/num?nsip=::1', "there is no parameter 'nsip': the filters are hosts, attacks,"],
    [
      'event/timeline?nsips=::1',
      "there is no parameter 'nsips': hosts is the only filter of this call; event/attack/num",
    ],
    [
      'overviews/statistics?attacks=xss',
      "there is no parameter 'attacks': hosts is the only filter of this call",
    ],
    ['event/attack/num?sips=1.2.3', "sips is '1.2.3', but must be an IP address or a network"],
    ['overviews/statistics?hosts=a&instances=b', 'hosts and instances both filter by host ID, but differ'],
  ])('%s', async (path, message) => {
    const [status, code, text] = await failureOf(withParameters(path, RANGE));
    expect([status, code]).toEqual([400, 'WAF.1001']);
    expect(text).toContain(message);
  });

  test('a range with too much data for the store', async () => {
    store.peaks = () => Promise.reject(new QueryTooLarge());
    for (const path of ['event/request/peak', 'overviews/qps/timeline?display_option=1']) {
      const [status, code, message] = await failureOf(withParameters(path, RANGE));
      expect([status, code]).toEqual([400, 'WAF.1025']);
      expect(message).toMatch(/select fewer hosts or a shorter range/);
    }
  });

  test('a malformed ID in instances', async () => {
    const [status, code, message] = await failureOf(
      withParameters('overviews/statistics?instances=a.b', RANGE),
    );
    expect([status, code]).toEqual([400, 'WAF.1003']);
    expect(message).toMatch(/^instances is 'a\.b'.*; waf\/instance lists the hosts with their IDs$/);
  });
});

describe('top lists', () => {
  const attack = { time: NOW - 1, hostname: null, request: true, count: 1, source: '203.0.113.7' } as const;

  test('the ETag depends on the whole hours that the range touches', async () => {
    open({ eventsMax: 0 });
    store.version = async (query) => String(await attacksByCategory(store, query));
    const minutes = (from: number, to: number) => `from=${NOW - from * 60_000}&to=${NOW - to * 60_000}`;
    const paths = ['event/attack/source', 'overviews/attack/url'];
    for (const [i, path] of paths.entries()) {
      const url = withParameters(path, minutes(40, 30));
      await append('p', [{ ...attack, attack: 'sqli', url: '/a', time: NOW - 35 * 60_000 }]);
      const responses = [await get(url), await get(url), await get(url)];
      expect(new Set(responses.map(({ headers }) => headers.etag)).size).toBe(1);
      await append('p', [{ ...attack, attack: 'sqli', url: '/a', time: NOW - 1 }]);
      const changed = await get(url, { 'if-none-match': String(responses[0]?.headers.etag) });
      expect([changed.statusCode, changed.json().attacks]).toEqual([200, 2 * (i + 1)]);
    }
  });

  test('attacks filters by category, in every notation of a list', async () => {
    await append('p', [
      { ...attack, attack: 'sqli', count: 1 },
      { ...attack, attack: 'xss', count: 10 },
      { ...attack, attack: 'cc', count: 100 },
    ]);
    const count = async (filter: string) =>
      (await get(withParameters(`overviews/attack/ip${filter}`, RANGE))).json().attacks;
    expect(await count('')).toBe(111);
    expect(await count('?attacks=sqli,cc,sqli')).toBe(101);
    expect(await count('?attacks=xss&attacks=cc')).toBe(110);
    expect(await count('?attacks[]=xss&attacks[1]=sqli')).toBe(11);
  });

  test('cover whole hours if attacks of the range are missing', async () => {
    open({ eventsMax: 3 });
    const minute = (n: number, source: string) =>
      ({ ...attack, attack: 'sqli', time: NOW - n * 60_000, source }) as const;
    await append('p', [minute(90, '192.0.2.1'), minute(70, '192.0.2.2')]);
    const list = async (from: number, to: number, parameters = '') =>
      (
        await get(
          withParameters(
            `overviews/attack/ip?from=${NOW - from * 60_000}&to=${NOW - to * 60_000}`,
            parameters,
          ),
        )
      ).json();
    const hour = { from: NOW - 120 * 60_000, to: NOW - 60 * 60_000 };
    expect(await list(80, 65)).toMatchObject({
      ...{ from: NOW - 80 * 60_000, to: NOW - 65 * 60_000, attacks: 1, error: 0 },
      items: [{ key: '192.0.2.2', num: 1, error: 0 }],
    });
    await append('p', [minute(68, '192.0.2.2'), minute(67, '192.0.2.2'), minute(66, '192.0.2.3')]);
    expect(await list(80, 65)).toMatchObject({
      ...{ ...hour, attacks: 5 },
      items: [{ key: '192.0.2.2', num: 3 }, { num: 1 }, { num: 1 }],
    });
    expect(await list(80, 65, 'attacks=sqli')).toMatchObject({ ...hour, attacks: 5 });
    // The summary of the hour is exact.
    expect(await list(125, 55)).toMatchObject({
      ...{ from: NOW - 125 * 60_000, to: NOW - 55 * 60_000, attacks: 5, error: 0 },
      items: [{ key: '192.0.2.2', num: 3 }, { num: 1 }, { num: 1 }],
    });
    // An empty range lacks nothing.
    expect(await list(80, 65, 'attacks=xss')).toMatchObject({ from: NOW - 80 * 60_000, attacks: 0 });
    expect(await list(70, 70)).toMatchObject({ from: NOW - 70 * 60_000, to: NOW - 70 * 60_000, items: [] });
  });

  test('sources have a country and a network, and there is a list of networks', async () => {
    const sources = ['192.0.2.1', '192.0.2.2', '198.51.100.1', '203.0.113.1'];
    const attacks = sources.map(
      (source, i) => ({ ...attack, attack: 'sqli', source, count: i + 1 }) as const,
    );
    await append('p', attacks);
    const network = (path: string) => withParameters(`overviews/attack/network${path}`, RANGE);
    expect(await failureOf(network(''))).toEqual([
      404,
      'WAF.4000',
      'there is no list of networks: start the service with --geoip',
    ]);
    const one = { autonomous_system_number: 64_500, autonomous_system_organization: 'One' };
    const geo = geoIpOf({
      '192.0.2.0/24': { country: { iso_code: 'DE' }, ...one },
      '198.51.100.0/24': { autonomous_system_number: 64_501, autonomous_system_organization: 'Two' },
    });
    app = appOf(statisticsRoutes(store, () => NOW, patientAdmission(), { geo }));
    const items = async (path: string) => (await get(withParameters(path, RANGE))).json().items;
    const located = { country: 'DE', network: 'AS64500', network_name: 'One' };
    expect(await items('event/attack/source')).toEqual([
      { ip: '203.0.113.1', num: 4, error: 0 },
      { ip: '198.51.100.1', num: 3, error: 0, network: 'AS64501', network_name: 'Two' },
      { ip: '192.0.2.2', num: 2, error: 0, ...located },
      { ip: '192.0.2.1', num: 1, error: 0, ...located },
    ]);
    expect(await items('overviews/attack/ip?sips=192.0.2.1')).toEqual([
      { key: '192.0.2.1', num: 1, error: 0, ...located },
    ]);
    expect((await items('event?sips=192.0.2.1'))[0].region).toBe('DE');
    expect((await get(network('?top=1'))).json()).toEqual({
      ...{ total: 2, attacks: 6, distinct_is: 'exact', error: 0, from: NOW - DAY_MS, to: NOW },
      items: [{ key: 'AS64500', name: 'One', num: 3, error: 0 }],
    });
    // Of sources that are not kept, nobody knows the network.
    await store.eraseAttacks('p', { include: {}, exclude: {} });
    store.top = async ({ from, to }) => ({
      ...{ from, to, attacks: 10, distinct: 9, distinctIs: 'estimate', error: 2 },
      items: [{ key: '192.0.2.1', count: 4, error: 1 }],
    });
    expect((await get(network(''))).json()).toMatchObject({
      ...{ total: 1, attacks: 4, distinct_is: 'minimum', error: 6 },
      items: [{ key: 'AS64500', num: 4, error: 6 }],
    });
  });

  test('bounds of the store are passed on', async () => {
    open({ eventsMax: 0 });
    await append('p', [{ ...attack, attack: 'sqli' }]);
    store.top = async ({ from, to, limit }) => ({
      from: from + 3_600_000,
      to,
      shortened: true,
      attacks: 900,
      distinct: 70,
      distinctIs: 'estimate',
      error: 9,
      items: [
        { key: '203.0.113.7', count: 500, error: 0 },
        { key: '203.0.113.8', count: 40, error: 8 },
      ].slice(0, limit),
    });
    const hours = { from: NOW - 23 * 3_600_000, to: NOW, shortened: true };
    const bounds = { attacks: 900, distinct_is: 'estimate', error: 9, ...hours };
    expect((await get(withParameters('event/attack/source', RANGE))).json()).toEqual({
      total: 70,
      ...bounds,
      items: [
        { ip: '203.0.113.7', num: 500, error: 0 },
        { ip: '203.0.113.8', num: 40, error: 8 },
      ],
    });
    expect((await get(withParameters('event/attack/source/num', RANGE))).json()).toEqual({
      sip: 70,
      ...bounds,
    });
  });
});

test('instances filters like hosts, and parameters of SDKs that filter nothing are ignored', async () => {
  const one = { request: true, attack: null, count: 1, time: NOW - 1 };
  const ids = await append('p', [
    { ...one, hostname: 'a.example' },
    { ...one, hostname: 'b.example' },
  ]);
  const [a, b] = [ids.get('a.example'), ids.get('b.example')];
  const requests = async (filter: string) =>
    (await get(withParameters('overviews/statistics', `${RANGE}${filter}`))).json()[0].num;
  expect(await requests('')).toBe(2);
  expect(await requests('&enterprise_project_id=0&locale=en-us')).toBe(2);
  expect(await requests(`&instances=${a}`)).toBe(1);
  expect(await requests(`&instances[]=${a}&instances[]=${b}`)).toBe(2);
  expect(await requests(`&hosts[0]=${a}`)).toBe(1);
  expect(await requests(`&instances=${a},${b}&hosts=${b}&hosts=${a}`)).toBe(2);
  expect(await requests('&instances=unknown')).toBe(0);
});

describe('hosts', () => {
  interface HostList {
    total: number;
    items: { id: string; hostid: string; hostname: string; timestamp: number }[];
  }
  const list = async (query: string, project = 'p', path = 'waf/instance') => {
    const response = await get(`${path}?${query}`, {}, project);
    expect(response.statusCode).toBe(200);
    return response.json<HostList>();
  };

  test('pages of any size, numbered in either way, list each host once', async () => {
    const names = (n: number) => Array.from({ length: n }, (_, i) => `host-${i}.example`);
    await fc.assert(
      fc.asyncProperty(
        fc.nat(60),
        fc.integer({ min: 1, max: 70 }),
        fc.constantFrom(...HOST_LISTS),
        async (count, size, path) => {
          const project = `p${count}`;
          await addHosts(project, names(count));
          const expected = (await list('', project, path)).items.map(({ id }) => id);
          expect(new Set(expected).size).toBe(count);
          for (const query of [
            (page: number) => `offset=${page}&limit=${size}`,
            (page: number) => `page=${page + 1}&pagesize=${size}`,
          ]) {
            const untilTotal: string[] = [];
            for (let page = 0; ; page++) {
              const { total, items } = await list(query(page), project, path);
              expect(total).toBe(count);
              untilTotal.push(...items.map(({ id }) => id));
              if (untilTotal.length >= total) break;
            }
            expect(untilTotal).toEqual(expected);
            const untilShort: string[] = [];
            for (let page = 0; ; page++) {
              const { items } = await list(query(page), project, path);
              untilShort.push(...items.map(({ id }) => id));
              if (items.length < size) break;
            }
            expect(untilShort).toEqual(expected);
          }
        },
      ),
      { numRuns: scaled(50) },
    );
  });

  test('a page has ten hosts by default with offset, and all hosts with page or with a size of -1', async () => {
    await addHosts(
      'p',
      Array.from({ length: 25 }, (_, i) => `host-${i}.example`),
    );
    const sizes = async (...queries: string[]) =>
      Promise.all(queries.map(async (query) => (await list(query)).items.length));
    expect(await sizes('', 'enterprise_project_id=all_granted_eps')).toEqual([25, 25]);
    expect(await sizes('offset=0', 'offset=2', 'offset=3')).toEqual([10, 5, 0]);
    expect(await sizes('page=1', 'page=2')).toEqual([25, 0]);
    expect(await sizes('limit=20', 'pagesize=20')).toEqual([20, 20]);
    expect(await sizes('limit=-1', 'pagesize=-1', 'offset=0&limit=-1', 'page=1&pagesize=-1')).toEqual([
      25, 25, 25, 25,
    ]);
    expect(await sizes('offset=1&limit=-1', 'page=2&pagesize=-1')).toEqual([0, 0]);
  });

  test('hostname filters by a part of the name, and no host has a policy', async () => {
    await addHosts('p', ['www.shop.example', 'shop.test', 'blog.example']);
    expect((await list('hostname=SHOP&pagesize=1')).total).toBe(2);
    expect(await list('policyname=strict')).toEqual({ total: 0, items: [] });
    expect((await list('policyname=&hostname=')).total).toBe(3);
  });

  test.each([
    ['page=0', "page is '0', but must be a whole number from 1"],
    ['offset=-1', "offset is '-1', but must be a whole number from 0"],
    ['pagesize=0', "pagesize is '0', but must be a whole number from 1 to 1000, or -1 for all"],
    ['limit=1001', "limit is '1001', but must be a whole number from 1 to 1000, or -1 for all"],
    ['limit=-2', "limit is '-2'"],
    ['page=1&limit=10', 'use either offset and limit or page and pagesize'],
    ['offset=1&pagesize=10', 'use either offset and limit or page and pagesize'],
    ['hosts=a', "there is no parameter 'hosts': use hostname"],
    ['host_name=a', "there is no parameter 'host_name': use hostname"],
    ['policy=a', "there is no parameter 'policy': use hostname"],
    ['protect_status=1', "there is no parameter 'protect_status': use hostname"],
    ['waf_type=cloud', "there is no parameter 'waf_type': use hostname"],
    ['is_https=true', "there is no parameter 'is_https': use hostname"],
    ['exclusive_ip=true', "there is no parameter 'exclusive_ip': use hostname"],
  ])('%s is a 400', async (query, message) => {
    const [status, code, text] = await failureOf(`waf/instance?${query}`);
    expect([status, code]).toEqual([400, 'WAF.1001']);
    expect(text).toContain(message);
  });

  test('a host can be read by its ID', async () => {
    await store.addHost({ project: 'p', hostname: 'shop.example', id: 'shop-1', limit: 10, created: 7 });
    const item = { id: 'shop-1', hostid: 'shop-1', hostname: 'shop.example', timestamp: 7 };
    for (const path of ['waf/instance', 'composite-waf/host', 'premium-waf/host'])
      expect((await get(`${path}/shop-1`)).json()).toEqual(item);
    expect((await list('')).items).toEqual([item]);
    expect(await failureOf('waf/instance/shop-2')).toEqual([
      404,
      'WAF.4000',
      'the project has no host with the ID shop-2',
    ]);
    expect((await failureOf('waf/instance/a.b')).slice(0, 2)).toEqual([400, 'WAF.1003']);
    expect((await get('waf/instance/shop-1', {}, 'other')).statusCode).toBe(404);
  });
});

test.each(CATEGORY_LISTS)('%s names the 13 categories', async (path) => {
  const { threats, locale } = (await get(path)).json();
  expect(threats).toEqual([...CATEGORIES]);
  expect(Object.keys(locale)).toEqual(threats);
  expect(Object.values(locale)).toEqual([
    'Cross-site scripting',
    'SQL injection',
    'Command injection',
    'HTTP floods (CC)',
    'Custom rules',
    'Invalid requests',
    'Local file inclusion',
    'Malicious crawlers',
    'Page tampering',
    'Remote file inclusion',
    'Other',
    'IP allow/block lists',
    'Web shells',
  ]);
});

test.each(Object.entries(NOT_KEPT))('%s is a 404 that says what is not kept', async (call, data) => {
  const [method, path = ''] = call.replaceAll(/:\w+/g, 'p').split(' ', 2);
  const response = await app.inject({ method: method as 'GET', url: `${path}?${RANGE}` });
  expect([response.statusCode, response.json()]).toEqual([
    404,
    { error_code: 'WAF.4000', error_msg: `there is no path ${path}: wafstat does not keep ${data}` },
  ]);
});

/** The statistics calls of the SDKs of Huawei Cloud (3.1.211, and of 2021) and Open Telekom Cloud. */
const SDK_CALLS = [
  'event/attack/num',
  'event/attack/domain',
  'event/attack/source',
  'event/attack/source/num',
  'event/attack/type',
  'event/domain/url',
  'event/request/peak',
  'event/timeline',
  'event/url',
  'instance',
  'map/threat',
  'overviews/attack/action',
  'overviews/attack/action-types',
  'overviews/attack/distribution',
  'overviews/attack/domain',
  'overviews/attack/ip',
  'overviews/attack/region',
  'overviews/attack/top-domains',
  'overviews/abnormal',
  'overviews/attack/url',
  'overviews/bandwidth/timeline',
  'overviews/classification',
  'overviews/qps/timeline',
  'overviews/request/timeline',
  'overviews/response-code/timeline',
  'overviews/statistics',
  'tag/threat/map',
];

test('every statistics call of the SDKs works, or docs/api.md says why not', async () => {
  for (const path of SDK_CALLS)
    expect([path, (await get(withParameters(path, RANGE))).statusCode]).toEqual([path, 200]);
  const [host] = await store.resolveHosts({ project: 'p', hostnames: ['a.example'], limit: 1 });
  for (const path of [`instance/${host}`, `overviews/${host}/domains`])
    expect([path, (await get(`waf/${path}`)).statusCode]).toEqual([path, 200]);
  const page = readFileSync(new URL('../../../../../docs/api.md', import.meta.url), 'utf8');
  const rows = page.slice(page.indexOf('| call | not kept |')).matchAll(/^\| (.*`.*) \| (.*) \|$/gm);
  const documented = [...rows].flatMap(([, calls = '', data = '']) => {
    let method = '';
    return calls.split(/[,;] /).map((call) => {
      method = /[A-Z]{3,}/.exec(call.split(' /')[0] ?? '')?.[0] ?? method;
      const path = /(?:waf|\/v2)\/[^`]*/.exec(call)?.[0] ?? '';
      const url = path.startsWith('/') ? path : `/v1/{project_id}/${path}`;
      return [`${method} ${url.replaceAll(/\{(\w+)\}/g, ':$1')}`, data];
    });
  });
  const configuration = documented.filter(([, data]) => data === 'the configuration of a WAF');
  expect(configuration).toHaveLength(7);
  expect(documented.slice(0, -7).sort()).toEqual(Object.entries(NOT_KEPT).sort());
});
