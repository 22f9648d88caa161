import fc from 'fast-check';
import { expect, test } from 'vitest';
import { countRuns, type GridRange, numbersOf, type Points, timeOf } from './timeline-runs.ts';

const HOUR_MS = 3_600_000;

/** Lists of points in ascending order, some of them next to each other, some outside of the range. */
const points = fc.array(fc.tuple(fc.nat(3), fc.integer({ min: 1, max: 4 })), { maxLength: 5 }).map((gaps) => {
  let end = 990;
  return gaps.map(([gap, length]): Points => {
    const first = end + gap;
    end = first + length;
    return { first, end };
  });
});
const range = fc
  .record({
    first: fc.integer({ min: 990, max: 1_000 }),
    length: fc.integer({ min: 1, max: 12 }),
    cutMs: fc.constantFrom(0, 1, HOUR_MS - 1),
    lastMs: fc.constantFrom(1, HOUR_MS - 1, HOUR_MS),
    offsetMs: fc.constantFrom(0, 330 * 60_000),
  })
  .map(({ first, length, cutMs, lastMs, offsetMs }): GridRange => {
    const end = first + length;
    const [from, to] = [first * HOUR_MS - offsetMs - cutMs, end * HOUR_MS - offsetMs + lastMs];
    return { project: 'p', hosts: ['a'], from, to, intervalMs: HOUR_MS, offsetMs, first, end };
  });

test('any points and those that the range cuts are counted with their own edges', async () => {
  await fc.assert(
    fc.asyncProperty(range, points, fc.boolean(), async (grid, wanted, isSlowOverGaps) => {
      let queries = 0;
      const numberOf = (start: number, end: number) => start + 7 * end;
      const counted = await countRuns(
        {
          ...{ name: 'test', heads: ['', ''], tail: '', isSlowOverGaps },
          async count({ project, hosts, edges }) {
            queries++;
            expect([project, hosts]).toEqual(['p', ['a']]);
            expect(edges).toEqual([...new Set(edges)].sort((a, b) => a - b));
            const isLonger = edges.some((edge, i) => i > 0 && edge - (edges[i - 1] ?? 0) > HOUR_MS);
            expect(isLonger && isSlowOverGaps).toBe(false);
            const numbers = Float64Array.from(edges.slice(1), (end, i) => numberOf(edges[i] ?? 0, end));
            return [numbers, numbers.map((number) => -number)];
          },
        },
        grid,
        wanted,
      );
      const bySeries = (numbers: number[]) => [numbers, numbers.map((number) => -number)];
      const { from, to, first, end } = grid;
      for (const one of wanted) {
        const expected = Array.from({ length: one.end - one.first }, (_, i) =>
          numberOf(timeOf(grid, one.first + i), timeOf(grid, one.first + i + 1)),
        );
        expect(numbersOf(counted, one).map((numbers) => [...numbers])).toEqual(bySeries(expected));
      }
      const start = timeOf(grid, first);
      const firstCut = from === start ? undefined : bySeries([numberOf(from, start)]).flat();
      expect(counted.firstCut).toEqual(firstCut);
      expect(counted.lastCut).toEqual(bySeries([numberOf(timeOf(grid, end), to)]).flat());
      expect(counted.isOneSnapshot).toBe(queries === 1);
      const isInside = wanted.every((one) => one.first >= first && one.end <= end);
      if (isInside && !isSlowOverGaps) expect(queries).toBe(1);
      expect(() => numbersOf(counted, { first: 0, end: 1 })).toThrow(/were not counted/);
    }),
  );
});
