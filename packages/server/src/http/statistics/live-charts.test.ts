/** Charts of ranges that end now, requested again and again while batches arrive. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type FastifyInstance, fastify } from 'fastify';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { gridEdges } from '../../statistics/grid.ts';
import { lmdbStore } from '../../store/lmdb/lmdb.ts';
import type { Store } from '../../store/store.ts';
import { UTC } from '../../zone.ts';
import type {} from '../connections.ts';
import { mount } from '../route.ts';
import { statisticsRoutes } from './routes.ts';

const START = Date.UTC(2026, 6, 1, 12, 34, 6);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const REFRESH_MS = 6_000;
/** At least as many as a query has moments before, between and after its reads of the store. */
const MOMENTS = 16;

let directory: string;
let store: Store;
let app: FastifyInstance;
let now = START;
/** Runs before and after every read of the store. */
let onRead: () => Promise<void>;

beforeEach(() => {
  // Caches may use the monotonic clock.
  vi.useFakeTimers({ toFake: ['performance'] });
  directory = mkdtempSync(join(tmpdir(), 'wafstat-live-'));
  now = START;
  onRead = async () => {};
  store = lmdbStore(join(directory, 'statistics.mdb'), () => now);
  app = startApp();
});

afterEach(async () => {
  vi.useRealTimers();
  await store.close();
  rmSync(directory, { recursive: true });
});

function startApp(): FastifyInstance {
  const started = fastify();
  started.setValidatorCompiler(() => () => true);
  started.decorate('stopping', false);
  started.decorateRequest('caller', null);
  started.addHook('onRequest', async (request) => {
    request.caller = { user: { id: 'u', name: 'u', domain_id: 'd', roles: {} }, scope: 'unscoped' };
  });
  mount(
    started,
    statisticsRoutes(interrupted(store), () => now, patientAdmission()),
  );
  return started;
}

/** The store, with `onRead` around its asynchronous methods. */
function interrupted(target: Store): Store {
  const wrap =
    (read: (...args: unknown[]) => unknown) =>
    async (...args: unknown[]) => {
      await onRead();
      const result = await read(...args);
      await onRead();
      return result;
    };
  return Object.fromEntries(
    Object.entries(target).map(([name, member]) => [
      name,
      typeof member === 'function' ? wrap(member) : member,
    ]),
  ) as Store;
}

async function append(times: readonly number[]): Promise<void> {
  const events = times.map(
    (time) => ({ time, hostId: null, request: true, attack: null, count: 1 }) as const,
  );
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
}

interface Point {
  time: number;
  num: number;
}

/** The chart of the last 24 hours, after another 6 seconds. */
async function refresh(path: string): Promise<Point[]> {
  now += REFRESH_MS;
  vi.advanceTimersByTime(REFRESH_MS);
  const url = `/v1/p/waf/${path}from=${now - DAY_MS}&to=${now}`;
  const json = (await app.inject({ url })).json();
  return json.requests ?? json[0].timeline;
}

/** What the chart must show if these events are counted, computed naively. */
function chartOf(times: readonly number[], isPeak: boolean): Point[] {
  const edges = gridEdges(now - DAY_MS, now, UTC);
  return edges.slice(1).map((time, i) => {
    const seconds = new Map<number, number>();
    for (const each of times) {
      const second = isPeak ? Math.floor(each / 1_000) : 0;
      if (each >= (edges[i] ?? 0) && each < time) seconds.set(second, (seconds.get(second) ?? 0) + 1);
    }
    return { time, num: Math.max(0, ...seconds.values()) };
  });
}

/** The points with counts. */
const shown = (points: readonly Point[]) => points.filter(({ num }) => num > 0);

describe.each([
  ['counts', 'event/timeline?', false],
  ['peaks', 'overviews/qps/timeline?display_option=1&', true],
])('a live chart of %s', (_, path, isPeak) => {
  test.each([
    ['points of all ages', [1, 3, 5, 9, 20]],
    ['one old point', [9]],
    ['the newest point and the first', []],
  ])('never shows a part of a batch that changes %s, whenever it arrives', async (_points, hoursAgo) => {
    const late = hoursAgo.map((hours) => START - hours * HOUR_MS);
    const counted: number[] = [START - 2 * HOUR_MS];
    await append(counted);
    let arrived = 0;
    for (let moment = 0; moment < MOMENTS; moment++) {
      for (let i = 0; i < 3; i++) expect(shown(await refresh(path))).toEqual(shown(chartOf(counted, isPeak)));
      const batch = [now + REFRESH_MS - DAY_MS + 1, ...late, now + REFRESH_MS - 1];
      let reads = 0;
      onRead = async () => {
        if (reads++ !== moment) return;
        arrived++;
        await append(batch);
      };
      const points = shown(await refresh(path));
      onRead = async () => {};
      const before = shown(chartOf(counted, isPeak));
      if (reads <= moment) await append(batch);
      counted.push(...batch);
      expect([before, shown(chartOf(counted, isPeak))]).toContainEqual(points);
    }
    expect(arrived).toBeGreaterThan(3);
  });
});

test('a live chart never gets more bytes than the first time if the client accepts brotli and gzip', async () => {
  await append(Array.from({ length: 200 }, (_, i) => START - i * 7 * MINUTE_MS));
  const sizeFrom = async (service: FastifyInstance) => {
    const url = `/v1/p/waf/event/timeline?from=${now - DAY_MS}&to=${now}`;
    const { headers, rawPayload } = await service.inject({ url, headers: { 'accept-encoding': 'br, gzip' } });
    expect(headers['content-encoding']).toBe('br');
    return rawPayload.length;
  };
  for (let i = 0; i < 8; i++) {
    // The first time, nothing is cached.
    const first = await sizeFrom(startApp());
    for (let repeated = 0; repeated < 3; repeated++) expect(await sizeFrom(app)).toBeLessThanOrEqual(first);
    now += REFRESH_MS;
  }
});
