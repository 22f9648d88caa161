/** The statistics queries of a project: events and overviews. One table for all. */
import { timed } from '../../diagnostics.ts';
import { CATEGORIES } from '../../event.ts';
import type { GeoIp } from '../../geoip.ts';
import { attacksByCategory, attackTotal, requestPeak, topHosts } from '../../statistics/overview.ts';
import { PointsCache } from '../../statistics/points-cache.ts';
import { CACHE_BYTES, type Store } from '../../store/store.ts';
import { parseTimelineQuery, parseTopQuery, parseTotalsQuery } from '../query.ts';
import { integer, object, type Route, string } from '../route.ts';
import { Admission } from './admission.ts';
import { STATISTICS_FILTERS, withFilter } from './attack-filters.ts';
import { type Call, pointList, TIMEZONE_PARAMETER, TOP_PARAMETER, topCountsOf, toRoutes } from './call.ts';
import { eventCalls } from './event-calls.ts';
import { dumpCall, dumpRoute } from './event-dump.ts';
import { filtered } from './filtered-call.ts';
import { overviewCalls } from './overview-calls.ts';
import { createQueryHandlers } from './query-handler.ts';
import { responseCalls } from './response-calls.ts';
import { situationCall } from './situation-call.ts';
import { seriesJson } from './timeline-json.ts';
import { topCalls } from './top-calls.ts';
import { tuningCall } from './tuning-call.ts';

export interface StatisticsOptions {
  /** How much memory all caches may use. */
  cacheBytes?: number | undefined;
  /** The role that reading events requires. Default: `reader`. */
  eventsRole?: 'reader' | 'admin' | undefined;
  /** The URL of the service in links; null to use that of the request. */
  publicUrl?: string | null;
  /** Finds the countries and networks of sources. */
  geo?: GeoIp | undefined;
}

export function statisticsRoutes(
  store: Store,
  now: () => number,
  admission = new Admission(),
  options: StatisticsOptions = {},
): Route[] {
  const { cacheBytes = CACHE_BYTES, eventsRole = 'reader', publicUrl = null, geo } = options;
  const { cached, uncached } = createQueryHandlers(store, admission, now, cacheBytes);
  const points = new PointsCache(store, cacheBytes);
  const calls: Call[] = [
    {
      path: 'event/timeline',
      operationId: 'timeline',
      summary: 'Get requests and attacks over a time range as two series with the same points',
      parameters: { timezone: TIMEZONE_PARAMETER },
      returns: ['Both series.', object({ requests: POINTS, attacks: POINTS })],
      handler: cached(parseTimelineQuery, async (query) =>
        seriesJson(await timed('count', () => points.count('timeline', query)), TIMELINE_TEXTS),
      ),
    },
    {
      path: 'event/attack/type',
      operationId: 'attackTypes',
      summary: 'Get the attacks in a time range by category',
      description: 'Without a filter, the sum of all categories equals the attacks of the timeline.',
      parameters: STATISTICS_FILTERS,
      returns: [
        'The number of attacks in each category.',
        object(Object.fromEntries(CATEGORIES.map((name) => [name, { type: 'integer' }]))),
      ],
      handler: cached(
        withFilter(parseTotalsQuery),
        filtered(store, async (statistics, query) =>
          categoriesJson(await attacksByCategory(statistics, query)),
        ),
      ),
    },
    {
      path: 'event/attack/num',
      operationId: 'attackCount',
      summary: 'Get the number of attacks in a time range',
      parameters: STATISTICS_FILTERS,
      returns: ['The number of attacks.', object({ attack_num: integer('Number of attacks.') })],
      handler: cached(
        withFilter(parseTotalsQuery),
        filtered(store, async (statistics, query) => ({ attack_num: await attackTotal(statistics, query) })),
      ),
    },
    {
      path: 'event/attack/domain',
      operationId: 'attackedHosts',
      summary: 'List the hosts with the most attacks',
      parameters: { top: TOP_PARAMETER, ...STATISTICS_FILTERS },
      returns: ['Hosts with attacks, the most attacked first.', topCountsOf({ host: string('Host name.') })],
      handler: uncached(
        withFilter(parseTopQuery),
        filtered(store, async (statistics, { top, ...query }) => {
          const { total, items } = await topHosts(statistics, query, top);
          return { total, items: items.map(({ key, num }) => ({ host: key, num })) };
        }),
      ),
    },
    {
      path: 'event/request/peak',
      operationId: 'requestPeak',
      older: { urlPeak: 'event/url' },
      summary: 'Get the requests in the busiest second of a time range',
      returns: ['The peak.', object({ qps: integer('Requests in the busiest second.') })],
      handler: cached(parseTotalsQuery, async (query) => ({ qps: await requestPeak(store, query) })),
    },
    ...overviewCalls(store, { cached, uncached }, points),
    ...topCalls(store, { cached, uncached }, geo),
    ...responseCalls(store, { cached, uncached }),
    situationCall(store, { cached, uncached }, now),
    ...eventCalls(store, { cached, uncached }, eventsRole, geo),
    dumpCall(store, { cached, uncached }, eventsRole, publicUrl),
    tuningCall(store, { cached, uncached }, eventsRole),
  ];
  return [...calls.flatMap(toRoutes), dumpRoute(store, admission, eventsRole)];
}

/** An object of 13 properties takes 3.8 us to create and stringify, its text 1.5 us. */
function categoriesJson(counts: readonly number[]): string {
  return `{${CATEGORIES.map((name, i) => `"${name}":${counts[i]}`).join()}}`;
}

const TIMELINE_TEXTS = { heads: ['{"requests":[', '],"attacks":['], tail: ']}' };
const POINTS = pointList('Number of requests or attacks in the point.');
