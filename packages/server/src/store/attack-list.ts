/** The list of kept attacks: which of them a query selects, in which order, and how many there are. */
import type { AttackBlock } from './attack-block.ts';
import { type AttackEntry, entryId, entryKey, sampleRank } from './attack-entries.ts';
import { type AttackFilter, AttackMatcher } from './attack-filter.ts';
import type { AttackHour } from './attack-hours.ts';
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
  /** The number of entries on all pages. */
  total: number;
  /** The number of entries that are kept of the range, hosts and categories, and the number of attacks they stand for. */
  kept: number;
  keptAttacks: number;
}

/** One row of a block, or several equal ones of different blocks. */
interface Row {
  block: AttackBlock;
  i: number;
  time: number;
  count: number;
}

const ROWS_PER_STEP = 4_096;

/** Add the hours of the range in the order of the list. */
export class AttackLister {
  readonly list: AttackList = { items: [], total: 0, kept: 0, keptAttacks: 0 };
  readonly #query: AttackQuery;
  readonly #isRegistered: (hostId: string) => boolean;
  /** By range, hosts and categories, which the counters know too, and by everything. */
  readonly #counted: AttackMatcher;
  readonly #selected: AttackMatcher;

  constructor(query: AttackQuery, isRegistered: (hostId: string) => boolean) {
    this.#query = query;
    this.#isRegistered = isRegistered;
    const { include, exclude } = query.filter;
    const hosts = query.hosts && { hosts: query.hosts.filter(isRegistered) };
    const counted = {
      include: { ...hosts, ...(include.categories && { categories: include.categories }) },
      exclude: exclude.categories ? { categories: exclude.categories } : {},
    };
    this.#counted = new AttackMatcher(counted);
    this.#selected = new AttackMatcher({ include: { ...include, ...hosts }, exclude });
  }

  *add(hour: AttackHour): Generator<void, void> {
    const counted = this.#rows(hour, this.#counted);
    yield;
    this.list.kept += counted.length;
    for (const { count } of counted) this.list.keptAttacks += count;
    const isSame = this.#selected.size === this.#counted.size;
    const rows = isSame ? counted : this.#rows(hour, this.#selected);
    const { offset, limit, isAscending } = this.#query;
    const first = Math.max(0, offset - this.list.total);
    const end = Math.min(rows.length, offset + limit - this.list.total);
    for (let n = first; n < end; n++) {
      const row = rows[isAscending ? n : rows.length - 1 - n] as Row;
      this.list.items.push(this.#item(row));
      if (n % ROWS_PER_STEP === ROWS_PER_STEP - 1) yield;
    }
    this.list.total += rows.length;
  }

  #item({ block, i, count }: Row): AttackEntry {
    const entry = block.entry(i);
    const isKnown = entry.hostId !== null && this.#isRegistered(entry.hostId);
    return { ...entry, id: entryId(entry), count, hostId: isKnown ? entry.hostId : null };
  }

  /** In ascending order. */
  #rows({ blocks, threshold }: AttackHour, matcher: AttackMatcher): Row[] {
    const { project, from, to } = this.#query;
    const rows = blocks.flatMap((block) =>
      matcher.rows(block, from, to).map((i): Row => {
        return { block, i, time: block.times[i] ?? 0, count: block.counts[i] ?? 0 };
      }),
    );
    const areApart = blocks.every((block, n) => block.first > (blocks[n - 1]?.last ?? -1));
    const merged = areApart ? rows : mergeRows(rows);
    if (threshold === 0) return merged;
    return merged.filter(({ block, i }) => sampleRank(project, block.entry(i)) <= threshold);
  }
}

/** Sorts the rows of blocks that overlap, and adds up equal ones. */
function mergeRows(rows: readonly Row[]): Row[] {
  const keyed = rows.map((row) => ({ ...row, key: '' }));
  type Keyed = (typeof keyed)[number];
  const keyOf = (row: Keyed) => {
    row.key ||= entryKey(row.block.entry(row.i));
    return row.key;
  };
  const order = (a: Keyed, b: Keyed) =>
    a.time - b.time || (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0);
  const merged: Keyed[] = [];
  for (const row of keyed.sort(order)) {
    const last = merged.at(-1);
    if (last && order(last, row) === 0) last.count += row.count;
    else merged.push(row);
  }
  return merged;
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
