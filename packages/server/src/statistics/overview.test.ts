import fc from 'fast-check';
import { expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { topHosts } from './overview.ts';

const NOW = Date.UTC(2026, 6, 1);
const HOSTNAMES = ['d.example', 'b.example', 'c.example', 'a.example', 'e.example'];

test('the most attacked hosts are the first by count, then by name', async () => {
  const counts = fc.array(fc.nat(3), { minLength: HOSTNAMES.length, maxLength: HOSTNAMES.length });
  await fc.assert(
    fc.asyncProperty(counts, fc.integer({ min: 1, max: 6 }), async (attacksOf, top) => {
      const store = memoryStore(() => NOW);
      const ids = await store.resolveHosts({ project: 'p', hostnames: HOSTNAMES, limit: 9 });
      const events = ids.flatMap((hostId, i) =>
        Array.from({ length: attacksOf[i] ?? 0 }, () => ({
          ...{ time: NOW - 1, hostId, request: true, attack: 'xss' as const, count: 1 },
        })),
      );
      await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
      const all = HOSTNAMES.map((key, i) => ({ key, num: attacksOf[i] ?? 0 }))
        .filter(({ num }) => num > 0)
        .sort((a, b) => b.num - a.num || (a.key < b.key ? -1 : 1));
      expect(await topHosts(store, { project: 'p', from: NOW - 1, to: NOW }, top)).toEqual({
        total: all.length,
        items: all.slice(0, top),
      });
    }),
    { numRuns: scaled(100) },
  );
});
