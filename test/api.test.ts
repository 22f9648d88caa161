/** The two queries, rule by rule, with events at the boundaries of the rules. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, sum } from './api.ts';
import { CATEGORIES, pointEnds } from './oracle.ts';
import { scaled } from './random.ts';
import { KEEP_ALL, Sandbox } from './sandbox.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Not a round number in any unit or time zone. */
const T = Date.UTC(2025, 2, 3, 4, 5, 6, 789);
const NOON = Date.UTC(2025, 2, 10, 12);
const ALL = `from=${T - 40 * DAY_MS}&to=${T + 40 * DAY_MS}`;

/** 30 requests, 24 attacks. */
const EVENTS = [
  { time: T, host: 'shop.example', attack: 'sqli' },
  { time: T + 1, host: 'shop.example' },
  { time: T + 2, host: 'blog.example', attack: 'xss', request: false },
  { time: T + 3, host: 'blog.example', attack: 'webshell', count: 7 },
  { time: T + 4, attack: 'cc' },
  { time: NOON, host: 'shop.example', attack: 'rfi' },
  { time: NOON + MINUTE_MS - 1, host: 'shop.example' },
  { time: NOON + MINUTE_MS, host: 'shop.example', count: 5 },
  ...CATEGORIES.map((attack, i) => ({ time: NOON + HOUR_MS + i * 977, host: 'api.example', attack })),
];

const sandbox = new Sandbox();
let api: Api;
let hosts: { shop: string; blog: string; api: string };

beforeAll(async () => {
  const { installation, api: caller } = await sandbox.service(...KEEP_ALL);
  api = caller;
  await sandbox.ingest(installation.project_id, EVENTS, ...KEEP_ALL);
  const ids = await api.hostIds();
  const idOf = (name: string) => ids.get(`${name}.example`) ?? '';
  hosts = { shop: idOf('shop'), blog: idOf('blog'), api: idOf('api') };
});
afterAll(() => sandbox.clear());

const totals = async (query: string) => {
  const { requests, attacks } = await api.timeline(query);
  return { requests: sum(requests), attacks: sum(attacks) };
};

describe('the range', () => {
  test('includes its first millisecond and excludes its last', async () => {
    expect(await totals(`from=${T}&to=${T + 1}`)).toEqual({ requests: 1, attacks: 1 });
    expect(await totals(`from=${T - 1}&to=${T}`)).toEqual({ requests: 0, attacks: 0 });
    expect(await api.distribution(`from=${T}&to=${T + 1}`)).toMatchObject({ sqli: 1 });
    expect(sum(await api.distribution(`from=${T - 1}&to=${T}`))).toBe(0);
  });

  test('of length zero has empty lists and an all-zero distribution', async () => {
    const { text } = await api.get(`waf/event/timeline?from=${T}&to=${T}`);
    expect(text).toBe('{"requests":[],"attacks":[]}');
    const distribution = await api.distribution(`from=${T}&to=${T}`);
    expect(Object.entries(distribution)).toEqual(CATEGORIES.map((category) => [category, 0]));
  });

  test('adjacent ranges add up', async () => {
    const moment = fc.oneof(
      fc.constantFrom(...EVENTS.flatMap(({ time }) => [time - 1, time, time + 1])),
      fc.integer({ min: T - 2 * DAY_MS, max: NOON + 2 * DAY_MS }),
    );
    const filter = fc.constantFrom('', '&hosts=shop', '&hosts=blog', '&hosts=shop&hosts=api');
    await fc.assert(
      fc.asyncProperty(fc.tuple(moment, moment, moment), filter, async (moments, named) => {
        const [a, b, c] = moments.toSorted((x, y) => x - y);
        const chosen = named.replace(/shop|blog|api/g, (name) => hosts[name as keyof typeof hosts]);
        const countsOf = async (from = 0, to = 0): Promise<Record<string, number>> => ({
          ...(await totals(`from=${from}&to=${to}${chosen}`)),
          ...(await api.distribution(`from=${from}&to=${to}${chosen}`)),
        });
        const [left, right, whole] = [await countsOf(a, b), await countsOf(b, c), await countsOf(a, c)];
        for (const [name, n] of Object.entries(whole)) {
          expect((left[name] ?? 0) + (right[name] ?? 0)).toBe(n);
        }
      }),
      { numRuns: scaled(100) },
    );
  });

  test('may span ten years, also from the start of the epoch', async () => {
    const tenYears = Date.UTC(2026, 0, 1) - Date.UTC(2016, 0, 1);
    expect(await totals(`from=${Date.UTC(2016, 0, 1)}&to=${Date.UTC(2026, 0, 1)}`)).toEqual({
      requests: 30,
      attacks: 24,
    });
    const { requests } = await api.timeline(`from=0&to=${tenYears}`);
    expect(requests).toHaveLength(3_653);
  });
});

