import { beforeEach, describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { RetentionPolicy } from './retention.ts';
import type { Store } from './store.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const RETENTION_MS = 30 * DAY_MS;
const TIMES = { eventsMs: RETENTION_MS, topListsMs: 5 * DAY_MS, location: '--data ./data' };
const START = Date.UTC(2026, 10, 15);

let store: Store;
let clock: { now: number; monotonic: number };
let logged: string[];
let warned: string[];

beforeEach(async () => {
  clock = { now: START, monotonic: 0 };
  logged = [];
  warned = [];
  store = memoryStore(() => clock.now);
  await count(START - 40 * DAY_MS, START - 20 * DAY_MS, START - DAY_MS);
});

function count(...times: number[]) {
  const events = times.map((time) => ({ time, hostId: null, request: true, attack: null, count: 1 }));
  return store.append({ project: 'p', source: { name: 's', format: 'f' }, events, dropped: {} });
}

/** The policy of a new process. */
function policy(eventsMs = RETENTION_MS): RetentionPolicy {
  const info = (message: string) => logged.push(message);
  const warn = (message: string) => {
    logged.push(message);
    warned.push(message);
  };
  const clocks = { now: () => clock.now, monotonicNow: () => clock.monotonic };
  return new RetentionPolicy(store, { ...TIMES, eventsMs }, clocks, { info, warn, error: () => {} });
}

function elapse(ms: number): void {
  clock.now += ms;
  clock.monotonic += ms;
}

async function counted(): Promise<number> {
  const [requests] = await store.count({
    project: 'p',
    edges: [0, START + 100_000 * DAY_MS],
    rows: 'timeline',
  });
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
  const { horizon } = await store.retention();
  expect(await store.restoreHorizon(0)).toBe(0);
  expect(await counted()).toBe(3);
  // Back to where it was: a horizon that stays back would start the delay again.
  await store.prune(horizon, { freeBefore: 0 });
  elapse(2 * HOUR_MS);
  await one.pass();
  expect(await store.restoreHorizon(0)).toBe(START - RETENTION_MS);
  expect(await counted()).toBe(2);
});

describe('a retention time that became shorter', () => {
  test('is a warning that says what is hidden, and how and until when it can come back', async () => {
    await policy(60 * DAY_MS).pass();
    elapse(HOUR_MS);
    await policy(60 * DAY_MS).pass();
    expect(warned).toEqual([]);
    elapse(HOUR_MS);
    const one = policy();
    await one.pass();
    expect(warned).toEqual([
      'the horizon moves from 2026-09-16T01:00:00.000Z to 2026-10-16T02:00:00.000Z: --retention 30d hides 10 days of ' +
        "events. To keep them, restart with --retention 42d or more, then run 'wafstat horizon --data ./data --set " +
        "2026-10-06T00:00:00.000Z' before 2026-11-17T00:00:00.000Z, when their space is freed",
    ]);
    // What the message says.
    for (clock.now = START + 3 * HOUR_MS; clock.now < Date.UTC(2026, 10, 17); elapse(10 * 60_000))
      await one.pass();
    clock.now -= 60_000;
    await policy(42 * DAY_MS).pass();
    expect(await store.restoreHorizon(Date.UTC(2026, 9, 6))).toBe(Date.UTC(2026, 9, 6));
    await policy(42 * DAY_MS).pass();
    expect(await counted()).toBe(3);
    expect(warned).toHaveLength(1);
  });

  test('is noticed at the first start, after an ingest with a longer one', async () => {
    await policy().pass();
    expect(warned).toEqual([expect.stringContaining('hides 10 days of events')]);
    expect(warned[0]).toContain('before 2026-11-16T00:00:00.000Z');
  });

  test('is no warning if there are no events of that time, or if the time has passed', async () => {
    await policy(50 * DAY_MS).pass();
    await policy(45 * DAY_MS).pass();
    elapse(6 * DAY_MS);
    await policy(45 * DAY_MS).pass();
    expect(warned).toEqual([]);
  });

  test('hides events for a day before their space is freed, also after the horizon was moved back', async () => {
    await policy().pass();
    elapse(20 * HOUR_MS);
    await store.restoreHorizon(0);
    elapse(10 * HOUR_MS);
    await policy().pass();
    expect(warned).toHaveLength(2);
    expect(await store.restoreHorizon(0)).toBe(0);
    expect(await counted()).toBe(3);
  });
});

test('a horizon that someone moves back during a pass stays there', async () => {
  await policy().pass();
  const read = store.retention;
  store.retention = async () => {
    const state = await read();
    await store.restoreHorizon(START - 40 * DAY_MS);
    return state;
  };
  await policy(50 * DAY_MS).pass();
  expect(await counted()).toBe(3);
});

