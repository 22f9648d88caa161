/** What timelines count. */
import type { Selection, Store } from '../store/store.ts';
import type { Zone } from '../zone.ts';
import type { Range } from './range.ts';

export interface TimelineQuery extends Range {
  project: string;
  /** Undefined for the whole project. IDs that the project does not have count as zero. */
  hosts: readonly string[] | undefined;
  /** The local clock. */
  zone: Zone;
}

/** What is counted in each point: requests and attacks, or one of them by group or by category. */
export type Rows = 'timeline' | 'groups' | 'categories' | 'peaks';

/** The count of each point, by row. Point i is `[edges[i], edges[i + 1])`. One query, and so one snapshot. */
export async function countPoints(
  store: Store,
  rows: Rows,
  query: Selection & { edges: readonly number[] },
): Promise<readonly Float64Array[]> {
  return rows === 'peaks' ? store.peaks(query) : store.count({ ...query, rows });
}
