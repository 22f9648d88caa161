import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { gridEdges } from '../../statistics/timeline.ts';
import { type Plan, planMinutes, type Slots } from './edges.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 6, 1);

const moment = fc.oneof(
  fc.integer({ min: 0, max: 5 * MINUTE_MS }),
  fc.integer({ min: 0, max: 3 * DAY_MS }),
  fc.integer({ min: 0, max: 3 * 1_440 }).map((minute) => minute * MINUTE_MS),
);
const edges = fc.oneof(
  // As clipping makes them: neighbours may be the same.
  fc.array(moment, { minLength: 2, maxLength: 8 }).map((times) => times.sort((a, b) => a - b)),
  fc
    .tuple(moment, moment, fc.integer({ min: -48, max: 56 }))
    .filter(([a, b]) => a !== b)
    .map(([a, b, quarters]) =>
      gridEdges(START + Math.min(a, b), START + Math.max(a, b), quarters * 15 * MINUTE_MS),
    ),
);

describe('the plan of a question', () => {
  test('counts every moment in the point that it lies in, and no other', () => {
    fc.assert(
      fc.property(edges, fc.array(moment, { maxLength: 30 }), (asked, drawn) => {
        const plan = planMinutes(asked);
        const near = [0, 1, asked.length >> 1, asked.length - 2, asked.length - 1].map((i) => asked[i] ?? 0);
        const moments = [
          ...drawn,
          ...drawn.map((time) => START + time),
          ...near,
          ...near.map((time) => time - 1),
        ];
        const points = (place: (time: number) => number | null) =>
          moments.filter((time) => time >= 0).map(place);
        expect(points((time) => pointOf(plan, time))).toEqual(points((time) => naivePointOf(asked, time)));
      }),
      { numRuns: 500 },
    );
  });

  test('of a grid of hours asks for one number an hour, and cuts two minutes at most', () => {
    const asked = gridEdges(START + 12_345, START + 20 * DAY_MS + 54_321, 345 * MINUTE_MS);
    const { whole, cutMinutes } = planMinutes(asked);
    expect([whole?.width, cutMinutes.length]).toEqual([60, 2]);
  });
});

/** Where the number of one event ends up, by the way of the statements. */
function pointOf({ whole, cut, cutMinutes }: Plan, time: number): number | null {
  const minute = Math.floor(time / MINUTE_MS);
  if (cutMinutes.includes(minute)) return cut && inSlot(cut, time);
  return whole && inSlot(whole, minute);
}

function inSlot({ from, to, shift, width, pointOf }: Slots, at: number): number | null {
  if (shift < 0 || width < 1) throw new Error(`no such slots: ${shift}, ${width}`);
  return from <= at && at < to ? pointOf(Math.floor((at + shift) / width)) : null;
}

function naivePointOf(asked: readonly number[], time: number): number | null {
  const point = asked.findIndex(
    (edge, i) => edge <= time && time < (asked[i + 1] ?? Number.NEGATIVE_INFINITY),
  );
  return point === -1 ? null : point;
}
