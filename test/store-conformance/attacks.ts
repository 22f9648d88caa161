/** Kept attacks: entries, sums, limits, hours and copies. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CATEGORIES, type Category } from '../../packages/server/src/event.ts';
import { entryKey } from '../../packages/server/src/store/attack-entries.ts';
import { type AttackFilter, FILTERS } from '../../packages/server/src/store/attack-filter.ts';
import { BLOCK_ENTRIES_MAX } from '../../packages/server/src/store/attack-layout.ts';
import type { AttackList, AttackQuery } from '../../packages/server/src/store/attack-list.ts';
import { copyProject, differences } from '../../packages/server/src/store/copy.ts';
import {
  HOUR_MS,
  type Selection,
  type Store,
  type TimeRange,
  TOP_LISTS,
} from '../../packages/server/src/store/store.ts';
import { memoryStore } from '../memory-store.ts';
import { addHosts, attackWithDetails, batch, hostSet, moment, NOW, pick, type RandomEvent } from './data.ts';
import type { Suite } from './suite.ts';

const text = fc.constantFrom('a', 'b', '\u00e4');
const rule = fc.record({ id: text, variable: text, value: text, severity: text }, { requiredKeys: ['id'] });
/** With few values, so that some attacks are equal in all of them. */
const attack: fc.Arbitrary<RandomEvent> = fc
  .record({
    one: attackWithDetails,
    category: fc.constantFrom(...CATEGORIES),
    more: fc.record(
      {
        id: text,
        method: text,
        query: text,
        status: fc.constantFrom(200, 403),
        rules: fc.array(rule, { maxLength: 3 }),
        score: fc.constantFrom(0, 5),
        userAgent: text,
      },
      { requiredKeys: [] },
    ),
  })
  .map(({ one, category, more }) => ({
    ...one,
    time: one.time - (one.time % 600_000),
    attack: category,
    details: { ...one.details, ...more },
  }));

/** One of the values, by number. */
function pickOne<T>(values: readonly T[], number: number): T {
  return values[number % values.length] as T;
}

const ALL = { from: NOW - 2_000 * HOUR_MS, to: NOW + HOUR_MS };

const EVERYTHING = { filter: { include: {}, exclude: {} }, isAscending: true, offset: 0, limit: 100_000 };

function list(store: Store, project: string, query: Partial<AttackQuery> = {}): Promise<AttackList> {
  return store.attacks({ project, ...ALL, ...EVERYTHING, ...query });
}

/** The keys of the scanned entries of each hour: their order within it depends on blocks. */
async function scan(store: Store, query: Selection & TimeRange): Promise<string[][]> {
  const hours: string[][] = [];
  await store.scanAttacks(query, function* (hour) {
    yield;
    const keys = hour.flatMap(({ block, rows }) =>
      Array.from(rows ?? block.times.keys(), (i) => entryKey(block.entry(i)) + block.entry(i).count),
    );
    if (keys.length > 0) hours.push(keys.sort());
  });
  return hours;
}

/** The number of entries of each hour. */
function perHour({ items }: AttackList): number[] {
  const hours = new Map<number, number>();
  for (const { time } of items) {
    const hour = Math.floor(time / HOUR_MS);
    hours.set(hour, (hours.get(hour) ?? 0) + 1);
  }
  return [...hours.values()];
}

/** Different attacks in one hour. */
function distinctAttacks(length: number, offsetMs: number, method: string): RandomEvent[] {
  const [event] = fc.sample(attack, { numRuns: 1, seed: 1 });
  return Array.from({ length }, (_, i) => ({
    ...(event as RandomEvent),
    time: NOW - 2 * HOUR_MS - (NOW % HOUR_MS) + offsetMs + i,
    count: 1,
    details: { id: `${method}-${i}`, method, source: `203.0.113.${i % 100}` },
  }));
}

/** The kept attacks of an hour add up to its counter, unless it is over the limit: then there are fewer. */
async function expectLawOfHours(
  store: Store,
  project: string,
  events: readonly RandomEvent[],
  eventsMax: number,
): Promise<void> {
  const unlimited = memoryStore(() => NOW);
  const ids = await addHosts(unlimited, project);
  await unlimited.append(batch(project, ids, events));
  for (const hour of new Set(events.map(({ time }) => Math.floor(time / HOUR_MS)))) {
    const range = { from: hour * HOUR_MS, to: (hour + 1) * HOUR_MS };
    const { kept, keptAttacks } = await list(store, project, range);
    const [[attacks = 0]] = await store.count({ project, edges: [range.from, range.to], rows: 'attacks' });
    const { total } = await list(unlimited, project, range);
    expect(kept).toBe(Math.min(total, eventsMax));
    if (total > eventsMax) expect(keptAttacks).toBeLessThan(attacks);
    else expect(keptAttacks).toBe(attacks);
  }
}

