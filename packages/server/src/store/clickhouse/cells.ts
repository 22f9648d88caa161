/** Cells: the counts of one attempt in one minute of one host, as sums and as exact milliseconds. */
import { CATEGORIES, type Event, OVERVIEW_GROUPS } from '../../event.ts';
import { type CategorySeries, QueryTooLarge, type Selection, type Series, storedCategory } from '../store.ts';
import type { Snapshot } from './ledger.ts';
import type { Server, Values } from './server.ts';

const MINUTE_MS = 60_000;
const SECOND_MS = 1_000;
/**
 * The kind of an event is the number of its category, or NO_ATTACK, plus REQUEST if it is a request, plus BLOCKED if it
 * is a blocked attack.
 */
export const NO_ATTACK = 15;
export const REQUEST = 16;
export const BLOCKED = 32;
const KINDS = 64;

/** In `categories`, blocked attacks follow the attacks: a kind has 4 bits for the category. */
const FIRST_BLOCKED = 16;

/** Above this many events, the busiest seconds are not searched: 5 s on two busy cores with ClickHouse 18.16. */
const PEAK_EVENTS_MAX = 50_000_000;

export interface CellRow {
  project: string;
  /** '' for events without a registered host. */
  host: string;
  minute: number;
  attempt: number;
  requests: number;
  attacks: number;
  /** Attacks by category, and blocked attacks by category from FIRST_BLOCKED on. Either is left out if there are none. */
  categories: number[];
  /** The single events: millisecond in the minute, kind, count. */
  at: number[];
  kind: number[];
  count: number[];
}

/** Converts events to rows. Counts of equal events are summed. */
export class CellRows {
  readonly #attempt: number;
  readonly #rows = new Map<string, { row: CellRow; positions: Map<number, number> }>();

  constructor(attempt: number) {
    this.#attempt = attempt;
  }

  add(project: string, { time, hostId, request, attack, count, details }: Event): void {
    const minute = Math.floor(time / MINUTE_MS);
    const category = attack === null ? NO_ATTACK : storedCategory(attack);
    const { row, positions } = this.#cell(project, hostId ?? '', minute);
    if (request) row.requests += count;
    if (attack !== null) {
      if (row.attacks === 0) row.categories = CATEGORIES.map(() => 0);
      row.attacks += count;
      row.categories[category] = (row.categories[category] ?? 0) + count;
    }
    const isBlocked = attack !== null && details?.blocked === true;
    if (isBlocked) {
      while (row.categories.length < FIRST_BLOCKED + CATEGORIES.length) row.categories.push(0);
      row.categories[FIRST_BLOCKED + category] = (row.categories[FIRST_BLOCKED + category] ?? 0) + count;
    }
    const kind = category + (request ? REQUEST : 0) + (isBlocked ? BLOCKED : 0);
    const at = time - minute * MINUTE_MS;
    const position = positions.get(at * KINDS + kind);
    if (position === undefined) {
      positions.set(at * KINDS + kind, row.at.length);
      row.at.push(at);
      row.kind.push(kind);
      row.count.push(count);
    } else row.count[position] = (row.count[position] ?? 0) + count;
  }

