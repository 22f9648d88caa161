/** Cells: what one attempt counts in one minute of one host, with the exact milliseconds beside the sums. */
import { CATEGORIES, categoryNumber, type Event } from '../../event.ts';
import type { Series } from '../store.ts';
import { planMinutes, type Slots } from './edges.ts';
import type { Page } from './ledger.ts';
import type { Values } from './literals.ts';
import type { Server } from './server.ts';

const MINUTE_MS = 60_000;
/** The kind of an event is its category's number, or this, and REQUEST on top if it is a request. */
export const NO_ATTACK = 15;
export const REQUEST = 16;

export interface CellRow {
  project: string;
  /** '' for events of no known host. */
  host: string;
  minute: number;
  attempt: number;
  requests: number;
  attacks: number;
  /** Attacks by category; empty when there are none. */
  categories: number[];
  /** Events one by one: the millisecond in the minute, the kind, how often. */
  at: number[];
  kind: number[];
  count: number[];
}

/** The events of projects as rows. Equal events become one with the sum of their counts. */
export class CellRows {
  readonly #attempt: number;
  readonly #rows = new Map<string, { row: CellRow; places: Map<number, number> }>();

  constructor(attempt: number) {
    this.#attempt = attempt;
  }

  add(project: string, { time, hostId, request, attack, count }: Event): void {
    const minute = Math.floor(time / MINUTE_MS);
    const category = attack === null ? NO_ATTACK : (categoryNumber(attack) ?? NO_ATTACK);
    const { row, places } = this.#cell(project, hostId ?? '', minute);
    if (request) row.requests += count;
    if (attack !== null) {
      if (row.attacks === 0) row.categories = CATEGORIES.map(() => 0);
      row.attacks += count;
      row.categories[category] = (row.categories[category] ?? 0) + count;
    }
    const kind = category + (request ? REQUEST : 0);
    const at = time - minute * MINUTE_MS;
    const place = places.get(at * 2 * REQUEST + kind);
    if (place === undefined) {
      places.set(at * 2 * REQUEST + kind, row.at.length);
      row.at.push(at);
      row.kind.push(kind);
      row.count.push(count);
    } else row.count[place] = (row.count[place] ?? 0) + count;
  }

  rows(): CellRow[] {
    return Array.from(this.#rows.values(), ({ row }) => row);
  }

  #cell(project: string, host: string, minute: number) {
    const key = `${minute} ${project} ${host}`;
    let cell = this.#rows.get(key);
    if (cell === undefined) {
      const row = { project, host, minute, attempt: this.#attempt, requests: 0, attacks: 0 };
      cell = { row: { ...row, categories: [], at: [], kind: [], count: [] }, places: new Map() };
      this.#rows.set(key, cell);
    }
    return cell;
  }
}

interface Scope {
  project: string;
  hosts?: readonly string[] | undefined;
}

/** What had been counted when the page was read, in every part of every answer. */
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
  page: Page,
  scope: Scope,
  edges: readonly number[],
): Promise<Series> {
  const points = edges.length - 1;
  const series = { requests: new Float64Array(points), attacks: new Float64Array(points) };
  const { where, values, whole, cut } = question(page, scope, edges);
  const add = (slots: Slots, rows: { slot: string; requests: string; attacks: string }[]) => {
    for (const { slot, requests, attacks } of rows) {
      const point = slots.pointOf(Number(slot));
      series.requests[point] = (series.requests[point] ?? 0) + Number(requests);
      series.attacks[point] = (series.attacks[point] ?? 0) + Number(attacks);
    }
  };
  await Promise.all([
    whole &&
      server
        .select<{ slot: string; requests: string; attacks: string }>(
          `SELECT intDiv(toUInt64(minute) + {shift:UInt64}, {width:UInt64}) AS slot,
             sum(requests) AS requests, sum(attacks) AS attacks
           FROM cells WHERE ${where} AND ${WHOLE} GROUP BY slot`,
          { ...values, ...numbers(whole) },
        )
        .then((rows) => add(whole, rows)),
    cut &&
      server
        .select<{ slot: string; requests: string; attacks: string }>(
          `SELECT intDiv(${TIME} + {shift:UInt64}, {width:UInt64}) AS slot,
             sumIf(count, kind >= ${REQUEST}) AS requests, sumIf(count, bitAnd(kind, 15) != ${NO_ATTACK}) AS attacks
           FROM cells ARRAY JOIN at, kind, count WHERE ${where} AND ${CUT} GROUP BY slot`,
          { ...values, ...numbers(cut) },
        )
        .then((rows) => add(cut, rows)),
  ]);
  return series;
}

export async function readTotals(
  server: Server,
  page: Page,
  scope: Scope,
  range: readonly [from: number, to: number],
): Promise<Float64Array> {
  const totals = new Float64Array(CATEGORIES.length);
  const add = (category: number, n: string | number) => {
    totals[category] = (totals[category] ?? 0) + Number(n);
  };
  const { where, values, whole, cut } = question(page, scope, range);
  await Promise.all([
    whole &&
      server
        .select<{ sums: string[] }>(
          `SELECT sumForEach(categories) AS sums FROM cells WHERE ${where} AND ${WHOLE} AND attacks > 0`,
          { ...values, ...numbers(whole) },
        )
        .then(([row]) => {
          for (const [category, n] of (row?.sums ?? []).entries()) add(category, n);
        }),
    cut &&
      server
        .select<{ category: number; n: string }>(
          `SELECT bitAnd(kind, 15) AS category, sum(count) AS n
           FROM cells ARRAY JOIN at, kind, count WHERE ${where} AND ${CUT} AND attacks > 0 AND category != ${NO_ATTACK}
           GROUP BY category`,
          { ...values, ...numbers(cut) },
        )
        .then((rows) => {
          for (const { category, n } of rows) add(Number(category), n);
        }),
  ]);
  return totals;
}

function question({ version, head }: Page, { project, hosts }: Scope, edges: readonly number[]) {
  const { whole, cut, cutMinutes } = planMinutes(edges.map((edge) => Math.max(edge, head.horizon)));
  const values: Values = { project, version, open: head.open.map(({ attempt }) => attempt), cutMinutes };
  return hosts === undefined
    ? { where: `${IN_PROJECT} AND ${COUNTED}`, values, whole, cut }
    : { where: `${IN_PROJECT} ${ON_HOSTS} AND ${COUNTED}`, values: { ...values, hosts }, whole, cut };
}

function numbers({ from, to, shift, width }: Slots): Values {
  return { from, to, shift, width };
}
