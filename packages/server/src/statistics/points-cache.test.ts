import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { CATEGORIES, type Event } from '../event.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store } from '../store/store.ts';
import { UTC, zoneOf } from '../zone.ts';
import { DAY_MS, gridEdges, intervalOf } from './grid.ts';
import { type GridQuery, type Points, PointsCache } from './points-cache.ts';
import { countPoints, type Rows } from './timeline.ts';

const MINUTE_MS = 60_000;
const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);

let directory: string;
let store: Store;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-points-'));
  store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
});
afterAll(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

function append(project: string, events: Event[]): Promise<unknown> {
  return store.append({ project, source: { name: 'test', format: 'events' }, events, dropped: {} });
}

const requestAt = (time: number): Event => ({ time, hostId: null, request: true, attack: null, count: 1 });

/** The points without a cache. */
async function plain(rows: Rows, { from, to, zone, byDay, ...selection }: GridQuery): Promise<Points> {
  const edges = gridEdges(from, to, zone, byDay ? DAY_MS : intervalOf(to - from));
  const counts = edges.length === 0 ? [] : await countPoints(store, rows, { ...selection, edges });
  return { edges, counts };
}

/** Comparing arrays of numbers takes ten times as long. */
const textOf = ({ edges, counts }: Points) => `${edges}: ${counts.map(String).join(' ')}`;

/** The store, and how many points each of its queries counted. */
function watched(): { watchedStore: Store; counted: number[] } {
  const counted: number[] = [];
  const watchedStore: Store = {
    ...store,
    count(query) {
      counted.push(query.edges.length - 1);
      return store.count(query);
    },
    peaks(query) {
      counted.push(query.edges.length - 1);
      return store.peaks(query);
    },
  };
  return { watchedStore, counted };
}

/** Offsets before now, mostly close to the edges of ranges, minutes and chunks. */
const ago = fc.oneof(
  fc.integer({ min: -2 * DAY_MS, max: 40 * DAY_MS }),
  fc.integer({ min: 0, max: 3 * MINUTE_MS }),
  fc.integer({ min: DAY_MS - 2 * MINUTE_MS, max: DAY_MS + 2 * MINUTE_MS }),
  fc.integer({ min: -20, max: 20 }).map((minutes) => minutes * 30 * MINUTE_MS + (NOW % (240 * MINUTE_MS))),
);
const event = fc.record({
  ago,
  host: fc.option(fc.nat(2)),
  attack: fc.option(fc.constantFrom(...CATEGORIES)),
  count: fc.constantFrom(1, 2, 9, 10, 12_345),
});
const query = fc.record({
  endAgo: fc.oneof(fc.integer({ min: 0, max: 3 * MINUTE_MS }), fc.constant(NOW % (240 * MINUTE_MS)), ago),
  length: fc.oneof(
    fc.constantFrom(DAY_MS, DAY_MS / 12, DAY_MS / 12 - 1, 3 * DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 400 * DAY_MS),
    fc.integer({ min: 0, max: 35 * DAY_MS }),
  ),
  hosts: fc.constantFrom(undefined, [], [0], [2, 0], [0, 1, 2]),
  zone: fc
    .constantFrom('+00:00', '+00:00', '+05:30', '-00:07', '+14:00', 'Europe/Berlin', 'Australia/Lord_Howe')
    .map(zoneOf),
  byDay: fc.constantFrom(false, false, false, true),
  rows: fc.constantFrom<Rows[]>('timeline', 'groups', 'categories', 'peaks'),
});

describe('cached points', () => {
  test('equal those of one query, for any ranges while events of any time are counted', async () => {
    let run = 0;
    const queries = fc.array(query, { minLength: 1, maxLength: 2 });
    const steps = fc.array(fc.array(event, { maxLength: 4 }), { minLength: 1, maxLength: 5 });
    const shift = fc.oneof(fc.constant(0), fc.integer({ min: -3 * MINUTE_MS, max: 3 * MINUTE_MS }));
    // Of equal ranges, and of those that begin or end earlier or later, by some points or by most of them.
    const shape = fc.record({ moved: shift, share: fc.constantFrom(0, 0, 0, 0.9, -0.9), longer: shift });
    await fc.assert(
      fc.asyncProperty(
        queries,
        steps,
        fc.array(shape, { minLength: 2, maxLength: 5 }),
        async (views, batches, shapes) => {
          const project = `p${run++}`;
          const hostnames = ['a.example', 'b.example', 'c.example'];
          const ids = await store.resolveHosts({ project, hostnames, limit: 10 });
          const cache = new PointsCache(store);
          for (const batch of batches) {
            const events = batch.map(({ ago: age, host, ...counts }) => ({
              time: NOW - age,
              hostId: host === null ? null : (ids[host] ?? null),
              request: true,
              ...counts,
            }));
            await append(project, events);
            for (const { endAgo, length, hosts, rows, ...grid } of views) {
              for (const { moved, share, longer } of shapes) {
                const from = NOW - endAgo - length + moved + Math.round(share * length);
                const to = Math.max(from, from + length + longer);
                const selected = hosts?.map((host) => ids[host] ?? '');
                const range = { project, hosts: selected, from, to, ...grid };
                expect(textOf(await cache.count(rows, range))).toBe(textOf(await plain(rows, range)));
              }
            }
          }
        },
      ),
      { numRuns: scaled(60) },
    );
  });

  test('of one time zone are not those of another', async () => {
    const project = 'zones';
    const cache = new PointsCache(store);
    await append(
      project,
      [1, 7, 13, 19].map((hours) => requestAt(NOW - hours * 3_600_000)),
    );
    for (const name of ['+00:00', '+05:30', '+00:00', 'Europe/Berlin', '+05:30']) {
      const range = { project, hosts: undefined, from: NOW - 30 * DAY_MS, to: NOW, zone: zoneOf(name) };
      expect(await cache.count('timeline', range)).toEqual(await plain('timeline', range));
    }
  });

  test('of a host with the ID undefined are not those of the project', async () => {
    const project = 'undefined host';
    const cache = new PointsCache(store);
    await append(project, [requestAt(NOW - 3_600_000)]);
    for (const hosts of [['undefined'], ['undefined'], undefined, undefined, ['null'], [], []]) {
      const range = { project, hosts, from: NOW - DAY_MS, to: NOW, zone: UTC };
      expect(await cache.count('timeline', range)).toEqual(await plain('timeline', range));
    }
  });

  test.each<Rows>(['timeline', 'peaks'])(
    'of %s are counted again only if they may have changed',
    async (rows) => {
      const project = `counts ${rows}`;
      const { watchedStore, counted } = watched();
      const cache = new PointsCache(watchedStore);
      const countTo = async (to: number) => {
        counted.length = 0;
        await cache.count(rows, { project, hosts: undefined, from: to - DAY_MS, to, zone: UTC });
        return [...counted];
      };
      await append(project, [requestAt(NOW)]);
      expect(await countTo(NOW)).toEqual([1_441]);
      // The points that the range cuts.
      expect(await countTo(NOW + 1)).toEqual([1, 1]);
      // And a new one.
      expect(await countTo(NOW + MINUTE_MS)).toEqual([1, 2]);
      expect(await countTo(NOW + MINUTE_MS + 1)).toEqual([1, 1]);
      // The newest sixth.
      await append(project, [requestAt(NOW)]);
      expect(await countTo(NOW + MINUTE_MS + 2)).toEqual([1, expect.toSatisfy((points) => points < 250)]);
      expect(await countTo(NOW + MINUTE_MS + 3)).toEqual([1, 1]);
      // Everything, after a late event, and for a range that begins before the cached one.
      await append(project, [requestAt(NOW - DAY_MS / 2)]);
      expect(await countTo(NOW + MINUTE_MS + 4)).toEqual([1_441]);
      expect(await countTo(NOW)).toEqual([1_441]);
    },
  );

  test('are all counted by one query if a batch changes them while the rest is counted', async () => {
    const project = 'torn';
    const { watchedStore, counted } = watched();
    let arrives = false;
    const { count } = watchedStore;
    watchedStore.count = async (counting) => {
      if (arrives) await append(project, [requestAt(NOW - 1), requestAt(NOW - DAY_MS / 2)]);
      arrives = false;
      return count(counting);
    };
    const cache = new PointsCache(watchedStore);
    const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, zone: UTC };
    for (arrives of [false, true, false]) {
      counted.length = 0;
      const isTorn = arrives;
      expect(await cache.count('timeline', range)).toEqual(await plain('timeline', range));
      if (isTorn) expect(counted).toEqual([1, 1, 1_441]);
    }
  });

  test('are always counted if caches may use no memory', async () => {
    const { watchedStore, counted } = watched();
    const cache = new PointsCache(watchedStore, 0);
    const range = { project: 'off', hosts: undefined, from: NOW - DAY_MS, to: NOW, zone: UTC };
    for (let i = 0; i < 3; i++) await cache.count('timeline', range);
    expect(counted).toEqual([1_441, 1_441, 1_441]);
  });

  test.each([
    ['does not know versions', { version: async () => null }],
    ['has no fast versions', { hasFastVersions: undefined }],
  ])('of a store that %s are always counted', async (_, without) => {
    const { watchedStore, counted } = watched();
    const cache = new PointsCache({ ...watchedStore, ...without } as Store);
    const range = { project: 'plain', hosts: ['a'], from: NOW - DAY_MS, to: NOW, zone: UTC };
    for (let i = 0; i < 3; i++) await cache.count('timeline', range);
    expect(counted).toEqual([1_441, 1_441, 1_441]);
  });
});
