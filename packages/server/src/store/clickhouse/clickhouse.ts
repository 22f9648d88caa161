/** The store on ClickHouse. This file is the contract's verbs; ledger.ts says how they count exactly once. */
import { randomBytes } from 'node:crypto';
import { GroupCommit } from '../group.ts';
import { type Appended, type Batch, NO_SOURCE, type Source, type Store, StoreUnavailable } from '../store.ts';
import { type GroupPlan, keysOf, parse, planGroup } from './append.ts';
import { CellRows, readSeries, readTotals } from './cells.ts';
import { dumpBatches, dumpEvents, putSource } from './dump.ts';
import { addHost, hostsOfProject, renameHost } from './hosts.ts';
import { type LinksValue, linksKey, partsOf, type SourceValue } from './keys.ts';
import { Ledger, type Page } from './ledger.ts';
import { pruneLedger } from './prune.ts';
import { type ClickHouseOptions, type Connect, checkTables, dropCellsBefore, openServers } from './schema.ts';
import { Refused, type Server } from './server.ts';

export type { ClickHouseOptions } from './schema.ts';
export { migrate } from './schema.ts';

/** A query that began before the horizon moved may go on reading for so long. */
const GRACE_MS = 3_600_000;
/** Others that write at the same time come in between now and then, but not so often. */
const CLOSE_TRIES_MAX = 100;
/** Who asks whether the store is there waits no longer. */
const PING_MS_MAX = 2_000;

export function clickhouseStore(
  options: ClickHouseOptions,
  now: () => number = Date.now,
  connect?: Connect,
): Store {
  const servers = openServers(options, connect);
  const first = servers[0] as Server;
  const ledger = new Ledger(first, options.database);
  let closed = false;
  let checked: Promise<void> | null = null;
  let turn = 0;

  const appends = new GroupCommit<Batch, Appended>(
    (batch) => batch.events.length,
    (batches) => available(() => appendGroup(ledger, first, batches, now)),
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

  /** Any server can answer for all of them; the next one is asked when one does not. */
  async function anywhere<T>(ask: (server: Server) => Promise<T>): Promise<T> {
    const start = turn++;
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
        return parse<LinksValue>((await ledger.read([key])).get(key)) ?? [];
      }),

    addHost: (host) => available(() => addHost(ledger, host, now())),
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

    prune: (before, stop) =>
      available(async () => {
        await pruneLedger(ledger, before, stop);
        if (!stop?.aborted) await dropCellsBefore(servers, options, Math.floor((before - GRACE_MS) / 60_000));
      }),

    ping: () => available(async () => void (await ledger.read([], PING_MS_MAX))),

    async close() {
      if (closed) return;
      await appends.idle();
      closed = true;
      await Promise.all(servers.map((server) => server.close()));
    },
  };
}

/**
 * Opens an attempt, writes its cells under its number, and closes it together with what the batches change in the
 * ledger. Until then nobody counts the cells, and an attempt that ends in between never does: its number is not used
 * again, and whoever tries again opens another.
 */
async function appendGroup(
  ledger: Ledger,
  server: Server,
  batches: readonly Batch[],
  now: () => number,
): Promise<Appended[]> {
  const keys = keysOf(batches);
  let page = await ledger.read(keys);
  for (;;) {
    const plan = planGroup(page, batches, now());
    if (plan.writes.size === 0) return plan.results;
    const { attempt, opened } = await openAttempt(ledger, page, keys, now());
    page = opened;
    await writeCells(ledger, server, attempt, plan);
    for (let tries = 1; ; tries++) {
      const again = planGroup(page, batches, now());
      // Somebody else has counted one of the batches, or goes on behind the same piece of a file: from the start.
      if (JSON.stringify(again.results) !== JSON.stringify(plan.results)) break;
      page = await closeAttempt(ledger, page, attempt, again.writes, keys);
      if (!isOpen(page, attempt)) return again.results;
      if (tries === CLOSE_TRIES_MAX) throw new StoreUnavailable('ClickHouse does not take a commit');
    }
  }
}

async function openAttempt(ledger: Ledger, found: Page, keys: Iterable<string>, now: number) {
  const token = randomBytes(8).toString('hex');
  let page = found;
  for (;;) {
    const open = [...page.head.open, { attempt: page.version + 1, token, opened: now }];
    await ledger.write(page, { ...page.head, open }, new Map());
    page = await ledger.read(keys);
    const mine = page.head.open.find((one) => one.token === token);
    if (mine) return { attempt: mine.attempt, opened: page };
  }
}

async function writeCells(ledger: Ledger, server: Server, attempt: number, plan: GroupPlan): Promise<void> {
  const cells = new CellRows(attempt);
  for (const { project, events } of plan.counted) for (const event of events) cells.add(project, event);
  const rows = cells.rows();
  if (rows.length === 0) return;
  try {
    await server.insert('cells', rows);
  } catch (error) {
    if (error instanceof Refused) await forgetAttempt(ledger, server, attempt);
    throw error;
  }
}

/** The server has said no. If it has kept nothing of the attempt, nobody needs to remember it. */
async function forgetAttempt(ledger: Ledger, server: Server, attempt: number): Promise<void> {
  const [row] = await server.select<{ n: string }>(
    'SELECT count() AS n FROM cells WHERE attempt = {attempt:UInt64}',
    { attempt },
  );
  if (Number(row?.n) > 0) return;
  await ledger.change([], (page) => {
    const head = { ...page.head, open: page.head.open.filter((one) => one.attempt !== attempt) };
    return { result: undefined, writes: new Map(), ...(isOpen(page, attempt) ? { head } : {}) };
  });
}

/** Answers the page behind it, which tells whether it is closed. */
async function closeAttempt(
  ledger: Ledger,
  page: Page,
  attempt: number,
  writes: ReadonlyMap<string, string>,
  keys: Iterable<string>,
): Promise<Page> {
  const open = page.head.open.filter((one) => one.attempt !== attempt);
  try {
    await ledger.write(page, { ...page.head, open }, writes);
  } catch (error) {
    // The answer may have been lost behind the deed: the ledger knows. If not, it is tried again.
    if (error instanceof Refused) throw error;
  }
  return ledger.read(keys);
}

function isOpen({ head }: Page, attempt: number): boolean {
  return head.open.some((one) => one.attempt === attempt);
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
    .map((source) => ({ ...source, hosts: (hosts.get(source.name) ?? []).sort() }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}
