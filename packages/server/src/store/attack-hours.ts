/**
 * The kept attacks of one hour: blocks (attack-block.ts), and how new attacks join them. Each append adds a block, and merges
 * it with the ones before it while they are not much larger, so an hour has few blocks and an entry is rewritten rarely.
 * Blocks may overlap in time, but no entry is in two of them.
 *
 * In an hour with more than `limit` entries, those with the smallest ranks stay (`sampleRank`). `threshold` is the largest
 * rank that stays, or 0 if all do: what has a larger rank never comes back. So the result does not depend on the order or the
 * size of batches. The threshold of an hour is the smallest of its blocks. All of these have ranks then, and entries above
 * the threshold remain in older blocks until the hour is rewritten.
 */
import type { Event } from '../event.ts';
import {
  AttackBlock,
  BLOCK_ENTRIES_MAX,
  BLOCK_SIZE_MAX,
  encodeBlock,
  entrySize,
  firstRow,
} from './attack-block.ts';
import { type AttackEntry, entryKey, sampleRank, toEntry } from './attack-entries.ts';
import type { AttackMatcher } from './attack-filter.ts';
import { HOUR_MS } from './store.ts';

/** What a store returns of an hour. */
export interface AttackHour {
  hour: number;
  blocks: readonly AttackBlock[];
}

export interface StoredBlock {
  /** Ascending in the order in which blocks were written. */
  number: number;
  block: AttackBlock;
}

export interface HourChange {
  /** The numbers of the blocks that go. */
  removed: number[];
  added: StoredBlock[];
}

/** A block is merged with the one before it, unless that is this many times larger. */
const SIZE_RATIO = 2;

/** Entries may exceed the limit by this share before an hour that was over the limit is rewritten again. */
const SLACK = 0.25;

const ENTRIES_PER_STEP = 250;

/** Attacks of a group of batches, by hour. */
export class AttackAdditions {
  readonly hours = new Map<number, AttackEntry[]>();

  /** `hostId`: null without a registered host. */
  add(event: Event, hostId: string | null): void {
    const hour = Math.floor(event.time / HOUR_MS);
    const entries = this.hours.get(hour);
    if (entries) entries.push(toEntry(event, hostId));
    else this.hours.set(hour, [toEntry(event, hostId)]);
  }
}

interface HourAddition {
  project: string;
  hour: number;
  /** The blocks of the hour, by number. */
  blocks: readonly StoredBlock[];
  entries: readonly AttackEntry[];
  /** How many entries an hour keeps. */
  limit: number;
}

interface KeyedEntry {
  entry: AttackEntry;
  /** See `entryKey`; '' until it is needed. */
  key: string;
  /** 0 in hours that were never over the limit. */
  rank: number;
}

/** What the hour becomes. Each step takes a few milliseconds. */
export function* addToHour({
  project,
  hour,
  blocks,
  entries,
  limit,
}: HourAddition): Generator<void, HourChange> {
  const before = lowestThreshold(blocks.map(({ block }) => block));
  const additions = yield* mergeEqual(entries);
  if (before > 0) yield* rank(project, additions);
  const equal = yield* findEqual(blocks, removeAbove(additions, before));
  const stored = blocks.reduce((sum, { block }) => sum + block.length, 0);
  const isOver = stored + additions.size > limit;
  const allRanks = isOver ? yield* readRanks(project, blocks) : undefined;
  if (isOver && before === 0) yield* rank(project, additions);
  const threshold = allRanks ? lowestOf(before, thresholdOf(additions, allRanks, limit)) : before;
  removeAbove(additions, threshold);
  if (additions.size === 0 && equal.size === 0 && threshold === before) return { removed: [], added: [] };

  // After the limit was lowered, there may be no addition whose block would have the threshold.
  const isLowered = threshold !== before && additions.size === 0;
  const isFull = stored + additions.size > limit * (1 + SLACK);
  const isRewritten = isOver && (before === 0 || isFull || isLowered);
  const changed = blocks.filter(({ number }) => isRewritten || equal.has(number));
  const others = blocks.filter((block) => !changed.includes(block));
  const removed = [...changed, ...smallTail(others, additions.values())];
  // A store need not read the other blocks of an hour within the limit.
  const ranks = allRanks ?? (threshold > 0 ? yield* readRanks(project, removed) : undefined);
  const writer = new BlockWriter(hour, threshold, (blocks.at(-1)?.number ?? 0) + 1);
  for (const { number, block } of removed.toSorted((a, b) => a.block.first - b.block.first)) {
    for (let i = 0; i < block.length; i++) {
      if (i % ENTRIES_PER_STEP === 0) yield;
      const rankOfEntry = ranks?.get(number)?.[i] ?? 0;
      if (rankOfEntry > threshold) continue;
      const entry = block.entry(i);
      entry.count += equal.get(number)?.get(i) ?? 0;
      yield* writer.add({ entry, key: '', rank: rankOfEntry });
    }
  }
  for (const addition of additions.values()) yield* writer.add(addition);
  yield* writer.flush();
  return { removed: removed.map(({ number }) => number), added: writer.written };
}

