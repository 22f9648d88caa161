import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Semaphore } from './semaphore.ts';

test('everything of one owner runs in order, and never more than the limit at once, but for what is heavier alone', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 15 }), { maxLength: 30 }), async (weights) => {
      const semaphore = new Semaphore(10);
      const started: number[] = [];
      let running = 0;
      let count = 0;
      await Promise.all(
        weights.map(async (weight, i) => {
          const release = await semaphore.acquire('project', weight);
          started.push(i);
          running += weight;
          count++;
          if (count > 1) expect(running).toBeLessThanOrEqual(10);
          for (let turn = 0; turn <= weight; turn++) await Promise.resolve();
          running -= weight;
          count--;
          release();
          release();
        }),
      );
      expect(started).toEqual(weights.map((_, i) => i));
    }),
  );
});

test('the work of one owner delays that of another by one piece, however much is waiting', async () => {
  const semaphore = new Semaphore(1);
  const release = await semaphore.acquire('busy', 1);
  const started: string[] = [];
  const run = async (owner: string, name: string) => {
    const done = await semaphore.acquire(owner, 1);
    started.push(name);
    done();
  };
  const all = [run('busy', 'busy 1'), run('busy', 'busy 2'), run('busy', 'busy 3'), run('quiet', 'quiet 1')];
  release();
  await Promise.all(all);
  expect(started).toEqual(['busy 1', 'quiet 1', 'busy 2', 'busy 3']);
});
