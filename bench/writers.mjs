/**
 * Many writers on one PostgreSQL: commits per second and how long one takes, in live mode.
 *
 *   node bench/writers.mjs [seconds]
 */
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { server } from './paths.mjs';
import { start as startPostgres, storeOptions } from './postgres-server.mjs';

const { postgresStore } = await import(join(server, 'dist/store/postgres/postgres.js'));
const EVENTS = 100;
const HOSTS = 10;
/** Processes start at the same time, and their code is slow at first. */
const WARM_UP_MS = 4_000;
const GOALS = { commits: 100, p99: 1_000 };

if (process.send) process.on('message', (job) => write(job).then((result) => process.send(result)));
else await measure(Number(process.argv[2] ?? 10));

async function measure(seconds) {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-writers-'));
  const postgres = await startPostgres(directory);
  const rows = {};
  try {
    // Creates the tables.
    const first = postgresStore(storeOptions(postgres.url));
    await first.check('queries');
    await first.close();
    for (const [name, processes, projects] of [
      ['16 writers, one project', 16, 1],
      ['1 process, one project', 1, 1],
      ['8 processes, one project', 8, 1],
      ['8 processes, 8 projects', 8, 8],
    ]) {
      const jobs = Array.from({ length: processes }, (_, i) => ({
        url: postgres.url,
        project: `${name} ${i % projects}`,
        writer: i,
        seconds,
      }));
      const results = await Promise.all(jobs.map(runJob));
      const times = results.flatMap(({ times }) => times).sort((a, b) => a - b);
      const at = (share) => Number(times[Math.floor((times.length - 1) * share)].toFixed(1));
      rows[name] = { 'commits/s': Math.round(times.length / seconds), 'p50 ms': at(0.5), 'p99 ms': at(0.99) };
      console.error(name, rows[name]);
    }
    console.table(rows);
    const speed = (name) => rows[name]['commits/s'];
    const crowd = rows['16 writers, one project'];
    console.table([
      { what: '16 writers, commits/s', goal: GOALS.commits, measured: crowd['commits/s'] },
      { what: '16 writers, p99 ms', goal: GOALS.p99, measured: crowd['p99 ms'] },
      ...['8 processes, one project', '8 processes, 8 projects'].map((name) => ({
        what: `${name} / 1 process`,
        goal: 2,
        measured: Number((speed(name) / speed('1 process, one project')).toFixed(2)),
      })),
    ]);
  } finally {
    await postgres.stop();
    rmSync(directory, { recursive: true });
  }
}

function runJob(job) {
  const child = fork(import.meta.filename);
  return new Promise((resolve, reject) => {
    child.once('message', (result) => {
      child.kill();
      resolve(result);
    });
    child.once('error', reject);
    child.send(job);
  });
}

/** One append after the other, each with events of the current second, as a log shipper sends them. */
async function write({ project, writer, seconds, url }) {
  const store = postgresStore(storeOptions(url));
  const hostnames = Array.from({ length: HOSTS }, (_, i) => `www${i}.example.com`);
  const hostIds = await store.resolveHosts({ project, hostnames, limit: HOSTS });
  const append = (i) => {
    const now = Date.now();
    const events = Array.from({ length: EVENTS }, (_, n) => ({
      time: now - ((n * 7) % 1_000),
      hostId: hostIds[n % HOSTS],
      request: true,
      attack: n % 33 === 0 ? 'xss' : null,
      count: 1,
    }));
    const source = { name: `writer ${writer}`, format: 'events' };
    return store.append({ project, source, id: `${i}`, events, dropped: {} });
  };
  const times = [];
  const start = performance.now() + WARM_UP_MS;
  const end = start + seconds * 1_000;
  for (let i = 0; performance.now() < end; i++) {
    const began = performance.now();
    await append(i);
    if (began >= start) times.push(performance.now() - began);
  }
  await store.close();
  return { times };
}
