/**
 * The ledger: a table of keys and values that changes by compare-and-set. One statement at a time may write to it, it
 * writes only if nobody has written since its writer looked, and all its rows become visible at once. With that, and
 * nothing else of the server, everything is counted exactly once (docs/decisions/0014).
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type RetentionNote, StoreUnavailable } from '../store.ts';
import { AlreadyRunning, type Server } from './server.ts';

/** An attempt to count something. Its cells count from the moment it is no longer in this list. */
export interface OpenAttempt {
  attempt: number;
  token: string;
  /** Milliseconds since the epoch. */
  opened: number;
}

export interface Head {
  /** Events from before this moment do not count. */
  horizon: number;
  /** Space before this has been freed; older ledgers do not have it. */
  freed?: number;
  retention?: RetentionNote;
  open: readonly OpenAttempt[];
  /** Marks of the latest writes, by which a writer knows its own. */
  recent: readonly string[];
}

/** What stood in the ledger at one moment. */
export interface Page {
  /** How often the ledger had been written. */
  version: number;
  head: Head;
  /** '' when there is none: a value is never empty. */
  get(key: string): string;
}

/** Values by key; '' removes. */
export type Writes = ReadonlyMap<string, string>;

/** What to write, and what to answer when it is written. */
export interface Decision<T> {
  result: T;
  writes: Writes;
  head?: Head;
}

const EMPTY_HEAD: Head = { horizon: 0, open: [], recent: [] };
/** So many others may write before a writer looks whether its own write was done. */
const RECENT_MAX = 32;
/** How long to wait while another process writes, which takes some milliseconds. */
const TURN_MS_MAX = 20;
/** A part of many keys, some hundred kilobytes with their values. */
const KEYS_PER_PART = 1_000;

export class Ledger {
  readonly #server: Server;
  /** Statements of one name exclude each other on the server. */
  readonly #name: string;
  readonly #timeoutMs: number;
  /** The last change of this process. */
  #latest: Promise<unknown> = Promise.resolve();

  constructor(server: Server, { database, timeoutMs }: { database: string; timeoutMs: number }) {
    this.#server = server;
    this.#name = `wafstat-ledger-${database}`;
    this.#timeoutMs = timeoutMs;
  }

  /** For whoever tries again: rejects once that has gone on for longer than one statement may take. */
  patience(): () => void {
    const end = performance.now() + this.#timeoutMs;
    return () => {
      if (performance.now() < end) return;
      throw new StoreUnavailable(`the ledger in ClickHouse was not free within ${this.#timeoutMs / 1_000} s`);
    };
  }

