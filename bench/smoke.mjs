/**
 * Fails if ingest or one of the two queries has become much slower. Takes about 35 s of processor time.
 * Compares processor time with simple programs in the same run, so that the machine and its load hardly matter.
 *
 *   npm run build && node bench/smoke.mjs
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startService } from './candidates.mjs';
import { CATEGORIES, DAY_MS, HOUR_MS, MINUTE_MS } from './data.mjs';
import { bench, wafstat } from './paths.mjs';
import { Processes, processorTime } from './processes.mjs';
import { get, token, withoutCache, withToken } from './requests.mjs';

/** About three times what was measured: only a mistake exceeds them. */
const LIMITS = {
  'ingest, an access log / a regular expression': 6,
  'timeline, 24 hours / prepared response': 6,
  'timeline, computed / prepared response': 8,
  'distribution, 30 days / prepared response': 4,
  'distribution, computed / prepared response': 5,
};
const LINES = 200_000;
const HOSTS = 10;
const REQUESTS_PER_S = 1_000;
/** What the queries read: an event of each minute. */
const DAYS = 31;
const ROUNDS = 2;
/** Of a round: the clock of processor time has ticks of 10 ms, which is the time of 100 to 300 requests. */
const REQUESTS = 1_500;
const CONNECTIONS = 8;
const PATHS = 20;

const NAIVE = `
  const counts = new Map();
  const lines = require('node:readline').createInterface({ input: require('node:fs').createReadStream(process.argv[1]) });
  const pattern = /^(\\S+?)(?::\\d+)? (\\S+) \\S+ (\\S+) \\[([^\\]]+)\\] "([^"]*)" (\\d+) (\\d+) "([^"]*)" "([^"]*)"$/;
  lines.on('line', (line) => {
    const [, host, , , time] = pattern.exec(line);
    const key = host + time;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  });
  lines.on('close', () => console.log([...counts.values()].reduce((sum, n) => sum + n, 0)));`;

const directory = mkdtempSync(join(tmpdir(), 'wafstat-smoke-'));
const data = join(directory, 'data');
const processes = new Processes();
const measured = {};
try {
  const installation = JSON.parse(execFileSync(wafstat, ['init', '--data', data, '--json']));
  measureIngest();
  fillProject();
  await measureQueries(installation);
} finally {
  await processes.stop();
  rmSync(directory, { recursive: true });
}

let failed = 0;
for (const [name, limit] of Object.entries(LIMITS)) {
  const isSlow = !(measured[name] <= limit);
  if (isSlow) failed++;
  const figure = measured[name].toFixed(2).padStart(6);
  console.log(`${isSlow ? 'SLOW' : 'ok  '} ${name.padEnd(46)} ${figure}   limit: ${limit}`);
}
process.exitCode = failed === 0 ? 0 : 1;

function measureIngest() {
  const log = join(directory, 'access.log');
  writeFileSync(log, accessLog());
  const naive = [];
  const ours = [];
  for (let round = 0; round < ROUNDS; round++) {
    naive.push(timeOf(process.execPath, ['-e', NAIVE, log], new RegExp(`^${LINES}$`, 'm')));
    const where = ['--data', data, '--project', 'default', '--source', `round ${round}`];
    ours.push(timeOf(wafstat, ['ingest', ...where, log], new RegExp(`^accepted +${LINES}$`, 'm')));
  }
  measured['ingest, an access log / a regular expression'] = Math.min(...ours) / Math.min(...naive);
}

/** Processor time in seconds. */
function timeOf(command, args, wanted) {
  const timed = spawnSync('bash', ['-c', 'TIMEFORMAT="%U %S"; time "$@"', 'bash', command, ...args]);
  if (timed.status !== 0 || !wanted.test(timed.stdout)) throw new Error(`${command} failed: ${timed.stderr}`);
  const [user, system] = timed.stderr.toString().trim().split('\n').at(-1).split(' ').map(Number);
  return user + system;
}

/** Ends a minute ago. */
function accessLog() {
  const start = Date.now() - MINUTE_MS - (LINES / REQUESTS_PER_S) * 1_000;
  const lines = Array.from({ length: LINES }, (_, i) => {
    const time = new Date(start + (i / REQUESTS_PER_S) * 1_000);
    const [, day, month, year, clock] = time.toUTCString().split(' ');
    const host = `www${i % HOSTS}.example.com`;
    return (
      `${host}:443 203.0.113.${i % 250} - - [${day}/${month}/${year}:${clock} +0000] ` +
      `"GET /products/${i}?page=${i % 7} HTTP/1.1" 200 ${1_000 + (i % 5_000)} "https://${host}/" "Mozilla/5.0 (X11)"\n`
    );
  });
  return lines.join('');
}

/** Every tenth event is an attack. */
function fillProject() {
  const start = Date.now() - DAYS * DAY_MS;
  const events = Array.from({ length: (DAYS * DAY_MS) / MINUTE_MS }, (_, i) => ({
    time: start + i * MINUTE_MS,
    host: `www${i % HOSTS}.example.com`,
    ...(i % 10 === 0 && { attack: CATEGORIES[(i / 10) % CATEGORIES.length] }),
  }));
  const file = join(directory, 'events.ndjson');
  writeFileSync(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
  const where = ['--data', data, '--project', 'default', '--source', 'events', '--format', 'events'];
  execFileSync(wafstat, ['ingest', ...where, file]);
}

async function measureQueries(installation) {
  const service = await startService(processes, data, '--rate-limit', '0');
  const text = await token(service.address, installation, installation.project_id);
  const now = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const pathsOf = (call, days) =>
    Array.from({ length: PATHS }, (_, i) => {
      const to = now - i * HOUR_MS;
      return `/v1/${installation.project_id}/waf/event/${call}?from=${to - days * DAY_MS}&to=${to}`;
    });
  const queries = { 'timeline, 24 hours': ['timeline', 1], 'distribution, 30 days': ['attack/type', 30] };
  for (const [name, [call, days]] of Object.entries(queries)) {
    const paths = pathsOf(call, days);
    const script = join(bench, 'bare.mjs');
    const bare = await processes.startScript(script, [service.address, text], JSON.stringify(paths));
    const requests = withToken(paths, text);
    const computed = name.replace(/,.*/, ', computed');
    const times = { bare: [], cached: [], computed: [] };
    // The first round is a warm-up. Interleaved, so that other load on the machine affects all alike.
    for (let round = 0; round <= ROUNDS; round++) {
      times.bare[round] = await serverTime(bare, requests);
      times.cached[round] = await serverTime(service, requests);
      times.computed[round] = await serverTime(service, withoutCache(requests));
    }
    const sum = (all) => all.slice(1).reduce((total, time) => total + time, 0);
    measured[`${name} / prepared response`] = sum(times.cached) / sum(times.bare);
    measured[`${computed} / prepared response`] = sum(times.computed) / sum(times.bare);
    await bare.stop();
  }
}

/** Processor time of the server for the requests of a round. */
async function serverTime({ pid, address }, requests) {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const before = processorTime(pid);
  let next = 0;
  const connection = async () => {
    while (next < REQUESTS) {
      const { path, headers } = requests[next++ % requests.length];
      const { status } = await get(address, { path, headers, agent });
      if (status !== 200) throw new Error(`${path}: ${status}`);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, connection));
  agent.destroy();
  return processorTime(pid) - before;
}
