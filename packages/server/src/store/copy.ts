/** Copies a project from one store to another and compares the two. */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { entryKey } from './attack-entries.ts';
import { HOUR_MS, NO_SOURCE, type Store, type TimeRange, wholeHours } from './store.ts';

const DAY_MS = 86_400_000;
/** Moves edges off every grid, so that exact milliseconds are compared too. */
const ODD_MS = 12_345_678;

/** The target store has counts of its own, to which a copy would be added. Nothing was changed. */
export class CopyConflict extends Error {}

/**
 * Skips what an earlier copy has copied, so an interrupted copy can be run again. Neither store may count anything
 * during the copy. `to` must not keep attacks of appended events (`eventsMax: 0`): they lack what the kept ones have.
 * `progress` is called with the number of events in each part.
 */
export async function copyProject(
  from: Store,
  to: Store,
  project: string,
  progress: (events: number) => void = () => {},
): Promise<void> {
  await checkDestination(from, to, project);
  for (const { id, hostname, created } of await from.hosts(project)) {
    const added = await to.addHost({ project, hostname, id, created, limit: Number.MAX_SAFE_INTEGER });
    if (!('host' in added) || added.host.id !== id || added.host.hostname !== hostname) {
      throw new CopyConflict(
        `the target store cannot add the host ${hostname} (ID ${id}): ` +
          `${'host' in added ? `it has ${added.host.hostname} (ID ${added.host.id})` : 'it is full'}`,
      );
    }
  }
  for await (const { id, events } of from.transfer.events(project)) {
    await to.append({ project, source: NO_SOURCE, id, events, dropped: {} });
    progress(events.length);
  }
  for await (const slices of from.transfer.topSlices(project))
    await to.transfer.putTopSlices(project, slices);
  for await (const hour of from.transfer.attackHours(project)) await to.transfer.putAttackHour(project, hour);
  for (const source of await from.sources(project)) {
    await to.transfer.putSource(project, source, []);
    for await (const batches of from.transfer.batches(project, source.name))
      await to.transfer.putSource(project, source, batches);
  }
  for (const followed of await from.followedPaths(project)) await to.putFollowedPath(project, followed);
}

/** The target may only have data of an earlier copy, which this one continues. */
async function checkDestination(from: Store, to: Store, project: string): Promise<void> {
  const [hosts, sources] = [await from.hosts(project), await from.sources(project)];
  const copiedSources = await to.sources(project);
  const isIn = (items: readonly object[], item: object) =>
    items.some((other) => isDeepStrictEqual(other, item));
  const host = (await to.hosts(project)).find((one) => !isIn(hosts, one));
  const source = copiedSources.find((one) => !isIn(sources, one));
  if (host || source) {
    const what = host ? `host ${host.hostname}` : `source ${source?.name}`;
    throw new CopyConflict(`the target store has its own counts for the project: its ${what} differs`);
  }
  if (copiedSources.length > 0 && !(await hasImportedEvents(to, project))) {
    throw new CopyConflict('the target store has counts for the project that were not copied');
  }
}

async function hasImportedEvents(to: Store, project: string): Promise<boolean> {
  for await (const batches of to.transfer.batches(project, NO_SOURCE.name))
    if (batches.length > 0) return true;
  return false;
}

const COMPARED = [
  ['requests and attacks', 'everything'],
  ['response codes', 'codes'],
  ['response codes of upstream servers', 'upstreamCodes'],
  ['bytes', 'traffic'],
] as const;

/** What differs between the stores, in words. Empty if nothing does. */
export async function differences(
  one: Store,
  other: Store,
  project: string,
  range: TimeRange,
): Promise<string[]> {
  const found: string[] = [];
  const compare = async (what: string, read: (store: Store) => Promise<unknown>) => {
    if (!isDeepStrictEqual(await read(one), await read(other))) found.push(`the ${what} differ`);
  };
  await compare('hosts', (store) => store.hosts(project));
  await compare('sources', (store) => store.sources(project));
  await compare('followed paths', (store) => store.followedPaths(project));
  const edges: number[] = [];
  for (let edge = range.from; edge < range.to; edge += DAY_MS + ODD_MS) edges.push(edge);
  edges.push(range.to);
  for (const hosts of [undefined, ...(await one.hosts(project)).map(({ id }) => [id])]) {
    const owner = hosts === undefined ? 'the project' : `host ${hosts[0]}`;
    for (const [what, rows] of COMPARED)
      await compare(`${what} of ${owner}`, (store) => store.count({ project, hosts, edges, rows }));
  }
  const [lists, otherLists] = [
    await hashTopLists(one, project, range),
    await hashTopLists(other, project, range),
  ];
  for (const hostId of new Set([...lists.keys(), ...otherLists.keys()])) {
    const owner = hostId === null ? 'the project' : `host ${hostId}`;
    if (lists.get(hostId) !== otherLists.get(hostId)) found.push(`the top lists of ${owner} differ`);
  }
  await compare('kept attacks', (store) => hashAttacks(store, project, range));
  return found;
}

/** Hashes by host ID. Hashes of slices are added up, because stores have them in different orders. */
async function hashTopLists(
  store: Store,
  project: string,
  range: TimeRange,
): Promise<Map<string | null, bigint>> {
  const sums = new Map<string | null, bigint>();
  const { from, to } = wholeHours(range);
  for await (const slices of store.transfer.topSlices(project)) {
    for (const { hostId, hour, record } of slices) {
      if (hour * HOUR_MS < from || hour * HOUR_MS >= to) continue;
      const hash = createHash('sha256').update(`${hour} `).update(record).digest();
      sums.set(hostId, (sums.get(hostId) ?? 0n) + hash.readBigUInt64BE());
    }
  }
  return sums;
}

/** Stores may divide the attacks of an hour into different blocks. */
async function hashAttacks(store: Store, project: string, range: TimeRange): Promise<string> {
  const { from, to } = wholeHours(range);
  const hash = createHash('sha256');
  for await (const { hour, blocks } of store.transfer.attackHours(project)) {
    if (hour * HOUR_MS < from || hour * HOUR_MS >= to) continue;
    const counts = new Map<string, number>();
    for (const entry of blocks.flatMap((block) => block.entries())) {
      const key = entryKey(entry);
      counts.set(key, (counts.get(key) ?? 0) + entry.count);
    }
    for (const key of [...counts.keys()].sort()) hash.update(`${counts.get(key)} ${key}\n`);
  }
  return hash.digest('hex');
}
