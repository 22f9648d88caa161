/** The store on ClickHouse. This file is the contract's verbs; attempts.ts and ledger.ts say how they count exactly once. */
import { GroupCommit } from '../group.ts';
import {
  type Appended,
  type Batch,
  compareFollowed,
  type FollowedPath,
  linkOfRecord,
  NO_SOURCE,
  newSource,
  type Source,
  type Store,
  StoreUnavailable,
} from '../store.ts';
import { parse } from './append.ts';
import { Attempts } from './attempts.ts';
import { readSeries, readTotals } from './cells.ts';
import { dumpBatches, dumpEvents, putSource } from './dump.ts';
import { addHost, hostsOfProject, renameHost, resolveHosts } from './hosts.ts';
import { followedKey, type LinksValue, linksKey, partsOf, type SourceValue } from './keys.ts';
import { Ledger } from './ledger.ts';
import { freedBefore, pruneLedger, restoreHorizon } from './prune.ts';
import { type ClickHouseOptions, type Connect, checkTables, dropCellsBefore, openServers } from './schema.ts';
import { Refused, type Server } from './server.ts';

export type { ClickHouseOptions } from './schema.ts';
export { migrate } from './schema.ts';

/** A query that began before the horizon moved may go on reading for so long. */
const GRACE_MS = 3_600_000;
/** Who asks whether the store is there waits no longer. */
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
  let turn = 0;

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
   * Any server can answer for all of them; the next one is asked when one does not. With replicas the first is the one
   * that inserts, and has what was inserted.
   */
  async function anywhere<T>(ask: (server: Server) => Promise<T>): Promise<T> {
    const start = options.replicated ? 0 : turn++;
    for (let i = 0; ; i++) {
      try {
        return await ask(servers[(start + i) % servers.length] as Server);
      } catch (error) {
        if (error instanceof Refused || i === servers.length - 1) throw error;
      }
    }
  }

  return {
    append: (batch) =>
      closed ? Promise.reject(new StoreUnavailable('the store is closed')) : appends.add(batch),

    series: ({ project, hosts, edges }) =>
      available(async () => {
        const page = await ledger.read([]);
        return anywhere((server) => readSeries(server, page, { project, hosts }, edges));
      }),

    totals: ({ project, hosts, from, to }) =>
      available(async () => {
        const page = await ledger.read([]);
        return anywhere((server) => readTotals(server, page, { project, hosts }, [from, to]));
      }),

    // The mark of the latest write: made at random, so that no other ledger has the same.
    version: () => available(async () => (await ledger.read([])).head.recent[0] ?? 'empty'),

    batchesAfter: (project, source, after) =>
      available(async () => {
        const key = linksKey(project, source, after);
        const links = parse<LinksValue>((await ledger.read([key])).get(key)) ?? [];
        return links.map(({ id, ...link }) => ({ id, ...linkOfRecord(link) }));
      }),

    followedPaths: (project) =>
      available(async () => {
        const found = await ledger.scan(`followed/${encodeURIComponent(project)}/`);
        return Array.from(found.values(), (value) => JSON.parse(value) as FollowedPath).sort(compareFollowed);
      }),

    putFollowedPath: (project, followed) =>
      available(() => {
        const key = followedKey(project, followed.source, followed.path);
        const writes = new Map([[key, JSON.stringify(followed)]]);
        return ledger.change([], () => ({ result: undefined, writes }));
      }),

    addHost: (host) => available(() => addHost(ledger, host, now())),
    resolveHosts: (query) => available(() => resolveHosts(ledger, query, now())),
    renameHost: (host) => available(() => renameHost(ledger, host)),
    hosts: (project) => available(() => hostsOfProject(ledger, project)),
    sources: (project) => available(() => listSources(ledger, project)),

    async *events(project) {
      const page = await available(() => ledger.read([]));
      yield* dumpEvents(first, page, project);
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
        const { head } = await ledger.read([]);
        const { horizon, retention: note = null } = head;
        return { horizon, freedBefore: freedBefore(head), newestEvent: null, note };
      }),

    noteRetention: (note) =>
      available(() =>
        ledger.change([], ({ head }) => ({
          result: undefined,
          writes: new Map(),
          head: { ...head, retention: note },
        })),
      ),

    restoreHorizon: (to) => available(() => restoreHorizon(ledger, to)),

    ping: () => available(async () => void (await ledger.read([], PING_MS_MAX))),
    // Whether its disks are full is for its own monitoring to say.
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
  const prefix = encodeURIComponent(project);
  const sources = await ledger.scan(`source/${prefix}/`);
  const reported = await ledger.scan(`source-host/${prefix}/`);
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
