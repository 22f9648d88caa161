/** Counts of kept attacks by a field, with any filter. */
import { topUrl } from '../event.ts';
import type { AttackBlock, ColumnName } from './attack-block.ts';
import type { AttackFilter } from './attack-filter.ts';
import { type AttackHour, lowestThreshold } from './attack-hours.ts';
import { AttackSelection, attacksOf, type SelectedRows } from './attack-selection.ts';
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
      this.keptAttacks += attacksOf(counted);
      yield;
      this.#addRows(selected);
      yield;
    }
  }

  #addRows({ block, rows }: SelectedRows): void {
    const { edges, by } = this.#query;
    const { keyOf, textOf } = this.#keysOf(block, by);
    /** By key. The same value can have several. */
    const known = new Map<number, Float64Array | undefined>();
    let point = 0;
    for (const i of rows ?? block.times.keys()) {
      const key = keyOf(i);
      if (key < 0) continue;
      let counts = known.get(key);
      if (counts === undefined) {
        if (known.has(key)) continue;
        counts = this.#pointsOf(textOf(key));
        known.set(key, counts);
        if (counts === undefined) continue;
      }
      const time = block.times[i] ?? 0;
      while (time >= (edges[point + 1] ?? 0)) point++;
      counts[point] = (counts[point] ?? 0) + (block.counts[i] ?? 0);
    }
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

  /** `keyOf` an entry: less than 0 without a value. `textOf` a key: undefined without a value. */
  #keysOf(block: AttackBlock, by: CountedField) {
    const hostOf = (id: string) => (id !== '' && this.#isRegistered(id) ? id : '');
    if (by === 'urls') {
      const [hosts, urls] = [block.column('host'), block.column('url')];
      const size = urls.dictionary.length;
      return {
        keyOf: (i: number) => hosts.index(i) * size + urls.index(i),
        textOf: (key: number) => {
          const [host = '', url = ''] = [
            hosts.dictionary[Math.floor(key / size)],
            urls.dictionary[key % size],
          ];
          return url === '' ? undefined : `${hostOf(host)}\0${topUrl(url)}`;
        },
      };
    }
    const { dictionary, index } = block.column(COLUMN_OF[by]);
    const textOf = (key: number) =>
      (by === 'hosts' ? hostOf(dictionary[key] ?? '') : dictionary[key]) || undefined;
    if (by !== 'rules') return { keyOf: index, textOf };
    // The first rule of an entry is the one that decided its category, as in the top list of rules.
    const { ruleEnds } = block;
    const firstOf = (i: number) => ruleEnds[i - 1] ?? 0;
    return { keyOf: (i: number) => (firstOf(i) < (ruleEnds[i] ?? 0) ? index(firstOf(i)) : -1), textOf };
  }
}
