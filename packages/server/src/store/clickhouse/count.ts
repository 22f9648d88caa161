/** The read side: a snapshot from PostgreSQL, then one statement on the shard of the project. */
import { CATEGORIES } from '../../event.ts';
import type { Database } from '../../postgres/database.ts';
import { FIRST_BLOCKED, FIRST_CATEGORY, REQUESTS, seriesOf } from '../cells.ts';
import {
  type CategorySeries,
  type CountSelection,
  type Selection,
  type Series,
  StoreUnavailable,
  type TimeRange,
} from '../store.ts';
import { clocks, readSnapshot, type Snapshot } from './attempts.ts';
import { planCells, type Slots } from './plan.ts';
import { bucketOf, LEVELS, MINUTE_MS, MINUTES_PER_DAY, NO_HOST, type Shards } from './schema.ts';
import type { Server, Values } from './server.ts';

const HOUR_MS = 60 * MINUTE_MS;
/** The minutes in more hours than this are not listed one by one. */
const HOURS_LISTED_MAX = 48;
/** Rows that no new query needs are deleted after this time: running queries must be done by then. */
export const REPLACED_MS = 15 * 60_000;
/** Half of that, because the time before the snapshot was taken counts, too. */
const SNAPSHOT_MS_MAX = REPLACED_MS / 2;

/** Expressions of a row, with ARRAY JOIN. */
export const CELLS = 'cells ARRAY JOIN codes AS code, counts AS n';
export const SERIES = 'intDiv(code, 65536)';
export const TIME = '(toUInt64(minute) * 60000 + bitAnd(code, 65535))';
const IS_ATTACK = `${SERIES} >= ${FIRST_CATEGORY} AND ${SERIES} < ${FIRST_BLOCKED}`;

/** Limits a statement to the rows that count. `days` are those that it reads. */
export function counted(
  snapshot: Snapshot,
  days?: { first: number; last: number },
): { where: string; values: Values } {
  const { project, attempt, firstAttempt, excluded } = snapshot;
  const single = excluded.filter(({ first, last }) => first === last).map(({ last }) => last);
  const ranges = excluded.filter(({ first, last }) => first < last);
  const floors = snapshot.floors.filter(({ day }) => !days || (days.first <= day && day <= days.last));
  const conditions = ['project = {project:String}', 'attempt <= {attempt:UInt64}'];
  if (single.length > 0) conditions.push('attempt NOT IN {excluded:Array(UInt64)}');
  for (const [i] of ranges.entries())
    conditions.push(`NOT (attempt >= {gap${i}:UInt64} AND attempt <= {gapEnd${i}:UInt64})`);
  conditions.push(
    floors.length === 0
      ? 'attempt >= {firstAttempt:UInt64}'
      : `attempt >= transform(intDiv(minute, ${MINUTES_PER_DAY}), {days:Array(UInt32)}, {floors:Array(UInt64)}, {firstAttempt:UInt64})`,
  );
  return {
    where: conditions.join(' AND '),
    values: {
      project,
      attempt,
      firstAttempt,
      excluded: single,
      days: floors.map(({ day }) => day),
      floors: floors.map(({ floor }) => floor),
      ...Object.fromEntries(
        ranges.flatMap(({ first, last }, i) => [
          [`gap${i}`, first],
          [`gapEnd${i}`, last],
        ]),
      ),
    },
  };
}

/** `allHosts`: each host of the project, without the events that have no host. */
type Scope = 'project' | 'hosts' | 'allHosts';

