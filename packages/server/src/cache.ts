/** Caches: bounded, and invalidated by a change counter. */
import { LRUCache } from 'lru-cache';
import { cacheCreated, cacheUsed } from './diagnostics.ts';

/** The caches of the service, and what is in them. Removing any of them changes no response. */
export const CACHES = {
  attack_blocks: 'heads of blocks of kept attacks, and counts of repeated queries (embedded store)',
  chunks: 'decoded counts (embedded store)',
  host_lists: 'hosts of projects (embedded store)',
  keystone: 'tokens, access keys and roles that Keystone has confirmed or refused',
  parameters: 'parsed log patterns and time zones of pushes',
  points: 'points of timelines',
  projects: 'records of projects (embedded store)',
  queries: 'parsed parameters of repeated queries',
  responses: 'responses to queries that were requested again',
  selections: 'hosts of repeated queries (embedded store)',
  source_names: 'names of sources',
  tokens: 'valid tokens',
  top_lists: 'merged hours of top lists',
  versions: 'sums of change counters (embedded store)',
} as const;

type CacheName = keyof typeof CACHES;

/** How the large caches share the memory of `--cache`. All others have fixed limits: 16 MB for `attack_blocks`, a few megabytes for the rest. */
const SHARES = { chunks: 0.25, points: 0.1875, responses: 0.1875, top_lists: 0.375 } as const;

export function cacheShare(name: keyof typeof SHARES, cacheBytes: number): number {
  return Math.floor(cacheBytes * SHARES[name]);
}

interface CacheLimits<K, V> {
  /** The name in metrics; null for state that is bounded like a cache, and for caches that do not live as long as the process. */
  name: CacheName | null;
  entriesMax: number;
  /** The sum of `weight` over all entries, for example in bytes. 0: the cache is off. */
  weightMax?: number;
  weight?: (value: V, key: K) => number;
  /** How much memory a unit of weight takes, or an entry without weight, for metrics. Default: 1. */
  unitBytes?: number;
  /** Entries older than this are not returned. */
  ttlMs?: number;
}

/** Evicts the least recently used entries beyond its limits. */
export class BoundedCache<K extends {}, V extends {}> {
  readonly #limits: CacheLimits<K, V>;
  readonly name: string;
  /** Created on first use: most caches of a process are never used. */
  #entries: LRUCache<K, V> | null = null;
  hits = 0;
  misses = 0;

  constructor(limits: CacheLimits<K, V>) {
    this.#limits = limits;
    this.name = limits.name ?? '';
    if (limits.name !== null) cacheCreated.publish(this);
  }

  get size(): number {
    return this.#entries?.size ?? 0;
  }

  /** An estimate. */
  get bytes(): number {
    const { weight, unitBytes = 1 } = this.#limits;
    return unitBytes * (weight ? (this.#entries?.calculatedSize ?? 0) : this.size);
  }

  get(key: K): V | undefined {
    const value = this.#entries?.get(key);
    if (value === undefined) this.misses++;
    else this.hits++;
    if (cacheUsed.isWatched && this.name !== '')
      cacheUsed.publish({ name: this.name, isHit: value !== undefined });
    return value;
  }

  set(key: K, value: V): void {
    if (this.#limits.weightMax === 0) return;
    this.#entries ??= createEntries(this.#limits);
    this.#entries.set(key, value);
    if (this.#entries.size > this.#limits.entriesMax) this.#entries.pop();
  }

  delete(key: K): void {
    this.#entries?.delete(key);
  }

  clear(): void {
    this.#entries?.clear();
  }
}

/** Without `max`, for which lru-cache would allocate space at once: 5 MB for the caches of the service. */
function createEntries<K extends {}, V extends {}>(limits: CacheLimits<K, V>): LRUCache<K, V> {
  const { entriesMax, weightMax = entriesMax, weight = () => 1, ttlMs = 0 } = limits;
  return new LRUCache<K, V>({
    maxSize: weightMax,
    ttl: ttlMs,
    // lru-cache rejects a weight of 0.
    sizeCalculation: (value: V, key: K) => Math.max(1, Math.ceil(weight(value, key))),
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
  readonly #values: BoundedCache<K, V>;
  #version = -1;

  constructor(name: CacheName, changes: () => number) {
    this.#values = new BoundedCache({ name, entriesMax: VERSIONED_ENTRIES_MAX, unitBytes: 2_048 });
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
