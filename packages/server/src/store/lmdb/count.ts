/** The read side: the sums of all rows in all points. The one way in which anything is counted. */
import { setImmediate } from 'node:timers/promises';
import { CATEGORIES } from '../../event.ts';
import { StoreDamaged } from '../store.ts';
import {
  accumulate,
  accumulateTotals,
  addCells,
  runningTotals,
  sumOfTotals,
  toRunningTotals,
} from './cells.ts';
import { DecodedChunks } from './decoded.ts';
import { Groups } from './groups.ts';
import { type ChunkPlan, COUNTERS, EXACT, planChunks } from './levels.ts';
import { checkAbsence, isHostOf, isProject, KnownAbsences, RecordReader } from './records.ts';
import {
  allChanges,
  CHANGES,
  changesOf,
  metaValue,
  type ProjectRecord,
  type ReadOptions,
  type Schema,
} from './schema.ts';
import { FIRST_CATEGORY, REQUESTS } from './tally.ts';

/** Which row of an answer a series adds to (negative: none), and how many rows there are. */
interface Rows {
  rowOf: Int8Array;
  rowCount: number;
}

export const TIMELINE_ROWS: Rows = { rowOf: rows((category) => (category === null ? 0 : 1)), rowCount: 2 };
export const DISTRIBUTION_ROWS: Rows = {
  rowOf: rows((category) => category ?? -1),
  rowCount: CATEGORIES.length,
};

/**
 * `hosts` undefined: the whole project. Answers the points of the first row, then those of the next; in a promise when
 * there is so much to read that others must have a turn meanwhile.
 */
export type Counter = (
  project: string,
  hosts: readonly string[] | undefined,
  edges: readonly number[],
) => Float64Array | Promise<Float64Array>;

const HOUR_MS = 3_600_000;

/** A scope that has no counters in a chunk. */
const NOTHING = new Float64Array(0);

/**
 * What is read in one go, without giving others a turn: some 4 ms when nothing is decoded yet. Beyond it records are
 * added up without being kept one by one, because together they would push each other out of the cache.
 */
const RECORDS_AT_ONCE_MAX = 512;
const NUMBERS_AT_ONCE_MAX = 1_048_576;

/** How long a query that reads more keeps the event loop at a time. */
const SLICE_MS = 3;
/** Records between two looks at the clock. */
const RECORDS_PER_LOOK = 16;

export function createCounter(schema: Schema, { rowOf, rowCount }: Rows, sliceMs = SLICE_MS): Counter {
  const decoded = new DecodedChunks();
  const groups = new Groups();
  const absences = new KnownAbsences();
  const hostScopes = createHostScopes(schema);
  const basics = createBasics(schema);
  const key = Buffer.allocUnsafe(9);

  /** Undefined: no counters. A count of changes that is there no more would pass for that. */
  function changes(records: RecordReader, level: number, chunk: number, read?: ReadOptions): number {
    const found = changesOf(schema.cells, level, chunk, key, read);
    if (found === undefined) records.checkAbsence(level, chunk, CHANGES);
    return found ?? 0;
  }

  function countAtOnce(
    scopes: readonly number[],
    plan: readonly ChunkPlan[],
    points: number,
    everything: number,
  ): Float64Array {
    const out = new Float64Array(rowCount * points);
    const group = scopes.length > 1 ? groups.numberOf(scopes) : undefined;
    const records = new RecordReader(schema, { known: { absences, changes: everything } });
    for (const { level, chunk, runs } of plan) {
      if (level === EXACT.id) {
        for (const scope of scopes) {
          const record = records.read(level, chunk, scope);
          if (record !== undefined) accumulate(record, runs, rowOf, points, out);
        }
      } else {
        const cellCount = cellsIn(level);
        const changesNow = () => changes(records, level, chunk);
        const totalsOf = decoded.chunk(level, chunk, everything, changesNow, (scope): Float64Array => {
          if (scope === group) return sumOfTotals(scopes.map(totalsOf));
          const record = records.read(level, chunk, scope);
          return record === undefined ? NOTHING : runningTotals(record, rowOf, rowCount, cellCount);
        });
        for (const scope of group === undefined ? scopes : [group]) {
          accumulateTotals(totalsOf(scope), cellCount, runs, points, out);
        }
      }
    }
    return out;
  }

  /** From one snapshot, so that what is counted meanwhile is in all of the answer or in none. */
  async function countInSlices(
    scopes: readonly number[],
    points: number,
    planIn: (read: ReadOptions) => readonly ChunkPlan[],
  ): Promise<Float64Array> {
    const out = new Float64Array(rowCount * points);
    const read = { transaction: schema.root.useReadTransaction() };
    const slices = new Slices(sliceMs);
    try {
      const everything = allChanges(schema, read);
      const records = new RecordReader(schema, { read, known: { absences, changes: everything } });
      const group = groups.numberFor(scopes);
      for (const { level, chunk, runs } of planIn(read)) {
        if (level === EXACT.id) {
          for (const scope of scopes) {
            const record = records.read(level, chunk, scope);
            if (record !== undefined) accumulate(record, runs, rowOf, points, out);
            if (slices.isOver()) await slices.next();
          }
          continue;
        }
        const cellCount = cellsIn(level);
        const kept = decoded.open(level, chunk, everything, () => changes(records, level, chunk, read));
        let totals = kept.get(group);
        if (totals === undefined) {
          const sums = new Float64Array(rowCount * (cellCount + 1));
          for (const scope of scopes) {
            const record = records.read(level, chunk, scope);
            if (record !== undefined) addCells(record, rowOf, cellCount, sums);
            if (slices.isOver()) await slices.next();
          }
          totals = kept.keep(group, toRunningTotals(sums, rowCount, cellCount));
        }
        accumulateTotals(totals, cellCount, runs, points, out);
      }
      return out;
    } finally {
      read.transaction.done();
    }
  }

  return (projectId, hosts, edges) => {
    const points = edges.length - 1;
    const everything = allChanges(schema);
    const { project, horizon } = basics(projectId, everything);
    if (project === undefined) return new Float64Array(rowCount * points);
    const scopes = hosts === undefined ? [project.scope] : hostScopes(project, hosts);
    const plan = planChunks(clipped(edges, horizon, project));
    if (isMuch(scopes, plan, rowCount)) {
      return countInSlices(scopes, points, (read) => {
        const { latest } = schema.projects.get(projectId, read) ?? project;
        return planChunks(clipped(edges, metaValue(schema, 'horizon', read), { latest }));
      });
    }
    return countAtOnce(scopes, plan, points, everything);
  };
}

