/** The only file that knows the process: arguments, streams, signals, and exit. */
import { setMaxListeners } from 'node:events';
import { readdirSync, writeSync } from 'node:fs';
import { constants, getPriority, setPriority } from 'node:os';
import { runProgram } from './cli/program.ts';
import { keepTickShape } from './cli/tick-shape.ts';
import type { LogStream } from './log-stream.ts';
import { afterRunning } from './running-time.ts';

/** How long the process may take to exit once everything is closed. */
const EXIT_MS_MAX = 500;
/** How long to wait for a reader of the log that does not read. */
const FLUSH_MS_MAX = 1_000;

keepTickShape();

const opened: { log?: LogStream; stderr?: typeof process.stderr } = {};
const stopping = new AbortController();
// Each followed log waits for it. More than ten would look like a leak to Node.js.
setMaxListeners(0, stopping.signal);
// Not `once`: a process group gets a signal from the terminal and another one from its parent.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stopping.abort());

// `wafstat ... | head` closes the pipe early, which is not a failure.
const ignoreClosedPipe = (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
};
process.stdout.on('error', ignoreClosedPipe);

/**
 * process.exit() would wait for the store's thread, which may be waiting for us in the middle of a transaction, and
 * keep the write lock forever. A killed process holds no lock, and the last commit stays.
 */
const killSelf = () => process.kill(process.pid, 'SIGKILL');
process.on('uncaughtException', (error) => {
  try {
    opened.log?.flushSync();
    writeSync(2, `${error.stack}\n`);
  } finally {
    // Even if the log cannot be written.
    killSelf();
  }
});
// A worker without a parent: the cluster module would call process.exit().
process.prependListener('disconnect', killSelf);

void run();

/** A function, because the bundle has CommonJS modules, which cannot wait. */
async function run(): Promise<void> {
  const status = await runProgram(process.argv.slice(2), {
    // Node.js opens these streams when they are first used.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    get stderr() {
      opened.stderr ??= process.stderr.on('error', ignoreClosedPipe);
      return opened.stderr;
    },
    async openLog(isShared) {
      const { LogStream } = await import('./log-stream.ts');
      opened.log ??= new LogStream(2, Date.now, isShared);
      return opened.log;
    },
    env: process.env,
    program: process.argv[1] ?? 'wafstat',
    letQueriesGoFirst,
    now: Date.now,
    stop: stopping.signal,
  });
  const flushed = opened.log?.flush().then(() => true);
  const late = () =>
    new Promise<false>((resolve) => afterRunning(FLUSH_MS_MAX, () => resolve(false)).unref());
  if (flushed && !(await Promise.race([flushed, late()]))) killSelf();
  process.exitCode = status;
  // The channel to the parent would keep a worker alive.
  process.channel?.unref();
  // A write that waits for the lock of a stopped process keeps this process alive, and process.exit() would wait, too.
  afterRunning(EXIT_MS_MAX, () => {
    process.removeAllListeners('SIGTERM');
    process.kill(process.pid, 'SIGTERM');
  }).unref();
}

/**
 * Lowers the priority, because a service on the same machine has clients that wait. While 50,000 events per second came in on
 * two cores, its main thread waited 10 ms in a second for `follow`; with this, it waits 3.
 */
function letQueriesGoFirst(): void {
  const nice = Math.max(getPriority(), constants.priority.PRIORITY_BELOW_NORMAL);
  try {
    // On Linux, every thread has its own priority. Threads that start later inherit that of the main thread.
    const threads = process.platform === 'linux' ? readdirSync('/proc/self/task').map(Number) : [0];
    for (const thread of threads) setPriority(thread, nice);
  } catch {
    // Not allowed, for example in the systemd unit, which has its own setting.
  }
}
