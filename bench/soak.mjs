/**
 * Whether the memory of the service levels off, and whether everything is counted once: pushes that are repeated, a followed log
 * that is rotated, queries of many kinds and retention, for ten minutes unless stated otherwise.
 *
 *   node soak.mjs [MINUTES] [WAFSTAT]     WAFSTAT: bin/wafstat.js of another build to compare with
 *
 * Prints the memory of the process every half minute, after a garbage collection. `mapped` are pages of files: the program and
 * the data file, which grows and which the kernel can reclaim. The last lines compare the totals. Creates its own data.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { wafstat } from './paths.mjs';

const REPORT_MS = 30_000;
const LINES_PER_PUSH = 2_000;
/** Every tenth push is sent twice. */
const REPEATED = 10;
const LINES_PER_WRITE = 20;
const WRITE_MS = 100;
const ROTATE_MS = 20_000;
const KEPT_FILES = 40;
/** `follow` is killed and started again. */
const KILL_MS = 90_000;
/** How long the totals may take to be right at the end: longer than `follow` waits for the last lines of a rotated file. */
const SETTLE_MS_MAX = 180_000;
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
const options = ['serve', '--data', data, '--listen', '127.0.0.1:0', '--details-retention', '1h'];
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
  const counts = { pushes: 0, pushed: 0, written: 0, rotations: 0, kills: 0, queries: 0, failures: 0 };

  async function send(path, init = {}) {
    const response = await fetch(`${url}${path}`, { ...init, headers: { ...headers, ...init.headers } });
    const text = await response.text();
    if (response.ok) return text;
    if (counts.failures++ === 0) console.error(`${path}: ${response.status} ${text}`);
    return null;
  }

  /** On a busy machine, the service refuses some requests. */
  async function sendUntilAccepted(path, init) {
    for (;;) {
      const text = await send(path, init);
      if (text !== null) return text;
      await sleep(1_000);
    }
  }

  async function pushAll() {
    for (let n = 0; Date.now() < end; n++) {
      const body = gzipSync(
        Array.from({ length: LINES_PER_PUSH }, () => `${JSON.stringify(event())}\n`).join(''),
      );
      const key = { 'Content-Encoding': 'gzip', 'Idempotency-Key': `soak-${n}` };
      for (let attempt = n % REPEATED === 0 ? 2 : 1; attempt > 0; attempt--)
        await sendUntilAccepted(`/ingest/v1/${project}?source=source-${n % 50}`, {
          method: 'POST',
          headers: key,
          body,
        });
      counts.pushes++;
      counts.pushed += LINES_PER_PUSH;
      await sleep(200);
    }
  }

  const log = join(directory, 'log', 'access.log');
  const followOptions = ['follow', '--data', data, '--project', project, '--source', 'followed', log];
  const startFollow = () => spawn(program, followOptions, { stdio: ['ignore', 'ignore', 'inherit'] });

  function writeSome() {
    appendFileSync(
      log,
      Array.from({ length: LINES_PER_WRITE }, () => `${JSON.stringify(event())}\n`).join(''),
    );
    counts.written += LINES_PER_WRITE;
  }

  async function writeAll() {
    mkdirSync(join(directory, 'log'));
    writeFileSync(log, '');
    let follow = startFollow();
    writeSome();
    // Files that are rotated before the first look are older than the followed log.
    while ((await totals()).followed === 0) await sleep(WRITE_MS);
    let [rotatedAt, killedAt] = [Date.now(), Date.now()];
    while (Date.now() < end) {
      writeSome();
      if (Date.now() - rotatedAt > ROTATE_MS) {
        rotate(log);
        counts.rotations++;
        rotatedAt = Date.now();
      }
      if (Date.now() - killedAt > KILL_MS) {
        await ended(follow, 'SIGKILL');
        counts.kills++;
        follow = startFollow();
        killedAt = Date.now();
      }
      await sleep(WRITE_MS);
    }
    const isCounted = async () => (await totals()).followed >= counts.written;
    for (const last = Date.now() + SETTLE_MS_MAX; Date.now() < last && !(await isCounted()); )
      await sleep(1_000);
    await ended(follow, 'SIGTERM');
  }

  /** Records of all pushes, and of the followed log. */
  async function totals() {
    const { items } = JSON.parse(await sendUntilAccepted(`/v1/${project}/connections?limit=100`));
    const sum = (sources) => sources.reduce((total, { events }) => total + events, 0);
    const isFollowed = ({ name }) => name === 'followed';
    return {
      pushed: sum(items.filter((item) => !isFollowed(item))),
      followed: sum(items.filter(isFollowed)),
      dropped: items.reduce((all, { dropped }) => all + Object.keys(dropped).length, 0),
    };
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

  await Promise.all([pushAll(), writeAll(), queryAll(), queryAll(), report()]);
  const { pushed, followed, dropped } = await totals();
  console.log(
    `${counts.rotations} rotations and ${counts.kills} kills of follow, ${Math.ceil(counts.pushes / REPEATED)} pushes repeated`,
  );
  console.log(`pushed ${counts.pushed} events, counted ${pushed}`);
  console.log(`written ${counts.written} lines, counted ${followed}; ${dropped} reasons of dropped lines`);
  const isRight = pushed === counts.pushed && followed === counts.written && dropped === 0;
  process.exitCode = isRight ? 0 : 1;
}

/** As logrotate does it with `delaycompress`. */
function rotate(log) {
  for (let n = KEPT_FILES; n > 0; n--) {
    const [from, to] = n === 1 ? [log, `${log}.1`] : [`${log}.${n - 1}`, `${log}.${n}`];
    if (existsSync(`${from}.gz`)) renameSync(`${from}.gz`, `${to}.gz`);
    if (existsSync(from)) renameSync(from, to);
  }
  writeFileSync(log, '');
  if (!existsSync(`${log}.2`)) return;
  const { atime, mtime } = statSync(`${log}.2`);
  writeFileSync(`${log}.2.gz`, gzipSync(readFileSync(`${log}.2`)));
  utimesSync(`${log}.2.gz`, atime, mtime);
  rmSync(`${log}.2`);
}

async function ended(child, signal) {
  const exit = once(child, 'exit');
  child.kill(signal);
  await exit;
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
