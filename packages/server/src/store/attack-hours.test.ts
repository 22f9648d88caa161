import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AttackBlock } from './attack-block.ts';
import { type AttackEntry, compareEntries, entryKey, sampleRank } from './attack-entries.ts';
import { addToHour, openHour, type StoredBlock } from './attack-hours.ts';
import { AttackLister } from './attack-list.ts';
import { finish } from './slices.ts';
import { HOUR_MS } from './store.ts';

const [PROJECT, HOUR] = ['project', 490_000];

/** Few distinct values, so that many entries are equal. */
const entry: fc.Arbitrary<AttackEntry> = fc.record({
  id: fc.oneof(fc.constant(''), fc.integer({ min: 1, max: 40 }).map(String)),
  time: fc.integer({ min: 0, max: 60 }).map((ms) => HOUR * HOUR_MS + ms * 50_000),
  hostId: fc.constantFrom(null, 'a', 'b'),
  category: fc.constantFrom('xss' as const, 'sqli' as const),
  count: fc.integer({ min: 1, max: 3 }),
  rules: fc.constantFrom([], [{ id: '942100' }]),
});

class StoredHour {
  readonly blocks = new Map<number, StoredBlock & { bytes: Buffer }>();

  append(entries: readonly AttackEntry[], limit: number): void {
    const blocks = [...this.blocks.values()].sort((a, b) => a.number - b.number);
    const read = (number: number) => this.blocks.get(number)?.bytes ?? Buffer.alloc(0);
    const change = finish(addToHour({ project: PROJECT, hour: HOUR, blocks, read, entries, limit }));
    for (const number of change.removed) this.blocks.delete(number);
    for (const added of change.added) this.blocks.set(added.number, added);
  }

  list(limit: number) {
    const blocks = [...this.blocks.values()].map(({ bytes }) => new AttackBlock(HOUR, bytes));
    const range = { from: HOUR * HOUR_MS, to: (HOUR + 1) * HOUR_MS };
    const filter = { include: {}, exclude: {} };
    const query = { project: PROJECT, ...range, filter, isAscending: true, offset: 0, limit: 10_000 };
    const lister = new AttackLister(query, () => true);
    finish(lister.add(openHour(PROJECT, HOUR, blocks, limit)));
    return lister.list;
  }
}

/** What must be kept of these attacks. */
function keptOf(entries: readonly AttackEntry[], limit: number): AttackEntry[] {
  const distinct = new Map<string, AttackEntry>();
  for (const each of entries) {
    const key = entryKey(each);
    distinct.set(key, { ...each, count: each.count + (distinct.get(key)?.count ?? 0) });
  }
  const ranked = [...distinct.values()].sort(
    (a, b) => sampleRank(PROJECT, a) - sampleRank(PROJECT, b) || compareEntries(a, b),
  );
  return ranked.slice(0, limit).sort(compareEntries);
}

describe('the kept attacks of an hour', () => {
  it('do not depend on the order or the size of batches', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(entry, { maxLength: 30 }), { maxLength: 12 }),
        fc.integer({ min: 1, max: 80 }),
        (batches, limit) => {
          const hour = new StoredHour();
          for (const batch of batches) hour.append(batch, limit);
          const kept = keptOf(batches.flat(), limit);
          const list = hour.list(limit);
          expect(list.items).toEqual(kept);
        },
      ),
    );
  });

  it('have few blocks, however small the batches are', () => {
    const hour = new StoredHour();
    for (let i = 0; i < 2_000; i++) {
      const time = HOUR * HOUR_MS + i * 1_000;
      hour.append([{ id: String(i), time, hostId: null, category: 'xss', count: 1, rules: [] }], 10_000);
    }
    expect(hour.blocks.size).toBeLessThan(12);
    expect(hour.list(10_000).total).toBe(2_000);
  });
});
