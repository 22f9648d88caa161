/** The processes of the simulation. They run the real code, with the disk, the clock and the store of the simulation. */
import { TimeSlicer } from '../../packages/server/src/fair-queue.ts';
import { PushCounter } from '../../packages/server/src/http/ingest/push.ts';
import { FileConflict, type FileIngest, ingestFile } from '../../packages/server/src/ingest/file.ts';
import { Follower } from '../../packages/server/src/ingest/follow.ts';
import { LinesInFuture, Pipeline } from '../../packages/server/src/ingest/pipeline.ts';
import { FileChanged, PlainFile } from '../../packages/server/src/ingest/plain-file.ts';
import { RetentionPolicy } from '../../packages/server/src/store/retention.ts';
import { type Store, StoreUnavailable } from '../../packages/server/src/store/store.ts';
import type { Disk } from './disk.ts';
import { type Executed, faultyStore, type StoreFaults } from './faulty-store.ts';
import { HOUR_MS, type Scheduler, type Task } from './scheduler.ts';

/** What processes get from the world. */
export interface Environment {
  scheduler: Scheduler;
  disk: Disk;
  faults: StoreFaults;
  project: string;
  retentionMs: number;
  /** The system clock, which may be wrong. */
  now: () => number;
  openStore(): Store;
  executed: Executed;
  acknowledged(source: string, records: number): Promise<void>;
  warned(source: string, message: string): void;
  /** Whether processes look often, because the world waits for them. */
  isHurried: () => boolean;
}

/** How long top lists and kept attacks stay. */
export const detailsMs = (retentionMs: number) => retentionMs / 2;

const RETRY_MS_MIN = 2_000;
/** While a file waits for the clock, nothing else happens for hours. */
const RETRY_MS_MAX = 120_000;

export class SimulatedProcess {
  isAlive = true;
  readonly environment: Environment;
  readonly #store: Store;
  readonly #stopping = new AbortController();
  readonly #startedAt: number;
  #tasks = 0;
  /** Resolves when the process has ended in any way. */
  readonly ended: Promise<void>;
  #end: () => void = () => {};

