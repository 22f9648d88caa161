/** `top`: the most frequent sources, networks, URLs, rules and countries of attacks, and pages of errors, from a running service. */
import {
  type BoundedCount,
  type Client,
  type ErrorPagesQuery,
  type NetworkCount,
  PAGE_CODES,
  ruleName,
  type TopAttacks,
  type TopAttacksQuery,
  type UrlCount,
} from '@wafstat/client';
import type { Zone } from '../../zone.ts';
import { alignColumns, command } from '../command.ts';
import { integer, listOf, oneOf, option, UsageError } from '../options.ts';
import { FILTER_OPTIONS, FILTERED_CONNECTION, filterFlags, filtersOf } from './filters.ts';
import { count, isoTime, percentage, printableCsv } from './format.ts';
import { PLOT_OUTPUT, type Renderer } from './output.ts';
import { plotTop, type QueryRange, titleOf } from './plot.ts';
import { QUERY_OPTIONS, queryProblems, runQuery } from './query.ts';

type Item = BoundedCount & Partial<UrlCount & NetworkCount>;
type List = TopAttacks<Item>;

interface Kind {
  call(client: Client, query: TopAttacksQuery, code: ErrorPagesQuery['code']): Promise<List>;
  one: string;
  many: string;
  /** What a key means, for people. */
  nameOf?(key: string): string;
}

const LISTS: Readonly<Record<string, Kind>> = {
  sources: { call: (client, query) => client.topIps(query), one: 'source', many: 'sources' },
  networks: { call: (client, query) => client.topNetworks(query), one: 'network', many: 'networks' },
  urls: { call: (client, query) => client.topUrls(query), one: 'URL', many: 'URLs' },
  rules: {
    call: (client, query) => client.topRules(query),
    one: 'rule',
    many: 'rules',
    nameOf: ruleName,
  },
  countries: { call: (client, query) => client.topCountries(query), one: 'country', many: 'countries' },
  pages: {
    async call(client, { attacks: _, ...query }, code) {
      const { requests, ...list } = await client.errorPages({ ...query, code });
      return { ...list, attacks: requests };
    },
    one: 'page',
    many: 'pages',
  },
};

export const topCommand = command({
  examples: [
    'wafstat top sources --profile shop --last 7d',
    'wafstat top rules --category sqli --category xss --top 20',
    'wafstat top urls --source 192.0.2.0/24 --action log',
    'wafstat top urls --host www.example.com --output csv > urls.csv',
    'wafstat top pages --code 502 --last 7d',
  ],
  options: {
    ...QUERY_OPTIONS,
    ...FILTER_OPTIONS,
    code: option(
      '--code <code>',
      `with pages: the response code of the errors, ${PAGE_CODES.join(', ').replace(/,(?=[^,]*$)/, ' or')} [default: 404]`,
      oneOf(...PAGE_CODES.map(String)),
    ),
    top: option('--top <n>', 'maximum number of rows, up to 1000', integer(1, 1_000), { default: '10' }),
    output: PLOT_OUTPUT,
    ...FILTERED_CONNECTION,
  },
  check: queryProblems,
  run({ top, code, ...values }, [name = ''], io, source) {
    const kind = Object.hasOwn(LISTS, name) ? LISTS[name] : undefined;
    if (kind === undefined)
      throw new UsageError([`the list is '${name}', but must be ${listOf(Object.keys(LISTS))}`]);
    const isPages = name === 'pages';
    const flags = isPages ? filterFlags(source) : code === undefined ? [] : ['--code'];
    if (flags.length > 0)
      throw new UsageError(
        flags.map((flag) =>
          isPages
            ? `${flag} selects attacks, but 'pages' lists requests with an error`
            : `${flag} requires the list 'pages'`,
        ),
      );
    return runQuery(
      values,
      source,
      io,
      (range, zone) => renderer(kind, zone, range),
      (client, query) =>
        kind.call(
          client,
          { ...query, ...filtersOf(values), top },
          PAGE_CODES.find((one) => String(one) === code),
        ),
    );
  },
});

function renderer(kind: Kind, zone: Zone, range: QueryRange): Renderer<List> {
  const isUrls = kind.one === 'URL' || kind.one === 'page';
  const counted = kind.one === 'page' ? 'requests' : 'attacks';
  const isNetworks = kind.one === 'network';
  return {
    plot: (list, terminal) =>
      plotTop(
        list.items.map((item) => labelOf(item, kind)),
        list,
        heading(list, kind, zone, range),
        counted,
        terminal,
      ),
    table: (list) => {
      const hasErrors = list.items.some(({ error }) => error !== 0);
      const rows = list.items.map((item) => [
        labelOf(item, kind),
        count(item.num),
        ...(hasErrors ? [item.error === 0 ? '' : `+${count(item.error)}`] : []),
        percentage(item.num, list.attacks),
      ]);
      const header = [kind.one, counted, ...(hasErrors ? ['error'] : []), 'share'];
      return [heading(list, kind, zone, range), ...alignColumns([header, ...rows], 'right')];
    },
    csv: ({ from, to, items }) =>
      printableCsv(
        [
          ...['from', 'to', ...(isUrls ? ['host_id', 'host'] : []), kind.one.toLowerCase()],
          ...[...(isNetworks ? ['name'] : []), counted, 'error'],
        ],
        items.map(({ key, host = '', host_id, name = '', num, error }) => [
          isoTime(from, zone),
          isoTime(to, zone),
          ...(isUrls ? [host_id ?? '', host] : []),
          key,
          ...(isNetworks ? [name] : []),
          num,
          error,
        ]),
      ),
  };
}

/** That of a URL includes the host, because the same path on two hosts is two items; that of a network its operator. */
function labelOf({ key, host = '', name }: Item, { nameOf = () => '' }: Kind): string {
  return `${host}${key} ${name ?? nameOf(key)}`.trimEnd();
}

/**
 * `2026-07-01 12:00 to 2026-07-02 12:00 (+00:00): 31 attacks with a source, 2 sources`, with the hours that the list covers.
 * Logs do not name everything, so there may be more attacks.
 */
function heading(list: List, { one, many }: Kind, zone: Zone, range: QueryRange): string {
  const { attacks, total, distinct_is } = list;
  const names = `${count(total)} ${total === 1 ? one : many}`;
  const distinct = {
    exact: names,
    estimate: `about ${names}`,
    minimum: `${count(total)} or more ${many} (too many to count${one === 'page' ? '' : ' by category'})`,
  };
  const parts = [
    one === 'page'
      ? `${count(attacks)} ${attacks === 1 ? 'error' : 'errors'}`
      : `${count(attacks)} ${attacks === 1 ? 'attack' : 'attacks'} with a ${one}`,
    distinct[distinct_is] ?? names,
  ];
  const cut = list.shortened
    ? 'earlier hours are too large for one list'
    : 'the server has deleted earlier top lists (--details-retention)';
  // All of the range is too old.
  if (list.from === list.to && range.from < range.to)
    return `${titleOf(range, zone)}: the server has deleted top lists of that time (--details-retention)`;
  return `${titleOf(list, zone)}: ${parts.join(', ')}${list.from > range.from ? `; ${cut}` : ''}`;
}
