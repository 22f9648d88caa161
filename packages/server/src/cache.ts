/** Caches: bounded, invalidated by a change counter, and for one turn of the event loop. */
import { LRUCache } from 'lru-cache';

interface CacheLimits<K, V> {
  entriesMax: number;
  /** The sum of `weight` over all entries, for example in bytes. */
  weightMax?: number;
  weight?: (value: V, key: K) => number;
  /** Entries older than this are not returned. */
  ttlMs?: number;
}

/** Evicts the least recently used entries beyond its limits. */
export class BoundedCache<K extends {}, V extends {}> {
  readonly #limits: CacheLimits<K, V>;
  /** Allocates space for all entries, so that a large cache is created when it is used: 20 ms for 100,000 entries. */
  #entries: LRUCache<K, V> | null = null;
  hits = 0;
  misses = 0;

  constructor(limits: CacheLimits<K, V>) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#entries?.size ?? 0;
  }

  get(key: K): V | undefined {
    const value = this.#entries?.get(key);
    if (value === undefined) this.misses++;
    else this.hits++;
    return value;
  }

  set(key: K, value: V): void {
    this.#entries ??= createEntries(this.#limits);
    this.#entries.set(key, value);
  }

  delete(key: K): void {
    this.#entries?.delete(key);
  }

  clear(): void {
    this.#entries?.clear();
  }
}

function createEntries<K extends {}, V extends {}>(limits: CacheLimits<K, V>): LRUCache<K, V> {
  const { entriesMax, weightMax = 0, weight, ttlMs = 0 } = limits;
  return new LRUCache<K, V>({
    max: entriesMax,
    maxSize: weightMax,
    ttl: ttlMs,
    // lru-cache rejects a weight of 0.
    ...(weight && { sizeCalculation: (value: V, key: K) => Math.max(1, Math.ceil(weight(value, key))) }),
  });
}

/** More tokens, keys or ranges than are in use at a time; about 2 MB at most. */
const VERSIONED_ENTRIES_MAX = 1_000;

/**
 * Caches lookups until a change counter differs. The counter is in the file that the lookups read, so a change takes
 * effect at once, whichever process made it (docs/decisions/0012).
 */
export class VersionedCache<K extends {}, V extends {}> {
  readonly #changes: () => number;
  readonly #values = new BoundedCache<K, V>({ entriesMax: VERSIONED_ENTRIES_MAX });
  #version = -1;

  constructor(changes: () => number) {
    this.#changes = changes;
  }

  get(key: K): V | undefined {
    const changes = this.#changes();
    if (changes !== this.#version) {
      this.#values.clear();
      this.#version = changes;
    }
    return this.#values.get(key);
  }

  /** Only for values looked up after the last `get`, so that they are of its version or a later one. */
  set(key: K, value: V): void {
    this.#values.set(key, value);
  }
}

/**
 * Reads a value once per turn of the event loop. LMDB has one snapshot per turn anyway, but a lookup takes 2 us, and a
 * signed request needs it three times. Call `forget` after changing the value in this process.
 */
export class PerTurnMemo<V extends {}> {
  readonly #read: () => V;
  #value: V | undefined;

  constructor(read: () => V) {
    this.#read = read;
  }

  get(): V {
    if (this.#value === undefined) {
      this.#value = this.#read();
      setImmediate(() => this.forget());
    }
    return this.#value;
  }

  forget(): void {
    this.#value = undefined;
  }
}
