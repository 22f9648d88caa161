/**
 * The speed of ingest, as ratios in one run: an access log against GoAccess and against only finding line ends, and
 * ModSecurity's JSON against only JSON.parse; and a file on two cores against one. Also the disk space per request.
 *
 *   npm run build && node bench/ingest.mjs        (Debian: apt-get install goaccess)
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Enough lines to make the start of Node.js and its compiler negligible. GoAccess reads the same file. */
const LINES = 3_000_000;
const EVENTS = 1_000_000;
const ROUNDS = 3;
const HOSTS = 10;
const REQUESTS_PER_S = 1_000;
const root = fileURLToPath(new URL('..', import.meta.url));
const wafstat = join(root, 'packages/server/bin/wafstat.js');

async function main() {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-'));
  try {
    const log = join(directory, 'access.log');
    writeAccessLog(log);
    execFileSync(wafstat, ['init', '--data', join(directory, 'data'), '--json']);
    const runs = { 'line ends alone': [], goaccess: [], wafstat: [], 'wafstat, one core': [] };
    // Interleaved, so that other load on the machine affects all alike.
    for (let round = 0; round < ROUNDS; round++) {
      runs['line ends alone'].push(time('node', ['-e', COUNT_LINE_ENDS, log]));
      runs.goaccess.push(
        time('goaccess', [log, '--log-format=VCOMBINED', '--no-progress', '-o', join(directory, 'out.json')]),
      );
      const ingest = (name) => {
        const where = [
          '--data',
          join(directory, 'data'),
          '--project',
          'default',
          '--source',
          `${name} ${round}`,
        ];
        return [wafstat, 'ingest', ...where, log];
      };
      const accepted = new RegExp(`^accepted +${LINES}$`, 'm');
      const [program, ...args] = ingest('all cores');
      runs.wafstat.push(time(program, args, accepted));
      runs['wafstat, one core'].push(time('taskset', ['-c', '0', ...ingest('one core')], accepted));
    }
    const speed = (name) => LINES / Math.min(...runs[name]);
    console.log(
      `access log, ${LINES.toLocaleString('en')} lines, lines per second of processor time (best of ${ROUNDS}; all runs):`,
    );
    for (const [name, seconds] of Object.entries(runs)) {
      const all = seconds.map((s) => Math.round(LINES / s).toLocaleString('en')).join(', ');
      console.log(
        `  ${name.padEnd(17)} ${Math.round(speed(name)).toLocaleString('en').padStart(10)}   (${all})`,
      );
    }
    console.log(`  one core, millions          ${(speed('wafstat, one core') / 1e6).toFixed(2)}   goal: 1.2`);
    console.log(
      `  wafstat / goaccess          ${(speed('wafstat') / speed('goaccess')).toFixed(1)}   goal: 10`,
    );
    console.log(`  wafstat / line ends alone   ${(speed('wafstat') / speed('line ends alone')).toFixed(3)}`);
    await measureCores(directory, log);
    const disk = diskPerRequest(directory);
    console.log(`disk per request, ${REQUESTS_PER_S} a second on ${HOSTS} hosts: ${disk} bytes   goal: 4`);
    process.stdout.write(execFileSync('node', [fileURLToPath(import.meta.url), 'json']));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** Ingests events, because they have milliseconds, which the common log format lacks. */
function diskPerRequest(directory) {
  const [events, data] = [join(directory, 'events.ndjson'), join(directory, 'disk')];
  const start = Date.now() - (EVENTS / REQUESTS_PER_S) * 1_000 - 60_000;
  writeFileSync(events, '');
  for (let line = 0; line < EVENTS; line += 10_000) {
    let text = '';
    for (let i = 0; i < 10_000; i++) {
      const time = Math.floor(start + line + i + Math.random() * 1_000);
      text += `{"time":${time},"host":"www${Math.floor(Math.random() * HOSTS)}.example.com"}\n`;
    }
    appendFileSync(events, text);
  }
  execFileSync('node', [wafstat, 'init', '--data', data, '--json']);
  execFileSync('node', [wafstat, 'ingest', '--data', data, '--project', 'default', events]);
  return (statSync(join(data, 'statistics.mdb')).size / EVENTS).toFixed(2);
}

/** Seconds of CPU time of all threads, including the start of the program: hardly affected by other load. */
function time(command, args, wanted = /^/) {
  const timed = spawnSync('bash', ['-c', 'TIMEFORMAT="%U %S"; time "$@"', 'bash', command, ...args]);
  if (timed.status !== 0 || !wanted.test(timed.stdout)) throw new Error(`${command} failed: ${timed.stderr}`);
  const [user, system] = timed.stderr.toString().trim().split('\n').at(-1).split(' ').map(Number);
  return user + system;
}

const COUNT_LINE_ENDS = `
  const fs = require('node:fs');
  const file = fs.openSync(process.argv[1]), buffer = Buffer.allocUnsafe(1 << 20);
  let lines = 0;
  for (let n; (n = fs.readSync(file, buffer)) > 0; ) {
    for (let at = buffer.indexOf(10); at !== -1 && at < n; at = buffer.indexOf(10, at + 1)) lines++;
  }
  if (lines !== ${LINES}) process.exit(1);`;

function writeAccessLog(path) {
  const start = Date.now() - (LINES / REQUESTS_PER_S) * 1_000 - 60_000;
  const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
  writeFileSync(path, '');
  for (let line = 0; line < LINES; ) {
    let text = '';
    for (let i = 0; i < 10_000 && line < LINES; i++, line++) {
      const at = new Date(start + (line / REQUESTS_PER_S) * 1_000);
      const [date, clock] = at.toISOString().split(/[T.]/);
      const [year, month, day] = date.split('-');
      const stamp = `${day}/${months[month - 1]}/${year}:${clock} +0000`;
      const agent = 'Mozilla/5.0 (X11; Linux x86_64; rv:138.0) Gecko/20100101 Firefox/138.0';
      text +=
        `www${line % HOSTS}.example.com:443 203.0.113.${line % 250} - - [${stamp}] "GET /products/${line}?page=${line % 7} HTTP/1.1" ` +
        `200 ${1_000 + (line % 5_000)} "https://www${line % HOSTS}.example.com/" "${agent}"\n`;
    }
    appendFileSync(path, text);
  }
}

/** Parses the same records of a real engine with JSON.parse only, and with the reader. */
async function measureJson() {
  const { createReader } = await import(join(root, 'packages/server/dist/ingest/reader.js'));
  const fixture = join(root, 'packages/server/fixtures/modsecurity3-json.log');
  const records = readFileSync(fixture, 'utf8').split('\n').filter(Boolean);
  // Unique IDs, because the reader counts a transaction once; like those of the engine, because they have the time.
  const lines = Array.from({ length: 100_000 }, (_, i) =>
    records[i % records.length].replace(
      /("unique_id":"\d+\.)\d{6}/,
      (_all, head) => head + String(i).padStart(6, '0'),
    ),
  );
  const best = { parse: Number.POSITIVE_INFINITY, read: Number.POSITIVE_INFINITY };
  const cpuTime = () => Object.values(process.cpuUsage()).reduce((sum, each) => sum + each);
  for (let round = 0; round < 5; round++) {
    let before = cpuTime();
    for (const line of lines) JSON.parse(line);
    best.parse = Math.min(best.parse, cpuTime() - before);
    const reader = createReader({ format: 'auto' });
    before = cpuTime();
    for (const line of lines) reader.read(line, 0);
    best.read = Math.min(best.read, cpuTime() - before);
  }
  console.log(
    `ModSecurity 3 JSON, reader / JSON.parse alone: ${(best.parse / best.read).toFixed(2)}   goal: 0.5`,
  );
}

/**
 * A file on two cores against one, by the clock, so only an idle machine gives a meaningful result. Two runs at once, on
 * one core each, show what the machine can gain at most: it may have hyperthreads instead of cores.
 */
async function measureCores(directory, log) {
  const data = join(directory, 'cores');
  const large = join(directory, 'large.log');
  for (let copy = 0; copy < 3; copy++) appendFileSync(large, readFileSync(log));
  execFileSync(wafstat, ['init', '--data', data, '--json']);
  let sources = 0;
  const ingest = async (cores) => {
    const where = ['--data', data, '--project', 'default', '--source', `run ${++sources}`];
    const started = spawn('taskset', ['-c', cores, wafstat, 'ingest', ...where, large], { stdio: 'ignore' });
    const [status] = await once(started, 'exit');
    if (status !== 0) throw new Error(`wafstat on cores ${cores} failed`);
  };
  const clock = async (...runs) => {
    const before = performance.now();
    await Promise.all(runs.map(ingest));
    return (performance.now() - before) / 1_000;
  };
  const seconds = { one: [], two: [], atOnce: [] };
  for (let round = 0; round < ROUNDS; round++) {
    seconds.one.push(await clock('0'));
    seconds.two.push(await clock('0,1'));
    seconds.atOnce.push(await clock('0', '1'));
  }
  rmSync(large);
  const best = (name) => Math.min(...seconds[name]);
  const all = Object.values(seconds).map((runs) => runs.map((s) => s.toFixed(1)).join(' '));
  console.log(
    `access log, ${(3 * LINES).toLocaleString('en')} lines, two cores / one core: ` +
      `${(best('one') / best('two')).toFixed(2)}   goal: 1.7; two runs at once: ${((2 * best('one')) / best('atOnce')).toFixed(2)}` +
      `   (seconds: ${all.join('; ')}; load ${loadavg()[0].toFixed(1)})`,
  );
}

if (process.argv[2] === 'json') await measureJson();
else await main();
