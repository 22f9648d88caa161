import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { cacheCreated, type NamedCache } from '../../diagnostics.ts';
import { CATEGORIES, type Event, OVERVIEW_GROUPS } from '../../event.ts';
import { averagesByGroup } from '../../statistics/overview.ts';
import { lmdbStore } from '../../store/lmdb/lmdb.ts';
import { QueryTooLarge, type Store } from '../../store/store.ts';
import type { SharedParts } from '../shared-parts.ts';
import { plainJson, TimelineBlocks } from './timeline-blocks.ts';
import { keyedTexts, TIME_MAX, TIME_MIN } from './timeline-json.ts';
import type { TimelineSeries } from './timeline-runs.ts';

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
  count: (query) => counted.count({ ...query, rows: 'timeline' }),
});

const categoriesOf = (counted: Store): TimelineSeries => ({
  name: 'categories',
  ...keyedTexts(CATEGORIES),
  count: (query) => counted.count({ ...query, rows: 'categories' }),
});

const groupsOf = (counted: Store): TimelineSeries => ({
  name: 'groups',
  ...keyedTexts(Object.keys(OVERVIEW_GROUPS)),
  count: (query) => counted.count({ ...query, rows: 'groups' }),
});

const averagesOf = (counted: Store): TimelineSeries => ({
  ...groupsOf(counted),
  name: 'averages',
  count: (query) => averagesByGroup(counted, query),
});

const peaksOf = (counted: Store): TimelineSeries => ({
  ...groupsOf(counted),
  name: 'peaks',
  count: (query) => counted.peaks(query),
  isSlowOverGaps: true,
});

