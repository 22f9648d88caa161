/** Compares responses with docs/openapi.json: Fastify serializes them without their schemas. */
import { readFileSync } from 'node:fs';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';

interface Schema {
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
}

interface Response {
  $ref?: string;
  content?: Record<string, { schema?: Schema }>;
}

interface Document {
  paths: Record<string, Record<string, { responses: Record<string, Response> }>>;
  components: { responses: Record<string, Response>; schemas: Record<string, Schema> };
}

const { paths, components }: Document = JSON.parse(
  readFileSync(new URL('../docs/openapi.json', import.meta.url), 'utf8'),
);
// Those with fewer parameters first: /v3/auth/projects is not /v3/{id}/projects.
const operations = Object.entries(paths)
  .map(([path, methods]) => ({ pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}/?$`), methods }))
  .sort((a, b) => a.pattern.source.split('[').length - b.pattern.source.split('[').length);

const ajv = new Ajv2020({ strict: false, allErrors: true });
const schemas = Object.fromEntries(
  Object.entries(components.schemas).map(([name, schema]) => [name, onlyDocumented(schema)]),
);
const validators = new Map<Schema, ValidateFunction>();

/** Throws if a response has a status or a field that is not documented, or a value of another type. */
export function checkDocumented(method: string, url: string, status: number, body: string): void {
  const [path = ''] = url.replace(/^\/identity(?=\/v3)/, '').split('?', 1);
  const methods = operations.find(({ pattern }) => pattern.test(path))?.methods;
  const operation = methods?.[method === 'HEAD' ? 'get' : method.toLowerCase()];
  if (operation === undefined) return;
  const documented = operation.responses[status];
  if (documented === undefined)
    throw new Error(`${method} ${path} returns ${status}, which docs/openapi.json does not have: ${body}`);
  const { content } = documented.$ref
    ? (components.responses[documented.$ref.slice('#/components/responses/'.length)] ?? {})
    : documented;
  const schema = content?.['application/json']?.schema;
  if (schema === undefined || body === '') return;
  const validate =
    validators.get(schema) ?? ajv.compile({ ...onlyDocumented(schema), components: { schemas } });
  validators.set(schema, validate);
  if (!validate(JSON.parse(body)))
    throw new Error(`${method} ${path} differs from docs/openapi.json: ${ajv.errorsText(validate.errors)}`);
}

/** The schema without fields that are not documented. */
function onlyDocumented(schema: Schema): Schema {
  const { properties, additionalProperties = properties === undefined, items } = schema;
  const entries = Object.entries(properties ?? {}).map(([name, one]) => [name, onlyDocumented(one)]);
  return {
    ...schema,
    ...(properties && { properties: Object.fromEntries(entries), additionalProperties }),
    ...(items && { items: onlyDocumented(items) }),
  };
}
