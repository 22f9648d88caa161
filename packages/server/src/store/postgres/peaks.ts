/**
 * The peaks of minutes: of a project from its seconds, of a set of hosts from exact milliseconds, because the busiest
 * seconds of hosts do not add up.
 */
import type { Database, Run } from '../../postgres/database.ts';
import { accumulate, addAllAttacks, GROUP_ROWS, GROUPS, SECOND_RUNS } from '../cells.ts';
import { type CellPeaks, findPeaks as find, type PeakReader } from '../peaks.ts';
import { clip, type Level } from '../plan.ts';
import { QueryTooLarge, type Selection } from '../store.ts';
import { EXACT, NO_HOST, SECONDS } from './schema.ts';
import { readSegment } from './segments.ts';

/** What one query may read: one or two seconds of work. */
const BYTES_MAX = 128 * 1_048_576;
/** What a row costs besides its bytes. */
const ROW_BYTES = 256;
const SEGMENTS_PER_PART = 500;
/** The minutes of a part are read at once. */
const PARTS: Level = { id: 0, cellMs: EXACT.cellsPerChunk, cellsPerChunk: 5_000 };

export function findPeaks(
  database: Database,
  { project, hosts }: Selection,
  edges: readonly number[],
): Promise<Float64Array[]> {
  return database.transaction(async (run) => {
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
    const selected = hosts && new Set(numbers.map(({ number }) => number));
    const clipped = clip(edges, state?.horizon ?? 0, state?.latest ?? 0);
    return find(clipped, new MinutePeaks(run, project, selected));
  }, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
}

interface MinuteRow {
  minute: number;
  append: number;
  cells: Buffer;
}

class MinutePeaks implements PeakReader {
  readonly levels = [PARTS];
  readonly exact = EXACT;
  readonly #run: Run;
  readonly #project: string;
  /** The numbers of the selected hosts; undefined for the whole project. */
  readonly #hosts: ReadonlySet<number> | undefined;
  #bytesLeft = BYTES_MAX;

  constructor(run: Run, project: string, hosts: ReadonlySet<number> | undefined) {
    this.#run = run;
    this.#project = project;
    this.#hosts = hosts;
  }

  async cells({ cellsPerChunk }: Level, chunk: number, first: number, end: number): Promise<CellPeaks> {
    const start = chunk * cellsPerChunk;
    const peaks = new Float64Array(GROUPS.length * cellsPerChunk);
    const seconds = new Float64Array(GROUPS.length * SECONDS.cellsPerChunk);
    let open = start;
    const close = () => {
      addAllAttacks(seconds);
      for (const [i, n] of seconds.entries()) {
        const at = Math.floor(i / SECONDS.cellsPerChunk) * cellsPerChunk + open - start;
        if (n > (peaks[at] ?? 0)) peaks[at] = n;
      }
      seconds.fill(0);
    };
    const add = (minute: number, record: Uint8Array, runs: number[]) => {
      if (minute !== open) close();
      open = minute;
      accumulate(record, runs, GROUP_ROWS, SECONDS.cellsPerChunk, seconds);
    };
    if (this.#hosts === undefined) {
      for (const { minute, cells } of await this.#seconds(start + first, start + end))
        add(minute, cells, [0, SECONDS.cellsPerChunk, 0, 1]);
    } else {
      for await (const { minute, record } of this.#records(start + first, start + end))
        add(minute, record, SECOND_RUNS);
    }
    close();
    return { lower: peaks, upper: peaks };
  }

  async minute(minute: number, add: (record: Uint8Array) => void): Promise<void> {
    for await (const { record } of this.#records(minute, minute + 1)) add(record);
  }

  async #seconds(first: number, end: number): Promise<{ minute: number; cells: Buffer }[]> {
    const rows = await this.#run<{ minute: number; cells: Buffer }>(
      `SELECT minute, counts AS cells FROM rollups
       WHERE project = $1 AND level = $2 AND host = $3 AND minute >= $4 AND minute < $5 ORDER BY minute`,
      [this.#project, SECONDS.id, NO_HOST, first, end],
    );
    this.#spend(rows);
    return rows;
  }

  /** The exact records of the selected hosts, by minute. */
  async *#records(first: number, end: number): AsyncGenerator<{ minute: number; record: Uint8Array }> {
    let after = { minute: first, append: -1 };
    for (;;) {
      const rows: MinuteRow[] = await this.#run<MinuteRow & Record<string, unknown>>(
        `SELECT minute, append, cells FROM segments
         WHERE project = $1 AND minute < $3 AND (minute, append) > ($2, $4)
         ORDER BY minute, append LIMIT ${SEGMENTS_PER_PART}`,
        [this.#project, after.minute, end, after.append],
      );
      this.#spend(rows);
      for (const { minute, cells } of rows) {
        for (const [host, record] of readSegment(cells))
          if (this.#hosts?.has(host) ?? true) yield { minute, record };
      }
      if (rows.length < SEGMENTS_PER_PART) return;
      after = rows.at(-1) ?? after;
    }
  }

  #spend(rows: readonly { cells: Buffer }[]): void {
    for (const { cells } of rows) this.#bytesLeft -= ROW_BYTES + cells.length;
    if (this.#bytesLeft < 0) throw new QueryTooLarge();
  }
}