/** The entries by key, with the sum of the counts of equal ones. */
function* mergeEqual(entries: readonly AttackEntry[]): Generator<void, Map<string, KeyedEntry>> {
  const merged = new Map<string, KeyedEntry>();
  for (const [i, entry] of entries.entries()) {
    if (i % ENTRIES_PER_STEP === 0) yield;
    const key = entryKey(entry);
    const same = merged.get(key);
    if (same) same.entry = { ...same.entry, count: same.entry.count + entry.count };
    else merged.set(key, { entry, key, rank: 0 });
  }
  return merged;
}

function* rank(project: string, additions: ReadonlyMap<string, KeyedEntry>): Generator<void, void> {
  let n = 0;
  for (const addition of additions.values()) {
    if (n++ % ENTRIES_PER_STEP === 0) yield;
    addition.rank = sampleRank(project, addition.key);
  }
}

/** `threshold`: 0 removes nothing. */
function removeAbove(additions: Map<string, KeyedEntry>, threshold: number): Map<string, KeyedEntry> {
  if (threshold === 0) return additions;
  for (const [key, addition] of additions) if (addition.rank > threshold) additions.delete(key);
  return additions;
}

/** Moves additions that a block has already to the result: counts by block and row. Reads each row of their times once. */
function* findEqual(
  blocks: readonly StoredBlock[],
  additions: Map<string, KeyedEntry>,
): Generator<void, Map<number, Map<number, number>>> {
  const found = new Map<number, Map<number, number>>();
  for (const { number, block } of blocks) {
    const times = new Set(Array.from(additions.values(), ({ entry }) => entry.time));
    const counts = new Map<number, number>();
    let n = 0;
    for (const time of times) {
      if (n++ % ENTRIES_PER_STEP === 0) yield;
      if (time < block.first || time > block.last) continue;
      for (let i = firstRow(block.times, time); block.times[i] === time; i++) {
        if (n++ % ENTRIES_PER_STEP === 0) yield;
        const key = entryKey(block.entry(i));
        const addition = additions.get(key);
        if (addition === undefined) continue;
        counts.set(i, addition.entry.count);
        additions.delete(key);
      }
    }
    if (counts.size > 0) found.set(number, counts);
  }
  return found;
}

/** The ranks of stored entries, by block. */
function* readRanks(
  project: string,
  blocks: readonly StoredBlock[],
): Generator<void, Map<number, Float64Array>> {
  const ranks = new Map<number, Float64Array>();
  for (const { number, block } of blocks) {
    if (block.ranks.length === block.length) ranks.set(number, block.ranks);
    else {
      const computed = new Float64Array(block.length);
      for (let i = 0; i < block.length; i++) {
        if (i % ENTRIES_PER_STEP === 0) yield;
        computed[i] = sampleRank(project, entryKey(block.entry(i)));
      }
      ranks.set(number, computed);
    }
    yield;
  }
  return ranks;
}

/** The largest of the `limit` smallest ranks. */
function thresholdOf(
  additions: ReadonlyMap<string, KeyedEntry>,
  stored: ReadonlyMap<number, Float64Array>,
  limit: number,
): number {
  const all = [...additions.values()].map((addition) => addition.rank);
  for (const ranks of stored.values()) for (const each of ranks) all.push(each);
  return Float64Array.from(all).sort()[limit - 1] ?? 0;
}

/** The last blocks, as long as they are small. */
function smallTail(blocks: readonly StoredBlock[], additions: Iterable<KeyedEntry>): StoredBlock[] {
  let [entries, size, first] = [0, 0, blocks.length];
  for (const { entry } of additions) {
    entries++;
    size += entrySize(entry);
  }
  for (; first > 0; first--) {
    const { block } = blocks[first - 1] as StoredBlock;
    const isLarger = block.length > SIZE_RATIO * entries;
    if (isLarger || entries + block.length > BLOCK_ENTRIES_MAX || size + block.size > BLOCK_SIZE_MAX) break;
    entries += block.length;
    size += block.size;
  }
  return blocks.slice(first);
}

