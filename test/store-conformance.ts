/** One suite for all stores. Random events and queries are compared with the memory store. */
import fc from 'fast-check';
import { afterEach, test as define, describe, expect } from 'vitest';
import { CATEGORIES, type Category, type Event, OVERVIEW_GROUPS } from '../packages/server/src/event.ts';
import { gridEdges } from '../packages/server/src/statistics/timeline.ts';
import { copyProject, differences } from '../packages/server/src/store/copy.ts';
import { memoryStore } from '../packages/server/src/store/memory.ts';
import {
  type Batch,
  type CategorySeries,
  compareFollowed,
  type FollowedPath,
  HOUR_MS,
  type NewLink,
  NO_SOURCE,
  type Series,
  type Store,
  StoreUnavailable,
  TOP_LISTS,
  type TopQuery,
  wholeHours,
} from '../packages/server/src/store/store.ts';
import { scaled } from './random.ts';

/** `topKeys`: how many values a top list may keep per hour. */
type Create<T extends StoreUnderTest> = (now: () => number, topKeys?: number) => Promise<T>;

export interface StoreUnderTest {
  store: Store;
  destroy(): Promise<void>;
}

export interface DurableStoreUnderTest extends StoreUnderTest {
  /** A second store on the same data, as another process would open it. */
  another(): Store;
  /** Closes the store and opens its data again. */
  reopen(): Promise<Store>;
}

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);
const HOSTNAMES = ['a.example', 'b.example', 'c.example', 'd.example'];

/** Times so close that cells, chunks and edges meet: some random, some on and around boundaries. */
const moment = fc.oneof(
  fc.integer({ min: NOW - 40 * DAY_MS, max: NOW }),
  fc.integer({ min: NOW - 90_000, max: NOW }),
  fc
    .tuple(fc.integer({ min: 0, max: 40 * 24 * 4 }), fc.integer({ min: -1, max: 1 }))
    .map(([quarters, off]) => Math.floor(NOW / 900_000 - quarters) * 900_000 + off),
);

interface RandomEvent extends Omit<Event, 'hostId'> {
  host: number | null;
}

const event: fc.Arbitrary<RandomEvent> = fc.record({
  time: moment,
  host: fc.option(fc.integer({ min: 0, max: HOSTNAMES.length - 1 })),
  request: fc.boolean(),
  attack: fc.option(fc.constantFrom(...CATEGORIES)),
  count: fc.oneof({ weight: 5, arbitrary: fc.constant(1) }, fc.integer({ min: 1, max: 1_000_000 })),
  details: fc.constantFrom(undefined, {}, { blocked: false }, { blocked: true }),
});

const batches = fc.array(fc.array(event, { maxLength: 40 }), { minLength: 1, maxLength: 6 });
const hostSet = fc.option(fc.uniqueArray(fc.integer({ min: 0, max: HOSTNAMES.length }), { maxLength: 5 }));
const edges = fc.oneof(
  fc.uniqueArray(moment, { minLength: 2, maxLength: 12 }).map((times) => times.sort((a, b) => a - b)),
  fc
    .tuple(moment, moment, fc.integer({ min: -12 * 4, max: 14 * 4 }))
    .filter(([a, b]) => a !== b)
    .map(([a, b, quarters]) => gridEdges(Math.min(a, b), Math.max(a, b), quarters * 900_000)),
);
const randomQuery = fc.record({ hosts: hostSet, edges });

/** Attacks with few values, so that hours, hosts and categories share them. Some have no values, and some no host. */
const attackWithDetails: fc.Arbitrary<RandomEvent> = fc
  .record({
    ago: fc.tuple(fc.constantFrom(0, 1, 2, 5, 30, 800), fc.nat(3_600_000)),
    one: event,
    details: fc.record(
      {
        blocked: fc.boolean(),
        source: fc.oneof(
          fc.nat(9).map((n) => `203.0.113.${n}`),
          fc.constantFrom('2001:db8::1', '2001:db8::2', '2001:db8:1:2:3::4', '198.51.100.0/24'),
        ),
        url: fc.oneof(
          fc.nat(9).map((n) => `/${n}`),
          fc.constantFrom('/', '/ a', '/\u00e4'),
        ),
        rule: fc.nat(5).map((n) => `94210${n}`),
        country: fc.constantFrom('DE', 'FR'),
      },
      { requiredKeys: [] },
    ),
  })
  .map(({ ago: [hours, ms], one, details }) => ({ ...one, time: NOW - hours * HOUR_MS - ms, details }));
const randomTopQuery = fc
  .record({
    hosts: hostSet,
    list: fc.constantFrom(...TOP_LISTS),
    categories: fc.option(fc.uniqueArray(fc.constantFrom(...CATEGORIES), { maxLength: 6 }), {
      nil: undefined,
    }),
    limit: fc.constantFrom(1, 3, 1_000),
    range: fc
      .tuple(fc.constantFrom(0, 1, 3, 40, 900), fc.constantFrom(0, 1, 2, 31), fc.nat(3_600_000))
      .map(([hours, until, ms]) => ({ from: NOW - hours * HOUR_MS - ms, to: NOW + 1 - until * HOUR_MS })),
  })
  .map(({ range, ...query }) => ({ ...query, ...range }));

interface Effort {
  /** The share of random cases to run; if it is more than a half, at least 30 of each. */
  share?: number;
  /** For another release of an engine that runs the whole suite elsewhere: leaves out `OUR_LOGIC`. */
  isOtherRelease?: boolean;
}

function runs(cases: number, { share = 1 }: Effort): number {
  return scaled(Math.max(cases * share, share > 0.5 ? Math.min(cases, 30) : 1));
}

