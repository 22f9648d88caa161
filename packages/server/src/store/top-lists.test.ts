import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compareTopItems } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { CATEGORIES } from '../event.ts';
import { KeyHash } from './hyperloglog.ts';
import { RecordWriter } from './record-bytes.ts';
import { finish } from './slices.ts';
import type { TopItem, TopList } from './store.ts';
import { addCount, type CategoryCounts, checkSummary, TopMerge, TopSummary } from './top-lists.ts';
import { checkRecord, decodeRecord } from './top-records.ts';

const HASH = new KeyHash('project');

interface Attack {
  key: string;
  category: number;
  count: number;
}

type Batch = readonly Attack[];

/** One slice: its attacks in batches, and how many values it may keep. */
interface Slice {
  keysMax: number;
  batches: readonly Batch[];
}

function additionsOf(batch: Batch): Map<string, CategoryCounts> {
  const additions = new Map<string, CategoryCounts>();
  for (const { key, category, count } of batch) {
    const counts = additions.get(key) ?? [];
    addCount(counts, category, count);
    additions.set(key, counts);
  }
  return additions;
}

/** Encodes and decodes after each batch, as a store does. */
function summarize({ keysMax, batches }: Slice): Uint8Array {
  const writer = new RecordWriter();
  let bytes: Uint8Array | null = null;
  for (const batch of batches) {
    const summary: TopSummary = bytes === null ? new TopSummary() : TopSummary.decode(bytes);
    summary.add(additionsOf(batch), keysMax, HASH);
    expect(summary.entries.size).toBeLessThanOrEqual(keysMax);
    summary.encode(writer);
    bytes = Uint8Array.from(writer.bytes());
  }
  if (bytes === null) throw new Error('no batches');
  return bytes;
}

function listOf(
  slices: readonly Uint8Array[],
  { categories = null, tail = 0, limit = Number.POSITIVE_INFINITY, keysMax = 65_536 }: Options = {},
): Omit<TopList, 'from' | 'to' | 'shortened'> {
  const [base, rest] = [new TopMerge(HASH, categories, keysMax), new TopMerge(HASH, categories, keysMax)];
  for (const [i, slice] of slices.entries()) finish((i < slices.length - tail ? base : rest).add(slice));
  return finish(base.list(rest, 'sources', limit));
}

/** Runs all steps at once. */
interface Options {
  categories?: readonly number[] | null;
  tail?: number;
  limit?: number;
  keysMax?: number;
}

function truth(slices: readonly Slice[], categories: readonly number[] | null): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { key, category, count } of slices.flatMap(({ batches }) => batches.flat())) {
    if (categories === null || categories.includes(category)) counts.set(key, (counts.get(key) ?? 0) + count);
  }
  return counts;
}

function totalOf(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].reduce((sum, count) => sum + count, 0);
}

/** Each claim of the contract. `allowance` is N / (k + 1), for the smallest k. */
function expectBounds(
  list: ReturnType<typeof listOf>,
  counts: ReadonlyMap<string, number>,
  allowance: number,
) {
  const kept = new Map(list.items.map((item) => [item.key, item]));
  expect(kept.size).toBe(list.items.length);
  expect(list.error).toBeLessThanOrEqual(allowance);
  expect(list.attacks).toBe(totalOf(counts));
  const wrong = [...counts].filter(([key, count]) => {
    const item = kept.get(key);
    if (item === undefined) return count > list.error;
    return count < item.count || count > item.count + item.error || item.error > list.error || item.error < 0;
  });
  expect(wrong).toEqual([]);
  expect(list.items.filter(({ key }) => !counts.has(key))).toEqual([]);
  expect(list.items).toEqual(list.items.toSorted(compareTopItems));
  expect(list.distinct).toBeGreaterThanOrEqual(kept.size);
  if (list.distinctIs === 'exact') expect(list.distinct).toBe(counts.size);
  if (list.distinctIs === 'minimum') expect(list.distinct).toBeLessThanOrEqual(counts.size);
}

