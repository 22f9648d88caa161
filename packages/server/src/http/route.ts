/** What a route is here, and how one is mounted. */
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import { ApiError } from '../errors.ts';
import type { Caller } from '../identity/authenticator.ts';
import type { Role } from '../identity/records.ts';
import type { MaybePromise } from '../maybe-promise.ts';

export interface Route {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  url: string;
  /** Who may call it: a user with this role in the project of the path, all authenticated users, or (absent) everyone. */
  allow?: Role | 'authenticated';
  /** Whether a session of the console opens it: besides tokens and signatures, or instead of them. Absent: it does not. */
  session?: 'too' | 'only';
  /** Documentation, from which the OpenAPI file is made. Parameters are parsed in query.ts, not by the schema. */
  schema: FastifySchema & { operationId?: string; summary?: string; tags?: string[]; hide?: boolean };
  /** Whether an access key may come as user and password. */
  basic?: boolean;
  /** The handler receives the body itself, as it arrives, and checks its signature. */
  streamsBody?: boolean;
  handler(request: FastifyRequest, reply: FastifyReply): MaybePromise<unknown>;
}

export function mount(app: FastifyInstance, routes: readonly Route[]): void {
  for (const { method, url, allow, session, basic, streamsBody, schema, handler } of routes) {
    app.route({
      method,
      url,
      // In the OpenAPI file every path asks for a token unless it says otherwise.
      schema: allow ? schema : { security: [], ...schema },
      handler,
      config: {
        ...(allow ? { allow } : {}),
        ...(session ? { session } : {}),
        ...(basic ? { basic } : {}),
        ...(streamsBody ? { streamsBody } : {}),
      },
    });
  }
  for (const url of new Set(routes.map((route) => route.url))) refuseOtherMethods(app, url);
}

/** The same routes, open to sessions of the console too. */
export function alsoForSessions(routes: readonly Route[]): Route[] {
  return routes.map((route) => ({ ...route, session: 'too' }));
}

/** For tokens, secrets, and what a session may see: none of it must outlive the caller in a cache. */
export function notCached(route: Route): Route {
  return {
    ...route,
    async handler(request, reply) {
      reply.header('Cache-Control', 'no-store');
      return route.handler(request, reply);
    },
  };
}

/** Who calls, on a route that asks for it. */
export function callerOf(request: FastifyRequest): Caller {
  if (request.caller === null) throw new Error('the route does not ask who calls');
  return request.caller;
}

/** A path that exists answers 405, not 404, to a method that it does not have. */
function refuseOtherMethods(app: FastifyInstance, url: string): void {
  const allowed = app.supportedMethods.filter((method) => app.hasRoute({ method, url }));
  app.route({
    method: app.supportedMethods.filter((method) => !allowed.includes(method)),
    url,
    schema: { hide: true },
    async handler(request) {
      const allow = allowed.toSorted().join(', ');
      throw new ApiError('WAF.4001', `${request.method} is not a method of this path: use ${allow}`, {
        Allow: allow,
      });
    },
  });
}
