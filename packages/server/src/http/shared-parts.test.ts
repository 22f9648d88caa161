import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BytesPart, JoinedPart, type Part, SharedParts } from './shared-parts.ts';

const text = fc.string({ unit: 'binary-ascii', maxLength: 300 });
const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 300 }),
  fc.tuple(text, fc.integer({ min: 1, max: 2_000 })).map(([line, times]) => Buffer.from(line.repeat(times))),
);

test('a compressed part keeps no more memory than its bytes', () => {
  const part = new BytesPart(Buffer.from('a block of points '.repeat(400)));
  new SharedParts([part]).gzip();
  const bytes = part.deflated?.bytes;
  expect(bytes?.length).toBeGreaterThan(0);
  expect(bytes?.buffer.byteLength).toBe(bytes?.length);
});

test('a text that is too long for a block is an error', () => {
  expect(() => new SharedParts(['a'.repeat(65_536)]).gzip()).toThrow('65536 bytes is too long');
});

test('a body has the bytes of its parts, plain and compressed, even if a part was compressed before', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(bytes, { minLength: 1, maxLength: 5 }),
      fc.array(fc.array(fc.oneof(text, fc.nat(6)), { maxLength: 20 }), { minLength: 1, maxLength: 3 }),
      async (shared, bodies) => {
        const plain = shared.map((content) => new BytesPart(Buffer.from(content)));
        const parts: Part[] = [...plain, new JoinedPart(plain, {}), new JoinedPart([], {})];
        for (const body of bodies) {
          const chosen = body.map((item) =>
            typeof item === 'string' ? item : (parts[item % parts.length] ?? ''),
          );
          const expected = Buffer.concat(
            chosen.flatMap((part) => (typeof part === 'string' ? Buffer.from(part) : part.pieces)),
          );
          const sharedParts = new SharedParts(chosen);
          expect(sharedParts.length).toBe(expected.length);
          expect(Buffer.concat(sharedParts.plain()).equals(expected)).toBe(true);
          await sharedParts.deflate();
          expect(sharedParts.isDeflated).toBe(true);
          // `gunzip` checks the CRC and the length.
          expect(gunzipSync(Buffer.concat(sharedParts.gzip())).equals(expected)).toBe(true);
        }
      },
    ),
  );
});