/** Few keys of different lengths and prefixes, some beyond ASCII; some heavy, most light. */
const key = fc.oneof(
  fc.nat(40).map((n) => `/${n}`),
  fc.nat(5).map((n) => `/api/v1/${'x'.repeat(n)}`),
  fc.constantFrom('/\u00e4', '/\u00e4\u{1f600}', '/\u00e4\u{1f601}', '', ' ', '/ a', 'z'.repeat(256)),
);
const attack: fc.Arbitrary<Attack> = fc.record({
  key,
  category: fc.nat(CATEGORIES.length - 1),
  count: fc.oneof({ weight: 6, arbitrary: fc.constant(1) }, fc.integer({ min: 1, max: 1_000_000 })),
});
const batches = fc.array(fc.array(attack, { maxLength: 30 }), { minLength: 1, maxLength: 8 });
const slice: fc.Arbitrary<Slice> = fc.record({ keysMax: fc.integer({ min: 1, max: 20 }), batches });
const slices = fc.array(slice, { minLength: 1, maxLength: 6 });
const categories = fc.option(fc.uniqueArray(fc.nat(CATEGORIES.length - 1), { maxLength: 4 }));

/** Streams that try to evict what matters. */
const ADVERSARIES: Record<string, (size: number) => Batch[]> = {
  'new values only, one at a time': (size) => Array.from({ length: size }, (_, i) => [single(`${i}`)]),
  'new values only, at once': (size) => [Array.from({ length: size }, (_, i) => single(`${i}`))],
  'the attacker before the flood': (size) => [
    Array.from({ length: size / 10 }, () => single('attacker')),
    ...chunks(
      Array.from({ length: size }, (_, i) => single(`${i}`)),
      7,
    ),
  ],
  'the attacker after the flood': (size) => [
    ...chunks(
      Array.from({ length: size }, (_, i) => single(`${i}`)),
      7,
    ),
    Array.from({ length: size / 10 }, () => single('attacker')),
  ],
  'the attacker within the flood': (size) =>
    chunks(
      Array.from({ length: size }, (_, i) => single(i % 10 === 3 ? 'attacker' : `${i}`)),
      7,
    ),
  'in turns, so that each value leaves before it returns': (size) =>
    chunks(
      Array.from({ length: size }, (_, i) => single(i % 10 === 3 ? 'attacker' : `${i % 33}`)),
      3,
    ),
  'each value twice, far apart': (size) =>
    chunks(
      Array.from({ length: size }, (_, i) => single(i % 10 === 3 ? 'attacker' : `${i % (size / 2)}`)),
      11,
    ),
};

function single(name: string): Attack {
  return { key: name, category: name.length % CATEGORIES.length, count: 1 };
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, i) =>
    items.slice(i * size, (i + 1) * size),
  );
}

