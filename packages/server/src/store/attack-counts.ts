/** Counts of kept attacks by a field, with any filter. */
import { topUrl } from '../event.ts';
import type { AttackBlock } from './attack-block.ts';
import { type AttackFilter, allRows } from './attack-filter.ts';
import { type AttackHour, lowestThreshold } from './attack-hours.ts';
import { BLOCK_ENTRIES_MAX, type ColumnName } from './attack-layout.ts';
import { AttackSelection, type SelectedRows } from './attack-selection.ts';
import { PairNumbers, ValueNumbers } from './attack-values.ts';
import { QueryTooLarge, type Selection, type TimeRange, type TopListName } from './store.ts';

/** `actions`: category and action. */
export type CountedField = 'actions' | 'hosts' | TopListName;

export interface AttackCountQuery extends Selection {
  /** As in `count`. */
  edges: readonly number[];
  filter: AttackFilter;
  by: CountedField;
}

export interface AttackCounts {
  /** The attacks of each point by value; for URLs, host ID, U+0000 and URL. Attacks without a value do not count. */
  points: Map<string, Float64Array>;
  /** How many attacks of the range, hosts and categories are kept, whatever the other filters. */
  keptAttacks: number;
}

/** From the first to the last edge. */
export function rangeOf({ edges }: Pick<AttackCountQuery, 'edges'>): TimeRange {
  return { from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
}

/** The edges between two times, which are the first and the last one. */
export function edgesIn(edges: readonly number[], from: number, to: number): number[] {
  return [from, ...edges.filter((edge) => from < edge && edge < to), to];
}

/** The counts of a part of a range. Its edges are those of the range between its first and its last one. */
export interface CountedPart {
  edges: readonly number[];
  counts: AttackCounts;
}

export function* sumOfCounts(
  edges: readonly number[],
  parts: readonly CountedPart[],
): Generator<void, AttackCounts> {
  const sum: AttackCounts = { points: new Map(), keptAttacks: 0 };
  for (const { edges: own, counts } of parts) {
    sum.keptAttacks += counts.keptAttacks;
    const offset = pointAt(edges, own[0] ?? 0);
    let n = 0;
    for (const [value, added] of counts.points) {
      if (n++ % VALUES_PER_STEP === 0) yield;
      const all = sum.points.get(value) ?? new Float64Array(edges.length - 1);
      for (let i = 0; i < added.length; i++) all[offset + i] = (all[offset + i] ?? 0) + (added[i] ?? 0);
      sum.points.set(value, all);
    }
  }
  return sum;
}

const VALUES_PER_STEP = 500;

/** The values of a list take about 100 bytes each. */
const VALUES_MAX = 1_000_000;

const COLUMN_OF: Record<Exclude<CountedField, 'urls'>, ColumnName> = {
  actions: 'attack',
  hosts: 'host',
  sources: 'source',
  rules: 'rule',
  countries: 'country',
};

export class AttackCounter {
  #keptAttacks = 0;
  readonly #query: AttackCountQuery;
  readonly #isRegistered: (hostId: string) => boolean;
  readonly #selection: AttackSelection;
  readonly #values = new ValueNumbers();
  readonly #hosts = new ValueNumbers();
  /** Of the numbers of URLs and hosts. */
  readonly #pairs = new PairNumbers();
  /** By point: the attacks of each value, or of each pair of a URL and a host. */
  readonly #sums: Float64Array[] = [];
  /** Of the rows of a block: the number of the value of each, or of its pair. */
  readonly #numbers = new Int32Array(BLOCK_ENTRIES_MAX);

  constructor(query: AttackCountQuery, isRegistered: (hostId: string) => boolean) {
    this.#query = query;
    this.#isRegistered = isRegistered;
    this.#selection = new AttackSelection(query, rangeOf(query), isRegistered);
  }

  *add({ blocks }: AttackHour): Generator<void, void> {
    const threshold = lowestThreshold(blocks);
    for (const block of blocks) {
      const { counted, selected } = this.#selection.select(block, threshold);
      this.#keptAttacks += counted.attacks;
      yield;
      if (selected.length > 0) this.#addRows(selected);
      yield;
    }
  }

  /** After all hours were added. */
  *result(): Generator<void, AttackCounts> {
    const points: AttackCounts['points'] = new Map();
    const { edges } = this.#query;
    for (let number = 0; number < this.#size; number++) {
      if (number % VALUES_PER_STEP === 0) yield;
      const text = this.#textOf(number);
      if (text === undefined || !this.#sums.some((sums) => (sums[number] ?? 0) > 0)) continue;
      const counts = points.get(text) ?? new Float64Array(edges.length - 1);
      // Points without attacks have no sums.
      this.#sums.forEach((sums, point) => {
        counts[point] = (counts[point] ?? 0) + (sums[number] ?? 0);
      });
      points.set(text, counts);
    }
    return { points, keptAttacks: this.#keptAttacks };
  }

  get #size(): number {
    return this.#query.by === 'urls' ? this.#pairs.size : this.#values.texts.length;
  }

  #addRows({ block, length, rows = allRows(0, length) }: SelectedRows): void {
    const { edges } = this.#query;
    const numbers = this.#numbersOf(block, rows);
    const counts = block.attacks === block.length ? undefined : block.counts;
    const times = pointAt(edges, block.first) === pointAt(edges, block.last) ? undefined : block.times;
    let point = pointAt(edges, times?.[rows[0] ?? 0] ?? block.first);
    let sums = this.#sumsOf(point);
    for (let n = 0; n < length; n++) {
      const i = rows[n] as number;
      if (times && (times[i] ?? 0) >= (edges[point + 1] ?? 0)) {
        point = pointAt(edges, times[i] ?? 0);
        sums = this.#sumsOf(point);
      }
      const number = numbers[n] as number;
      sums[number] = (sums[number] as number) + (counts ? (counts[i] ?? 0) : 1);
    }
    if (this.#size > VALUES_MAX) throw new QueryTooLarge('list its values');
  }

  /** With space for all values. */
  #sumsOf(point: number): Float64Array {
    const known = this.#sums[point];
    if (known && known.length >= this.#size) return known;
    const sums = new Float64Array(2 * this.#size);
    if (known) sums.set(known);
    this.#sums[point] = sums;
    return sums;
  }

  /** Valid until the next block. */
  #numbersOf(block: AttackBlock, rows: Uint16Array): Int32Array {
    const { by } = this.#query;
    const result = this.#numbers;
    if (by === 'urls') {
      const [hosts, hostNumbers] = [block.indexes('host'), this.#hosts.of(block, 'host')];
      const [urls, urlNumbers] = [block.indexes('url'), this.#values.of(block, 'url')];
      for (let n = 0; n < rows.length; n++) {
        const i = rows[n] as number;
        const [url = 0, host = 0] = [urlNumbers[urls[i] as number], hostNumbers[hosts[i] as number]];
        result[n] = this.#pairs.numberOf(url, host);
      }
      return result;
    }
    const [indexes, numbers] = [block.indexes(COLUMN_OF[by]), this.#values.of(block, COLUMN_OF[by])];
    // The first rule of an entry is the one that decided its category, as in the top list of rules.
    const ruleEnds = by === 'rules' ? block.ruleEnds : undefined;
    for (let n = 0; n < rows.length; n++) {
      const i = rows[n] as number;
      if (ruleEnds === undefined) result[n] = numbers[indexes[i] as number] as number;
      else {
        const first = ruleEnds[i - 1] ?? 0;
        result[n] = first < (ruleEnds[i] as number) ? (numbers[indexes[first] as number] as number) : 0;
      }
    }
    return result;
  }

  /** Undefined without a value. */
  #textOf(number: number): string | undefined {
    const hostOf = (id: string) => (id !== '' && this.#isRegistered(id) ? id : '');
    const { texts } = this.#values;
    const { by } = this.#query;
    if (by === 'urls') {
      const [url, host] = this.#pairs.pairOf(number);
      return url === 0 ? undefined : `${hostOf(this.#hosts.texts[host] ?? '')}\0${topUrl(texts[url] ?? '')}`;
    }
    const text = texts[number] ?? '';
    return (by === 'hosts' ? hostOf(text) : text) || undefined;
  }
}

/** The last point that does not begin after a time. */
function pointAt(edges: readonly number[], time: number): number {
  let [first, end] = [0, edges.length - 1];
  while (end - first > 1) {
    const middle = (first + end) >> 1;
    if ((edges[middle] ?? 0) <= time) first = middle;
    else end = middle;
  }
  return first;
}
