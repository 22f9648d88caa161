/**
 * Admission control: queries that compute something take turns, fairly between projects, in slices that leave the event
 * loop free for other work. A query that waited too long is shed: its client has likely given up, and computing the
 * response would only delay the others.
 */
import { queryAdmitted, requestShed } from '../../diagnostics.ts';
import { retryLater } from '../../errors.ts';
import { FairQueue } from '../../fair-queue.ts';

/** After this much work in one event-loop turn, nothing more starts, so that health checks wait little for queries. */
const TURN_MS_MAX = 5;
/** Node.js accepts one connection per event-loop turn: without short turns, health checks wait to be accepted. */
const REST_TURNS = 8;
/** More queries at once only compete for memory, and for the connections of a remote store. */
const RUNNING_MAX = 16;
const WAIT_MS_MAX = 500;
/** A dashboard sends this many queries at once: on a slow machine, one person's queries wait longer. */
const DASHBOARD_QUERIES = 16;
/** With more queries of such users in progress, theirs are shed too: two dashboards at once. */
const DASHBOARDS_QUERIES_MAX = 32;
/** Browsers and people give up later than programs. */
const DASHBOARD_WAIT_MS_MAX = 10_000;
/** How often to check for queries that waited too long. */
const SHED_CHECK_MS = 50;
/** Waiting and running queries of one user: enough for several dashboards at once. */
const PER_USER_MAX = 64;

interface WaitingQuery {
  user: string;
  since: number;
  start(): void;
  shed(waitedMs: number): void;
}

export class Admission {
  /** The owners in this queue are projects. */
  readonly #waiting = new FairQueue<WaitingQuery>();
  readonly #countByUser = new Map<string, number>();
  readonly #now: () => number;
  #running = 0;
  #turnStartedAt: number | null = null;
  /** Whether a query that started in this turn is still running. */
  #startedInTurn = false;
  #lastTurnMs = 0;
  /** Event-loop turns to skip before anything starts. */
  #restTurns = 0;
  #restUntil = 0;
  #shedAt = Number.NEGATIVE_INFINITY;
  #shedTimer: NodeJS.Timeout | undefined;

  /** `now`: monotonic milliseconds. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Runs the query now or in its turn. Throws ApiError if the user has too many queries, or if it waited too long. */
  run<T>(project: string, user: string, query: () => Promise<T>): Promise<T> {
    const count = this.#countByUser.get(user) ?? 0;
    if (count >= PER_USER_MAX) {
      requestShed.publish('user_queries');
      throw retryLater('WAF.3004', `this user has ${PER_USER_MAX} queries in progress: wait for them`, 1);
    }
    this.#countByUser.set(user, count + 1);
    return this.#mayStart() && this.#waiting.isEmpty
      ? this.#start(user, query, 0)
      : this.#enqueue(project, user, query);
  }

  /** Also begins a turn if none has begun. A turn is everything that starts before the event loop comes round again. */
  #mayStart(): boolean {
    if (this.#running >= RUNNING_MAX) {
      this.#shedTimer ??= setTimeout(() => this.#shedAndStart(), SHED_CHECK_MS);
      return false;
    }
    const now = this.#now();
    if (this.#turnStartedAt === null) {
      this.#turnStartedAt = now;
      setImmediate(() => this.#endTurn());
    }
    // Queries mostly do their work after an `await`: its cost shows when they are done, or in the next turn.
    if (this.#startedInTurn) return false;
    // Running queries take their share of each turn, about as much as in the last one.
    if (this.#running > 0 && this.#lastTurnMs >= TURN_MS_MAX) return false;
    return this.#restTurns === 0 && now - this.#turnStartedAt < TURN_MS_MAX;
  }

  async #start<T>(user: string, query: () => Promise<T>, waitedMs: number): Promise<T> {
    queryAdmitted.publish(waitedMs);
    this.#running++;
    this.#startedInTurn = true;
    try {
      return await query();
    } finally {
      this.#running--;
      this.#startedInTurn = false;
      this.#leave(user);
      this.#startWaiting();
    }
  }

  #enqueue<T>(project: string, user: string, query: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const since = this.#now();
      this.#waiting.add(project, {
        user,
        since,
        start: () => resolve(this.#start(user, query, this.#now() - since)),
        shed: (waitedMs) => {
          this.#leave(user);
          requestShed.publish('queue');
          reject(retryLater('WAF.5001', `the service is overloaded: the query waited ${waitedMs} ms`, 1));
        },
      });
    });
  }

  #leave(user: string): void {
    const left = (this.#countByUser.get(user) ?? 1) - 1;
    if (left === 0) this.#countByUser.delete(user);
    else this.#countByUser.set(user, left);
  }

  #endTurn(): void {
    const now = this.#now();
    this.#lastTurnMs = now - (this.#turnStartedAt ?? now);
    this.#turnStartedAt = null;
    this.#startedInTurn = false;
    if (this.#restTurns === 0 && this.#lastTurnMs >= TURN_MS_MAX) {
      // Not after short turns: resting would cost a tenth of the throughput.
      this.#restTurns = REST_TURNS;
      this.#restUntil = now + this.#lastTurnMs;
    } else if (this.#restTurns > 0) {
      // Rests no longer than the work took: under load, the other turns are long too.
      this.#restTurns = now > this.#restUntil ? 0 : this.#restTurns - 1;
    }
    this.#shedAndStart();
  }

  #shedAndStart(): void {
    clearTimeout(this.#shedTimer);
    this.#shedTimer = undefined;
    const now = this.#now();
    if (!this.#waiting.isEmpty && now - this.#shedAt >= SHED_CHECK_MS) {
      this.#shedAt = now;
      const waitMsMax = this.#waitLimits();
      for (const query of this.#waiting.takeAll(({ user, since }) => since < now - waitMsMax(user)))
        query.shed(waitMsMax(query.user));
    }
    this.#startWaiting();
  }

  /** How long the queries of a user may wait. */
  #waitLimits(): (user: string) => number {
    const dashboards = new Set<string>();
    let queries = 0;
    for (const [user, count] of this.#countByUser) {
      if (count > DASHBOARD_QUERIES) continue;
      dashboards.add(user);
      queries += count;
    }
    const isOverloaded = queries > DASHBOARDS_QUERIES_MAX;
    return (user) => (isOverloaded || !dashboards.has(user) ? WAIT_MS_MAX : DASHBOARD_WAIT_MS_MAX);
  }

  #startWaiting(): void {
    while (!this.#waiting.isEmpty && this.#mayStart()) this.#waiting.take()?.start();
  }
}
