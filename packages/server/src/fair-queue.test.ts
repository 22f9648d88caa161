import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FairQueue, Semaphore, TimeSlicer } from './fair-queue.ts';

test('a queue takes from every owner in turn, and drops expired items of all owners', () => {
  const queue = new FairQueue<number>();
  for (const item of [1, 2, 9, 3]) queue.add('busy', item);
  for (const item of [4, 5]) queue.add('quiet', item);
  expect([queue.take(), queue.take(), queue.take()]).toEqual([1, 4, 2]);
  expect(queue.takeAll((item) => item > 3)).toEqual([5, 9]);
  expect([queue.take(), queue.isEmpty, queue.take()]).toEqual([3, true, undefined]);
});

describe('a semaphore', () => {
  test('starts the tasks of one owner in order and within the limit, except for a single heavier task', async () => {
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

  test('keeps room for others: one owner gets its share only, and its other tasks wait', async () => {
    const semaphore = new Semaphore(4, 2);
    const [first] = await Promise.all([semaphore.acquire('busy', 1), semaphore.acquire('busy', 1)]);
    const started: string[] = [];
    const waiting = semaphore.acquire('busy', 1).then(() => started.push('busy'));
    await semaphore.acquire('quiet', 1).then(() => started.push('quiet'));
    expect(started).toEqual(['quiet']);
    first();
    await waiting;
    expect(started).toEqual(['quiet', 'busy']);
  });

  test('delays one owner by one task of another, however much is waiting', async () => {
    const semaphore = new Semaphore(1);
    const release = await semaphore.acquire('busy', 1);
    const started: string[] = [];
    const run = async (owner: string, name: string) => {
      const done = await semaphore.acquire(owner, 1);
      started.push(name);
      done();
    };
    const all = [
      run('busy', 'busy 1'),
      run('busy', 'busy 2'),
      run('busy', 'busy 3'),
      run('quiet', 'quiet 1'),
    ];
    release();
    await Promise.all(all);
    expect(started).toEqual(['busy 1', 'quiet 1', 'busy 2', 'busy 3']);
  });
});

describe('a time slicer', () => {
  /** Each step takes a millisecond on the test clock. */
  function setUp() {
    const clock = { now: 0 };
    const slicer = new TimeSlicer(() => clock.now);
    function* work(steps: number, done: string[] = [], name = ''): Generator<void, string> {
      for (let i = 0; i < steps; i++) {
        clock.now++;
        done.push(name);
        yield;
      }
      return name;
    }
    return { slicer, work };
  }

  test('frees the event loop every 5 ms during a long computation', async () => {
    const { slicer, work } = setUp();
    let turnCount = 0;
    let isRunning = true;
    const running = slicer.run('project', work(1_000)).finally(() => {
      isRunning = false;
    });
    for (; isRunning; turnCount++) await nextTurn();
    await running;
    expect(turnCount).toBeGreaterThanOrEqual(200);
  });

  test('runs one slice of each owner in turn', async () => {
    const { slicer, work } = setUp();
    const done: string[] = [];
    await Promise.all([
      ...['a1', 'a2', 'a3'].map((name) => slicer.run('a', work(10, done, name))),
      slicer.run('b', work(3, done, 'b')),
    ]);
    // After a slice of five steps of the first owner.
    expect(done.slice(5, 8)).toEqual(['b', 'b', 'b']);
    expect(done).toHaveLength(33);
  });

  test('rejects if a computation fails, and continues with the others', async () => {
    const { slicer, work } = setUp();
    // biome-ignore lint/correctness/useYield: it fails in its first step.
    function* failing(): Generator<void, never> {
      throw new Error('no');
    }
    const [failed, other] = await Promise.allSettled([
      slicer.run('a', failing()),
      slicer.run('a', work(2, [], 'other')),
    ]);
    expect(failed).toMatchObject({ status: 'rejected', reason: new Error('no') });
    expect(other).toEqual({ status: 'fulfilled', value: 'other' });
  });
});
