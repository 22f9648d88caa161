/** The type of a route, how routes are mounted, and the schemas they share. */
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import { ApiError } from '../errors.ts';
import type { Caller, SignedIn } from '../identity/authenticator.ts';
import type { Role } from '../identity/records.ts';

export interface Route extends RouteAccess {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  url: string;
  /** Documents the route in the OpenAPI file. It validates nothing: query.ts parses the parameters. */
  schema: FastifySchema & { operationId?: string; summary?: string; tags?: string[]; hide?: boolean };
  handler(request: FastifyRequest, reply: FastifyReply): Promise<unknown>;
}

/** What the guard checks. */
interface RouteAccess {
  /** Who may call: users with this role in the project of the path, all authenticated users, or (absent) everyone. */
  allow?: Role | 'authenticated';
  /**
   * Whether console sessions are accepted, in addition to tokens and signatures or instead of them. `optional`: only
   * sessions, and requests without one reach the handler too.
   */
  session?: 'too' | 'only' | 'optional';
  /**
   * Whether Basic authentication with an access key is accepted, for log shippers that cannot sign requests. Reads for the
   * role `reader` accept it anyway, under more conditions (docs/decisions/0010).
   */
  basic?: boolean;
  /** The handler reads the body itself, and then calls `verifySignature`. */
  streamsBody?: boolean;
}

declare module 'fastify' {
  interface FastifyContextConfig extends RouteAccess {}
  interface FastifyRequest {
    /** Set on every route with `allow`. */
    caller: Caller | null;
    /** Set if the caller has authenticated with a session of the console. */
    signedIn: SignedIn | null;
    /** Whether the caller has the role `admin` in the project of the path. */
    isAdmin: boolean;
  }
}

export function mount(app: FastifyInstance, routes: readonly Route[]): void {
  for (const { method, url, schema, handler, ...access } of routes) {
    // The default in the OpenAPI file is that a path requires a token.
    const security = acceptsBasicReads(method, access)
      ? { security: [{ token: [] }, { accessKey: [] }] }
      : {};
    const documented = access.allow ? { ...security, ...schema } : { security: [], ...schema };
    app.route({ method, url, schema: documented, handler, config: access });
  }
}

/** Whether the access key of a reader can be sent as HTTP Basic credentials. */
export function acceptsBasicReads(method: string, { allow, session }: RouteAccess): boolean {
  return allow === 'reader' && (session ?? 'too') === 'too' && (method === 'GET' || method === 'HEAD');
}

/** The same routes, except that they also accept console sessions. */
export function alsoForSessions(routes: readonly Route[]): Route[] {
  return routes.map((route) => ({ ...route, session: 'too' }));
}

/** Forbids caching the response, for tokens, secrets and the data of a session. */
export function notCached(route: Route): Route {
  return {
    ...route,
    async handler(request, reply) {
      reply.header('Cache-Control', 'no-store');
      return route.handler(request, reply);
    },
  };
}

/** The caller, on a route that requires one. */
export function callerOf(request: FastifyRequest): Caller {
  if (request.caller === null) throw new Error('the route does not authenticate its caller');
  return request.caller;
}

/** A parameter in the path of the route, such as `project_id`. */
export function pathParameter({ params }: FastifyRequest, name: string): string {
  return (params as Record<string, string>)[name] ?? '';
}

export function noPath({ url }: FastifyRequest, reason = ''): ApiError {
  return new ApiError('WAF.4000', `there is no path ${url.split('?', 1)[0]?.slice(0, 200)}${reason}`);
}

/**
 * For requests that no route matches: a 405 if the path has routes of other methods, otherwise a 404. Call it before
 * routes are added. Registering a route for each path and refused method would add 4,000 routes, a quarter of the
 * start-up time.
 */
