/** Top lists: the records of ../top-records.ts by hour, and project or host. */
import { randomInt } from 'node:crypto';
import type { Event } from '../../event.ts';
import { columnsOf, type Database, type Row, type Run } from '../../postgres/database.ts';
import { WITHOUT_HOST } from '../minutes.ts';
import {
  type Batch,
  coveredHours,
  HOUR_MS,
  type Store,
  type TopQuery,
  type TopSlice,
  type Transfer,
} from '../store.ts';
import { TopFinder, type TopSnapshot } from '../top-finder.ts';
import {
  addToRecords,
  checkRecord,
  decodeRecord,
  selectOwn,
  selectSummaries,
  type TopAdditions,
} from '../top-records.ts';
import { addChanges, deleteRequests, lockProject, OF_PROJECT } from './coordination.ts';
import { NOT_DELETED } from './hosts.ts';
import { JoinedRecords } from './joined-records.ts';
import { deleteExamples } from './prune.ts';
import { inPartitions, NO_HOST } from './schema.ts';

/** `available` runs an action once the tables have been checked. */
export function topListMethods(
  database: Database,
  available: <T>(action: () => Promise<T>) => Promise<T>,
  queryBytesMax?: number,
  cacheBytes?: number,
): Pick<Store, 'top' | 'deleteDetails'> & Pick<Transfer, 'topSlices' | 'putTopSlices'> {
  const finder = new TopFinder<string>(
    (query, action) =>
      database.transaction(
        async (run) => action(await openSnapshot(run, query)),
        'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY',
      ),
    queryBytesMax,
    cacheBytes,
  );
  return {
    top: (query) => available(() => finder.find(query)),

    async *topSlices(project) {
      yield* await available(async () => dumpTopSlices(database, project));
    },

    putTopSlices: (project, slices) => available(() => putTopSlices(database, project, slices)),
    deleteDetails: (project) => available(() => deleteDetails(database, project)),
  };
}

/** `known`: the hosts that are registered, if some may not be. */
export function addTopAdditions(
  additions: TopAdditions,
  events: readonly Event[],
  known?: ReadonlyMap<string, number>,
): void {
  for (const { time, hostId, attack, count, details } of events) {
    if (attack === null || details === undefined) continue;
    const isKnown = hostId !== null && (known === undefined || known.has(hostId));
    additions.add({ time, attack, details }, count, isKnown ? hostId : null);
  }
}

/** `known`: as above. */
export function addPages(
  additions: TopAdditions,
  batches: readonly Pick<Batch, 'pages'>[],
  known?: ReadonlyMap<string, number>,
): void {
  for (const pages of batches.flatMap((batch) => batch.pages ?? [])) {
    const isKnown = pages.hostId !== null && (known === undefined || known.has(pages.hostId));
    additions.addPages(pages, isKnown ? pages.hostId : null);
  }
}

interface StoredTopLists {
  /** Lists of hours that begin before this are deleted. */
  before: number;
  /** Records by `nameOf`. */
  records: Map<string, Buffer>;
}

interface RecordKey {
  hour: number;
  /** Null for the project. */
  hostId: string | null;
}

function nameOf({ hour, hostId }: RecordKey): string {
  return `${hour} ${hostId ?? ''}`;
}

/** Reads what additions may change, after the project was locked. */
export async function readTopLists(
  run: Run,
  project: string,
  additions: TopAdditions,
): Promise<StoredTopLists> {
  const keys = [...additions.hours].flatMap(([hour, hosts]) => [
    { hour, hostId: null },
    ...[...hosts.keys()].filter((id) => id !== WITHOUT_HOST).map((hostId) => ({ hour, hostId })),
  ]);
  if (keys.length === 0) return { before: 0, records: new Map() };
  const [before, rows] = await Promise.all([
    readBefore(run),
    run<{ i: number; record: Buffer }>(
      `SELECT k.i::int AS i, t.record
       FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS k(id, hour, i)
       JOIN top_lists t ON t.project = $1 AND t.hour = k.hour AND t.host = ${hostNumber('k.id')}`,
      [project, ...columnsOf<RecordKey, 'hostId' | 'hour'>(keys, 'hostId', 'hour')],
    ),
  ]);
  return {
    before,
    records: new Map(rows.map(({ i, record }) => [nameOf(keys[i - 1] as RecordKey), record])),
  };
}

