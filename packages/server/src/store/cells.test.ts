import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CATEGORIES, OVERVIEW_GROUPS } from '../event.ts';
import {
  type Additions,
  accumulate,
  cellCode,
  describeSeries,
  FIRST_CATEGORY,
  FIRST_PEAK,
  mergeCells,
  peaksOf,
  REQUESTS_WITHOUT_CODE,
  readCells,
} from './cells.ts';
import { RecordWriter } from './record-bytes.ts';

const CELLS = 60_000;
const count = fc.oneof(
  fc.constant(1),
  fc.integer({ min: 1, max: 300 }),
  fc.constantFrom(2 ** 16 - 1, 2 ** 16, 2 ** 32 - 1, 2 ** 32),
  fc.integer({ min: 1, max: 2 ** 50 }),
);
const cells = fc.array(
  fc.tuple(fc.integer({ min: 0, max: 20 }), fc.integer({ min: 0, max: CELLS - 1 }), count),
  { maxLength: 60 },
);

describe('a record of cells', () => {
  test('holds the sum of all merged additions, in any order', () => {
    fc.assert(
      fc.property(fc.array(cells, { maxLength: 4 }), (merges) => {
        const writer = new RecordWriter();
        const expected = new Map<string, number>();
        let record: Uint8Array | undefined;
        for (const merge of merges) {
          record = Uint8Array.from(mergeCells(record, additions(merge), writer));
          for (const [series, cell, n] of merge) {
            expected.set(`${series}/${cell}`, (expected.get(`${series}/${cell}`) ?? 0) + n);
          }
        }
        for (const [name, n] of expected) {
          const [series = 0, cell = 0] = name.split('/').map(Number);
          expect(read(record ?? new Uint8Array(0), series, cell, cell + 1)).toBe(n);
        }
        for (let series = 0; series <= 20; series++) {
          const total = [...expected].reduce(
            (sum, [name, n]) => (name.startsWith(`${series}/`) ? sum + n : sum),
            0,
          );
          expect(read(record ?? new Uint8Array(0), series, 0, CELLS)).toBe(total);
        }
      }),
    );
  });

  test('peaks are those of the whole record, and the larger peak of a cell is kept', () => {
    const near = fc.array(
      fc.tuple(
        fc.integer({ min: 0, max: 14 }),
        fc.integer({ min: 0, max: 4_000 }),
        fc.integer({ min: 1, max: 3 }),
      ),
      { maxLength: 30 },
    );
    fc.assert(
      fc.property(fc.array(near, { minLength: 1, maxLength: 5 }), (merges) => {
        const writer = new RecordWriter();
        let record: Uint8Array | undefined;
        let counters: Uint8Array | undefined;
        for (const merge of merges) {
          record = Uint8Array.from(mergeCells(record, additions(merge), writer));
          const cells = additions(peaksOf(record).map(([series, peak]) => [series, 7, peak]));
          counters = Uint8Array.from(mergeCells(counters, cells, writer));
        }
        // By hand: the sums of each group and second.
        const expected = Object.values(OVERVIEW_GROUPS).flatMap((group, row): [number, number][] => {
          const inGroup = (series: number) =>
            group === null
              ? series === 0
              : series > 0 && group.some((name) => CATEGORIES[series - 1] === name);
          const sums = [0, 1, 2, 3, 4].map((second) =>
            merges
              .flat()
              .filter(([series, cell]) => inGroup(series) && Math.floor(cell / 1_000) === second)
              .reduce((sum, [, , n]) => sum + n, 0),
          );
          const peak = Math.max(...sums);
          return peak > 1 ? [[FIRST_PEAK + row, peak]] : [];
        });
        expect(peaksOf(record ?? new Uint8Array(0))).toEqual(expected);
        expect([...readCells(counters ?? new Uint8Array(0))]).toEqual(
          expected.map(([series, peak]) => [cellCode(series, 7), peak]),
        );
      }),
    );
  });

  test('adds the cells of each run, and none between runs', () => {
    const writer = new RecordWriter();
    const record = mergeCells(
      undefined,
      additions([
        [0, 0, 1],
        [0, 9, 2],
        [0, 10, 4],
        [0, 19, 8],
        [0, 20, 16],
      ]),
      writer,
    );
    const out = new Float64Array(3);
    accumulate(record, [0, 10, 2, 10, 15, 20, 0, 5], Int16Array.of(0), 3, out);
    expect([...out]).toEqual([8, 0, 3]);
  });

  test('has different series for requests, attacks and blocked attacks of every category', () => {
    const known = Array.from({ length: 64 }, (_, series) => describeSeries(series)).filter(
      (one) => one !== null,
    );
    expect(new Set(known.map(({ attack, blocked }) => `${attack} ${blocked}`)).size).toBe(
      1 + 2 * CATEGORIES.length,
    );
    expect(FIRST_CATEGORY + CATEGORIES.length).toBeLessThanOrEqual(REQUESTS_WITHOUT_CODE);
  });

  test('takes one byte for a single event less than 64 cells after the previous one', () => {
    const thousand = Array.from({ length: 1_000 }, (_, i): [number, number, number] => [0, i * 60, 1]);
    const record = mergeCells(undefined, additions(thousand), new RecordWriter());
    expect(record.length).toBe(1_000 + 3);
  });

  test('a count that cannot be exact is refused', () => {
    const writer = new RecordWriter();
    expect(() => mergeCells(undefined, additions([[0, 0, 2 ** 53]]), writer)).toThrow(
      /cannot be stored exactly/,
    );
  });

  test('a truncated record is an error, not a wrong number', () => {
    const record = mergeCells(undefined, additions([[300, 5, 7]]), new RecordWriter());
    expect(() =>
      accumulate(record.subarray(0, 1), [0, 10, 0, 10], new Int16Array(400), 1, new Float64Array(1)),
    ).toThrow(/ends inside a number/);
  });
});

function additions(cells: readonly [series: number, cell: number, count: number][]): Additions {
  const sums = new Map<number, number>();
  for (const [series, cell, n] of cells) {
    const code = cellCode(series, cell);
    sums.set(code, (sums.get(code) ?? 0) + n);
  }
  const sorted = [...sums].sort(([a], [b]) => a - b);
  return { codes: sorted.map(([code]) => code), counts: sorted.map(([, n]) => n) };
}

function read(record: Uint8Array, series: number, first: number, end: number): number {
  const rowOf = new Int16Array(32).fill(-1);
  rowOf[series] = 0;
  const out = new Float64Array(1);
  accumulate(record, [first, end, 0, end - first], rowOf, 1, out);
  return out[0] ?? 0;
}
