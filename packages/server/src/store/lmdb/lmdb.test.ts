import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { durableStoreConformance } from '../../../../../test/store-conformance.ts';
import type { Event } from '../../event.ts';
import { additionsOf, FIRST_PEAK, mergeCells, readCells, seriesOf } from '../cells.ts';
import { RecordWriter } from '../record-bytes.ts';
import { STEP_BY_STEP } from '../slices.ts';
import { type LimitOptions, QueryTooLarge, type Store } from '../store.ts';
import { appendGroup } from './append.ts';
import { dumpAttacks, eraseAttacks } from './attacks.ts';
import { createCounter, createLookups } from './count.ts';
import { createHostLists } from './host-lists.ts';
import { lmdbStore } from './lmdb.ts';
import { createPeakFinder } from './peaks.ts';
import { repairStatistics } from './repair.ts';
import {
  addChecksum,
  CHECKSUM_BYTES,
  cellsSeed,
  openSchema,
  type ProjectRecord,
  reopenSchema,
} from './schema.ts';
import { createTopFinder } from './top-lists.ts';
import { verifyStatistics } from './verify.ts';

durableStoreConformance('the embedded store', open);

async function open(now: () => number, limits?: LimitOptions) {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-store-'));
  const path = join(directory, 'statistics.mdb');
  const openFile = () => lmdbStore(path, now, limits);
  let store = openFile();
  return {
    directory,
    store,
    another: openFile,
    async reopen() {
      await store.close();
      store = openFile();
      return store;
    },
    async destroy() {
      await store.close();
      rmSync(directory, { recursive: true });
    },
  };
}

