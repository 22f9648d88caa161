/** What operators and browsers ask of the process itself. None of it needs authentication, none of it tells anything. */
import { ApiError } from '../errors.ts';
import type { Store } from '../store/store.ts';
import type { Route } from './route.ts';

export function serviceRoutes(store: Store, openapi: () => object): Route[] {
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
        summary: 'The service can answer queries',
        response: {
          200: { description: 'It can', ...STATUS },
          503: { description: 'The store does not answer' },
        },
      },
      async handler() {
        await store.ping();
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
        return reply.redirect('/console/');
      },
    },
  ];
}
