/** Writes to the LMDB files: one transaction at a time, with a timeout for the write lock. */
import type { RootDatabase } from 'lmdb';
import { afterRunning } from '../running-time.ts';

/** How long a change waits for the write lock. A stopped process may hold it forever. */
const LOCK_WAIT_MS_MAX = 5_000;
/** The wait is counted in steps: a process that was itself stopped for longer than the wait must not give up at once. */
const LOCK_WAIT_STEPS = 10;
/** After a failure, changes are refused for this long: a full disk gets one attempt per second. */
const RETRY_MS = 1_000;
/** How long closing waits for the write lock. */
const CLOSE_WAIT_MS_MAX = 500;

/** ENOSPC, EDQUOT and EFBIG (the file size limit). */
const FULL_CODES: readonly number[] = [28, 122, 27];

const UNKNOWN =
  'whether the change was made is unknown (a push with an Idempotency-Key can be sent again safely)';

/** Why a change was refused, without details for clients that must not see more. */
type WriteTrouble =
  | 'the disk is full'
  | 'the disk is full or fails'
  | 'another process holds the write lock'
  | typeof FILE_REPLACED;

export const FILE_REPLACED = 'a file of the data directory was deleted or replaced';

/** The transaction was rolled back, unless `outcomeUnknown`. */
export class CommitFailed extends Error {
  readonly trouble: WriteTrouble;
  readonly outcomeUnknown: boolean;

  constructor(
    message: string,
    trouble: WriteTrouble,
    options: ErrorOptions & { outcomeUnknown?: boolean } = {},
  ) {
    super(message, options);
    this.trouble = trouble;
    this.outcomeUnknown = options.outcomeUnknown ?? false;
  }
}

interface CommitterOptions {
  path: string;
  root: () => RootDatabase;
  /** Throws CommitFailed if the path leads to another file by now. */
  checkPath: () => void;
  /** Reopens the file: after a failed write of its header LMDB refuses even reads. */
  reopen: () => Promise<void>;
  /** A write that changes nothing, to test whether writes work again. */
  probe: () => void;
  lockWaitMsMax?: number;
}

interface Job {
  action: () => unknown;
  resolve(result: unknown): void;
  reject(error: unknown): void;
  timer: NodeJS.Timeout;
  /** `expired` jobs have been rejected and must not change anything. */
  state: 'waiting' | 'begun' | 'expired';
}

/**
 * Runs each change atomically. LMDB gets one transaction at a time, because each occupies a thread of the pool while it
 * waits for the lock. Changes that arrive in the meantime share the next transaction.
 */
export class Committer {
  readonly #options: CommitterOptions;
  #waiting: Job[] = [];
  #running: Job[] = [];
  #idle: Promise<void> = Promise.resolve();
  #failure: { error: CommitFailed; at: number } | null = null;
  #closed = false;

  constructor(options: CommitterOptions) {
    this.#options = options;
  }

