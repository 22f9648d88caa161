/** The store on ClickHouse: the methods of the contract. append.ts and ledger.ts make it count exactly once. */
import { GroupCommit } from '../group-commit.ts';
import {
  type Appended,
  type Batch,
  compareFollowed,
  type FollowedPath,
  fromLinkRecord,
  groupSeries,
  NO_SOURCE,
  newSource,
  QueryTooLarge,
  type Source,
  type Store,
  StoreUnavailable,
  withoutTopLists,
} from '../store.ts';
import { Attempts } from './append.ts';
import { readAttacksByHost, readPeaks, readSeries, readSeriesByCategory, readTotals } from './cells.ts';
import { dumpBatches, dumpEvents, putSource } from './dump.ts';
import { addHost, hostsOfProject, renameHost, resolveHosts } from './hosts.ts';
import {
  followedKey,
  Ledger,
  type LinksValue,
  linksKey,
  parse,
  partsOf,
  type Snapshot,
  type SourceValue,
} from './ledger.ts';
import { freedBefore, pruneLedger, restoreHorizon } from './prune.ts';
import { type ClickHouseOptions, type Connect, checkTables, dropCellsBefore, openServers } from './schema.ts';
import { type Server, StatementFailed } from './server.ts';

export type { ClickHouseOptions } from './schema.ts';
export { migrate } from './schema.ts';

/** A query that began before the horizon moved may read for this much longer. */
const GRACE_MS = 3_600_000;
const PING_MS_MAX = 2_000;

export function clickhouseStore(
  options: ClickHouseOptions,
  now: () => number = Date.now,
  connect?: Connect,
): Store {
  const servers = openServers(options, connect);
  const first = servers[0] as Server;
  const ledger = new Ledger(first, options);
  const isOneServer = options.cluster === undefined && !options.replicated;
  const attempts = new Attempts(ledger, first, isOneServer, now);
  let closed = false;
  let checked: Promise<void> | null = null;
  let nextServer = 0;

  const appends = new GroupCommit<Batch, Appended>(
    (batch) => batch.events.length,
    (batches) => available(() => attempts.append(batches)),
    (error) => error instanceof StoreUnavailable,
  );

  async function available<T>(action: () => Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    checked ??= checkTables(first, options, connect).catch((error) => {
      checked = null;
      throw error;
    });
    await checked;
    return action();
  }

  /**
   * Any server can run a query; if one fails, the next is tried. With replicas, the first one makes the inserts, and so
   * has all of them.
   */
  const query = <T>(read: (server: Server, snapshot: Snapshot) => Promise<T>): Promise<T> =>
    available(async () => {
      const snapshot = await ledger.read([]);
      const start = options.replicated ? 0 : nextServer++;
      for (let i = 0; ; i++) {
        try {
          return await read(servers[(start + i) % servers.length] as Server, snapshot);
        } catch (error) {
          const isFinal = error instanceof StatementFailed || error instanceof QueryTooLarge;
          if (isFinal || i === servers.length - 1) throw error;
        }
      }
    });

  return {
    ...withoutTopLists('ClickHouse'),

    append: (batch) => available(() => appends.add(batch)),

    series: ({ edges, ...selection }) =>
      query((server, snapshot) => readSeries(server, snapshot, selection, edges)),

    totals: ({ from, to, ...selection }) =>
      query((server, snapshot) => readTotals(server, snapshot, selection, [from, to])),

    seriesByCategory: ({ edges, ...selection }) =>
      query((server, snapshot) => readSeriesByCategory(server, snapshot, selection, edges)),

    seriesByGroup: ({ edges, ...selection }) =>
      query(async (server, snapshot) =>
        groupSeries(await readSeriesByCategory(server, snapshot, selection, edges)),
      ),

    peaks: ({ edges, ...selection }) =>
      query((server, snapshot) => readPeaks(server, snapshot, selection, edges)),

    attacksByHost: ({ from, to, ...selection }) =>
      query((server, snapshot) => readAttacksByHost(server, snapshot, selection, [from, to])),

    // The random ID of the latest write, which no other ledger has.
    version: () => available(async () => (await ledger.read([])).state.recent[0] ?? 'empty'),

    batchesAfter: (project, source, after) =>
      available(async () => {
        const key = linksKey(project, source, after);
        const links = parse<LinksValue>((await ledger.read([key])).get(key)) ?? [];
        return links.map(({ id, ...link }) => ({ id, ...fromLinkRecord(link) }));
      }),

    followedPaths: (project) =>
      available(async () => {
        const found = await ledger.scan('followed', project);
        return Array.from(found.values(), (value) => JSON.parse(value) as FollowedPath).sort(compareFollowed);
      }),

    putFollowedPath: (project, followed) =>
      available(() => {
        const key = followedKey(project, followed.source, followed.path);
        const writes = new Map([[key, JSON.stringify(followed)]]);
        return ledger.change([], () => ({ result: undefined, writes }));
      }),

    addHost: (host) => available(() => addHost(ledger, host, now())),
    resolveHosts: (names) => available(() => resolveHosts(ledger, names, now())),
    renameHost: (host) => available(() => renameHost(ledger, host)),
    hosts: (project) => available(() => hostsOfProject(ledger, project)),
    sources: (project) => available(() => listSources(ledger, project)),

    async *events(project) {
      const snapshot = await available(() => ledger.read([]));
      yield* dumpEvents(first, snapshot, project);
    },

    async *batches(project, source) {
      yield* await available(async () => dumpBatches(ledger, project, source));
    },

    putSource: (project, source, batches) => available(() => putSource(ledger, project, source, batches)),

    prune: (before, { freeBefore = before, stop } = {}) =>
      available(async () => {
        await pruneLedger(ledger, before, freeBefore, stop);
        const freed = Math.min(freeBefore, before);
        if (!stop?.aborted) await dropCellsBefore(servers, options, Math.floor((freed - GRACE_MS) / 60_000));
      }),

    retention: () =>
      available(async () => {
        const { state } = await ledger.read([]);
        const { horizon, retention: note = null } = state;
        return { horizon, freedBefore: freedBefore(state), newestEvent: null, note };
      }),

    noteRetention: (note) =>
      available(() =>
        ledger.change([], ({ state }) => ({ result: undefined, state: { ...state, retention: note } })),
      ),

    restoreHorizon: (to) => available(() => restoreHorizon(ledger, to)),

    ping: () => available(async () => void (await ledger.read([], PING_MS_MAX))),
    // Full disks are a matter of ClickHouse's own monitoring.
    async checkWrites() {},

    async close() {
      if (closed) return;
      await appends.idle();
      closed = true;
      await Promise.all(servers.map((server) => server.close()));
    },
  };
}

async function listSources(ledger: Ledger, project: string): Promise<Source[]> {
  const sources = await ledger.scan('source', project);
  const reported = await ledger.scan('source-host', project);
  const hosts = new Map<string, string[]>();
  for (const key of reported.keys()) {
    const [, source = '', host = ''] = partsOf(key);
    hosts.set(source, [...(hosts.get(source) ?? []), host]);
  }
  return [...sources.values()]
    .map((value) => JSON.parse(value) as SourceValue)
    .filter(({ name }) => name !== NO_SOURCE.name)
    .map((source) => ({
      ...newSource(source.id, source),
      ...source,
      hosts: (hosts.get(source.name) ?? []).sort(),
    }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}
