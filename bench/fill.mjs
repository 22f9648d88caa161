/**
 * Writes a data set into the embedded store, with the same `append` that counts log lines.
 *
 *   node fill.mjs DIRECTORY PROJECT_ID '{"hosts": ...}'      prints the IDs of the hosts
 */
import { join } from 'node:path';
import { CATEGORIES, detailsOf, trafficOfDay } from './data.mjs';
import { server } from './paths.mjs';

const [directory, project, text] = process.argv.slice(2);
const traffic = JSON.parse(text);
const { lmdbStore } = await import(join(server, 'dist/store/lmdb/lmdb.js'));
const store = lmdbStore(join(directory, 'statistics.mdb'));

const hostIds = [];
for (let i = 0; i < traffic.hosts; i++) {
  const { host } = await store.addHost({ project, hostname: `www${i}.example.com`, limit: traffic.hosts });
  hostIds.push(host.id);
}
let events = 0;
for (let day = 0; day < traffic.days; day++) {
  const hasDetails = day >= traffic.days - traffic.details_days;
  const { length, times, hosts, categories } = trafficOfDay(traffic, day);
  const batch = Array.from({ length }, (_, i) => ({
    time: times[i],
    hostId: hostIds[hosts[i]],
    request: true,
    attack: CATEGORIES[categories[i]] ?? null,
    count: 1,
    details: hasDetails && categories[i] >= 0 ? detailsOf(times[i], hosts[i], categories[i]) : undefined,
  }));
  await store.append({ project, source: { name: 'bench', format: 'events' }, events: batch, dropped: {} });
  events += length;
}
await store.close();
console.log(JSON.stringify({ hostIds, events }));
