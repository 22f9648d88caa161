/** The busiest second of each point, from exact milliseconds. Counters tell which minutes have any. */
import { CATEGORIES, OVERVIEW_GROUPS } from '../../event.ts';
import { accumulate, FIRST_CATEGORY, REQUESTS } from '../cells.ts';
import { QueryTooLarge, StoreDamaged } from '../store.ts';
import { ChunkCache } from './chunk-cache.ts';
import { clip, inSlices, type Lookups, readChanges, SLICE_MS, type Slices } from './count.ts';
import { EXACT, LEVELS, type Level } from './levels.ts';
import { RecordReader } from './records.ts';
import { allChanges, metaValue, type ReadOptions, recordName, type Schema } from './schema.ts';

/** For each of OVERVIEW_GROUPS, the peak of each point. */
export type PeakFinder = (
  project: string,
  hosts: readonly string[] | undefined,
  edges: readonly number[],
) => Promise<Float64Array[]>;

const SECOND_MS = 1_000;
const MINUTE_MS = EXACT.cellsPerChunk;
const HOURS = LEVELS[0];
const MINUTES = LEVELS[2];
const PER_CHUNK = MINUTES.cellsPerChunk;

const GROUPS = Object.values(OVERVIEW_GROUPS);
/** The last group is the sum of the attacks in the others. */
const ROWS = GROUPS.length - 1;
const ROW_OF = new Int8Array(FIRST_CATEGORY + CATEGORIES.length);
ROW_OF[REQUESTS] = GROUPS.indexOf(null);
for (const [category, name] of CATEGORIES.entries()) {
  ROW_OF[FIRST_CATEGORY + category] = GROUPS.findIndex((group) => group?.includes(name));
}
/** All series in one row. */
const ANY_ROW = new Int8Array(ROW_OF.length);

/** The seconds of a whole minute, as runs (levels.ts). */
const SECONDS = [0, MINUTE_MS, 0, SECOND_MS];

/** What one query may read: about two seconds of work, in slices. Cached minutes are free. */
const LIMITS = { records: 250_000, bytes: 128 * 1_048_576 };

/** 16 MB of eight bytes each: a month of 8 projects or hosts. */
const CACHED_NUMBERS_MAX = 2_097_152;

/** The minutes of a range, of which the first and the last may be cut. */
interface Minutes {
  first: number;
  end: number;
}

