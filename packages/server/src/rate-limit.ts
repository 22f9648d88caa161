import { BoundedCache } from './cache.ts';

const KEYS_MAX = 10_000;

/** A token bucket per key: `burst` at once, then one every `refillMs`. */
export class RateLimit {
  readonly #burst: number;
  readonly #refillMs: number;
  readonly #now: () => number;
  readonly #buckets = new BoundedCache<string, { left: number; at: number }>({
    name: null,
    entriesMax: KEYS_MAX,
    unitBytes: 200,
  });

  constructor(burst: number, refillMs: number, now: () => number) {
    this.#burst = burst;
    this.#refillMs = refillMs;
    this.#now = now;
  }

  /** Takes one, or returns false. A clock that was set back neither adds nor removes any. */
  take(key: string): boolean {
    const time = this.#now();
    const { left, at } = this.#buckets.get(key) ?? { left: this.#burst, at: time };
    const available = Math.min(this.#burst, left + Math.max(0, time - at) / this.#refillMs);
    const isAllowed = available >= 1;
    this.#buckets.set(key, { left: isAllowed ? available - 1 : available, at: time });
    return isAllowed;
  }
}