const IN_HOSTS = 'host IN {hosts:Array(UInt32)}';
/** {firstBucket} and {lastBucket} cover all minutes that a query may read. */
export const ON_HOST_MINUTES = `level = ${LEVELS.hostMinute} AND bucket >= {firstBucket:UInt32} AND bucket <= {lastBucket:UInt32}`;
const ON_PROJECT_MINUTES = `level = ${LEVELS.projectMinute} AND bucket = 0 AND host = ${NO_HOST}`;
const ON_HOURS = `level = ${LEVELS.hour} AND bucket = 0`;
const HOURS: Readonly<Record<Scope, string>> = {
  project: `${ON_HOURS} AND host = ${NO_HOST}`,
  hosts: `${ON_HOURS} AND ${IN_HOSTS}`,
  allHosts: `${ON_HOURS} AND host > ${NO_HOST}`,
};
const MINUTES: Readonly<Record<Scope, string>> = {
  project: ON_PROJECT_MINUTES,
  hosts: `${ON_HOST_MINUTES} AND ${IN_HOSTS}`,
  allHosts: `${ON_HOST_MINUTES} AND host > ${NO_HOST}`,
};
const MILLISECONDS: Readonly<Record<Scope, string>> = { ...MINUTES, project: ON_HOST_MINUTES };

/** What to sum in each slot: from whole hours and minutes, and from single CELLS. */
interface Sums {
  /** Default: like minutes. */
  hours?: string;
  whole: string;
  wholeWhere?: string;
  exact: string;
  exactWhere?: string;
  groupBy?: string;
}

const TIMELINE: Sums = {
  whole: 'sum(requests) AS r, sum(attacks) AS a',
  exact: `sumIf(n, ${SERIES} = ${REQUESTS}) AS r, sumIf(n, ${IS_ATTACK}) AS a`,
};
/** By the code of each series. Without ARRAY JOIN, which copies all columns. */
const SERIES_CODE = 'toUInt32(bitAnd(c, 4294901760))';
const BY_SERIES: Sums = {
  // Hours have no other codes.
  hours: '(sumMap(codes, counts) AS sums).1 AS series, sums.2 AS totals',
  whole: `(sumMap(arrayMap(c -> ${SERIES_CODE}, codes), counts) AS sums).1 AS series, sums.2 AS totals`,
  exact: `(sumMap(arrayMap(c -> ${SERIES_CODE}, [code]), [n]) AS sums).1 AS series, sums.2 AS totals`,
};
const DISTRIBUTION: Sums = { ...BY_SERIES, wholeWhere: 'attacks > 0', exactWhere: IS_ATTACK };
const BY_HOST: Sums = {
  whole: 'host AS h, sum(attacks) AS total',
  wholeWhere: 'attacks > 0',
  exact: 'host AS h, sum(n) AS total',
  exactWhere: IS_ATTACK,
  groupBy: 'h',
};

export class Counter {
  readonly #database: Database;
  readonly #shards: Shards;

  constructor(database: Database, shards: Shards) {
    this.#database = database;
    this.#shards = shards;
  }