export function createPeakFinder(
  schema: Schema,
  { hostSets, absences, scopesOf, findProject }: Lookups,
  limits = LIMITS,
): PeakFinder {
  /** By chunk of minutes: for each group, the peak of each minute. */
  const cache = new ChunkCache(CACHED_NUMBERS_MAX);

  function* find(
    scopes: readonly number[],
    edges: readonly number[],
    read: ReadOptions,
    slices: Slices,
  ): Generator<void, Float64Array[]> {
    const out = GROUPS.map(() => new Float64Array(edges.length - 1));
    if (scopes.length === 0 || (edges[0] ?? 0) >= (edges.at(-1) ?? 0)) return out;
    const changes = allChanges(schema, read);
    const records = new RecordReader(schema, { read, known: { absences, allChanges: changes } });
    const cacheKey = scopes.length === 1 ? (scopes[0] ?? 0) : hostSets.idOf(scopes);
    const open = (chunk: number) =>
      cache.open(MINUTES.id, chunk, changes, () => readChanges(schema, records, MINUTES.id, chunk, read));
    const minutes = minutesOf(edges);
    const chunks = yield* chunksWithCounts(scopes, minutes, records, slices);
    const missing = chunks.filter((chunk) => open(chunk).get(cacheKey) === undefined);
    yield* checkSize(scopes, minutes, missing, records, slices);

    const reader = new MinuteReader(scopes, records, slices, limits.bytes);
    let point = 0;
    for (const chunk of chunks) {
      const [from, to] = within(minutes, chunk);
      const cached = open(chunk);
      let peaks = cached.get(cacheKey);
      if (peaks === undefined) {
        yield* reader.open(chunk);
        peaks = yield* reader.peaksOfMinutes(from, to);
        if (to - from === PER_CHUNK) cached.put(cacheKey, peaks);
      }
      for (let minute = from; minute < to; minute++) {
        while ((edges[point + 1] ?? 0) <= minute * MINUTE_MS) point++;
        const isWhole =
          (edges[point] ?? 0) <= minute * MINUTE_MS && (edges[point + 1] ?? 0) >= (minute + 1) * MINUTE_MS;
        if (isWhole) {
          const at = minute - chunk * PER_CHUNK;
          for (const [group, found] of out.entries()) raise(found, point, peaks[group * PER_CHUNK + at] ?? 0);
        } else {
          yield* reader.open(chunk);
          yield* reader.addCutMinute(minute, edges, point, out);
        }
      }
    }
    return out;
  }

  /** Counts the records to read before reading them. */
  function* checkSize(
    scopes: readonly number[],
    minutes: Minutes,
    chunks: readonly number[],
    records: RecordReader,
    slices: Slices,
  ): Generator<void> {
    let size = scopes.length * chunks.length;
    if (size > limits.records) throw new QueryTooLarge();
    for (const chunk of chunks) {
      const [from, to] = within(minutes, chunk);
      for (const scope of scopes) {
        const counts = countsByCell(records, MINUTES, chunk, scope);
        for (let minute = from; minute < to; minute++) if (counts[minute - chunk * PER_CHUNK] !== 0) size++;
        if (slices.isOver()) yield;
      }
      if (size > limits.records) throw new QueryTooLarge();
    }
  }

  return async (projectId, hosts, edges) => {
    const { project } = findProject(projectId, allChanges(schema));
    if (project === undefined) return GROUPS.map(() => new Float64Array(edges.length - 1));
    const scopes = hosts === undefined ? [project.scope] : scopesOf(project, hosts);
    return inSlices(schema, SLICE_MS, (read, slices) => {
      const { latest } = schema.projects.get(projectId, read) ?? project;
      return find(scopes, clip(edges, metaValue(schema, 'horizon', read), latest), read, slices);
    });
  };
}

/** Reads the exact records of the minutes of one chunk. */
class MinuteReader {
  readonly #scopes: readonly number[];
  readonly #records: RecordReader;
  readonly #slices: Slices;
  #bytesLeft: number;
  #chunk = -1;
  /** By scope: which minutes of the chunk have counts. */
  #hasCounts: Uint8Array[] = [];

  constructor(scopes: readonly number[], records: RecordReader, slices: Slices, bytesMax: number) {
    this.#scopes = scopes;
    this.#records = records;
    this.#slices = slices;
    this.#bytesLeft = bytesMax;
  }

