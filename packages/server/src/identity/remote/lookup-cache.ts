/** Caches lookups at Keystone for a limited time. */
import { BoundedCache } from '../../cache.ts';

/** About 1 KB each, 10 MB per cache. */
const FOUND_MAX = 10_000;
/** Separate from the others, so that invented tokens cannot evict those of callers. */
const NOT_FOUND_MAX = 1_000;
/** Long enough to slow down a client that keeps retrying, short enough for a key that was just created. */
const NOT_FOUND_TTL_MS_MAX = 5_000;

interface Entry<T> {
  value: T;
  requestedAt: number;
}

export class LookupCache<T extends {}> {
  readonly #found = new BoundedCache<string, Entry<T>>({
    name: 'keystone',
    entriesMax: FOUND_MAX,
    unitBytes: 1_024,
  });
  readonly #notFound = new BoundedCache<string, Entry<null>>({
    name: 'keystone',
    entriesMax: NOT_FOUND_MAX,
    unitBytes: 256,
  });
  readonly #pending = new Map<string, Promise<T | null>>();
  readonly #cacheTtlMs: number;
  readonly #now: () => number;

  constructor(cacheTtlMs: number, now: () => number) {
    this.#cacheTtlMs = cacheTtlMs;
    this.#now = now;
  }

  /** Concurrent lookups of a key share one call of `fetch`. Null means not found. Failures are not cached. */
  async get(key: string, fetch: () => Promise<T | null>): Promise<T | null> {
    const known = this.#found.get(key) ?? this.#notFound.get(key);
    if (known && this.#isFresh(known)) return known.value;
    const pending = this.#pending.get(key) ?? this.#fetch(key, fetch);
    this.#pending.set(key, pending);
    return pending;
  }

  async #fetch(key: string, fetch: () => Promise<T | null>): Promise<T | null> {
    // The record may change while the response is on its way, so its age counts from the request.
    const requestedAt = this.#now();
    try {
      const value = await fetch();
      this.#found.delete(key);
      this.#notFound.delete(key);
      if (value === null) this.#notFound.set(key, { value, requestedAt });
      else this.#found.set(key, { value, requestedAt });
      return value;
    } finally {
      this.#pending.delete(key);
    }
  }

  /** A clock that was set back must not prolong an entry. */
  #isFresh({ value, requestedAt }: Entry<T | null>): boolean {
    const ttlMs = value === null ? Math.min(this.#cacheTtlMs, NOT_FOUND_TTL_MS_MAX) : this.#cacheTtlMs;
    const ageMs = this.#now() - requestedAt;
    return ageMs >= 0 && ageMs < ttlMs;
  }
}
