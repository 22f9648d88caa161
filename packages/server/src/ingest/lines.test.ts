import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { CHUNK_BYTES_MAX, CHUNK_LINES_MAX, Chunker } from './lines.ts';

interface Cut {
  bytes: number;
  lines: { number: number; text: string | null }[];
  isLast: boolean;
}

/** Adds the text in parts that end at the given offsets. */
function cut(text: Buffer, offsets: readonly number[]): Cut[] {
  const chunks = new Chunker();
  const cuts: Cut[] = [];
  const take = (hasEnded: boolean) => {
    for (let chunk = chunks.next(hasEnded); chunk; chunk = chunks.next(hasEnded)) {
      expect(chunk.index).toBe(cuts.length);
      expect(chunk.bytes).toBeLessThanOrEqual(CHUNK_BYTES_MAX);
      cuts.push({ bytes: chunk.bytes, lines: [...chunk.lines], isLast: chunk.isLast });
    }
  };
  let start = 0;
  for (const offset of [...offsets, text.length].sort((a, b) => a - b)) {
    chunks.add(text.subarray(start, offset));
    start = offset;
    take(false);
  }
  take(true);
  return cuts;
}

const LONG = 'y'.repeat(CHUNK_BYTES_MAX + 100);
const parts = fc.constantFrom(
  'a line\n',
  '\n',
  'x\n'.repeat(CHUNK_LINES_MAX - 1),
  'x\n'.repeat(3 * CHUNK_LINES_MAX),
  `${'z'.repeat(300_000)}\n`,
  `${LONG}\n`,
  LONG,
  '\0'.repeat(CHUNK_BYTES_MAX + 7),
  'no end',
);

test('the ends of chunks depend only on the bytes, and every line is in one chunk with its number', () => {
  fc.assert(
    fc.property(
      fc.array(parts, { maxLength: 8 }),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 20 }),
      (texts, fractions) => {
        const text = Buffer.from(texts.join(''));
        const whole = cut(text, []);
        expect(
          cut(
            text,
            fractions.map((fraction) => Math.floor(fraction * text.length)),
          ),
        ).toEqual(whole);
        expect(whole.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(text.length);
        expect(whole.map(({ isLast }) => isLast)).toEqual(whole.map((_, i) => i === whole.length - 1));
        for (const { lines } of whole) expect(lines.length).toBeLessThanOrEqual(CHUNK_LINES_MAX);
        const expected = text
          .toString()
          .split('\n')
          .map((line, i) => ({ number: i + 1, text: line.replace(/^\0+/, '').trim() }))
          .filter((line) => line.text !== '')
          .map((line) => (line.text.length > CHUNK_BYTES_MAX ? { ...line, text: null } : line));
        expect(whole.flatMap(({ lines }) => lines)).toEqual(expected);
      },
    ),
    { numRuns: scaled(60) },
  );
});

test.each([
  ['bytes', `${'x'.repeat(CHUNK_BYTES_MAX - 1)}\n`],
  ['lines', 'x\n'.repeat(CHUNK_LINES_MAX)],
])('a stream with as many %s as a chunk may have is one chunk, the last one', (_, text) => {
  expect(cut(Buffer.from(text), [])).toMatchObject([{ bytes: text.length, isLast: true }]);
});

test('an empty stream is one empty chunk', () => {
  expect(cut(Buffer.alloc(0), [])).toEqual([{ bytes: 0, lines: [], isLast: true }]);
});

test('bytes that arrive one by one are not moved each time', () => {
  const text = Buffer.from('x'.repeat(200_000));
  expect(cut(text, [...text.keys()])).toHaveLength(1);
});
