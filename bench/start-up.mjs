/**
 * How long commands take to start, in milliseconds of processor time and of the clock (the least of several runs, because
 * other processes can only add to it). NODE_EXTRA_CA_CERTS would add 40 ms to every start of Node.js.
 *
 *   node bench/start-up.mjs [runs]
 */
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { wafstat } from './paths.mjs';

const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
const runs = Number(process.argv[2] ?? 20);
const data = mkdtempSync(join(tmpdir(), 'wafstat-start-up-'));
const service = createServer((_request, response) => response.end('{"total":0,"items":[]}'));
await new Promise((resolve) => service.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${service.address().port}`;
const project = '0'.repeat(32);

/** By name: the arguments of Node.js, the goal in milliseconds, and the output that ends the measurement. */
const COMMANDS = {
  'node, an empty module': { args: ['--input-type=module', '--eval', ''] },
  'wafstat --version': { args: [wafstat, '--version'], goal: 60 },
  'wafstat hosts': {
    args: [wafstat, 'hosts', '--url', url, '--project', project, '--token', 'x'],
    goal: 150,
  },
  'wafstat serve': {
    args: [wafstat, 'serve', '--data', data, '--listen', '127.0.0.1:0'],
    goal: 250,
    until: 'wafstat listens on',
  },
};

try {
  await measure({ args: [wafstat, 'init', '--data', data] });
  const best = Object.fromEntries(
    Object.keys(COMMANDS).map((name) => [name, { cpu: Infinity, clock: Infinity }]),
  );
  for (let run = 0; run < runs; run++) {
    for (const [name, command] of Object.entries(COMMANDS)) {
      const { cpu, clock } = await measure(command);
      best[name] = { cpu: Math.min(cpu, best[name].cpu), clock: Math.min(clock, best[name].clock) };
    }
  }
  console.log(`start-up, ms, best of ${runs}`.padEnd(30), '  cpu', 'clock', ' goal');
  for (const [name, { cpu, clock }] of Object.entries(best)) {
    const columns = [cpu.toFixed(0), clock.toFixed(0), COMMANDS[name].goal ?? ''];
    console.log(name.padEnd(30), ...columns.map((column) => String(column).padStart(5)));
  }
} finally {
  service.close();
  rmSync(data, { recursive: true });
}

/** Until the output appears, or until the end of the process. */
function measure({ args, until }) {
  return until === undefined ? measureEnd(args) : measureOutput(args, until);
}

/** bash measures: Node.js does not return that of its children. */
async function measureEnd(args) {
  const script = 'TIMEFORMAT="%R %U %S"; time "$@"';
  const { stderr } = await promisify(execFile)('bash', ['-c', script, 'bash', process.execPath, ...args], {
    env,
  });
  const [clock, user, system] = stderr
    .trim()
    .split(' ')
    .map((text) => 1_000 * Number(text));
  return { cpu: user + system, clock };
}

async function measureOutput(args, until) {
  const started = performance.now();
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'ignore'] });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  let output = '';
  for await (const text of child.stdout) {
    output += text;
    if (output.includes(until)) break;
  }
  const measured = { cpu: threadTimes(child.pid), clock: performance.now() - started };
  child.kill('SIGTERM');
  await exited;
  return measured;
}

/** Processor time of the threads of a process in milliseconds, more precise than /proc/PID/stat. */
function threadTimes(pid) {
  const threads = readdirSync(`/proc/${pid}/task`);
  const ns = threads.map((id) =>
    Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ')[0]),
  );
  return ns.reduce((sum, each) => sum + each, 0) / 1e6;
}
