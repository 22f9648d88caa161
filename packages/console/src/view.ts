/** The URL holds every selection, so that a view can be shared, reloaded and navigated back to. */
import type { AttackType } from '@wafstat/client';
import { isCategory } from './categories.ts';
import { DEFAULT_PRESET, isPreset, parseOffset, rangeProblem, type SelectedRange } from './time-range.ts';

export const PAGES = {
  dashboard: '/console/',
  hosts: '/console/hosts',
  sources: '/console/sources',
  credentials: '/console/credentials',
  admin: '/console/admin',
} as const;

export type PageName = keyof typeof PAGES;

export const SERIES = ['requests', 'attacks'] as const;
export type SeriesName = (typeof SERIES)[number];
export const SERIES_TITLES: Readonly<Record<SeriesName, string>> = {
  requests: 'Requests',
  attacks: 'Attacks',
};

export const HOST_ORDERS = ['requests', 'attacks', 'share', 'name'] as const;
export type HostOrder = (typeof HOST_ORDERS)[number];

export interface View {
  page: PageName;
  /** Null: the first project. */
  project: string | null;
  selectedRange: SelectedRange;
  /** Null: the time zone of the browser. */
  timezone: string | null;
  hosts: readonly string[];
  /** Series that are not drawn. */
  hidden: readonly SeriesName[];
  /** The timeline shows the attacks by category. */
  byCategory: boolean;
  /** The timeline shows only the attacks of this category. */
  category: AttackType | null;
  live: boolean;
  /** Order of the list of hosts. */
  order: HostOrder;
  search: string;
  offset: number;
}

/** Shows only the category, or all again if it is the only one. */
export function categoryFilter(view: View, category: AttackType): Partial<View> {
  if (view.category === category) return { category: null };
  return { category, hidden: view.hidden.filter((name) => name !== 'attacks') };
}

/** Later times have no ISO form with a four-digit year. */
const TIME_MAX = Date.UTC(9999, 11, 31);
const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** Ignores invalid parameters: people edit and truncate URLs. */
export function parseView({ pathname, searchParams: query }: URL): View {
  const path = pathname.replace(/\/+$/, '');
  const page = (Object.keys(PAGES) as PageName[]).find((name) => PAGES[name].replace(/\/+$/, '') === path);
  const project = query.get('project');
  const category = query.get('category');
  const timezone = query.get('tz')?.replace(/^ /, '+') ?? null;
  return {
    page: page ?? 'dashboard',
    project: project !== null && ID.test(project) ? project : null,
    selectedRange: parseRange(query),
    timezone: timezone !== null && parseOffset(timezone) !== null ? timezone : null,
    hosts: [...new Set(query.getAll('host').filter((id) => ID.test(id)))],
    hidden: SERIES.filter((name) => query.getAll('hide').includes(name)),
    byCategory: query.get('by') === 'category',
    category: isCategory(category) ? category : null,
    live: query.get('live') !== 'off',
    order: HOST_ORDERS.find((name) => name === query.get('order')) ?? 'requests',
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
  for (const name of view.hidden) query.append('hide', name);
  if (view.byCategory) query.set('by', 'category');
  if (view.category !== null) query.set('category', view.category);
  if (!view.live) query.set('live', 'off');
  if (view.order !== 'requests') query.set('order', view.order);
  if (view.search !== '') query.set('search', view.search);
  if (view.offset > 0) query.set('offset', String(view.offset));
  return query.size === 0 ? PAGES[view.page] : `${PAGES[view.page]}?${query}`;
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