  async timeline(selection: CountSelection, edges: readonly number[]): Promise<Series> {
    const points = edges.length - 1;
    const series = { requests: new Float64Array(points), attacks: new Float64Array(points) };
    await this.#sum<{ r: string; a: string }>(selection, edges, TIMELINE, (point, { r, a }) => {
      add(series.requests, point, r);
      add(series.attacks, point, a);
    });
    return series;
  }

  async distribution(selection: Selection, { from, to }: TimeRange): Promise<Float64Array> {
    const totals = new Float64Array(CATEGORIES.length);
    await this.#sum<SeriesRow>(selection, [from, to], DISTRIBUTION, (_, row) => {
      for (const [i, code] of row.series.entries()) {
        const series = seriesOf(code);
        if (series >= FIRST_CATEGORY && series < FIRST_BLOCKED)
          add(totals, series - FIRST_CATEGORY, row.totals[i]);
      }
    });
    return totals;
  }

  async byCategory(selection: CountSelection, edges: readonly number[]): Promise<CategorySeries> {
    const points = edges.length - 1;
    const rows = () => CATEGORIES.map(() => new Float64Array(points));
    const counts: CategorySeries = { requests: new Float64Array(points), attacks: rows(), blocked: rows() };
    await this.#sum<SeriesRow>(selection, edges, BY_SERIES, (point, row) => {
      for (const [i, code] of row.series.entries()) {
        const series = seriesOf(code);
        const total = row.totals[i];
        if (series === REQUESTS) add(counts.requests, point, total);
        else if (series < FIRST_BLOCKED) add(counts.attacks[series - FIRST_CATEGORY], point, total);
        else add(counts.blocked[series - FIRST_BLOCKED], point, total);
      }
    });
    return counts;
  }

  /** Attacks by host number. */
  async attacksByHost(selection: Selection, { from, to }: TimeRange): Promise<Map<number, number>> {
    const attacks = new Map<number, number>();
    await this.#sum<{ h: number; total: string }>(
      selection,
      [from, to],
      BY_HOST,
      (_, { h, total }) => attacks.set(h, (attacks.get(h) ?? 0) + Number(total)),
      'allHosts',
    );
    return attacks;
  }

  /**
   * Reads with a snapshot, and again if that took too long: rows that were replaced meanwhile may be deleted. Null for a
   * selection without counts.
   */
  async read<T>(
    { project, hosts }: Selection,
    action: (server: Server, snapshot: Snapshot) => Promise<T>,
  ): Promise<T | null> {
    for (let tries = 0; tries < 3; tries++) {
      const snapshot = await readSnapshot(this.#database, project, hosts);
      if (snapshot === null || (hosts !== undefined && snapshot.hosts.length === 0)) return null;
      const result = await action(await this.#shards.get(snapshot.shard), snapshot);
      if (isFresh(snapshot)) return result;
    }
    throw new StoreUnavailable('queries take too long');
  }

  /** Calls `take` for each row, of which a point may have several. */
  async #sum<Row>(
    selection: CountSelection,
    edges: readonly number[],
    sums: Sums,
    take: (point: number, row: Row) => void,
    all: Scope = 'project',
  ): Promise<void> {
    const scope = selection.hosts === undefined ? all : 'hosts';
    const read = await this.read(selection, async (server, snapshot) => {
      const limits = selection.ignoreHorizon ? { ...snapshot, horizon: 0 } : snapshot;
      const { parts, values } = planParts(limits, scope, edges, sums);
      const sql = parts.map(({ statement }) => statement).join('\nUNION ALL\n');
      return { parts, rows: parts.length === 0 ? [] : await server.select<Row & PartRow>(sql, values) };
    });
    for (const row of read?.rows ?? []) {
      const slots = read?.parts[Number(row.part)]?.slots;
      if (slots) take(slots.pointOf(Number(row.slot)), row);
    }
  }
}

interface PartRow {
  part: number;
  slot: string;
}

interface SeriesRow {
  /** Codes. */
  series: number[];
  totals: string[];
}

function add(row: Float64Array | undefined, point: number, n: string | undefined): void {
  if (row !== undefined) row[point] = (row[point] ?? 0) + Number(n);
}

function isFresh({ readAt }: Snapshot): boolean {
  const { monotonic, system } = clocks();
  // One clock stops while the machine sleeps, the other can be set back.
  return Math.max(monotonic - readAt.monotonic, system - readAt.system) < SNAPSHOT_MS_MAX;
}

interface Part {
  statement: string;
  slots: Slots;
}

