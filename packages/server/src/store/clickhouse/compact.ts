/**
 * Compaction: the rows of many small appends of a day are summed up under one new number. It is an attempt like any
 * other, which replaces all lower numbers on its days:
 *
 * 1. Open attempt N. Wait until no lower attempt is open: each has been closed or aborted.
 * 2. Insert the sums of all rows that count and are lower than N, under N. Nobody counts them yet.
 * 3. In one transaction, close N and raise the floor of its days to N. A query reads the numbers and floors of one
 *    moment, so it counts either the old rows or the new ones.
 * 4. Delete the old rows once no query can need them.
 *
 * A floor also excludes rows of aborted attempts, even if they arrive later. That is why the days of aborted attempts
 * are compacted, and why their numbers can be forgotten after that.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../postgres/database.ts';
import { dayOf } from '../batches.ts';
import { lockProject } from '../postgres/coordination.ts';
import { StoreUnavailable } from '../store.ts';
import {
  type Attempt,
  abortAttempt,
  abortExpired,
  extendAttempt,
  lockAttempt,
  openAttempt,
  readSnapshot,
  removeAttempt,
} from './attempts.ts';
import { counted, REPLACED_MS } from './count.ts';
import { MINUTES_PER_DAY, type Shards } from './schema.ts';
import type { Server } from './server.ts';

export interface CompactionSettings {
  /** A day is compacted when it has this many new attempts, and as many new rows as it had before, but at least `rowsMin`. */
  attemptsMin: number;
  rowsMin: number;
  /** A day is also compacted when it has a quarter of the attempts, and no new one for this long. */
  idleMs: number;
  /** How long to keep rows that were replaced. */
  replacedMs: number;
  /** How often to look for work. */
  everyMs: number;
}

export const COMPACTION: CompactionSettings = {
  attemptsMin: 256,
  rowsMin: 20_000,
  idleMs: 10 * 60_000,
  replacedMs: REPLACED_MS,
  everyMs: 10_000,
};

/** Bounds the memory that ClickHouse needs for one statement. */
const ROWS_PER_STATEMENT = 500_000;
/** Bounds one compaction, unless a single day has more. */
const ROWS_PER_COMPACTION = 4_000_000;
const DAYS_PER_COMPACTION = 64;
const STATEMENT_MS_MAX = 5 * 60_000;
const LIFETIME_MS = 2 * STATEMENT_MS_MAX;
/** How long to wait for lower attempts. */
const WAIT_MS = 250;
const WAITS_MAX = 40;
/** Deleting rewrites parts of the table: it is done for many days at once, or when some have waited four times as long. */
const DELETED_DAYS_MIN = 50;
const DELETED_DAYS_MAX = 500;

interface DueDay {
  day: number;
  attempts: number;
  cells: number;
  compacted: number;
}

/** Compacts the days of a project that need it. Returns whether there may be more. */
export async function compactProject(
  database: Database,
  shards: Shards,
  project: string,
  settings: CompactionSettings,
  stop: AbortSignal,
): Promise<boolean> {
  await abortExpired(database, project);
  const due = await dueDays(database, project, settings);
  if (due.length === 0) return false;
  const days = firstDays(due);
  const attempt = await openAttempt(database, {
    project,
    shard: shards.choose(project),
    days: days.map(({ day }) => day),
    lifetimeMs: LIFETIME_MS,
    compacts: true,
  });
  if (attempt === null) return false;
  let hasInserted = false;
  try {
    const server = await shards.get(attempt.shard);
    if (await waitForLowerAttempts(database, attempt, stop)) {
      hasInserted = true;
      const rows = await insertSums(database, server, attempt, days, stop);
      return (await replace(database, attempt, days, rows)) && due.length > days.length;
    }
    await removeAttempt(database, attempt);
    return false;
  } catch (error) {
    // If this fails, too, the attempt expires.
    const end = hasInserted ? abortAttempt : removeAttempt;
    await end(database, attempt).catch((failure) => {
      if (!(failure instanceof StoreUnavailable)) throw failure;
    });
    throw error;
  }
}

