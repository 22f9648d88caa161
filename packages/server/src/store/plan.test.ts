import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LEVELS } from './lmdb/schema.ts';
import { type ChunkPlan, planChunks } from './plan.ts';

const BASE = Date.UTC(2026, 0, 1);
const DAY_MS = 86_400_000;
const moment = fc.integer({ min: BASE, max: BASE + 3 * DAY_MS });

const anyEdges = fc
  .uniqueArray(moment, { minLength: 2, maxLength: 6 })
  .map((times) => times.sort((a, b) => a - b));

/** Edges as the API creates them: a regular grid in some time zone, between two arbitrary ends. */
const gridEdges = fc
  .record({
    step: fc.constantFrom(1, 7_000, 60_000, 300_000, 600_000, 900_000, 3_600_000, DAY_MS),
    phase: fc.constantFrom(0, 1, 60_000, 900_000, 1_800_000, 2_700_000, 5 * 3_600_000),
    points: fc.integer({ min: 1, max: 200 }),
    before: fc.constantFrom(0, 1, 59_999, 60_000),
    after: fc.constantFrom(0, 1, 59_999, 60_000),
    gap: fc.constantFrom(0, 3_600_000),
  })
  .map(({ step, phase, points, before, after, gap }) => {
    const edges = Array.from({ length: points + 1 }, (_, i) => BASE + phase + i * step);
    const [first = 0, last = 0] = [edges[0], edges.at(-1)];
    const outside = [first - gap, first - before, ...edges, last + after, last + after + gap];
    return [...new Set(outside)].sort((a, b) => a - b);
  });

test('the runs of a plan tile every point exactly once, with the coarsest cells that fit', () => {
  fc.assert(
    fc.property(fc.oneof(anyEdges, gridEdges), (edges) => {
      const tiles = planChunks(edges, LEVELS).flatMap(tilesOf);
      for (let point = 0; point + 1 < edges.length; point++) {
        const own = tiles.filter((tile) => tile.point === point).sort((a, b) => a.from - b.from);
        expect(own[0]?.from).toBe(edges[point]);
        expect(own.at(-1)?.to).toBe(edges[point + 1]);
        for (const [i, tile] of own.entries()) if (i > 0) expect(tile.from).toBe(own[i - 1]?.to);
        // Whole cells of the next coarser level are not read in parts.
        for (const tile of own) {
          const coarser = LEVELS[LEVELS.findIndex(({ cellMs }) => cellMs === tile.cellMs) - 1];
          if (coarser) expect(tile.to - tile.from).toBeLessThan(2 * coarser.cellMs);
        }
      }
    }),
  );
});

test('the plan of a regular grid has one run per chunk', () => {
  const edges = Array.from({ length: 1_441 }, (_, i) => BASE + 3_600_000 + i * 60_000);
  expect(planChunks(edges, LEVELS).map(({ runs }) => runs.length)).toEqual(Array(13).fill(4));
});

test.each([
  ['of days off the minute', (i: number) => BASE + 1_000 + i * DAY_MS],
  ['after the latest event, which are all equal', () => BASE],
])('a plan of many points %s reads each edge a few times', (_name, edgeAt) => {
  let reads = 0;
  const edges = new Proxy(
    Array.from({ length: 3_000 }, (_, i) => edgeAt(i)),
    {
      get(array, key) {
        reads++;
        return Reflect.get(array, key);
      },
    },
  );
  planChunks(edges, LEVELS);
  expect(reads).toBeLessThan(20 * 3_000);
});

test('a day by minute on the minute reads no exact milliseconds', () => {
  const edges = Array.from({ length: 1_441 }, (_, i) => BASE + i * 60_000);
  expect(new Set(planChunks(edges, LEVELS).map(({ level }) => level))).toEqual(new Set([2]));
});

test('a month by hour in India reads quarter hours, not minutes', () => {
  const edges = Array.from({ length: 721 }, (_, i) => BASE + 1_800_000 + i * 3_600_000);
  expect(new Set(planChunks(edges, LEVELS).map(({ level }) => level))).toEqual(new Set([1]));
});

/** A tile is the time range of a point in a run. */
function tilesOf({ level, chunk, runs }: ChunkPlan) {
  const { cellMs, cellsPerChunk } = levelOf(level);
  const tiles = [];
  for (let run = 0; run < runs.length; run += 4) {
    const [first = 0, end = 0, firstPoint = 0, cellsInPoint = 0] = runs.slice(run, run + 4);
    expect(first).toBeLessThan(end);
    expect(end).toBeLessThanOrEqual(cellsPerChunk);
    for (let cell = first, point = firstPoint; cell < end; cell += cellsInPoint, point++) {
      const from = (chunk * cellsPerChunk + cell) * cellMs;
      const to = (chunk * cellsPerChunk + Math.min(cell + cellsInPoint, end)) * cellMs;
      tiles.push({ from, to, point, cellMs });
    }
  }
  return tiles;
}

function levelOf(id: number) {
  const level = LEVELS.find((candidate) => candidate.id === id);
  if (level === undefined) throw new Error(`no level ${id}`);
  return level;
}
