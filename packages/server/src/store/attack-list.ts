/** The list of kept attacks: which of them a query selects, in which order, and how many there are. */
import { type AttackBlock, type BlockRow, compareRows } from './attack-block.ts';
import { type AttackEntry, entryId } from './attack-entries.ts';
import type { AttackFilter } from './attack-filter.ts';
import { type AttackHour, lowestThreshold } from './attack-hours.ts';
import { AttackSelection, type SelectedRows } from './attack-selection.ts';
import type { Selection, TimeRange } from './store.ts';

export interface AttackQuery extends Selection, TimeRange {
  filter: AttackFilter;
  isAscending: boolean;
  /** How many entries come before the page, and how many it has at most. */
  offset: number;
  limit: number;
}

export interface AttackList {
  /** The entries of the page. Each has an ID, which stays the same if its host is deleted. */
  items: AttackEntry[];
  /** The number of entries on all pages, and the number of attacks they stand for. */
  total: number;
  totalAttacks: number;
  /** The number of entries that are kept of the range, hosts and categories, and the number of attacks they stand for. */
  kept: number;
  keptAttacks: number;
}

const ROWS_PER_STEP = 256;

/** Add the hours of the range in the order of the list. */
export class AttackLister {
  readonly list: AttackList = { items: [], total: 0, totalAttacks: 0, kept: 0, keptAttacks: 0 };
  readonly #query: AttackQuery;
  readonly #isRegistered: (hostId: string) => boolean;
  readonly #selection: AttackSelection;

  constructor(query: AttackQuery, isRegistered: (hostId: string) => boolean) {
    this.#query = query;
    this.#isRegistered = isRegistered;
    this.#selection = new AttackSelection(query, query, isRegistered);
  }

  /** Whether `add` reads no more than the heads of the blocks. */
  needsOnlyHeads({ blocks }: AttackHour): boolean {
    const threshold = lowestThreshold(blocks);
    const total = blocks.reduce((sum, { length }) => sum + length, 0);
    const [first, end] = this.#page(total);
    return first >= end && blocks.every((block) => this.#selection.isWhole(block, threshold));
  }

  *add({ blocks }: AttackHour): Generator<void, void> {
    const threshold = lowestThreshold(blocks);
    const all: SelectedRows[] = [];
    let total = 0;
    for (const block of blocks) {
      const { counted, selected } = this.#selection.select(block, threshold);
      this.list.kept += counted.length;
      this.list.keptAttacks += counted.attacks;
      all.push(selected);
      total += selected.length;
      this.list.totalAttacks += selected.attacks;
      yield;
    }
    const [first, end] = this.#page(total);
    if (first < end) yield* this.#addItems(all, first, end);
    this.list.total += total;
  }

  get counts(): readonly number[] {
    const { total, totalAttacks, kept, keptAttacks } = this.list;
    return [total, totalAttacks, kept, keptAttacks];
  }

  /** Adds what the next hours would add. False if they have entries of the page. */
  skip([total = 0, totalAttacks = 0, kept = 0, keptAttacks = 0]: readonly number[]): boolean {
    const [first, end] = this.#page(total);
    if (first < end) return false;
    this.list.total += total;
    this.list.totalAttacks += totalAttacks;
    this.list.kept += kept;
    this.list.keptAttacks += keptAttacks;
    return true;
  }

  /** Where the page begins and ends in the next entries of the list. */
  #page(length: number): [first: number, end: number] {
    const { offset, limit } = this.#query;
    const { total } = this.list;
    return [Math.max(0, offset - total), Math.min(length, offset + limit - total)];
  }

  /** `first` and `end`: positions in the list of these rows. */
  *#addItems(selected: readonly SelectedRows[], first: number, end: number): Generator<void, void> {
    const total = selected.reduce((sum, { length }) => sum + length, 0);
    const positions = this.#query.isAscending ? [first, end] : [total - end, total - first];
    const rows = yield* sortedRows(selected, ...(positions as [number, number]));
    if (!this.#query.isAscending) rows.reverse();
    for (const [n, { block, i }] of rows.entries()) {
      if (n % ROWS_PER_STEP === 0) yield;
      this.list.items.push(this.#item(block.entry(i)));
    }
  }

  #item(entry: AttackEntry): AttackEntry {
    const isKnown = entry.hostId !== null && this.#isRegistered(entry.hostId);
    return { ...entry, id: entryId(entry), hostId: isKnown ? entry.hostId : null };
  }
}

/** Those from the position `first` on, before `end`, in ascending order. */
function* sortedRows(
  selected: readonly SelectedRows[],
  first: number,
  end: number,
): Generator<void, BlockRow[]> {
  const byTime = selected.toSorted((a, b) => a.block.first - b.block.first);
  const areApart = byTime.every(({ block }, n) => block.first > (byTime[n - 1]?.block.last ?? -1));
  const total = selected.reduce((sum, { length }) => sum + length, 0);
  // Of blocks that overlap, as many as there are up to the page, from their beginning or from their end.
  const isAtEnd = total - first < end;
  const count = isAtEnd ? total - first : end;
  const found: BlockRow[] = [];
  let before = 0;
  for (const selection of byTime) {
    const { block, length } = selection;
    const from = areApart ? first - before : isAtEnd ? length - count : 0;
    const to = areApart ? end - before : isAtEnd ? length : count;
    const [start, stop] = [Math.max(0, from), Math.min(length, to)];
    const rows = start < stop ? selection.rows : [];
    for (let n = start; n < stop; n++) found.push(rowAt(block, rows ? (rows[n] ?? 0) : n));
    before += length;
    yield;
  }
  if (areApart) return found;
  found.sort(compareRows);
  return isAtEnd ? found.slice(-count).slice(0, end - first) : found.slice(first, end);
}

function rowAt(block: AttackBlock, i: number): BlockRow {
  return { block, i, time: block.times[i] ?? 0, count: 0, rank: 0, key: '' };
}

/** Remembers the results of a function of few values. */
export function memoized<T>(of: (value: string) => T): (value: string) => T {
  const known = new Map<string, T>();
  return (value) => {
    const result = known.get(value) ?? of(value);
    known.set(value, result);
    return result;
  };
}
