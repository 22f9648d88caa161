/** Identity in an external Keystone v3. Records are looked up there and cached. */
import { hash } from 'node:crypto';
import { type Authenticator, type Caller, type SignatureRefusal, sameSecret } from '../authenticator.ts';
import type { Role } from '../records.ts';
import { checkSignature, type PendingSignature } from '../signature.ts';
import {
  createKeystoneClient,
  createTransport,
  type KeystoneClient,
  type ServiceUser,
} from './keystone-client.ts';
import {
  type KeystoneKey,
  type KeystoneToken,
  readDomain,
  readKey,
  readProject,
  readRoles,
  readToken,
  readUser,
} from './keystone-responses.ts';
import { LookupCache } from './lookup-cache.ts';

/** A lookup takes milliseconds; a caller who waits longer has given up. */
const LOOKUP_LIMITS = { timeoutMs: 5_000, callsMax: 256 };
/** Keystone's longest tokens have about 2 KB; web servers accept no header over 8 KB. */
const TOKEN_LENGTH_MAX = 8_000;

export interface RemoteIdentity {
  kind: 'remote';
  authenticator: Authenticator;
  /** Rejects if Keystone does not respond, or rejects the service user. */
  check(): Promise<void>;
  close(): void;
}

interface RemoteIdentityOptions {
  /** The URL of Keystone without `/v3`. */
  baseUrl: string;
  user: ServiceUser;
  /** Revoked credentials keep working for at most this long. */
  cacheTtlMs: number;
  now: () => number;
}

export function openRemoteIdentity(options: RemoteIdentityOptions): RemoteIdentity {
  const { baseUrl, user, cacheTtlMs, now } = options;
  const lookups = createTransport(baseUrl, LOOKUP_LIMITS);
  const client = createKeystoneClient(lookups, user, now);
  return {
    kind: 'remote',
    authenticator: createRemoteAuthenticator(client, cacheTtlMs, now),
    check: () => client.check(),
    close: () => lookups.close(),
  };
}

function createRemoteAuthenticator(
  client: KeystoneClient,
  cacheTtlMs: number,
  now: () => number,
): Authenticator {
  /** A cached lookup by ID. */
  function lookup<T extends {}>(path: (id: string) => string, read: (body: unknown) => T | null) {
    const cache = new LookupCache<T>(cacheTtlMs, now);
    return (id: string) => cache.get(id, () => client.get(path(encodeURIComponent(id)), read));
  }
  const findUser = lookup((id) => `/v3/users/${id}`, readUser);
  const findProject = lookup((id) => `/v3/projects/${id}`, readProject);
  const findDomain = lookup((id) => `/v3/domains/${id}`, readDomain);
  const keys = new LookupCache<KeystoneKey>(cacheTtlMs, now);
  const roles = new LookupCache<Role[]>(cacheTtlMs, now);
  const tokens = new LookupCache<KeystoneToken>(cacheTtlMs, now);

  /** Keystone's ID of a credential is a hash, so its log does not contain the access key ID. */
  async function findKey(access: string): Promise<KeystoneKey | null> {
    const id = hash('sha256', access);
    return keys.get(id, () => client.get(`/v3/credentials/${id}`, (body) => readKey(body, access)));
  }

  /** Checks that the project is enabled; for tokens, Keystone does that itself. */
  async function rolesIn(userId: string, projectId: string): Promise<Role[]> {
    const project = await findProject(projectId);
    if (!project?.enabled || !(await findDomain(project.domain_id))?.enabled) return [];
    const query = new URLSearchParams({ 'user.id': userId, 'scope.project.id': projectId }).toString();
    const found = await roles.get(query, () =>
      client.get(`/v3/role_assignments?${query}&effective&include_names`, (body) =>
        readRoles(body, projectId),
      ),
    );
    return found ?? [];
  }

  async function admitKey({ access }: Pick<PendingSignature, 'access'>): Promise<Caller | SignatureRefusal> {
    const key = await findKey(access);
    const user = key && (await findUser(key.user_id));
    if (key === null || user === null) return { reason: 'unknown_key' };
    if (!user.enabled || !(await findDomain(user.domain_id))?.enabled) return { reason: 'user_disabled' };
    const { project_id } = key;
    const project = { id: project_id, domain_id: user.domain_id };
    return {
      user: { ...user, roles: { [project_id]: await rolesIn(user.id, project_id) } },
      scope: { project },
    };
  }

  return {
    async checkToken(text) {
      if (text.length > TOKEN_LENGTH_MAX) return 'not_valid';
      const token = await tokens.get(hash('sha256', text), () =>
        client.get('/v3/auth/tokens?nocatalog', readToken, { 'X-Subject-Token': text }),
      );
      if (token === null) return 'not_valid';
      return token.expires_at <= now() ? 'expired' : token.caller;
    },
    /** There is no console with a Keystone. */
    checkSession: async () => 'unknown',
    admitKey,
    async checkSignature(request, pending, body) {
      // Looked up again: the key may have been revoked while the body was arriving.
      const key = await findKey(pending.access);
      return key === null ? { reason: 'unknown_key' } : checkSignature(request, pending, key.secret, body);
    },
    async checkSecret(access, secret) {
      const caller = await admitKey({ access });
      if ('reason' in caller) return caller;
      const key = await findKey(access);
      return key && sameSecret(secret, key.secret) ? caller : { reason: 'wrong_secret' };
    },
    async rolesInProject({ user, scope }, projectId) {
      const isInScope = scope !== 'unscoped' && 'project' in scope && scope.project.id === projectId;
      return isInScope ? (user.roles[projectId] ?? []) : [];
    },
    projectNamed: () => undefined,
  };
}
