/** Cells: the counts of one attempt in one minute of one host, as sums and as exact milliseconds. */
import { CATEGORIES, type Event } from '../../event.ts';
import { type Selection, type Series, storedCategory } from '../store.ts';
import type { Snapshot } from './ledger.ts';
import type { Server, Values } from './server.ts';

const MINUTE_MS = 60_000;
/** The kind of an event is the number of its category, or NO_ATTACK, plus REQUEST if it is a request. */
export const NO_ATTACK = 15;
export const REQUEST = 16;

export interface CellRow {
  project: string;
  /** '' for events without a registered host. */
  host: string;
  minute: number;
  attempt: number;
  requests: number;
  attacks: number;
  /** Attacks by category. Empty if there are none. */
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

  add(project: string, { time, hostId, request, attack, count }: Event): void {
    const minute = Math.floor(time / MINUTE_MS);
    const category = attack === null ? NO_ATTACK : storedCategory(attack);
    const { row, positions } = this.#cell(project, hostId ?? '', minute);
    if (request) row.requests += count;
    if (attack !== null) {
      if (row.attacks === 0) row.categories = CATEGORIES.map(() => 0);
      row.attacks += count;
      row.categories[category] = (row.categories[category] ?? 0) + count;
    }
    const kind = category + (request ? REQUEST : 0);
    const at = time - minute * MINUTE_MS;
    const position = positions.get(at * 2 * REQUEST + kind);
    if (position === undefined) {
      positions.set(at * 2 * REQUEST + kind, row.at.length);
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
           AND minute NOT IN (SELECT arrayJoin({cutMinutes:Array(UInt32)}))`;
export const TIME = 'toUInt64(minute) * 60000 + at';
const CUT = `minute IN (SELECT arrayJoin({cutMinutes:Array(UInt32)}))
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
         sumIf(count, kind >= ${REQUEST}) AS requests, sumIf(count, bitAnd(kind, 15) != ${NO_ATTACK}) AS attacks
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
      `SELECT bitAnd(kind, 15) AS category, sum(count) AS n
       FROM cells ARRAY JOIN at, kind, count WHERE ${where} AND ${CUT} AND attacks > 0 AND category != ${NO_ATTACK}
       GROUP BY category`,
    ),
  ]);
  const totals = Float64Array.from(CATEGORIES, (_, category) => Number(inWhole?.sums[category] ?? 0));
  for (const { category, n } of inCut) totals[category] = (totals[category] ?? 0) + Number(n);
  return totals;
}

function planQuery(
  server: Server,
  { version, state }: Snapshot,
  { project, hosts }: Selection,
  edges: readonly number[],
) {
  const { whole, cut, cutMinutes } = planMinutes(edges.map((edge) => Math.max(edge, state.horizon)));
  const open = state.open.map(({ attempt }) => attempt);
  const values: Values = { project, version, open, cutMinutes, ...(hosts && { hosts }) };
  const select = async <Row>(slots: Slots | null, sql: string): Promise<Row[]> => {
    if (slots === null) return [];
    const { from, to, shift, width } = slots;
    return server.select<Row>(sql, { ...values, from, to, shift, width });
  };
  return { where: `${IN_PROJECT} ${hosts ? ON_HOSTS : ''} AND ${COUNTED}`, whole, cut, select };
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

/** Which minutes a query needs as a whole, and which ones it cuts. */
export interface MinutePlan {
  /** In minutes. Null if no minute is whole. Contains the cut minutes, which must be left out. */
  whole: Slots | null;
  /** In milliseconds. Null if no minute is cut. Only events in the cut minutes count. */
  cut: Slots | null;
  cutMinutes: number[];
}

/** `edges` are ascending, and equal where a range was clipped. */
export function planMinutes(edges: readonly number[]): MinutePlan {
  const first = edges[0] ?? 0;
  const last = edges.at(-1) ?? first;
  const cutMinutes = new Set<number>();
  for (const edge of edges) if (edge % MINUTE_MS !== 0) cutMinutes.add(Math.floor(edge / MINUTE_MS));
  const from = Math.ceil(first / MINUTE_MS);
  const to = Math.floor(last / MINUTE_MS);
  const inside = [...cutMinutes].filter((minute) => from <= minute && minute < to).length;
  const isEmpty = first >= last;
  // An edge within a minute is rounded down here: the minute itself is left out.
  const minutes = edges.map((edge) => Math.floor(edge / MINUTE_MS));
  return {
    whole: isEmpty || to - from <= inside ? null : slots(minutes, from, to),
    cut: isEmpty || cutMinutes.size === 0 ? null : slots(edges, first, last),
    cutMinutes: isEmpty ? [] : [...cutMinutes],
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
