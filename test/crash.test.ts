/** `kill -9` at any moment: nothing is lost, nothing counts twice. */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { Api, login, sum } from './api.ts';
import { CATEGORIES, type KnownEvent, Oracle } from './oracle.ts';
import { eventually } from './process.ts';
import { Random, scaled } from './random.ts';
import { ndjson, Sandbox } from './sandbox.ts';

const SEED = 9;
const isEmbedded = inject('postgresUrl') === undefined;
/** More than are counted before a kill. PostgreSQL counts fewer in that time. If all have been counted, there are more. */
const LINES = isEmbedded ? 40_000 : 15_000;
const KILLS = scaled(5);
const SMALL_FILES = isEmbedded ? 600 : 200;
const HOUR_MS = 3_600_000;
const SPAN_MS = 20 * 24 * HOUR_MS;
const START = Date.now() - SPAN_MS - HOUR_MS;
const HOSTNAMES = ['a.example', 'b.example', 'c.example'];
const ALL = { from: START, to: START + SPAN_MS, offsetMinutes: 0, hostnames: undefined };
/** Makes the file longer, so that a run has many commits; and threads to read it, as more than 64 MiB are left. */
const PADDING = 'x'.repeat(1_800);

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

test('ingest killed several times and then run to the end counts every event once', async () => {
  const random = new Random(SEED);
  const events: KnownEvent[] = [];
  const file = sandbox.write('events.ndjson', '');
  const writeMore = () => {
    const more = randomEvents(random, LINES);
    const lines = more.map(({ hostname, ...event }) => ({ ...event, host: hostname, padding: PADDING }));
    appendFileSync(file, ndjson(lines));
    events.push(...more);
  };
  const { installation, api } = await sandbox.service();
  const options = ['--data', sandbox.data, '--project', installation.project_id];
  const args = ['ingest', ...options, '--format', 'events', file];

  for (let kills = 0, runs = 0; kills < KILLS; ) {
    expect(++runs).toBeLessThanOrEqual(3 * KILLS);
    const before = await countedEvents(api);
    // At first, and if this process paused, so that a run has counted everything.
    if (before === events.length) writeMore();
    const run = sandbox.start(args);
    // Mostly kill it after it has counted something, sometimes earlier.
    const latest = random.chance(0.3) ? Date.now() + random.integer(0, 1_000) : Number.POSITIVE_INFINITY;
    const begun = async () => Date.now() >= latest || (await countedEvents(api)) > before || undefined;
    await eventually(begun, 'some progress');
    // Some time later, threads read chunks ahead.
    await sleep(random.integer(0, random.chance(0.5) ? 30 : 250));
    const { signal, status } = await run.kill();
    if (status !== 0) {
      expect(signal).toBe('SIGKILL');
      kills++;
    }
    // The server still responds, and no batch is visible in part.
    const { requests, attacks } = await api.timeline(`from=${ALL.from}&to=${ALL.to}`);
    expect(requests).toEqual(attacks);
  }
  if ((await countedEvents(api)) === events.length) writeMore();
  const left = events.length - (await countedEvents(api));
  expect(left).toBeGreaterThan(0);

  const { status, stdout } = await sandbox.run(args);
  expect(status).toBe(0);
  expect(stdout).toMatch(new RegExp(`^accepted +${left}$`, 'm'));
  expect(await countedEvents(api)).toBe(events.length);
  await expectCounts(api, new Oracle(events), random);
});

test('ingest of many small files killed several times and then run to the end counts every event once', async () => {
  const random = new Random(SEED + 2);
  const events = randomEvents(random, SMALL_FILES);
  const directory = sandbox.path('files');
  mkdirSync(directory);
  for (const [i, { hostname, ...event }] of events.entries()) {
    const line = ndjson([{ ...event, host: hostname, line: i }]);
    writeFileSync(join(directory, `${i}.log`), i % 2 === 0 ? line : gzipSync(line));
  }
  const { installation, api } = await sandbox.service();
  const options = ['--data', sandbox.data, '--project', installation.project_id];
  const args = ['ingest', ...options, '--format', 'events', directory];
  let [counted, kills] = [0, 0];
  while (kills < 2 && counted < SMALL_FILES) {
    const run = sandbox.start(args);
    const latest = counted + random.integer(1, Math.ceil((SMALL_FILES - counted) / 3));
    await eventually(async () => (await countedEvents(api)) >= latest || undefined, `${latest} events`);
    if ((await run.kill()).signal === 'SIGKILL') kills++;
    counted = await countedEvents(api);
  }
  expect(kills).toBeGreaterThan(0);
  const { status, stdout } = await sandbox.run(args);
  expect(status).toBe(0);
  expect(stdout).toMatch(new RegExp(`^accepted +${SMALL_FILES - counted}$`, 'm'));
  expect(await countedEvents(api)).toBe(SMALL_FILES);
  await expectCounts(api, new Oracle(events), random);
});

