/** Explains a query: which caches answered, how many records were read, and how long each step took. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { FastifyRequest } from 'fastify';
import { cacheUsed, recordsRead, stepDone } from '../../diagnostics.ts';
import { ApiError } from '../../errors.ts';
import { parseOneOf, queryOf } from '../query.ts';

/** The trace of the query that runs: those of others do not count. */
const current = new AsyncLocalStorage<Trace>();
let running = 0;
let unsubscribe: readonly (() => void)[] = [];

export class Trace {
  readonly #startedAt = performance.now();
  readonly #milliseconds = new Map<string, number>();
  readonly #caches = new Map<string, { hits: number; misses: number }>();
  #records = 0;
  /** Whether the caller gets it. Otherwise it is only logged. */
  readonly isRequested: boolean;

  constructor(isRequested: boolean) {
    this.isRequested = isRequested;
  }

  /** Traces the action. While any trace runs, all queries are slower: queries that wait for their turn must not be in here. */
  async run<T>(action: () => Promise<T>): Promise<T> {
    if (running++ === 0) {
      unsubscribe = [
        cacheUsed.subscribe(({ name, isHit }) => current.getStore()?.addLookup(name, isHit)),
        recordsRead.subscribe((records) => current.getStore()?.addRecords(records)),
        stepDone.subscribe(({ name, ms }) => current.getStore()?.addStep(name, ms)),
      ];
    }
    try {
      return await current.run(this, action);
    } finally {
      if (--running === 0) {
        for (const end of unsubscribe) end();
        current.disable();
      }
    }
  }

  /** The action, for a queue: the time until it starts is a step. */
  queued<T>(action: () => Promise<T>): () => Promise<T> {
    const since = performance.now();
    return () => {
      this.addStep('queue', performance.now() - since);
      return this.run(action);
    };
  }

  /** For the log. */
  toJSON() {
    const steps_us: Record<string, number> = {};
    for (const [name, ms] of this.#milliseconds) steps_us[name] = Math.round(ms * 1_000);
    return {
      total_us: Math.round((performance.now() - this.#startedAt) * 1_000),
      steps_us,
      caches: Object.fromEntries(this.#caches),
      records: this.#records,
    };
  }

  /** The value of the header of the same name, which browsers show. */
  get serverTiming(): string {
    const { total_us, steps_us, caches, records } = this.toJSON();
    return [
      ...Object.entries({ total: total_us, ...steps_us }).map(([name, us]) => `${name};dur=${us / 1_000}`),
      `records;desc="${records}"`,
      ...Object.entries(caches).map(
        ([name, { hits, misses }]) => `cache_${name};desc="${hits} hits, ${misses} misses"`,
      ),
    ].join(', ');
  }

  addStep(name: string, ms: number): void {
    this.#milliseconds.set(name, (this.#milliseconds.get(name) ?? 0) + ms);
  }

  addRecords(records: number): void {
    this.#records += records;
  }

  addLookup(name: string, isHit: boolean): void {
    const { hits, misses } = this.#caches.get(name) ?? { hits: 0, misses: 0 };
    this.#caches.set(name, isHit ? { hits: hits + 1, misses } : { hits, misses: misses + 1 });
  }
}

/** A trace if the request or the log level asks for one. */
export function traceOf(request: FastifyRequest): Trace | undefined {
  if (isRequested(request)) {
    // Hits show what others have queried.
    if (!request.isAdmin) throw new ApiError('WAF.9002', "trace needs the role 'admin' in this project");
    return new Trace(true);
  }
  return request.log.level === 'debug' ? new Trace(false) : undefined;
}

function isRequested(request: FastifyRequest): boolean {
  // Parsing the query would take as long as a cached response.
  return request.url.includes('trace=') && parseOneOf(queryOf(request), 'trace', ['0', '1']) === '1';
}
