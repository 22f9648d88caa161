/**
 * Top lists with guaranteed bounds: a summary of one hour (Space-Saving, in batches), and the sum of many of them.
 * docs/decisions/0027-top-lists.md has the proofs, docs/storage.md the layout:
 *
 *   summary = 0 entry*                                       all values of the hour
 *           | 1 error losses lost{losses} registers entry*   some were evicted
 *           | 2 error losses lost{losses} entry*             some were evicted, without a sketch of them
 *   entry   = shared length byte{length} [error] counts      keys in ascending order, `error` after evictions only
 *   counts  = (count*32 + category)*2 + more
 */
import { CATEGORIES } from '../event.ts';
import { addSketch, estimate, type KeyHash, REGISTERS } from './hyperloglog.ts';
import { NumberReader, type RecordWriter } from './record-bytes.ts';
import type { AnyListName, TopItem, TopList } from './store.ts';

/** Category numbers and their counts, alternating. */
export type CategoryCounts = number[];

/** What a batch adds to a list, by value. */
export interface Additions extends ReadonlyMap<string, CategoryCounts> {
  /** What is not among the values; of each value, at most `error`. */
  lost?: CategoryCounts;
  error?: number;
}

interface Entry {
  /** The counts since the value was inserted. */
  counts: CategoryCounts;
  /** The value had at most this many attacks before it was inserted. */
  error: number;
}

interface Evictions {
  /** A value that was evicted, or never inserted, has at most this many attacks. */
  error: number;
  /** Attacks of evicted values by category. */
  lost: number[];
  /** A sketch of all values that were evicted, some of which may be back; null if there is none. */
  sketch: Uint8Array | null;
}

/** One list of one scope in one hour. */
export class TopSummary {
  readonly entries = new Map<string, Entry>();
  #evictions: Evictions | null = null;

  static decode(bytes: Uint8Array): TopSummary {
    const summary = new TopSummary();
    const reader = new SummaryReader(bytes);
    const { evictions } = reader;
    if (evictions)
      summary.#evictions = { ...evictions, sketch: evictions.sketch && new Uint8Array(evictions.sketch) };
    while (reader.next()) {
      summary.entries.set(reader.key(), { counts: reader.counts.slice(), error: reader.error });
    }
    return summary;
  }

  /** Adds the attacks of a batch, then evicts values until `keysMax` are left. `hash`: null for a list without sketches. */
  add(additions: Additions, keysMax: number, hash: KeyHash | null): void {
    if (additions.lost?.length) this.#lose(additions.lost, additions.error ?? 0);
    const error = this.#evictions?.error ?? 0;
    for (const [key, counts] of additions) {
      const entry = this.entries.get(key);
      if (entry) addCounts(entry.counts, counts);
      else this.entries.set(key, { counts: counts.slice(), error });
    }
    if (this.entries.size > keysMax) this.#evict(keysMax, hash);
  }

  /** What is exact only with evictions: null as long as there are none. */
  get uncertainty(): Required<Pick<Additions, 'lost' | 'error'>> | null {
    if (this.#evictions === null) return null;
    const { lost, error } = this.#evictions;
    return { lost: lost.flatMap((count, category) => (count > 0 ? [category, count] : [])), error };
  }

  #lose(losses: CategoryCounts, error: number): void {
    const evictions = this.#openEvictions(false);
    for (let i = 0; i < losses.length; i += 2) {
      const category = losses[i] ?? 0;
      evictions.lost[category] = (evictions.lost[category] ?? 0) + (losses[i + 1] ?? 0);
    }
    evictions.error += error;
    for (const entry of this.entries.values()) entry.error += error;
  }

