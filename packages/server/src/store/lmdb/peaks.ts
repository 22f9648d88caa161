/**
 * The busiest second of each point. Counters have the peaks of each project and host, which are exact for one of them, and
 * bounds for several. Exact milliseconds are read only for minutes whose bounds do not decide.
 */

import { accumulate, addAllAttacks, FIRST_PEAK, GROUP_ROWS, GROUPS, SECOND_RUNS } from '../cells.ts';
import { MinuteSlots, Peaks, partsOf } from '../peaks.ts';
import { clip, type Level, planChunks } from '../plan.ts';
import { SLICE_MS, type Slices } from '../slices.ts';
import { QueryTooLarge, StoreDamaged } from '../store.ts';
import { ChunkCache } from './chunk-cache.ts';
import { inSlices, type Lookups, readChanges } from './count.ts';
import { type CountArray, compact, largest } from './decoded-cells.ts';
import { RecordReader } from './records.ts';
import {
  allChanges,
  COUNTERS,
  cellsIn,
  EXACT,
  LEVELS,
  MINUTES,
  metaValue,
  type ReadOptions,
  recordName,
  type Schema,
} from './schema.ts';

/** For each of OVERVIEW_GROUPS, the peak of each point. */
type PeakFinder = (
  project: string,
  hosts: readonly string[] | undefined,
  edges: readonly number[],
) => Float64Array[] | Promise<Float64Array[]>;

const SECOND_MS = 1_000;
const SECONDS = EXACT.cellsPerChunk / SECOND_MS;
const HOURS = COUNTERS[0];

/** Rows of a decoded record: peaks by group, an empty row for each group, counts by group. */
const DECODED_ROWS = new Int8Array(FIRST_PEAK + GROUPS.length).fill(-1);
for (const [series, row] of GROUP_ROWS.entries()) DECODED_ROWS[series] = 2 * GROUPS.length + row;
for (const group of GROUPS.keys()) DECODED_ROWS[FIRST_PEAK + group] = group;

/** The record that was decoded last. No chunk has more cells than one of hours. */
const DECODED = new Float64Array(3 * GROUPS.length * HOURS.cellsPerChunk);

/** What one query may read where bounds do not decide: about two seconds of work, in slices. */
const LIMITS = { records: 500_000, bytes: 256 * 1_048_576 };

interface Query {
  scopes: readonly number[];
  key: number;
  project: number;
  edges: readonly number[];
  changes: number;
  /** Missing if the query runs at once. */
  read?: ReadOptions;
  slices?: Slices;
}

/** Cells of a chunk that belong to one point. */
interface Part {
  level: number;
  chunk: number;
  first: number;
  end: number;
}

export function createPeakFinder(schema: Schema, lookups: Lookups, limits = LIMITS): PeakFinder {
  /** For each group and cell of a chunk: a lower bound of the peak, and an upper bound unless the peak is known. */
  const cache = new ChunkCache(lookups.chunks, 'peaks');

  return (projectId, hosts, edges) => {
    // A new snapshot, so that a caller who compares the change counter before and after this query notices a change.
    const changes = lookups.changes.renew();
    const { project, horizon, deleted } = lookups.findProject(projectId, changes);
    if (project === undefined) return GROUPS.map(() => new Float64Array(edges.length - 1));
    const { scopes, key } = lookups.select(project, hosts, deleted);
    const query = { scopes, key, project: project.scope };
    const search = (more: Omit<Query, keyof typeof query>) =>
      new PeakSearch(schema, cache, { ...query, ...more }, limits).run();
    if (scopes.length === 1) {
      const clipped = clip(edges, horizon, project.latest);
      // Without slices, the only step returns the peaks.
      return search({ edges: clipped, changes }).next().value as Float64Array[];
    }
    return inSlices(schema, SLICE_MS, (read, slices) => {
      const { latest } = schema.projects.get(projectId, read) ?? project;
      const clipped = clip(edges, metaValue(schema, 'horizon', read), latest);
      return search({ edges: clipped, changes: allChanges(schema, read), read, slices });
    });
  };
}