/** Oldest first. */
async function dueDays(database: Database, project: string, settings: CompactionSettings): Promise<DueDay[]> {
  return database.run<DueDay & Record<string, unknown>>(
    `SELECT due.day, coalesce(d.attempts, 0) AS attempts, coalesce(d.cells, 0) AS cells, coalesce(d.compacted, 0) AS compacted
     FROM (
       SELECT day FROM days WHERE project = $1 AND (
         (attempts >= $2 AND cells >= greatest($3, compacted))
         OR (attempts * 4 >= $2 AND attempts > 0 AND changed < clock_timestamp() - $4 * interval '1 millisecond')
       )
       UNION
       SELECT t.day FROM attempts a CROSS JOIN unnest(a.days) AS t(day)
       LEFT JOIN days f ON f.project = $1 AND f.day = t.day
       WHERE a.project = $1 AND a.aborted AND coalesce(f.floor, 0) <= a.number
     ) AS due LEFT JOIN days d ON d.project = $1 AND d.day = due.day ORDER BY due.day`,
    [project, settings.attemptsMin, settings.rowsMin, settings.idleMs],
  );
}

function firstDays(due: readonly DueDay[]): DueDay[] {
  let rows = 0;
  const end = due.findIndex(({ cells, compacted }, i) => {
    rows += cells + compacted;
    return i > 0 && (rows > ROWS_PER_COMPACTION || i >= DAYS_PER_COMPACTION);
  });
  return end === -1 ? [...due] : due.slice(0, end);
}

/** Resolves to false if some are still open after a while. */
async function waitForLowerAttempts(
  database: Database,
  { project, number }: Attempt,
  stop: AbortSignal,
): Promise<boolean> {
  for (let i = 0; i < WAITS_MAX && !stop.aborted; i++) {
    await abortExpired(database, project);
    const lower = await database.run(
      'SELECT FROM attempts WHERE project = $1 AND number < $2 AND NOT aborted LIMIT 1',
      [project, number],
    );
    if (lower.length === 0) return true;
    await sleep(WAIT_MS, undefined, { signal: stop }).catch(() => {});
  }
  return false;
}

/** Returns the number of new rows on each day. */
async function insertSums(
  database: Database,
  server: Server,
  { project, number }: Pick<Attempt, 'project' | 'number'>,
  days: readonly DueDay[],
  stop: AbortSignal,
): Promise<Map<number, number>> {
  const snapshot = await readSnapshot(database, project);
  // Deleted hosts keep their numbers.
  const [host] = await database.run<{ last: number }>(
    'SELECT coalesce(max(number), 0) AS last FROM hosts WHERE project = $1',
    [project],
  );
  if (snapshot === null) return new Map();
  // Attempts since then have higher numbers.
  const { where, values } = counted({ ...snapshot, attempt: number - 1 });
  const numbers = days.map(({ day }) => day);
  const range = {
    compactedDays: numbers,
    first: Math.min(...numbers) * MINUTES_PER_DAY,
    end: (Math.max(...numbers) + 1) * MINUTES_PER_DAY,
  };
  const onDays = `minute >= {first:UInt32} AND minute < {end:UInt32}
    AND intDiv(minute, ${MINUTES_PER_DAY}) IN {compactedDays:Array(UInt32)}`;
  const rows = days.reduce((sum, { cells, compacted }) => sum + cells + compacted, 0);
  const hostsEnd = (host?.last ?? 0) + 1;
  const parts = Math.min(hostsEnd, Math.ceil((rows + 1) / ROWS_PER_STATEMENT));
  for (let i = 0; i < parts; i++) {
    if (stop.aborted) throw new StoreUnavailable('the store is being closed');
    await extendAttempt(database, { project, number }, LIFETIME_MS);
    await server.run(
      `INSERT INTO cells (project, level, bucket, host, minute, attempt, requests, attacks, codes, counts)
       SELECT project, level, bucket, host, minute, {number:UInt64}, sum(requests), sum(attacks),
         (sumMap(codes, counts) AS sums).1, sums.2
       FROM cells WHERE ${where} AND ${onDays} AND host >= {firstHost:UInt32} AND host < {endHost:UInt32}
       GROUP BY project, level, bucket, host, minute`,
      {
        ...values,
        ...range,
        number,
        firstHost: Math.floor((hostsEnd * i) / parts),
        endHost: Math.floor((hostsEnd * (i + 1)) / parts),
      },
      STATEMENT_MS_MAX,
    );
  }
  const inserted = await server.select<{ day: number; n: string }>(
    `SELECT intDiv(minute, ${MINUTES_PER_DAY}) AS day, count() AS n FROM cells
     WHERE project = {project:String} AND attempt = {number:UInt64} AND ${onDays} GROUP BY day`,
    { ...values, ...range, number },
    STATEMENT_MS_MAX,
  );
  return new Map(inserted.map(({ day, n }) => [Number(day), Number(n)]));
}

