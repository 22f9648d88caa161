/**
 * The busiest second of each point: of a project from its seconds, of a set of hosts from exact milliseconds, because the
 * busiest seconds of hosts do not add up. Minutes that an edge cuts are always read exactly.
 */
import type { Database, Run } from '../../postgres/database.ts';
import { accumulate, addAllAttacks, GROUP_ROWS, GROUPS } from '../cells.ts';
import { MinuteSlots, Peaks } from '../peaks.ts';
import { clip, type Level, planChunks } from '../plan.ts';
import { QueryTooLarge, type Selection } from '../store.ts';
import { EXACT, NO_HOST, SECONDS } from './schema.ts';
import { readSegment } from './segments.ts';

const MINUTE_MS = EXACT.cellsPerChunk;
/** The seconds of a minute, as runs (plan.ts). */
const ALL_SECONDS = [0, SECONDS.cellsPerChunk, 0, 1];

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
  const clipped = clip(edges, state?.horizon ?? 0, state?.latest ?? 0);
  const peaks = new Peaks(edges.length - 1);
  const plan = planMinutes(clipped);
  if (hosts === undefined) {
    await addSeconds(run, project, plan.whole, peaks);
    for (const minute of plan.cut.keys())
      await addSegments(run, project, [minute, minute + 1], plan, () => true, peaks);
  } else {
    const selected = new Set(numbers.map(({ number }) => number));
    const range = [clipped[0] ?? 0, clipped.at(-1) ?? 0].map((edge) => edge / MINUTE_MS);
    const minutes: [number, number] = [Math.floor(range[0] ?? 0), Math.ceil(range[1] ?? 0)];
    await addSegments(run, project, minutes, plan, (host) => selected.has(host), peaks);
  }
  return peaks.rows();
}

/** All whole minutes are one chunk, numbered from the epoch. */
const WHOLE_MINUTES: Level = { id: 0, cellMs: MINUTE_MS, cellsPerChunk: Number.MAX_SAFE_INTEGER };

interface MinutePlan {
  /** Runs (plan.ts) of whole minutes. */
  whole: number[];
  /** Runs of the milliseconds of each minute that an edge cuts. */
  cut: Map<number, number[]>;
}

function planMinutes(edges: readonly number[]): MinutePlan {
  const plan = planChunks(edges, [WHOLE_MINUTES, EXACT]);
  const whole = plan.find(({ level }) => level === WHOLE_MINUTES.id)?.runs ?? [];
  const cut = plan.filter(({ level }) => level === EXACT.id);
  return { whole, cut: new Map(cut.map(({ chunk, runs }) => [chunk, runs])) };
}

function boundsOf(runs: readonly number[]): [first: number, end: number] {
  return [runs[0] ?? 0, runs.at(-3) ?? 0];
}

/** The point of each minute. Minutes must ascend. */
function pointFinder(runs: readonly number[]): (minute: number) => number | undefined {
  let run = 0;
  return (minute) => {
    while (run < runs.length && minute >= (runs[run + 1] ?? 0)) run += 4;
    const [first = Number.POSITIVE_INFINITY, , point = 0, minutesInPoint = 1] = runs.slice(run, run + 4);
    return minute < first ? undefined : point + Math.floor((minute - first) / minutesInPoint);
  };
}

/** Adds the stored seconds of whole minutes. */
async function addSeconds(run: Run, project: string, whole: readonly number[], peaks: Peaks): Promise<void> {
  const [first, end] = boundsOf(whole);
  const pointOf = pointFinder(whole);
  const seconds = new Float64Array(GROUPS.length * SECONDS.cellsPerChunk);
  const from =
    'FROM rollups WHERE project = $1 AND level = $2 AND host = $3 AND minute >= $4 AND minute < $5';
  const values = [project, SECONDS.id, NO_HOST] as const;
  const [size] = await run<{ n: number }>(`SELECT count(*) AS n ${from}`, [...values, first, end]);
  if ((size?.n ?? 0) > MINUTES_MAX) throw new QueryTooLarge();
  for (let next = first; ; ) {
    const rows = await run<{ minute: number; counts: Buffer }>(
      `SELECT minute, counts ${from} ORDER BY minute LIMIT ${MINUTES_PER_PART}`,
      [...values, next, end],
    );
    for (const { minute, counts } of rows) {
      const point = pointOf(minute);
      if (point === undefined) continue;
      accumulate(counts, ALL_SECONDS, GROUP_ROWS, SECONDS.cellsPerChunk, seconds.fill(0));
      addAllAttacks(seconds);
      for (const [i, n] of seconds.entries()) peaks.raise(Math.floor(i / SECONDS.cellsPerChunk), point, n);
    }
    if (rows.length < MINUTES_PER_PART) return;
    next = (rows.at(-1)?.minute ?? next) + 1;
  }
}

/** Adds the segments of some minutes. */
async function addSegments(
  run: Run,
  project: string,
  [first, end]: [first: number, end: number],
  { whole, cut }: MinutePlan,
  isSelected: (host: number) => boolean,
  peaks: Peaks,
): Promise<void> {
  const [size] = await run<{ bytes: number }>(
    `SELECT coalesce(sum(octet_length(cells)), 0)::bigint AS bytes FROM segments
     WHERE project = $1 AND minute >= $2 AND minute < $3`,
    [project, first, end],
  );
  if ((size?.bytes ?? 0) > BYTES_MAX) throw new QueryTooLarge();
  const pointOf = pointFinder(whole);
  const wholeMinute = new MinuteSlots([0, MINUTE_MS, 0, MINUTE_MS]);
  let open = { minute: -1, slots: wholeMinute, point: 0 };
  let after = { minute: first, append: -1 };
  for (;;) {
    const rows = await run<{ minute: number; append: number; cells: Buffer }>(
      `SELECT minute, append, cells FROM segments
       WHERE project = $1 AND minute < $3 AND (minute, append) > ($2, $4)
       ORDER BY minute, append LIMIT ${SEGMENTS_PER_PART}`,
      [project, after.minute, end, after.append],
    );
    for (const row of rows) {
      after = row;
      const { minute } = row;
      if (minute !== open.minute) {
        const runs = cut.get(minute);
        const point = runs ? 0 : pointOf(minute);
        // The range begins and ends in the same place of this minute: at the horizon, or after the latest event.
        if (point === undefined) continue;
        open.slots.raise(peaks, open.point);
        open = { minute, slots: runs ? new MinuteSlots(runs) : wholeMinute, point };
      }
      for (const [host, record] of readSegment(row.cells)) if (isSelected(host)) open.slots.add(record);
    }
    if (rows.length < SEGMENTS_PER_PART) break;
  }
  open.slots.raise(peaks, open.point);
}