  async read(keys: Iterable<string>, timeoutMs?: number): Promise<Page> {
    const rows = await this.#server.select<{ key: string; latest: string; value: string }>(
      `SELECT key, max(version) AS latest, argMax(value, version) AS value
       FROM ledger WHERE key IN (SELECT arrayJoin({keys:Array(String)})) GROUP BY key`,
      { keys: [...new Set(['head', ...keys])] },
      timeoutMs,
    );
    const values = new Map(rows.map(({ key, value }) => [key, value]));
    const head = values.get('head');
    return {
      version: Number(rows.find(({ key }) => key === 'head')?.latest ?? 0),
      head: head === undefined ? EMPTY_HEAD : JSON.parse(head),
      get: (key) => values.get(key) ?? '',
    };
  }

  /** All keys that begin so, with their values; removed ones are left out. For what a project has few of. */
  async scan(prefix: string): Promise<Map<string, string>> {
    const rows = await this.#server.select<{ key: string; value: string }>(
      `SELECT key, argMax(value, version) AS value FROM ledger
       WHERE key > {after:String} AND key < {behind:String} GROUP BY key HAVING value != ''`,
      { after: prefix, behind: behind(prefix) },
    );
    return new Map(rows.map(({ key, value }) => [key, value]));
  }

  /** The same in the order of the keys and a part at a time, each as it stands when it is read. */
  scanParts(prefix: string): AsyncGenerator<{ key: string; value: string }[]> {
    return parts(prefix, (after) =>
      this.#server.select(
        `SELECT key, argMax(value, version) AS value FROM ledger
         WHERE key > {after:String} AND key < {behind:String}
         GROUP BY key HAVING value != '' ORDER BY key LIMIT ${KEYS_PER_PART}`,
        { after, behind: behind(prefix) },
      ),
    );
  }

  /** Keys of which the `day` is earlier, or was before they were written again. Nothing is summed up for the others. */
  scanOlder(prefix: string, day: number): AsyncGenerator<{ key: string }[]> {
    return parts(prefix, (after) =>
      this.#server.select(
        `SELECT DISTINCT key FROM ledger
         WHERE key > {after:String} AND key < {behind:String}
           AND value != '' AND visitParamExtractUInt(value, 'day') < {day:UInt64}
         ORDER BY key LIMIT ${KEYS_PER_PART}`,
        { after, behind: behind(prefix), day },
      ),
    );
  }

  /**
   * Writes if the ledger still is as `page` says. When it resolves, that has been done or not, which reading again
   * tells: a page behind it has the `mark`. When it rejects, it may even be done later, unless somebody else writes.
   */
  async write(page: Page, head: Head, writes: Writes, mark = randomBytes(8).toString('hex')): Promise<void> {
    const recent = [mark, ...page.head.recent].slice(0, RECENT_MAX);
    const entries = [['head', JSON.stringify({ ...head, recent })] as const, ...writes];
    const values = {
      version: page.version + 1,
      keys: entries.map(([key]) => key),
      contents: entries.map(([, value]) => value),
    };
    const checkPatience = this.patience();
    for (;;) {
      try {
        return await this.#server.run(
          `INSERT INTO ledger (key, version, value, written)
           SELECT key, {version:UInt64}, value, now()
           FROM (SELECT {keys:Array(String)} AS keys, {contents:Array(String)} AS contents)
           ARRAY JOIN keys AS key, contents AS value
           WHERE (SELECT max(version) FROM ledger WHERE key = 'head') + 1 = {version:UInt64}`,
          values,
          this.#name,
        );
      } catch (error) {
        if (!(error instanceof AlreadyRunning)) throw error;
        checkPatience();
        await sleep(1 + Math.random() * TURN_MS_MAX);
      }
    }
  }

  /**
   * Reads, decides, writes, until nobody has come in between. Changes of one process are made in their order. When one
   * fails, those that wait behind it fail too: else each would wait for as long as a statement may take.
   */
  change<T>(keys: Iterable<string>, decide: (page: Page) => Decision<T>): Promise<T> {
    const changed = this.#latest.then(() => this.#change([...keys], decide));
    this.#latest = changed;
    changed.catch(() => {
      if (this.#latest === changed) this.#latest = Promise.resolve();
    });
    return changed;
  }

  async #change<T>(keys: readonly string[], decide: (page: Page) => Decision<T>): Promise<T> {
    const checkPatience = this.patience();
    let page = await this.read(keys);
    for (;;) {
      const { result, writes, head } = decide(page);
      if (writes.size === 0 && head === undefined) return result;
      const mark = randomBytes(8).toString('hex');
      await this.write(page, head ?? page.head, writes, mark);
      page = await this.read(keys);
      if (page.head.recent.includes(mark)) return result;
      checkPatience();
    }
  }

  /** Removes from the table what the ledger has forgotten for a day; less than `rows_min` is left for later. */
  async sweep(rows_min: number): Promise<void> {
    const [row] = await this.#server.select<{ forgotten: string }>(
      `SELECT count() AS forgotten FROM ledger WHERE value = '' AND written < now() - 86400`,
    );
    if (Number(row?.forgotten ?? 0) < rows_min) return;
    // Only keys of which all that is left is empty. The server goes through the parts of the table one by one, in any
    // order, and asks again in each: an older value that is not merged yet would be back once its '' is gone.
    await this.#server.run(
      `ALTER TABLE ledger DELETE WHERE key IN (
         SELECT key FROM ledger GROUP BY key HAVING max(value) = '' AND max(written) < now() - 86400)`,
    );
  }
}

/** Prefixes end in '/', which '0' follows. */
function behind(prefix: string): string {
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
