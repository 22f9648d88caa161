/** Ninety days of generated attacks with planted bursts: what the rule for spikes finds, and what it reports for nothing. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Random } from '../../../../test/random.ts';
import type { Event } from '../event.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store } from '../store/store.ts';
import { type ReplayedIncident, replay } from './replay.ts';

const POINT_MS = 300_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const DAYS = 90;
const START = Date.UTC(2026, 0, 5);
const END = START + DAYS * DAY_MS;
const BURSTS = 100;
const BATCH = 10_000;
/** Attacks in 5 minutes at a usual time. */
const HOSTS = { 'a.example': 30, 'b.example': 150, 'c.example': 400 };

interface Burst {
  host: string;
  from: number;
  to: number;
}

let directory: string;
let store: Store;
const bursts: Burst[] = [];

/** More at noon than at night, fewer at the weekend, and chance. */
function usual(random: Random, level: number, time: number): number {
  const day = new Date(time).getUTCDay();
  const daily = 1 + 0.6 * Math.sin(((time % DAY_MS) / DAY_MS) * 2 * Math.PI - Math.PI / 2);
  const mean = level * daily * (day === 0 || day === 6 ? 0.7 : 1);
  // The sum of twelve uniform numbers is nearly normal.
  let sum = -6;
  for (let i = 0; i < 12; i++) sum += random.integer(0, 1_000_000) / 1_000_000;
  return Math.max(0, Math.round(mean + sum * Math.sqrt(mean + (0.1 * mean) ** 2)));
}

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-replay-'));
  store = lmdbStore(join(directory, 'statistics.mdb'), () => END, { eventsMax: 0 });
  const random = new Random(90);
  const names = Object.keys(HOSTS) as (keyof typeof HOSTS)[];
  const hostIds = await store.resolveHosts({ project: 'p', hostnames: names, limit: 10 });
  for (let i = 0; i < BURSTS; i++) {
    // One in each part of the time after the first day, so that they do not overlap.
    const part = ((DAYS - 1) * DAY_MS) / BURSTS;
    const from = Math.floor((START + DAY_MS + i * part + random.integer(0, part / 2)) / POINT_MS) * POINT_MS;
    const host = names[random.integer(0, names.length - 1)] ?? 'a.example';
    bursts.push({ host, from, to: from + random.integer(2, 12) * POINT_MS });
  }
  let events: Event[] = [];
  const flush = async () => {
    await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
    events = [];
  };
  for (let time = START; time < END; time += POINT_MS)
    for (const [i, name] of names.entries()) {
      const level = HOSTS[name];
      const burst = bursts.find(({ host, from, to }) => host === name && time >= from && time < to);
      const more = burst === undefined ? 0 : Math.max(300, random.integer(4 * level, 12 * level));
      const count = usual(random, level, time) + more;
      if (count > 0)
        events.push({ time: time + 1, hostId: hostIds[i] ?? null, request: true, attack: 'cc', count });
      if (events.length >= BATCH) await flush();
    }
  await flush();
});

afterAll(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

describe(`${DAYS} days with ${BURSTS} planted bursts`, () => {
  test('at least 95 are found, with at most one false alert per host and month', async () => {
    const found: (ReplayedIncident & { host: string })[] = [];
    for (const host of Object.keys(HOSTS)) {
      const rule = { kind: 'spike', sensitivity: 3.5, host } as const;
      const incidents = await replay(store, 'p', rule, { from: START, to: END });
      found.push(...incidents.map((incident) => ({ ...incident, host })));
    }
    const matches = (burst: Burst, incident: ReplayedIncident & { host: string }) =>
      incident.host === burst.host && incident.since < burst.to && (incident.until ?? END) > burst.from;
    const hits = bursts.filter((burst) => found.some((incident) => matches(burst, incident)));
    expect(hits.length).toBeGreaterThanOrEqual(95);
    for (const host of Object.keys(HOSTS)) {
      const wrong = found.filter(
        (incident) => incident.host === host && !bursts.some((burst) => matches(burst, incident)),
      );
      expect([host, wrong.length <= DAYS / 30]).toEqual([host, true]);
    }
  });

  test('a part of the history has the same incidents as the whole', async () => {
    const rule = { kind: 'spike', sensitivity: 3.5, host: 'b.example' } as const;
    const whole = await replay(store, 'p', rule, { from: START, to: END });
    const [from, to] = [START + 30 * DAY_MS, START + 60 * DAY_MS];
    const part = await replay(store, 'p', rule, { from, to });
    expect(part.length).toBeGreaterThan(5);
    expect(part.filter(({ until }) => until !== null)).toEqual(
      whole.filter(({ since, until }) => since >= from && until !== null && until < to),
    );
  });

  test('a threshold opens at the minute in which it is reached, and closes after two windows below half of it', async () => {
    const rule = { kind: 'threshold', attacks: 2_000, within_s: 600, host: 'c.example' } as const;
    const incidents = await replay(store, 'p', rule, { from: START, to: END });
    const planted = bursts.filter(({ host }) => host === 'c.example');
    expect(incidents.length).toBeGreaterThan(planted.length / 2);
    for (const { since, until, most } of incidents) {
      expect(most).toBeGreaterThanOrEqual(2_000);
      expect(planted.some(({ from, to }) => since > from && since <= to + 600_000)).toBe(true);
      expect(until === null || until - since >= 600_000).toBe(true);
    }
  });
});
