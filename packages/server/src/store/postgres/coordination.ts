/** What a group of batches changes besides counts: batch IDs, checkpoints, sources and followed paths of one project. */
import { randomInt } from 'node:crypto';
import { columnsOf, type Database, type Run } from '../../postgres/database.ts';
import { ChunkLinks, isStart, startWith } from '../batches.ts';
import { type Decision, decideSources, type KnownProject } from '../decide.ts';
import { type FlaggedRequests, type Generations, keysOf, type RequestRecord } from '../flagged-requests.ts';
import { derivedId } from '../ids.ts';
import { Slices } from '../slices.ts';
import { newSource } from '../sources.ts';
import type { Batch, BatchRecord, Source } from '../store.ts';
import { CHANGES_MS } from './schema.ts';

/** Change counters begin again after this, before they overflow. A power of two, minus one. */
const CHANGES_MAX = 2n ** 62n - 1n;

/**
 * For `INSERT ... SELECT` of values: Citus sends a statement to the worker of the project as it is if it reads a row of that
 * worker. Otherwise it runs the SELECT itself, copies the rows to the worker, and reports failures without SQLSTATE.
 */
export const OF_PROJECT = '(SELECT project FROM projects WHERE project = $1) AS p';

interface ProjectState extends Generations {
  hosts: number;
  sources: number;
  appends: number;
  latest: number | null;
  horizon: number;
}

/** Creates the project if it is new. Transactions that change a project wait for each other here. */
export async function lockProject(run: Run, project: string): Promise<ProjectState> {
  const [, rows] = await Promise.all([
    run('INSERT INTO projects (project) VALUES ($1) ON CONFLICT DO NOTHING', [project]),
    run<Row<ProjectState>>(
      `SELECT p.hosts, p.sources, p.appends, p.latest, p.generation, p.generation_count AS count, (SELECT horizon FROM retention) AS horizon
       FROM projects p WHERE p.project = $1 FOR UPDATE`,
      [project],
    ),
  ]);
  return rows[0] as ProjectState;
}

type Row<T> = T & Readonly<Record<string, unknown>>;

type SourceRecord = Omit<Source, 'hosts'>;

/** What the database knows about the batches and the records that they refer to. Sources are known by name. */
export interface Known {
  hosts: Map<string, number>;
  sources: Map<string, { number: number; record: SourceRecord }>;
  /** Days by the keys of `batchKey`. */
  batches: Map<string, number>;
  /** The links around the batches, by source. */
  links: Map<string, ChunkLinks>;
  /** Flagged requests of the events, by source name and key. */
  requests: Map<string, Map<string, RequestRecord>>;
}

function batchKey(source: string, id: string): string {
  return JSON.stringify([source, id]);
}

export async function readKnown(
  run: Run,
  project: string,
  batches: readonly Batch[],
  hostIds: Iterable<string>,
): Promise<Known> {
  const ids = new Map<string, [source: string, id: string]>();
  for (const { source, id, link } of batches) {
    for (const each of [id, link?.after, link?.replaces]) {
      if (each !== undefined) ids.set(batchKey(source.name, each), [source.name, each]);
    }
    if (link !== undefined && isStart(link.after)) ids.set(batchKey(source.name, ''), [source.name, '']);
  }
  const withAllStarts = batches.filter(({ link }) => link?.after === '').map(({ source }) => source.name);
  const values = [project, ...columnsOf([...ids.values()], 0, 1)];
  const [hosts, sources, found, links, requests] = await Promise.all([
    run<{ id: string; number: number }>('SELECT id, number FROM hosts WHERE project = $1 AND id = ANY($2)', [
      project,
      [...hostIds],
    ]),
    run<{ name: string; number: number; record: SourceRecord }>(
      'SELECT name, number, record FROM sources WHERE project = $1 AND name = ANY($2)',
      [project, [...new Set(batches.map(({ source }) => source.name))]],
    ),
    run<{ name: string; id: string; day: number }>(
      `SELECT k.name, b.id, b.day FROM unnest($2::text[], $3::text[]) AS k(name, id)
       JOIN sources s ON s.project = $1 AND s.name = k.name
       JOIN batches b ON b.project = $1 AND b.source = s.number AND b.id = k.id`,
      values,
    ),
    // Only files have links.
    batches.every(({ link }) => link === undefined)
      ? []
      : run<{ name: string; after: string; id: string }>(
          `SELECT k.name, b.after, b.id FROM unnest($2::text[], $3::text[]) AS k(name, id)
       JOIN sources s ON s.project = $1 AND s.name = k.name
       JOIN batches b ON b.project = $1 AND b.source = s.number AND b.after = k.id
       UNION
       SELECT s.name, b.after, b.id FROM sources s
       JOIN batches b ON b.project = $1 AND b.source = s.number AND starts_with(b.after, $5)
       WHERE s.project = $1 AND s.name = ANY($4)`,
          [...values, withAllStarts, startWith('')],
        ),
    readRequests(run, project, batches),
  ]);
  const linksOf = new Map<string, ChunkLinks>();
  for (const { name, after, id } of links) {
    const known = linksOf.get(name) ?? new ChunkLinks();
    linksOf.set(name, known);
    known.add(after, id);
  }
  return {
    hosts: new Map(hosts.map(({ id, number }) => [id, number])),
    sources: new Map(sources.map(({ name, ...source }) => [name, source])),
    batches: new Map(found.map(({ name, id, day }) => [batchKey(name, id), day])),
    links: linksOf,
    requests,
  };
}

