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

/** Requests, groups of attacks, and all attacks: the last is the sum of those between. */
const GROUPS = Object.values(OVERVIEW_GROUPS);
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
const LIMITS = { records: 250_000, bytes: 256 * 1_048_576 };

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
    const missing: number[] = [];
    for (const chunk of chunks) {
      if (open(chunk).get(cacheKey) === undefined) missing.push(chunk);
      if (slices.isOver()) yield;
    }
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
      for (let minute = from; minute < to; ) {
        while ((edges[point + 1] ?? 0) <= minute * MINUTE_MS) point++;
        const end = Math.min(to, Math.floor((edges[point + 1] ?? 0) / MINUTE_MS));
        if ((edges[point] ?? 0) > minute * MINUTE_MS || end === minute) {
          yield* reader.open(chunk);
          yield* reader.addCutMinute(minute++, edges, point, out);
          continue;
        }
        const first = minute - chunk * PER_CHUNK;
        for (let group = 0; group < GROUPS.length; group++) {
          const start = group * PER_CHUNK + first;
          raise(out[group] as Float64Array, point, largest(peaks, start, start + end - minute));
        }
        minute = end;
      }
      if (slices.isOver()) yield;
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
    const seconds = MINUTE_MS / SECOND_MS;
    const sums = new Float64Array(GROUPS.length * seconds);
    for (let minute = from; minute < to; minute++) {
      sums.fill(0);
      if (!(yield* this.#add(minute, SECONDS, sums))) continue;
      const at = minute - this.#chunk * PER_CHUNK;
      for (let group = 0; group < GROUPS.length; group++) {
        peaks[group * PER_CHUNK + at] = largest(sums, group * seconds, (group + 1) * seconds);
      }
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
    const sums = new Float64Array(GROUPS.length * points.length);
    if (!(yield* this.#add(minute, runs, sums))) return;
    for (const [i, n] of sums.entries()) {
      raise(out[Math.floor(i / points.length)] as Float64Array, points[i % points.length] ?? 0, n);
    }
  }

  /** Adds the counts of all scopes, by group and slot. Returns whether there are any. */
  *#add(minute: number, runs: number[], sums: Float64Array): Generator<void, boolean> {
    let isAny = false;
    const at = minute - this.#chunk * PER_CHUNK;
    for (let i = 0; i < this.#scopes.length; i++) {
      if (this.#hasCounts[i]?.[at] !== 1) continue;
      const scope = this.#scopes[i] ?? 0;
      const record = this.#records.read(EXACT.id, minute, scope);
      if (record === undefined) throw new StoreDamaged(`${recordName(EXACT.id, minute, scope)} is missing`);
      this.#bytesLeft -= record.length;
      if (this.#bytesLeft < 0) throw new QueryTooLarge();
      accumulate(record, runs, ROW_OF, sums.length / GROUPS.length, sums);
      isAny = true;
      if (this.#slices.isOver()) yield;
    }
    if (isAny) addAllAttacks(sums);
    return isAny;
  }
}

/** Fills in the last group. */
function addAllAttacks(sums: Float64Array): void {
  const slots = sums.length / GROUPS.length;
  const last = slots * (GROUPS.length - 1);
  for (let row = slots; row < last; row += slots) {
    for (let slot = 0; slot < slots; slot++) {
      sums[last + slot] = (sums[last + slot] ?? 0) + (sums[row + slot] ?? 0);
    }
  }
}

function largest(numbers: Float64Array, from: number, to: number): number {
  let found = 0;
  for (let i = from; i < to; i++) if ((numbers[i] ?? 0) > found) found = numbers[i] ?? 0;
  return found;
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