  *open(chunk: number): Generator<void> {
    if (chunk === this.#chunk) return;
    this.#hasCounts = [];
    for (const scope of this.#scopes) {
      this.#hasCounts.push(
        Uint8Array.from(countsByCell(this.#records, MINUTES, chunk, scope), (n) => (n > 0 ? 1 : 0)),
      );
      if (this.#slices.isOver()) yield;
    }
    this.#chunk = chunk;
  }

  /** For each group, the peak of each minute of the chunk; 0 outside of the range. */
  *peaksOfMinutes(from: number, to: number): Generator<void, Float64Array> {
    const peaks = new Float64Array(GROUPS.length * PER_CHUNK);
    const sums = new Float64Array(ROWS * (MINUTE_MS / SECOND_MS));
    for (let minute = from; minute < to; minute++) {
      sums.fill(0);
      if (!(yield* this.#add(minute, SECONDS, sums))) continue;
      const at = minute - this.#chunk * PER_CHUNK;
      eachSlot(sums, (_, group, n) => raise(peaks, group * PER_CHUNK + at, n));
    }
    return peaks;
  }

  /** A minute that edges cut, possibly within a second. `point` is the first point that ends after its start. */
  *addCutMinute(
    minute: number,
    edges: readonly number[],
    point: number,
    out: Float64Array[],
  ): Generator<void> {
    const start = minute * MINUTE_MS;
    const end = start + MINUTE_MS;
    const runs: number[] = [];
    const points: number[] = [];
    for (let i = point; i + 1 < edges.length && (edges[i] ?? 0) < end; i++) {
      const pointEnd = Math.min(edges[i + 1] ?? 0, end);
      for (let at = Math.max(edges[i] ?? 0, start); at < pointEnd; ) {
        const slotEnd = Math.min(pointEnd, (Math.floor(at / SECOND_MS) + 1) * SECOND_MS);
        runs.push(at - start, slotEnd - start, points.length, slotEnd - at);
        points.push(i);
        at = slotEnd;
      }
    }
    const sums = new Float64Array(ROWS * points.length);
    if (!(yield* this.#add(minute, runs, sums))) return;
    eachSlot(sums, (slot, group, n) => raise(out[group] as Float64Array, points[slot] ?? 0, n));
  }

  /** Adds the counts of all scopes, by row and slot. Returns whether there are any. */
  *#add(minute: number, runs: number[], sums: Float64Array): Generator<void, boolean> {
    let isAny = false;
    for (const [i, scope] of this.#scopes.entries()) {
      if (this.#hasCounts[i]?.[minute - this.#chunk * PER_CHUNK] !== 1) continue;
      const record = this.#records.read(EXACT.id, minute, scope);
      if (record === undefined) throw new StoreDamaged(`${recordName(EXACT.id, minute, scope)} is missing`);
      this.#bytesLeft -= record.length;
      if (this.#bytesLeft < 0) throw new QueryTooLarge();
      accumulate(record, runs, ROW_OF, sums.length / ROWS, sums);
      isAny = true;
      if (this.#slices.isOver()) yield;
    }
    return isAny;
  }
}

/** Calls back with the counts of each slot in each group. */
function eachSlot(sums: Float64Array, count: (slot: number, group: number, n: number) => void): void {
  const slots = sums.length / ROWS;
  for (let slot = 0; slot < slots; slot++) {
    let attacks = 0;
    for (let row = 0; row < ROWS; row++) {
      const n = sums[row * slots + slot] ?? 0;
      count(slot, row, n);
      if (GROUPS[row] !== null) attacks += n;
    }
    count(slot, ROWS, attacks);
  }
}

/** The chunks of minutes that have counts, by the counters of hours. */
function* chunksWithCounts(
  scopes: readonly number[],
  { first, end }: Minutes,
  records: RecordReader,
  slices: Slices,
): Generator<void, number[]> {
  const found = new Set<number>();
  const minutesPerCell = HOURS.cellMs / MINUTE_MS;
  const minutesPerChunk = minutesPerCell * HOURS.cellsPerChunk;
  for (let chunk = Math.floor(first / minutesPerChunk); chunk * minutesPerChunk < end; chunk++) {
    for (const scope of scopes) {
      for (const [cell, n] of countsByCell(records, HOURS, chunk, scope).entries()) {
        const minute = chunk * minutesPerChunk + cell * minutesPerCell;
        if (n > 0 && minute + minutesPerCell > first && minute < end)
          found.add(Math.floor(minute / PER_CHUNK));
      }
      if (slices.isOver()) yield;
    }
  }
  return [...found].sort((a, b) => a - b);
}

/** Requests and attacks together. */
function countsByCell(
  records: RecordReader,
  { id, cellsPerChunk }: Level,
  chunk: number,
  scope: number,
): Float64Array {
  const counts = new Float64Array(cellsPerChunk);
  const record = records.read(id, chunk, scope);
  if (record !== undefined) accumulate(record, [0, cellsPerChunk, 0, 1], ANY_ROW, cellsPerChunk, counts);
  return counts;
}

function minutesOf(edges: readonly number[]): Minutes {
  const first = Math.floor((edges[0] ?? 0) / MINUTE_MS);
  const end = Math.ceil((edges.at(-1) ?? 0) / MINUTE_MS);
  return { first, end };
}

/** The minutes of the range in a chunk. */
function within({ first, end }: Minutes, chunk: number): [from: number, to: number] {
  return [Math.max(first, chunk * PER_CHUNK), Math.min(end, (chunk + 1) * PER_CHUNK)];
}

function raise(values: Float64Array, at: number, n: number): void {
  if (n > (values[at] ?? 0)) values[at] = n;
}
