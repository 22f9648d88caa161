/**
 * The encoding of a record: the non-zero cells of each series. docs/storage.md has the layout.
 *
 *   record  = section*                      in ascending order of series
 *   section = series length cell*           `length` is the size of the cells in bytes
 *   cell    = gap*2 + (count > 1) [count]   `gap` is the number of zero cells before this one
 *
 * The embedded store puts a checksum before each record; functions here take and return records without it. Readers skip
 * unknown series, so new ones can be added without rewriting stored records.
 */
import {
  CATEGORIES,
  type Category,
  EVENT_COUNT_MAX,
  type Event,
  OVERVIEW_GROUPS,
  RESPONSE_CODES,
} from '../event.ts';
import type { ChunkPlan } from './plan.ts';
import { NumberReader, type RecordWriter } from './record-bytes.ts';

/**
 * Series are numbered on disk: requests with a response code; attacks by category, in the order of CATEGORIES, append only;
 * requests without a response code; and blocked attacks by category. The gap leaves room for more categories.
 */
export const REQUESTS = 0;
export const FIRST_CATEGORY = 1;
export const REQUESTS_WITHOUT_CODE = 31;
export const FIRST_BLOCKED = 32;
/**
 * The peak of each of OVERVIEW_GROUPS: the count of its busiest second. Only counters have peaks, and only those above 1: a
 * group with counts but no peak has the peak 1. Merging cells of these series keeps the larger value.
 */
export const FIRST_PEAK = 64;
/**
 * What REQUESTS are by response code, in the order of RESPONSE_CODES: those with one code; and of requests to which the firewall
 * responded differently from the server behind it, the code of the firewall, and that of the server. There are no cells of code
 * 200: most requests have it, so it is what the others leave (rows.ts).
 */
export const FIRST_CODE = 128;
export const FIRST_WAF_CODE = 640;
export const FIRST_UPSTREAM_CODE = 1_152;
/** Sums of bytes by minute, up to the largest safe integer: exact records have them in their first cell. */
export const BYTES_IN = 2_046;
export const BYTES_OUT = 2_047;
export const SERIES_END = 2_048;

export const OK = RESPONSE_CODES.indexOf(200);
export const NO_CODE = RESPONSE_CODES.indexOf(0);

export const GROUPS = Object.values(OVERVIEW_GROUPS);
/** The row of each series: its position in GROUPS. All attacks, the last group, are the sum of the rows before. */
export const GROUP_ROWS = new Int16Array(FIRST_BLOCKED).fill(-1);
GROUP_ROWS[REQUESTS] = GROUPS.indexOf(null);
GROUP_ROWS[REQUESTS_WITHOUT_CODE] = GROUPS.indexOf(null);
for (const [category, name] of CATEGORIES.entries()) {
  GROUP_ROWS[FIRST_CATEGORY + category] = GROUPS.findIndex((group) => group?.includes(name));
}

const SECONDS = 60;
const SECOND_MS = 1_000;
/** The seconds of a minute, as runs (plan.ts). */
export const SECOND_RUNS = [0, SECONDS * SECOND_MS, 0, SECOND_MS];

export function isPeak(series: number): boolean {
  return series >= FIRST_PEAK && series < FIRST_PEAK + GROUPS.length;
}

/**
 * The count of a cell that gets another one. Sums of bytes stay at the largest exact number: else a few records with absurd
 * sizes would keep all others of their hour from being stored.
 */
export function addCount(series: number, known: number, added: number): number {
  if (isPeak(series)) return Math.max(known, added);
  return series < BYTES_IN ? known + added : Math.min(known + added, Number.MAX_SAFE_INTEGER);
}

/** What a series counts: blocked attacks also count as attacks. Null for a series of a later release. */
export function describeSeries(series: number): { attack: Category | null; blocked: boolean } | null {
  if (series === REQUESTS || series === REQUESTS_WITHOUT_CODE) return { attack: null, blocked: false };
  const blocked = series >= FIRST_BLOCKED;
  const attack = CATEGORIES[series - (blocked ? FIRST_BLOCKED : FIRST_CATEGORY)];
  return attack === undefined ? null : { attack, blocked };
}

