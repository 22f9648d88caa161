/** The resolutions that counters are kept at, and how a range is tiled with the coarsest cells that fit. */

export interface Level {
  /**
   * Its number in the key of a record, never used for another meaning: it is on disk. The exact level has the
   * highest, so that live traffic appends at the end of the tree: there LMDB fills its pages, elsewhere it halves
   * them (10 MB instead of 22 for a month of six quiet hosts).
   */
  id: number;
  cell_ms: number;
  cells_per_chunk: number;
}

const MINUTE_MS = 60_000;

/**
 * From coarse to fine. A chunk of cells is one record. Quarter hours are there because the local clocks of some
 * thousand million people stand at :15, :30 or :45 of an hour in UTC: without them their hour and day points
 * would be added up from minutes. The finest level holds the exact milliseconds; only the minutes that an edge
 * cuts are read from it. docs/storage.md tells how the chunk lengths were chosen.
 */
export const LEVELS = [
  { id: 0, cell_ms: 60 * MINUTE_MS, cells_per_chunk: 384 },
  { id: 1, cell_ms: 15 * MINUTE_MS, cells_per_chunk: 384 },
  { id: 2, cell_ms: MINUTE_MS, cells_per_chunk: 120 },
  { id: 3, cell_ms: 1, cells_per_chunk: MINUTE_MS },
] as const satisfies readonly Level[];

export const EXACT = LEVELS[3];
export const COUNTERS = LEVELS.slice(0, 3);

/** One record to read, and which of its cells count for which point. */
export interface ChunkPlan {
  level: number;
  chunk: number;
  /** Triples `first cell, cell behind the last, point`, ascending and without overlap. */
  slots: number[];
}

/** Which cells of which chunks make up the points between neighbouring edges. The same for every host. */
export function planChunks(edges: readonly number[]): ChunkPlan[] {
  const plan: ChunkPlan[] = [];
  const newest: (ChunkPlan | undefined)[] = [];

  function tile(depth: number, from: number, to: number, point: number): void {
    const level = LEVELS[depth];
    if (level === undefined || from >= to) return;
    const first = Math.ceil(from / level.cell_ms);
    const end = Math.floor(to / level.cell_ms);
    if (first >= end) {
      tile(depth + 1, from, to, point);
      return;
    }
    tile(depth + 1, from, first * level.cell_ms, point);
    addCells(level, depth, first, end, point);
    tile(depth + 1, end * level.cell_ms, to, point);
  }

  function addCells(level: Level, depth: number, first: number, end: number, point: number): void {
    const size = level.cells_per_chunk;
    for (let cell = first; cell < end; ) {
      const chunk = Math.floor(cell / size);
      const behind = Math.min(end, (chunk + 1) * size);
      let entry = newest[depth];
      if (entry?.chunk !== chunk) {
        entry = { level: level.id, chunk, slots: [] };
        newest[depth] = entry;
        plan.push(entry);
      }
      entry.slots.push(cell - chunk * size, behind - chunk * size, point);
      cell = behind;
    }
  }

  for (let point = 0; point + 1 < edges.length; point++)
    tile(0, edges[point] ?? 0, edges[point + 1] ?? 0, point);
  return plan;
}
