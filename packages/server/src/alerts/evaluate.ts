/** Decides from the counts of the store whether an alert is open. Pure but for its reads: the clock is a parameter. */
import { CATEGORIES, CODE_CLASSES, DROP_FIXES } from '../event.ts';
import type { AlertRule } from '../identity/records.ts';
import {
  BASELINE_POINTS,
  COUNT_MIN,
  findBursts,
  History,
  historyStart,
  POINT_MS,
  pointEdges,
} from '../statistics/bursts.ts';
import { CategoryStatistics, ExactStatistics } from '../statistics/filtered.ts';
import { DAY_MS } from '../statistics/grid.ts';
import { attackTotal, type Count, topAttacks, topCategories, topHosts } from '../statistics/overview.ts';
import type { Host, Source, Store } from '../store/store.ts';
import { type Facts, NO_FACTS } from './incidents.ts';

/** Rules about events, which the store has counted by their time. */
export type CountedRule = Extract<AlertRule, { kind: 'threshold' | 'spike' | 'errors' }>;
type AttackRule = Exclude<CountedRule, { kind: 'errors' }>;
type ErrorsRule = Extract<AlertRule, { kind: 'errors' }>;
type ShareRule = Extract<AlertRule, { percent: number }>;
type ThresholdRule = Extract<AlertRule, { kind: 'threshold' }>;

interface Counted {
  counts: Float64Array;
  requests: Float64Array;
}

/** `facts` is called when an incident opens. */
interface Verdict {
  isOpen: boolean;
  /** When it was over, if that is known and not now. */
  until?: number | undefined;
  facts(): Promise<Facts>;
}

/** A share of fewer lines or responses is chance. */
const LINES_MIN = 20;
const USUAL_DAYS = 7;
/** A burst that began earlier, and has not closed, is still one. */
const BURST_POINTS_MAX = DAY_MS / POINT_MS;
/** One sample of the counters of log sources a minute is enough for windows of whole minutes. */
const SAMPLE_MS = 60_000;
/** In a project. Each sample after which lines were dropped has its own counts, so a day takes at most some megabytes. */
const SAMPLED_SOURCES_MAX = 100;

/** The counters of a project at a time. */
interface Sample {
  time: number;
  lines: number;
  dropped: number;
  /** Dropped lines by log source, without those that have none. Empty if there are more than SAMPLED_SOURCES_MAX. */
  bySource: ReadonlyMap<string, number>;
}

/** Reads hosts and sources of a project once per evaluation. */
export class Evaluation {
  readonly store: Store;
  readonly now: number;
  readonly #samples: Samples;
  readonly #hosts = new Map<string, Promise<Host[]>>();
  readonly #sources = new Map<string, Promise<Source[]>>();

  constructor(store: Store, now: number, samples: Samples) {
    this.store = store;
    this.now = now;
    this.#samples = samples;
  }