/** Up to three statements with the same columns, for hours, minutes and milliseconds. */
function planParts(
  snapshot: Snapshot,
  scope: Scope,
  edges: readonly number[],
  { whole, hours: wholeHours = whole, wholeWhere, exact, exactWhere, groupBy }: Sums,
): { parts: Part[]; values: Values } {
  const clipped = clip(edges, snapshot);
  const hours = planCells(clipped, HOUR_MS);
  const minutes = planCells(clipped, MINUTE_MS);
  const { where, values } = counted(snapshot, daysOf(clipped));
  const cutMinutes = new Set(minutes.cutCells);
  const all: Record<string, Values[string]> = {
    ...values,
    ...bucketsOf(clipped),
    hosts: snapshot.hosts,
    cutHours: hours.cutCells,
    cutMinutes: minutes.cutCells,
  };
  const parts: Part[] = [];
  const addPart = (
    slots: Slots,
    cell: string,
    columns: string,
    from: string,
    conditions: (string | undefined)[],
  ) => {
    const i = parts.length;
    for (const name of ['shift', 'width', 'from', 'to'] as const) all[`${name}${i}`] = slots[name];
    const terms = [where, ...conditions, `${cell} >= {from${i}:UInt64} AND ${cell} < {to${i}:UInt64}`];
    parts.push({
      slots,
      statement: `SELECT toUInt8(${i}) AS part, intDiv(${cell} + {shift${i}:UInt64}, {width${i}:UInt64}) AS slot, ${columns}
        FROM ${from} WHERE ${terms.filter(Boolean).join(' AND ')} GROUP BY slot${groupBy ? `, ${groupBy}` : ''}`,
    });
  };
  const cutsHours = hours.cutCells.length > 0;
  if (hours.whole) {
    // The index is by minute.
    all.firstMinute = hours.whole.from * 60;
    all.endMinute = hours.whole.to * 60;
    addPart(hours.whole, 'intDiv(minute, 60)', wholeHours, 'cells', [
      HOURS[scope],
      'minute >= {firstMinute:UInt32} AND minute < {endMinute:UInt32}',
      cutsHours ? 'intDiv(minute, 60) NOT IN {cutHours:Array(UInt32)}' : undefined,
      wholeWhere,
    ]);
  }
  if (minutes.whole && (cutsHours || !hours.whole)) {
    const isListed = hours.whole !== null && hours.cutCells.length <= HOURS_LISTED_MAX;
    if (isListed) {
      all.minutes = hours.cutCells
        .flatMap((hour) => Array.from({ length: 60 }, (_, i) => hour * 60 + i))
        .filter((minute) => !cutMinutes.has(minute));
    }
    addPart(minutes.whole, 'minute', whole, 'cells', [
      MINUTES[scope],
      isListed ? 'minute IN {minutes:Array(UInt32)}' : undefined,
      isListed && scope !== 'project' ? 'bucket IN {cutHours:Array(UInt32)}' : undefined,
      !isListed && hours.whole ? 'intDiv(minute, 60) IN {cutHours:Array(UInt32)}' : undefined,
      !isListed && cutMinutes.size > 0 ? 'minute NOT IN {cutMinutes:Array(UInt32)}' : undefined,
      wholeWhere,
    ]);
  }
  if (minutes.cut) {
    addPart(minutes.cut, TIME, exact, CELLS, [
      MILLISECONDS[scope],
      `bucket IN {cutHours:Array(UInt32)} AND minute IN {cutMinutes:Array(UInt32)}`,
      exactWhere,
    ]);
  }
  return { parts, values: all };
}

/** There is nothing to count before the horizon or after the newest event. */
export function clip(edges: readonly number[], { horizon, latest }: Snapshot): readonly number[] {
  const end = (Math.floor(latest / HOUR_MS) + 1) * HOUR_MS;
  return edges.map((edge) => Math.max(Math.min(edge, end), horizon));
}

export function daysOf(edges: readonly number[]): { first: number; last: number } {
  const day = (time: number) => Math.floor(time / MINUTE_MS / MINUTES_PER_DAY);
  return { first: day(edges[0] ?? 0), last: day(edges.at(-1) ?? 0) };
}

/** The values of ON_HOST_MINUTES. */
export function bucketsOf(edges: readonly number[]): { firstBucket: number; lastBucket: number } {
  const bucket = (time: number) => bucketOf(LEVELS.hostMinute, Math.floor(time / MINUTE_MS));
  return { firstBucket: bucket(edges[0] ?? 0), lastBucket: bucket(edges.at(-1) ?? 0) };
}
