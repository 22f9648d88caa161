import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Additions, accumulate, additionsOf, cellCode, mergeCells } from '../cells.ts';
import { RecordWriter } from '../record-bytes.ts';
import {
  accumulateList,
  accumulateTotals,
  addCells,
  compact,
  listCells,
  toRunningTotals,
} from './decoded-cells.ts';

const count = fc.oneof(
  fc.constant(1),
  fc.integer({ min: 1, max: 300 }),
  fc.constantFrom(2 ** 16 - 1, 2 ** 16, 2 ** 32 - 1, 2 ** 32),
  fc.integer({ min: 1, max: 2 ** 50 }),
);

test('running totals and a list of a record count the same as its cells, for any runs and rows', () => {
  const SIZE = 130;
  const few = fc.array(
    fc.tuple(fc.integer({ min: 0, max: 4 }), fc.integer({ min: 0, max: SIZE - 1 }), count),
    { maxLength: 60 },
  );
  const rowOf = fc.array(fc.integer({ min: -1, max: 2 }), { minLength: 3, maxLength: 5 });
  fc.assert(
    fc.property(
      few,
      rowOf,
      fc.array(fc.integer({ min: 0, max: SIZE }), { maxLength: 8 }),
      (all, rows, cuts) => {
        const record = mergeCells(undefined, additions(all), new RecordWriter());
        const runs = runsBetween([...new Set(cuts)].sort((a, b) => a - b));
        const [plain, fast] = [new Float64Array(3 * 1_000), new Float64Array(3 * 1_000)];
        accumulate(record, runs, Int16Array.from(rows), 1_000, plain);
        const cells = new Float64Array(3 * (SIZE + 1));
        addCells(record, Int16Array.from(rows), SIZE, cells);
        accumulateTotals(toRunningTotals(cells, 3, SIZE), SIZE, runs, 1_000, fast);
        // As text: comparing long arrays takes most of the time.
        expect(fast.join()).toBe(plain.join());
        const list: number[] = [];
        listCells(record, Int16Array.from(rows), list);
        accumulateList(compact(list), runs, 1_000, fast.fill(0));
        expect(fast.join()).toBe(plain.join());
      },
    ),
  );
});

test('compact counts are exact, and as short as the largest allows', () => {
  const any = fc.oneof(fc.constant(0), count, fc.constant(Number.MAX_SAFE_INTEGER));
  fc.assert(
    fc.property(fc.array(any, { maxLength: 30 }), (counts) => {
      const most = Math.max(0, ...counts);
      const bytes = most < 2 ** 16 ? 2 : most < 2 ** 32 ? 4 : 8;
      for (const compacted of [compact(counts), compact(Float64Array.from(counts))]) {
        expect([...compacted]).toEqual(counts);
        expect(compacted.BYTES_PER_ELEMENT).toBe(bytes);
      }
    }),
  );
});

/** A run between every other pair of neighbours, with points of 1, 2, 3, ... cells. */
function runsBetween(cuts: readonly number[]): number[] {
  const runs: number[] = [];
  let point = 0;
  for (let i = 0; i + 1 < cuts.length; i += 2) {
    const [first = 0, end = 0, cellsInPoint = i / 2 + 1] = cuts.slice(i, i + 2);
    runs.push(first, end, point, cellsInPoint);
    point += Math.ceil((end - first) / cellsInPoint);
  }
  return runs;
}

function additions(cells: readonly [series: number, cell: number, count: number][]): Additions {
  const sums = new Map<number, number>();
  for (const [series, cell, n] of cells) {
    const code = cellCode(series, cell);
    sums.set(code, (sums.get(code) ?? 0) + n);
  }
  return additionsOf(sums);
}
