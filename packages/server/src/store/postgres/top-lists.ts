/** Top lists: one record of ../top-records.ts for each hour, and project or host. */
import { randomInt } from 'node:crypto';
import { BoundedCache } from '../../cache.ts';
import type { Event } from '../../event.ts';
import type { Database, Row, Run } from '../../postgres/database.ts';
import {
  coveredHours,
  HOUR_MS,
  QueryTooLarge,
  type Store,
  storedCategory,
  TOP_LISTS,
  type TopList,
  type TopQuery,
  type TopSlice,
} from '../store.ts';
import { checkSummary, hostPrefix, KeyHash, TopMerge } from '../top-lists.ts';
import {
  addToSections,
  decodeSections,
  encodeSections,
  type Sections,
  TopAdditions,
} from '../top-records.ts';
import { addChanges, lockProject } from './coordination.ts';
import { NOT_DELETED } from './hosts.ts';
import { JoinedRecords } from './joined-records.ts';
import { inPartitions, NO_HOST } from './schema.ts';

/** The scope of the whole project, among hosts by ID. No ID is empty. */
const WHOLE_PROJECT = '';

/** `available` runs an action once the tables have been checked. */
export function topListMethods(
  database: Database,
  available: <T>(action: () => Promise<T>) => Promise<T>,
  queryBytesMax = QUERY_BYTES_MAX,
): Pick<Store, 'top' | 'topSlices' | 'putTopSlices' | 'deleteTopLists'> {
  const finder = new TopFinder(database, queryBytesMax);
  return {
    top: (query) => available(() => finder.find(query)),

    async *topSlices(project) {
      yield* await available(async () => dumpTopSlices(database, project));
    },

    putTopSlices: (project, slices) => available(() => putTopSlices(database, project, slices)),
    deleteTopLists: (project) => available(() => deleteTopLists(database, project)),
  };
}

/** `known`: the hosts that are registered, if some may not be. */
export function topAdditionsOf(
  events: readonly Event[],
  known?: ReadonlyMap<string, number>,
): TopAdditions<string> {
  const additions = new TopAdditions<string>();
  for (const { time, hostId, attack, count, details } of events) {
    if (attack === null || details === undefined) continue;
    const isKnown = hostId !== null && (known === undefined || known.has(hostId));
    additions.add(
      { time, attack, details },
      count,
      WHOLE_PROJECT,
      isKnown ? { id: hostId, scope: hostId } : null,
    );
  }
  return additions;
}

interface StoredTopLists {
  /** Lists of hours that begin before this are deleted. */
  before: number;
  /** By `nameOf`. */
  records: Map<string, Buffer>;
}

interface RecordKey {
  hour: number;
  scope: string;
}

function nameOf({ hour, scope }: RecordKey): string {
  return `${hour} ${scope}`;
}

/** Reads what additions will change, after the project was locked. */
export function readTopLists(
  run: Run,
  project: string,
  additions: TopAdditions<string>,
): Promise<StoredTopLists> {
  return readRecords(run, project, additions.records());
}

async function readRecords(run: Run, project: string, keys: readonly RecordKey[]): Promise<StoredTopLists> {
  if (keys.length === 0) return { before: 0, records: new Map() };
  const [[state], rows] = await Promise.all([
    run<{ before: number }>('SELECT greatest(top_lists_before, freed_before) AS before FROM retention'),
    run<{ i: number; record: Buffer }>(
      `SELECT k.i::int AS i, t.record
       FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS k(scope, hour, i)
       JOIN top_lists t ON t.project = $1 AND t.hour = k.hour AND t.host =
         CASE WHEN k.scope = '' THEN 0 ELSE (SELECT number FROM hosts WHERE project = $1 AND id = k.scope) END`,
      [project, keys.map(({ scope }) => scope), keys.map(({ hour }) => hour)],
    ),
  ]);
  const records = new Map(rows.map(({ i, record }) => [nameOf(keys[i - 1] as RecordKey), record]));
  return { before: state?.before ?? 0, records };
}

