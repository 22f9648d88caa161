/** The routes of a project: the two statistics queries, its hosts and its log sources. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { CATEGORIES } from '../../event.ts';
import { type Range, RECENT_NAMES } from '../../statistics/range.ts';
import { timeline } from '../../statistics/timeline.ts';
import type { Store } from '../../store/store.ts';
import {
  LIST_LIMIT_MAX,
  parseDistributionQuery,
  parsePage,
  parseTimelineQuery,
  queryOf,
  type RawQuery,
  single,
} from '../query.ts';
import {
  array,
  callerOf,
  counts,
  HOSTS_PARAMETER,
  integer,
  object,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
  string,
  withErrors,
} from '../route.ts';
import { createNegotiation } from '../send.ts';
import { Admission } from './admission.ts';
import { ResponseCache, sendResponse } from './response-cache.ts';
import { timelineJson } from './timeline-json.ts';

const RANGE_PARAMETERS = {
  from: integer('Start, milliseconds since the epoch. Required unless `recent` is given.', { minimum: 0 }),
  to: integer('End (exclusive), milliseconds since the epoch. Required unless `recent` is given.', {
    minimum: 0,
  }),
  recent: string('A range of local days up to now (`yesterday`: that day). Overrides `from` and `to`.', {
    enum: RECENT_NAMES,
  }),
};

const TIMEZONE_PARAMETER = string(
  'Offset of the local clock, from -12:00 to +14:00. Points end at its boundaries, days at local midnight.',
  { pattern: '^[+-][0-9]{2}:[0-9]{2}$', default: '+00:00' },
);

const POINTS = array(
  object({
    time: integer('End of the point (exclusive), milliseconds since the epoch.'),
    num: integer('Number of requests or attacks in the point.'),
  }),
);

export function statisticsRoutes(store: Store, now: () => number): Route[] {
  const cache = new ResponseCache(store);
  const admission = new Admission();
  const negotiate = createNegotiation();

  function handler<Q extends Range>(
    parse: (query: RawQuery, now: number) => Q,
    render: (project: string, query: Q) => Promise<Buffer>,
  ) {
    async function compute(request: FastifyRequest) {
      const rawQuery = queryOf(request);
      const query = parse(rawQuery, now());
      // Read before the counts: if they change in between, the response only looks older than it is.
      const version = await store.version(query);
      const bytes = await render(pathParameter(request, 'project_id'), query);
      const response = { from: query.from, to: query.to, version, bytes, compressed: new Map() };
      // A range like `today` is another one tomorrow.
      if (rawQuery.recent === undefined) cache.set(request, response);
      return response;
    }

    return async (request: FastifyRequest, reply: FastifyReply) => {
      const cached = await cache.get(request);
      const project = pathParameter(request, 'project_id');
      const { user } = callerOf(request);
      // Parsing waits for admission too: a thousand hosts take a millisecond, which a shed query must not cost.
      const response = cached ?? (await admission.run(project, user.id, () => compute(request)));
      return sendResponse(request, reply, response, negotiate(request.headers['accept-encoding']));
    };
  }

  return [
    {
      method: 'GET',
      url: '/v1/:project_id/waf/event/timeline',
      allow: 'reader',
      schema: {
        operationId: 'timeline',
        tags: ['statistics'],
        summary: 'Get requests and attacks over a time range as two series with the same points',
        params: PROJECT_PATH,
        querystring: partialObject({
          ...RANGE_PARAMETERS,
          timezone: TIMEZONE_PARAMETER,
          hosts: HOSTS_PARAMETER,
        }),
        response: withErrors('Both series.', object({ requests: POINTS, attacks: POINTS })),
      },
      handler: handler(parseTimelineQuery, async (project, query) =>
        timelineJson(await timeline(store, { project, ...query })),
      ),
    },
    {
      method: 'GET',
      url: '/v1/:project_id/waf/event/attack/type',
      allow: 'reader',
      schema: {
        operationId: 'attackTypes',
        tags: ['statistics'],
        summary: 'Get the attacks in a time range by category',
        description: 'The sum of all categories equals the attacks of the timeline.',
        params: PROJECT_PATH,
        querystring: partialObject({ ...RANGE_PARAMETERS, hosts: HOSTS_PARAMETER }),
        response: withErrors(
          'The number of attacks in each category.',
          object(Object.fromEntries(CATEGORIES.map((name) => [name, { type: 'integer' }]))),
        ),
      },
      handler: handler(parseDistributionQuery, async (project, query) => {
        const counts = await store.totals({ project, ...query });
        const byName = Object.fromEntries(CATEGORIES.map((name, i) => [name, counts[i]]));
        return Buffer.from(JSON.stringify(byName));
      }),
    },
  ];
}

/** The part of a list that `offset` and `limit` select. */
function page<T>(query: RawQuery, items: readonly T[]): { total: number; items: T[] } {
  const { offset, limit } = parsePage(query);
  return { total: items.length, items: items.slice(offset, offset + limit) };
}