/** For messages. */
export function seriesName(series: number): string {
  if (isPeak(series)) return `peak of ${Object.keys(OVERVIEW_GROUPS)[series - FIRST_PEAK]}`;
  if (series === BYTES_IN || series === BYTES_OUT) return series === BYTES_IN ? 'bytes in' : 'bytes out';
  if (series >= FIRST_CODE) return `response codes (series ${series})`;
  const { attack, blocked } = describeSeries(series) ?? {};
  if (attack === undefined) return `series ${series}`;
  if (attack === null) return series === REQUESTS ? 'requests' : 'requests without a response code';
  return blocked ? `blocked ${attack}` : attack;
}

/** Counts in as few bytes as they need: most are small. */
export type CountArray = Uint16Array | Uint32Array | Float64Array;

/** Additions to a record: codes (see cellCode) in ascending order, and a count for each. */
export interface Additions {
  codes: number[];
  counts: number[];
}

export function additionsOf(cells: ReadonlyMap<number, number>): Additions {
  const sorted = [...cells].sort(([a], [b]) => a - b);
  return { codes: sorted.map(([code]) => code), counts: sorted.map(([, count]) => count) };
}

/** Series and cell as one number, which sorts like the cells of a record. A chunk has at most 2^16 cells. */
export function cellCode(series: number, cell: number): number {
  return series * 65_536 + cell;
}

export function seriesOf(code: number): number {
  return Math.floor(code / 65_536);
}

export function cellOf(code: number): number {
  return code % 65_536;
}

/** Larger than EVENT_COUNT_MAX: cell and count of one event fit into one number, which sorts by cell. */
const COUNT_BASE = 2 ** 20;

/** A cell and a count of at most EVENT_COUNT_MAX as one number, which sorts like the cell. */
export function packCell(code: number, count: number): number {
  return code * COUNT_BASE + count;
}

/** Sums equal packed cells. A typed array sorts several times faster than an array. */
export function sumCells(packed: number[]): Additions {
  const sorted = Float64Array.from(packed).sort();
  const codes: number[] = [];
  const counts: number[] = [];
  for (const value of sorted) {
    const code = Math.floor(value / COUNT_BASE);
    const count = value - code * COUNT_BASE;
    if (codes.length > 0 && codes[codes.length - 1] === code) {
      counts[counts.length - 1] = (counts[counts.length - 1] ?? 0) + count;
    } else {
      codes.push(code);
      counts.push(count);
    }
  }
  return { codes, counts };
}

/** The sum of each series in the minute. */
export function seriesTotals({ codes, counts }: Additions): [number, number][] {
  const totals: [number, number][] = [];
  for (let i = 0; i < codes.length; ) {
    const series = seriesOf(codes[i] ?? 0);
    let total = 0;
    for (; i < codes.length && seriesOf(codes[i] ?? 0) === series; i++) total += counts[i] ?? 0;
    totals.push([series, total]);
  }
  return totals;
}

/**
 * Adds the cells of a record to the points of a plan: `out[row * points + point] += count`. `rowOf[series]` is the row,
 * or negative for a series that the query does not count.
 */
export function accumulate(
  record: Uint8Array,
  runs: ChunkPlan['runs'],
  rowOf: Int16Array,
  points: number,
  out: Float64Array,
): void {
  const reader = new NumberReader(record);
  while (reader.at < record.length) {
    const row = rowOf[reader.number()] ?? -1;
    const end = reader.number() + reader.at;
    if (row >= 0) accumulateSection(reader, end, runs, row * points, out);
    reader.at = end;
  }
}

function accumulateSection(
  reader: NumberReader,
  end: number,
  runs: readonly number[],
  base: number,
  out: Float64Array,
): void {
  let cell = -1;
  let run = -4;
  let runFirst = 0;
  let runEnd = 0;
  let cellsInPoint = 1;
  let index = base;
  let pointEnd = 0;
  while (reader.at < end) {
    const token = reader.number();
    const count = token & 1 ? reader.number() : 1;
    cell += (token >> 1) + 1;
    while (cell >= runEnd) {
      run += 4;
      if (run >= runs.length) return;
      runFirst = runs[run] ?? 0;
      runEnd = runs[run + 1] ?? 0;
      index = base + (runs[run + 2] ?? 0);
      cellsInPoint = runs[run + 3] ?? 1;
      pointEnd = runFirst + cellsInPoint;
    }
    if (cell < runFirst) continue;
    while (cell >= pointEnd) {
      pointEnd += cellsInPoint;
      index++;
    }
    out[index] = (out[index] ?? 0) + count;
  }
}

