/** Export of batches to another store, and import of a source from one. */

import type { Database, Row } from '../../postgres/database.ts';
import type { BatchRecord, Source } from '../store.ts';
import { insertBatches, lockProject } from './coordination.ts';

const BATCHES_PER_PART = 1_000;

export type BatchColumns = Row & {
  id: string;
  day: number;
  after: string | null;
  bytes: number;
  first_line_hash: string;
  reader_state: string;
};

export async function* dumpBatches(
  database: Database,
  project: string,
  source: string,
): AsyncGenerator<BatchRecord[]> {
  let last: string | null = null;
  for (;;) {
    const rows: BatchColumns[] = await database.run<BatchColumns>(
      `SELECT b.id, b.day, b.after, b.bytes, b.first_line_hash, b.reader_state
       FROM sources s JOIN batches b ON b.project = s.project AND b.source = s.number
       WHERE s.project = $1 AND s.name = $2 AND ($3::text IS NULL OR b.id > $3)
       ORDER BY b.id LIMIT ${BATCHES_PER_PART}`,
      [project, source, last],
    );
    if (rows.length === 0) return;
    yield rows.map(({ id, day, after, bytes, first_line_hash, reader_state }) =>
      after === null
        ? { id, day }
        : { id, day, link: { after, bytes, firstLineHash: first_line_hash, readerState: reader_state } },
    );
    last = rows.at(-1)?.id ?? null;
  }
}

export function putSource(
  database: Database,
  project: string,
  { hosts, ...source }: Source,
  batches: readonly BatchRecord[],
): Promise<void> {
  return database.transaction(async (run) => {
    const [state, known] = await Promise.all([
      lockProject(run, project),
      run<{ number: number }>('SELECT number FROM sources WHERE project = $1 AND name = $2', [
        project,
        source.name,
      ]),
    ]);
    const number = known[0]?.number ?? state.sources + 1;
    await Promise.all([
      run('UPDATE projects SET sources = $2 WHERE project = $1', [project, Math.max(number, state.sources)]),
      run(
        `INSERT INTO sources (project, name, number, record) VALUES ($1, $2, $3, $4::text::json)
         ON CONFLICT (project, name) DO UPDATE SET record = excluded.record`,
        [project, source.name, number, JSON.stringify(source)],
      ),
      run(
        `INSERT INTO source_hosts (project, source, host)
         SELECT $1, $2, number FROM hosts WHERE project = $1 AND id = ANY($3::text[]) ON CONFLICT DO NOTHING`,
        [project, number, hosts],
      ),
      insertBatches(
        run,
        project,
        batches.map((record) => ({ source: number, record })),
      ),
      run('COMMIT'),
    ]);
  });
}
