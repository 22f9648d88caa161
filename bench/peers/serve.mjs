/**
 * A peer behind the HTTP layer of the service: the same routes, authentication and JSON writer, but another store.
 *
 *   node peers/serve.mjs NAME DIRECTORY DATA [LIVE]      prints its address
 *
 * LIVE is {"until": ..., "eventsPerS": ...} as JSON. The peer then also counts events: those of today until this time
 * before it listens, and new ones in batches from each SIGUSR2 to the next.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CATEGORIES, eventsNow, eventsSince, HOUR_MS, MINUTE_MS } from '../data.mjs';
import { server } from '../paths.mjs';
import { rowsOf } from './tables.mjs';

/** As often as `wafstat follow` looks for new lines. */
const BATCH_MS = 200;

const [name, directory, data, live] = process.argv.slice(2);
const { createApp } = await import(join(server, 'dist/http/app.js'));
const { openIdentity } = await import(join(server, 'dist/identity/identity.js'));
const { readMasterKey } = await import(join(server, 'dist/cli/data-directory.js'));
const peer = await (await import(`./${name}.mjs`)).open(directory, live !== undefined);
const { projects } = JSON.parse(readFileSync(join(directory, 'measured.json'), 'utf8'));
const scopes = new Map(projects[0].hostIds.map((id, i) => [id, i + 1]));
const scopesOf = (hosts) => (hosts ? hosts.map((id) => scopes.get(id)) : [0]);

/** The measured queries. The tables have whole minutes or hours, so a range off the minute or hour is extended to it. */
const store = {
  count: ({ hosts, edges, rows }) =>
    rows === 'timeline' ? countTimeline(hosts, edges) : countCategories(hosts, edges),
  /** The peers cannot tell whether data has changed, so their responses are not cached. */
  version: async () => null,
};

async function countTimeline(hosts, edges) {
  const points = edges.length - 1;
  // Not of the first point, which the range may cut.
  const step = edges[2] - edges[1];
  const [table, unit] = step < HOUR_MS ? ['minutes', MINUTE_MS] : ['hours', HOUR_MS];
  const first = Math.floor(edges[0] / unit);
  const end = Math.ceil(edges[points] / unit);
  const requests = new Float64Array(points);
  const attacks = new Float64Array(points);
  for (const [t, r, a] of await peer.timeline(table, scopesOf(hosts), first, end)) {
    requests[t - first] += Number(r);
    attacks[t - first] += Number(a);
  }
  return [requests, attacks];
}

async function countCategories(hosts, [from, to]) {
  const [first, end] = [Math.floor(from / HOUR_MS), Math.ceil(to / HOUR_MS)];
  const row = await peer.distribution(scopesOf(hosts), first, end);
  return CATEGORIES.map((_, i) => Float64Array.of(Number(row[i])));
}

const identity = await openIdentity(
  join(data, 'identity.mdb'),
  readMasterKey(readFileSync(join(data, 'master.key'), 'utf8'), 'master.key'),
  Date.now,
);
const app = await createApp({
  store,
  identity,
  now: Date.now,
  catalog: { publicUrl: null, region: 'bench' },
  bodyBytesMax: 1_048_576,
  rateLimit: 0,
  limits: { retentionMs: 1, hostsMax: 0 },
  logger: false,
});
if (live !== undefined) await countEvents(JSON.parse(live));
await app.listen({ host: '127.0.0.1', port: 0 });
console.log(`listens on http://127.0.0.1:${app.server.address().port}`);
process.once('SIGTERM', async () => {
  await peer.close();
  process.exit(0);
});

async function countEvents({ until, eventsPerS }) {
  const { measured } = JSON.parse(readFileSync(join(directory, 'sets.json'), 'utf8'));
  await peer.append(rowsOf(eventsSince(measured, until)));
  let isCounting = false;
  process.on('SIGUSR2', async () => {
    isCounting = !isCounting;
    let last = performance.now();
    while (isCounting) {
      await sleep(BATCH_MS);
      // By the clock, because a batch may be late.
      const now = performance.now();
      const count = Math.round((eventsPerS * (now - last)) / 1_000);
      last = now;
      await peer.append(rowsOf(eventsNow(count, measured.hosts, BATCH_MS)));
    }
  });
}
