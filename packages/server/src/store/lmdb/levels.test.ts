import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LEVELS, planChunks } from './levels.ts';

const BASE = Date.UTC(2026, 0, 1);
const moment = fc.integer({ min: BASE, max: BASE + 3 * 86_400_000 });

test('the chunks of a plan tile every point exactly once, with the coarsest cells that fit', () => {
  fc.assert(
    fc.property(fc.uniqueArray(moment, { minLength: 2, maxLength: 6 }), (times) => {
      const edges = times.sort((a, b) => a - b);
      const pieces = planChunks(edges).flatMap(({ level, chunk, slots }) => {
        const { cell_ms, cells_per_chunk } = levelOf(level);
        const base = chunk * cells_per_chunk;
        return Array.from({ length: slots.length / 3 }, (_, i) => ({
          from: (base + (slots[3 * i] ?? 0)) * cell_ms,
          to: (base + (slots[3 * i + 1] ?? 0)) * cell_ms,
          point: slots[3 * i + 2] ?? -1,
          cell_ms,
        }));
      });
      for (let point = 0; point + 1 < edges.length; point++) {
        const own = pieces.filter((piece) => piece.point === point).sort((a, b) => a.from - b.from);
        expect(own[0]?.from).toBe(edges[point]);
        expect(own.at(-1)?.to).toBe(edges[point + 1]);
        for (const [i, piece] of own.entries()) if (i > 0) expect(piece.from).toBe(own[i - 1]?.to);
        // A whole cell of the next coarser level would not have been read in parts.
        for (const piece of own) {
          const coarser = LEVELS[LEVELS.findIndex(({ cell_ms }) => cell_ms === piece.cell_ms) - 1];
          if (coarser) expect(piece.to - piece.from).toBeLessThan(2 * coarser.cell_ms);
        }
      }
    }),
  );
});

test('a day by minute on the minute reads no exact milliseconds', () => {
  const edges = Array.from({ length: 1_441 }, (_, i) => BASE + i * 60_000);
  expect(new Set(planChunks(edges).map(({ level }) => level))).toEqual(new Set([2]));
});

test('a month by hour in India reads quarter hours, not minutes', () => {
  const edges = Array.from({ length: 721 }, (_, i) => BASE + 1_800_000 + i * 3_600_000);
  expect(new Set(planChunks(edges).map(({ level }) => level))).toEqual(new Set([1]));
});

function levelOf(id: number) {
  const level = LEVELS.find((candidate) => candidate.id === id);
  if (level === undefined) throw new Error(`no level ${id}`);
  return level;
}
