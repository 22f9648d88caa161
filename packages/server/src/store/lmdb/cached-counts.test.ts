import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { allCounts, texts } from '../../../../../test/store-conformance/data.ts';
import { type AttackDetails, CATEGORIES } from '../../event.ts';
import { gridEdges } from '../../statistics/grid.ts';
import { UTC } from '../../zone.ts';
import type { Store } from '../store.ts';
import { lmdbStore } from './lmdb.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);
/** With 60 hosts, some queries run in slices. */
const HOSTNAMES = Array.from({ length: 60 }, (_, i) => `${i}.example`);
/** Few sets, so that queries repeat. Host 60 is unknown until one is added. */
const SETS = [[0], [60], [0, 1], [1, 0], [0, 1, 60], HOSTNAMES.map((_, i) => i), null];

/** Around now, and around the start of the range: the minutes that queries cut. */
const moment = fc
  .tuple(fc.constantFrom(0, 1, 2, 26, 30 * 24), fc.nat(90_000))
  .map(([hours, ms]) => NOW - hours * HOUR_MS - ms);
const event = fc.record({
  time: moment,
  host: fc.nat(HOSTNAMES.length),
  attack: fc.option(fc.constantFrom(...CATEGORIES)),
  count: fc.constantFrom(1, 1, 300),
  details: fc.constantFrom<(AttackDetails | undefined)[]>(
    undefined,
    { blocked: true },
    { source: '192.0.2.1', url: '/a' },
    { source: '192.0.2.2', url: '/b', rule: '1' },
  ),
});
const change = fc.oneof(
  { weight: 4, arbitrary: fc.record({ events: fc.array(event, { minLength: 1, maxLength: 60 }) }) },
  { weight: 1, arbitrary: fc.record({ prune: moment }) },
  { weight: 1, arbitrary: fc.record({ deletedHost: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ renamedHost: fc.nat(2), hostname: fc.constantFrom('a', 'b', 'c') }) },
  { weight: 1, arbitrary: fc.record({ addedHosts: fc.subarray(['a', 'b', '0.example'], { minLength: 1 }) }) },
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;
const view = fc.record({
  set: fc.constantFrom(...SETS),
  from: moment,
  length: fc.constantFrom(59_000, HOUR_MS, DAY_MS, 30 * DAY_MS),
});

test('repeated queries equal the oracle while events, hosts and the horizon change', async () => {
  const views = fc.array(view, { minLength: 3, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 3, maxLength: 6 }), views, async (changes, all) => {
      const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
      const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
      const oracle = memoryStore(() => NOW);
      const project = 'p';
      const ids: (string | null)[] = [];
      const idOf = (host: number) => ids[host] ?? 'unknown';
      const addHosts = async (hostnames: string[]) => {
        const added = await oracle.resolveHosts({ project, hostnames, limit: 100 });
        expect(await store.resolveHosts({ project, hostnames, limit: 100 })).toEqual(added);
        ids.push(...added.filter((id) => !ids.includes(id)));
      };
      const apply = async (to: Store, one: Exclude<Change, { addedHosts: string[] }>) => {
        if ('prune' in one) return to.prune(one.prune);
        if ('deletedHost' in one) return to.deleteHost({ project, id: idOf(one.deletedHost) });
        if ('renamedHost' in one)
          return to.renameHost({ project, id: idOf(one.renamedHost), hostname: one.hostname });
        const events = one.events.map(({ host, ...rest }) => ({
          ...rest,
          hostId: idOf(host),
          request: true,
        }));
        return to.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
      };
      // Repeated queries have the same array, which the store remembers.
      const arrays = new Map<string, string[]>();
      const sameArray = (hosts: string[]) => {
        const known = arrays.get(hosts.join()) ?? hosts;
        arrays.set(hosts.join(), known);
        return known;
      };
      await addHosts(HOSTNAMES);
      for (const [i, one] of changes.entries()) {
        if ('addedHosts' in one) await addHosts(one.addedHosts);
        else expect(await apply(store, one)).toEqual(await apply(oracle, one));
        // The second time, the sums of a set are cached; the range moves on.
        for (const { set, from, length } of [...all, ...all]) {
          const range = { from: from + i, to: from + i + length };
          const query = { project, hosts: set ? sameArray(set.map(idOf)) : undefined, ...range };
          expect(await resultsOf(store, query)).toEqual(await resultsOf(oracle, query));
        }
        // Last, because it renews the list of hosts, which queries keep too.
        expect(await store.hosts(project)).toEqual(await oracle.hosts(project));
      }
      await store.close();
      rmSync(directory, { recursive: true });
    }),
    { numRuns: scaled(30), endOnFailure: true },
  );
});

