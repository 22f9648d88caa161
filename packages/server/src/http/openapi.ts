/**
 * The OpenAPI file, generated on the first request: few clients ask for it, and loading the generator would take a tenth
 * of the start-up time.
 */
import swagger, { type SwaggerOptions } from '@fastify/swagger';
import { fastify, type RouteOptions } from 'fastify';
import { NO_COMPILERS } from './no-compilers.ts';

export async function openApi(
  frame: SwaggerOptions,
  routes: readonly Pick<RouteOptions, 'method' | 'url' | 'schema'>[],
): Promise<object> {
  const app = fastify({ exposeHeadRoutes: false, schemaController: NO_COMPILERS });
  // Routes are only described here, never called.
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => JSON.stringify);
  await app.register(swagger, frame);
  for (const { method, url, schema = {} } of routes) app.route({ method, url, schema, handler() {} });
  await app.ready();
  return app.swagger();
}
