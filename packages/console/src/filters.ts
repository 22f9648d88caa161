/** Filters on attacks: their names in the URL, in the API and on the command line. */
import { ATTACK_TYPES, type AttackFilter, type AttackType, CATEGORY_NAMES } from '@wafstat/client';
import { countryName } from './format.ts';
import { quoted } from './setup-commands.ts';

/** `list`: the parameter of the client. `flag`: the option of the command line. */
const FIELDS = {
  category: {
    title: 'Category',
    list: 'attacks',
    flag: 'category',
    pattern: new RegExp(`^(?:${ATTACK_TYPES.join('|')})$`),
  },
  action: { title: 'Action', list: 'actions', flag: 'action', pattern: /^(?:block|log)$/ },
  source: { title: 'Source', list: 'sips', flag: 'source', pattern: /^[\da-f:.]{2,45}(?:\/\d{1,3})?$/i },
  url: { title: 'URL', list: 'urls', flag: 'attack-url', pattern: /^(?:\/[^?]{0,511}|\*)$/s },
  rule: { title: 'Rule', list: 'rules', flag: 'rule', pattern: /^[^,]{1,128}$/s },
  country: { title: 'Country', list: 'ipCountries', flag: 'country', pattern: /^[a-z]{2}$/i },
  status: { title: 'Response code', list: 'responseCodes', flag: 'status', pattern: /^[1-9]\d\d$/ },
  method: { title: 'Method', list: 'methods', flag: 'method', pattern: /^[\w!#$%&'*+.^`|~-]{1,32}$/ },
} as const;

export type FilterField = keyof typeof FIELDS;
export const FILTER_FIELDS = Object.keys(FIELDS) as FilterField[];

export interface Filter {
  field: FilterField;
  value: string;
  /** Selects all other attacks. */
  isExcluded: boolean;
}

/** Of the value in a URL: a minus sign excludes. A plus sign precedes a value that begins with a sign. */
export function parseFilter(field: FilterField, text: string): Filter | null {
  const value = text.replace(/^[+-]/, '');
  return FIELDS[field].pattern.test(value) ? { field, value, isExcluded: text.startsWith('-') } : null;
}

export function filterText({ value, isExcluded }: Filter): string {
  if (isExcluded) return `-${value}`;
  return /^[+-]/.test(value) ? `+${value}` : value;
}

/** `Not rule: 942100`. */
export function filterTitle({ field, value, isExcluded }: Filter): string {
  const { title } = FIELDS[field];
  const name = isExcluded ? `Not ${field === 'url' ? title : title.toLowerCase()}` : title;
  return `${name}: ${valueName(field, value)}`;
}

/** As people know it: categories, actions and countries have names. */
export function valueName(field: FilterField, value: string): string {
  if (field === 'category') return CATEGORY_NAMES[value as AttackType] ?? value;
  if (field === 'action') return value === 'block' ? 'blocked' : 'only detected';
  return field === 'country' ? countryName(value) : value;
}

export function fieldTitle(field: FilterField): string {
  return FIELDS[field].title;
}

/** Adds a filter, or removes it if it is set. The same value is never both included and excluded. */
export function toggled(filters: readonly Filter[], { field, value, isExcluded }: Filter): Filter[] {
  const others = filters.filter((one) => one.field !== field || one.value !== value);
  return hasFilter(filters, { field, value, isExcluded })
    ? others
    : [...others, { field, value, isExcluded }];
}

export function hasFilter(filters: readonly Filter[], wanted: Filter): boolean {
  return filters.some((one) => FILTER_KEYS.every((key) => one[key] === wanted[key]));
}

const FILTER_KEYS = ['field', 'value', 'isExcluded'] as const;

/** Only these attacks. Replaces all filters of this field. */
export function only(filters: readonly Filter[], field: FilterField, value: string): Filter[] {
  return [...filters.filter((one) => one.field !== field), { field, value, isExcluded: false }];
}

/** The categories that count. */
export function countedCategories(filters: readonly Filter[]): AttackType[] {
  const named = (isExcluded: boolean) => valuesOf(filters, 'category', isExcluded);
  const included = named(false);
  return ATTACK_TYPES.filter(
    (name) => (included.length === 0 || included.includes(name)) && !named(true).includes(name),
  );
}

/** Without the filters by category: those that only the kept attacks can answer. */
export function keptFilters(filters: readonly Filter[]): Filter[] {
  return filters.filter(({ field }) => field !== 'category');
}

/** For calls of the client. */
export function apiFilter(filters: readonly Filter[]): AttackFilter {
  // The lists of response codes have numbers, which are sent as the same text.
  return Object.fromEntries(lists(filters)) as AttackFilter;
}

/** The same with the names of the API. */
export function apiParameters(filters: readonly Filter[]): Record<string, string[]> {
  const snakeCase = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(lists(filters).map(([name, values]) => [snakeCase(name), values]));
}

/** The options of the command line, quoted for a shell. */
export function commandOptions(filters: readonly Filter[]): string[] {
  return filters.map(({ field, value, isExcluded }) => {
    const flag = isExcluded ? `not-${field}` : FIELDS[field].flag;
    return `--${flag} ${quoted(value)}`;
  });
}

function lists(filters: readonly Filter[]): [name: string, values: string[]][] {
  return FILTER_FIELDS.flatMap((field) =>
    [false, true].map((isExcluded): [string, string[]] => [
      `${isExcluded ? 'n' : ''}${FIELDS[field].list}`,
      valuesOf(filters, field, isExcluded),
    ]),
  ).filter(([, values]) => values.length > 0);
}

function valuesOf(filters: readonly Filter[], field: FilterField, isExcluded: boolean): string[] {
  return filters
    .filter((one) => one.field === field && one.isExcluded === isExcluded)
    .map(({ value }) => value);
}
