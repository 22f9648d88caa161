import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ByteReader } from './blocks.ts';

const MEGABYTE = 1_048_576;

/** Overwrites each chunk when the next is asked for, as openLog does. */
async function* inOneMemory(content: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  const memory = Buffer.alloc(Math.max(1, ...sizes));
  for (let at = 0, i = 0; at < content.length; i++) {
    const size = Math.max(1, sizes[i % sizes.length] ?? 1);
    const length = content.copy(memory, 0, at, at + size);
    yield memory.subarray(0, length);
    memory.fill(0xff);
    at += length;
  }
}

test('what is shown and taken is the stream, in whatever chunks it comes and steps it is taken', async () => {
  const content = Buffer.from(Uint32Array.from({ length: 5 * MEGABYTE }, (_, i) => i).buffer);
  const size = fc.oneof(fc.integer({ min: 100_000, max: 3 * MEGABYTE }), fc.constant(MEGABYTE));
  const sizes = fc.array(size, { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(sizes, sizes, sizes, async (chunks, looks, steps) => {
      const reader = new ByteReader(inOneMemory(content, chunks));
      let at = 0;
      for (let i = 0; at < content.length; i++) {
        const look = looks[i % looks.length] ?? 1;
        const seen = await reader.peek(look);
        expect(seen.length).toBeGreaterThanOrEqual(Math.min(look, content.length - at));
        expect(seen.equals(content.subarray(at, at + seen.length))).toBe(true);
        const step = Math.min(seen.length, steps[i % steps.length] ?? 1);
        reader.take(step);
        at += step;
      }
      expect(await reader.peek(1)).toHaveLength(0);
    }),
    { numRuns: 30 },
  );
});
