import { expect, test } from 'vitest';
import { BoundedCache, VersionedCache } from './cache.ts';

test('beyond the number of entries, the least recently used one is evicted', () => {
  const cache = new BoundedCache<string, number>({ name: null, entriesMax: 2 });
  cache.set('a', 1);
  cache.set('b', 2);
  cache.get('a');
  cache.set('c', 3);
  expect([cache.get('a'), cache.get('b'), cache.get('c')]).toEqual([1, undefined, 3]);
  expect([cache.hits, cache.misses]).toEqual([3, 1]);
});

test('beyond the weight, entries are evicted; a replaced entry has its new weight; one over the limit is not kept', () => {
  const cache = new BoundedCache<string, string>({
    name: 'chunks',
    unitBytes: 8,
    entriesMax: 9,
    weightMax: 10,
    weight: (v) => v.length,
  });
  cache.set('a', '12345');
  cache.set('b', '12345');
  cache.set('empty', '');
  expect([cache.get('a'), cache.get('b'), cache.get('empty')]).toEqual([undefined, '12345', '']);
  cache.set('b', '1');
  cache.set('c', '12345678');
  expect([cache.get('b'), cache.get('c')]).toEqual(['1', '12345678']);
  cache.set('huge', '12345678901');
  expect(cache.get('huge')).toBeUndefined();
});

test('a weighted cache also has a limit of entries', () => {
  const cache = new BoundedCache<string, number>({
    name: null,
    entriesMax: 2,
    weightMax: 100,
    weight: (v) => v,
  });
  for (const [i, key] of ['a', 'b', 'c'].entries()) cache.set(key, i);
  expect([cache.get('a'), cache.get('b'), cache.get('c'), cache.size]).toEqual([undefined, 1, 2, 2]);
});

test('a versioned cache drops all entries if the version differs', () => {
  let version = 1;
  const cache = new VersionedCache<string, number>('tokens', () => version);
  expect(cache.get('a')).toBeUndefined();
  cache.set('a', 1);
  expect(cache.get('a')).toBe(1);
  version = 2;
  expect(cache.get('a')).toBeUndefined();
});
