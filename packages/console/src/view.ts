/** The URL holds every selection, so that a view can be shared, reloaded and navigated back to. */
import { ATTACK_TYPES, type AttackType } from '@wafstat/client';
import { DEFAULT_PRESET, isPreset, rangeProblem, type SelectedRange } from './time-range.ts';
import { parseZone } from './zone.ts';

export const PAGES = {
  dashboard: '/console/',
  overview: '/console/overview',
  hosts: '/console/hosts',
  sources: '/console/sources',
  credentials: '/console/credentials',
  admin: '/console/admin',
} as const;

/** `missing`: the path is not that of a page. */
export type PageName = keyof typeof PAGES | 'missing';

export const PAGE_TITLES: Readonly<Record<PageName, string>> = {
  dashboard: 'Dashboard',
  overview: 'Overview',
  hosts: 'Hosts',
  sources: 'Sources',
  credentials: 'My credentials',
  admin: 'Users and projects',
  missing: 'Page not found',
};

/** Orders of the tiles in the overview. */
export const SORTS = ['attacks', 'rate', 'change', 'requests', 'name'] as const;
export type Sort = (typeof SORTS)[number];
/** Orders of the list of hosts, which has no previous period. */
export type HostSort = Exclude<Sort, 'change'>;

export interface View {
  page: PageName;
  /** Null: the first project. */
  project: string | null;
  selectedRange: SelectedRange;
  /** An IANA name or an offset. Null: the time zone of the browser. */
  timezone: string | null;
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
  offset: number;
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

/** Ignores invalid parameters: people edit and truncate URLs. */
export function parseView({ pathname, searchParams: query }: URL): View {
  const path = pathname.replace(/\/+$/, '');
  const page = (Object.keys(PAGES) as (keyof typeof PAGES)[]).find(
    (name) => PAGES[name].replace(/\/+$/, '') === path,
  );
  const project = query.get('project');
  const categories = query.getAll('category');
  const named = ATTACK_TYPES.filter((name) => categories.includes(name));
  const timezone = query.get('tz')?.replace(/^ /, '+') ?? null;
  return {
    page: page ?? 'missing',
    project: project !== null && ID.test(project) ? project : null,
    selectedRange: parseRange(query),
    timezone: timezone !== null && parseZone(timezone) !== null ? timezone : null,
    hosts: [...new Set(query.getAll('host').filter((id) => ID.test(id)))],
    categories: named,
    excluded: ATTACK_TYPES.filter((name) => categories.includes(`-${name}`) && !named.includes(name)),
    byHost: query.get('by') === 'host',
    tv: query.get('tv') === 'on',
    live: query.get('live') !== 'off',
    sort: SORTS.find((name) => name === query.get('sort')) ?? null,
    search: query.get('search')?.slice(0, 253) ?? '',
    offset: wholeNumber(query.get('offset')) ?? 0,
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
  if (view.timezone !== null) query.set('tz', view.timezone);
  for (const id of view.hosts) query.append('host', id);
  for (const name of view.categories) query.append('category', name);
  for (const name of view.excluded) query.append('category', `-${name}`);
  if (view.byHost) query.set('by', 'host');
  if (view.tv) query.set('tv', 'on');
  if (!view.live) query.set('live', 'off');
  if (view.sort !== null) query.set('sort', view.sort);
  if (view.search !== '') query.set('search', view.search);
  if (view.offset > 0) query.set('offset', String(view.offset));
  const path = view.page === 'missing' ? '/console/not-found' : PAGES[view.page];
  return query.size === 0 ? path : `${path}?${query}`;
}

function parseRange(query: URLSearchParams): SelectedRange {
  const from = wholeNumber(query.get('from'));
  const to = wholeNumber(query.get('to'));
  if (from !== null && to !== null && to < TIME_MAX && rangeProblem({ from, to }) === null)
    return { from, to };
  const preset = query.get('range');
  return { preset: isPreset(preset) ? preset : DEFAULT_PRESET };
}

function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
