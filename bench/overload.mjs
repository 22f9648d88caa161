/**
 * How long others wait while one project sends ten times the queries that the service can serve: `/healthz`, and a
 * query of another project, with and without the flood. The goal: `/healthz` within 100 ms.
 *
 *   npm run build && node bench/overload.mjs [seconds]
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { wafstat } from './paths.mjs';
import { Processes } from './processes.mjs';
import { token } from './requests.mjs';

const HOSTS = 1_000;
const HOURS = 7 * 24;
const HOUR_MS = 3_600_000;
/** More than the goal of 10, because connections that wait send less than they should. */
const TIMES = 13;
/** A user may have 64 queries in progress, so a flood of one user would be rejected at once. */
const USERS = 8;
const PROBE_MS = 20;
const HEALTH_LISTEN = '127.0.0.1:18081';
/** How long a query waits before it is rejected: that many connections are busy. */
const WAIT_S = 0.5;
/** A limit of the load generator. More connections change nothing. */
const CONNECTIONS_MAX = 4_000;

async function main() {
  const seconds = Number(process.argv[2] ?? 10);
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-overload-'));
  const processes = new Processes();
  try {
    const { flood, other, start } = await prepare(directory, processes);
    const { address } = await start();
    const hosts = await hostIds(address, flood);
    const range = `from=${other.end - HOURS * HOUR_MS}&to=${other.end}`;
    const headers = await Promise.all(
      flood.users.map(async (user) => ({
        'X-Auth-Token': await token(address, user, flood.id, user.name),
        'Cache-Control': 'no-cache',
      })),
    );
    const expensive = {
      address,
      path: `/v1/${flood.id}/waf/event/timeline?${range}&hosts=${hosts.join(',')}`,
      headers,
    };
    const otherToken = await token(address, other.user, other.id);
    const probes = {
      '/healthz': { address, path: '/healthz', headers: {} },
      '/healthz on --health-listen': { address: `http://${HEALTH_LISTEN}`, path: '/healthz', headers: {} },
      'query of another project': {
        address,
        path: `/v1/${other.id}/waf/event/timeline?${range}`,
        headers: { 'X-Auth-Token': otherToken, 'Cache-Control': 'no-cache' },
      },
    };
    const capacity = await generate({ ...expensive, seconds: 3, connections: 16 });
    const perSecond = capacity.statuses[200] / capacity.seconds;
    console.log(`served at most: ${perSecond.toFixed(0)} queries with ${HOSTS} hosts per second`);
    const before = await probe(probes, seconds);
    const connections = Math.min(CONNECTIONS_MAX, Math.ceil(TIMES * perSecond * WAIT_S));
    const periodMs = (connections / (TIMES * perSecond)) * 1_000;
    // One second per thousand connections, until all are open.
    const ramp = 1 + connections / 1_000;
    const flooding = generate({ ...expensive, seconds: seconds + ramp, connections, periodMs });
    await new Promise((resolve) => setTimeout(resolve, ramp * 1_000));
    const during = await probe(probes, seconds);
    const { statuses, sent, seconds: took } = await flooding;
    console.log(
      `${connections} connections sent ${(sent / took).toFixed(0)} per second ` +
        `(x ${(sent / took / perSecond).toFixed(1)}), statuses ${JSON.stringify(statuses)}`,
    );
    for (const name of Object.keys(probes)) report(name, before[name], during[name]);
  } finally {
    await processes.stop();
    rmSync(directory, { recursive: true });
  }
}

async function prepare(directory, processes) {
  const data = join(directory, 'data');
  const run = (...args) =>
    JSON.parse(execFileSync('node', [wafstat, ...args, '--data', data, '--json'], { encoding: 'utf8' }));
  const { project_id, password } = run('init');
  const { id } = run('project', 'add', 'flood');
  const users = [];
  for (let i = 0; i < USERS; i++) {
    const name = `user${i}`;
    users.push({ name, ...run('user', 'add', name, '--project', 'flood') });
  }
  const end = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  for (const [project, hosts] of [
    [id, HOSTS],
    [project_id, 5],
  ]) {
    const lines = [];
    for (let hour = 1; hour <= HOURS; hour++) {
      for (let host = 0; host < hosts; host++) {
        lines.push(
          `{"time":${end - hour * HOUR_MS + host},"host":"www${host}.example.com","attack":"xss"}\n`,
        );
      }
    }
    const file = join(directory, 'events.ndjson');
    writeFileSync(file, lines.join(''));
    execFileSync('node', [wafstat, 'ingest', '--data', data, '--project', project, file]);
  }
  const listen = ['--listen', '127.0.0.1:0', '--health-listen', HEALTH_LISTEN, '--rate-limit', '0'];
  return {
    flood: { id, users },
    other: { id: project_id, user: { password }, end },
    start: () =>
      processes.start('node', [wafstat, 'serve', '--data', data, ...listen, '--log-level', 'error']),
  };
}

