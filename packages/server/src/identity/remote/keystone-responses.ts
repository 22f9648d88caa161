/** Reads the responses of Keystone v3. Throws IdentityUnavailable if a required field is missing. */
import { createSecretKey, type KeyObject } from 'node:crypto';
import { valueAt } from '../../json-path.ts';
import type { Caller } from '../authenticator.ts';
import { IdentityUnavailable } from '../errors.ts';
import { ROLES, type Role, type User } from '../records.ts';

export interface KeystoneToken {
  caller: Caller;
  expires_at: number;
}

export interface KeystoneKey {
  user_id: string;
  /** The only project in which the key is valid. */
  project_id: string;
  secret: KeyObject;
}

export function readTokenLifetimeMs(body: unknown): number {
  return timeAt(body, 'token.expires_at') - timeAt(body, 'token.issued_at');
}

export function readToken(body: unknown): KeystoneToken {
  const user = {
    id: textAt(body, 'token.user.id'),
    name: textAt(body, 'token.user.name'),
    domain_id: textAt(body, 'token.user.domain.id'),
  };
  const expires_at = timeAt(body, 'token.expires_at');
  if (valueAt(body, 'token.project') === undefined) {
    // A token for a domain, the system or nothing gives no access to statistics.
    return {
      caller: { user: { ...user, roles: {} }, scope: { domain: { id: user.domain_id } } },
      expires_at,
    };
  }
  const project = {
    id: textAt(body, 'token.project.id'),
    domain_id: textAt(body, 'token.project.domain.id'),
  };
  const roles = {
    [project.id]: rolesNamed(listAt(body, 'token.roles').map((role) => valueAt(role, 'name'))),
  };
  return { caller: { user: { ...user, roles }, scope: { project } }, expires_at };
}

/** Null if the credential is not a usable access key. */
export function readKey(body: unknown, access: string): KeystoneKey | null {
  if (valueAt(body, 'credential.type') !== 'ec2') return null;
  const blob = parseJson(textAt(body, 'credential.blob'));
  if (valueAt(blob, 'access') !== access) return null;
  // A key of a trust or application credential has fewer rights than its user; the response does not say which.
  if (['trust_id', 'app_cred_id', 'access_token_id'].some((name) => valueAt(blob, name) != null)) return null;
  // Keystone requires a project to create such a credential, but not to change it.
  if (valueAt(body, 'credential.project_id') == null) return null;
  return {
    user_id: textAt(body, 'credential.user_id'),
    project_id: textAt(body, 'credential.project_id'),
    secret: createSecretKey(textAt(blob, 'secret'), 'utf8'),
  };
}

export function readUser(body: unknown): Pick<User, 'id' | 'name' | 'domain_id' | 'enabled'> {
  return {
    id: textAt(body, 'user.id'),
    name: textAt(body, 'user.name'),
    domain_id: textAt(body, 'user.domain_id'),
    enabled: valueAt(body, 'user.enabled') === true,
  };
}

export function readProject(body: unknown): { domain_id: string; enabled: boolean } {
  return { domain_id: textAt(body, 'project.domain_id'), enabled: valueAt(body, 'project.enabled') === true };
}

export function readDomain(body: unknown): { enabled: boolean } {
  return { enabled: valueAt(body, 'domain.enabled') === true };
}

/** Assignments in the project only: the query for effective roles already includes inherited ones. */
export function readRoles(body: unknown, projectId: string): Role[] {
  const inProject = listAt(body, 'role_assignments').filter(
    (assignment) => valueAt(assignment, 'scope.project.id') === projectId,
  );
  return rolesNamed(inProject.map((assignment) => valueAt(assignment, 'role.name')));
}

/** Ignores the roles of other services. */
function rolesNamed(names: readonly unknown[]): Role[] {
  return ROLES.filter((role) => names.includes(role));
}

function textAt(body: unknown, path: string): string {
  const value = valueAt(body, path);
  if (typeof value === 'string' && value.length > 0) return value;
  throw new IdentityUnavailable(`the response of Keystone has no ${path}`);
}

function listAt(body: unknown, path: string): unknown[] {
  const value = valueAt(body, path);
  if (Array.isArray(value)) return value;
  throw new IdentityUnavailable(`the response of Keystone has no list ${path}`);
}

function timeAt(body: unknown, path: string): number {
  const time = Date.parse(textAt(body, path));
  if (Number.isNaN(time)) throw new IdentityUnavailable(`${path} in the response of Keystone is not a time`);
  return time;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
