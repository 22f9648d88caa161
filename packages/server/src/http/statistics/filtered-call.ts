/** Calls with filters: which of the attacks they count, and what is missing. */

import {
  CategoryStatistics,
  ExactStatistics,
  FilteredStatistics,
  needsKeptAttacks,
  readCounted,
  selectedCategories,
} from '../../statistics/filtered.ts';
import type { Statistics } from '../../statistics/overview.ts';
import type { Range } from '../../statistics/range.ts';
import type { Selection, Store } from '../../store/store.ts';
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
    if (filter === undefined) return compute(new ExactStatistics(store), query);
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
