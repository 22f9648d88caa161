/** A statistics query as a row in the table of routes, and the schemas that the rows share. */
import type { Role } from '../../identity/records.ts';
import { RECENT_NAMES } from '../../statistics/range.ts';
import { LIST_LIMIT_MAX, TOP_DEFAULT } from '../query.ts';
import {
  array,
  HOSTS_PARAMETER,
  integer,
  object,
  okOrUnchanged,
  PROJECT_PATH,
  partialObject,
  type Route,
  string,
} from '../route.ts';

/** A statistics query. Almost all of them have a range and a host filter. */
export interface Call {
  /** The part after `/v1/{project_id}/waf/`. */
  path: string;
  operationId: string;
  /** Its tag in the OpenAPI file. Default: `statistics`. */
  tag?: 'statistics' | 'events';
  /** Default: `reader`. */
  allow?: Role;
  /** Parameters in the path besides the project. */
  pathParameters?: Record<string, ReturnType<typeof string>>;
  /** The call has neither a required range nor a host filter. */
  hasNoRange?: true;
  /** Older paths with the same response, by operation ID. The vendor's SDK of 2021 uses them. */
  older?: Readonly<Record<string, string>>;
  summary: string;
  description?: string;
  /** Query parameters besides the range and the hosts. */
  parameters?: Record<string, object>;
  returns: Parameters<typeof okOrUnchanged>;
  handler: Route['handler'];
}

export function toRoutes({ path, operationId, older = {}, ...call }: Call): Route[] {
  const routes = [toRoute(path, operationId, call)];
  for (const [id, olderPath] of Object.entries(older)) {
    const description = `Older path of \`waf/${path}\`. ${call.description ?? ''}`.trim();
    routes.push(toRoute(olderPath, id, { ...call, description }));
  }
  return routes;
}

function toRoute(
  path: string,
  operationId: string,
  {
    tag = 'statistics',
    allow = 'reader',
    pathParameters,
    hasNoRange,
    parameters,
    returns,
    handler,
    ...documentation
  }: Omit<Call, 'path' | 'operationId' | 'older'>,
): Route {
  return {
    method: 'GET',
    url: `/v1/:project_id/waf/${path}`,
    allow,
    schema: {
      operationId,
      ...documentation,
      tags: [tag],
      params: object({ ...PROJECT_PATH.properties, ...pathParameters }),
      querystring: partialObject({
        ...(!hasNoRange && RANGE_PARAMETERS),
        ...parameters,
        ...(!hasNoRange && HOST_PARAMETERS),
        ...TRACE_PARAMETERS,
      }),
      response: okOrUnchanged(...returns),
    },
    handler,
  };
}

export const RANGE_PARAMETERS = {
  from: integer('Start, milliseconds since the epoch. Required unless `recent` is given.', { minimum: 0 }),
  to: integer('End (exclusive), milliseconds since the epoch. Required unless `recent` is given.', {
    minimum: 0,
  }),
  recent: string('A range of local days up to now (`yesterday`: that day). Overrides `from` and `to`.', {
    enum: RECENT_NAMES,
  }),
};

const TRACE_PARAMETERS = {
  trace: integer('1: explain the query in the header `Server-Timing`. Requires the role `admin`.', {
    enum: [0, 1],
    default: 0,
  }),
};

export const HOST_PARAMETERS = {
  hosts: HOSTS_PARAMETER,
  instances: {
    ...HOSTS_PARAMETER,
    description: 'The same as `hosts`. If both are given, they must be equal.',
  },
};

export const TIMEZONE_PARAMETER = string(
  'The local clock: an offset from -12:00 to +14:00, or an IANA name such as `Europe/Berlin`. Points end at its boundaries, days at local midnight.',
  { default: '+00:00' },
);

export const GROUP_BY_PARAMETER = string(
  '`DAY`: one point per local day, whatever the length of the range.',
  {
    enum: ['DAY'],
  },
);

export const TOP_PARAMETER = integer('Maximum number of items.', {
  minimum: 1,
  maximum: LIST_LIMIT_MAX,
  default: TOP_DEFAULT,
});

const TIME = integer('End of the point (exclusive), milliseconds since the epoch.');

export const pointList = (description: string) => array(object({ time: TIME, num: integer(description) }));

export const keyedTimelines = (keys: readonly string[], description: string) =>
  array(object({ key: string('What is counted.', { enum: keys }), timeline: pointList(description) }));

/** The fields of a list item besides `num`. */
export const topCountsOf = (
  key: Record<string, ReturnType<typeof string>>,
  total = 'Number of distinct items with attacks, before `top` cuts the list.',
) =>
  object({
    total: integer(total),
    items: array(object({ ...key, num: integer('Number of attacks.') })),
  });
