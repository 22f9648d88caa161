import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
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
/** Few sets, so that queries repeat. Host 60 is unknown until one is added. */
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
  details: fc.constantFrom(undefined, { blocked: true }),
});
const change = fc.oneof(
  { weight: 4, arbitrary: fc.record({ events: fc.array(event, { minLength: 1, maxLength: 60 }) }) },
  { weight: 1, arbitrary: fc.record({ prune: moment }) },
  { weight: 1, arbitrary: fc.record({ deletedHost: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ renamedHost: fc.nat(2), hostname: fc.constantFrom('a', 'b', 'c') }) },
  { weight: 1, arbitrary: fc.record({ addedHosts: fc.subarray(['a', 'b', '0.example'], { minLength: 1 }) }) },
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;
const view = fc.record({
  set: fc.constantFrom(...SETS),
  from: moment,
  length: fc.constantFrom(59_000, HOUR_MS, DAY_MS, 30 * DAY_MS),
});

test('repeated queries equal the oracle while events, hosts and the horizon change', async () => {
  const views = fc.array(view, { minLength: 3, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 3, maxLength: 6 }), views, async (changes, all) => {
      const directory = mkdtempSync(join(tmpdir(), 'wafstat-cached-'));
      const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
      const oracle = memoryStore(() => NOW);
      const project = 'p';
      const ids: (string | null)[] = [];
      const idOf = (host: number) => ids[host] ?? 'unknown';
      const addHosts = async (hostnames: string[]) => {
        const added = await oracle.resolveHosts({ project, hostnames, limit: 100 });
        expect(await store.resolveHosts({ project, hostnames, limit: 100 })).toEqual(added);
        ids.push(...added.filter((id) => !ids.includes(id)));
      };
      const apply = async (to: Store, one: Exclude<Change, { addedHosts: string[] }>) => {
        if ('prune' in one) return to.prune(one.prune);
        if ('deletedHost' in one) return to.deleteHost({ project, id: idOf(one.deletedHost) });
        if ('renamedHost' in one)
          return to.renameHost({ project, id: idOf(one.renamedHost), hostname: one.hostname });
        const events = one.events.map(({ host, ...rest }) => ({
          ...rest,
          hostId: idOf(host),
          request: true,
        }));
        return to.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
      };
      // Repeated queries have the same array, which the store remembers.
      const arrays = new Map<string, string[]>();
      const sameArray = (hosts: string[]) => {
        const known = arrays.get(hosts.join()) ?? hosts;
        arrays.set(hosts.join(), known);
        return known;
      };
      await addHosts(HOSTNAMES);
      for (const [i, one] of changes.entries()) {
        if ('addedHosts' in one) await addHosts(one.addedHosts);
        else expect(await apply(store, one)).toEqual(await apply(oracle, one));
        expect(await store.hosts(project)).toEqual(await oracle.hosts(project));
        // The second time, the sums of a set are cached; the range moves on.
        for (const { set, from, length } of [...all, ...all]) {
          const range = { from: from + i, to: from + i + length };
          const query = { project, hosts: set ? sameArray(set.map(idOf)) : undefined, ...range };
          expect(await resultsOf(store, query)).toEqual(await resultsOf(oracle, query));
        }
      }
      await store.close();
      rmSync(directory, { recursive: true });
    }),
    { numRuns: scaled(30), endOnFailure: true },
  );
});

/** Rows as text, because comparing long arrays takes most of the time. */
async function resultsOf(
  store: Store,
  { project, hosts, from, to }: { project: string; hosts: string[] | undefined; from: number; to: number },
) {
  const text = (row: Float64Array) => row.join();
  const { requests, attacks } = await store.series({ project, hosts, edges: gridEdges(from, to, 0) });
  const edges = [from, from + Math.floor((to - from) / 3), to];
  const byCategory = await store.seriesByCategory({ project, hosts, edges });
  return {
    totals: await store.totals({ project, hosts, from, to }),
    attacksByHost: new Map([...(await store.attacksByHost({ project, hosts, from, to }))].sort()),
    series: [requests, attacks].map(text),
    byCategory: [byCategory.requests, ...byCategory.attacks, ...byCategory.blocked].map(text),
    byGroup: (await store.seriesByGroup({ project, hosts, edges })).map(text),
    // A single point is cached in another form.
    byGroupOfOnePoint: (await store.seriesByGroup({ project, hosts, edges: [from, to] })).map(text),
    peaks: (await store.peaks({ project, hosts, edges })).map(text),
  };
}