test('a killed server loses nothing, and the next one returns the same counts', async () => {
  const random = new Random(SEED + 1);
  const events = randomEvents(random, 20_000);
  const oracle = new Oracle(events);
  const { installation, server, api } = await sandbox.service();
  const lines = events.map(({ hostname, ...event }) => ({ ...event, host: hostname }));
  await sandbox.ingest(installation.project_id, lines.slice(0, 15_000));

  // Killed while it serves queries and another process writes.
  const late = sandbox.write('late.ndjson', ndjson(lines.slice(15_000)));
  const options = ['--data', sandbox.data, '--project', installation.project_id, '--format', 'events'];
  const ingest = sandbox.start(['ingest', ...options, '--source', 'late', late]).end();
  const queries = Array.from({ length: 20 }, () => api.timeline(`from=${ALL.from}&to=${ALL.to}`));
  // On a busy machine, some are shed.
  await Promise.any(queries);
  expect((await server.process.kill()).signal).toBe('SIGKILL');
  await Promise.allSettled(queries);
  expect((await ingest).status).toBe(0);

  for (let restart = 0; restart < 2; restart++) {
    const next = await sandbox.serve();
    // The token is still valid: the first server kept nothing about it in memory.
    await expectCounts(new Api(next.address, api.project, api.token), oracle, random);
    await login(next.address, installation);
    await next.process.kill();
  }
});

/**
 * In the order of a log whose lines are late by hours: in any order, each commit would change every hour of the 20 days,
 * which took a sixth more processor time. exact-counts.test.ts ingests events in any order.
 */
function randomEvents(random: Random, count: number): KnownEvent[] {
  const events = Array.from({ length: count }, () => randomEvent(random));
  const period = ({ time }: KnownEvent) => Math.floor(time / (6 * HOUR_MS));
  return events.toSorted((a, b) => period(a) - period(b));
}

/** Every request is an attack, so both series of a timeline must be equal. */
function randomEvent(random: Random): KnownEvent {
  return {
    time: START + random.integer(0, SPAN_MS - 1),
    hostname: random.pick(HOSTNAMES),
    request: true,
    attack: random.pick(CATEGORIES),
    count: random.chance(0.1) ? random.integer(2, 1_000) : 1,
  };
}

async function countedEvents(api: Api): Promise<number> {
  const { items } = await api.getJson<{ items: { events: number }[] }>('connections');
  return items[0]?.events ?? 0;
}

/** Compares the totals and some ranges with odd milliseconds, for all hosts and for each. */
async function expectCounts(api: Api, oracle: Oracle, random: Random): Promise<void> {
  const ids = await api.hostIds();
  expect([...ids.keys()]).toEqual(HOSTNAMES);
  const cuts = Array.from({ length: 10 }, () => START + random.integer(0, SPAN_MS - 40 * HOUR_MS));
  const ranges = cuts.map((from) => ({ ...ALL, from, to: from + random.integer(1, 40 * HOUR_MS) }));
  for (const range of [ALL, ...ranges]) {
    for (const hostname of [undefined, ...HOSTNAMES]) {
      const expected = { ...range, hostnames: hostname === undefined ? undefined : new Set([hostname]) };
      const query = `from=${range.from}&to=${range.to}${hostname ? `&hosts=${ids.get(hostname)}` : ''}`;
      expect(await api.distribution(query)).toEqual(oracle.distribution(expected));
      // Long arrays compare much faster as text.
      expect(JSON.stringify(await api.timeline(query))).toBe(JSON.stringify(oracle.timeline(expected)));
    }
  }
  expect(sum(await api.distribution(`from=${ALL.from}&to=${ALL.to}`))).toBeGreaterThan(0);
}
