/**
 * The busiest second of each point. A store knows the peaks of its cells, or only bounds of them: the peaks of hosts do not
 * add up. Where bounds do not decide, the cells with the highest ones are searched, down to the milliseconds of minutes.
 */
import { accumulate, addAllAttacks, type CountArray, GROUP_ROWS, GROUPS, largest } from './cells.ts';
import { type ChunkPlan, type Level, planChunks } from './plan.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;

/** The peaks of the cells of a chunk, by group and cell. */
export interface CellPeaks {
  /** Each peak is at least `lower` and at most `upper`, which are the same array if all are known. */
  lower: CountArray;
  upper: CountArray;
}

/** What a query reads from the store, all from one snapshot. */
export interface PeakReader {
  /** From coarse to fine; the last one has minutes. The index of a level is its ID. */
  levels: readonly Level[];
  /** The level of exact milliseconds, with a chunk for each minute. */
  exact: Level;
  /** At least those from the cell `first` to `end` (exclusive). The search narrows bounds in place. */
  cells(level: Level, chunk: number, first: number, end: number): CellPeaks | Promise<CellPeaks>;
  /** Passes each record of exact milliseconds to `add`. */
  minute(minute: number, add: (record: Uint8Array) => void): Promise<void>;
}

/** Cells of a chunk that belong to one point. */
interface Part {
  level: Level;
  chunk: number;
  first: number;
  end: number;
  peaks: CellPeaks;
}

/** For each of OVERVIEW_GROUPS, the peak of each point between the edges. */
export async function findPeaks(edges: readonly number[], reader: PeakReader): Promise<Float64Array[]> {
  const points = edges.length - 1;
  /** The largest known lower bounds, which in the end are the peaks. */
  const best = GROUPS.map(() => new Float64Array(points));
  const bestOf = (group: number, point: number) => best[group]?.[point] ?? 0;
  const undecided = new Map<number, Part[]>();
  for (const { level: id, chunk, runs } of planChunks(edges, [...reader.levels, reader.exact])) {
    const level = reader.levels[id];
    if (level === undefined) {
      await readSlots(reader, chunk, runs, (group, point, n) => raise(best[group], point, n));
      continue;
    }
    const peaks = await reader.cells(level, chunk, runs[0] ?? 0, runs.at(-3) ?? 0);
    for (const { point, first, end } of partsOf(runs)) {
      const part = { level, chunk, first, end, peaks };
      raiseToCells(point, part);
      if (peaks.lower === peaks.upper || !GROUPS.some((_, group) => isOpen(group, point, part))) continue;
      const parts = undecided.get(point) ?? [];
      undecided.set(point, parts);
      parts.push(part);
    }
  }
  for (const [point, parts] of undecided) {
    for (const group of GROUPS.keys()) await decide(group, point, parts);
  }
  return best;

  function raiseToCells(point: number, { level, first, end, peaks }: Part): void {
    for (let group = 0; group < GROUPS.length; group++) {
      const start = group * level.cellsPerChunk;
      raise(best[group], point, largest(peaks.lower, start + first, start + end));
    }
  }

  function isOpen(group: number, point: number, { level, first, end, peaks }: Part): boolean {
    const start = group * level.cellsPerChunk;
    return largest(peaks.upper, start + first, start + end) > bestOf(group, point);
  }

  /** Searches the cells whose upper bound is above the best of the point, the highest first. */
  async function decide(group: number, point: number, parts: readonly Part[]): Promise<void> {
    const open: { part: Part; cell: number; at: number; upper: number }[] = [];
    for (const part of parts) {
      for (let cell = part.first; cell < part.end; cell++) {
        const at = group * part.level.cellsPerChunk + cell;
        const upper = part.peaks.upper[at] ?? 0;
        if (upper > bestOf(group, point)) open.push({ part, cell, at, upper });
      }
    }
    open.sort((a, b) => b.upper - a.upper);
    for (const { part, cell, at } of open) {
      // The search of other cells may have raised the best, that for another group may have lowered the bound.
      if ((part.peaks.upper[at] ?? 0) <= bestOf(group, point)) continue;
      const finer = reader.levels[part.level.id + 1];
      if (finer === undefined) await searchMinute(point, part, cell);
      else {
        const below = await partBelow(part, cell, finer);
        raiseToCells(point, below);
        await decide(group, point, [below]);
        narrow(part, cell, below);
      }
    }
  }

  async function searchMinute(point: number, { level, chunk, peaks }: Part, cell: number): Promise<void> {
    const { cellsPerChunk } = level;
    const found = new Float64Array(GROUPS.length);
    const minute = chunk * cellsPerChunk + cell;
    await readSlots(reader, minute, WHOLE_MINUTE, (group, _, n) => raise(found, group, n));
    for (const [group, peak] of found.entries()) {
      const at = group * cellsPerChunk + cell;
      peaks.lower[at] = peak;
      peaks.upper[at] = peak;
      raise(best[group], point, peak);
    }
  }

  /** The cells of the next finer level that make up a cell. They are in one chunk. */
  async function partBelow({ level, chunk }: Part, cell: number, finer: Level): Promise<Part> {
    const ratio = level.cellMs / finer.cellMs;
    const from = (chunk * level.cellsPerChunk + cell) * ratio;
    const finerChunk = Math.floor(from / finer.cellsPerChunk);
    const first = from - finerChunk * finer.cellsPerChunk;
    const peaks = await reader.cells(finer, finerChunk, first, first + ratio);
    return { level: finer, chunk: finerChunk, first, end: first + ratio, peaks };
  }
}

