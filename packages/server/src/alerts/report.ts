/** The figures of a report on a project, and the mail that has it. */
import { ruleName } from '@wafstat/client';
import { CATEGORIES } from '../event.ts';
import type { Identity } from '../identity/identity.ts';
import type { Incident } from '../identity/records.ts';
import { number } from '../printable.ts';
import { THRESHOLD_DEFAULT } from '../statistics/anomaly-score.ts';
import { ExactStatistics } from '../statistics/filtered.ts';
import { DAY_MS } from '../statistics/grid.ts';
import {
  attackActions,
  type Count,
  topAttacks,
  topCategories,
  topHosts,
  topUrls,
} from '../statistics/overview.ts';
import { silentSources } from '../statistics/silent-sources.ts';
import { type TuningItem, tuningReport } from '../statistics/tuning.ts';
import { HOUR_MS, type Store } from '../store/store.ts';
import { UTC } from '../zone.ts';
import type { Mail } from './channels.ts';
import { categoryName, clock } from './messages.ts';
import { reportPage } from './report-page.ts';

const WEEK_MS = 7 * DAY_MS;
/** What was in the middle of the list before can be at the top now. */
const COMPARED_MAX = 1_000;
/** What fits on a page. */
const TOP = 10;
const INCIDENTS_MAX = 50;
/** A bar per hour up to here, then one per day. */
const HOURLY_MS_MAX = 8 * DAY_MS;

interface Totals {
  requests: number;
  attacks: number;
  blocked: number;
}

export interface Ranking {
  title: string;
  /** The heading of its first column. */
  column: string;
  items: (Count & { name: string; before: number | null })[];
}

export interface Report {
  project: string;
  from: number;
  to: number;
  totals: Totals;
  /** Of the time before, which is as long. Null: the data begins later. */
  before: Totals | null;
  edges: number[];
  attacks: Float64Array;
  blocked: Float64Array;
  rankings: Ranking[];
  incidents: (Incident & { alert: string })[];
  silent: { name: string; last_seen: number }[];
  /** What users trigger, rather than attackers. */
  candidates: Pick<TuningItem, 'rules' | 'host' | 'path' | 'variable' | 'attacks'>[];
}

type Range = Parameters<typeof topCategories>[1];
type List = (range: Range, top: number) => Promise<{ total: number; items: Count[]; from?: number }>;

interface Sources {
  store: Store;
  identity: Pick<Identity, 'alerts'>;
}

export async function createReport(
  { store, identity }: Sources,
  project: { id: string; name: string },
  { from, to }: { from: number; to: number },
): Promise<Report> {
  const exact = new ExactStatistics(store);
  const current = { project: project.id, from, to };
  const earlier = { project: project.id, from: from - (to - from), to: from };
  const sources = await store.sources(project.id);
  const isComparable = sources.some(({ first_seen }) => first_seen !== null && first_seen <= earlier.from);
  const step = to - from <= HOURLY_MS_MAX ? HOUR_MS : DAY_MS;
  const edges = [from];
  for (let edge = (Math.floor(from / step) + 1) * step; edge < to; edge += step) edges.push(edge);
  edges.push(to);
  const [attacks, blocked] = await store.count({ project: project.id, edges, rows: 'actions' });
  const ranked = async (
    title: string,
    column: string,
    list: List,
    top = TOP,
    nameOf = (key: string) => key,
  ): Promise<Ranking> => {
    const { items } = await list(current, top);
    const old = await list(earlier, COMPARED_MAX);
    // Top lists of the time before may have been deleted.
    const isWhole = isComparable && old.items.length >= old.total && (old.from ?? 0) <= earlier.from;
    const counts = new Map(old.items.map(({ key, num }) => [key, num]));
    const before = (key: string) => (isComparable ? counts.get(key) : null) ?? (isWhole ? 0 : null);
    return {
      title,
      column,
      items: items.map(({ key, num }) => ({ key, num, name: nameOf(key), before: before(key) })),
    };
  };
  const most =
    (list: 'sources' | 'rules'): List =>
    (range, limit) =>
      topAttacks(exact, { ...range, list, limit });
  const paths: List = async (range, limit) => {
    const { items, ...rest } = await topUrls(exact, { ...range, limit });
    return { ...rest, items: items.map(({ host, key, num }) => ({ key: `${host}${key}`, num })) };
  };
  const incidents = identity.alerts
    .alertsOf(project.id)
    .flatMap((alert) =>
      identity.alerts
        .incidentsOf(alert.id)
        .map((one) => ({ ...one, alert: alert.name, kind: alert.rule.kind })),
    )
    .filter(({ kind, since, until }) => kind !== 'report' && since < to && (until ?? to) >= from)
    .sort((a, b) => b.since - a.since)
    .slice(0, INCIDENTS_MAX);
  return {
    project: project.name,
    from,
    to,
    totals: await totalsOf(store, current),
    before: isComparable ? await totalsOf(store, earlier) : null,
    edges,
    attacks,
    blocked,
    rankings: [
      await ranked(
        'Categories',
        'Category',
        (range, limit) => topCategories(store, range, limit),
        CATEGORIES.length,
        categoryName,
      ),
      await ranked('Hosts', 'Host', (range, limit) => topHosts(store, range, limit)),
      await ranked('Sources', 'Source', most('sources')),
      await ranked('Rules', 'Rule', most('rules'), TOP, ruleLabel),
      await ranked('Paths', 'Host and path', paths),
    ],
    incidents,
    silent: silentSources(sources, to),
    candidates: (
      await tuningReport(store, { ...current, threshold: THRESHOLD_DEFAULT, zone: UTC, idFrom: 1 })
    ).items
      .filter(({ likely }) => likely === 'false_positive')
      .slice(0, TOP),
  };
}

/** Without a name, the ID. */
function ruleLabel(id: string): string {
  return `${id} ${ruleName(id)}`.trimEnd();
}

async function totalsOf(store: Store, range: { project: string; from: number; to: number }): Promise<Totals> {
  const { project, from, to } = range;
  const [[requests = 0], [attacks = 0]] = await store.count({ project, edges: [from, to], rows: 'timeline' });
  const { items } = await attackActions(store, range);
  return { requests, attacks, blocked: items.find(({ key }) => key === 'block')?.num ?? 0 };
}

/** The report on the week before a time. */
export async function reportMail(
  sources: Sources,
  project: { id: string; name: string },
  to: number,
): Promise<Omit<Mail, 'to'>> {
  const report = await createReport(sources, project, { from: to - WEEK_MS, to });
  const { totals, before, incidents } = report;
  const text = [
    `Report on the project ${project.name}, ${clock(report.from)} to ${clock(to)}.`,
    '',
    `Attacks:   ${number(totals.attacks)}${before ? ` (the week before: ${number(before.attacks)})` : ''}`,
    `Blocked:   ${number(totals.blocked)}${before ? ` (${number(before.blocked)})` : ''}`,
    `Requests:  ${number(totals.requests)}${before ? ` (${number(before.requests)})` : ''}`,
    `Incidents: ${number(incidents.length)}`,
    '',
    'The attachment has charts and lists. It opens in every browser, without a network.',
  ].join('\n');
  const day = new Date(to).toISOString().slice(0, 10);
  return {
    subject: `[wafstat] Report: ${project.name}, week to ${day}`,
    text: `${text}\n`,
    attachment: { filename: `wafstat-${day}.html`, content: reportPage(report) },
  };
}
