/**
 * Applies the retention time to a store, but does not trust every clock: a machine that starts with a wrong date must
 * not lose its data (docs/decisions/0022-retention-and-wrong-clocks.md).
 */
import { reached } from '../rare-states.ts';
import type { Retention, RetentionNote, Store } from './store.ts';

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
/** A move that hides this much more than the time that has passed is a warning: the retention time became shorter. */
const HIDDEN_MS_MIN = 3_600_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

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
  /** Options that tell `wafstat horizon` where the store is. */
  location: string;
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
      reached('retention.clock-behind-horizon');
      this.#log.warn(
        `all events are refused: the horizon is at ${iso(state.horizon)}, but it is ${iso(now)} ` +
          `by the clock${state.databaseNow === now ? ' of the database' : ''}. ` +
          `If the clock is right, move the horizon back: ${this.#horizonCommand(now - this.#times.eventsMs)}`,
      );
      return;
    }
    const { elapsedMs, isFirst, isOtherClock } = this.#checkClock(state, now);
    // One of several workers is enough. Each makes its first pass at once, because settings may have changed.
    const isDone = state.note !== null && Math.abs(now - state.note.passedAt) < PRUNE_EVERY_MS / 2;
    if (isDone && !isFirst) {
      reached('retention.passed-elsewhere');
      return;
    }
    const note = state.note ?? { freeBefore: 0, freeSince: now, trustedAt: now, probationMs: 0 };
    if (this.#isDoubtful) {
      // Other processes have counted the time up to their last pass. Negative if the clock was set back since.
      const sinceLastMs = state.note === null ? elapsedMs : now - state.note.passedAt;
      const countedMs = sinceLastMs < 0 ? elapsedMs : Math.min(elapsedMs, sinceLastMs);
      // Time with an earlier clock proves nothing about this one.
      const probationMs = isOtherClock ? 0 : note.probationMs + countedMs;
      if (sinceLastMs < 0) reached('retention.clock-set-back');
      if (probationMs < PROBATION_MS) {
        reached('retention.on-probation');
        const trustedAt = state.note?.trustedAt ?? state.newestEvent ?? now;
        await this.#store.noteRetention({ ...note, trustedAt, passedAt: now, probationMs }, state.note);
        return;
      }
      reached('retention.trusted-after-probation');
      this.#isDoubtful = false;
      this.#log.warn(`the clock (${iso(now)}) is trusted now: the service has run with it for 24 hours`);
    }
    const horizon = Math.max(state.horizon, now - this.#times.eventsMs);
    // Not if someone has moved the horizon back since: what it passes now is kept for another day.
    const isScheduled = state.note !== null && note.freeBefore <= state.horizon;
    const isDue = isScheduled && now - note.freeSince >= FREE_DELAY_MS;
    if (horizon > state.horizon) {
      const nextFreeSince = isScheduled && !isDue ? note.freeSince + FREE_DELAY_MS : now;
      await this.#logMove(state, horizon, now, nextFreeSince + FREE_DELAY_MS);
    }
    if (isDue && note.freeBefore > state.freedBefore) reached('retention.space-freed');
    const freeBefore = isDue ? note.freeBefore : state.freedBefore;
    // Without a delay: top lists contain addresses, and operators rely on their retention time.
    const topListsBefore = now - this.#times.topListsMs;
    // If someone moves the horizon back meanwhile, the next pass sees that, and starts the delay again.
    const expectedHorizon = state.horizon;
    // Before the horizon hides events again: after a kill, the delay that they had before would free them too early.
    if (state.note !== null && !isScheduled)
      await this.#store.noteRetention({ ...state.note, freeBefore: horizon, freeSince: now }, state.note);
    await this.#store.prune(horizon, { freeBefore, topListsBefore, expectedHorizon, ...(stop && { stop }) });
    const next = isDue || !isScheduled ? { freeBefore: horizon, freeSince: now } : {};
    const done = { ...note, ...next, trustedAt: now, passedAt: now, probationMs: 0 };
    await this.#store.noteRetention(done, state.note);
  }

  #horizonCommand(time: number): string {
    return `wafstat horizon ${this.#times.location} --set ${iso(time)}`;
  }

  async #logMove(state: Retention, horizon: number, now: number, freedAt: number): Promise<void> {
    const move = `the horizon moves from ${iso(state.horizon)} to ${iso(horizon)}`;
    const from = await this.#hiddenFrom(state, horizon, now);
    if (from === null) return this.#log.info(move);
    this.#log.warn(
      `${move}: --retention ${setting(this.#times.eventsMs)} hides ${duration(horizon - from)} of events. To keep them, ` +
        `restart with --retention ${setting(Math.ceil((freedAt - from) / DAY_MS) * DAY_MS)} or more, then run ` +
        `'${this.#horizonCommand(from)}' before ${iso(freedAt)}, when their space is freed`,
    );
  }

  /** The time of the first event that a move hides; null if it hides only what became too old since the last move. */
  async #hiddenFrom({ horizon, note }: Retention, next: number, now: number): Promise<number | null> {
    const expectedMs = HIDDEN_MS_MIN + (note === null ? 0 : now - note.trustedAt);
    if (next - horizon <= expectedMs) return null;
    const sources = (await this.#store.projects()).flatMap((project) => project.sources);
    const oldest = sources.reduce(
      (time, { first_seen }) => Math.min(time, first_seen ?? time),
      Number.POSITIVE_INFINITY,
    );
    const from = Math.max(horizon, oldest);
    return next - from > expectedMs ? from : null;
  }

  /** Warns if the clock becomes doubtful. */
  #checkClock({ note, newestEvent }: Retention, now: number) {
    const monotonic = this.#clocks.monotonicNow();
    const last = this.#lastPass;
    this.#lastPass = { now, monotonic };
    const elapsedMs = last === null ? 0 : monotonic - last.monotonic;
    const doubt =
      last === null
        ? (downtimeDoubt(note?.trustedAt ?? newestEvent, now) ?? earlierDoubt(note, now))
        : jumpDoubt(now - last.now - elapsedMs);
    if (doubt !== null) {
      this.#isDoubtful = true;
      this.#log.warn(`${doubt}; no data is removed until the service has run for 24 hours with this clock`);
    }
    const isOtherClock =
      last === null ? note !== null && now - note.passedAt > DOWNTIME_MS_MAX : doubt !== null;
    return { elapsedMs, isFirst: last === null, isOtherClock };
  }
}

