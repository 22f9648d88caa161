/**
 * The cost of a push: throughput, CPU time and memory of the service, and how long other requests wait meanwhile.
 *
 *   npm run build && node bench/push.mjs [name of a body...]
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const MB = 1_000_000;
const CLOCK_TICKS_PER_S = 100;
const root = process.env.WAFSTAT_ROOT ?? fileURLToPath(new URL('..', import.meta.url));
const wafstat = join(root, 'packages/server/bin/wafstat.js');

const BODIES = {
  'access lines, 200 MB': () => ({ body: accessLines(200 * MB) }),
  'access lines, 200 MB, gzip': () => ({ body: gzipSync(accessLines(200 * MB)), gzip: true }),
  'JSON events, 50 MB': () => ({ body: repeat(eventLine, 50 * MB) }),
  'bomb of x lines, 64 MB in 64 KB': () => ({ body: gzipSync(Buffer.alloc(64 * MB, 'x\n')), gzip: true }),
  'bomb of equal events, 64 MB': () => ({
    body: gzipSync(Buffer.alloc(64 * MB, `{"time":${Date.now()}}\n`)),
    gzip: true,
  }),
  'events of 180 days, 16 MB': () => ({ body: repeat(scatteredEvent, 16 * MB) }),
  // Every attack has another source, URL and rule: the most expensive lines for top lists.
  '60,000 attacks, 1,000 hosts': () => ({ body: gzipSync(attackLines(60_000, 3_600_000)), gzip: true }),
  '60,000 attacks, 1,000 hosts, a day': () => ({
    body: gzipSync(attackLines(60_000, 86_400_000)),
    gzip: true,
  }),
  '60,000 events, 1,000 hosts': () => ({ body: gzipSync(attackLines(60_000, 3_600_000, false)), gzip: true }),
  '60,000 attacks, 1,000 hosts, by ingest': () => ({ body: attackLines(60_000, 3_600_000), by: 'ingest' }),
  '317,000 host names': () => ({ body: gzipSync(hostLines(317_000)), gzip: true }),
  '1,760,000 host names': () => ({ body: gzipSync(hostLines(1_760_000)), gzip: true }),
};

async function main() {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(BODIES);
  for (const name of names) {
    await measure(name, BODIES[name]());
  }
}

/** A new service per body, to measure its memory. */
async function measure(name, { body, gzip = false, by = 'push' }) {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-'));
  const data = join(directory, 'data');
  const run = (...args) => JSON.parse(execFileSync('node', [wafstat, ...args, '--data', data, '--json']));
  const { project_id, domain, user, password } = run('init');
  const { id: otherId } = run('project', 'add', 'other');
  const other = run('user', 'add', 'other', '--project', 'other', '--role', 'ingest');
  const server = spawn(
    'node',
    [
      wafstat,
      'serve',
      '--data',
      data,
      '--listen',
      '127.0.0.1:0',
      '--body-limit',
      '1073741824',
      '--log-level',
      'error',
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  try {
    const [line] = await once(server.stdout, 'data');
    const base = /http:\/\/\S+/.exec(String(line))[0];
    const token = await login(base, { project_id, domain, user, password });
    const credentials = { project_id: otherId, domain, user: 'other', password: other.password };
    const otherToken = await login(base, credentials);
    const probes = {
      '/healthz': () => fetch(`${base}/healthz`),
      'a query': () =>
        fetch(`${base}/v1/${project_id}/waf/event/timeline?from=${START - 86_400_000}&to=${START}`, {
          headers: { 'X-Auth-Token': token, 'Cache-Control': 'no-cache' },
        }),
      'a push of another project': () =>
        fetch(`${base}/ingest/v1/${otherId}`, {
          method: 'POST',
          body: eventLine(0),
          headers: { 'X-Auth-Token': otherToken },
        }),
    };
    const probeAll = (until) =>
      Promise.all(Object.entries(probes).map(([of, send]) => probe(of, send, until)));
    await probeAll(sleep(1_000));
    const cpuBefore = cpuSeconds(server.pid);
    const memoryBefore = peakMemory(server.pid);
    const started = performance.now();
    const pushing =
      by === 'ingest'
        ? ingest(join(directory, 'events.ndjson'), body, ['--data', data, '--project', project_id])
        : post(base, `/ingest/v1/${project_id}`, body, {
            'X-Auth-Token': token,
            'Idempotency-Key': 'bench',
            ...(gzip ? { 'Content-Encoding': 'gzip' } : {}),
          });
    const waits = await probeAll(pushing.catch(() => {}));
    const response = await pushing.catch((error) => ({ status: error.message, text: '' }));
    const seconds = (performance.now() - started) / 1_000;
    const cpu = cpuSeconds(server.pid) - cpuBefore;
    console.log(
      `${name}: ${response.status} ${response.text.slice(0, 60)}\n  ${seconds.toFixed(1)} s, ${cpu.toFixed(1)} s of CPU time, ` +
        `memory ${memoryBefore} -> ${peakMemory(server.pid)} MB at most\n  ${waits.join('\n  ')}`,
    );
  } finally {
    server.kill('SIGKILL');
    await once(server, 'exit').catch(() => {});
    rmSync(directory, { recursive: true });
  }
}

/** Resolves to how long such requests wait. */
async function probe(name, send, until) {
  let running = true;
  const end = until.finally(() => {
    running = false;
  });
  const waits = [];
  const statuses = new Set();
  while (running) {
    const started = performance.now();
    const status = await send().then(
      (response) => response.text().then(() => response.status),
      (error) => error.message,
    );
    statuses.add(status);
    waits.push(performance.now() - started);
    await sleep(5);
  }
  await end;
  waits.sort((a, b) => a - b);
  const [p99, max] = [waits[Math.floor(waits.length * 0.99)] ?? 0, waits.at(-1) ?? 0];
  return `${name} waited ${max.toFixed(0)} ms at most, p99 ${p99.toFixed(0)} ms, of ${waits.length}; ${[...statuses]}`;
}

async function ingest(file, body, where) {
  writeFileSync(file, body);
  const child = spawn('node', [wafstat, 'ingest', ...where, file], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [status] = await once(child, 'exit');
  return { status, text: '' };
}

async function login(base, { project_id, domain, user, password }) {
  const identity = {
    methods: ['password'],
    password: { user: { name: user, password, domain: { name: domain } } },
  };
  const response = await fetch(`${base}/v3/auth/tokens`, {
    method: 'POST',
    body: JSON.stringify({ auth: { identity, scope: { project: { id: project_id } } } }),
  });
  return response.headers.get('x-subject-token');
}

function post(base, path, body, headers) {
  return new Promise((resolve, reject) => {
    const sent = request(`${base}${path}`, {
      method: 'POST',
      headers: { ...headers, 'Content-Length': body.length },
    });
    sent.on('error', reject);
    sent.on('response', async (response) => {
      let text = '';
      for await (const part of response) text += part;
      resolve({ status: response.statusCode, text });
    });
    sent.end(body);
  });
}

function cpuSeconds(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_S;
}

function peakMemory(pid) {
  return Math.round(Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1_024);
}

function repeat(lineOf, bytes) {
  const lines = [];
  for (let i = 0, length = 0; length < bytes; i++) {
    const line = lineOf(i);
    lines.push(line);
    length += line.length;
  }
  return Buffer.from(lines.join(''));
}

const START = Date.now() - 3_600_000;

function accessLines(bytes) {
  return repeat(
    (i) =>
      `host${i % 10}.example.com 192.0.2.${i % 256} - - ${stamp(START + i)} "GET /path/${i % 1_000}?q=${i} HTTP/1.1" 200 ${i % 5_000} "-" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"\n`,
    bytes,
  );
}

const eventLine = (i) => `{"time":${START + i},"host":"host${i % 10}.example.com"}\n`;

/** Each in a different minute. */
const scatteredEvent = (i) => `{"time":${Date.now() - ((i * 7_919) % 250_000) * 60_000}}\n`;

function attackLines(count, spreadMs, hasDetails = true) {
  const lines = Array.from({ length: count }, (_, i) =>
    JSON.stringify({
      time: START - Math.floor((i * spreadMs) / count),
      host: `host${(i * 7) % 1_000}.example.com`,
      attack: 'sqli',
      ...(hasDetails && {
        source: `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`,
        url: `/path/${i}`,
        rule: `rule-${i}`,
      }),
    }),
  );
  return Buffer.from(`${lines.join('\n')}\n`);
}

function hostLines(count) {
  const time = stamp(START);
  const lines = [];
  for (let i = 0; i < count; i++) lines.push(`h${i}.x 1.1.1.1 - - ${time} "GET / HTTP/1.1" 200 1\n`);
  return Buffer.from(lines.join(''));
}

function stamp(time) {
  const text = new Date(time).toUTCString();
  return `[${text.slice(5, 7)}/${text.slice(8, 11)}/${text.slice(12, 16)}:${text.slice(17, 25)} +0000]`;
}

await main();
