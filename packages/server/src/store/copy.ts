/** Takes a project from one store to another, and holds the two against each other. */
import { isDeepStrictEqual } from 'node:util';
import { NO_SOURCE, type Store } from './store.ts';

const DAY_MS = 86_400_000;
/** Moments that no grid has, so that exact milliseconds are compared too. */
const ODD_MS = 12_345_678;

/** The other store has something of its own, which a copy would be added to. Nothing was changed. */
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
  await checkDestination(from, to, project);
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
  for (const followed of await from.followedPaths(project)) await to.putFollowedPath(project, followed);
}

/** Only what an earlier copy has brought may be there: then it goes on where that ended. */
async function checkDestination(from: Store, to: Store, project: string): Promise<void> {
  const [hosts, sources] = [await from.hosts(project), await from.sources(project)];
  const isCopied = (known: readonly object[], one: object) =>
    known.some((other) => isDeepStrictEqual(other, one));
  const foreign = [
    ...(await to.hosts(project))
      .filter((host) => !isCopied(hosts, host))
      .map(({ hostname }) => `the host ${hostname}`),
    ...(await to.sources(project))
      .filter((source) => !isCopied(sources, source))
      .map(({ name }) => `the source ${name}`),
  ];
  if (foreign.length > 0) {
    throw new CopyConflict(
      `the other store knows ${foreign[0]} of the project otherwise, so its numbers are its own`,
    );
  }
  if ((await to.sources(project)).length > 0 && !(await hasBegun(to, project))) {
    throw new CopyConflict('the other store has numbers of the project that no copy has brought');
  }
}

async function hasBegun(to: Store, project: string): Promise<boolean> {
  for await (const batches of to.batches(project, NO_SOURCE.name)) if (batches.length > 0) return true;
  return false;
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
  await compare('the sources', (store) => store.sources(project));
  await compare('the followed paths', (store) => store.followedPaths(project));
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
