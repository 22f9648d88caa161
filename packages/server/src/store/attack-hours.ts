/**
 * The kept attacks of one hour: blocks (attack-layout.ts), and how new attacks join them. Each append adds a block. Eight of
 * similar size become one, and the first attacks of an hour merge what is left of the hour before: so an hour has few
 * blocks, and an entry is rewritten rarely. Blocks may overlap in time, but no entry is in two of them.
 *
 * In an hour with more than `limit` entries, those with the smallest ranks stay (`sampleRank`). `threshold` is the largest
 * rank that stays, or 0 if all do: what has a larger rank never comes back. So the result does not depend on the order or the
 * size of batches. The threshold of an hour is the smallest of its blocks. All of these have ranks then, and entries above
 * the threshold remain in older blocks until the hour is rewritten.
 */
import type { Event } from '../event.ts';
import { AttackBlock, type BlockRow, compareRows, firstRow } from './attack-block.ts';
import { encodeBlock, encodeRows } from './attack-encode.ts';
import { type AttackEntry, entryKey, sampleRank, toEntry } from './attack-entries.ts';
import type { AttackMatcher } from './attack-filter.ts';
import { BLOCK_ENTRIES_MAX, BLOCK_SIZE_MAX, entrySize } from './attack-layout.ts';
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

/** How many blocks of similar size become one. */
const MERGED_BLOCKS = 8;

/** Entries may exceed the limit by this share before an hour that was over the limit is rewritten again. */
const SLACK = 0.25;

/** An entry may have kilobytes, which are decoded and hashed. */
const ENTRIES_PER_STEP = 50;

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

/** What an append changes in an hour. */
interface HourAddition {
  hour: number;
  entries: readonly AttackEntry[];
  /** A later hour begins: merge what is left. */
  isEnded: boolean;
}

/** `isNew`: whether the store has no attacks of an hour. */
export function hourAdditions({ hours }: AttackAdditions, isNew: (hour: number) => boolean): HourAddition[] {
  const ended = [...hours.keys()].filter(isNew).map((hour) => hour - 1);
  const all = [...new Set([...hours.keys(), ...ended])].sort((a, b) => a - b);
  return all.map((hour) => ({ hour, entries: hours.get(hour) ?? [], isEnded: ended.includes(hour) }));
}

interface StoredHour {
  project: string;
  /** The blocks of the hour, by number. */
  blocks: readonly StoredBlock[];
  /** How many entries an hour keeps. */
  limit: number;
}

interface KeyedEntry {
  entry: AttackEntry;
  /** See `entrySize`. */
  size: number;
  /** See `entryKey`; '' until it is needed. */
  key: string;
  /** 0 in hours that were never over the limit. */
  rank: number;
}

/** What the hour becomes. Each step takes a few milliseconds. */
export function* addToHour(
  { hour, entries, isEnded }: HourAddition,
  { project, blocks, limit }: StoredHour,
): Generator<void, HourChange> {
  const before = lowestThreshold(blocks.map(({ block }) => block));
  const distinct = yield* mergeEqual(entries);
  if (before > 0) yield* rank(project, distinct);
  const candidates = distinct.filter((addition) => addition.rank <= before);
  const { equal, others } = yield* findEqual(blocks, candidates);
  const stored = blocks.reduce((sum, { block }) => sum + block.length, 0);
  const isOver = stored + others.length > limit;
  const ranks = isOver ? yield* readRanks(project, blocks) : undefined;
  if (isOver && before === 0) yield* rank(project, others);
  const threshold = ranks ? lowestOf(before, thresholdOf(others, ranks, limit)) : before;
  const additions = others.filter((addition) => threshold === 0 || addition.rank <= threshold);
  const isChanged = additions.length > 0 || equal.size > 0 || threshold !== before;
  if (!isChanged && !isEnded) return { removed: [], added: [] };

  // After the limit was lowered, there may be no addition whose block would have the threshold.
  const isLowered = threshold !== before && additions.length === 0;
  const exceedsSlack = stored + additions.length > limit * (1 + SLACK);
  const isRewritten = isOver && (before === 0 || exceedsSlack || isLowered);
  const rewritten = blocks.filter(({ number }) => isRewritten || equal.has(number));
  const unchanged = blocks.filter((block) => !rewritten.includes(block));
  const writer = new BlockWriter(hour, threshold, (blocks.at(-1)?.number ?? 0) + 1);
  for (const { number, block } of rewritten) {
    const rows = keptRows(block, threshold, yield* ranksOf(project, block, threshold));
    for (const row of rows) row.count += equal.get(number)?.get(row.i) ?? 0;
    yield* writer.addRows(rows, isEnded);
    block.release();
  }
  const merged = isEnded
    ? unchanged.filter(({ block }) => isSmall(block))
    : similarBlocks(unchanged, additions);
  const newBlocks = yield* blocksOf(hour, threshold, additions, merged.length > 0 || !isEnded);
  if (merged.length === 0) for (const block of newBlocks) writer.add(block);
  else {
    const rows: BlockRow[] = [];
    for (const block of [...merged.map((each) => each.block), ...newBlocks])
      rows.push(...keptRows(block, threshold, yield* ranksOf(project, block, threshold)));
    yield* writer.addRows(rows.sort(compareRows), isEnded);
  }
  return { removed: [...rewritten, ...merged].map(({ number }) => number), added: writer.written };
}