/** In the transaction of the counters, which also counts the change. All hosts of the additions must be known. */
export async function writeTopLists(
  run: Run,
  project: string,
  additions: TopAdditions<string>,
  hosts: ReadonlyMap<string, number>,
  stored: StoredTopLists,
  keysMax: number,
): Promise<void> {
  const changed: ChangedRecord[] = [];
  for (const record of additions.records()) {
    if (record.hour * HOUR_MS < stored.before) continue;
    const known = stored.records.get(nameOf(record));
    const sections = known === undefined ? [] : decodeSections(known);
    addToSections(sections, record, project, keysMax);
    changed.push({ host: numberOf(project, record.scope, hosts), hour: record.hour, sections });
  }
  await writeRecords(run, project, changed);
}

function numberOf(project: string, scope: string, hosts: ReadonlyMap<string, number>): number {
  const number = scope === WHOLE_PROJECT ? NO_HOST : hosts.get(scope);
  if (number === undefined) throw new Error(`the project ${project} has no host ${scope}`);
  return number;
}

interface ChangedRecord {
  host: number;
  hour: number;
  sections: Sections;
}

async function writeRecords(run: Run, project: string, changed: readonly ChangedRecord[]): Promise<void> {
  if (changed.length === 0) return;
  const records = new JoinedRecords();
  for (const { sections } of changed) records.add(encodeSections(sections));
  await run(
    `INSERT INTO top_lists (project, host, hour, version, record)
     SELECT $1, host, hour, $2, substring($3::bytea FROM first FOR length)
     FROM unnest($4::int[], $5::int[], $6::int[], $7::int[]) AS t(host, hour, first, length)
     ON CONFLICT (project, host, hour) DO UPDATE SET version = excluded.version, record = excluded.record`,
    [
      project,
      randomInt(1, 2 ** 40),
      records.bytes(),
      changed.map(({ host }) => host),
      changed.map(({ hour }) => hour),
      records.firsts,
      records.lengths,
    ],
  );
}

/** The records of a query without those of its last hours, as long as they do not change. */
interface Base {
  merge: TopMerge;
  /** Of its records: how many there are, and the sum of their versions. */
  fingerprint: string;
}

const BASES_MAX = 1_000;
const BASE_BYTES_MAX = 64 * 1_024 * 1_024;
/** Live traffic changes only the last hours of a range. The base moves as often. */
const TAIL_HOURS = 2;
/** Of records: some seconds of work, as for many hosts during a flood. */
const QUERY_BYTES_MAX = 128 * 1_024 * 1_024;
/** Reading and merging a part takes some milliseconds. */
const BYTES_PER_PART = 256 * 1_024;

/** All hours but the last ones are merged once, into a base; a query merges the rest with it. */
class TopFinder {
  readonly #database: Database;
  readonly #bytesMax: number;
  readonly #bases = new BoundedCache<string, Base>({
    entriesMax: BASES_MAX,
    weightMax: BASE_BYTES_MAX,
    weight: ({ merge }, name) => merge.bytes + name.length,
  });

  constructor(database: Database, bytesMax: number) {
    this.#database = database;
    this.#bytesMax = bytesMax;
  }

  find(query: TopQuery): Promise<TopList> {
    return this.#database.transaction(
      (run) => this.#find(run, query),
      'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY',
    );
  }

  async #find(run: Run, { project, hosts, list, categories, limit, ...range }: TopQuery): Promise<TopList> {
    const selected = categories === undefined ? null : categories.map(storedCategory).sort((a, b) => a - b);
    const [[state], known] = await Promise.all([
      run<{ horizon: number; latest: number | null }>(
        `SELECT greatest(horizon, top_lists_before) AS horizon,
           (SELECT latest FROM projects WHERE project = $1) AS latest FROM retention`,
        [project],
      ),
      hosts === undefined
        ? []
        : run<{ id: string; number: number }>(
            'SELECT id, number FROM hosts WHERE project = $1 AND id = ANY($2::text[]) ORDER BY number',
            [project, [...new Set(hosts)]],
          ),
    ]);
    const covered = coveredHours(range, state?.horizon ?? 0);
    const first = covered.from / HOUR_MS;
    const end = Math.min(covered.to / HOUR_MS, Math.floor((state?.latest ?? 0) / HOUR_MS) + 1);
    const split = Math.max(first, Math.floor((end - 1) / TAIL_HOURS) * TAIL_HOURS);
    const prefixes = new Map(known.map(({ id, number }) => [number, list === 'urls' ? hostPrefix(id) : '']));
    if (hosts === undefined) prefixes.set(NO_HOST, '');
    const numbers = [...prefixes.keys()];
    let bytes = 0;
    const merge = async (hours: readonly HourSize[]) => {
      for (const hour of hours) bytes += hour.bytes;
      if (bytes > this.#bytesMax) throw new QueryTooLarge('merge top lists');
      const merged = new TopMerge(new KeyHash(project), selected);
      for await (const { host, record } of readParts(run, project, numbers, hours)) {
        const summary = decodeSections(record)[TOP_LISTS.indexOf(list)];
        if (summary !== undefined) merged.add(summary, prefixes.get(host));
      }
      return merged;
    };
    const [fingerprint, lastHours] = await Promise.all([
      fingerprintOf(run, project, numbers, first, split),
      readSizes(run, project, numbers, split, end),
    ]);
    const tail = await merge(lastHours);
    const name = JSON.stringify([project, numbers, list, selected, first, split]);
    let base = this.#bases.get(name);
    if (base?.fingerprint !== fingerprint) {
      base = { merge: await merge(await readSizes(run, project, numbers, first, split)), fingerprint };
      this.#bases.set(name, base);
    }
    return { ...covered, ...base.merge.list(tail, list, limit) };
  }
}

