/** Top lists of a real store against counting the attacks: exact where the list says so, within its bounds elsewhere. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import type { Category, Event } from '../event.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import { HOUR_MS, type TopQuery } from '../store/store.ts';
import { CategoryStatistics, ExactStatistics } from './filtered.ts';

const START = Date.UTC(2026, 6, 1);
const NOW = START + 24 * HOUR_MS;
/** The least that a store keeps. */
const TOP_KEYS = 16;
const EVENTS_MAX = 40;

/** In the hour 1 there are too many attacks to keep, in the hour 2 too many sources for a summary, and in the hour 3 both. */
const ATTACKS_PER_HOUR = [20, 60, 30, 60, 20];
const SOURCES_PER_HOUR = [10, 10, 30, 60, 10];

const someAttacks = fc.infiniteStream(
  fc.record({
    ms: fc.nat(HOUR_MS - 1),
    source: fc.nat(1_000_000),
    attack: fc.constantFrom<Category>('sqli', 'xss'),
    count: fc.constantFrom(1, 1, 2),
  }),
);
const someTime = fc.oneof(
  fc.nat(5 * HOUR_MS),
  fc.nat(5).map((hour) => hour * HOUR_MS),
);

test('top lists are exact to the millisecond, or say which hours they cover with which error', async () => {
  const covered = { range: 0, hours: 0 };
  await fc.assert(
    fc.asyncProperty(
      someAttacks,
      fc.array(fc.tuple(someTime, someTime), { minLength: 10, maxLength: 10 }),
      async (stream, times) => {
        const directory = mkdtempSync(join(tmpdir(), 'wafstat-filtered-'));
        const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW, {
          topKeys: TOP_KEYS,
          eventsMax: EVENTS_MAX,
        });
        try {
          const events = ATTACKS_PER_HOUR.flatMap((attacks, hour) =>
            Array.from({ length: attacks }, (): Event => {
              const { ms, source, attack, count } = stream.next().value ?? expect.unreachable();
              const address = `192.0.2.${source % (SOURCES_PER_HOUR[hour] ?? 1)}`;
              const time = START + hour * HOUR_MS + ms;
              return { time, hostId: null, request: false, attack, count, details: { source: address } };
            }),
          );
          await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
          for (const [one, other] of times) {
            const [from, to] = [START + Math.min(one, other), START + Math.max(one, other)];
            const query: TopQuery = { project: 'p', from, to, list: 'sources', limit: 1_000 };
            for (const categories of [undefined, ['sqli'] as const]) {
              const statistics = categories
                ? new CategoryStatistics(store, categories)
                : new ExactStatistics(store);
              const list = await statistics.top(query);
              const isCounted = ({ time, attack }: Event) =>
                list.from <= time && time < list.to && (!categories || attack === 'sqli');
              const counts = new Map<string, number>();
              for (const { details, count } of events.filter(isCounted)) {
                const source = details?.source ?? '';
                counts.set(source, (counts.get(source) ?? 0) + count);
              }
              expect(list.attacks).toBe([...counts.values()].reduce((sum, count) => sum + count, 0));
              const isRange = list.from === from && list.to === to;
              covered[isRange ? 'range' : 'hours']++;
              if (!isRange) expect([list.from % HOUR_MS, list.to % HOUR_MS]).toEqual([0, 0]);
              if (list.error === 0)
                expect(list).toMatchObject({ distinct: counts.size, distinctIs: 'exact' });
              for (const { key, count, error } of list.items) {
                const exact = counts.get(key) ?? 0;
                expect(exact).toBeGreaterThanOrEqual(count);
                expect(exact).toBeLessThanOrEqual(count + error);
              }
              const missing = [...counts].filter(([key]) => !list.items.some((item) => item.key === key));
              for (const [, count] of missing) expect(count).toBeLessThanOrEqual(list.error);
            }
          }
        } finally {
          await store.close();
          rmSync(directory, { recursive: true });
        }
      },
    ),
    { numRuns: scaled(50) },
  );
  expect(covered.range).toBeGreaterThan(0);
  expect(covered.hours).toBeGreaterThan(0);
});
