/** Runs the servers: each is a process that prints its address. */
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';

const LISTENS = /listens on (http:\/\/\S+)/;
/** The kernel's unit of CPU time (USER_HZ): 100 per second on every Linux. */
const TICK_MS = 10;

export class Processes {
  #started = [];

  /** Starts a program of the benchmark. */
  startScript(script, args, input) {
    return this.start(process.execPath, [script, ...args], { input });
  }

  /** Resolves when the process listens. `log`: the file for its standard error. */
  start(program, args, { input = '', log } = {}) {
    const stderr = log === undefined ? 'inherit' : openSync(log, 'w');
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', stderr] });
    if (log !== undefined) closeSync(stderr);
    const ended = new Promise((resolve) => child.once('exit', resolve));
    const stop = () => {
      child.kill('SIGTERM');
      return ended;
    };
    const server = { pid: child.pid, address: '', stop };
    this.#started.push(server);
    child.stdin.on('error', () => {}).end(input);
    return new Promise((resolve, reject) => {
      let output = '';
      child.stdout.on('data', (text) => {
        output += text;
        const match = LISTENS.exec(output);
        if (match) resolve(Object.assign(server, { address: match[1] }));
      });
      ended.then((status) =>
        reject(new Error(`${program} ${args.join(' ').slice(0, 200)} ended with status ${status}`)),
      );
    });
  }

  async stop() {
    await Promise.all(this.#started.map((server) => server.stop()));
  }
}

/** CPU time that a process and its children have used so far, in milliseconds. */
export function processorTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  const own = (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  return children.reduce((sum, child) => sum + processorTime(child), own);
}

/** Resident memory in MB, without the mapped data files: they are in the kernel's page cache, which it can reclaim. */
export function ownMemory(pid) {
  let kb = 0;
  let mapped = false;
  for (const line of readFileSync(`/proc/${pid}/smaps`, 'utf8').split('\n')) {
    if (/^[0-9a-f]+-[0-9a-f]+ /.test(line)) mapped = line.endsWith('.mdb');
    else if (!mapped && line.startsWith('Rss:')) kb += Number.parseInt(line.slice(4), 10);
  }
  return kb / 1_024;
}
