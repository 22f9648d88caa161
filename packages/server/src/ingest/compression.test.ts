import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decompress } from './byte-stream.ts';
import { compressionOf, MAGIC_BYTES } from './compression.ts';

const STARTS = [
  ['gzip', Buffer.from('1f8b0800', 'hex')],
  ['xz', Buffer.from('fd377a585a000004', 'hex')],
  ['bzip2', Buffer.from('425a6839314159265359b2a6c1e3000001', 'hex')],
  // Without a block: the file was empty.
  ['bzip2', Buffer.from('425a683917724538509000000000', 'hex')],
  ['zstd', Buffer.from('28b52ffd24', 'hex')],
  ['zip', Buffer.from('PK\u0003\u0004')],
  ['tar', Buffer.from(`${'access.log'.padEnd(257, '\0')}ustar\u000000`)],
  ['tar', Buffer.from(`${'access.log'.padEnd(257, '\0')}ustar  \0`)],
] as const;

test.each(STARTS)('%s is recognized by its first bytes, and not before', (kind, start) => {
  expect(compressionOf(start)?.what).toContain(kind);
  expect(compressionOf(Buffer.concat([start, Buffer.alloc(1_000, 'x')]))?.what).toContain(kind);
  expect(start.length).toBeLessThanOrEqual(MAGIC_BYTES);
  expect(compressionOf(start.subarray(1))).toBeNull();
});

test('text is never refused, whatever clients write into it', () => {
  const word = fc.constantFrom(
    'BZh9',
    '1AY&SY',
    'PK',
    'ustar',
    'ustar  ',
    '7zXZ',
    '(\u00b5/\u00fd',
    'x'.repeat(257),
  );
  const text = fc.array(fc.oneof(word, fc.string({ unit: 'grapheme' })), { maxLength: 8 });
  fc.assert(
    fc.property(text, (parts) => {
      // Log lines have neither control characters nor bytes that are not UTF-8.
      const line = parts.join('').replaceAll(/\p{Cc}/gu, '');
      expect(compressionOf(Buffer.from(line))).toBeNull();
    }),
  );
});

test('the first line of a slow stream is passed on before the next one arrives', async () => {
  let isWanted = false;
  async function* lines() {
    yield Buffer.from('a\n');
    isWanted = true;
    yield Buffer.from('b\n');
  }
  const stream = decompress(lines());
  expect(String((await stream.next()).value)).toBe('a\n');
  expect(isWanted).toBe(false);
  await stream.return(undefined);
});
