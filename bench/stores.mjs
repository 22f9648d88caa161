/**
 * Compares the stores without HTTP, and with their goals: ingest speed, disk space and query time in bulk; then live, with
 * one batch a second and a query after it. `bench/writers.mjs` measures many writers.
 *
 *   node bench/stores.mjs             100 million events on 100 hosts in 90 days; takes half an hour
 *   node bench/stores.mjs --medium    20 million on 20 hosts; takes some minutes
 *   node bench/stores.mjs --quick     2 million in 9 days
 *   node bench/stores.mjs PostgreSQL  only this store; the others are embedded and Citus, which must be installed and named:
 *   node bench/stores.mjs PostgreSQL Citus --quick
 */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { CATEGORIES, DAY_MS, HOUR_MS, MINUTE_MS, trafficOfDay } from './data.mjs';
import { server } from './paths.mjs';
import { startCitus, start as startPostgres, storeOptions } from './postgres-server.mjs';

const quick = process.argv.includes('--quick');
const isSmall = quick || process.argv.includes('--medium');
const chosen = process.argv.slice(2).filter((name) => !name.startsWith('--'));
/** 7.72 requests per host and minute. */
const TRAFFIC = {
  slot_ms: MINUTE_MS,
  mean: 7.72,
  attack_share: 0.03,
  hosts: isSmall ? 20 : 100,
  days: quick ? 9 : 90,
  end: Math.floor(Date.now() / DAY_MS) * DAY_MS,
};
/** The size of the batches that `ingest` makes from an access log. */
const BATCH_EVENTS = 10_000;
/** Appends in progress at the same time, as with several senders. */
const AT_ONCE = 8;
const ROUNDS = 20;
/** One batch a second, of this many events. */
const LIVE_EVENTS = 1_000;
const PROJECT = 'bench';
/** To measure processor time: appends, one after the other, and the projects that they are to. */
const APPENDS = 300;
const PROJECTS = 8;

/** For 100 million events. */
const GOALS = {
  'events per second': { PostgreSQL: 150_000 },
  '24 h by minute, one host, ms': { PostgreSQL: 5 },
  '30 days by hour, all hosts, ms': { PostgreSQL: 5 },
  '30 days by category, 10 hosts, ms': { PostgreSQL: 20 },
};

const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-stores-'));
const load = async (path) => import(join(server, 'dist/store', path));
const { lmdbStore } = await load('lmdb/lmdb.js');
const { migrateDistributed, postgresStore } = await load('postgres/postgres.js');
const started = [];
const STORES = {
  embedded: () => ({
    store: lmdbStore(join(directory, 'statistics.mdb')),
    disk: () => sizeOf(directory, /statistics\.mdb$/),
  }),
  PostgreSQL: async () => {
    const postgres = await startPostgres(directory);
    started.push(postgres);
    // Without what an empty database needs.
    const empty = sizeOf(join(postgres.data, 'base'));
    const disk = () => sizeOf(join(postgres.data, 'base')) - empty;
    const servers = { server: [postgres] };
    return { store: postgresStore(storeOptions(postgres.url)), disk, servers };
  },
  Citus: async () => {
    const cluster = await startCitus(directory);
    started.push(cluster);
    const { coordinator, workers } = cluster;
    const options = storeOptions(coordinator.url);
    await migrateDistributed(options);
    const size = () => workers.reduce((sum, { data }) => sum + sizeOf(join(data, 'base')), 0);
    const empty = size();
    const servers = { coordinator: [coordinator], workers };
    return { store: postgresStore(options), disk: () => size() - empty, servers };
  },
};
/** Debian does not package Citus. */
const DEFAULT_STORES = ['embedded', 'PostgreSQL'];
try {
  const stores = {};
  for (const [name, open] of Object.entries(STORES)) {
    if ((chosen.length === 0 ? DEFAULT_STORES : chosen).includes(name)) stores[name] = await open();
  }
  const rows = { 'events per second': {}, 'bytes per event': {} };
  for (const [name, { store, disk, servers }] of Object.entries(stores)) {
    const used = processorTime(servers);
    const { events, seconds } = await fill(store);
    addProcessorTime(rows, name, `ingest of ${BATCH_EVENTS} events`, used(), events / BATCH_EVENTS);
    console.error(`${name}: ${events} events in ${seconds.toFixed(0)} s`);
    rows['events per second'][name] = Math.round(events / seconds);
    rows['bytes per event'][name] = Number(((await disk()) / events).toFixed(2));
  }
  for (const [query, run] of Object.entries(await queries(Object.values(stores)[0].store))) {
    const results = [];
    rows[`${query}, ms`] = Object.fromEntries(Object.keys(stores).map((name) => [name, []]));
    for (let round = 0; round < ROUNDS; round++) {
      for (const [name, { store }] of Object.entries(stores)) {
        const began = performance.now();
        results.push(await run(store));
        rows[`${query}, ms`][name].push(performance.now() - began);
      }
    }
    if (results.some((result) => !isDeepStrictEqual(result, results[0])))
      throw new Error(`${query}: the stores differ`);
  }
  await measureLive(stores, rows);
  await measureProcessorTime(stores, rows);
  for (const row of Object.values(rows)) {
    for (const name of Object.keys(row))
      if (Array.isArray(row[name])) row[name] = Number(median(row[name]).toFixed(3));
  }
  console.table(rows);
  console.table(goalTable(rows));
  if (stores.PostgreSQL && stores.Citus) console.table(ratios(rows));
  for (const { store } of Object.values(stores)) await store.close();
} finally {
  for (const server of started) await server.stop();
  rmSync(directory, { recursive: true });
}

