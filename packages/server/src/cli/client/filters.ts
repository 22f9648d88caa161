/** Filters on attacks, by what the service keeps of them: the same options for all commands that have them. */
import { ATTACK_TYPES, type AttackFilter } from '@wafstat/client';
import {
  flagOf,
  isNetwork,
  listOfValues,
  oneOf,
  option,
  type Source,
  text,
  url,
  type Values,
} from '../options.ts';
import { CONNECTION_OPTIONS } from './connection.ts';
import { count } from './format.ts';

/** Paths may contain commas. */
const paths = listOfValues(path, /\n/);

export const FILTER_OPTIONS = {
  source: option(
    '--source <address...>',
    'only attacks from these addresses or networks, like 192.0.2.0/24',
    listOfValues(network),
  ),
  notSource: option('--not-source <address...>', 'no attacks from these', listOfValues(network)),
  category: option(
    '--category <name...>',
    "only attacks of these categories ('wafstat types' lists them) [default: all]",
    listOfValues(oneOf(...ATTACK_TYPES)),
  ),
  notCategory: option(
    '--not-category <name...>',
    'no attacks of these categories',
    listOfValues(oneOf(...ATTACK_TYPES)),
  ),
  rule: option('--rule <id...>', 'only attacks that these rules matched', listOfValues(text)),
  notRule: option('--not-rule <id...>', 'no attacks that these rules matched', listOfValues(text)),
  attackUrl: option(
    '--attack-url <path...>',
    "only attacks on these paths; '/api/*' selects all paths that begin with /api/",
    paths,
  ),
  notUrl: option('--not-url <path...>', 'no attacks on these paths', paths),
  action: option(
    '--action <block|log...>',
    'only attacks that were blocked (block), or that were not (log)',
    listOfValues(oneOf('block', 'log')),
  ),
  notAction: option(
    '--not-action <block|log...>',
    'no attacks with this action',
    listOfValues(oneOf('block', 'log')),
  ),
  country: option('--country <code...>', 'only attacks from these countries, like DE', listOfValues(country)),
  notCountry: option('--not-country <code...>', 'no attacks from these countries', listOfValues(country)),
  status: option('--status <code...>', 'only attacks with these response codes', listOfValues(statusCode)),
  notStatus: option(
    '--not-status <code...>',
    'no attacks with these response codes',
    listOfValues(statusCode),
  ),
  method: option('--method <name...>', 'only attacks with these request methods', listOfValues(text)),
  notMethod: option('--not-method <name...>', 'no attacks with these request methods', listOfValues(text)),
};

type FilterValues = Values<typeof FILTER_OPTIONS>;

/** The connection options of commands with filters: `--not-url` suggests that `--url` is one. */
export const FILTERED_CONNECTION = {
  ...CONNECTION_OPTIONS,
  url: { ...CONNECTION_OPTIONS.url, parse: serviceUrl },
};

function serviceUrl(value: string): string {
  if (/^[/*]/.test(value)) throw new Error('must be the URL of the service: for paths, use --attack-url');
  return url(value);
}

/** The given filters, as on the command line. */
export function filterFlags(source: Source<typeof FILTER_OPTIONS>): string[] {
  const names = Object.keys(FILTER_OPTIONS) as (keyof typeof FILTER_OPTIONS)[];
  return names.filter((name) => source(name) !== undefined).map((name) => flagOf(FILTER_OPTIONS[name]));
}

/** For a response that lacks attacks. */
export function incompleteText(kept: number, attacks: number): string {
  return `${count(kept)} of ${count(attacks)} attacks of this range are kept (the server limits or deletes events)`;
}

export function filtersOf(values: FilterValues): AttackFilter {
  return {
    sips: values.source,
    nsips: values.notSource,
    attacks: values.category,
    nattacks: values.notCategory,
    rules: values.rule,
    nrules: values.notRule,
    urls: values.attackUrl,
    nurls: values.notUrl,
    actions: values.action,
    nactions: values.notAction,
    ipCountries: values.country,
    nipCountries: values.notCountry,
    responseCodes: values.status,
    nresponseCodes: values.notStatus,
    methods: values.method,
    nmethods: values.notMethod,
  };
}

function network(value: string): string {
  if (!isNetwork(value))
    throw new Error('must be an address like 192.0.2.7, or a network like 192.0.2.0/24 or 2001:db8::/32');
  return value;
}

function country(value: string): string {
  if (!/^[a-z]{2}$/i.test(value)) throw new Error('must be a country code of two letters, like DE');
  return value;
}

function path(value: string): string {
  if (!/^(\/[^?]*|\*)$/s.test(value))
    throw new Error('must be a path without a query, like /login, or a prefix, like /admin/*');
  return value;
}

function statusCode(value: string): number {
  if (!/^[1-9]\d\d$/.test(value)) throw new Error('must be a response code like 403');
  return Number(value);
}
