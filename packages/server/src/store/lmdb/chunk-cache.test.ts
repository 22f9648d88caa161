import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChunkCache, partKey, SharedChunks } from './chunk-cache.ts';

const NUMBERS = 10;
/** The weight of an entry in bytes: its numbers, and the overhead. */
const ENTRY = 8 * NUMBERS + 400;

test('totals are those of the current chunk, however small the cache is', () => {
  const step = fc.record({ chunk: fc.nat(3), scope: fc.nat(3), write: fc.boolean() });
  fc.assert(
    fc.property(fc.nat(6), fc.array(step, { maxLength: 50 }), (room, steps) => {
      const cache = new ChunkCache(new SharedChunks(room * ENTRY), 'timeline');
      const stored = new Map<string, number>();
      const changes = [0, 0, 0, 0];
      let all = 0;
      for (const { chunk, scope, write } of steps) {
        if (write) {
          stored.set(`${chunk} ${scope}`, all);
          changes[chunk] = (changes[chunk] ?? 0) + 1;
          all++;
        }
        const cached = cache.open(0, chunk, all, () => changes[chunk] ?? 0);
        for (const one of [scope, 0]) {
          const value = stored.get(`${chunk} ${one}`);
          const current = new Float64Array(value === undefined ? 0 : NUMBERS).fill(value ?? 0);
          expect([...(cached.get(one) ?? cached.put(one, current))]).toEqual([...current]);
        }
      }
    }),
  );
});

test('a chunk that has not changed is decoded once, and the least recently used is evicted first', () => {
  const cache = new ChunkCache(new SharedChunks(2 * ENTRY), 'timeline');
  let decoded = 0;
  const query = (chunk: number) => {
    const cached = cache.open(0, chunk, 0, () => 0);
    if (cached.get(7) !== undefined) return;
    decoded++;
    cached.put(7, new Float64Array(NUMBERS));
  };
  for (const chunk of [1, 1, 2, 1, 2]) query(chunk);
  expect(decoded).toBe(2);
  query(3);
  expect(decoded).toBe(3);
  query(2);
  expect(decoded).toBe(3);
  query(1);
  expect(decoded).toBe(4);
});

test('what two queries decode at the same time counts once', () => {
  const cache = new ChunkCache(new SharedChunks(3 * ENTRY), 'timeline');
  const [first, part] = [6, 7];
  const numbers = new Float64Array(NUMBERS);
  cache.open(0, 1, 0, () => 0).put(first, numbers);
  const queries = [cache.open(0, 1, 0, () => 0), cache.open(0, 1, 0, () => 0)];
  for (const query of queries) query.put(part, numbers);
  cache.open(0, 2, 0, () => 0).put(part, numbers);
  expect(cache.find(0, 1, 0, part)).toBeDefined();
});

test('many ranges of one chunk do not evict other chunks', () => {
  const cache = new ChunkCache(new SharedChunks(100 * ENTRY), 'attacksByHost');
  const numbers = new Float64Array(NUMBERS);
  const open = (chunk: number) => cache.open(0, chunk, 0, () => 0);
  open(2).put(7, numbers);
  const keys = Array.from({ length: 384 }, (_, first) => partKey(-1, [first, 384]));
  expect(new Set([...keys, -1, -2, 0]).size).toBe(387);
  for (const key of keys) {
    open(1).put(key, numbers);
    expect(cache.find(0, 1, 0, key)).toBe(numbers);
  }
  expect(cache.find(0, 2, 0, 7)).toBe(numbers);
});
