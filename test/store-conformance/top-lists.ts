/** Top lists: values, bounds, hours, versions and copies. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { copyProject, differences } from '../../packages/server/src/store/copy.ts';
import { HOUR_MS, type Store, wholeHours } from '../../packages/server/src/store/store.ts';
import { memoryStore } from '../memory-store.ts';
import { addHosts, attackWithDetails, batch, expectSameTopLists, NOW, pick, randomTopQuery } from './data.ts';
import type { Suite } from './suite.ts';

export function topListTests({ fresh, destroyAll, runs }: Suite): void {
  test('top lists equal the oracle as long as all values fit, whatever was queried before', async () => {
    const { store } = await fresh();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(attackWithDetails, { maxLength: 40 }), { minLength: 1, maxLength: 4 }),
        fc.array(randomTopQuery, { minLength: 1, maxLength: 6 }),
        async (drawn, queries) => {
          const project = `p${run++}`;
          const oracle = memoryStore(() => NOW);
          const ids = await addHosts(store, project);
          await addHosts(oracle, project);
          for (const events of drawn) {
            for (const each of [store, oracle]) await each.append(batch(project, ids, events));
            await expectSameTopLists(store, oracle, project, ids, queries);
          }
        },
      ),
      { numRuns: runs(60) },
    );
  });

  test('top lists keep their bounds if there are more values than fit', async () => {
    const topKeys = 4;
    const { store } = await fresh({ topKeys });
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(attackWithDetails, { maxLength: 60 }), { minLength: 1, maxLength: 4 }),
        fc.array(randomTopQuery, { minLength: 1, maxLength: 6 }),
        async (drawn, queries) => {
          const project = `p${run++}`;
          const oracle = memoryStore(() => NOW);
          const ids = await addHosts(store, project);
          await addHosts(oracle, project);
          for (const events of drawn) {
            for (const each of [store, oracle]) await each.append(batch(project, ids, events));
          }
          for (const query of queries) {
            const all = { ...query, project, hosts: pick(ids, query.hosts), limit: 1_000 };
            const list = await store.top(all);
            const exact = await oracle.top(all);
            const { attacks } = await oracle.top({ ...all, categories: undefined, codes: undefined });
            expect(list).toMatchObject({ from: exact.from, to: exact.to, attacks: exact.attacks });
            expect(list.error).toBeLessThanOrEqual(attacks / (topKeys + 1));
            const wrong = exact.items.filter(({ key, hostId, count }) => {
              const item = list.items.find((one) => one.key === key && one.hostId === hostId);
              if (item === undefined) return count > list.error;
              return count < item.count || count > item.count + item.error || item.error > list.error;
            });
            expect(wrong).toEqual([]);
            if (list.distinctIs === 'exact') expect(list.distinct).toBe(exact.distinct);
          }
        },
      ),
      { numRuns: runs(60) },
    );
  });

  test('top lists cover whole hours, from the first one that begins at or after the horizon', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const drawn = fc.sample(attackWithDetails, { numRuns: 300, seed: 4 });
    const queries = fc.sample(randomTopQuery, { numRuns: 20, seed: 5 });
    const late = { ...batch('p', ids, drawn), source: { name: 'late', format: 'events' } };
    const steps: ((each: Store) => Promise<unknown>)[] = [
      (each) => each.append(batch('p', ids, drawn)),
      (each) => each.prune(NOW - 100 * HOUR_MS, { topListsBefore: NOW - 30.5 * HOUR_MS }),
      (each) => each.append(late),
      (each) => each.prune(NOW - 50 * HOUR_MS, { topListsBefore: 0 }),
      (each) => each.prune(NOW - 4 * HOUR_MS - 1, { freeBefore: NOW - 20 * HOUR_MS, topListsBefore: 0 }),
      (each) => each.restoreHorizon(0),
      (each) => each.deleteDetails('p'),
      (each) => each.append(late),
    ];
    for (const step of steps) {
      await step(store);
      await step(oracle);
      await expectSameTopLists(store, oracle, 'p', ids, queries);
    }
    await store.deleteDetails('unknown');
    const range = { from: NOW - 900 * HOUR_MS, to: NOW + 1 };
    expect(await store.top({ project: 'p', list: 'rules', limit: 1, ...range })).toMatchObject({
      from: Math.ceil((NOW - 20 * HOUR_MS) / HOUR_MS) * HOUR_MS,
      to: Math.ceil(NOW / HOUR_MS) * HOUR_MS,
    });
    const [attacks] = await store.count({ project: 'p', edges: [range.from, range.to], rows: 'attacks' });
    expect(attacks[0]).toBeGreaterThan(0);
  });

  test('while the version of the hours of a range is equal, so are its top lists', async () => {
    const { store } = await fresh();
    let run = 0;
    let horizon = NOW - 900 * HOUR_MS;
    const step = fc.oneof(
      { weight: 2, arbitrary: fc.array(attackWithDetails, { minLength: 10, maxLength: 30 }) },
      fc.constantFrom('prune', 'delete'),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), randomTopQuery, async (steps, query) => {
        const project = `p${run++}`;
        const ids = await addHosts(store, project);
        const known = new Map<string, unknown>();
        for (const next of steps) {
          if (next === 'delete') await store.deleteDetails(project);
          else if (next === 'prune') {
            horizon += 5 * HOUR_MS;
            await store.prune(0, { topListsBefore: horizon });
          } else await store.append(batch(project, ids, next));
          const version = await store.version({ project, ...wholeHours(query) });
          if (version === null) continue;
          const list = await store.top({ ...query, project, hosts: pick(ids, query.hosts) });
          expect(list).toEqual(known.get(version) ?? list);
          known.set(version, list);
        }
      }),
      { numRuns: runs(60) },
    );
  });

  test('top lists are copied to another store and back', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(attackWithDetails, { numRuns: 120, seed: 6 });
    await store.append(batch('p', ids, drawn));
    const other = memoryStore(() => NOW, { eventsMax: 0 });
    await copyProject(store, other, 'p');
    const range = { from: NOW - 900 * HOUR_MS, to: NOW + 1 };
    expect(await differences(store, other, 'p', range)).toEqual([]);
    await destroyAll();
    const { store: back } = await fresh({ eventsMax: 0 });
    for (let i = 0; i < 2; i++) await copyProject(other, back, 'p');
    expect(await differences(other, back, 'p', range)).toEqual([]);
    const { items } = await back.top({ project: 'p', list: 'urls', limit: 5, ...range });
    expect(items).toHaveLength(5);
    const slices = [];
    for await (const part of other.transfer.topSlices('p')) slices.push(...part);
    // Lists of the whole range would be the same.
    await back.deleteDetails('p');
    await back.transfer.putTopSlices(
      'p',
      slices.map((slice) => ({ ...slice, hour: slice.hour - 1 })),
    );
    expect(await differences(other, back, 'p', range)).toContain('the top lists of the project differ');
    // Neither of these stores has what is before the horizon.
    const horizon = NOW - 100 * HOUR_MS + 1;
    for (const each of [other, back]) {
      await each.prune(horizon, { freeBefore: 0, topListsBefore: 0 });
      await each.deleteDetails('p');
      await each.transfer.putTopSlices('p', slices);
    }
    const kept = [];
    for await (const part of back.transfer.topSlices('p')) kept.push(...part);
    const hours = slices.map(({ hour }) => hour).filter((hour) => hour * HOUR_MS >= horizon);
    expect(kept.map(({ hour }) => hour).sort()).toEqual(hours.sort());
    expect(await differences(other, back, 'p', range)).toEqual([]);
    await back.deleteDetails('p');
    expect(await differences(other, back, 'p', range)).toContain('the top lists of the project differ');
  });
}
