/**
 * Top lists with guaranteed bounds: a summary of one hour (Space-Saving, in batches), and the sum of many of them.
 * docs/decisions/0027-top-lists.md has the proofs, docs/storage.md the layout:
 *
 *   summary = 0 entry*                                       all values of the hour
 *           | 1 error losses lost{losses} registers entry*   some were evicted
 *   entry   = shared length byte{length} [error] counts      keys in ascending order, `error` after evictions only
 *   counts  = (count*32 + category)*2 + more
 */
import { CATEGORIES } from '../event.ts';
import { NumberReader, type RecordWriter } from './cells.ts';
import { compareTopItems, type TopItem, type TopList, type TopListName } from './store.ts';

/** Numbers of categories and their counts, in turns. */
export type CategoryCounts = number[];

interface Entry {
  /** Since the value was inserted. */
  counts: CategoryCounts;
  /** The value had at most this many attacks before it was inserted. */
  error: number;
}

interface Evictions {
  /** A value that was evicted, or never inserted, has at most this many attacks. */
  error: number;
  /** Attacks of evicted values by category. */
  lost: number[];
  /** Of all values. */
  sketch: Uint8Array;
}

/** One list of one scope in one hour. */
export class TopSummary {
  readonly entries = new Map<string, Entry>();
  #evictions: Evictions | null = null;

  static decode(bytes: Uint8Array): TopSummary {
    const summary = new TopSummary();
    const { evictions } = readSummary(bytes, (key, error, counts) => {
      summary.entries.set(key, { counts: counts.slice(), error });
    });
    if (evictions) summary.#evictions = { ...evictions, sketch: Uint8Array.from(evictions.sketch) };
    return summary;
  }

  /** Adds the attacks of a batch, then evicts values until `keysMax` are left. */
  add(additions: ReadonlyMap<string, CategoryCounts>, keysMax: number, hash: KeyHash): void {
    const error = this.#evictions?.error ?? 0;
    for (const [key, counts] of additions) {
      const entry = this.entries.get(key);
      if (entry) for (let i = 0; i < counts.length; i += 2) addCount(entry.counts, counts[i], counts[i + 1]);
      else this.entries.set(key, { counts: counts.slice(), error });
    }
    if (this.#evictions) for (const key of additions.keys()) hash.addTo(this.#evictions.sketch, key);
    if (this.entries.size > keysMax) this.#evict(keysMax, hash);
  }

  #evict(keysMax: number, hash: KeyHash): void {
    this.#evictions ??= {
      error: 0,
      lost: CATEGORIES.map(() => 0),
      sketch: hash.sketchOf(this.entries.keys()),
    };
    const { lost } = this.#evictions;
    const ranked = [...this.entries].map(([key, { counts, error }]) => ({
      key,
      most: sumOf(counts) + error,
    }));
    ranked.sort((a, b) => b.most - a.most || (a.key < b.key ? -1 : 1));
    this.#evictions.error = ranked[keysMax]?.most ?? 0;
    for (const { key } of ranked.slice(keysMax)) {
      const { counts = [] } = this.entries.get(key) ?? {};
      for (let i = 0; i < counts.length; i += 2) {
        const category = counts[i] ?? 0;
        lost[category] = (lost[category] ?? 0) + (counts[i + 1] ?? 0);
      }
      this.entries.delete(key);
    }
  }

  encode(writer: RecordWriter): void {
    writer.clear();
    const evictions = this.#evictions;
    writer.number(evictions ? 1 : 0);
    if (evictions) {
      writer.number(evictions.error);
      writer.number(evictions.lost.length);
      for (const count of evictions.lost) writer.number(count);
      writer.copy(evictions.sketch, 0, REGISTERS);
    }
    let before: Uint8Array = Buffer.alloc(0);
    for (const key of [...this.entries.keys()].sort()) {
      const { counts, error } = this.entries.get(key) as Entry;
      const bytes = Buffer.from(key);
      const shared = sharedBytes(before, bytes);
      writer.number(shared);
      writer.number(bytes.length - shared);
      writer.copy(bytes, shared, bytes.length);
      if (evictions) writer.number(error);
      for (let i = 0; i < counts.length; i += 2) {
        const more = i + 2 < counts.length ? 1 : 0;
        writer.number(((counts[i + 1] ?? 0) * 32 + (counts[i] ?? 0)) * 2 + more);
      }
      before = bytes;
    }
  }
}

