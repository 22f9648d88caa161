import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { sleep, unlessAborted } from './abort.ts';

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

test('a sleep ends after its time', async () => {
  const slept = sleep(1000);
  await vi.advanceTimersByTimeAsync(1000);
  await slept;
});

test('an aborted sleep ends at once and leaves no timer that would keep a process alive', async () => {
  const controller = new AbortController();
  const slept = expect(sleep(60_000, controller.signal)).rejects.toThrow('enough');
  controller.abort(new Error('enough'));
  await slept;
  expect(vi.getTimerCount()).toBe(0);
});

test('work whose caller has left may fail unheard', async () => {
  const signal = AbortSignal.abort(new Error('left'));
  await expect(unlessAborted(Promise.reject(new Error('failed')), signal)).rejects.toThrow('left');
});
