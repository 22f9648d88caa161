import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { AttackBlock } from './attack-block.ts';
import { type AttackEntry, compareEntries, entryId, entryKey, sampleRank } from './attack-entries.ts';
import { addToHour, type StoredBlock } from './attack-hours.ts';
import { BLOCK_SIZE_MAX } from './attack-layout.ts';
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
  blocks: readonly StoredBlock[] = [];

  append(entries: readonly AttackEntry[], limit: number, isEnded = false): void {
    const stored = { project: PROJECT, blocks: this.blocks, limit };
    const { removed, added } = finish(addToHour({ hour: HOUR, entries, isEnded }, stored));
    this.blocks = [...this.blocks.filter(({ number }) => !removed.includes(number)), ...added];
  }

  list() {
    const range = { from: HOUR * HOUR_MS, to: (HOUR + 1) * HOUR_MS };
    const filter = { include: {}, exclude: {} };
    const query = { project: PROJECT, ...range, filter, isAscending: true, offset: 0, limit: 10_000 };
    const lister = new AttackLister(query, () => true);
    finish(lister.add({ hour: HOUR, blocks: this.blocks.map(({ block }) => block) }));
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
    (a, b) => sampleRank(PROJECT, entryKey(a)) - sampleRank(PROJECT, entryKey(b)),
  );
  return ranked.slice(0, limit).sort(compareEntries);
}

describe('the kept attacks of an hour', () => {
  it('do not depend on the order or the size of batches', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.array(entry, { maxLength: 30 }), fc.boolean()), { maxLength: 12 }),
        fc.integer({ min: 1, max: 80 }),
        (batches, limit) => {
          const hour = new StoredHour();
          for (const [batch, isEnded] of batches) hour.append(batch, limit, isEnded);
          const kept = keptOf(
            batches.flatMap(([batch]) => batch),
            limit,
          );
          const list = hour.list();
          expect(list.items).toEqual(kept.map((each) => ({ ...each, id: entryId(each) })));
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
    // Up to seven of each size: 1, 8, 64 and 512.
    expect(hour.blocks.length).toBeLessThan(29);
    hour.append([], 10_000, true);
    expect(hour.blocks).toHaveLength(1);
    expect(hour.list().total).toBe(2_000);
  });

  it('have equal attacks once, though their blocks overlap', () => {
    const hour = new StoredHour();
    const at = (i: number, count = 1): AttackEntry => {
      const time = HOUR * HOUR_MS + i * 100;
      return { id: '', time, hostId: null, category: 'xss', count, rules: [], source: `192.0.2.${i % 7}` };
    };
    const rows = Array.from({ length: 3_000 }, (_, i) => i);
    hour.append(
      rows.map((i) => at(i * 2)),
      10_000,
    );
    hour.append(
      rows.map((i) => at(i * 2 + 1)),
      10_000,
    );
    hour.append([at(10), at(11), at(2_500, 5), at(7_000)], 10_000);
    expect(hour.blocks.length).toBeGreaterThan(1);
    const { items, total, keptAttacks } = hour.list();
    expect([total, keptAttacks]).toEqual([6_001, 6_008]);
    expect(items.filter(({ count }) => count > 1).map(({ count }) => count)).toEqual([2, 2, 6]);
    expect(items).toEqual(items.toSorted(compareEntries));
  });

  it('are no more than a limit that was lowered, though no new attack is kept', () => {
    const hour = new StoredHour();
    const at = (i: number): AttackEntry => {
      return { id: `${i}`, time: HOUR * HOUR_MS, hostId: null, category: 'xss', count: 1, rules: [] };
    };
    const entries = Array.from({ length: 100 }, (_, i) => at(i));
    hour.append(entries, 50);
    const dropped = entries.filter(({ id }) => hour.list().items.every((item) => item.id !== id));
    hour.append(dropped.slice(0, 1), 45);
    expect(hour.list().items).toEqual(keptOf(entries, 45));
  });

  it('are read once per append, though all have the same time', () => {
    const hour = new StoredHour();
    const at = (i: number): AttackEntry => {
      return { id: '', time: HOUR * HOUR_MS, hostId: null, category: 'xss', count: 1, rules: [], score: i };
    };
    const entries = Array.from({ length: 2_000 }, (_, i) => at(i));
    hour.append(entries, 10_000);
    const read = vi.spyOn(AttackBlock.prototype, 'entry');
    // Half of them are new. They are less than half of the block, so it is not merged for them.
    hour.append([...entries.slice(1_700), ...Array.from({ length: 300 }, (_, i) => at(5_000 + i))], 10_000);
    // To find equal ones, and to add their counts.
    expect(read.mock.calls.length).toBeLessThanOrEqual(2 * 2_000);
    read.mockRestore();
    expect(hour.list()).toMatchObject({ total: 2_300, keptAttacks: 2_600 });
  });

  it('are exactly as many as the limit after a flood, in blocks of limited size', () => {
    const hour = new StoredHour();
    const limit = 1_000;
    const long = 'x'.repeat(128);
    const rules = Array.from({ length: 32 }, (_, i) => ({ id: `${i}`, variable: long, value: long }));
    for (let n = 0; n < 40; n++) {
      const entries = Array.from({ length: 100 }, (_, i): AttackEntry => {
        const id = `${n} ${i}`;
        return {
          id,
          time: HOUR * HOUR_MS + n * 50,
          hostId: null,
          category: 'xss',
          count: 1,
          url: long,
          rules,
        };
      });
      hour.append(entries, limit);
      expect(hour.list().total).toBe(Math.min(limit, (n + 1) * 100));
    }
    for (const { block } of hour.blocks) {
      expect(block.size).toBeLessThanOrEqual(BLOCK_SIZE_MAX);
      expect(block.ranks).toHaveLength(block.length);
    }
    expect(hour.blocks.reduce((sum, { block }) => sum + block.length, 0)).toBeLessThanOrEqual(1.25 * limit);
  });
});