/** One query. Its generators yield when a slice is over. */
class PeakSearch {
  readonly #schema: Schema;
  readonly #cache: ChunkCache;
  readonly #query: Query;
  readonly #records: RecordReader;
  readonly #cacheKey: number;
  /** The largest known lower bounds, which in the end are the peaks. */
  readonly #best: Peaks;
  #recordsLeft: number;
  #bytesLeft: number;
  /** The upper bounds of each scope in the chunk of minutes that was read last. */
  #minutes: { chunk: number; scopes: Map<number, Float64Array> } = { chunk: -1, scopes: new Map() };

  constructor(schema: Schema, cache: ChunkCache, query: Query, limits: typeof LIMITS) {
    const { key, read, edges } = query;
    this.#schema = schema;
    this.#cache = cache;
    this.#query = query;
    this.#records = new RecordReader(schema, { read });
    this.#cacheKey = key;
    this.#best = new Peaks(edges.length - 1);
    this.#recordsLeft = limits.records;
    this.#bytesLeft = limits.bytes;
  }

  *run(): Generator<void, Float64Array[]> {
    const undecided = new Map<number, Part[]>();
    const plan = this.#query.scopes.length === 0 ? [] : planChunks(this.#query.edges, LEVELS);
    for (const { level, chunk, runs } of plan) {
      if (level === EXACT.id) {
        yield* this.#addCutMinute(chunk, runs);
        continue;
      }
      const bounds = yield* this.#boundsOf(level, chunk);
      const isKnown = bounds.length === GROUPS.length * cellsIn(level);
      for (const { point, first, end } of partsOf(runs)) {
        this.#raise(point, bounds, cellsIn(level), first, end);
        if (isKnown || !this.#isOpen(point, bounds, cellsIn(level), first, end)) continue;
        const parts = undecided.get(point) ?? [];
        if (parts.push({ level, chunk, first, end }) === 1) undecided.set(point, parts);
      }
    }
    for (const [point, parts] of undecided) {
      for (const group of GROUPS.keys()) yield* this.#decide(group, point, parts);
    }
    return this.#best.rows();
  }

  /** Raises the peaks of a point to the lower bounds of its cells. */
  #raise(point: number, bounds: CountArray, cells: number, first: number, end: number): void {
    for (let group = 0; group < GROUPS.length; group++) {
      this.#best.raise(group, point, largest(bounds, group * cells + first, group * cells + end));
    }
  }

