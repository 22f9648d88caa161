/** The two queries of the interface specification. */
import type { FastifyRequest } from 'fastify';
import { CATEGORIES } from '../../event.ts';
import { RECENT_NAMES } from '../../statistics/range.ts';
import { distribution, timeline } from '../../statistics/statistics.ts';
import type { Store } from '../../store/store.ts';
import { parseDistributionQuery, parseTimelineQuery, queryOf } from '../query.ts';
import type { Route } from '../route.ts';
import { HOSTS_PARAMETER, PROJECT_PATH, withErrors } from '../schemas.ts';
import { createAnswers } from './response-cache.ts';
import { timelineJson } from './timeline-json.ts';

const RANGE_PARAMETERS = {
  from: {
    type: 'integer',
    minimum: 0,
    description: 'Start time (UTC), milliseconds. Required unless `recent` is given.',
  },
  to: {
    type: 'integer',
    minimum: 0,
    description: 'End time (UTC), milliseconds; not part of the range. Required unless `recent` is given.',
  },
  recent: {
    type: 'string',
    enum: RECENT_NAMES,
    description: 'A span of local days up to now (`yesterday`: that day). Wins over `from` and `to`.',
  },
} as const;

const TIMEZONE_PARAMETER = {
  type: 'string',
  pattern: '^[+-][0-9]{2}:[0-9]{2}$',
  default: '+00:00',
  description:
    'Offset from -12:00 to +14:00. Points end at the boundaries of the local clock, days at local midnight.',
} as const;

const POINTS = {
  type: 'array',
  items: {
    type: 'object',
    required: ['time', 'num'],
    properties: {
      time: {
        type: 'integer',
        description: 'End of the point, milliseconds since the epoch; not part of it',
      },
      num: { type: 'integer' },
    },
  },
} as const;

export function statisticsRoutes(store: Store, now: () => number): Route[] {
  const sendAnswer = createAnswers(store);
  return [
    {
      method: 'GET',
      url: '/v1/:project_id/waf/event/timeline',
      allow: 'reader',
      schema: {
        operationId: 'timeline',
        tags: ['statistics'],
        summary: 'Requests and attacks over a time range, as two series with the same points',
        params: PROJECT_PATH,
        querystring: {
          type: 'object',
          properties: { ...RANGE_PARAMETERS, timezone: TIMEZONE_PARAMETER, hosts: HOSTS_PARAMETER },
        },
        response: withErrors({
          type: 'object',
          required: ['requests', 'attacks'],
          properties: { requests: POINTS, attacks: POINTS },
        }),
      },
      handler(request, reply) {
        return sendAnswer(request, reply, () => {
          const query = queryOf(request);
          const question = { ...projectOf(request), ...parseTimelineQuery(query, now()) };
          return {
            ...question,
            lasting: query.recent === undefined,
            make: async (allocate) => timelineJson(await timeline(store, question), allocate),
          };
        });
      },
    },
    {
      method: 'GET',
      url: '/v1/:project_id/waf/event/attack/type',
      allow: 'reader',
      schema: {
        operationId: 'attackTypes',
        tags: ['statistics'],
        summary: 'Attacks over a time range by category; they add up to the attacks of the timeline',
        params: PROJECT_PATH,
        querystring: { type: 'object', properties: { ...RANGE_PARAMETERS, hosts: HOSTS_PARAMETER } },
        response: withErrors({
          type: 'object',
          required: [...CATEGORIES],
          properties: Object.fromEntries(CATEGORIES.map((name) => [name, { type: 'integer' }])),
        }),
      },
      handler(request, reply) {
        return sendAnswer(request, reply, () => {
          const query = queryOf(request);
          const question = { ...projectOf(request), ...parseDistributionQuery(query, now()) };
          return {
            ...question,
            lasting: query.recent === undefined,
            make: async () => distributionJson(await distribution(store, question)),
          };
        });
      },
    },
  ];
}

function projectOf({ params }: FastifyRequest): { project: string } {
  return { project: (params as { project_id: string }).project_id };
}

function distributionJson(counts: Float64Array): Buffer {
  return Buffer.from(JSON.stringify(Object.fromEntries(CATEGORIES.map((name, i) => [name, counts[i]]))));
}
