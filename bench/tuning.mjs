/**
 * How long a tuning report takes, in the embedded store without HTTP, and how long others wait meanwhile.
 *
 *   npm run build && node bench/tuning.mjs             1 million kept attacks of 30 days
 *   npm run build && node bench/tuning.mjs --quick     100,000
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { server } from './paths.mjs';
import { ownMemory } from './processes.mjs';

const { lmdbStore } = await import(join(server, 'dist/store/lmdb/lmdb.js'));
const { tuningReport } = await import(join(server, 'dist/statistics/tuning.js'));
const { UTC } = await import(join(server, 'dist/zone.js'));

const HOUR_MS = 3_600_000;
const END = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const HOURS = 720;
const PER_HOUR = process.argv.includes('--quick') ? 139 : 1_389;
const ROUNDS = 5;
const GOAL_MS = 3_000;

const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-tuning-'));
try {
  const store = lmdbStore(join(directory, 'statistics.mdb'), Date.now, {});
  const names = Array.from({ length: 10 }, (_, i) => `host-${i}.example.com`);
  const hosts = await store.resolveHosts({ project: 'p', hostnames: names, limit: 10 });
  for (let hour = 0; hour < HOURS; hour++)
    await store.append({
      project: 'p',
      source: { name: 's', format: 'events' },
      events: attacksOf(hosts, hour),
      dropped: {},
    });
  const query = {
    project: 'p',
    from: END - HOURS * HOUR_MS,
    to: END,
    threshold: 5,
    zone: UTC,
    idFrom: 10_000,
  };
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const memory = ownMemory(process.pid);
  const times = [];
  const cpuBefore = process.cpuUsage();
  let report;
  delay.enable();
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    report = await tuningReport(store, query);
    times.push(performance.now() - start);
  }
  delay.disable();
  const { user, system } = process.cpuUsage(cpuBefore);
  const { total, items, kept_attacks, left_out } = report;
  const falsePositives = items.filter(({ likely }) => likely === 'false_positive').length;
  console.log(
    `${kept_attacks} kept attacks, ${total} rows, ${falsePositives} false positives, ${left_out} left out`,
  );
  console.table([
    { what: 'report, median, ms', value: Math.round(times.toSorted((a, b) => a - b)[2]), goal: GOAL_MS },
    { what: 'report, slowest, ms', value: Math.round(Math.max(...times)), goal: GOAL_MS },
    { what: 'report, CPU time, mean, ms', value: Math.round((user + system) / 1e3 / ROUNDS) },
    { what: 'longest wait of others, ms', value: Math.round(delay.max / 1e6) },
    { what: 'more memory afterwards, MB', value: Math.round((ownMemory(process.pid) - memory) / 1e6) },
  ]);
  await store.close();
} finally {
  rmSync(directory, { recursive: true });
}

/** Users with false positives on 50 paths, scanners with many rules, and a botnet that sends single attacks. */
function attacksOf(hosts, hour) {
  const random = randomNumbers(hour);
  const pick = (list) => list[Math.floor(random() * list.length)];
  const start = END - (hour + 1) * HOUR_MS;
  return Array.from({ length: PER_HOUR }, (_, i) => {
    const time = start + Math.floor(((i + random()) / PER_HOUR) * HOUR_MS);
    const share = random();
    const critical = (id, variable) => ({ id: String(id), variable, severity: 'critical', value: 'value' });
    let details;
    if (share < 0.2) {
      const place = Math.floor(random() * 50);
      details = {
        source: address(100, random() * 20_000),
        url: `/form/${'abcdefghij'[place % 10]}${place}x/${Math.floor(random() * 1_000)}`,
        rules: [critical(942_100 + (place % 9) * 10, `ARGS:field${place}`)],
      };
    } else {
      const isScanner = share < 0.8;
      const rules = Array.from({ length: 1 + Math.floor(random() * 3) }, () =>
        critical(
          pick([913, 920, 930, 932, 933, 941, 942, 944]) * 1_000 + 100 + 10 * Math.floor(random() * 15),
          pick(['ARGS:q', 'ARGS:id', 'REQUEST_URI', 'REQUEST_HEADERS:User-Agent', 'REQUEST_COOKIES:session']),
        ),
      );
      const source = isScanner ? address(203, hour * 3 + random() * 3) : address(192, random() * 60_000);
      details = {
        source,
        url: `/path/${'abcdefghijklmnopqrst'[Math.floor(random() * 20)]}/${pick(['x', 'y', 'z'])}`,
        rules,
      };
    }
    return {
      time,
      hostId: pick(hosts),
      request: false,
      attack: 'sqli',
      count: 1,
      details: {
        ...details,
        id: `${time}${Math.floor(random() * 1e6)}`,
        blocked: true,
        method: 'GET',
        status: 403,
        score: 5 * details.rules.length,
        rule: details.rules[0].id,
      },
    };
  });
}

function address(first, number) {
  const n = Math.floor(number);
  return `${first}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
}

function randomNumbers(seed) {
  let state = Math.imul(seed + 1, 0x9e3779b1);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
