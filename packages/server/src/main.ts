/** The only file that knows the process: what it was called with, how it is told to stop, how it ends. */
import { runProgram } from './cli/program.ts';

const stopping = new AbortController();
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => stopping.abort());

// `wafstat ... | head` ends the pipe before we do; that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

process.exitCode = await runProgram(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  now: Date.now,
  stop: stopping.signal,
});
// A worker's channel to its parent would keep it alive.
if (process.connected) process.disconnect();
