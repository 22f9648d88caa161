/**
 * The kept attacks of one hour: blocks (attack-block.ts), and how new attacks join them. Each append adds a block, and merges
 * it with the ones before it while they are not much larger, so an hour has few blocks and an entry is rewritten rarely.
 *
 * In an hour with more than `limit` entries, those with the smallest ranks stay (`sampleRank`). `threshold` is the largest
 * rank that stayed when entries were dropped, or 0 if none were: what has a larger rank never comes back. So the result does
 * not depend on the order or the size of batches.
 */
import type { Event } from '../event.ts';
import { AttackBlock, BLOCK_ENTRIES_MAX, encodeBlock } from './attack-block.ts';
import { type AttackEntry, compareEntries, entryKey, sampleRank, toEntry } from './attack-entries.ts';
import type { AttackMatcher } from './attack-filter.ts';
import { finish } from './slices.ts';
import { HOUR_MS } from './store.ts';

/** What a store returns of an hour. Entries whose rank is above the threshold do not count; 0: all count. */
export interface AttackHour {
  hour: number;
  blocks: readonly AttackBlock[];
  threshold: number;
}

/** A stored block. `entries` and `threshold` repeat its header. */
export interface StoredBlock {
  /** Ascending in the order of the blocks. */
  number: number;
  entries: number;
  threshold: number;
}

export interface HourChange {
  /** The numbers of the blocks that go. */
  removed: number[];
  added: { number: number; bytes: Buffer; entries: number; threshold: number }[];
}

/** A block is merged with the one before it, unless that is this many times larger. */
const SIZE_RATIO = 2;

/** Entries may exceed the limit by this share before the hour is cut: cutting reads all blocks of the hour. */
const SLACK = 0.25;

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
  read: (number: number) => Uint8Array;
  entries: readonly AttackEntry[];
  /** How many entries an hour keeps. */
  limit: number;
}

/** What the hour becomes. Each step takes a few milliseconds. */
export function* addToHour(addition: HourAddition): Generator<void, HourChange> {
  const { project, hour, blocks, read, limit } = addition;
  const threshold = lowestThreshold(blocks);
  const ranked = mergeEqual(addition.entries).filter(
    (entry) => threshold === 0 || sampleRank(project, entry) <= threshold,
  );
  if (ranked.length === 0) return { removed: [], added: [] };
  yield;
  const stored = blocks.reduce((sum, { entries }) => sum + entries, 0);
  const isOver = stored + ranked.length > limit * (1 + SLACK);
  // The blocks that are merged with the new entries: all of them, or the last ones.
  let first = isOver ? 0 : blocks.length;
  let size = ranked.length;
  while (first > 0) {
    const { entries } = blocks[first - 1] as StoredBlock;
    if (entries > SIZE_RATIO * size || entries + size > BLOCK_ENTRIES_MAX) break;
    size += entries;
    first--;
  }
  const merged = [...ranked];
  for (const { number } of blocks.slice(first)) {
    merged.push(...new AttackBlock(hour, read(number)).entries());
    yield;
  }
  const kept = isOver
    ? yield* keepLowest(project, mergeEqual(merged), limit)
    : { entries: mergeEqual(merged), threshold: 0 };
  const removed = blocks.slice(first).map(({ number }) => number);
  const added: HourChange['added'] = [];
  const sorted = kept.entries.sort(compareEntries);
  const cut = minThreshold(threshold, kept.threshold);
  for (let start = 0; start < sorted.length; start += BLOCK_ENTRIES_MAX) {
    yield;
    const part = sorted.slice(start, start + BLOCK_ENTRIES_MAX);
    const number = (blocks[first - 1]?.number ?? 0) + 1 + added.length;
    added.push({ number, bytes: encodeBlock(hour, part, cut), entries: part.length, threshold: cut });
  }
  return { removed, added };
}

/** The smallest threshold of blocks; 0 if no entry was dropped. */
export function lowestThreshold(blocks: readonly { threshold: number }[]): number {
  return blocks.reduce((lowest, { threshold }) => minThreshold(lowest, threshold), 0);
}

function minThreshold(a: number, b: number): number {
  return a === 0 || b === 0 ? Math.max(a, b) : Math.min(a, b);
}

/** What the blocks of an hour stand for, though they may not have been cut to the limit yet. */
export function openHour(
  project: string,
  hour: number,
  blocks: readonly AttackBlock[],
  limit: number,
): AttackHour {
  const threshold = lowestThreshold(blocks);
  const stored = blocks.reduce((sum, { length }) => sum + length, 0);
  // Those that were kept before keeping was turned off stay.
  if (limit === 0 || stored <= limit) return { hour, blocks, threshold };
  const distinct = mergeEqual(blocks.flatMap((block) => block.entries()));
  const kept = finish(keepLowest(project, distinct, limit));
  return { hour, blocks, threshold: minThreshold(threshold, kept.threshold) };
}

/** The block without the entries that match; undefined if there are none. */
export function eraseRows(
  hour: number,
  bytes: Uint8Array,
  matcher: AttackMatcher,
): { bytes: Buffer; entries: number; threshold: number } | undefined {
  const block = new AttackBlock(hour, bytes);
  const erased = new Set(matcher.rows(block, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY));
  if (erased.size === 0) return undefined;
  const kept = block.entries().filter((_, i) => !erased.has(i));
  const { threshold } = block;
  return { bytes: encodeBlock(hour, kept, threshold), entries: kept.length, threshold };
}

/** Adds up the counts of equal attacks. */
function mergeEqual(entries: readonly AttackEntry[]): AttackEntry[] {
  const merged = new Map<string, AttackEntry>();
  for (const entry of entries) {
    const key = entryKey(entry);
    const same = merged.get(key);
    merged.set(key, same ? { ...same, count: same.count + entry.count } : entry);
  }
  return [...merged.values()];
}

/** The `limit` entries with the smallest ranks. */
function* keepLowest(
  project: string,
  entries: AttackEntry[],
  limit: number,
): Generator<void, { entries: AttackEntry[]; threshold: number }> {
  if (entries.length <= limit) return { entries, threshold: 0 };
  const ranked = [];
  for (const entry of entries) {
    ranked.push({ entry, rank: sampleRank(project, entry) });
    if (ranked.length % 1_000 === 0) yield;
  }
  ranked.sort((a, b) => a.rank - b.rank || compareEntries(a.entry, b.entry));
  ranked.length = limit;
  return { entries: ranked.map(({ entry }) => entry), threshold: ranked.at(-1)?.rank ?? 0 };
}
