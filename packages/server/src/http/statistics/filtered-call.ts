/** Calls with filters: which of the attacks they count, and what is missing. */

import { timed } from '../../diagnostics.ts';
import { CATEGORIES } from '../../event.ts';
import {
  CategoryStatistics,
  FilteredStatistics,
  needsKeptAttacks,
  selectedCategories,
} from '../../statistics/filtered.ts';
import { attacksByCategory, type Statistics } from '../../statistics/overview.ts';
import { hoursOf, type Range } from '../../statistics/range.ts';
import type { AttackFilter, Selection, Store, TimeRange } from '../../store/store.ts';
import type { Filtered } from './attack-filters.ts';
import type { Notes } from './response-cache.ts';

type FilteredQuery = Selection & Range & Filtered;

/** Computes a response with the statistics that the filter of the query selects. */
export function filtered<Q extends FilteredQuery>(
  store: Store,
  compute: (statistics: Statistics, query: Q) => Promise<object | string>,
): (query: Q, notes: Notes) => Promise<object | string> {
  return async (query, notes) => {
    const { filter } = query;
    if (filter === undefined) return compute(store, query);
    if (!needsKeptAttacks(filter))
      return compute(new CategoryStatistics(store, selectedCategories(filter)), query);
    const statistics = new FilteredStatistics(store, filter);
    const [content, attacks] = await readCounted(store, { ...query, filter }, () =>
      compute(statistics, query),
    );
    if (statistics.keptAttacks < attacks) notes.kept = `${statistics.keptAttacks}/${attacks}`;
    return content;
  };
}

/** Kept attacks are counted to the millisecond, top lists by the hour. */
export function countedHours({ from, to, filter }: Range & Filtered): Range {
  return filter !== undefined && needsKeptAttacks(filter) ? { from, to } : hoursOf({ from, to });
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
