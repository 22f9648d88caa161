import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createAnswerCache } from './cache.ts';

const BELIEVED_MS = 60_000;

function setUp() {
  const clock = { now: 1_000_000 };
  const cache = createAnswerCache<string>(BELIEVED_MS, () => clock.now);
  let asked = 0;
  const answering = (answer: string | null) => () => {
    asked++;
    return Promise.resolve(answer);
  };
  return { clock, cache, answering, asked: () => asked };
}

test('an answer is believed for the time, to the millisecond, and then asked for again', async () => {
  const { clock, cache, answering, asked } = setUp();
  expect(await cache.get('a', answering('yes'))).toBe('yes');
  clock.now += BELIEVED_MS - 1;
  expect(cache.get('a', answering('other'))).toBe('yes');
  clock.now += 1;
  expect(await cache.get('a', answering('other'))).toBe('other');
  expect(asked()).toBe(2);
});

test('the time runs from the question: what changes while it is on its way is not believed longer', async () => {
  const { clock, cache, answering } = setUp();
  const slow = cache.get('a', async () => {
    clock.now += 5_000;
    return 'old';
  });
  expect(await slow).toBe('old');
  clock.now += BELIEVED_MS - 5_000;
  expect(await cache.get('a', answering('new'))).toBe('new');
});

test('a refusal is remembered for 5 seconds', async () => {
  const { clock, cache, answering } = setUp();
  expect(await cache.get('a', answering(null))).toBe(null);
  clock.now += 4_999;
  expect(cache.get('a', answering('yes'))).toBe(null);
  clock.now += 1;
  expect(await cache.get('a', answering('yes'))).toBe('yes');
});

test('a clock that is set back makes nothing last', async () => {
  const { clock, cache, answering } = setUp();
  await cache.get('a', answering('old'));
  clock.now -= 1;
  expect(await cache.get('a', answering('new'))).toBe('new');
});

test('who asks at the same time shares the answer, and the failure, which nobody remembers', async () => {
  const { cache, answering } = setUp();
  let fail: (error: Error) => void = () => {};
  const failing = () =>
    new Promise<string>((_, reject) => {
      fail = reject;
    });
  const first = cache.get('a', failing);
  const second = cache.get('a', answering('never asked'));
  fail(new Error('away'));
  await expect(first).rejects.toThrow('away');
  await expect(second).rejects.toThrow('away');
  expect(await cache.get('a', answering('back'))).toBe('back');
});

test('refusals of made-up names drive out nobody, and no kind grows without end', async () => {
  const { cache, answering, asked } = setUp();
  await cache.get('caller', answering('yes'));
  for (let i = 0; i < 20_000; i++) await cache.get(`made-up ${i}`, answering(null));
  expect(cache.get('caller', answering(null))).toBe('yes');
  expect(cache.get('made-up 19999', answering('yes'))).toBe(null);
  const before = asked();
  expect(await cache.get('made-up 18999', answering(null))).toBe(null);
  expect(asked()).toBe(before + 1);
  for (let i = 0; i < 10_000; i++) await cache.get(`caller ${i}`, answering('yes'));
  expect(await cache.get('caller', answering('again'))).toBe('again');
});

test('whatever is asked in whatever order, an answer was true at most the believed time ago', async () => {
  const step = fc.record({
    key: fc.constantFrom('a', 'b', '__proto__'),
    /** What is true from now on; null: refused. */
    truth: fc.constantFrom('x', 'y', null),
    later_ms: fc.integer({ min: 0, max: 2 * BELIEVED_MS }),
    forget: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const clock = { now: 0 };
      const cache = createAnswerCache<string>(BELIEVED_MS, () => clock.now);
      const history = new Map<string, { truth: string | null; since: number }[]>();
      for (const { key, truth, later_ms, forget } of steps) {
        const past = history.get(key) ?? [];
        past.push({ truth, since: clock.now });
        history.set(key, past);
        if (forget) cache.forget(key);
        const answer = await cache.get(key, async () => truth);
        const lately = past.filter(
          (_, i) => (past[i + 1]?.since ?? Number.POSITIVE_INFINITY) > clock.now - BELIEVED_MS,
        );
        expect(lately.map((entry) => entry.truth)).toContain(answer);
        clock.now += later_ms;
      }
    }),
  );
});
