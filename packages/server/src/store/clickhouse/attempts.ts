/**
 * Attempts: an insert into ClickHouse has a number, and its rows count only once PostgreSQL says so. An attempt is
 * opened, its rows are inserted, and it is closed in the transaction that stores the batch IDs. Numbers of a project are
 * given out under the lock of its row, so they become visible in order: all numbers up to the latest one count, except
 * those in `attempts` and those below the floor of their day (compact.ts).
 */
import type { Database, Row, Run } from '../../postgres/database.ts';
import { StoreUnavailable } from '../store.ts';
import { ATTEMPTS_PER_TIMELINE } from './schema.ts';

/** Every query carries the numbers that do not count, so there must not be many. */
const UNFINISHED_MAX = 256;

export interface Attempt {
  project: string;
  number: number;
  shard: number;
}

export interface NewAttempt {
  project: string;
  /** The shard of a project that has none yet. */
  shard: number;
  /** The days that its rows belong to. */
  days: readonly number[];
  /** After this, any process may abort it. Counted by the clock of PostgreSQL. */
  lifetimeMs: number;
  /** Whether it replaces other attempts. A project has at most one of these. */
  compacts?: boolean;
}

/** Null if it compacts and another attempt already does. */
export async function openAttempt(database: Database, wanted: NewAttempt): Promise<Attempt | null> {
  const { project, days, lifetimeMs, compacts = false } = wanted;
  return database.transaction(async (run) => {
    const [, [found], [counts]] = await Promise.all([
      run('INSERT INTO projects (project) VALUES ($1) ON CONFLICT DO NOTHING', [project]),
      run<ProjectRow>(
        `SELECT attempt, shard, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int AS timeline
         FROM projects WHERE project = $1 FOR UPDATE`,
        [project],
      ),
      run<{ unfinished: number; compacting: number }>(
        `SELECT count(*) AS unfinished, count(*) FILTER (WHERE compacts AND NOT aborted) AS compacting
         FROM attempts WHERE project = $1`,
        [project],
      ),
    ]);
    const { attempt: latest, timeline } = found as ProjectRow;
    if (compacts && (counts?.compacting ?? 0) > 0) return null;
    // A compaction is exempt, because it reduces their number.
    if (!compacts && (counts?.unfinished ?? 0) >= UNFINISHED_MAX) {
      throw new StoreUnavailable(`${UNFINISHED_MAX} appends to the project are unfinished`);
    }
    const base = Math.max(latest, timeline * ATTEMPTS_PER_TIMELINE);
    const number = base + 1;
    const shard = found?.shard ?? wanted.shard;
    const writes = [
      run(
        `UPDATE projects SET attempt = $2, shard = $3,
           first_attempt = CASE WHEN attempt = 0 THEN $2 ELSE first_attempt END WHERE project = $1`,
        [project, number, shard],
      ),
      run(
        `INSERT INTO attempts (project, number, first, expires, days, compacts)
         VALUES ($1, $2, $2, clock_timestamp() + $3 * interval '1 millisecond', $4::int[], $5)`,
        [project, number, lifetimeMs, [...days], compacts],
      ),
    ];
    if (latest > 0 && base > latest) {
      // The old primary may have given out numbers that this one does not know.
      writes.push(
        run(
          `INSERT INTO attempts (project, number, first, aborted, expires)
           VALUES ($1, $2, $3, true, clock_timestamp())`,
          [project, base, latest + 1],
        ),
      );
    }
    await Promise.all([...writes, run('COMMIT')]);
    return { project, number, shard };
  });
}

type ProjectRow = Row & {
  attempt: number;
  shard: number | null;
  timeline: number;
};

/** Whether the attempt is still open. Locks it until the end of the transaction. */
export async function lockAttempt(run: Run, { project, number }: Attempt): Promise<boolean> {
  const rows = await run(
    'SELECT FROM attempts WHERE project = $1 AND number = $2 AND NOT aborted FOR UPDATE',
    [project, number],
  );
  return rows.length > 0;
}