/** All non-zero cells of a record. */
export function* readCells(record: Uint8Array): Generator<[code: number, count: number]> {
  const reader = new NumberReader(record);
  while (reader.at < record.length) {
    let code = cellCode(reader.number(), -1);
    const end = reader.number() + reader.at;
    while (reader.at < end) {
      const token = reader.number();
      code += Math.floor(token / 2) + 1;
      yield [code, token % 2 === 1 ? reader.number() : 1];
    }
  }
}

/**
 * The events in a record of exact milliseconds that begins at `start`. Requests and attacks are counted separately, so a
 * request that was an attack becomes two events.
 */
export function* eventsOfCells(
  start: number,
  cells: ReadonlyMap<number, number>,
  hostId: string | null,
): Generator<Event> {
  const responses = responsesByCell(cells);
  const bytes = [BYTES_IN, BYTES_OUT].map((series) => cells.get(cellCode(series, 0)) || undefined);
  let [bytesIn, bytesOut] = bytes;
  for (const [code, count] of cells) {
    const { attack, blocked } = describeSeries(seriesOf(code)) ?? {};
    if (attack === undefined) continue;
    const event = { time: start + cellOf(code), hostId, attack };
    if (attack === null) {
      const split =
        seriesOf(code) === REQUESTS
          ? splitResponses(responses.get(cellOf(code)), count)
          : [{ requests: count, status: undefined }];
      for (const { requests, ...codes } of split) {
        for (const one of splitCount({ ...event, request: true, ...codes }, requests)) {
          yield bytesIn === undefined && bytesOut === undefined ? one : { ...one, bytesIn, bytesOut };
          bytesIn = undefined;
          bytesOut = undefined;
        }
      }
    } else if (blocked) yield* splitCount({ ...event, request: false, details: { blocked } }, count);
    else {
      const blockedCode = cellCode(seriesOf(code) - FIRST_CATEGORY + FIRST_BLOCKED, cellOf(code));
      yield* splitCount({ ...event, request: false }, count - (cells.get(blockedCode) ?? 0));
    }
  }
}

/** Requests of one millisecond by code: with one code; and with two of them, by each. */
type Responses = [same: CodeCount[], waf: CodeCount[], upstream: CodeCount[]];
type CodeCount = [code: number, requests: number];

function responsesByCell(cells: ReadonlyMap<number, number>): Map<number, Responses> {
  const found = new Map<number, Responses>();
  for (const [code, count] of cells) {
    const series = seriesOf(code);
    const first = [FIRST_UPSTREAM_CODE, FIRST_WAF_CODE, FIRST_CODE].find((one) => series >= one);
    const status = RESPONSE_CODES[series - (first ?? 0)];
    if (first === undefined || status === undefined || count === 0) continue;
    const responses = found.get(cellOf(code)) ?? [[], [], []];
    found.set(cellOf(code), responses);
    responses[first === FIRST_CODE ? 0 : first === FIRST_WAF_CODE ? 1 : 2].push([status, count]);
  }
  return found;
}

/** Which codes belong to one request is not stored: any combination counts the same. */
function* splitResponses([same, waf, upstream]: Responses = [[], [], []], requests: number) {
  let left = requests;
  for (const [code, count] of same) {
    left -= count;
    yield { requests: count, status: code };
  }
  for (let [w, u] = [0, 0]; w < waf.length || u < upstream.length; ) {
    const one = waf[w] ?? [200, Number.POSITIVE_INFINITY];
    const other = upstream[u] ?? [200, Number.POSITIVE_INFINITY];
    const count = Math.min(one[1], other[1]);
    left -= count;
    one[1] -= count;
    other[1] -= count;
    if (one[1] === 0) w++;
    if (other[1] === 0) u++;
    yield { requests: count, status: one[0] || undefined, upstreamStatus: other[0] };
  }
  yield { requests: left, status: 200 };
}

/** Events that add up to this total, for `events`: a single event could exceed EVENT_COUNT_MAX. */
function* splitCount(event: Omit<Event, 'count'>, total: number): Generator<Event> {
  for (let left = total; left > 0; left -= EVENT_COUNT_MAX) {
    yield { ...event, count: Math.min(left, EVENT_COUNT_MAX) };
  }
}

