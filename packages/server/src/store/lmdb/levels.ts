/** The resolutions that counters are kept at, and how a range is tiled with the coarsest cells that fit. */

export interface Level {
  /**
   * Its number in the key of a record, never used for another meaning: it is on disk. The exact level has the
   * highest, so that live traffic appends at the end of the tree: there LMDB fills its pages, elsewhere it halves
   * them (10 MB instead of 22 for a month of six quiet hosts).
   */
  id: number;
  cellMs: number;
  cellsPerChunk: number;
}

const MINUTE_MS = 60_000;

/**
 * From coarse to fine. A chunk of cells is one record. Quarter hours are there because the local clocks of some
 * thousand million people stand at :15, :30 or :45 of an hour in UTC: without them their hour and day points
 * would be added up from minutes. The finest level holds the exact milliseconds; only the minutes that an edge
 * cuts are read from it. docs/storage.md tells how the chunk lengths were chosen.
 */
export const LEVELS = [
  { id: 0, cellMs: 60 * MINUTE_MS, cellsPerChunk: 384 },
  { id: 1, cellMs: 15 * MINUTE_MS, cellsPerChunk: 384 },
  { id: 2, cellMs: MINUTE_MS, cellsPerChunk: 120 },
  { id: 3, cellMs: 1, cellsPerChunk: MINUTE_MS },
] as const satisfies readonly Level[];

export const EXACT = LEVELS[3];
export const COUNTERS = LEVELS.slice(0, 3);

/** One record to read, and which of its cells count for which point. */
export interface ChunkPlan {
  level: number;
  chunk: number;
  /**
   * Runs of points of the same length, each four numbers: `first cell, cell behind the last, first point, cells in a
   * point`. Ascending and without overlap.
   */
  runs: number[];
}

/** Which cells of which chunks make up the points between neighbouring edges. The same for every host. */
export function planChunks(edges: readonly number[]): ChunkPlan[] {
  const plan: ChunkPlan[] = [];
  const newest: (ChunkPlan | undefined)[] = [];

  function tile(depth: number, from: number, to: number, point: number): void {
    const level = LEVELS[depth];
    if (level === undefined || from >= to) return;
    const first = Math.ceil(from / level.cellMs);
    const end = Math.floor(to / level.cellMs);
    if (first >= end) {
      tile(depth + 1, from, to, point);
      return;
    }
    tile(depth + 1, from, first * level.cellMs, point);
    addRun(depth, first, end, point, end - first);
    tile(depth + 1, end * level.cellMs, to, point);
  }

  /** Adds the cells from `first` up to `end`, which are points of so many cells each; the last may be shorter. */
  function addRun(depth: number, first: number, end: number, point: number, cellsInPoint: number): void {
    const { id, cellsPerChunk: size } = LEVELS[depth] ?? EXACT;
    for (let cell = first; cell < end; ) {
      const chunk = Math.floor(cell / size);
      const behind = Math.min(end, (chunk + 1) * size);
      let entry = newest[depth];
      if (entry?.chunk !== chunk) {
        entry = { level: id, chunk, runs: [] };
        newest[depth] = entry;
        plan.push(entry);
      }
      // A chunk may end within a point: what is left of the point is a run of its own in the next chunk.
      const left = cellsInPoint - ((cell - first) % cellsInPoint);
      const runBehind = left < cellsInPoint ? Math.min(behind, cell + left) : behind;
      const runPoint = point + Math.floor((cell - first) / cellsInPoint);
      entry.runs.push(cell - chunk * size, runBehind - chunk * size, runPoint, left);
      cell = runBehind;
    }
  }

  for (let point = 0; point + 1 < edges.length; ) {
    const from = edges[point] ?? 0;
    const step = (edges[point + 1] ?? 0) - from;
    const behind = behindRun(edges, point, step);
    const depth = behind > point + 1 ? depthOfGrid(from, step) : -1;
    if (depth === -1) tile(0, from, from + step, point++);
    else {
      const { cellMs } = LEVELS[depth] ?? EXACT;
      addRun(depth, from / cellMs, (edges[behind] ?? 0) / cellMs, point, step / cellMs);
      point = behind;
    }
  }
  return plan;
}

/** The point behind the last of those that follow each other with the same length. */
function behindRun(edges: readonly number[], point: number, step: number): number {
  let behind = point + 1;
  while (behind + 1 < edges.length && (edges[behind + 1] ?? 0) - (edges[behind] ?? 0) === step) behind++;
  return behind;
}

/**
 * The one level whose cells tile every point of a regular grid, or -1 when there is none, or when points are so long
 * that coarser cells fit into them. A day by minute is planned in 13 steps so, instead of 1,440 (0012).
 */
function depthOfGrid(from: number, step: number): number {
  if (step <= 0) return -1;
  const depth = LEVELS.findIndex(({ cellMs }) => from % cellMs === 0 && step % cellMs === 0);
  const coarser = LEVELS[depth - 1];
  return coarser !== undefined && step > coarser.cellMs ? -1 : depth;
}
