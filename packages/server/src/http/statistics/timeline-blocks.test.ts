import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { cacheCreated, type NamedCache } from '../../diagnostics.ts';
import { CATEGORIES, type Event } from '../../event.ts';
import { lmdbStore } from '../../store/lmdb/lmdb.ts';
import type { Store } from '../../store/store.ts';
import type { SharedParts } from '../shared-parts.ts';
import { plainJson, TimelineBlocks, type TimelineSeries } from './timeline-blocks.ts';
import { keyedTexts } from './timeline-json.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);

let directory: string;
let store: Store;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-blocks-'));
  store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
});
afterAll(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

function text(body: Buffer | SharedParts): string {
  return (Buffer.isBuffer(body) ? body : Buffer.concat(body.plain())).toString();
}

const timelineOf = (counted: Store): TimelineSeries => ({
  name: 'timeline',
  heads: ['{"requests":[', '],"attacks":['],
  tail: ']}',
  async count(query) {
    const { requests, attacks } = await counted.series(query);
    return [requests, attacks];
  },
});

const categoriesOf = (counted: Store): TimelineSeries => ({
  name: 'categories',
  ...keyedTexts(CATEGORIES),
  count: async (query) => (await counted.seriesByCategory(query)).attacks,
});

function append(project: string, events: Event[]): Promise<unknown> {
  return store.append({ project, source: { name: 'test', format: 'events' }, events, dropped: {} });
}

async function addHosts(project: string): Promise<string[]> {
  const hostnames = ['a.example', 'b.example', 'c.example'];
  const ids = await store.resolveHosts({ project, hostnames, limit: 10 });
  return ids.flatMap((id) => id ?? []);
}

/** Offsets before now, mostly close to the edges of ranges, minutes and blocks. */
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
const length = fc.oneof(
  fc.constantFrom(DAY_MS, DAY_MS / 6, DAY_MS / 6 - 1, 3 * DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 400 * DAY_MS),
  fc.integer({ min: 0, max: 35 * DAY_MS }),
);
const query = fc.record({
  endAgo: fc.oneof(fc.integer({ min: 0, max: 3 * MINUTE_MS }), fc.constant(NOW % (240 * MINUTE_MS)), ago),
  length,
  hosts: fc.constantFrom(undefined, [], [0], [2, 0], [0, 1, 2]),
  offsetMs: fc.constantFrom(0, 0, 330 * MINUTE_MS, -7 * MINUTE_MS, 840 * MINUTE_MS),
  byDay: fc.constantFrom(false, false, false, true),
  isByCategory: fc.boolean(),
});

describe('a timeline from blocks', () => {
  test('has the bytes of the naive version, for any ranges while events of any time are counted', async () => {
    let run = 0;
    const queries = fc.array(query, { minLength: 1, maxLength: 2 });
    const steps = fc.array(fc.array(event, { maxLength: 4 }), { minLength: 1, maxLength: 5 });
    const move = fc.integer({ min: 0, max: 3 * MINUTE_MS });
    await fc.assert(
      fc.asyncProperty(queries, steps, move, async (views, batches, movedBy) => {
        const project = `p${run++}`;
        const ids = await addHosts(project);
        const blocks = new TimelineBlocks(store);
        // Of equal views, and of those with the same hosts, some share an array and some do not.
        const arrays = views.map(({ hosts }) => hosts?.map((host) => ids[host] ?? ''));
        const shared = new Map(views.map(({ hosts }, i) => [hosts, arrays[i]]));
        for (const [step, batch] of batches.entries()) {
          const events = batch.map(({ ago: age, host, attack, count }) => ({
            time: NOW - age,
            hostId: host === null ? null : (ids[host] ?? null),
            request: true,
            attack,
            count,
          }));
          await append(project, events);
          for (const { endAgo, length: rangeMs, hosts, isByCategory, ...grid } of views) {
            // The first query of a view is not from blocks; equal and moved ranges follow.
            for (const shift of [0, 0, step * movedBy]) {
              const to = NOW - endAgo + shift;
              const selected = step % 2 === 0 ? shared.get(hosts) : hosts?.map((host) => ids[host] ?? '');
              const range = { project, hosts: selected, from: to - rangeMs, to, ...grid };
              const series = (isByCategory ? categoriesOf : timelineOf)(store);
              const expected = (await plainJson(series, range)).toString();
              expect(text(await blocks.json(series, range))).toBe(expected);
            }
          }
        }
      }),
      { numRuns: scaled(60) },
    );
  });

  test('of a host with the ID undefined is not that of the project', async () => {
    const project = 'undefined host';
    const blocks = new TimelineBlocks(store);
    await append(project, [{ time: NOW - 3_600_000, hostId: null, request: true, attack: null, count: 1 }]);
    const range = { project, from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
    for (const hosts of [['undefined'], ['undefined'], undefined, undefined, ['null'], [], []]) {
      const expected = (await plainJson(timelineOf(store), { ...range, hosts })).toString();
      expect(text(await blocks.json(timelineOf(store), { ...range, hosts }))).toBe(expected);
    }
  });

  test('of a store without versions is plain, and nothing is cached for it', async () => {
    const caches: NamedCache[] = [];
    const unsubscribe = cacheCreated.subscribe((cache) => caches.push(cache));
    const { versions: _, ...withoutVersions } = store;
    const blocks = new TimelineBlocks(withoutVersions);
    unsubscribe();
    const range = { project: 'plain', hosts: ['a'], from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
    for (let i = 0; i < 3; i++)
      expect(Buffer.isBuffer(await blocks.json(timelineOf(store), range))).toBe(true);
    expect(caches.map(({ size, misses }) => [size, misses])).toEqual(caches.map(() => [0, 0]));
    expect(caches.length).toBeGreaterThan(0);
  });

  test('counts only what has changed, and the points that the range cuts', async () => {
    const project = 'counts';
    const counted: number[] = [];
    const watched: Store = {
      ...store,
      series(query) {
        counted.push(query.edges.length - 1);
        return store.series(query);
      },
    };
    const blocks = new TimelineBlocks(watched);
    const get = (to: number) =>
      blocks.json(timelineOf(watched), { project, hosts: undefined, from: to - DAY_MS, to, offsetMs: 0 });
    await append(project, [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }]);
    await get(NOW);
    await get(NOW);
    counted.length = 0;
    // The points before and after the cached ones, and all those in one.
    await get(NOW + 1);
    expect(counted).toEqual([3]);
    await append(project, [{ time: NOW + 1, hostId: null, request: true, attack: null, count: 1 }]);
    await get(NOW + 2);
    expect(counted[1]).toBeLessThan(250);
  });

  describe('that does not fit into the cache', () => {
    const project = 'full';
    let now = 0;
    let blocks: TimelineBlocks;
    /** A view of its own for each offset: a day by category takes about a megabyte, and the cache has 16. */
    const fromBlocks = async (offset: number) => {
      const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: offset * MINUTE_MS };
      return !Buffer.isBuffer(await blocks.json(categoriesOf(store), range));
    };
    beforeEach(async () => {
      await append(project, [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }]);
      blocks = new TimelineBlocks(store, () => now);
      for (let round = 0; round < 2; round++) for (let view = 0; view < 40; view++) await fromBlocks(view);
    });

    test('is written without blocks while others use the cache', async () => {
      let reused = 0;
      for (let view = 0; view < 40; view++) if (await fromBlocks(view)) reused++;
      expect(reused).toBeGreaterThan(8);
      expect(reused).toBeLessThan(30);
    });

    test('gets blocks when those in the cache are no longer used', async () => {
      now += 11_000;
      expect(await fromBlocks(99)).toBe(false);
      expect(await fromBlocks(99)).toBe(true);
    });

    test('gets blocks if it is queried often', async () => {
      const results: boolean[] = [];
      for (let i = 0; i < 20; i++) results.push(await fromBlocks(99));
      expect(results.slice(0, 2)).toEqual([false, false]);
      expect(results.at(-1)).toBe(true);
    });
  });

  test('never shows a part of a batch that is counted meanwhile', async () => {
    const project = 'torn';
    const late = (): Event[] =>
      [0, 5, 20].map((hours) => ({
        time: NOW - 1_000 - hours * 3_600_000,
        hostId: null,
        request: true,
        attack: null,
        count: 1,
      }));
    let isSlow = false;
    const slow: Store = {
      ...store,
      async series(query) {
        if (isSlow) await append(project, late());
        return store.series(query);
      },
    };
    const blocks = new TimelineBlocks(slow);
    const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
    await append(project, late());
    for (let i = 0; i < 3; i++) await blocks.json(timelineOf(slow), range);
    isSlow = true;
    const { requests } = JSON.parse(text(await blocks.json(timelineOf(slow), range)));
    const counts = requests.map(({ num }: { num: number }) => num).filter((num: number) => num > 0);
    expect(new Set(counts).size).toBe(1);
    expect(counts).toHaveLength(3);
  });
});
