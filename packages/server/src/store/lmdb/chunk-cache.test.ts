import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChunkCache, HostSets, SharedChunks } from './chunk-cache.ts';

const NUMBERS = 10;
/** The weight of an entry: its numbers, and 16 of overhead. */
const ENTRY = NUMBERS + 16;

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

test('a host set gets an ID the second time, in any order of its hosts', () => {
  const sets = new HostSets();
  expect(sets.idIfRepeated([1, 2])).toBeUndefined();
  const id = sets.idIfRepeated([2, 1]);
  expect(id).toBeLessThan(0);
  expect(sets.idOf([1, 2])).toBe(id);
  expect(sets.idOf([1, 3])).not.toBe(id);
});
