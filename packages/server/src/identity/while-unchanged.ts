/**
 * What has been found out about identity, kept for as long as nothing of it changes, in this process or another. So a
 * revoked token, a disabled user or a lost role takes effect at once, everywhere, and yet most requests cost one small
 * read instead of six (docs/decisions/0012).
 */

/** More than are in use at a time; some 2 MB. */
const ENTRIES_MAX = 1_000;

export class WhileUnchanged<V> {
  readonly #changes: () => number;
  readonly #found = new Map<string, V>();
  #at = -1;

  /** `changes` counts them. */
  constructor(changes: () => number) {
    this.#changes = changes;
  }

  get(key: string): V | undefined {
    const changes = this.#changes();
    if (changes !== this.#at) {
      this.#found.clear();
      this.#at = changes;
    }
    return this.#found.get(key);
  }

  /** Only what was looked up after the last `get`: then it is of the same state, or of a later one. */
  set(key: string, value: V): void {
    if (this.#found.size >= ENTRIES_MAX) this.#found.clear();
    this.#found.set(key, value);
  }
}
