/**
 * Decoded records, in the forms that the chunk cache keeps (docs/decisions/0012): running totals of counters, lists of the cells
 * of cut minutes, and plain counts. `accumulate` is the oracle of all.
 */
import type { CountArray } from '../cells.ts';
import type { ChunkPlan } from '../plan.ts';
import { NumberReader } from '../record-bytes.ts';

/**
 * Adds each cell of a record to the next position, for `toRunningTotals`. The same as `accumulate` with one point per cell,
 * in a fifth of the time: decoding is most of the cost of the first query after an append.
 */
export function addCells(record: Uint8Array, rowOf: Int16Array, cells: number, sums: Float64Array): void {
  const reader = new NumberReader(record);
  while (reader.at < record.length) {
    const row = rowOf[reader.number()] ?? -1;
    const end = reader.number() + reader.at;
    let index = row * (cells + 1);
    while (row >= 0 && reader.at < end) {
      const token = reader.number();
      index += (token >> 1) + 1;
      sums[index] = (sums[index] ?? 0) + (token & 1 ? reader.number() : 1);
    }
    reader.at = end;
  }
}

/** An array of zeros that holds whole numbers up to `most` exactly. */
function countArray(length: number, most: number): CountArray {
  if (most < 2 ** 16) return new Uint16Array(length);
  return most < 2 ** 32 ? new Uint32Array(length) : new Float64Array(length);
}

/** The same counts in as few bytes as possible. */
export function compact(counts: Float64Array | readonly number[]): CountArray {
  let most = 0;
  for (let i = 0; i < counts.length; i++) if ((counts[i] ?? 0) > most) most = counts[i] ?? 0;
  const compacted = countArray(counts.length, most);
  compacted.set(counts);
  return compacted;
}

/**
 * For each row, the sum of the cells before each cell: a range is then one subtraction. Only rows with counts, each after its
 * number: most records have few categories. Changes `sums`. Exact up to 2^53; sums of bytes can be larger, and are off by less
 * than 384 cells * 256 bytes then.
 */
export function toRunningTotals(sums: Float64Array, rowCount: number, cells: number): CountArray {
  const rows: number[] = [];
  let most = rowCount;
  for (let row = 0; row < rowCount; row++) {
    const rowEnd = (row + 1) * (cells + 1);
    for (let i = rowEnd - cells; i < rowEnd; i++) sums[i] = (sums[i] ?? 0) + (sums[i - 1] ?? 0);
    const total = sums[rowEnd - 1] ?? 0;
    if (total > 0) rows.push(row);
    if (total > most) most = total;
  }
  const totals = countArray(rows.length * (cells + 2), most);
  for (const [i, row] of rows.entries()) {
    const start = i * (cells + 2);
    totals[start] = row;
    totals.set(sums.subarray(row * (cells + 1), (row + 1) * (cells + 1)), start + 1);
  }
  return totals;
}

/** Like `accumulate`, from the running totals of a record. */
export function accumulateTotals(
  totals: CountArray,
  cells: number,
  runs: ChunkPlan['runs'],
  points: number,
  out: Float64Array,
): void {
  for (let base = 1; base < totals.length; base += cells + 2) {
    const row = totals[base - 1] ?? 0;
    for (let run = 0; run < runs.length; run += 4) {
      const end = base + (runs[run + 1] ?? 0);
      const cellsInPoint = runs[run + 3] ?? 1;
      let index = row * points + (runs[run + 2] ?? 0);
      let before = totals[base + (runs[run] ?? 0)] ?? 0;
      let at = base + (runs[run] ?? 0) + cellsInPoint;
      for (; at < end; at += cellsInPoint) {
        const total = totals[at] ?? 0;
        out[index] = (out[index] ?? 0) + total - before;
        before = total;
        index++;
      }
      // The last point of a run may be shorter.
      out[index] = (out[index] ?? 0) + (totals[end] ?? 0) - before;
    }
  }
}

/** Appends the cells of a record that a query counts: row, number and count of each. */
export function listCells(record: Uint8Array, rowOf: Int16Array, list: number[], firstRow = 0): void {
  const reader = new NumberReader(record);
  while (reader.at < record.length) {
    const row = rowOf[reader.number()] ?? -1;
    const end = reader.number() + reader.at;
    for (let cell = -1; row >= 0 && reader.at < end; ) {
      const token = reader.number();
      cell += (token >> 1) + 1;
      list.push(firstRow + row, cell, token & 1 ? reader.number() : 1);
    }
    reader.at = end;
  }
}

/** Like `accumulate`, from a list of cells. */
export function accumulateList(
  list: CountArray,
  runs: ChunkPlan['runs'],
  points: number,
  out: Float64Array,
): void {
  for (let run = 0; run < runs.length; run += 4) {
    const first = runs[run] ?? 0;
    const end = runs[run + 1] ?? 0;
    const cellsInPoint = runs[run + 3] ?? 1;
    for (let i = 0; i < list.length; i += 3) {
      const cell = list[i + 1] ?? 0;
      if (cell < first || cell >= end) continue;
      const point = (runs[run + 2] ?? 0) + Math.floor((cell - first) / cellsInPoint);
      const index = (list[i] ?? 0) * points + point;
      out[index] = (out[index] ?? 0) + (list[i + 2] ?? 0);
    }
  }
}
