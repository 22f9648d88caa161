/** Retention: the horizon moves first; then counts are freed, and old batches deleted in short steps. */

import { columnsOf, type Database } from '../../postgres/database.ts';
import { dayOf } from '../batches.ts';
import { withoutOldExamples } from '../sources.ts';
import { HOUR_MS, type PruneOptions, type Retention, type RetentionNote, type Source } from '../store.ts';
import { changeAllVersions, deleteRequests, lockProject } from './coordination.ts';
import { dropPartitions } from './schema.ts';

const BATCHES_PER_STEP = 2_000;

/** One statement: queries see all of it or nothing. What is freed afterwards, they no longer see. */
export async function moveHorizon(
  database: Database,
  before: number,
  { freeBefore = before, topListsBefore = before, expectedHorizon }: PruneOptions,
): Promise<{ freed: number; listsBefore: number }> {
  const [row] = await database.run<{ freed: number; lists: number }>(
    `UPDATE retention SET
       horizon = CASE WHEN horizon <> $3 THEN horizon ELSE greatest(horizon, $1) END,
       freed_before = CASE WHEN horizon <> $3 THEN freed_before
         ELSE greatest(freed_before, least($2, greatest(horizon, $1))) END,
       top_lists_before = greatest(top_lists_before, $4)
     RETURNING freed_before AS freed, greatest(top_lists_before, freed_before) AS lists`,
    // Rounded to hours, so that versions do not change more often.
    [before, freeBefore, expectedHorizon ?? null, Math.ceil(topListsBefore / HOUR_MS) * HOUR_MS],
  );
  return { freed: row?.freed ?? 0, listsBefore: row?.lists ?? 0 };
}

/** Frees counts, and deletes old batches. */
export async function free(database: Database, freed: number, stop: AbortSignal | undefined): Promise<void> {
  await deleteRequests(database, freed, { stop });
  await dropPartitions(database, ['segments', 'rollups'], freed, stop);
  const day = dayOf(freed);
  for (;;) {
    const old = await database.run<{ project: string }>(
      `SELECT p.project FROM projects p
       WHERE EXISTS (SELECT FROM batches b WHERE b.project = p.project AND b.day < $1)`,
      [day],
    );
    if (old.length === 0) return;
    for (const { project } of old) {
      if (stop?.aborted) return;
      await deleteBatches(database, project, day);
    }
  }
}

/** Deletes the examples of lines that were dropped before `before`, in all projects. */
export async function pruneExamples(
  database: Database,
  before: number,
  stop: AbortSignal | undefined,
): Promise<void> {
  const old = await database.run<{ project: string }>(
    `SELECT DISTINCT project FROM sources WHERE EXISTS (
       SELECT FROM json_each(record->'examples') e WHERE coalesce((e.value->>'time')::bigint, 0) < $1
     )`,
    [before],
  );
  for (const { project } of old) {
    if (stop?.aborted) return;
    await deleteExamples(database, project, before);
  }
}

export function deleteExamples(database: Database, project: string, before: number): Promise<void> {
  return database.transaction(async (run) => {
    const [, sources] = await Promise.all([
      lockProject(run, project),
      run<{ name: string; record: Source }>('SELECT name, record FROM sources WHERE project = $1', [project]),
    ]);
    const changed = sources.flatMap(({ name, record }) => {
      const kept = withoutOldExamples(record, before);
      return kept ? [{ name, record: JSON.stringify(kept) }] : [];
    });
    await Promise.all([
      run(
        `UPDATE sources s SET record = c.record::json FROM unnest($2::text[], $3::text[]) AS c(name, record)
         WHERE s.project = $1 AND s.name = c.name`,
        [project, ...columnsOf(changed, 'name', 'record')],
      ),
      run('COMMIT'),
    ]);
  });
}

/**
 * Deletes some batches. Links are followed from the start of a file, so a batch must be kept as long as those after it: it
 * gets the day of the newest of them.
 */
async function deleteBatches(database: Database, project: string, day: number): Promise<void> {
  await database.transaction((run) =>
    Promise.all([
      lockProject(run, project),
      run(
        `WITH RECURSIVE kept (source, id, before, day) AS (
           SELECT b.source, b.id, b.after, n.day FROM batches b
           JOIN batches n ON n.project = $1 AND n.source = b.source AND n.after = b.id
           WHERE b.project = $1 AND b.day < $2 AND b.after IS NOT NULL AND n.day >= $2
           UNION
           SELECT b.source, b.id, b.after, k.day FROM kept k
           JOIN batches b ON b.project = $1 AND b.source = k.source AND b.id = k.before
           WHERE b.day < $2
         )
         UPDATE batches b SET day = k.day
         FROM (SELECT source, id, max(day) AS day FROM kept GROUP BY source, id) AS k
         WHERE b.project = $1 AND b.source = k.source AND b.id = k.id`,
        [project, day],
      ),
      run(
        `DELETE FROM batches b
         USING (SELECT source, id FROM batches WHERE project = $1 AND day < $2 LIMIT ${BATCHES_PER_STEP}) AS o
         WHERE b.project = $1 AND b.source = o.source AND b.id = o.id`,
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
    now: number;
  }>(
    `SELECT horizon, freed_before AS freed, note, (SELECT max(latest) FROM projects) AS newest,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now FROM retention`,
  );
  return {
    horizon: row?.horizon ?? 0,
    freedBefore: row?.freed ?? 0,
    newestEvent: row?.newest ?? null,
    note: row?.note ?? null,
    ...(row && { databaseNow: row.now }),
  };
}

export async function restoreHorizon(database: Database, to: number): Promise<number> {
  const state = await readRetention(database);
  if (Math.max(to, state.freedBefore) >= state.horizon) return state.horizon;
  return database.transaction(async (run) => {
    const projects = await run<{ project: string }>('SELECT project FROM projects ORDER BY project');
    // Appends lock their project before they count a change, too. Citus cannot lock rows of several workers at once.
    const locks = projects.map(({ project }) =>
      run('SELECT FROM projects WHERE project = $1 FOR UPDATE', [project]),
    );
    const [, , [row]] = await Promise.all([
      Promise.all(locks),
      changeAllVersions(run),
      run<{ horizon: number }>(
        'UPDATE retention SET horizon = least(horizon, greatest($1, freed_before)) RETURNING horizon',
        [to],
      ),
      run('COMMIT'),
    ]);
    return row?.horizon ?? 0;
  });
}
