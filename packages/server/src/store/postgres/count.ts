/** The read side: each query is one statement, and so reads one snapshot. */
import type { Database } from '../../postgres/database.ts';
import { accumulate } from '../cells.ts';
import { type ChunkPlan, clip, planChunks } from '../plan.ts';
import { LAYOUTS } from '../rows.ts';
import type { CountQuery } from '../store.ts';
import { CHANGES_MS, EXACT, LEVELS, ROLLUPS } from './schema.ts';
import { readSegment } from './segments.ts';

const MINUTE_MS = EXACT.cellsPerChunk;
const DAY_MS = 86_400_000;

/** The hosts that a statement reads, as an SQL expression for their numbers. */
const SCOPES = {
  project: 'ARRAY[0]',
  some: 'ARRAY(SELECT number FROM hosts WHERE project = $1 AND id = ANY($10::text[]))',
  all: 'ARRAY(SELECT number FROM hosts WHERE project = $1)',
} as const;
type Scope = keyof typeof SCOPES;

/**
 * The bounds let PostgreSQL skip partitions, which `= ANY(array)` does not. `OR minute = -1`, which is never true, keeps it
 * from scanning the index by these bounds instead of the array.
 */
function isBetween(first: string, last: string): string {
  return `(minute BETWEEN ${first} AND ${last} OR minute = -1)`;
}

/** The first row has the state, the others counts. */
function countsStatement(scope: Scope): string {
  const rollups = ROLLUPS.map(
    ({ id }) => `
    UNION ALL SELECT level, host, minute, counts, NULL, NULL, NULL FROM rollups
    WHERE project = $1 AND level = ${id} AND host = ANY((SELECT numbers FROM scope)::int[])
      AND minute = ANY($${id + 2}::int[]) AND ${isBetween('$6', '$7')}`,
  );
  return `WITH scope AS MATERIALIZED (SELECT ${SCOPES[scope]} AS numbers)
    SELECT NULL::smallint AS level, NULL::int AS host, NULL::int AS minute, NULL::bytea AS counts,
      (SELECT numbers FROM scope) AS numbers, (SELECT horizon FROM retention) AS horizon,
      (SELECT latest FROM projects WHERE project = $1) AS latest
    ${rollups.join('')}
    UNION ALL SELECT ${EXACT.id}, NULL, minute, cells, NULL, NULL, NULL FROM segments
    WHERE project = $1 AND minute = ANY($5::int[]) AND ${isBetween('$8', '$9')}`;
}

const STATEMENTS: Readonly<Record<Scope, string>> = {
  project: countsStatement('project'),
  some: countsStatement('some'),
  all: countsStatement('all'),
};

type CountsRow = Readonly<Record<string, unknown>> & {
  level: number | null;
  host: number | null;
  minute: number;
  counts: Buffer;
  numbers: number[];
  horizon: number;
  latest: number | null;
};

export class Counter {
  readonly #database: Database;
  readonly #now: () => number;
  /** The horizon at the time of the last query. It rarely moves. */
  #horizon = 0;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Counts by host number; without `byHost`, all under 0. */
  async count({ edges, rows, byHost = false, ...selection }: CountQuery): Promise<Map<number, Float64Array>> {
    const { rowOf, count } = LAYOUTS[rows];
    const points = edges.length - 1;
    const counts = new Map<number, Float64Array>();
    await this.#read(selection, byHost, edges, (number, record, runs) => {
      const host = byHost ? number : 0;
      const sums = counts.get(host) ?? new Float64Array(count * points);
      counts.set(host, sums);
      accumulate(record, runs, rowOf, points, sums);
    });
    return counts;
  }

  /** Calls `add` for each record. */
  async #read(
    { project, hosts, ignoreHorizon = false }: Omit<CountQuery, 'edges' | 'rows'>,
    byHost: boolean,
    edges: readonly number[],
    add: (host: number, record: Uint8Array, runs: number[]) => void,
  ): Promise<void> {
    const scope = hosts !== undefined ? 'some' : byHost ? 'all' : 'project';
    // Events are rarely in the future, so later chunks need not be read.
    let end = endOfChunk(this.#now() + 2 * DAY_MS);
    for (;;) {
      const horizon = this.#horizon;
      const plan = planChunks(clip(edges, ignoreHorizon ? 0 : horizon, end - 1), LEVELS);
      const minutes = LEVELS.map(({ id }) => minutesOf(plan, id));
      const rows = await this.#database.run<CountsRow>(STATEMENTS[scope], [
        project,
        ...minutes,
        ...boundsOf(minutes.slice(0, EXACT.id).flat()),
        ...boundsOf(minutes[EXACT.id] ?? []),
        ...(scope === 'some' ? [[...new Set(hosts)]] : []),
      ]);
      const [state, ...records] = rows as [CountsRow, ...CountsRow[]];
      if (state.horizon === horizon && (state.latest ?? 0) < end) {
        addRecords(plan, scope, state.numbers, records, add);
        return;
      }
      this.#horizon = state.horizon;
      end = Math.max(end, endOfChunk(state.latest ?? 0));
    }
  }
}

function endOfChunk(time: number): number {
  return (Math.floor(time / CHANGES_MS) + 1) * CHANGES_MS;
}

function minutesOf(plan: readonly ChunkPlan[], level: number): number[] {
  return plan.flatMap((one) => (one.level === level ? [firstMinute(one)] : []));
}

/** The first and the last minute. */
function boundsOf(minutes: readonly number[]): [number, number] {
  const first = minutes.reduce((a, b) => Math.min(a, b), minutes[0] ?? 0);
  return [first, minutes.reduce((a, b) => Math.max(a, b), minutes[0] ?? -1)];
}

function firstMinute({ level, chunk }: ChunkPlan): number {
  const { cellMs, cellsPerChunk } = LEVELS[level] ?? EXACT;
  return (chunk * cellMs * cellsPerChunk) / MINUTE_MS;
}

function addRecords(
  plan: readonly ChunkPlan[],
  scope: Scope,
  numbers: readonly number[],
  rows: readonly CountsRow[],
  add: (host: number, record: Uint8Array, runs: number[]) => void,
): void {
  const runs = LEVELS.map(() => new Map<number, number[]>());
  for (const one of plan) runs[one.level]?.set(firstMinute(one), one.runs);
  const selected = scope === 'project' ? null : new Set(numbers);
  for (const { level, host, minute, counts } of rows) {
    const wanted = runs[level ?? -1]?.get(minute);
    if (wanted === undefined) continue;
    if (level !== EXACT.id) {
      add(host ?? 0, counts, wanted);
      continue;
    }
    for (const [number, record] of readSegment(counts)) {
      if (selected === null || selected.has(number)) add(number, record, wanted);
    }
  }
}