const SELECTED = 'project = $1 AND host = ANY($2::int[]) AND hour >= $3 AND hour < $4';

async function fingerprintOf(
  run: Run,
  project: string,
  hosts: readonly number[],
  from: number,
  to: number,
): Promise<string> {
  const [row] = await run<{ fingerprint: string }>(
    `SELECT concat(count(*), ' ', sum(version)) AS fingerprint FROM top_lists WHERE ${SELECTED}`,
    [project, hosts, from, to],
  );
  return row?.fingerprint ?? '';
}

interface HourSize {
  hour: number;
  /** Of all selected records of the hour. */
  bytes: number;
}

function readSizes(
  run: Run,
  project: string,
  hosts: readonly number[],
  from: number,
  to: number,
): Promise<HourSize[]> {
  return run<HourSize & Row>(
    `SELECT hour, sum(octet_length(record))::bigint AS bytes FROM top_lists WHERE ${SELECTED}
     GROUP BY hour ORDER BY hour`,
    [project, hosts, from, to],
  );
}

/** All records of these hours, read in parts of bounded size, between which other work can run. */
async function* readParts(
  run: Run,
  project: string,
  hosts: readonly number[],
  hours: readonly HourSize[],
): AsyncGenerator<{ host: number; record: Buffer }> {
  for (let start = 0, end = 0; start < hours.length; start = end) {
    let bytes = 0;
    while (end < hours.length && (end === start || bytes + sizeAt(hours, end) <= BYTES_PER_PART)) {
      bytes += sizeAt(hours, end++);
    }
    const [first, last] = [hours[start]?.hour ?? 0, hours[end - 1]?.hour ?? 0];
    // An hour can be too large for one part.
    const hostsPerPart = Math.ceil(hosts.length / Math.ceil(bytes / BYTES_PER_PART));
    for (let i = 0; i < hosts.length; i += hostsPerPart) {
      yield* await run<{ host: number; record: Buffer }>(
        `SELECT host, record FROM top_lists WHERE ${SELECTED}`,
        [project, hosts.slice(i, i + hostsPerPart), first, last + 1],
      );
    }
  }
}

function sizeAt(hours: readonly HourSize[], i: number): number {
  return hours[i]?.bytes ?? 0;
}

const RECORDS_PER_STEP = 500;
const RECORDS_PER_PART = 100;

/** Moves the horizon of top lists forward, and deletes those of earlier hours. Resolves to their end, for partitions. */
export async function pruneTopLists(
  database: Database,
  before: number,
  stop: AbortSignal | undefined,
): Promise<number> {
  const [row] = await database.run<{ before: number; freed: number }>(
    `UPDATE retention SET top_lists_before = greatest(top_lists_before, $1)
     RETURNING top_lists_before AS before, freed_before AS freed`,
    // By the hour, so that versions do not change more often.
    [Math.ceil(before / HOUR_MS) * HOUR_MS],
  );
  const limit = Math.max(row?.before ?? 0, row?.freed ?? 0);
  const end = Math.ceil(limit / HOUR_MS);
  const old = await database.run<{ project: string }>(
    `SELECT p.project FROM projects p
     WHERE EXISTS (SELECT FROM top_lists t WHERE t.project = p.project AND t.hour < $1)`,
    [end],
  );
  for (const { project } of old) {
    for (let isDone = false; !isDone && !stop?.aborted; ) isDone = await deleteSome(database, project, end);
  }
  return limit;
}

