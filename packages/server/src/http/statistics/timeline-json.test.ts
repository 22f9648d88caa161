import fc from 'fast-check';
import { expect, test } from 'vitest';
import { keyedTexts, seriesJson } from './timeline-json.ts';

interface Timeline {
  ends: number[];
  requests: Float64Array;
  attacks: Float64Array;
}

function timelineJson({ ends, requests, attacks }: Timeline): string {
  const texts = { heads: ['{"requests":[', '],"attacks":['], tail: ']}' };
  return seriesJson({ edges: [0, ...ends], counts: [requests, attacks] }, texts);
}

const whole = fc.oneof(
  fc.integer({ min: 0, max: 1_000 }),
  fc.integer({ min: 0, max: 2 ** 31 }),
  fc.maxSafeNat(),
  fc.constantFrom(0, 9, 10, 999_999, 1_000_000, 1_000_001, 2 ** 53 - 1),
);

/** Times of any length, of 13 digits, and at the limits of 13 digits. */
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

test('the bytes equal those of JSON.stringify for any times and counts', () => {
  fc.assert(
    fc.property(timelines, (timeline) => {
      expect(timelineJson(timeline)).toBe(stringified(timeline));
    }),
  );
});

test('the bytes equal those of JSON.stringify for times of 13 digits and counts of any length', () => {
  const few = fc.constantFrom(...[10, 11, 10_001, 2 ** 53]);
  const recent = fc.tuple(timelines, few, few).map(([{ ends, requests, attacks }, most, mostAttacks]) => ({
    ends: ends.map((end) => 1e12 + (end % 9e12)).sort((a, b) => a - b),
    requests: requests.map((n) => n % most),
    attacks: attacks.map((n) => n % mostAttacks),
  }));
  fc.assert(
    fc.property(
      recent.filter(({ ends }) => ends.length > 0),
      (timeline) => {
        expect(timelineJson(timeline)).toBe(stringified(timeline));
      },
    ),
  );
});

test('any number of series with keys has the bytes of JSON.stringify', () => {
  const times = fc.uniqueArray(fc.oneof(time, fc.integer({ min: 1e12, max: 1e13 - 1 })), { maxLength: 30 });
  const recent = fc.uniqueArray(fc.integer({ min: 1e12, max: 1e13 - 1 }), { minLength: 1, maxLength: 30 });
  // The largest count of each series.
  const anyLimits = fc.array(fc.constantFrom(10, 11, 10_001, 2 ** 53), { minLength: 1, maxLength: 13 });
  fc.assert(
    fc.property(
      fc.oneof(times, recent),
      anyLimits,
      fc.array(whole, { minLength: 1 }),
      (ends, limits, counts) => {
        ends.sort((a, b) => a - b);
        const series = limits.map((limit, n) => ({
          key: `KEY_${n}`,
          counts: Float64Array.from(ends, (_, i) => (counts[(n + i) % counts.length] ?? 0) % limit),
        }));
        const expected = series.map(({ key, counts }) => ({
          key,
          timeline: ends.map((time, i) => ({ time, num: counts[i] })),
        }));
        const points = { edges: [0, ...ends], counts: series.map(({ counts }) => counts) };
        const texts = keyedTexts(series.map(({ key }) => key));
        expect(seriesJson(points, texts)).toBe(JSON.stringify(expected));
      },
    ),
  );
});

test('any whole number up to 2^53 - 1 is written in decimal', () => {
  fc.assert(
    fc.property(whole, whole, (requests, attacks) => {
      const timeline = {
        ends: [1e12],
        requests: Float64Array.of(requests),
        attacks: Float64Array.of(attacks),
      };
      const [first, second] = [
        `{"time":1000000000000,"num":${requests}}`,
        `{"time":1000000000000,"num":${attacks}}`,
      ];
      expect(timelineJson(timeline)).toBe(`{"requests":[${first}],"attacks":[${second}]}`);
    }),
  );
});
