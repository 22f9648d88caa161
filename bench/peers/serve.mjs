/**
 * A peer behind the HTTP layer of the service: the same routes, authentication and JSON writer, but another store.
 *
 *   node peers/serve.mjs NAME DIRECTORY DATA      prints its address
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CATEGORIES, HOUR_MS, MINUTE_MS } from '../data.mjs';
import { server } from '../paths.mjs';

const [name, directory, data] = process.argv.slice(2);
const { createApp } = await import(join(server, 'dist/http/app.js'));
const { openIdentity } = await import(join(server, 'dist/identity/identity.js'));
const { readMasterKey } = await import(join(server, 'dist/identity/master-key.js'));
const peer = await (await import(`./${name}.mjs`)).open(directory);
const { projects } = JSON.parse(readFileSync(join(directory, 'measured.json'), 'utf8'));
const scopes = new Map(projects[0].hostIds.map((id, i) => [id, i + 1]));
const scopesOf = (hosts) => (hosts ? hosts.map((id) => scopes.get(id)) : [0]);

/** The two measured verbs. All measured ranges begin and end on the hour: the tables support no others. */
const store = {
  async series({ hosts, edges }) {
    const points = edges.length - 1;
    const step = edges[1] - edges[0];
    const [table, unit] = step < HOUR_MS ? ['minutes', MINUTE_MS] : ['hours', HOUR_MS];
    const first = edges[0] / unit;
    const requests = new Float64Array(points);
    const attacks = new Float64Array(points);
    for (const [t, r, a] of await peer.timeline(table, scopesOf(hosts), first, edges[points] / unit)) {
      requests[t - first] = Number(r);
      attacks[t - first] = Number(a);
    }
    return { requests, attacks };
  },
  /** The peers cannot tell whether data has changed, so their responses are not cached. */
  version: async () => null,
  async totals({ hosts, from, to }) {
    const row = await peer.distribution(scopesOf(hosts), from / HOUR_MS, to / HOUR_MS);
    return Float64Array.from(CATEGORIES, (_, i) => Number(row[i]));
  },
};

const identity = await openIdentity(
  join(data, 'identity.mdb'),
  readMasterKey(join(data, 'master.key')),
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
await app.listen({ host: '127.0.0.1', port: 0 });
console.log(`listens on http://127.0.0.1:${app.server.address().port}`);
process.once('SIGTERM', async () => {
  await peer.close();
  process.exit(0);
});
