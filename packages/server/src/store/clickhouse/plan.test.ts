import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { gridEdges } from '../../statistics/timeline.ts';
import { type CellPlan, planCells, type Slots } from './plan.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 6, 1);

const moment = fc.oneof(
  fc.integer({ min: 0, max: 5 * MINUTE_MS }),
  fc.integer({ min: 0, max: 3 * DAY_MS }),
  fc.integer({ min: 0, max: 3 * 1_440 }).map((minute) => minute * MINUTE_MS),
);
const cellMs = fc.constantFrom(1_000, MINUTE_MS, 60 * MINUTE_MS);
const anyEdges = fc.oneof(
  // Like clipped edges: neighbours may be equal.
  fc.array(moment, { minLength: 2, maxLength: 8 }).map((times) => times.sort((a, b) => a - b)),
  fc
    .tuple(moment, moment, fc.integer({ min: -48, max: 56 }))
    .filter(([a, b]) => a !== b)
    .map(([a, b, quarters]) =>
      gridEdges(START + Math.min(a, b), START + Math.max(a, b), quarters * 15 * MINUTE_MS),
    ),
);

describe('the plan of a query', () => {
  test('counts every moment in its point, and in no other', () => {
    fc.assert(
      fc.property(anyEdges, fc.array(moment, { maxLength: 30 }), cellMs, (edges, drawn, cellMs) => {
        const plan = planCells(edges, cellMs);
        const near = [0, 1, edges.length >> 1, edges.length - 2, edges.length - 1].map((i) => edges[i] ?? 0);
        const moments = [
          ...drawn,
          ...drawn.map((time) => START + time),
          ...near,
          ...near.map((time) => time - 1),
        ];
        const points = (place: (time: number) => number | null) =>
          moments.filter((time) => time >= 0).map(place);
        expect(points((time) => pointOf(plan, cellMs, time))).toEqual(
          points((time) => naivePointOf(edges, time)),
        );
      }),
      { numRuns: scaled(500) },
    );
  });

  test('for a grid of hours has one slot per hour, and cuts at most two minutes', () => {
    const edges = gridEdges(START + 12_345, START + 20 * DAY_MS + 54_321, 345 * MINUTE_MS);
    const { whole, cutCells } = planCells(edges, MINUTE_MS);
    expect([whole?.width, cutCells.length]).toEqual([60, 2]);
  });
});

/** The point of an event according to the plan. */
function pointOf({ whole, cut, cutCells }: CellPlan, cellMs: number, time: number): number | null {
  const cell = Math.floor(time / cellMs);
  if (cutCells.includes(cell)) return cut && inSlot(cut, time);
  return whole && inSlot(whole, cell);
}

function inSlot({ from, to, shift, width, pointOf }: Slots, at: number): number | null {
  if (shift < 0 || width < 1) throw new Error(`no such slots: ${shift}, ${width}`);
  return from <= at && at < to ? pointOf(Math.floor((at + shift) / width)) : null;
}

function naivePointOf(edges: readonly number[], time: number): number | null {
  const point = edges.findIndex(
    (edge, i) => edge <= time && time < (edges[i + 1] ?? Number.NEGATIVE_INFINITY),
  );
  return point === -1 ? null : point;
}