describe('the embedded store', () => {
  const NOW = Date.UTC(2026, 6, 1);
  const LIMITS = { topKeys: 100, requestsMax: 100, eventsMax: 100 };
  const DAY_MS = 86_400_000;
  const HOUR_MS = 3_600_000;
  const batch = {
    project: 'p',
    source: { name: 'test', format: 'events' },
    id: 'x',
    link: { after: '', bytes: 1, firstLineHash: '', readerState: '', siblings: [] },
    events: [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }],
    dropped: {},
  };

  test('copies of a file, however made, never have the same version after different changes', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const hosts = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b'], limit: 2 });
    await store.append(batch);
    const range = { project: 'p', from: NOW - HOUR_MS, to: NOW + HOUR_MS };
    const empty = { project: 'p', from: NOW - 99 * DAY_MS, to: NOW - 98 * DAY_MS };
    const before = [await store.version(range), await store.version(empty)];
    await store.close();
    const after = async (number: number, change: (copy: Store) => Promise<unknown>) => {
      const path = join(directory, `copy-${number}.mdb`);
      copyFileSync(join(directory, 'statistics.mdb'), path);
      const copy = lmdbStore(path, () => NOW);
      expect([await copy.version(range), await copy.version(empty)]).toEqual(before);
      await change(copy);
      const versions = [await copy.version(range), await copy.version(empty)];
      await copy.close();
      return versions;
    };
    const { id: _, link: _link, ...next } = batch;
    const count = (requests: number) => (copy: Store) =>
      copy.append({ ...next, events: next.events.map((event) => ({ ...event, count: requests })) });
    const counted = [await after(1, count(2)), await after(2, count(3))];
    expect(new Set([before, ...counted].map(([version]) => version)).size).toBe(3);
    expect(counted.map(([, version]) => version)).toEqual([before[1], before[1]]);
    const remove = (id: string) => (copy: Store) => copy.deleteHost({ project: 'p', id });
    const removed = [await after(3, remove(hosts[0] ?? '')), await after(4, remove(hosts[1] ?? ''))];
    expect(new Set([before, ...removed].flat()).size).toBe(6);
    await destroy();
  });

  test('names beyond the limit of a full project are not written', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const resolve = (...hostnames: string[]) => store.resolveHosts({ project: 'p', hostnames, limit: 2 });
    await resolve('a', 'b');
    const before = readFileSync(join(directory, 'statistics.mdb'));
    expect(await resolve('c', 'd', 'a')).toEqual([null, null, (await resolve('a'))[0]]);
    expect(readFileSync(join(directory, 'statistics.mdb')).equals(before)).toBe(true);
    await destroy();
  });

  test('more new names than fit in one transaction are registered in their order', async () => {
    const { store, destroy } = await open(() => NOW);
    const hostnames = Array.from({ length: 2_600 }, (_, i) => `${i}.example`);
    const ids = await store.resolveHosts({ project: 'p', hostnames, limit: 2_500 });
    expect(ids.map((id) => id !== null)).toEqual(hostnames.map((_, i) => i < 2_500));
    const known = new Map((await store.hosts('p')).map(({ hostname, id }) => [hostname, id]));
    expect(ids).toEqual(hostnames.map((hostname) => known.get(hostname) ?? null));
    await destroy();
  });

  test('a prune frees every record before the horizon', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const events = Array.from({ length: 5_000 }, (_, i) => ({ ...batch.events[0], time: NOW - i * 60_000 }));
    await store.append({ ...batch, events: events as Event[] });
    await store.prune(NOW + 100 * DAY_MS);
    await store.close();
    const { root, cells } = openSchema(join(directory, 'statistics.mdb'));
    expect(cells.getCount()).toBe(0);
    await root.close();
    await destroy();
  });

  test('erasing and copying attacks read only the hours that have some', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const events = [0, 3_000 * DAY_MS].map(
      (ago): Event => ({ time: NOW - ago, hostId: null, request: true, attack: 'xss', count: 1 }),
    );
    await store.append({ ...batch, events });
    await store.close();
    const schema = openSchema(join(directory, 'statistics.mdb'));
    const searches = vi.spyOn(schema.attacks, 'getKeys');
    const project = schema.projects.get('p') as ProjectRecord;
    expect([...dumpAttacks(schema, project)]).toHaveLength(2);
    const write = async (action: () => void) => schema.root.transactionSync(action);
    expect(await eraseAttacks(schema, project, { include: {}, exclude: {} }, write)).toBe(2);
    expect([...dumpAttacks(schema, project)]).toEqual([]);
    expect(searches.mock.calls.length).toBeLessThan(20);
    await schema.root.close();
    await destroy();
  });

  test('verify reports peaks that are missing, and repair adds them', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const path = join(directory, 'statistics.mdb');
    await store.append({ ...batch, events: [{ ...(batch.events[0] as Event), count: 3 }] });
    await store.close();
    await removeSeries(path, FIRST_PEAK);
    const { findings } = await verifyStatistics(path);
    expect(findings.map(({ problem }) => problem)).toEqual([
      'peak of ACCESS: 0 at level 2, but 3 at level 3',
    ]);
    const { repaired, lost } = await repairStatistics(path);
    expect([repaired, lost]).toEqual([3, []]);
    expect((await verifyStatistics(path)).problems).toBe(0);
    await destroy();
  });

  test('verify finds nothing wrong with sums of bytes at their limit', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const ids = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b'], limit: 2 });
    for (const [i, hostId] of [...ids.values(), null].entries()) {
      const event = { time: NOW, hostId, request: true, attack: null, count: 1, bytesIn: 2 ** 53 - 1 };
      const events = [event, { ...event, time: NOW + 60_000 }];
      await store.append({ ...batch, id: `${i}`, events });
    }
    await store.close();
    expect((await verifyStatistics(join(directory, 'statistics.mdb'))).findings).toEqual([]);
    await destroy();
  });

  test('a query for the busiest seconds is refused if it would read too many records or bytes', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const ids = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b'], limit: 2 });
    // Together the hosts could have a peak of 2, so each of the 45 minutes has to be read.
    const events = Array.from({ length: 135 }, (_, i): Event => {
      const time = NOW - 60_000 * Math.floor(i / 3 + 1) + 1_700 * (i % 3);
      const hostId = ids[i % 3] ?? null;
      return { time, hostId, request: true, attack: null, count: hostId === null ? 2 : 1 };
    });
    await store.append({ ...batch, events });
    await store.close();
    const schema = openSchema(join(directory, 'statistics.mdb'));
    const peaks = async (records: number, bytes: number, hosts?: string[]) => {
      const finder = createPeakFinder(schema, createLookups(schema), { records, bytes });
      return (await finder('p', hosts, [NOW - DAY_MS, NOW]))[0]?.[0];
    };
    const both = ids as string[];
    // Of each host and the project, a record of hours, quarters and minutes; for each host and minute, two records.
    expect(await peaks(189, 20_000, both)).toBe(1);
    await expect(peaks(188, 20_000, both)).rejects.toThrow(QueryTooLarge);
    await expect(peaks(188, 20_000, both)).rejects.toThrow(/select fewer hosts or a shorter range/);
    await expect(peaks(189, 1_000, both)).rejects.toThrow(QueryTooLarge);
    expect(await peaks(5, 2_000, both.slice(1))).toBe(1);
    expect(await peaks(5, 2_000)).toBe(2);
    await schema.root.close();
    await destroy();
  });

  test('a batch that cannot be stored does not fail the others of its group', async () => {
    const { store, destroy } = await open(() => NOW);
    const { link: _, ...good } = batch;
    const bad = { ...good, id: 'bad', events: batch.events.map((event) => ({ ...event, count: 0 })) };
    const outcomes = await Promise.allSettled([store.append(good), store.append(bad)]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    const [requests] = await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect([...requests]).toEqual([1]);
    expect((await store.sources('p'))[0]?.events).toBe(1);
    await destroy();
  });

  test('a query over many hosts yields to the event loop', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const hosts: string[] = [];
    for (let i = 0; i < 600; i++) {
      const added = await store.addHost({ project: 'p', hostname: `h${i}`, limit: 600 });
      if ('host' in added) hosts.push(added.host.id);
    }
    const events = hosts.map((hostId) => ({
      time: NOW - 1,
      hostId,
      request: true,
      attack: 'sqli' as const,
      count: 1,
    }));
    await store.append({ project: 'p', source: batch.source, events, dropped: {} });
    await store.close();
    const schema = openSchema(join(directory, 'statistics.mdb'));
    // Every reading of the clock ends a slice.
    const lookups = createLookups(schema);
    const counter = createCounter(schema, lookups, createHostLists(schema, lookups), STEP_BY_STEP);
    const count = (ids: string[]) =>
      counter({ project: 'p', hosts: ids, edges: [from, NOW], rows: 'timeline' });
    let turns = 0;
    let isDone = false;
    const watch = () => {
      turns++;
      if (!isDone) setImmediate(watch);
    };
    setImmediate(watch);
    const from = NOW - DAY_MS + 1;
    expect(await count(hosts)).toEqual([Float64Array.of(600), Float64Array.of(600)]);
    const turnsAlone = turns;
    expect(turnsAlone).toBeGreaterThan(20);
    // Two queries take turns, so that together they block others no longer than one.
    turns = 0;
    const both = [count(hosts.slice(1)), count(hosts.slice(2))];
    expect(await Promise.all(both)).toEqual([599, 598].map((n) => [Float64Array.of(n), Float64Array.of(n)]));
    expect(turns).toBeGreaterThan(1.8 * turnsAlone);
    turns = 0;
    const all = await counter({ project: 'p', edges: [from, NOW], rows: 'attacks', byHost: true });
    expect(all).toEqual(new Map(hosts.map((id) => [id, [Float64Array.of(1)]])));
    expect(turns).toBeGreaterThan(20);
    isDone = true;
    await schema.root.close();
    await destroy();
  });

  test('a record of top lists has the bytes in docs/storage.md', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const [hostId = null] = await store.resolveHosts({ project: 'p', hostnames: ['a.example'], limit: 1 });
    const details = { source: '203.0.113.7', url: '/a' };
    const time = Date.UTC(2026, 6, 1, 12, 34);
    const attack: Event = { time, hostId, request: true, attack: 'sqli', count: 1, details };
    await store.append({ ...batch, events: [attack] });
    await store.close();
    const { root, topLists } = openSchema(join(directory, 'statistics.mdb'));
    const records = [...topLists.getRange()].map(({ key, value }) => [
      key.toString('hex'),
      value.subarray(4).toString('hex'),
    ]);
    await root.close();
    const page = readFileSync(new URL('../../../../../docs/storage.md', import.meta.url), 'utf8');
    const [, key = '', bytes = ''] = /has the key `([^`]+)` and the value\n+```\n([^`]+)```/.exec(page) ?? [];
    expect(records).toEqual([[key, bytes].map((text) => text.replace(/\s/g, ''))]);
    await destroy();
  });

  test('a list of more summaries than a query may read covers the last hours only', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    const hosts = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b', 'c'], limit: 3 });
    const events = Array.from({ length: 300 }, (_, i): Event => {
      const details = { source: `10.0.0.${i}`, url: `/${'x'.repeat(250)}` };
      const [time, hostId = null] = [NOW - Math.floor(i / 3) * HOUR_MS, hosts[i % 3]];
      return { time, hostId, request: true, attack: 'xss', count: 1, details };
    });
    await store.append({ ...batch, events });
    await store.close();
    const schema = openSchema(join(directory, 'statistics.mdb'));
    const list = 'sources' as const;
    const query = { project: 'p', list, limit: 1, from: NOW - 30 * DAY_MS, to: NOW + 1 };
    const finder = (bytesMax?: number) => createTopFinder(schema, createLookups(schema), bytesMax);
    expect(await finder()(query)).toMatchObject({
      attacks: 300,
      from: Math.floor(query.from / HOUR_MS) * HOUR_MS,
    });
    const find = finder(5_000);
    for (const selected of [undefined, hosts as string[], hosts.slice(1) as string[]]) {
      const { attacks, from, shortened } = await find({ ...query, hosts: selected });
      expect(shortened).toBe(true);
      const hours = Math.floor(NOW / HOUR_MS) + 1 - from / HOUR_MS;
      expect(hours).toBeGreaterThan(20);
      expect(hours).toBeLessThan(90);
      expect(attacks).toBe(hours * (selected?.length ?? 3));
      // The part that it covers is a result of its own.
      expect(await find({ ...query, hosts: selected, from })).toEqual(
        expect.not.objectContaining({ shortened: true }),
      );
    }
    await expect(finder(40)(query)).rejects.toThrow(QueryTooLarge);
    await schema.root.close();
    await destroy();
  });

  test('late attacks of other projects do not change the merged top lists of a project', async () => {
    const { directory, store, another, destroy } = await open(() => NOW);
    const at = (project: string, hoursAgo: number, source: string) => ({
      ...{ project, source: batch.source, dropped: {} },
      events: Array.from({ length: 300 }, (_, i): Event => {
        const time = NOW - (i + hoursAgo) * HOUR_MS;
        return { time, hostId: null, request: true, attack: 'xss', count: 1, details: { source } };
      }).slice(0, hoursAgo === 0 ? 300 : 1),
    });
    await store.append(at('p', 0, '10.0.0.1'));
    await store.close();
    const writer = another();
    const schema = openSchema(join(directory, 'statistics.mdb'));
    const reads = vi.spyOn(schema.topLists, 'getBinaryFast');
    const lookups = createLookups(schema);
    const find = createTopFinder(schema, lookups);
    const query = { project: 'p', list: 'sources' as const, limit: 1, from: NOW - 15 * DAY_MS, to: NOW + 1 };
    const readsOf = async (attacks: number) => {
      lookups.changes.renew();
      reads.mockClear();
      expect(await find(query)).toMatchObject({ attacks });
      return reads.mock.calls.length;
    };
    expect(await readsOf(300)).toBeGreaterThan(300);
    // The hour after the base.
    expect(await readsOf(300)).toBe(1);
    await writer.append(at('q', 50, '10.0.0.2'));
    // Only the hours of four days are compared.
    const afterChange = await readsOf(300);
    expect(afterChange).toBeGreaterThan(1);
    expect(afterChange).toBeLessThan(100);
    await writer.append(at('p', 50, '10.0.0.2'));
    expect(await readsOf(301)).toBeGreaterThan(290);
    await writer.deleteDetails('q');
    expect(await readsOf(301)).toBeLessThan(100);
    await schema.root.close();
    await writer.close();
    await destroy();
  });

  test('top lists are copied in parts of bounded size, those of the project after its hosts', async () => {
    const { store, destroy } = await open(() => NOW);
    const hosts = await store.resolveHosts({ project: 'p', hostnames: ['a', 'b', 'c'], limit: 3 });
    const details = Array.from({ length: 400 }, (_, i) => ({ url: `/${i}/${'x'.repeat(250)}` }));
    for (let hour = 0; hour < 20; hour++) {
      const events = details.map((each, i): Event => {
        const time = NOW - hour * HOUR_MS;
        return { time, hostId: hosts[i % 3] ?? null, request: true, attack: 'xss', count: 1, details: each };
      });
      await store.append({ project: 'p', source: batch.source, dropped: {}, events });
    }
    const parts = [];
    for await (const part of store.transfer.topSlices('p')) parts.push(part);
    const bytes = parts.map((part) => part.reduce((sum, { record }) => sum + record.length, 0));
    expect(Math.max(...bytes)).toBeLessThan(4.3 * 1_024 * 1_024);
    expect(bytes.length).toBeGreaterThan(Math.floor(bytes.reduce((a, b) => a + b) / (4.3 * 1_024 * 1_024)));
    const slices = parts.flat();
    expect(slices).toHaveLength(20 * 4);
    expect(slices.map(({ hostId }) => hostId === null)).toEqual(slices.map((_, i) => i >= 20 * 3));
    await destroy();
  });

  test.each(['counts', 'peaks'])('a query reads cached and new %s of one snapshot', async (what) => {
    const { directory, store, destroy } = await open(() => NOW);
    const hour = (days: number) => Math.floor(NOW / 3_600_000 - days * 24) * 3_600_000;
    const [first = 0, second = 0] = [40, 5].map(hour);
    const { link: _, ...rest } = batch;
    const [event] = batch.events;
    const events = [first, second].flatMap((time) => (event ? { ...event, time } : []));
    await store.append({ ...rest, id: 'both', events });
    await store.close();
    const schema = openSchema(join(directory, 'statistics.mdb'));
    const lookups = createLookups(schema);
    const counter = createCounter(schema, lookups, createHostLists(schema, lookups));
    const findPeaks = createPeakFinder(schema, lookups);
    const count = async (edges: number[]) =>
      what === 'counts'
        ? await counter({ project: 'p', edges, rows: 'groups' })
        : await findPeaks('p', undefined, edges);
    expect(await count([first, first + 3_600_000, first + 7_200_000])).toMatchObject({
      0: Float64Array.of(1, 0),
    });
    const before = lookups.changes.get();
    // Like an append by another process: the change counter that was read before is still cached.
    schema.root.transactionSync(() => appendGroup(schema, [{ ...rest, id: 'again', events }], NOW, LIMITS));
    expect(lookups.changes.get()).toBe(before);
    const edges = [first, first + 3_600_000, second, second + 3_600_000];
    expect(await count(edges)).toMatchObject({ 0: Float64Array.of(2, 0, 2) });
    // Whoever compares the counter notices that these counts are newer.
    expect(lookups.changes.get()).toBeGreaterThan(before);
    await schema.root.close();
    await destroy();
  });

  test('a file that is reopened during use has the same counts, and accepts more', async () => {
    const { directory, store, destroy } = await open(() => NOW);
    await store.append(batch);
    await store.close();
    const path = join(directory, 'statistics.mdb');
    const schema = openSchema(path);
    const lookups = createLookups(schema);
    const counter = createCounter(schema, lookups, createHostLists(schema, lookups));
    const count = () => counter({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect(await count()).toMatchObject({ 0: Float64Array.of(1) });
    await reopenSchema(schema, path);
    expect(await count()).toMatchObject({ 0: Float64Array.of(1) });
    const { link: _, ...more } = { ...batch, id: 'more' };
    schema.root.transactionSync(() => appendGroup(schema, [more], NOW, LIMITS));
    lookups.changes.forget();
    expect(await count()).toMatchObject({ 0: Float64Array.of(2) });
    await schema.root.close();
    await destroy();
  });

  test('a file of an unknown storage version is refused', async () => {
    const { directory, store } = await open(() => NOW);
    await store.close();
    const path = join(directory, 'statistics.mdb');
    const { root, version } = openSchema(path);
    await version.put('version', 99);
    await root.close();
    expect(() => openSchema(path)).toThrow(
      /storage version 99, but this release reads version 7: use a newer release/,
    );
    rmSync(directory, { recursive: true });
  });

  test('a query over many hosts reads one snapshot while more is counted', async () => {
    const { store, destroy } = await open(() => NOW);
    const hosts: string[] = [];
    for (let i = 0; i < 300; i++) {
      const added = await store.addHost({ project: 'p', hostname: `h${i}`, limit: 300 });
      if ('host' in added) hosts.push(added.host.id);
    }
    // One event on every host at once, on different days: a torn result is not a multiple of 300.
    const round = (day: number) =>
      store.append({
        project: 'p',
        source: batch.source,
        events: hosts.map((hostId) => ({
          time: NOW - day * DAY_MS - 1_234,
          hostId,
          request: true,
          attack: 'sqli',
          count: 1,
        })),
        dropped: {},
      });
    for (let day = 0; day < 60; day += 5) await round(day);
    const range = { project: 'p', hosts, from: NOW - 70 * DAY_MS + 77, to: NOW };
    const total = async (ids: string[]) => {
      const edges = [range.from, range.to];
      const rows = await store.count({ project: 'p', hosts: ids, edges, rows: 'categories' });
      return rows.reduce((sum, [n = 0]) => sum + n, 0);
    };
    const appends: Promise<unknown>[] = [];
    for (let i = 0; i < 12; i++) {
      appends.push(round(5 * i));
      const [sum, [, attacks]] = await Promise.all([
        total(hosts),
        store.count({
          ...range,
          edges: Array.from({ length: 71 }, (_, day) => range.from + day * DAY_MS - 77),
          rows: 'timeline',
        }),
      ]);
      expect(sum % 300).toBe(0);
      expect([...attacks].every((n) => n % 300 === 0)).toBe(true);
      expect(sum).toBeGreaterThanOrEqual(12 * 300);
    }
    await Promise.all(appends);
    expect(await total(hosts)).toBe(24 * 300);
    // A query that runs while the store is closed completes.
    const last = total(hosts.slice(1));
    await store.close();
    expect(await last).toBe(24 * 299);
    await destroy();
  });
});

async function removeSeries(path: string, first: number): Promise<void> {
  const { root, cells } = openSchema(path);
  const writer = new RecordWriter();
  for (const { key, value } of [...cells.getRange()]) {
    const [level, chunk, scope] = [key[0] ?? 0, key.readUInt32BE(1), key.readUInt32BE(5)];
    if (scope === 0) continue;
    const old = [...readCells(value.subarray(CHECKSUM_BYTES))].filter(([code]) => seriesOf(code) < first);
    mergeCells(undefined, additionsOf(new Map(old)), writer);
    cells.putSync(key, addChecksum(writer.withHead(), cellsSeed(level, chunk, scope)));
  }
  await root.close();
}