const FILTER_VALUES: Record<(typeof FILTERS)[number], readonly string[]> = {
  ids: ['a', 'b', 'c'],
  hosts: ['none'],
  categories: ['xss', 'sqli', 'cc', 'robot'],
  actions: ['block', 'log'],
  sources: [
    '203.0.113.0/29',
    '203.0.113.9',
    '198.51.100.0/23',
    '198.51.100.7',
    '198.51.100.128/25',
    '2001:db8:1:2::9/120',
    '2001:db8::1',
    '2001:db8::/32',
    '::/0',
    '0.0.0.0/0',
  ],
  countries: ['DE', 'FR'],
  methods: ['a', 'b'],
  urls: ['/', '/1', '/2*', '/*', '*'],
  statuses: ['200', '403'],
  rules: ['a', 'b', '942100', '942103'],
  values: ['a', 'b'],
  sourceParts: ['113', '2001:', '::'],
  urlParts: ['/', '1', 'none'],
  valueParts: ['a', '\u00e4', 'none'],
};
const filterLists = fc.record(
  Object.fromEntries(
    FILTERS.filter((name) => name !== 'hosts').map((name) => [
      name,
      fc.array(fc.constantFrom(...FILTER_VALUES[name]), { minLength: 1, maxLength: 3 }),
    ]),
  ),
  { requiredKeys: [] },
) as fc.Arbitrary<AttackFilter['include']>;
const few = filterLists.map((lists) => Object.fromEntries(Object.entries(lists).slice(0, 2)));
const randomAttackQuery = fc.record({
  filter: fc.record({ include: few, exclude: few }),
  hosts: hostSet,
  range: fc.tuple(moment, moment),
  cuts: fc.array(moment, { maxLength: 4 }),
  isAscending: fc.boolean(),
  offset: fc.nat(20),
  limit: fc.integer({ min: 1, max: 20 }),
});