export function routeRefusals(
  app: FastifyInstance,
  identityKind: 'local' | 'remote',
): (request: FastifyRequest) => ApiError {
  const paths = new Map<string, { pattern: RegExp; methods: string[] }>();
  app.addHook('onRoute', ({ url, method }) => {
    const path = paths.get(url) ?? { pattern: pathPattern(url), methods: [] };
    path.methods.push(...[method].flat());
    paths.set(url, path);
  });
  return (request) => {
    const { method, url } = request;
    const [path = ''] = url.split(/[?#]/, 1);
    // No route is longer, except for the IDs in it. Trying all patterns takes 25 ms for a path of 240 KB.
    if (path.length > PATH_LENGTH_MAX) return noPath(request);
    // Like the router, decodes all but reserved characters. The router has refused paths that cannot be decoded.
    const decoded = decodeURI(path);
    const allowed = [...paths.values()].flatMap(({ pattern, methods }) =>
      pattern.test(decoded) ? methods : [],
    );
    if (allowed.length === 0) {
      if (CONFIGURATION.test(decoded))
        return noPath(request, ': wafstat does not keep the configuration of a WAF');
      return noPath(request, identityKind === 'remote' && IDENTITY.test(decoded) ? IDENTITY_ELSEWHERE : '');
    }
    const allow = [...new Set(allowed)].sort().join(', ');
    return new ApiError('WAF.4001', `${method} is not a method of this path: use ${allow}`, { Allow: allow });
  };
}

const PATH_LENGTH_MAX = 2_048;

/** The calls of the API family that read and change the configuration of a WAF, with any method. */
const CONFIGURATION = /^\/v1\/[^/]+\/waf\/(policy|rule|certificate|valuelist|ip-groups?|config)(\/|$)/;

const IDENTITY = /^\/(v3|v3\.0|identity)(\/|$)/;
/** Does not contain --identity-url, which may be an internal address. */
const IDENTITY_ELSEWHERE =
  ': this service accepts tokens and access keys of an external Keystone; request tokens there (OS_AUTH_URL)';

function pathPattern(url: string): RegExp {
  const segments = url.split('/').map((segment, i, all) => {
    if (segment === '*') return '.*';
    // As in the router, all parameters except the last may be empty.
    if (segment.startsWith(':')) return i === all.length - 1 ? '[^/]+' : '[^/]*';
    return segment.replaceAll('.', '\\.');
  });
  return new RegExp(`^${segments.join('/')}/?$`);
}

type Schema = Readonly<Record<string, unknown>>;

export const integer = (description: string, rest: Schema = {}) => ({
  type: 'integer',
  description,
  ...rest,
});

export const string = (description: string, rest: Schema = {}) => ({ type: 'string', description, ...rest });

export const array = (items: Schema, rest: Schema = {}) => ({ type: 'array', items, ...rest });

/** An object whose properties are all required. */
export const object = (properties: Readonly<Record<string, Schema>>, rest: Schema = {}) => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
  ...rest,
});

/** An object whose properties are optional, unless `rest.required` names them. */
export const partialObject = (properties: object, rest: Schema = {}) => ({
  type: 'object',
  ...rest,
  properties,
});

export const counts = (description: string) => ({
  type: 'object',
  additionalProperties: { type: 'integer' },
  description,
});

const ID = { pattern: '^[A-Za-z0-9_-]{1,64}$' };

export const PROJECT_PATH = object({ project_id: string('Project ID', ID) });

export const HOSTS_PARAMETER = array(
  { type: 'string', ...ID },
  {
    description:
      'Host IDs, one `hosts=<id>` each, at most 1,000. Default: the whole project. Unknown IDs count as zero.',
  },
);

/** The response of a call. openapi.ts adds the errors. */
export const ok = (description: string, schema: Schema) => ({ 200: { ...schema, description } });

/** The same, for calls that support conditional requests. */
export const okOrUnchanged = (description: string, schema: Schema) => ({
  ...ok(description, schema),
  304: { description: 'The `ETag` in `If-None-Match` is that of the response.', type: 'null' },
});

export const noContent = (description: string) => ({ 204: { description, type: 'null' } });
