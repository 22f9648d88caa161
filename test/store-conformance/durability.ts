/** For stores that outlive their process: other processes, reopening, and batches that retention deletes. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { gridEdges } from '../../packages/server/src/statistics/grid.ts';
import { HOUR_MS } from '../../packages/server/src/store/store.ts';
import { OffsetZone } from '../../packages/server/src/zone.ts';
import { memoryStore } from '../memory-store.ts';
import {
  addHosts,
  attackWithDetails,
  batch,
  batches,
  DAY_MS,
  drawnAt,
  event,
  expectSameResults,
  expectSameTopLists,
  NOW,
  type RandomEvent,
  randomQuery,
  randomTopQuery,
} from './data.ts';
import type { DurableSuite } from './suite.ts';

export function durabilityTests({ create, runs }: DurableSuite): void {
  test('other processes see what one process counts, whatever they queried before', async () => {
    const { store, another, destroy } = await create(() => NOW);
    const other = another();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(batches, randomQuery, async (drawn, query) => {
        const project = `p${run++}`;
        const oracle = memoryStore(() => NOW);
        const ids = await addHosts(store, project);
        await addHosts(oracle, project);
        for (const [i, events] of drawn.entries()) {
          await (i % 3 === 0 ? other : store).append(batch(project, ids, events));
          await oracle.append(batch(project, ids, events));
          await snapshotsEnd();
          await expectSameResults(other, oracle, project, ids, [query]);
          await expectSameResults(store, oracle, project, ids, [query]);
        }
      }),
      { numRuns: runs(60) },
    );
    await other.close();
    await destroy();
  });

  test('versions are the same in all processes, also after a rename', async () => {
    const { store, another, destroy } = await create(() => NOW);
    const ids = await addHosts(store, 'p');
    const id = ids[0] ?? '';
    await store.append(batch('p', ids, [drawnAt(NOW - 5)]));
    const range = { project: 'p', from: NOW - 9, to: NOW };
    const sameVersion = async () => {
      const other = another();
      const version = await store.version(range);
      expect(await other.version(range)).toBe(version);
      await other.close();
      return version;
    };
    const before = await sameVersion();
    await store.renameHost({ project: 'p', id, hostname: 'new.example' });
    await sameVersion();
    await store.deleteHost({ project: 'p', id });
    expect(await sameVersion()).not.toBe(before);
    await destroy();
  });

  test('resolving a flood of names in a full project finds the known ones and yields to the event loop', async () => {
    const { store, another, destroy } = await create(() => NOW);
    const [id = null] = await store.resolveHosts({ project: 'p', hostnames: ['known'], limit: 1 });
    const hostnames = Array.from({ length: 60_000 }, (_, i) => (i % 20_000 === 7 ? 'known' : `${i}.flood`));
    let turns = 0;
    let timer = setImmediate(function count() {
      turns++;
      timer = setImmediate(count);
    });
    const ids = await store.resolveHosts({ project: 'p', hostnames, limit: 1 });
    clearImmediate(timer);
    expect(ids.flatMap((found, i) => (found === null ? [] : [[i, found]]))).toEqual([
      [7, id],
      [20_007, id],
      [40_007, id],
    ]);
    expect(turns).toBeGreaterThanOrEqual(10);
    expect(await store.hosts('p')).toHaveLength(1);
    const other = another();
    expect(await other.resolveHosts({ project: 'p', hostnames: ['0.flood', 'known'], limit: 1 })).toEqual([
      null,
      id,
    ]);
    await other.close();
    await destroy();
  });

  test('other processes see the top lists of what one process counts', async () => {
    const { store, another, destroy } = await create(() => NOW);
    const other = another();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const queries = fc.sample(randomTopQuery, { numRuns: 10, seed: 9 });
    for (let i = 0; i < 6; i++) {
      const events = fc.sample(attackWithDetails, { numRuns: 20, seed: i });
      await (i % 3 === 0 ? other : store).append(batch('p', ids, events));
      await oracle.append(batch('p', ids, events));
      await snapshotsEnd();
      for (const each of [store, other]) await expectSameTopLists(each, oracle, 'p', ids, queries);
    }
    await other.close();
    await destroy();
  });

  test('error pages keep their bounds if batches have lost some, and there are more than fit', async () => {
    const { store, destroy } = await create(() => NOW);
    const [id = ''] = await addHosts(store, 'p');
    const truth = new Map<string, number>();
    const hour = Math.floor(NOW / HOUR_MS);
    const random = fc.sample(fc.nat(200), { numRuns: 40 * 50, seed: 6 });
    for (let i = 0; i < 40; i++) {
      const hostId = i % 2 ? id : null;
      const counts = new Map<string, number>();
      for (const n of random.slice(50 * i, 50 * (i + 1))) {
        const path = `/${Math.min(n, (n * n) % 71)}`;
        counts.set(path, (counts.get(path) ?? 0) + 1);
        truth.set(`${hostId} ${path}`, (truth.get(`${hostId} ${path}`) ?? 0) + 1);
      }
      // As in Misra and Gries, all lose one.
      const paths = new Map([...counts].filter(([, n]) => n > 1).map(([path, n]) => [path, n - 1]));
      const pages = [{ hour, hostId, code: 0, paths, lost: counts.size, error: 1 }];
      const events = [{ ...drawnAt(NOW), count: 50, status: 404, hostId }];
      await store.append({ ...batch('p', [], []), events, pages });
    }
    const range = { from: NOW, to: NOW + 1, limit: 1_000 };
    for (const hosts of [undefined, [id]]) {
      const query = { project: 'p', list: 'pages' as const, hosts, ...range };
      const list = await store.top({ ...query, codes: [404] });
      expect(list).toMatchObject({ attacks: hosts ? 1_000 : 2_000, distinctIs: 'minimum' });
      expect(list.error).toBeLessThanOrEqual(20 + 2_000 / 33);
      const found = new Map(list.items.map((item) => [`${item.hostId} ${item.key}`, item]));
      for (const [key, count] of hosts ? [...truth].filter(([each]) => each.startsWith(id)) : truth) {
        const item = found.get(key) ?? { count: 0, error: list.error };
        expect(item.count).toBeLessThanOrEqual(count);
        expect(item.count + item.error).toBeGreaterThanOrEqual(count);
      }
      expect((await store.top({ ...query, codes: [500] })).attacks).toBe(0);
    }
    await destroy();
  });

  test('a flood of values is bounded, and does not hide the top attacker', async () => {
    const { store, destroy } = await create(() => NOW, { topKeys: 100 });
    const details = (source: string) => ({ source, url: `/${source}` });
    const attacks = Array.from({ length: 5_000 }, (_, i): RandomEvent => {
      const source = i % 20 === 7 ? '203.0.113.7' : `10.0.${i >> 8}.${i & 255}`;
      return { ...drawnAt(NOW - (i % 1_000)), attack: 'sqli', details: details(source) };
    });
    for (let i = 0; i < 5; i++) await store.append(batch('p', [], attacks.slice(i * 1_000, (i + 1) * 1_000)));
    const query = { project: 'p', list: 'sources' as const, from: NOW - 1_000, to: NOW + 1, limit: 1_000 };
    const list = await store.top(query);
    expect(list).toMatchObject({ attacks: 5_000, distinctIs: 'estimate' });
    expect(Math.abs(list.distinct / 4_751 - 1)).toBeLessThan(0.07);
    expect(list.items).toHaveLength(100);
    expect(list.items[0]).toMatchObject({ key: '203.0.113.7', count: 250, error: 0 });
    const slices = [];
    for await (const part of store.transfer.topSlices('p')) slices.push(...part);
    expect(slices).toMatchObject([{ hostId: null, hour: Math.floor(NOW / HOUR_MS) }]);
    expect(slices[0]?.record.length).toBeLessThan(2 * (2_100 + 100 * 40));
    await destroy();
  });

  test('reopening changes nothing', async () => {
    const { store, reopen, destroy } = await create(() => NOW);
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(event, { numRuns: 300, seed: 3 });
    const first = {
      ...batch('p', ids, drawn),
      id: 'x',
      link: { after: '', bytes: 5, firstLineHash: '', readerState: '', siblings: [] },
    };
    await store.append(first);
    await store.prune(NOW - 35 * DAY_MS);
    const query = {
      project: 'p',
      hosts: ids.slice(0, 2),
      edges: gridEdges(NOW - 39 * DAY_MS, NOW, new OffsetZone(345)),
    };
    const before = [
      await store.count({ ...query, rows: 'timeline' }),
      await store.hosts('p'),
      await store.sources('p'),
    ];
    const again = await reopen();
    expect([
      await again.count({ ...query, rows: 'timeline' }),
      await again.hosts('p'),
      await again.sources('p'),
    ]).toEqual(before);
    expect(await again.append(first)).toEqual({ kind: 'duplicate' });
    await destroy();
  });

  /** Batches are deleted by day. */
  const MIDNIGHT = Date.UTC(2026, 6, 1);
  const chunk = {
    ...batch('p', [], [drawnAt(MIDNIGHT)]),
    id: 'x',
    link: { after: '', bytes: 1, firstLineHash: '', readerState: '', siblings: [] as string[] },
  };

  test('a batch is deleted when all its events are before the horizon', async () => {
    const { store, destroy } = await create(() => MIDNIGHT);
    await store.append(chunk);
    await store.prune(MIDNIGHT + DAY_MS - 1);
    expect(await store.append(chunk)).toEqual({ kind: 'duplicate' });
    await store.prune(MIDNIGHT + 2 * DAY_MS);
    expect(await store.batchesAfter('p', 'test', '')).toEqual([]);
    expect(await store.append(chunk)).toMatchObject({ kind: 'appended', beforeHorizon: 1 });
    await destroy();
  });

  test('the first chunk of a file is kept as long as a later chunk is', async () => {
    let now = MIDNIGHT;
    const { store, destroy } = await create(() => now);
    await store.append(chunk);
    now += 10 * DAY_MS;
    const later = { ...chunk.link, after: 'x', bytes: 2 };
    await store.append({
      ...chunk,
      id: 'y',
      link: later,
      events: chunk.events.map((event) => ({ ...event, time: now })),
    });
    await store.prune(MIDNIGHT + 5 * DAY_MS);
    expect((await store.batchesAfter('p', 'test', '')).map(({ id }) => id)).toEqual(['x']);
    expect((await store.batchesAfter('p', 'test', 'x')).map(({ id }) => id)).toEqual(['y']);
    await store.prune(MIDNIGHT + 20 * DAY_MS);
    expect(await store.batchesAfter('p', 'test', '')).toEqual([]);
    await destroy();
  });

  test('all chunks of an old file are deleted at once, and none of a file that still grows', async () => {
    let now = MIDNIGHT;
    const { store, destroy } = await create(() => now);
    for (let i = 0; i < 5; i++, now += DAY_MS) {
      for (const file of ['old', 'growing']) {
        const events = chunk.events.map((event) => ({ ...event, time: now }));
        const link = { ...chunk.link, after: i === 0 ? '' : `${file} ${i - 1}`, bytes: i + 1 };
        if (i === 0 && file === 'growing') link.siblings = ['old 0'];
        await store.append({ ...chunk, id: `${file} ${i}`, link, events });
      }
    }
    now += 10 * DAY_MS;
    const events = chunk.events.map((event) => ({ ...event, time: now }));
    await store.append({ ...chunk, id: 'growing 5', link: { ...chunk.link, after: 'growing 4' }, events });
    await store.prune(MIDNIGHT + 10 * DAY_MS);
    const ids = async (after: string) => (await store.batchesAfter('p', 'test', after)).map(({ id }) => id);
    expect(await ids('')).toEqual(['growing 0']);
    for (let i = 0; i < 5; i++) {
      expect(await ids(`growing ${i}`)).toEqual([`growing ${i + 1}`]);
      expect(await ids(`old ${i}`)).toEqual([]);
    }
    await store.prune(MIDNIGHT + 30 * DAY_MS);
    expect(await ids('')).toEqual([]);
    await destroy();
  });
}

/** lmdb-js reuses a snapshot until the timers of the turn are due. */
function snapshotsEnd(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}
