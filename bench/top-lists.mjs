/**
 * What top lists cost: disk and processor time per attack, and the time of a list over 30 days. The same attacks are
 * appended once with and once without details, in batches of an hour. With PostgreSQL, the processor time is that of
 * this process.
 *
 *   npm run build && node bench/top-lists.mjs [lmdb|postgres [SCENARIO]]
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { addressOf, countryOf, ruleOf, urlOf, zipf } from './details.mjs';

const { lmdbStore } = await import('../packages/server/dist/store/lmdb/lmdb.js');
const { CATEGORIES } = await import('../packages/server/dist/event.js');

const HOUR_MS = 3_600_000;
const DAYS = 30;
const END = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const ROUNDS = 20;

/**
 * Attacks an hour, of attackers that send `session` of them on average (exponential) to one host, one after another.
 * Sources and URLs are chosen by frequency (Zipf) among as many as there are. `isFlood`: 19 of 20 appear only once.
 */
const SCENARIOS = {
  quiet: { hosts: 6, perHour: 100, session: 20, sources: 20_000, urls: 1_000 },
  usual: { hosts: 10, perHour: 1_000, session: 50, sources: 50_000, urls: 1_000 },
  busy: { hosts: 10, perHour: 5_000, session: 50, sources: 50_000, urls: 1_000 },
  scattered: { hosts: 10, perHour: 1_000, session: 1, sources: 50_000, urls: 2_000 },
  flood: { hosts: 10, perHour: 5_000, session: 1, sources: 100_000, urls: 5_000, isFlood: true },
};
const [, , engine = 'lmdb', only] = process.argv;

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  if (only !== undefined && only !== name) continue;
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-'));
  try {
    const places = engine === 'lmdb' ? lmdbPlaces(directory) : await postgresPlaces(directory);
    try {
      await measure(name, scenario, places);
    } finally {
      await places.stop();
    }
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** Where a store of each kind is, and how many bytes it has. */
function lmdbPlaces(directory) {
  const path = (kind) => join(directory, `${kind}.mdb`);
  return {
    open: (kind) => lmdbStore(path(kind)),
    bytes: async (kind) => statSync(path(kind)).size,
    stop: async () => {},
  };
}

async function postgresPlaces(directory) {
  const { start, storeOptions } = await import('./postgres-server.mjs');
  const { postgresStore } = await import('../packages/server/dist/store/postgres/postgres.js');
  const { Database } = await import('../packages/server/dist/postgres/database.js');
  const { url, stop } = await start(directory);
  const schemaOf = (kind) => `bench_${kind}`;
  return {
    open: (kind) => postgresStore(storeOptions(url, schemaOf(kind))),
    async bytes(kind) {
      const database = new Database(storeOptions(url, schemaOf(kind)));
      const [{ bytes }] = await database.run(
        `SELECT sum(pg_total_relation_size(c.oid))::bigint AS bytes FROM pg_class c
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`,
        [schemaOf(kind)],
      );
      await database.close();
      return bytes;
    },
    stop,
  };
}

async function measure(name, scenario, places) {
  const attacks = DAYS * 24 * scenario.perHour;
  const results = {};
  for (const kind of ['without', 'with']) {
    const store = places.open(kind);
    const hosts = await addHosts(store, scenario.hosts);
    let cpuMs = 0;
    for (let hour = 0; hour < DAYS * 24; hour++) {
      const events = attacksOf(scenario, hosts, hour, kind === 'with');
      const before = process.cpuUsage();
      await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
      const { user, system } = process.cpuUsage(before);
      cpuMs += (user + system) / 1_000;
    }
    const bytes = (await places.bytes(kind)) / attacks;
    // As live traffic arrives: a few attacks at a time, into the records of a whole hour.
    const before = process.cpuUsage();
    let waitMs = Number.POSITIVE_INFINITY;
    for (let i = 0; i < ROUNDS; i++) {
      const events = attacksOf(scenario, hosts, DAYS * 24 - 1, kind === 'with').slice(0, 5);
      const batch = { project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} };
      waitMs = Math.min(waitMs, await timed(() => store.append(batch)));
    }
    const { user, system } = process.cpuUsage(before);
    const liveMs = (user + system) / 1_000 / ROUNDS;
    results[kind] = { bytes, us: (cpuMs * 1_000) / attacks, liveMs, waitMs };
    await store.close();
  }
  const { without, with: lists } = results;
  console.log(`${name}: ${scenario.perHour} attacks an hour on ${scenario.hosts} hosts, ${DAYS} days`);
  print('bytes per attack', without.bytes, lists.bytes);
  print('processor time per attack, us', without.us, lists.us);
  print('5 attacks, processor time, ms', without.liveMs, lists.liveMs);
  print('5 attacks, best time, ms', without.waitMs, lists.waitMs);
  await measureQueries(() => places.open('with'), scenario);
}

