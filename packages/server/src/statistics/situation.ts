/** The situation of a project in one sentence: missing data, an attack, or quiet. And the bursts of a range. */
import { CATEGORIES, type Category } from '../event.ts';
import {
  HOUR_MS,
  QueryTooLarge,
  type Selection,
  type Source,
  type Store,
  type TimeRange,
} from '../store/store.ts';
import type { Zone } from '../zone.ts';
import {
  BASELINE_POINTS,
  type BurstPoints,
  findBursts,
  historyStart,
  POINT_MS,
  pointEdges,
} from './bursts.ts';
import { DAY_MS } from './grid.ts';
import { silentSources } from './silent-sources.ts';

/** The bursts are those of the range; everything else is as of its end. */
export type SituationQuery = Selection & TimeRange & { zone: Zone };

export interface Situation extends TimeRange {
  state: 'quiet' | 'attack' | 'no_data';
  sentence: string;
  /** When the attack or the silence began. Null if it is quiet, or if there was never any data. */
  since: number | null;
  /** Attacks in the last hour. */
  attacks: number;
  /** How many attacks the same hour usually has. Null on the first day. */
  usual: { low: number; high: number } | null;
  /** In order of time. */
  bursts: Burst[];
  silent_sources: { name: string; last_seen: number }[];
}

/** `category`, `host` and `source` are null unless one value has at least half of the attacks. */
interface Burst extends TimeRange {
  /** The burst has not ended: `to` is the end of the range. */
  open: boolean;
  category: Category | null;
  host: string | null;
  host_id: string | null;
  source: string | null;
  attacks: number;
  blocked: number;
  /** Null if the usual number is 0. */
  times_usual: number | null;
}

/** Of bursts that began up to a day before the range, the beginning is known. */
const EARLIER_MS = DAY_MS;
/** The latest ones. The sources of each take a query. */
const BURSTS_MAX = 100;
const USUAL_DAYS = 7;

export async function situationOf(store: Store, query: SituationQuery): Promise<Situation> {
  const { project, hosts, from, to, zone } = query;
  const { points, historyFrom } = await burstsIn(store, query);
  const [bursts, { attacks, usual }, sources] = await Promise.all([
    describeBursts(store, query, points),
    lastHour(store, query, historyFrom),
    store.sources(project),
  ]);
  const selected = hosts && new Set(hosts);
  const reporting = sources.filter(
    (source) => selected === undefined || source.hosts.some((id) => selected.has(id)),
  );
  const silent = silentSources(reporting, to);
  const rest = {
    ...{ from, to, attacks, usual, bursts },
    silent_sources: silent.map(({ name, last_seen }) => ({ name, last_seen })),
  };
  const clock = (time: number) => clockText(time, to, zone);
  const [newest] = silent;
  if (newest !== undefined) {
    const others = silent.length === 1 ? '' : ` and ${silent.length - 1} more`;
    const sentence = `No data since ${clock(newest.last_seen)} from source ${newest.name}${others}.`;
    return { state: 'no_data', sentence, since: newest.last_seen, ...rest };
  }
  if (historyFrom === undefined) {
    const since = lastEvent(reporting, to);
    const sentence = since === null ? 'No data yet.' : `No data since ${clock(since)}.`;
    return { state: 'no_data', sentence, since, ...rest };
  }
  const last = bursts.at(-1);
  if (last?.open) {
    const sentence = `Since ${clock(last.from)}: ${burstText(last)}.`;
    return { state: 'attack', sentence, since: last.from, ...rest };
  }
  return { state: 'quiet', sentence: quietText(attacks, usual), since: null, ...rest };
}

/** `historyFrom`: undefined if there was no data in the days that the rule needs. */
async function burstsIn(store: Store, { project, hosts, from, to }: SituationQuery) {
  const firstPoint = Math.floor(Math.max(0, from - EARLIER_MS) / POINT_MS);
  const start = Math.max(0, firstPoint - BASELINE_POINTS);
  const edges = pointEdges(start * POINT_MS, to);
  if (edges.length === 1) return { points: [], historyFrom: undefined };
  const [requests, counts] = await store.count({ project, hosts, edges, rows: 'timeline' });
  const first = historyStart(counts, requests);
  if (first === counts.length) return { points: [], historyFrom: undefined };
  const lastShare = (to - (edges.at(-2) ?? 0)) / POINT_MS;
  const found = findBursts({ counts, historyStart: first, lastShare }, firstPoint - start);
  const toPoint = ({ first, end, isOpen, usual }: BurstPoints) => ({
    from: edges[first] ?? 0,
    to: edges[end] ?? to,
    open: isOpen,
    usual,
  });
  const points = found.map(toPoint).filter((burst) => burst.to > from);
  return { points: points.slice(-BURSTS_MAX), historyFrom: edges[first] ?? to };
}

type FoundBurst = TimeRange & { open: boolean; usual: number };

