/**
 * The peaks of cells, from counters. They have the peaks of each project and host, which are exact for one of them, and
 * bounds for several.
 */

import { accumulate, addAllAttacks, type CountArray, FIRST_PEAK, GROUP_ROWS, GROUPS } from '../cells.ts';
import { type CellPeaks, findPeaks, type PeakReader } from '../peaks.ts';
import { clip, type Level } from '../plan.ts';
import { Slices } from '../slices.ts';
import { QueryTooLarge, StoreDamaged } from '../store.ts';
import { ChunkCache } from './chunk-cache.ts';
import { inSnapshot, type Lookups, type Selected } from './count.ts';
import { compact } from './decoded-cells.ts';
import { RecordReader } from './records.ts';
import { COUNTERS, EXACT, MINUTES, recordName, type Schema } from './schema.ts';

/** For each of OVERVIEW_GROUPS, the peak of each point. */
type PeakFinder = (
  project: string,
  hosts: readonly string[] | undefined,
  edges: readonly number[],
) => Promise<Float64Array[]>;

/** Rows of a decoded record: peaks by group, then counts by group. */
const DECODED_ROWS = new Int16Array(FIRST_PEAK + GROUPS.length).fill(-1);
for (const [series, row] of GROUP_ROWS.entries()) if (row >= 0) DECODED_ROWS[series] = GROUPS.length + row;
for (const group of GROUPS.keys()) DECODED_ROWS[FIRST_PEAK + group] = group;

/** Requests and attacks in one row. */
const COUNTED = new Int16Array(GROUP_ROWS.length);

/** The record that was decoded last. No chunk has more cells than one of hours. */
const DECODED = new Float64Array(2 * GROUPS.length * COUNTERS[0].cellsPerChunk);

/** What one query may read: about two seconds of work, in slices. */
const LIMITS = { records: 500_000, bytes: 256 * 1_048_576 };

export function createPeakFinder(schema: Schema, lookups: Lookups, limits = LIMITS): PeakFinder {
  const cache = new ChunkCache(lookups.chunks, 'peaks');

  return async (projectId, hosts, edges) => {
    // A new snapshot, so that a caller who compares the change counter before and after this query notices a change.
    const changes = lookups.changes.renew();
    const { project, horizon, deleted } = lookups.findProject(projectId, changes);
    if (project === undefined) return GROUPS.map(() => new Float64Array(edges.length - 1));
    const selected = lookups.select(project, hosts, deleted);
    if (selected.scopes.length === 0) return GROUPS.map(() => new Float64Array(edges.length - 1));
    const query = { ...selected, project: project.scope, changes };
    return inSnapshot(schema, (read) => {
      const reader = new CounterPeaks(new RecordReader(schema, { read }), cache, query, limits);
      return findPeaks(clip(edges, horizon, project.latest), reader);
    });
  };
}

class CounterPeaks implements PeakReader {
  readonly levels = COUNTERS;
  readonly exact = EXACT;
  readonly #cache: ChunkCache;
  readonly #query: Selected & { project: number; changes: number };
  readonly #records: RecordReader;
  readonly #slices = new Slices();
  #recordsLeft: number;
  #bytesLeft: number;

  constructor(
    records: RecordReader,
    cache: ChunkCache,
    query: Selected & { project: number; changes: number },
    limits: typeof LIMITS,
  ) {
    this.#records = records;
    this.#cache = cache;
    this.#query = query;
    this.#recordsLeft = limits.records;
    this.#bytesLeft = limits.bytes;
  }

