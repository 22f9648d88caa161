/** Counts of points: requests, attacks by category, and responses. All rows have the same points. */
import { ATTACK_TYPES, type AttackType, type AttackTypes } from '@wafstat/client';

type ByCategory = Readonly<Record<AttackType, readonly number[]>>;

/** Requests by class of their response code, and the bytes that clients sent and got. */
const RESPONSE_ROWS = ['1xx', '2xx', '3xx', '4xx', '5xx', 'none', 'received', 'sent'] as const;
type Responses = Readonly<Record<(typeof RESPONSE_ROWS)[number], readonly number[]>>;

export interface Counts {
  requests: readonly number[];
  attacks: ByCategory;
  /** Attacks that the firewall blocked. */
  blocked: ByCategory;
  /** All zero if they were not requested. */
  responses: Responses;
}

/** As the service sends them: without rows that are zero. */
export interface SentCounts extends Pick<Counts, 'requests'> {
  attacks: Partial<ByCategory>;
  blocked: Partial<ByCategory>;
  responses?: Partial<Responses>;
}

export function withAllCategories({ requests, attacks, blocked, responses = {} }: SentCounts): Counts {
  const none = requests.map(() => 0);
  const all = (rows: Partial<ByCategory>) => byCategory((name) => rows[name] ?? none);
  return {
    ...{ requests, attacks: all(attacks), blocked: all(blocked) },
    responses: byResponse((name) => responses[name] ?? none),
  };
}

/** The points from `start` to `end` (exclusive). */
export function slicePoints(counts: Counts, start: number, end?: number): Counts {
  return mapRows(counts, counts, (row) => row.slice(start, end));
}

/** The points before `start`, then others. */
export function replacePoints(counts: Counts, start: number, others: Counts): Counts {
  return mapRows(counts, others, (row, other) => [...row.slice(0, start), ...other]);
}

type Row = readonly number[];

function mapRows(one: Counts, other: Counts, change: (row: Row, other: Row) => Row): Counts {
  const rows = (kind: 'attacks' | 'blocked') =>
    byCategory((name) => change(one[kind][name], other[kind][name]));
  return {
    requests: change(one.requests, other.requests),
    attacks: rows('attacks'),
    blocked: rows('blocked'),
    responses: byResponse((name) => change(one.responses[name], other.responses[name])),
  };
}

/** The sum of some categories, in each point. */
export function sumOf(rows: ByCategory, categories: readonly AttackType[]): number[] {
  return rows.xss.map((_, i) => total(categories.map((name) => rows[name][i] ?? 0)));
}

/** The sum of all points, by category. */
export function totalsOf(rows: ByCategory): AttackTypes {
  return byCategory((name) => total(rows[name]));
}

export function total(counts: readonly number[]): number {
  return counts.reduce((sum, n) => sum + n, 0);
}

function byResponse(rowOf: (name: (typeof RESPONSE_ROWS)[number]) => Row): Responses {
  // The entries have every row.
  return Object.fromEntries(RESPONSE_ROWS.map((name) => [name, rowOf(name)])) as Responses;
}

function byCategory<T>(rowOf: (name: AttackType) => T): Record<AttackType, T> {
  // The entries have every category.
  return Object.fromEntries(ATTACK_TYPES.map((name) => [name, rowOf(name)])) as Record<AttackType, T>;
}
