import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CATEGORIES } from '../../event.ts';
import { gridEdges } from '../../statistics/timeline.ts';
import { memoryStore } from '../memory.ts';
import type { Store } from '../store.ts';
import { lmdbStore } from './lmdb.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);
/** With 60 hosts, some queries run in slices. */
const HOSTNAMES = Array.from({ length: 60 }, (_, i) => `${i}.example`);
/** Few sets, so that queries repeat. The last host is unknown. */
const SETS = [[0], [60], [0, 1], [1, 0], [0, 1, 60], HOSTNAMES.map((_, i) => i), null];

/** Around now, and around the start of the range: the minutes that queries cut. */
const moment = fc
  .tuple(fc.constantFrom(0, 1, 2, 26, 30 * 24), fc.nat(90_000))
  .map(([hours, ms]) => NOW - hours * HOUR_MS - ms);
const event = fc.record({
  time: moment,
  host: fc.nat(HOSTNAMES.length),
  attack: fc.option(fc.constantFrom(...CATEGORIES)),
  count: fc.constantFrom(1, 1, 300),
});
const change = fc.oneof(
  { weight: 8, arbitrary: fc.record({ events: fc.array(event, { minLength: 1, maxLength: 100 }) }) },
  { weight: 1, arbitrary: fc.record({ prune: moment }) },
  { weight: 1, arbitrary: fc.record({ deletedHost: fc.nat(1) }) },
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;
const view = fc.record({
  set: fc.constantFrom(...SETS),
  from: moment,
  length: fc.constantFrom(59_000, HOUR_MS, DAY_MS, 30 * DAY_MS),
});

test('repeated queries count like the oracle while events, hosts and the horizon change', async () => {
  const views = fc.array(view, { minLength: 6, maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 4, maxLength: 8 }), views, async (changes, all) => {
      const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
      const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
      const oracle = memoryStore(() => NOW);
      const project = 'p';
      await store.resolveHosts({ project, hostnames: HOSTNAMES, limit: 100 });
      const ids = await oracle.resolveHosts({ project, hostnames: HOSTNAMES, limit: 100 });
      const idOf = (host: number) => ids[host] ?? 'unknown';
      const apply = async (to: Store, one: Change) => {
        if ('prune' in one) return to.prune(one.prune);
        if ('deletedHost' in one) return to.deleteHost({ project, id: idOf(one.deletedHost) });
        const events = one.events.map(({ host, ...rest }) => ({
          ...rest,
          hostId: idOf(host),
          request: true,
        }));
        return to.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
      };
      for (const [i, one] of changes.entries()) {
        await apply(store, one);
        await apply(oracle, one);
        // The second time, the sums of a set are cached; the range moves on.
        for (const { set, from, length } of [...all, ...all]) {
          const range = { from: from + i, to: from + i + length };
          const query = { project, hosts: set?.map(idOf), ...range };
          expect(await resultsOf(store, query)).toEqual(await resultsOf(oracle, query));
        }
      }
      await store.close();
      rmSync(directory, { recursive: true });
    }),
    { numRuns: 6, endOnFailure: true },
  );
});

async function resultsOf(
  store: Store,
  { project, hosts, from, to }: { project: string; hosts: string[] | undefined; from: number; to: number },
) {
  const { requests, attacks } = await store.series({ project, hosts, edges: gridEdges(from, to, 0) });
  return {
    totals: await store.totals({ project, hosts, from, to }),
    attacksByHost: new Map([...(await store.attacksByHost({ project, hosts, from, to }))].sort()),
    // As text, because comparing long arrays takes most of the time.
    series: [requests.join(), attacks.join()],
  };
}