function isMuch(scopes: readonly number[], plan: readonly ChunkPlan[], rowCount: number): boolean {
  if (scopes.length === 1) return false;
  if (scopes.length * plan.length > RECORDS_AT_ONCE_MAX) return true;
  const cells = plan.reduce((sum, { level }) => sum + (level === EXACT.id ? 0 : cellsIn(level)), 0);
  return scopes.length * cells * rowCount > NUMBERS_AT_ONCE_MAX;
}

function cellsIn(level: number): number {
  return COUNTERS[level]?.cellsPerChunk ?? 0;
}

/** Turns of work of bounded length. */
class Slices {
  readonly #lengthMs: number;
  #records = 0;
  #start = performance.now();

  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs;
  }

  /** Asked after each record. */
  isOver(): boolean {
    this.#records++;
    return this.#records % RECORDS_PER_LOOK === 0 && performance.now() - this.#start > this.#lengthMs;
  }

  async next(): Promise<void> {
    await setImmediate();
    this.#start = performance.now();
  }
}

/** Outside of what is left there is nothing: what is before the horizon has been pruned, or is about to be. */
function clipped(
  edges: readonly number[],
  horizon: number,
  { latest }: Pick<ProjectRecord, 'latest'>,
): readonly number[] {
  // To the hour, not to the millisecond: a cut minute would have to be read in milliseconds.
  const behind = (Math.floor(latest / HOUR_MS) + 1) * HOUR_MS;
  if ((edges[0] ?? 0) >= horizon && (edges.at(-1) ?? 0) <= behind) return edges;
  return edges.map((edge) => Math.min(Math.max(edge, horizon), behind));
}

/** Bounds the memory: some 10 MB. */
const HOSTS_KNOWN_MAX = 100_000;

/** The scopes of hosts, in memory: a host is never removed, and its scope never changes. */
function createHostScopes(schema: Schema) {
  const known = new Map<string, number>();
  return (project: ProjectRecord, ids: readonly string[]): number[] => {
    const scopes = new Set<number>();
    for (const id of ids) {
      const name = `${project.scope} ${id}`;
      let scope = known.get(name);
      if (scope === undefined) {
        const host = schema.hosts.get([project.scope, id]);
        if (host === undefined) {
          checkAbsence(schema.hosts, [project.scope, id], isHostOf);
          continue;
        }
        if (!isHostOf([project.scope, id], host)) throw new StoreDamaged(`the key of the host ${id}`);
        scope = host.scope;
        if (known.size >= HOSTS_KNOWN_MAX) known.clear();
        known.set(name, scope);
      }
      scopes.add(scope);
    }
    // In the order of the keys, which is also that of the file.
    return [...scopes].sort((a, b) => a - b);
  };
}

/** Bounds the memory: some 200 KB. */
const PROJECTS_KNOWN_MAX = 1_000;

/** What every query needs, read again when anything was counted or the horizon has moved. */
function createBasics(schema: Schema) {
  const known = new Map<string, ProjectRecord>();
  let horizon = 0;
  let changes = -1;
  return (id: string, changesNow: number): { project: ProjectRecord | undefined; horizon: number } => {
    if (changes !== changesNow || known.size > PROJECTS_KNOWN_MAX) {
      known.clear();
      horizon = metaValue(schema, 'horizon');
      changes = changesNow;
    }
    let project = known.get(id);
    if (project === undefined) {
      project = schema.projects.get(id);
      // A project that nothing was counted for yet is not there, and may come without a change of counts.
      if (project === undefined) checkAbsence(schema.projects, id, isProject);
      else if (!isProject(id, project)) throw new StoreDamaged(`the key of the project ${id}`);
      else known.set(id, project);
    }
    return { project, horizon };
  };
}

function rows(rowOf: (category: number | null) => number): Int8Array {
  const table = new Int8Array(FIRST_CATEGORY + CATEGORIES.length);
  table[REQUESTS] = rowOf(null);
  for (const number of CATEGORIES.keys()) table[FIRST_CATEGORY + number] = rowOf(number);
  return table;
}
