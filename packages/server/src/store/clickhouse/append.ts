/** The write side: rows of a group of batches in ClickHouse, everything else in PostgreSQL. */
import { isDeepStrictEqual } from 'node:util';
import type { Event } from '../../event.ts';
import type { Database, Run } from '../../postgres/database.ts';
import {
  type Additions,
  additionsOf,
  cellCode,
  cellOf,
  FIRST_BLOCKED,
  FIRST_CATEGORY,
  REQUESTS,
  seriesOf,
  seriesTotals,
} from '../cells.ts';
import { countByMinute } from '../minutes.ts';
import {
  addChanges,
  GroupPlan,
  type Known,
  lockProject,
  type ProjectState,
  readKnown,
  readProject,
} from '../postgres/coordination.ts';
import { inPartitions } from '../postgres/schema.ts';
import { addTopAdditions, mergeTopLists, readTopLists, writeTopLists } from '../postgres/top-lists.ts';
import { Slices } from '../slices.ts';
import { type Appended, type Batch, HOUR_MS, StoreUnavailable } from '../store.ts';
import { TopAdditions } from '../top-records.ts';
import {
  type Attempt,
  abortAttempt,
  lockAttempt,
  type NewAttempt,
  openAttempt,
  removeAttempt,
} from './attempts.ts';
import { bucketOf, LEVELS, MINUTE_MS, MINUTES_PER_DAY, NO_HOST, type Shards } from './schema.ts';
import { DiskFull, type Server, StatementFailed } from './server.ts';

/** Each try begins again because another process was faster, or because the attempt took too long. */
const TRIES_MAX = 10;
const SECOND_MS = 1_000;

interface CellRow {
  project: string;
  level: number;
  bucket: number;
  host: number;
  minute: number;
  attempt: number;
  requests: number;
  attacks: number;
  codes: number[];
  counts: number[];
}

/** All batches are of the same project. `lifetimeMs`: how long an attempt may take. */
export async function appendGroup(
  database: Database,
  shards: Shards,
  batches: readonly Batch[],
  now: number,
  lifetimeMs: number,
  topKeys: number,
): Promise<Appended[]> {
  const project = batches[0]?.project ?? '';
  const hostIds = hostsOf(batches);
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const [state, known, shard] = await database.transaction(async (run) => {
      const read = Promise.all([
        readProject(run, project),
        readKnown(run, project, batches, hostIds),
        readShard(run, project),
      ]);
      const [found] = await Promise.all([read, run('COMMIT')]);
      return found;
    }, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const plan = new GroupPlan(state, known, now);
    const results = batches.map((batch) => plan.add(batch));
    if (plan.isEmpty()) return results;
    const events = plan.events();
    const rows = rowsOf(project, events, known.hosts);
    const topLists = new TopAdditions();
    addTopAdditions(topLists, events, known.hosts);
    const days = rowsByDay(rows);
    const wanted = {
      project,
      shard: shard ?? shards.choose(project),
      days: [...days.keys()],
      lifetimeMs,
    };
    const attempt = rows.length === 0 ? null : await insert(database, shards, wanted, rows);
    const isClosed = await close(
      database,
      attempt,
      batches,
      { state, hosts: known.hosts, results, days, topLists, now },
      topKeys,
    );
    if (isClosed) return results;
  }
  throw new StoreUnavailable('other processes keep counting the same batches');
}

async function readShard(run: Run, project: string): Promise<number | null> {
  const [row] = await run<{ shard: number | null }>('SELECT shard FROM projects WHERE project = $1', [
    project,
  ]);
  return row?.shard ?? null;
}

/** Inserts the rows under the number of a new attempt, which stays open. */
async function insert(
  database: Database,
  shards: Shards,
  wanted: NewAttempt,
  rows: CellRow[],
): Promise<Attempt> {
  // While the shard is down, no attempt is opened that would have to be aborted.
  await shards.ready(wanted.shard);
  const attempt = await openAttempt(database, wanted);
  if (attempt === null) throw new Error('only a compaction can find no attempt to open');
  const server = await shards.get(attempt.shard);
  for (const row of rows) row.attempt = attempt.number;
  try {
    await server.insert('cells', rows);
  } catch (error) {
    shards.failed(attempt.shard);
    await abandon(database, server, attempt, rows, error);
    throw error;
  }
  return attempt;
}

/** If this fails, too, the attempt expires. */
async function abandon(
  database: Database,
  server: Server,
  attempt: Attempt,
  rows: readonly CellRow[],
  error: unknown,
): Promise<void> {
  try {
    const hasEnded = error instanceof StatementFailed || error instanceof DiskFull;
    // The server has ended the insert and kept nothing of it, so no row can appear later.
    if (hasEnded && !(await hasRows(server, attempt, rows))) await removeAttempt(database, attempt);
    else await abortAttempt(database, attempt);
  } catch (failure) {
    if (!(failure instanceof StoreUnavailable)) throw failure;
  }
}

async function hasRows(
  server: Server,
  { project, number }: Attempt,
  rows: readonly CellRow[],
): Promise<boolean> {
  const minutes = rows.map(({ minute }) => minute);
  const [found] = await server.select<{ n: string }>(
    `SELECT count() AS n FROM cells WHERE project = {project:String} AND attempt = {number:UInt64}
       AND minute >= {first:UInt32} AND minute <= {last:UInt32}`,
    {
      project,
      number,
      first: minutes.reduce((a, b) => Math.min(a, b)),
      last: minutes.reduce((a, b) => Math.max(a, b)),
    },
  );
  return Number(found?.n) > 0;
}

