/** The overview calls, which the SDKs and Terraform providers of the API family use. */
import { timed } from '../../diagnostics.ts';
import { CATEGORIES, OVERVIEW_GROUPS } from '../../event.ts';
import {
  attackActions,
  averagesOf,
  overviewTotals,
  type Statistics,
  topCategories,
  topHosts,
} from '../../statistics/overview.ts';
import { attackPoints, type GridQuery, type PointsCache } from '../../statistics/points-cache.ts';
import type { Rows } from '../../statistics/timeline.ts';
import type { Store } from '../../store/store.ts';
import { parseOverviewTimelineQuery, parseQpsQuery, parseTopQuery, parseTotalsQuery } from '../query.ts';
import { array, integer, object, string } from '../route.ts';
import { STATISTICS_FILTERS, withFilter } from './attack-filters.ts';
import {
  type Call,
  GROUP_BY_PARAMETER,
  keyedTimelines,
  TIMEZONE_PARAMETER,
  TOP_PARAMETER,
  topCountsOf,
} from './call.ts';
import { filtered } from './filtered-call.ts';
import type { QueryHandlers } from './query-handler.ts';
import { keyedTexts, seriesJson } from './timeline-json.ts';

const GROUPS = Object.keys(OVERVIEW_GROUPS);
const GROUP_TEXTS = keyedTexts(GROUPS);
const CATEGORY_TEXTS = keyedTexts(CATEGORIES);
export const CATEGORY = string('Category.', { enum: CATEGORIES });
export const HOST_FIELDS = { key: string('Host name.'), web_tag: string('Always empty.') };
const TIMELINE_PARAMETERS = { timezone: TIMEZONE_PARAMETER, group_by: GROUP_BY_PARAMETER };

export function overviewCalls(
  store: Store,
  { cached, uncached }: QueryHandlers,
  points: PointsCache,
): Call[] {
  const count = (rows: Rows, query: GridQuery) => timed('count', () => points.count(rows, query));
  const json = async (rows: Rows, query: GridQuery) =>
    seriesJson(await count(rows, query), rows === 'categories' ? CATEGORY_TEXTS : GROUP_TEXTS);
  return [
    {
      path: 'overviews/statistics',
      operationId: 'overviewTotals',
      summary: 'Get the requests and attacks in a time range by group',
      description: 'CRAWLER, CC, PRECISE and WEB_ATTACK add up to ATTACK.',
      returns: [
        'The number of requests (ACCESS) and attacks of each group.',
        array(object({ key: string('Group.', { enum: GROUPS }), num: integer('Requests or attacks.') })),
      ],
      handler: cached(parseTotalsQuery, (query) => overviewTotals(store, query)),
    },
    {
      path: 'overviews/request/timeline',
      operationId: 'overviewTimeline',
      summary: 'Get the requests and attacks over a time range by group',
      parameters: TIMELINE_PARAMETERS,
      returns: [
        'Six series with the same points.',
        keyedTimelines(GROUPS, 'Number of requests or attacks in the point.'),
      ],
      handler: cached(parseOverviewTimelineQuery, (query) => json('groups', query)),
    },
    {
      path: 'overviews/qps/timeline',
      operationId: 'qpsTimeline',
      summary: 'Get the requests and attacks per second over a time range by group',
      parameters: {
        ...TIMELINE_PARAMETERS,
        display_option: integer('0: average of each point, rounded. 1: busiest second of each point.', {
          enum: [0, 1],
          default: 0,
        }),
      },
      returns: [
        'Six series with the same points.',
        keyedTimelines(GROUPS, 'Requests or attacks per second in the point.'),
      ],
      handler: cached(parseQpsQuery, async ({ isPeak, ...query }) =>
        isPeak ? json('peaks', query) : seriesJson(averagesOf(await count('groups', query)), GROUP_TEXTS),
      ),
    },
    {
      path: 'overviews/attack/timeline',
      operationId: 'attackTimeline',
      summary: 'Get the attacks over a time range by category',
      parameters: { ...TIMELINE_PARAMETERS, ...STATISTICS_FILTERS },
      returns: [
        'One series per category, all with the same points.',
        keyedTimelines(CATEGORIES, 'Number of attacks in the point.'),
      ],
      handler: cached(
        withFilter(parseOverviewTimelineQuery),
        filtered(store, async (statistics, query) =>
          query.filter === undefined
            ? json('categories', query)
            : seriesJson(await attackPoints(statistics, query), CATEGORY_TEXTS),
        ),
      ),
    },
    {
      path: 'overviews/attack/top-domains',
      operationId: 'topDomains',
      older: { topDomains2021: 'overviews/attack/domain' },
      summary: 'List the hosts with the most attacks, in the form of the overviews',
      parameters: { top: TOP_PARAMETER, ...STATISTICS_FILTERS },
      returns: ['Hosts with attacks, the most attacked first.', topCountsOf(HOST_FIELDS)],
      handler: uncached(
        withFilter(parseTopQuery),
        filtered(store, (statistics, { top, ...query }) => topDomains(statistics, query, top)),
      ),
    },
    {
      path: 'overviews/attack/distribution',
      operationId: 'attackDistribution',
      summary: 'List the categories that have attacks',
      parameters: STATISTICS_FILTERS,
      returns: ['Categories with attacks, the most frequent first.', topCountsOf({ key: CATEGORY })],
      handler: cached(
        withFilter(parseTotalsQuery),
        filtered(store, (statistics, query) => topCategories(statistics, query)),
      ),
    },
    {
      path: 'overviews/attack/action-types',
      operationId: 'attackActions',
      older: { attackActions2021: 'overviews/attack/action' },
      summary: 'Get the attacks by action: blocked or only logged',
      description: '`log` counts all attacks that the log does not report as blocked.',
      parameters: STATISTICS_FILTERS,
      returns: [
        'Both actions.',
        topCountsOf({ key: string('Action.', { enum: ['block', 'log'] }) }, 'Always 2.'),
      ],
      handler: cached(withFilter(parseTotalsQuery), filtered(store, attackActions)),
    },
  ];
}

export async function topDomains(store: Statistics, query: Parameters<typeof topHosts>[1], top: number) {
  const { total, items } = await topHosts(store, query, top);
  return { total, items: items.map(({ key, num }) => ({ key, num, web_tag: '' })) };
}