  #isOpen(point: number, bounds: CountArray, cells: number, first: number, end: number): boolean {
    return GROUPS.some((_, group) => {
      const start = (GROUPS.length + group) * cells;
      return largest(bounds, start + first, start + end) > this.#best.get(group, point);
    });
  }

  /** Looks into the cells whose upper bound is above the best of the point, the highest first. */
  *#decide(group: number, point: number, parts: readonly Part[]): Generator<void> {
    const best = () => this.#best.get(group, point);
    const open: (Part & { cell: number; bounds: CountArray; upper: number })[] = [];
    for (const part of parts) {
      const cells = cellsIn(part.level);
      const bounds = yield* this.#boundsOf(part.level, part.chunk);
      this.#raise(point, bounds, cells, part.first, part.end);
      if (bounds.length === GROUPS.length * cells) continue;
      for (let cell = part.first; cell < part.end; cell++) {
        const upper = bounds[(GROUPS.length + group) * cells + cell] ?? 0;
        if (upper > best()) open.push({ ...part, cell, bounds, upper });
      }
    }
    open.sort((a, b) => b.upper - a.upper);
    for (const { level, chunk, cell, bounds, upper } of open) {
      if (upper <= best()) return;
      // The search for another group may have lowered the bound.
      if ((bounds[(GROUPS.length + group) * cellsIn(level) + cell] ?? 0) <= best()) continue;
      if (level === MINUTES.id) yield* this.#readMinute(chunk, cell, bounds, point);
      else {
        const finer = partBelow(level, chunk, cell);
        yield* this.#decide(group, point, [finer]);
        narrow(bounds, cellsIn(level), cell, yield* this.#boundsOf(finer.level, finer.chunk), finer);
      }
    }
  }

  *#boundsOf(level: number, chunk: number): Generator<void, CountArray> {
    const { scopes, project, changes, read, slices } = this.#query;
    const cached = this.#cache.open(level, chunk, changes, () =>
      readChanges(this.#schema, this.#records, level, chunk, read),
    );
    const known = cached.get(this.#cacheKey);
    if (known !== undefined) return known;
    const size = GROUPS.length * cellsIn(level);
    if (scopes.length === 1) {
      const bounds = this.#decode(level, chunk, scopes[0] ?? 0) ?? new Float64Array(size);
      return cached.put(this.#cacheKey, compact(bounds.subarray(0, size)));
    }
    const sums = new Float64Array(3 * size);
    for (const scope of scopes) {
      const bounds = this.#decode(level, chunk, scope);
      if (level !== HOURS.id) this.#spend(1, 0);
      for (let i = 0; bounds !== undefined && i < size; i++) {
        sums[i] = Math.max(sums[i] ?? 0, bounds[i] ?? 0);
        sums[size + i] = (sums[size + i] ?? 0) + (bounds[size + i] ?? 0);
        sums[2 * size + i] = (sums[2 * size + i] ?? 0) + (bounds[2 * size + i] ?? 0);
      }
      if (slices?.isOver()) yield;
    }
    // No second of the hosts is busier than that of the project. If they have all its counts, they have its peaks too.
    const all = this.#decode(level, chunk, project) ?? EMPTY;
    for (let i = size; i < size + Math.min(size, all.length); i++) {
      sums[i] = Math.min(sums[i] ?? 0, all[i] ?? 0);
      if (sums[size + i] === all[size + i])
        sums[i - size] = Math.max(sums[i - size] ?? 0, all[i - size] ?? 0);
    }
    // Bounds are narrowed later, so they stay in an array that holds any number.
    return cached.put(this.#cacheKey, sums.slice(0, 2 * size));
  }

  /**
   * By group and cell: a lower and an upper bound of the peak, and the count. Undefined without a record, and valid until
   * the next call.
   */
  #decode(level: number, chunk: number, scope: number): Float64Array | undefined {
    const record = this.#records.read(level, chunk, scope);
    if (record === undefined) return undefined;
    const cells = cellsIn(level);
    const size = GROUPS.length * cells;
    const decoded = DECODED.subarray(0, 3 * size).fill(0);
    accumulate(record, [0, cells, 0, 1], DECODED_ROWS, cells, decoded);
    addAllAttacks(decoded.subarray(2 * size));
    for (let i = 0; i < size; i++) {
      if (decoded[2 * size + i] === 0) continue;
      // Peaks of 1 are not stored.
      decoded[i] ||= 1;
      decoded[size + i] = decoded[i] ?? 0;
    }
    return decoded;
  }

  /** Reads the hosts of a minute until it is clear that it has no higher peak, and narrows its bounds. */
  *#readMinute(chunk: number, cell: number, bounds: CountArray, point: number): Generator<void> {
    const scopes = yield* this.#scopesOfMinutes(chunk);
    const cells = MINUTES.cellsPerChunk;
    const upperOf = (one: Float64Array, group: number) => one[group * cells + cell] ?? 0;
    const minute = chunk * cells + cell;
    const seconds = new Float64Array(GROUPS.length * SECONDS);
    const rest = GROUPS.map((_, group) =>
      [...scopes.values()].reduce((sum, one) => sum + upperOf(one, group), 0),
    );
    const hasAttacks = rest.at(-1) !== 0;
    for (const [scope, one] of scopes) {
      if (upperOf(one, 0) === 0 && upperOf(one, GROUPS.length - 1) === 0) continue;
      const record = this.#addSeconds(minute, scope, seconds);
      if (hasAttacks) addAllAttacks(seconds);
      let isOpen = false;
      for (let group = 0; group < GROUPS.length; group++) {
        const left = (rest[group] ?? 0) - upperOf(one, group);
        rest[group] = left;
        if (left === 0) continue;
        const peak = largest(seconds, group * SECONDS, (group + 1) * SECONDS);
        isOpen ||= peak + left > this.#best.get(group, point);
      }
      if (this.#query.slices?.isOver(record)) yield;
      if (!isOpen) break;
    }
    for (let group = 0; group < GROUPS.length; group++) {
      const peak = largest(seconds, group * SECONDS, (group + 1) * SECONDS);
      raise(bounds, group * cells + cell, peak);
      const upper = (GROUPS.length + group) * cells + cell;
      bounds[upper] = Math.min(bounds[upper] ?? 0, peak + (rest[group] ?? 0));
    }
    this.#raise(point, bounds, cells, cell, cell + 1);
  }

  *#scopesOfMinutes(chunk: number): Generator<void, Map<number, Float64Array>> {
    if (this.#minutes.chunk === chunk) return this.#minutes.scopes;
    const scopes = new Map<number, Float64Array>();
    for (const scope of this.#query.scopes) {
      const bounds = this.#decode(MINUTES.id, chunk, scope);
      this.#spend(1, 0);
      if (bounds !== undefined) scopes.set(scope, bounds.slice(bounds.length / 3, (bounds.length / 3) * 2));
      if (this.#query.slices?.isOver()) yield;
    }
    this.#minutes = { chunk, scopes };
    return scopes;
  }

  /** Counts a minute that edges cut, possibly within a second. */
  *#addCutMinute(minute: number, runs: number[]): Generator<void> {
    const slots = new MinuteSlots(runs);
    for (const scope of this.#query.scopes) {
      const record = this.#records.read(EXACT.id, minute, scope);
      if (record !== undefined) {
        this.#spend(1, record.length);
        slots.add(record);
      }
      if (this.#query.slices?.isOver(record)) yield;
    }
    slots.raise(this.#best);
  }

  /** Adds the seconds of an exact record, by group. Returns the record. */
  #addSeconds(minute: number, scope: number, seconds: Float64Array): Uint8Array {
    const record = this.#records.read(EXACT.id, minute, scope);
    if (record === undefined) throw new StoreDamaged(`${recordName(EXACT.id, minute, scope)} is missing`);
    this.#spend(1, record.length);
    accumulate(record, SECOND_RUNS, GROUP_ROWS, SECONDS, seconds);
    return record;
  }

  #spend(records: number, bytes: number): void {
    this.#recordsLeft -= records;
    this.#bytesLeft -= bytes;
    if (this.#recordsLeft < 0 || this.#bytesLeft < 0) throw new QueryTooLarge();
  }
}

const EMPTY = new Float64Array(0);

/** The cells of the next finer level that make up a cell. They are in one chunk. */
function partBelow(level: number, chunk: number, cell: number): Part {
  const coarse: Level = COUNTERS[level] ?? MINUTES;
  const fine: Level = COUNTERS[level + 1] ?? MINUTES;
  const ratio = coarse.cellMs / fine.cellMs;
  const first = (chunk * coarse.cellsPerChunk + cell) * ratio;
  const fineChunk = Math.floor(first / fine.cellsPerChunk);
  const start = first - fineChunk * fine.cellsPerChunk;
  return { level: fine.id, chunk: fineChunk, first: start, end: start + ratio };
}

/** Narrows the bounds of a cell to those of the finer cells that make it up. */
function narrow(bounds: CountArray, cells: number, cell: number, finer: CountArray, part: Part): void {
  const finerCells = cellsIn(part.level);
  for (let group = 0; group < GROUPS.length; group++) {
    const start = group * finerCells;
    raise(bounds, group * cells + cell, largest(finer, start + part.first, start + part.end));
    // The second half has the upper bounds; if it is missing, the lower ones are exact.
    const upperStart = start + finer.length - GROUPS.length * finerCells;
    const upper = (GROUPS.length + group) * cells + cell;
    bounds[upper] = Math.min(
      bounds[upper] ?? 0,
      largest(finer, upperStart + part.first, upperStart + part.end),
    );
  }
}

function raise(values: CountArray, at: number, n: number): void {
  if (n > (values[at] ?? 0)) values[at] = n;
}
