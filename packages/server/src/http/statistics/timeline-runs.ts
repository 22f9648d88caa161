/** Counts some of the points of a timeline: consecutive ones as a run, and several runs with one query if that is faster. */
import type { Selection } from '../../store/store.ts';

/** The series of a call, and the text around their points. */
export interface TimelineSeries {
  name: string;
  /** The text before each series. */
  heads: readonly string[];
  tail: string;
  /** The number of each point, by series: whole numbers. Point i is between `edges[i]` and `edges[i + 1]`. */
  count(query: Selection & { edges: readonly number[] }): Promise<readonly Float64Array[]>;
  /** Counting the gap between two runs as one more point takes longer than a second query (4 us). */
  isSlowOverGaps?: boolean;
}

/** Consecutive points. A point is known by its start: a time on the local clock, in intervals. */
export interface Points {
  first: number;
  /** Exclusive. */
  end: number;
}

/** A range on a grid. Its points are the whole ones, without the last, which is always treated as if the range cut it. */
export interface GridRange extends Points, Selection {
  from: number;
  to: number;
  intervalMs: number;
  offsetMs: number;
}

/** Consecutive points that were counted. */
interface Run extends Points {
  /** By series. Those of the run begin at `offset`. */
  numbers: readonly Float64Array[];
  offset: number;
}

export interface CountedRuns {
  runs: readonly Run[];
  /** The numbers of the point that the range cuts at its start, by series. Undefined if it begins with a whole point. */
  firstCut: readonly number[] | undefined;
  /** Those of the last point. */
  lastCut: readonly number[];
  /** All were counted by one query, and so in one snapshot. */
  isOneSnapshot: boolean;
}

export function timeOf({ intervalMs, offsetMs }: GridRange, point: number): number {
  return point * intervalMs - offsetMs;
}

export function contains(outer: Points, inner: Points): boolean {
  return outer.first <= inner.first && inner.end <= outer.end;
}

/**
 * Counts these points, in ascending order, and those that the range cuts, with the edges of the plain response. The parts of
 * a point cannot be added up: its busiest second may be the one that is cut.
 */
export async function countRuns(
  { count, isSlowOverGaps = false }: TimelineSeries,
  range: GridRange,
  points: readonly Points[],
): Promise<CountedRuns> {
  const { project, hosts, from, to, first, end } = range;
  const cutsFirst = from !== timeOf(range, first);
  // The points that the range cuts are before the first run and after the last one.
  const runs = runsOf([...(cutsFirst ? [{ first, end: first }] : []), ...points, { first: end, end }]);
  const [firstRun] = runs;
  const lastRun = runs.at(-1);
  // Points outside of the range may come before the cut one, or after it.
  const isAscending = runs.every((run, i) => i === 0 || (runs[i - 1]?.end ?? 0) < run.first);
  const queries = isAscending && !isSlowOverGaps ? [runs] : runs.map((run) => [run]);
  for (const ofQuery of queries) {
    const edges: number[] = [];
    for (const run of ofQuery) {
      if (cutsFirst && run === firstRun) edges.push(from);
      run.offset = edges.length;
      for (let point = run.first; point <= run.end; point++) edges.push(timeOf(range, point));
      if (run === lastRun) edges.push(to);
    }
    const numbers = await count({ project, hosts, edges });
    for (const run of ofQuery) run.numbers = numbers;
  }
  return {
    runs,
    firstCut: cutsFirst ? numbersAt(firstRun, -1) : undefined,
    lastCut: numbersAt(lastRun, end - (lastRun?.first ?? 0)),
    isOneSnapshot: queries.length === 1,
  };
}

function runsOf(points: readonly Points[]): Run[] {
  const runs: Run[] = [];
  for (const { first, end } of points) {
    const last = runs.at(-1);
    if (last?.end === first) last.end = end;
    else runs.push({ first, end, offset: 0, numbers: [] });
  }
  return runs;
}

/** `index`: the position of a point in the run. */
function numbersAt(run: Run | undefined, index: number): number[] {
  return run?.numbers.map((ofSeries) => ofSeries[run.offset + index] ?? 0) ?? [];
}

/** The numbers of points that were counted, by series. */
export function numbersOf({ runs }: CountedRuns, points: Points): Float64Array[] {
  const run = runs.find((one) => contains(one, points));
  if (run === undefined) throw new Error(`the points from ${points.first} to ${points.end} were not counted`);
  const start = run.offset + points.first - run.first;
  return run.numbers.map((ofSeries) => ofSeries.subarray(start, start + points.end - points.first));
}
