/** Compares responses with docs/openapi.json: Fastify serializes them without their schemas. */
import { readFileSync } from 'node:fs';

interface Schema {
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
}

interface Operation {
  responses: Record<string, { content?: Record<string, { schema?: Schema }> }>;
}

const { paths }: { paths: Record<string, Record<string, Operation>> } = JSON.parse(
  readFileSync(new URL('../docs/openapi.json', import.meta.url), 'utf8'),
);
// Those with fewer parameters first: /v3/auth/projects is not /v3/{id}/projects.
const operations = Object.entries(paths)
  .map(([path, methods]) => ({ pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`), methods }))
  .sort((a, b) => a.pattern.source.split('[').length - b.pattern.source.split('[').length);

/** At each end of a list. The points of a timeline are all alike, and tests read thousands of them many times. */
const ITEMS_MAX = 50;

/** Throws if a successful JSON response has a field that is not documented, or lacks a required one. */
export function checkDocumented(method: string, url: string, status: number, body: string): void {
  const [path = ''] = url.split('?', 1);
  const operation = operations.find(({ pattern }) => pattern.test(path))?.methods[method.toLowerCase()];
  const schema = operation?.responses[status]?.content?.['application/json']?.schema;
  if (status >= 300 || schema === undefined) return;
  const faults = faultsIn(JSON.parse(body), schema, '');
  if (faults.length > 0)
    throw new Error(`${method} ${path} differs from docs/openapi.json: ${faults.join(', ')}`);
}

function faultsIn(value: unknown, schema: Schema, at: string): string[] {
  if (Array.isArray(value)) {
    const { items } = schema;
    if (items === undefined) return [];
    const last = value.length - ITEMS_MAX;
    return value.flatMap((item, i) =>
      i < ITEMS_MAX || i >= last ? faultsIn(item, items, `${at}[${i}]`) : [],
    );
  }
  if (typeof value !== 'object' || value === null) return [];
  const { properties, additionalProperties: others = false, required = [] } = schema;
  const missing = required.filter((name) => !Object.hasOwn(value, name)).map((name) => `no ${at}.${name}`);
  const found = Object.entries(value).flatMap(([name, one]) => {
    const documented = properties?.[name] ?? others;
    if (documented === false) return `undocumented ${at}.${name}`;
    return documented === true ? [] : faultsIn(one, documented, `${at}.${name}`);
  });
  return [...missing, ...found];
}