/** What our code decides, between statements that the other tests run too: it cannot depend on the engine's release. */
const OUR_LOGIC: readonly string[] = [
  'the order and the size of batches do not matter',
  'an event at an edge counts in the point that begins there',
  'an event object that appears many times in a batch counts each time',
  'an event that stands for several log records counts them all',
  'an unknown category is an error that names it, and nothing of the batch is counted',
  'a chunk that has grown replaces its earlier state',
  'a link is a conflict if another process has counted chunks of the same file',
  'a host name has one ID, an ID has one name, and the limit is respected',
  'a renamed host keeps its ID and its counts, and its old name becomes available',
  'the counts of a deleted host stay in the project; a host of the same name counts from zero',
  'concurrent callers that add the same host get the same ID',
  'concurrent callers that resolve the same new names get the same IDs, and the limit is respected',
  'projects are separate, and unknown hosts count nothing',
  'a source reports its events, its dropped records, and its first and last event',
  'a closed store rejects every call',
  'resolving a flood of names in a full project finds the known ones and yields to the event loop',
  'the first chunk of a file is kept as long as a later chunk is',
];

/** Defines a test, unless it is left out. */
function definer({ isOtherRelease = false }: Effort) {
  return (name: string, run: () => Promise<void>) => {
    if (!isOtherRelease || !OUR_LOGIC.includes(name)) define(name, run);
  };
}

/** Of top lists, which ClickHouse does not keep: PostgreSQL does. */
function topDefiner({ isOtherRelease = false }: Effort) {
  return isOtherRelease ? () => {} : define;
}

