/** Virtual time, and a seeded choice of the task that continues next. */
import { createHash } from 'node:crypto';
import { Random } from '../random.ts';

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** A task continues only when the scheduler chooses it. Tasks of a killed process never continue. */
export interface Task {
  readonly name: string;
  readonly process: { isAlive: boolean };
  /** How many of its promises wait for the scheduler. */
  waiting: number;
  isDone: boolean;
}

interface Step {
  task: Task;
  label: string;
  at: number;
  resume(): void;
}

/** How often an operation takes longer than something that begins later, and how much later. */
const LATE_CHANCE = 0.06;
const LATE_MS_MAX = 60_000;
/** How often calls of one kind and task continue together, so that they share a commit. */
const TOGETHER_CHANCE = 0.5;
/** Real asynchronous work of a task, such as decompression, ends within this many turns of the event loop. */
const TURNS_MAX = 1_000_000;
const DIGEST_TEXT_MIN = 65_536;

export class Scheduler {
  readonly random: Random;
  /** The true time. */
  now: number;
  steps = 0;
  readonly #trace: ((line: string) => void) | undefined;
  readonly #tasks = new Set<Task>();
  #waiting: Step[] = [];
  readonly #doomed = new Map<
    Task['process'],
    { steps: number; isAtStore: boolean; kill: () => Promise<void> }
  >();
  #native = 0;
  readonly #digest = createHash('sha256');
  #text = '';
  #failure: { error: unknown } | null = null;
  readonly #timers = new ZeroTimers();

  constructor(seed: number, start: number, trace?: (line: string) => void) {
    this.random = new Random(seed);
    this.now = start;
    this.#trace = trace;
  }

  /** Runs `work` until its end, or until its process is killed. */
  start(name: string, process: Task['process'], work: (task: Task) => Promise<void>): void {
    const task: Task = { name, process, waiting: 0, isDone: false };
    this.#tasks.add(task);
    work(task)
      .catch((error: unknown) => this.fail(error))
      .finally(() => {
        task.isDone = true;
        this.#tasks.delete(task);
      });
  }

  /** Resolves when it is the turn of the task, at least `ms` later. */
  pause(task: Task, label: string, ms = 0): Promise<void> {
    task.waiting++;
    return new Promise((resolve) => {
      const resume = () => {
        task.waiting--;
        resolve();
      };
      this.#waiting.push({ task, label, at: this.now + ms, resume });
    });
  }

  /** Runs real asynchronous work to its end, before any task continues. */
  async native<T>(work: () => Promise<T>): Promise<T> {
    this.#native++;
    this.#timers.run();
    try {
      return await work();
    } finally {
      this.#native--;
    }
  }

  /** Adds to the digest of the run. */
  note(text: string): void {
    this.#trace?.(`${new Date(this.now).toISOString()} ${text}`);
    this.#text += `${this.now} ${text}\n`;
    if (this.#text.length < DIGEST_TEXT_MIN) return;
    this.#digest.update(this.#text);
    this.#text = '';
  }

  fail(error: unknown): void {
    this.#failure ??= { error };
  }

  /** Ends the tasks of a process that is not alive any more. */
  kill(process: Task['process']): void {
    this.#waiting = this.#waiting.filter(({ task }) => task.process !== process);
    for (const task of this.#tasks) if (task.process === process) this.#tasks.delete(task);
  }

  /** Calls `kill` before a step of the process, after so many others. Half of the time, only calls to the store are counted. */
  killLater(process: Task['process'], steps: number, kill: () => Promise<void>): void {
    this.#doomed.set(process, { steps, kill, isAtStore: this.random.chance(0.5) });
  }

  /** Runs until the condition holds. Throws what a task has thrown. */
  async runUntil(isOver: () => boolean): Promise<void> {
    this.#timers.capture();
    try {
      await this.#settle();
      while (!isOver()) {
        const next = this.#next();
        this.steps++;
        if (await this.#isKilled(next)) continue;
        this.note(`${next.task.name} ${next.label}`);
        next.resume();
        if (this.random.chance(TOGETHER_CHANCE)) this.#resumeLike(next);
        await this.#settle();
      }
    } finally {
      this.#timers.release();
    }
  }

  async #isKilled({ task, label }: Step): Promise<boolean> {
    const doomed = this.#doomed.get(task.process);
    if (doomed === undefined || (doomed.isAtStore && !label.startsWith('store.'))) return false;
    if (--doomed.steps >= 0) return false;
    this.#doomed.delete(task.process);
    this.note(`${task.name} is killed before ${label}`);
    await doomed.kill();
    await this.#settle();
    return true;
  }

  digest(): string {
    return this.#digest.copy().update(this.#text).digest('hex').slice(0, 16);
  }

  #next(): Step {
    const ready = this.#waiting.filter(({ at }) => at <= this.now);
    const soon = this.random.chance(LATE_CHANCE)
      ? this.#waiting.filter(({ at }) => at <= this.now + LATE_MS_MAX)
      : ready;
    const step =
      soon.length > 0 ? this.random.pick(soon) : this.#waiting.reduce((a, b) => (b.at < a.at ? b : a));
    this.now = Math.max(this.now, step.at);
    this.#waiting.splice(this.#waiting.indexOf(step), 1);
    return step;
  }

  #resumeLike({ task, label }: Step): void {
    const isLike = (step: Step) => step.task === task && step.label === label && step.at <= this.now;
    const like = this.#waiting.filter(isLike);
    this.#waiting = this.#waiting.filter((step) => !like.includes(step));
    for (const { resume } of like) resume();
  }

  /** Resolves when every task waits for the scheduler. */
  async #settle(): Promise<void> {
    const isBusy = () => this.#native > 0 || [...this.#tasks].some(({ waiting }) => waiting === 0);
    for (let turns = 0; turns === 0 || isBusy(); turns++) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#failure) throw this.#failure.error;
      if (turns === TURNS_MAX) throw new Error('a task waits for something outside the simulation');
    }
    this.#timers.run();
  }
}

/**
 * lmdb-js and the store use a snapshot until the next timer. Here these timers run after each step: otherwise the speed of
 * the machine would decide what a process sees of the commits of others.
 */
class ZeroTimers {
  readonly #setTimeout = globalThis.setTimeout;
  #callbacks: (() => void)[] = [];

  capture(): void {
    const real = this.#setTimeout;
    const captured = (callback: () => void, ms?: number) => {
      if (ms === undefined || ms > 0) return real(callback, ms);
      this.#callbacks.push(callback);
      return { ref() {}, unref() {}, hasRef: () => false };
    };
    globalThis.setTimeout = captured as unknown as typeof globalThis.setTimeout;
  }

  run(): void {
    for (const callback of this.#callbacks.splice(0)) callback();
  }

  release(): void {
    this.run();
    globalThis.setTimeout = this.#setTimeout;
  }
}
