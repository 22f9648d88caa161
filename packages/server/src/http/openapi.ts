/**
 * The OpenAPI file, generated on the first request: few clients ask for it, and loading the generator would take a tenth
 * of the start-up time.
 */
import swagger, { type SwaggerOptions } from '@fastify/swagger';
import { fastify, type RouteOptions } from 'fastify';
import { ERRORS } from '../errors.ts';
import { NO_COMPILERS } from './no-compilers.ts';
import { integer, object, string } from './route.ts';

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
  // All operations have responses, which the published types do not say.
  return withErrors(app.swagger() as unknown as Document);
}

interface Document {
  paths: Record<string, Record<string, { responses: Record<string, object> }>>;
  components: object;
}

const SCHEMAS = {
  Error: object({
    error_code: string('One of the codes in docs/errors.md.'),
    error_msg: string('Names the parameter and says what is wrong with it.'),
  }),
  IdentityError: object({
    error: object({
      code: integer('The status.'),
      title: string('The text of the status.'),
      message: string('What is wrong.'),
    }),
  }),
};

/** Every call can return the same errors, in the format of its API. */
function withErrors({ paths, components, ...rest }: Document): Document {
  const errors = { Error: errorsOf('Error'), IdentityError: errorsOf('IdentityError') };
  for (const [path, operations] of Object.entries(paths)) {
    const kind = path.startsWith('/v3') ? 'IdentityError' : 'Error';
    const references = Object.keys(errors[kind]).map((name) => [
      name.slice(kind.length),
      { $ref: `#/components/responses/${name}` },
    ]);
    for (const operation of Object.values(operations))
      operation.responses = { ...Object.fromEntries(references), ...operation.responses };
  }
  const responses = { ...errors.Error, ...errors.IdentityError };
  return { ...rest, paths, components: { ...components, schemas: SCHEMAS, responses } };
}

/** By name. A path that is described supports its method, so there is no 405. */
function errorsOf(kind: keyof typeof SCHEMAS): Record<string, object> {
  const schema = { $ref: `#/components/schemas/${kind}` };
  const responses: Record<string, { description: string }> = {};
  for (const [code, { status, when }] of Object.entries(ERRORS)) {
    if (status === 405) continue;
    const other = responses[`${kind}${status}`];
    const description = `${other ? `${other.description}; ` : ''}${kind === 'Error' ? `${code}: ` : ''}${when}`;
    responses[`${kind}${status}`] = { description, ...{ content: { 'application/json': { schema } } } };
  }
  return responses;
}