function downtimeDoubt(knownAt: number | null, now: number): string | null {
  if (knownAt === null || now - knownAt <= DOWNTIME_MS_MAX) return null;
  reached('retention.long-downtime');
  return `the clock says ${iso(now)}, but this store was last used at ${iso(knownAt)}`;
}

/** The clock jumped while another process ran, and was not trusted until that process ended. */
function earlierDoubt(note: RetentionNote | null, now: number): string | null {
  if (note === null || note.probationMs === 0 || now - note.trustedAt <= JUMP_MS_MAX) return null;
  reached('retention.doubt-inherited');
  return `the clock says ${iso(now)}, but it was last trusted at ${iso(note.trustedAt)}`;
}

function jumpDoubt(jumpMs: number): string | null {
  if (jumpMs <= JUMP_MS_MAX) return null;
  reached('retention.clock-jumped');
  return `the clock jumped ahead by ${Math.round(jumpMs / 60_000)} minutes`;
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

/** A time as options have it. */
function setting(ms: number): string {
  return ms % DAY_MS === 0 ? `${ms / DAY_MS}d` : `${ms / HOUR_MS}h`;
}

function duration(ms: number): string {
  return ms < 2 * DAY_MS ? `${Math.round(ms / HOUR_MS)} hours` : `${Math.round(ms / DAY_MS)} days`;
}

/** A wrong clock may be out of the range of Date. */
export function iso(time: number): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? `${time} ms` : date.toISOString();
}