describe('the points of a timeline', () => {
  const ROWS = [
    { upTo: '24 hours', rangeMs: DAY_MS, intervalMs: MINUTE_MS, longerMs: 5 * MINUTE_MS },
    { upTo: '3 days', rangeMs: 3 * DAY_MS, intervalMs: 5 * MINUTE_MS, longerMs: 10 * MINUTE_MS },
    { upTo: '7 days', rangeMs: 7 * DAY_MS, intervalMs: 10 * MINUTE_MS, longerMs: HOUR_MS },
    { upTo: '31 days', rangeMs: 31 * DAY_MS, intervalMs: HOUR_MS, longerMs: DAY_MS },
  ];
  const MIDNIGHT = Date.UTC(2025, 2, 1);

  test.each(ROWS)('are $intervalMs ms long up to $upTo, and $longerMs ms beyond', async (row) => {
    const exact = await api.timeline(`from=${MIDNIGHT}&to=${MIDNIGHT + row.rangeMs}`);
    expect(exact.requests.map(({ time }) => time)).toEqual(
      Array.from({ length: row.rangeMs / row.intervalMs }, (_, i) => MIDNIGHT + (i + 1) * row.intervalMs),
    );
    const to = MIDNIGHT + row.rangeMs + 1;
    const longer = await api.timeline(`from=${MIDNIGHT}&to=${to}`);
    expect(longer.requests.map(({ time }) => time)).toEqual([
      ...Array.from({ length: row.rangeMs / row.longerMs }, (_, i) => MIDNIGHT + (i + 1) * row.longerMs),
      to,
    ]);
  });

  test('end at a quarter past the hour in UTC with +05:45', async () => {
    const from = Date.UTC(2025, 2, 1, 3, 20);
    const { requests } = await api.timeline(`from=${from}&to=${from + 8 * DAY_MS}&timezone=%2B05:45`);
    expect(requests[0]?.time).toBe(Date.UTC(2025, 2, 1, 4, 15));
    const inner = requests.slice(0, -1).map(({ time }) => time % HOUR_MS);
    expect(new Set(inner)).toEqual(new Set([15 * MINUTE_MS]));
  });

  test.each([
    ['+05:45', Date.UTC(2025, 2, 1, 18, 15)],
    ['+14:00', Date.UTC(2025, 2, 1, 10)],
    ['-12:00', Date.UTC(2025, 2, 1, 12)],
    ['-03:30', Date.UTC(2025, 2, 2, 3, 30)],
  ])('of days end at local midnight with %s', async (timezone, firstMidnight) => {
    const from = firstMidnight - 1;
    const { requests } = await api.timeline(
      `from=${from}&to=${from + 32 * DAY_MS}&timezone=${encodeURIComponent(timezone)}`,
    );
    const days = Array.from({ length: 32 }, (_, i) => firstMidnight + i * DAY_MS);
    expect(requests.map(({ time }) => time)).toEqual([...days, from + 32 * DAY_MS]);
  });

  test('partition the range: the first begins at from, the last ends at to', async () => {
    const { requests, attacks } = await api.timeline(`from=${T}&to=${T + 2 * MINUTE_MS}`);
    const minute = Math.ceil(T / MINUTE_MS) * MINUTE_MS;
    expect(requests).toEqual([
      { time: minute, num: 10 },
      { time: minute + MINUTE_MS, num: 0 },
      { time: T + 2 * MINUTE_MS, num: 0 },
    ]);
    expect(attacks.map(({ num }) => num)).toEqual([10, 0, 0]);
  });

  test('end with the range if it ends on a boundary', async () => {
    const { requests } = await api.timeline(`from=${NOON}&to=${NOON + 2 * MINUTE_MS}`);
    expect(requests.map(({ time }) => time)).toEqual([NOON + MINUTE_MS, NOON + 2 * MINUTE_MS]);
  });

  test('exclude an event at their end, which counts in the next point', async () => {
    const { requests } = await api.timeline(`from=${NOON}&to=${NOON + 2 * MINUTE_MS}`);
    expect(requests.map(({ num }) => num)).toEqual([2, 5]);
  });

  test('have the same times in both series, and zeros where nothing happened', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: NOON }),
        fc.integer({ min: 0, max: 45 * DAY_MS }),
        fc.integer({ min: -48, max: 56 }),
        async (from, length, quarters) => {
          const sign = quarters < 0 ? '-' : '%2B';
          const minutes = Math.abs(quarters) * 15;
          const clock = [Math.floor(minutes / 60), minutes % 60].map((n) => String(n).padStart(2, '0'));
          const to = from + length;
          const timeline = await api.timeline(`from=${from}&to=${to}&timezone=${sign}${clock.join(':')}`);
          const ends = pointEnds({ from, to, offsetMinutes: quarters * 15 });
          expect(timeline.requests.map(({ time }) => time)).toEqual(ends);
          expect(timeline.attacks.map(({ time }) => time)).toEqual(ends);
        },
      ),
      { numRuns: scaled(60) },
    );
    const { requests, attacks } = await api.timeline(`from=1000&to=${MINUTE_MS * 2}`);
    expect([...requests, ...attacks].map(({ num }) => num)).toEqual([0, 0, 0, 0]);
  });
});

