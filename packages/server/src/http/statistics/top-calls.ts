/** The most frequent sources, URLs, rules and countries of attacks. */
import { ApiError } from '../../errors.ts';
import type { GeoIp } from '../../geoip.ts';
import {
  type Statistics,
  topAttacks,
  topCategories,
  topNetworks,
  topUrls,
} from '../../statistics/overview.ts';
import type { Store, TopListName } from '../../store/store.ts';
import { parseTopQuery } from '../query.ts';
import { array, integer, object, string } from '../route.ts';
import { STATISTICS_FILTERS, withFilter } from './attack-filters.ts';
import { type Call, TOP_PARAMETER, topCountsOf } from './call.ts';
import { filtered } from './filtered-call.ts';
import { CATEGORY, HOST_FIELDS, topDomains } from './overview-calls.ts';
import type { QueryHandlers } from './query-handler.ts';

const PARAMETERS = { top: TOP_PARAMETER, ...STATISTICS_FILTERS };
const BOUNDS =
  'If all attacks of the range are kept, the list is exact and covers the range. Otherwise it covers whole hours: then an item has ' +
  'at least `num` attacks and at most `num + error`, and a value that is not kept has at most `error` attacks.';
const IP = string('IP address; for IPv6 its /64 network, such as `2001:db8:1:2::/64`.');
export const URL = {
  key: string('Path of the URL, without the query.'),
  host: string('Host name, empty for attacks without a registered host.'),
  host_id: string('Host ID, null for attacks without a registered host.', { type: ['string', 'null'] }),
};
const COUNTRY = string('ISO 3166-1 country code, such as `DE`.');

export const COVERAGE = {
  attacks: integer('Exact number of attacks that have a value in this list.'),
  distinct_is: string('`estimate`: the standard error is 2.3 %. `minimum`: there may be more.', {
    enum: ['exact', 'estimate', 'minimum'],
  }),
  error: integer('A value that is not kept has at most this many attacks. 0: all numbers are exact.'),
  from: integer(
    'Start of what was counted: the range, or the hours that it touches and that are still kept.',
  ),
  to: integer('End (exclusive) of what was counted.'),
  shortened: {
    type: 'boolean',
    description:
      'True if `from` is later than the range requires, because the range has too much data for one list. Otherwise absent.',
  },
};

/** An object with the fields of COVERAGE, one of which is optional. */
const coveredObject = (
  before: Readonly<Record<string, object>>,
  after: Readonly<Record<string, object>> = {},
) => {
  const fields = { ...before, ...COVERAGE, ...after };
  return object(fields, { required: Object.keys(fields).filter((name) => name !== 'shortened') });
};

/** Of a source, with files of `--geoip`. */
const LOCATION = {
  country: string('ISO 3166-1 country code, if a file of `--geoip` has it.'),
  network: string('Number of the network, such as `AS64500`, if a file of `--geoip` has it.'),
  network_name: string('Operator of the network.'),
};

type Fields = Record<string, ReturnType<typeof string>>;

/** `fields` of an item besides `num` and `error`, and those that it need not have. */
const listOf = (fields: Fields, optional: Fields = {}) =>
  coveredObject(
    { total: integer('Number of distinct values, before `top` cuts the list.') },
    {
      items: array(
        object(
          {
            ...fields,
            num: integer('Lower bound of the number of attacks.'),
            error: integer('How many more attacks there may be. 0: `num` is exact.'),
            ...optional,
          },
          { required: [...Object.keys(fields), 'num', 'error'] },
        ),
      ),
    },
  );

type ListQuery = ReturnType<typeof parseListQuery> & { project: string };
const parseListQuery = withFilter(parseTopQuery);

