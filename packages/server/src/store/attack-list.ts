/** The list of kept attacks: which of them a query selects, in which order, and how many there are. */
import type { AttackBlock } from './attack-block.ts';
import { type AttackEntry, entryId, entryKey } from './attack-entries.ts';
import type { AttackFilter } from './attack-filter.ts';
import { type AttackHour, lowestThreshold } from './attack-hours.ts';
import { AttackSelection, attacksOf, lengthOf, type SelectedRows } from './attack-selection.ts';
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

interface Row {
  block: AttackBlock;
  i: number;
  time: number;
  /** See `entryKey`; '' until it is needed. */
  key: string;
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
      this.list.kept += lengthOf(counted);
      this.list.keptAttacks += attacksOf(counted);
      all.push(selected);
      total += lengthOf(selected);
      this.list.totalAttacks += attacksOf(selected);
      yield;
    }
    const [first, end] = this.#page(total);
    if (first < end) yield* this.#addItems(all, first, end);
    this.list.total += total;
  }

  /** Where the page begins and ends in the next entries of the list. */
  #page(length: number): [first: number, end: number] {
    const { offset, limit } = this.#query;
    const { total } = this.list;
    return [Math.max(0, offset - total), Math.min(length, offset + limit - total)];
  }

  /** `first` and `end`: positions in the list of these rows. */
  *#addItems(selected: readonly SelectedRows[], first: number, end: number): Generator<void, void> {
    const total = selected.reduce((sum, rows) => sum + lengthOf(rows), 0);
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
function* sortedRows(selected: readonly SelectedRows[], first: number, end: number): Generator<void, Row[]> {
  const byTime = selected.toSorted((a, b) => a.block.first - b.block.first);
  const areApart = byTime.every(({ block }, n) => block.first > (byTime[n - 1]?.block.last ?? -1));
  const found: Row[] = [];
  let before = 0;
  for (const { block, rows } of byTime) {
    const length = lengthOf({ block, rows });
    const [from, to] = areApart ? [Math.max(0, first - before), Math.min(length, end - before)] : [0, length];
    for (let n = from; n < to; n++) {
      const i = rows?.[n] ?? n;
      found.push({ block, i, time: block.times[i] ?? 0, key: '' });
    }
    before += length;
    yield;
  }
  return areApart ? found : found.sort(compareRows).slice(first, end);
}

/** As `compareEntries`. The rows of a block are in order. */
function compareRows(a: Row, b: Row): number {
  if (a.block === b.block) return a.i - b.i;
  if (a.time !== b.time) return a.time - b.time;
  for (const row of [a, b]) row.key ||= entryKey(row.block.entry(row.i));
  return a.key < b.key ? -1 : 1;
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