/** Adds to the counts of a value. */
export function addCount(counts: CategoryCounts, category = 0, count = 0): void {
  for (let i = 0; i < counts.length; i += 2) {
    if (counts[i] !== category) continue;
    counts[i + 1] = (counts[i + 1] ?? 0) + count;
    return;
  }
  counts.push(category, count);
}

function sumOf(counts: CategoryCounts): number {
  let sum = 0;
  for (let i = 1; i < counts.length; i += 2) sum += counts[i] ?? 0;
  return sum;
}

function sharedBytes(a: Uint8Array, b: Uint8Array): number {
  const end = Math.min(a.length, b.length);
  let shared = 0;
  while (shared < end && a[shared] === b[shared]) shared++;
  return shared;
}

const KEY_BYTES_MAX = 1_024;

/** `visit` gets the same array each time. */
function readSummary(
  bytes: Uint8Array,
  visit: (key: string, error: number, counts: CategoryCounts) => void,
  begin: (evictions: Evictions | null) => void = () => {},
): { evictions: Evictions | null } {
  const reader = new NumberReader(bytes);
  const kind = reader.number();
  if (kind > 1) throw new Error(`a top list has the unknown kind ${kind}`);
  const evictions = kind === 1 ? readEvictions(reader) : null;
  begin(evictions);
  const key = Buffer.allocUnsafe(KEY_BYTES_MAX);
  const counts: CategoryCounts = [];
  while (reader.at < bytes.length) {
    const shared = reader.number();
    const suffix = reader.number();
    if (shared + suffix > KEY_BYTES_MAX) throw new Error('a key of a top list is too long');
    for (let i = 0; i < suffix; i++) key[shared + i] = bytes[reader.at + i] ?? 0;
    reader.at += suffix;
    const error = evictions ? reader.number() : 0;
    counts.length = 0;
    for (let more = 1; more === 1; ) {
      const packed = reader.number();
      more = packed % 2;
      const rest = (packed - more) / 2;
      counts.push(rest % 32, Math.floor(rest / 32));
    }
    visit(key.toString('utf8', 0, shared + suffix), error, counts);
  }
  return { evictions };
}

function readEvictions(reader: NumberReader): Evictions {
  const error = reader.number();
  const lost = Array.from({ length: reader.number() }, () => reader.number());
  const sketch = reader.bytes.subarray(reader.at, reader.at + REGISTERS);
  if (sketch.length < REGISTERS) throw new Error('a top list ends inside its registers');
  reader.at += REGISTERS;
  return { error, lost, sketch };
}

/** Checks the layout of a stored summary. */
export function checkSummary(bytes: Uint8Array): void {
  readSummary(bytes, () => {});
}

interface Ranked {
  key: string;
  count: number;
}

const UNRANKED = { keys: [], limit: -1 };

interface MergedItem {
  count: number;
  /** By how much the error of the item is below that of values that are not kept. */
  slack: number;
}

/** A merge of more than twice as many values evicts the least frequent ones, so that no query needs much memory. */
const MERGED_KEYS_MAX = 65_536;

/** The sum of slices: of hours, hosts, or both. */
export class TopMerge {
  readonly #items = new Map<string, MergedItem>();
  readonly #isSelected: readonly boolean[];
  readonly #hash: KeyHash;
  readonly #keysMax: number;
  #ranked: { keys: readonly string[]; limit: number } = UNRANKED;
  /** Of values that are not kept, and maybe of others. */
  #sketch: Uint8Array | null = null;
  /** Of all values. */
  #fullSketch: Uint8Array | null = null;
  /** Whether a slice cannot tell how many values with the selected categories it has lost. */
  #hasUnknown = false;
  #error = 0;
  #total = 0;
  /** Roughly, for caches. */
  bytes = 0;