/** Medians of appends, and of a query right after each. */
async function measureLive(stores, rows) {
  const names = Object.keys(stores);
  const appends = Object.fromEntries(names.map((name) => [name, []]));
  const reads = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round++) {
    const began = performance.now();
    const second = TRAFFIC.end + round * 1_000;
    for (const [name, { store }] of Object.entries(stores)) {
      const hostIds = (await store.hosts(PROJECT)).map(({ id }) => id);
      const events = Array.from({ length: LIVE_EVENTS }, (_, i) => ({
        time: second + (i % 1_000),
        hostId: hostIds[i % hostIds.length],
        request: true,
        attack: i % 33 === 0 ? 'xss' : null,
        count: 1,
      }));
      const source = { name: 'live', format: 'events' };
      const start = performance.now();
      await store.append({ project: PROJECT, source, id: `live ${round}`, events, dropped: {} });
      const appended = performance.now();
      const edges = Array.from({ length: 1_441 }, (_, i) => second + 1_000 - (1_440 - i) * MINUTE_MS);
      await store.count({ project: PROJECT, hosts: [hostIds[0]], edges, rows: 'timeline' });
      appends[name].push(appended - start);
      reads[name].push(performance.now() - appended);
    }
    await new Promise((resolve) => setTimeout(resolve, 1_000 - (performance.now() - began)));
  }
  rows[`live: append of ${LIVE_EVENTS} events, ms`] = appends;
  rows['live: 24 h by minute to now, one host, ms'] = reads;
}

/** Processor time of the servers of a database per append, with several projects in turn. */
async function measureProcessorTime(stores, rows) {
  for (const [name, { store, servers }] of Object.entries(stores)) {
    if (servers === undefined) continue;
    const append = (i) => {
      const events = Array.from({ length: LIVE_EVENTS }, (_, n) => ({
        time: TRAFFIC.end + i * 1_000 + (n % 1_000),
        hostId: null,
        request: true,
        attack: n % 33 === 0 ? 'xss' : null,
        count: 1,
      }));
      const source = { name: 'processor', format: 'events' };
      return store.append({ project: `${i % PROJECTS}`, source, id: `${i}`, events, dropped: {} });
    };
    // Connections and caches of plans.
    for (let i = 0; i < PROJECTS * 10; i++) await append(i);
    const used = processorTime(servers);
    for (let i = 0; i < APPENDS; i++) await append(PROJECTS * 10 + i);
    addProcessorTime(rows, name, `append of ${LIVE_EVENTS} events`, used(), APPENDS);
  }
}

/** Returns a function for the processor time since now, in milliseconds, by part of the database. */
function processorTime(servers = {}) {
  const read = () =>
    Object.entries(servers).map(([part, list]) => [
      part,
      list.reduce((sum, each) => sum + each.processorMs(), 0),
    ]);
  const before = Object.fromEntries(read());
  return () => read().map(([part, ms]) => [part, ms - before[part]]);
}

