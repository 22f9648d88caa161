/** What operators and browsers ask of the process itself. None of it needs authentication, none of it tells anything. */
import { ApiError } from '../errors.ts';
import { IdentityNotWritable } from '../identity/errors.ts';
import type { Identity } from '../identity/identity.ts';
import type { RemoteIdentity } from '../identity/remote/remote-identity.ts';
import { type Store, StoreNotWritable } from '../store/store.ts';
import type { Route } from './route.ts';

/** With a remote `identity`, the console is on the other service too. */
export function serviceRoutes(
  store: Store,
  identity: Identity | RemoteIdentity,
  openapi: () => object,
): Route[] {
  const remote = identity.kind === 'remote' ? identity : null;
  const STATUS = { type: 'object', properties: { status: { type: 'string' } } } as const;
  return [
    {
      method: 'GET',
      url: '/healthz',
      schema: {
        operationId: 'healthz',
        tags: ['service'],
        summary: 'The process runs',
        response: { 200: { description: 'It does', ...STATUS } },
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
        summary: 'The service can answer queries and count events',
        response: {
          200: { description: 'The service is ready', ...STATUS },
          503: {
            description:
              'The service is shutting down, the store or the identity service does not respond, or writes fail (a full disk, for example) while queries are still answered',
          },
        },
      },
      async handler(request) {
        // First of all, so that load balancers send no more requests while there is still time.
        if (request.server.draining) throw new ApiError('WAF.5001', 'the service is shutting down');
        await store.ping();
        await remote?.check();
        await checkWrites(store, identity.kind === 'local' ? identity : null);
        return { status: 'ready' };
      },
    },
    {
      method: 'GET',
      url: '/openapi.json',
      schema: { hide: true },
      async handler() {
        return openapi();
      },
    },
    {
      method: 'GET',
      url: '/',
      schema: { hide: true },
      /** Only for browsers: API clients that probe `/` take any JSON here for an identity service. */
      async handler(request, reply) {
        if (!request.headers.accept?.includes('text/html'))
          throw new ApiError('WAF.4000', 'there is no path /');
        if (remote) throw consoleElsewhere();
        return reply.redirect('/console/');
      },
    },
  ];
}

/** Anyone may ask for readiness: the reason goes out without paths, and whole into the log. */
async function checkWrites(store: Store, identity: Identity | null): Promise<void> {
  try {
    await store.checkWrites();
    await identity?.checkWrites();
  } catch (error) {
    if (!(error instanceof StoreNotWritable || error instanceof IdentityNotWritable)) throw error;
    throw new ApiError('WAF.5001', `writes fail, queries are answered: ${error.trouble}`, {
      'Retry-After': '5',
    });
  }
}

/** Instead of the console, where identity is kept elsewhere: its sessions and what it manages are there. */
export function consoleElsewhereRoutes(): Route[] {
  return ['/console', '/console/*'].map((url) => ({
    method: 'GET',
    url,
    schema: { hide: true },
    async handler() {
      throw consoleElsewhere();
    },
  }));
}

function consoleElsewhere(): ApiError {
  return new ApiError('WAF.4000', 'there is no console here: the service that keeps the identity has it');
}