/** From now on its rows count. */
export function removeAttempt(target: { run: Run }, { project, number }: Attempt): Promise<unknown> {
  return target.run('DELETE FROM attempts WHERE project = $1 AND number = $2', [project, number]);
}

/** Its rows never count, even those that arrive later. */
export function abortAttempt(target: { run: Run }, { project, number }: Attempt): Promise<unknown> {
  return target.run('UPDATE attempts SET aborted = true WHERE project = $1 AND number = $2', [
    project,
    number,
  ]);
}

/** Gives it more time. Rejects if it was aborted. */
export async function extendAttempt(
  database: Database,
  { project, number }: Pick<Attempt, 'project' | 'number'>,
  lifetimeMs: number,
): Promise<void> {
  const rows = await database.run<{ number: number }>(
    `UPDATE attempts SET expires = clock_timestamp() + $3 * interval '1 millisecond'
     WHERE project = $1 AND number = $2 AND NOT aborted RETURNING number`,
    [project, number, lifetimeMs],
  );
  if (rows.length === 0) throw new StoreUnavailable('the attempt was aborted, because it took too long');
}

/** Aborts attempts whose process was killed or hangs. */
export async function abortExpired(database: Database, project: string): Promise<void> {
  await database.run(
    `UPDATE attempts SET aborted = true
     WHERE project = $1 AND NOT aborted AND expires < clock_timestamp()`,
    [project],
  );
}

/** Which rows of a project count. */
export interface Snapshot {
  project: string;
  shard: number;
  /** The latest attempt. */
  attempt: number;
  firstAttempt: number;
  /** Ranges of attempts that do not count, both ends included. */
  excluded: readonly { first: number; last: number }[];
  /** On these days, no attempt below the floor counts. */
  floors: readonly { day: number; floor: number }[];
  horizon: number;
  /** The time of the newest event. */
  latest: number;
  /** The numbers of the selected hosts. */
  hosts: readonly number[];
  /** When it was read, by both clocks of this process. */
  readAt: ReturnType<typeof clocks>;
}

export function clocks(): { monotonic: number; system: number } {
  return { monotonic: performance.now(), system: Date.now() };
}

/** Null for a project without counts. One statement, so that everything is from the same moment. */
export async function readSnapshot(
  database: Pick<Database, 'run'>,
  project: string,
  hostIds: readonly string[] = [],
): Promise<Snapshot | null> {
  const readAt = clocks();
  const [row] = await database.run<SnapshotRow>(
    `SELECT p.shard, p.attempt, p.first_attempt AS "firstAttempt", coalesce(p.latest, 0)::bigint AS latest,
       (SELECT horizon FROM retention) AS horizon,
       (SELECT json_agg(json_build_object('first', a.first, 'last', a.number) ORDER BY a.number)
        FROM attempts a WHERE a.project = $1) AS excluded,
       (SELECT json_agg(json_build_object('day', d.day, 'floor', d.floor) ORDER BY d.day)
        FROM days d WHERE d.project = $1 AND d.floor > 0) AS floors,
       ARRAY(SELECT number FROM hosts WHERE project = $1 AND id = ANY($2::text[])) AS hosts
     FROM projects p WHERE p.project = $1`,
    [project, [...new Set(hostIds)]],
  );
  if (row === undefined || row.shard === null) return null;
  return {
    ...row,
    shard: row.shard,
    excluded: row.excluded ?? [],
    floors: row.floors ?? [],
    project,
    readAt,
  };
}

type SnapshotRow = Row &
  Omit<Snapshot, 'project' | 'shard' | 'readAt' | 'excluded' | 'floors'> & {
    shard: number | null;
    excluded: Snapshot['excluded'] | null;
    floors: Snapshot['floors'] | null;
  };