/** Lists of hours that begin before this are deleted. */
export async function readBefore(run: Run): Promise<number> {
  const [state] = await run<{ before: number }>(
    'SELECT greatest(top_lists_before, freed_before) AS before FROM retention',
  );
  return state?.before ?? 0;
}

/** The number of a host by its ID. Null stands for the project. */
function hostNumber(id: string): string {
  const number = `(SELECT number FROM hosts WHERE project = $1 AND hosts.id = ${id})`;
  return `CASE WHEN ${id} IS NULL THEN ${NO_HOST} ELSE ${number} END`;
}

/** The changed records. All hosts of the additions must be known. */
export function* mergeTopLists(
  project: string,
  additions: TopAdditions,
  stored: StoredTopLists,
  keysMax: number,
): Generator<void, TopSlice[]> {
  const changed: TopSlice[] = [];
  for (const [hour, hosts] of additions.hours) {
    if (hour * HOUR_MS < stored.before) continue;
    const read = (hostId: string | null) => stored.records.get(nameOf({ hour, hostId }));
    const records = yield* addToRecords({ additions: hosts, read, project, keysMax });
    for (const record of records) changed.push({ hour, ...record });
  }
  return changed;
}

/**
 * Runs in the transaction of the counters, which also counts the change. Leaves out deleted hosts, which a divided joint
 * record may contain: their attacks remain in the project's record.
 */
export async function writeTopLists(run: Run, project: string, changed: readonly TopSlice[]): Promise<void> {
  if (changed.length === 0) return;
  const records = new JoinedRecords();
  for (const { record } of changed) records.add(record);
  await run(
    `INSERT INTO top_lists (project, host, hour, version, record)
     SELECT project, ${hostNumber('t.id')}, hour, $2, substring($3::bytea FROM first FOR length)
     FROM ${OF_PROJECT}, unnest($4::text[], $5::int[], $6::int[], $7::int[]) AS t(id, hour, first, length)
     WHERE t.id IS NULL OR EXISTS (SELECT FROM hosts WHERE project = $1 AND hosts.id = t.id)
     ON CONFLICT (project, host, hour) DO UPDATE SET version = excluded.version, record = excluded.record`,
    [
      project,
      randomInt(1, 2 ** 40),
      records.bytes(),
      ...columnsOf(changed, 'hostId', 'hour'),
      records.firsts,
      records.lengths,
    ],
  );
}

/** Reading a part takes a few milliseconds. */
const BYTES_PER_PART = 256 * 1_024;

const SELECTED = 'project = $1 AND host = ANY($2::int[]) AND hour >= $3 AND hour < $4';

async function openSnapshot(run: Run, query: TopQuery): Promise<TopSnapshot<string>> {
  const { project, hosts, list, ...range } = query;
  const [[state], selected] = await Promise.all([
    run<{ horizon: number; latest: number | null }>(
      `SELECT greatest(horizon, top_lists_before) AS horizon,
         (SELECT latest FROM projects WHERE project = $1) AS latest FROM retention`,
      [project],
    ),
    hosts === undefined
      ? undefined
      : run<{ id: string; number: number }>(
          'SELECT id, number FROM hosts WHERE project = $1 AND id = ANY($2::text[]) ORDER BY number',
          [project, [...new Set(hosts)]],
        ),
  ]);
  const covered = coveredHours(range, state?.horizon ?? 0);
  const ids = selected?.map(({ id }) => id);
  const idOf = new Map(selected?.map(({ id, number }) => [number, id]));
  return {
    covered,
    first: covered.from / HOUR_MS,
    end: Math.min(covered.to / HOUR_MS, Math.floor((state?.latest ?? 0) / HOUR_MS) + 1),
    state: (from, to) => fingerprintOf(run, project, from, to),

    async *records(from, to) {
      let jointHour = -1;
      for await (const { hour, host, record } of readParts(
        run,
        project,
        [NO_HOST, ...idOf.keys()],
        from,
        to,
      )) {
        const id = idOf.get(host);
        // The record of the project is the first of its hour.
        if (id === undefined) {
          const summaries = selectSummaries(decodeRecord(record), list, ids);
          if (summaries !== null) jointHour = hour;
          yield { hour, bytes: record.length, summaries: summaries ?? [] };
        } else if (hour !== jointHour) {
          yield { hour, bytes: record.length, summaries: selectOwn(decodeRecord(record).sections, list, id) };
        }
      }
    },
  };
}

