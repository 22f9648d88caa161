import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LookupCache } from './lookup-cache.ts';

const CACHE_TTL_MS = 60_000;

function setUp() {
  const clock = { now: 1_000_000 };
  const cache = new LookupCache<string>(CACHE_TTL_MS, () => clock.now);
  let fetched = 0;
  const fetching = (record: string | null) => () => {
    fetched++;
    return Promise.resolve(record);
  };
  return { clock, cache, fetching, fetched: () => fetched };
}

test('a record is cached for exactly the TTL, then fetched again', async () => {
  const { clock, cache, fetching, fetched } = setUp();
  expect(await cache.get('a', fetching('yes'))).toBe('yes');
  clock.now += CACHE_TTL_MS - 1;
  expect(await cache.get('a', fetching('other'))).toBe('yes');
  clock.now += 1;
  expect(await cache.get('a', fetching('other'))).toBe('other');
  expect(fetched()).toBe(2);
});

test('the TTL starts with the request, because the record may change while the response is on its way', async () => {
  const { clock, cache, fetching } = setUp();
  const slow = cache.get('a', async () => {
    clock.now += 5_000;
    return 'old';
  });
  expect(await slow).toBe('old');
  clock.now += CACHE_TTL_MS - 5_000;
  expect(await cache.get('a', fetching('new'))).toBe('new');
});

test('a record that was not found is fetched again after 5 seconds', async () => {
  const { clock, cache, fetching } = setUp();
  expect(await cache.get('a', fetching(null))).toBe(null);
  clock.now += 4_999;
  expect(await cache.get('a', fetching('yes'))).toBe(null);
  clock.now += 1;
  expect(await cache.get('a', fetching('yes'))).toBe('yes');
});

test('a clock that is set back does not prolong the TTL', async () => {
  const { clock, cache, fetching } = setUp();
  await cache.get('a', fetching('old'));
  clock.now -= 1;
  expect(await cache.get('a', fetching('new'))).toBe('new');
});

test('concurrent lookups share one fetch and its failure, which is not cached', async () => {
  const { cache, fetching } = setUp();
  let fail: (error: Error) => void = () => {};
  const failing = () =>
    new Promise<string>((_, reject) => {
      fail = reject;
    });
  const first = cache.get('a', failing);
  const second = cache.get('a', fetching('never fetched'));
  fail(new Error('away'));
  await expect(first).rejects.toThrow('away');
  await expect(second).rejects.toThrow('away');
  expect(await cache.get('a', fetching('back'))).toBe('back');
});

test('unknown keys do not evict records, and both kinds of entries are limited', async () => {
  const { cache, fetching, fetched } = setUp();
  await cache.get('caller', fetching('yes'));
  for (let i = 0; i < 20_000; i++) await cache.get(`unknown ${i}`, fetching(null));
  expect(await cache.get('caller', fetching(null))).toBe('yes');
  expect(await cache.get('unknown 19999', fetching('yes'))).toBe(null);
  const before = fetched();
  expect(await cache.get('unknown 18999', fetching(null))).toBe(null);
  expect(fetched()).toBe(before + 1);
  for (let i = 0; i < 10_000; i++) await cache.get(`caller ${i}`, fetching('yes'));
  expect(await cache.get('caller', fetching('again'))).toBe('again');
});

test('a returned record was current at some time within the TTL, for any sequence of lookups', async () => {
  const step = fc.record({
    key: fc.constantFrom('a', 'b', '__proto__'),
    /** The record from now on; null: it does not exist. */
    record: fc.constantFrom('x', 'y', null),
    elapsedMs: fc.integer({ min: 0, max: 2 * CACHE_TTL_MS }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const clock = { now: 0 };
      const cache = new LookupCache<string>(CACHE_TTL_MS, () => clock.now);
      const history = new Map<string, { record: string | null; since: number }[]>();
      for (const { key, record, elapsedMs } of steps) {
        const versions = history.get(key) ?? [];
        versions.push({ record, since: clock.now });
        history.set(key, versions);
        const returned = await cache.get(key, async () => record);
        const current = versions.filter(
          (_, i) => (versions[i + 1]?.since ?? Number.POSITIVE_INFINITY) > clock.now - CACHE_TTL_MS,
        );
        expect(current.map((entry) => entry.record)).toContain(returned);
        clock.now += elapsedMs;
      }
    }),
  );
});
