/**
 * Admission control: queries that compute something take turns, fairly between projects, and in slices that leave the
 * event loop free for everything else. A query that has waited too long is refused, because its client has likely
 * given up, and computing its response would only delay the others.
 */
import { ApiError } from '../errors.ts';

/** The event loop is given free after this much work in one turn, so that health checks never wait for queries. */
const TURN_MS_MAX = 5;
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
  /** When the first query of this turn of the event loop started. */
  #turnStartedAt: number | null = null;
  #refusalTimer: NodeJS.Timeout | null = null;

  /** `now`: milliseconds that never go back. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Runs the work now, or when it is its turn. Throws ApiError when the user has too much under way, and rejects with
   * one when the work waited too long.
   */
  run<T>(project: string, user: string, work: () => Promise<T>): Promise<T> {
    const underWay = this.#byUser.get(user) ?? 0;
    if (underWay >= PER_USER_MAX) {
      throw new ApiError('WAF.3004', `this user has ${PER_USER_MAX} queries under way: wait for them`, {
        'Retry-After': '1',
      });
    }
    this.#byUser.set(user, underWay + 1);
    const mayStart = this.#queues.size === 0 && this.#mayStart();
    return (mayStart ? this.#start(work) : this.#wait(project, work)).finally(() => this.#leave(user));
  }

  #mayStart(): boolean {
    const isTurnOver = this.#turnStartedAt !== null && this.#now() - this.#turnStartedAt >= TURN_MS_MAX;
    return this.#running < RUNNING_MAX && !isTurnOver;
  }

  async #start<T>(work: () => Promise<T>): Promise<T> {
    if (this.#turnStartedAt === null) {
      this.#turnStartedAt = this.#now();
      setImmediate(() => {
        this.#turnStartedAt = null;
        this.#startWaiting();
      });
    }
    this.#running++;
    try {
      return await work();
    } finally {
      this.#running--;
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
      this.#refusalTimer ??= setInterval(() => this.#refuseLate(), REFUSE_MS);
    });
  }

  #startWaiting(): void {
    this.#refuseLate();
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
    if (this.#queues.size > 0 || this.#refusalTimer === null) return;
    clearInterval(this.#refusalTimer);
    this.#refusalTimer = null;
  }

  #leave(user: string): void {
    const left = (this.#byUser.get(user) ?? 1) - 1;
    if (left === 0) this.#byUser.delete(user);
    else this.#byUser.set(user, left);
  }
}

function overloaded(): ApiError {
  return new ApiError('WAF.5001', `the service is overloaded: the query waited ${WAIT_MS_MAX} ms`, {
    'Retry-After': '1',
  });
}