async function hostIds(address, { id, users: [user] }) {
  const headers = { 'X-Auth-Token': await token(address, user, id, user.name) };
  const response = await fetch(`${address}/v1/${id}/waf/instance`, { headers });
  return (await response.json()).items.map((item) => item.id);
}

/** Sends one request of each kind every few milliseconds, without waiting for the previous response. */
async function probe(probes, seconds) {
  const agent = new http.Agent({ keepAlive: true });
  const results = Object.fromEntries(Object.keys(probes).map((name) => [name, []]));
  const pending = [];
  for (const until = performance.now() + seconds * 1_000; performance.now() < until; ) {
    for (const [name, { address, path, headers }] of Object.entries(probes)) {
      const started = performance.now();
      pending.push(
        get(address, path, headers, agent).then((status) =>
          results[name].push({ ms: performance.now() - started, status }),
        ),
      );
    }
    await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
  }
  await Promise.all(pending);
  agent.destroy();
  return results;
}

function get(address, path, headers, agent) {
  return new Promise((resolve, reject) => {
    http
      .get(`${address}${path}`, { headers, agent }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode));
      })
      .on('error', reject);
  });
}

function report(name, before, during) {
  const quantile = (results, share) => {
    const sorted = results.map(({ ms }) => ms).sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  };
  const line = [0.5, 0.99, 1].map((share) => {
    const [quiet, flooded] = [quantile(before, share), quantile(during, share)];
    const label = share === 1 ? 'max' : `p${share * 100}`;
    return `${label} ${quiet.toFixed(1)} -> ${flooded.toFixed(1)} ms (x ${(flooded / quiet).toFixed(1)})`;
  });
  const served = during.filter(({ status }) => status === 200).length;
  console.log(`${name.padEnd(28)} ${line.join(', ')}; served ${served} of ${during.length}`);
}

/** In its own thread, so that the load does not delay the probes. */
function generate(load) {
  return new Promise((resolve, reject) => {
    new Worker(new URL(import.meta.url), { workerData: load }).on('message', resolve).on('error', reject);
  });
}

/**
 * Sends prepared bytes on many connections, because a client that builds each request would be slower than the service.
 * Each connection sends after its response has arrived, at most once per `periodMs`.
 */
async function flood({ address, path, headers, seconds, connections, periodMs = 0 }) {
  const { hostname, port } = new URL(address);
  const counts = { statuses: {}, sent: 0 };
  const started = performance.now();
  const until = started + seconds * 1_000;
  const requests = headers.map((each) => {
    const lines = Object.entries(each).map(([name, value]) => `${name}: ${value}\r\n`);
    return Buffer.from(`GET ${path} HTTP/1.1\r\nHost: ${hostname}\r\n${lines.join('')}\r\n`);
  });
  const loops = [];
  for (let i = 0; i < connections && performance.now() < until; i++) {
    loops.push(
      oneConnection({ hostname, port, request: requests[i % requests.length], until, periodMs, counts }),
    );
    // Not all at once: a burst of connections would measure the kernel's queue.
    if (i % 10 === 9) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await Promise.all(loops);
  return { ...counts, seconds: (performance.now() - started) / 1_000 };
}

function oneConnection({ hostname, port, request, until, periodMs, counts }) {
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let lastSent = 0;
    let left = 0;
    const send = () => {
      if (performance.now() >= until) return socket.end();
      lastSent = performance.now();
      counts.sent++;
      socket.write(request);
    };
    const count = (status) => {
      counts.statuses[status] = (counts.statuses[status] ?? 0) + 1;
    };
    socket.on('connect', send);
    socket.on('data', (data) => {
      if (left === 0) {
        // The head of a response is short and written at once, so it arrives in one chunk.
        const end = data.indexOf('\r\n\r\n');
        const head = data.toString('latin1', 0, end);
        count(head.slice(9, 12));
        left = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0) + end + 4;
      }
      left -= data.length;
      if (left > 0) return;
      setTimeout(send, Math.max(0, lastSent + periodMs - performance.now()));
    });
    socket.on('error', ({ code }) => count(code));
    socket.on('close', () => resolve());
  });
}

if (isMainThread) await main();
else parentPort.postMessage(await flood(workerData));
