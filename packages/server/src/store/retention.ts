/**
 * Keeps a store within its retention time, without believing every clock: a machine that starts with the wrong date must
 * not lose its data (docs/decisions/0022-retention-and-wrong-clocks.md).
 */
import type { Retention, Store } from './store.ts';

/** Events live up to this much longer than the retention time says. */
const PRUNE_EVERY_MS = 10 * 60_000;
/** After a longer silence than this, the clock is not trusted at once: the machine may have started with a wrong date. */
const SILENCE_MS_MAX = 7 * 86_400_000;
/** A clock that jumps further ahead than this while the service runs is not trusted either. */
const JUMP_MS_MAX = 3_600_000;
/** A clock is trusted once the service has run with it for this long: time enough for someone to read the log. */
const PROBATION_MS = 24 * 3_600_000;
/** Space is freed this long after the horizon has passed it. Until then the horizon can be set back. */
const FREE_DELAY_MS = 24 * 3_600_000;

export interface RetentionLog {
  info(message: string): void;
  warn(message: string): void;
  error(details: object, message: string): void;
}

export interface Clocks {
  /** The system clock, which can be wrong. */
  now: () => number;
  /** Milliseconds that only go forward. */
  monotonicNow: () => number;
}

export class RetentionPolicy {
  readonly #store: Store;
  readonly #retentionMs: number;
  readonly #clocks: Clocks;
  readonly #log: RetentionLog;
  /** When the clock was found doubtful, in monotonic time; null while it is trusted. */
  #doubtfulSince: number | null = null;
  #lastPass: { now: number; monotonic: number } | null = null;

  constructor(store: Store, retentionMs: number, clocks: Clocks, log: RetentionLog) {
    this.#store = store;
    this.#retentionMs = retentionMs;
    this.#clocks = clocks;
    this.#log = log;
  }

  /** Moves the horizon and frees what it passed a day ago. */
  async pass(stop?: AbortSignal): Promise<void> {
    const state = await this.#store.retention();
    const now = this.#clocks.now();
    if (state.horizon > now) {
      this.#log.warn(
        `all events are refused: the horizon is at ${iso(state.horizon)}, but the clock says ${iso(now)}. ` +
          `If the clock is right, set the horizon back: wafstat horizon --set ${iso(now - this.#retentionMs)}`,
      );
      return;
    }
    if (!this.#trusts(state, now)) return;
    const horizon = Math.max(state.horizon, now - this.#retentionMs);
    if (horizon > state.horizon) {
      this.#log.info(`the horizon moves from ${iso(state.horizon)} to ${iso(horizon)}`);
    }
    const due = state.note !== null && now - state.note.freeSince >= FREE_DELAY_MS;
    const freeBefore = due && state.note ? Math.min(state.note.freeBefore, horizon) : state.freedBefore;
    await this.#store.prune(horizon, { freeBefore, ...(stop && { stop }) });
    const pending = due || state.note === null ? { freeBefore: horizon, freeSince: now } : state.note;
    await this.#store.noteRetention({ ...pending, trustedAt: now });
  }

  #trusts({ note, newestEvent }: Retention, now: number): boolean {
    const monotonic = this.#clocks.monotonicNow();
    const doubt = this.#doubt(note?.trustedAt ?? newestEvent, now, monotonic);
    this.#lastPass = { now, monotonic };
    if (doubt !== null) {
      this.#doubtfulSince = monotonic;
      this.#log.warn(`${doubt}; no data is removed until the service has run for 24 hours with this clock`);
    }
    if (this.#doubtfulSince !== null && monotonic - this.#doubtfulSince >= PROBATION_MS) {
      this.#doubtfulSince = null;
      this.#log.warn(`the clock (${iso(now)}) is trusted now: the service has run with it for 24 hours`);
    }
    return this.#doubtfulSince === null;
  }

  /** A reason not to trust the clock that was not there at the last pass. */
  #doubt(knownAt: number | null, now: number, monotonic: number): string | null {
    const last = this.#lastPass;
    if (last === null) {
      const silent = knownAt !== null && now - knownAt > SILENCE_MS_MAX;
      return silent ? `the clock says ${iso(now)}, but this store was last used at ${iso(knownAt)}` : null;
    }
    const jump = now - last.now - (monotonic - last.monotonic);
    return jump > JUMP_MS_MAX ? `the clock jumped ahead by ${Math.round(jump / 60_000)} minutes` : null;
  }
}

/** Runs the policy now and every ten minutes. */
export function retainFor(
  store: Store,
  retentionMs: number,
  now: () => number,
  log: RetentionLog,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const clocks = { now, monotonicNow: () => performance.now() };
  const policy = new RetentionPolicy(store, retentionMs, clocks, log);
  const pass = () =>
    policy.pass(stopping.signal).catch((error: unknown) => {
      log.error({ err: error }, 'pruning failed; it is tried again in 10 minutes');
    });
  let running = pass();
  const timer = setInterval(() => {
    running = running.then(pass);
  }, PRUNE_EVERY_MS);
  timer.unref();
  return {
    async stop() {
      clearInterval(timer);
      stopping.abort();
      await running;
    },
  };
}

/** A wrong clock can be beyond any calendar. */
function iso(time: number): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? `${time} ms` : date.toISOString();
}
