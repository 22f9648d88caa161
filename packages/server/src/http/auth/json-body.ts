/** Reads JSON request bodies. */
import { malformed } from '../../errors.ts';
import { valueAt } from '../../json-path.ts';

export function parseJson(body: unknown): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) throw malformed('the request has no body: send JSON');
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw malformed('the request body is not valid JSON');
  }
}

export function textAt(fields: unknown, path: string): string {
  const value = valueAt(fields, path);
  if (typeof value === 'string' && value.length > 0) return value;
  throw malformed(`${path} must be a non-empty string`);
}

/** Undefined if the field is absent. */
export function optionalOneOf<T extends string>(
  fields: unknown,
  path: string,
  allowed: readonly T[],
): T | undefined {
  const value = valueAt(fields, path);
  const found = allowed.find((one) => one === value);
  if (found !== undefined || value === undefined) return found;
  throw malformed(`${path} must be one of: ${allowed.join(', ')}`);
}

/** Undefined if the field is absent. */
export function optionalTextAt(fields: unknown, path: string): string | undefined {
  const value = valueAt(fields, path);
  if (value === undefined || typeof value === 'string') return value;
  throw malformed(`${path} must be a string`);
}

/** Undefined if the field is absent. */
export function optionalFlagAt(fields: unknown, path: string): boolean | undefined {
  const value = valueAt(fields, path);
  if (value === undefined || typeof value === 'boolean') return value;
  throw malformed(`${path} must be true or false`);
}
