/** The lists of a project: hosts, log sources and categories; and 404s for calls whose data is not kept. */
import { CATEGORY_NAMES } from '@wafstat/client';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { CATEGORIES } from '../../event.ts';
import type { Host, Store } from '../../store/store.ts';
import {
  checkId,
  HOSTS_PER_PAGE,
  LIST_LIMIT_MAX,
  type Page,
  parseHostsFilter,
  parseHostsPage,
  parsePage,
  queryOf,
} from '../query.ts';
import {
  array,
  counts,
  integer,
  noPath,
  object,
  okOrUnchanged,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
  string,
} from '../route.ts';
import { contentResponse, type Response, sendResponse } from './response-cache.ts';

const PROJECT = '/v1/:project_id';

export function inventoryRoutes(store: Store): Route[] {
  const send =
    (respond: (...[request]: Parameters<Route['handler']>) => Promise<Response>): Route['handler'] =>
    async (request, reply) =>
      sendResponse(request, reply, await respond(request, reply));

  const hostList = (path: string, operationId: string, order: string): Route => ({
    method: 'GET',
    url: `${PROJECT}/${path}`,
    allow: 'reader',
    schema: {
      operationId,
      summary: `List the protected hosts of the project ${order}`,
      tags: ['inventory'],
      params: PROJECT_PATH,
      querystring: partialObject(HOSTS_PARAMETERS),
      response: okOrUnchanged('One page of hosts.', pageOf(HOST)),
    },
    handler: send(async (request) => {
      const query = queryOf(request);
      const { hostname: part, policyname } = parseHostsFilter(query);
      const page = parseHostsPage(query);
      const hosts = await store.hosts(pathParameter(request, 'project_id'));
      // No host has a policy.
      const matching = policyname === '' ? hosts.filter(({ hostname }) => hostname.includes(part)) : [];
      const { total, items } = cut(matching, page);
      return contentResponse({ total, items: items.map(hostItem) });
    }),
  });

  const findHost = async (request: FastifyRequest): Promise<Host> => {
    const id = hostIdIn(request);
    const hosts = await store.hosts(pathParameter(request, 'project_id'));
    const host = hosts.find((candidate) => candidate.id === id);
    if (host === undefined) throw unknownHost(id);
    return host;
  };

  const oneHost = (path: string, operationId: string): Route => ({
    method: 'GET',
    url: `${PROJECT}/${path}/:host_id`,
    allow: 'reader',
    schema: {
      operationId,
      tags: ['inventory'],
      summary: 'Get a protected host of the project',
      params: HOST_PATH,
      response: okOrUnchanged('The host.', HOST),
    },
    handler: send(async (request) => contentResponse(hostItem(await findHost(request)))),
  });

  const threatMap = (path: string, operationId: string): Route => ({
    method: 'GET',
    url: `${PROJECT}/waf/${path}`,
    allow: 'reader',
    schema: {
      operationId,
      tags: ['inventory'],
      summary: 'List the categories of attacks with their display names',
      params: PROJECT_PATH,
      response: okOrUnchanged(
        'The 13 categories.',
        object({
          threats: array(string('Category.', { enum: CATEGORIES })),
          locale: object(Object.fromEntries(CATEGORIES.map((name) => [name, string('Display name.')]))),
        }),
      ),
    },
    handler: send(async () => THREAT_MAP),
  });

  return [
    hostList('waf/instance', 'hosts', 'by name'),
    ...['composite', 'premium'].flatMap((kind) => [
      hostList(`${kind}-waf/host`, `${kind}Hosts`, 'by name, like `waf/instance`'),
      oneHost(`${kind}-waf/host`, `${kind}Host`),
    ]),
    oneHost('waf/instance', 'host'),
    {
      method: 'GET',
      url: `${PROJECT}/waf/overviews/:host_id/domains`,
      allow: 'reader',
      schema: {
        operationId: 'hostDomains',
        tags: ['inventory'],
        summary: 'List the domain names of a protected host: wafstat has one name per host',
        params: HOST_PATH,
        response: okOrUnchanged(
          'The name.',
          object({ total: integer('Always 1.'), items: array(string('Host name.')) }),
        ),
      },
      handler: send(async (request) => {
        const { hostname } = await findHost(request);
        return contentResponse({ total: 1, items: [hostname] });
      }),
    },
    threatMap('tag/threat/map', 'threatMap'),
    threatMap('map/threat', 'threats'),
    {
      method: 'GET',
      url: `${PROJECT}/connections`,
      allow: 'reader',
      schema: {
        operationId: 'connections',
        tags: ['inventory'],
        summary: 'List the log sources of the project: what each has sent, and when it was last seen',
        params: PROJECT_PATH,
        querystring: partialObject(SOURCES_PARAMETERS),
        response: okOrUnchanged('One page of log sources.', pageOf(SOURCE)),
      },
      async handler(request) {
        const { total, items } = cut(
          await store.sources(pathParameter(request, 'project_id')),
          parsePage(queryOf(request)),
        );
        // Examples are log lines, which readers of statistics need not see.
        return {
          total,
          items: items.map(({ examples: _, last_batch: _batch, usual_gap_ms: _gap, ...source }) => source),
        };
      },
    },
    ...Object.entries(NOT_KEPT).map(([call, data]) => notKept(call, data)),
  ];
}