  hosts(project: string): Promise<Host[]> {
    return memo(this.#hosts, project, () => this.store.hosts(project));
  }

  sources(project: string): Promise<Source[]> {
    return memo(this.#sources, project, () => this.store.sources(project));
  }

  /** `isOpen`: whether the alert has an open incident. */
  async verdict(project: string, rule: AlertRule, isOpen: boolean): Promise<Verdict> {
    switch (rule.kind) {
      case 'threshold':
        return this.#threshold(project, rule, isOpen);
      case 'spike':
        return this.#spike(project, rule, isOpen);
      case 'silent':
        return this.#silent(project, rule, isOpen);
      case 'errors':
        return this.#errors(project, rule, isOpen);
      case 'dropped':
        return this.#dropped(project, rule, isOpen);
      default:
        return { isOpen: false, facts: async () => ({ ...NO_FACTS, since: this.now }) };
    }
  }

  async #threshold(project: string, rule: ThresholdRule, isOpen: boolean): Promise<Verdict> {
    const { now } = this;
    const windowMs = 1_000 * rule.within_s;
    const { counts } = await this.count(project, rule, [now - 2 * windowMs, now - windowMs, now]);
    const [previous = 0, current = 0] = counts;
    return {
      isOpen: thresholdIsOpen(rule, isOpen, current, previous),
      facts: async () => ({
        ...(await this.#mainValues(project, rule, now - windowMs)),
        since: now,
        attacks: current,
        usual: await this.#usual(project, rule, windowMs),
      }),
    };
  }

  async #spike(project: string, rule: CountedRule & { kind: 'spike' }, isOpen: boolean): Promise<Verdict> {
    const { now } = this;
    const start = (Math.floor(now / POINT_MS) - BURST_POINTS_MAX - BASELINE_POINTS) * POINT_MS;
    const edges = pointEdges(start, now);
    const none: Verdict = { isOpen: false, facts: async () => ({ ...NO_FACTS, since: now }) };
    if (!isOpen) {
      // Most of the time, two points tell that there is no burst.
      const { counts } = await this.count(project, rule, edges.slice(-3));
      if (counts.every((count) => count <= COUNT_MIN)) return none;
    }
    const { counts, requests } = await this.count(project, rule, edges);
    const lastShare = (now - (edges.at(-2) ?? 0)) / POINT_MS;
    const series = { counts, historyStart: historyStart(counts, requests), lastShare };
    const burst = findBursts({ ...series, sensitivity: rule.sensitivity }, BASELINE_POINTS).at(-1);
    if (burst === undefined) return none;
    if (!burst.isOpen) return { ...none, until: edges[burst.end] };
    const since = edges[burst.first] ?? now;
    return {
      isOpen: true,
      facts: async () => ({
        ...(await this.#mainValues(project, rule, since)),
        since,
        attacks: Math.max(...counts.subarray(burst.first, burst.end)),
        usual: Math.round(new History(series).baselineAt(burst.first)?.mean ?? 0),
      }),
    };
  }

  async #silent(project: string, rule: AlertRule & { kind: 'silent' }, isOpen: boolean): Promise<Verdict> {
    const source = (await this.sources(project)).find(({ name }) => name === rule.source);
    const { first_seen = null, last_seen = null } = source ?? {};
    const forMs = 1_000 * rule.for_s;
    if (first_seen === null || last_seen === null)
      return { isOpen: false, facts: async () => ({ ...NO_FACTS, since: this.now }) };
    // A source that has just sent its first lines does not usually send.
    const isUsual = isOpen || last_seen - first_seen >= forMs;
    return {
      isOpen: isUsual && this.now - last_seen >= forMs,
      facts: async () => ({ ...NO_FACTS, since: last_seen, source: rule.source }),
    };
  }

  async #dropped(project: string, rule: ShareRule, isOpen: boolean): Promise<Verdict> {
    const current = totalsOf(await this.sources(project), this.now);
    const before = this.#samples.before(project, current, 1_000 * rule.within_s);
    const lines = current.lines - before.lines;
    const percent = percentOf(current.dropped - before.dropped, lines);
    // After a restart, an incident stays open until there is a whole window.
    const isUnknown = before.time > this.now - 1_000 * rule.within_s;
    return {
      isOpen: (isOpen && isUnknown) || shareIsOpen(rule, isOpen, percent),
      facts: async () => ({
        ...NO_FACTS,
        since: this.now,
        percent: Math.round(percent),
        source: mainSource(current, before),
      }),
    };
  }

  async #errors(project: string, rule: ErrorsRule, isOpen: boolean): Promise<Verdict> {
    const edges = [this.now - 1_000 * rule.within_s, this.now];
    const { counts, requests } = await this.count(project, rule, edges);
    const percent = percentOf(counts[0] ?? 0, requests[0] ?? 0);
    return {
      isOpen: shareIsOpen(rule, isOpen, percent),
      facts: async () => ({
        ...NO_FACTS,
        since: this.now,
        percent: Math.round(percent),
        host: rule.host ?? (await this.#hostWithErrors(project, edges)),
      }),
    };
  }

