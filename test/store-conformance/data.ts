/** Random events and queries, and comparisons with the memory store as the oracle. */
import fc from 'fast-check';
import { expect } from 'vitest';
import { CATEGORIES, type Event, PAGE_CODES } from '../../packages/server/src/event.ts';
import { gridEdges } from '../../packages/server/src/statistics/grid.ts';
import { ROWS, type RowsName } from '../../packages/server/src/store/rows.ts';
import {
  ALL_LISTS,
  type Batch,
  type ErrorPages,
  type FollowedPath,
  HOUR_MS,
  type NewLink,
  type Selection,
  type Store,
  type TopQuery,
} from '../../packages/server/src/store/store.ts';
import { OffsetZone } from '../../packages/server/src/zone.ts';

export const DAY_MS = 86_400_000;
export const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);
export const HOSTNAMES = ['a.example', 'b.example', 'c.example', 'd.example'];

/** Times so close that cells, chunks and edges meet: some random, some on and around boundaries. */
export const moment = fc.oneof(
  fc.integer({ min: NOW - 40 * DAY_MS, max: NOW }),
  fc.integer({ min: NOW - 90_000, max: NOW }),
  fc
    .tuple(fc.integer({ min: 0, max: 40 * 24 * 4 }), fc.integer({ min: -1, max: 1 }))
    .map(([quarters, off]) => Math.floor(NOW / 900_000 - quarters) * 900_000 + off),
);

export interface RandomEvent extends Omit<Event, 'hostId'> {
  host: number | null;
}

const anyEvent: fc.Arbitrary<RandomEvent> = fc.record({
  time: moment,
  host: fc.option(fc.integer({ min: 0, max: HOSTNAMES.length - 1 })),
  request: fc.boolean(),
  attack: fc.option(fc.constantFrom(...CATEGORIES)),
  count: fc.oneof({ weight: 5, arbitrary: fc.constant(1) }, fc.integer({ min: 1, max: 1_000_000 })),
  details: fc.constantFrom(undefined, {}, { blocked: false }, { blocked: true }),
  status: fc.constantFrom(undefined, 200, 200, 100, 204, 404, 500, 599),
  upstreamStatus: fc.constantFrom(undefined, undefined, 0, 200, 404, 502),
  bytesIn: fc.constantFrom(undefined, 0, 17, 2 ** 40),
  bytesOut: fc.constantFrom(undefined, 0, 1_234, 2 ** 40),
  otherCodes: fc.constantFrom(undefined, [404, 1], [200, 3, 0, 2, 502, 1]),
});
/** Not more requests with other codes than requests. */
export const event = anyEvent.map(({ otherCodes = [], ...drawn }): RandomEvent => {
  const others = otherCodes.reduce((sum, value, i) => (i % 2 === 1 ? sum + value : sum), 0);
  return others > 0 && others <= drawn.count ? { ...drawn, otherCodes } : drawn;
});

export const batches = fc.array(fc.array(event, { maxLength: 40 }), { minLength: 1, maxLength: 6 });
export const hostSet = fc.option(
  fc.uniqueArray(fc.integer({ min: 0, max: HOSTNAMES.length }), { maxLength: 5 }),
);
const edges = fc.oneof(
  fc.uniqueArray(moment, { minLength: 2, maxLength: 12 }).map((times) => times.sort((a, b) => a - b)),
  fc
    .tuple(moment, moment, fc.integer({ min: -12 * 4, max: 14 * 4 }))
    .filter(([a, b]) => a !== b)
    .map(([a, b, quarters]) => gridEdges(Math.min(a, b), Math.max(a, b), new OffsetZone(quarters * 15))),
);
export const randomQuery = fc.record({ hosts: hostSet, edges });

/** Attacks with few values, so that hours, hosts and categories share them. Some have no values, and some no host. */
export const attackWithDetails: fc.Arbitrary<RandomEvent> = fc
  .record({
    ago: fc.tuple(fc.constantFrom(0, 1, 2, 5, 30, 800), fc.nat(3_600_000)),
    one: event,
    details: fc.record(
      {
        blocked: fc.boolean(),
        source: fc.oneof(
          fc.nat(9).map((n) => `203.0.113.${n}`),
          fc.constantFrom('2001:db8::1', '2001:db8::2', '2001:db8:1:2:3::4'),
          fc.constantFrom('198.51.100.0/24', '2001:db8:1::/48'),
        ),
        url: fc.oneof(
          fc.nat(9).map((n) => `/${n}`),
          fc.constantFrom('/', '/ a', '/\u00e4'),
        ),
        rule: fc.nat(5).map((n) => `94210${n}`),
        country: fc.constantFrom('DE', 'FR'),
      },
      { requiredKeys: [] },
    ),
  })
  .map(({ ago: [hours, ms], one, details }) => ({ ...one, time: NOW - hours * HOUR_MS - ms, details }));
