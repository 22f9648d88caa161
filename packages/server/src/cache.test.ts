import { expect, test } from 'vitest';
import { BoundedCache, CACHES, cacheShare, VersionedCache } from './cache.ts';

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

test('a cache without any weight keeps nothing', () => {
  const cache = new BoundedCache<string, number>({ name: null, entriesMax: 0, weightMax: 0 });
  cache.set('a', 1);
  expect([cache.get('a'), cache.size, cache.bytes]).toEqual([undefined, 0, 0]);
});

test('the large caches together use the memory of --cache, and no more', () => {
  const share = (bytes: number) =>
    (['chunks', 'points', 'responses', 'top_lists'] as const).reduce(
      (sum, name) => sum + cacheShare(name, bytes),
      0,
    );
  expect([share(67_108_864), share(0)]).toEqual([67_108_864, 0]);
  expect(share(1_000_001)).toBeLessThanOrEqual(1_000_001);
});

test('the service has at most 15 caches', () => {
  expect(Object.keys(CACHES).length).toBeLessThanOrEqual(15);
});
