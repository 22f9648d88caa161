/** The only file that knows the process: what it was called with, how it is told to stop, how it ends. */
import cluster from 'node:cluster';
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { runProgram } from './cli/program.ts';
import { LogStream } from './log-stream.ts';

/** How long the process may take to end once everything is closed. */
const LAST_MS_MAX = 500;

const log = new LogStream(2, Date.now, cluster.isWorker);
const stopping = new AbortController();
// Each time anew: a process group gets a signal from the terminal and another one from its parent.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stopping.abort());

// `wafstat ... | head` ends the pipe before we do; that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

/**
 * process.exit() would wait for the store's thread, which may be waiting for us in the middle of a transaction, and
 * keep the lock for ever. A process that is killed holds no lock, and leaves the last commit.
 */
const dieAtOnce = () => process.kill(process.pid, 'SIGKILL');
process.on('uncaughtException', (error) => {
  try {
    log.flushSync();
    writeSync(2, `${error.stack}\n`);
  } finally {
    // Also when the log cannot be written.
    dieAtOnce();
  }
});
// A worker whose parent has gone; the cluster module would call process.exit().
process.prependListener('disconnect', dieAtOnce);

const status = await runProgram(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  log,
  env: process.env,
  now: Date.now,
  stop: stopping.signal,
});
// A reader of the log that hangs must not keep the process: after a second its lines are given up.
const flushed = log.flush().then(() => true);
if (!(await Promise.race([flushed, sleep(1_000, false, { ref: false })]))) dieAtOnce();
process.exitCode = status;
// A worker's channel to its parent would keep it alive.
process.channel?.unref();
// A change that waits for the write lock of a stopped process keeps the process alive, and process.exit() would wait too.
setTimeout(() => {
  process.removeAllListeners('SIGTERM');
  process.kill(process.pid, 'SIGTERM');
}, LAST_MS_MAX).unref();