  rows(): CellRow[] {
    return Array.from(this.#rows.values(), ({ row }) => row);
  }

  #cell(project: string, host: string, minute: number) {
    const key = `${minute} ${project} ${host}`;
    let cell = this.#rows.get(key);
    if (cell === undefined) {
      const row = { project, host, minute, attempt: this.#attempt, requests: 0, attacks: 0 };
      cell = { row: { ...row, categories: [], at: [], kind: [], count: [] }, positions: new Map() };
      this.#rows.set(key, cell);
    }
    return cell;
  }
}

/** Limits a statement to the cells that were counted at the time of the snapshot. */
export const COUNTED = 'attempt <= {version:UInt64} AND NOT has({open:Array(UInt64)}, attempt)';
const IN_PROJECT = 'project = {project:String}';
const ON_HOSTS = 'AND host IN (SELECT arrayJoin({hosts:Array(String)}))';
const WHOLE = `minute >= {from:UInt32} AND minute < {to:UInt32}
           AND minute NOT IN (SELECT arrayJoin({cutCells:Array(UInt32)}))`;
export const TIME = 'toUInt64(minute) * 60000 + at';
const CATEGORY = 'bitAnd(kind, 15)';
const IS_REQUEST = `bitAnd(kind, ${REQUEST}) != 0`;
const CUT = `minute IN (SELECT arrayJoin({cutCells:Array(UInt32)}))
           AND ${TIME} >= {from:UInt64} AND ${TIME} < {to:UInt64}`;

export async function readSeries(
  server: Server,
  snapshot: Snapshot,
  selection: Selection,
  edges: readonly number[],
): Promise<Series> {
  const { where, whole, cut, select } = planQuery(server, snapshot, selection, edges);
  const [inWhole, inCut] = await Promise.all([
    select<SeriesRow>(
      whole,
      `SELECT intDiv(toUInt64(minute) + {shift:UInt64}, {width:UInt64}) AS slot,
         sum(requests) AS requests, sum(attacks) AS attacks
       FROM cells WHERE ${where} AND ${WHOLE} GROUP BY slot`,
    ),
    select<SeriesRow>(
      cut,
      `SELECT intDiv(${TIME} + {shift:UInt64}, {width:UInt64}) AS slot,
         sumIf(count, ${IS_REQUEST}) AS requests, sumIf(count, ${CATEGORY} != ${NO_ATTACK}) AS attacks
       FROM cells ARRAY JOIN at, kind, count WHERE ${where} AND ${CUT} GROUP BY slot`,
    ),
  ]);
  const points = edges.length - 1;
  const series = { requests: new Float64Array(points), attacks: new Float64Array(points) };
  for (const [slots, rows] of [[whole, inWhole] as const, [cut, inCut] as const]) {
    for (const { slot, requests, attacks } of rows) {
      const point = slots?.pointOf(Number(slot)) ?? 0;
      series.requests[point] = (series.requests[point] ?? 0) + Number(requests);
      series.attacks[point] = (series.attacks[point] ?? 0) + Number(attacks);
    }
  }
  return series;
}

interface SeriesRow {
  slot: string;
  requests: string;
  attacks: string;
}

export async function readTotals(
  server: Server,
  snapshot: Snapshot,
  selection: Selection,
  range: readonly [from: number, to: number],
): Promise<Float64Array> {
  const { where, whole, cut, select } = planQuery(server, snapshot, selection, range);
  const [[inWhole], inCut] = await Promise.all([
    select<{ sums: string[] }>(
      whole,
      `SELECT sumForEach(categories) AS sums FROM cells WHERE ${where} AND ${WHOLE} AND attacks > 0`,
    ),
    select<{ category: number; n: string }>(
      cut,
      `SELECT ${CATEGORY} AS category, sum(count) AS n
       FROM cells ARRAY JOIN at, kind, count WHERE ${where} AND ${CUT} AND attacks > 0 AND category != ${NO_ATTACK}
       GROUP BY category`,
    ),
  ]);
  const totals = Float64Array.from(CATEGORIES, (_, category) => Number(inWhole?.sums[category] ?? 0));
  for (const { category, n } of inCut) totals[category] = (totals[category] ?? 0) + Number(n);
  return totals;
}

export async function readSeriesByCategory(
  server: Server,
  snapshot: Snapshot,
  selection: Selection,
  edges: readonly number[],
): Promise<CategorySeries> {
  const { where, whole, cut, select } = planQuery(server, snapshot, selection, edges);
  const [inWhole, inCut] = await Promise.all([
    select<{ slot: string; requests: string; sums: string[] }>(
      whole,
      `SELECT intDiv(toUInt64(minute) + {shift:UInt64}, {width:UInt64}) AS slot,
         sum(requests) AS requests, sumForEach(categories) AS sums
       FROM cells WHERE ${where} AND ${WHOLE} GROUP BY slot`,
    ),
    select<{ slot: string; sort: number; n: string }>(
      cut,
      `SELECT intDiv(${TIME} + {shift:UInt64}, {width:UInt64}) AS slot, kind AS sort, sum(count) AS n
       FROM cells ARRAY JOIN at, kind, count WHERE ${where} AND ${CUT} GROUP BY slot, sort`,
    ),
  ]);
  const points = edges.length - 1;
  const rows = () => CATEGORIES.map(() => new Float64Array(points));
  const series = { requests: new Float64Array(points), attacks: rows(), blocked: rows() };
  for (const { slot, requests, sums } of inWhole) {
    const point = whole?.pointOf(Number(slot)) ?? 0;
    add(series.requests, point, Number(requests));
    for (const category of CATEGORIES.keys()) {
      add(series.attacks[category], point, Number(sums[category] ?? 0));
      add(series.blocked[category], point, Number(sums[FIRST_BLOCKED + category] ?? 0));
    }
  }
  for (const { slot, sort, n } of inCut) {
    const point = cut?.pointOf(Number(slot)) ?? 0;
    if (sort & REQUEST) add(series.requests, point, Number(n));
    // There is no row for NO_ATTACK.
    add(series.attacks[sort & NO_ATTACK], point, Number(n));
    if (sort & BLOCKED) add(series.blocked[sort & NO_ATTACK], point, Number(n));
  }
  return series;
}

function add(row: Float64Array | undefined, point: number, n: number): void {
  if (row !== undefined) row[point] = (row[point] ?? 0) + n;
}

export async function readAttacksByHost(
  server: Server,
  snapshot: Snapshot,
  selection: Selection,
  range: readonly [from: number, to: number],
): Promise<Map<string, number>> {
  const { where, whole, cut, select } = planQuery(server, snapshot, selection, range);
  const onHosts = `${where} AND host != '' AND attacks > 0`;
  const parts = await Promise.all([
    select<{ host: string; n: string }>(
      whole,
      `SELECT host, sum(attacks) AS n FROM cells WHERE ${onHosts} AND ${WHOLE} GROUP BY host`,
    ),
    select<{ host: string; n: string }>(
      cut,
      `SELECT host, sum(count) AS n FROM cells ARRAY JOIN at, kind, count
       WHERE ${onHosts} AND ${CUT} AND ${CATEGORY} != ${NO_ATTACK} GROUP BY host`,
    ),
  ]);
  const attacks = new Map<string, number>();
  for (const { host, n } of parts.flat()) attacks.set(host, (attacks.get(host) ?? 0) + Number(n));
  return attacks;
}

const GROUPS = Object.values(OVERVIEW_GROUPS);
/** The count of each group, as columns n0, n1, ... */
const GROUP_SUMS = GROUPS.map((group, i) => {
  const numbers = group?.map(storedCategory).join(', ');
  return `sumIf(count, ${group === null ? IS_REQUEST : `${CATEGORY} IN (${numbers})`}) AS n${i}`;
}).join(', ');
const GROUP_PEAKS = GROUPS.map((_, i) => `max(n${i}) AS peak${i}`).join(', ');
const SECOND = '(toUInt64(minute) * 60 + intDiv(at, 1000))';
const IN_MINUTES = 'minute >= {firstMinute:UInt32} AND minute < {endMinute:UInt32}';

/** Seconds are summed first; a slot then has the largest of them. Seconds that an edge cuts are summed by point. */
export async function readPeaks(
  server: Server,
  snapshot: Snapshot,
  selection: Selection,
  edges: readonly number[],
  eventsMax = PEAK_EVENTS_MAX,
): Promise<Float64Array[]> {
  const { where, whole, cut, cutCells, values, select } = planQuery(
    server,
    snapshot,
    selection,
    edges,
    SECOND_MS,
  );
  const peaks = GROUPS.map(() => new Float64Array(edges.length - 1));
  if (whole === null && cut === null) return peaks;
  const cutMinutes = [...new Set(cutCells.map((second) => Math.floor(second / 60)))];
  const minutes = {
    firstMinute: Math.floor(Math.max(edges[0] ?? 0, snapshot.state.horizon) / MINUTE_MS),
    endMinute: Math.ceil((edges.at(-1) ?? 0) / MINUTE_MS),
  };
  const [size] = await server.select<{ n: string }>(
    `SELECT sum(length(at)) AS n FROM cells WHERE ${where} AND ${IN_MINUTES}`,
    { ...values, ...minutes },
  );
  if (Number(size?.n ?? 0) > eventsMax) throw new QueryTooLarge();
  const [inWhole, inCut] = await Promise.all([
    select<Record<string, string>>(
      whole,
      `SELECT intDiv(second + {shift:UInt64}, {width:UInt64}) AS slot, ${GROUP_PEAKS} FROM (
         SELECT ${SECOND} AS second, ${GROUP_SUMS} FROM cells ARRAY JOIN at, kind, count
         WHERE ${where} AND ${IN_MINUTES} AND ${SECOND} >= {from:UInt64} AND ${SECOND} < {to:UInt64}
           AND ${SECOND} NOT IN (SELECT arrayJoin({cutCells:Array(UInt64)}))
         GROUP BY second
       ) GROUP BY slot`,
      minutes,
    ),
    select<Record<string, string>>(
      cut,
      `SELECT ${SECOND} AS second, intDiv(${TIME} + {shift:UInt64}, {width:UInt64}) AS slot, ${GROUP_SUMS}
       FROM cells ARRAY JOIN at, kind, count
       WHERE ${where} AND minute IN (SELECT arrayJoin({cutMinutes:Array(UInt32)}))
         AND ${SECOND} IN (SELECT arrayJoin({cutCells:Array(UInt64)}))
         AND ${TIME} >= {from:UInt64} AND ${TIME} < {to:UInt64}
       GROUP BY second, slot`,
      { cutMinutes },
    ),
  ]);
  const raise = (group: number, point: number, n: number) => {
    const row = peaks[group] as Float64Array;
    row[point] = Math.max(row[point] ?? 0, n);
  };
  for (const row of inWhole) {
    const point = whole?.pointOf(Number(row.slot)) ?? 0;
    for (const group of GROUPS.keys()) raise(group, point, Number(row[`peak${group}`]));
  }
  // A second may have several slots in a point.
  const sums = new Map<string, Float64Array>();
  for (const row of inCut) {
    const point = cut?.pointOf(Number(row.slot)) ?? 0;
    const key = `${point} ${row.second}`;
    const sum = sums.get(key) ?? new Float64Array(GROUPS.length);
    sums.set(key, sum);
    for (const group of GROUPS.keys()) {
      add(sum, group, Number(row[`n${group}`]));
      raise(group, point, sum[group] ?? 0);
    }
  }
  return peaks;
}

/** `cellMs`: what is summed as a whole if no edge cuts it, minutes or seconds. */
function planQuery(
  server: Server,
  { version, state }: Snapshot,
  { project, hosts }: Selection,
  edges: readonly number[],
  cellMs = MINUTE_MS,
) {
  const clipped = edges.map((edge) => Math.max(edge, state.horizon));
  const { whole, cut, cutCells } = planCells(clipped, cellMs);
  const open = state.open.map(({ attempt }) => attempt);
  const values: Values = { project, version, open, ...(hosts && { hosts }) };
  const select = async <Row>(slots: Slots | null, sql: string, more: Values = {}): Promise<Row[]> => {
    if (slots === null) return [];
    const { from, to, shift, width } = slots;
    return server.select<Row>(sql, { ...values, cutCells, from, to, shift, width, ...more });
  };
  const where = `${IN_PROJECT} ${hosts ? ON_HOSTS : ''} AND ${COUNTED}`;
  return { where, whole, cut, cutCells, values, select };
}

/** The server sums counts in slots of equal width. Each slot is within one point. */
export interface Slots {
  /** The range to sum, in minutes or milliseconds, `to` excluded. */
  from: number;
  to: number;
  /** x belongs to the slot floor((x + shift) / width). */
  shift: number;
  width: number;
  pointOf(slot: number): number;
}

/** Which cells, minutes or seconds, a query needs as a whole, and which ones it cuts. */
export interface CellPlan {
  /** In cells. Null if no cell is whole. Contains the cut cells, which must be left out. */
  whole: Slots | null;
  /** In milliseconds. Null if no cell is cut. Only events in the cut cells count. */
  cut: Slots | null;
  cutCells: number[];
}

/** `edges` are ascending, and equal where a range was clipped. */
export function planCells(edges: readonly number[], cellMs: number): CellPlan {
  const first = edges[0] ?? 0;
  const last = edges.at(-1) ?? first;
  const cutCells = new Set<number>();
  for (const edge of edges) if (edge % cellMs !== 0) cutCells.add(Math.floor(edge / cellMs));
  const from = Math.ceil(first / cellMs);
  const to = Math.floor(last / cellMs);
  const inside = [...cutCells].filter((cell) => from <= cell && cell < to).length;
  const isEmpty = first >= last;
  // An edge within a cell is rounded down here: the cell itself is left out.
  const cells = edges.map((edge) => Math.floor(edge / cellMs));
  return {
    whole: isEmpty || to - from <= inside ? null : slots(cells, from, to),
    cut: isEmpty || cutCells.size === 0 ? null : slots(edges, first, last),
    cutCells: isEmpty ? [] : [...cutCells],
  };
}

/** The widest slots that no inner edge cuts. */
function slots(edges: readonly number[], from: number, to: number): Slots {
  const inner = edges.slice(1, -1).filter((edge) => from < edge && edge < to);
  const anchor = inner[0] ?? from;
  const width = inner.reduce((common, edge) => commonDivisor(common, edge - anchor), 0) || to - from;
  const shift = (width - (anchor % width)) % width;
  return { from, to, shift, width, pointOf: (slot) => pointAt(edges, Math.max(from, slot * width - shift)) };
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}

/** The last point that begins at or before `at`. Empty points come before it. */
function pointAt(edges: readonly number[], at: number): number {
  let low = 0;
  let high = edges.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((edges[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  return low;
}
