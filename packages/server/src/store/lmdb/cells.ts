/**
 * The bytes of a record: for each series that occurs, its cells that are not zero. docs/storage.md has the layout.
 *
 *   record  = section*                      in ascending order of series
 *   section = series length cell*           `length` is that of the cells, in bytes
 *   cell    = gap*2 + (count > 1) [count]   `gap` cells are zero since the one before
 *
 * A checksum of four bytes stands before it (checksum.ts); functions here take and return records without it.
 * All numbers are variable-length (7 bits a byte, low bits first). A reader skips a series that it does not know,
 * so a new one needs no rewriting of what is stored.
 */
import { CHECKSUM_BYTES, seal } from './checksum.ts';
import type { ChunkPlan } from './levels.ts';

/** Storage version 1 has 14 series, of which some may have been added later: no record of it has more than these. */
const SERIES_MAX = 31;

/** What is to be added to a record: codes (see cellCode) in ascending order, each with its count. */
export interface Additions {
  codes: number[];
  counts: number[];
}

/** Series and cell in one number, in the order in which a record holds them. A chunk has at most 2^16 cells. */
export function cellCode(series: number, cell: number): number {
  return series * 65_536 + cell;
}

export function seriesOf(code: number): number {
  return Math.floor(code / 65_536);
}

/**
 * Adds the cells of one record to the points of a plan: `out[row * points + point] += count`, where `rowOf[series]`
 * is the row, or negative for a series that is not asked for.
 */
export function accumulate(
  record: Uint8Array,
  runs: ChunkPlan['runs'],
  rowOf: Int8Array,
  points: number,
  out: Float64Array,
): void {
  const reader = new Reader(record);
  while (reader.at < record.length) {
    const series = reader.number();
    const length = reader.number();
    const end = reader.at + length;
    const row = rowOf[series] ?? -1;
    if (row >= 0) accumulateSection(record, reader.at, end, runs, row * points, out);
    reader.at = end;
  }
}

/** The inner loop of every query: the two common cases, both numbers below 128, are read without a call. */
function accumulateSection(
  record: Uint8Array,
  start: number,
  end: number,
  runs: readonly number[],
  base: number,
  out: Float64Array,
): void {
  let at = start;
  let cell = -1;
  let run = -4;
  let runFirst = 0;
  let runBehind = 0;
  let cellsInPoint = 1;
  let index = base;
  let pointBehind = 0;
  while (at < end) {
    let token = record[at++] ?? 0;
    if (token > 127) {
      let scale = 128;
      token -= 128;
      for (let byte = 128; byte > 127; scale *= 128) {
        byte = record[at++] ?? 0;
        token += (byte & 127) * scale;
      }
    }
    let count = 1;
    if ((token & 1) === 1) {
      count = record[at++] ?? 0;
      if (count > 127) {
        let scale = 128;
        count -= 128;
        for (let byte = 128; byte > 127; scale *= 128) {
          byte = record[at++] ?? 0;
          count += (byte & 127) * scale;
        }
      }
    }
    cell += (token >>> 1) + 1;
    while (cell >= runBehind) {
      run += 4;
      if (run >= runs.length) return;
      runFirst = runs[run] ?? 0;
      runBehind = runs[run + 1] ?? 0;
      index = base + (runs[run + 2] ?? 0);
      cellsInPoint = runs[run + 3] ?? 1;
      pointBehind = runFirst + cellsInPoint;
    }
    if (cell < runFirst) continue;
    while (cell >= pointBehind) {
      pointBehind += cellsInPoint;
      index++;
    }
    out[index] = (out[index] ?? 0) + count;
  }
}

/**
 * A record as running totals: for each row, how much lies before each cell and behind the last. What lies between any
 * two cells is then one subtraction.
 */
export function runningTotals(
  record: Uint8Array,
  rowOf: Int8Array,
  rowCount: number,
  cells: number,
): Float64Array {
  const sums = new Float64Array(rowCount * (cells + 1));
  addCells(record, rowOf, cells, sums);
  return toRunningTotals(sums, rowCount, cells);
}

