/** What a project has: the hosts whose IDs the queries take, and the log sources that report to it. */
import type { Store } from '../../store/store.ts';
import { parseHostListQuery, parsePage, queryOf } from '../query.ts';
import type { Route } from '../route.ts';
import { PROJECT_PATH, withErrors } from '../schemas.ts';

const TOTAL = {
  type: 'integer',
  description: 'How many there are, whatever part of them is listed',
} as const;

const PAGE_PARAMETERS = {
  offset: { type: 'integer', minimum: 0, default: 0, description: 'How many to leave out' },
  limit: { type: 'integer', minimum: 1, maximum: 1_000, default: 1_000, description: 'How many to list' },
} as const;

export function inventoryRoutes(store: Store): Route[] {
  return [
    {
      method: 'GET',
      url: '/v1/:project_id/waf/instance',
      allow: 'reader',
      schema: {
        operationId: 'hosts',
        tags: ['inventory'],
        summary: 'The protected domains of the project, by name',
        params: PROJECT_PATH,
        querystring: {
          type: 'object',
          properties: {
            ...PAGE_PARAMETERS,
            hostname: { type: 'string', description: 'Only those whose name contains it' },
          },
        },
        response: withErrors({
          type: 'object',
          required: ['total', 'items'],
          properties: {
            total: TOTAL,
            items: {
              type: 'array',
              items: {
                type: 'object',
                required: ['id', 'hostname', 'timestamp'],
                properties: {
                  id: { type: 'string' },
                  hostname: { type: 'string' },
                  timestamp: {
                    type: 'integer',
                    description: 'When it was registered, milliseconds since the epoch',
                  },
                },
              },
            },
          },
        }),
      },
      async handler(request) {
        const { offset, limit, hostname } = parseHostListQuery(queryOf(request));
        const { project_id } = request.params as { project_id: string };
        const wanted = hostname.toLowerCase();
        const hosts = (await store.hosts(project_id)).filter((host) => host.hostname.includes(wanted));
        const items = hosts.slice(offset, offset + limit);
        return {
          total: hosts.length,
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
        summary: 'The log sources connected to the project: what each has sent, and since when it is silent',
        params: PROJECT_PATH,
        querystring: { type: 'object', properties: PAGE_PARAMETERS },
        response: withErrors({
          type: 'object',
          required: ['total', 'items'],
          properties: { total: TOTAL, items: { type: 'array', items: SOURCE } },
        }),
      },
      async handler(request) {
        const { project_id } = request.params as { project_id: string };
        const { offset, limit } = parsePage(queryOf(request));
        const sources = await store.sources(project_id);
        return { total: sources.length, items: sources.slice(offset, offset + limit) };
      },
    },
  ];
}

const SOURCE = {
  type: 'object',
  required: ['id', 'name', 'format', 'hosts', 'events', 'without_host', 'dropped', 'first_seen', 'last_seen'],
  properties: {
    id: { type: 'string' },
    name: { type: 'string' },
    format: { type: 'string', description: 'The format of what it sent last' },
    hosts: { type: 'array', items: { type: 'string' }, description: 'IDs of the domains it has reported on' },
    events: { type: 'integer', description: 'Records counted' },
    without_host: {
      type: 'integer',
      description:
        'Records among `events` without a registered host: they count in the total of the project, and for no domain. ' +
        'Name the host in the log (nginx: `log_format` with `$host`, Apache: `%v`), or send the lines with `host`.',
    },
    dropped: {
      type: 'object',
      additionalProperties: { type: 'integer' },
      description: 'Records not counted, by reason. With `events` they add up to the records read.',
    },
    first_seen: {
      type: ['integer', 'null'],
      description: 'Time of its earliest event, milliseconds since the epoch',
    },
    last_seen: { type: ['integer', 'null'], description: 'Time of its latest event' },
  },
} as const;