  /** `categories`: null selects all. */
  constructor(hash: KeyHash, categories: readonly number[] | null, keysMax = MERGED_KEYS_MAX) {
    this.#hash = hash;
    this.#keysMax = keysMax;
    this.#isSelected = CATEGORIES.map((_, number) => categories?.includes(number) ?? true);
  }

  /** `prefix`: what distinguishes equal keys of different slices. */
  add(summary: Uint8Array, prefix = ''): void {
    this.#ranked = UNRANKED;
    this.#fullSketch = null;
    let lost = 0;
    let errorMax = 0;
    readSummary(
      summary,
      (key, error, counts) => {
        let count = 0;
        for (let i = 0; i < counts.length; i += 2) {
          if (this.#isSelected[counts[i] ?? 0]) count += counts[i + 1] ?? 0;
        }
        if (count > 0) this.#addItem(prefix + key, count, errorMax - Math.min(error, lost));
      },
      (evictions) => {
        if (evictions === null) return;
        for (const [category, count] of evictions.lost.entries()) {
          if (this.#isSelected[category]) lost += count;
        }
        if (lost === 0) return;
        // What the selected categories have lost altogether is a bound, too.
        errorMax = Math.min(evictions.error, lost);
        if (this.#isSelected.every(Boolean)) {
          this.#sketch ??= new Uint8Array(REGISTERS);
          addSketch(this.#sketch, evictions.sketch);
        } else this.#hasUnknown = true;
      },
    );
    this.#error += errorMax;
    this.#total += lost;
    if (this.#items.size > 2 * this.#keysMax) this.#evict();
  }

  #addItem(key: string, count: number, slack: number): void {
    this.#total += count;
    const item = this.#items.get(key);
    if (item) {
      item.count += count;
      item.slack += slack;
    } else {
      this.#items.set(key, { count, slack });
      this.bytes += ITEM_BYTES + key.length;
    }
  }

  /** As in Misra and Gries: all items lose as much as the first one that goes, and those without any rest go. */
  #evict(): void {
    this.#sketch = this.#sketchWithItems().slice();
    const rests = Float64Array.from(this.#items.values(), ({ count, slack }) => count - slack).sort();
    const loss = Math.max(0, rests[rests.length - 1 - this.#keysMax] ?? 0);
    for (const [key, item] of this.#items) {
      if (item.count - item.slack > loss) item.slack += loss;
      else {
        this.#items.delete(key);
        this.bytes -= ITEM_BYTES + key.length;
      }
    }
    this.#error += loss;
  }

  #sketchWithItems(): Uint8Array {
    if (this.#fullSketch === null) {
      this.#fullSketch = this.#hash.sketchOf(this.#items.keys());
      if (this.#sketch) addSketch(this.#fullSketch, this.#sketch);
    }
    return this.#fullSketch;
  }

  /** The first keys in the order of compareTopItems. */
  #first(limit: number): readonly string[] {
    if (this.#ranked.limit >= limit) return this.#ranked.keys;
    const before = (a: Ranked, b: Ranked) => b.count - a.count || (a.key < b.key ? -1 : 1);
    let best: Ranked[] = [];
    let least = 0;
    // Sorting all keys would take many times as long.
    for (const [key, { count }] of this.#items) {
      if (count < least) continue;
      best.push({ key, count });
      if (best.length < 2 * limit + 1_000) continue;
      best = best.sort(before).slice(0, limit);
      least = best.at(-1)?.count ?? 0;
    }
    const keys = best.sort(before).map(({ key }) => key);
    this.#ranked = { keys, limit };
    return keys;
  }

  /** The list of these slices and those of `tail`, which should be small: all its items are looked at. */
  list(tail: TopMerge, list: TopListName, limit: number): Omit<TopList, 'from' | 'to'> {
    const error = this.#error + tail.#error;
    const candidates: TopItem[] = [];
    const add = (key: string) => {
      const [one, other] = [this.#items.get(key), tail.#items.get(key)];
      const count = (one?.count ?? 0) + (other?.count ?? 0);
      const slack = (one?.slack ?? 0) + (other?.slack ?? 0);
      candidates.push({ ...toItem(list, key), count, error: error - slack });
    };
    for (const key of tail.#items.keys()) add(key);
    let left = limit;
    for (const key of this.#first(limit + tail.#items.size)) {
      if (tail.#items.has(key)) continue;
      if (left-- === 0) break;
      add(key);
    }
    const items = candidates.sort(compareTopItems).slice(0, limit);
    return { total: this.#total + tail.#total, ...this.#distinct(tail), error, items };
  }

  #distinct(tail: TopMerge): Pick<TopList, 'distinct' | 'distinctIs'> {
    let kept = this.#items.size;
    for (const key of tail.#items.keys()) if (!this.#items.has(key)) kept++;
    if (this.#hasUnknown || tail.#hasUnknown) return { distinct: kept, distinctIs: 'minimum' };
    if (!this.#sketch && !tail.#sketch) return { distinct: kept, distinctIs: 'exact' };
    const sketch = this.#sketchWithItems().slice();
    addSketch(sketch, tail.#sketchWithItems());
    return { distinct: Math.max(kept, estimate(sketch)), distinctIs: 'estimate' };
  }
}

/** Of an item in a merge, besides its key. */
const ITEM_BYTES = 120;

/**
 * What precedes a URL in slices of a project, and in merges. A space sorts before all characters of host IDs, so such
 * keys sort by host and URL.
 */
export function hostPrefix(hostId: string | null): string {
  return `${hostId ?? ''} `;
}

function toItem(list: TopListName, key: string): { key: string; hostId?: string | null } {
  if (list !== 'urls') return { key };
  const end = key.indexOf(' ');
  return { key: key.slice(end + 1), hostId: end === 0 ? null : key.slice(0, end) };
}

/** Of a HyperLogLog sketch, a byte each. The standard error is 1.04 / sqrt(2048) = 2.3 %. */
const REGISTERS = 2_048;
const REGISTER_BITS = 11;

/**
 * Hashes keys for sketches. The seed is the project ID: equal in all stores, so that sketches can be merged and copied,
 * but unknown to those who choose the addresses and URLs of attacks, and could otherwise inflate the estimate.
 */
export class KeyHash {
  readonly #seeds: [number, number];
  readonly #prefix: string;

  constructor(project: string, prefix = '') {
    this.#seeds = hashText(project, 0x9e3779b9, 0x85ebca6b);
    this.#prefix = prefix;
  }

  addTo(sketch: Uint8Array, key: string): void {
    const [one, other] = hashText(this.#prefix + key, ...this.#seeds);
    const register = one >>> (32 - REGISTER_BITS);
    const rank = Math.clz32(other) + 1;
    if ((sketch[register] ?? 0) < rank) sketch[register] = rank;
  }

  sketchOf(keys: Iterable<string>): Uint8Array {
    const sketch = new Uint8Array(REGISTERS);
    for (const key of keys) this.addTo(sketch, key);
    return sketch;
  }
}

/** Two lanes of multiplications, each with the final mix of MurmurHash3. */
function hashText(text: string, seed: number, otherSeed: number): [number, number] {
  let [one, other] = [seed, otherSeed];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    one = Math.imul(one ^ code, 0x9e3779b1);
    other = Math.imul(other ^ code, 0x5f356495) ^ (one >>> 15);
  }
  return [mixed(one ^ (other >>> 13)), mixed(other ^ (one >>> 16))];
}

function mixed(hash: number): number {
  let h = hash ^ (hash >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

function addSketch(sketch: Uint8Array, other: Uint8Array): void {
  for (let i = 0; i < REGISTERS; i++) if ((other[i] ?? 0) > (sketch[i] ?? 0)) sketch[i] = other[i] ?? 0;
}

/** The estimator of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", without saturation. */
function estimate(sketch: Uint8Array): number {
  let zeros = 0;
  let sum = 0;
  for (const rank of sketch) {
    if (rank === 0) zeros++;
    else sum += 2 ** -rank;
  }
  if (zeros === REGISTERS) return 0;
  let x = zeros / REGISTERS;
  let y = 1;
  let sigma = x;
  for (let before = -1; sigma !== before; y *= 2) {
    x *= x;
    before = sigma;
    sigma += x * y;
  }
  return Math.round(REGISTERS ** 2 / (2 * Math.LN2 * (REGISTERS * sigma + sum)));
}