/** Adds each cell of a record to the place behind it, for `toRunningTotals`. */
export function addCells(record: Uint8Array, rowOf: Int8Array, cells: number, sums: Float64Array): void {
  accumulate(record, [0, cells, 1, 1], rowOf, cells + 1, sums);
}

/** In place. */
export function toRunningTotals(sums: Float64Array, rowCount: number, cells: number): Float64Array {
  for (let row = 0; row < rowCount; row++) {
    const behind = (row + 1) * (cells + 1);
    for (let i = behind - cells; i < behind; i++) sums[i] = (sums[i] ?? 0) + (sums[i - 1] ?? 0);
  }
  return sums;
}

/** The running totals of several records together. Those of a record that is not there are empty. */
export function sumOfTotals(all: readonly Float64Array[]): Float64Array {
  const sum = new Float64Array(all.reduce((length, totals) => Math.max(length, totals.length), 0));
  for (const totals of all) {
    for (let i = 0; i < totals.length; i++) sum[i] = (sum[i] ?? 0) + (totals[i] ?? 0);
  }
  return sum;
}

/** The same as `accumulate`, from the running totals of the record. */
export function accumulateTotals(
  totals: Float64Array,
  cells: number,
  runs: ChunkPlan['runs'],
  points: number,
  out: Float64Array,
): void {
  for (let row = 0, base = 0; base < totals.length; row++, base += cells + 1) {
    for (let run = 0; run < runs.length; run += 4) {
      const behind = base + (runs[run + 1] ?? 0);
      const cellsInPoint = runs[run + 3] ?? 1;
      let index = row * points + (runs[run + 2] ?? 0);
      let before = totals[base + (runs[run] ?? 0)] ?? 0;
      let at = base + (runs[run] ?? 0) + cellsInPoint;
      for (; at < behind; at += cellsInPoint) {
        const total = totals[at] ?? 0;
        out[index] = (out[index] ?? 0) + total - before;
        before = total;
        index++;
      }
      // The last point ends where the run does, be it whole or not.
      out[index] = (out[index] ?? 0) + (totals[behind] ?? 0) - before;
    }
  }
}

/** Every cell of a record that is not zero: its series, its number, its count. */
export function* readCells(record: Uint8Array): Generator<[series: number, cell: number, count: number]> {
  const reader = new Reader(record);
  while (reader.at < record.length) {
    const series = reader.number();
    const length = reader.number();
    const end = reader.at + length;
    let cell = -1;
    while (reader.at < end) {
      const token = reader.number();
      cell += Math.floor(token / 2) + 1;
      yield [series, cell, token % 2 === 1 ? reader.number() : 1];
    }
  }
}

/** Whether every byte has a meaning: all that can be checked of a record without a checksum. */
export function isWellFormed(record: Uint8Array, cellsInChunk: number): boolean {
  const reader = new Reader(record);
  try {
    for (let last = -1; reader.at < record.length; ) {
      const series = reader.number();
      const end = reader.number() + reader.at;
      if (series <= last || series > SERIES_MAX || end > record.length || end === reader.at) return false;
      last = series;
      let cell = -1;
      while (reader.at < end) {
        const token = reader.number();
        cell += Math.floor(token / 2) + 1;
        if (token % 2 === 1 && reader.number() < 2) return false;
      }
      if (reader.at !== end || cell >= cellsInChunk) return false;
    }
    return record.length > 0;
  } catch {
    return false;
  }
}

