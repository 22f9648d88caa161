import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Turns } from './turns.ts';

/** Each step takes a millisecond on the clock of the test. */
function setUp() {
  const clock = { now: 0 };
  const turns = new Turns(() => clock.now);
  function* work(steps: number, done: string[] = [], name = ''): Generator<void, string> {
    for (let i = 0; i < steps; i++) {
      clock.now++;
      done.push(name);
      yield;
    }
    return name;
  }
  return { turns, work };
}

test('a long computation leaves the event loop free every 5 ms', async () => {
  const { turns, work } = setUp();
  let turnCount = 0;
  let isRunning = true;
  const running = turns.run('project', work(1_000)).finally(() => {
    isRunning = false;
  });
  for (; isRunning; turnCount++) await nextTurn();
  await running;
  expect(turnCount).toBeGreaterThanOrEqual(200);
});

test('owners take turns step by step', async () => {
  const { turns, work } = setUp();
  const done: string[] = [];
  await Promise.all([
    ...['a1', 'a2', 'a3'].map((name) => turns.run('a', work(10, done, name))),
    turns.run('b', work(3, done, 'b')),
  ]);
  expect(done.slice(0, 6).filter((name) => name === 'b')).toHaveLength(3);
  expect(done).toHaveLength(33);
});

test('a computation that fails rejects, and the others go on', async () => {
  const { turns, work } = setUp();
  // biome-ignore lint/correctness/useYield: it fails in its first step.
  function* failing(): Generator<void, never> {
    throw new Error('no');
  }
  const [failed, other] = await Promise.allSettled([
    turns.run('a', failing()),
    turns.run('a', work(2, [], 'other')),
  ]);
  expect(failed).toMatchObject({ status: 'rejected', reason: new Error('no') });
  expect(other).toEqual({ status: 'fulfilled', value: 'other' });
});