describe('events that someone brings back', () => {
  /** Runs a pass. After it has read the state, someone moves the horizon back. */
  async function passAndRestore(): Promise<void> {
    const read = store.retention;
    store.retention = async () => {
      const state = await read();
      await store.restoreHorizon(0);
      return state;
    };
    await policy().pass();
    store.retention = read;
  }

  test.each([23, 25])(
    'during a pass are kept for another day, %i hours after they were hidden',
    async (hours) => {
      await policy().pass();
      elapse(hours * HOUR_MS);
      await passAndRestore();
      for (let i = 0; i < 23; i++) {
        elapse(HOUR_MS);
        await policy().pass();
      }
      expect(await store.restoreHorizon(0)).toBe(0);
      expect(await counted()).toBe(3);
    },
  );

  test('are kept for another day if a pass that began before ends after one that hides them again', async () => {
    await policy().pass();
    elapse(23 * HOUR_MS);
    const { prune } = store;
    store.prune = async (...args) => {
      store.prune = prune;
      await prune(...args);
      await store.restoreHorizon(0);
      elapse(10 * 60_000);
      await policy().pass();
    };
    await policy().pass();
    elapse(2 * HOUR_MS);
    await policy().pass();
    expect(await store.restoreHorizon(0)).toBe(0);
    expect(await counted()).toBe(3);
  });

  test('are kept for another day if the process that hides them again is killed', async () => {
    await policy().pass();
    elapse(23 * HOUR_MS);
    await store.restoreHorizon(0);
    const { prune } = store;
    store.prune = async (...args) => {
      await prune(...args);
      throw new Error('killed');
    };
    await expect(policy().pass()).rejects.toThrow('killed');
    store.prune = prune;
    elapse(2 * HOUR_MS);
    await policy().pass();
    expect(await store.restoreHorizon(0)).toBe(0);
    expect(await counted()).toBe(3);
  });
});

test('a horizon that another process moves forward again during a pass starts the delay again', async () => {
  const [one, other] = [policy(), policy()];
  await one.pass();
  await other.pass();
  elapse(DAY_MS + HOUR_MS);
  const { prune } = store;
  store.prune = async (...args) => {
    store.prune = prune;
    await store.restoreHorizon(0);
    await other.pass();
    await prune(...args);
  };
  await one.pass();
  expect(await store.restoreHorizon(0)).toBe(0);
  expect(await counted()).toBe(3);
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
    expect(logged).toEqual([
      expect.stringContaining('wafstat horizon --data ./data --set 2026-10-18T00:00:00.000Z'),
    ]);
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

test.each([
  ['while the service runs', false],
  ['while it is stopped', true],
])('a doubtful clock that jumps again %s is not trusted before another day', async (_, isStopped) => {
  let one = policy();
  await one.pass();
  for (const days of [60, 400]) {
    clock.now = START + days * DAY_MS;
    if (isStopped) one = policy();
    await one.pass();
    for (let hours = 0; hours < 20; hours++) {
      elapse(HOUR_MS);
      await one.pass();
    }
    expect(await counted()).toBe(2);
  }
});

test('a day with a doubtful clock is not over sooner if several processes run', async () => {
  const processes = [policy(), policy()];
  for (const one of processes) await one.pass();
  clock.now += 60 * DAY_MS;
  for (let i = 0; i < (23 * HOUR_MS) / (5 * 60_000); i++) {
    elapse(5 * 60_000);
    await processes[i % 2]?.pass();
  }
  expect(await counted()).toBe(2);
  for (let i = 0; i < (3 * HOUR_MS) / (5 * 60_000); i++) {
    elapse(5 * 60_000);
    await processes[i % 2]?.pass();
  }
  expect(await counted()).toBe(0);
});

describe('a clock that jumps ahead by 6 days while the service runs', () => {
  beforeEach(async () => {
    const attack = { attack: 'sqli' as const, count: 1, details: { source: '203.0.113.1' } };
    const events = [
      // With the wrong clock, one is too old for the counts, and the other one for the top lists.
      { time: START - 25 * DAY_MS, hostId: null, request: true, attack: null, count: 1 },
      { time: START - 2 * DAY_MS, hostId: null, request: true, ...attack },
    ];
    await store.append({ project: 'p', source: { name: 's', format: 'f' }, events, dropped: {} });
    const one = policy();
    await one.pass();
    clock.now += 6 * DAY_MS;
    for (let tick = 0; tick < 2; tick++) {
      elapse(10 * 60_000);
      await one.pass();
    }
    logged = [];
  });

  async function kept() {
    const query = { project: 'p', list: 'sources' as const, limit: 10, from: 0, to: START };
    return { counted: await counted(), topList: (await store.top(query)).items.length };
  }

  function restart(): RetentionPolicy {
    elapse(60_000);
    clock.monotonic = 0;
    return policy();
  }

  test('is not trusted because of a restart', async () => {
    expect(await kept()).toEqual({ counted: 4, topList: 1 });
    await restart().pass();
    expect(await kept()).toEqual({ counted: 4, topList: 1 });
    expect(logged).toEqual([expect.stringContaining('last trusted at 2026-11-15T00:00:00.000Z')]);
  });

  test('is trusted after a day in total, regardless of restarts', async () => {
    for (let i = 0; i < 3; i++) {
      const one = restart();
      await one.pass();
      elapse(8 * HOUR_MS);
      await one.pass();
      expect(await kept()).toEqual(i < 2 ? { counted: 4, topList: 1 } : { counted: 3, topList: 0 });
    }
  });

  test('is trusted at the next start if it is right again', async () => {
    clock.now -= 6 * DAY_MS;
    await restart().pass();
    expect(logged).toEqual([expect.stringContaining('the horizon moves')]);
    expect((await store.retention()).note?.probationMs).toBe(0);
  });
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

test('a machine whose clock is ahead of the database does not move the horizon further', async () => {
  const shared = store;
  store = {
    ...shared,
    retention: async () => ({ ...(await shared.retention()), databaseNow: START - 15 * DAY_MS }),
  };
  await policy().pass();
  expect((await store.retention()).horizon).toBe(START - 15 * DAY_MS - RETENTION_MS);
});
