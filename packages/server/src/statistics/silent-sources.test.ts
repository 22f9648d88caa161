import { expect, test } from 'vitest';
import { newSource, updateSource } from '../store/sources.ts';
import { silentSources } from './silent-sources.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** A source that has sent for a day, with this interval between its events. */
function source(silentMs: number, intervalMs = 1_000, historyMs = DAY_MS) {
  const last_seen = NOW - silentMs;
  const seen = { events: historyMs / intervalMs, first_seen: last_seen - historyMs, last_seen };
  return { ...seen, last_batch: last_seen, usual_gap_ms: 0 };
}

const isSilent = (one: ReturnType<typeof source>) => silentSources([one], NOW).length === 1;

test('a source is silent after 15 minutes, or 50 times its usual interval', () => {
  expect(isSilent(source(15 * MINUTE_MS))).toBe(true);
  expect(isSilent(source(15 * MINUTE_MS - 1))).toBe(false);
  expect(isSilent(source(50 * MINUTE_MS, MINUTE_MS))).toBe(true);
  expect(isSilent(source(50 * MINUTE_MS - 1, MINUTE_MS))).toBe(false);
});

test('a source with less than 6 hours of history, or without events, has no usual interval', () => {
  expect(isSilent(source(HOUR_MS, 1_000, 6 * HOUR_MS))).toBe(true);
  expect(isSilent(source(HOUR_MS, 1_000, 6 * HOUR_MS - 1))).toBe(false);
  expect(silentSources([{ ...source(0), events: 0, first_seen: null, last_seen: null }], NOW)).toEqual([]);
});

test('a source that has sent nothing for 7 days is no longer usual', () => {
  expect(isSilent(source(7 * DAY_MS))).toBe(true);
  expect(isSilent(source(7 * DAY_MS + 1))).toBe(false);
});

test('the latest to stop is the first', () => {
  const [older, newer, sending] = [source(DAY_MS), source(HOUR_MS), source(0)];
  expect(silentSources([older, sending, newer], NOW)).toEqual([newer, older]);
});

/** The source after batches at these times, each with what was logged since the one before. */
function readAt(times: readonly number[]) {
  const events = [NOW - 40 * DAY_MS, ...times].map((time) => ({
    time,
    hostId: null,
    attack: null,
    request: true,
    count: 1,
  }));
  return times.reduce(
    (source, now, i) => {
      const batch = { project: 'p', source, events: events.slice(i, i + 2), dropped: {} };
      const counted = {
        batch,
        events: batch.events,
        hosts: new Set<string>(),
        withoutHost: 0,
        sameRecords: 0,
        now,
      };
      return { ...updateSource(source, counted), events: 1_000_000 };
    },
    newSource('p', { name: 'cron', format: 'combined' }),
  );
}

test('a log that is read once a day is silent after two days, not all day', () => {
  const midnight = NOW - DAY_MS / 2;
  const daily = Array.from({ length: 10 }, (_, i) => midnight - (9 - i) * DAY_MS);
  for (const days of [2, 3, 10]) {
    const source = readAt(daily.slice(-days));
    expect(silentSources([source], midnight + DAY_MS)).toEqual([]);
    expect(silentSources([source], midnight + 2 * DAY_MS)).toEqual([source]);
  }
});

test('one pause is forgotten after some days', () => {
  const minutes = (from: number, to: number) =>
    Array.from({ length: (to - from) / MINUTE_MS }, (_, i) => from + i * MINUTE_MS);
  const outage = minutes(NOW - 10 * DAY_MS, NOW - 9 * DAY_MS);
  const source = readAt([...outage, ...minutes(NOW - 8 * DAY_MS, NOW)]);
  expect(silentSources([source], NOW + 15 * MINUTE_MS)).toEqual([source]);
});
