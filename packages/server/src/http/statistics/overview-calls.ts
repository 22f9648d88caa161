/** The overview calls, which the SDKs and Terraform providers of the API family use. */
import { CATEGORIES, OVERVIEW_GROUPS } from '../../event.ts';
import {
  attackActions,
  attackTimeline,
  averageQpsTimeline,
  overviewTimeline,
  overviewTotals,
  peakQpsTimeline,
  topCategories,
  topHosts,
} from '../../statistics/overview.ts';
import type { Store } from '../../store/store.ts';
import { parseOverviewTimelineQuery, parseQpsQuery, parseTopQuery, parseTotalsQuery } from '../query.ts';
import { array, integer, object, string } from '../route.ts';
import {
  type Call,
  GROUP_BY_PARAMETER,
  keyedTimelines,
  TIMEZONE_PARAMETER,
  TOP_PARAMETER,
  topListOf,
} from './call.ts';
import type { QueryHandlers } from './query-handler.ts';
import { keyedTimelineJson } from './timeline-json.ts';

const GROUPS = Object.keys(OVERVIEW_GROUPS);
const CATEGORY = string('Category.', { enum: CATEGORIES });
const DOMAIN = { key: string('Host name.'), web_tag: string('Always empty.') };
const NOT_KEPT = { total: 0, items: [] };
const TIMELINE_PARAMETERS = { timezone: TIMEZONE_PARAMETER, group_by: GROUP_BY_PARAMETER };

export function overviewCalls(store: Store, { counts, names }: QueryHandlers): Call[] {
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
      handler: counts(parseTotalsQuery, (query) => overviewTotals(store, query)),
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
      handler: counts(parseOverviewTimelineQuery, async (query) =>
        keyedTimelineJson(await overviewTimeline(store, query)),
      ),
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
      handler: counts(parseQpsQuery, async ({ isPeak, ...query }) =>
        keyedTimelineJson(await (isPeak ? peakQpsTimeline : averageQpsTimeline)(store, query)),
      ),
    },
    {
      path: 'overviews/attack/timeline',
      operationId: 'attackTimeline',
      summary: 'Get the attacks over a time range by category',
      parameters: TIMELINE_PARAMETERS,
      returns: [
        'One series per category, all with the same points.',
        keyedTimelines(CATEGORIES, 'Number of attacks in the point.'),
      ],
      handler: counts(parseOverviewTimelineQuery, async (query) =>
        keyedTimelineJson(await attackTimeline(store, query)),
      ),
    },
    {
      path: 'overviews/attack/top-domains',
      operationId: 'topDomains',
      summary: 'List the hosts with the most attacks, in the form of the overviews',
      parameters: { top: TOP_PARAMETER },
      returns: ['Hosts with attacks, the most attacked first.', topListOf(DOMAIN)],
      handler: names(parseTopQuery, ({ top, ...query }) => topDomains(store, query, top)),
    },
    {
      path: 'overviews/attack/distribution',
      operationId: 'attackDistribution',
      summary: 'List the categories that have attacks',
      returns: ['Categories with attacks, the most frequent first.', topListOf({ key: CATEGORY })],
      handler: counts(parseTotalsQuery, (query) => topCategories(store, query)),
    },
    {
      path: 'overviews/attack/action-types',
      operationId: 'attackActions',
      summary: 'Get the attacks by action: blocked or only logged',
      description: '`log` counts all attacks that the log does not report as blocked.',
      returns: ['Both actions.', topListOf({ key: string('Action.', { enum: ['block', 'log'] }) })],
      handler: counts(parseTotalsQuery, (query) => attackActions(store, query)),
    },
    {
      path: 'overviews/classification',
      operationId: 'classification',
      summary: 'List the hosts and categories with the most attacks in one response',
      description: '`ip`, `url` and `geo` are always empty: this data is not kept yet.',
      parameters: { top: TOP_PARAMETER },
      returns: [
        'Five lists.',
        object({
          domain: topListOf(DOMAIN),
          attack_type: topListOf({ key: CATEGORY }),
          ip: topListOf({ key: string('Always empty.') }),
          url: topListOf({ key: string('Always empty.') }),
          geo: topListOf({ key: string('Always empty.') }),
        }),
      ],
      handler: names(parseTopQuery, async ({ top, ...query }) => ({
        domain: await topDomains(store, query, top),
        attack_type: await topCategories(store, query, top),
        ip: NOT_KEPT,
        url: NOT_KEPT,
        geo: NOT_KEPT,
      })),
    },
  ];
}

async function topDomains(store: Store, query: Parameters<typeof topHosts>[1], top: number) {
  const { total, items } = await topHosts(store, query, top);
  return { total, items: items.map(({ key, num }) => ({ key, num, web_tag: '' })) };
}
