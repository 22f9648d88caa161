/** The situation: one sentence whose numbers are those of other calls. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { checkDocumented } from '../../../../../test/documented.ts';
import { appOf } from '../../../../../test/routes-app.ts';
import type { Category } from '../../event.ts';
import type { Situation } from '../../statistics/situation.ts';
import { lmdbStore } from '../../store/lmdb/lmdb.ts';
import { QueryTooLarge, type Store } from '../../store/store.ts';
import { statisticsRoutes } from './routes.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Ten minutes after the burst began. */
const NOW = Date.UTC(2026, 6, 1, 16, 50);
const BURST = NOW - 10 * MINUTE_MS;
const HOSTNAMES = ['shop.example.com', 'www.example.com'];

let directory: string;
let app: FastifyInstance;
let store: Store;
let now: number;

afterEach(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

beforeEach(() => {
  now = NOW;
  // Not in memory: that would take seconds for each series.
  directory = mkdtempSync(join(tmpdir(), 'wafstat-situation-'));
  store = lmdbStore(join(directory, 'statistics.mdb'), () => now);
  app = appOf(statisticsRoutes(store, () => now, patientAdmission()));
});

async function get<T>(path: string): Promise<T> {
  const url = `/v1/p/waf/${path}`;
  const { statusCode, body } = await app.inject({ url });
  checkDocumented('GET', url, statusCode, body);
  expect({ statusCode, body }).toMatchObject({ statusCode: 200 });
  return JSON.parse(body);
}

const situation = (query = '') => get<Situation>(`overviews/situation?${query}`);

interface Attacks {
  from: number;
  to: number;
  everyMs: number;
  count: number;
  attack?: Category | null;
  host?: number;
  address?: string;
  blocked?: boolean;
}

async function append(
  { from, to, everyMs, count, attack = 'robot', host = 1, address = '203.0.113.7', blocked = true }: Attacks,
  source = 'edge',
) {
  const ids = await store.resolveHosts({ project: 'p', hostnames: HOSTNAMES, limit: 10 });
  const events = [];
  for (let time = from; time < to; time += everyMs)
    events.push({
      ...{ time, hostId: ids[host] ?? null, request: true, attack, count },
      ...(attack !== null && { details: { source: address, blocked } }),
    });
  await store.append({ project: 'p', source: { name: source, format: 'events' }, events, dropped: {} });
  return ids;
}

/** 20 attacks every 5 minutes, from eight days ago. */
const USUAL = { from: NOW - 8 * DAY_MS, everyMs: 5 * MINUTE_MS, count: 20 };
const FLOOD = {
  from: BURST,
  to: NOW,
  everyMs: MINUTE_MS,
  attack: 'cc',
  host: 0,
  address: '192.0.2.58',
} as const;

async function appendFlood() {
  await append({ ...FLOOD, count: 6, blocked: false });
  return append({ ...FLOOD, count: 38 });
}

describe('an attack', () => {
  beforeEach(() => append({ ...USUAL, to: NOW }));

  test('is described by its time, category, host, source, and how much is blocked', async () => {
    const [shop] = await appendFlood();
    const { sentence, state, since, bursts } = await situation();
    expect({ sentence, state, since }).toEqual({
      sentence:
        'Since 16:40: HTTP flood on shop.example.com from 192.0.2.58, 12 times the usual, 87% blocked.',
      state: 'attack',
      since: BURST,
    });
    expect(bursts).toEqual([
      {
        ...{ from: BURST, to: NOW, open: true, category: 'cc', host: 'shop.example.com', host_id: shop },
        ...{ source: '192.0.2.58', attacks: 480, blocked: 420, times_usual: 12 },
      },
    ]);
  });

  test('is described without its source if there are too many sources to count', async () => {
    await appendFlood();
    store.countAttacks = () => Promise.reject(new QueryTooLarge('list its values'));
    const { bursts } = await situation();
    expect(bursts).toMatchObject([{ host: 'shop.example.com', source: null, attacks: 480 }]);
  });

  test('has the numbers of other calls', async () => {
    await appendFlood();
    const { attacks, from, to, usual, bursts } = await situation();
    const num = async (range: { from: number; to: number }) =>
      (await get<{ attack_num: number }>(`event/attack/num?from=${range.from}&to=${range.to}`)).attack_num;
    expect({ from, to }).toEqual({ from: NOW - DAY_MS, to: NOW });
    expect(attacks).toBe(await num({ from: NOW - HOUR_MS, to: NOW }));
    expect(usual).toEqual({ low: 240, high: 240 });
    const [burst = { from: 0, to: 0, attacks: 0, blocked: 0 }] = bursts;
    expect(burst.attacks).toBe(await num(burst));
    const actions = await get<{ items: object[] }>(
      `overviews/attack/action-types?from=${burst.from}&to=${burst.to}`,
    );
    expect(actions.items).toContainEqual({ key: 'block', num: burst.blocked });
  });

  test.each([
    ['timezone=Europe/Berlin', 'Since 18:40: HTTP flood'],
    // On the next local day.
    ['timezone=%2B07:15', 'Since 2026-07-01 23:55: HTTP flood'],
  ])('has its time in the time zone: %s', async (query, sentence) => {
    await appendFlood();
    expect((await situation(query)).sentence).toContain(sentence);
  });

  test('that has ended is a burst, and the sentence is that of the last hour', async () => {
    await appendFlood();
    now = NOW + 90 * MINUTE_MS;
    await append({ ...USUAL, from: NOW, to: now });
    const ended = await situation();
    expect(ended).toMatchObject({
      ...{ state: 'quiet', since: null, sentence: 'Quiet: 240 attacks in the last hour, usually 240.' },
      bursts: [{ from: BURST, to: NOW, open: false, attacks: 480 }],
    });
    // The same with the time as a parameter, and from here on it is no longer in the range.
    expect(await situation(`to=${NOW}`)).toMatchObject({ state: 'attack', bursts: [{ to: NOW }] });
    expect((await situation(`from=${NOW - 1}&to=${now}`)).bursts).toEqual(ended.bursts);
    expect((await situation(`from=${NOW}&to=${now}`)).bursts).toEqual([]);
  });

  test('from many sources on many hosts names none of them', async () => {
    for (const [i, attack] of (['cc', 'sqli', 'xss'] as const).entries())
      await append({ ...FLOOD, attack, count: 15, host: i % 2, address: `192.0.2.${i}` });
    const { sentence, bursts } = await situation();
    expect(sentence).toBe('Since 16:40: attacks on shop.example.com, 12 times the usual, 100% blocked.');
    expect(bursts).toMatchObject([{ category: null, source: null }]);
  });

  test('is that of the selected hosts', async () => {
    const [shop, www] = await appendFlood();
    expect(await situation(`hosts=${www}`)).toMatchObject({ state: 'quiet', attacks: 240 });
    // This host has no history that the burst could be compared with.
    expect(await situation(`hosts=${shop}`)).toMatchObject({ state: 'quiet', usual: null, bursts: [] });
  });
});

describe('missing data', () => {
  test('comes before an attack, and names the source', async () => {
    await append({ ...USUAL, to: NOW });
    await append({ ...USUAL, to: NOW - 90 * MINUTE_MS, everyMs: MINUTE_MS, count: 1 }, 'backup');
    const [shop] = await appendFlood();
    const silent = { name: 'backup', last_seen: NOW - 91 * MINUTE_MS };
    expect(await situation()).toMatchObject({
      ...{ state: 'no_data', sentence: 'No data since 15:19 from source backup.', since: silent.last_seen },
      ...{ silent_sources: [silent], bursts: [{ open: true }] },
    });
    // It reported on another host.
    expect((await situation(`hosts=${shop}`)).silent_sources).toEqual([]);
    await append({ ...USUAL, to: NOW - 5 * HOUR_MS, everyMs: MINUTE_MS, count: 1 }, 'third');
    expect((await situation()).sentence).toBe('No data since 15:19 from source backup and 1 more.');
  });

  test('of a project without any', async () => {
    const nothing = { attacks: 0, usual: null, bursts: [], silent_sources: [], since: null };
    expect(await situation()).toMatchObject({ state: 'no_data', sentence: 'No data yet.', ...nothing });
  });

  test('for so long that the sources are no longer usual', async () => {
    await append({ ...USUAL, to: NOW });
    now = NOW + 30 * DAY_MS;
    expect(await situation()).toMatchObject({
      ...{ state: 'no_data', sentence: 'No data since 2026-07-01 16:45.', silent_sources: [] },
    });
  });
});

test('a quiet project without attacks', async () => {
  await append({ ...USUAL, to: NOW, attack: null });
  await append({ from: NOW - 30 * MINUTE_MS, to: NOW, everyMs: HOUR_MS, count: 1 });
  expect((await situation()).sentence).toBe('Quiet: 1 attack in the last hour, usually 0.');
  expect((await situation(`to=${NOW - HOUR_MS}`)).sentence).toBe(
    'Quiet: no attacks in the last hour, usually 0.',
  );
});

test('the end of the range is not after now', async () => {
  await append({ ...USUAL, to: NOW });
  expect(await situation(`from=${NOW - HOUR_MS}&to=${NOW + DAY_MS}`)).toMatchObject({
    ...{ from: NOW - HOUR_MS, to: NOW, attacks: 240 },
  });
  expect(await situation('recent=today')).toMatchObject({ from: Date.UTC(2026, 6, 1), to: NOW });
});

test.each([
  [`from=${NOW - 93 * DAY_MS}`, 'from and to are more than 92 days apart: query a shorter range'],
  ['to=x', "to is 'x'"],
  ['to=1&to=2', 'to is given 2 times'],
  ['sips=192.0.2.1', "there is no parameter 'sips'"],
  ['timezone=Mars', "timezone is 'Mars'"],
])('%s is refused', async (query, message) => {
  const { statusCode, body } = await app.inject({ url: `/v1/p/waf/overviews/situation?${query}` });
  expect({ statusCode, body }).toEqual({ statusCode: 400, body: expect.stringContaining(message) });
});