/** Replaces the old rows. Resolves to false if the attempt was aborted. */
async function replace(
  database: Database,
  attempt: Attempt,
  days: readonly DueDay[],
  rows: ReadonlyMap<number, number>,
): Promise<boolean> {
  const { project, number } = attempt;
  return database.transaction(async (run) => {
    const [, isOpen] = await Promise.all([lockProject(run, project), lockAttempt(run, attempt)]);
    if (!isOpen) return false;
    await Promise.all([
      removeAttempt({ run }, attempt),
      run(
        `INSERT INTO days AS d (project, day, floor, compacted, replaced_below, replaced_at)
         SELECT $1, day, $2, compacted, $2, now()
         FROM unnest($3::int[], $4::int[], $5::bigint[], $6::bigint[]) AS n(day, attempts, cells, compacted)
         ON CONFLICT (project, day) DO UPDATE SET floor = excluded.floor, compacted = excluded.compacted,
           replaced_below = coalesce(d.replaced_below, excluded.replaced_below),
           replaced_at = coalesce(d.replaced_at, excluded.replaced_at)`,
        [
          project,
          number,
          days.map(({ day }) => day),
          days.map(({ attempts }) => attempts),
          days.map(({ cells }) => cells),
          days.map(({ day }) => rows.get(day) ?? 0),
        ],
      ),
      run(
        `UPDATE days d SET attempts = greatest(0, d.attempts - n.attempts), cells = greatest(0, d.cells - n.cells)
         FROM unnest($2::int[], $3::int[], $4::bigint[]) AS n(day, attempts, cells)
         WHERE d.project = $1 AND d.day = n.day`,
        [
          project,
          days.map(({ day }) => day),
          days.map(({ attempts }) => attempts),
          days.map(({ cells }) => cells),
        ],
      ),
      forgetAborted(run, project),
      run('COMMIT'),
    ]);
    return true;
  });
}

/** Deletes aborted attempts whose rows can no longer count, because of the floors of their days. */
function forgetAborted(run: Database['run'], project: string): Promise<unknown> {
  return run(
    `DELETE FROM attempts a WHERE a.project = $1 AND a.aborted AND a.days IS NOT NULL AND NOT EXISTS (
       SELECT FROM unnest(a.days) AS t(day) LEFT JOIN days d ON d.project = $1 AND d.day = t.day
       WHERE coalesce(d.floor, 0) <= a.number
     )`,
    [project],
  );
}