export function topCalls(store: Store, { cached, uncached }: QueryHandlers, geo: GeoIp | undefined): Call[] {
  const top = (statistics: Statistics, list: TopListName, { top: limit, ...query }: ListQuery) =>
    topAttacks(statistics, { ...query, list, limit });
  const located = (source: string) => {
    const network = geo?.network(source);
    return {
      country: geo?.country(source),
      ...(network && { network: network.id, network_name: network.name }),
    };
  };
  /** Files of `--geoip` can be replaced while the counts stay the same. */
  const ofSources = (compute: (statistics: Statistics, query: ListQuery) => Promise<object>) =>
    geo ? uncached(parseListQuery, filtered(store, compute)) : byHour(compute);
  const byHour = (compute: (statistics: Statistics, query: ListQuery) => Promise<object>) =>
    cached(parseListQuery, filtered(store, compute), { byHour: true });

  const overview = (
    name: string,
    operationId: string,
    what: string,
    key: ReturnType<typeof string>,
    list: TopListName,
    older: Call['older'] = {},
  ): Call => ({
    path: `overviews/attack/${name}`,
    operationId,
    older,
    summary: `List the ${what} with the most attacks`,
    description: BOUNDS,
    parameters: PARAMETERS,
    returns: ['The list, most frequent first.', listOf({ key })],
    handler: byHour((statistics, query) => top(statistics, list, query)),
  });

  return [
    {
      path: 'event/attack/source',
      operationId: 'attackSources',
      summary: 'List the sources with the most attacks',
      description: BOUNDS,
      parameters: PARAMETERS,
      returns: ['The list, most frequent first.', listOf({ ip: IP }, LOCATION)],
      handler: ofSources(async (statistics, query) => {
        const { items, ...list } = await top(statistics, 'sources', query);
        return {
          ...list,
          items: items.map(({ key, ...counts }) => ({ ip: key, ...counts, ...located(key) })),
        };
      }),
    },
    {
      path: 'event/attack/source/num',
      operationId: 'attackSourceCount',
      summary: 'Get the number of distinct sources of attacks',
      parameters: STATISTICS_FILTERS,
      returns: ['The number of sources.', coveredObject({ sip: integer('Number of sources.') })],
      handler: byHour(async (statistics, query) => {
        const { total, items: _, ...coverage } = await top(statistics, 'sources', { ...query, top: 1 });
        return { sip: total, ...coverage };
      }),
    },
    {
      path: 'overviews/attack/ip',
      operationId: 'topIps',
      summary: 'List the sources with the most attacks, in the form of the overviews',
      description: BOUNDS,
      parameters: PARAMETERS,
      returns: ['The list, most frequent first.', listOf({ key: IP }, LOCATION)],
      handler: ofSources(async (statistics, query) => {
        const { items, ...list } = await top(statistics, 'sources', query);
        return { ...list, items: items.map((item) => ({ ...item, ...located(item.key) })) };
      }),
    },
    {
      path: 'overviews/attack/network',
      operationId: 'topNetworks',
      summary: 'List the networks (autonomous systems) with the most attacks',
      description: `Needs a file of networks (\`--geoip\`); otherwise a 404. ${BOUNDS}`,
      parameters: PARAMETERS,
      returns: [
        'The list, most frequent first.',
        listOf({ key: string('Number of the network, such as `AS64500`.'), name: string('Its operator.') }),
      ],
      handler: uncached(
        parseListQuery,
        filtered(store, async (statistics, { top: limit, ...query }) => {
          if (geo === undefined)
            throw new ApiError('WAF.4000', 'there is no list of networks: start the service with --geoip');
          return topNetworks(statistics, { ...query, limit }, (source) => geo.network(source));
        }),
      ),
    },
    {
      path: 'overviews/attack/url',
      operationId: 'topUrls',
      older: { topUrls2021: 'event/domain/url' },
      summary: 'List the URLs with the most attacks',
      description: `The same path on two hosts is two items. ${BOUNDS}`,
      parameters: PARAMETERS,
      returns: ['The list, most frequent first.', listOf(URL)],
      handler: uncached(
        parseListQuery,
        filtered(store, (statistics, { top: limit, ...query }) => topUrls(statistics, { ...query, limit })),
      ),
    },
    overview('rule', 'topRules', 'rules', string('Rule ID, as in the log.'), 'rules'),
    overview('country', 'topCountries', 'countries', COUNTRY, 'countries', {
      topRegions2021: 'overviews/attack/region',
    }),
    {
      path: 'overviews/classification',
      operationId: 'classification',
      summary:
        'List the hosts, categories, sources, URLs and countries with the most attacks in one response',
      description: 'If some attacks of the range are not kept, `ip`, `url` and `geo` cover whole hours.',
      parameters: PARAMETERS,
      returns: [
        'Five lists.',
        object({
          domain: topCountsOf(HOST_FIELDS),
          attack_type: topCountsOf({ key: CATEGORY }),
          ip: listOf({ key: IP }),
          url: listOf(URL),
          geo: listOf({ key: COUNTRY }),
        }),
      ],
      handler: uncached(
        parseListQuery,
        filtered(store, async (statistics, { top: limit, ...query }) => {
          const [domain, attack_type] = await Promise.all([
            topDomains(statistics, query, limit),
            topCategories(statistics, query, limit),
          ]);
          const [ip, url, geo] = await Promise.all([
            topAttacks(statistics, { ...query, limit, list: 'sources' }),
            topUrls(statistics, { ...query, limit }),
            topAttacks(statistics, { ...query, limit, list: 'countries' }),
          ]);
          return { domain, attack_type, ip, url, geo };
        }),
      ),
    },
  ];
}
