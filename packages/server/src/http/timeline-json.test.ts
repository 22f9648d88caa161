import fc from 'fast-check';
import { expect, test } from 'vitest';
import { timelineJson, writeDigits } from './timeline-json.ts';

const whole = fc.oneof(
  fc.integer({ min: 0, max: 1_000 }),
  fc.integer({ min: 0, max: 2 ** 31 }),
  fc.maxSafeNat(),
  fc.constantFrom(0, 9, 10, 999_999, 1_000_000, 1_000_001, 2 ** 53 - 1),
);

test('the bytes are those of JSON.stringify, for any numbers', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(whole, whole, whole), { maxLength: 50 }), (points) => {
      const ends = points.map(([end]) => end);
      const requests = Float64Array.from(points, ([, n]) => n);
      const attacks = Float64Array.from(points, ([, , n]) => n);
      const series = (counts: Float64Array) => ends.map((time, i) => ({ time, num: counts[i] }));
      const plain = JSON.stringify({ requests: series(requests), attacks: series(attacks) });
      expect(timelineJson({ ends, requests, attacks }).toString()).toBe(plain);
    }),
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
