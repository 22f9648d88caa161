import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Timeline } from '../../statistics/statistics.ts';
import { timelineByBytes, timelineByWords, timelineJson, writeDigits } from './timeline-json.ts';

const whole = fc.oneof(
  fc.integer({ min: 0, max: 1_000 }),
  fc.integer({ min: 0, max: 2 ** 31 }),
  fc.maxSafeNat(),
  fc.constantFrom(0, 9, 10, 999_999, 1_000_000, 1_000_001, 2 ** 53 - 1),
);

/** Ascending, as the points of a timeline are; or of 13 digits, at their ends and anywhere between. */
const time = fc.oneof(
  whole,
  fc.integer({ min: 1e12, max: 1e13 - 1 }),
  fc.constantFrom(1e12 - 1, 1e12, 1e12 + 1, 1e13 - 1, 1e13),
);

const timelines = fc.array(fc.tuple(time, whole, whole), { maxLength: 50 }).map((points) => ({
  ends: points.map(([end]) => end).sort((a, b) => a - b),
  requests: Float64Array.from(points, ([, n]) => n),
  attacks: Float64Array.from(points, ([, , n]) => n),
}));

function stringified({ ends, requests, attacks }: Timeline): string {
  const series = (counts: Float64Array) => ends.map((time, i) => ({ time, num: counts[i] }));
  return JSON.stringify({ requests: series(requests), attacks: series(attacks) });
}

test('the bytes are those of JSON.stringify, for any numbers', () => {
  fc.assert(
    fc.property(timelines, (timeline) => {
      expect(timelineJson(timeline).toString()).toBe(stringified(timeline));
      expect(timelineByBytes(timeline).toString()).toBe(stringified(timeline));
    }),
  );
});

test('written by words they are the same, for times of 13 digits', () => {
  const few = fc.constantFrom(...[10, 11, 10_001, 2 ** 53]);
  // Often with counts of one digit in one series or both, because these are written in another way.
  const recent = fc.tuple(timelines, few, few).map(([{ ends, requests, attacks }, most, mostAttacks]) => ({
    ends: ends.map((end) => 1e12 + (end % 9e12)),
    requests: requests.map((n) => n % most),
    attacks: attacks.map((n) => n % mostAttacks),
  }));
  fc.assert(
    fc.property(
      recent.filter(({ ends }) => ends.length > 0),
      (timeline) => {
        expect(timelineByWords(timeline).toString()).toBe(stringified(timeline));
      },
    ),
  );
});

test('any whole number up to 2^53 - 1 is written as it reads', () => {
  const bytes = Buffer.alloc(20);
  fc.assert(
    fc.property(whole, (value) => {
      expect(bytes.toString('latin1', 0, writeDigits(bytes, 0, value))).toBe(String(value));
    }),
  );
});
