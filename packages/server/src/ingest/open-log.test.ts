import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, test } from 'vitest';
import { openLog } from './open-log.ts';

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
