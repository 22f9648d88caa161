/** Kept attacks, pushed and read over HTTP. */
import { createClient } from '@wafstat/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Api, call } from './api.ts';
import { ndjson, Sandbox, type Server } from './sandbox.ts';

interface Item {
  id: string;
  time: number;
  attack: string;
  sip?: string;
  count?: number;
}

interface List {
  total: number;
  items: Item[];
  attacks: number;
  kept: number;
  complete: boolean;
}

const START = Math.floor(Date.now() / 3_600_000) * 3_600_000 - 6 * 3_600_000;
const RANGE = `from=${START}&to=${START + 3_600_000}`;
const sandbox = new Sandbox();
let server: Server;
let api: Api;

beforeAll(async () => {
  ({ server, api } = await sandbox.service());
  await push([...Array.from({ length: 50 }, (_, i) => attack(i)), { time: START, host: 'a.example' }]);
});
afterAll(() => sandbox.clear());

async function push(events: readonly object[]): Promise<void> {
  const headers = { 'X-Auth-Token': api.token };
  const request = { method: 'POST', headers, body: ndjson(events) };
  expect((await call(server.address, `/ingest/v1/${api.project}`, request)).status).toBe(200);
}

/** Attacks by three sources on two hosts; every fifth without an ID, equal to another one. */
function attack(i: number) {
  const details = { source: `192.0.2.${i % 3}`, url: `/${i % 4}?q=${i}`, rule: '942100', status: 403 };
  const base = { host: `${'ab'[i % 2]}.example`, attack: i % 7 === 0 ? 'xss' : 'sqli' };
  return i % 5 === 0
    ? { time: START, host: 'a.example', attack: 'cc' }
    : { time: START + i * 1_000, id: `r${i}`, ...base, ...details, blocked: i % 2 === 0 };
}

test('pages of pushed attacks have each once, though more arrive, and add up to the counter', async () => {
  const items: Item[] = [];
  for (let page = 1; ; page++) {
    const list = await api.getJson<List>(`waf/event?${RANGE}&pagesize=3&page=${page}`);
    if (list.items.length === 0) break;
    items.push(...list.items);
    expect([list.total, list.attacks, list.complete]).toEqual([41, 50, true]);
    await push([{ time: START + 3_600_000 + page, host: 'a.example', attack: 'lfi' }]);
  }
  expect(items).toHaveLength(41);
  expect(new Set(items.map(({ id }) => id)).size).toBe(41);
  expect(items.map(({ time }) => time)).toEqual(items.map(({ time }) => time).toSorted((a, b) => b - a));
  expect(items.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(50);
  const { attack_num } = await api.getJson<{ attack_num: number }>(`waf/event/attack/num?${RANGE}`);
  expect(attack_num).toBe(50);
});

test('the typed client reads, finds and deletes them; the CSV file has the rest', async () => {
  const { address, project, token } = api;
  const client = createClient({ url: address, projectId: project, credentials: { token } });
  const range = { from: START, to: START + 3_600_000 };
  const found = [];
  for await (const event of client.events({ ...range, sips: ['192.0.2.0/31'], nattacks: ['cc'], limit: 7 }))
    found.push(event);
  const expected = Array.from({ length: 50 }, (_, i) => i).filter((i) => i % 5 !== 0 && i % 3 !== 2);
  expect(found.map(({ id }) => id)).toEqual(expected.map((i) => `r${i}`).reverse());
  const [first] = found;
  expect(first).toMatchObject({ rule: '942100', status: '403', request_line: '/1?q=49', action: 'log' });
  expect(await client.event(first?.id ?? '')).toEqual({ total: 1, items: [first] });

  expect(await client.deleteEvents({ sips: ['192.0.2.0/31'] })).toEqual({ deleted: found.length });
  await expect(client.event(first?.id ?? '')).rejects.toMatchObject({ status: 404 });
  const after = await client.events(range);
  expect(after).toMatchObject({ total: 41 - found.length, attacks: 50, complete: false });

  const { items } = await api.getJson<{ items: { url: string; total: number }[] }>('waf/event/dump');
  const lines: string[] = [];
  for (const { url, total } of items) {
    const { pathname, search } = new URL(url);
    const file = await call(address, pathname + search, { headers: { 'X-Auth-Token': token } });
    const [, ...rows] = file.text.trimEnd().split('\r\n');
    expect(rows).toHaveLength(total);
    lines.push(...rows);
  }
  const all = await client.events({ from: START - 1, to: START + 10 * 3_600_000 });
  expect(lines).toHaveLength(all.total);
  expect(lines.filter((line) => line.includes('192.0.2.'))).toHaveLength(13);
  const unauthorized = await call(address, new URL(items[0]?.url ?? '').pathname);
  expect(unauthorized.status).toBe(401);
});

test('an ID that equals the name of a path is found', async () => {
  const { address, project, token } = api;
  const client = createClient({ url: address, projectId: project, credentials: { token } });
  for (const id of ['dump', 'timeline', '..']) {
    await expect(client.event(id)).rejects.toMatchObject({ status: 404, errorCode: 'WAF.4000' });
    const time = START - 3_600_000;
    await push([{ time, host: 'a.example', attack: 'lfi', id }]);
    expect(await client.event(id)).toMatchObject({ total: 1, items: [{ id, time, attack: 'lfi' }] });
  }
});