/** Writes blocks one after the other, so that no more entries are in memory than a block has. */
class BlockWriter {
  readonly written: StoredBlock[] = [];
  readonly #hour: number;
  readonly #threshold: number;
  readonly #firstNumber: number;
  #entries: KeyedEntry[] = [];
  #size = 0;

  constructor(hour: number, threshold: number, firstNumber: number) {
    this.#hour = hour;
    this.#threshold = threshold;
    this.#firstNumber = firstNumber;
  }

  *add(keyed: KeyedEntry): Generator<void, void> {
    const size = entrySize(keyed.entry);
    if (this.#entries.length === BLOCK_ENTRIES_MAX || this.#size + size > BLOCK_SIZE_MAX) yield* this.flush();
    this.#entries.push(keyed);
    this.#size += size;
  }

  *flush(): Generator<void, void> {
    if (this.#entries.length === 0) return;
    yield;
    const sorted = this.#entries.sort(compareKeyed);
    const content = {
      hour: this.#hour,
      entries: sorted.map(({ entry }) => entry),
      threshold: this.#threshold,
      ranks: this.#threshold > 0 ? sorted.map((keyed) => keyed.rank) : [],
    };
    const block = new AttackBlock(this.#hour, yield* encodeBlock(content));
    this.written.push({ number: this.#firstNumber + this.written.length, block });
    this.#entries = [];
    this.#size = 0;
  }
}

/** As `compareEntries`. */
function compareKeyed(a: KeyedEntry, b: KeyedEntry): number {
  if (a.entry.time !== b.entry.time) return a.entry.time - b.entry.time;
  for (const keyed of [a, b]) keyed.key ||= entryKey(keyed.entry);
  return a.key < b.key ? -1 : 1;
}

/** The threshold of an hour; 0 if no entry was dropped. */
export function lowestThreshold(blocks: readonly AttackBlock[]): number {
  return blocks.reduce((lowest, { threshold }) => lowestOf(lowest, threshold), 0);
}

function lowestOf(a: number, b: number): number {
  return a === 0 || b === 0 ? Math.max(a, b) : Math.min(a, b);
}

export interface Erasure extends HourChange {
  /** How many kept entries matched. */
  erased: number;
}

/**
 * What the hour becomes without the entries that match. If there are any, all blocks get the threshold of the hour, because the
 * block that has it may be one of those that go. Each step takes a few milliseconds.
 */
export function* eraseFromHour(
  hour: number,
  blocks: readonly StoredBlock[],
  matcher: AttackMatcher,
): Generator<void, Erasure> {
  const erasure: Erasure = { removed: [], added: [], erased: 0 };
  const matched = new Map<number, Set<number>>();
  for (const { number, block } of blocks) {
    yield;
    const rows = matcher.rows(block, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
    if (rows.length > 0) matched.set(number, new Set(rows));
  }
  if (matched.size === 0) return erasure;
  const threshold = lowestThreshold(blocks.map(({ block }) => block));
  for (const { number, block } of blocks) {
    const rows = matched.get(number);
    if (rows === undefined && block.threshold === threshold) continue;
    const content = { hour, entries: [] as AttackEntry[], threshold, ranks: [] as number[] };
    for (let i = 0; i < block.length; i++) {
      if (i % ENTRIES_PER_STEP === 0) yield;
      const rankOfEntry = threshold > 0 ? (block.ranks[i] ?? 0) : 0;
      if (rankOfEntry > threshold) continue;
      if (rows?.has(i)) erasure.erased++;
      else {
        content.entries.push(block.entry(i));
        if (threshold > 0) content.ranks.push(rankOfEntry);
      }
    }
    erasure.removed.push(number);
    if (content.entries.length === 0) continue;
    erasure.added.push({ number, block: new AttackBlock(hour, yield* encodeBlock(content)) });
  }
  return erasure;
}

/** Whether the blocks are the same: their heads have checksums of their contents. */
export function areEqual(some: readonly StoredBlock[], others: readonly StoredBlock[]): boolean {
  const isSame = ({ number, block }: StoredBlock, i: number) =>
    others[i]?.number === number && Buffer.compare(block.head, others[i].block.head) === 0;
  return some.length === others.length && some.every(isSame);
}