interface Inserted {
  /** The state and the hosts from which the rows were made. */
  state: ProjectState;
  hosts: Known['hosts'];
  results: readonly Appended[];
  /** The number of rows on each day. */
  days: ReadonlyMap<number, number>;
  topLists: TopAdditions;
  now: number;
}

/** False if the attempt was aborted, or if the rows are not those of the batches that count now. */
async function close(
  database: Database,
  attempt: Attempt | null,
  batches: readonly Batch[],
  { state: { horizon }, hosts, results, days, topLists, now }: Inserted,
  topKeys: number,
): Promise<boolean> {
  const project = batches[0]?.project ?? '';
  const hours = () => Array.from(topLists.hours.keys(), (hour) => hour * HOUR_MS);
  return inPartitions(database, ['top_lists'], hours, async (run) => {
    const [state, isOpen, known, stored] = await Promise.all([
      lockProject(run, project),
      attempt === null || lockAttempt(run, attempt),
      readKnown(run, project, batches, []),
      readTopLists(run, project, topLists),
    ]);
    if (!isOpen) return false;
    const plan = new GroupPlan({ ...state, horizon }, { ...known, hosts }, now);
    const again = batches.map((batch) => plan.add(batch));
    if (!isDeepStrictEqual(again, results)) {
      if (attempt !== null) await abortAttempt({ run }, attempt);
      return false;
    }
    const lists = await new Slices().run(mergeTopLists(project, topLists, stored, topKeys));
    const writes = [...plan.writes(run, project), writeTopLists(run, project, lists)];
    if (attempt !== null) {
      const times = Array.from(days.keys(), (day) => day * MINUTES_PER_DAY * MINUTE_MS);
      writes.push(
        removeAttempt({ run }, attempt),
        addChanges(run, project, times),
        addToDays(run, project, days),
      );
    }
    await Promise.all([...writes, run('COMMIT')]);
    return true;
  });
}

function addToDays(
  run: Database['run'],
  project: string,
  days: ReadonlyMap<number, number>,
): Promise<unknown> {
  return run(
    `INSERT INTO days (project, day, attempts, cells)
     SELECT $1, day, 1, cells FROM unnest($2::int[], $3::int[]) AS d(day, cells)
     ON CONFLICT (project, day) DO UPDATE SET
       attempts = days.attempts + 1, cells = days.cells + excluded.cells, changed = now()`,
    [project, [...days.keys()], [...days.values()]],
  );
}

function hostsOf(batches: readonly Batch[]): Set<string> {
  const ids = new Set<string>();
  for (const { events } of batches) for (const { hostId } of events) if (hostId !== null) ids.add(hostId);
  return ids;
}

function rowsByDay(rows: readonly CellRow[]): Map<number, number> {
  const days = new Map<number, number>();
  for (const { minute } of rows) {
    const day = Math.floor(minute / MINUTES_PER_DAY);
    days.set(day, (days.get(day) ?? 0) + 1);
  }
  return days;
}

/** The rows of all levels, without the number of their attempt. */
function rowsOf(project: string, events: readonly Event[], hosts: ReadonlyMap<string, number>): CellRow[] {
  const rows: CellRow[] = [];
  const add = (level: number, host: number, minute: number, { codes, counts }: Additions) => {
    const bucket = bucketOf(level, minute);
    const row = { project, level, bucket, host, minute, attempt: 0, requests: 0, attacks: 0, codes, counts };
    for (const [series, total] of seriesTotals({ codes, counts })) {
      if (series === REQUESTS) row.requests += total;
      else if (series >= FIRST_CATEGORY && series < FIRST_BLOCKED) row.attacks += total;
    }
    rows.push(row);
  };
  const hours = new Map<string, { host: number; hour: number; cells: Map<number, number> }>();
  const addToHour = (host: number, hour: number, totals: readonly [series: number, total: number][]) => {
    const key = `${hour} ${host}`;
    const sum = hours.get(key) ?? { host, hour, cells: new Map<number, number>() };
    hours.set(key, sum);
    for (const [series, total] of totals) addTo(sum.cells, cellCode(series, 0), total);
  };
  for (const [minute, counts] of countByMinute(events)) {
    const seconds = new Map<number, number>();
    const hour = Math.floor(minute / 60);
    for (const [id, additions] of counts) {
      // An event with an unregistered host counts as one without a host.
      const host = hosts.get(id) ?? NO_HOST;
      add(LEVELS.hostMinute, host, minute, additions);
      const totals = seriesTotals(additions);
      if (host !== NO_HOST) addToHour(host, hour, totals);
      addToHour(NO_HOST, hour, totals);
      for (const [i, code] of additions.codes.entries()) {
        const second = cellOf(code) - (cellOf(code) % SECOND_MS);
        addTo(seconds, cellCode(seriesOf(code), second), additions.counts[i] ?? 0);
      }
    }
    add(LEVELS.projectMinute, NO_HOST, minute, additionsOf(seconds));
  }
  for (const { host, hour, cells } of hours.values()) add(LEVELS.hour, host, hour * 60, additionsOf(cells));
  return rows;
}

function addTo(cells: Map<number, number>, code: number, n: number): void {
  cells.set(code, (cells.get(code) ?? 0) + n);
}
