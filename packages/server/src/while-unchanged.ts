/**
 * What has been found out, kept for as long as a count of changes stays the same. The count stands in the file that it
 * is about, so a change takes effect at once, whichever process made it (docs/decisions/0012).
 */

/** Tokens, keys or ranges: more than are in use at a time, and some 2 MB at most. */
const ENTRIES_MAX = 1_000;

export class WhileUnchanged<V, K = string> {
  readonly #changes: () => number;
  readonly #found = new Map<K, V>();
  #at = -1;

  constructor(changes: () => number) {
    this.#changes = changes;
  }

  get(key: K): V | undefined {
    const changes = this.#changes();
    if (changes !== this.#at) {
      this.#found.clear();
      this.#at = changes;
    }
    return this.#found.get(key);
  }

  /** Only what was looked up after the last `get`: then it is of the same state, or of a later one. */
  set(key: K, value: V): void {
    if (this.#found.size >= ENTRIES_MAX) this.#found.clear();
    this.#found.set(key, value);
  }
}

/**
 * Read once for all that is asked in one turn of the event loop. LMDB shows one turn one state anyway, but to look it up
 * takes 2 us, and a signed request asks for it three times. Who has changed it in this process says so by `forget`.
 */
export class OncePerTurn<V> {
  readonly #read: () => V;
  #known: V | undefined;

  constructor(read: () => V) {
    this.#read = read;
  }

  get(): V {
    if (this.#known === undefined) {
      this.#known = this.#read();
      setImmediate(() => this.forget());
    }
    return this.#known;
  }

  forget(): void {
    this.#known = undefined;
  }
}
