/** Health checks, the OpenAPI file and the start page: public, because they reveal at most IDs of projects. */
import { ApiError, retryLater } from '../errors.ts';
import type { Identity } from '../identity/identity.ts';
import type { RemoteIdentity } from '../identity/remote/remote-identity.ts';
import type { Store } from '../store/store.ts';
import { isNotWritable } from './failures.ts';
import { baseOf, type Catalog, versionsBody } from './keystone/keystone.ts';
import { partialObject, type Route } from './route.ts';
import { type Response, sendResponse } from './statistics/response-cache.ts';

const STATUS = partialObject({ status: { type: 'string' } });
const READINESS = partialObject({
  status: { type: 'string', enum: ['ready', 'degraded'] },
  unavailable_projects: {
    type: 'array',
    items: { type: 'string' },
    description: 'If degraded: IDs of projects whose worker of Citus does not respond, at most 100.',
  },
});

/** With a remote `identity`, there is no console and no identity API. */
export function serviceRoutes(
  store: Store,
  identity: Identity | RemoteIdentity,
  catalog: Catalog,
  openapi: () => Promise<Response>,
): Route[] {
  return [
    {
      method: 'GET',
      url: '/healthz',
      schema: {
        operationId: 'healthz',
        tags: ['service'],
        summary: 'Check that the process is running',
        response: { 200: { description: 'The process is running.', ...STATUS } },
      },
      async handler() {
        return { status: 'ok' };
      },
    },
    {
      method: 'GET',
      url: '/readyz',
      schema: {
        operationId: 'readyz',
        tags: ['service'],
        summary: 'Check that the service can serve queries and count events',
        response: {
          200: { description: 'The service is ready, possibly except for some projects.', ...READINESS },
          503: {
            description:
              'The service is shutting down, the store, PostgreSQL or Keystone does not respond, or writes fail (for example, because the disk is full) while queries still work.',
          },
        },
      },
      async handler(request) {
        // Checked first, so that load balancers stop sending requests before the listener closes.
        if (request.server.draining) throw new ApiError('WAF.5001', 'the service is shutting down');
        await store.check('queries');
        if (identity.kind === 'remote') await identity.check();
        await checkWrites(store, identity);
        const projects = (await store.unavailableProjects?.()) ?? [];
        if (projects.length === 0) return { status: 'ready' };
        // All others work, so load balancers must keep sending requests.
        return { status: 'degraded', unavailable_projects: projects };
      },
    },
    {
      method: 'GET',
      url: '/openapi.json',
      schema: { hide: true },
      async handler(request, reply) {
        return sendResponse(request, reply, await openapi());
      },
    },
    {
      method: 'GET',
      url: '/',
      schema: { hide: true },
      /** Browsers get the console; API clients that know only the base address get the versions. */
      async handler(request, reply) {
        // The links depend on the Host header, so no shared cache may keep them.
        reply.header('Vary', 'Accept').header('Cache-Control', 'no-store');
        if (!request.headers.accept?.includes('text/html')) {
          reply.code(300);
          return versionsBody(baseOf(catalog, request), identity.kind);
        }
        if (identity.kind === 'remote') throw noConsole();
        return reply.redirect('/console/');
      },
    },
  ];
}

/** Readiness is public, so the response gives the reason without paths; the log has the whole message. */
async function checkWrites(store: Store, identity: Identity | RemoteIdentity): Promise<void> {
  try {
    await store.check('appends');
    if (identity.kind === 'local') await identity.checkWrites();
  } catch (error) {
    if (!isNotWritable(error)) throw error;
    throw retryLater('WAF.5001', `writes fail, queries still work: ${error.trouble}`, 5);
  }
}

/** Replaces the console if identity is remote: Keystone has no sessions, and its users are managed with its own tools. */
export function noConsoleRoutes(): Route[] {
  return ['/console', '/console/*'].map((url) => ({
    method: 'GET',
    url,
    schema: { hide: true },
    async handler() {
      throw noConsole();
    },
  }));
}

function noConsole(): ApiError {
  return new ApiError(
    'WAF.4000',
    'there is no console here, because users and projects are in an external Keystone',
  );
}
