import { expect, test } from 'vitest';
import { FairSemaphore } from './fair-semaphore.ts';

test('keys are served in turn, however many waiters one of them has', async () => {
  const semaphore = new FairSemaphore(1);
  const order: string[] = [];
  const work = (name: string) => async () => {
    order.push(name);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const crowd = Array.from({ length: 5 }, (_, i) => semaphore.run('crowd', work(`crowd ${i}`)));
  const others = ['alice', 'bob'].map((name) => semaphore.run(name, work(name)));
  await Promise.all([...crowd, ...others]);
  expect(order).toEqual(['crowd 0', 'crowd 1', 'alice', 'bob', 'crowd 2', 'crowd 3', 'crowd 4']);
});

test('as many run at once as there are slots, and a failure gives its slot back', async () => {
  const semaphore = new FairSemaphore(3);
  let running = 0;
  let most = 0;
  const work = async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    throw new Error('failed');
  };
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, i) => semaphore.run(`${i % 4}`, work)),
  );
  expect(results.every(({ status }) => status === 'rejected')).toBe(true);
  expect([most, running]).toEqual([3, 0]);
});