async function describeBursts(
  store: Store,
  { project, hosts }: Selection,
  found: readonly FoundBurst[],
): Promise<Burst[]> {
  if (found.length === 0) return [];
  const selection = { project, hosts, edges: found.flatMap(({ from, to }) => [from, to]) };
  const [[, ...rows], byHost, known] = await Promise.all([
    store.count({ ...selection, rows: 'everything' }),
    store.count({ ...selection, rows: 'attacks', byHost: true }),
    store.hosts(project),
  ]);
  const bursts: Burst[] = [];
  for (const [i, { from, to, open, usual }] of found.entries()) {
    // Between the bursts, there are other points.
    const countOf = (row: number) => rows[row]?.[2 * i] ?? 0;
    const categories = CATEGORIES.map((name, row) => [name, countOf(row)] as const);
    const attacks = categories.reduce((sum, [, count]) => sum + count, 0);
    const blocked = CATEGORIES.reduce((sum, _, row) => sum + countOf(CATEGORIES.length + row), 0);
    const hostCounts = Array.from(byHost, ([id, [counts]]) => [id, counts[2 * i] ?? 0] as const);
    const host_id = mainValue(hostCounts, attacks);
    bursts.push({
      ...{ from, to, open },
      category: mainValue(categories, attacks),
      host: known.find(({ id }) => id === host_id)?.hostname ?? null,
      host_id,
      source: await mainSource(store, { project, hosts, edges: [from, to] }),
      ...{ attacks, blocked },
      times_usual: usual === 0 ? null : rounded(attacks / usual),
    });
  }
  return bursts;
}

/** Of the kept attacks. In an hour over the limit these are a sample, which has the same shares. */
/** Null also if there are too many sources to count. */
async function mainSource(store: Store, selection: Selection & { edges: readonly number[] }) {
  const filter = { include: {}, exclude: {} };
  try {
    const { points, keptAttacks } = await store.countAttacks({ ...selection, filter, by: 'sources' });
    return mainValue(
      Array.from(points, ([source, [count = 0]]) => [source, count] as const),
      keptAttacks,
    );
  } catch (error) {
    if (error instanceof QueryTooLarge) return null;
    throw error;
  }
}

function mainValue<T>(counts: readonly (readonly [value: T, count: number])[], attacks: number): T | null {
  return counts.find(([, count]) => count > 0 && count * 2 >= attacks)?.[0] ?? null;
}

/** From 10 on, a whole number. */
function rounded(times: number): number {
  return times < 10 ? Math.round(times * 10) / 10 : Math.round(times);
}

/** The attacks of the last hour, and of the same hour on the days before: the middle of them is the usual number. */
async function lastHour(store: Store, { project, hosts, to }: SituationQuery, historyFrom = to) {
  const edges: number[] = [];
  for (let day = USUAL_DAYS; day >= 0; day--) {
    const end = to - day * DAY_MS;
    if (day === 0 || end - HOUR_MS >= historyFrom) edges.push(Math.max(0, end - HOUR_MS), end);
  }
  const [counts] = await store.count({ project, hosts, edges, rows: 'attacks' });
  const hours = Array.from(counts).filter((_, i) => i % 2 === 0);
  const attacks = hours.pop() ?? 0;
  const sorted = hours.sort((a, b) => a - b);
  const left = Math.floor((sorted.length - 1) / 3);
  const [low, high] = [sorted[left], sorted[sorted.length - 1 - left]];
  return { attacks, usual: low === undefined || high === undefined ? null : { low, high } };
}

function lastEvent(sources: readonly Source[], to: number): number | null {
  const times = sources.flatMap(({ last_seen }) => (last_seen !== null && last_seen < to ? [last_seen] : []));
  return times.length === 0 ? null : Math.max(...times);
}

/** In sentences, in the singular where it is one attack. */
const CATEGORY_TEXTS: Readonly<Record<Category, string>> = {
  xss: 'cross-site scripting',
  sqli: 'SQL injection',
  cmdi: 'command injection',
  cc: 'HTTP flood',
  custom: 'attacks on custom rules',
  illegal: 'invalid requests',
  lfi: 'local file inclusion',
  robot: 'malicious crawlers',
  antitamper: 'page tampering',
  rfi: 'remote file inclusion',
  vuln: 'attacks',
  whiteblackip: 'requests from listed addresses',
  webshell: 'web shells',
};

/** `HTTP flood on shop.example.com from 192.0.2.58, 12 times the usual, 88% blocked`. */
function burstText({ category, host, source, attacks, blocked, times_usual }: Burst): string {
  const what = [
    category === null ? 'attacks' : CATEGORY_TEXTS[category],
    host !== null && `on ${host}`,
    source !== null && `from ${source}`,
  ];
  // Rounded down: 100% means all.
  const percent = Math.floor((100 * blocked) / attacks);
  const share = percent === 0 && blocked > 0 ? 'less than 1' : percent;
  return [
    what.filter(Boolean).join(' '),
    ...(times_usual === null ? [] : [`${TIMES.format(times_usual)} times the usual`]),
    `${share}% blocked`,
  ].join(', ');
}

const TIMES = new Intl.NumberFormat('en');

/** Fewer attacks in an hour are not many, whatever is usual. */
const MANY_MIN = 20;

function quietText(attacks: number, usual: Situation['usual']): string {
  const number = (count: number) => TIMES.format(count);
  const now = `${attacks === 0 ? 'no' : number(attacks)} ${attacks === 1 ? 'attack' : 'attacks'} in the last hour`;
  if (usual === null) return `Quiet: ${now}.`;
  const { low, high } = usual;
  const range = `usually ${low === high ? '' : `${number(low)} to `}${number(high)}`;
  return attacks > Math.max(MANY_MIN, 2 * high)
    ? `No burst now, but ${now}, ${range}.`
    : `Quiet: ${now}, ${range}.`;
}

/** `16:40`, with the date on another day. */
function clockText(time: number, now: number, zone: Zone): string {
  const local = (ms: number) => new Date(ms + zone.offsetAt(ms)).toISOString().replace('T', ' ');
  const text = local(time).slice(0, 16);
  return text.slice(0, 10) === local(now).slice(0, 10) ? text.slice(11) : text;
}
