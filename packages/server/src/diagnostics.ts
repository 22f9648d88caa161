/** What parts of the service report to metrics and traces. Diagnostics channels of Node.js cost nothing while nobody subscribes. */
import { type Channel, channel, subscribe, unsubscribe } from 'node:diagnostics_channel';

class Signal<T> {
  readonly #channel: Channel;

  constructor(name: string) {
    this.#channel = channel(name);
  }

  /** Whether to collect what a message needs. */
  get isWatched(): boolean {
    return this.#channel.hasSubscribers;
  }

  publish(message: T): void {
    if (this.#channel.hasSubscribers) this.#channel.publish(message);
  }

  /** Returns a function that ends the subscription. */
  subscribe(receive: (message: T) => void): () => void {
    // Only `publish` sends on this channel, so the type is right.
    const onMessage = (message: unknown) => receive(message as T);
    subscribe(this.#channel.name, onMessage);
    return () => void unsubscribe(this.#channel.name, onMessage);
  }
}

/** A cache that lives as long as the process. Several may have the same name. */
export interface NamedCache {
  readonly name: string;
  readonly hits: number;
  readonly misses: number;
  readonly size: number;
  /** An estimate. */
  readonly bytes: number;
}

/** Why a request was refused before any work was done for it. */
export const SHED_REASONS = {
  queue: 'a query waited too long for its turn',
  user_queries: 'the user had too many queries in progress',
  rate_limit: 'the user sent more requests per second than `--rate-limit`',
  connections: 'a connection over `--max-connections` was closed',
  pipelined: 'a connection was closed because too many requests waited for the responses before them',
  unread: 'a connection was closed because its client did not read the response',
} as const;

type ShedReason = keyof typeof SHED_REASONS;

export const cacheCreated = new Signal<NamedCache>('wafstat:cache.created');
/** How long a statistics query waited for its turn, in milliseconds. */
export const queryAdmitted = new Signal<number>('wafstat:query.admitted');
export const requestShed = new Signal<ShedReason>('wafstat:request.shed');
/** The reason, as in the audit trail. */
export const loginRefused = new Signal<string>('wafstat:login.refused');
export const cacheUsed = new Signal<{ name: string; isHit: boolean }>('wafstat:cache.used');
/** How many records of the embedded store, or rows of PostgreSQL, were read. */
export const recordsRead = new Signal<number>('wafstat:records.read');
export const stepDone = new Signal<{ name: string; ms: number }>('wafstat:step.done');

/** Reports how long a step of a query takes. */
export function timed<T>(name: string, action: () => T | Promise<T>): T | Promise<T> {
  return stepDone.isWatched ? measured(name, action) : action();
}

async function measured<T>(name: string, action: () => T | Promise<T>): Promise<T> {
  const startedAt = performance.now();
  try {
    return await action();
  } finally {
    stepDone.publish({ name, ms: performance.now() - startedAt });
  }
}
