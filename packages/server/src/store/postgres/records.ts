/** Everything in a store but the counts: hosts, sources, batches, followed paths, retention and versions. */
import { createHash } from 'node:crypto';
import { columnsOf, type Database, type Row } from '../../postgres/database.ts';
import { isStart, startWith } from '../batches.ts';
import { GroupCommit } from '../group-commit.ts';
import { derivedId } from '../ids.ts';
import { groupSources, newSource } from '../sources.ts';
import {
  type BatchLink,
  compareFollowed,
  type FollowedPath,
  NO_SOURCE,
  type Source,
  type Store,
  StoreUnavailable,
  type TimeRange,
  type Transfer,
} from '../store.ts';
import { lockProject, putFollowedPath } from './coordination.ts';
import { type BatchColumns, dumpBatches, putSource } from './dump-records.ts';
import { addHost, deleteHost, hostsOfProject, renameHost, resolveHosts } from './hosts.ts';
import { readRetention, restoreHorizon } from './prune.ts';
import { CHANGES_MS } from './schema.ts';

type RecordMethods = Pick<Transfer, 'batches' | 'putSource'> &
  Pick<
    Store,
    | 'version'
    | 'batchesAfter'
    | 'followedPaths'
    | 'putFollowedPath'
    | 'addHost'
    | 'resolveHosts'
    | 'renameHost'
    | 'deleteHost'
    | 'hosts'
    | 'sources'
    | 'projects'
    | 'retention'
    | 'noteRetention'
    | 'restoreHorizon'
  >;

interface Lookup {
  source: string;
  /** An unknown start, '', may be any. */
  after: string;
}

/** The batches after each of these. */
async function findBatches(
  database: Database,
  project: string,
  lookups: readonly Lookup[],
): Promise<BatchLink[][]> {
  const keysOf = ({ source, after }: Lookup) =>
    (isStart(after) ? ['', after] : [after]).map((each) => JSON.stringify([source, each]));
  const keys = [...new Set(lookups.filter(({ after }) => after !== '').flatMap(keysOf))];
  const parts: [string, string][] = keys.map((key) => JSON.parse(key));
  const rows = await database.run<BatchColumns & { i: number }>(
    `SELECT k.i::int AS i, b.id, b.bytes, b.first_line_hash, b.reader_state
     FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS k(name, after, i)
     JOIN sources s ON s.project = $1 AND s.name = k.name
     JOIN batches b ON b.project = $1 AND b.source = s.number AND b.after = k.after`,
    [project, ...columnsOf(parts, 0, 1)],
  );
  const links = new Map(keys.map((key): [string, BatchLink[]] => [key, []]));
  for (const row of rows) links.get(keys[row.i - 1] ?? '')?.push(linkOf(row));
  return Promise.all(
    lookups.map((lookup) =>
      lookup.after === ''
        ? findFirstBatches(database, project, lookup)
        : keysOf(lookup).flatMap((key) => links.get(key) ?? []),
    ),
  );
}

async function findFirstBatches(
  database: Database,
  project: string,
  { source }: Lookup,
): Promise<BatchLink[]> {
  const rows = await database.run<BatchColumns>(
    `SELECT b.id, b.bytes, b.first_line_hash, b.reader_state
     FROM sources s JOIN batches b ON b.project = s.project AND b.source = s.number
     WHERE s.project = $1 AND s.name = $2 AND (b.after = '' OR starts_with(b.after, $3))`,
    [project, source, startWith('')],
  );
  return rows.map(linkOf);
}

function linkOf({ id, bytes, first_line_hash, reader_state }: BatchColumns): BatchLink {
  return { id, bytes, firstLineHash: first_line_hash, readerState: reader_state };
}

