/** Several processes behind one port: the primary starts them, replaces those that end or hang, and stops them. */
import cluster, { type Worker } from 'node:cluster';
import { type Io, printLine } from './command.ts';

/** A worker that ends is replaced, but not in a busy loop when it cannot start at all. */
const RESTART_MS = 1_000;
const HEARTBEAT_MS = 1_000;
/** A worker that sends no heartbeat for this long is killed and replaced. No request blocks the event loop as long. */
const HUNG_MS = 10_000;
/** Opening a large store on a slow disk takes seconds. */
const START_MS_MAX = 120_000;
/** The time that a worker has to stop, in addition to draining. */
const STOP_MS_MAX = 10_000;
/** How long a worker waits for the others to close their listeners. */
const OTHERS_MS_MAX = 1_000;

/** What a worker tells the primary. */
type FromWorker = { kind: 'ready'; address: string } | { kind: 'heartbeat' } | { kind: 'listener closed' };
/** What the primary tells its workers: no listener is open any more. */
interface AllListenersClosed {
  kind: 'all listeners closed';
}

export async function runWorkers(count: number, drainDelayMs: number, io: Io): Promise<number> {
  const ready = new Set<number>();
  const closed = new Set<number>();
  const heartbeats = new Map<number, number>();
  let announced = false;
  let status = 0;
  const running = () => Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined);
  // In the form of the log, among whose lines it stands.
  const warn = (msg: string) => printLine(io.stderr, JSON.stringify({ level: 40, time: io.now(), msg }));
  const start = () => {
    const worker = cluster.fork();
    heartbeats.set(worker.id, performance.now());
  };
  /** Only then do connections end, because clients that reconnect must not find a listener that is about to close. */
  const tellWhenAllClosed = () => {
    const message: AllListenersClosed = { kind: 'all listeners closed' };
    if (!running().every(({ id }) => closed.has(id))) return;
    // A worker may have ended meanwhile, which is no error.
    for (const worker of running()) if (worker.isConnected()) worker.send(message, () => {});
  };

  const stopWatching = watchHeartbeats(running, heartbeats, ready, warn);
  await new Promise<void>((resolve) => {
    let stopped = false;
    /** Signals each worker once: a second signal must not cut off what it is serving. */
    function stop(): void {
      if (!stopped) {
        for (const worker of running()) worker.process.kill('SIGTERM');
        setTimeout(() => killAll(running()), drainDelayMs + STOP_MS_MAX).unref();
      }
      stopped = true;
      if (running().length === 0) resolve();
    }
    cluster.on('message', (worker: Worker, message: FromWorker) => {
      heartbeats.set(worker.id, performance.now());
      if (message.kind === 'listener closed') {
        closed.add(worker.id);
        tellWhenAllClosed();
      }
      if (message.kind !== 'ready') return;
      ready.add(worker.id);
      if (announced || ready.size < count) return;
      announced = true;
      printListening(io, message.address);
    });
    cluster.on('exit', (worker: Worker, code: number | null, signal: string | null) => {
      heartbeats.delete(worker.id);
      if (io.stop.aborted || !announced) {
        // A worker that cannot start says why on standard error; the others would not fare better.
        // One that waits for the write lock of another process ends by SIGTERM, as it was told.
        if (code !== 0 && signal !== 'SIGTERM') status = 1;
        tellWhenAllClosed();
        stop();
      } else {
        const end = signal === null ? `with status ${code}` : `by ${signal}`;
        warn(`worker ${worker.process.pid} ended ${end}; another takes its place`);
        setTimeout(() => io.stop.aborted || start(), RESTART_MS);
      }
    });
    io.stop.addEventListener('abort', stop, { once: true });
    for (let i = 0; i < count; i++) start();
  });
  stopWatching();
  return status;
}

/** Kills workers that hang; `exit` replaces them. */
function watchHeartbeats(
  running: () => Worker[],
  heartbeats: ReadonlyMap<number, number>,
  ready: ReadonlySet<number>,
  warn: (msg: string) => void,
): () => void {
  let lastCheck = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const wasPaused = now - lastCheck > 3 * HEARTBEAT_MS;
    lastCheck = now;
    // After a pause of the whole group (SIGSTOP, a frozen container) heartbeats that arrived are not read yet.
    if (wasPaused) return;
    const limitMs = (id: number) => (ready.has(id) ? HUNG_MS : START_MS_MAX);
    const hung = running().filter(({ id }) => now - (heartbeats.get(id) ?? now) > limitMs(id));
    for (const { id, process } of hung)
      warn(
        `worker ${process.pid} has not responded for ${(ready.has(id) ? HUNG_MS : START_MS_MAX) / 1_000} s`,
      );
    killAll(hung);
  }, HEARTBEAT_MS);
  return () => clearInterval(timer);
}

function killAll(workers: readonly Worker[]): void {
  for (const worker of workers) worker.process.kill('SIGKILL');
}

/** A worker's side: reports where it listens, and from then on that its event loop runs. */
export function reportReady(address: string): void {
  tell({ kind: 'ready', address });
  setInterval(() => tell({ kind: 'heartbeat' }), HEARTBEAT_MS).unref();
}

/** Resolves when no worker listens any more. */
export function othersHaveClosed(): Promise<void> {
  return new Promise((resolve) => {
    const late = setTimeout(resolve, OTHERS_MS_MAX);
    cluster.worker?.on('message', ({ kind }: AllListenersClosed) => {
      if (kind !== 'all listeners closed') return;
      clearTimeout(late);
      resolve();
    });
    tell({ kind: 'listener closed' });
  });
}

function tell(message: FromWorker): void {
  // A primary that has gone is noticed elsewhere.
  if (cluster.worker?.isConnected()) cluster.worker.send(message, () => {});
}

/** Scripts wait for this line. */
export function printListening(io: Io, address: string): void {
  printLine(io.stdout, `wafstat listens on ${address}`);
}
