/** Questions to numbers: the rules of the API on top of a store that only counts. Knows neither HTTP nor a database. */
import type { Store } from '../store/store.ts';
import { gridEdges } from './grid.ts';
import type { Range } from './range.ts';

export interface Question extends Range {
  project: string;
  /** Registered or not: an ID that the project does not have counts nothing. Undefined: the whole project. */
  hosts?: readonly string[] | undefined;
}

export interface Timeline {
  /** `ends[i]` is the end of point i; both series have one number for each. */
  ends: readonly number[];
  requests: Float64Array;
  attacks: Float64Array;
}

export async function timeline(store: Store, question: Question & { offsetMs: number }): Promise<Timeline> {
  const edges = gridEdges(question.from, question.to, question.offsetMs);
  if (edges.length === 0) return { ends: [], requests: new Float64Array(0), attacks: new Float64Array(0) };
  const { project, hosts } = question;
  const series = await store.series({ project, hosts, edges });
  return { ends: edges.slice(1), requests: series.requests, attacks: series.attacks };
}

/** Attacks by category, in the order of CATEGORIES. */
export async function distribution(store: Store, question: Question): Promise<Float64Array> {
  const { project, hosts, from, to } = question;
  return store.totals({ project, hosts, from, to });
}
