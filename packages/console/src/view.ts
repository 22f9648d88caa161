/** The URL holds every selection, so that a view can be shared, reloaded and navigated back to. */
import { FILTER_FIELDS, type Filter, filterText, hasFilter, parseFilter } from './filters.ts';
import {
  type Compared,
  DEFAULT_PRESET,
  isPreset,
  parseCompared,
  rangeProblem,
  type SelectedRange,
  type TimeRange,
} from './time-range.ts';
import { browserZone, parseZone } from './zone.ts';

export const PAGES = {
  dashboard: '/console/',
  overview: '/console/overview',
  hosts: '/console/hosts',
  sources: '/console/sources',
  tuning: '/console/tuning',
  alerts: '/console/alerts',
  credentials: '/console/credentials',
  admin: '/console/admin',
  audit: '/console/audit',
} as const;

/** `missing`: the path is not that of a page. */
export type PageName = keyof typeof PAGES | 'missing';

export const PAGE_TITLES: Readonly<Record<PageName, string>> = {
  dashboard: 'Dashboard',
  overview: 'Overview',
  hosts: 'Hosts',
  sources: 'Sources',
  tuning: 'Tuning',
  alerts: 'Alerts',
  credentials: 'My credentials',
  admin: 'Users and projects',
  audit: 'Audit trail',
  missing: 'Page not found',
};

/** Orders of the tiles in the overview. */
export const SORTS = ['attacks', 'rate', 'change', 'requests', 'name'] as const;
export type Sort = (typeof SORTS)[number];

export interface View {
  page: PageName;
  /** Null: the first project. */
  project: string | null;
  selectedRange: SelectedRange;
  /** An IANA name or an offset. */
  timezone: string;
  /** The range to compare with. */
  compared: Compared;
  hosts: readonly string[];
  /** On attacks. */
  filters: readonly Filter[];
  /** What the timeline is split by. */
  by: Split;
  /** What the side panel shows. Null: it is closed. */
  open: Opened | null;
  /** Full screen: no frame and no controls. */
  tv: boolean;
  live: boolean;
  /** The order of hosts, or of the overview. Null: the default of the page. */
  sort: Sort | null;
  search: string;
  /** Of tuning: the inbound anomaly score from which the firewall blocks. */
  threshold: number;
  /** What the link has that is not valid, such as `range=bogus`. */
  problems: readonly string[];
}

export const SPLITS = ['category', 'action', 'host'] as const;
export type Split = (typeof SPLITS)[number];

/** The lists that the side panel can show whole, and one of whose values it can show. */
export const OPENED = [
  'attack',
  'annotation',
  'source',
  'url',
  'rule',
  'country',
  'network',
  'host',
] as const;

/** An attack or annotation by its ID, or a value of a list. Without a value: the whole list. */
export interface Opened {
  kind: (typeof OPENED)[number];
  value: string | null;
}

/** The view after a change. Another page or project has other things to open. */
export function changed(view: View, change: Partial<View>): View {
  const isElsewhere = change.page !== undefined || change.project !== undefined;
  return { ...view, problems: [], ...(isElsewhere ? { open: null } : {}), ...change };
}