async function deleteTopLists(database: Database, project: string): Promise<void> {
  const known = await database.run('SELECT FROM projects WHERE project = $1', [project]);
  if (known.length === 0) return;
  for (let isDone = false; !isDone; ) isDone = await deleteSome(database, project, HOURS_END);
}

/** After all hours. */
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

/** For changes of lists without a change of counts. */
async function countChanges(run: Run, project: string, hours: readonly number[]): Promise<void> {
  await addChanges(
    run,
    project,
    hours.map((hour) => hour * HOUR_MS),
  );
}

export async function* dumpTopSlices(database: Database, project: string): AsyncGenerator<TopSlice[]> {
  const [state] = await database.run<{ before: number }>(
    'SELECT greatest(top_lists_before, freed_before) AS before FROM retention',
  );
  const hosts = await database.run<{ number: number; id: string }>(
    `SELECT number, id FROM hosts WHERE project = $1 AND ${NOT_DELETED}`,
    [project],
  );
  for (const { number, id } of [{ number: NO_HOST, id: null }, ...hosts]) {
    let next = Math.ceil((state?.before ?? 0) / HOUR_MS);
    for (;;) {
      const rows: { hour: number; record: Buffer }[] = await database.run(
        `SELECT hour, record FROM top_lists WHERE project = $1 AND host = $2 AND hour >= $3
         ORDER BY hour LIMIT ${RECORDS_PER_PART}`,
        [project, number, next],
      );
      if (rows.length === 0) break;
      yield rows.flatMap((row) => slicesOf(row, id));
      next = (rows.at(-1)?.hour ?? 0) + 1;
    }
  }
}

function slicesOf({ hour, record }: { hour: number; record: Buffer }, hostId: string | null): TopSlice[] {
  return decodeSections(record).flatMap((summary, i) => {
    const list = TOP_LISTS[i];
    return list && summary ? [{ hostId, list, hour, summary: Uint8Array.from(summary) }] : [];
  });
}

/** The project and its hosts must exist. */
export async function putTopSlices(
  database: Database,
  project: string,
  slices: readonly TopSlice[],
): Promise<void> {
  for (const { summary } of slices) checkSummary(summary);
  const slicesOfRecords = new Map<string, { key: RecordKey; slices: TopSlice[] }>();
  for (const slice of slices) {
    const key = { hour: slice.hour, scope: slice.hostId ?? WHOLE_PROJECT };
    const record = slicesOfRecords.get(nameOf(key)) ?? { key, slices: [] };
    slicesOfRecords.set(nameOf(key), record);
    record.slices.push(slice);
  }
  await inPartitions(
    database,
    ['top_lists'],
    () => slices.map(({ hour }) => (hour + 1) * HOUR_MS - 1),
    async (run) => {
      const keys = Array.from(slicesOfRecords.values(), ({ key }) => key);
      const [{ horizon }, rows, stored] = await Promise.all([
        lockProject(run, project),
        run<{ id: string; number: number }>(
          'SELECT id, number FROM hosts WHERE project = $1 AND id = ANY($2::text[])',
          [project, [...new Set(keys.map(({ scope }) => scope))]],
        ),
        readRecords(run, project, keys),
      ]);
      const hosts = new Map(rows.map(({ id, number }) => [id, number]));
      const changed: ChangedRecord[] = [];
      for (const [name, { key, slices: replaced }] of slicesOfRecords) {
        const host = numberOf(project, key.scope, hosts);
        const start = key.hour * HOUR_MS;
        if (start < stored.before || start + HOUR_MS <= horizon) continue;
        const known = stored.records.get(name);
        const sections = known === undefined ? [] : decodeSections(known);
        for (const { list, summary } of replaced) sections[TOP_LISTS.indexOf(list)] = summary;
        changed.push({ host, hour: key.hour, sections });
      }
      await Promise.all([
        writeRecords(run, project, changed),
        countChanges(
          run,
          project,
          changed.map(({ hour }) => hour),
        ),
        run('COMMIT'),
      ]);
    },
  );
}