  constructor(environment: Environment) {
    this.environment = environment;
    this.#store = environment.openStore();
    this.#startedAt = environment.scheduler.now;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get stop(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Ends at its next opportunity, as after SIGTERM. */
  terminate(): void {
    this.#stopping.abort();
  }

  /** Ends between two steps, as after SIGKILL. */
  async kill(): Promise<void> {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.environment.scheduler.kill(this);
    await this.#close();
  }

  run(name: string, work: (task: Task, store: Store, pipeline: Pipeline) => Promise<void>): void {
    const { scheduler, faults, executed, retentionMs, now } = this.environment;
    this.#tasks++;
    scheduler.start(name, this, async (task) => {
      const store = faultyStore(this.#store, task, scheduler, faults, executed);
      const pipeline = new Pipeline(store, { retentionMs, hostsMax: 10 }, now, this.monotonicNow);
      await work(task, store, pipeline);
      if (--this.#tasks > 0) return;
      this.isAlive = false;
      await this.#close();
    });
  }

  monotonicNow = () => this.environment.scheduler.now - this.#startedAt;

  async #close(): Promise<void> {
    this.environment.disk.closeFiles(this);
    await this.environment.scheduler.native(() => this.#store.close());
    this.#end();
  }
}

/** `wafstat follow`: several logs in one process. */
export function follow(environment: Environment, logs: readonly { path: string; ingest: FileIngest }[]) {
  const process = new SimulatedProcess(environment);
  const { scheduler, disk, now, isHurried, acknowledged, warned } = environment;
  const { random } = scheduler;
  for (const { path, ingest } of logs) {
    process.run(`follow ${ingest.source.name}`, async (task, store, pipeline) => {
      const { name } = ingest.source;
      const acknowledgements: number[] = [];
      const follower = new Follower({
        path,
        ingest,
        store,
        pipeline,
        now,
        fs: disk.access(task),
        stop: process.stop,
        counted: ({ accepted }) => acknowledgements.push(accepted),
        warn: (message) => warned(name, message),
      });
      while (!process.stop.aborted) {
        let pauseMs = lookPause(random.next(), isHurried());
        try {
          if (await follower.look()) pauseMs = 0;
        } catch (error) {
          if (!isExpected(error)) throw error;
          pauseMs = random.integer(RETRY_MS_MIN, RETRY_MS_MAX);
        }
        // While much happens, look often.
        if (acknowledgements.length > 0 && random.chance(0.8)) pauseMs = Math.min(pauseMs, 200);
        for (const records of acknowledgements.splice(0)) await acknowledged(name, records);
        if (pauseMs > 0) await scheduler.pause(task, 'sleeps', pauseMs);
      }
      await follower.close();
    });
  }
  return process;
}

/** Mostly as the command does it. A process may also be stopped for minutes. */
function lookPause(chance: number, isHurried: boolean): number {
  if (chance < 0.2) return 200;
  if (isHurried) return 15_000;
  return chance < 0.5 ? 10_000 : 600_000 * (chance - 0.5) * 2;
}

/** `wafstat ingest` of some files, oldest first. */
export function ingest(environment: Environment, paths: readonly string[], file: FileIngest) {
  const process = new SimulatedProcess(environment);
  process.run(`ingest ${file.source.name}`, async (task, store, pipeline) => {
    const fs = environment.disk.access(task);
    try {
      for (const path of paths) {
        const stream = await PlainFile.open(path, undefined, undefined, undefined, fs);
        for await (const step of ingestFile(stream, file, store, pipeline, { stop: process.stop })) {
          if (step.kind === 'counted')
            await environment.acknowledged(file.source.name, step.outcome.accepted);
        }
      }
    } catch (error) {
      if (!isExpected(error) && !(error instanceof FileConflict || error instanceof FileChanged)) throw error;
    }
  });
  return process;
}

function isExpected(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return error instanceof StoreUnavailable || error instanceof LinesInFuture || typeof code === 'string';
}

interface WaitingPush {
  push: Push;
  resolve(accepted: number): void;
  reject(error: unknown): void;
}

export interface Push {
  lines: string[];
  key: string | undefined;
  source: string;
}

/** `wafstat serve`: pushes and retention. */
export class Service extends SimulatedProcess {
  readonly #pushes: WaitingPush[] = [];

  constructor(environment: Environment) {
    super(environment);
    const { scheduler, retentionMs, now, isHurried } = environment;
    this.run('retention', async (task, store) => {
      const times = { eventsMs: retentionMs, topListsMs: detailsMs(retentionMs), location: '--data DIR' };
      const log = { info() {}, warn() {}, error() {} };
      const clocks = { now, monotonicNow: this.monotonicNow };
      const policy = new RetentionPolicy(store, times, clocks, log);
      while (!this.stop.aborted) {
        await policy.pass(this.stop).catch((error: unknown) => {
          if (!isExpected(error)) throw error;
        });
        const hours = isHurried() ? 0.2 : scheduler.random.pick([0.17, 1, 6]);
        await scheduler.pause(task, 'sleeps', hours * HOUR_MS);
      }
    });
    this.run('pushes', async (task, _, pipeline) => {
      const counter = new PushCounter(new Turns(task, scheduler));
      while (!this.stop.aborted) {
        const waiting = this.#pushes.splice(0);
        await Promise.all(waiting.map((each) => this.#count(counter, each, task, pipeline)));
        await scheduler.pause(task, 'waits for pushes', isHurried() ? 10_000 : 60_000);
      }
    });
  }

  /** Resolves to the number of records that the service reports as counted. */
  push(push: Push): Promise<number> {
    return new Promise((resolve, reject) => this.#pushes.push({ push, resolve, reject }));
  }

  async #count(
    counter: PushCounter,
    { push: { lines, key, source: name }, resolve, reject }: WaitingPush,
    task: Task,
    pipeline: Pipeline,
  ): Promise<void> {
    const { scheduler, project } = this.environment;
    const format = 'events' as const;
    async function* body() {
      for (const line of lines) {
        if (scheduler.random.chance(0.1)) await scheduler.pause(task, 'body');
        yield Buffer.from(`${line}\n`);
      }
    }
    try {
      const source = { name, format };
      const push = { project, source, key, pipeline, reader: { format } };
      const { accepted } = await counter.count(body(), push, () => {});
      await this.environment.acknowledged(name, accepted);
      resolve(accepted);
    } catch (error) {
      if (!isExpected(error)) throw error;
      reject(error);
    }
  }
}

/** Long work yields to the scheduler instead of the event loop. */
class Turns extends TimeSlicer {
  readonly #task: Task;
  readonly #scheduler: Scheduler;

  constructor(task: Task, scheduler: Scheduler) {
    super(() => 0);
    this.#task = task;
    this.#scheduler = scheduler;
  }

  override nextTurn(): Promise<void> {
    return this.#scheduler.pause(this.#task, 'slice');
  }
}
