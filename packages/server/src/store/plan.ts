/** The plan of a query: which cells make up its points, the coarsest that fit. Stores choose their levels. */

export interface Level {
  /** Part of keys on disk, so it must never change. */
  id: number;
  cellMs: number;
  cellsPerChunk: number;
}

const HOUR_MS = 3_600_000;

/** A record to read, and the points that its cells belong to. */
export interface ChunkPlan {
  level: number;
  chunk: number;
  /**
   * Runs of points of the same length, four numbers each: first cell, end (exclusive), first point, cells per point.
   * Ascending and without overlap.
   */
  runs: number[];
}

/**
 * Limits edges to the time from the horizon to the latest event: there is nothing to count outside. Edges after the latest
 * event move to the end of its hour: for an edge within the newest minute, all its milliseconds would have to be read.
 */
export function clip(edges: readonly number[], horizon: number, latest: number): readonly number[] {
  if ((edges[0] ?? 0) >= horizon && (edges.at(-1) ?? 0) <= latest) return edges;
  const end = (Math.floor(latest / HOUR_MS) + 1) * HOUR_MS;
  return edges.map((edge) => (edge > latest ? end : Math.min(Math.max(edge, horizon), end)));
}

/**
 * The cells that make up the points between neighbouring edges. The same for every host. `levels` go from coarse to
 * fine, and the finest has cells of a millisecond.
 */
export function planChunks(edges: readonly number[], levels: readonly Level[]): ChunkPlan[] {
  const plan: ChunkPlan[] = [];
  const newest: (ChunkPlan | undefined)[] = [];

  function tile(depth: number, from: number, to: number, point: number): void {
    const level = levels[depth];
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

  /** Adds the cells from `first` to `end` (exclusive) as points of `cellsInPoint` each; the last may be shorter. */
  function addRun(depth: number, first: number, end: number, point: number, cellsInPoint: number): void {
    const { id, cellsPerChunk: size } = levels[depth] as Level;
    for (let cell = first; cell < end; ) {
      const chunk = Math.floor(cell / size);
      const chunkEnd = Math.min(end, (chunk + 1) * size);
      let entry = newest[depth];
      if (entry?.chunk !== chunk) {
        entry = { level: id, chunk, runs: [] };
        newest[depth] = entry;
        plan.push(entry);
      }
      // A chunk may end within a point: the rest of the point is a separate run in the next chunk.
      const left = cellsInPoint - ((cell - first) % cellsInPoint);
      const runEnd = left < cellsInPoint ? Math.min(chunkEnd, cell + left) : chunkEnd;
      const runPoint = point + Math.floor((cell - first) / cellsInPoint);
      entry.runs.push(cell - chunk * size, runEnd - chunk * size, runPoint, left);
      cell = runEnd;
    }
  }

  for (let point = 0; point + 1 < edges.length; ) {
    const from = edges[point] ?? 0;
    const step = (edges[point + 1] ?? 0) - from;
    const end = endOfGrid(edges, point, step);
    const depth = end > point + 1 ? depthOfGrid(from, step, levels) : -1;
    if (depth === -1) {
      // The depth would be the same from every point of the grid.
      for (; point < end; point++) tile(0, edges[point] ?? 0, edges[point + 1] ?? 0, point);
    } else {
      const { cellMs } = levels[depth] as Level;
      addRun(depth, from / cellMs, (edges[end] ?? 0) / cellMs, point, step / cellMs);
      point = end;
    }
  }
  return plan;
}

/** The end (exclusive) of the points from `point` on that all have the length `step`. */
function endOfGrid(edges: readonly number[], point: number, step: number): number {
  let end = point + 1;
  while (end + 1 < edges.length && (edges[end + 1] ?? 0) - (edges[end] ?? 0) === step) end++;
  return end;
}

/**
 * The level whose cells tile every point of a regular grid, or -1 if there is none, or if coarser cells fit into the
 * points. With it, a day by minute is planned in 13 steps instead of 1,440 (docs/decisions/0012).
 */
function depthOfGrid(from: number, step: number, levels: readonly Level[]): number {
  if (step <= 0) return -1;
  const depth = levels.findIndex(({ cellMs }) => from % cellMs === 0 && step % cellMs === 0);
  const coarser = levels[depth - 1];
  return coarser !== undefined && step > coarser.cellMs ? -1 : depth;
}