describe('a summary', () => {
  test('is exact as long as there are no more values than it may keep', () => {
    fc.assert(
      fc.property(fc.array(batches, { minLength: 1, maxLength: 4 }), categories, (drawn, selected) => {
        const exact = drawn.map((each) => ({ keysMax: 60, batches: each }));
        const counts = truth(exact, selected);
        const list = listOf(exact.map(summarize), { categories: selected });
        expect(list).toMatchObject({ error: 0, distinct: counts.size, distinctIs: 'exact' });
        const expected: TopItem[] = Array.from(counts, ([name, count]) => ({ key: name, count, error: 0 }));
        expect(list.items).toEqual(expected.sort(compareTopItems));
        expect(list.attacks).toBe(totalOf(counts));
      }),
      { numRuns: scaled(200) },
    );
  });

  test('keeps its bounds for any attacks and categories, with slices in any order', () => {
    fc.assert(
      fc.property(slices, categories, fc.nat(6), fc.nat(), (drawn, selected, tail, seed) => {
        const encoded = drawn.map(summarize);
        const options = { categories: selected, tail: Math.min(tail, encoded.length) };
        const counts = truth(drawn, selected);
        const allowance = drawn.reduce(
          (sum, each) => sum + totalOf(truth([each], null)) / (each.keysMax + 1),
          0,
        );
        const list = listOf(encoded, options);
        expectBounds(list, counts, allowance);
        const shuffled = encoded
          .map((bytes, i) => ({ bytes, order: (i * 7_919 + seed) % 13 }))
          .sort((a, b) => a.order - b.order)
          .map(({ bytes }) => bytes);
        expect(listOf(shuffled, { categories: selected })).toEqual(list);
        const limit = 1 + (seed % 8);
        expect(listOf(encoded, { ...options, limit }).items).toEqual(list.items.slice(0, limit));
      }),
      { numRuns: scaled(200) },
    );
  });

  test('keeps its bounds if a merge evicts values, too', () => {
    fc.assert(
      fc.property(slices, categories, fc.integer({ min: 1, max: 12 }), (drawn, selected, keysMax) => {
        const counts = truth(drawn, selected);
        const sliced = drawn.reduce(
          (sum, each) => sum + totalOf(truth([each], null)) / (each.keysMax + 1),
          0,
        );
        const list = listOf(drawn.map(summarize), { categories: selected, keysMax });
        expectBounds(list, counts, sliced + totalOf(counts) / (keysMax + 1));
      }),
      { numRuns: scaled(200) },
    );
  });

  test.each(Object.entries(ADVERSARIES))('withstands %s', (_, stream) => {
    const keysMax = 32;
    const drawn = { keysMax, batches: stream(2_000) };
    const counts = truth([drawn], null);
    const allowance = totalOf(counts) / (keysMax + 1);
    const bytes = summarize(drawn);
    const list = listOf([bytes]);
    expectBounds(list, counts, allowance);
    expect(bytes.length).toBeLessThan(2_100 + keysMax * 30);
    const attacker = counts.get('attacker');
    // It has a tenth of the attacks, and 1/33 is enough to be kept.
    if (attacker === undefined) return;
    const [first] = list.items;
    expect(first?.key).toBe('attacker');
    // The same flood in 24 hours of two hosts changes nothing: errors are relative to all attacks.
    const day = listOf(Array.from({ length: 48 }, () => bytes));
    expect(day).toMatchObject({ attacks: 48 * list.attacks, error: 48 * list.error });
    expect(day.items[0]).toMatchObject({ key: 'attacker', count: 48 * (first?.count ?? 0) });
  });

  test('counts a value that was there before the flood exactly', () => {
    const stream = ADVERSARIES['the attacker before the flood']?.(2_000) ?? [];
    const list = listOf([summarize({ keysMax: 32, batches: stream })]);
    expect(list.items[0]).toEqual({ key: 'attacker', count: 200, error: 0 });
    expect(list.error).toBeGreaterThan(0);
  });

  test('that keeps more or fewer values than before keeps the bound of the smallest number', () => {
    const writer = new RecordWriter();
    fc.assert(
      fc.property(
        batches,
        fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 8, maxLength: 8 }),
        (drawn, limits) => {
          const summary = new TopSummary();
          for (const [i, batch] of drawn.entries()) summary.add(additionsOf(batch), limits[i] ?? 1, HASH);
          summary.encode(writer);
          const counts = truth([{ keysMax: 0, batches: drawn }], null);
          const smallest = Math.min(...limits.slice(0, drawn.length));
          expectBounds(listOf([writer.bytes()]), counts, totalOf(counts) / (smallest + 1));
        },
      ),
    );
  });

  test.each([1_500, 5_000, 20_000, 200_000])('estimates %i different values', (size) => {
    const names = Array.from({ length: size }, (_, i) =>
      single(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`),
    );
    const halves = chunks(names, size / 2);
    const encoded = halves.map((half) => summarize({ keysMax: 200, batches: chunks(half, 1_000) }));
    const list = listOf([...encoded, ...encoded], { tail: 1 });
    expect(list.distinctIs).toBe('estimate');
    // Three standard errors.
    expect(Math.abs(list.distinct / size - 1)).toBeLessThan(0.07);
    expect(listOf(encoded, { categories: [0, 1, 2, 3, 4, 5, 6, 7, 8] }).distinctIs).toBe('minimum');
  });

  test('a merge of more values than it keeps estimates their number', () => {
    const names = Array.from({ length: 9_000 }, (_, i) => single(`${i}`));
    const encoded = chunks(names, 500).map((part) => summarize({ keysMax: 500, batches: [part] }));
    const list = listOf(encoded, { keysMax: 1_000, tail: 1 });
    expect(list.distinctIs).toBe('estimate');
    expect(Math.abs(list.distinct / 9_000 - 1)).toBeLessThan(0.07);
    expect(listOf(encoded)).toMatchObject({ distinct: 9_000, distinctIs: 'exact', error: 0 });
  });

  test('a merge of many values does its work in short steps', () => {
    const merge = new TopMerge(HASH, null);
    const other = new TopMerge(HASH, null);
    const part = (first: number) =>
      Array.from({ length: 4_096 }, (_, i) => ({ ...single(`${first + i}`), count: 1 + (i % 5) }));
    let steps = 0;
    for (let first = 0; first <= 131_072; first += 4_096) {
      for (const _ of merge.add(summarize({ keysMax: 4_096, batches: [part(first)] }))) steps++;
    }
    // 135,168 values are read and evicted, 2,048 in a step.
    expect(steps).toBeGreaterThan(2 * 66);
    finish(other.add(summarize({ keysMax: 9, batches: [[single('0'), single('other')]] })));
    steps = 0;
    for (const work = merge.list(other, 'sources', 10); ; steps++) {
      const { done, value: list } = work.next();
      if (!done) continue;
      expect(list).toMatchObject({
        distinctIs: 'estimate',
        attacks: 33 * totalOf(truth([{ keysMax: 0, batches: [part(0)] }], null)) + 2,
      });
      expect(list.items[0]).toMatchObject({ count: 5 });
      expect(Math.abs(list.distinct / 135_169 - 1)).toBeLessThan(0.07);
      break;
    }
    expect(steps).toBeGreaterThan(2 * 20);
  });

  test('that is cut short or of another kind is an error', () => {
    const bytes = summarize({ keysMax: 2, batches: [['/a', '/b', '/c'].map(single)] });
    expect(() => checkSummary(bytes)).not.toThrow();
    expect(() => checkSummary(bytes.subarray(0, 100))).toThrow('ends inside');
    expect(() => checkSummary(Uint8Array.of(3))).toThrow('unknown kind 3');
    expect(() => checkSummary(Uint8Array.of(0, 0, 255, 127))).toThrow('too long');
  });

  test('a record with an impossible list or length is an error', () => {
    expect(decodeRecord(Uint8Array.of(0, 1, 2, 7, 7)).sections[1]).toEqual(Uint8Array.of(7, 7));
    expect(() => decodeRecord(Uint8Array.of(0, 32, 1, 7))).toThrow('damaged');
    expect(() => decodeRecord(Uint8Array.of(0, 1, 3, 7))).toThrow('damaged');
    expect(() => decodeRecord(Uint8Array.of(2, 1, 97, 4, 0, 1, 0))).toThrow('damaged');
    expect(() => decodeRecord(Uint8Array.of(4))).toThrow('unknown kind 4');
    expect(() => checkRecord(Uint8Array.of(2, 1, 97, 3, 0, 1, 0))).not.toThrow();
    expect(() => checkRecord(Uint8Array.of(2, 1, 97, 3, 0, 1, 3))).toThrow('unknown kind 3');
  });
});