/** The fingerprint of a project's own records: every change of a list also changes the record of its project. */
async function fingerprintOf(run: Run, project: string, from: number, to: number): Promise<string> {
  const [row] = await run<{ fingerprint: string }>(
    `SELECT concat(count(*), ' ', sum(version), ' ', (
       SELECT count(*) FROM hosts WHERE project = $1 AND NOT (${NOT_DELETED})
     )) AS fingerprint FROM top_lists WHERE ${SELECTED}`,
    [project, [NO_HOST], from, to],
  );
  return row?.fingerprint ?? '';
}

interface HourSize {
  hour: number;
  /** The length of all selected records of the hour. */
  bytes: number;
}

interface StoredRecord {
  hour: number;
  host: number;
  record: Buffer;
}

/**
 * The records of these hours, the newest hour first, read in parts of bounded size. If hosts are selected, the project's
 * own record is empty.
 */
async function* readParts(
  run: Run,
  project: string,
  hosts: readonly number[],
  from: number,
  to: number,
): AsyncGenerator<StoredRecord> {
  const hours = await run<HourSize & Row>(
    `SELECT hour, sum(octet_length(record))::bigint AS bytes FROM top_lists WHERE ${SELECTED}
     GROUP BY hour ORDER BY hour DESC`,
    [project, hosts, from, to],
  );
  const isJoint = "substring(record FROM 1 FOR 1) IN ('\\x02', '\\x03')";
  const needed =
    hosts.length === 1 ? 'record' : `CASE WHEN host <> ${NO_HOST} OR ${isJoint} THEN record ELSE '' END`;
  for (let start = 0, end = 0; start < hours.length; start = end) {
    let bytes = 0;
    while (end < hours.length && (end === start || bytes + sizeAt(hours, end) <= BYTES_PER_PART)) {
      bytes += sizeAt(hours, end++);
    }
    const [newest, oldest] = [hours[start]?.hour ?? 0, hours[end - 1]?.hour ?? 0];
    // An hour can be too large for one part.
    const hostsPerPart = Math.ceil(hosts.length / Math.ceil(bytes / BYTES_PER_PART));
    for (let i = 0; i < hosts.length; i += hostsPerPart) {
      yield* await run<StoredRecord & Row>(
        `SELECT hour, host, ${needed} AS record FROM top_lists WHERE ${SELECTED} ORDER BY hour DESC, host`,
        [project, hosts.slice(i, i + hostsPerPart), oldest, newest + 1],
      );
    }
  }
}

function sizeAt(hours: readonly HourSize[], i: number): number {
  return hours[i]?.bytes ?? 0;
}

const RECORDS_PER_STEP = 500;

/** Moves the horizon of top lists forward, and deletes those of earlier hours. Resolves to their end, for partitions. */
export async function pruneTopLists(
  database: Database,
  before: number,
  stop: AbortSignal | undefined,
): Promise<void> {
  const end = Math.ceil(before / HOUR_MS);
  const old = await database.run<{ project: string }>(
    `SELECT p.project FROM projects p
     WHERE EXISTS (SELECT FROM top_lists t WHERE t.project = p.project AND t.hour < $1)`,
    [end],
  );
  for (const { project } of old) {
    for (let isDone = false; !isDone && !stop?.aborted; ) isDone = await deleteSome(database, project, end);
  }
}