async function readRequests(
  run: Run,
  project: string,
  batches: readonly Batch[],
): Promise<Known['requests']> {
  const known: Known['requests'] = new Map();
  const keys = new Map<string, Set<string>>();
  for (const { source, events } of batches) {
    for (const { flagged, time } of events) {
      if (flagged === undefined) continue;
      const wanted = keys.get(source.name) ?? new Set();
      keys.set(source.name, wanted);
      for (const key of keysOf(flagged, time)) wanted.add(key);
    }
  }
  if (keys.size === 0) return known;
  const pairs = [...keys].flatMap(([name, wanted]) => Array.from(wanted, (key) => [name, key] as const));
  const records = await run<{ name: string; key: string; generation: number; time: number; record: Logs }>(
    `SELECT k.name, r.key, r.generation, r.time, r.record FROM unnest($2::text[], $3::text[]) AS k(name, key)
     JOIN sources s ON s.project = $1 AND s.name = k.name
     JOIN requests r ON r.project = $1 AND r.source = s.number AND r.key = k.key`,
    [project, ...columnsOf(pairs, 0, 1)],
  );
  for (const { name, key, generation, time, record } of records) {
    const requests = known.get(name) ?? new Map<string, RequestRecord>();
    known.set(name, requests.set(key, { generation, time, ...record }));
  }
  return known;
}

type Logs = Omit<RequestRecord, 'generation' | 'time'>;

/** What `decide` asks for. */
export function knownProject(state: ProjectState, known: Known): KnownProject {
  return {
    horizon: state.horizon,
    generations: state,
    hasHost: (id) => known.hosts.has(id),
    dayOfBatch: (source, id) => known.batches.get(batchKey(source, id)),
    idsAfter: (source, after) => known.links.get(source)?.idsAfter(after) ?? [],
    request: (source, key) => known.requests.get(source)?.get(key),
  };
}

