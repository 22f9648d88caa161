/** Worker processes that share a port: the primary starts them, replaces those that exit or hang, and stops them. */
import cluster, { type Worker } from 'node:cluster';
import type { WorkerMetrics } from '../metrics/listener.ts';
import type { MetricsJson } from '../metrics/metrics.ts';
import { afterRunning } from '../running-time.ts';
import { type Io, printLine } from './command.ts';
import { logFormatter } from './pretty-log.ts';
import { notifyReady } from './systemd.ts';

/** Delay before a worker is replaced, so that one that cannot start does not restart in a busy loop. */
const RESTART_MS = 1_000;
const HEARTBEAT_MS = 1_000;
/** A worker without a heartbeat for this long is killed and replaced. No request blocks the event loop for that long. */
const HUNG_MS = 10_000;
/** Opening a large store on a slow disk takes seconds. */
const START_MS_MAX = 120_000;
/** How long a worker may take to stop, in addition to draining. */
const STOP_MS_MAX = 10_000;
/** How long a worker waits for the others to close their listeners. */
const OTHERS_MS_MAX = 1_000;
/** One heap of malloc for all threads: 15 to 39 MB less memory per worker (docs/decisions/0012). */
const HEAPS_MAX = '1';

type MessageFromWorker =
  | { kind: 'ready'; address: string }
  | { kind: 'heartbeat' }
  | { kind: 'listener closed' }
  | { kind: 'metrics'; metrics: MetricsJson };
type MessageToWorker = { kind: 'all listeners closed' } | { kind: 'metrics wanted'; includesStore: boolean };

export interface PrimaryLog {
  info(message: string): void;
  warn(message: string): void;
}

/** Logs in the same format as the workers. */
export function primaryLog(format: 'pretty' | 'json' | undefined, io: Io): PrimaryLog {
  const formatter = logFormatter(format, io);
  const print = (level: number) => (msg: string) =>
    void io.stderr.write(formatter.format(JSON.stringify({ level, time: io.now(), msg })));
  return { info: print(30), warn: print(40) };
}

interface WorkersOptions {
  count: number;
  drainDelayMs: number;
  metrics: WorkerMetrics | null;
  announce(address: string): void;
  warn(message: string): void;
}

export async function runWorkers(
  { count, drainDelayMs, metrics, announce, warn }: WorkersOptions,
  io: Io,
): Promise<number> {
  const ready = new Set<number>();
  const closed = new Set<number>();
  const heartbeats = new Map<number, number>();
  let announced = false;
  let status = 0;
  const running = () => Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined);
  const env = { MALLOC_ARENA_MAX: io.env.MALLOC_ARENA_MAX ?? HEAPS_MAX };
  const start = () => {
    const worker = cluster.fork(env);
    closeUnconfirmed(worker);
    heartbeats.set(worker.id, performance.now());
  };
  /** Workers close connections after that: a client that reconnects must not reach a listener that is about to close. */
  const notifyWhenAllClosed = () => {
    if (!running().every(({ id }) => closed.has(id))) return;
    for (const worker of running()) sendTo(worker, { kind: 'all listeners closed' });
  };

  const stopWatching = watchHeartbeats(running, heartbeats, ready, warn);
  await new Promise<void>((resolve) => {
    let stopped = false;
    /** Signals each worker once: a second signal would abort requests in progress. */
    function stop(): void {
      if (!stopped) {
        for (const worker of running()) worker.process.kill('SIGTERM');
        afterRunning(drainDelayMs + STOP_MS_MAX, () => killAll(running())).unref();
      }
      stopped = true;
      if (running().length === 0) resolve();
    }
    cluster.on('message', (worker: Worker, message: MessageFromWorker) => {
      heartbeats.set(worker.id, performance.now());
      if (message.kind === 'listener closed') {
        closed.add(worker.id);
        notifyWhenAllClosed();
      }
      if (message.kind === 'metrics') metrics?.receive(worker.id, message.metrics);
      if (message.kind !== 'ready') return;
      ready.add(worker.id);
      metrics?.add({
        id: worker.id,
        isConnected: () => worker.isConnected(),
        request: (includesStore) => sendTo(worker, { kind: 'metrics wanted', includesStore }),
      });
      if (announced || ready.size < count) return;
      announced = true;
      announce(message.address);
    });
    cluster.on('exit', (worker: Worker, code: number | null, signal: string | null) => {
      heartbeats.delete(worker.id);
      metrics?.remove(worker.id);
      if (io.stop.aborted || !announced) {
        // A worker that cannot start prints why; the others would fail, too.
        // A worker that waits for the write lock of another process exits by SIGTERM.
        if (code !== 0 && signal !== 'SIGTERM') status = 1;
        notifyWhenAllClosed();
        stop();
      } else {
        const end = signal === null ? `with status ${code}` : `by ${signal}`;
        warn(`worker ${worker.process.pid} ended ${end}; starting another`);
        setTimeout(() => io.stop.aborted || start(), RESTART_MS);
      }
    });
    io.stop.addEventListener('abort', stop, { once: true });
    for (let i = 0; i < count; i++) start();
  });
  stopWatching();
  return status;
}

