import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { CommitFailed } from './commit.ts';
import { type FileSystem, FreeSpace, openLmdb, openReadOnly } from './files.ts';

const MIB = 1_048_576;

function spaceOf(total: number) {
  const disk = { free: total, now: 0, measured: 0 };
  const measure = async (): Promise<FileSystem> => {
    disk.measured++;
    return { bsize: 1_024, blocks: total / 1_024, bavail: disk.free / 1_024 };
  };
  return { disk, space: new FreeSpace('/data', measure, () => disk.now) };
}

test.each([
  ['64 MiB of a large disk', 1_000_000 * MIB, 64 * MIB],
  ['5 % of a small disk', 100 * MIB, 5 * MIB],
])('%s are kept free', async (_, total, kept) => {
  const { disk, space } = spaceOf(total);
  await space.check();
  disk.free = kept;
  disk.now += 1_000;
  await space.check();
  disk.free = kept - 1_024;
  disk.now += 1_000;
  await expect(space.check()).rejects.toThrow(
    `/data has ${kept - 1_024} bytes free, less than the reserve of ${kept}; nothing was counted`,
  );
  await expect(space.check()).rejects.toBeInstanceOf(CommitFailed);
  disk.free = kept;
  disk.now += 1_000;
  await space.check();
});

test('the disk is measured at most once per second', async () => {
  const { disk, space } = spaceOf(100 * MIB);
  for (let i = 0; i < 100; i++) {
    await space.check();
    disk.now += 99;
  }
  expect(disk.measured).toBeLessThanOrEqual(10);
});

test('a disk that cannot be measured is no reason to refuse', async () => {
  await new FreeSpace('/data', () => Promise.reject(new Error('ENOSYS'))).check();
});

test('a reader creates the lock file for its owner only', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-'));
  const before = process.umask(0o022);
  onTestFinished(() => {
    process.umask(before);
    rmSync(directory, { recursive: true });
  });
  const path = join(directory, 'a.mdb');
  await openLmdb(path).root.close();
  rmSync(`${path}-lock`);
  const { root } = openReadOnly(path);
  expect(statSync(`${path}-lock`).mode & 0o777).toBe(0o600);
  await root.close();
});
