/** Counts of kept attacks by a field, with any filter. */
import { topUrl } from '../event.ts';
import type { AttackBlock, ColumnName } from './attack-block.ts';
import type { AttackFilter } from './attack-filter.ts';
import { type AttackHour, lowestThreshold } from './attack-hours.ts';
import { AttackSelection, type SelectedRows } from './attack-selection.ts';
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
  readonly points: AttackCounts['points'] = new Map();
  keptAttacks = 0;
  readonly #query: AttackCountQuery;
  readonly #isRegistered: (hostId: string) => boolean;
  readonly #selection: AttackSelection;

  constructor(query: AttackCountQuery, isRegistered: (hostId: string) => boolean) {
    this.#query = query;
    this.#isRegistered = isRegistered;
    this.#selection = new AttackSelection(query, rangeOf(query), isRegistered);
  }

  *add({ blocks }: AttackHour): Generator<void, void> {
    const threshold = lowestThreshold(blocks);
    for (const block of blocks) {
      const { counted, selected } = this.#selection.select(block, threshold);
      this.keptAttacks += counted.attacks;
      yield;
      if (selected.length > 0) this.#addRows(selected);
      yield;
    }
  }

  #addRows({ block, length, rows }: SelectedRows): void {
    const { edges } = this.#query;
    const { keys, keyOf, textOf } = this.#keysOf(block);
    const sums = new Float64Array(keys);
    const counts = block.attacks === block.length ? undefined : block.counts;
    const times = pointAt(edges, block.first) === pointAt(edges, block.last) ? undefined : block.times;
    let point = pointAt(edges, times?.[rows?.[0] ?? 0] ?? block.first);
    for (let n = 0; n < length; n++) {
      const i = rows ? (rows[n] ?? 0) : n;
      if (times && (times[i] ?? 0) >= (edges[point + 1] ?? 0)) {
        this.#addSums(point, sums, textOf);
        point = pointAt(edges, times[i] ?? 0);
      }
      const key = keyOf(i);
      if (key >= 0) sums[key] = (sums[key] ?? 0) + (counts ? (counts[i] ?? 0) : 1);
    }
    this.#addSums(point, sums, textOf);
  }

  /** Adds the sums by key to a point, and clears them. */
  #addSums(point: number, sums: Float64Array, textOf: (key: number) => string | undefined): void {
    for (let key = 0; key < sums.length; key++) {
      const sum = sums[key] ?? 0;
      const counts = sum > 0 ? this.#pointsOf(textOf(key)) : undefined;
      if (counts) counts[point] = (counts[point] ?? 0) + sum;
    }
    sums.fill(0);
  }

  #pointsOf(value: string | undefined): Float64Array | undefined {
    const { points } = this;
    if (value === undefined) return undefined;
    const known = points.get(value);
    if (known) return known;
    if (points.size >= VALUES_MAX) throw new QueryTooLarge('list its values');
    const counts = new Float64Array(this.#query.edges.length - 1);
    points.set(value, counts);
    return counts;
  }

  /** `keyOf` an entry: less than `keys`, or less than 0 without a value. `textOf` a key: undefined without a value. */
  #keysOf(block: AttackBlock) {
    const { by } = this.#query;
    const hostOf = (id: string) => (id !== '' && this.#isRegistered(id) ? id : '');
    if (by === 'urls') {
      const [hosts, urls] = [block.indexes('host'), block.indexes('url')];
      const size = block.length;
      /** Numbers of pairs, and the pairs by number. */
      const numbers = new Map<number, number>();
      const pairs: number[] = [];
      return {
        keys: size,
        keyOf(i: number) {
          const pair = (hosts[i] ?? 0) * size + (urls[i] ?? 0);
          const known = numbers.get(pair);
          if (known !== undefined) return known;
          numbers.set(pair, pairs.length);
          return pairs.push(pair) - 1;
        },
        textOf(key: number) {
          const pair = pairs[key] ?? 0;
          const url = block.dictionary('url')[pair % size] ?? '';
          const host = block.dictionary('host')[Math.floor(pair / size)] ?? '';
          return url === '' ? undefined : `${hostOf(host)}\0${topUrl(url)}`;
        },
      };
    }
    const [dictionary, indexes] = [block.dictionary(COLUMN_OF[by]), block.indexes(COLUMN_OF[by])];
    const keys = dictionary.length;
    const textOf = (key: number) =>
      (by === 'hosts' ? hostOf(dictionary[key] ?? '') : dictionary[key]) || undefined;
    if (by !== 'rules') return { keys, keyOf: (i: number) => indexes[i] ?? -1, textOf };
    // The first rule of an entry is the one that decided its category, as in the top list of rules.
    const { ruleEnds } = block;
    const firstOf = (i: number) => ruleEnds[i - 1] ?? 0;
    const keyOf = (i: number) => (firstOf(i) < (ruleEnds[i] ?? 0) ? (indexes[firstOf(i)] ?? -1) : -1);
    return { keys, keyOf, textOf };
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