export const randomTopQuery = fc
  .record({
    hosts: hostSet,
    list: fc.constantFrom(...ALL_LISTS),
    codes: fc.option(fc.subarray([...PAGE_CODES]), { nil: undefined }),
    categories: fc.option(fc.uniqueArray(fc.constantFrom(...CATEGORIES), { maxLength: 6 }), {
      nil: undefined,
    }),
    limit: fc.constantFrom(1, 3, 1_000),
    range: fc
      .tuple(fc.constantFrom(0, 1, 3, 40, 900), fc.constantFrom(0, 1, 2, 31), fc.nat(3_600_000))
      .map(([hours, until, ms]) => ({ from: NOW - hours * HOUR_MS - ms, to: NOW + 1 - until * HOUR_MS })),
  })
  .map(({ range, ...query }) => ({ ...query, ...range }));

export function followed(path: string, since: number): FollowedPath {
  const file = { first_line_hash: 'f', state: 'finished' as const, modified_ms: since + 0.5, bytes: 3 };
  return { source: 'test', path, since, begun: null, files: [file] };
}

/** Appends single events as chunks of a file. */
export function linked(store: Store) {
  return {
    append: (id: string, link: Partial<NewLink> & Pick<NewLink, 'after' | 'bytes'>) =>
      store.append({
        ...batch('p', [], [drawnAt(NOW)]),
        id,
        link: { firstLineHash: '', readerState: '', siblings: [], ...link },
      }),
    linksAfter: async (id: string) =>
      (await store.batchesAfter('p', 'test', id)).toSorted((a, b) => (a.id < b.id ? -1 : 1)),
  };
}

export async function addHosts(store: Store, project: string): Promise<string[]> {
  const ids = await store.resolveHosts({ project, hostnames: HOSTNAMES, limit: 1_000 });
  return ids.map((id) => id ?? '');
}

export function batch(project: string, ids: readonly string[], drawn: readonly RandomEvent[]): Batch {
  const events = drawn.map(({ host, ...rest }) => ({
    ...rest,
    hostId: host === null ? null : (ids[host] ?? null),
  }));
  const pages = events.flatMap(({ request, ...one }) => (request ? pageOf(one) : []));
  return { project, source: { name: 'test', format: 'events' }, events, pages, dropped: {} };
}

/** A request with an error, and some path. */
function pageOf({ time, hostId, status = 0, count }: Omit<Event, 'request'>): ErrorPages[] {
  const code = PAGE_CODES.indexOf(status);
  const paths = new Map([[`/${time % 7}`, count]]);
  return code === -1 ? [] : [{ hour: Math.floor(time / HOUR_MS), hostId, code, paths, lost: 0, error: 0 }];
}

export function drawnAt(time: number): RandomEvent & { hostId: null } {
  return { time, host: null, hostId: null, request: true, attack: null, count: 1 };
}

/** Numbers beyond the hosts yield an unknown ID. */
export function pick(ids: readonly string[], set: readonly number[] | null): string[] | undefined {
  return set?.map((number) => ids[number] ?? 'none');
}

export async function expectSameTopLists(
  store: Store,
  oracle: Store,
  project: string,
  ids: readonly string[],
  queries: readonly (Omit<TopQuery, 'project' | 'hosts'> & { hosts: number[] | null })[],
): Promise<void> {
  for (const query of queries) {
    const top = { ...query, project, hosts: pick(ids, query.hosts) };
    expect(await store.top(top)).toEqual(await oracle.top(top));
  }
}

export async function expectSameResults(
  store: Store,
  oracle: Store,
  project: string,
  ids: readonly string[],
  queries: readonly { hosts: number[] | null; edges: number[] }[],
): Promise<void> {
  for (const { hosts: set, edges } of queries) {
    const hosts = pick(ids, set);
    const query = { project, hosts, edges };
    expect(await allCounts(store, query)).toEqual(await allCounts(oracle, query));
  }
}

/** The counts of a query in all forms, as text: long arrays compare much faster. */
export async function allCounts(
  store: Store,
  query: Selection & { edges: readonly number[] },
): Promise<Record<string, unknown>> {
  const onePoint = { ...query, edges: [query.edges[0] ?? 0, query.edges.at(-1) ?? 0] };
  const byHost = async (of: typeof query, rows: RowsName) => {
    const hosts = [...(await store.count({ ...of, rows, byHost: true }))];
    return hosts.map(([id, counts]) => `${id} ${texts(counts)}`).sort();
  };
  const found: Record<string, unknown> = {
    peaks: texts(await store.peaks(query)),
    onePoint: texts(await store.count({ ...onePoint, rows: 'everything' })),
    byHost: await byHost(query, 'timeline'),
    onePointByHost: await byHost(onePoint, 'everything'),
  };
  for (const rows of Object.keys(ROWS) as RowsName[])
    found[rows] = texts(await store.count({ ...query, rows }));
  return found;
}

export function texts(rows: readonly Float64Array[]): string[] {
  return rows.map((row) => row.join());
}
