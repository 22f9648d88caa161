/** Several processes behind one port. */
import cluster, { type Worker } from 'node:cluster';
import { type Io, printLine } from './command.ts';

/** A worker that dies is replaced, but not in a busy loop when it cannot live at all. */
const RESTART_MS = 1_000;

export async function runWorkers(count: number, io: Io): Promise<number> {
  const ready = new Set<number>();
  let announced = false;
  let status = 0;
  await new Promise<void>((resolve) => {
    let stopped = false;
    /** Tells each worker once: a second signal must not cut off what it is answering. */
    function stop(): void {
      const running = Object.values(cluster.workers ?? {});
      if (!stopped) for (const worker of running) worker?.process.kill('SIGTERM');
      stopped = true;
      if (running.length === 0) resolve();
    }
    cluster.on('message', (worker: Worker, { address }: { address: string }) => {
      ready.add(worker.id);
      if (announced || ready.size < count) return;
      announced = true;
      printListening(io, address);
    });
    cluster.on('exit', (worker: Worker, code: number | null, signal: string | null) => {
      if (io.stop.aborted || !announced) {
        // One that cannot even start says why on standard error; the others would not fare better.
        if (code !== 0) status = 1;
        stop();
      } else {
        const end = signal === null ? `with status ${code}` : `by ${signal}`;
        const msg = `worker ${worker.process.pid} ended ${end}; another takes its place`;
        // In the form of the log, among whose lines it stands.
        printLine(io.stderr, JSON.stringify({ level: 40, time: io.now(), msg }));
        setTimeout(() => io.stop.aborted || cluster.fork(), RESTART_MS);
      }
    });
    io.stop.addEventListener('abort', stop, { once: true });
    for (let i = 0; i < count; i++) cluster.fork();
  });
  return status;
}

/** Scripts wait for this line. */
export function printListening(io: Io, address: string): void {
  printLine(io.stdout, `wafstat listens on ${address}`);
}
