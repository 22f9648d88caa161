/** Statistics of attacks with filters: the same methods as those of the store, for some of the attacks. */
import { CATEGORIES, type Category } from '../event.ts';
import type {
  AnyCounts,
  AttackFilter,
  CountedField,
  CountQuery,
  Counts,
  Store,
  TopItem,
  TopList,
  TopQuery,
} from '../store/store.ts';
import { mostFrequent, type Statistics } from './overview.ts';

/** Whether a filter selects by more than categories, so that only the kept attacks can answer. */
export function needsKeptAttacks({ include, exclude }: AttackFilter): boolean {
  return [include, exclude].some((lists) => Object.keys(lists).some((name) => name !== 'categories'));
}

export function selectedCategories({ include, exclude }: AttackFilter): Category[] {
  return CATEGORIES.filter(
    (name) => (include.categories?.includes(name) ?? true) && !exclude.categories?.includes(name),
  );
}

/** Counts the attacks of some categories. The counters know them, so no attack is missing. */
export class CategoryStatistics implements Statistics {
  readonly #store: Store;
  readonly #categories: readonly Category[];

  constructor(store: Store, categories: readonly Category[]) {
    this.#store = store;
    this.#categories = categories;
  }

  hosts(project: string) {
    return this.#store.hosts(project);
  }

  async count<const Q extends CountQuery>(query: Q): Promise<Counts<Q>> {
    const counts: AnyCounts = await this.#store.count({ ...query, rows: 'everything' });
    const select = (rows: readonly Float64Array[]) =>
      selectRows(
        query,
        this.#categories.flatMap((name) => actionsOf(name, rows)),
      );
    if (Array.isArray(counts)) return select(counts) as unknown as Counts<Q>;
    const hosts = Array.from(counts, ([id, rows]) => [id, select(rows)] as const);
    const counted = hosts.filter(([, rows]) => rows.some((row) => row.some((count) => count > 0)));
    return new Map(counted) as unknown as Counts<Q>;
  }

  top(query: TopQuery): Promise<TopList> {
    return this.#store.top({ ...query, categories: this.#categories });
  }
}

/** The attacks of a category by action, of the rows `everything`. */
function actionsOf(category: Category, rows: readonly Float64Array[]): ActionCounts[] {
  const row = 1 + CATEGORIES.indexOf(category);
  const [all = EMPTY, blocked = EMPTY] = [rows[row], rows[row + CATEGORIES.length]];
  return [
    { category, isBlocked: true, counts: blocked },
    { category, isBlocked: false, counts: all.map((count, i) => count - (blocked[i] ?? 0)) },
  ];
}

const EMPTY = new Float64Array(0);

/**
 * Counts the kept attacks that a filter selects. All counts are exact to the millisecond, unless attacks are missing: then
 * `keptAttacks` are fewer than were counted.
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
    return selectRows({ edges, rows }, await this.actions(selection));
  }

  /** The attacks by category and action. */
  async actions(selection: Points): Promise<ActionCounts[]> {
    const points = await this.#points(selection, 'actions');
    return Array.from(points, ([value, counts]) => {
      const [category = '', action] = value.split(' ');
      return { category, isBlocked: action === 'block', counts };
    });
  }

  async top({ project, hosts, from, to, list, limit }: TopQuery): Promise<TopList> {
    const points = await this.#points({ project, hosts, edges: [from, to] }, list);
    const counts = Array.from(points, ([value, [count = 0]]): [string, number] => [value, count]);
    const attacks = counts.reduce((sum, [, count]) => sum + count, 0);
    const ranked = mostFrequent(counts, limit).sort(
      ([a, one], [b, other]) => other - one || (a < b ? -1 : 1),
    );
    const items = ranked.slice(0, limit).map(([value, count]): TopItem => {
      if (list !== 'urls') return { key: value, count, error: 0 };
      const [hostId = '', key = ''] = value.split('\0');
      return { key, hostId: hostId === '' ? null : hostId, count, error: 0 };
    });
    return { from, to, attacks, distinct: points.size, distinctIs: 'exact', error: 0, items };
  }

  async #points(selection: Points, by: CountedField) {
    const { points, keptAttacks } = await this.#store.countAttacks({
      ...selection,
      filter: this.#filter,
      by,
    });
    this.keptAttacks = keptAttacks;
    return points;
  }
}

type Points = Pick<CountQuery, 'project' | 'hosts' | 'edges'>;

interface ActionCounts {
  category: string;
  isBlocked: boolean;
  /** By point. */
  counts: Float64Array;
}

/** The sum of the counts of some actions, by point. */
export function sumOf(
  edges: readonly number[],
  actions: readonly ActionCounts[],
  isCounted: (action: ActionCounts) => boolean,
): Float64Array {
  const sums = new Float64Array(edges.length - 1);
  for (const { counts } of actions.filter(isCounted))
    for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] ?? 0) + (counts[i] ?? 0);
  return sums;
}

/** The rows of a query, as sums of these counts. */
function selectRows({ edges, rows }: Pick<CountQuery, 'edges' | 'rows'>, actions: readonly ActionCounts[]) {
  const sum = (isCounted: (action: ActionCounts) => boolean) => sumOf(edges, actions, isCounted);
  if (rows === 'categories') return CATEGORIES.map((name) => sum(({ category }) => category === name));
  const attacks = sum(() => true);
  if (rows === 'attacks') return [attacks];
  if (rows === 'actions') return [attacks, sum(({ isBlocked }) => isBlocked)];
  throw new Error(`filters select attacks, but ${rows} has requests`);
}