/** Narrows the bounds of a cell to those of the finer cells that make it up. */
function narrow({ level, peaks }: Part, cell: number, { peaks: finer, ...below }: Part): void {
  for (const group of GROUPS.keys()) {
    const at = group * level.cellsPerChunk + cell;
    const start = group * below.level.cellsPerChunk;
    raise(peaks.lower, at, largest(finer.lower, start + below.first, start + below.end));
    const upper = largest(finer.upper, start + below.first, start + below.end);
    peaks.upper[at] = Math.min(peaks.upper[at] ?? 0, upper);
  }
}

const WHOLE_MINUTE = [0, MINUTE_MS, 0, MINUTE_MS];

/** Passes the count of each group in each second of the points in a minute, or in the part of a second within a point. */
async function readSlots(
  reader: PeakReader,
  minute: number,
  runs: ChunkPlan['runs'],
  use: (group: number, point: number, count: number) => void,
): Promise<void> {
  const slots: number[] = [];
  const points: number[] = [];
  for (const { point, first, end } of partsOf(runs)) {
    for (let at = first; at < end; ) {
      const slotEnd = Math.min(end, (Math.floor(at / SECOND_MS) + 1) * SECOND_MS);
      slots.push(at, slotEnd, points.length, slotEnd - at);
      points.push(point);
      at = slotEnd;
    }
  }
  const counts = new Float64Array(GROUPS.length * points.length);
  await reader.minute(minute, (record) => accumulate(record, slots, GROUP_ROWS, points.length, counts));
  addAllAttacks(counts);
  for (let group = 0; group < GROUPS.length; group++) {
    for (const [slot, point] of points.entries())
      use(group, point, counts[group * points.length + slot] ?? 0);
  }
}

/** The cells of each point of the runs (plan.ts). */
function* partsOf(runs: ChunkPlan['runs']): Generator<{ point: number; first: number; end: number }> {
  for (let run = 0; run < runs.length; run += 4) {
    const end = runs[run + 1] ?? 0;
    const cellsInPoint = runs[run + 3] ?? 1;
    let point = runs[run + 2] ?? 0;
    for (let first = runs[run] ?? 0; first < end; first += cellsInPoint) {
      yield { point, first, end: Math.min(end, first + cellsInPoint) };
      point++;
    }
  }
}

function raise(values: CountArray | undefined, at: number, n: number): void {
  if (values !== undefined && n > (values[at] ?? 0)) values[at] = n;
}