  run<T>(action: () => T): Promise<T> {
    const refusal = this.#refusal();
    if (refusal !== null) return Promise.reject(refusal);
    return new Promise<unknown>((resolve, reject) => {
      let steps = 0;
      const timer = setInterval(
        () => ++steps === LOCK_WAIT_STEPS && this.#expire(job),
        (this.#options.lockWaitMsMax ?? LOCK_WAIT_MS_MAX) / LOCK_WAIT_STEPS,
      );
      const job: Job = { action, resolve, reject, timer, state: 'waiting' };
      this.#waiting.push(job);
      if (this.#running.length === 0) this.#idle = this.#runWaiting();
    }) as Promise<T>; // The queue holds jobs of all types; each resolves to the result of its own action.
  }

  /** Rejects while changes fail. After a failure, this tries a write. */
  async check(): Promise<void> {
    this.#options.checkPath();
    if (this.#failure === null) return;
    // A health check must not wait for the lock.
    if (this.#running.length > 0) throw this.#failure.error;
    await this.run(this.#options.probe);
  }

  /** Waits for changes that have begun, but not for the write lock of a stopped process. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const idle = this.#idle.then(() => true);
    const late = new Promise<false>((resolve) =>
      afterRunning(CLOSE_WAIT_MS_MAX, () => resolve(false)).unref(),
    );
    const hasBegun = () => this.#running.some(({ state }) => state === 'begun');
    const isFree = (await Promise.race([idle, late])) || (hasBegun() && (await idle));
    if (isFree) await this.#options.root().close();
  }

  #refusal(): Error | null {
    if (this.#closed) return new Error('the file is closed');
    if (this.#failure === null || this.#running.length > 0) return null;
    const { error, at } = this.#failure;
    if (error.trouble === 'another process holds the write lock' || performance.now() - at >= RETRY_MS)
      return null;
    return new CommitFailed(
      `${error.trouble}: cannot write ${this.#options.path}; nothing was changed`,
      error.trouble,
    );
  }

  async #runWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      this.#running = this.#waiting;
      this.#waiting = [];
      // Started in one turn, so that lmdb-js runs them in one transaction.
      await Promise.all(this.#running.map((job) => this.#runJob(job)));
      this.#running = [];
    }
  }

  async #runJob(job: Job): Promise<void> {
    try {
      const result = await commit(this.#options.root(), () => {
        // LMDB got the lock, perhaps long after this change was rejected.
        if (job.state === 'expired') throw new Error('the change has expired');
        clearInterval(job.timer);
        job.state = 'begun';
        this.#options.checkPath();
        return job.action();
      });
      this.#failure = null;
      job.resolve(result);
    } catch (error) {
      clearInterval(job.timer);
      if (job.state === 'expired') this.#failure = null;
      if (job.state !== 'expired' || isLmdbError(error)) job.reject(await this.#failed(error));
    }
  }

  #expire(job: Job): void {
    clearInterval(job.timer);
    job.state = 'expired';
    this.#waiting = this.#waiting.filter((other) => other !== job);
    const { path, lockWaitMsMax = LOCK_WAIT_MS_MAX } = this.#options;
    const trouble = 'another process holds the write lock';
    const error = new CommitFailed(
      `${trouble} of ${path} for more than ${lockWaitMsMax / 1_000} s (a stopped 'wafstat ingest'?); nothing was changed`,
      trouble,
    );
    this.#failure = { error, at: performance.now() };
    job.reject(error);
  }

  /** Errors of the action itself are passed on. */
  async #failed(error: unknown): Promise<unknown> {
    if (!isLmdbError(error)) return error;
    const outcomeUnknown = this.#mustReopen();
    if (outcomeUnknown) await this.#options.reopen();
    const trouble = FULL_CODES.includes(error.code) ? 'the disk is full' : 'the disk is full or fails';
    const outcome = outcomeUnknown ? UNKNOWN : 'nothing was changed';
    const failure = new CommitFailed(
      `${trouble}: cannot write ${this.#options.path} (${error.message.split(': Attempting', 1)[0]}); ${outcome}`,
      trouble,
      { cause: error, outcomeUnknown },
    );
    this.#failure = { error: failure, at: performance.now() };
    return failure;
  }

  #mustReopen(): boolean {
    const root = this.#options.root();
    try {
      root.resetReadTxn();
      root.get('version');
      return false;
    } catch (error) {
      // The error code is not always that of MDB_PANIC.
      return isLmdbError(error) && error.message.includes('MDB_PANIC');
    }
  }
}

/** LMDB errors carry a code of LMDB or of the operating system. */
export function isLmdbError(error: unknown): error is Error & { code: number } {
  return error instanceof Error && 'code' in error && typeof error.code === 'number';
}

/** Null if the data is damaged. Throws errors of the operating system: `repair` must not replace what it could not read. */
export function tryTo<T>(action: () => T): T | null {
  try {
    return action();
  } catch (error) {
    if (isLmdbError(error) && error.code > 0) throw error;
    return null;
  }
}

/** A child transaction, because only that is rolled back if the action throws. */
async function commit<T>(root: RootDatabase, action: () => T): Promise<T> {
  try {
    return (await root.childTransaction(action)) as T;
  } catch (error) {
    if (!(error instanceof Error && 'commitError' in error)) throw error;
    // The cause is in a separate promise, whose rejection would end the process if nobody handled it.
    throw await Promise.resolve(error.commitError).catch((reason: unknown) => reason);
  }
}
