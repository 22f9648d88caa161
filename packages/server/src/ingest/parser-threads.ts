/** Threads that read chunks of log files, so that all cores take part in a large ingest (docs/decisions/0029). */
import { Worker } from 'node:worker_threads';
import type { ChunkTask, ParsedChunk, ParserSetup } from './chunk-parser.ts';
import { CHUNK_BYTES_MAX } from './lines.ts';
import { FileChanged } from './plain-file.ts';

/**
 * A thread takes 80 ms of processor time to start, as much as reading 20 chunks of an access log. So threads start when
 * about as many chunks have been read, or are to be read; but not before the first chunk, which shows whether its lines
 * depend on each other.
 */
const CHUNKS_BEFORE_START = 16;
const CHUNKS_BEFORE_EARLY_START = 2;
const BYTES_TO_START_EARLY = 64 * CHUNK_BYTES_MAX;

/** How many chunks to read without threads after one was read in vain: the next ones might be, too. */
const CHUNKS_OF_PAUSE = 16;

/** Reading is about half of the work. The other half is done in order, and keeps up with three threads at most. */
export const THREADS_MAX = 3;

/** A thread has ended early, and chunks that were passed on are lost. All reading without threads still works. */
export class ThreadFailed extends Error {}

/** Reads chunks in other threads. */
export interface ChunkParsers {
  /**
   * How many chunks may be under way at the same time; 0 if the next chunk should be read without these parsers. Call it
   * once for each chunk that is read without them. `bytesLeft` is what is still to be read, 0 if unknown.
   */
  capacity(bytesLeft: number): number;
  /** Results could not be used: there is no capacity for the next chunks. */
  pause(): void;
  /** Rejects with FileChanged if the file was seen to change. Chunks must be passed in their order. */
  parse(task: ChunkTask): Promise<ParsedChunk>;
}

export interface ThreadData {
  setup: ParserSetup;
  lastId: SharedArrayBuffer;
}

interface Thread {
  worker: Worker;
  /** The thread returns results in the order of the tasks. */
  tasks: { resolve(parsed: ParsedChunk): void; reject(error: unknown): void }[];
}

export class ParserThreads implements ChunkParsers {
  readonly #setup: ParserSetup;
  readonly #size: number;
  readonly #lastId = LastId.memory();
  #threads: Thread[] = [];
  #ready = 0;
  #chunks = 0;
  #pausedFor = 0;
  #tasks = 0;
  #failure: ThreadFailed | null = null;

  constructor(setup: ParserSetup, size: number) {
    this.#setup = setup;
    this.#size = size;
  }

  start(): void {
    if (this.#threads.length > 0) return;
    try {
      for (let i = 0; i < this.#size; i++) this.#startThread();
    } catch (error) {
      // The system allows no more threads.
      this.#fail(error);
    }
  }

  capacity(bytesLeft: number): number {
    if (this.#failure !== null || this.#size === 0) return 0;
    this.#chunks++;
    const isEarly = bytesLeft >= BYTES_TO_START_EARLY && this.#chunks >= CHUNKS_BEFORE_EARLY_START;
    if (isEarly || this.#chunks >= CHUNKS_BEFORE_START) this.start();
    if (this.#pausedFor > 0) {
      this.#pausedFor--;
      return 0;
    }
    // Each thread has two chunks, one of which waits, and two results wait for their turn.
    return this.#ready === this.#size ? 2 * (this.#size + 1) : 0;
  }

  pause(): void {
    this.#pausedFor = CHUNKS_OF_PAUSE;
  }

  parse(task: ChunkTask): Promise<ParsedChunk> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    const number = ++this.#tasks;
    // Never empty: there is capacity only if threads are ready.
    const { worker, tasks } = this.#threads[number % this.#threads.length] as Thread;
    return new Promise((resolve, reject) => {
      tasks.push({ resolve, reject });
      worker.postMessage({ ...task, number });
    });
  }

  async close(): Promise<void> {
    await Promise.all(this.#threads.map(({ worker }) => worker.terminate()));
  }

  #startThread(): void {
    const workerData: ThreadData = { setup: this.#setup, lastId: this.#lastId };
    const worker = new Worker(new URL('./parser-thread.js', import.meta.url), { workerData });
    const thread: Thread = { worker, tasks: [] };
    this.#threads.push(thread);
    worker.on('message', (message: 'ready' | 'changed' | ParsedChunk) => {
      if (message === 'ready') this.#ready++;
      else if (message === 'changed') thread.tasks.shift()?.reject(new FileChanged());
      else thread.tasks.shift()?.resolve(message);
    });
    worker.on('error', (error) => this.#fail(error));
    // This also happens after `close`: nobody may wait for a thread that has ended.
    worker.on('exit', (status) => this.#fail(`status ${status}`));
  }

  /** If no chunks were passed on, the caller continues without threads. */
  #fail(cause: unknown): void {
    this.#failure ??= new ThreadFailed('a thread that reads log lines has ended', { cause });
    for (const { tasks } of this.#threads) for (const { reject } of tasks.splice(0)) reject(this.#failure);
  }
}

const ID_LENGTH = 64;

/** The ID of the last chunk that was hashed, for the next one, which any thread may have. */
export class LastId {
  readonly #number: Int32Array;
  readonly #id: Buffer;

  static memory(): SharedArrayBuffer {
    return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT + ID_LENGTH);
  }

  constructor(memory: SharedArrayBuffer) {
    this.#number = new Int32Array(memory, 0, 1);
    this.#id = Buffer.from(memory, Int32Array.BYTES_PER_ELEMENT);
  }

  set(task: number, id: string): void {
    this.#id.write(id, 'latin1');
    Atomics.store(this.#number, 0, task);
    Atomics.notify(this.#number, 0);
  }

  /** Blocks until the task is done. Tasks start in their order, so the earliest one never waits. */
  waitFor(task: number): string {
    for (;;) {
      const last = Atomics.load(this.#number, 0);
      if (last === task) return this.#id.toString('latin1');
      Atomics.wait(this.#number, 0, last);
    }
  }
}