/** Equal entries become one, with the sum of their counts. In the order of `compareEntries`. */
function* mergeEqual(entries: readonly AttackEntry[]): Generator<void, KeyedEntry[]> {
  const sorted = entries
    .map((entry): KeyedEntry => ({ entry, size: entrySize(entry), key: '', rank: 0 }))
    .sort(compareKeyed);
  const merged: KeyedEntry[] = [];
  for (const [i, keyed] of sorted.entries()) {
    if (i % ENTRIES_PER_STEP === 0) yield;
    const last = merged.at(-1);
    if (last === undefined || compareKeyed(last, keyed) !== 0) merged.push(keyed);
    else last.entry = { ...last.entry, count: last.entry.count + keyed.entry.count };
  }
  return merged;
}

/** As `compareEntries`. Most entries differ in time or ID, and need no key. */
function compareKeyed(a: KeyedEntry, b: KeyedEntry): number {
  if (a.entry.time !== b.entry.time) return a.entry.time - b.entry.time;
  if (a.entry.id !== b.entry.id) return a.entry.id < b.entry.id ? -1 : 1;
  const [one, other] = [keyOf(a), keyOf(b)];
  return one < other ? -1 : one > other ? 1 : 0;
}

function keyOf(keyed: KeyedEntry): string {
  keyed.key ||= entryKey(keyed.entry);
  return keyed.key;
}

function* rank(project: string, additions: readonly KeyedEntry[]): Generator<void, void> {
  for (const [i, addition] of additions.entries()) {
    if (i % ENTRIES_PER_STEP === 0) yield;
    addition.rank = sampleRank(project, keyOf(addition));
  }
}

/** By block and row, the counts of additions that the block has already; and the other additions. */
interface EqualEntries {
  equal: Map<number, Map<number, number>>;
  others: readonly KeyedEntry[];
}

/** `additions`: in order. Reads each stored row of their times once. */
function* findEqual(
  blocks: readonly StoredBlock[],
  additions: readonly KeyedEntry[],
): Generator<void, EqualEntries> {
  const equal: EqualEntries['equal'] = new Map();
  const found = new Set<KeyedEntry>();
  const byTime = new Map<number, KeyedEntry[]>();
  for (const addition of additions) {
    const same = byTime.get(addition.entry.time);
    if (same) same.push(addition);
    else byTime.set(addition.entry.time, [addition]);
  }
  for (const { number, block } of blocks) {
    const counts = new Map<number, number>();
    let n = 0;
    for (const [time, same] of byTime) {
      if (time < block.first || time > block.last) continue;
      if (n++ % ENTRIES_PER_STEP === 0) yield;
      let i = firstRow(block.times, time);
      if (block.times[i] !== time) continue;
      const ids = new Set(same.map(({ entry }) => entry.id));
      let byKey: Map<string, KeyedEntry> | undefined;
      for (; block.times[i] === time; i++) {
        if (n++ % ENTRIES_PER_STEP === 0) yield;
        if (!ids.has(block.idOf(i))) continue;
        byKey ??= new Map(same.map((addition) => [keyOf(addition), addition]));
        const addition = byKey.get(entryKey(block.entry(i)));
        if (addition === undefined) continue;
        counts.set(i, addition.entry.count);
        found.add(addition);
      }
    }
    if (counts.size > 0) equal.set(number, counts);
  }
  return { equal, others: additions.filter((addition) => !found.has(addition)) };
}

