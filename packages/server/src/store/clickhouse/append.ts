/**
 * The write side. An attempt is opened in the ledger, its cells are inserted under its number, and it is closed together
 * with the changes of its batches. Cells do not count before that. An attempt that is never closed never counts: its
 * number is not reused, and a retry opens another one.
 */
import { randomBytes } from 'node:crypto';
import type { Event } from '../../event.ts';
import {
  type Appended,
  type Batch,
  dayOf,
  derivedId,
  isLinkCurrent,
  newSource,
  type StoredBatch,
  storedCategory,
  toLinkRecord,
  updateSource,
} from '../store.ts';
import { type CellRow, CellRows } from './cells.ts';
import {
  batchKey,
  followedKey,
  hostKey,
  type Ledger,
  type LedgerState,
  type LinksValue,
  linksKey,
  parse,
  type Snapshot,
  type SourceValue,
  sourceHostKey,
  sourceKey,
  type Writes,
} from './ledger.ts';
import { type Server, StatementFailed } from './server.ts';

/** Counts groups of batches, each in an attempt. */
export class Attempts {
  readonly #ledger: Ledger;
  readonly #server: Server;
  /** A single server without replicas has ended a statement that failed. Otherwise an insert may still be running. */
  readonly #isOneServer: boolean;
  readonly #now: () => number;
  #lastInsertFailed = false;

  constructor(ledger: Ledger, server: Server, isOneServer: boolean, now: () => number) {
    this.#ledger = ledger;
    this.#server = server;
    this.#isOneServer = isOneServer;
    this.#now = now;
  }

  async append(batches: readonly Batch[]): Promise<Appended[]> {
    const keys = keysOf(batches);
    let snapshot = await this.#ledger.read(keys);
    for (;;) {
      const { writes, results } = planGroup(snapshot, batches, this.#now());
      if (writes.size === 0) return results;
      if (this.#lastInsertFailed) await this.#checkShards();
      const { attempt, opened } = await this.#open(snapshot, keys);
      snapshot = opened;
      const plan = planGroup(snapshot, batches, this.#now());
      if (plan.writes.size === 0) {
        await this.#remove(attempt);
        return plan.results;
      }
      await this.#writeCells(attempt, plan);
      const checkDeadline = this.#ledger.startDeadline();
      for (;;) {
        const again = planGroup(snapshot, batches, this.#now());
        // Another process has counted one of the batches, or continued the same file: start again.
        if (JSON.stringify(again.results) !== JSON.stringify(plan.results)) break;
        snapshot = await this.#close(snapshot, attempt, again.writes, keys);
        if (!isOpen(snapshot, attempt)) return again.results;
        checkDeadline();
      }
    }
  }

  /** Rejects while a shard is down. Failed attempts stay in the state of the ledger, so retries must not open more. */
  async #checkShards(): Promise<void> {
    await this.#server.select(`SELECT count() AS n FROM cells WHERE project = '' AND minute = 0`);
  }

  async #open(found: Snapshot, keys: Iterable<string>): Promise<{ attempt: number; opened: Snapshot }> {
    const token = randomBytes(8).toString('hex');
    const checkDeadline = this.#ledger.startDeadline();
    let snapshot = found;
    for (;;) {
      const { state, version } = snapshot;
      const open = [...state.open, { attempt: version + 1, token, opened: this.#now() }];
      await this.#ledger.write(snapshot, { ...state, open }, new Map());
      snapshot = await this.#ledger.read(keys);
      const own = snapshot.state.open.find((one) => one.token === token);
      if (own) return { attempt: own.attempt, opened: snapshot };
      checkDeadline();
    }
  }

  async #writeCells(attempt: number, { counted }: GroupPlan): Promise<void> {
    const cells = new CellRows(attempt);
    for (const { project, events } of counted) for (const event of events) cells.add(project, event);
    const rows = cells.rows();
    if (rows.length === 0) return;
    try {
      await this.#server.insert('cells', rows);
      this.#lastInsertFailed = false;
    } catch (error) {
      this.#lastInsertFailed = true;
      if (error instanceof StatementFailed && this.#isOneServer && !(await this.#hasCells(attempt, rows))) {
        await this.#remove(attempt);
      }
      throw error;
    }
  }

  async #hasCells(attempt: number, rows: readonly CellRow[]): Promise<boolean> {
    const minutes = rows.map(({ minute }) => minute);
    const [row] = await this.#server.select<{ n: string }>(
      `SELECT count() AS n FROM cells WHERE project IN (SELECT arrayJoin({projects:Array(String)}))
         AND minute >= {first:UInt32} AND minute <= {last:UInt32} AND attempt = {attempt:UInt64}`,
      {
        projects: [...new Set(rows.map(({ project }) => project))],
        first: minutes.reduce((a, b) => Math.min(a, b)),
        last: minutes.reduce((a, b) => Math.max(a, b)),
        attempt,
      },
    );
    return Number(row?.n) > 0;
  }

  /** For an attempt that has no cells and never will. */
  async #remove(attempt: number): Promise<void> {
    await this.#ledger.change([], (snapshot) => ({
      result: undefined,
      ...(isOpen(snapshot, attempt) ? { state: stateWithout(snapshot, attempt) } : {}),
    }));
  }

  /** Returns a later snapshot, which tells whether the attempt is closed. */
  async #close(
    snapshot: Snapshot,
    attempt: number,
    writes: Writes,
    keys: Iterable<string>,
  ): Promise<Snapshot> {
    try {
      await this.#ledger.write(snapshot, stateWithout(snapshot, attempt), writes);
    } catch (error) {
      // The write may have succeeded although its response was lost: the next snapshot tells.
      if (error instanceof StatementFailed) throw error;
    }
    return this.#ledger.read(keys);
  }
}

