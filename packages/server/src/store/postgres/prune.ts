/** Retention: the horizon moves first; then counts are freed, and old batches deleted in short steps. */
import { dayOf, type Retention, type RetentionNote } from '../store.ts';
import { lockProject } from './coordination.ts';
import type { Database } from './database.ts';

const BATCHES_PER_STEP = 2_000;

export async function prune(
  database: Database,
  before: number,
  freeBefore: number,
  stop: AbortSignal | undefined,
  freeCounts: (freedBefore: number) => Promise<void>,
): Promise<void> {
  const [row] = await database.run<{ freed: number }>(
    `UPDATE retention SET horizon = greatest(horizon, $1),
       freed_before = greatest(freed_before, least($2, greatest(horizon, $1)))
     RETURNING freed_before AS freed`,
    [before, freeBefore],
  );
  const freed = row?.freed ?? 0;
  await freeCounts(freed);
  const day = dayOf(freed);
  for (;;) {
    const old = await database.run<{ project: string }>(
      `SELECT DISTINCT project FROM (SELECT project FROM batches WHERE day < $1 LIMIT ${BATCHES_PER_STEP}) AS old`,
      [day],
    );
    if (old.length === 0) return;
    for (const { project } of old) {
      if (stop?.aborted) return;
      await deleteBatches(database, project, day);
    }
  }
}

/** Links are read from the start of a file: a batch is kept as long as another one follows it. */
async function deleteBatches(database: Database, project: string, day: number): Promise<void> {
  const old = `SELECT source, id FROM batches WHERE project = $1 AND day < $2 LIMIT ${BATCHES_PER_STEP}`;
  const hasNext = `EXISTS (SELECT FROM batches n WHERE n.project = $1 AND n.source = b.source AND n.after = b.id)`;
  await database.transaction((run) =>
    Promise.all([
      lockProject(run, project),
      run(
        `UPDATE batches b SET day = $2 FROM (${old}) AS o
         WHERE b.project = $1 AND b.source = o.source AND b.id = o.id AND ${hasNext}`,
        [project, day],
      ),
      run(
        `DELETE FROM batches b USING (${old}) AS o
         WHERE b.project = $1 AND b.source = o.source AND b.id = o.id AND NOT ${hasNext}`,
        [project, day],
      ),
      run('COMMIT'),
    ]),
  );
}

export async function readRetention(database: Database): Promise<Retention> {
  const [row] = await database.run<{
    horizon: number;
    freed: number;
    note: RetentionNote | null;
    newest: number | null;
  }>(
    `SELECT horizon, freed_before AS freed, note, (SELECT max(latest) FROM projects) AS newest FROM retention`,
  );
  return {
    horizon: row?.horizon ?? 0,
    freedBefore: row?.freed ?? 0,
    newestEvent: row?.newest ?? null,
    note: row?.note ?? null,
  };
}

export async function restoreHorizon(database: Database, to: number): Promise<number> {
  const [row] = await database.run<{ horizon: number }>(
    'UPDATE retention SET horizon = least(horizon, greatest($1, freed_before)) RETURNING horizon',
    [to],
  );
  return row?.horizon ?? 0;
}