const KINDS = [timelineOf, categoriesOf, groupsOf, averagesOf, peaksOf];

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
  kind: fc.constantFrom(...KINDS),
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
          for (const { endAgo, length: rangeMs, hosts, kind, ...grid } of views) {
            // The first query of a view is not from blocks; equal and moved ranges follow.
            for (const shift of [0, 0, step * movedBy]) {
              const to = NOW - endAgo + shift;
              const selected = step % 2 === 0 ? shared.get(hosts) : hosts?.map((host) => ids[host] ?? '');
              const range = { project, hosts: selected, from: to - rangeMs, to, ...grid };
              const series = kind(store);
              const expected = (await plainJson(series, range)).toString();
              const body = await blocks.json(series, range);
              expect(text(body)).toBe(expected);
              if (Buffer.isBuffer(body)) continue;
              await body.deflate();
              expect(gunzipSync(Buffer.concat(body.gzip())).toString()).toBe(expected);
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
      count(query) {
        counted.push(query.edges.length - 1);
        return store.count(query);
      },
    };
    const blocks = new TimelineBlocks(watched);
    const get = (to: number) =>
      blocks.json(timelineOf(watched), { project, hosts: undefined, from: to - DAY_MS, to, offsetMs: 0 });
    await append(project, [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }]);
    await get(NOW);
    await get(NOW);
    counted.length = 0;
    // The points before and after the cached ones, and all those in between as one.
    await get(NOW + 1);
    expect(counted).toEqual([3]);
    await append(project, [{ time: NOW + 1, hostId: null, request: true, attack: null, count: 1 }]);
    await get(NOW + 2);
    expect(counted[1]).toBeLessThan(250);
  });

  test('of peaks does not count what is between the points that the range cuts', async () => {
    const project = 'peaks';
    const counted: number[] = [];
    const watched: Store = {
      ...store,
      peaks(query) {
        counted.push(query.edges.length - 1);
        return store.peaks(query);
      },
    };
    const blocks = new TimelineBlocks(watched);
    const get = (to: number) =>
      blocks.json(peaksOf(watched), { project, hosts: undefined, from: to - DAY_MS, to, offsetMs: 0 });
    await append(project, [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }]);
    for (let i = 0; i < 2; i++) await get(NOW);
    counted.length = 0;
    await get(NOW + 1);
    expect(counted).toEqual([1, 1]);
  });

  test('looks up the blocks of its latest range every five seconds, so that they stay in use', async () => {
    const project = 'latest';
    await append(project, [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }]);
    const caches: NamedCache[] = [];
    const unsubscribe = cacheCreated.subscribe((cache) => caches.push(cache));
    let now = 0;
    const blocks = new TimelineBlocks(store, () => now);
    unsubscribe();
    const lookups = () => caches.find(({ name }) => name === 'timeline_blocks')?.hits;
    const get = (to: number) =>
      blocks.json(timelineOf(store), { project, hosts: undefined, from: to - DAY_MS, to, offsetMs: 0 });
    for (let i = 0; i < 2; i++) await get(NOW);
    expect(lookups()).toBe(0);
    await get(NOW + 1);
    now += 4_999;
    await get(NOW + 2);
    expect(lookups()).toBe(0);
    now += 1;
    await get(NOW + 3);
    expect(lookups()).toBe(7);
    await get(NOW + 4);
    expect(lookups()).toBe(7);
    // Another range of the view.
    await get(NOW + MINUTE_MS);
    expect(lookups()).toBe(14);
  });

  test('joins its older blocks when it is queried again, and once while only the newest block changes', async () => {
    const project = 'joined';
    const blocks = new TimelineBlocks(store);
    const get = async () => {
      const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
      const body = await blocks.json(timelineOf(store), range);
      return Buffer.isBuffer(body) ? [body] : body.plain();
    };
    const appendAt = (time: number) =>
      append(project, [{ time, hostId: null, request: true, attack: null, count: 1 }]);
    await appendAt(NOW - 1_000);
    await get();
    // Seven blocks of each series, and the texts around them.
    expect(await get()).toHaveLength(2 * 7 + 3);
    const joined = await get();
    expect(joined).toHaveLength(2 * 2 + 3);
    const [, olderRequests, , , olderAttacks] = joined;
    await appendAt(NOW - 2 * MINUTE_MS);
    const changed = await get();
    for (const piece of [olderRequests, olderAttacks])
      expect(changed.some((one) => one === piece)).toBe(true);
    await appendAt(NOW - DAY_MS / 2);
    expect(await get()).toHaveLength(2 * 7 + 3);
  });

  test.each([TIME_MIN, TIME_MAX])('is that of the naive version around %d', async (time) => {
    const project = `limit ${time}`;
    await append(project, [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }]);
    const blocks = new TimelineBlocks(store);
    for (const moved of [0, 0, 1, MINUTE_MS, DAY_MS / 2, DAY_MS]) {
      const to = time + moved;
      const range = { project, hosts: undefined, from: to - DAY_MS, to, offsetMs: 0 };
      const expected = (await plainJson(timelineOf(store), range)).toString();
      expect(text(await blocks.json(timelineOf(store), range))).toBe(expected);
    }
  });

  describe('that does not fit into the cache', () => {
    const project = 'full';
    let now = 0;
    let blocks: TimelineBlocks;
    /** A view of its own for each offset: a day by category takes about 0.7 megabytes, and the cache has 16. */
    const fromBlocks = async (offset: number) => {
      const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: offset * MINUTE_MS };
      return !Buffer.isBuffer(await blocks.json(categoriesOf(store), range));
    };
    beforeEach(async () => {
      // So many in each block that no series shares its text.
      const times = Array.from({ length: 96 }, (_, i) => NOW - i * 15 * MINUTE_MS);
      const attacks = times.flatMap((time) => CATEGORIES.map((attack) => ({ time, attack })));
      await append(
        project,
        attacks.map((attack) => ({ ...attack, hostId: null, request: true, count: 1 })),
      );
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

  test.each([
    ['counts', timelineOf],
    ['peaks', peaksOf],
  ])('never shows a part of a batch that is counted meanwhile: %s', async (name, kind) => {
    const project = `torn ${name}`;
    const late = (): Event[] =>
      [0, 5, 20, 24].map((hours) => ({
        time: NOW - 1_000 - hours * 3_600_000 + (hours === 24 ? 2_000 : 0),
        hostId: null,
        request: true,
        attack: null,
        count: 1,
      }));
    let isSlow = false;
    const appended = async () => {
      if (isSlow) await append(project, late());
    };
    const slow: Store = {
      ...store,
      count: (query) => appended().then(() => store.count(query)),
      peaks: (query) => appended().then(() => store.peaks(query)),
    };
    const blocks = new TimelineBlocks(slow);
    const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
    await append(project, late());
    for (let i = 0; i < 3; i++) await blocks.json(kind(slow), range);
    for (isSlow of [true, false, true]) {
      const json = JSON.parse(text(await blocks.json(kind(slow), range)));
      const points: { num: number }[] = name === 'peaks' ? json[0].timeline : json.requests;
      const counts = points.map(({ num }) => num).filter((num) => num > 0);
      expect(new Set(counts).size).toBe(1);
      expect(counts).toHaveLength(4);
    }
  });

  test.each([
    ['counts', timelineOf],
    ['peaks', peaksOf],
  ])('never shows a part of a batch if the range begins earlier than before: %s', async (name, kind) => {
    const project = `torn start ${name}`;
    const midnight = NOW - (NOW % DAY_MS);
    const at = (hours: number, minutes: number, seconds: number) =>
      midnight + hours * 3_600_000 + minutes * MINUTE_MS + seconds * 1_000;
    const appendAt = (...times: number[]) =>
      append(
        project,
        times.map((time) => ({ time, hostId: null, request: true, attack: null, count: 1 })),
      );
    let meanwhile: (() => Promise<unknown>) | undefined;
    const afterwards = async <T>(result: T): Promise<T> => {
      const action = meanwhile;
      meanwhile = undefined;
      await action?.();
      return result;
    };
    const slow: Store = {
      ...store,
      count: (query) => store.count(query).then(afterwards),
      peaks: (query) => store.peaks(query).then(afterwards),
    };
    const blocks = new TimelineBlocks(slow);
    const query = async (from: number) => {
      const range = { project, hosts: undefined, from, to: at(12, 45, 30), offsetMs: 0 };
      const json = JSON.parse(text(await blocks.json(kind(slow), range)));
      const points: { num: number }[] = name === 'peaks' ? json[0].timeline : json.requests;
      return points.filter(({ num }) => num > 0).length;
    };
    await appendAt(at(9, 0, 0));
    for (let i = 0; i < 2; i++) expect(await query(at(8, 40, 30))).toBe(1);
    await appendAt(at(12, 40, 0));
    // In the point that the range cuts, in the points before those that were known, and in the newest block.
    meanwhile = () => appendAt(at(8, 20, 45), at(8, 30, 10), at(12, 41, 10));
    expect([2, 5]).toContain(await query(at(8, 20, 30)));
    expect(meanwhile).toBeUndefined();
    expect(await query(at(8, 20, 30))).toBe(5);
  });

  test('never shows a part of a batch if the range cuts only the last point of a block', async () => {
    const project = 'torn between blocks';
    const blockStart = NOW - (NOW % (240 * MINUTE_MS));
    const appendAt = (...times: number[]) =>
      append(
        project,
        times.map((time) => ({ time, hostId: null, request: true, attack: null, count: 1 })),
      );
    let meanwhile: (() => Promise<unknown>) | undefined;
    const slow: Store = {
      ...store,
      async peaks(query) {
        const peaks = await store.peaks(query);
        const action = meanwhile;
        meanwhile = undefined;
        await action?.();
        return peaks;
      },
    };
    const blocks = new TimelineBlocks(slow);
    const query = async () => {
      const range = { project, hosts: undefined, from: blockStart - DAY_MS - 30_000, to: NOW - DAY_MS / 4 };
      const json = JSON.parse(text(await blocks.json(peaksOf(slow), { ...range, offsetMs: 0 })));
      return json[0].timeline.filter(({ num }: { num: number }) => num > 0).length;
    };
    const newest = NOW - DAY_MS / 4 - 30 * MINUTE_MS;
    await appendAt(newest);
    for (let i = 0; i < 2; i++) expect(await query()).toBe(1);
    await appendAt(newest + MINUTE_MS);
    // In the point that the range cuts, after that was counted, and in the newest block, before it is counted.
    meanwhile = () => appendAt(blockStart - DAY_MS - 15_000, newest + 2 * MINUTE_MS);
    expect([2, 4]).toContain(await query());
    expect(meanwhile).toBeUndefined();
    expect(await query()).toBe(4);
  });

  test('never shows a part of a batch that changes a cached block, too', async () => {
    const project = 'torn cache';
    const appendAt = (...minutesAgo: number[]) =>
      append(
        project,
        minutesAgo.map((minutes) => ({
          ...{ time: NOW - minutes * MINUTE_MS, hostId: null, request: true, attack: null, count: 1 },
        })),
      );
    let meanwhile: (() => Promise<unknown>) | undefined;
    const slow: Store = {
      ...store,
      async count(query) {
        const action = meanwhile;
        meanwhile = undefined;
        await action?.();
        return store.count(query);
      },
    };
    const blocks = new TimelineBlocks(slow);
    const query = async () => {
      const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
      const json = JSON.parse(text(await blocks.json(timelineOf(slow), range)));
      return json.requests.filter(({ num }: { num: number }) => num > 0).length;
    };
    await appendAt(600);
    for (let i = 0; i < 2; i++) expect(await query()).toBe(1);
    // Only the newest block is counted.
    await appendAt(2);
    meanwhile = () => appendAt(601, 3);
    expect(await query()).toBe(4);
    expect(meanwhile).toBeUndefined();
  });

  test('is made of blocks even if those that one query counts change meanwhile', async () => {
    const project = 'changing';
    const appendNow = () =>
      append(project, [{ time: NOW - 1_000, hostId: null, request: true, attack: null, count: 1 }]);
    const changing: Store = {
      ...store,
      count: (query) => appendNow().then(() => store.count(query)),
    };
    const blocks = new TimelineBlocks(changing);
    const range = { project, hosts: undefined, from: NOW - DAY_MS, to: NOW, offsetMs: 0 };
    for (let i = 0; i < 4; i++) {
      const body = await blocks.json(timelineOf(changing), range);
      expect(Buffer.isBuffer(body)).toBe(i === 0);
      expect(text(body)).toBe((await plainJson(timelineOf(store), range)).toString());
    }
  });

  test('of ranges that need different points of a block has them all, even if the whole block is too much', async () => {
    const project = 'wide';
    await append(project, [{ time: NOW - DAY_MS, hostId: null, request: true, attack: null, count: 1 }]);
    let isRefused = false;
    const [from, to] = [NOW - 2 * DAY_MS, NOW - DAY_MS];
    const limited: Store = {
      ...store,
      async peaks(query) {
        const isWider = (query.edges[0] ?? 0) < from || (query.edges.at(-1) ?? 0) > to + MINUTE_MS;
        if (isRefused && isWider) throw new QueryTooLarge();
        return store.peaks(query);
      },
    };
    const blocks = new TimelineBlocks(limited);
    const series = peaksOf(limited);
    for (const moved of [MINUTE_MS, 0, MINUTE_MS]) {
      // The first query of a view is not from blocks; the second counts only what the range needs.
      const range = { project, hosts: undefined, from: from + moved, to: to + moved, offsetMs: 0 };
      const expected = (await plainJson(series, range)).toString();
      for (isRefused of [true, true, false, false]) {
        expect(text(await blocks.json(series, range))).toBe(expected);
      }
      isRefused = false;
    }
    isRefused = true;
    const body = await blocks.json(series, { project, hosts: undefined, from, to, offsetMs: 0 });
    expect(Buffer.isBuffer(body)).toBe(false);
  });
});