export function storeConformance(name: string, create: Create<StoreUnderTest>, effort: Effort = {}): void {
  const test = definer(effort);
  const topTest = topDefiner(effort);
  describe(`${name} fulfils the contract of a store`, () => {
    const opened: StoreUnderTest[] = [];
    async function fresh(topKeys?: number): Promise<StoreUnderTest> {
      const created = await create(() => NOW, topKeys);
      opened.push(created);
      return created;
    }
    afterEach(async () => {
      for (const { destroy } of opened.splice(0)) await destroy();
    });

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
        { numRuns: runs(150, effort) },
      );
    });

    test('busiest seconds equal the oracle if many batches and hosts share them', async () => {
      const { store } = await fresh();
      let run = 0;
      const ago = fc
        .tuple(fc.nat(40), fc.nat(3), fc.nat(2), fc.nat(999))
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
        { numRuns: runs(30, effort) },
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
            const versionAt = new Map<number, string>();
            for (const [i, next] of [[], ...steps].entries()) {
              if (next === 'prune') {
                horizon += DAY_MS / 50;
                await store.prune(horizon);
              } else if (next === 'rename') {
                await store.renameHost({ project, id: ids[0] ?? '', hostname: `renamed-${i}.example` });
              } else await store.append(batch(project, ids, next));
              const version = await store.version({ project, ...range });
              if (version === null) continue;
              const changes = store.changes?.();
              if (changes !== undefined) {
                expect(version).toBe(versionAt.get(changes) ?? version);
                versionAt.set(changes, version);
              }
              const parts = edges.slice(1).map((to, i) => ({ project, from: edges[i] ?? 0, to }));
              const versions = await store.versions?.({ project, edges });
              if (versions)
                expect(versions).toEqual(await Promise.all(parts.map((part) => store.version(part))));
              const query = { project, hosts: pick(ids, set) };
              const results = [
                await store.series({ ...query, edges }),
                await store.totals({ ...query, ...range }),
                rowsOf(await store.seriesByCategory({ ...query, edges })),
                texts(await store.seriesByGroup({ ...query, edges })),
                texts(await store.peaks({ ...query, edges })),
                await store.attacksByHost({ ...query, ...range }),
              ];
              expect(results).toEqual(known.get(version) ?? results);
              known.set(version, results);
            }
          },
        ),
        { numRuns: runs(100, effort) },
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
              store.series({ project, hosts: pick(ids, query.hosts), edges: query.edges });
            expect(await series(other, otherIds)).toEqual(await series(one, oneIds));
          },
        ),
        { numRuns: runs(40, effort) },
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
          const totals = (from: number, to: number) => store.totals({ project: 'p', hosts, from, to });
          const whole = await totals(a, c);
          const left = await totals(a, b);
          const right = await totals(b, c);
          expect(whole).toEqual(left.map((n, i) => n + (right[i] ?? 0)));
          const series = await store.series({ project: 'p', hosts, edges: [a, b, c] });
          expect(sum(series.attacks)).toBe(sum(whole));
        }),
        { numRuns: runs(100, effort) },
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
          const query = { project: 'p', hosts: pick(ids, set) };
          const range = { ...query, from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
          const series = await store.series({ ...query, edges });
          const { requests, attacks, blocked } = await store.seriesByCategory({ ...query, edges });
          expect(requests).toEqual(series.requests);
          expect(sumOfRows(attacks)).toEqual(series.attacks);
          expect(await store.totals(range)).toEqual(Float64Array.from(attacks, sum));
          const pairs = attacks.flatMap((row, category) =>
            Array.from(row, (n, point) => [blocked[category]?.[point] ?? 0, n]),
          );
          expect(pairs.filter(([stopped = 0, all = 0]) => stopped > all)).toEqual([]);

          const byHost = await store.attacksByHost(range);
          const hosts = [...byHost.keys()];
          expect(sum(Float64Array.from(byHost.values()))).toBe(
            sum((await store.series({ project: 'p', hosts: query.hosts ?? ids, edges })).attacks),
          );
          expect(await store.attacksByHost({ ...range, hosts })).toEqual(byHost);

          const peaks = await store.peaks({ ...query, edges });
          const counts = Object.values(OVERVIEW_GROUPS).map((group) =>
            group === null ? requests : sumOfRows(group.map((name) => rowOf(attacks, name))),
          );
          expect(texts(await store.seriesByGroup({ ...query, edges }))).toEqual(texts(counts));
          for (const [group, row] of peaks.entries()) {
            const count = counts[group] ?? new Float64Array(0);
            expect(
              row.every((n, point) => n <= (count[point] ?? 0) && n > 0 === (count[point] ?? 0) > 0),
            ).toBe(true);
          }
          if (!isRounded || rounded.size < 2) return;
          const whole = await store.peaks({ ...query, edges: [range.from, range.to] });
          expect(whole.map((row) => row[0])).toEqual(peaks.map((row) => Math.max(...row)));
        }),
        { numRuns: runs(60, effort) },
      );
    });

    test('an event at an edge counts in the point that begins there', async () => {
      const { store } = await fresh();
      await store.append(batch('p', [], [drawnAt(NOW)]));
      const { requests } = await store.series({ project: 'p', edges: [NOW - 1, NOW, NOW + 1, NOW + 2] });
      expect([...requests]).toEqual([0, 1, 0]);
    });

    test('counts far beyond 2^32 are exact', async () => {
      const { store } = await fresh();
      const events = Array.from({ length: 9_001 }, () => ({ ...drawnAt(NOW), count: 1_000_000 }));
      await store.append(batch('p', [], events));
      await store.append(batch('p', [], [drawnAt(NOW)]));
      const { requests } = await store.series({ project: 'p', edges: [NOW - DAY_MS, NOW + 1] });
      expect(requests[0]).toBe(9_001_000_001);
    });

    test('an event object that appears many times in a batch counts each time', async () => {
      const { store } = await fresh();
      const ids = await addHosts(store, 'p');
      const many = { ...drawnAt(NOW), hostId: ids[0] ?? '', attack: 'sqli' as const, count: 700_000 };
      const others = [drawnAt(NOW), { ...drawnAt(NOW - 1), hostId: 'unknown' }];
      const repeated = [
        ...Array(9).fill(many),
        ...Array(7).fill(others[0]),
        ...Array(5).fill(others[1]),
        many,
      ];
      const events: Event[] = repeated.map((each: Event) => each);
      expect(await store.append({ ...batch('p', ids, []), events })).toEqual({
        kind: 'appended',
        beforeHorizon: 0,
        withoutHost: 12,
        unknownHosts: 5,
      });
      const series = (hosts?: string[]) =>
        store.series({ project: 'p', hosts, edges: [NOW - 1, NOW, NOW + 1] });
      expect([...(await series()).requests]).toEqual([5, 7_000_007]);
      expect([...(await series([ids[0] ?? ''])).attacks]).toEqual([0, 7_000_000]);
      await store.prune(NOW);
      expect(await store.append({ ...batch('p', ids, []), events })).toMatchObject({ beforeHorizon: 5 });
      expect((await store.sources('p'))[0]).toMatchObject({
        events: 22 + 17,
        without_host: 12 + 7,
        dropped: { too_old: 5 },
      });
    });

    test('an event that stands for several log records counts them all', async () => {
      const { store } = await fresh();
      const ids = await addHosts(store, 'p');
      const events: Event[] = [
        { ...drawnAt(NOW), hostId: ids[0] ?? '', count: 9, records: 9 },
        { ...drawnAt(NOW), hostId: null, count: 7, records: 7 },
        { ...drawnAt(NOW - 1), hostId: 'unknown', count: 10, records: 5 },
      ];
      expect(await store.append({ ...batch('p', ids, []), events })).toEqual({
        kind: 'appended',
        beforeHorizon: 0,
        withoutHost: 12,
        unknownHosts: 5,
      });
      const { requests } = await store.series({ project: 'p', edges: [NOW - 1, NOW, NOW + 1] });
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
      expect(sum(await store.totals({ project: 'p', from: 0, to: NOW + 1 }))).toBe(1);
      const { requests } = await store.series({ project: 'p', edges: [0, NOW + 1] });
      expect([...requests]).toEqual([1]);
      expect(await store.append({ ...good, id: 'x' })).toMatchObject({ kind: 'appended' });
    });

    test('a batch id that the source already has changes nothing', async () => {
      const { store } = await fresh();
      const first = { ...batch('p', [], [drawnAt(NOW)]), id: 'x' };
      expect(await store.append(first)).toMatchObject({ kind: 'appended' });
      expect(await store.append(first)).toEqual({ kind: 'duplicate' });
      expect(await store.append({ ...first, source: { name: 'another', format: 'events' } })).toMatchObject({
        kind: 'appended',
      });
      expect(await store.append({ ...first, project: 'q' })).toMatchObject({ kind: 'appended' });
      const { requests } = await store.series({ project: 'p', edges: [0, NOW + 1] });
      expect([...requests]).toEqual([2]);
      expect((await store.sources('p')).map(({ events }) => events)).toEqual([1, 1]);
    });

    test('a batch that is sent many times at once counts once', async () => {
      const { store } = await fresh();
      const same = { ...batch('p', [], [drawnAt(NOW)]), id: 'x' };
      const kinds = (await Promise.all(Array.from({ length: 20 }, () => store.append(same)))).map(
        ({ kind }) => kind,
      );
      expect(kinds.filter((kind) => kind === 'appended')).toHaveLength(1);
      const { requests } = await store.series({ project: 'p', edges: [0, NOW + 1] });
      expect([...requests]).toEqual([1]);
    });

    test('chunks of a file are found by their predecessor', async () => {
      const { store } = await fresh();
      const { append, linksAfter } = linked(store);
      await append('one', { after: '', bytes: 10, readerState: 'c' });
      await append('another', { after: '', bytes: 20, siblings: ['one'] });
      await append('two', { after: 'one', bytes: 30 });
      expect(await linksAfter('')).toEqual([
        { id: 'another', bytes: 20, firstLineHash: '', readerState: '' },
        { id: 'one', bytes: 10, firstLineHash: '', readerState: 'c' },
      ]);
      expect(await linksAfter('one')).toEqual([{ id: 'two', bytes: 30, firstLineHash: '', readerState: '' }]);
      expect(await linksAfter('two')).toEqual([]);
      expect(await store.batchesAfter('p', 'nobody', '')).toEqual([]);
      expect(await store.batchesAfter('q', 'test', '')).toEqual([]);
    });

    test('a chunk that has grown replaces its earlier state', async () => {
      const { store } = await fresh();
      const { append, linksAfter } = linked(store);
      await append('one', { after: '', bytes: 10 });
      await append('grown', { after: '', bytes: 15, siblings: ['one'], replaces: 'one' });
      expect(await linksAfter('')).toEqual([{ id: 'grown', bytes: 15, firstLineHash: '', readerState: '' }]);
      const { requests } = await store.series({ project: 'p', edges: [0, NOW + 1] });
      expect([...requests]).toEqual([2]);
    });

    test('a link is a conflict if another process has counted chunks of the same file', async () => {
      const { store } = await fresh();
      const { append, linksAfter } = linked(store);
      await append('one', { after: '', bytes: 10 });
      expect(await append('longer', { after: '', bytes: 12 })).toEqual({ kind: 'conflict' });
      expect(await append('x', { after: '', bytes: 12, siblings: ['gone'], replaces: 'gone' })).toEqual({
        kind: 'conflict',
      });
      expect(await append('lost', { after: 'gone', bytes: 12 })).toEqual({ kind: 'conflict' });
      expect(await append('one', { after: '', bytes: 10 })).toEqual({ kind: 'duplicate' });
      expect(await linksAfter('')).toEqual([{ id: 'one', bytes: 10, firstLineHash: '', readerState: '' }]);
      await append('two', { after: 'one', bytes: 5 });
      expect(await append('grown', { after: '', bytes: 15, siblings: ['one'], replaces: 'one' })).toEqual({
        kind: 'conflict',
      });
      const { requests } = await store.series({ project: 'p', edges: [0, NOW + 1] });
      expect([...requests]).toEqual([2]);
    });

    test('the state of a followed path is stored with its batch or without one, but not with a rejected batch', async () => {
      const { store } = await fresh();
      expect(await store.followedPaths('p')).toEqual([]);
      const first = followed('/logs/a.log', NOW);
      await store.putFollowedPath('p', first);
      expect(await store.followedPaths('p')).toEqual([first]);
      expect(await store.sources('p')).toEqual([]);
      const second = { ...first, begun: { first_line_hash: 'h', at: NOW } };
      const one = { ...batch('p', [], [drawnAt(NOW)]), id: 'x', followed: second };
      await store.append(one);
      expect(await store.followedPaths('p')).toEqual([second]);
      const link = { after: 'unknown', bytes: 1, firstLineHash: '', readerState: '', siblings: [] };
      expect(await store.append({ ...one, followed: first })).toEqual({ kind: 'duplicate' });
      expect(await store.append({ ...one, id: 'y', link, followed: first })).toEqual({ kind: 'conflict' });
      expect(await store.followedPaths('p')).toEqual([second]);
      // Longer than the keys of some stores.
      const long = followed(`/${'long/'.repeat(800)}a.log`, NOW);
      const other = { ...followed('/logs/a.log', 1), source: 'other' };
      for (const each of [long, other]) await store.putFollowedPath('p', each);
      await store.prune(NOW + 10 * DAY_MS);
      expect(await store.followedPaths('p')).toEqual([other, second, long].sort(compareFollowed));
      expect(await store.followedPaths('q')).toEqual([]);
    });

    test('a host name has one ID, an ID has one name, and the limit is respected', async () => {
      const { store } = await fresh();
      const add = (hostname: string, id?: string) => store.addHost({ project: 'p', hostname, id, limit: 3 });
      const added = await add('b.example');
      expect(added).toMatchObject({ kind: 'added', host: { hostname: 'b.example', created: NOW } });
      expect(added.kind === 'added' && added.host.id).toMatch(/^[0-9a-f]{32}$/);
      expect(await add('b.example', 'other')).toEqual({ ...added, kind: 'exists' });
      expect(await add('a.example', 'chosen')).toMatchObject({ kind: 'added', host: { id: 'chosen' } });
      expect(await add('c.example', 'chosen')).toMatchObject({
        kind: 'id_taken',
        host: { hostname: 'a.example' },
      });
      expect(await add('d.example')).toMatchObject({ kind: 'added' });
      expect(await add('e.example')).toEqual({ kind: 'full' });
      expect(await add('a.example')).toMatchObject({ kind: 'exists' });
      expect((await store.hosts('p')).map(({ hostname }) => hostname)).toEqual([
        'a.example',
        'b.example',
        'd.example',
      ]);
      expect(await store.hosts('q')).toEqual([]);
    });

    test('a renamed host keeps its ID and its counts, and its old name becomes available', async () => {
      const { store } = await fresh();
      const ids = await addHosts(store, 'p');
      const [id = '', otherId = ''] = ids;
      const [old = '', other = ''] = HOSTNAMES;
      await store.append(batch('p', ids, [{ ...drawnAt(NOW), host: 0 }]));
      const rename = (hostId: string, hostname: string) =>
        store.renameHost({ project: 'p', id: hostId, hostname });
      const renamed = { kind: 'renamed', host: { id, hostname: 'new.example', created: NOW } };
      expect(await rename(id, 'new.example')).toEqual(renamed);
      expect(await rename(id, 'new.example')).toEqual(renamed);
      expect(await rename(id, other)).toMatchObject({ kind: 'name_taken', host: { id: otherId } });
      expect(await rename('unknown', 'x.example')).toEqual({ kind: 'unknown' });
      expect(await store.renameHost({ project: 'q', id, hostname: 'x.example' })).toEqual({
        kind: 'unknown',
      });
      const again = await store.addHost({ project: 'p', hostname: old, limit: 1_000 });
      expect(again).toMatchObject({ kind: 'added', host: { hostname: old } });
      expect('host' in again && again.host.id).not.toBe(id);
      expect(await store.addHost({ project: 'p', hostname: 'new.example', limit: 0 })).toMatchObject({
        kind: 'exists',
        host: { id },
      });
      expect(await store.hosts('p')).toHaveLength(HOSTNAMES.length + 1);
      const { requests } = await store.series({ project: 'p', hosts: [id], edges: [NOW, NOW + 1] });
      expect([...requests]).toEqual([1]);
    });

    test('the counts of a deleted host stay in the project; a host of the same name counts from zero', async () => {
      // After the deletion, the hour gets more values than fit into one record.
      const { store } = await fresh(16);
      const oracle = memoryStore(() => NOW);
      const attack = {
        ...drawnAt(NOW - 5),
        attack: 'xss',
        details: { source: '192.0.2.1', url: '/a' },
      } as const;
      for (const each of [store, oracle]) {
        const ids = await addHosts(each, 'p');
        const [id = ''] = ids;
        const events = [
          { ...attack, host: 0 },
          { ...attack, host: 1 },
          { ...attack, host: null },
        ];
        await each.append(batch('p', ids, events));
        const selection = { project: 'p', hosts: [id], edges: [NOW - 9, NOW + 9] };
        expect([...(await each.series(selection)).attacks]).toEqual([attack.count]);
        const listed = async () =>
          (await each.top({ ...selection, from: NOW - 9, to: NOW, list: 'sources', limit: 9 })).attacks;
        expect(await listed()).toBe(1);
        const versions = [await each.version({ project: 'p', from: NOW - 9, to: NOW })];
        const changes = each.changes?.();
        const deleted = { kind: 'deleted', host: { id, hostname: HOSTNAMES[0], created: NOW } };
        expect(await each.deleteHost({ project: 'p', id })).toEqual(deleted);
        expect(await each.deleteHost({ project: 'p', id })).toEqual({ kind: 'unknown' });
        expect(await each.deleteHost({ project: 'q', id })).toEqual({ kind: 'unknown' });
        versions.push(await each.version({ project: 'p', from: NOW - 9, to: NOW }));
        expect(versions[0]).not.toBe(versions[1]);
        if (changes !== undefined) expect(each.changes?.()).not.toBe(changes);
        // A batch that was resolved before.
        expect(await each.append(batch('p', ids, [{ ...attack, host: 0 }]))).toMatchObject({
          unknownHosts: 1,
        });
        expect(await listed()).toBe(0);
        const hostnames = [HOSTNAMES[0] ?? ''];
        const [again] = await each.resolveHosts({ project: 'p', hostnames, limit: 9 });
        expect(again).not.toBe(id);
        const sources = Array.from({ length: 20 }, (_, i) => ({ ...attack.details, source: `192.0.2.${i}` }));
        const more = sources.map((details) => ({ ...attack, time: NOW - 4, details, host: 0 }));
        await each.append(batch('p', [again ?? ''], more));
        expect(await listed()).toBe(0);
      }
      const range = { project: 'p', from: NOW - 9, to: NOW };
      const summary = async (each: Store) => {
        const hosts = await each.hosts('p');
        const events = [];
        for await (const part of each.events('p')) events.push(...part.events);
        return {
          hosts,
          sources: (await each.sources('p')).map(({ id: _, ...source }) => source),
          attacks: await each.attacksByHost(range),
          series: await Promise.all(
            [undefined, ...hosts.map(({ id }) => [id])].map((ids) =>
              each.series({ ...range, hosts: ids, edges: [NOW - 9, NOW - 4, NOW] }),
            ),
          ),
          lists: await Promise.all(
            [undefined, ...hosts.map(({ id }) => [id])].map(
              async (ids) => (await each.top({ ...range, hosts: ids, list: 'sources', limit: 9 })).attacks,
            ),
          ),
          events: events
            .filter(({ attack: category }) => category !== null)
            .map(({ hostId, time, count }) => [hostId, time, count] as const)
            .reduce<Record<string, number>>((sums, [hostId, time, count]) => {
              const key = `${hostId} ${time}`;
              return Object.assign(sums, { [key]: (sums[key] ?? 0) + count });
            }, {}),
        };
      };
      expect(await summary(store)).toEqual(await summary(oracle));
    });

    test('concurrent callers that add the same host get the same ID', async () => {
      const { store } = await fresh();
      const added = await Promise.all(
        Array.from({ length: 10 }, () => store.addHost({ project: 'p', hostname: 'a.example', limit: 10 })),
      );
      expect(new Set(added.map((one) => 'host' in one && one.host.id)).size).toBe(1);
      expect(await store.hosts('p')).toHaveLength(1);
    });

    test('resolving names together equals resolving them one by one, also after renames and deletions and at the limit', async () => {
      const { store } = await fresh();
      const names = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'ü/%.example', 'A');
      const step = fc.oneof(
        fc.record({
          kind: fc.constant('resolve' as const),
          names: fc.array(names, { maxLength: 8 }),
          limit: fc.nat(9),
        }),
        fc.record({ kind: fc.constant('rename' as const), from: names, to: names }),
        fc.record({ kind: fc.constant('delete' as const), from: names }),
        fc.record({
          kind: fc.constant('add' as const),
          name: names,
          id: fc.constantFrom(undefined, 'x', 'y'),
        }),
      );
      let run = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 8 }), async (steps) => {
          const project = `p${run++}`;
          const oracle = memoryStore(() => NOW);
          for (const next of steps) {
            const [got, want] = await Promise.all(
              [store, oracle].map(async (each) => {
                if (next.kind === 'resolve')
                  return each.resolveHosts({ project, hostnames: next.names, limit: next.limit });
                if (next.kind === 'add')
                  return each.addHost({ project, hostname: next.name, id: next.id, limit: 9 });
                const host = (await each.hosts(project)).find(({ hostname }) => hostname === next.from);
                const id = host?.id ?? 'none';
                return next.kind === 'delete'
                  ? each.deleteHost({ project, id })
                  : each.renameHost({ project, id, hostname: next.to });
              }),
            );
            expect(got).toEqual(want);
            expect(await store.hosts(project)).toEqual(await oracle.hosts(project));
          }
        }),
        { numRuns: runs(100, effort) },
      );
    });

    test('concurrent callers that resolve the same new names get the same IDs, and the limit is respected', async () => {
      const { store } = await fresh();
      const hostnames = Array.from({ length: 30 }, (_, i) => `${i}.example`);
      const resolved = await Promise.all(
        Array.from({ length: 5 }, () => store.resolveHosts({ project: 'p', hostnames, limit: 20 })),
      );
      const hosts = new Map((await store.hosts('p')).map(({ hostname, id }) => [hostname, id]));
      expect([...hosts.keys()].sort()).toEqual(hostnames.slice(0, 20).sort());
      for (const ids of resolved) expect(ids).toEqual(hostnames.map((name) => hosts.get(name) ?? null));
    });

    test('projects are separate, and unknown hosts count nothing', async () => {
      const { store } = await fresh();
      const ids = await addHosts(store, 'p');
      await store.append(batch('p', ids, [{ ...drawnAt(NOW), host: 0 }]));
      const unknown = { ...batch('p', [], []), events: [{ ...drawnAt(NOW), hostId: 'unknown' }] };
      expect(await store.append(unknown)).toMatchObject({ withoutHost: 1, unknownHosts: 1 });
      const requests = async (project: string, hosts?: string[]) =>
        (await store.series({ project, hosts, edges: [0, NOW + 1] })).requests[0];
      expect(await requests('p')).toBe(2);
      expect(await requests('p', [ids[0] ?? ''])).toBe(1);
      expect(await requests('p', [ids[0] ?? '', ids[0] ?? ''])).toBe(1);
      expect(await requests('p', ['unknown'])).toBe(0);
      expect(await requests('p', [])).toBe(0);
      expect(await requests('q')).toBe(0);
    });

    test('a source reports its events, its dropped records, and its first and last event', async () => {
      const { store } = await fresh();
      const ids = await addHosts(store, 'p');
      await store.append({
        ...batch('p', ids, [{ ...drawnAt(NOW - 5), host: 1 }]),
        dropped: { bad_time: 2 },
        examples: { bad_time: { text: 'one', time: NOW } },
      });
      await store.append({
        ...batch('p', ids, [{ ...drawnAt(NOW - 9), host: 0 }]),
        dropped: { bad_time: 1 },
        examples: { bad_time: { text: 'two', time: NOW } },
      });
      await store.append({
        ...batch('p', ids, []),
        source: { name: 'empty', format: 'f' },
        dropped: { not_json: 1 },
      });
      const [empty, test] = await store.sources('p');
      expect(empty).toMatchObject({ name: 'empty', events: 0, first_seen: null, last_seen: null, hosts: [] });
      expect(test).toEqual({
        id: expect.stringMatching(/^[0-9a-f]{32}$/),
        name: 'test',
        format: 'events',
        hosts: [ids[0], ids[1]].sort(),
        events: 2,
        without_host: 0,
        dropped: { bad_time: 3 },
        examples: { bad_time: { text: 'two', time: NOW } },
        first_seen: NOW - 9,
        last_seen: NOW - 5,
      });
      expect(await store.sources('q')).toEqual([]);
      const withoutHosts = [empty, test].map((source) => {
        const { hosts: _, ...rest } = source ?? {};
        return rest;
      });
      await store.append({ ...batch('a', [], [drawnAt(NOW - 5)]), source: NO_SOURCE });
      expect(await store.projects()).toEqual([
        { project: 'a', sources: [] },
        { project: 'p', sources: withoutHosts },
      ]);
    });

    test('a source with batches of several formats is mixed; a batch without any changes nothing', async () => {
      const { store } = await fresh();
      const expected = [
        ['auto', 'auto'],
        ['access', 'access'],
        ['auto', 'access'],
        ['access', 'access'],
        ['modsecurity3-json', 'mixed'],
        ['access', 'mixed'],
      ];
      const found: string[][] = [];
      for (const [format = ''] of expected) {
        await store.append({ ...batch('p', [], [drawnAt(NOW - 5)]), source: { name: 's', format } });
        found.push([format, (await store.sources('p'))[0]?.format ?? '']);
      }
      expect(found).toEqual(expected);
    });

    test('examples of dropped lines are deleted with the top lists, by their age or with the project', async () => {
      const { store } = await fresh();
      const dropping = (project: string, name: string, times: Record<string, number>) =>
        store.append({
          ...batch(project, [], []),
          source: { name, format: 'f' },
          dropped: { bad_time: 1 },
          examples: Object.fromEntries(
            Object.entries(times).map(([reason, time]) => [reason, { text: 'x', time }]),
          ),
        });
      const left = async (project: string) =>
        (await store.sources(project)).map(({ name, dropped, examples }) => [
          name,
          dropped,
          Object.keys(examples),
        ]);
      await dropping('p', 'a', { bad_time: NOW - 10, not_json: NOW - 5 });
      await dropping('p', 'b', { bad_time: NOW - 5 });
      await dropping('q', 'a', { bad_time: NOW - 10 });
      const dropped = { bad_time: 1 };
      await store.prune(0, { topListsBefore: NOW - 5 });
      expect(await left('p')).toEqual([
        ['a', dropped, ['not_json']],
        ['b', dropped, ['bad_time']],
      ]);
      expect(await left('q')).toEqual([['a', dropped, []]]);
      await dropping('q', 'a', { bad_time: NOW });
      await store.deleteDetails('p');
      expect(await left('p')).toEqual([
        ['a', dropped, []],
        ['b', dropped, []],
      ]);
      expect(await left('q')).toEqual([['a', { bad_time: 2 }, ['bad_time']]]);
      await store.prune(NOW + 1);
      expect(await left('q')).toEqual([['a', { bad_time: 2 }, []]]);
    });

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
          { numRuns: runs(50, effort) },
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
        await each.noteRetention(note);
        expect((await each.retention()).note).toEqual(note);
        // This does not move the horizon forward.
        expect(await each.restoreHorizon(NOW)).toBe(horizon);
      }
      const expectSame = () =>
        fc.assert(
          fc.asyncProperty(randomQuery, (query) => expectSameResults(store, oracle, 'p', ids, [query])),
          { numRuns: runs(30, effort) },
        );
      await expectSame();
      for (const to of [NOW - 10 * DAY_MS, 0]) {
        for (const each of [store, oracle]) expect(await each.restoreHorizon(to)).toBe(Math.max(to, freed));
        await expectSame();
      }
      expect(await store.append({ ...batch('p', ids, drawn), id: 'x' })).toEqual({ kind: 'duplicate' });
    });

    test('a project that is copied to another store and back is unchanged', async () => {
      const { store, destroy } = await fresh();
      const ids = await addHosts(store, 'p');
      const drawn = fc.sample(event, { numRuns: 300, seed: 5 });
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
      const other = memoryStore(() => NOW);
      await copyProject(store, other, 'p');
      expect(await differences(store, other, 'p', range)).toEqual([]);
      const links = await Promise.all(['', 'one', 'two'].map(linksAfter));
      // An in-process engine allows one store at a time.
      opened.pop();
      await destroy();
      const { store: back } = await fresh();
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

    topTest('top lists equal the oracle as long as all values fit, whatever was queried before', async () => {
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
        { numRuns: runs(60, effort) },
      );
    });

    topTest('top lists keep their bounds if there are more values than fit', async () => {
      const topKeys = 4;
      const { store } = await fresh(topKeys);
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
              const { attacks } = await oracle.top({ ...all, categories: undefined });
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
        { numRuns: runs(60, effort) },
      );
    });

    topTest(
      'top lists cover whole hours, from the first one that begins at or after the horizon',
      async () => {
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
        expect((await store.totals({ project: 'p', ...range })).some((count) => count > 0)).toBe(true);
      },
    );

    topTest('while the version of the hours of a range is equal, so are its top lists', async () => {
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
        { numRuns: runs(60, effort) },
      );
    });

    topTest('top lists are copied to another store and back', async () => {
      const { store, destroy } = await fresh();
      const ids = await addHosts(store, 'p');
      const drawn = fc.sample(attackWithDetails, { numRuns: 300, seed: 6 });
      await store.append(batch('p', ids, drawn));
      const other = memoryStore(() => NOW);
      await copyProject(store, other, 'p');
      const range = { from: NOW - 900 * HOUR_MS, to: NOW + 1 };
      expect(await differences(store, other, 'p', range)).toEqual([]);
      opened.pop();
      await destroy();
      const { store: back } = await fresh();
      for (let i = 0; i < 2; i++) await copyProject(other, back, 'p');
      expect(await differences(other, back, 'p', range)).toEqual([]);
      const { items } = await back.top({ project: 'p', list: 'urls', limit: 5, ...range });
      expect(items).toHaveLength(5);
      const slices = [];
      for await (const part of other.topSlices('p')) slices.push(...part);
      // Lists of the whole range would be the same.
      await back.deleteDetails('p');
      await back.putTopSlices(
        'p',
        slices.map((slice) => ({ ...slice, hour: slice.hour - 1 })),
      );
      expect(await differences(other, back, 'p', range)).toContain('the top lists of the project differ');
      // Neither of these stores has what is before the horizon.
      const horizon = NOW - 100 * HOUR_MS + 1;
      for (const each of [other, back]) {
        await each.prune(horizon, { freeBefore: 0, topListsBefore: 0 });
        await each.deleteDetails('p');
        await each.putTopSlices('p', slices);
      }
      const kept = [];
      for await (const part of back.topSlices('p')) kept.push(...part);
      const hours = slices.map(({ hour }) => hour).filter((hour) => hour * HOUR_MS >= horizon);
      expect(kept.map(({ hour }) => hour).sort()).toEqual(hours.sort());
      expect(await differences(other, back, 'p', range)).toEqual([]);
      await back.deleteDetails('p');
      expect(await differences(other, back, 'p', range)).toContain('the top lists of the project differ');
    });

    test('a closed store rejects every call', async () => {
      const { store } = await fresh();
      await store.close();
      await expect(store.ping()).rejects.toThrow(StoreUnavailable);
      await expect(store.append(batch('p', [], []))).rejects.toThrow(StoreUnavailable);
      await expect(store.totals({ project: 'p', from: 0, to: 1 })).rejects.toThrow(StoreUnavailable);
      const query = { project: 'p', edges: [0, 1] };
      await expect(store.series(query)).rejects.toThrow(StoreUnavailable);
      await expect(store.seriesByCategory(query)).rejects.toThrow(StoreUnavailable);
      await expect(store.seriesByGroup(query)).rejects.toThrow(StoreUnavailable);
      await expect(store.peaks(query)).rejects.toThrow(StoreUnavailable);
      await expect(store.attacksByHost({ project: 'p', from: 0, to: 1 })).rejects.toThrow(StoreUnavailable);
    });
  });
}

