/**
 * The cost of a query over many hosts, in the store only: CPU time, and how long it blocked the event loop at most.
 *
 *   node many-hosts.mjs fill FILE [DIST]     generates the data: 1,000 hosts, 180 days, one attack per host and hour
 *   node many-hosts.mjs measure FILE [DIST]      DIST: another build of packages/server/dist to compare with
 */
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CATEGORIES, DAY_MS, HOUR_MS, trafficOfDay } from './data.mjs';
import { server } from './paths.mjs';

const HOSTS = 1_000;
const DAYS = 180;
const PROJECT = 'many';
const END = Date.UTC(2026, 6, 1);
const ROUNDS = 7;

const [action, file, dist = join(server, 'dist')] = process.argv.slice(2);
const { lmdbStore } = await import(resolve(dist, 'store/lmdb/lmdb.js'));

if (action === 'fill') await fill(lmdbStore(file));
else await measure();

async function fill(store) {
  const traffic = { hosts: HOSTS, slot_ms: HOUR_MS, mean: 1, attack_share: 0.9, days: DAYS, end: END };
  const ids = [];
  for (let i = 0; i < HOSTS; i++) {
    const { host } = await store.addHost({ project: PROJECT, hostname: `www${i}.example.com`, limit: HOSTS });
    ids.push(host.id);
  }
  for (let day = 0; day < DAYS; day++) {
    const { length, times, hosts, categories } = trafficOfDay(traffic, day);
    const events = Array.from({ length }, (_, i) => ({
      time: times[i],
      hostId: ids[hosts[i]],
      request: true,
      attack: CATEGORIES[categories[i]] ?? null,
      count: 1,
    }));
    await store.append({
      project: PROJECT,
      source: { name: 'bench', format: 'events' },
      events,
      dropped: {},
    });
  }
  await store.close();
  console.log(`${statSync(file).size} bytes`);
}

async function measure() {
  const range = { from: END - DAYS * DAY_MS + 1_234_567, to: END - 2_345_678 };
  for (const count of [1, 10, 100, 200, 500, 1_000]) {
    const store = lmdbStore(file);
    const hosts = (await store.hosts(PROJECT)).slice(0, count).map(({ id }) => id);
    const rounds = [];
    for (let i = 0; i < ROUNDS; i++) {
      rounds.push(
        await timed(() =>
          store.count({ project: PROJECT, hosts, edges: [range.from, range.to], rows: 'categories' }),
        ),
      );
    }
    const day = { from: END - DAY_MS + 60_000, to: END - 60_000 };
    const edges = Array.from({ length: 1_439 }, (_, i) => day.from + i * 60_000);
    const lines = [];
    for (let i = 0; i < ROUNDS; i++)
      lines.push(await timed(() => store.count({ project: PROJECT, hosts, edges, rows: 'timeline' })));
    await store.close();
    const show = (list) => {
      const warm = list.slice(3);
      const least = warm.reduce((a, b) => (a.ms < b.ms ? a : b));
      return `first ${list[0].ms.toFixed(1)} ms (held ${list[0].held.toFixed(1)}), second ${list[1].ms.toFixed(1)}, warm ${least.ms.toFixed(2)} ms`;
    };
    console.log(`${count} hosts: 180 days by type: ${show(rounds)}; day by minute: ${show(lines)}`);
  }
}

/** CPU time, because other load hardly affects it. `held`: the longest time between two turns of the event loop. */
async function timed(query) {
  const cpuMs = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  };
  let last = cpuMs();
  let held = 0;
  let running = true;
  const tick = () => {
    const now = cpuMs();
    held = Math.max(held, now - last);
    last = now;
    if (running) setImmediate(tick);
  };
  setImmediate(tick);
  const start = cpuMs();
  await query();
  const ms = cpuMs() - start;
  running = false;
  tick();
  return { ms, held };
}
