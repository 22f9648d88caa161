/**
 * The OpenAPI file, made when a client asks for it: few do, and loading the generator takes a tenth of the time that the
 * service takes to start.
 */
import swagger, { type SwaggerOptions } from '@fastify/swagger';
import { fastify, type RouteOptions } from 'fastify';

/** The bundle has no compilers of schemas, and routes are only described here, never called. */
const NO_COMPILERS = { compilersFactory: { buildValidator: neverCalled, buildSerializer: neverCalled } };

export async function openApi(
  frame: SwaggerOptions,
  routes: readonly Pick<RouteOptions, 'method' | 'url' | 'schema'>[],
): Promise<object> {
  const app = fastify({ exposeHeadRoutes: false, schemaController: NO_COMPILERS });
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => JSON.stringify);
  await app.register(swagger, frame);
  for (const { method, url, schema = {} } of routes) app.route({ method, url, schema, handler() {} });
  await app.ready();
  return app.swagger();
}

function neverCalled(): never {
  throw new Error('the compilers are set');
}
