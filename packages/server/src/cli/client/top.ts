/** `top`: the most frequent sources, URLs, rules and countries of attacks, from a running service. */
import {
  ATTACK_TYPES,
  type AttackType,
  type BoundedCount,
  type Client,
  type TopAttacks,
  type TopAttacksQuery,
  type UrlCount,
} from '@wafstat/client';
import { alignColumns, command } from '../command.ts';
import { integer, listOf, oneOf, option, UsageError } from '../options.ts';
import { CONNECTION_OPTIONS } from './connection.ts';
import { count, isoTime, percentage, printableCsv } from './format.ts';
import { PLOT_OUTPUT, type Renderer } from './output.ts';
import { plotTop, type QueryRange, type Timezone, titleOf } from './plot.ts';
import { QUERY_OPTIONS, queryProblems, runQuery, TIMEZONE } from './query.ts';

type Item = BoundedCount & Partial<UrlCount>;
type List = TopAttacks<Item>;

interface Kind {
  call(client: Client, query: TopAttacksQuery): Promise<List>;
  one: string;
  many: string;
}

const LISTS: Readonly<Record<string, Kind>> = {
  sources: { call: (client, query) => client.topIps(query), one: 'source', many: 'sources' },
  urls: { call: (client, query) => client.topUrls(query), one: 'URL', many: 'URLs' },
  rules: { call: (client, query) => client.topRules(query), one: 'rule', many: 'rules' },
  countries: { call: (client, query) => client.topCountries(query), one: 'country', many: 'countries' },
};

/** A repeated option arrives joined with commas. */
function categories(value: string): AttackType[] {
  return value.split(',').map((name) => oneOf(...ATTACK_TYPES)(name.trim()));
}

export const topCommand = command({
  name: `top <${Object.keys(LISTS).join('|')}>`,
  description: 'show the sources, URLs, rules or countries with the most attacks; counts cover whole hours',
  examples: [
    'wafstat top sources --profile shop --last 7d',
    'wafstat top rules --category sqli --category xss --top 20',
    'wafstat top urls --host www.example.com --output csv > urls.csv',
  ],
  options: {
    ...QUERY_OPTIONS,
    category: option(
      '--category <name...>',
      "only attacks of these categories ('wafstat types' lists them) [default: all]",
      categories,
    ),
    top: option('--top <n>', 'maximum number of rows, up to 1000', integer(1, 1_000), { default: '10' }),
    timezone: TIMEZONE,
    output: PLOT_OUTPUT,
    ...CONNECTION_OPTIONS,
  },
  check: queryProblems,
  run({ category, top, timezone, ...values }, [name = ''], io, source) {
    const kind = Object.hasOwn(LISTS, name) ? LISTS[name] : undefined;
    if (kind === undefined)
      throw new UsageError([`the list is '${name}', but must be ${listOf(Object.keys(LISTS))}`]);
    return runQuery(
      values,
      source,
      io,
      (range) => renderer(kind, timezone, range),
      (client, query) => kind.call(client, { ...query, top, attacks: category }),
    );
  },
});

function renderer(kind: Kind, timezone: Timezone, range: QueryRange): Renderer<List> {
  const { offsetMs, text } = timezone;
  const time = (ms: number) => isoTime(ms, offsetMs, text);
  const isUrls = kind.one === 'URL';
  return {
    plot: (list, terminal) =>
      plotTop(list.items.map(nameOf), list, heading(list, kind, timezone, range), terminal),
    table: (list) => {
      const hasErrors = list.items.some(({ error }) => error !== 0);
      const rows = list.items.map((item) => [
        nameOf(item),
        count(item.num),
        ...(hasErrors ? [item.error === 0 ? '' : `+${count(item.error)}`] : []),
        percentage(item.num, list.attacks),
      ]);
      const header = [kind.one, 'attacks', ...(hasErrors ? ['error'] : []), 'share'];
      return [heading(list, kind, timezone, range), ...alignColumns([header, ...rows], 'right')];
    },
    csv: ({ from, to, items }) =>
      printableCsv(
        ['from', 'to', ...(isUrls ? ['host_id', 'host'] : []), kind.one.toLowerCase(), 'attacks', 'error'],
        items.map(({ key, host = '', host_id, num, error }) => [
          time(from),
          time(to),
          ...(isUrls ? [host_id ?? '', host] : []),
          key,
          num,
          error,
        ]),
      ),
  };
}

/** The name of a URL includes the host, because the same path on two hosts is two items. */
function nameOf({ key, host = '' }: Item): string {
  return `${host}${key}`;
}

/**
 * `2026-07-01 12:00 to 2026-07-02 12:00 (+00:00): 31 attacks with a source, 2 sources`, with the hours that the list covers.
 * Logs do not name everything, so there may be more attacks.
 */
function heading(list: List, { one, many }: Kind, timezone: Timezone, range: QueryRange): string {
  const { attacks, total, distinct_is } = list;
  const names = `${count(total)} ${total === 1 ? one : many}`;
  const distinct = {
    exact: names,
    estimate: `about ${names}`,
    minimum: `${count(total)} or more ${many} (too many to count by category)`,
  };
  const parts = [
    `${count(attacks)} ${attacks === 1 ? 'attack' : 'attacks'} with a ${one}`,
    distinct[distinct_is] ?? names,
  ];
  const cut = list.shortened ? '; earlier hours are too large for one list' : '; earlier hours are not kept';
  return `${titleOf(list, timezone)}: ${parts.join(', ')}${list.from > range.from ? cut : ''}`;
}
