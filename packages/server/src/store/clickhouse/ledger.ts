/**
 * The ledger: a key-value table with compare-and-set. One statement at a time may write, it writes only if the ledger has
 * not changed since its snapshot, and all its rows become visible at once. Exactly-once counting needs nothing else of the
 * server (docs/decisions/0014).
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { derivedId, type LinkRecord, type RetentionNote, type Source, StoreUnavailable } from '../store.ts';
import { AlreadyRunning, type Server } from './server.ts';

/** An attempt to count a group of batches. Its cells count once it is no longer open. */
export interface OpenAttempt {
  attempt: number;
  token: string;
  /** Milliseconds since the epoch. */
  opened: number;
}

/** The value of the key 'head', which every write replaces. */
export interface LedgerState {
  /** Events before this time do not count. */
  horizon: number;
  /** Space before this has been freed. Missing in ledgers of older releases. */
  freed?: number;
  retention?: RetentionNote;
  open: readonly OpenAttempt[];
  /** IDs of the latest writes, by which a writer recognizes its own. */
  recent: readonly string[];
}

export interface Snapshot {
  /** The number of writes so far. */
  version: number;
  state: LedgerState;
  /** '' for a missing key: values are never empty. */
  get(key: string): string;
}

/** Values by key; '' removes. */
export type Writes = ReadonlyMap<string, string>;

/** What to write, and the result once it is written. */
export interface LedgerChange<T> {
  result: T;
  writes?: Writes;
  state?: LedgerState;
}

const INITIAL_STATE: LedgerState = { horizon: 0, open: [], recent: [] };
/** How many other writes may happen before a writer checks for its own. */
const RECENT_MAX = 32;
/** How long to wait while another process writes, which takes some milliseconds. */
const RETRY_MS_MAX = 20;
const CURRENT_ENTRIES = `SELECT key, argMax(value, version) AS value FROM ledger
  WHERE key > {after:String} AND key < {end:String} GROUP BY key HAVING value != ''`;
/** Some hundred kilobytes with their values. */
const KEYS_PER_PART = 1_000;

export class Ledger {
  readonly #server: Server;
  /** Statements with the same query ID exclude each other on the server. */
  readonly #queryId: string;
  readonly #timeoutMs: number;
  /** The last change by this process. */
  #latest: Promise<unknown> = Promise.resolve();

  constructor(server: Server, { database, timeoutMs }: { database: string; timeoutMs: number }) {
    this.#server = server;
    this.#queryId = `wafstat-ledger-${database}`;
    this.#timeoutMs = timeoutMs;
  }

  /** Bounds retries: the returned function throws once they have taken longer than one statement may. */
  startDeadline(): () => void {
    const end = performance.now() + this.#timeoutMs;
    return () => {
      if (performance.now() < end) return;
      throw new StoreUnavailable(
        `the ledger in ClickHouse was busy for more than ${this.#timeoutMs / 1_000} s`,
      );
    };
  }

