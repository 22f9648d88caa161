/** Statistics of attacks with filters: the same methods as those of the store, for some of the attacks. */
import { timed } from '../diagnostics.ts';
import { CATEGORIES, type Category } from '../event.ts';
import {
  type AnyCounts,
  type AttackFilter,
  type CountedField,
  type CountQuery,
  type Counts,
  HOUR_MS,
  QueryTooLarge,
  type Selection,
  type Store,
  type TimeRange,
  type TopItem,
  type TopList,
  type TopQuery,
} from '../store/store.ts';
import { attacksByCategory, mostFrequent, type Statistics } from './overview.ts';

/** Whether a filter selects by more than categories, so that only the kept attacks can answer. */
export function needsKeptAttacks({ include, exclude }: AttackFilter): boolean {
  return [include, exclude].some((lists) => Object.keys(lists).some((name) => name !== 'categories'));
}

export function selectedCategories({ include, exclude }: AttackFilter): Category[] {
  return CATEGORIES.filter(
    (name) => (include.categories?.includes(name) ?? true) && !exclude.categories?.includes(name),
  );
}

/** Counts all attacks. */
export class ExactStatistics implements Statistics {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  hosts(project: string) {
    return this.#store.hosts(project);
  }

  count<const Q extends CountQuery>(query: Q): Promise<Counts<Q>> {
    return this.#store.count(query);
  }

  top(query: TopQuery): Promise<TopList> {
    return exactTop(this.#store, query);
  }
}

/**
 * If all attacks of the range are kept, the list is exact and covers the range to the millisecond. The same if only those of
 * whole hours are missing, whose summaries are exact. Otherwise the list covers whole hours, with the bounds of the store.
 */
async function exactTop(store: Store, query: TopQuery): Promise<TopList> {
  return (await topOfParts(store, query)) ?? (await keptTop(store, query)) ?? store.top(query);
}

/** Whole hours from the summaries, which are fast, and the rest from kept attacks. Undefined if a part is not exact. */
async function topOfParts(store: Store, query: TopQuery): Promise<TopList | undefined> {
  const { from, to, list } = query;
  const [start, end] = [Math.ceil(from / HOUR_MS) * HOUR_MS, Math.floor(to / HOUR_MS) * HOUR_MS];
  if (start >= end) return undefined;
  const all = { ...query, limit: Number.MAX_SAFE_INTEGER };
  const hours = await store.top({ ...all, from: start, to: end });
  if (hours.error > 0 || hours.from > start) return undefined;
  const counts = new Map<string, number>();
  for (const part of [
    hours,
    await keptTop(store, { ...all, to: start }),
    await keptTop(store, { ...all, from: end }),
  ]) {
    if (part === undefined) return undefined;
    for (const { key, hostId, count } of part.items) {
      const value = list === 'urls' ? `${hostId ?? ''}\0${key}` : key;
      counts.set(value, (counts.get(value) ?? 0) + count);
    }
  }
  return rank([...counts], query);
}

/** Undefined if some attacks of the range are not kept. */
async function keptTop(store: Store, query: TopQuery): Promise<TopList | undefined> {
  const { project, hosts, from, to, categories } = query;
  if (from === to) return rank([], query);
  const filter: AttackFilter = { include: categories ? { categories } : {}, exclude: {} };
  const selection = { project, hosts, from, to, filter };
  // Reads little, so it costs little in ranges with missing attacks.
  const [{ keptAttacks }, attacks] = await readCounted(store, selection, () =>
    store.attacks({ ...selection, isAscending: false, offset: 0, limit: 1 }),
  );
  if (keptAttacks !== attacks) return undefined;
  const kept = new FilteredStatistics(store, filter);
  try {
    const list = await kept.top(query);
    // An hour may have passed its limit meanwhile.
    return kept.keptAttacks < attacks ? undefined : list;
  } catch (error) {
    if (error instanceof QueryTooLarge) return undefined;
    throw error;
  }
}

/** An exact list of these values, those of URLs with the ID of the host before them. */
function rank(counts: [value: string, count: number][], { from, to, list, limit }: TopQuery): TopList {
  const attacks = counts.reduce((sum, [, count]) => sum + count, 0);
  const ranked = mostFrequent(counts, limit).sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1));
  const items = ranked.slice(0, limit).map(([value, count]): TopItem => {
    if (list !== 'urls') return { key: value, count, error: 0 };
    const [hostId = '', key = ''] = value.split('\0');
    return { key, hostId: hostId === '' ? null : hostId, count, error: 0 };
  });
  return { from, to, attacks, distinct: counts.length, distinctIs: 'exact', error: 0, items };
}

/** How often kept attacks are read at most, while attacks arrive. */
const ATTEMPTS_MAX = 4;

type CountedQuery = Selection & TimeRange & { filter: AttackFilter };

/**
 * What `read` reads of the kept attacks, and how many the counters have: the same number before and after. Versions change
 * with each request of the project, so a long query would be repeated for nothing. If attacks keep arriving, the number
 * has some that `read` lacks.
 */
export async function readCounted<T>(
  store: Store,
  query: CountedQuery,
  read: () => Promise<T>,
): Promise<[result: T, attacks: number]> {
  const count = () => timed('count', () => countAttacks(store, query));
  let attacks = await count();
  for (let attempt = 1; ; attempt++) {
    const result = await read();
    const before = attacks;
    attacks = await count();
    if (attacks === before || attempt === ATTEMPTS_MAX) return [result, attacks];
  }
}

/** The exact number of attacks in the range, of these hosts and categories. */
async function countAttacks(store: Store, query: CountedQuery): Promise<number> {
  const categories = selectedCategories(query.filter);
  const counts = await attacksByCategory(store, query);
  return CATEGORIES.reduce((sum, name, i) => (categories.includes(name) ? sum + (counts[i] ?? 0) : sum), 0);
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
    return exactTop(this.#store, { ...query, categories: this.#categories });
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

  async top(query: TopQuery): Promise<TopList> {
    const { project, hosts, from, to, list } = query;
    if (list === 'pages') throw new Error('filters select attacks, but pages has requests');
    const points = await this.#points({ project, hosts, edges: [from, to] }, list);
    return rank(
      Array.from(points, ([value, [count = 0]]): [string, number] => [value, count]),
      query,
    );
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