/** Later times have no ISO form with a four-digit year. */
const TIME_MAX = Date.UTC(9999, 11, 31);
const THRESHOLD_DEFAULT = 5;
export const THRESHOLD_MAX = 10_000;
const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** Ignores what is not valid, but lists it: people edit and truncate URLs. */
export function parseView({ pathname, searchParams: query }: URL): View {
  const path = pathname.replace(/\/+$/, '');
  const page = (Object.keys(PAGES) as (keyof typeof PAGES)[]).find(
    (name) => PAGES[name].replace(/\/+$/, '') === path,
  );
  const problems: string[] = [];
  const listOf = <T>(name: string, parse: (text: string) => T | null | undefined): T[] =>
    query.getAll(name).flatMap((text) => {
      const value = parse(text) ?? null;
      if (value === null) problems.push(`${name}=${text.slice(0, 64)}`);
      return value === null ? [] : [value];
    });
  const oneOf = <T>(name: string, parse: (text: string) => T | null | undefined): T | null =>
    listOf(name, parse)[0] ?? null;
  const word = (name: string, ...words: string[]) => oneOf(name, (text) => words.find((one) => one === text));
  const id = (text: string) => (ID.test(text) ? text : null);
  const range = customRange(oneOf('from', wholeNumber), oneOf('to', wholeNumber));
  // One of them is missing, or the end is not after the start.
  if (range === null && problems.length === 0 && (query.has('from') || query.has('to')))
    problems.push(`from=${query.get('from') ?? ''}&to=${query.get('to') ?? ''}`);
  const preset = oneOf('range', (text) => (isPreset(text) ? text : null));
  const filters = FILTER_FIELDS.flatMap((field) => listOf(field, (text) => parseFilter(field, text)));
  return {
    page: page ?? 'missing',
    project: oneOf('project', id),
    selectedRange: range ?? { preset: preset ?? DEFAULT_PRESET },
    timezone: oneOf('tz', zoneId) ?? browserZone().id,
    compared: oneOf('compare', parseCompared) ?? 'previous',
    hosts: [...new Set(listOf('host', id))],
    filters: filters.filter((filter, i) => !hasFilter(filters.slice(0, i), filter)),
    by: oneOf('by', (text) => SPLITS.find((name) => name === text)) ?? 'category',
    open: oneOf('open', parseOpened),
    tv: word('tv', 'on', 'off') === 'on',
    live: word('live', 'on', 'off') !== 'off',
    sort: oneOf('sort', (text) => SORTS.find((name) => name === text)),
    search: query.get('search')?.slice(0, 253) ?? '',
    threshold: oneOf('threshold', parseThreshold) ?? THRESHOLD_DEFAULT,
    problems,
  };
}

/** The shortest URL of the view. */
export function urlOf(view: View): string {
  const query = new URLSearchParams();
  if (view.project !== null) query.set('project', view.project);
  if (!('preset' in view.selectedRange)) {
    query.set('from', String(view.selectedRange.from));
    query.set('to', String(view.selectedRange.to));
  } else if (view.selectedRange.preset !== DEFAULT_PRESET) query.set('range', view.selectedRange.preset);
  query.set('tz', view.timezone);
  for (const id of view.hosts) query.append('host', id);
  for (const filter of view.filters) query.append(filter.field, filterText(filter));
  if (view.compared !== 'previous') query.set('compare', view.compared);
  if (view.by !== 'category') query.set('by', view.by);
  if (view.open !== null) query.set('open', openedText(view.open));
  if (view.tv) query.set('tv', 'on');
  if (!view.live) query.set('live', 'off');
  if (view.sort !== null) query.set('sort', view.sort);
  if (view.search !== '') query.set('search', view.search);
  if (view.threshold !== THRESHOLD_DEFAULT) query.set('threshold', String(view.threshold));
  const path = view.page === 'missing' ? '/console/not-found' : PAGES[view.page];
  return `${path}?${query}`;
}

function customRange(from: number | null, to: number | null): TimeRange | null {
  if (from === null || to === null || to >= TIME_MAX) return null;
  return rangeProblem({ from, to }) === null ? { from, to } : null;
}

/** `source:192.0.2.1`, or `source` for all of them. */
function openedText({ kind, value }: Opened): string {
  return value === null ? kind : `${kind}:${value}`;
}

function parseOpened(text: string): Opened | null {
  const [name = '', ...rest] = text.split(':');
  const kind = OPENED.find((one) => one === name);
  const value = rest.length === 0 ? null : rest.join(':').slice(0, 512);
  const needsValue = kind === 'attack' || kind === 'annotation';
  if (kind === 'network' && value !== null) return null;
  return kind === undefined || value === '' || (needsValue && value === null) ? null : { kind, value };
}

/** A `+` that is not encoded arrives as a space. */
function zoneId(text: string): string | null {
  const id = text.replace(/^ /, '+');
  return parseZone(id) === null ? null : id;
}

export function parseThreshold(text: string): number | null {
  const score = wholeNumber(text) ?? 0;
  return score >= 1 && score <= THRESHOLD_MAX ? score : null;
}

function wholeNumber(text: string): number | null {
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}