test('a query right after an append sees it, before any timer is due', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const events = [{ time: NOW - HOUR_MS, hostId: null, request: true, attack: null, count: 1 }];
  const range = { project: 'p', from: NOW - DAY_MS, to: NOW };
  const versions = new Set<string>();
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  try {
    for (let appended = 1; appended <= 3; appended++) {
      await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
      // The second time, the counts are cached.
      for (let i = 0; i < 2; i++) {
        const [requests] = await store.count({
          project: 'p',
          edges: [range.from, range.to],
          rows: 'timeline',
        });
        expect(requests.join()).toBe(String(appended));
      }
      versions.add(String(await store.version(range)));
    }
  } finally {
    vi.useRealTimers();
  }
  expect(versions.size).toBe(3);
  await store.close();
  rmSync(directory, { recursive: true });
});

test('a horizon that moves alone hides events from repeated queries', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const events = [{ time: NOW - HOUR_MS, hostId: null, request: true, attack: null, count: 1 }];
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
  const query = { project: 'p', edges: [NOW - DAY_MS, NOW], rows: 'timeline' } as const;
  for (let i = 0; i < 2; i++) expect((await store.count(query))[0].join()).toBe('1');
  await store.prune(NOW - 1, { freeBefore: 0, topListsBefore: 0 });
  expect((await store.count(query))[0].join()).toBe('0');
  await store.close();
  rmSync(directory, { recursive: true });
});

test('one array of hosts selects the hosts of each project', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const hosts = ['same'];
  for (const [project, count] of [
    ['p', 1],
    ['q', 2],
  ] as const) {
    await store.addHost({ project, id: 'same', hostname: 'a.example', limit: 9 });
    const events = [{ time: NOW - 1, hostId: 'same', request: true, attack: null, count }];
    await store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
  }
  for (let i = 0; i < 3; i++) {
    const countsOf = async (project: string) =>
      (await store.count({ project, hosts, edges: [NOW - 9, NOW], rows: 'timeline' }))[0].join();
    expect([await countsOf('p'), await countsOf('q')]).toEqual(['1', '2']);
  }
  await store.close();
  rmSync(directory, { recursive: true });
});

test('ranges that begin together and end apart have their own counts', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const start = Math.floor(NOW / DAY_MS) * DAY_MS;
  const event = { hostId: null, request: true, attack: null, count: 1 };
  const events = [0, 1, 2].map((hours) => ({ ...event, time: start + hours * HOUR_MS }));
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
  for (const hours of [1, 2, 3, 2, 1]) {
    const edges = [start, start + hours * HOUR_MS];
    expect((await store.count({ project: 'p', edges, rows: 'timeline' }))[0].join()).toBe(String(hours));
  }
  await store.close();
  rmSync(directory, { recursive: true });
});

test('a deleted host no longer counts among hosts that were selected before', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const ids = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b'], limit: 9 });
  const hosts = ids.map((id) => id ?? '');
  const event = { time: NOW - HOUR_MS, request: true, attack: null, count: 1 };
  const events = hosts.map((hostId) => ({ ...event, hostId }));
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
  const query = { project: 'p', hosts, edges: [NOW - DAY_MS, NOW], rows: 'timeline' } as const;
  for (let i = 0; i < 2; i++) expect((await store.count(query))[0].join()).toBe('2');
  await store.deleteHost({ project: 'p', id: hosts[0] ?? '' });
  expect((await store.count(query))[0].join()).toBe('1');
  await store.close();
  rmSync(directory, { recursive: true });
});