  async #hostWithErrors(project: string, edges: readonly number[]): Promise<string | null> {
    const byHost = await this.store.count({ project, edges, rows: 'codeClasses', byHost: true });
    const errors = Array.from(byHost, ([id, classes]) => ({
      id,
      count: serverErrors(classes).counts[0] ?? 0,
    }));
    const most = errors.reduce((a, b) => (b.count > a.count ? b : a), { id: '', count: 0 });
    return (await this.hosts(project)).find(({ id }) => id === most.id)?.hostname ?? null;
  }

  /** What a rule counts between neighbouring edges, and the requests; for server errors, those with a response code. */
  async count(project: string, rule: CountedRule, edges: readonly number[]) {
    const hosts = await this.#hostIds(project, rule);
    const selection = { project, hosts, edges };
    return rule.kind === 'errors'
      ? serverErrors(await this.store.count({ ...selection, rows: 'codeClasses' }))
      : countAttacks(this.store, selection, rule);
  }

  /** Undefined: all. */
  async #hostIds(project: string, { host }: CountedRule): Promise<string[] | undefined> {
    if (host === undefined) return undefined;
    return (await this.hosts(project)).filter(({ hostname }) => hostname === host).map(({ id }) => id);
  }

  /** The mean of the same window on the last days. Null without history. */
  async #usual(project: string, rule: ThresholdRule, windowMs: number): Promise<number | null> {
    const edges = Array.from({ length: USUAL_DAYS }, (_, i) => this.now - (USUAL_DAYS - i) * DAY_MS);
    const windows = windowMs < DAY_MS ? edges.flatMap((end) => [end - windowMs, end]) : edges;
    const { counts } = await this.count(project, rule, windows);
    const own = Array.from(counts).filter((_, i) => windowMs === DAY_MS || i % 2 === 0);
    const sum = own.reduce((total, count) => total + count, 0);
    return sum === 0 ? null : Math.round(sum / own.length);
  }

  /** The host, category, source and rule with at least half of the attacks since a time. */
  async #mainValues(project: string, rule: AttackRule, from: number): Promise<Omit<Facts, 'since'>> {
    const hosts = await this.#hostIds(project, rule);
    const range = { project, hosts, from, to: this.now };
    const counted =
      rule.category === undefined
        ? new ExactStatistics(this.store)
        : new CategoryStatistics(
            this.store,
            CATEGORIES.filter((name) => rule.category === name),
          );
    const total = await attackTotal(counted, range);
    const main = async (list: Promise<{ attacks?: number; items: Count[] }>) => {
      // An hour with too much data for a list still opens an incident.
      const { items, attacks = total } = await list.catch(() => ({ attacks: 0, items: [] as Count[] }));
      const [first] = items;
      return first !== undefined && 2 * first.num >= attacks ? first.key : null;
    };
    return {
      ...NO_FACTS,
      host: rule.host ?? (await main(topHosts(counted, range, 1))),
      category: rule.category ?? (await main(topCategories(counted, range, 1))),
      source: await main(topAttacks(counted, { ...range, list: 'sources', limit: 1 })),
      rule: await main(topAttacks(counted, { ...range, list: 'rules', limit: 1 })),
    };
  }
}

/** Opens when the count reaches the threshold; closes after two windows with less than half of it. */
export function thresholdIsOpen(
  { attacks }: Pick<ThresholdRule, 'attacks'>,
  isOpen: boolean,
  current: number,
  previous: number,
): boolean {
  return current >= attacks || (isOpen && (2 * current >= attacks || 2 * previous >= attacks));
}

export function shareIsOpen(rule: ShareRule, isOpen: boolean, percent: number): boolean {
  return percent >= (isOpen ? rule.percent / 2 : rule.percent);
}

