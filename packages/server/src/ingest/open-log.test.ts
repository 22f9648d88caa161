import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, test } from 'vitest';
import { openLog, unpacked } from './open-log.ts';

const FOLDER = mkdtempSync(join(tmpdir(), 'open-log-'));
afterAll(() => rmSync(FOLDER, { recursive: true }));

/** Each chunk is good until the next is asked for. */
async function contentOf(path: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of openLog(path)) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

test('a file is read as it is, a packed one unpacked, also when it is long', async () => {
  const path = join(FOLDER, 'log');
  // Of random bytes, so that it is many chunks when packed, too.
  for (const content of [Buffer.alloc(0), Buffer.from('a line\n'), randomBytes(5_000_000)]) {
    writeFileSync(path, content);
    expect((await contentOf(path)).equals(content)).toBe(true);
    writeFileSync(path, gzipSync(content));
    expect((await contentOf(path)).equals(content)).toBe(true);
  }
});

test('a file that is not there, or ends inside of what is packed, says so', async () => {
  await expect(contentOf(join(FOLDER, 'none'))).rejects.toMatchObject({ code: 'ENOENT' });
  const path = join(FOLDER, 'half');
  writeFileSync(path, gzipSync(randomBytes(10_000)).subarray(0, 5_000));
  await expect(contentOf(path)).rejects.toMatchObject({ code: 'Z_BUF_ERROR' });
});

const LINES = Buffer.from(
  Array.from({ length: 1_000 }, (_, i) => `line ${i} ${'x'.repeat(i % 90)}\n`).join(''),
);

/** In chunks of this length, in memory that is used again. */
async function* chunked(bytes: Buffer, length: number): AsyncGenerator<Uint8Array> {
  const memory = Buffer.alloc(length);
  for (let at = 0; at < bytes.length; at += length) {
    const chunk = bytes.subarray(at, at + length);
    chunk.copy(memory);
    yield memory.subarray(0, chunk.length);
  }
}

async function unpackedOf(bytes: Buffer, length: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of unpacked(chunked(bytes, length))) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

test.each(['', 'garbage-garbage', '\0\0\0\0', '\x1f', 'x'])(
  'what follows the last member of a packed file costs no line: %j',
  async (garbage) => {
    const packed = gzipSync(LINES);
    for (const length of [1, 7, 1_000, packed.length, packed.length + 3, 1_000_000]) {
      const bytes = Buffer.concat([packed, packed, Buffer.from(garbage)]);
      expect((await unpackedOf(bytes, length)).equals(Buffer.concat([LINES, LINES]))).toBe(true);
    }
  },
);

test('a member may name its file, and more', async () => {
  const packed = gzipSync(LINES);
  const extra = Buffer.from([3, 0, 1, 2, 3]);
  const named = Buffer.from('access.log\0a comment\0');
  const header = Buffer.concat([
    packed.subarray(0, 3),
    Buffer.from([4 + 8 + 16 + 2]),
    packed.subarray(4, 10),
  ]);
  const bytes = Buffer.concat([header, extra, named, Buffer.from([0, 0]), packed.subarray(10)]);
  for (const length of [1, 5, 1_000_000]) expect((await unpackedOf(bytes, length)).equals(LINES)).toBe(true);
});

test('a packed file that is damaged says so', async () => {
  const packed = gzipSync(LINES);
  for (const at of [packed.length - 1, packed.length - 8, 100]) {
    const damaged = Buffer.from(packed);
    damaged[at] = (damaged[at] ?? 0) ^ 1;
    await expect(unpackedOf(damaged, 1_000)).rejects.toMatchObject({ code: 'Z_DATA_ERROR' });
  }
  for (const length of [5, 11, 500, packed.length - 1]) {
    await expect(unpackedOf(packed.subarray(0, length), 100)).rejects.toMatchObject({ code: 'Z_BUF_ERROR' });
  }
});

test('a packed file that nobody reads to its end is let go', async () => {
  const chunks = unpacked(chunked(gzipSync(randomBytes(1_000_000)), 1_000));
  expect((await chunks.next()).done).toBe(false);
  expect((await chunks.return(undefined)).done).toBe(true);
});