  async read(keys: Iterable<string>, timeoutMs?: number): Promise<Snapshot> {
    const rows = await this.#server.select<{ key: string; latest: string; value: string }>(
      `SELECT key, max(version) AS latest, argMax(value, version) AS value
       FROM ledger WHERE key IN (SELECT arrayJoin({keys:Array(String)})) GROUP BY key`,
      { keys: [...new Set(['head', ...keys])] },
      timeoutMs,
    );
    const values = new Map(rows.map(({ key, value }) => [key, value]));
    const state = values.get('head');
    return {
      version: Number(rows.find(({ key }) => key === 'head')?.latest ?? 0),
      state: state === undefined ? INITIAL_STATE : JSON.parse(state),
      get: (key) => values.get(key) ?? '',
    };
  }

  /** The entries of a project, all at once: for small sets. */
  async scan(kind: string, project: string): Promise<Map<string, string>> {
    const prefix = keyOf(kind, project, '');
    const rows = await this.#server.select<{ key: string; value: string }>(CURRENT_ENTRIES, {
      after: prefix,
      end: endOf(prefix),
    });
    return new Map(rows.map(({ key, value }) => [key, value]));
  }

  /** Entries in key order and in parts. Each part is read when it is needed, so later ones may be newer. */
  scanParts(prefix: string): AsyncGenerator<{ key: string; value: string }[]> {
    return parts(prefix, (after) =>
      this.#server.select(`${CURRENT_ENTRIES} ORDER BY key LIMIT ${KEYS_PER_PART}`, {
        after,
        end: endOf(prefix),
      }),
    );
  }

  /** Keys of which the current value or an earlier one has an earlier `day`. */
  scanOlder(prefix: string, day: number): AsyncGenerator<{ key: string }[]> {
    return parts(prefix, (after) =>
      this.#server.select(
        `SELECT DISTINCT key FROM ledger
         WHERE key > {after:String} AND key < {end:String}
           AND value != '' AND visitParamExtractUInt(value, 'day') < {day:UInt64}
         ORDER BY key LIMIT ${KEYS_PER_PART}`,
        { after, end: endOf(prefix), day },
      ),
    );
  }

  /**
   * Writes if the ledger has not changed since the snapshot. When this resolves, a later snapshot tells whether it did:
   * then its state has the `writeId`. If this rejects, the write may even happen later, unless another one comes first.
   */
  async write(
    snapshot: Snapshot,
    state: LedgerState,
    writes: Writes,
    writeId = randomBytes(8).toString('hex'),
  ): Promise<void> {
    const recent = [writeId, ...snapshot.state.recent].slice(0, RECENT_MAX);
    const entries = [['head', JSON.stringify({ ...state, recent })] as const, ...writes];
    const values = {
      version: snapshot.version + 1,
      keys: entries.map(([key]) => key),
      contents: entries.map(([, value]) => value),
    };
    const checkDeadline = this.startDeadline();
    for (;;) {
      try {
        return await this.#server.run(
          `INSERT INTO ledger (key, version, value, written)
           SELECT key, {version:UInt64}, value, now()
           FROM (SELECT {keys:Array(String)} AS keys, {contents:Array(String)} AS contents)
           ARRAY JOIN keys AS key, contents AS value
           WHERE (SELECT max(version) FROM ledger WHERE key = 'head') + 1 = {version:UInt64}`,
          values,
          this.#queryId,
        );
      } catch (error) {
        if (!(error instanceof AlreadyRunning)) throw error;
        checkDeadline();
        await sleep(1 + Math.random() * RETRY_MS_MAX);
      }
    }
  }

  /**
   * Reads, decides and writes, until no other write comes in between. Changes of one process are made in order. If one
   * fails, those that wait for it fail too: otherwise each would wait for its own timeout.
   */
  change<T>(keys: Iterable<string>, decide: (snapshot: Snapshot) => LedgerChange<T>): Promise<T> {
    const changed = this.#latest.then(() => this.#change([...keys], decide));
    this.#latest = changed;
    changed.catch(() => {
      if (this.#latest === changed) this.#latest = Promise.resolve();
    });
    return changed;
  }

  async #change<T>(keys: readonly string[], decide: (snapshot: Snapshot) => LedgerChange<T>): Promise<T> {
    const checkDeadline = this.startDeadline();
    let snapshot = await this.read(keys);
    for (;;) {
      const { result, writes = new Map(), state } = decide(snapshot);
      if (writes.size === 0 && state === undefined) return result;
      const writeId = randomBytes(8).toString('hex');
      await this.write(snapshot, state ?? snapshot.state, writes, writeId);
      snapshot = await this.read(keys);
      if (snapshot.state.recent.includes(writeId)) return result;
      checkDeadline();
    }
  }

  /** Deletes the rows of keys that were removed a day ago, if there are at least `rowsMin`. */
  async deleteRemoved(rowsMin: number): Promise<void> {
    const [row] = await this.#server.select<{ removed: string }>(
      `SELECT count() AS removed FROM ledger WHERE value = '' AND written < now() - 86400`,
    );
    if (Number(row?.removed ?? 0) < rowsMin) return;
    // Only keys without an older value. The server deletes part by part, in any order: without its '' row, an older value
    // that is not merged yet would become visible again.
    await this.#server.run(
      `ALTER TABLE ledger DELETE WHERE key IN (
         SELECT key FROM ledger GROUP BY key HAVING max(value) = '' AND max(written) < now() - 86400)`,
    );
  }
}

/** Prefixes end with '/', which '0' follows. */
function endOf(prefix: string): string {
  return `${prefix.slice(0, -1)}0`;
}

async function* parts<Row extends { key: string }>(prefix: string, read: (after: string) => Promise<Row[]>) {
  let after = prefix;
  for (;;) {
    const rows = await read(after);
    const last = rows.at(-1);
    if (last !== undefined) yield rows;
    if (last === undefined || rows.length < KEYS_PER_PART) return;
    after = last.key;
  }
}

// Keys and values of the ledger.

export const projectKey = (project: string) => keyOf('project', project);
export const hostKey = (project: string, id: string) => keyOf('host', project, id);
export const hostnameKey = (project: string, hostname: string) => keyOf('hostname', project, hostname);
export const sourceKey = (project: string, name: string) => keyOf('source', project, name);
export const sourceHostKey = (project: string, source: string, id: string) =>
  keyOf('source-host', project, source, id);
export const batchKey = (project: string, source: string, id: string) => keyOf('batch', project, source, id);
export const linksKey = (project: string, source: string, after: string) =>
  keyOf('links', project, source, after);
export const followedKey = (project: string, source: string, path: string) =>
  keyOf('followed', project, source, derivedId('path', source, path));

export interface ProjectValue {
  hosts: number;
}
export interface HostValue {
  hostname: string;
  created: number;
}
export type SourceValue = Omit<Source, 'hosts'>;
export type LinksValue = (LinkRecord & { id: string })[];

/** The parts of a key after the first. */
export function partsOf(key: string): string[] {
  return key.split('/').slice(1).map(decodeURIComponent);
}

/** Encodes names from outside, so that none contains a slash. Lone surrogates, which have no encoding, do not occur in UTF-8 input. */
function keyOf(kind: string, ...names: string[]): string {
  return [kind, ...names.map((name) => encodeURIComponent(Buffer.from(name).toString()))].join('/');
}

/** The value of a key. Undefined if there is none. */
export function parse<T>(value: string): T | undefined {
  return value === '' ? undefined : JSON.parse(value);
}
