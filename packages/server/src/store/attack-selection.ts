/** Which of the kept attacks a query selects, and how many attacks they stand for. */
import type { AttackBlock } from './attack-block.ts';
import { type AttackFilter, AttackMatcher } from './attack-filter.ts';
import type { Selection, TimeRange } from './store.ts';

/** The selected rows of a block, ascending. All of them if `rows` is undefined. */
export interface SelectedRows {
  block: AttackBlock;
  rows: readonly number[] | undefined;
}

export class AttackSelection {
  /** By range, hosts and categories, which the counters know too, and by everything. */
  readonly #counted: AttackMatcher;
  readonly #selected: AttackMatcher;
  readonly #range: TimeRange;

  constructor(
    { hosts, filter }: Selection & { filter: AttackFilter },
    range: TimeRange,
    isRegistered: (hostId: string) => boolean,
  ) {
    this.#range = range;
    const { include, exclude } = filter;
    const known = hosts && { hosts: hosts.filter(isRegistered) };
    this.#counted = new AttackMatcher({
      include: { ...known, ...(include.categories && { categories: include.categories }) },
      exclude: exclude.categories ? { categories: exclude.categories } : {},
    });
    this.#selected = new AttackMatcher({ include: { ...include, ...known }, exclude });
  }

  /** Entries whose rank is above the threshold of the hour are not kept. */
  select(block: AttackBlock, threshold: number): { counted: SelectedRows; selected: SelectedRows } {
    const counted = this.#select(block, threshold, this.#counted);
    const isSame = this.#selected.size === this.#counted.size;
    return { counted, selected: isSame ? counted : this.#select(block, threshold, this.#selected) };
  }

  #select(block: AttackBlock, threshold: number, matcher: AttackMatcher): SelectedRows {
    if (this.#isWhole(block, threshold, matcher)) return { block, rows: undefined };
    const { from, to } = this.#range;
    const rows = matcher.rows(block, from, to);
    if (block.threshold === threshold) return { block, rows };
    return { block, rows: rows.filter((i) => (block.ranks[i] ?? 0) <= threshold) };
  }

  /** Whether all entries of the block are selected: most blocks are, which needs no more than their heads. */
  isWhole(block: AttackBlock, threshold: number): boolean {
    return this.#isWhole(block, threshold, this.#selected);
  }

  #isWhole(block: AttackBlock, threshold: number, matcher: AttackMatcher): boolean {
    const { from, to } = this.#range;
    return matcher.size === 0 && from <= block.first && block.last < to && block.threshold === threshold;
  }
}

export function lengthOf({ block, rows }: SelectedRows): number {
  return rows?.length ?? block.length;
}

/** How many attacks the rows stand for. */
export function attacksOf({ block, rows }: SelectedRows): number {
  if (rows === undefined || rows.length === block.length) return block.attacks;
  if (block.attacks === block.length) return rows.length;
  return rows.reduce((sum, i) => sum + (block.counts[i] ?? 0), 0);
}