  #openEvictions(hasSketch: boolean): Evictions {
    const sketch = hasSketch ? new Uint8Array(REGISTERS) : null;
    this.#evictions ??= { error: 0, lost: CATEGORIES.map(() => 0), sketch };
    return this.#evictions;
  }

  #evict(keysMax: number, hash: KeyHash | null): void {
    const evictions = this.#openEvictions(hash !== null);
    const { lost, sketch } = evictions;
    const ranked = new Float64Array(this.entries.size);
    let n = 0;
    for (const entry of this.entries.values()) ranked[n++] = upperBoundOf(entry);
    ranked.sort();
    const count = ranked.length - keysMax;
    const error = ranked[count - 1] ?? 0;
    evictions.error = error;
    // Among equal counts, the last values are evicted: sorting them by key would take longer than everything else here.
    let staying = ranked.lastIndexOf(error) + 1 - count;
    for (const [key, entry] of this.entries) {
      const upperBound = upperBoundOf(entry);
      if (upperBound > error || (upperBound === error && staying-- > 0)) continue;
      const { counts } = entry;
      for (let i = 0; i < counts.length; i += 2) {
        const category = counts[i] ?? 0;
        lost[category] = (lost[category] ?? 0) + (counts[i + 1] ?? 0);
      }
      if (hash !== null && sketch !== null) hash.addTo(sketch, key);
      this.entries.delete(key);
    }
  }

  encode(writer: RecordWriter): void {
    writer.clear();
    const evictions = this.#evictions;
    writer.number(evictions === null ? ALL : evictions.sketch === null ? EVICTED : SKETCHED);
    if (evictions) {
      writer.number(evictions.error);
      writer.number(evictions.lost.length);
      for (const count of evictions.lost) writer.number(count);
      if (evictions.sketch !== null) writer.copy(evictions.sketch, 0, REGISTERS);
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

/** Adds to the count of a category. */
export function addCount(counts: CategoryCounts, category = 0, count = 0): void {
  for (let i = 0; i < counts.length; i += 2) {
    if (counts[i] !== category) continue;
    counts[i + 1] = (counts[i + 1] ?? 0) + count;
    return;
  }
  counts.push(category, count);
}

export function addCounts(counts: CategoryCounts, others: CategoryCounts): void {
  for (let i = 0; i < others.length; i += 2) addCount(counts, others[i], others[i + 1]);
}

function upperBoundOf({ counts, error }: Entry): number {
  let sum = error;
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

/** Kinds of summaries. */
const ALL = 0;
const SKETCHED = 1;
const EVICTED = 2;

/** Reads one value after the other: `next`, then `key()`, `error` and `counts`, which is the same array each time. */
class SummaryReader {
  readonly evictions: Evictions | null;
  error = 0;
  readonly counts: CategoryCounts = [];
  readonly #reader: NumberReader;
  readonly #key: Buffer;
  /** The length of the prefix, and of the prefix with the key. */
  readonly #start: number;
  #end = 0;

  /** `prefix` is put before all keys. */
  constructor(bytes: Uint8Array, prefix = '') {
    this.#key = Buffer.allocUnsafe(KEY_BYTES_MAX + 3 * prefix.length);
    this.#start = this.#key.write(prefix);
    this.#reader = new NumberReader(bytes);
    const kind = this.#reader.number();
    if (kind > EVICTED) throw new Error(`a top list has the unknown kind ${kind}`);
    this.evictions = kind === ALL ? null : readEvictions(this.#reader, kind === SKETCHED);
  }

  /** False after the last value. */
  next(): boolean {
    const { bytes } = this.#reader;
    if (this.#reader.at >= bytes.length) return false;
    const shared = this.#reader.number();
    const suffix = this.#reader.number();
    if (shared + suffix > KEY_BYTES_MAX) throw new Error('a key of a top list is too long');
    const start = this.#start + shared;
    for (let i = 0; i < suffix; i++) this.#key[start + i] = bytes[this.#reader.at + i] ?? 0;
    this.#end = start + suffix;
    this.#reader.at += suffix;
    this.error = this.evictions ? this.#reader.number() : 0;
    this.counts.length = 0;
    for (let more = 1; more === 1; ) {
      const packed = this.#reader.number();
      more = packed % 2;
      const rest = (packed - more) / 2;
      this.counts.push(rest % 32, Math.floor(rest / 32));
    }
    return true;
  }

  key(): string {
    return this.#key.toString('utf8', 0, this.#end);
  }
}

function readEvictions(reader: NumberReader, hasSketch: boolean): Evictions {
  const error = reader.number();
  const lost = Array.from({ length: reader.number() }, () => reader.number());
  if (!hasSketch) return { error, lost, sketch: null };
  const sketch = reader.bytes.subarray(reader.at, reader.at + REGISTERS);
  if (sketch.length < REGISTERS) throw new Error('a top list ends inside its registers');
  reader.at += REGISTERS;
  return { error, lost, sketch };
}

/** Checks the layout of a stored summary. */
export function checkSummary(bytes: Uint8Array): void {
  const reader = new SummaryReader(bytes);
  while (reader.next()) reader.key();
}

/** The first keys by descending count, then by key, which begins with the host ID (hostPrefix) in lists of URLs. */
class Ranking {
  readonly #limit: number;
  #best: { key: string; count: number }[] = [];
  #last: { key: string; count: number } | undefined;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(key: string, count: number): void {
    const last = this.#last;
    if (last && (count < last.count || (count === last.count && key > last.key))) return;
    this.#best.push({ key, count });
    // Sorting all keys would take many times as long.
    if (this.#best.length >= 2 * this.#limit + 1_000) this.#cut();
  }

  #cut(): void {
    this.#best.sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1));
    if (this.#best.length < this.#limit) return;
    this.#best.length = this.#limit;
    this.#last = this.#best.at(-1);
  }

  keys(): string[] {
    this.#cut();
    return this.#best.map(({ key }) => key);
  }
}

const UNRANKED = { keys: [], limit: 0 };

interface MergedItem {
  count: number;
  /** By how much the error of the item is below that of values that are not kept. */
  slack: number;
}

/** A merge of more than twice as many values evicts the least frequent ones, so that no query needs much memory. */
const MERGED_KEYS_MAX = 65_536;

/** Generators of a merge yield after this many items, about a millisecond of work. */
const ITEMS_PER_STEP = 2_048;

/** The sum of slices: of hours, hosts, or both. Generators do the work in steps, between which other work can run. */
export class TopMerge {
  readonly #items = new Map<string, MergedItem>();
  readonly #isSelected: readonly boolean[];
  readonly #hash: KeyHash;
  readonly #keysMax: number;
  #ranked: { keys: readonly string[]; limit: number } = UNRANKED;
  /** A sketch of the values that are not kept, and maybe of others. */
  #sketch: Uint8Array | null = null;
  /** A sketch of all values. */
  #fullSketch: Uint8Array | null = null;
  /** Whether it is unknown how many values with the selected categories a slice has lost. */
  #hasUnknown = false;
  #error = 0;
  /** Errors of slices with a prefix, by prefix: they affect only its values. */
  readonly #errors = new Map<string, number>();
  #attacks = 0;
  /** The approximate memory, for caches. */
  bytes = 0;

  /** `categories`: null selects all. */
  constructor(hash: KeyHash, categories: readonly number[] | null, keysMax = MERGED_KEYS_MAX) {
    this.#hash = hash;
    this.#keysMax = keysMax;
    this.#isSelected = CATEGORIES.map((_, number) => categories?.includes(number) ?? true);
  }

  /** `prefix`: what distinguishes equal keys of different slices. The summary is read before the first step ends. */
  *add(summary: Uint8Array, prefix = ''): Generator<void, void> {
    this.#ranked = UNRANKED;
    this.#fullSketch = null;
    const reader = new SummaryReader(summary, prefix);
    const lost = this.#addEvictions(reader.evictions);
    // What the selected categories have lost altogether is a bound, too.
    const error = Math.min(reader.evictions?.error ?? 0, lost);
    while (reader.next()) {
      const { counts } = reader;
      let count = 0;
      for (let i = 0; i < counts.length; i += 2) {
        if (this.#isSelected[counts[i] ?? 0]) count += counts[i + 1] ?? 0;
      }
      if (count > 0) this.#addItem(reader.key(), count, error - Math.min(reader.error, lost));
    }
    if (prefix === '') this.#error += error;
    else if (error > 0) this.#errors.set(prefix, error + (this.#errors.get(prefix) ?? 0));
    if (this.#items.size > 2 * this.#keysMax) yield* this.#evict();
  }

  /** Returns the attacks of evicted values. */
  #addEvictions(evictions: Evictions | null): number {
    if (evictions === null) return 0;
    let lost = 0;
    for (const [category, count] of evictions.lost.entries()) if (this.#isSelected[category]) lost += count;
    if (lost === 0) return 0;
    if (evictions.sketch !== null && this.#isSelected.every(Boolean)) {
      this.#sketch ??= new Uint8Array(REGISTERS);
      addSketch(this.#sketch, evictions.sketch);
    } else this.#hasUnknown = true;
    this.#attacks += lost;
    return lost;
  }

  #addItem(key: string, count: number, slack: number): void {
    this.#attacks += count;
    const item = this.#items.get(key);
    if (item) {
      item.count += count;
      item.slack += slack;
    } else {
      this.#items.set(key, { count, slack });
      this.bytes += ITEM_BYTES + key.length;
    }
  }

  /** As in Misra and Gries: all items lose the count of the first one that goes; those with nothing left are evicted. */
  *#evict(): Generator<void, void> {
    this.#sketch ??= new Uint8Array(REGISTERS);
    const remaining = new Float64Array(this.#items.size);
    let n = 0;
    for (const { count, slack } of this.#items.values()) {
      remaining[n++] = count - slack;
      if (n % ITEMS_PER_STEP === 0) yield;
    }
    const loss = Math.max(0, yield* selectNth(remaining, n - 1 - this.#keysMax));
    n = 0;
    for (const [key, item] of this.#items) {
      if (item.count - item.slack > loss) item.slack += loss;
      else {
        this.#hash.addTo(this.#sketch, key);
        this.#items.delete(key);
        this.bytes -= ITEM_BYTES + key.length;
      }
      if (++n % ITEMS_PER_STEP === 0) yield;
    }
    this.#error += loss;
  }

  *#sketchOfAll(): Generator<void, Uint8Array> {
    if (this.#fullSketch !== null) return this.#fullSketch;
    const sketch = this.#sketch?.slice() ?? new Uint8Array(REGISTERS);
    let n = 0;
    for (const key of this.#items.keys()) {
      this.#hash.addTo(sketch, key);
      if (++n % ITEMS_PER_STEP === 0) yield;
    }
    this.#fullSketch = sketch;
    return sketch;
  }

  *#first(limit: number): Generator<void, readonly string[]> {
    if (this.#ranked.limit >= limit) return this.#ranked.keys;
    const ranking = new Ranking(limit);
    let n = 0;
    for (const [key, { count }] of this.#items) {
      ranking.add(key, count);
      if (++n % ITEMS_PER_STEP === 0) yield;
    }
    this.#ranked = { keys: ranking.keys(), limit };
    return this.#ranked.keys;
  }

  /** The first keys that are not in `tail`. */
  *#firstBesides(tail: TopMerge, limit: number): Generator<void, readonly string[]> {
    // Usually many are in both.
    for (let length = 2 * limit; ; length *= 4) {
      const ranked = yield* this.#first(length);
      const others = ranked.filter((key) => !tail.#items.has(key));
      if (others.length >= limit || ranked.length === this.#items.size) return others;
    }
  }

  /** The list of these slices and those of `tail`. */
  *list(
    tail: TopMerge,
    list: AnyListName,
    limit: number,
  ): Generator<void, Omit<TopList, 'from' | 'to' | 'shortened'>> {
    const common = this.#error + tail.#error;
    const ofPrefix = (prefix: string) => (this.#errors.get(prefix) ?? 0) + (tail.#errors.get(prefix) ?? 0);
    const prefixes = new Set([...this.#errors.keys(), ...tail.#errors.keys()]);
    const error = [...prefixes].reduce((most, prefix) => Math.max(most, common + ofPrefix(prefix)), common);
    const countOf = (key: string) => (this.#items.get(key)?.count ?? 0) + (tail.#items.get(key)?.count ?? 0);
    const ranking = new Ranking(limit);
    let [n, kept] = [0, this.#items.size];
    for (const key of tail.#items.keys()) {
      ranking.add(key, countOf(key));
      if (!this.#items.has(key)) kept++;
      if (++n % ITEMS_PER_STEP === 0) yield;
    }
    for (const key of yield* this.#firstBesides(tail, limit)) ranking.add(key, countOf(key));
    const items = ranking.keys().map((key): TopItem => {
      const slack = (this.#items.get(key)?.slack ?? 0) + (tail.#items.get(key)?.slack ?? 0);
      const ownError = common + ofPrefix(key.slice(0, key.indexOf(' ') + 1));
      return { ...toItem(list, key), count: countOf(key), error: ownError - slack };
    });
    const distinct = yield* this.#distinct(tail, kept);
    return { attacks: this.#attacks + tail.#attacks, ...distinct, error, items };
  }

  /** `kept`: how many values at least one of them keeps. */
  *#distinct(tail: TopMerge, kept: number): Generator<void, Pick<TopList, 'distinct' | 'distinctIs'>> {
    if (this.#hasUnknown || tail.#hasUnknown) return { distinct: kept, distinctIs: 'minimum' };
    if (!this.#sketch && !tail.#sketch) return { distinct: kept, distinctIs: 'exact' };
    const sketch = (yield* this.#sketchOfAll()).slice();
    addSketch(sketch, yield* tail.#sketchOfAll());
    return { distinct: Math.max(kept, estimate(sketch)), distinctIs: 'estimate' };
  }
}

/** The n-th value in ascending order, from 0, by quickselect: sorting would take 20 ms. Reorders the values. */
function* selectNth(values: Float64Array, n: number): Generator<void, number> {
  let [first, last] = [0, values.length - 1];
  while (first < last) {
    const pivot = at(first + Math.floor(Math.random() * (last - first + 1)));
    let [left, right] = [first, last];
    while (left <= right) {
      while (at(left) < pivot) left++;
      while (at(right) > pivot) right--;
      if (left > right) break;
      [values[left], values[right]] = [at(right), at(left)];
      left++;
      right--;
    }
    if (n <= right) last = right;
    else if (n >= left) first = left;
    else break;
    yield;
  }
  return at(n);

  function at(i: number): number {
    return values[i] ?? 0;
  }
}

/** The memory of an item in a merge, besides its key. */
const ITEM_BYTES = 120;

/**
 * What precedes a URL in slices of a project, and in merges. A space sorts before all characters of host IDs, so such
 * keys sort by host and URL.
 */
export function hostPrefix(hostId: string | null): string {
  return `${hostId ?? ''} `;
}

/** Whether equal values of different hosts are different ones. */
export function isByHost(list: AnyListName | undefined): boolean {
  return list === 'urls' || list === 'pages';
}

function toItem(list: AnyListName, key: string): { key: string; hostId?: string | null } {
  if (!isByHost(list)) return { key };
  const end = key.indexOf(' ');
  return { key: key.slice(end + 1), hostId: end === 0 ? null : key.slice(0, end) };
}
