/**
 * Whether the memory of the service levels off: pushes and queries of many kinds, for ten minutes unless stated otherwise.
 *
 *   node soak.mjs [MINUTES] [WAFSTAT]     WAFSTAT: bin/wafstat.js of another build to compare with
 *
 * Prints the memory of the process every half minute, after a garbage collection. `mapped` are pages of files: the program and
 * the data file, which grows and which the kernel can reclaim. Creates its own data.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { wafstat } from './paths.mjs';

const REPORT_MS = 30_000;
const LINES_PER_PUSH = 2_000;
const HOSTS = 200;
const ATTACKS = ['xss', 'sqli', 'cmdi', 'lfi', 'webshell', 'robot'];
const PASSWORD = 'correct horse battery staple';

/** Runs in the service, and prints what it uses when it gets a signal. */
const REPORTER = `
  import { setFlagsFromString } from 'node:v8';
  import { runInNewContext } from 'node:vm';
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  process.on('SIGUSR2', () => {
    collect();
    console.log('MEMORY ' + JSON.stringify(process.memoryUsage()));
  });
`;

const [minutes = '10', program = wafstat] = process.argv.slice(2);
const directory = mkdtempSync(join(tmpdir(), 'wafstat-soak-'));
const data = join(directory, 'data');
const created = execFileSync(program, ['init', '--data', data, '--password-stdin', '--json'], {
  input: PASSWORD,
});
const { project_id: project } = JSON.parse(created);
const reporter = `data:text/javascript,${encodeURIComponent(REPORTER)}`;
const options = ['serve', '--data', data, '--listen', '127.0.0.1:0'];
const service = spawn(process.execPath, ['--import', reporter, program, ...options], {
  stdio: ['ignore', 'pipe', 'ignore'],
});
try {
  await soak(Number(minutes) * 60_000);
} finally {
  service.kill();
  await once(service, 'exit');
  rmSync(directory, { recursive: true });
}

async function soak(durationMs) {
  const output = createInterface({ input: service.stdout });
  const [line] = await once(output, 'line');
  const url = /http:\S+/.exec(line)?.[0];
  const user = { name: 'admin', password: PASSWORD, domain: { name: 'default' } };
  const identity = { methods: ['password'], password: { user } };
  const login = await fetch(`${url}/v3/auth/tokens`, {
    method: 'POST',
    body: JSON.stringify({ auth: { identity, scope: { project: { id: project } } } }),
  });
  const headers = { 'X-Auth-Token': login.headers.get('X-Subject-Token') };
  const end = Date.now() + durationMs;
  const counts = { pushes: 0, queries: 0, failures: 0 };

  async function send(path, init = {}) {
    const response = await fetch(`${url}${path}`, { ...init, headers: { ...headers, ...init.headers } });
    const text = await response.text();
    if (!response.ok && counts.failures++ === 0) console.error(`${path}: ${response.status} ${text}`);
  }

  async function pushAll() {
    for (let n = 0; Date.now() < end; n++) {
      const body = gzipSync(
        Array.from({ length: LINES_PER_PUSH }, () => `${JSON.stringify(event())}\n`).join(''),
      );
      const key = { 'Content-Encoding': 'gzip', 'Idempotency-Key': `soak-${n}` };
      await send(`/ingest/v1/${project}?source=source-${n % 50}`, { method: 'POST', headers: key, body });
      counts.pushes++;
      await sleep(200);
    }
  }

  async function queryAll() {
    while (Date.now() < end) {
      const to = Date.now();
      const from =
        to - pick([60_000, 3_600_000, 86_400_000, 7 * 86_400_000]) - Math.floor(Math.random() * 1_000);
      const path = pick([
        'event/timeline',
        'event/attack/type',
        'event/request/peak',
        'overviews/statistics',
        'instance',
      ]);
      await send(`/v1/${project}/waf/${path}?from=${from}&to=${to}`);
      counts.queries++;
      await sleep(20);
    }
  }

  async function report() {
    const start = Date.now();
    console.log(
      ['minutes', 'own', 'mapped', 'heap', 'external', 'buffers', 'pushes', 'queries', 'failed']
        .map(cell)
        .join(''),
    );
    while (Date.now() < end) {
      await sleep(REPORT_MS);
      service.kill('SIGUSR2');
      const usage = await memoryLine(output);
      const sizes = [
        residentBytes('RssAnon'),
        residentBytes('RssFile'),
        usage.heapUsed,
        usage.external,
        usage.arrayBuffers,
      ];
      const megabytes = sizes.map((bytes) => (bytes / 1e6).toFixed(1));
      const elapsed = ((Date.now() - start) / 60_000).toFixed(1);
      console.log([elapsed, ...megabytes, counts.pushes, counts.queries, counts.failures].map(cell).join(''));
    }
  }

  await Promise.all([pushAll(), queryAll(), queryAll(), report()]);
}

function residentBytes(kind) {
  const status = readFileSync(`/proc/${service.pid}/status`, 'utf8');
  return Number(new RegExp(`${kind}:\\s+(\\d+)`).exec(status)?.[1]) * 1_024;
}

async function memoryLine(output) {
  for (;;) {
    const [line] = await once(output, 'line');
    if (line.startsWith('MEMORY ')) return JSON.parse(line.slice('MEMORY '.length));
  }
}

function event() {
  const number = Math.floor(Math.random() * HOSTS);
  const time = Date.now() - Math.floor(Math.random() * 3_600_000);
  const request = { time, host: `host-${number}.example.com` };
  if (Math.random() < 0.8) return request;
  const source = `198.51.${Math.floor(Math.random() * 256)}.${Math.floor(Math.random() * 256)}`;
  return {
    ...request,
    attack: pick(ATTACKS),
    source,
    url: `/page/${Math.floor(Math.random() * 5_000)}`,
    country: 'DE',
  };
}

function pick(values) {
  return values[Math.floor(Math.random() * values.length)];
}

function cell(value) {
  return String(value).padStart(10);
}
