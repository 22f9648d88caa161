import { expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import type { Event } from '../event.ts';
import type { Store } from '../store/store.ts';
import { UTC } from '../zone.ts';
import { bandwidthPoints, codePoints } from './responses.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 0, 1);
const RANGE = { project: 'p', hosts: undefined, zone: UTC, from: START, to: START + 100 * DAY_MS };

async function storeWith(events: readonly Partial<Event>[]): Promise<Store> {
  const store = memoryStore(() => RANGE.to);
  await store.append({
    project: 'p',
    source: { name: 's', format: 'events' },
    events: events.map((event) => ({
      time: START,
      hostId: null,
      request: true,
      attack: null,
      count: 1,
      ...event,
    })),
    dropped: {},
  });
  return store;
}

test('the peak of a point is its busiest minute, also if it is in a later part of a long range', async () => {
  const store = await storeWith([
    { time: START + MINUTE_MS, bytesIn: 60, bytesOut: 600 },
    { time: START + 90 * DAY_MS + 5 * MINUTE_MS, bytesOut: 6_000 },
    { time: START + 90 * DAY_MS + 5 * MINUTE_MS + 59_999, bytesOut: 6_000 },
    { time: START + 90 * DAY_MS + 6 * MINUTE_MS, bytesOut: 11_000 },
  ]);
  const { edges, counts } = await bandwidthPoints(store, { ...RANGE, isPeak: true });
  const [bytesIn = [], bytesOut = [], both = []] = counts;
  const pointOf = (time: number) => edges.findLastIndex((edge) => edge <= time);
  expect([bytesIn[0], bytesOut[0], both[0]]).toEqual([1, 10, 11]);
  expect(bytesOut[pointOf(START + 90 * DAY_MS)]).toBe(200);
  expect(bytesOut.filter((rate) => rate > 0)).toHaveLength(2);
});

test('parts of a range without bytes are not counted by the minute', async () => {
  const store = await storeWith([{ bytesOut: 60 }]);
  let points = 0;
  const { count } = store;
  store.count = ((query) => {
    points += query.edges.length - 1;
    return count.call(store, query);
  }) as Store['count'];
  await bandwidthPoints(store, { ...RANGE, to: START + 3_650 * DAY_MS, isPeak: true });
  expect(points).toBeLessThan(12_000);
});

test('a log with hundreds of response codes cannot make a response of any size', async () => {
  const codes = Array.from({ length: 400 }, (_, i): Partial<Event> => ({ status: 100 + i }));
  const store = await storeWith(codes);
  const day = { ...RANGE, to: START + DAY_MS, isUpstream: false };
  await expect(codePoints(store, day)).rejects.toThrow('to list the points of 400 response codes');
  const { keys } = await codePoints(store, { ...day, to: START + 60 * MINUTE_MS });
  expect(keys).toHaveLength(400);
});