/** The ranks of stored entries, by block. */
function* readRanks(
  project: string,
  blocks: readonly StoredBlock[],
): Generator<void, Map<number, Float64Array>> {
  const ranks = new Map<number, Float64Array>();
  for (const { number, block } of blocks) {
    ranks.set(number, yield* ranksOf(project, block, 1));
    block.release();
  }
  return ranks;
}

/** Empty without a threshold. */
function* ranksOf(project: string, block: AttackBlock, threshold: number): Generator<void, Float64Array> {
  yield;
  if (threshold === 0) return new Float64Array(0);
  if (block.ranks.length === block.length) return block.ranks;
  block.unpack();
  const computed = new Float64Array(block.length);
  for (let i = 0; i < block.length; i++) {
    if (i % ENTRIES_PER_STEP === 0) yield;
    computed[i] = sampleRank(project, entryKey(block.entry(i)));
  }
  return computed;
}

/** The largest of the `limit` smallest ranks. */
function thresholdOf(
  additions: readonly KeyedEntry[],
  stored: ReadonlyMap<number, Float64Array>,
  limit: number,
): number {
  const all = additions.map((addition) => addition.rank);
  for (const ranks of stored.values()) for (const each of ranks) all.push(each);
  return Float64Array.from(all).sort()[limit - 1] ?? 0;
}

/** Those that are not above the threshold. */
function keptRows(block: AttackBlock, threshold: number, ranks: Float64Array): BlockRow[] {
  const rows: BlockRow[] = [];
  for (let i = 0; i < block.length; i++) {
    const rankOfEntry = threshold > 0 ? (ranks[i] ?? 0) : 0;
    if (rankOfEntry > threshold) continue;
    const [time = 0, count = 0] = [block.times[i], block.counts[i]];
    rows.push({ block, i, time, count, rank: rankOfEntry, key: '' });
  }
  return rows;
}

/** How much of a block this takes. */
function shareOf({ length, size }: Pick<AttackBlock, 'length' | 'size'>): number {
  return Math.max(length / BLOCK_ENTRIES_MAX, size / BLOCK_SIZE_MAX);
}

/** Larger blocks are not merged with others. */
function isSmall(block: Pick<AttackBlock, 'length' | 'size'>): boolean {
  return shareOf(block) <= 1 / 2;
}

/** The blocks to merge with new entries: as many as are not much larger than all smaller ones together. */
function similarBlocks(blocks: readonly StoredBlock[], additions: readonly KeyedEntry[]): StoredBlock[] {
  const small = blocks
    .filter(({ block }) => isSmall(block))
    .sort((a, b) => shareOf(a.block) - shareOf(b.block));
  const size = additions.reduce((all, addition) => all + addition.size, 0);
  let sum = shareOf({ length: additions.length, size });
  let similar = 0;
  for (const [i, { block }] of small.entries()) {
    if ((MERGED_BLOCKS - 1) * shareOf(block) <= sum) similar = i + 1;
    sum += shareOf(block);
  }
  return small.slice(0, similar);
}

/** `additions`: in order. */
function* blocksOf(
  hour: number,
  threshold: number,
  additions: readonly KeyedEntry[],
  isOpen: boolean,
): Generator<void, AttackBlock[]> {
  const blocks: AttackBlock[] = [];
  for (const { items, ...part } of parts(additions, ({ size }) => size)) {
    yield;
    const entries = items.map(({ entry }) => entry);
    const ranks = threshold > 0 ? items.map((addition) => addition.rank) : [];
    const encoded = yield* encodeBlock({ hour, threshold, entries, ranks, isOpen: isOpen && isSmall(part) });
    blocks.push(AttackBlock.of(hour, encoded));
  }
  return blocks;
}

