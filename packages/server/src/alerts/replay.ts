/** Evaluates an alert over stored history, with the clock of the history. Delivers nothing. */
import type { AlertRule } from '../identity/records.ts';
import { BASELINE_POINTS, findBursts, historyStart, POINT_MS, pointEdges } from '../statistics/bursts.ts';
import type { Store } from '../store/store.ts';
import { type CountedRule, Evaluation, Samples, thresholdIsOpen } from './evaluate.ts';

const MINUTE_MS = 60_000;
/** Points per query: a day of minutes. */
const POINTS_MAX = 1_440;

export interface ReplayedIncident {
  since: number;
  /** Null if it is open at the end. */
  until: number | null;
  /** The most attacks in a window or point. */
  attacks: number;
}

/** The store has totals of log sources, but no history of them. */
export function canReplay(rule: AlertRule): rule is CountedRule {
  return rule.kind === 'threshold' || rule.kind === 'spike';
}

export async function replay(
  store: Store,
  project: string,
  rule: CountedRule,
  { from, to }: { from: number; to: number },
): Promise<ReplayedIncident[]> {
  return rule.kind === 'spike'
    ? replaySpike(store, project, rule, from, to)
    : replayThreshold(store, project, rule, from, to);
}

async function replaySpike(
  store: Store,
  project: string,
  rule: CountedRule & { kind: 'spike' },
  from: number,
  to: number,
): Promise<ReplayedIncident[]> {
  const firstPoint = Math.floor(from / POINT_MS);
  const start = Math.max(0, firstPoint - BASELINE_POINTS);
  const edges = pointEdges(start * POINT_MS, to);
  const { attacks, requests } = await read(store, project, rule, edges);
  const lastShare = (to - (edges.at(-2) ?? 0)) / POINT_MS;
  const series = { counts: attacks, historyStart: historyStart(attacks, requests), lastShare };
  return findBursts({ ...series, sensitivity: rule.sensitivity }, firstPoint - start).map(
    ({ first, end, isOpen }) => ({
      since: edges[first] ?? from,
      until: isOpen ? null : (edges[end] ?? to),
      attacks: Math.max(...attacks.subarray(first, end)),
    }),
  );
}

/** Evaluates every minute; the service does so every ten seconds. */
async function replayThreshold(
  store: Store,
  project: string,
  rule: CountedRule & { kind: 'threshold' },
  from: number,
  to: number,
): Promise<ReplayedIncident[]> {
  const points = rule.within_s / 60;
  const start = Math.floor(from / MINUTE_MS) - 2 * points;
  const edges: number[] = [];
  for (let minute = Math.max(0, start); minute * MINUTE_MS <= to; minute++) edges.push(minute * MINUTE_MS);
  if (edges.length < 2) return [];
  const { attacks } = await read(store, project, rule, edges);
  const sums = new Float64Array(attacks.length + 1);
  for (const [i, count] of attacks.entries()) sums[i + 1] = (sums[i] ?? 0) + count;
  const sum = (end: number) => (sums[Math.max(0, end)] ?? 0) - (sums[Math.max(0, end - points)] ?? 0);
  const found: ReplayedIncident[] = [];
  let open: ReplayedIncident | null = null;
  for (let i = Math.min(2 * points, attacks.length); i < edges.length; i++) {
    const current = sum(i);
    const isOpen = thresholdIsOpen(rule, open !== null, current, sum(i - points));
    if (isOpen && open === null) {
      open = { since: edges[i] ?? to, until: null, attacks: current };
      found.push(open);
    } else if (open !== null) {
      open.attacks = Math.max(open.attacks, current);
      if (!isOpen) open.until = edges[i] ?? to;
      if (!isOpen) open = null;
    }
  }
  return found;
}

async function read(store: Store, project: string, rule: CountedRule, edges: readonly number[]) {
  const evaluation = new Evaluation(store, edges.at(-1) ?? 0, new Samples());
  const attacks = new Float64Array(edges.length - 1);
  const requests = new Float64Array(edges.length - 1);
  for (let first = 0; first < attacks.length; first += POINTS_MAX) {
    const part = await evaluation.count(project, rule, edges.slice(first, first + POINTS_MAX + 1));
    attacks.set(part.attacks, first);
    requests.set(part.requests, first);
  }
  return { attacks, requests };
}