/** Writes everything but the counts. */
export function writeDecision(
  run: Run,
  project: string,
  state: ProjectState,
  known: Known,
  { batches, counted, requests, newest }: Decision,
): Promise<unknown>[] {
  const sources = decideSources(
    counted,
    (source) => known.sources.get(source.name)?.record ?? newSource(project, source),
  );
  let last = state.sources;
  const numbers = new Map<string, number>();
  for (const name of sources.keys()) numbers.set(name, known.sources.get(name)?.number ?? ++last);
  const numberOf = (name: string) => numbers.get(name) ?? 0;
  const writes: Promise<unknown>[] = [
    run(
      `UPDATE projects SET sources = $2, appends = appends + 1, latest = $3, generation = $4, generation_count = $5
       WHERE project = $1`,
      [
        project,
        last,
        Number.isFinite(newest) ? Math.max(newest, state.latest ?? newest) : state.latest,
        requests.generation,
        requests.count,
      ],
    ),
    run(
      `INSERT INTO sources (project, name, number, record)
       SELECT project, name, number, record::json
       FROM ${OF_PROJECT}, unnest($2::text[], $3::int[], $4::text[]) AS s(name, number, record)
       ON CONFLICT (project, name) DO UPDATE SET record = excluded.record`,
      [
        project,
        [...numbers.keys()],
        [...numbers.values()],
        Array.from(sources.values(), ({ record }) => JSON.stringify(record)),
      ],
    ),
  ];
  const reported = [...sources].flatMap(([name, { hosts }]) =>
    Array.from(hosts, (id) => [numberOf(name), known.hosts.get(id) ?? 0] as const),
  );
  if (reported.length > 0) {
    writes.push(
      run(
        `INSERT INTO source_hosts (project, source, host)
         SELECT project, source, host FROM ${OF_PROJECT}, unnest($2::int[], $3::int[]) AS s(source, host)
         ON CONFLICT DO NOTHING`,
        [project, ...columnsOf(reported, 0, 1)],
      ),
    );
  }
  if (batches.removed.length > 0) {
    writes.push(
      run(
        `DELETE FROM batches b USING unnest($2::int[], $3::text[]) AS k(source, id)
         WHERE b.project = $1 AND b.source = k.source AND b.id = k.id`,
        [project, batches.removed.map(({ source }) => numberOf(source)), batches.removed.map(({ id }) => id)],
      ),
    );
  }
  if (batches.added.length > 0) {
    writes.push(
      insertBatches(
        run,
        project,
        batches.added.map(({ source, record }) => ({ source: numberOf(source), record })),
      ),
    );
  }
  if (requests.sources.size > 0) writes.push(...writeRequests(run, project, numberOf, requests));
  for (const { batch } of counted) {
    if (batch.followed === undefined) continue;
    const { source, path } = batch.followed;
    writes.push(
      putFollowedPath(run, project, derivedId('path', source, path), JSON.stringify(batch.followed)),
    );
  }
  return writes;
}

/** Writes the changes, and deletes forgotten requests: twice as many as were added, until none is left. */
function writeRequests(
  run: Run,
  project: string,
  numberOf: (source: string) => number,
  { sources, firstKnown }: FlaggedRequests,
): Promise<unknown>[] {
  const changes = [...sources].flatMap(([name, requests]) =>
    Array.from(requests.changes, ([key, record]) => ({ source: numberOf(name), key, record })),
  );
  const kept = changes.flatMap(({ record, ...key }) => (record === null ? [] : [{ ...key, ...record }]));
  const deleted = changes.filter(({ record }) => record === null);
  const writes = [
    run(
      `DELETE FROM requests r USING (
         SELECT source, key FROM unnest($2::int[], $3::text[]) AS d(source, key)
         UNION ALL
         (SELECT source, key FROM requests WHERE project = $1 AND generation < $4 LIMIT $5)
       ) AS o WHERE r.project = $1 AND r.source = o.source AND r.key = o.key`,
      [project, ...columnsOf(deleted, 'source', 'key'), firstKnown, 2 * changes.length],
    ),
  ];
  if (kept.length === 0) return writes;
  writes.push(
    run(
      `INSERT INTO requests (project, source, key, generation, time, record)
       SELECT project, source, key, generation, time, record::json FROM ${OF_PROJECT},
         unnest($2::int[], $3::text[], $4::int[], $5::bigint[], $6::text[]) AS r(source, key, generation, time, record)
       ON CONFLICT (project, source, key) DO UPDATE
         SET generation = excluded.generation, time = excluded.time, record = excluded.record`,
      [
        project,
        ...columnsOf(kept, 'source', 'key', 'generation', 'time'),
        kept.map(({ logs, others, waiting }) => JSON.stringify({ logs, others, waiting })),
      ],
    ),
  );
  return writes;
}

