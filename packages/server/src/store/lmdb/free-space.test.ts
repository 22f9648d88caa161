import { expect, test } from 'vitest';
import { StoreNotWritable } from '../store.ts';
import { type FileSystem, FreeSpace } from './free-space.ts';

const MIB = 1_048_576;

function spaceOf(total: number) {
  const world = { free: total, now: 0, measured: 0 };
  const measure = async (): Promise<FileSystem> => {
    world.measured++;
    return { bsize: 1_024, blocks: total / 1_024, bavail: world.free / 1_024 };
  };
  return { world, space: new FreeSpace('/data', measure, () => world.now) };
}

test.each([
  ['of a large disk 64 MiB', 1_000_000 * MIB, 64 * MIB],
  ['of a small disk 5 %', 100 * MIB, 5 * MIB],
])('%s are kept free', async (_, total, kept) => {
  const { world, space } = spaceOf(total);
  await space.check();
  world.free = kept;
  world.now += 1_000;
  await space.check();
  world.free = kept - 1_024;
  world.now += 1_000;
  await expect(space.check()).rejects.toThrow(
    `/data has ${kept - 1_024} bytes free, less than the ${kept} that are kept free; nothing was counted`,
  );
  await expect(space.check()).rejects.toBeInstanceOf(StoreNotWritable);
  world.free = kept;
  world.now += 1_000;
  await space.check();
});

test('the disk is measured once per second at most', async () => {
  const { world, space } = spaceOf(100 * MIB);
  for (let i = 0; i < 100; i++) {
    await space.check();
    world.now += 99;
  }
  expect(world.measured).toBeLessThanOrEqual(10);
});

test('a disk that cannot be measured is no reason to refuse', async () => {
  await new FreeSpace('/data', () => Promise.reject(new Error('ENOSYS'))).check();
});
