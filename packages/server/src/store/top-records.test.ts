import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { CATEGORIES } from '../event.ts';
import { KeyHash } from './hyperloglog.ts';
import { finish } from './slices.ts';
import { TOP_LISTS, type TopList, type TopListName } from './store.ts';
import { hostPrefix, TopMerge } from './top-lists.ts';
import { addToRecords, decodeRecord, selectOwn, selectSummaries, TopAdditions } from './top-records.ts';

const HOSTS = [null, 'host-a', 'host-b', 'host-c'];

interface Attack {
  hostId: string | null;
  category: number;
  source: string;
  url: string;
}

/** Few values in all, so that hosts share some; URLs are so long that the record of an hour may be divided. */
const attack: fc.Arbitrary<Attack> = fc.record({
  hostId: fc.constantFrom(...HOSTS),
  category: fc.nat(CATEGORIES.length - 1),
  source: fc.nat(30).map((n) => `10.0.0.${n}`),
  url: fc.nat(400).map((n) => `/${n}/${'x'.repeat(240)}`),
});

/** The records of one hour, as a store keeps them. */
function recordsOf(batches: readonly (readonly Attack[])[], keysMax: number): Map<string | null, Uint8Array> {
  const records = new Map<string | null, Uint8Array>();
  for (const batch of batches) {
    const additions = new TopAdditions();
    for (const { hostId, category, source, url } of batch) {
      const details = { source, url, rule: '1' };
      additions.add({ time: 0, attack: CATEGORIES[category] ?? '', details }, 1, hostId);
    }
    const hour = additions.hours.get(0);
    if (hour === undefined) continue;
    const read = (hostId: string | null) => records.get(hostId);
    const changed = finish(addToRecords({ additions: hour, read, project: 'p', keysMax }));
    expect(changed.at(-1)?.hostId).toBe(null);
    for (const { hostId, record } of changed) records.set(hostId, record);
  }
  return records;
}

function listOf(
  records: ReadonlyMap<string | null, Uint8Array>,
  list: TopListName,
  hosts: readonly string[] | undefined,
): Omit<TopList, 'from' | 'to' | 'shortened'> {
  const merge = new TopMerge(new KeyHash('p'), null);
  const stored = records.get(null);
  const summaries =
    (stored && selectSummaries(decodeRecord(stored), list, hosts)) ??
    (hosts ?? []).flatMap((id) => {
      const own = records.get(id);
      return own === undefined ? [] : selectOwn(decodeRecord(own).sections, list, id);
    });
  for (const { summary, prefix } of summaries) finish(merge.add(summary, prefix));
  return finish(merge.list(new TopMerge(new KeyHash('p'), null), list, 10_000));
}

function truth(attacks: readonly Attack[], list: TopListName, hosts: readonly string[] | undefined) {
  const counts = new Map<string, number>();
  for (const { hostId, source, url } of attacks) {
    if (hosts && (hostId === null || !hosts.includes(hostId))) continue;
    const key = list === 'sources' ? source : list === 'urls' ? hostPrefix(hostId) + url : '1';
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

test('an hour keeps its bounds, whether its record is joint or divided, and is exact as long as values fit', () => {
  let [joint, divided] = [0, 0];
  fc.assert(
    fc.property(
      fc.array(fc.array(attack, { maxLength: 250, size: 'max' }), { minLength: 1, maxLength: 4 }),
      fc.constantFrom(4, 100, 1_024),
      fc.constantFrom(undefined, ['host-a'], ['host-b', 'host-c', 'unknown']),
      (batches, keysMax, hosts) => {
        const records = recordsOf(batches, keysMax);
        if (records.size > 1) divided++;
        else joint++;
        const attacks = batches.flat();
        for (const list of ['sources', 'urls', 'rules'] as const) {
          const counts = truth(attacks, list, hosts);
          const found = listOf(records, list, hosts);
          const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
          expect(found.attacks).toBe(total);
          expect(found.error).toBeLessThanOrEqual(total / (keysMax + 1));
          if (keysMax === 1_024)
            expect(found).toMatchObject({ distinct: counts.size, distinctIs: 'exact', error: 0 });
          const items = new Map(found.items.map((item) => [nameOf(item), item]));
          const wrong = [...counts].filter(([key, count]) => {
            const item = items.get(key);
            if (item === undefined) return count > found.error;
            return count < item.count || count > item.count + item.error;
          });
          expect(wrong).toEqual([]);
          expect([...items.keys()].filter((key) => !counts.has(key))).toEqual([]);
        }
      },
    ),
    // Fewer would not always have both kinds of records.
    { numRuns: Math.max(25, scaled(25)) },
  );
  expect(Math.min(joint, divided)).toBeGreaterThan(2);
});

function nameOf({ key, hostId }: { key: string; hostId?: string | null }): string {
  return hostId === undefined ? key : hostPrefix(hostId) + key;
}

test('the record of an hour is divided when it has too many bytes, or a host too many values', () => {
  const flood = (length: number, urlBytes: number): Attack[] =>
    Array.from({ length }, (_, i) => ({
      hostId: HOSTS[1 + (i % 3)] ?? null,
      category: 0,
      source: '10.0.0.1',
      url: `/${i}`.padEnd(urlBytes, 'x'),
    }));
  expect([...recordsOf([flood(900, 20)], 301).keys()]).toEqual([null]);
  expect([...recordsOf([flood(900, 20), flood(906, 20)], 301).keys()]).toHaveLength(4);
  expect([...recordsOf([flood(240, 256)], 301).keys()]).toEqual([null]);
  expect([...recordsOf([flood(270, 256)], 301).keys()]).toHaveLength(4);
  // Once divided, the record stays divided.
  const records = recordsOf([flood(270, 256), flood(1, 20)], 301);
  for (const list of TOP_LISTS) {
    const found = listOf(records, list, undefined);
    expect(found).toMatchObject({ attacks: list === 'countries' ? 0 : 271, error: 0 });
  }
});

test.each([1, 3, 50])('a flood on %i hosts neither hides the top attacker nor grows the records', (hosts) => {
  const keysMax = 64;
  const batches = Array.from({ length: 20 }, (_, batch) =>
    Array.from({ length: 500 }, (_, i): Attack => {
      const n = batch * 500 + i;
      const source = n % 10 === 3 ? '203.0.113.7' : `10.0.${n >> 8}.${n & 255}`;
      return {
        hostId: `host-${Math.floor(n / 10) % hosts}`,
        category: n % 3,
        source,
        url: `/${n}`.padEnd(200, 'x'),
      };
    }),
  );
  const records = recordsOf(batches, keysMax);
  expect(records.size).toBe(1 + hosts);
  for (const record of records.values()) expect(record.length).toBeLessThan(5_000 + keysMax * 260);
  for (const selected of [undefined, ['host-0']]) {
    const { items, error, attacks } = listOf(records, 'sources', selected);
    const count = attacks / 10;
    expect(items[0]?.key).toBe('203.0.113.7');
    expect(items[0]?.count).toBeLessThanOrEqual(count);
    expect((items[0]?.count ?? 0) + (items[0]?.error ?? 0)).toBeGreaterThanOrEqual(count);
    expect(error).toBeLessThanOrEqual(attacks / (keysMax + 1));
  }
});