/** `available` runs an action once the tables have been checked. */
export function recordMethods(
  database: Database,
  available: <T>(action: () => Promise<T>) => Promise<T>,
  now: () => number,
): RecordMethods {
  // Those of a project that are made while others run share a statement: `ingest` reads many small files at once.
  const lookups = new Map<string, GroupCommit<Lookup, BatchLink[]>>();
  const lookupsOf = (project: string) => {
    const known = lookups.get(project);
    if (known !== undefined) return known;
    const added = new GroupCommit<Lookup, BatchLink[]>(
      () => 1,
      (group) => findBatches(database, project, group),
      (error) => error instanceof StoreUnavailable,
    );
    lookups.set(project, added);
    return added;
  };
  return {
    version: (query) => available(() => versionOf(database, query)),

    batchesAfter: (project, source, after) => available(() => lookupsOf(project).add({ source, after })),

    followedPaths: (project) =>
      available(async () => {
        const rows = await database.run<{ record: FollowedPath }>(
          'SELECT record FROM followed_paths WHERE project = $1',
          [project],
        );
        return rows.map(({ record }) => record).sort(compareFollowed);
      }),

    putFollowedPath: (project, followed) =>
      available(() =>
        database.transaction(async (run) => {
          const id = derivedId('path', followed.source, followed.path);
          await Promise.all([
            lockProject(run, project),
            putFollowedPath(run, project, id, JSON.stringify(followed)),
            run('COMMIT'),
          ]);
        }),
      ),

    addHost: (host) => available(() => addHost(database, host, now())),
    resolveHosts: (names) => available(() => resolveHosts(database, names, now())),
    renameHost: (host) => available(() => renameHost(database, host)),
    deleteHost: (host) => available(() => deleteHost(database, host)),
    hosts: (project) => available(() => hostsOfProject(database, project)),
    sources: (project) => available(() => listSources(database, project)),
    projects: () =>
      available(async () => {
        type Columns = Row & { project: string; record: Omit<Source, 'hosts'> };
        const rows = await database.run<Columns>('SELECT project, record FROM sources');
        return groupSources(rows.map(({ project, record }) => [project, record]));
      }),

    async *batches(project, source) {
      yield* await available(async () => dumpBatches(database, project, source));
    },

    putSource: (project, source, batches) => available(() => putSource(database, project, source, batches)),

    retention: () => available(() => readRetention(database)),

    noteRetention: (note, previous) =>
      available(async () => {
        await database.run(
          `UPDATE retention SET note = $1::text::json WHERE (note->>'passedAt')::bigint IS NOT DISTINCT FROM $2`,
          [JSON.stringify(note), previous?.passedAt ?? null],
        );
      }),

    restoreHorizon: (to) => available(() => restoreHorizon(database, to)),
  };
}

/** A sum of change counters: each append adds a random number. */
async function versionOf(
  database: Database,
  { project, from, to }: { project: string } & TimeRange,
): Promise<string> {
  const [row] = await database.run<{ changes: string; horizon: number; lists: number }>(
    `SELECT (SELECT sum(changes)::text FROM changes WHERE project = $1 AND chunk >= $2 AND chunk <= $3) AS changes,
       horizon, top_lists_before AS lists FROM retention`,
    [project, Math.floor(from / CHANGES_MS), Math.floor(to / CHANGES_MS)],
  );
  const limits = [row?.horizon ?? 0, row?.lists ?? 0].map((limit) => (limit > from ? limit : ''));
  const text = `${row?.changes} ${limits}`;
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}

async function listSources(database: Database, project: string): Promise<Source[]> {
  const rows = await database.run<Row & { record: Omit<Source, 'hosts'>; hosts: string[] }>(
    `SELECT s.record, ARRAY(
       SELECT h.id FROM source_hosts r JOIN hosts h ON h.project = r.project AND h.number = r.host
       WHERE r.project = s.project AND r.source = s.number
     ) AS hosts FROM sources s WHERE s.project = $1`,
    [project],
  );
  return rows
    .filter(({ record }) => record.name !== NO_SOURCE.name)
    .map(({ record, hosts }) => ({ ...newSource(record.id, record), ...record, hosts: hosts.sort() }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}
