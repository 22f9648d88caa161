/** `recent`: named ranges of local days. The server uses the real clock, so the test chooses a suitable time zone. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Api, sum } from './api.ts';
import { timezoneText, zoneAtNoon } from './oracle.ts';
import { Sandbox } from './sandbox.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

const { offsetMinutes, midnight: today } = zoneAtNoon();
const timezone = `timezone=${encodeURIComponent(timezoneText(offsetMinutes))}`;

const SPANS = [
  { recent: 'today', from: today, intervalMs: MINUTE_MS },
  { recent: 'yesterday', from: today - DAY_MS, to: today, intervalMs: MINUTE_MS },
  { recent: '3days', from: today - 2 * DAY_MS, intervalMs: 5 * MINUTE_MS },
  { recent: '1week', from: today - 6 * DAY_MS, intervalMs: 10 * MINUTE_MS },
  { recent: '1month', from: today - 29 * DAY_MS, intervalMs: HOUR_MS },
];

const sandbox = new Sandbox();
let api: Api;

beforeAll(async () => {
  const { installation, api: caller } = await sandbox.service();
  api = caller;
  // Around each local midnight of the last 31 days: one event at it, one a millisecond before it.
  const midnights = Array.from({ length: 31 }, (_, i) => today - i * DAY_MS);
  const events = midnights.flatMap((time) => [
    { time, attack: 'xss' },
    { time: time - 1, attack: 'cc' },
  ]);
  await sandbox.ingest(installation.project_id, events);
});
afterAll(() => sandbox.clear());

test.each(SPANS)('$recent is a range of local days', async ({ recent, from, to, intervalMs }) => {
  const before = Date.now();
  const { requests } = await api.timeline(`recent=${recent}&${timezone}`);
  const after = Date.now();
  const end = requests.at(-1)?.time ?? 0;
  if (to === undefined) expect(end >= before && end <= after).toBe(true);
  else expect(end).toBe(to);
  expect(requests.map(({ time }) => time)).toEqual([
    ...Array.from(
      { length: Math.ceil((end - from) / intervalMs) - 1 },
      (_, i) => from + (i + 1) * intervalMs,
    ),
    end,
  ]);
  const days = Math.round((today - from) / DAY_MS) + (to === undefined ? 1 : 0);
  // Each day has an event in its first millisecond; each complete day has one in its last millisecond too.
  expect(sum(requests)).toBe(days + (to === undefined ? days - 1 : days));
});

test.each(SPANS)('$recent means the same days in the distribution, also with a time zone', async (span) => {
  const { attacks } = await api.timeline(`recent=${span.recent}&${timezone}`);
  expect(sum(await api.distribution(`recent=${span.recent}&${timezone}`))).toBe(sum(attacks));
});

test('days are in UTC by default', async () => {
  const { requests } = await api.timeline('recent=yesterday');
  expect((requests.at(-1)?.time ?? 1) % DAY_MS).toBe(0);
  expect(requests).toHaveLength(1_440);
});

test('recent takes precedence over from and to', async () => {
  const alone = await api.get(`waf/event/timeline?recent=yesterday&${timezone}`);
  for (const others of ['from=1&to=2', 'from=2&to=1', 'from=never', 'to=1&to=2']) {
    const both = await api.get(`waf/event/timeline?${others}&recent=yesterday&${timezone}`);
    expect(both.text).toBe(alone.text);
  }
});
