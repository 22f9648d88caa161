import { beforeEach, describe, expect, test } from 'vitest';
import { memoryStore } from './memory.ts';
import { RetentionPolicy } from './retention.ts';
import type { Store } from './store.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const RETENTION_MS = 30 * DAY_MS;
const TIMES = { eventsMs: RETENTION_MS, topListsMs: 5 * DAY_MS };
const START = Date.UTC(2026, 10, 15);

let store: Store;
let clock: { now: number; monotonic: number };
let logged: string[];

beforeEach(async () => {
  clock = { now: START, monotonic: 0 };
  logged = [];
  store = memoryStore(() => clock.now);
  await count(START - 40 * DAY_MS, START - 20 * DAY_MS, START - DAY_MS);
});

function count(...times: number[]) {
  const events = times.map((time) => ({ time, hostId: null, request: true, attack: null, count: 1 }));
  return store.append({ project: 'p', source: { name: 's', format: 'f' }, events, dropped: {} });
}

/** The policy of a new process. */
function policy(): RetentionPolicy {
  const log = (message: string) => logged.push(message);
  const clocks = { now: () => clock.now, monotonicNow: () => clock.monotonic };
  return new RetentionPolicy(store, TIMES, clocks, { info: log, warn: log, error: () => {} });
}

function elapse(ms: number): void {
  clock.now += ms;
  clock.monotonic += ms;
}

async function counted(): Promise<number> {
  const { requests } = await store.series({ project: 'p', edges: [0, START + 100_000 * DAY_MS] });
  return requests[0] ?? 0;
}

test('events older than the retention time no longer count, and the log says that the horizon moves', async () => {
  await policy().pass();
  expect(await counted()).toBe(2);
  expect(logged).toEqual([expect.stringContaining('to 2026-10-16T00:00:00.000Z')]);
});

test('top lists have a retention time of their own', async () => {
  const events = [20, 4].map((days) => {
    const details = { source: `203.0.113.${days}` };
    const time = START - days * DAY_MS;
    return { time, hostId: null, request: true, attack: 'sqli' as const, count: 1, details };
  });
  await store.append({ project: 'p', source: { name: 's', format: 'f' }, events, dropped: {} });
  const sources = async () => {
    const query = { project: 'p', list: 'sources' as const, limit: 10, from: 0, to: START };
    return (await store.top(query)).items.map(({ key }) => key);
  };
  expect(await sources()).toEqual(['203.0.113.20', '203.0.113.4']);
  await policy().pass();
  expect(await sources()).toEqual(['203.0.113.4']);
  expect(await counted()).toBe(4);
});

test('space is freed a day after the horizon has passed it', async () => {
  const one = policy();
  await one.pass();
  elapse(DAY_MS - HOUR_MS);
  await one.pass();
  expect(await store.restoreHorizon(0)).toBe(0);
  expect(await counted()).toBe(3);
  elapse(2 * HOUR_MS);
  await one.pass();
  expect(await store.restoreHorizon(0)).toBe(START - RETENTION_MS);
  expect(await counted()).toBe(2);
});

describe('a start with the clock in 2040', () => {
  beforeEach(async () => {
    await policy().pass();
    logged = [];
    clock.now = Date.UTC(2040, 0, 1);
    clock.monotonic = 0;
  });

  test('removes nothing, and logs why', async () => {
    await policy().pass();
    expect(await counted()).toBe(2);
    expect(logged).toEqual([expect.stringContaining('2040-01-01T00:00:00.000Z')]);
    expect(logged[0]).toContain('last used at 2026-11-15T00:00:00.000Z');
  });

  test('is not trusted because events of that time arrive, nor because of restarts', async () => {
    for (let restart = 0; restart < 3; restart++) {
      clock.monotonic = 0;
      const one = policy();
      await one.pass();
      await count(clock.now);
      elapse(7 * HOUR_MS);
      await one.pass();
    }
    expect(await counted()).toBe(2 + 3);
    clock.now = START + DAY_MS;
    await policy().pass();
    expect(await counted()).toBe(2 + 3);
  });

  test('is trusted after a day in total, regardless of restarts', async () => {
    for (let restart = 0; restart < 4; restart++) {
      clock.monotonic = 0;
      const one = policy();
      await one.pass();
      elapse(7 * HOUR_MS);
      await one.pass();
    }
    expect(await counted()).toBe(0);
    expect(logged.at(-1)).toContain('the horizon moves');
  });

  test('is trusted after a day, and then the horizon can move back for another day', async () => {
    const one = policy();
    await one.pass();
    elapse(DAY_MS);
    await one.pass();
    expect(await counted()).toBe(0);
    elapse(HOUR_MS);
    await one.pass();
    clock.now = START + 2 * DAY_MS;
    logged = [];
    await policy().pass();
    expect(logged).toEqual([expect.stringContaining('wafstat horizon --set 2026-10-18T00:00:00.000Z')]);
    await store.restoreHorizon(START - RETENTION_MS);
    expect(await counted()).toBe(2);
  });
});

test('a clock that jumps ahead while the service runs is not trusted at once', async () => {
  const one = policy();
  await one.pass();
  clock.now += 60 * DAY_MS;
  clock.monotonic += HOUR_MS;
  await one.pass();
  expect(await counted()).toBe(2);
  expect(logged.at(-1)).toContain('jumped ahead');
});

test('data of a source that sends nothing more is removed on time', async () => {
  const one = policy();
  for (let day = 0; day < 35; day++) {
    await one.pass();
    elapse(DAY_MS);
  }
  expect(await counted()).toBe(0);
});

test('only one of several workers moves the horizon', async () => {
  const workers = [policy(), policy(), policy()];
  for (const worker of workers) await worker.pass();
  logged = [];
  for (let tick = 0; tick < 5; tick++) {
    elapse(10 * 60_000);
    for (const worker of workers) await worker.pass();
  }
  expect(logged).toHaveLength(5);
});
