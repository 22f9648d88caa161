/** What a count can be split into: the rows of each kind of query. */
import { CATEGORIES, type Category, OVERVIEW_GROUPS } from '../event.ts';
import { FIRST_BLOCKED, FIRST_CATEGORY, REQUESTS } from './cells.ts';

/** Requests, or attacks of these categories; `blocked`: only those that the log reports as blocked. */
export type Row = null | { categories: readonly Category[]; blocked?: true };

const ATTACKS = { categories: CATEGORIES };
const BY_CATEGORY = CATEGORIES.map((name): Row => ({ categories: [name] }));
const BLOCKED_BY_CATEGORY = CATEGORIES.map((name): Row => ({ categories: [name], blocked: true }));

export const ROWS = {
  /** Requests and attacks. */
  timeline: [null, ATTACKS],
  attacks: [ATTACKS],
  /** Attacks, and those that were blocked. */
  actions: [ATTACKS, { ...ATTACKS, blocked: true }],
  /** Attacks by category, in the order of CATEGORIES. */
  categories: BY_CATEGORY,
  /** Requests, attacks by category, and blocked attacks by category. */
  everything: [null, ...BY_CATEGORY, ...BLOCKED_BY_CATEGORY],
  /** OVERVIEW_GROUPS. */
  groups: Object.values(OVERVIEW_GROUPS).map((group): Row => group && { categories: group }),
} as const satisfies Record<string, readonly Row[]>;

export type RowsName = keyof typeof ROWS;

/** One array of points per row. */
export type Rows<Name extends RowsName> = PointsOf<(typeof ROWS)[Name]>;
type PointsOf<List extends readonly Row[]> = { -readonly [row in keyof List]: Float64Array };

/** How stores count rows from series of cells (cells.ts). */
interface RowLayout {
  /** The row of each series, or -1 for series that are not counted. */
  rowOf: Int8Array;
  /** The rows to count. If there is one more, it is the sum of the attacks in these. */
  count: number;
  hasTotal: boolean;
}

export const LAYOUTS = Object.fromEntries(
  Object.entries(ROWS).map(([name, rows]) => [name, layoutOf(rows)]),
) as Record<RowsName, RowLayout>;

function layoutOf(rows: readonly Row[]): RowLayout {
  const rowOf = new Int8Array(FIRST_BLOCKED + CATEGORIES.length).fill(-1);
  const firstRow = (name: Category, blocked: true | undefined) =>
    rows.findIndex((row) => row?.categories.includes(name) && row.blocked === blocked);
  rowOf[REQUESTS] = rows.indexOf(null);
  for (const [category, name] of CATEGORIES.entries()) {
    rowOf[FIRST_CATEGORY + category] = firstRow(name, undefined);
    rowOf[FIRST_BLOCKED + category] = firstRow(name, true);
  }
  // A series has one row. A last row without series of its own counts those of the others.
  const hasTotal = !rowOf.includes(rows.length - 1);
  return { rowOf, count: hasTotal ? rows.length - 1 : rows.length, hasTotal };
}

/** The rows of counts that are stored row by row, from the row `first` on. */
export function splitRows({ count, hasTotal }: RowLayout, counts: Float64Array, points: number, first = 0) {
  const rows: Float64Array[] = [];
  for (let row = first; row < first + count; row++)
    rows.push(counts.subarray(row * points, (row + 1) * points));
  if (hasTotal) rows.push(sumOf(rows.slice(1)));
  return rows;
}

function sumOf([first = new Float64Array(0), ...others]: readonly Float64Array[]): Float64Array {
  const sums = first.slice();
  for (const row of others) for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] ?? 0) + (row[i] ?? 0);
  return sums;
}