/**
 * Node.js keeps its handle of a connection until the worker confirms that it has received it. If the worker ends before
 * that, nobody would close the connection. A worker receives one connection of each listener at a time.
 */
function closeUnconfirmed(worker: Worker): void {
  const passed = new Map<string, { close(): void }>();
  const send = worker.process.send?.bind(worker.process) as (...args: unknown[]) => boolean;
  worker.process.send = (message: { act?: string; key?: string }, ...rest: unknown[]) => {
    if (message.act === 'newconn') passed.set(message.key ?? '', rest[0] as { close(): void });
    return send(message, ...rest);
  };
  // Closing a handle that is closed does nothing.
  worker.once('exit', () => {
    for (const handle of passed.values()) handle.close();
  });
}

/** Kills workers that hang; the `exit` event replaces them. */
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
    // After a pause of all processes (SIGSTOP, a frozen container), received heartbeats are not processed yet.
    if (wasPaused) return;
    const limitMs = (id: number) => (ready.has(id) ? HUNG_MS : START_MS_MAX);
    const hung = running().filter(({ id }) => now - (heartbeats.get(id) ?? now) > limitMs(id));
    for (const { id, process } of hung)
      warn(`worker ${process.pid} has not responded for ${limitMs(id) / 1_000} s`);
    killAll(hung);
  }, HEARTBEAT_MS);
  return () => clearInterval(timer);
}

function killAll(workers: readonly Worker[]): void {
  for (const worker of workers) worker.process.kill('SIGKILL');
}

/** In a worker: reports its address, and then a heartbeat as long as its event loop runs. */
export function reportReady(address: string): void {
  send({ kind: 'ready', address });
  setInterval(() => send({ kind: 'heartbeat' }), HEARTBEAT_MS).unref();
}

/** In a worker: resolves when no worker is listening any longer. */
export function othersHaveClosed(): Promise<void> {
  return new Promise((resolve) => {
    const deadline = afterRunning(OTHERS_MS_MAX, resolve);
    cluster.worker?.on('message', ({ kind }: MessageToWorker) => {
      if (kind !== 'all listeners closed') return;
      deadline.stop();
      resolve();
    });
    send({ kind: 'listener closed' });
  });
}

/** In a worker: sends the metrics of this process when the primary wants them. */
export function respondToScrapes(collect: (includesStore: boolean) => Promise<MetricsJson>): void {
  cluster.worker?.on('message', (message: MessageToWorker) => {
    if (message.kind !== 'metrics wanted') return;
    void collect(message.includesStore).then((metrics) => send({ kind: 'metrics', metrics }));
  });
}

function sendTo(worker: Worker, message: MessageToWorker): void {
  // The callback ignores errors: a worker may have exited in the meantime.
  if (worker.isConnected()) worker.send(message, () => {});
}

function send(message: MessageFromWorker): void {
  // main.ts handles the loss of the primary.
  if (cluster.worker?.isConnected()) cluster.worker.send(message, () => {});
}

/** Scripts wait for the line with the address. */
export function printListening(io: Io, address: string, consoleUrl: string | null): void {
  printLine(io.stdout, `wafstat listens on ${address}`);
  if (consoleUrl !== null) printLine(io.stdout, `console: ${consoleUrl}`);
  notifyReady(io);
}