describe('the time zone', () => {
  const timesIn = async (timezone: string) => {
    const query = `from=${NOON + 1}&to=${NOON + 20 * DAY_MS}${timezone}`;
    return (await api.get(`waf/event/timeline?${query}`)).text;
  };

  test('accepts a plus sign percent-encoded, raw, and as a space', async () => {
    const encoded = await timesIn('&timezone=%2B05%3A45');
    for (const spelling of ['%2B05:45', '+05:45', '%2b05:45', '%2005:45']) {
      expect(await timesIn(`&timezone=${spelling}`)).toBe(encoded);
    }
    expect(await timesIn('&timezone=-05:45')).not.toBe(encoded);
  });

  test('defaults to +00:00', async () => {
    expect(await timesIn('')).toBe(await timesIn('&timezone=%2B00:00'));
    expect(await timesIn('')).toBe(await timesIn('&timezone=-00:00'));
  });
});

describe('counts', () => {
  test('an audit entry is an attack but no request, an access line a request but no attack', async () => {
    expect(await totals(`from=${T + 2}&to=${T + 3}`)).toEqual({ requests: 0, attacks: 1 });
    expect(await totals(`from=${T + 1}&to=${T + 2}`)).toEqual({ requests: 1, attacks: 0 });
  });

  test('an event with a count counts that many times, in both series and in its category', async () => {
    expect(await totals(`from=${T + 3}&to=${T + 4}`)).toEqual({ requests: 7, attacks: 7 });
    expect(await api.distribution(`from=${T + 3}&to=${T + 4}`)).toMatchObject({ webshell: 7 });
  });

  test('the distribution has 13 fields in the order of the specification', async () => {
    const { text } = await api.get(`waf/event/attack/type?from=${NOON + HOUR_MS}&to=${NOON + 2 * HOUR_MS}`);
    expect(text).toBe(`{${CATEGORIES.map((category) => `"${category}":1`).join(',')}}`);
  });

  test('the distribution adds up to the attacks of the timeline', async () => {
    for (const filter of ['', `&hosts=${hosts.shop}`, `&hosts=${hosts.blog}&hosts=${hosts.api}`]) {
      const query = `${ALL}${filter}`;
      expect(sum(await api.distribution(query))).toBe((await totals(query)).attacks);
    }
  });
});

describe('the parameter hosts', () => {
  const attacks = async (filter: string) => (await totals(`${ALL}${filter}`)).attacks;

  test('defaults to the whole project, including events without a known host', async () => {
    expect(await api.distribution(`from=${T}&to=${T + 5}`)).toMatchObject({
      sqli: 1,
      xss: 1,
      webshell: 7,
      cc: 1,
    });
    expect(await attacks('')).toBe(24);
  });

  test('restricts both queries to one or several hosts', async () => {
    expect(await attacks(`&hosts=${hosts.shop}`)).toBe(2);
    expect(await attacks(`&hosts=${hosts.blog}`)).toBe(8);
    expect(await attacks(`&hosts=${hosts.shop}&hosts=${hosts.blog}`)).toBe(10);
    expect(await api.distribution(`${ALL}&hosts=${hosts.blog}`)).toMatchObject({
      xss: 1,
      webshell: 7,
      sqli: 0,
    });
  });

  test('may be repeated or comma-separated', async () => {
    const repeated = await api.get(`waf/event/timeline?${ALL}&hosts=${hosts.shop}&hosts=${hosts.blog}`);
    for (const comma of [',', '%2C']) {
      const query = `${ALL}&hosts=${hosts.shop}${comma}${hosts.blog}`;
      expect((await api.get(`waf/event/timeline?${query}`)).text).toBe(repeated.text);
    }
    expect(await attacks(`&hosts=${hosts.shop},${hosts.blog}&hosts=${hosts.api}`)).toBe(23);
  });

  test('counts a repeated host once', async () => {
    expect(await attacks(`&hosts=${hosts.shop}&hosts=${hosts.shop}&hosts=${hosts.shop},${hosts.shop}`)).toBe(
      2,
    );
  });

  test('ignores IDs that the project does not have', async () => {
    expect(await attacks('&hosts=nobody')).toBe(0);
    expect(await attacks(`&hosts=nobody&hosts=${hosts.shop}`)).toBe(2);
    expect(sum(await api.distribution(`${ALL}&hosts=${'f'.repeat(32)}`))).toBe(0);
  });

  test('takes 1,000 IDs of 64 characters', async () => {
    const others = Array.from({ length: 999 }, (_, i) => `&hosts=${String(i).padStart(64, 'x')}`).join('');
    expect(await attacks(`${others}&hosts=${hosts.blog}`)).toBe(8);
    expect(sum(await api.distribution(`${ALL}${others}&hosts=${hosts.blog}`))).toBe(8);
  });
});
