/** Which of the kept attacks a query selects, and how many attacks they stand for. */
import type { AttackBlock } from './attack-block.ts';
import { type AttackFilter, AttackMatcher } from './attack-filter.ts';
import type { Selection, TimeRange } from './store.ts';

/** The selected entries of a block. */
export class SelectedRows {
  readonly block: AttackBlock;
  readonly length: number;
  /** How many attacks they stand for. */
  readonly attacks: number;
  readonly #select: () => Uint16Array | undefined;

  constructor(block: AttackBlock, length: number, attacks: number, select: () => Uint16Array | undefined) {
    this.block = block;
    this.length = length;
    this.attacks = attacks;
    this.#select = select;
  }

  /** Their positions, ascending; undefined if these are all entries. Most queries do not need them of most blocks. */
  get rows(): Uint16Array | undefined {
    return this.#select();
  }
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
    const isWhole = this.#isWhole(block, threshold);
    if (isWhole && matcher.size === 0)
      return new SelectedRows(block, block.length, block.attacks, () => undefined);
    const select = () => this.#rows(block, threshold, matcher);
    const count = isWhole && block.attacks === block.length ? matcher.count(block) : undefined;
    if (count !== undefined) return new SelectedRows(block, count, count, select);
    const rows = select();
    return new SelectedRows(block, rows.length, attacksOf(block, rows), () => rows);
  }

  #rows(block: AttackBlock, threshold: number, matcher: AttackMatcher): Uint16Array {
    const { from, to } = this.#range;
    const rows = matcher.rows(block, from, to);
    if (block.threshold === threshold) return rows;
    return rows.filter((i) => (block.ranks[i] ?? 0) <= threshold);
  }

  /** Whether all entries of the block are selected: most blocks are, which needs no more than their heads. */
  isWhole(block: AttackBlock, threshold: number): boolean {
    return this.#selected.size === 0 && this.#isWhole(block, threshold);
  }

  /** Whether the range has all entries of the block, and all of them are kept. */
  #isWhole(block: AttackBlock, threshold: number): boolean {
    const { from, to } = this.#range;
    return from <= block.first && block.last < to && block.threshold === threshold;
  }
}

function attacksOf(block: AttackBlock, rows: Uint16Array): number {
  if (block.attacks === block.length) return rows.length;
  return rows.reduce((sum, i) => sum + (block.counts[i] ?? 0), 0);
}
