/** Response codes, bandwidth, and the pages of requests with an error. */
import { timed } from '../../diagnostics.ts';
import { PAGE_CODES } from '../../event.ts';
import { topPages } from '../../statistics/overview.ts';
import { BANDWIDTH_KEYS, bandwidthPoints, codePoints, wholeMinutes } from '../../statistics/responses.ts';
import type { Store } from '../../store/store.ts';
import {
  parseOneOf,
  parseOverviewTimelineQuery,
  parseQpsQuery,
  parseTopQuery,
  type RawQuery,
} from '../query.ts';
import { array, integer, object, string } from '../route.ts';
import {
  type Call,
  GROUP_BY_PARAMETER,
  keyedTimelines,
  pointList,
  TIMEZONE_PARAMETER,
  TOP_PARAMETER,
} from './call.ts';
import type { QueryHandlers } from './query-handler.ts';
import { keyedTexts, seriesJson } from './timeline-json.ts';
import { COVERAGE, URL } from './top-calls.ts';

const TIMELINE_PARAMETERS = { timezone: TIMEZONE_PARAMETER, group_by: GROUP_BY_PARAMETER };
const BANDWIDTH_TEXTS = keyedTexts(BANDWIDTH_KEYS);
const { attacks: _, ...COVERED } = COVERAGE;
const PAGES_FIELDS = {
  total: integer('Number of distinct pages, before `top` cuts the list.'),
  requests: integer('Exact number of requests with this code and a path.'),
  ...COVERED,
  error: integer('A page that is not kept has at most this many requests. 0: all numbers are exact.'),
  items: array(
    object({
      key: URL.key,
      num: integer('Lower bound of the number of requests.'),
      host: string('Host name, empty for requests without a registered host.'),
      host_id: string('Host ID, null for requests without a registered host.', { type: ['string', 'null'] }),
      error: integer('How many more requests there may be. 0: `num` is exact.'),
    }),
  ),
};
const PAGES = object(PAGES_FIELDS, {
  required: Object.keys(PAGES_FIELDS).filter((name) => name !== 'shortened'),
});
const SOURCES = ['WAF', 'UPSTREAM'] as const;
const CODES = PAGE_CODES.map(String) as [string, ...string[]];

export function responseCalls(store: Store, { cached, uncached }: QueryHandlers): Call[] {
  return [
    {
      path: 'overviews/response-code/timeline',
      operationId: 'responseCodeTimeline',
      summary: 'Get the requests over a time range by response code',
      description:
        'One series per code that occurs, ascending. Requests without a code are the last series, `none`. All series add up to the requests.',
      parameters: {
        ...TIMELINE_PARAMETERS,
        response_source: string(
          '`WAF`: what clients got. `UPSTREAM`: what the server behind the firewall responded, if the log has both; `none` if it was not asked.',
          { enum: SOURCES, default: 'WAF' },
        ),
      },
      returns: [
        'The series of each code, all with the same points.',
        array(
          object({
            key: string('Response code, or `none`.'),
            timeline: pointList('Number of requests in the point.'),
          }),
        ),
      ],
      handler: cached(parseCodesQuery, async (query) => {
        const { keys, ...points } = await timed('count', () => codePoints(store, query));
        return keys.length === 0 ? [] : seriesJson(points, keyedTexts(keys));
      }),
    },
    {
      path: 'overviews/bandwidth/timeline',
      operationId: 'bandwidthTimeline',
      summary: 'Get the bytes per second over a time range',
      description:
        'Bytes are those of the log: see the page on log formats. They are kept by minute, so the result covers the whole minutes that the range touches: `X-Wafstat-From` and `X-Wafstat-To` name them.',
      parameters: {
        ...TIMELINE_PARAMETERS,
        display_option: integer('0: average of each point. 1: busiest minute of each point.', {
          enum: [0, 1],
          default: 0,
        }),
      },
      returns: [
        'Three series with the same points: received from clients, sent to them, and both.',
        keyedTimelines(BANDWIDTH_KEYS, 'Bytes per second in the point, rounded.'),
      ],
      handler: cached(
        parseQpsQuery,
        async (query, notes) => {
          notes.covered = wholeMinutes(query);
          return seriesJson(await timed('count', () => bandwidthPoints(store, query)), BANDWIDTH_TEXTS);
        },
        { byHour: true },
      ),
    },
    {
      path: 'overviews/abnormal',
      operationId: 'errorPages',
      summary: 'List the pages with the most errors of one response code',
      description:
        'The same path on two hosts is two items. The list covers the whole hours that the range touches. An item has at least `num` requests and at most `num + error`; a path that is not listed in `total` has at most `error` requests.',
      parameters: {
        code: integer('Response code.', { enum: PAGE_CODES, default: PAGE_CODES[0] }),
        top: TOP_PARAMETER,
      },
      returns: ['The list, most frequent first.', PAGES],
      handler: uncached(parsePagesQuery, ({ top: limit, ...query }) => topPages(store, { ...query, limit })),
    },
  ];
}

function parseCodesQuery(query: RawQuery, now: number) {
  const source = parseOneOf(query, 'response_source', SOURCES);
  return { ...parseOverviewTimelineQuery(query, now), isUpstream: source === 'UPSTREAM' };
}

function parsePagesQuery({ code, ...query }: RawQuery, now: number) {
  return { ...parseTopQuery(query, now), codes: [Number(parseOneOf({ code }, 'code', CODES))] };
}
