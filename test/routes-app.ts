import { type FastifyInstance, fastify } from 'fastify';
import { sendFailure } from '../packages/server/src/http/failures.ts';
import { mount, type Route } from '../packages/server/src/http/route.ts';

/** Routes without authentication: the caller is always the same user. */
export function appOf(routes: readonly Route[]): FastifyInstance {
  const app = fastify();
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => JSON.stringify);
  app.setErrorHandler(sendFailure);
  app.decorate('stopping', false);
  app.decorateRequest('caller', null);
  app.addHook('onRequest', async (request) => {
    request.caller = { user: { id: 'u', name: 'u', domain_id: 'd', roles: {} }, scope: 'unscoped' };
  });
  mount(app, routes);
  return app;
}