interface Part<T> {
  items: readonly T[];
  length: number;
  size: number;
}

/** As few as possible, each of which fits into a block. */
function* parts<T>(items: readonly T[], sizeOf: (item: T) => number): Generator<Part<T>> {
  let [first, size] = [0, 0];
  for (const [i, item] of items.entries()) {
    const own = sizeOf(item);
    const length = i - first;
    if (length === BLOCK_ENTRIES_MAX || (size + own > BLOCK_SIZE_MAX && length > 0)) {
      yield { items: items.slice(first, i), length, size };
      [first, size] = [i, 0];
    }
    size += own;
  }
  if (first < items.length) yield { items: items.slice(first), length: items.length - first, size };
}

class BlockWriter {
  readonly written: StoredBlock[] = [];
  readonly #hour: number;
  readonly #threshold: number;
  readonly #firstNumber: number;

  constructor(hour: number, threshold: number, firstNumber: number) {
    this.#hour = hour;
    this.#threshold = threshold;
    this.#firstNumber = firstNumber;
  }

  add(block: AttackBlock): void {
    this.written.push({ number: this.#firstNumber + this.written.length, block });
  }

  /** `rows`: in order. */
  *addRows(rows: readonly BlockRow[], isEnded: boolean): Generator<void, void> {
    const blocks = [...new Set(rows.map(({ block }) => block))];
    const isSmallTogether = blocks.reduce((sum, { size }) => sum + size, 0) <= BLOCK_SIZE_MAX / 2;
    // Decoding the sizes of entries takes time, and is useless if all fit into a block.
    const sizes = new Map<AttackBlock, Float64Array>();
    for (const block of isSmallTogether ? [] : blocks) {
      yield;
      sizes.set(block, block.sizes);
    }
    for (const { items, ...part } of parts(rows, ({ block, i }) => sizes.get(block)?.[i] ?? 0)) {
      yield;
      const isOpen = !isEnded && isSmall(part);
      const content = { hour: this.#hour, threshold: this.#threshold, rows: items, isOpen };
      this.add(AttackBlock.of(this.#hour, yield* encodeRows(content)));
    }
  }
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
  const matched = new Map<number, Set<number>>();
  for (const { number, block } of blocks) {
    yield;
    const rows = matcher.rows(block, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
    if (rows.length > 0) matched.set(number, new Set(rows));
  }
  if (matched.size === 0) return { removed: [], added: [], erased: 0 };
  return yield* applyThreshold(hour, blocks, lowestThreshold(blocks.map(({ block }) => block)), matched);
}

/** What the hour becomes if all blocks get a threshold. `erased`: rows to remove, by block. */
export function* applyThreshold(
  hour: number,
  blocks: readonly StoredBlock[],
  threshold: number,
  erased: ReadonlyMap<number, ReadonlySet<number>> = new Map(),
): Generator<void, Erasure> {
  const erasure: Erasure = { removed: [], added: [], erased: 0 };
  for (const { number, block } of blocks) {
    const rows = erased.get(number);
    if (rows === undefined && block.threshold === threshold) continue;
    const kept = keptRows(block, threshold, block.ranks);
    const others = kept.filter(({ i }) => !rows?.has(i));
    erasure.erased += kept.length - others.length;
    erasure.removed.push(number);
    if (others.length === 0) continue;
    const encoded = yield* encodeRows({ hour, threshold, rows: others });
    erasure.added.push({ number, block: AttackBlock.of(hour, encoded) });
  }
  return erasure;
}

/** Whether the blocks are the same: their heads have checksums of their contents. */
export function areEqual(some: readonly StoredBlock[], others: readonly StoredBlock[]): boolean {
  const isSame = ({ number, block }: StoredBlock, i: number) =>
    others[i]?.number === number && Buffer.compare(block.head, others[i].block.head) === 0;
  return some.length === others.length && some.every(isSame);
}
