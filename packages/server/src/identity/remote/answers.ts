/** What the answers of Keystone v3 say, of all that they hold. Whatever is not as it should be is an IdentityUnavailable. */
import type { Caller } from '../authenticator.ts';
import { ACCESS_TYPES, type AccessType, ROLES, type Role } from '../records.ts';
import { type SigningKey, signingKey } from '../signature.ts';
import { IdentityUnavailable } from '../unavailable.ts';

export interface KnownToken {
  caller: Caller;
  expires_at: number;
}

export interface KnownKey {
  user_id: string;
  /** Keystone's keys are each for one project; ours are good wherever their user has a role. */
  project_id: string | null;
  /** Null when the key is disabled. */
  signing: SigningKey | null;
}

export interface KnownUser {
  id: string;
  name: string;
  domain_id: string;
  enabled: boolean;
  access: AccessType;
}

export function readSignIn(body: unknown): { validMs: number } {
  return { validMs: timeAt(body, 'token.expires_at') - timeAt(body, 'token.issued_at') };
}

export function readToken(body: unknown): KnownToken {
  const user = {
    id: textAt(body, 'token.user.id'),
    name: textAt(body, 'token.user.name'),
    domain_id: textAt(body, 'token.user.domain.id'),
  };
  const expires_at = timeAt(body, 'token.expires_at');
  if (at(body, 'token.project') === undefined) {
    // For a domain, the system or nothing at all: neither is enough for the statistics.
    return {
      caller: { user: { ...user, roles: {} }, scope: { domain: { id: user.domain_id } } },
      expires_at,
    };
  }
  const project = {
    id: textAt(body, 'token.project.id'),
    domain_id: textAt(body, 'token.project.domain.id'),
  };
  const roles = { [project.id]: rolesNamed(listAt(body, 'token.roles').map((role) => at(role, 'name'))) };
  return { caller: { user: { ...user, roles }, scope: { project } }, expires_at };
}

/** Null for what is no access key that we can take. */
export function readKey(body: unknown, access: string): KnownKey | null {
  if (at(body, 'credential.type') !== 'ec2') return null;
  const blob = parsed(textAt(body, 'credential.blob'));
  if (at(blob, 'access') !== access) return null;
  // Made under a trust or an application credential it may do less than its user, and what is not to be seen here.
  if (['trust_id', 'app_cred_id', 'access_token_id'].some((name) => at(blob, name) != null)) return null;
  const project_id = at(body, 'credential.project_id') ?? null;
  const active = at(body, 'credential.status') !== 'inactive';
  return {
    user_id: textAt(body, 'credential.user_id'),
    project_id: project_id === null ? null : textAt(body, 'credential.project_id'),
    signing: active ? signingKey(textAt(blob, 'secret')) : null,
  };
}

export function readUser(body: unknown): KnownUser {
  const access = at(body, 'user.access');
  return {
    id: textAt(body, 'user.id'),
    name: textAt(body, 'user.name'),
    domain_id: textAt(body, 'user.domain_id'),
    enabled: at(body, 'user.enabled') === true,
    // Keystone knows no access types.
    access: ACCESS_TYPES.find((type) => type === access) ?? 'both',
  };
}

export function readProject(body: unknown): { domain_id: string; enabled: boolean } {
  return { domain_id: textAt(body, 'project.domain_id'), enabled: at(body, 'project.enabled') === true };
}

export function readDomain(body: unknown): { enabled: boolean } {
  return { enabled: at(body, 'domain.enabled') === true };
}

/** Only those in the project itself: what holds there for other reasons is there too, because we ask what is effective. */
export function readRoles(body: unknown, projectId: string): Role[] {
  const inProject = listAt(body, 'role_assignments').filter(
    (assignment) => at(assignment, 'scope.project.id') === projectId,
  );
  return rolesNamed(inProject.map((assignment) => at(assignment, 'role.name')));
}

/** Roles are the same by name; those of other services mean nothing here. */
function rolesNamed(names: readonly unknown[]): Role[] {
  return ROLES.filter((role) => names.includes(role));
}

/** The value at `a.b.c`, own properties only, or undefined. */
function at(body: unknown, path: string): unknown {
  let value = body;
  for (const key of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

function textAt(body: unknown, path: string): string {
  const value = at(body, path);
  if (typeof value === 'string' && value.length > 0) return value;
  throw new IdentityUnavailable(`the answer of the identity service has no ${path}`);
}

function listAt(body: unknown, path: string): unknown[] {
  const value = at(body, path);
  if (Array.isArray(value)) return value;
  throw new IdentityUnavailable(`the answer of the identity service has no list ${path}`);
}

function timeAt(body: unknown, path: string): number {
  const time = Date.parse(textAt(body, path));
  if (Number.isNaN(time)) throw new IdentityUnavailable(`${path} of the identity service is not a time`);
  return time;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