function isOpen({ state }: Snapshot, attempt: number): boolean {
  return state.open.some((one) => one.attempt === attempt);
}

function stateWithout({ state }: Snapshot, attempt: number): LedgerState {
  return { ...state, open: state.open.filter((one) => one.attempt !== attempt) };
}

interface GroupPlan {
  results: Appended[];
  /** The events of each counted batch, with registered hosts only. */
  counted: { project: string; events: Event[] }[];
  writes: Map<string, string>;
}

/** Every key that `planGroup` reads. */
function keysOf(batches: readonly Batch[]): Set<string> {
  const keys = new Set<string>();
  for (const { project, source, id, link, events } of batches) {
    keys.add(sourceKey(project, source.name));
    for (const host of hostsOf(events)) {
      keys.add(hostKey(project, host)).add(sourceHostKey(project, source.name, host));
    }
    if (id !== undefined) keys.add(batchKey(project, source.name, id));
    if (link) {
      keys.add(linksKey(project, source.name, link.after));
      for (const other of [link.after, link.replaces]) {
        if (other !== undefined) {
          keys.add(batchKey(project, source.name, other)).add(linksKey(project, source.name, other));
        }
      }
    }
  }
  return keys;
}

/** Pure: the same snapshot and batches always give the same plan. */
function planGroup(snapshot: Snapshot, batches: readonly Batch[], now: number): GroupPlan {
  const plan: GroupPlan = { results: [], counted: [], writes: new Map() };
  // A batch sees the changes of those before it in the group.
  const get = (key: string) => plan.writes.get(key) ?? snapshot.get(key);
  for (const batch of batches) plan.results.push(planBatch(snapshot.state.horizon, get, plan, batch, now));
  return plan;
}

function planBatch(
  horizon: number,
  get: (key: string) => string,
  { counted, writes }: GroupPlan,
  batch: Batch,
  now: number,
): Appended {
  const { project, source, id, link } = batch;
  const isKnown = (other: string) => get(batchKey(project, source.name, other)) !== '';
  const storedLinks = (other: string) => parse<LinksValue>(get(linksKey(project, source.name, other))) ?? [];
  const idsAfter = (other: string) => storedLinks(other).map((stored) => stored.id);
  if (id !== undefined && isKnown(id)) return { kind: 'duplicate' };
  if (link && !isLinkCurrent(link, isKnown, idsAfter)) return { kind: 'conflict' };
  for (const { attack } of batch.events) if (attack !== null) storedCategory(attack);

  const inTime = batch.events.filter(({ time }) => time >= horizon);
  const unknown = new Set(hostsOf(inTime).filter((host) => get(hostKey(project, host)) === ''));
  const events = inTime.map((event) =>
    event.hostId !== null && unknown.has(event.hostId) ? { ...event, hostId: null } : event,
  );
  counted.push({ project, events });

  for (const host of hostsOf(events)) {
    const key = sourceHostKey(project, source.name, host);
    if (get(key) === '') writes.set(key, '1');
  }
  const key = sourceKey(project, source.name);
  const fresh = newSource(derivedId('source', project, source.name), source);
  const known: SourceValue = { ...fresh, ...parse<SourceValue>(get(key)) };
  const withoutHost = events.filter(({ hostId }) => hostId === null).length;
  writes.set(key, JSON.stringify(updateSource(known, batch, inTime, withoutHost)));
  if (batch.followed) {
    const { source: name, path } = batch.followed;
    writes.set(followedKey(project, name, path), JSON.stringify(batch.followed));
  }
  if (id !== undefined) {
    const latest = inTime.reduce((last, { time }) => Math.max(last, time), now);
    const value: StoredBatch = { day: dayOf(latest), ...(link ? { after: link.after } : {}) };
    writes.set(batchKey(project, source.name, id), JSON.stringify(value));
    if (link) {
      const { after, replaces } = link;
      const others = storedLinks(after).filter((other) => other.id !== replaces);
      const links: LinksValue = [...others, { id, ...toLinkRecord(link) }];
      writes.set(linksKey(project, source.name, after), JSON.stringify(links));
      if (replaces !== undefined) writes.set(batchKey(project, source.name, replaces), '');
    }
  }
  const unknownHosts = inTime.filter(({ hostId }) => hostId !== null && unknown.has(hostId)).length;
  const beforeHorizon = batch.events.length - inTime.length;
  return { kind: 'appended', beforeHorizon, withoutHost, unknownHosts };
}

function hostsOf(events: readonly Event[]): string[] {
  const ids = new Set<string>();
  for (const { hostId } of events) if (hostId !== null) ids.add(hostId);
  return [...ids];
}