function addProcessorTime(rows, name, what, used, count) {
  for (const [part, ms] of used) {
    const row = `${what}, processor ms of the ${part}`;
    rows[row] = { ...rows[row], [name]: Number((ms / count).toFixed(2)) };
  }
}

/** What Citus costs: the times of PostgreSQL are 1. */
function ratios(rows) {
  return Object.entries(rows)
    .filter(([what, row]) => /, ms$|per second/.test(what) && row.Citus && row.PostgreSQL)
    .map(([what, { Citus, PostgreSQL }]) => {
      const ratio = what.includes('per second') ? PostgreSQL / Citus : Citus / PostgreSQL;
      return { what, ratio: Number(ratio.toFixed(2)) };
    });
}

function goalTable(rows) {
  return Object.entries(GOALS).flatMap(([what, goals]) =>
    Object.entries(goals)
      .filter(([store]) => rows[what]?.[store] !== undefined)
      .map(([store, goal]) => {
        const measured = rows[what][store];
        const isReached = what.endsWith('ms') ? measured <= goal : measured >= goal;
        return { what, store, goal, measured, reached: isReached ? 'yes' : 'no' };
      }),
  );
}

async function fill(store) {
  const hostIds = [];
  for (let i = 0; i < TRAFFIC.hosts; i++) {
    const { host } = await store.addHost({
      project: PROJECT,
      hostname: `www${i}.example.com`,
      limit: TRAFFIC.hosts,
    });
    hostIds.push(host.id);
  }
  let events = 0;
  let milliseconds = 0;
  for (let day = 0; day < TRAFFIC.days; day++) {
    const batches = batchesOf(trafficOfDay(TRAFFIC, day), hostIds, day);
    events += batches.reduce((sum, batch) => sum + batch.events.length, 0);
    // Generating the events is not measured.
    const began = performance.now();
    const append = async () => {
      for (let batch = batches.pop(); batch; batch = batches.pop()) await store.append(batch);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, append));
    milliseconds += performance.now() - began;
  }
  return { events, seconds: milliseconds / 1_000 };
}

function batchesOf({ length, times, hosts, categories }, hostIds, day) {
  const batches = [];
  for (let first = 0; first < length; first += BATCH_EVENTS) {
    const events = Array.from({ length: Math.min(BATCH_EVENTS, length - first) }, (_, i) => ({
      time: times[first + i],
      hostId: hostIds[hosts[first + i]],
      request: true,
      attack: CATEGORIES[categories[first + i]] ?? null,
      count: 1,
    }));
    const source = { name: 'bench', format: 'events' };
    batches.push({ project: PROJECT, source, id: `${day} ${first}`, events, dropped: {} });
  }
  return batches.reverse();
}

async function queries(store) {
  const ids = (await store.hosts(PROJECT)).map(({ id }) => id);
  const { end } = TRAFFIC;
  const grid = (from, step_ms) => {
    const edges = [from];
    for (let edge = Math.ceil((from + 1) / step_ms) * step_ms; edge < end; edge += step_ms) edges.push(edge);
    return [...edges, end];
  };
  const day = grid(end - DAY_MS, MINUTE_MS);
  // 12.345 s past the hour, so that the range cuts a minute.
  const month = grid(end - 30 * DAY_MS + 12_345, HOUR_MS);
  const project = PROJECT;
  return {
    '24 h by minute, one host': (s) => s.count({ project, hosts: [ids[0]], edges: day, rows: 'timeline' }),
    '30 days by hour, all hosts': (s) => s.count({ project, edges: month, rows: 'timeline' }),
    '30 days by category, 10 hosts': (s) =>
      s.count({
        project,
        hosts: ids.slice(0, 10),
        edges: [end - 30 * DAY_MS + 12_345, end],
        rows: 'categories',
      }),
  };
}

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
}

function sizeOf(path, names = /./) {
  return readdirSync(path, { withFileTypes: true }).reduce((sum, entry) => {
    const inner = join(path, entry.name);
    if (entry.isDirectory()) return sum + sizeOf(inner, names);
    return sum + (names.test(entry.name) ? statSync(inner).size : 0);
  }, 0);
}
