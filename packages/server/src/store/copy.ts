/** Takes a project from one store to another, and holds the two against each other. */
import { isDeepStrictEqual } from 'node:util';
import { NO_SOURCE, type Source, type Store } from './store.ts';

const DAY_MS = 86_400_000;
/** Moments that no grid has, so that exact milliseconds are compared too. */
const ODD_MS = 12_345_678;

/** The other store has something else under the same name. */
export class CopyConflict extends Error {}

/**
 * What was taken over before is left out, so that a copy that was stopped can be run again. Nothing may be counted in
 * either store meanwhile. `progress` hears how many events have been dealt with.
 */
export async function copyProject(
  from: Store,
  to: Store,
  project: string,
  progress: (events: number) => void = () => {},
): Promise<void> {
  for (const { id, hostname, created } of await from.hosts(project)) {
    const added = await to.addHost({ project, hostname, id, created, limit: Number.MAX_SAFE_INTEGER });
    if (!('host' in added) || added.host.id !== id || added.host.hostname !== hostname) {
      throw new CopyConflict(
        `${hostname} (ID ${id}) cannot be taken over: the other store has ` +
          `${'host' in added ? `${added.host.hostname} (ID ${added.host.id})` : 'no room for it'}`,
      );
    }
  }
  for await (const { id, events } of from.events(project)) {
    await to.append({ project, source: NO_SOURCE, id, events, dropped: {} });
    progress(events.length);
  }
  for (const source of await from.sources(project)) {
    await to.putSource(project, source, []);
    for await (const batches of from.batches(project, source.name))
      await to.putSource(project, source, batches);
  }
}

/** Sentences about what the two answer differently; none when they are the same. */
export async function differences(
  one: Store,
  other: Store,
  project: string,
  range: { from: number; to: number },
): Promise<string[]> {
  const found: string[] = [];
  const compare = async (what: string, ask: (store: Store) => Promise<unknown>) => {
    if (!isDeepStrictEqual(await ask(one), await ask(other))) found.push(`${what} are not the same`);
  };
  await compare('the hosts', (store) => store.hosts(project));
  await compare('the sources', async (store) => (await store.sources(project)).map(sortedDrops));
  const edges: number[] = [];
  for (let edge = range.from; edge < range.to; edge += DAY_MS + ODD_MS) edges.push(edge);
  edges.push(range.to);
  const scopes = [undefined, ...(await one.hosts(project)).map(({ id }) => [id])];
  for (const hosts of scopes) {
    const of = hosts === undefined ? 'of the project' : `of host ${hosts[0]}`;
    await compare(`the requests and attacks ${of}`, (store) => store.series({ project, hosts, edges }));
    await compare(`the categories ${of}`, (store) => store.totals({ project, hosts, ...range }));
  }
  return found;
}

/** Their order is that of their first coming. */
function sortedDrops(source: Source): Source {
  return { ...source, dropped: Object.fromEntries(Object.entries(source.dropped).sort()) };
}