function followed(path: string, since: number): FollowedPath {
  const file = { first_line_hash: 'f', state: 'finished' as const, modified_ms: since + 0.5, bytes: 3 };
  return { source: 'test', path, since, begun: null, files: [file] };
}

/** Appends single events as chunks of a file. */
function linked(store: Store) {
  return {
    append: (id: string, link: Partial<NewLink> & Pick<NewLink, 'after' | 'bytes'>) =>
      store.append({
        ...batch('p', [], [drawnAt(NOW)]),
        id,
        link: { firstLineHash: '', readerState: '', siblings: [], ...link },
      }),
    linksAfter: async (id: string) =>
      (await store.batchesAfter('p', 'test', id)).toSorted((a, b) => (a.id < b.id ? -1 : 1)),
  };
}

/** Additional tests for stores that outlive their process. */
export function durableStoreConformance(
  name: string,
  create: Create<DurableStoreUnderTest>,
  effort: Effort = {},
): void {
  const test = definer(effort);
  const topTest = topDefiner(effort);
  storeConformance(name, create, effort);
  describe(`${name} is durable`, () => {
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
        { numRuns: runs(60, effort) },
      );
      await other.close();
      await destroy();
    });

    test('while the change counter is equal, so are the versions in all processes, also after a rename', async () => {
      const { store, another, destroy } = await create(() => NOW);
      const ids = await addHosts(store, 'p');
      const id = ids[0] ?? '';
      await store.append(batch('p', ids, [drawnAt(NOW - 5)]));
      const range = { project: 'p', from: NOW - 9, to: NOW };
      const versionAt = new Map<number | undefined, string | null>();
      const expectSameVersions = async () => {
        const other = another();
        for (const each of [store, other]) {
          const changes = each.changes?.();
          const version = await each.version(range);
          if (changes !== undefined) expect(version).toBe(versionAt.get(changes) ?? version);
          versionAt.set(changes, version);
        }
        await other.close();
        return store.version(range);
      };
      const before = await expectSameVersions();
      await store.renameHost({ project: 'p', id, hostname: 'new.example' });
      await expectSameVersions();
      await store.deleteHost({ project: 'p', id });
      expect(await expectSameVersions()).not.toBe(before);
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

    topTest('other processes see the top lists of what one process counts', async () => {
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

    topTest('a flood of values is bounded, and does not hide the top attacker', async () => {
      const { store, destroy } = await create(() => NOW, 100);
      const details = (source: string) => ({ source, url: `/${source}` });
      const attacks = Array.from({ length: 5_000 }, (_, i): RandomEvent => {
        const source = i % 20 === 7 ? '203.0.113.7' : `10.0.${i >> 8}.${i & 255}`;
        return { ...drawnAt(NOW - (i % 1_000)), attack: 'sqli', details: details(source) };
      });
      for (let i = 0; i < 5; i++)
        await store.append(batch('p', [], attacks.slice(i * 1_000, (i + 1) * 1_000)));
      const query = { project: 'p', list: 'sources' as const, from: NOW - 1_000, to: NOW + 1, limit: 1_000 };
      const list = await store.top(query);
      expect(list).toMatchObject({ attacks: 5_000, distinctIs: 'estimate' });
      expect(Math.abs(list.distinct / 4_751 - 1)).toBeLessThan(0.07);
      expect(list.items).toHaveLength(100);
      expect(list.items[0]).toMatchObject({ key: '203.0.113.7', count: 250, error: 0 });
      const slices = [];
      for await (const part of store.topSlices('p')) slices.push(...part);
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
        edges: gridEdges(NOW - 39 * DAY_MS, NOW, 20_700_000),
      };
      const before = [await store.series(query), await store.hosts('p'), await store.sources('p')];
      const again = await reopen();
      expect([await again.series(query), await again.hosts('p'), await again.sources('p')]).toEqual(before);
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
  });
}

/** lmdb-js reuses a snapshot until the timers of the turn are due. */
function snapshotsEnd(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}

/** In one call: on ClickHouse, every change of the ledger takes several round trips. */
async function addHosts(store: Store, project: string): Promise<string[]> {
  const ids = await store.resolveHosts({ project, hostnames: HOSTNAMES, limit: 1_000 });
  return ids.map((id) => id ?? '');
}

function batch(project: string, ids: readonly string[], events: readonly RandomEvent[]): Batch {
  return {
    project,
    source: { name: 'test', format: 'events' },
    events: events.map(({ host, ...rest }) => ({
      ...rest,
      hostId: host === null ? null : (ids[host] ?? null),
    })),
    dropped: {},
  };
}

function drawnAt(time: number): RandomEvent & { hostId: null } {
  return { time, host: null, hostId: null, request: true, attack: null, count: 1 };
}

/** Numbers beyond the hosts yield an unknown ID. */
function pick(ids: readonly string[], set: readonly number[] | null): string[] | undefined {
  return set?.map((number) => ids[number] ?? 'none');
}

async function expectSameTopLists(
  store: Store,
  oracle: Store,
  project: string,
  ids: readonly string[],
  queries: readonly (Omit<TopQuery, 'project' | 'hosts'> & { hosts: number[] | null })[],
): Promise<void> {
  for (const query of queries) {
    const top = { ...query, project, hosts: pick(ids, query.hosts) };
    expect(await store.top(top)).toEqual(await oracle.top(top));
  }
}

async function expectSameResults(
  store: Store,
  oracle: Store,
  project: string,
  ids: readonly string[],
  queries: readonly { hosts: number[] | null; edges: number[] }[],
): Promise<void> {
  for (const { hosts: set, edges } of queries) {
    const hosts = pick(ids, set);
    const series = { project, hosts, edges };
    const both = ({ requests, attacks }: Series) => texts([requests, attacks]);
    expect(both(await store.series(series))).toEqual(both(await oracle.series(series)));
    const range = { project, hosts, from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
    expect(await store.totals(range)).toEqual(await oracle.totals(range));
    expect(await store.attacksByHost(range)).toEqual(await oracle.attacksByHost(range));
    const categories = await store.seriesByCategory(series);
    const expected = await oracle.seriesByCategory(series);
    expect(rowsOf(categories)).toEqual(rowsOf(expected));
    expect(texts(await store.seriesByGroup(series))).toEqual(texts(await oracle.seriesByGroup(series)));
    expect(texts(await store.peaks(series))).toEqual(texts(await oracle.peaks(series)));
  }
}

function rowsOf({ requests, attacks, blocked }: CategorySeries) {
  return { requests: texts([requests]), attacks: texts(attacks), blocked: texts(blocked) };
}

/** Long arrays compare much faster as text. */
function texts(rows: readonly Float64Array[]): string[] {
  return rows.map((row) => row.join());
}

function rowOf(rows: readonly Float64Array[], category: Category): Float64Array {
  return rows[CATEGORIES.indexOf(category)] ?? new Float64Array(0);
}

function sumOfRows(rows: readonly Float64Array[]): Float64Array {
  return Float64Array.from(rows[0] ?? [], (_, point) =>
    rows.reduce((total, row) => total + (row[point] ?? 0), 0),
  );
}

function sum(counts: Float64Array): number {
  return counts.reduce((total, n) => total + n, 0);
}