/** Calls of the API family whose data wafstat does not keep, with the name of that data. */
export const NOT_KEPT = {
  'POST /v1/:project_id/waf/event/job/export': 'exports of events',
  'GET /v1/:project_id/waf/async-job/:job_id': 'exports of events',
  'GET /v1/:project_id/waf/security-reports/:report_id': 'the content of reports',
};

/** A 404 like that of any unknown path, but with the reason. */
function notKept(call: string, data: string): Route {
  const [method, url = ''] = call.split(' ', 2);
  return {
    method: method === 'POST' ? 'POST' : 'GET',
    url,
    allow: 'reader',
    schema: { hide: true },
    async handler(request) {
      throw noPath(request, `: wafstat does not keep ${data}`);
    },
  };
}

export function hostIdIn(request: FastifyRequest): string {
  const id = pathParameter(request, 'host_id');
  checkId('host_id', id);
  return id;
}

export function unknownHost(id: string): ApiError {
  return new ApiError('WAF.4000', `the project has no host with the ID ${id}`);
}

function cut<T>(items: readonly T[], { skip, size }: Page): { total: number; items: T[] } {
  return { total: items.length, items: items.slice(skip, skip + size) };
}

/** `hostid` is the name of the ID in some SDKs. */
export function hostItem({ id, hostname, created }: Host) {
  return { id, hostid: id, hostname, timestamp: created };
}

const THREAT_MAP = contentResponse({ threats: CATEGORIES, locale: CATEGORY_NAMES });

const HOSTS_PARAMETERS = {
  page: integer('Number of the page, from 1.', { minimum: 1, default: 1 }),
  pagesize: integer(`Hosts per page, 1 to ${LIST_LIMIT_MAX}; -1 for all.`, {
    minimum: -1,
    maximum: LIST_LIMIT_MAX,
    default: -1,
  }),
  offset: integer('Number of the page, from 0. Not together with `page` and `pagesize`.', {
    minimum: 0,
    default: 0,
  }),
  limit: integer(
    `Hosts per page, 1 to ${LIST_LIMIT_MAX}; -1 for all. Default with \`offset\`: ${HOSTS_PER_PAGE}.`,
    {
      minimum: -1,
      maximum: LIST_LIMIT_MAX,
    },
  ),
  hostname: string('List only hosts whose name contains this text.'),
  policyname: string(
    'List only hosts with this policy. Hosts have no policies, so the list is always empty.',
  ),
};

const SOURCES_PARAMETERS = {
  offset: integer('Number of items to skip.', { minimum: 0, default: 0 }),
  limit: integer('Maximum number of items to return.', {
    minimum: 1,
    maximum: LIST_LIMIT_MAX,
    default: LIST_LIMIT_MAX,
  }),
};

export const HOST_PATH = object({ ...PROJECT_PATH.properties, host_id: string('Host ID') });

function pageOf(item: object) {
  return object({ total: integer('Number of items on all pages.'), items: array({ ...item }) });
}

export const HOST = object({
  id: string('Host ID.'),
  hostid: string('Host ID.'),
  hostname: string('Host name.'),
  timestamp: integer('Time of registration, milliseconds since the epoch.'),
});

const OR_NULL = { type: ['integer', 'null'] };

const SOURCE = object({
  id: string('ID of the log source.'),
  name: string('Name of the log source.'),
  format: string('Format of its records: `mixed` if they have several, `auto` if none was recognized.'),
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
