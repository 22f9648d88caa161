/** Retention, copies to another store, and closing. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { copyProject, differences } from '../../packages/server/src/store/copy.ts';
import { compareFollowed, StoreUnavailable } from '../../packages/server/src/store/store.ts';
import { memoryStore } from '../memory-store.ts';
import {
  addHosts,
  batch,
  DAY_MS,
  drawnAt,
  event,
  expectSameResults,
  followed,
  linked,
  NOW,
  randomQuery,
} from './data.ts';
import type { Suite } from './suite.ts';

export function lifecycleTests({ fresh, destroyAll, runs }: Suite): void {
  test('after a prune nothing before the horizon counts, to the millisecond, and late events are dropped', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const drawn = fc.sample(event, { numRuns: 500, seed: 11 });
    for (const each of [store, oracle]) await each.append(batch('p', ids, drawn));
    for (const before of [NOW - 20 * DAY_MS + 12_345, NOW - 30_001, NOW - 50_000]) {
      await store.prune(before);
      await oracle.prune(before);
      await fc.assert(
        fc.asyncProperty(randomQuery, (query) => expectSameResults(store, oracle, 'p', ids, [query])),
        { numRuns: runs(50) },
      );
    }
    const late = batch('p', ids, [drawnAt(NOW - 30_002), drawnAt(NOW - 30_001)]);
    expect(await store.append(late)).toMatchObject({ kind: 'appended', beforeHorizon: 1 });
    expect((await store.sources('p'))[0]?.dropped).toEqual({ too_old: 1 });
  });

  test('the horizon can move back to where nothing has been freed', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const drawn = fc.sample(event, { numRuns: 300, seed: 12 });
    const [freed, horizon] = [NOW - 25 * DAY_MS + 777, NOW - 5 * DAY_MS];
    for (const each of [store, oracle]) {
      await each.append({ ...batch('p', ids, drawn), id: 'x' });
      await each.prune(horizon, { freeBefore: freed });
      expect(await each.retention()).toMatchObject({ horizon, freedBefore: freed, note: null });
      const note = { trustedAt: 1, passedAt: 2, probationMs: 3, freeBefore: 4, freeSince: 5 };
      await each.noteRetention(note, null);
      expect((await each.retention()).note).toEqual(note);
      await each.noteRetention({ ...note, passedAt: 6 }, null);
      expect((await each.retention()).note).toEqual(note);
      await each.noteRetention({ ...note, passedAt: 7 }, note);
      expect((await each.retention()).note).toEqual({ ...note, passedAt: 7 });
      // This does not move the horizon forward.
      expect(await each.restoreHorizon(NOW)).toBe(horizon);
    }
    const expectSame = () =>
      fc.assert(
        fc.asyncProperty(randomQuery, (query) => expectSameResults(store, oracle, 'p', ids, [query])),
        { numRuns: runs(30) },
      );
    await expectSame();
    for (const to of [NOW - 10 * DAY_MS, 0]) {
      for (const each of [store, oracle]) expect(await each.restoreHorizon(to)).toBe(Math.max(to, freed));
      await expectSame();
    }
    expect(await store.append({ ...batch('p', ids, drawn), id: 'x' })).toEqual({ kind: 'duplicate' });
  });

  test('a version does not come back with the horizon: it may be that of counts from in between', async () => {
    const { store } = await fresh();
    await store.append(batch('p', [], [drawnAt(NOW - DAY_MS)]));
    const range = { project: 'p', from: NOW - 2 * DAY_MS, to: NOW };
    const before = await store.version(range);
    await store.prune(NOW - DAY_MS / 2, { freeBefore: 0, topListsBefore: 0 });
    const between = await store.version(range);
    await store.restoreHorizon(0);
    const after = await store.version(range);
    expect(new Set([before, between, after]).size).toBe(3);
  });

  test('a prune that expects another horizon moves and frees nothing', async () => {
    const { store } = await fresh();
    await store.prune(NOW - 10 * DAY_MS, { freeBefore: NOW - 20 * DAY_MS });
    await store.restoreHorizon(NOW - 15 * DAY_MS);
    const expectedHorizon = NOW - 10 * DAY_MS;
    await store.prune(NOW - 5 * DAY_MS, { freeBefore: NOW - 10 * DAY_MS, expectedHorizon });
    const state = { horizon: NOW - 15 * DAY_MS, freedBefore: NOW - 20 * DAY_MS };
    expect(await store.retention()).toMatchObject(state);
    await store.prune(NOW - 5 * DAY_MS, { freeBefore: 0, expectedHorizon: state.horizon });
    expect(await store.retention()).toMatchObject({ ...state, horizon: NOW - 5 * DAY_MS });
    // Nor if it has moved forward since.
    await store.prune(NOW, { freeBefore: NOW, expectedHorizon: state.horizon });
    expect(await store.retention()).toMatchObject({ ...state, horizon: NOW - 5 * DAY_MS });
  });

  test('a horizon that moves back during a prune never reaches what is freed', async () => {
    const { store } = await fresh();
    for (let steps = 0; steps < 6; steps++) {
      const time = NOW - (10 - steps) * DAY_MS;
      await store.prune(time, { freeBefore: 0 });
      const pruned = store.prune(0, { freeBefore: time });
      for (let i = 0; i < steps; i++) await store.check('queries');
      const restored = await store.restoreHorizon(0);
      await pruned;
      expect(await store.retention()).toMatchObject({ horizon: restored, freedBefore: restored });
    }
  });

  test('the horizon can move back while events of several projects are counted', async () => {
    const { store } = await fresh();
    const projects = ['p', 'q', 'r'];
    await Promise.all([
      ...Array.from({ length: 18 }, (_, i) =>
        store.append(batch(projects[i % 3] ?? '', [], [drawnAt(NOW), drawnAt(NOW - 40 * DAY_MS)])),
      ),
      ...[4, 3, 2, 1].map(async (days) => {
        await store.prune(NOW - days * DAY_MS, { freeBefore: 0 });
        await store.restoreHorizon(NOW - 9 * DAY_MS);
      }),
    ]);
    for (const project of projects) {
      const [requests] = await store.count({ project, edges: [NOW - DAY_MS, NOW + 1], rows: 'timeline' });
      expect(requests).toEqual(Float64Array.of(6));
    }
  });

  test('events that the horizon hides can be counted until they are freed', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const drawn = fc.sample(event, { numRuns: 300, seed: 13 });
    const freed = NOW - 25 * DAY_MS + 777;
    const edges = [freed, NOW - 12 * DAY_MS + 5, NOW - 4 * DAY_MS, NOW + 2 * DAY_MS];
    for (const each of [store, oracle]) {
      await each.append(batch('p', ids, drawn));
      await each.prune(NOW - 5 * DAY_MS + 1, { freeBefore: freed });
    }
    for (const hosts of [undefined, ids.slice(0, 1), ids]) {
      const query = { project: 'p', hosts, edges };
      for (const ignoreHorizon of [true, false]) {
        const counts = await store.count({ ...query, ignoreHorizon, rows: 'everything' });
        expect(counts).toEqual(await oracle.count({ ...query, ignoreHorizon, rows: 'everything' }));
        expect((counts[0]?.[0] ?? 0) > 0).toBe(ignoreHorizon);
      }
    }
  });

  test('a project that is copied to another store and back is unchanged', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(event, { numRuns: 120, seed: 5 });
    await store.prune(NOW - 39 * DAY_MS + 12_345);
    await store.append({ ...batch('p', ids, drawn), id: 'x', dropped: { bad_time: 2, not_json: 1 } });
    await store.append(batch('p', ids, [{ ...drawnAt(NOW), count: 999_999 }]));
    await store.append(batch('p', ids, [{ ...drawnAt(NOW), count: 999_999 }]));
    const { append, linksAfter } = linked(store);
    await append('one', { after: '', bytes: 10, readerState: 'c' });
    await append('two', { after: 'one', bytes: 20, firstLineHash: 'h' });
    const paths = [followed('/logs/a.log', NOW), { ...followed('/logs/b.log', 7), source: 'nothing yet' }];
    for (const path of paths) await store.putFollowedPath('p', path);
    const range = { from: NOW - 41 * DAY_MS, to: NOW + 1 };
    const other = memoryStore(() => NOW, { eventsMax: 0 });
    await copyProject(store, other, 'p');
    expect(await differences(store, other, 'p', range)).toEqual([]);
    const links = await Promise.all(['', 'one', 'two'].map(linksAfter));
    // An in-process engine allows one store at a time.
    await destroyAll();
    const { store: back } = await fresh({ eventsMax: 0 });
    for (let i = 0; i < 2; i++) await copyProject(other, back, 'p');
    expect(await differences(other, back, 'p', range)).toEqual([]);
    // Links continue where they ended.
    expect(await Promise.all(['', 'one', 'two'].map(linked(back).linksAfter))).toEqual(links);
    expect(await back.followedPaths('p')).toEqual(paths.sort(compareFollowed));
    expect(await back.append({ ...batch('p', ids, drawn), id: 'x' })).toEqual({ kind: 'duplicate' });
    expect(await linked(back).append('three', { after: 'two', bytes: 5 })).toMatchObject({
      kind: 'appended',
    });
    expect(await differences(other, back, 'p', range)).toContain('the sources differ');
  });

  test('a closed store rejects every call', async () => {
    const { store } = await fresh();
    await store.close();
    await expect(store.check('queries')).rejects.toThrow(StoreUnavailable);
    await expect(store.append(batch('p', [], []))).rejects.toThrow(StoreUnavailable);
    const query = { project: 'p', edges: [0, 1] };
    for (const byHost of [false, true])
      await expect(store.count({ ...query, rows: 'timeline', byHost })).rejects.toThrow(StoreUnavailable);
    await expect(store.peaks(query)).rejects.toThrow(StoreUnavailable);
  });
}
