/** The filters on attacks: their parameters, how to parse them, and how they select hosts. */
import { isIPv4, isIPv6 } from 'node:net';
import { canonicalAddress } from '../../attack-details.ts';
import { invalid, malformed } from '../../errors.ts';
import { CATEGORIES } from '../../event.ts';
import type { AttackFilter, FilterName, Host } from '../../store/store.ts';
import {
  checkFilters,
  HOSTS_MAX,
  listName,
  listOf,
  parseOneOf,
  type RawQuery,
  type StatisticsQuery,
  single,
} from '../query.ts';
import { array, string } from '../route.ts';

/** What a query selects of attacks, besides the range and the IDs of hosts. */
export interface AttackConditions {
  filter: AttackFilter;
  hostnames: HostnameFilter;
}

/** Conditions on host names, which `selectHosts` turns into IDs. */
interface HostnameFilter {
  names?: readonly string[] | undefined;
  /** Part of the name, or the whole name if `isEqual`. */
  part?: string | undefined;
  excludedPart?: string | undefined;
  isEqual: boolean;
}

interface ListParameter {
  filter: FilterName;
  description: string;
  enum?: readonly string[];
  /** Default: a comma. */
  separator?: RegExp;
  /** The values of the filter; undefined if the text is malformed. */
  values(text: string): string[] | undefined;
  rule: string;
}

/** The action of an attack, as the store has it: `log` are all attacks that are not reported as blocked. */
const ACTIONS: Readonly<Record<string, string[]>> = { block: ['block'], log: ['log', ''], pass: [] };

const anyText = (text: string) => (text === '' ? undefined : [text]);
const matching = (pattern: RegExp) => (text: string) => (pattern.test(text) ? [text] : undefined);

type ListName =
  | 'ids'
  | 'attacks'
  | 'rules'
  | 'sips'
  | 'urls'
  | 'actions'
  | 'ip_countries'
  | 'response_codes'
  | 'methods';

