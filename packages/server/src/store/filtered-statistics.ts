/** Statistics of attacks with filters: what the store counts, answered from the kept attacks. */
import type { CountedField } from './attack-counts.ts';
import type { AttackFilter } from './attack-filter.ts';
import { ROWS, type Row } from './rows.ts';
import type { AnyCounts, CountQuery, Counts, Store, TopItem, TopList, TopQuery } from './store.ts';
import { Ranking } from './top-lists.ts';

/** What statistics of attacks need of a store. */
export type Statistics = Pick<Store, 'count' | 'top' | 'hosts'>;

/**
 * The same methods as those of the store, for the kept attacks that a filter selects. All counts are exact to the
 * millisecond, unless attacks are missing: then `keptAttacks` are fewer than were counted.
 */
export class FilteredStatistics implements Statistics {
  readonly #store: Store;
  readonly #filter: AttackFilter;
  /** How many attacks of the range, hosts and categories are kept. */
  keptAttacks = 0;

  constructor(store: Store, filter: AttackFilter) {
    this.#store = store;
    this.#filter = filter;
  }

  hosts(project: string) {
    return this.#store.hosts(project);
  }

  async count<const Q extends CountQuery>(query: Q): Promise<Counts<Q>> {
    return (await this.#count(query)) as unknown as Counts<Q>;
  }

  async #count({ project, hosts, edges, rows, byHost }: CountQuery): Promise<AnyCounts> {
    const selection = { project, hosts, edges };
    if (byHost) {
      if (rows !== 'attacks') throw new Error(`kept attacks are not counted by host and ${rows}`);
      const points = await this.#points(selection, 'hosts');
      return new Map(Array.from(points, ([id, counts]) => [id, [counts]]));
    }
    const points = [...(await this.#points(selection, 'actions'))];
    return ROWS[rows].map((row) => sumOf(row, points, edges.length - 1));
  }

  async top({ project, hosts, from, to, list, limit }: TopQuery): Promise<TopList> {
    const points = await this.#points({ project, hosts, edges: [from, to] }, list);
    const ranking = new Ranking(limit);
    let attacks = 0;
    for (const [value, [count = 0]] of points) {
      ranking.add(value, count);
      attacks += count;
    }
    const items = ranking.keys().map((value): TopItem => {
      const counts = { count: points.get(value)?.[0] ?? 0, error: 0 };
      if (list !== 'urls') return { key: value, ...counts };
      const [hostId = '', key = ''] = value.split('\0');
      return { key, hostId: hostId === '' ? null : hostId, ...counts };
    });
    return { from, to, attacks, distinct: points.size, distinctIs: 'exact', error: 0, items };
  }

  async #points(selection: Pick<CountQuery, 'project' | 'hosts' | 'edges'>, by: CountedField) {
    const { points, keptAttacks } = await this.#store.countAttacks({
      ...selection,
      filter: this.#filter,
      by,
    });
    this.keptAttacks = keptAttacks;
    return points;
  }
}

/** The sum of the counts that a row has. */
function sumOf(row: Row, counts: readonly [action: string, Float64Array][], points: number): Float64Array {
  if (row === null) throw new Error('requests are not kept');
  const sums = new Float64Array(points);
  for (const [value, ofAction] of counts) {
    const [category, action] = value.split(' ');
    const isCounted =
      row.categories.some((name) => name === category) && (!row.blocked || action === 'block');
    if (isCounted) for (let i = 0; i < points; i++) sums[i] = (sums[i] ?? 0) + (ofAction[i] ?? 0);
  }
  return sums;
}
