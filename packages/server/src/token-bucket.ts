/** A rate limit: a burst at once, then one every `refillMs`. */
export class TokenBucket {
  readonly #burst: number;
  readonly #refillMs: number;
  #left: number;
  #at: number;

  constructor(burst: number, refillMs: number, now: number) {
    this.#burst = burst;
    this.#refillMs = refillMs;
    this.#left = burst;
    this.#at = now;
  }

  /** Takes one, or returns false. A clock that was set back neither adds nor removes any. */
  take(now: number): boolean {
    this.#left = Math.min(this.#burst, this.#left + Math.max(0, now - this.#at) / this.#refillMs);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