/** Each of these parameters selects; with an `n` before its name, it excludes. */
const LISTS: Readonly<Record<ListName, ListParameter>> = {
  ids: { filter: 'ids', description: 'IDs of events.', values: anyText, rule: 'must not be empty' },
  attacks: {
    filter: 'categories',
    description: 'Categories.',
    enum: CATEGORIES,
    values: (text) => (CATEGORIES.some((name) => name === text) ? [text] : undefined),
    rule: `must be one of ${CATEGORIES.join(', ')}`,
  },
  rules: {
    filter: 'rules',
    description: 'IDs of rules. Matches if any matched rule has one of these IDs.',
    values: anyText,
    rule: 'must not be empty',
  },
  sips: {
    filter: 'sources',
    description:
      'Addresses or networks of clients, like `192.0.2.0/24`. IPv6 addresses are kept as /64 networks.',
    values: networkIn,
    rule: 'must be an IP address or a network, like 192.0.2.0/24',
  },
  urls: {
    filter: 'urls',
    description: 'Paths without the query, or prefixes with an asterisk, like `/admin/*`.',
    // A path may contain commas.
    separator: /,(?=\/)/,
    values: (text) => (/^(\/[^?]*|\*)$/s.test(text) ? [text.replaceAll(' ', '%20')] : undefined),
    rule: 'must be a path without a query, like /login, or a prefix, like /admin/*',
  },
  actions: {
    filter: 'actions',
    description:
      '`log`: the attack was not blocked, or the log does not say. No event has the action `pass`.',
    enum: Object.keys(ACTIONS),
    values: (text) => (Object.hasOwn(ACTIONS, text) ? ACTIONS[text] : undefined),
    rule: `must be one of ${Object.keys(ACTIONS).join(', ')}`,
  },
  ip_countries: {
    filter: 'countries',
    description: 'ISO 3166-1 country codes, like `DE`.',
    values: (text) => (/^[a-z]{2}$/i.test(text) ? [text.toUpperCase()] : undefined),
    rule: 'must be a country code of two letters, like DE',
  },
  response_codes: {
    filter: 'statuses',
    description: 'Response codes.',
    values: matching(/^[1-9]\d\d$/),
    rule: 'must be a response code from 100 to 999',
  },
  methods: {
    filter: 'methods',
    description: 'Methods, as the client wrote them.',
    values: matching(/^[\w!#$%&'*+.^`|~-]{1,32}$/),
    rule: 'must be a method, like POST',
  },
};

/** Conditions on a text: whether it contains the value, or with `query_mode=equal`, whether it is the value. */
const TEXTS = {
  sip: { part: 'sourceParts', list: 'sips' },
  url: { part: 'urlParts', list: 'urls' },
  payload: { part: 'valueParts', list: null },
} as const;

/** More values than a person enters; a query tests each block of events for all of them. */
const FILTER_VALUES_MAX = HOSTS_MAX;

const QUERY_MODES = ['contain', 'equal'] as const;

const LIST_PARAMETERS = Object.fromEntries(
  Object.entries(LISTS).flatMap(([name, { description, enum: names }]) => {
    const items = { type: 'string', ...(names && { enum: names }) };
    const repeat = `One \`${name}=<value>\` each, or separated by commas.`;
    return [
      [name, array(items, { description: `${description} ${repeat}` })],
      [`n${name}`, array(items, { description: `Excludes what \`${name}\` selects.` })],
    ];
  }),
);

const { ids: _, nids: __, ...STATISTICS_PARAMETERS } = LIST_PARAMETERS;
/** The filters of all calls that count attacks. */
export const STATISTICS_FILTERS: Record<string, object> = STATISTICS_PARAMETERS;
const STATISTICS_FILTER_NAMES = Object.keys(STATISTICS_FILTERS);

const ADVICE = `the filters are hosts, ${STATISTICS_FILTER_NAMES.join(', ')}`;

/** Parses the filters of a call that counts attacks, and the rest as `parse` does. */
export function withFilter<Q extends StatisticsQuery>(
  parse: (query: RawQuery, now: number) => Q,
): (query: RawQuery, now: number) => Q & Filtered {
  return (query, now) => {
    const names = Object.keys(query).filter((name) => STATISTICS_FILTER_NAMES.includes(listName(name)));
    const others =
      names.length === 0
        ? query
        : Object.fromEntries(Object.entries(query).filter(([name]) => !names.includes(name)));
    checkFilters(others, ADVICE);
    return { ...parse(others, now), filter: names.length === 0 ? undefined : parseFilterLists(query) };
  };
}

/** `filter`: undefined without one. */
export interface Filtered {
  filter: AttackFilter | undefined;
}

export const FILTER_PARAMETERS = {
  ...LIST_PARAMETERS,
  domains: array({ type: 'string' }, { description: 'Whole host names.' }),
  sip: string('Part of the address of the client.'),
  url: string('Part of the path.'),
  payload: string('Part of a value that a rule matched.'),
  domain: string('Part of the host name.'),
  ndomain: string('Excludes hosts with this part in the name.'),
  query_mode: string(
    '`equal`: `sip`, `url`, `payload`, `domain` and `ndomain` are whole values instead of parts.',
    { enum: QUERY_MODES, default: QUERY_MODES[0] },
  ),
};

export const FILTER_NAMES = Object.keys(FILTER_PARAMETERS);

export function parseAttackConditions(query: RawQuery): AttackConditions {
  const filter = parseFilterLists(query);
  const isEqual = parseOneOf(query, 'query_mode', QUERY_MODES) === 'equal';
  for (const [name, { part, list }] of Object.entries(TEXTS)) {
    const text = textOf(query, name);
    if (text === undefined) continue;
    if (!isEqual) filter.include[part] = [text];
    else if (list === null) filter.include.values = [text];
    else {
      if (filter.include[LISTS[list].filter])
        throw malformed(`${name} with query_mode=equal and ${list} select the same: use one of them`);
      filter.include[LISTS[list].filter] = valuesOf(name, text, LISTS[list]);
    }
  }
  const names = listOf(query, 'domains');
  for (const name of names ?? []) if (name === '') throw invalid('domains', name, 'must be a host name');
  return {
    filter,
    hostnames: {
      names: names?.map((name) => name.toLowerCase()),
      part: textOf(query, 'domain')?.toLowerCase(),
      excludedPart: textOf(query, 'ndomain')?.toLowerCase(),
      isEqual,
    },
  };
}

/** The filters that are lists: those that statistics have, too. */
function parseFilterLists(query: RawQuery): AttackFilter {
  const filter: AttackFilter = { include: {}, exclude: {} };
  for (const [name, list] of Object.entries(LISTS)) {
    for (const [parameter, conditions] of [
      [name, filter.include],
      [`n${name}`, filter.exclude],
    ] as const) {
      const texts = listOf(query, parameter, list.separator);
      if (texts === undefined) continue;
      const values = new Set(texts.flatMap((text) => valuesOf(parameter, text, list)));
      if (values.size > FILTER_VALUES_MAX)
        throw malformed(
          `${parameter} has ${values.size} values, but at most ${FILTER_VALUES_MAX} are allowed`,
        );
      conditions[list.filter] = [...values];
    }
  }
  return filter;
}

function valuesOf(name: string, text: string, { values, rule }: ListParameter): string[] {
  const parsed = values(text);
  if (parsed === undefined) throw invalid(name, text, rule);
  return parsed;
}

function textOf(query: RawQuery, name: string): string | undefined {
  const text = single(query, name);
  if (text === '') throw invalid(name, text, 'must not be empty: leave it out for no condition');
  return text;
}

/** The address or network in its canonical form. */
function networkIn(text: string): string[] | undefined {
  const [address = '', bits, ...rest] = text.split('/');
  if (rest.length > 0 || !(isIPv4(address) || isIPv6(address))) return undefined;
  const canonical = canonicalAddress(address);
  if (canonical === undefined || bits === undefined) return canonical === undefined ? undefined : [canonical];
  const isValid = /^\d{1,3}$/.test(bits) && Number(bits) <= (canonical.includes(':') ? 128 : 32);
  return isValid ? [`${canonical}/${Number(bits)}`] : undefined;
}

/** Turns the conditions on host names into IDs. */
export function selectHosts<Q extends AttackConditions & { hosts: readonly string[] | undefined }>(
  query: Q,
  known: readonly Host[],
): Q {
  const { names, part, excludedPart, isEqual } = query.hostnames;
  const has = (hostname: string, text: string) => (isEqual ? hostname === text : hostname.includes(text));
  const idsOf = (isSelected: (hostname: string) => boolean) =>
    known.filter(({ hostname }) => isSelected(hostname)).map(({ id }) => id);
  let { hosts, filter } = query;
  if (names !== undefined || part !== undefined) {
    const wanted = names && new Set(names);
    const ids = idsOf((name) => (wanted?.has(name) ?? true) && (part === undefined || has(name, part)));
    const given = hosts && new Set(hosts);
    hosts = ids.filter((id) => given?.has(id) ?? true);
  }
  if (excludedPart !== undefined)
    filter = {
      ...filter,
      exclude: { ...filter.exclude, hosts: idsOf((name) => has(name, excludedPart)) },
    };
  return { ...query, hosts, filter };
}
