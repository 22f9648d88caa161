import { expect, test } from 'vitest';
import type { KnownNetworks } from './known-networks.ts';
import { AttemptGroup, createLoginThrottle } from './login-throttle.ts';

function setUp() {
  const clock = { now: 0 };
  const delays: number[] = [];
  const pairs = new Set<string>();
  const known: KnownNetworks = {
    has: (userId, network) => pairs.has(`${userId} ${network}`),
    add: (userId, network) => pairs.add(`${userId} ${network}`),
  };
  const throttle = createLoginThrottle(
    known,
    () => clock.now,
    async (ms) => {
      delays.push(ms);
    },
  );
  const attempt = (account: string, address: string, succeeds = false) =>
    throttle.attempt(account, { address }, async () => succeeds);
  return {
    clock,
    throttle,
    attempt,
    async fail(times: number, account: string, address: string) {
      for (let i = 0; i < times; i++) await attempt(account, address);
    },
    /** How long the next attempt is delayed, without counting it. */
    async delayOf(account: string, address: string): Promise<number> {
      delays.length = 0;
      const stop = new Error('not counted');
      await throttle
        .attempt(account, { address }, () => Promise.reject(stop))
        .catch((error) => {
          if (error !== stop) throw error;
        });
      return delays.reduce((a, b) => a + b, 0);
    },
  };
}

