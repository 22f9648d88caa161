import { expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { geoIpOf } from '../../../../test/mmdb.ts';
import type { Outcome } from './batch-reader.ts';
import { LineBlock } from './lines.ts';
import { type Limits, LinesInFuture, Pipeline, SourceLimitReached } from './pipeline.ts';
import { createReader } from './reader.ts';

const NOW = Date.UTC(2026, 6, 1);
const DAY_MS = 86_400_000;

function setUp(hostsMax = 2, limits: Partial<Limits> = {}) {
  const store = memoryStore(() => NOW);
  const pipeline = new Pipeline(store, { retentionMs: 180 * DAY_MS, hostsMax, ...limits }, () => NOW);
  const batch = { project: 'p', source: { name: 's', format: 'events' } };
  return {
    store,
    async count(...events: object[]): Promise<Outcome> {
      const lines = events.map((event, i) => ({ number: i + 1, text: JSON.stringify(event) }));
      const counted = await pipeline.count(
        pipeline.read(lines, createReader({ format: 'events' }), 'all'),
        batch,
      );
      if (counted.kind !== 'counted') throw new Error(counted.kind);
      return counted.outcome;
    },
  };
}

test('events one millisecond older than the retention time or later than a day ahead are dropped', async () => {
  const { store, count } = setUp();
  const outcome = await count(
    { time: NOW - 180 * DAY_MS },
    { time: NOW - 180 * DAY_MS - 1 },
    { time: NOW + DAY_MS },
    { time: NOW + DAY_MS + 1 },
    { time: -1 },
  );
  expect(outcome).toMatchObject({ accepted: 2, dropped: { too_old: 2, in_future: 1 } });
  expect(outcome.first_drops.map(({ line, reason }) => [line, reason])).toEqual([
    [2, 'too_old'],
    [4, 'in_future'],
    [5, 'too_old'],
  ]);
  expect((await store.sources('p'))[0]).toMatchObject({ events: 2, dropped: { too_old: 2, in_future: 1 } });
});

test('events before the horizon are dropped, whether the reader or the store notices', async () => {
  const { count } = setUp(2, { horizon: NOW - DAY_MS });
  const dropped = { accepted: 1, dropped: { too_old: 1 } };
  expect(await count({ time: NOW - DAY_MS }, { time: NOW - DAY_MS - 1 })).toMatchObject(dropped);
  const other = setUp();
  await other.store.prune(NOW - DAY_MS);
  expect(await other.count({ time: NOW - DAY_MS }, { time: NOW - DAY_MS - 1 })).toMatchObject(dropped);
});

test('attacks without a country get that of their source', async () => {
  const geo = geoIpOf({ '192.0.2.0/24': { country: { iso_code: 'DE' } } });
  const attack = { time: NOW, attack: 'sqli', source: '192.0.2.7' };
  const countries = async (limits: Partial<Limits>) => {
    const { store, count } = setUp(2, limits);
    await count(
      attack,
      { ...attack, country: 'FR' },
      { ...attack, source: '198.51.100.7' },
      { time: NOW, attack: 'xss' },
      { time: NOW },
    );
    const list = await store.top({ project: 'p', from: NOW, to: NOW + 1, list: 'countries', limit: 9 });
    return list.items.map(({ key }) => key);
  };
  expect(await countries({})).toEqual(['FR']);
  expect(await countries({ geo })).toEqual(['DE', 'FR']);
  expect(await countries({ geo, attackSources: 'prefix' })).toEqual(['DE', 'FR']);
  expect(await countries({ geo, attackSources: 'off' })).toEqual(['FR']);
});

test('a request that another log has counted is not accepted again', async () => {
  const pipeline = new Pipeline(
    memoryStore(() => NOW),
    { retentionMs: DAY_MS, hostsMax: 1 },
    () => NOW,
  );
  const text =
    '2026/06/30 23:59:59 [error] 1#1: *7 [client 192.0.2.7] ModSecurity: Access denied with code 403 (phase 2). ' +
    '[id "942100"] [tag "attack-sqli"] [uri "/"] [unique_id "7"], client: 192.0.2.7, request: "GET / HTTP/1.1"';
  const outcomes: Outcome[] = [];
  for (let i = 0; i < 2; i++) {
    const read = pipeline.read([{ number: 1, text }], createReader({ format: 'auto' }), 'all');
    const counted = await pipeline.count(read, { project: 'p', source: { name: 's', format: 'auto' } });
    if (counted.kind === 'counted') outcomes.push(counted.outcome);
  }
  expect(outcomes.map(({ accepted, dropped }) => ({ accepted, dropped }))).toEqual([
    { accepted: 1, dropped: {} },
    { accepted: 0, dropped: { same_request: 1 } },
  ]);
});

test('a project has no more sources than the limit, and its known ones stay usable', async () => {
  const store = memoryStore(() => NOW);
  const pipeline = new Pipeline(store, { retentionMs: DAY_MS, hostsMax: 1, sourcesMax: 2 }, () => NOW);
  const count = (name: string, project = 'p') =>
    pipeline.count(pipeline.read([], createReader({ format: 'events' }), 'all'), {
      project,
      source: { name, format: 'events' },
    });
  for (const name of ['a', 'b', 'a']) expect(await count(name)).toMatchObject({ kind: 'counted' });
  await expect(count('c')).rejects.toThrow(SourceLimitReached);
  expect(await count('b')).toMatchObject({ kind: 'counted' });
  expect(await count('c', 'q')).toMatchObject({ kind: 'counted' });
});

test('a line in time of another project does not show that the clock is right', async () => {
  const pipeline = new Pipeline(
    memoryStore(() => NOW),
    { retentionMs: DAY_MS, hostsMax: 1 },
    () => NOW,
  );
  const read = (time: number) =>
    pipeline.read([{ number: 1, text: JSON.stringify({ time }) }], createReader({ format: 'events' }), 'all');
  const future = read(NOW + 2 * DAY_MS);
  expect(pipeline.doubt(read(NOW), 'q')).toBeNull();
  expect(pipeline.doubt(future, 'p')).toBeInstanceOf(LinesInFuture);
  expect(pipeline.doubt(future, 'q')).toBeNull();
  expect(pipeline.doubt(read(NOW), 'p')).toBeNull();
  expect(pipeline.doubt(future, 'p')).toBeNull();
});

test('a record that ends with the lines is reported with the number of the last line', async () => {
  const pipeline = new Pipeline(
    memoryStore(() => NOW),
    { retentionMs: DAY_MS, hostsMax: 1 },
    () => NOW,
  );
  const texts = ['--5d8f3a21-A--', '[01/Jul/2026:00:00:00 +0000] 1 192.0.2.1 1 192.0.2.2 80'];
  const block = new LineBlock(Buffer.from(`${texts.join('\n')}\n`), 8);
  const lines = texts.map((text, i) => ({ number: 8 + i, text }));
  for (const given of [lines, block]) {
    const { outcome } = pipeline.read(given, createReader({ format: 'auto' }), 'all');
    const text = texts.join(' ');
    expect(outcome.first_drops).toEqual([{ line: 9, reason: 'unfinished_record', text }]);
  }
});

test('new host names are registered up to the limit; other traffic counts in the project only', async () => {
  const { store, count } = setUp(2);
  const outcome = await count(...['a', 'A:443', 'b', 'c', 'd'].map((host) => ({ time: NOW, host })));
  expect(outcome).toMatchObject({ accepted: 5, without_host: 2, unregistered_host: 2 });
  expect((await store.hosts('p')).map(({ hostname }) => hostname)).toEqual(['a', 'b']);
  const requestsOf = async (hosts?: string[]) =>
    (await store.count({ project: 'p', hosts, edges: [0, NOW + 1], rows: 'timeline' }))[0][0];
  expect(await requestsOf()).toBe(5);
  expect(await requestsOf((await store.hosts('p')).map(({ id }) => id))).toBe(3);
});

test('a registered ID wins over a name, and an unregistered one counts in the project only', async () => {
  const { store, count } = setUp();
  await store.addHost({ project: 'p', hostname: 'known', id: 'k', limit: 9 });
  const outcome = await count({ time: NOW, host_id: 'k', host: 'x' }, { time: NOW, host_id: 'nobody' });
  expect(outcome).toMatchObject({ accepted: 2, without_host: 1, unregistered_host: 1 });
  expect((await store.hosts('p')).map(({ hostname }) => hostname)).toEqual(['known']);
});

test('records without a host and records with an unregistered host are counted separately', async () => {
  const { store, count } = setUp(1);
  const outcome = await count(
    ...['a', 'b', undefined, undefined, 'x y'].map((host) => ({ time: NOW, host })),
  );
  expect(outcome).toMatchObject({ accepted: 5, without_host: 4, unregistered_host: 2 });
  expect(await store.sources('p')).toMatchObject([{ events: 5, without_host: 4 }]);
});

test('a flood of host names is resolved in one call to the store, without blocking other work', async () => {
  const store = memoryStore(() => NOW);
  const calls: number[] = [];
  const resolveHosts: typeof store.resolveHosts = async ({ hostnames }) => {
    calls.push(hostnames.length);
    return hostnames.map(() => null);
  };
  const limits = { retentionMs: DAY_MS, hostsMax: 1_000 };
  const pipeline = new Pipeline({ ...store, resolveHosts }, limits, () => NOW);
  const lines = Array.from({ length: 60_000 }, (_, i) => ({
    number: i + 1,
    text: `{"time":${NOW},"host":"${i}.flood"}`,
  }));
  const read = pipeline.read(lines, createReader({ format: 'events' }), 'all');
  let turns = 0;
  let timer = setImmediate(function count() {
    turns++;
    timer = setImmediate(count);
  });
  await pipeline.resolve(read, 'p');
  clearImmediate(timer);
  expect(calls).toEqual([60_000]);
  expect(turns).toBeGreaterThanOrEqual(12);
});

test('the first drops are returned with their text cut short', async () => {
  const { count } = setUp();
  const { first_drops, dropped } = await count(
    ...Array.from({ length: 30 }, () => ({ pad: 'x'.repeat(5_000) })),
  );
  expect(dropped).toEqual({ bad_time: 30 });
  expect(first_drops).toHaveLength(10);
  expect(first_drops[0]?.text).toHaveLength(200);
});

test.each([
  ['full', ['203.0.113.7', '2001:db8:1:2::/64']],
  ['prefix', ['203.0.113.0/24', '2001:db8:1::/48']],
  ['off', []],
] as const)('with attack sources %s the store gets %j', async (attackSources, expected) => {
  const store = memoryStore(() => NOW);
  const limits = { retentionMs: DAY_MS, hostsMax: 2, attackSources };
  const pipeline = new Pipeline(store, limits, () => NOW);
  const lines = ['203.0.113.7', '2001:DB8:1:2::3'].map((source, i) => ({
    number: i + 1,
    text: JSON.stringify({ time: NOW - 1, attack: 'sqli', source, rule: '942100' }),
  }));
  const read = pipeline.read(lines, createReader({ format: 'events' }), 'all');
  await pipeline.count(read, { project: 'p', source: { name: 's', format: 'events' } });
  const query = { project: 'p', from: NOW - 1, to: NOW, limit: 10 };
  const { items } = await store.top({ ...query, list: 'sources' });
  expect(items.map(({ key }) => key).sort()).toEqual([...expected].sort());
  expect((await store.top({ ...query, list: 'rules' })).attacks).toBe(2);
});

test('a source keeps the beginning of one dropped line per reason, without queries, unless addresses are reduced', async () => {
  const long = `192.0.2.1 GET /a?token=secret&x=1 \u202e${'é'.repeat(500)}`;
  for (const attackSources of ['full', 'prefix', 'off'] as const) {
    const store = memoryStore(() => NOW);
    const earlier = { project: 'p', source: { name: 's', format: 'events' }, events: [], dropped: {} };
    await store.append({ ...earlier, examples: { bad_attack: { text: 'old', time: NOW - 1 } } });
    const limits = { retentionMs: 180 * DAY_MS, hostsMax: 2, attackSources };
    const pipeline = new Pipeline(store, limits, () => NOW);
    const lines = [long, '{"time": 1', '{}'].map((text, i) => ({ number: i + 1, text }));
    const read = pipeline.read(lines, createReader({ format: 'events' }), 'all');
    await pipeline.count(read, { project: 'p', source: { name: 's', format: 'events' } });
    const [source] = await store.sources('p');
    expect(Object.values(source?.dropped ?? {}).reduce((a, b) => a + b)).toBe(3);
    const examples = Object.values(source?.examples ?? {});
    const reasons = ['bad_attack', ...Object.keys(source?.dropped ?? {})];
    expect(examples).toHaveLength(attackSources === 'full' ? reasons.length : 0);
    if (attackSources !== 'full') continue;
    expect(examples.map(({ time }) => time).sort()).toEqual([NOW - 1, ...examples.slice(1).map(() => NOW)]);
    expect(examples.some(({ text }) => text.startsWith('192.0.2.1 GET /a?... %E2%80%AEé'))).toBe(true);
    for (const { text } of examples) expect(Buffer.byteLength(text)).toBeLessThanOrEqual(256);
  }
});

test('the sample of a dropped native record is its start, not its last line', () => {
  const store = memoryStore(() => NOW);
  const pipeline = new Pipeline(store, { retentionMs: 999 * DAY_MS, hostsMax: 1 }, () => NOW);
  const head = '[10/Dec/2025:09:25:32 +0000] a 192.0.2.7 22387 192.0.2.1 80';
  const block = ['--622ca252-A--', head, '--622ca252-H--', 'Engine-Mode: "ENABLED"', '--622ca252-Z--'];
  const lines = new LineBlock(Buffer.from(`${block.join('\n')}\n`), 1);
  const { outcome, examples } = pipeline.read(lines, createReader({ format: 'auto' }), 'all');
  expect(outcome.first_drops).toMatchObject([{ reason: 'not_an_attack', text: `--622ca252-A-- ${head}` }]);
  expect(examples.not_an_attack?.text).toMatch(/^--622ca252-A-- \[10\/Dec\/2025/);
});
