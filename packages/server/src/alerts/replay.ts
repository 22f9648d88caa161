/** Evaluates an alert over stored history, with the clock of the history. Delivers nothing. */
import type { AlertRule } from '../identity/records.ts';
import { BASELINE_POINTS, findBursts, historyStart, POINT_MS, pointEdges } from '../statistics/bursts.ts';
import type { Store, TimeRange } from '../store/store.ts';
import {
  type CountedRule,
  Evaluation,
  percentOf,
  Samples,
  shareIsOpen,
  thresholdIsOpen,
} from './evaluate.ts';

const MINUTE_MS = 60_000;
/** Points per query: a day of minutes. */
const POINTS_MAX = 1_440;

export interface ReplayedIncident {
  since: number;
  /** Null if it is open at the end. */
  until: number | null;
  /** The most attacks in a window or point, or the largest share of server errors in percent. */
  most: number;
}

/** The store has totals of log sources, but no history of them. */
export function canReplay(rule: AlertRule): rule is CountedRule {
  return rule.kind === 'threshold' || rule.kind === 'spike' || rule.kind === 'errors';
}

export async function replay(
  store: Store,
  project: string,
  rule: CountedRule,
  range: TimeRange,
): Promise<ReplayedIncident[]> {
  return rule.kind === 'spike'
    ? replaySpike(store, project, rule, range)
    : replayWindows(store, project, rule, range);
}

async function replaySpike(
  store: Store,
  project: string,
  rule: CountedRule & { kind: 'spike' },
  { from, to }: TimeRange,
): Promise<ReplayedIncident[]> {
  const firstPoint = Math.floor(from / POINT_MS);
  const start = Math.max(0, firstPoint - BASELINE_POINTS);
  const edges = pointEdges(start * POINT_MS, to);
  const { counts, requests } = await read(store, project, rule, edges);
  const lastShare = (to - (edges.at(-2) ?? 0)) / POINT_MS;
  const series = { counts, historyStart: historyStart(counts, requests), lastShare };
  return findBursts({ ...series, sensitivity: rule.sensitivity }, firstPoint - start).map(
    ({ first, end, isOpen }) => ({
      since: edges[first] ?? from,
      until: isOpen ? null : (edges[end] ?? to),
      most: Math.max(...counts.subarray(first, end)),
    }),
  );
}

/** Evaluates every minute; the service does so every ten seconds. */
async function replayWindows(
  store: Store,
  project: string,
  rule: Exclude<CountedRule, { kind: 'spike' }>,
  { from, to }: TimeRange,
): Promise<ReplayedIncident[]> {
  const points = rule.within_s / 60;
  const start = Math.floor(from / MINUTE_MS) - 2 * points;
  const edges: number[] = [];
  for (let minute = Math.max(0, start); minute * MINUTE_MS <= to; minute++) edges.push(minute * MINUTE_MS);
  if (edges.length < 2) return [];
  const { counts, requests } = await read(store, project, rule, edges);
  const [count, requestCount] = [windowSums(counts, points), windowSums(requests, points)];
  const valueAt = (end: number) =>
    rule.kind === 'errors' ? percentOf(count(end), requestCount(end)) : count(end);
  const isOpenAt = (end: number, isOpen: boolean) =>
    rule.kind === 'errors'
      ? shareIsOpen(rule, isOpen, valueAt(end))
      : thresholdIsOpen(rule, isOpen, count(end), count(end - points));
  const found: ReplayedIncident[] = [];
  let open: ReplayedIncident | null = null;
  for (let i = Math.min(2 * points, counts.length); i < edges.length; i++) {
    const isOpen = isOpenAt(i, open !== null);
    if (isOpen && open === null) {
      open = { since: edges[i] ?? to, until: null, most: valueAt(i) };
      found.push(open);
    } else if (open !== null) {
      open.most = Math.max(open.most, valueAt(i));
      if (!isOpen) open.until = edges[i] ?? to;
      if (!isOpen) open = null;
    }
  }
  return found;
}

/** The sum over the window that ends at an edge. */
function windowSums(counts: Float64Array, points: number): (end: number) => number {
  const sums = new Float64Array(counts.length + 1);
  for (const [i, count] of counts.entries()) sums[i + 1] = (sums[i] ?? 0) + count;
  return (end) => (sums[Math.max(0, end)] ?? 0) - (sums[Math.max(0, end - points)] ?? 0);
}

async function read(store: Store, project: string, rule: CountedRule, edges: readonly number[]) {
  const evaluation = new Evaluation(store, edges.at(-1) ?? 0, new Samples());
  const counts = new Float64Array(edges.length - 1);
  const requests = new Float64Array(edges.length - 1);
  for (let first = 0; first < counts.length; first += POINTS_MAX) {
    const part = await evaluation.count(project, rule, edges.slice(first, first + POINTS_MAX + 1));
    counts.set(part.counts, first);
    requests.set(part.requests, first);
  }
  return { counts, requests };
}