async function deleteDetails(database: Database, project: string): Promise<void> {
  const known = await database.run('SELECT FROM projects WHERE project = $1', [project]);
  if (known.length === 0) return;
  await deleteExamples(database, project, Number.POSITIVE_INFINITY);
  await deleteRequests(database, Number.MAX_SAFE_INTEGER, { project });
  for (let isDone = false; !isDone; ) isDone = await deleteSome(database, project, HOURS_END);
}

/** Later than all hours. */
const HOURS_END = 2 ** 31 - 1;

/** Deletes some records of hours before `end`. Resolves to true if there are no more. */
function deleteSome(database: Database, project: string, end: number): Promise<boolean> {
  return database.transaction(async (run) => {
    const [, rows] = await Promise.all([
      lockProject(run, project),
      run<{ hour: number }>(
        `DELETE FROM top_lists t USING (
           SELECT host, hour FROM top_lists WHERE project = $1 AND hour < $2 LIMIT ${RECORDS_PER_STEP}
         ) AS o WHERE t.project = $1 AND t.host = o.host AND t.hour = o.hour RETURNING t.hour`,
        [project, end],
      ),
    ]);
    await countChanges(
      run,
      project,
      rows.map(({ hour }) => hour),
    );
    return rows.length < RECORDS_PER_STEP;
  });
}

/** Counts changes of lists without a change of counts. */
async function countChanges(run: Run, project: string, hours: readonly number[]): Promise<void> {
  await addChanges(
    run,
    project,
    hours.map((hour) => hour * HOUR_MS),
  );
}

/** Yields parts. The slices of the whole project come last. */
export async function* dumpTopSlices(database: Database, project: string): AsyncGenerator<TopSlice[]> {
  const [state] = await database.run<{ horizon: number }>(
    'SELECT greatest(horizon, top_lists_before) AS horizon FROM retention',
  );
  const hosts = await database.run<{ number: number; id: string }>(
    `SELECT number, id FROM hosts WHERE project = $1 AND ${NOT_DELETED} ORDER BY number`,
    [project],
  );
  // The first hour that queries cover.
  const first = Math.ceil((state?.horizon ?? 0) / HOUR_MS);
  for (const { number, id } of [...hosts, { number: NO_HOST, id: null }]) {
    let next = first;
    for (;;) {
      const rows = await database.run<{ hour: number; record: Buffer }>(
        `SELECT hour, record FROM (
           SELECT hour, record, sum(octet_length(record)) OVER (ORDER BY hour) - octet_length(record) AS before FROM (
             SELECT hour, record FROM top_lists WHERE project = $1 AND host = $2 AND hour >= $3
             ORDER BY hour LIMIT ${RECORDS_PER_STEP}
           ) AS listed
         ) AS sized WHERE before < ${BYTES_PER_PART} ORDER BY hour`,
        [project, number, next],
      );
      if (rows.length === 0) break;
      yield rows.map(({ hour, record }) => ({ hostId: id, hour, record }));
      next = (rows.at(-1)?.hour ?? 0) + 1;
    }
  }
}

/** The project and its hosts must exist. */
export async function putTopSlices(
  database: Database,
  project: string,
  slices: readonly TopSlice[],
): Promise<void> {
  for (const { record } of slices) checkRecord(record);
  await inPartitions(
    database,
    ['top_lists'],
    () => slices.map(({ hour }) => (hour + 1) * HOUR_MS - 1),
    async (run) => {
      const ids = new Set(slices.flatMap(({ hostId }) => hostId ?? []));
      const [{ horizon }, before, hosts] = await Promise.all([
        lockProject(run, project),
        readBefore(run),
        run<{ id: string }>('SELECT id FROM hosts WHERE project = $1 AND id = ANY($2::text[])', [
          project,
          [...ids],
        ]),
      ]);
      for (const { id } of hosts) ids.delete(id);
      if (ids.size > 0) throw new Error(`the project ${project} has no host ${[...ids][0]}`);
      const kept = slices.filter(({ hour }) => hour * HOUR_MS >= before && (hour + 1) * HOUR_MS > horizon);
      const hours = kept.map(({ hour }) => hour);
      await Promise.all([
        writeTopLists(run, project, kept),
        countChanges(run, project, hours),
        run('COMMIT'),
      ]);
    },
  );
}