/** `classes`: a row of points for each of CODE_CLASSES. */
function serverErrors(classes: readonly Float64Array[]): Counted {
  const [counts = new Float64Array(0)] = classes.filter((_, row) => CODE_CLASSES[row] === '5xx');
  const known = classes.filter((_, row) => CODE_CLASSES[row] !== 'none');
  return { counts, requests: counts.map((_, i) => known.reduce((sum, row) => sum + (row[i] ?? 0), 0)) };
}

export function percentOf(part: number, all: number): number {
  return all < LINES_MIN ? 0 : (100 * part) / all;
}

async function countAttacks(
  store: Store,
  selection: { project: string; hosts: string[] | undefined; edges: readonly number[] },
  rule: AttackRule,
): Promise<Counted> {
  const isNotBlocked = 'not_blocked' in rule;
  if (rule.category === undefined && !isNotBlocked) {
    const [requests, counts] = await store.count({ ...selection, rows: 'timeline' });
    return { counts, requests };
  }
  const [requests, ...rows] = await store.count({ ...selection, rows: 'everything' });
  const counts = new Float64Array(requests.length);
  for (const [number, name] of CATEGORIES.entries()) {
    if (rule.category !== undefined && rule.category !== name) continue;
    const [all, blocked] = [rows[number], isNotBlocked ? rows[CATEGORIES.length + number] : undefined];
    for (let i = 0; i < counts.length; i++)
      counts[i] = (counts[i] ?? 0) + (all?.[i] ?? 0) - (blocked?.[i] ?? 0);
  }
  return { counts, requests };
}

function totalsOf(sources: readonly Source[], time: number): Sample {
  const bySource = new Map<string, number>();
  let lines = 0;
  for (const { name, events, dropped } of sources) {
    let droppedLines = 0;
    lines += events;
    for (const [reason, count] of Object.entries(dropped)) {
      lines += count;
      // Such lines are dropped in every healthy installation.
      if (!DROP_FIXES[reason as keyof typeof DROP_FIXES]?.startsWith('Nothing to do')) droppedLines += count;
    }
    if (droppedLines > 0) bySource.set(name, droppedLines);
  }
  const dropped = [...bySource.values()].reduce((sum, count) => sum + count, 0);
  if (bySource.size > SAMPLED_SOURCES_MAX) bySource.clear();
  return { time, lines, dropped, bySource };
}

/** The log source with at least half of the lines that were dropped between two samples. */
function mainSource(current: Sample, before: Sample): string | null {
  // There were too many sources.
  if (before.bySource.size === 0 && before.dropped > 0) return null;
  for (const [name, count] of current.bySource) {
    const dropped = count - (before.bySource.get(name) ?? 0);
    if (2 * dropped >= current.dropped - before.dropped) return name;
  }
  return null;
}

/** Counters of the last day, by project. The store has only totals; after a restart, windows begin with it. */
export class Samples {
  readonly #byProject = new Map<string, Sample[]>();

  /** The sample at the start of a window that ends with `current`, which becomes a sample. */
  before(project: string, current: Sample, windowMs: number): Sample {
    const samples = this.#byProject.get(project) ?? [];
    const last = samples.at(-1);
    if (current.time - (last?.time ?? 0) >= SAMPLE_MS)
      samples.push(last?.dropped === current.dropped ? { ...current, bySource: last.bySource } : current);
    while ((samples[0]?.time ?? 0) < current.time - DAY_MS - 2 * SAMPLE_MS) samples.shift();
    this.#byProject.set(project, samples);
    return samples.findLast(({ time }) => time <= current.time - windowMs) ?? samples[0] ?? current;
  }
}

function memo<T>(cache: Map<string, Promise<T>>, key: string, read: () => Promise<T>): Promise<T> {
  const found = cache.get(key) ?? read();
  cache.set(key, found);
  return found;
}
