/** Counts: series, totals, categories, peaks and versions. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  CATEGORIES,
  type Category,
  CODE_CLASSES,
  type Event,
  OVERVIEW_GROUPS,
} from '../../packages/server/src/event.ts';
import { memoryStore } from '../memory-store.ts';
import {
  addHosts,
  allCounts,
  batch,
  batches,
  DAY_MS,
  drawnAt,
  event,
  expectSameResults,
  hostSet,
  moment,
  NOW,
  pick,
  randomQuery,
  texts,
} from './data.ts';
import type { Suite } from './suite.ts';

export function countTests({ fresh, runs }: Suite): void {
  test('equals the oracle for any events, hosts and edges', async () => {
    const { store } = await fresh();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        batches,
        fc.array(randomQuery, { minLength: 1, maxLength: 5 }),
        async (drawn, queries) => {
          const project = `p${run++}`;
          const oracle = memoryStore(() => NOW);
          const ids = await addHosts(store, project);
          expect(await addHosts(oracle, project)).toEqual(ids);
          for (const events of drawn) {
            expect(await store.append(batch(project, ids, events))).toEqual(
              await oracle.append(batch(project, ids, events)),
            );
          }
          await expectSameResults(store, oracle, project, ids, queries);
          const [source] = await store.sources(project);
          expect([source]).toEqual(await oracle.sources(project));
          const counted = drawn.flat();
          expect(source).toMatchObject({
            events: counted.length,
            without_host: counted.filter(({ host }) => host === null).length,
          });
        },
      ),
      { numRuns: runs(150) },
    );
  });

  test('busiest seconds equal the oracle if many batches and hosts share them', async () => {
    const { store } = await fresh();
    let run = 0;
    const ago = fc
      .tuple(fc.oneof(fc.nat(1), fc.nat(40)), fc.nat(3), fc.nat(2), fc.nat(999))
      .map(([hours, minutes, seconds, ms]) => hours * 3_600_000 + minutes * 60_000 + seconds * 1_000 + ms);
    const busy = fc.record({ ago, one: event }).map(({ ago: ms, one }) => ({ ...one, time: NOW - ms }));
    const step = fc.constantFrom(DAY_MS, 3_600_000, 60_000 * 7, 60_000);
    const query = fc.record({ hosts: hostSet, start: ago, step }).map(({ hosts, start, step: ms }) => {
      const first = Math.floor((NOW - start) / ms) * ms;
      return { hosts, edges: [first - 40 * ms - (start % 3), first - ms, first, first + ms] };
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(busy, { maxLength: 60 }), { minLength: 1, maxLength: 8 }),
        fc.array(query, { minLength: 1, maxLength: 4 }),
        async (drawn, queries) => {
          const project = `p${run++}`;
          const oracle = memoryStore(() => NOW);
          const ids = await addHosts(store, project);
          await addHosts(oracle, project);
          for (const events of drawn) {
            await store.append(batch(project, ids, events));
            await oracle.append(batch(project, ids, events));
            for (const { hosts, edges } of queries) {
              const series = { project, hosts: pick(ids, hosts), edges };
              expect(texts(await store.peaks(series))).toEqual(texts(await oracle.peaks(series)));
            }
          }
        },
      ),
      { numRuns: runs(30) },
    );
  });

  test('while the version of a range is equal, so are the results of queries of that range', async () => {
    const { store } = await fresh();
    let run = 0;
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.array(event, { maxLength: 5 }) },
      fc.constantFrom('prune', 'rename'),
    );
    // Starts before the first event and moves slowly, so that it passes events in some runs.
    let horizon = NOW - 41 * DAY_MS;
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 8 }),
        randomQuery,
        async (steps, { hosts: set, edges }) => {
          const project = `p${run++}`;
          const ids = await addHosts(store, project);
          const range = { from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
          const known = new Map<string, unknown>();
          for (const [i, next] of [[], ...steps].entries()) {
            if (next === 'prune') {
              horizon += DAY_MS / 50;
              await store.prune(horizon);
            } else if (next === 'rename') {
              await store.renameHost({ project, id: ids[0] ?? '', hostname: `renamed-${i}.example` });
            } else await store.append(batch(project, ids, next));
            const version = await store.version({ project, ...range });
            if (version === null) continue;
            const results = await allCounts(store, { project, hosts: pick(ids, set), edges });
            expect(results).toEqual(known.get(version) ?? results);
            known.set(version, results);
          }
        },
      ),
      { numRuns: runs(100) },
    );
  });

  test('the order and the size of batches do not matter', async () => {
    const { store } = await fresh();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(event, { maxLength: 40 }),
        fc.nat(),
        randomQuery,
        async (events, seed, query) => {
          const [one, other] = [`one${run}`, `other${run++}`];
          const oneIds = await addHosts(store, one);
          const otherIds = await addHosts(store, other);
          await store.append(batch(one, oneIds, events));
          const shuffled = events.toSorted(
            (a, b) => ((a.time * 31 + seed) % 101) - ((b.time * 31 + seed) % 101),
          );
          await Promise.all(shuffled.map((single) => store.append(batch(other, otherIds, [single]))));
          const series = (project: string, ids: string[]) =>
            store.count({ project, hosts: pick(ids, query.hosts), edges: query.edges, rows: 'timeline' });
          expect(await series(other, otherIds)).toEqual(await series(one, oneIds));
        },
      ),
      { numRuns: runs(40) },
    );
  });

  test('the sums of adjacent ranges match, and so do distribution and attacks', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(event, { numRuns: 2_000, seed: 7 });
    await store.append(batch('p', ids, drawn));
    await fc.assert(
      fc.asyncProperty(moment, moment, moment, hostSet, async (x, y, z, set) => {
        const [a = 0, b = 0, c = 0] = [x, y, z].sort((m, n) => m - n);
        const hosts = pick(ids, set);
        const totals = async (from: number, to: number) => {
          const query = { project: 'p', hosts, edges: [from, to], rows: 'categories' } as const;
          return (await store.count(query)).map(([n = 0]) => n);
        };
        const whole = await totals(a, c);
        const left = await totals(a, b);
        const right = await totals(b, c);
        expect(whole).toEqual(left.map((n, i) => n + (right[i] ?? 0)));
        const [, attacks] = await store.count({ project: 'p', hosts, edges: [a, b, c], rows: 'timeline' });
        expect(sum(attacks)).toBe(sum(whole));
      }),
      { numRuns: runs(100) },
    );
  });

  test('categories, blocked attacks, hosts and peaks agree with requests and attacks', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(event, { numRuns: 1_000, seed: 8 });
    const near = drawn.map((one, i) => ({ ...one, time: NOW - (i % 7_000), count: 1 + (i % 3) }));
    await store.append(batch('p', ids, [...drawn, ...near]));
    await fc.assert(
      fc.asyncProperty(randomQuery, fc.boolean(), async ({ hosts: set, edges: anyEdges }, isRounded) => {
        const rounded = new Set(anyEdges.map((edge) => Math.floor(edge / 1_000) * 1_000));
        const edges = isRounded && rounded.size > 1 ? [...rounded] : anyEdges;
        const query = { project: 'p', hosts: pick(ids, set), edges };
        const [requests, allAttacks] = await store.count({ ...query, rows: 'timeline' });
        const everything = await store.count({ ...query, rows: 'everything' });
        const [attacks, blocked] = [everything.slice(1, 14), everything.slice(14)];
        expect(everything[0]).toEqual(requests);
        expect(sumOfRows(attacks)).toEqual(allAttacks);
        expect(texts(await store.count({ ...query, rows: 'categories' }))).toEqual(texts(attacks));
        expect(texts(await store.count({ ...query, rows: 'attacks' }))).toEqual(texts([allAttacks]));
        const actions = [allAttacks, sumOfRows(blocked)];
        expect(texts(await store.count({ ...query, rows: 'actions' }))).toEqual(texts(actions));
        const onePoint = { ...query, edges: [edges[0] ?? 0, edges.at(-1) ?? 0] };
        expect(texts(await store.count({ ...onePoint, rows: 'categories' }))).toEqual(
          attacks.map((row) => String(sum(row))),
        );
        const pairs = attacks.flatMap((row, category) =>
          Array.from(row, (n, point) => [blocked[category]?.[point] ?? 0, n]),
        );
        expect(pairs.filter(([stopped = 0, all = 0]) => stopped > all)).toEqual([]);

        const byHost = await store.count({ ...query, rows: 'timeline', byHost: true });
        const hosts = [...byHost.keys()];
        const ofHosts = await store.count({ ...query, hosts: query.hosts ?? ids, rows: 'timeline' });
        for (const row of [0, 1] as const) {
          const rows = Array.from(byHost.values(), (counts) => counts[row]);
          if (rows.length > 0) expect(sumOfRows(rows)).toEqual(ofHosts[row]);
          else expect(sum(ofHosts[row])).toBe(0);
        }
        expect(await store.count({ ...query, hosts, rows: 'timeline', byHost: true })).toEqual(byHost);

        const peaks = await store.peaks(query);
        const counts = Object.values(OVERVIEW_GROUPS).map((group) =>
          group === null ? requests : sumOfRows(group.map((name) => rowOf(attacks, name))),
        );
        expect(texts(await store.count({ ...query, rows: 'groups' }))).toEqual(texts(counts));
        for (const [group, row] of peaks.entries()) {
          const count = counts[group] ?? new Float64Array(0);
          expect(row.every((n, point) => n <= (count[point] ?? 0) && n > 0 === (count[point] ?? 0) > 0)).toBe(
            true,
          );
        }
        if (!isRounded || rounded.size < 2) return;
        const whole = await store.peaks(onePoint);
        expect(whole.map((row) => row[0])).toEqual(peaks.map((row) => Math.max(...row)));
      }),
      { numRuns: runs(60) },
    );
  });

  test('response codes and their classes add up to the requests, and bytes count by minute', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(event, { numRuns: 1_000, seed: 9 });
    const near = drawn.map((one, i) => ({ ...one, time: NOW - (i % 90_000), count: 1 + (i % 3) }));
    await store.append(batch('p', ids, [...drawn, ...near]));
    await fc.assert(
      fc.asyncProperty(randomQuery, async ({ hosts: set, edges }) => {
        const query = { project: 'p', hosts: pick(ids, set), edges };
        const [requests] = await store.count({ ...query, rows: 'timeline' });
        const codes = await store.count({ ...query, rows: 'codes' });
        for (const rows of [codes, await store.count({ ...query, rows: 'upstreamCodes' })])
          expect(sumOfRows(rows)).toEqual(requests);
        const classOf = (name: string) =>
          codes.filter((_, i) => (i === 500 ? 'none' : `${Math.floor(i / 100) + 1}xx`) === name);
        expect(texts(await store.count({ ...query, rows: 'codeClasses' }))).toEqual(
          texts(CODE_CLASSES.map((name) => sumOfRows(classOf(name)))),
        );
        const minutes = edges.map((edge) => Math.ceil(edge / 60_000) * 60_000);
        expect(texts(await store.count({ ...query, rows: 'traffic' }))).toEqual(
          texts(await store.count({ ...query, edges: minutes, rows: 'traffic' })),
        );
      }),
      { numRuns: runs(60) },
    );
  });

  test('sums of bytes stay at the largest exact number, and the hour still counts', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const hour = Math.floor(NOW / 3_600_000) * 3_600_000 - 3_600_000;
    const bytesIn = Number.MAX_SAFE_INTEGER;
    const huge = { ...drawnAt(hour), request: true, bytesIn, bytesOut: 2 ** 53 - 5 };
    const small = { ...drawnAt(hour), request: true, bytesIn: 17, bytesOut: 3 };
    for (const events of [
      [{ ...huge, host: 0 }, small],
      [{ ...huge, host: 1 }],
      [{ ...small, time: hour + 60_000 }],
      [{ ...huge, time: hour + DAY_MS / 24 }],
    ])
      for (const each of [store, oracle]) await each.append(batch('p', ids, events));
    const grids = [60_000, 3_600_000, DAY_MS].map((ms) => [hour, hour + ms, hour + 2 * ms]);
    const queries = grids.flatMap((grid) => [null, [0], [0, 1]].map((set) => ({ hosts: set, edges: grid })));
    await expectSameResults(store, oracle, 'p', ids, queries);
    const [sums] = await store.count({ project: 'p', edges: [hour, hour + DAY_MS], rows: 'traffic' });
    expect([...sums]).toEqual([Number.MAX_SAFE_INTEGER]);
  });

  test('an event at an edge counts in the point that begins there', async () => {
    const { store } = await fresh();
    await store.append(batch('p', [], [drawnAt(NOW)]));
    const [requests] = await store.count({
      project: 'p',
      edges: [NOW - 1, NOW, NOW + 1, NOW + 2],
      rows: 'timeline',
    });
    expect([...requests]).toEqual([0, 1, 0]);
  });

  test('late events hide no newer ones, in the same batch or in a later one', async () => {
    const { store } = await fresh();
    const at = (hoursAgo: number) => drawnAt(NOW - hoursAgo * 3_600_000);
    await store.append(batch('p', [], [at(5), at(0), at(9)]));
    await store.append(batch('p', [], [at(7)]));
    const [requests] = await store.count({ project: 'p', edges: [NOW - DAY_MS, NOW + 1], rows: 'timeline' });
    expect(requests[0]).toBe(4);
  });

  test('counts far beyond 2^32 are exact', async () => {
    const { store } = await fresh();
    const events = Array.from({ length: 9_001 }, () => ({ ...drawnAt(NOW), count: 1_000_000 }));
    await store.append(batch('p', [], events));
    await store.append(batch('p', [], [drawnAt(NOW)]));
    const [requests] = await store.count({ project: 'p', edges: [NOW - DAY_MS, NOW + 1], rows: 'timeline' });
    expect(requests[0]).toBe(9_001_000_001);
  });

  test('an event that stands for several log records counts them all', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const events: Event[] = [
      { ...drawnAt(NOW), hostId: ids[0] ?? '', count: 9, recordCount: 9 },
      { ...drawnAt(NOW), hostId: null, count: 7, recordCount: 7 },
      { ...drawnAt(NOW - 1), hostId: 'unknown', count: 10, recordCount: 5 },
    ];
    expect(await store.append({ ...batch('p', ids, []), events })).toEqual({
      kind: 'appended',
      beforeHorizon: 0,
      withoutHost: 12,
      unknownHosts: 5,
    });
    const [requests] = await store.count({ project: 'p', edges: [NOW - 1, NOW, NOW + 1], rows: 'timeline' });
    expect([...requests]).toEqual([10, 16]);
    await store.prune(NOW);
    expect(await store.append({ ...batch('p', ids, []), events })).toMatchObject({ beforeHorizon: 5 });
    expect((await store.sources('p'))[0]).toMatchObject({
      events: 21 + 16,
      without_host: 12 + 7,
      dropped: { too_old: 5 },
    });
  });

  test('an unknown category is an error that names it, and nothing of the batch is counted', async () => {
    const { store } = await fresh();
    const good = batch('p', [], [{ ...drawnAt(NOW), attack: 'sqli' }]);
    // As a bug in a log format could create it.
    const bad = { ...drawnAt(NOW), attack: 'nonsense' as 'sqli' };
    const outcomes = await Promise.allSettled([
      store.append({ ...good, id: 'x', events: [...good.events, bad] }),
      store.append({ ...good, id: 'y' }),
    ]);
    expect(outcomes).toMatchObject([
      { status: 'rejected', reason: { message: expect.stringContaining("'nonsense'") } },
      { status: 'fulfilled', value: { kind: 'appended' } },
    ]);
    const [requests, attacks] = await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect([...requests, ...attacks]).toEqual([1, 1]);
    expect(await store.append({ ...good, id: 'x' })).toMatchObject({ kind: 'appended' });
  });

  test('projects are separate, and unknown hosts count nothing', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    await store.append(batch('p', ids, [{ ...drawnAt(NOW), host: 0 }]));
    const unknown = { ...batch('p', [], []), events: [{ ...drawnAt(NOW), hostId: 'unknown' }] };
    expect(await store.append(unknown)).toMatchObject({ withoutHost: 1, unknownHosts: 1 });
    const requests = async (project: string, hosts?: string[]) =>
      (await store.count({ project, hosts, edges: [0, NOW + 1], rows: 'timeline' }))[0][0];
    expect(await requests('p')).toBe(2);
    expect(await requests('p', [ids[0] ?? ''])).toBe(1);
    expect(await requests('p', [ids[0] ?? '', ids[0] ?? ''])).toBe(1);
    expect(await requests('p', ['unknown'])).toBe(0);
    expect(await requests('p', [])).toBe(0);
    expect(await requests('q')).toBe(0);
  });
}

function rowOf(rows: readonly Float64Array[], category: Category): Float64Array {
  return rows[CATEGORIES.indexOf(category)] ?? new Float64Array(0);
}

function sumOfRows(rows: readonly Float64Array[]): Float64Array {
  return Float64Array.from(rows[0] ?? [], (_, point) =>
    rows.reduce((total, row) => total + (row[point] ?? 0), 0),
  );
}

function sum(counts: Iterable<number>): number {
  return [...counts].reduce((total, n) => total + n, 0);
}
