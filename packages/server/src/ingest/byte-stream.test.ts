import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { BEFORE_TURN_BYTES_MAX, ByteReader, decompress, openLog } from './byte-stream.ts';

const DIRECTORY = mkdtempSync(join(tmpdir(), 'open-log-'));
afterAll(() => rmSync(DIRECTORY, { recursive: true }));

/** Copies each chunk, because it is valid only until the next one. */
async function contentOf(path: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of openLog(path)) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

test('a plain file is read unchanged and a gzip file decompressed, at any length', async () => {
  const path = join(DIRECTORY, 'log');
  // Random bytes, so that the compressed file has many chunks too.
  for (const content of [Buffer.alloc(0), Buffer.from('a line\n'), randomBytes(5_000_000)]) {
    writeFileSync(path, content);
    expect((await contentOf(path)).equals(content)).toBe(true);
    writeFileSync(path, gzipSync(content));
    expect((await contentOf(path)).equals(content)).toBe(true);
  }
});

test('a missing file and a truncated gzip file are errors', async () => {
  await expect(contentOf(join(DIRECTORY, 'none'))).rejects.toMatchObject({ code: 'ENOENT' });
  const path = join(DIRECTORY, 'half');
  writeFileSync(path, gzipSync(randomBytes(10_000)).subarray(0, 5_000));
  await expect(contentOf(path)).rejects.toMatchObject({ code: 'Z_BUF_ERROR' });
});

const LINES = Buffer.from(
  Array.from({ length: 1_000 }, (_, i) => `line ${i} ${'x'.repeat(i % 90)}\n`).join(''),
);

/** Yields chunks of this length, in reused memory. */
async function* chunked(bytes: Buffer, length: number): AsyncGenerator<Uint8Array> {
  const memory = Buffer.alloc(length);
  for (let at = 0; at < bytes.length; at += length) {
    const chunk = bytes.subarray(at, at + length);
    chunk.copy(memory);
    yield memory.subarray(0, chunk.length);
  }
}

async function decompressed(bytes: Buffer, length: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of decompress(chunked(bytes, length))) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

test.each(['', 'garbage-garbage', '\0\0\0\0', '\x1f', 'x'])(
  'garbage after the last gzip member loses no line: %j',
  async (garbage) => {
    const gzipped = gzipSync(LINES);
    for (const length of [1, 7, 1_000, gzipped.length, gzipped.length + 3, 1_000_000]) {
      const bytes = Buffer.concat([gzipped, gzipped, Buffer.from(garbage)]);
      expect((await decompressed(bytes, length)).equals(Buffer.concat([LINES, LINES]))).toBe(true);
    }
  },
);

test('a gzip member may have a file name, a comment and other optional fields', async () => {
  const gzipped = gzipSync(LINES);
  const extra = Buffer.from([3, 0, 1, 2, 3]);
  const named = Buffer.from('access.log\0a comment\0');
  const header = Buffer.concat([
    gzipped.subarray(0, 3),
    Buffer.from([4 + 8 + 16 + 2]),
    gzipped.subarray(4, 10),
  ]);
  const bytes = Buffer.concat([header, extra, named, Buffer.from([0, 0]), gzipped.subarray(10)]);
  for (const length of [1, 5, 1_000_000])
    expect((await decompressed(bytes, length)).equals(LINES)).toBe(true);
});

test('a damaged gzip file is an error', async () => {
  const gzipped = gzipSync(LINES);
  for (const at of [gzipped.length - 1, gzipped.length - 8, 100]) {
    const damaged = Buffer.from(gzipped);
    damaged[at] = (damaged[at] ?? 0) ^ 1;
    await expect(decompressed(damaged, 1_000)).rejects.toMatchObject({ code: 'Z_DATA_ERROR' });
  }
  for (const length of [5, 11, 500, gzipped.length - 1]) {
    await expect(decompressed(gzipped.subarray(0, length), 100)).rejects.toMatchObject({
      code: 'Z_BUF_ERROR',
    });
  }
});

test('a reader may stop before the end of a gzip file', async () => {
  const chunks = decompress(chunked(gzipSync(randomBytes(1_000_000)), 1_000));
  expect((await chunks.next()).done).toBe(false);
  expect((await chunks.return(undefined)).done).toBe(true);
});

const MEGABYTE = 1_048_576;

/** Overwrites each chunk when the next one is read, as openLog does. */
async function* inReusedMemory(content: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  const memory = Buffer.alloc(Math.max(1, ...sizes));
  for (let at = 0, i = 0; at < content.length; i++) {
    const size = Math.max(1, sizes[i % sizes.length] ?? 1);
    const length = content.copy(memory, 0, at, at + size);
    yield memory.subarray(0, length);
    memory.fill(0xff);
    at += length;
  }
}

test('ByteReader returns the stream unchanged, for any sizes of chunks, peeks and takes', async () => {
  const content = Buffer.from(Uint32Array.from({ length: 5 * MEGABYTE }, (_, i) => i).buffer);
  const size = fc.oneof(fc.integer({ min: 100_000, max: 3 * MEGABYTE }), fc.constant(MEGABYTE));
  const sizes = fc.array(size, { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(sizes, sizes, sizes, async (chunks, peeks, steps) => {
      const reader = new ByteReader(inReusedMemory(content, chunks));
      let at = 0;
      for (let i = 0; at < content.length; i++) {
        const peek = peeks[i % peeks.length] ?? 1;
        const seen = await reader.peek(peek);
        expect(seen.length).toBeGreaterThanOrEqual(Math.min(peek, content.length - at));
        expect(seen.equals(content.subarray(at, at + seen.length))).toBe(true);
        const step = Math.min(seen.length, steps[i % steps.length] ?? 1);
        reader.take(step);
        at += step;
      }
      expect(await reader.peek(1)).toHaveLength(0);
    }),
    { numRuns: scaled(30) },
  );
});

test('a small file waits for its turn before it takes more memory, or starts a program', async () => {
  const bomb = gzipSync(Buffer.alloc(5_000_000, 'a line\n'));
  expect(bomb.length).toBeLessThan(65_536);
  const xz = Buffer.from('fd377a585a000004', 'hex');
  for (const [content, bytesMax] of [
    [bomb, BEFORE_TURN_BYTES_MAX],
    [xz, 0],
  ] as const) {
    const path = join(DIRECTORY, 'turn');
    writeFileSync(path, content);
    let bytesBefore = 0;
    let isTurn = false;
    let start = () => {};
    const turn = new Promise<void>((resolve) => {
      start = () => {
        isTurn = true;
        resolve();
      };
    });
    const reader = new ByteReader(openLog(path, () => {}, content.length, turn));
    let hasEnded = false;
    const reading = (async () => {
      for (let length = 1; ; length = bytesBefore + 1) {
        const { length: found } = await reader.peek(length);
        if (isTurn || found < length) return;
        bytesBefore = found;
      }
    })().finally(() => {
      hasEnded = true;
    });
    // Far longer than it takes to read the rest.
    for (let i = 0; i < 1_000; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(hasEnded).toBe(false);
    expect(bytesBefore).toBeLessThanOrEqual(bytesMax);
    start();
    await reading;
    await reader.close();
  }
});
