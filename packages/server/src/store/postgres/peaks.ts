/** The busiest second of each point, from exact milliseconds. */
import { CATEGORIES, OVERVIEW_GROUPS } from '../../event.ts';
import { accumulate, FIRST_CATEGORY, REQUESTS } from '../cells.ts';
import { QueryTooLarge, type Selection } from '../store.ts';
import { clip } from './count.ts';
import type { Database, Run } from './database.ts';
import { EXACT } from './schema.ts';
import { readSegment } from './segments.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = EXACT.cellsPerChunk;

const GROUPS = Object.values(OVERVIEW_GROUPS);
/** The last group is the sum of the attacks in the others. */
const ROWS = GROUPS.length - 1;
const ROW_OF = new Int8Array(FIRST_CATEGORY + CATEGORIES.length);
ROW_OF[REQUESTS] = GROUPS.indexOf(null);
for (const [category, name] of CATEGORIES.entries()) {
  ROW_OF[FIRST_CATEGORY + category] = GROUPS.findIndex((group) => group?.includes(name));
}

/** What one query may read: about a second of work. */
const BYTES_MAX = 128 * 1_048_576;
const ROWS_PER_PART = 500;

export function findPeaks(
  database: Database,
  selection: Selection,
  edges: readonly number[],
): Promise<Float64Array[]> {
  return database.transaction(
    (run) => find(run, selection, edges),
    'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY',
  );
}

async function find(
  run: Run,
  { project, hosts }: Selection,
  edges: readonly number[],
): Promise<Float64Array[]> {
  const [[state], numbers] = await Promise.all([
    run<{ horizon: number; latest: number | null }>(
      `SELECT horizon, (SELECT latest FROM projects WHERE project = $1) AS latest FROM retention`,
      [project],
    ),
    run<{ number: number }>('SELECT number FROM hosts WHERE project = $1 AND id = ANY($2::text[])', [
      project,
      [...new Set(hosts ?? [])],
    ]),
  ]);
  const end = (Math.floor((state?.latest ?? 0) / MINUTE_MS) + 1) * MINUTE_MS;
  const peaks = new Peaks(clip(edges, state?.horizon ?? 0, end));
  const selected = hosts === undefined ? null : new Set(numbers.map(({ number }) => number));
  const range = [project, peaks.firstMinute, peaks.endMinute] as const;
  const [size] = await run<{ bytes: number }>(
    `SELECT coalesce(sum(octet_length(cells)), 0)::bigint AS bytes FROM segments
     WHERE project = $1 AND minute >= $2 AND minute < $3`,
    range,
  );
  if ((size?.bytes ?? 0) > BYTES_MAX) throw new QueryTooLarge();
  let after = { minute: peaks.firstMinute, append: -1 };
  for (;;) {
    const rows = await run<{ minute: number; append: number; cells: Buffer }>(
      `SELECT minute, append, cells FROM segments
       WHERE project = $1 AND minute < $3 AND (minute, append) > ($2, $4)
       ORDER BY minute, append LIMIT ${ROWS_PER_PART}`,
      [project, after.minute, peaks.endMinute, after.append],
    );
    for (const row of rows) {
      peaks.open(row.minute);
      for (const [host, record] of readSegment(row.cells)) {
        if (selected === null || selected.has(host)) peaks.add(record);
      }
      after = row;
    }
    if (rows.length < ROWS_PER_PART) return peaks.finish();
  }
}

/** Sums the seconds of one minute at a time. Minutes come in ascending order. */
class Peaks {
  readonly #edges: readonly number[];
  readonly #out: Float64Array[];
  #minute: number | null = null;
  /** The first point that ends after the start of the minute. */
  #point = 0;
  #runs: number[] = [];
  /** The point of each slot: a second, or a part of one that an edge cuts. */
  #points: number[] = [];
  #sums = new Float64Array(0);

  constructor(edges: readonly number[]) {
    this.#edges = edges;
    this.#out = GROUPS.map(() => new Float64Array(edges.length - 1));
  }

  get firstMinute(): number {
    return Math.floor((this.#edges[0] ?? 0) / MINUTE_MS);
  }

  get endMinute(): number {
    const [first, last] = [this.#edges[0] ?? 0, this.#edges.at(-1) ?? 0];
    return first < last ? Math.ceil(last / MINUTE_MS) : this.firstMinute;
  }

  open(minute: number): void {
    if (minute === this.#minute) return;
    this.finish();
    this.#minute = minute;
    this.#runs = [];
    this.#points = [];
    const start = minute * MINUTE_MS;
    const end = start + MINUTE_MS;
    const edge = (i: number) => this.#edges[i] ?? 0;
    while (this.#point + 1 < this.#edges.length && edge(this.#point + 1) <= start) this.#point++;
    for (let point = this.#point; point + 1 < this.#edges.length && edge(point) < end; point++) {
      const pointEnd = Math.min(edge(point + 1), end);
      for (let at = Math.max(edge(point), start); at < pointEnd; ) {
        const slotEnd = Math.min(pointEnd, (Math.floor(at / SECOND_MS) + 1) * SECOND_MS);
        this.#runs.push(at - start, slotEnd - start, this.#points.length, slotEnd - at);
        this.#points.push(point);
        at = slotEnd;
      }
    }
    this.#sums = new Float64Array(ROWS * this.#points.length);
  }

  add(record: Uint8Array): void {
    accumulate(record, this.#runs, ROW_OF, this.#points.length, this.#sums);
  }

  finish(): Float64Array[] {
    const slots = this.#points.length;
    for (const [slot, point] of this.#points.entries()) {
      let attacks = 0;
      for (let row = 0; row < ROWS; row++) {
        const n = this.#sums[row * slots + slot] ?? 0;
        this.#raise(row, point, n);
        if (GROUPS[row] !== null) attacks += n;
      }
      this.#raise(ROWS, point, attacks);
    }
    this.#points = [];
    return this.#out;
  }

  #raise(group: number, point: number, n: number): void {
    const values = this.#out[group];
    if (values && n > (values[point] ?? 0)) values[point] = n;
  }
}
