/** The numbers of the API are exact: random queries compared with the oracle. */
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { CALLS, CATEGORIES, type KnownEvent, Oracle, type Query, timezoneText } from './oracle.ts';
import { Random, scaled } from './random.ts';
import { KEEP_ALL, Sandbox } from './sandbox.ts';

const SEED = 20_250_115;
/** Fewer on PostgreSQL, where nearly each of them is a row of its own. */
const EVENTS = inject('postgresUrl') === undefined ? Math.max(20_000, scaled(60_000)) : 5_000;
const START = Date.UTC(2025, 0, 15, 7, 11, 13, 17);
const SPAN_MS = 40 * 86_400_000;
const HOSTNAMES = Array.from({ length: 20 }, (_, i) => `host-${i + 1}.example`);
/** -12:00 to +14:00 in steps of a quarter of an hour. */
const OFFSETS_MINUTES = Array.from({ length: 26 * 4 + 1 }, (_, i) => -12 * 60 + i * 15);
/** In Morocco, the clock is set back on 23 February 2025. */
const ZONES = ['Africa/Casablanca', 'Europe/Berlin', 'Asia/Kathmandu'];
/** Every offset at least once. */
const QUERIES = Math.max(OFFSETS_MINUTES.length, scaled(OFFSETS_MINUTES.length * 3));
/** The two calls of the API specification; the others are computed from the same counts. */
const SPECIFIED = ['event/timeline', 'event/attack/type'];
const OTHERS = Object.keys(CALLS).filter((call) => !SPECIFIED.includes(call));

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

test('random queries return the counts of the oracle', async () => {
  const random = new Random(SEED);
  const events = Array.from({ length: EVENTS }, () => randomEvent(random));
  const oracle = new Oracle(events);
  const { installation, api } = await sandbox.service(...KEEP_ALL, '--details-retention', '3653d');
  const lines = events.map((event) => encode(event, random));
  const { stdout } = await sandbox.ingest(installation.project_id, lines, ...KEEP_ALL);
  expect(stdout).toMatch(new RegExp(`^accepted +${EVENTS}$`, 'm'));
  const ids = await api.hostIds();
  expect([...ids.keys()].sort()).toEqual(HOSTNAMES.toSorted());

  async function compare(call: string, offsetMinutes: number, zone?: string): Promise<void> {
    const query = { ...randomQuery(random, offsetMinutes, events), zone };
    const hosts = [...(query.hostnames ?? [])].map((hostname) => `&hosts=${ids.get(hostname)}`).join('');
    const timezone = encodeURIComponent(zone ?? timezoneText(offsetMinutes));
    const parameters = `from=${query.from}&to=${query.to}&timezone=${timezone}${hosts}`;
    const path = `waf/${call}${call.includes('?') ? '&' : '?'}${parameters}`;
    const { status, text } = await api.query(path);
    // As text, because the order of the fields is part of the API.
    const expected = JSON.stringify(oracle.expected(call, { ...query, hostIds: ids }));
    expect({ path, status, text }).toEqual({ path, status: 200, text: expected });
  }

  for (let i = 0; i < QUERIES; i++) {
    await compare(SPECIFIED[i % 2] ?? '', OFFSETS_MINUTES[i % OFFSETS_MINUTES.length] ?? 0);
  }
  for (let i = 0; i < scaled(3); i++) {
    for (const call of OTHERS) await compare(call, random.pick(OFFSETS_MINUTES));
    for (const call of Object.keys(CALLS)) await compare(call, 0, random.pick(ZONES));
  }
});

/** Mostly at random milliseconds, sometimes at a boundary of a local clock or a millisecond from it. */
function randomEvent(random: Random): KnownEvent {
  const anyTime = START + random.integer(0, SPAN_MS - 1);
  const quarter = Math.round(anyTime / 900_000) * 900_000;
  const attack = random.chance(0.4) ? random.pick(CATEGORIES) : null;
  return {
    time: random.chance(0.15) ? quarter + random.integer(-1, 1) : anyTime,
    hostname: random.chance(0.05) ? null : random.pick(HOSTNAMES),
    request: attack === null || random.chance(0.7),
    attack,
    count: random.chance(0.1) ? random.integer(2, 1_000_000) : 1,
    ...(attack === null ? {} : randomDetails(random)),
    ...randomResponse(random),
  };
}

function randomDetails(random: Random): Partial<KnownEvent> {
  const n = () => random.integer(1, 20);
  return {
    blocked: random.chance(0.3) ? undefined : random.chance(0.5),
    source: random.chance(0.5) ? `203.0.113.${n()}` : `2001:db8:1:${n()}::${n()}`,
    url: random.chance(0.1) ? undefined : `/${n()}`,
    rule: random.chance(0.1) ? undefined : `9421${n()}`,
    country: random.chance(0.5) ? undefined : random.pick(['DE', 'FR', 'CN']),
  };
}

function randomResponse(random: Random): Partial<KnownEvent> {
  if (random.chance(0.2)) return {};
  return {
    status: random.pick([200, 200, 200, 301, 404, 404, 500, 502]),
    ...(random.chance(0.2) && { upstream_status: random.pick([0, 200, 502]) }),
    ...(random.chance(0.5) && { bytes_in: random.integer(0, 100_000) }),
    ...(random.chance(0.8) && { bytes_out: random.integer(0, 10_000_000) }),
    ...(random.chance(0.8) && { url: `/${random.integer(1, 9)}` }),
  };
}

/** The event in one of several equivalent notations. */
function encode({ time, hostname, request, attack, count, ...details }: KnownEvent, random: Random): object {
  return {
    time: random.chance(0.2) ? isoTime(time, random.pick(OFFSETS_MINUTES)) : time,
    ...(hostname === null ? {} : { host: hostname }),
    ...(request && random.chance(0.5) ? {} : { request }),
    ...(attack === null ? {} : { attack }),
    ...details,
    ...(count === 1 && random.chance(0.5) ? {} : { count }),
  };
}

function isoTime(time: number, offsetMinutes: number): string {
  const local = new Date(time + offsetMinutes * 60_000).toISOString();
  return local.replace('Z', timezoneText(offsetMinutes));
}

/** Lengths from a millisecond to 40 days, of every order of magnitude; some edges are exactly an event's time. */
function randomQuery(random: Random, offsetMinutes: number, events: readonly KnownEvent[]): Query {
  const length = random.chance(0.5) ? Math.round(SPAN_MS ** random.next()) : random.integer(1, SPAN_MS);
  const anyFrom = START + random.integer(0, SPAN_MS - length);
  const from = random.chance(0.3) ? random.pick(events).time : anyFrom;
  const size = random.integer(0, HOSTNAMES.length);
  return {
    from,
    to: from + length,
    offsetMinutes,
    hostnames: size === 0 ? undefined : new Set(random.sample(HOSTNAMES, size)),
  };
}
