/** What a store has counted, to compare it with the oracle. */
import { CATEGORIES, type Event } from '../../../packages/server/src/event.ts';
import { startWith } from '../../../packages/server/src/store/batches.ts';
import type { Batch, Store } from '../../../packages/server/src/store/store.ts';
import { memoryStore } from '../../memory-store.ts';
import { allCounts, DAY_MS, NOW } from '../../store-conformance/data.ts';

export const PROJECT = 'p';
export const HORIZON = NOW - 20 * DAY_MS;

const HOURS_AGO = [0, 1, 30, 500];

/** Some events of the last 20 days, and of 20 days before. */
export function batch(
  id: string,
  hosts: readonly (string | null)[],
  daysAgo = 0,
  hoursAgo = HOURS_AGO,
): Batch {
  const events = hoursAgo.map((hours, i): Event => {
    const time = NOW - daysAgo * DAY_MS - hours * 3_600_000 - id.length * 1_001 - i;
    const details = { source: `203.0.113.${i}`, url: `/${id}`, blocked: i % 2 === 0 };
    const attack = i % 2 === 0 ? (CATEGORIES[i] ?? null) : null;
    return { time, hostId: hosts[i % hosts.length] ?? null, request: true, attack, count: 1 + i, details };
  });
  return {
    project: PROJECT,
    source: { name: 'log', format: 'events' },
    id,
    link: { after: startWith(id), bytes: id.length, firstLineHash: id, readerState: '', siblings: [] },
    followed: { source: 'log', path: '/log', since: 1, begun: { first_line_hash: id, at: 2 }, files: [] },
    events,
    dropped: { malformed: 1 },
  };
}

/** The same beginning for every operation. Returns the IDs of the hosts. */
export async function fill(store: Store): Promise<(string | null)[]> {
  const hostnames = ['a.example', 'b.example'];
  const hosts = [...(await store.resolveHosts({ project: PROJECT, hostnames, limit: 10 })), null];
  await store.append(batch('first', hosts));
  await store.append(batch('old', hosts, 20));
  return hosts;
}

const ALL_ATTACKS = { filter: { include: {}, exclude: {} }, isAscending: true, offset: 0, limit: 100 };

export async function stateOf(store: Store): Promise<string> {
  const from = NOW - 60 * DAY_MS;
  const edges = Array.from({ length: 25 }, (_, i) => from + i * (2.5 * DAY_MS + 12_345));
  const links = await store.batchesAfter(PROJECT, 'log', '');
  const { horizon, freedBefore } = await store.retention();
  return JSON.stringify({
    counts: await allCounts(store, { project: PROJECT, edges }),
    top: await store.top({ project: PROJECT, list: 'urls', from, to: NOW, limit: 10 }),
    attacks: (await store.attacks({ project: PROJECT, from, to: NOW, ...ALL_ATTACKS })).items.map(
      ({ id }) => id,
    ),
    hosts: await store.hosts(PROJECT),
    sources: await store.sources(PROJECT),
    followed: await store.followedPaths(PROJECT),
    // Batches before the horizon may be known or not.
    batches: links
      .map(({ id }) => id)
      .filter((id) => id !== 'old')
      .sort(),
    retention: { horizon, freedBefore },
  });
}

/** The states of the oracle before and after a change. */
export async function statesOf(change: (store: Store, hosts: (string | null)[]) => Promise<unknown>) {
  const oracle = memoryStore(() => NOW);
  const hosts = await fill(oracle);
  const before = await stateOf(oracle);
  await change(oracle, hosts);
  const after = await stateOf(oracle);
  if (after === before) throw new Error('the operation changes nothing');
  return { before, after, hosts };
}

/** Whether each part is as before or as after a change in several transactions. Counts and lists move with the horizon. */
export function isBetween(state: string, before: string, after: string): boolean {
  const isLike = (part: string, other: string) =>
    JSON.stringify(JSON.parse(state)[part]) === JSON.stringify(JSON.parse(other)[part]);
  const isWhole = (other: string) =>
    ['counts', 'top', 'attacks', 'retention'].every((part) => isLike(part, other));
  const parts = Object.keys(JSON.parse(state));
  return (
    (isWhole(before) || isWhole(after)) && parts.every((part) => isLike(part, before) || isLike(part, after))
  );
}