const secondsOfMinute = new Float64Array(GROUPS.length * SECONDS);

/** The peaks of an exact record above 1, by series. */
export function peaksOf(record: Uint8Array): [series: number, peak: number][] {
  secondsOfMinute.fill(0);
  accumulate(record, SECOND_RUNS, GROUP_ROWS, SECONDS, secondsOfMinute);
  addAllAttacks(secondsOfMinute);
  const peaks: [number, number][] = [];
  for (let row = 0; row < GROUPS.length; row++) {
    const peak = largest(secondsOfMinute, row * SECONDS, (row + 1) * SECONDS);
    if (peak > 1) peaks.push([FIRST_PEAK + row, peak]);
  }
  return peaks;
}

export function largest(numbers: CountArray, from: number, to: number): number {
  let found = 0;
  for (let i = from; i < to; i++) if ((numbers[i] ?? 0) > found) found = numbers[i] ?? 0;
  return found;
}

/** Fills in the last group from counts by group. */
export function addAllAttacks(counts: Float64Array): void {
  const length = counts.length / GROUPS.length;
  const last = length * (GROUPS.length - 1);
  counts.fill(0, last);
  for (let row = length; row < last; row += length) {
    for (let i = 0; i < length; i++) counts[last + i] = (counts[last + i] ?? 0) + (counts[row + i] ?? 0);
  }
}

/** The record with the additions. The result is a view that the next call overwrites. */
export function mergeCells(
  record: Uint8Array | undefined,
  additions: Additions,
  writer: RecordWriter,
): Uint8Array {
  const { codes } = additions;
  writer.clear();
  const old = new NumberReader(record ?? new Uint8Array(0));
  let next = 0;
  const oldLength = record?.length ?? 0;
  while (old.at < oldLength || next < codes.length) {
    const nextSeries = next < codes.length ? seriesOf(codes[next] ?? 0) : Number.POSITIVE_INFINITY;
    const sectionStart = old.at;
    const oldSeries = old.at < oldLength ? old.number() : Number.POSITIVE_INFINITY;
    const oldEnd = old.at < oldLength ? old.number() + old.at : oldLength;
    if (oldSeries < nextSeries) {
      writer.copy(old.bytes, sectionStart, oldEnd);
      old.at = oldEnd;
      continue;
    }
    if (nextSeries < oldSeries) old.at = sectionStart;
    const sectionEnd = oldSeries === nextSeries ? oldEnd : old.at;
    next = mergeSection(old, sectionEnd, nextSeries, additions, next, writer);
  }
  return writer.bytes();
}

/** Writes one series: its old cells up to `oldEnd`, and the additions from `next` on. Returns the next addition. */
function mergeSection(
  old: NumberReader,
  oldEnd: number,
  series: number,
  { codes, counts }: Additions,
  next: number,
  writer: RecordWriter,
): number {
  const base = cellCode(series, 0);
  const end = cellCode(series + 1, 0);
  const section = writer.openSection(series);
  const first = (codes[next] ?? base) - base;
  const start = old.at;
  let written = -1;
  let cell = -1;
  let pending = false;
  let count = 0;
  // Cells before the first addition are copied as they are: usually all of them, because traffic is live.
  let copied = start;
  while (!pending && old.at < oldEnd) {
    const token = old.number();
    count = token % 2 === 1 ? old.number() : 1;
    cell += Math.floor(token / 2) + 1;
    pending = cell >= first;
    if (pending) break;
    copied = old.at;
    written = cell;
  }
  if (copied > start) writer.copy(old.bytes, start, copied);
  for (;;) {
    if (!pending && old.at < oldEnd) {
      const token = old.number();
      cell += Math.floor(token / 2) + 1;
      count = token % 2 === 1 ? old.number() : 1;
      pending = true;
    }
    const code = next < codes.length ? (codes[next] ?? 0) : end;
    const added = code < end ? code - base : Number.POSITIVE_INFINITY;
    if (!pending && added === Number.POSITIVE_INFINITY) break;
    const at = pending ? Math.min(cell, added) : added;
    let total = 0;
    if (pending && cell === at) {
      total = count;
      pending = false;
    }
    if (added === at) total = addCount(series, total, counts[next++] ?? 0);
    writer.cell(at - written - 1, total);
    written = at;
  }
  writer.closeSection(section);
  return next;
}
