/** The body of a token request: what the interface specification shows, and the family's other ways to say it. */
import { ApiError } from '../../errors.ts';
import type {
  DomainReference,
  PasswordLogin,
  ScopeReference,
  UserReference,
} from '../../identity/authentication.ts';

export function parseLogin(body: unknown): PasswordLogin {
  const fields = parseJson(body);
  const methods = at(fields, 'auth.identity.methods');
  if (!Array.isArray(methods) || !methods.includes('password')) {
    throw malformed("auth.identity.methods must contain 'password'");
  }
  return {
    user: userAt(fields, 'auth.identity.password.user'),
    password: text(fields, 'auth.identity.password.user.password'),
    scope: scopeAt(fields, 'auth.scope'),
  };
}

function userAt(fields: unknown, path: string): UserReference {
  if (at(fields, `${path}.id`) !== undefined) return { id: text(fields, `${path}.id`) };
  return { name: text(fields, `${path}.name`), domain: domainAt(fields, `${path}.domain`) };
}

/** A project wins when both are given. */
function scopeAt(fields: unknown, path: string): ScopeReference {
  if (at(fields, `${path}.project`) !== undefined) {
    const project = `${path}.project`;
    return at(fields, `${project}.id`) === undefined
      ? { project: { name: text(fields, `${project}.name`), domain: domainAt(fields, `${project}.domain`) } }
      : { project: { id: text(fields, `${project}.id`) } };
  }
  if (at(fields, `${path}.system.all`) === true) return { system: true };
  if (at(fields, `${path}.domain`) !== undefined) return { domain: domainAt(fields, `${path}.domain`) };
  throw malformed(`${path} must hold a project`);
}

function domainAt(fields: unknown, path: string): DomainReference {
  return at(fields, `${path}.id`) === undefined
    ? { name: text(fields, `${path}.name`) }
    : { id: text(fields, `${path}.id`) };
}

export function parseJson(body: unknown): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) throw malformed('the request has no body');
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw malformed('the request body is not JSON');
  }
}

export function text(fields: unknown, path: string): string {
  const value = at(fields, path);
  if (typeof value === 'string' && value.length > 0) return value;
  throw malformed(`${path} must be a string that is not empty`);
}

/** The value at `a.b.c`, own properties only, or undefined. */
export function at(fields: unknown, path: string): unknown {
  let value = fields;
  for (const key of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

export function malformed(message: string): ApiError {
  return new ApiError('WAF.1001', message);
}