const PAGE_PARAMETERS = {
  offset: integer('Number of items to skip.', { minimum: 0, default: 0 }),
  limit: integer('Maximum number of items to return.', {
    minimum: 1,
    maximum: LIST_LIMIT_MAX,
    default: LIST_LIMIT_MAX,
  }),
};

function pageOf(item: object) {
  return object({ total: integer('Number of items on all pages.'), items: array({ ...item }) });
}

export function inventoryRoutes(store: Store): Route[] {
  return [
    {
      method: 'GET',
      url: '/v1/:project_id/waf/instance',
      allow: 'reader',
      schema: {
        operationId: 'hosts',
        tags: ['inventory'],
        summary: 'List the protected hosts of the project by name',
        params: PROJECT_PATH,
        querystring: partialObject({
          ...PAGE_PARAMETERS,
          hostname: string('List only hosts whose name contains this text.'),
        }),
        response: withErrors('One page of hosts.', pageOf(HOST)),
      },
      async handler(request) {
        const query = queryOf(request);
        const part = single(query, 'hostname')?.toLowerCase() ?? '';
        const hosts = await store.hosts(pathParameter(request, 'project_id'));
        const matching = hosts.filter(({ hostname }) => hostname.includes(part));
        const { total, items } = page(query, matching);
        return {
          total,
          items: items.map(({ id, hostname, created }) => ({ id, hostname, timestamp: created })),
        };
      },
    },
    {
      method: 'GET',
      url: '/v1/:project_id/connections',
      allow: 'reader',
      schema: {
        operationId: 'connections',
        tags: ['inventory'],
        summary: 'List the log sources of the project: what each has sent, and when it was last seen',
        params: PROJECT_PATH,
        querystring: partialObject(PAGE_PARAMETERS),
        response: withErrors('One page of log sources.', pageOf(SOURCE)),
      },
      async handler(request) {
        return page(queryOf(request), await store.sources(pathParameter(request, 'project_id')));
      },
    },
  ];
}

const OR_NULL = { type: ['integer', 'null'] };

const HOST = object({
  id: string('Host ID.'),
  hostname: string('Host name.'),
  timestamp: integer('Time of registration, milliseconds since the epoch.'),
});

const SOURCE = object({
  id: string('ID of the log source.'),
  name: string('Name of the log source.'),
  format: string('Format of the latest records.'),
  hosts: array({ type: 'string' }, { description: 'IDs of the hosts that the source has reported on.' }),
  events: integer('Number of records counted.'),
  without_host: integer(
    'Number of records among `events` without a registered host, which count in the total of the project only. ' +
      'Name the host in the log (nginx: `log_format` with `$host`, Apache: `%v`), or send the lines with `host`.',
  ),
  dropped: counts('Number of records dropped, by reason. With `events` they add up to the records read.'),
  first_seen: integer('Time of the earliest event, milliseconds since the epoch.', OR_NULL),
  last_seen: integer('Time of the latest event, milliseconds since the epoch.', OR_NULL),
});
