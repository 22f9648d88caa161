/**
 * Compares records with the sums of the next finer level, for `verify` and `repair`. Both process a few hundred scopes of
 * a chunk at a time, to bound the memory.
 */

import { addCount, cellCode, cellOf, peaksOf, readCells, seriesOf } from '../cells.ts';
import type { Level } from '../plan.ts';
import { CHUNKS_END, nextChunk, records, SCOPES_END } from './records.ts';
import { CHANGES, COUNTERS, cellsKey, EXACT, LEVELS, type Schema } from './schema.ts';

/** Counts by cellCode. */
export type Cells = Map<number, number>;

export interface Comparison {
  scope: number;
  /** The sums of the finer level; for peaks, the maximum. */
  sums: Cells;
  /** The record itself, or 'damaged' if it cannot be read. */
  stored: Cells | 'damaged';
  /** Existing chunks of the finer level. */
  intact: Set<number>;
  damaged: Set<number>;
}

export interface LevelPair {
  fine: Level;
  coarse: Level;
  /** Chunks of the finer level per chunk of the coarser one. */
  ratio: number;
}

/** From fine to coarse, the order of repair. */
export const LEVEL_PAIRS: readonly LevelPair[] = COUNTERS.toReversed().map((coarse) => {
  const fine = LEVELS[coarse.id + 1] ?? EXACT;
  const ratio = (coarse.cellMs * coarse.cellsPerChunk) / (fine.cellMs * fine.cellsPerChunk);
  return { fine, coarse, ratio };
});

const SCOPES_AT_ONCE = 256;

/** The chunks of the coarser level for which either level has records. */
export function* coarseChunks(schema: Schema, { fine, coarse, ratio }: LevelPair): Generator<number> {
  for (let chunk = 0; ; chunk++) {
    const nextFine = Math.floor(nextChunk(schema, fine, chunk * ratio) / ratio);
    chunk = Math.min(nextChunk(schema, coarse, chunk), nextFine);
    if (chunk >= CHUNKS_END) return;
    yield chunk;
  }
}

/** The caller may change records of the chunk between two comparisons. */
export function* compareChunk(schema: Schema, pair: LevelPair, chunk: number): Generator<Comparison> {
  for (const [from, to] of [...scopeRanges(schema, pair.coarse, chunk)]) {
    yield* compareScopes(schema, pair, chunk, from, to);
  }
}

/** Ranges that cover all scopes, each with at most SCOPES_AT_ONCE records in the chunk. */
function* scopeRanges(
  { cells }: Schema,
  coarse: Level,
  chunk: number,
): Generator<[from: number, to: number]> {
  const start = cellsKey(coarse.id, chunk, CHANGES + 1);
  let from = CHANGES + 1;
  let count = 0;
  for (const key of cells.getKeys({ start, end: cellsKey(coarse.id, chunk, SCOPES_END) })) {
    count++;
    if (count % SCOPES_AT_ONCE !== 0) continue;
    const to = key.readUInt32BE(5) + 1;
    yield [from, to];
    from = to;
  }
  yield [from, SCOPES_END];
}

function compareScopes(
  schema: Schema,
  { fine, coarse, ratio }: LevelPair,
  chunk: number,
  from: number,
  to: number,
): Comparison[] {
  const found = new Map<number, Comparison>();
  const entry = (scope: number) => {
    const chunks = { intact: new Set<number>(), damaged: new Set<number>() };
    const one = found.get(scope) ?? { scope, sums: new Map(), stored: new Map(), ...chunks };
    found.set(scope, one);
    return one;
  };
  for (const { scope, sections } of records(schema, coarse, chunk, from, to)) {
    entry(scope).stored = sections === null ? 'damaged' : new Map(readCells(sections));
  }
  const fineEnd = Math.min((chunk + 1) * ratio, CHUNKS_END);
  for (let fineChunk = chunk * ratio; fineChunk < fineEnd; fineChunk++) {
    for (const { scope, sections } of records(schema, fine, fineChunk, from, to)) {
      const one = entry(scope);
      (sections === null ? one.damaged : one.intact).add(fineChunk);
      for (const [fineCode, count] of sections === null ? [] : readCells(sections)) {
        const time = (fineChunk * fine.cellsPerChunk + cellOf(fineCode)) * fine.cellMs;
        const cell = Math.floor(time / coarse.cellMs) - chunk * coarse.cellsPerChunk;
        const series = seriesOf(fineCode);
        const code = cellCode(series, cell);
        one.sums.set(code, addCount(series, one.sums.get(code) ?? 0, count));
      }
      if (fine.id !== EXACT.id || sections === null) continue;
      const minute = fineChunk - chunk * ratio;
      for (const [series, peak] of peaksOf(sections)) one.sums.set(cellCode(series, minute), peak);
    }
  }
  return [...found.values()].sort((a, b) => a.scope - b.scope);
}

/** Cells before the horizon do not count, and the finer level may have been freed there. */
export function isComparable(code: number, { coarse }: LevelPair, chunk: number, horizon: number): boolean {
  return (chunk * coarse.cellsPerChunk + cellOf(code)) * coarse.cellMs >= horizon;
}

/** The codes of the cells that differ, in ascending order. */
export function differingCells(
  pair: LevelPair,
  chunk: number,
  sums: Cells,
  stored: Cells,
  horizon: number,
): number[] {
  return [...new Set([...sums.keys(), ...stored.keys()])]
    .filter((code) => isComparable(code, pair, chunk, horizon) && sums.get(code) !== stored.get(code))
    .sort((a, b) => a - b);
}
