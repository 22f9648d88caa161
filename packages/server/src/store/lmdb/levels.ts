/** The levels of the embedded store. */
import { type ChunkPlan, type Level, planChunks as planChunksOf } from '../levels.ts';

export type { ChunkPlan, Level } from '../levels.ts';

const MINUTE_MS = 60_000;

/**
 * From coarse to fine. A chunk of cells is one record. Quarter hours serve time zones with offsets like +05:30, whose
 * hours and days would otherwise be summed from minutes. The finest level holds exact milliseconds; queries read it only
 * for minutes that an edge cuts. docs/storage.md explains the chunk lengths.
 *
 * The exact level has the highest ID, so that live traffic appends at the end of the tree: there LMDB fills its pages,
 * elsewhere it splits them (10 MB instead of 22 for a month of six quiet hosts).
 */
export const LEVELS = [
  { id: 0, cellMs: 60 * MINUTE_MS, cellsPerChunk: 384 },
  { id: 1, cellMs: 15 * MINUTE_MS, cellsPerChunk: 384 },
  { id: 2, cellMs: MINUTE_MS, cellsPerChunk: 120 },
  { id: 3, cellMs: 1, cellsPerChunk: MINUTE_MS },
] as const satisfies readonly Level[];

export const MINUTES = LEVELS[2];
export const EXACT = LEVELS[3];
/** The index of a level is its ID. */
export const COUNTERS = [LEVELS[0], LEVELS[1], LEVELS[2]] as const;

/** The cells of a chunk of counters; 0 for the exact level. */
export function cellsIn(level: number): number {
  return COUNTERS[level]?.cellsPerChunk ?? 0;
}

/** The cells that make up the points between neighbouring edges. The same for every host. */
export function planChunks(edges: readonly number[]): ChunkPlan[] {
  return planChunksOf(edges, LEVELS);
}
