/** Statistics with filters: every call counts what the list of attacks has. */
import fc from 'fast-check';
import type { FastifyInstance } from 'fastify';
import { beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { checkDocumented } from '../../../../../test/documented.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { appOf } from '../../../../../test/routes-app.ts';
import { CATEGORIES, type Category, type Event } from '../../event.ts';
import type { Store } from '../../store/store.ts';
import { statisticsRoutes } from './routes.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const HOUR_MS = 3_600_000;
const HOSTNAMES = ['www.example.com', 'api.example.com'];

interface Item {
  time: number;
  sip?: string;
  host?: string;
  url?: string;
  attack: Category;
  action: string;
  region?: string;
  rule?: string;
  count?: number;
}

let app: FastifyInstance;
let store: Store;

beforeEach(() => open());

async function open(limits: Parameters<typeof memoryStore>[1] = {}): Promise<void> {
  store = memoryStore(() => NOW, limits);
  app = appOf(statisticsRoutes(store, () => NOW, patientAdmission()));
}

async function append(attacks: readonly Omit<Event, 'hostId' | 'request'>[], hosts: readonly number[]) {
  const ids = await store.resolveHosts({ project: 'p', hostnames: HOSTNAMES, limit: 10 });
  const events = attacks.map((attack, i) => ({
    ...attack,
    hostId: ids[hosts[i] ?? -1] ?? null,
    request: true,
  }));
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
}

async function get(path: string, headers: Record<string, string> = {}) {
  const url = `/v1/p/waf/${path}`;
  const response = await app.inject({ url, headers });
  if (response.body !== '') checkDocumented('GET', url, response.statusCode, response.body);
  return response;
}

const someAttacks = fc.array(
  fc.record({
    time: fc.integer({ min: 1, max: 1_000 }).map((n) => NOW - n * 77_777),
    attack: fc.constantFrom<Category>('sqli', 'xss', 'cc'),
    count: fc.constantFrom(1, 1, 3),
    details: fc.record(
      {
        blocked: fc.boolean(),
        source: fc.constantFrom('203.0.113.7', '203.0.113.70', '198.51.100.7', '2001:db8::7'),
        url: fc.constantFrom('/', '/login', '/admin/a'),
        country: fc.constantFrom('DE', 'FR'),
        method: fc.constantFrom('GET', 'POST'),
        status: fc.constantFrom(200, 403),
        rule: fc.constantFrom('1', '2'),
      },
      { requiredKeys: [] },
    ),
  }),
  { maxLength: 40 },
);

const FILTERS = [
  'attacks=sqli,cc',
  'nattacks=sqli',
  'sips=203.0.113.0/24',
  'nsips=203.0.113.7',
  'urls=/admin/*',
  'nurls=/login',
  'rules=1',
  'nrules=1',
  'actions=block',
  'nactions=block',
  'ip_countries=DE',
  'response_codes=403',
  'nresponse_codes=403',
  'methods=GET',
];

/** The sums of the counts by key, as in a list: the largest first. */
function sumsBy(items: readonly Item[], keyOf: (item: Item) => string | undefined) {
  const sums = new Map<string, number>();
  for (const item of items) {
    const key = keyOf(item);
    if (key !== undefined) sums.set(key, (sums.get(key) ?? 0) + (item.count ?? 1));
  }
  return Object.fromEntries(sums);
}

const toObject = (items: readonly { num: number; [field: string]: unknown }[], field = 'key') =>
  Object.fromEntries(items.filter(({ num }) => num > 0).map((item) => [item[field], item.num]));

describe('filters', () => {
  test('select in every call the attacks that the list has', async () => {
    await fc.assert(
      fc.asyncProperty(
        someAttacks,
        fc.infiniteStream(fc.constantFrom(-1, 0, 1)),
        fc.uniqueArray(fc.constantFrom(...FILTERS), {
          minLength: 1,
          maxLength: 3,
          selector: (filter) => filter.split('=')[0],
        }),
        fc.tuple(fc.nat(78_000), fc.nat(78_000)),
        async (attacks, hosts, filters, [first, last]) => {
          await open();
          await append(
            attacks,
            attacks.map(() => hosts.next().value ?? -1),
          );
          const range = `from=${NOW - 40 * HOUR_MS + first * 1_000}&to=${NOW - last * 10}`;
          const parameters = `${range}&top=1000&${filters.join('&')}`;
          const list = await get(`event?${range}&pagesize=1000&${filters.join('&')}`);
          const { items, complete }: { items: Item[]; complete: boolean } = list.json();
          expect(complete).toBe(true);
          const json = async (path: string) => (await get(`${path}?${parameters}`)).json();
          const byCategory = sumsBy(items, ({ attack }) => attack);
          const total = Object.values(byCategory).reduce((sum, num) => sum + num, 0);
          expect(await json('event/attack/num')).toEqual({ attack_num: total });
          const types = await json('event/attack/type');
          expect(types).toEqual(Object.fromEntries(CATEGORIES.map((name) => [name, byCategory[name] ?? 0])));
          const timelines: { key: Category; timeline: { num: number }[] }[] =
            await json('overviews/attack/timeline');
          const sums = timelines.map(({ key, timeline }) => ({
            key,
            num: timeline.reduce((sum, { num }) => sum + num, 0),
          }));
          expect(toObject(sums)).toEqual(byCategory);
          expect(toObject((await json('overviews/attack/distribution')).items)).toEqual(byCategory);
          const actions = toObject((await json('overviews/attack/action-types')).items);
          expect(actions).toEqual(sumsBy(items, ({ action }) => action));
          const byHost = sumsBy(items, ({ host }) => host);
          expect(toObject((await json('event/attack/domain')).items, 'host')).toEqual(byHost);
          expect(toObject((await json('overviews/attack/top-domains')).items)).toEqual(byHost);
          const bySource = sumsBy(items, ({ sip }) => sip);
          expect(toObject((await json('event/attack/source')).items, 'ip')).toEqual(bySource);
          expect((await json('event/attack/source/num')).sip).toBe(Object.keys(bySource).length);
          expect(toObject((await json('overviews/attack/ip')).items)).toEqual(bySource);
          expect(toObject((await json('overviews/attack/rule')).items)).toEqual(
            sumsBy(items, ({ rule }) => rule),
          );
          const byCountry = sumsBy(items, ({ region }) => region);
          expect(toObject((await json('overviews/attack/country')).items)).toEqual(byCountry);
          const urls: { key: string; host: string; num: number }[] = (await json('overviews/attack/url'))
            .items;
          expect(toObject(urls.map(({ key, host, num }) => ({ key: `${host}${key}`, num })))).toEqual(
            sumsBy(items, ({ host = '', url }) => url && `${host}${url}`),
          );
          const all = await json('overviews/classification');
          expect([all.domain, all.attack_type, all.ip, all.geo].map(({ items }) => toObject(items))).toEqual([
            byHost,
            byCategory,
            bySource,
            byCountry,
          ]);
        },
      ),
      { numRuns: scaled(150) },
    );
  });

  test('say how many attacks are kept of those that were counted, if some are missing', async () => {
    await open({ eventsMax: 3 });
    const attacks = Array.from({ length: 8 }, (_, i) => ({
      time: NOW - 1_000 + i,
      attack: 'sqli' as const,
      count: 1,
      details: { source: `192.0.2.${i}`, id: String(i) },
    }));
    await append(attacks, []);
    const range = `from=${NOW - HOUR_MS}&to=${NOW}`;
    const filtered = await get(`event/attack/num?${range}&sips=192.0.2.0/24`);
    expect(filtered.headers['x-wafstat-kept']).toBe('3/8');
    expect(filtered.json()).toEqual({ attack_num: 3 });
    const again = await get(`event/attack/num?${range}&sips=192.0.2.0/24`);
    expect(again.headers['x-wafstat-kept']).toBe('3/8');
    // The counters know categories.
    const byCategory = await get(`event/attack/num?${range}&attacks=sqli`);
    expect([byCategory.headers['x-wafstat-kept'], byCategory.json()]).toEqual([undefined, { attack_num: 8 }]);
    expect((await get(`event/attack/num?${range}&attacks=xss&sips=192.0.2.1`)).headers).not.toHaveProperty(
      'x-wafstat-kept',
    );
  });

  test('have an ETag that changes with the attacks of the hour', async () => {
    const url = `event/attack/num?from=${NOW - HOUR_MS}&to=${NOW}&methods=GET`;
    const before = await get(url);
    const { etag = '' } = before.headers;
    expect((await get(url, { 'if-none-match': etag })).statusCode).toBe(304);
    await append([{ time: NOW - 5, attack: 'xss', count: 1, details: { method: 'GET' } }], []);
    const after = await get(url, { 'if-none-match': etag });
    expect([after.statusCode, after.json()]).toEqual([200, { attack_num: 1 }]);
  });
});