  cells(level: Level, chunk: number): CellPeaks | Promise<CellPeaks> {
    const { key, changes } = this.#query;
    const cached = this.#cache.open(level.id, chunk, changes, () => this.#records.changes(level.id, chunk));
    const known = cached.get(key);
    if (known !== undefined) return boundsOf(known, level);
    return this.#slices
      .run(this.#readBounds(level, chunk))
      .then((bounds) => boundsOf(cached.put(key, bounds), level));
  }

  /** Lower bounds, and upper ones unless there is only one scope. */
  *#readBounds(level: Level, chunk: number): Generator<void, CountArray> {
    const { scopes, project } = this.#query;
    const size = GROUPS.length * level.cellsPerChunk;
    const bounds = new Float64Array(2 * size);
    const counts = new Float64Array(size);
    for (const scope of scopes) {
      const decoded = this.#decode(level, chunk, scope);
      for (let i = 0; decoded !== undefined && i < size; i++) {
        const peak = decoded[i] ?? 0;
        if (peak > (bounds[i] ?? 0)) bounds[i] = peak;
        bounds[size + i] = (bounds[size + i] ?? 0) + peak;
        counts[i] = (counts[i] ?? 0) + (decoded[size + i] ?? 0);
      }
      yield;
    }
    if (scopes.length === 1) return compact(bounds.subarray(0, size));
    // No second of the hosts is busier than that of the project. If they have all its counts, they have its peaks too.
    const all = this.#decode(level, chunk, project);
    for (let i = 0; all !== undefined && i < size; i++) {
      const peak = all[i] ?? 0;
      bounds[size + i] = Math.min(bounds[size + i] ?? 0, peak);
      if (counts[i] === all[size + i]) bounds[i] = peak;
    }
    // The search narrows them, so they stay in an array that holds any number.
    return bounds;
  }

  /** By group and cell: the peak, then the count. Undefined without a record, and valid until the next call. */
  #decode({ id, cellsPerChunk }: Level, chunk: number, scope: number): Float64Array | undefined {
    const record = this.#readRecord(id, chunk, scope);
    if (record === undefined) return undefined;
    const size = GROUPS.length * cellsPerChunk;
    const decoded = DECODED.subarray(0, 2 * size).fill(0);
    accumulate(record, [0, cellsPerChunk, 0, 1], DECODED_ROWS, cellsPerChunk, decoded);
    addAllAttacks(decoded.subarray(size));
    // Peaks of 1 are not stored.
    for (let i = 0; i < size; i++) if (decoded[size + i] !== 0) decoded[i] ||= 1;
    return decoded;
  }

  minute(minute: number, add: (record: Uint8Array) => void): Promise<void> {
    return this.#slices.run(this.#readMinute(minute, add));
  }

  *#readMinute(minute: number, add: (record: Uint8Array) => void): Generator<void, void> {
    for (const scope of this.#query.scopes) {
      if (this.#hasCounts(minute, scope)) {
        const record = this.#readRecord(EXACT.id, minute, scope);
        if (record === undefined) throw new StoreDamaged(`${recordName(EXACT.id, minute, scope)} is missing`);
        add(record);
      }
      yield;
    }
  }

  /** Five times as fast as reading an exact record that does not exist. */
  #hasCounts(minute: number, scope: number): boolean {
    const chunk = Math.floor(minute / MINUTES.cellsPerChunk);
    const cell = minute - chunk * MINUTES.cellsPerChunk;
    const record = this.#readRecord(MINUTES.id, chunk, scope);
    const count = new Float64Array(1);
    if (record !== undefined) accumulate(record, [cell, cell + 1, 0, 1], COUNTED, 1, count);
    return count[0] !== 0;
  }

  #readRecord(level: number, chunk: number, scope: number): Uint8Array | undefined {
    const record = this.#records.read(level, chunk, scope);
    this.#recordsLeft--;
    this.#bytesLeft -= record?.length ?? 0;
    if (this.#recordsLeft < 0 || this.#bytesLeft < 0) throw new QueryTooLarge();
    return record;
  }
}

function boundsOf(bounds: CountArray, { cellsPerChunk }: Level): CellPeaks {
  const size = GROUPS.length * cellsPerChunk;
  if (bounds.length === size) return { lower: bounds, upper: bounds };
  return { lower: bounds.subarray(0, size), upper: bounds.subarray(size) };
}