export function attackTests({ fresh, runs, destroyAll }: Suite): void {
  test('kept attacks equal the oracle, and add up to the counts', async () => {
    const { store } = await fresh();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(attack, { maxLength: 40 }), { minLength: 1, maxLength: 5 }),
        fc.array(randomAttackQuery, { minLength: 1, maxLength: 6 }),
        async (drawn, queries) => {
          const project = `p${run++}`;
          const oracle = memoryStore(() => NOW);
          const ids = await addHosts(store, project);
          await addHosts(oracle, project);
          for (const [n, events] of drawn.entries()) {
            for (const each of [store, oracle]) await each.append(batch(project, ids, events));
            // Repeated queries read only what has changed.
            if (n > 1 && n < drawn.length - 1) continue;
            for (const { range, hosts, ...query } of queries) {
              const [from, to] = [Math.min(...range), Math.max(...range) + 1];
              const selected = { ...query, from, to, hosts: pick(ids, hosts) };
              const kept = await list(store, project, selected);
              expect(kept).toEqual(await list(oracle, project, selected));
              const by = pickOne(['actions', 'hosts', ...TOP_LISTS] as const, query.offset);
              const counted = { project, hosts: selected.hosts, filter: query.filter, by };
              const cuts = query.cuts.map((cut) => Math.min(Math.max(cut, from), to)).sort((a, b) => a - b);
              const counts = { ...counted, edges: [from, ...cuts, to] };
              expect(await store.countAttacks(counts)).toEqual(await oracle.countAttacks(counts));
              const all = { project, hosts: selected.hosts, from, to };
              expect(await scan(store, all)).toEqual(await scan(oracle, all));
              const { include, exclude } = query.filter;
              if (include.categories || exclude.categories) continue;
              const edges = [from, to];
              const [attacks] = await store.count({ project, hosts: selected.hosts, edges, rows: 'attacks' });
              expect(kept.keptAttacks).toBe(attacks[0]);
            }
          }
        },
      ),
      { numRuns: runs(60) },
    );
  });

  test('large blocks, whose values are found by hashes, equal the oracle', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const start = NOW - (NOW % HOUR_MS) - 50 * HOUR_MS;
    const drawn = fc.sample(attack, { numRuns: 1_500, seed: 8 }).map((each, i) => {
      const { url = '', ...details } = { ...each.details, id: String(i) };
      const other = url === '' ? {} : { url: `/${i % 300}` };
      return { ...each, time: start + i * 2_000, details: { ...details, ...other } };
    });
    for (const each of [store, oracle]) await each.append(batch('p', ids, drawn));
    const random = fc.asyncProperty(randomAttackQuery, fc.nat(), async (query, number) => {
      const from = start + (number % 2) * 1_000_000;
      const selected = { filter: query.filter, from, to: NOW, hosts: pick(ids, query.hosts) };
      const page = { ...selected, offset: query.offset, limit: query.limit };
      expect(await list(store, 'p', page)).toEqual(await list(oracle, 'p', page));
      const by = pickOne(['actions', 'hosts', ...TOP_LISTS] as const, number);
      const counts = { project: 'p', ...selected, by, edges: [from, start + 2_000_000, NOW] };
      expect(await store.countAttacks(counts)).toEqual(await oracle.countAttacks(counts));
    });
    await fc.assert(random, { numRuns: runs(100) });
  });

  test('for any range, hosts and categories, the counts of the listed attacks add up to the counters', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const drawn = fc.sample(fc.tuple(attack, moment), { numRuns: 1_500, seed: 6 });
    const events = drawn.map(([each, time], i) => (i % 10 === 0 ? { ...each, time } : each));
    for (let i = 0; i < events.length; i += 100)
      await store.append(batch('p', ids, events.slice(i, i + 100)));
    const categories = fc.option(
      fc.uniqueArray(fc.constantFrom(...CATEGORIES), { minLength: 1, maxLength: 6 }),
    );
    const query = fc.record({ range: fc.tuple(moment, moment), hosts: hostSet, categories });
    const check = async (others: readonly string[]) => {
      const random = fc.asyncProperty(query, async ({ range, hosts: set, categories: chosen }) => {
        const [from, to] = [Math.min(...range), Math.max(...range) + 1];
        const hosts = pick(ids, set);
        const filter = { include: chosen ? { categories: chosen } : {}, exclude: {} };
        const { items, total, kept, ...attacks } = await list(store, 'p', { from, to, hosts, filter });
        expect([items.length, kept]).toEqual([total, total]);
        const listed = items.reduce((sum, { count }) => sum + count, 0);
        expect(attacks).toEqual({ totalAttacks: listed, keptAttacks: listed });
        const counts = await store.count({ project: 'p', hosts, edges: [from, to], rows: 'categories' });
        const selected = counts.filter(
          (_, i) => chosen === null || chosen.includes(CATEGORIES[i] as Category),
        );
        expect(listed).toBe(selected.reduce((sum, [count = 0]) => sum + count, 0));
        expect(items.some(({ hostId }) => hostId !== null && others.includes(hostId))).toBe(false);
      });
      await fc.assert(random, { numRuns: runs(1_000) });
    };
    await check([]);
    // The attacks of a deleted host stay, without a host, as in the counters of the project.
    const before = await list(store, 'p');
    const [deleted = ''] = ids;
    await store.deleteHost({ project: 'p', id: deleted });
    const after = await list(store, 'p');
    expect(after.items).toEqual(
      before.items.map((item) => (item.hostId === deleted ? { ...item, hostId: null } : item)),
    );
    expect((await list(store, 'p', { hosts: [deleted] })).total).toBe(0);
    await check([deleted]);
  });

  test('all pages together list each attack once, in both orders', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    for (let seed = 0; seed < 3; seed++)
      await store.append(batch('p', ids, fc.sample(attack, { numRuns: 150, seed })));
    const filters: [AttackFilter, number][] = [
      [EVERYTHING.filter, 23],
      [{ include: { sources: ['203.0.113.0/29'] }, exclude: { rules: ['a'] } }, 7],
    ];
    for (const [filter, limit] of filters) {
      const all = await list(store, 'p', { filter });
      expect(all.items).toHaveLength(all.total);
      for (const isAscending of [true, false]) {
        const pages = [];
        for (let offset = 0; offset < all.total + limit; offset += limit)
          pages.push(...(await list(store, 'p', { filter, isAscending, offset, limit })).items);
        expect(isAscending ? pages : pages.reverse()).toEqual(all.items);
      }
    }
  });

  test('values that UTF-8 or a block cannot have are replaced', async () => {
    const { store } = await fresh();
    const details = { id: 'a\0b', url: '/\ud800', userAgent: '\udc00', rules: [{ id: '1', value: '\0' }] };
    const [event] = fc.sample(attack, { numRuns: 1, seed: 1 });
    for (let i = 0; i < 2; i++)
      await store.append(batch('p', [], [{ ...(event as RandomEvent), count: 1, details }]));
    const { items } = await list(store, 'p');
    expect(items).toMatchObject([
      {
        id: 'a\ufffdb',
        url: '/\ufffd',
        userAgent: '\ufffd',
        rules: [{ id: '1', value: '\ufffd' }],
        count: 2,
      },
    ]);
  });

  test('an ID selects all entries that have it, and those alone', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 60, seed: 6 })));
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 60, seed: 7 })));
    await store.deleteHost({ project: 'p', id: ids[0] ?? '' });
    const all = (await list(store, 'p')).items;
    const generated = all.filter(({ id }) => id.length > 1).map(({ id }) => id);
    expect(new Set(generated).size).toBe(generated.length);
    expect(all.length).toBeGreaterThan(generated.length + 10);
    for (const id of ['a', 'b', ...generated.slice(0, 4), ...generated.slice(-4)]) {
      const [only, others] = [all.filter((entry) => entry.id === id), all.filter((entry) => entry.id !== id)];
      expect((await list(store, 'p', { filter: { include: { ids: [id] }, exclude: {} } })).items).toEqual(
        only,
      );
      const excluded = await list(store, 'p', { filter: { include: {}, exclude: { ids: [id, 'none'] } } });
      expect(excluded.items).toEqual(others);
    }
  });

  test('an hour over the limit keeps the same attacks, whatever the order and size of batches', async () => {
    const eventsMax = 20;
    const { store } = await fresh({ eventsMax });
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(attack, { maxLength: 40 }), { maxLength: 6 }), async (drawn) => {
        const [forwards, backwards] = [`f${run}`, `b${run++}`];
        const oracle = memoryStore(() => NOW, { eventsMax });
        for (const [project, batches] of [
          [forwards, drawn],
          [backwards, [drawn.flat().reverse()]],
        ] as const) {
          for (const each of [store, oracle]) {
            const ids = await addHosts(each, project);
            for (const events of batches) await each.append(batch(project, ids, events));
          }
          const kept = await list(store, project);
          expect(kept).toEqual(await list(oracle, project));
          expect(Math.max(0, ...perHour(kept))).toBeLessThanOrEqual(eventsMax);
          await expectLawOfHours(store, project, drawn.flat(), eventsMax);
        }
      }),
      { numRuns: runs(40) },
    );
  });

  test('any range can be listed, however far ahead', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 5, seed: 8 })));
    const end = Number.MAX_SAFE_INTEGER;
    expect((await list(store, 'p', { from: end - 1, to: end })).total).toBe(0);
    const { total } = await list(store, 'p');
    expect((await list(store, 'p', { from: 0, to: end })).total).toBe(total);
    expect((await list(store, 'p', { from: -HOUR_MS, to: end })).total).toBe(total);
  });

  test('an hour over the limit accepts attacks after some were erased from its last block', async () => {
    const { store } = await fresh({ eventsMax: 2 * BLOCK_ENTRIES_MAX - 1 });
    await store.append(batch('p', [], distinctAttacks(BLOCK_ENTRIES_MAX, 0, 'first')));
    await store.append(batch('p', [], distinctAttacks(BLOCK_ENTRIES_MAX, 1_000_000, 'second')));
    await store.eraseAttacks('p', {
      include: { methods: ['second'], sources: ['203.0.113.7'] },
      exclude: {},
    });
    const before = await list(store, 'p');
    expect(before.total).toBeLessThan(2 * BLOCK_ENTRIES_MAX - 10);
    await store.append(batch('p', [], distinctAttacks(9, 2_000_000, 'third')));
    const { items } = await list(store, 'p');
    const isNew = ({ method }: { method?: string }) => method === 'third';
    expect(items.filter((item) => !isNew(item))).toEqual(before.items);
    expect(items.filter(isNew).length).toBeGreaterThan(0);
  });

  test('a range without a millisecond has no attacks', async () => {
    const { store } = await fresh();
    await store.append(batch('p', [], distinctAttacks(3, 0, 'GET')));
    const nothing = { items: [], total: 0, totalAttacks: 0, kept: 0, keptAttacks: 0 };
    for (const isAscending of [true, false]) {
      for (const time of [0, NOW, NOW + 1_000 * HOUR_MS])
        expect(await list(store, 'p', { from: time, to: time, isAscending })).toEqual(nothing);
    }
  });

  test('an hour over the limit stays within it, and gets nothing back, after some of its attacks were erased', async () => {
    const eventsMax = 20;
    const { store } = await fresh({ eventsMax });
    const inTwoHours = attack.map((one) => ({ ...one, time: NOW - 1 - (one.time % (2 * HOUR_MS)) }));
    const drawnBatches = fc.array(fc.array(inTwoHours, { maxLength: 40 }), { minLength: 1, maxLength: 4 });
    let run = 0;
    const random = fc.asyncProperty(drawnBatches, few, drawnBatches, async (first, include, second) => {
      const project = `p${run++}`;
      const oracle = memoryStore(() => NOW, { eventsMax });
      const ids = await addHosts(store, project);
      await addHosts(oracle, project);
      const appendAll = async (batches: readonly RandomEvent[][]) => {
        for (const each of [store, oracle])
          for (const events of batches) await each.append(batch(project, ids, events));
      };
      await appendAll(first);
      const before = await list(store, project);
      const erased = await store.eraseAttacks(project, { include, exclude: {} });
      expect(erased).toBe(await oracle.eraseAttacks(project, { include, exclude: {} }));
      const after = await list(store, project);
      expect(before.total - after.total).toBe(erased);
      expect(before.items).toEqual(expect.arrayContaining(after.items));
      await appendAll(second);
      const kept = await list(store, project);
      expect(kept).toEqual(await list(oracle, project));
      expect(Math.max(0, ...perHour(kept))).toBeLessThanOrEqual(eventsMax);
    });
    await fc.assert(random, { numRuns: runs(60) });
  });

  test('what an hour over the limit dropped stays away after its newest attacks were erased', async () => {
    const { store } = await fresh({ eventsMax: 20 });
    let total = 0;
    // What is kept depends on the ID of the project.
    for (let i = 0; i < 10; i++) {
      const batches = [distinctAttacks(40, 0, 'first'), distinctAttacks(6, 1_000, 'second')];
      for (const events of batches) await store.append(batch(`p${i}`, [], events));
      await expectLawOfHours(store, `p${i}`, batches.flat(), 20);
      const { items } = await list(store, `p${i}`);
      const others = items.filter(({ method }) => method === 'first');
      const erased = await store.eraseAttacks(`p${i}`, { include: { methods: ['second'] }, exclude: {} });
      expect((await list(store, `p${i}`)).items).toEqual(others);
      expect(erased).toBe(20 - others.length);
      total += erased;
    }
    expect(total).toBeGreaterThan(10);
  });

  test('a repeated batch changes nothing', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const once = { ...batch('p', ids, fc.sample(attack, { numRuns: 50, seed: 1 })), id: 'one' };
    await store.append(once);
    const before = await list(store, 'p');
    await store.append(once);
    expect(before.total).toBeGreaterThan(0);
    expect(await list(store, 'p')).toEqual(before);
  });

  test('kept attacks follow retention, deletion and erasure', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    const drawn = fc.sample(attack, { numRuns: 300, seed: 4 });
    const late = { ...batch('p', ids, drawn), source: { name: 'late', format: 'events' } };
    const steps: ((each: Store) => Promise<unknown>)[] = [
      (each) => each.append(batch('p', ids, drawn)),
      (each) => each.eraseAttacks('p', { include: { sources: ['203.0.113.3'] }, exclude: {} }),
      (each) => each.prune(NOW - 100 * HOUR_MS, { topListsBefore: NOW - 30.5 * HOUR_MS }),
      (each) => each.append(late),
      (each) => each.prune(NOW - 50 * HOUR_MS, { topListsBefore: 0 }),
      (each) => each.prune(NOW - 4 * HOUR_MS - 1, { freeBefore: NOW - 20 * HOUR_MS, topListsBefore: 0 }),
      (each) => each.restoreHorizon(0),
      (each) => each.eraseAttacks('p', { include: {}, exclude: {} }),
      (each) => each.append({ ...late, id: 'again' }),
      (each) => each.deleteDetails('p'),
      (each) => each.append(late),
    ];
    const totals = [];
    for (const step of steps) {
      await step(store);
      await step(oracle);
      const kept = await list(store, 'p');
      expect(kept).toEqual(await list(oracle, 'p'));
      totals.push(kept.total);
    }
    expect(totals.filter((total) => total === 0)).toHaveLength(2);
    await store.eraseAttacks('unknown', { include: {}, exclude: {} });
  });

  test('the version of a range changes with its kept attacks', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 50, seed: 2 })));
    const version = () => store.version({ project: 'p', ...ALL });
    const before = await version();
    await store.eraseAttacks('p', { include: { ids: ['none'] }, exclude: {} });
    expect(await version()).toBe(before);
    await store.eraseAttacks('p', { include: {}, exclude: {} });
    expect(await version()).not.toBe(before);
  });

  test('hours can be copied to another store', async () => {
    const { store } = await fresh();
    const oracle = memoryStore(() => NOW);
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    await oracle.append(batch('p', ids, fc.sample(attack, { numRuns: 200, seed: 3 })));
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 20, seed: 5 })));
    for (let i = 0; i < 2; i++) {
      for await (const hour of oracle.transfer.attackHours('p'))
        await store.transfer.putAttackHour('p', hour);
    }
    const hours = new Set((await list(oracle, 'p')).items.map(({ time }) => Math.floor(time / HOUR_MS)));
    const copied = (await list(store, 'p')).items.filter(({ time }) => hours.has(Math.floor(time / HOUR_MS)));
    expect(copied).toEqual((await list(oracle, 'p')).items);
  });

  test('a copied project has the same attacks, and none in hours whose details were deleted', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 120, seed: 7 })));
    await store.prune(0, { topListsBefore: NOW - 30 * HOUR_MS });
    const expected = await list(store, 'p');
    const [attacks] = await store.count({ project: 'p', edges: [ALL.from, ALL.to], rows: 'attacks' });
    expect(expected.keptAttacks).toBeGreaterThan(0);
    expect(expected.keptAttacks).toBeLessThan(attacks[0] ?? 0);
    const other = memoryStore(() => NOW, { eventsMax: 0 });
    for (let i = 0; i < 2; i++) await copyProject(store, other, 'p');
    expect(await differences(store, other, 'p', ALL)).toEqual([]);
    await destroyAll();
    const { store: back } = await fresh({ eventsMax: 0 });
    for (let i = 0; i < 2; i++) await copyProject(other, back, 'p');
    expect(await differences(other, back, 'p', ALL)).toEqual([]);
    expect(await list(back, 'p')).toEqual(expected);
    await back.eraseAttacks('p', { include: { ids: [expected.items[0]?.id ?? ''] }, exclude: {} });
    expect(await differences(other, back, 'p', ALL)).toEqual(['the kept attacks differ']);
  });

  test('an hour over the limit that was copied keeps the same attacks as the original when more arrive', async () => {
    const eventsMax = 5;
    const { store } = await fresh({ eventsMax });
    const oracle = memoryStore(() => NOW, { eventsMax });
    const [first = [], second = []] = [9, 10].map((seed) => {
      const drawn = fc.sample(attack, { numRuns: 100, seed });
      return drawn.map((one) => ({ ...one, time: NOW - 1 - (one.time % (2 * HOUR_MS)) }));
    });
    const ids = await addHosts(store, 'p');
    await addHosts(oracle, 'p');
    for (const each of [store, oracle]) await each.append(batch('p', ids, first));
    await store.eraseAttacks('p', { include: {}, exclude: {} });
    for await (const hour of oracle.transfer.attackHours('p')) await store.transfer.putAttackHour('p', hour);
    for (const each of [store, oracle]) await each.append(batch('p', ids, second));
    const expected = await list(oracle, 'p');
    expect([eventsMax, 2 * eventsMax, 3 * eventsMax]).toContain(expected.total);
    expect(await list(store, 'p')).toEqual(expected);
  });

  test('with a limit of 0, attacks count, but are not kept', async () => {
    const { store } = await fresh({ eventsMax: 0 });
    const ids = await addHosts(store, 'p');
    await store.append(batch('p', ids, fc.sample(attack, { numRuns: 20, seed: 8 })));
    const [attacks] = await store.count({ project: 'p', edges: [ALL.from, ALL.to], rows: 'attacks' });
    expect(attacks[0]).toBeGreaterThan(0);
    expect(await list(store, 'p')).toEqual({
      items: [],
      total: 0,
      totalAttacks: 0,
      kept: 0,
      keptAttacks: 0,
    });
  });
}