function print(what, without, lists) {
  const more = (lists - without).toFixed(2);
  console.log(`  ${what.padEnd(30)} ${without.toFixed(2)} without, ${lists.toFixed(2)} with: ${more} more`);
}

async function measureQueries(open, scenario) {
  const store = open();
  const hosts = (await store.hosts('p')).map(({ id }) => id);
  const append = () => {
    const events = attacksOf(scenario, hosts, DAYS * 24 - 1, true).slice(0, 5);
    return store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
  };
  const range = { project: 'p', from: END - DAYS * 24 * HOUR_MS, to: END, limit: 10 };
  const queries = {
    'sources of the project': { ...range, list: 'sources' },
    'urls of the project': { ...range, list: 'urls' },
    'rules of the project': { ...range, list: 'rules' },
    'sources of the project, sqli': { ...range, list: 'sources', categories: ['sqli'] },
    'sources of 5 hosts': { ...range, list: 'sources', hosts: hosts.slice(0, 5) },
  };
  for (const [name, query] of Object.entries(queries)) {
    const cold = await timed(() => store.top(query));
    const warm = await best(() => store.top(query));
    const live = await best(() => store.top(query), append);
    const { distinct, distinctIs, error, attacks } = await store.top(query);
    console.log(
      `  ${name.padEnd(30)} ${cold.toFixed(1)} ms first, ${warm.toFixed(2)} ms repeated, ${live.toFixed(2)} ms after an append; ` +
        `${distinct} values (${distinctIs}), error ${error} of ${attacks}`,
    );
  }
  await store.close();
}

async function timed(action) {
  const start = performance.now();
  await action();
  return performance.now() - start;
}

async function best(action, before = async () => {}) {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < ROUNDS; i++) {
    await before();
    least = Math.min(least, await timed(action));
  }
  return least;
}

async function addHosts(store, count) {
  const hostnames = Array.from({ length: count }, (_, i) => `www${i}.example.com`);
  return store.resolveHosts({ project: 'p', hostnames, limit: count });
}

function attacksOf({ perHour, session, sources, urls, isFlood = false }, hosts, hour, hasDetails) {
  const start = END - (DAYS * 24 - hour) * HOUR_MS;
  let [left, source, hostId] = [0, 0, null];
  return Array.from({ length: perHour }, (_, i) => {
    if (left-- <= 0) {
      left = session === 1 ? 0 : Math.floor(-Math.log(1 - Math.random()) * session);
      source = zipf(sources);
      hostId = hosts[zipf(hosts.length)];
    }
    const isNew = isFlood && i % 20 > 0;
    const unique = 1e6 + hour * perHour + i;
    const from = isNew ? unique : source;
    const rule = zipf(60);
    const details = {
      blocked: false,
      source: addressOf(from),
      url: urlOf(isNew ? unique : zipf(urls)),
      rule: ruleOf(rule),
      country: countryOf(from),
    };
    return {
      time: start + Math.floor((i / perHour) * HOUR_MS),
      hostId,
      request: true,
      attack: CATEGORIES[Math.floor((rule / 60) * CATEGORIES.length)],
      count: 1,
      details: hasDetails ? details : { blocked: false },
    };
  });
}