/** Deletes flagged requests before a time, of all projects or of one, in short steps. */
export async function deleteRequests(
  database: Database,
  before: number,
  { project = null, stop }: { project?: string | null; stop?: AbortSignal | undefined } = {},
): Promise<void> {
  const projects = await database.run<{ project: string }>(
    'SELECT DISTINCT project FROM requests WHERE time < $1 AND ($2::text IS NULL OR project = $2)',
    [before, project],
  );
  for (const { project: each } of projects) {
    for (let isDone = false; !isDone && !stop?.aborted; ) {
      isDone = await database.transaction(async (run) => {
        const [, rows] = await Promise.all([
          lockProject(run, each),
          run(
            `DELETE FROM requests r USING (
               SELECT source, key FROM requests WHERE project = $1 AND time < $2 LIMIT ${REQUESTS_PER_STEP}
             ) AS o WHERE r.project = $1 AND r.source = o.source AND r.key = o.key RETURNING r.source`,
            [each, before],
          ),
          run('COMMIT'),
        ]);
        return rows.length < REQUESTS_PER_STEP;
      });
    }
  }
}

const REQUESTS_PER_STEP = 2_000;

interface BatchRow {
  source: number;
  record: BatchRecord;
}

export function insertBatches(run: Run, project: string, rows: readonly BatchRow[]): Promise<unknown> {
  const links = rows.map(({ record }) => record.link);
  return run(
    `INSERT INTO batches (project, source, id, day, after, bytes, first_line_hash, reader_state)
     SELECT project, source, id, day, after, bytes, hash, state::json
     FROM ${OF_PROJECT}, unnest($2::int[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::text[], $8::text[])
       AS b(source, id, day, after, bytes, hash, state)
     ON CONFLICT (project, source, id) DO UPDATE SET day = excluded.day, after = excluded.after,
       bytes = excluded.bytes, first_line_hash = excluded.first_line_hash, reader_state = excluded.reader_state`,
    [
      project,
      ...columnsOf(rows, 'source'),
      ...columnsOf(
        rows.map(({ record }) => record),
        'id',
        'day',
      ),
      links.map((link) => link?.after ?? null),
      links.map((link) => link?.bytes ?? null),
      links.map((link) => link?.firstLineHash ?? null),
      // As JSON, because text cannot have NUL characters.
      links.map((link) => (link ? JSON.stringify(link.readerState) : null)),
    ],
  );
}

export function putFollowedPath(run: Run, project: string, id: string, record: string): Promise<unknown> {
  return run(
    `INSERT INTO followed_paths (project, id, record) VALUES ($1, $2, $3::text::json)
     ON CONFLICT (project, id) DO UPDATE SET record = excluded.record`,
    [project, id, record],
  );
}

/** Changes the versions of all ranges, in all projects or in one. */
export function changeAllVersions(run: Run, project: string | null = null): Promise<unknown> {
  return run(
    `UPDATE changes SET changes = (changes + $1) & ${CHANGES_MAX} WHERE $2::text IS NULL OR project = $2`,
    [randomInt(1, 2 ** 40), project],
  );
}

/** Changes the version of all ranges that contain one of these times. */
export function addChanges(run: Run, project: string, times: Iterable<number>): Promise<unknown> {
  const chunks = [...new Set(Array.from(times, (time) => Math.floor(time / CHANGES_MS)))];
  return run(
    `INSERT INTO changes (project, chunk, changes) SELECT project, chunk, $3
     FROM ${OF_PROJECT}, unnest($2::int[]) AS c(chunk)
     ON CONFLICT (project, chunk) DO UPDATE SET changes = (changes.changes + excluded.changes) & ${CHANGES_MAX}`,
    [project, chunks, randomInt(1, 2 ** 40)],
  );
}

/** Shorter than the time after which the server ends the session of a transaction that does nothing. */
const SIGN_OF_LIFE_MS = 250;

/** Computes something inside a transaction. A busy machine may need longer than the server waits for a statement. */
export async function computeIn<T>(run: Run, steps: Generator<void, T>): Promise<T> {
  // If it fails, so does the next statement, with the same error.
  const timer = setInterval(() => void run('SELECT').catch(() => {}), SIGN_OF_LIFE_MS);
  try {
    return await new Slices().run(steps);
  } finally {
    clearInterval(timer);
  }
}
