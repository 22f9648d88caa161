/**
 * Admission control: queries that compute something take turns, fairly between projects, and in slices that leave the
 * event loop free for everything else. A query that has waited too long is refused, because its client has likely
 * given up, and computing its response would only delay the others.
 */
import { ApiError } from '../../errors.ts';

/** The event loop is given free after this much work in one turn, so that health checks wait little for queries. */
const TURN_MS_MAX = 5;
/** Node.js accepts one connection per turn of the event loop: without short turns, health checks wait to be accepted. */
const REST_TURNS = 8;
/** Queries under way at once: more only compete for memory, and for the connections of a remote store. */
const RUNNING_MAX = 16;
const WAIT_MS_MAX = 500;
/** How often to check for queries that have waited too long while no slot is free. */
const REFUSE_MS = 50;
/** Of one user, waiting or under way: several dashboards at once. */
const PER_USER_MAX = 64;

interface Waiting {
  since: number;
  start(): void;
  refuse(): void;
}

export class Admission {
  /** Queries that wait, by project; the project whose turn it is comes first. */
  readonly #queues = new Map<string, Waiting[]>();
  readonly #byUser = new Map<string, number>();
  readonly #now: () => number;
  #running = 0;
  #turnStartedAt: number | null = null;
  /** Whether something was started in this turn that is not done yet. */
  #startedInTurn = false;
  #lastTurnMs = 0;
  /** Turns of the event loop to let pass before anything is started. */
  #restTurns = 0;
  #restUntil = 0;
  #refusing: NodeJS.Timeout | undefined;

  /** `now`: milliseconds that never go back. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Runs the work now, or when it is its turn. Throws ApiError when the user has too much under way, or it waited too long. */
  run<T>(project: string, user: string, work: () => Promise<T>): Promise<T> {
    const underWay = this.#byUser.get(user) ?? 0;
    if (underWay >= PER_USER_MAX) {
      throw new ApiError('WAF.3004', `this user has ${PER_USER_MAX} queries under way: wait for them`, {
        'Retry-After': '1',
      });
    }
    this.#byUser.set(user, underWay + 1);
    const admitted =
      this.#mayStart() && this.#queues.size === 0 ? this.#start(work) : this.#wait(project, work);
    return admitted.finally(() => this.#leave(user));
  }

  /** Also begins a turn, if none has begun: the work of all that starts before the event loop comes round again. */
  #mayStart(): boolean {
    if (this.#running >= RUNNING_MAX) {
      // There is nothing to start, only to refuse in time.
      this.#refusing ??= setTimeout(() => this.#look(), REFUSE_MS);
      return false;
    }
    const now = this.#now();
    if (this.#turnStartedAt === null) {
      this.#turnStartedAt = now;
      setImmediate(() => this.#endTurn());
    }
    // Work mostly begins behind an `await`: what it costs shows when it is done, or in the next turn.
    if (this.#startedInTurn) return false;
    // What is under way also takes its part of each turn; the one before tells how much.
    if (this.#running > 0 && this.#lastTurnMs >= TURN_MS_MAX) return false;
    return this.#restTurns === 0 && now - this.#turnStartedAt < TURN_MS_MAX;
  }

  async #start<T>(work: () => Promise<T>): Promise<T> {
    this.#running++;
    this.#startedInTurn = true;
    try {
      return await work();
    } finally {
      this.#running--;
      this.#startedInTurn = false;
      this.#startWaiting();
    }
  }

  #wait<T>(project: string, work: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const queue = this.#queues.get(project) ?? [];
      queue.push({
        since: this.#now(),
        start: () => resolve(this.#start(work)),
        refuse: () => reject(overloaded()),
      });
      this.#queues.set(project, queue);
    });
  }

  #leave(user: string): void {
    const left = (this.#byUser.get(user) ?? 1) - 1;
    if (left === 0) this.#byUser.delete(user);
    else this.#byUser.set(user, left);
  }

  #endTurn(): void {
    const now = this.#now();
    this.#lastTurnMs = now - (this.#turnStartedAt ?? now);
    this.#turnStartedAt = null;
    this.#startedInTurn = false;
    if (this.#restTurns === 0 && this.#lastTurnMs >= TURN_MS_MAX) {
      // Not after short turns: it would cost a tenth of the throughput.
      this.#restTurns = REST_TURNS;
      this.#restUntil = now + this.#lastTurnMs;
    } else if (this.#restTurns > 0) {
      // No longer than the work took: under load the other turns are long too.
      this.#restTurns = now > this.#restUntil ? 0 : this.#restTurns - 1;
    }
    this.#look();
  }

  #look(): void {
    clearTimeout(this.#refusing);
    this.#refusing = undefined;
    this.#refuseLate();
    this.#startWaiting();
  }

  #startWaiting(): void {
    while (this.#queues.size > 0 && this.#mayStart()) this.#next()?.start();
  }

  /** One query of the project whose turn it is, which is then the last in line. */
  #next(): Waiting | undefined {
    const [first] = this.#queues;
    if (first === undefined) return undefined;
    const [project, queue] = first;
    const next = queue.shift();
    this.#queues.delete(project);
    if (queue.length > 0) this.#queues.set(project, queue);
    return next;
  }

  #refuseLate(): void {
    const latest = this.#now() - WAIT_MS_MAX;
    for (const [project, queue] of this.#queues) {
      while (queue[0] && queue[0].since < latest) queue.shift()?.refuse();
      if (queue.length === 0) this.#queues.delete(project);
    }
  }
}

function overloaded(): ApiError {
  return new ApiError('WAF.5001', `the service is overloaded: the query waited ${WAIT_MS_MAX} ms`, {
    'Retry-After': '1',
  });
}
