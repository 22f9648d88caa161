import { expect, test } from 'vitest';
import { createThrottle } from './throttle.ts';

function setUp() {
  const clock = { now: 0 };
  const waits: number[] = [];
  const throttle = createThrottle(
    () => clock.now,
    async (ms) => {
      waits.push(ms);
    },
  );
  return {
    clock,
    throttle,
    async waitOf(account: string, address: string): Promise<number> {
      waits.length = 0;
      expect(await throttle.admit(account, address)).toBe(true);
      return waits[0] ?? 0;
    },
    fail(times: number, account: string, address: string) {
      for (let i = 0; i < times; i++) throttle.failed(account, address);
    },
  };
}

test('a few wrong attempts are free, then each waits twice as long, up to five seconds', async () => {
  const { fail, waitOf } = setUp();
  fail(4, 'alice', 'here');
  expect(await waitOf('alice', 'here')).toBe(0);
  const waits = [];
  for (let i = 0; i < 7; i++) {
    fail(1, 'alice', 'here');
    waits.push(await waitOf('alice', 'here'));
  }
  expect(waits).toEqual([250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
});

test('a stranger who guesses from elsewhere does not slow down a user who has been here before', async () => {
  const { throttle, fail, waitOf } = setUp();
  throttle.succeeded('alice', 'home');
  fail(1_000, 'alice', 'elsewhere');
  expect(await waitOf('alice', 'home')).toBe(0);
  expect(await waitOf('alice', 'elsewhere')).toBe(5_000);
  expect(await waitOf('alice', 'a third place')).toBe(5_000);
});

test('an address that tries many accounts is slowed down for all of them', async () => {
  const { fail, waitOf } = setUp();
  for (let i = 0; i < 60; i++) fail(1, `user ${i}`, 'scanner');
  expect(await waitOf('another', 'scanner')).toBe(5_000);
  expect(await waitOf('another', 'elsewhere')).toBe(0);
});

test('the right password ends the waiting, and so does a quarter of an hour', async () => {
  const { clock, throttle, fail, waitOf } = setUp();
  fail(10, 'alice', 'here');
  throttle.succeeded('alice', 'here');
  expect(await waitOf('alice', 'here')).toBe(0);
  fail(10, 'bob', 'here');
  clock.now += 15 * 60_000;
  expect(await waitOf('bob', 'here')).toBe(0);
});

test('a crowd of waiting attempts is turned away instead of being kept', async () => {
  const releases: (() => void)[] = [];
  const throttle = createThrottle(
    () => 0,
    () => new Promise((resolve) => releases.push(resolve)),
  );
  for (let i = 0; i < 10; i++) throttle.failed('alice', 'here');
  const waiting = Array.from({ length: 8 }, () => throttle.admit('alice', 'here'));
  expect(await throttle.admit('alice', 'here')).toBe(false);
  for (const release of releases) release();
  expect(await Promise.all(waiting)).toEqual(Array(8).fill(true));
});