test('attacks of a deleted host are not found in the cache, though their chunk has not changed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const project = 'p';
  const ids = await store.resolveHosts({ project, hostnames: ['a', 'b'], limit: 9 });
  const [a = '', b = ''] = ids.map((id) => id ?? '');
  const attack = { time: NOW - HOUR_MS, request: true, attack: 'xss' as const, count: 1 };
  const events = [a, b].map((hostId) => ({ ...attack, hostId }));
  await store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
  const query = { project, edges: [NOW - DAY_MS, NOW], rows: 'attacks', byHost: true } as const;
  for (let i = 0; i < 2; i++) expect((await store.count(query)).size).toBe(2);
  await store.deleteHost({ project, id: a });
  // Finds the chunk unchanged.
  const left = new Map([[b, [Float64Array.of(1)]]]);
  expect(await store.count({ ...query, hosts: [b] })).toEqual(left);
  expect(await store.count(query)).toEqual(left);
  await store.close();
  rmSync(directory, { recursive: true });
});

test('a top list of a host that is deleted while its hours are merged is not cached', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const project = 'p';
  const [id] = await store.resolveHosts({ project, hostnames: ['a'], limit: 9 });
  const hostId = id ?? '';
  // So many that the merge takes several turns of the event loop.
  const events = Array.from({ length: 200 * 100 }, (_, i) => ({
    time: NOW - 2 * HOUR_MS - (i % 200) * HOUR_MS,
    hostId,
    request: true,
    attack: 'xss' as const,
    count: 1,
    details: { url: `/${i}` },
  }));
  await store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
  const query = {
    project,
    hosts: [hostId],
    from: NOW - 30 * DAY_MS,
    to: NOW,
    list: 'urls',
    limit: 5,
  } as const;
  let isMerged = false;
  const merging = store.top(query).then(() => {
    isMerged = true;
  });
  await setImmediate();
  await store.deleteHost({ project, id: hostId });
  expect(isMerged).toBe(false);
  await merging;
  expect(await store.top(query)).toMatchObject({ attacks: 0, items: [] });
  await store.close();
  rmSync(directory, { recursive: true });
});

const NEWEST = { filter: { include: {}, exclude: {} }, isAscending: false, offset: 0, limit: 20 };

test('kept attacks are found after those of the hour before were merged', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
  const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const project = 'p';
  // The hour before is in another chunk.
  const hour = 12;
  for (const [i, minutes] of [-3, -2, -1, 1].entries()) {
    const time = Date.UTC(2026, 6, 1, hour, minutes);
    const attack = { time, hostId: null, request: false, attack: 'xss' as const, count: 1, details: {} };
    await store.append({ project, source: { name: 's', format: 'events' }, events: [attack], dropped: {} });
    const { items } = await store.attacks({ project, from: NOW - DAY_MS, to: NOW, ...NEWEST });
    expect(items).toHaveLength(i + 1);
  }
  await store.close();
  rmSync(directory, { recursive: true });
});

async function resultsOf(
  store: Store,
  { project, hosts, from, to }: { project: string; hosts: string[] | undefined; from: number; to: number },
) {
  const grid = await store.count({ project, hosts, edges: gridEdges(from, to, UTC), rows: 'timeline' });
  return {
    ...(await allCounts(store, { project, hosts, edges: [from, from + Math.floor((to - from) / 3), to] })),
    grid: texts(grid),
    attacks: await store.attacks({ project, hosts, from, to, ...NEWEST }),
    sources: await store.top({ project, hosts, from, to, list: 'sources', limit: 1 }),
    urls: await store.top({ project, hosts, from, to, list: 'urls', limit: 2 }),
    urlsOfCategory: await store.top({
      project,
      hosts,
      from,
      to,
      list: 'urls',
      limit: 2,
      categories: ['xss'],
    }),
    urlsOfNoCategory: await store.top({ project, hosts, from, to, list: 'urls', limit: 2, categories: [] }),
  };
}
