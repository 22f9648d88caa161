/**
 * The busiest second of each point: of a project from its seconds, of a set of hosts from exact milliseconds, because the
 * busiest seconds of hosts do not add up. Minutes that an edge cuts are always read exactly.
 */
import type { Database, Run } from '../../postgres/database.ts';
import { accumulate, GROUP_ROWS, GROUPS } from '../cells.ts';
import { clip } from '../plan.ts';
import { QueryTooLarge, type Selection } from '../store.ts';
import { EXACT, NO_HOST, SECONDS } from './schema.ts';
import { readSegment } from './segments.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = EXACT.cellsPerChunk;

/** The last group is the sum of the attacks in the others. */
const ROWS = GROUPS.length - 1;

/** What one query may read: one or two seconds of work. */
const BYTES_MAX = 128 * 1_048_576;
const MINUTES_MAX = 400_000;
const SEGMENTS_PER_PART = 500;
const MINUTES_PER_PART = 5_000;

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
  const peaks = new Peaks(clip(edges, state?.horizon ?? 0, state?.latest ?? 0));
  if (hosts !== undefined) {
    const selected = new Set(numbers.map(({ number }) => number));
    await addSegments(run, project, peaks, (host) => selected.has(host));
  } else {
    await addSeconds(run, project, peaks);
    for (const minute of peaks.cutMinutes) await addSegments(run, project, peaks, () => true, minute);
  }
  return peaks.finish();
}

/** Adds the seconds of all whole minutes. */
async function addSeconds(run: Run, project: string, peaks: Peaks): Promise<void> {
  const { firstMinute, endMinute, cutMinutes } = peaks;
  const from =
    'FROM rollups WHERE project = $1 AND level = $2 AND host = $3 AND minute >= $4 AND minute < $5';
  const values = [project, SECONDS.id, NO_HOST] as const;
  const [size] = await run<{ n: number }>(`SELECT count(*) AS n ${from}`, [
    ...values,
    firstMinute,
    endMinute,
  ]);
  if ((size?.n ?? 0) > MINUTES_MAX) throw new QueryTooLarge();
  for (let next = firstMinute; ; ) {
    const rows = await run<{ minute: number; counts: Buffer }>(
      `SELECT minute, counts ${from} ORDER BY minute LIMIT ${MINUTES_PER_PART}`,
      [...values, next, endMinute],
    );
    for (const { minute, counts } of rows) {
      if (cutMinutes.has(minute)) continue;
      peaks.open(minute);
      peaks.addSeconds(counts);
    }
    if (rows.length < MINUTES_PER_PART) return;
    next = (rows.at(-1)?.minute ?? next) + 1;
  }
}

/** Adds the segments of the whole range, or of one minute. */
async function addSegments(
  run: Run,
  project: string,
  peaks: Peaks,
  isSelected: (host: number) => boolean,
  minute?: number,
): Promise<void> {
  const [first, end] = minute === undefined ? [peaks.firstMinute, peaks.endMinute] : [minute, minute + 1];
  const [size] = await run<{ bytes: number }>(
    `SELECT coalesce(sum(octet_length(cells)), 0)::bigint AS bytes FROM segments
     WHERE project = $1 AND minute >= $2 AND minute < $3`,
    [project, first, end],
  );
  if ((size?.bytes ?? 0) > BYTES_MAX) throw new QueryTooLarge();
  let after = { minute: first, append: -1 };
  for (;;) {
    const rows = await run<{ minute: number; append: number; cells: Buffer }>(
      `SELECT minute, append, cells FROM segments
       WHERE project = $1 AND minute < $3 AND (minute, append) > ($2, $4)
       ORDER BY minute, append LIMIT ${SEGMENTS_PER_PART}`,
      [project, after.minute, end, after.append],
    );
    for (const row of rows) {
      peaks.open(row.minute);
      for (const [host, record] of readSegment(row.cells)) if (isSelected(host)) peaks.add(record);
      after = row;
    }
    if (rows.length < SEGMENTS_PER_PART) return;
  }
}

/** The seconds of a whole minute, as runs (plan.ts): from exact cells, and from cells of a second. */
const WHOLE_MINUTE = [0, MINUTE_MS, 0, SECOND_MS];
const WHOLE_SECONDS = [0, SECONDS.cellsPerChunk, 0, 1];

/** Sums the seconds of one minute at a time. */
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

  /** Minutes with an edge inside. */
  get cutMinutes(): ReadonlySet<number> {
    const cut = this.#edges.filter((edge) => edge % MINUTE_MS !== 0);
    return new Set(cut.map((edge) => Math.floor(edge / MINUTE_MS)));
  }

  open(minute: number): void {
    if (minute === this.#minute) return;
    this.finish();
    if (minute < (this.#minute ?? 0)) this.#point = 0;
    this.#minute = minute;
    const start = minute * MINUTE_MS;
    const end = start + MINUTE_MS;
    const edge = (i: number) => this.#edges[i] ?? 0;
    while (this.#point + 1 < this.#edges.length && edge(this.#point + 1) <= start) this.#point++;
    if (edge(this.#point) <= start && edge(this.#point + 1) >= end) {
      this.#runs = WHOLE_MINUTE;
      this.#points = new Array<number>(SECONDS.cellsPerChunk).fill(this.#point);
    } else {
      this.#runs = [];
      this.#points = [];
      for (let point = this.#point; point + 1 < this.#edges.length && edge(point) < end; point++) {
        const pointEnd = Math.min(edge(point + 1), end);
        for (let at = Math.max(edge(point), start); at < pointEnd; ) {
          const slotEnd = Math.min(pointEnd, (Math.floor(at / SECOND_MS) + 1) * SECOND_MS);
          this.#runs.push(at - start, slotEnd - start, this.#points.length, slotEnd - at);
          this.#points.push(point);
          at = slotEnd;
        }
      }
    }
    if (this.#sums.length === ROWS * this.#points.length) this.#sums.fill(0);
    else this.#sums = new Float64Array(ROWS * this.#points.length);
  }

  add(record: Uint8Array): void {
    accumulate(record, this.#runs, GROUP_ROWS, this.#points.length, this.#sums);
  }

  /** Adds a record of the seconds of a whole minute. */
  addSeconds(record: Uint8Array): void {
    accumulate(record, WHOLE_SECONDS, GROUP_ROWS, this.#points.length, this.#sums);
  }

  finish(): Float64Array[] {
    const points = this.#points;
    const slots = points.length;
    const attacks = new Float64Array(slots);
    for (let row = 0; row < ROWS; row++) {
      const sums = this.#sums.subarray(row * slots, (row + 1) * slots);
      raise(this.#out[row], points, sums);
      if (GROUPS[row] === null) continue;
      for (let slot = 0; slot < slots; slot++) attacks[slot] = (attacks[slot] ?? 0) + (sums[slot] ?? 0);
    }
    raise(this.#out[ROWS], points, attacks);
    this.#points = [];
    return this.#out;
  }
}

function raise(values: Float64Array | undefined, points: readonly number[], sums: Float64Array): void {
  if (values === undefined) return;
  for (let slot = 0; slot < sums.length; slot++) {
    const point = points[slot] ?? 0;
    const n = sums[slot] ?? 0;
    if (n > (values[point] ?? 0)) values[point] = n;
  }
}
