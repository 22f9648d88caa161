import { expect, test } from 'vitest';
import { silentSources } from './silent-sources.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** A source that has sent for a day, with this interval between its events. */
function source(silentMs: number, intervalMs = 1_000, historyMs = DAY_MS) {
  const last_seen = NOW - silentMs;
  return { events: historyMs / intervalMs, first_seen: last_seen - historyMs, last_seen };
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
  expect(silentSources([{ events: 0, first_seen: null, last_seen: null }], NOW)).toEqual([]);
});

test('a source that has sent nothing for 7 days is no longer usual', () => {
  expect(isSilent(source(7 * DAY_MS))).toBe(true);
  expect(isSilent(source(7 * DAY_MS + 1))).toBe(false);
});

test('the latest to stop is the first', () => {
  const [older, newer, sending] = [source(DAY_MS), source(HOUR_MS), source(0)];
  expect(silentSources([older, sending, newer], NOW)).toEqual([newer, older]);
});
