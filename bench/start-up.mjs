/**
 * How long commands take to start, in milliseconds of processor time and of the clock (the fastest of several runs,
 * because other processes can only slow a start down). NODE_EXTRA_CA_CERTS would add 40 ms to every start of Node.js.
 *
 *   node bench/start-up.mjs [runs]
 */
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { wafstat } from './paths.mjs';

const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;

/** Returns `{command: {cpu, clock, goal}}` in milliseconds. */
export async function measureStartUp(runs) {
  const data = mkdtempSync(join(tmpdir(), 'wafstat-start-up-'));
  const service = createServer((_request, response) => response.end('{"total":0,"items":[]}'));
  await new Promise((resolve) => service.listen(0, '127.0.0.1', resolve));
  try {
    await measure({ args: [wafstat, 'init', '--data', data] });
    const commands = commandsOf(data, `http://127.0.0.1:${service.address().port}`);
    const best = Object.fromEntries(
      Object.entries(commands).map(([name, { goal }]) => [name, { cpu: Infinity, clock: Infinity, goal }]),
    );
    for (let run = 0; run < runs; run++) {
      for (const [name, command] of Object.entries(commands)) {
        const { cpu, clock } = await measure(command);
        best[name].cpu = Math.min(cpu, best[name].cpu);
        best[name].clock = Math.min(clock, best[name].clock);
      }
    }
    return best;
  } finally {
    service.close();
    rmSync(data, { recursive: true });
  }
}

export function startUpTable(startUp) {
  const lines = Object.entries(startUp).map(([name, { cpu, clock, goal = '' }]) => {
    return `| ${name} | ${cpu.toFixed(0)} | ${clock.toFixed(0)} | ${goal} |`;
  });
  return ['| start-up, ms | processor | clock | goal |', '|---|---|---|---|', ...lines].join('\n');
}

/** By name: the arguments of Node.js, the goal in milliseconds, and the output that ends the measurement. */
function commandsOf(data, url) {
  const client = ['--url', url, '--project', '0'.repeat(32), '--token', 'x'];
  return {
    'node, an empty module': { args: ['--input-type=module', '--eval', ''] },
    'wafstat --version': { args: [wafstat, '--version'], goal: 60 },
    'wafstat hosts': { args: [wafstat, 'hosts', ...client], goal: 150 },
    'wafstat serve': {
      args: [wafstat, 'serve', '--data', data, '--listen', '127.0.0.1:0'],
      goal: 250,
      until: 'wafstat listens on',
    },
  };
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

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(startUpTable(await measureStartUp(Number(process.argv[2] ?? 20))));
}