test('a few failures are free, then each doubles the delay, up to 5 seconds', async () => {
  const { fail, delayOf } = setUp();
  await fail(4, 'alice', 'here');
  expect(await delayOf('alice', 'here')).toBe(0);
  const delays = [];
  for (let i = 0; i < 7; i++) {
    await fail(1, 'alice', 'here');
    delays.push(await delayOf('alice', 'here'));
  }
  expect(delays).toEqual([250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
});

test('guesses from many addresses delay each other, but not a user on a known network', async () => {
  const { attempt, fail, delayOf } = setUp();
  await attempt('alice', 'home', true);
  for (let i = 0; i < 30; i++) await fail(1, 'alice', `elsewhere ${i}`);
  expect(await delayOf('alice', 'home')).toBe(0);
  expect(await delayOf('alice', 'a third place')).toBe(5_000);
  expect(await delayOf('bob', 'a third place')).toBe(0);
});

test('an address that tries many accounts is delayed for all of them, except those known there', async () => {
  const { attempt, fail, delayOf } = setUp();
  await attempt('alice', 'scanner', true);
  for (let i = 0; i < 60; i++) await fail(1, `user ${i}`, 'scanner');
  expect(await delayOf('another', 'scanner')).toBe(5_000);
  expect(await delayOf('another', 'elsewhere')).toBe(0);
  expect(await delayOf('alice', 'scanner')).toBe(0);
});

test('a known pair of user and network is delayed by its own failures only, for at most 1 second', async () => {
  const { attempt, fail, delayOf } = setUp();
  await attempt('alice', 'home', true);
  await fail(100, 'alice', 'home');
  expect(await delayOf('alice', 'home')).toBe(1_000);
});

test('a known browser is not delayed by others behind the same address', async () => {
  let delayed = false;
  const quick = createLoginThrottle(
    { has: () => true, add: () => {} },
    () => 0,
    async () => {
      delayed = true;
    },
  );
  for (let i = 0; i < 20; i++) await quick.attempt('alice', { address: 'office' }, async () => false);
  delayed = false;
  const from = { address: 'office', device: 'laptop' };
  expect(await quick.attempt('alice', from, async () => true)).toBe(true);
  expect(delayed).toBe(false);
  // Its own failures still delay it: the cookie may be stolen.
  for (let i = 0; i < 6; i++) await quick.attempt('alice', from, async () => false);
  expect(delayed).toBe(true);
});

test('delays end with the correct password, after 15 minutes, and if the clock is set back', async () => {
  const { clock, attempt, fail, delayOf } = setUp();
  await fail(10, 'alice', 'here');
  await attempt('alice', 'here', true);
  expect(await delayOf('alice', 'here')).toBe(0);
  await fail(10, 'bob', 'here');
  clock.now += 15 * 60_000;
  expect(await delayOf('bob', 'here')).toBe(0);
  await fail(10, 'bob', 'here');
  clock.now -= 1;
  expect(await delayOf('bob', 'here')).toBe(0);
});

test('attempts at one account run one at a time, no matter from how many addresses', async () => {
  const { throttle } = setUp();
  let running = 0;
  let runningMax = 0;
  const check = async () => {
    runningMax = Math.max(runningMax, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    return false;
  };
  const attempts = Array.from({ length: 20 }, (_, i) =>
    throttle.attempt('alice', { address: `198.51.100.${i}` }, check),
  );
  await Promise.all(attempts);
  expect(runningMax).toBe(1);
});

test('an attempt that would wait too long is refused, and no network takes the whole queue', async () => {
  const releases: (() => void)[] = [];
  const known = { has: () => false, add: () => {} };
  const throttle = createLoginThrottle(
    known,
    () => 0,
    () => new Promise((resolve) => releases.push(resolve)),
  );
  for (let i = 0; i < 30; i++) {
    const attempt = throttle.attempt('alice', { address: `guesser ${i}` }, async () => false);
    await new Promise((resolve) => setImmediate(resolve));
    releases.pop()?.();
    await attempt;
  }
  // Delays of 5 s: 3 attempts fit. One of another network takes the place of the last one.
  const outcome = (address: string) =>
    throttle
      .attempt('alice', { address }, async () => true)
      .then(
        () => 'done',
        (error) => error.limit,
      );
  const attempts = [...Array.from({ length: 5 }, () => outcome('here')), outcome('elsewhere')];
  let results: string[] | null = null;
  const all = Promise.all(attempts).then((outcomes) => {
    results = outcomes;
  });
  while (results === null) {
    for (const release of releases.splice(0)) release();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await all;
  expect(await Promise.all(attempts)).toEqual(['done', 'done', ...Array(3).fill('account'), 'done']);
});

test('attempts over the limit are refused: 64 per address, 1,000 in total; known pairs have their own limit', async () => {
  const { attempt, throttle } = setUp();
  await attempt('alice', 'home', true);
  let end: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const hang = async () => {
    await ended;
    return false;
  };
  const results: string[] = [];
  const start = (address: string, i: number) =>
    throttle.attempt(`user ${i}`, { address }, hang).catch((error) => {
      results.push(error.limit);
    });
  const pending = [];
  for (let i = 0; i < 65; i++) pending.push(start('stranger', i));
  await Promise.race([...pending]);
  expect(results).toEqual(['address']);
  for (let i = 64; i < 1_001; i++) pending.push(start(`stranger ${i}`, i));
  await new Promise((resolve) => setImmediate(resolve));
  expect(results).toEqual(['address', 'service']);
  expect(await attempt('alice', 'home', true)).toBe(true);
  end();
  await Promise.all(pending);
});

test('the attempts of 100 addresses leave room for those of another one', async () => {
  const { throttle } = setUp();
  const hang = () => new Promise<boolean>(() => {});
  let refused = 0;
  for (let i = 0; i < 10_000; i++) {
    const attempt = throttle.attempt(`user ${i}`, { address: `stranger ${i % 100}` }, hang);
    attempt.catch(() => refused++);
  }
  await new Promise((resolve) => setImmediate(resolve));
  expect(refused).toBeGreaterThan(9_000);
  let error: unknown = null;
  throttle.attempt('alice', { address: 'home' }, hang).catch((reason) => {
    error = reason;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(error).toBe(null);
});

test('hashes run for each key in turn, no matter how many wait for one of them', async () => {
  const group = new AttemptGroup();
  const order: string[] = [];
  const work = (name: string) => async () => {
    order.push(name);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const crowd = Array.from({ length: 5 }, (_, i) => group.run('crowd', (slot) => slot(work(`crowd ${i}`))));
  const others = ['alice', 'bob'].map((name) => group.run(name, (slot) => slot(work(name))));
  await Promise.all([...crowd, ...others]);
  expect(order).toEqual(['crowd 0', 'crowd 1', 'crowd 2', 'alice', 'bob', 'crowd 3', 'crowd 4']);
});

test('two hashes run at once, and a failure releases its slot', async () => {
  const group = new AttemptGroup();
  let running = 0;
  let runningMax = 0;
  const work = async () => {
    runningMax = Math.max(runningMax, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    throw new Error('failed');
  };
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, i) => group.run(`${i % 4}`, (slot) => slot(work))),
  );
  expect(results.every(({ status }) => status === 'rejected')).toBe(true);
  expect([runningMax, running]).toEqual([2, 0]);
});

/** A clock that moves on to the next timer whenever nothing else is left to do. */
function createSimulation() {
  const clock = { now: 0 };
  const timers: { at: number; end(): void }[] = [];
  const sleep = (ms: number) => new Promise<void>((end) => timers.push({ at: clock.now + ms, end }));
  const throttle = createLoginThrottle({ has: () => false, add: () => {} }, () => clock.now, sleep);
  const guesses: number[] = [];
  return {
    clock,
    sleep,
    guesses,
    /** Tries as fast as it is allowed to, from the next address each time. */
    async guess(addresses: Iterator<string>) {
      for (;;) {
        const address = addresses.next().value;
        const check = async () => {
          guesses.push(clock.now);
          await sleep(20);
          return false;
        };
        await throttle.attempt('alice', { address }, check).catch(() => sleep(1_000));
      }
    },
    mistype: (address: string) => throttle.attempt('alice', { address }, async () => false),
    /** How long the user needs, who waits as long as the refusal says. */
    async logIn(address: string): Promise<number> {
      const start = clock.now;
      for (;;) {
        const check = () => sleep(20).then(() => true);
        const result = await throttle
          .attempt('alice', { address }, check)
          .catch(({ retryAfterS }) => sleep(retryAfterS * 1_000).then(() => false));
        if (result) return clock.now - start;
      }
    },
    async run(until: number) {
      while (clock.now < until) {
        await new Promise((resolve) => setImmediate(resolve));
        timers.sort((a, b) => a.at - b.at);
        const next = timers.shift();
        if (next === undefined) return;
        clock.now = next.at;
        next.end();
      }
    },
  };
}

function* always(address: string): Generator<string> {
  for (;;) yield address;
}

function* rotating(name: (i: number) => string): Generator<string> {
  for (let i = 0; ; i++) yield name(i);
}

test.each([
  ['six addresses', 6, (i: number) => always(`198.51.${i}.1`)],
  ['six addresses with four connections each', 24, (i: number) => always(`198.51.${i % 6}.1`)],
  // In three minutes, each has had its first turn: 20 without a delay, then 12 a minute.
  ['50 addresses', 50, (i: number) => always(`198.18.${i}.1`)],
  [
    'the addresses of an IPv6 network',
    6,
    (i: number) => rotating((j) => `2001:db8:1:${(6 * j + i).toString(16)}::1`),
  ],
])('the owner can log in from a new network while %s guess', async (_, count, addresses) => {
  const { guesses, guess, logIn, sleep, run } = createSimulation();
  for (let i = 0; i < count; i++) void guess(addresses(i));
  const minute = 60_000;
  const waits: number[] = [];
  void (async () => {
    await sleep(3 * minute);
    for (let i = 0; i < 5; i++) {
      waits.push(await logIn(`203.0.${i}.7`));
      await sleep(minute + 777 * i);
    }
  })();
  await run(10 * minute);
  expect(waits).toHaveLength(5);
  expect(Math.max(...waits)).toBeLessThanOrEqual(15_000);
  // One every 5 s, after those that are free.
  expect(guesses.filter((at) => at > 2 * minute).length).toBeLessThanOrEqual(8 * 12);
});

test('a user who mistyped the password has another turn after each of six guessing addresses', async () => {
  const { guess, logIn, sleep, run, mistype } = createSimulation();
  for (let i = 0; i < 6; i++) void guess(always(`198.51.${i}.1`));
  let wait: number | null = null;
  void (async () => {
    await sleep(60_000);
    await mistype('203.0.113.7');
    wait = await logIn('203.0.113.7');
  })();
  await run(5 * 60_000);
  expect(wait).toBeLessThanOrEqual(60_000);
});
