/** What a count can be split into: the rows of each kind of query. */
import { CATEGORIES, type Category, CODE_CLASSES, OVERVIEW_GROUPS, RESPONSE_CODES } from '../event.ts';
import {
  BYTES_IN,
  BYTES_OUT,
  FIRST_BLOCKED,
  FIRST_CATEGORY,
  FIRST_CODE,
  FIRST_UPSTREAM_CODE,
  FIRST_WAF_CODE,
  REQUESTS,
  REQUESTS_WITHOUT_CODE,
  SERIES_END,
} from './cells.ts';

/**
 * Requests; attacks of these categories (`blocked`: only those that the log reports as blocked); requests with these response
 * codes (`upstream`: of the server behind the firewall); or bytes.
 */
export type Row =
  | null
  | { categories: readonly Category[]; blocked?: true }
  | { codes: readonly number[]; upstream?: true }
  | { bytes: 'in' | 'out' };

const ATTACKS = { categories: CATEGORIES };
const BY_CATEGORY = CATEGORIES.map((name): Row => ({ categories: [name] }));
const BLOCKED_BY_CATEGORY = CATEGORIES.map((name): Row => ({ categories: [name], blocked: true }));

const CODES_BY_CLASS = CODE_CLASSES.map((name) =>
  RESPONSE_CODES.filter((code) => (code === 0 ? name === 'none' : name.startsWith(String(code)[0] ?? ''))),
);

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
  /** Requests by response code, in the order of RESPONSE_CODES. Like the classes, they add up to the requests. */
  codes: RESPONSE_CODES.map((code): Row => ({ codes: [code] })),
  upstreamCodes: RESPONSE_CODES.map((code): Row => ({ codes: [code], upstream: true })),
  /** Requests by CODE_CLASSES. */
  codeClasses: CODE_CLASSES.map((_, i): Row => ({ codes: CODES_BY_CLASS[i] ?? [] })),
  /** Bytes count at the start of their minute: edges should be whole minutes. */
  traffic: [{ bytes: 'in' }, { bytes: 'out' }],
} as const satisfies Record<string, readonly Row[]>;

export type RowsName = keyof typeof ROWS;

/** One array of points per row. */
export type Rows<Name extends RowsName> = PointsOf<(typeof ROWS)[Name]>;
type PointsOf<List extends readonly Row[]> = { -readonly [row in keyof List]: Float64Array };

/** How stores count rows from series of cells (cells.ts). */
interface RowLayout {
  /** The row of each series, or -1 for series that are not counted. */
  rowOf: Int16Array;
  /** The rows to count. */
  count: number;
  /** The rows of the query are those that are counted and the sum of the attacks in these. */
  hasTotal: boolean;
  /**
   * The row with the code 200: it gets all requests with a code, from which the other rows are subtracted. Requests without a
   * code are then in one more row, and belong to the last of the others. -1 if there are no codes.
   */
  rest: number;
  /** Rows of bytes: no sum is larger than the largest safe integer, as in cells. */
  isBytes: boolean;
}

export const LAYOUTS = Object.fromEntries(
  Object.entries(ROWS).map(([name, rows]) => [name, layoutOf(rows)]),
) as Record<RowsName, RowLayout>;

function layoutOf(rows: readonly Row[]): RowLayout {
  const rowOf = new Int16Array(SERIES_END).fill(-1);
  const rest = rows.findIndex((row) => row && 'codes' in row && row.codes.includes(200));
  for (const [number, row] of rows.entries()) {
    for (const series of number === rest ? [REQUESTS] : seriesIn(row)) {
      if (rowOf[series] === -1) rowOf[series] = number;
    }
  }
  if (rest >= 0) {
    rowOf[REQUESTS_WITHOUT_CODE] = rows.length;
    return { rowOf, count: rows.length + 1, hasTotal: false, rest, isBytes: false };
  }
  // A series has one row. A last row without series of its own counts those of the others.
  const hasTotal = !rowOf.includes(rows.length - 1);
  const isBytes = rowOf[BYTES_IN] !== -1;
  return { rowOf, count: hasTotal ? rows.length - 1 : rows.length, hasTotal, rest, isBytes };
}

function seriesIn(row: Row): number[] {
  if (row === null) return [REQUESTS, REQUESTS_WITHOUT_CODE];
  if ('bytes' in row) return [row.bytes === 'in' ? BYTES_IN : BYTES_OUT];
  if ('categories' in row) {
    const first = row.blocked ? FIRST_BLOCKED : FIRST_CATEGORY;
    return row.categories.map((name) => first + CATEGORIES.indexOf(name));
  }
  const others = row.upstream ? FIRST_UPSTREAM_CODE : FIRST_WAF_CODE;
  return row.codes.flatMap((code) => {
    const number = RESPONSE_CODES.indexOf(code);
    return [FIRST_CODE + number, others + number];
  });
}

/** The rows of counts that are stored row by row, from the row `first` on. Changes rows of response codes. */
export function splitRows(
  { count, hasTotal, rest, isBytes }: RowLayout,
  counts: Float64Array,
  points: number,
  first = 0,
) {
  const rows: Float64Array[] = [];
  for (let row = first; row < first + count; row++)
    rows.push(counts.subarray(row * points, (row + 1) * points));
  if (isBytes) return rows.map((row) => row.map((bytes) => Math.min(bytes, Number.MAX_SAFE_INTEGER)));
  if (hasTotal) rows.push(sumOf(rows.slice(1)));
  const [ofOk, withoutCode] = rest < 0 ? [] : [rows[rest], rows.pop()];
  if (ofOk === undefined || withoutCode === undefined) return rows;
  for (const row of rows) if (row !== ofOk) add(ofOk, row, -1);
  add(rows.at(-1) ?? withoutCode, withoutCode, 1);
  return rows;
}

function add(counts: Float64Array, others: Float64Array, sign: 1 | -1): void {
  for (let i = 0; i < counts.length; i++) counts[i] = (counts[i] ?? 0) + sign * (others[i] ?? 0);
}

function sumOf([first = new Float64Array(0), ...others]: readonly Float64Array[]): Float64Array {
  const sums = first.slice();
  for (const row of others) for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] ?? 0) + (row[i] ?? 0);
  return sums;
}
