import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { ApiError } from '../../errors.ts';
import { Admission } from './admission.ts';

let clock = 0;
const newAdmission = () => new Admission(() => clock);

/** Occupies the event loop, as a query of the embedded store does. */
async function busy(ms: number): Promise<void> {
  clock += ms;
}

test('a query starts at once if nothing else runs', () => {
  let started = false;
  void newAdmission().run('p', 'u', async () => {
    started = true;
  });
  expect(started).toBe(true);
});

test('the event loop stays free while many queries wait', async () => {
  const admission = newAdmission();
  let done = 0;
  const all = Array.from({ length: 30 }, () => admission.run('p', 'u', () => busy(2)).then(() => done++));
  await turn();
  const afterOneTurn = done;
  await Promise.all(all);
  expect(afterOneTurn).toBeLessThan(30);
  expect(done).toBe(30);
});

test('queries that do their work after an await are spread over turns too', async () => {
  const admission = newAdmission();
  let longest = 0;
  let turnStartedAt = clock;
  let open = true;
  const watch = () => {
    longest = Math.max(longest, clock - turnStartedAt);
    turnStartedAt = clock;
    if (open) setImmediate(watch);
  };
  setImmediate(watch);
  const work = async () => {
    await null;
    await busy(4);
  };
  await Promise.all(Array.from({ length: 30 }, () => admission.run('p', 'u', work)));
  open = false;
  expect(longest).toBeLessThan(12);
});

test('a long turn is followed by short turns, in which connections are accepted', async () => {
  const admission = newAdmission();
  const turns: number[] = [];
  let passed = 0;
  let open = true;
  const watch = () => {
    passed++;
    if (open) setImmediate(watch);
  };
  setImmediate(watch);
  const work = () => busy(20).then(() => turns.push(passed));
  await Promise.all(Array.from({ length: 5 }, () => admission.run('p', 'u', work)));
  open = false;
  for (const [i, turn] of turns.slice(1).entries()) expect(turn - (turns[i] ?? 0)).toBeGreaterThan(5);
});

test('projects take turns, however many queries one of them sends', async () => {
  const admission = newAdmission();
  const order: string[] = [];
  const send = (project: string) =>
    admission.run(project, project, () => busy(6).then(() => order.push(project)));
  await Promise.all([...Array.from({ length: 20 }, () => send('flood')), send('other')]);
  expect(order.indexOf('other')).toBeLessThan(4);
});

test('a query that waited too long is shed with 503 and Retry-After', async () => {
  const admission = newAdmission();
  const results = await Promise.allSettled(
    Array.from({ length: 60 }, () => admission.run('p', 'u', () => busy(20))),
  );
  const shed = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as ApiError] : []));
  expect(shed.length).toBeGreaterThan(0);
  expect(shed[0]).toMatchObject({ status: 503, headers: { 'Retry-After': '1' } });
  // Those that were shed are no longer in progress.
  await Promise.all(Array.from({ length: 64 }, () => admission.run('p', 'u', async () => {})));
});

const outcomes = async (queries: Promise<unknown>[]) =>
  (await Promise.allSettled(queries)).map(({ status }) => status);

test('the dashboard of one user is queued on a slow machine, not refused', async () => {
  const admission = newAdmission();
  const queries = Array.from({ length: 16 }, () => admission.run('p', 'u', () => busy(200)));
  expect(new Set(await outcomes(queries))).toEqual(new Set(['fulfilled']));
});

test('the dashboard of one user is queued while another user floods the same project', async () => {
  const admission = newAdmission();
  const send = (count: number, user: string) =>
    outcomes(Array.from({ length: count }, () => admission.run('p', user, () => busy(50))));
  const [flood, dashboard] = await Promise.all([send(64, 'flood'), send(16, 'u')]);
  expect(new Set(dashboard)).toEqual(new Set(['fulfilled']));
  expect(flood).toContain('rejected');
});

test('queries of many users are shed, however few each of them sends', async () => {
  const admission = newAdmission();
  const queries = Array.from({ length: 64 }, (_, i) => admission.run('p', `u${i % 32}`, () => busy(50)));
  const all = await outcomes(queries);
  expect(all.filter((status) => status === 'rejected').length).toBeGreaterThan(16);
  expect(all).toContain('fulfilled');
});

test('a queued dashboard is refused after ten seconds', async () => {
  const admission = newAdmission();
  const queries = Array.from({ length: 16 }, () => admission.run('p', 'u', () => busy(2_000)));
  const all = await outcomes(queries);
  expect(all.indexOf('rejected')).toBe(7);
  expect(all.slice(7)).not.toContain('fulfilled');
});

test('queries of a store that hangs wait, then are shed; none starts twice', async () => {
  // The real clock, because here only time passes.
  const admission = new Admission();
  let release = () => {};
  const hanging = new Promise<void>((resolve) => {
    release = resolve;
  });
  let started = 0;
  const work = () => {
    started++;
    return hanging;
  };
  const results = Promise.allSettled(Array.from({ length: 40 }, (_, i) => admission.run('p', `u${i}`, work)));
  await expect(admission.run('p', 'late', work)).rejects.toBeInstanceOf(ApiError);
  release();
  const states = (await results).map(({ status }) => status);
  expect(states.filter((status) => status === 'fulfilled')).toHaveLength(16);
  expect(started).toBe(16);
});

test('the number of queries in progress is limited per user', async () => {
  const admission = newAdmission();
  const all = Array.from({ length: 64 }, () => admission.run('p', 'u', async () => {}));
  expect(() => admission.run('p', 'u', async () => {})).toThrow('64 queries in progress');
  await admission.run('p', 'another', async () => {});
  await Promise.all(all);
  await admission.run('p', 'u', async () => {});
});

test('a free slot is used in the next turn, however slow the store is', async () => {
  const admission = newAdmission();
  const slots: (() => void)[] = [];
  let started = 0;
  const work = () => {
    started++;
    return new Promise<void>((resolve) => slots.push(resolve));
  };
  const turns = async (count: number) => {
    for (let i = 0; i < count; i++) await turn();
  };
  const all = Array.from({ length: 40 }, (_, i) => admission.run('p', `u${i}`, work));
  await turns(40);
  expect(started).toBe(16);
  for (let freed = 1; freed <= 24; freed++) {
    slots.shift()?.();
    await turns(2);
    expect(started).toBe(16 + freed);
  }
  for (const release of slots) release();
  await Promise.all(all);
});
