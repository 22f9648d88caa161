/** The URL holds every selection, so that a view can be shared, reloaded and navigated back to. */
import { ATTACK_TYPES, type AttackType } from '@wafstat/client';
import { DEFAULT_PRESET, isPreset, rangeProblem, type SelectedRange, type TimeRange } from './time-range.ts';
import { browserZone, parseZone } from './zone.ts';

export const PAGES = {
  dashboard: '/console/',
  overview: '/console/overview',
  hosts: '/console/hosts',
  sources: '/console/sources',
  tuning: '/console/tuning',
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
  hosts: readonly string[];
  /** Categories to count; empty: all. */
  categories: readonly AttackType[];
  /** Categories that do not count. */
  excluded: readonly AttackType[];
  /** The timeline has a line per host, instead of attacks by category. */
  byHost: boolean;
  /** Full screen: no frame and no controls. */
  tv: boolean;
  live: boolean;
  /** The order of hosts, or of the overview. Null: the default of the page. */
  sort: Sort | null;
  search: string;
  /** What the link has that is not valid, such as `range=bogus`. */
  problems: readonly string[];
}

/** The categories that the view counts. */
export function countedCategories({ categories, excluded }: View): AttackType[] {
  const included = categories.length === 0 ? ATTACK_TYPES : categories;
  return included.filter((name) => !excluded.includes(name));
}

/** Whether the view leaves out any category. */
export function filtersCategories(view: View): boolean {
  return view.categories.length > 0 || view.excluded.length > 0;
}

/** Adds a category to those that count, or to those that do not (`excluded`), or removes it again. */
export function toggleCategory(view: View, name: AttackType, list: 'categories' | 'excluded'): Partial<View> {
  const without = (names: readonly AttackType[]) => names.filter((other) => other !== name);
  if (view[list].includes(name)) return { [list]: without(view[list]) };
  const other = list === 'categories' ? 'excluded' : 'categories';
  return { [list]: [...view[list], name], [other]: without(view[other]) };
}

/** Later times have no ISO form with a four-digit year. */
const TIME_MAX = Date.UTC(9999, 11, 31);
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
  const categories = listOf('category', (text) =>
    ATTACK_TYPES.some((name) => text === name || text === `-${name}`) ? text : null,
  );
  const named = ATTACK_TYPES.filter((name) => categories.includes(name));
  return {
    page: page ?? 'missing',
    project: oneOf('project', id),
    selectedRange: range ?? { preset: preset ?? DEFAULT_PRESET },
    timezone: oneOf('tz', zoneId) ?? browserZone().id,
    hosts: [...new Set(listOf('host', id))],
    categories: named,
    excluded: ATTACK_TYPES.filter((name) => categories.includes(`-${name}`) && !named.includes(name)),
    byHost: word('by', 'host', 'category') === 'host',
    tv: word('tv', 'on', 'off') === 'on',
    live: word('live', 'on', 'off') !== 'off',
    sort: oneOf('sort', (text) => SORTS.find((name) => name === text)),
    search: query.get('search')?.slice(0, 253) ?? '',
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
  for (const name of view.categories) query.append('category', name);
  for (const name of view.excluded) query.append('category', `-${name}`);
  if (view.byHost) query.set('by', 'host');
  if (view.tv) query.set('tv', 'on');
  if (!view.live) query.set('live', 'off');
  if (view.sort !== null) query.set('sort', view.sort);
  if (view.search !== '') query.set('search', view.search);
  const path = view.page === 'missing' ? '/console/not-found' : PAGES[view.page];
  return `${path}?${query}`;
}

function customRange(from: number | null, to: number | null): TimeRange | null {
  if (from === null || to === null || to >= TIME_MAX) return null;
  return rangeProblem({ from, to }) === null ? { from, to } : null;
}

/** A `+` that is not encoded arrives as a space. */
function zoneId(text: string): string | null {
  const id = text.replace(/^ /, '+');
  return parseZone(id) === null ? null : id;
}

function wholeNumber(text: string): number | null {
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}
