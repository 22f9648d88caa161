/**
 * Applies the retention time to a store, but does not trust every clock: a machine that starts with a wrong date must
 * not lose its data (docs/decisions/0022-retention-and-wrong-clocks.md).
 */
import type { Retention, Store } from './store.ts';

/** Events live up to this much longer than the retention time. */
const PRUNE_EVERY_MS = 10 * 60_000;
/** After a longer downtime the clock is not trusted at once: the machine may have started with a wrong date. */
const DOWNTIME_MS_MAX = 7 * 86_400_000;
/** A clock that jumps further ahead while the service runs is not trusted either. */
const JUMP_MS_MAX = 3_600_000;
/** A clock is trusted once the service has run with it for this long: enough time for someone to read the log. */
const PROBATION_MS = 24 * 3_600_000;
/** Space is freed this long after the horizon has passed it. Until then the horizon can move back. */
const FREE_DELAY_MS = 24 * 3_600_000;

interface RetentionLog {
  info(message: string): void;
  warn(message: string): void;
  error(details: object, message: string): void;
}

export interface Clocks {
  /** The system clock, which may be wrong. */
  now: () => number;
  /** Milliseconds that never go back. */
  monotonicNow: () => number;
}

interface RetentionTimes {
  eventsMs: number;
  topListsMs: number;
}

export class RetentionPolicy {
  readonly #store: Store;
  readonly #times: RetentionTimes;
  readonly #clocks: Clocks;
  readonly #log: RetentionLog;
  #isDoubtful = false;
  #lastPass: { now: number; monotonic: number } | null = null;

  constructor(store: Store, times: RetentionTimes, clocks: Clocks, log: RetentionLog) {
    this.#store = store;
    this.#times = times;
    this.#clocks = clocks;
    this.#log = log;
  }

  /** Moves the horizon and frees the space that it passed a day ago. */
  async pass(stop?: AbortSignal): Promise<void> {
    const state = await this.#store.retention();
    // If one of several machines is ahead of the database, it must not remove what others still count.
    const now = Math.min(this.#clocks.now(), state.databaseNow ?? Number.POSITIVE_INFINITY);
    if (state.horizon > now) {
      this.#log.warn(
        `all events are refused: the horizon is at ${iso(state.horizon)}, but it is ${iso(now)} ` +
          `by the clock${state.databaseNow === now ? ' of the database' : ''}. ` +
          `If the clock is right, move the horizon back: wafstat horizon --set ${iso(now - this.#times.eventsMs)}`,
      );
      return;
    }
    const { elapsedMs, isFirst } = this.#checkClock(state, now);
    // One of several workers is enough. Each makes its first pass at once, because settings may have changed.
    const isDone = state.note !== null && Math.abs(now - state.note.passedAt) < PRUNE_EVERY_MS / 2;
    if (isDone && !isFirst) return;
    const note = state.note ?? { freeBefore: 0, freeSince: now, trustedAt: now, probationMs: 0 };
    if (this.#isDoubtful) {
      const probationMs = note.probationMs + elapsedMs;
      if (probationMs < PROBATION_MS) {
        const trustedAt = state.note?.trustedAt ?? state.newestEvent ?? now;
        await this.#store.noteRetention({ ...note, trustedAt, passedAt: now, probationMs });
        return;
      }
      this.#isDoubtful = false;
      this.#log.warn(`the clock (${iso(now)}) is trusted now: the service has run with it for 24 hours`);
    }
    const horizon = Math.max(state.horizon, now - this.#times.eventsMs);
    if (horizon > state.horizon) {
      this.#log.info(`the horizon moves from ${iso(state.horizon)} to ${iso(horizon)}`);
    }
    const isDue = state.note !== null && now - note.freeSince >= FREE_DELAY_MS;
    const freeBefore = isDue ? Math.min(note.freeBefore, horizon) : state.freedBefore;
    // Without a delay: top lists contain addresses, and operators rely on their retention time.
    const topListsBefore = now - this.#times.topListsMs;
    await this.#store.prune(horizon, { freeBefore, topListsBefore, ...(stop && { stop }) });
    const next = isDue || state.note === null ? { freeBefore: horizon, freeSince: now } : {};
    await this.#store.noteRetention({ ...note, ...next, trustedAt: now, passedAt: now, probationMs: 0 });
  }

  /** Warns if the clock becomes doubtful. */
  #checkClock({ note, newestEvent }: Retention, now: number): { elapsedMs: number; isFirst: boolean } {
    const monotonic = this.#clocks.monotonicNow();
    const last = this.#lastPass;
    this.#lastPass = { now, monotonic };
    const elapsedMs = last === null ? 0 : monotonic - last.monotonic;
    const doubt =
      last === null
        ? downtimeDoubt(note?.trustedAt ?? newestEvent, now)
        : jumpDoubt(now - last.now - elapsedMs);
    if (doubt !== null) {
      this.#isDoubtful = true;
      this.#log.warn(`${doubt}; no data is removed until the service has run for 24 hours with this clock`);
    }
    return { elapsedMs, isFirst: last === null };
  }
}

function downtimeDoubt(knownAt: number | null, now: number): string | null {
  if (knownAt === null || now - knownAt <= DOWNTIME_MS_MAX) return null;
  return `the clock says ${iso(now)}, but this store was last used at ${iso(knownAt)}`;
}

function jumpDoubt(jumpMs: number): string | null {
  return jumpMs > JUMP_MS_MAX ? `the clock jumped ahead by ${Math.round(jumpMs / 60_000)} minutes` : null;
}

/** Runs the policy now and every ten minutes. */
export function retainFor(
  store: Store,
  times: RetentionTimes,
  now: () => number,
  log: RetentionLog,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const clocks = { now, monotonicNow: () => performance.now() };
  const policy = new RetentionPolicy(store, times, clocks, log);
  const pass = () =>
    policy.pass(stopping.signal).catch((error: unknown) => {
      log.error({ err: error }, 'pruning failed; retrying in 10 minutes');
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

/** A wrong clock may be out of the range of Date. */
export function iso(time: number): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? `${time} ms` : date.toISOString();
}
