import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { cacheCreated, type NamedCache } from '../../diagnostics.ts';
import { SharedParts } from '../shared-parts.ts';
import { BLOCK_POINTS, blockText, ZeroTexts } from './block-text.ts';

const START = Date.UTC(2026, 6, 1);
const MINUTE_MS = 60_000;

function endsOf(first: number, length: number): number[] {
  return Array.from({ length }, (_, i) => START + (first + i + 1) * MINUTE_MS);
}

/** Numbers for all points of a block: no, few or many are not zero. */
const numbers = fc
  .tuple(
    fc.constantFrom(0, 1, 2, 3, 8, 9, BLOCK_POINTS),
    fc.array(fc.nat(BLOCK_POINTS - 1), { minLength: 1 }),
    fc.constantFrom(1, 9, 10, 12_345, 2 ** 53 - 1),
  )
  .map(([count, positions, number]) => {
    const all = new Float64Array(BLOCK_POINTS);
    for (let i = 0; i < count; i++) {
      const position = count === BLOCK_POINTS ? i : (positions[i % positions.length] ?? 0) + i;
      all[position % BLOCK_POINTS] = number - (i % 2);
    }
    return all;
  });
const cut = fc
  .tuple(fc.nat(BLOCK_POINTS - 1), fc.nat(BLOCK_POINTS))
  .map(([a, b]) => [Math.min(a, b), Math.max(a + 1, b)]);

test('any points of a block have the text of JSON.stringify, plain and compressed', async () => {
  const zeroTexts = new ZeroTexts();
  await fc.assert(
    fc.asyncProperty(
      fc.array(numbers, { minLength: 1, maxLength: 4 }),
      cut,
      fc.array(cut, { minLength: 1, maxLength: 3 }),
      async (series, [first = 0, end = 0], cuts) => {
        const values = series.map((all) => all.slice(first, end));
        const zeros = zeroTexts.of(START, MINUTE_MS);
        const text = blockText(first, endsOf(first, end - first), values, zeros);
        for (const [a = 0, b = 0] of [...cuts, [first, end]]) {
          const [from, to] = [Math.max(first, a), Math.min(end, b)];
          if (from >= to) continue;
          const expected = series.map((all) =>
            endsOf(from, to - from)
              .map((time, i) => `${JSON.stringify({ time, num: all[from + i] })},`)
              .join(''),
          );
          const parts = text.parts(from, to);
          expect(parts.map(({ pieces }) => Buffer.concat(pieces).toString())).toEqual(expected);
          const body = new SharedParts(parts);
          expect(body.length).toBe(expected.join('').length);
          await body.deflate();
          expect(gunzipSync(Buffer.concat(body.gzip())).toString()).toBe(expected.join(''));
        }
      },
    ),
  );
});

test('a block weighs at least its own bytes, compressed ones included', async () => {
  const zeroTexts = new ZeroTexts();
  await fc.assert(
    fc.asyncProperty(fc.array(numbers, { minLength: 1, maxLength: 13 }), async (series) => {
      const zeros = zeroTexts.of(START, MINUTE_MS);
      const text = blockText(0, endsOf(0, BLOCK_POINTS), series, zeros);
      const parts = text.parts(0, BLOCK_POINTS);
      await new SharedParts(parts).deflate();
      const [zero] = zeros().parts(0, BLOCK_POINTS);
      // Slices of the zeros are weighed by their own cache.
      const shared = new Set([zero?.pieces[0]?.buffer, zero?.deflated?.bytes.buffer]);
      const own = new Set(
        parts
          .flatMap(({ pieces, deflated }) => [...pieces, ...(deflated ? [deflated.bytes] : [])])
          .map(({ buffer }) => buffer)
          .filter((buffer) => !shared.has(buffer)),
      );
      const bytes = [...own].reduce((sum, { byteLength }) => sum + byteLength, 0);
      expect(text.memoryBytes).toBeGreaterThan(bytes);
    }),
  );
});

test('zeros are shared by all series, and their cache is bounded', () => {
  const caches: NamedCache[] = [];
  const unsubscribe = cacheCreated.subscribe((cache) => caches.push(cache));
  const zeroTexts = new ZeroTexts();
  unsubscribe();
  const none = new Float64Array(BLOCK_POINTS);
  const one = new Float64Array(BLOCK_POINTS).fill(1, 100, 101);
  const text = blockText(0, endsOf(0, BLOCK_POINTS), [none, one, none], zeroTexts.of(START, MINUTE_MS));
  const other = blockText(0, endsOf(0, BLOCK_POINTS), [none], zeroTexts.of(START, MINUTE_MS));
  const parts = [...text.parts(0, BLOCK_POINTS), ...other.parts(0, BLOCK_POINTS)];
  expect(new Set(parts.flatMap(({ pieces }) => pieces.map(({ buffer }) => buffer))).size).toBe(2);
  expect(text.memoryBytes).toBeLessThan(4_096);

  for (let block = 0; block < 1_000; block++) zeroTexts.of(START + block, MINUTE_MS)();
  const [cache] = caches;
  expect(cache?.name).toBe('timeline_zeros');
  expect(cache?.bytes).toBeLessThanOrEqual(2_097_152);
  expect(cache?.size).toBeLessThan(300);
});
