/**
 * Counts groups of batches: opens an attempt, writes its cells under its number, and closes it together with what the
 * batches change in the ledger. Until then nobody counts the cells, and an attempt that ends in between never does: its
 * number is not used again, and whoever tries again opens another.
 */
import { randomBytes } from 'node:crypto';
import type { Appended, Batch } from '../store.ts';
import { type GroupPlan, keysOf, planGroup } from './append.ts';
import { type CellRow, CellRows } from './cells.ts';
import type { Ledger, Page, Writes } from './ledger.ts';
import { Refused, type Server } from './server.ts';

export class Attempts {
  readonly #ledger: Ledger;
  readonly #server: Server;
  /** One server, without replicas, has ended what it refuses; of another's insert nobody knows whether it goes on. */
  readonly #isOneServer: boolean;
  readonly #now: () => number;
  /** The last insert failed. */
  #isTroubled = false;

  constructor(ledger: Ledger, server: Server, isOneServer: boolean, now: () => number) {
    this.#ledger = ledger;
    this.#server = server;
    this.#isOneServer = isOneServer;
    this.#now = now;
  }

  async append(batches: readonly Batch[]): Promise<Appended[]> {
    const keys = keysOf(batches);
    let page = await this.#ledger.read(keys);
    for (;;) {
      const { writes, results } = planGroup(page, batches, this.#now());
      if (writes.size === 0) return results;
      if (this.#isTroubled) await this.#askShards();
      const { attempt, opened } = await this.#open(page, keys);
      page = opened;
      const plan = planGroup(page, batches, this.#now());
      if (plan.writes.size === 0) {
        await this.#forget(attempt);
        return plan.results;
      }
      await this.#writeCells(attempt, plan);
      const checkPatience = this.#ledger.patience();
      for (;;) {
        const again = planGroup(page, batches, this.#now());
        // Somebody else has counted one of the batches, or goes on behind the same piece of a file: from the start.
        if (JSON.stringify(again.results) !== JSON.stringify(plan.results)) break;
        page = await this.#close(page, attempt, again.writes, keys);
        if (!isOpen(page, attempt)) return again.results;
        checkPatience();
      }
    }
  }

  /** Every attempt that fails stays in the head: while a shard is away none is opened, however often it is tried. */
  async #askShards(): Promise<void> {
    await this.#server.select(`SELECT count() AS n FROM cells WHERE project = '' AND minute = 0`);
  }

  async #open(found: Page, keys: Iterable<string>): Promise<{ attempt: number; opened: Page }> {
    const token = randomBytes(8).toString('hex');
    const checkPatience = this.#ledger.patience();
    let page = found;
    for (;;) {
      const open = [...page.head.open, { attempt: page.version + 1, token, opened: this.#now() }];
      await this.#ledger.write(page, { ...page.head, open }, new Map());
      page = await this.#ledger.read(keys);
      const mine = page.head.open.find((one) => one.token === token);
      if (mine) return { attempt: mine.attempt, opened: page };
      checkPatience();
    }
  }

  async #writeCells(attempt: number, { counted }: GroupPlan): Promise<void> {
    const cells = new CellRows(attempt);
    for (const { project, events } of counted) for (const event of events) cells.add(project, event);
    const rows = cells.rows();
    if (rows.length === 0) return;
    try {
      await this.#server.insert('cells', rows);
      this.#isTroubled = false;
    } catch (error) {
      this.#isTroubled = true;
      if (error instanceof Refused && this.#isOneServer && !(await this.#hasKept(attempt, rows))) {
        await this.#forget(attempt);
      }
      throw error;
    }
  }

  async #hasKept(attempt: number, rows: readonly CellRow[]): Promise<boolean> {
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

  /** For one of which there are no cells, and never will be. */
  async #forget(attempt: number): Promise<void> {
    await this.#ledger.change([], (page) => ({
      result: undefined,
      writes: new Map(),
      ...(isOpen(page, attempt) ? { head: without(page, attempt) } : {}),
    }));
  }

  /** Answers the page behind it, which tells whether it is closed. */
  async #close(page: Page, attempt: number, writes: Writes, keys: Iterable<string>): Promise<Page> {
    try {
      await this.#ledger.write(page, without(page, attempt), writes);
    } catch (error) {
      // The answer may have been lost behind the deed: the ledger knows. If not, it is tried again.
      if (error instanceof Refused) throw error;
    }
    return this.#ledger.read(keys);
  }
}

function isOpen({ head }: Page, attempt: number): boolean {
  return head.open.some((one) => one.attempt === attempt);
}

function without({ head }: Page, attempt: number) {
  return { ...head, open: head.open.filter((one) => one.attempt !== attempt) };
}