/** Deletes rows that were replaced some time ago, on all shards. */
export async function deleteReplaced(
  database: Database,
  shards: Shards,
  { replacedMs }: CompactionSettings,
): Promise<void> {
  for (let shard = 0; shard < shards.count; shard++) {
    await database.transaction(async (run) => {
      // Only one process deletes at a time.
      const [lock] = await run<{ isMine: boolean }>(
        `SELECT pg_try_advisory_xact_lock(8243092, hashtext($1) + $2) AS "isMine"`,
        [database.schema, shard],
      );
      if (!lock?.isMine) return;
      const old = await run<{ project: string; day: number; below: number; isOverdue: boolean }>(
        `SELECT d.project, d.day, d.replaced_below AS below,
           d.replaced_at < clock_timestamp() - 4 * $2 * interval '1 millisecond' AS "isOverdue" FROM days d JOIN projects p USING (project)
         WHERE d.replaced_below IS NOT NULL AND p.shard = $1
           AND d.replaced_at < clock_timestamp() - $2 * interval '1 millisecond'
         ORDER BY d.replaced_at LIMIT ${DELETED_DAYS_MAX}`,
        [shard, replacedMs],
      );
      if (old.length < DELETED_DAYS_MIN && !old.some(({ isOverdue }) => isOverdue)) return;
      const server = await shards.get(shard);
      const [running] = await server.select<{ n: string }>(
        `SELECT count() AS n FROM system.mutations WHERE database = currentDatabase() AND table = 'cells' AND NOT is_done`,
      );
      if (Number(running?.n) > 0) return;
      const values = Object.fromEntries(
        old.flatMap(({ project, day, below }, i) => [
          [`project${i}`, project],
          [`first${i}`, day * MINUTES_PER_DAY],
          [`end${i}`, (day + 1) * MINUTES_PER_DAY],
          [`below${i}`, below],
        ]),
      );
      const conditions = old.map(
        (_, i) =>
          `(project = {project${i}:String} AND minute >= {first${i}:UInt32} AND minute < {end${i}:UInt32} AND attempt < {below${i}:UInt64})`,
      );
      await server.run(`ALTER TABLE cells DELETE WHERE ${conditions.join(' OR ')}`, values);
      await run(
        `UPDATE days d SET
           replaced_below = CASE WHEN d.floor > n.below THEN d.floor END,
           replaced_at = CASE WHEN d.floor > n.below THEN now() END
         FROM unnest($1::text[], $2::int[], $3::bigint[]) AS n(project, day, below)
         WHERE d.project = n.project AND d.day = n.day AND d.replaced_below = n.below`,
        [old.map(({ project }) => project), old.map(({ day }) => day), old.map(({ below }) => below)],
      );
    });
  }
}

/** Deletes the records of freed days, and of numbers that were lost in a failover long before them. */
export async function forgetBefore(database: Database, freedBefore: number): Promise<void> {
  await database.run('DELETE FROM days WHERE day < $1', [dayOf(freedBefore)]);
  await database.run(
    `DELETE FROM attempts WHERE days IS NULL AND expires < to_timestamp($1::float8 / 1000) - interval '2 days'`,
    [freedBefore],
  );
}

/** Runs compactions in the background, for the projects that this process has counted something in. */
export class Compactor {
  readonly #database: Database;
  readonly #shards: Shards;
  readonly #settings: CompactionSettings;
  readonly #projects = new Set<string>();
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | null = null;
  #running: Promise<void> = Promise.resolve();

  constructor(database: Database, shards: Shards, settings: CompactionSettings) {
    this.#database = database;
    this.#shards = shards;
    this.#settings = settings;
  }

  /** Looks at the project some time later. */
  add(project: string): void {
    this.#projects.add(project);
    if (this.#timer !== null || this.#stop.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#pass().finally(() => {
        this.#timer = null;
      });
    }, this.#settings.everyMs);
    this.#timer.unref();
  }

  /** Looks at all projects, including those that other processes have left behind. */
  async addAll(): Promise<void> {
    const rows = await this.#database.run<{ project: string }>(
      `SELECT project FROM days WHERE attempts * 4 >= $1 UNION SELECT project FROM attempts`,
      [this.#settings.attemptsMin],
    );
    for (const { project } of rows) this.add(project);
  }

  async #pass(): Promise<void> {
    const { signal } = this.#stop;
    // Failures cost only space and time, and must not end the process. The next pass tries again.
    await deleteReplaced(this.#database, this.#shards, this.#settings).catch(() => {});
    for (const project of [...this.#projects]) {
      this.#projects.delete(project);
      let hasMore = true;
      while (hasMore && !signal.aborted) {
        const more = compactProject(this.#database, this.#shards, project, this.#settings, signal);
        hasMore = await more.catch(() => false);
      }
      if (signal.aborted) return;
    }
  }

  async close(): Promise<void> {
    this.#stop.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#running;
  }
}