/** The bytes of a record with the additions in it. The result is a view that the next call overwrites. */
export function mergeCells(record: Uint8Array | undefined, additions: Additions, writer: Writer): Uint8Array {
  const { codes, counts } = additions;
  writer.clear();
  const old = new Reader(record ?? new Uint8Array(0));
  let next = 0;
  const oldLength = record?.length ?? 0;
  while (old.at < oldLength || next < codes.length) {
    const nextSeries = next < codes.length ? seriesOf(codes[next] ?? 0) : Number.POSITIVE_INFINITY;
    const sectionStart = old.at;
    const oldSeries = old.at < oldLength ? old.number() : Number.POSITIVE_INFINITY;
    const oldEnd = old.at < oldLength ? old.number() + old.at : oldLength;
    if (oldSeries < nextSeries) {
      writer.copy(old.bytes, sectionStart, oldEnd);
      old.at = oldEnd;
      continue;
    }
    if (nextSeries < oldSeries) old.at = sectionStart;
    next = mergeSection(
      old,
      oldSeries === nextSeries ? oldEnd : old.at,
      nextSeries,
      codes,
      counts,
      next,
      writer,
    );
  }
  return writer.bytes();
}

/** Writes one series: its old cells up to `oldEnd`, and the additions from `next` on. Answers the next addition. */
function mergeSection(
  old: Reader,
  oldEnd: number,
  series: number,
  codes: readonly number[],
  counts: readonly number[],
  next: number,
  writer: Writer,
): number {
  const base = cellCode(series, 0);
  const behind = cellCode(series + 1, 0);
  const section = writer.openSection(series);
  let written = -1;
  let cell = -1;
  let pending = false;
  let count = 0;
  for (;;) {
    if (!pending && old.at < oldEnd) {
      const token = old.number();
      cell += Math.floor(token / 2) + 1;
      count = token % 2 === 1 ? old.number() : 1;
      pending = true;
    }
    const code = next < codes.length ? (codes[next] ?? 0) : behind;
    const added = code < behind ? code - base : Number.POSITIVE_INFINITY;
    if (!pending && added === Number.POSITIVE_INFINITY) break;
    const at = pending ? Math.min(cell, added) : added;
    let total = 0;
    if (pending && cell === at) {
      total += count;
      pending = false;
    }
    if (added === at) total += counts[next++] ?? 0;
    writer.cell(at - written - 1, total);
    written = at;
  }
  writer.closeSection(section);
  return next;
}

class Reader {
  readonly bytes: Uint8Array;
  at = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  number(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error('a record ends inside a number');
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
}

/** A growing buffer that is used again for every record. */
export class Writer {
  #buffer = Buffer.allocUnsafe(4_096);
  #length = 0;

  /** Leaves room for the checksum. */
  clear(): void {
    this.#length = CHECKSUM_BYTES;
  }

  bytes(): Uint8Array {
    return this.#buffer.subarray(CHECKSUM_BYTES, this.#length);
  }

  /** The same behind its checksum, as it is stored. */
  sealed(seed: number): Buffer {
    return seal(this.#buffer.subarray(0, this.#length), seed);
  }

  copy(from: Uint8Array, start: number, end: number): void {
    this.#reserve(end - start);
    this.#buffer.set(from.subarray(start, end), this.#length);
    this.#length += end - start;
  }

  cell(gap: number, count: number): void {
    this.#reserve(20);
    this.#number(gap * 2 + (count > 1 ? 1 : 0));
    if (count > 1) this.#number(count);
  }

  /** Starts a section; its length is filled in when it is closed. */
  openSection(series: number): number {
    this.#reserve(20);
    this.#number(series);
    return this.#length;
  }

  closeSection(start: number): void {
    const length = this.#length - start;
    this.#reserve(10);
    const header = length < 128 ? 1 : length < 16_384 ? 2 : length < 2_097_152 ? 3 : 4;
    this.#buffer.copyWithin(start + header, start, this.#length);
    this.#length = start;
    this.#number(length);
    if (this.#length !== start + header)
      throw new Error('the length of a section takes more bytes than foreseen');
    this.#length += length;
  }

  #number(value: number): void {
    // Beyond 2^53 a number is no longer exact; better no batch than a wrong count.
    if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${value} cannot be stored exactly`);
    let rest = value;
    while (rest > 127) {
      this.#buffer[this.#length++] = (rest % 128) + 128;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#length++] = rest;
  }

  #reserve(bytes: number): void {
    if (this.#length + bytes <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + bytes));
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }
}
