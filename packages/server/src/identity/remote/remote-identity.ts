/** Identity at another service: another wafstat, or a Keystone v3. Records are looked up there and cached. */
import { hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { type MaybePromise, mapMaybe } from '../../maybe-promise.ts';
import {
  type Authenticator,
  type Caller,
  type SignatureRefusal,
  sameSecret,
  signatureRefusal,
  type TokenRefusal,
} from '../authenticator.ts';
import type { Role } from '../records.ts';
import { type BodyHash, checkSignature, type PendingSignature, type SignedRequest } from '../signature.ts';
import { type Call, createTransport, KeystoneClient, type ServiceUser } from './keystone-client.ts';
import {
  type KeystoneKey,
  type KeystoneToken,
  type KeystoneUser,
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
/** Logins may be delayed up to 15 s. Separate limits, so that they do not block lookups. */
const FORWARD_LIMITS = { timeoutMs: 30_000, callsMax: 64 };
/** Keystone's longest tokens have about 2 KB; web servers accept no header over 8 KB. */
const TOKEN_LENGTH_MAX = 8_000;

export interface RemoteIdentity {
  kind: 'remote';
  authenticator: RemoteAuthenticator;
  /** Rejects if the identity service does not respond, or rejects the service user. */
  check(): Promise<void>;
  /** Forwards an identity request of a client unchanged. Rejects with IdentityUnavailable. */
  forward(call: Call): Promise<IncomingMessage>;
  close(): Promise<void>;
}

export interface RemoteIdentityOptions {
  /** Without `/v3`. */
  baseUrl: string;
  user: ServiceUser;
  /** Revoked credentials keep working for at most this long. */
  cacheTtlMs: number;
  now: () => number;
}

export function openRemoteIdentity({
  baseUrl,
  user,
  cacheTtlMs,
  now,
}: RemoteIdentityOptions): RemoteIdentity {
  const lookups = createTransport(baseUrl, LOOKUP_LIMITS);
  const forwards = createTransport(baseUrl, FORWARD_LIMITS);
  const client = new KeystoneClient(lookups, user, now);
  let supportsPrefix: Promise<boolean> | null = null;

  /** Whether the service also has its API under `/identity`. A signature covers the path, so it must not change. */
  async function detectPrefix(): Promise<boolean> {
    const response = await forwards.send({ method: 'GET', path: '/identity/', headers: {} });
    response.resume();
    return response.statusCode === 300;
  }

  return {
    kind: 'remote',
    authenticator: new RemoteAuthenticator(client, cacheTtlMs, now),
    check: () => client.check(),
    async forward(call) {
      if (!call.path.startsWith('/identity')) return forwards.send(call);
      supportsPrefix ??= detectPrefix().catch((error) => {
        supportsPrefix = null;
        throw error;
      });
      if (await supportsPrefix) return forwards.send(call);
      return forwards.send({ ...call, path: call.path.slice('/identity'.length) || '/' });
    },
    async close() {
      lookups.close();
      forwards.close();
    },
  };
}

export class RemoteAuthenticator implements Authenticator {
  readonly #client: KeystoneClient;
  readonly #now: () => number;
  readonly #tokens: LookupCache<KeystoneToken>;
  readonly #keys: LookupCache<KeystoneKey>;
  readonly #users: LookupCache<KeystoneUser>;
  readonly #projects: LookupCache<ReturnType<typeof readProject>>;
  readonly #domains: LookupCache<ReturnType<typeof readDomain>>;
  readonly #roles: LookupCache<Role[]>;

  constructor(client: KeystoneClient, cacheTtlMs: number, now: () => number) {
    this.#client = client;
    this.#now = now;
    this.#tokens = new LookupCache(cacheTtlMs, now);
    this.#keys = new LookupCache(cacheTtlMs, now);
    this.#users = new LookupCache(cacheTtlMs, now);
    this.#projects = new LookupCache(cacheTtlMs, now);
    this.#domains = new LookupCache(cacheTtlMs, now);
    this.#roles = new LookupCache(cacheTtlMs, now);
  }

  checkToken(text: string): MaybePromise<Caller | TokenRefusal> {
    if (text.length > TOKEN_LENGTH_MAX) return 'not_valid';
    const found = this.#tokens.get(hash('sha256', text), () =>
      this.#client.get('/v3/auth/tokens?nocatalog', readToken, { 'X-Subject-Token': text }),
    );
    return mapMaybe(found, (token) => {
      if (token === null) return 'not_valid';
      return token.expires_at <= this.#now() ? 'expired' : token.caller;
    });
  }

  /** For a token that was revoked through this process. */
  forgetToken(text: string): void {
    this.#tokens.delete(hash('sha256', text));
  }

  /** Console sessions exist only at the service that has the console. */
  checkSession(): 'unknown' {
    return 'unknown';
  }

  async admitKey({ access }: Pick<PendingSignature, 'access'>): Promise<Caller | SignatureRefusal> {
    const key = await this.#key(access);
    const user = key && (await this.#user(key.user_id));
    if (key === null || user === null) return { reason: 'unknown_key' };
    if (key.secret === null) return { reason: 'inactive_key' };
    if (!user.enabled || !(await this.#domain(user.domain_id))?.enabled) return { reason: 'user_disabled' };
    if (user.access === 'console') return { reason: 'console_only' };
    if (key.project_id === null) return { user: { ...user, roles: {} }, scope: 'unscoped' };
    const roles = { [key.project_id]: await this.#rolesIn(user.id, key.project_id) };
    const project = { id: key.project_id, domain_id: user.domain_id };
    return { user: { ...user, roles }, scope: { project } };
  }

  async checkSignature(
    request: SignedRequest,
    pending: PendingSignature,
    body: Uint8Array | BodyHash,
  ): Promise<SignatureRefusal | null> {
    // Looked up again: the key may have been revoked while the body was arriving.
    const key = await this.#key(pending.access);
    if (key === null) return { reason: 'unknown_key' };
    if (key.secret === null) return { reason: 'inactive_key' };
    return signatureRefusal(checkSignature(request, pending, key.secret, body));
  }

  async checkSecret(access: string, secret: string): Promise<Caller | SignatureRefusal> {
    const caller = await this.admitKey({ access });
    if ('reason' in caller) return caller;
    const key = await this.#key(access);
    const isCorrect = key?.secret != null && sameSecret(secret, key.secret);
    return isCorrect ? caller : { reason: 'wrong_secret' };
  }

  rolesInProject({ user, scope }: Caller, projectId: string): MaybePromise<readonly Role[]> {
    if (scope === 'unscoped') return this.#rolesIn(user.id, projectId);
    return 'project' in scope && scope.project.id === projectId ? (user.roles[projectId] ?? []) : [];
  }

  /** Checks that the project is enabled; for tokens, the identity service does that itself. */
  async #rolesIn(userId: string, projectId: string): Promise<Role[]> {
    const project = await this.#projects.get(projectId, () =>
      this.#client.get(`/v3/projects/${encodeURIComponent(projectId)}`, readProject),
    );
    if (!project?.enabled || !(await this.#domain(project.domain_id))?.enabled) return [];
    const query = new URLSearchParams({ 'user.id': userId, 'scope.project.id': projectId });
    const roles = await this.#roles.get(query.toString(), () =>
      this.#client.get(`/v3/role_assignments?${query}&effective&include_names`, (body) =>
        readRoles(body, projectId),
      ),
    );
    return roles ?? [];
  }

  /** Keystone's ID of a credential is a hash, so its log does not contain the access key ID. */
  async #key(access: string): Promise<KeystoneKey | null> {
    const id = hash('sha256', access);
    return this.#keys.get(id, () =>
      this.#client.get(`/v3/credentials/${id}`, (body) => readKey(body, access)),
    );
  }

  async #user(id: string): Promise<KeystoneUser | null> {
    return this.#users.get(id, () => this.#client.get(`/v3/users/${encodeURIComponent(id)}`, readUser));
  }

  async #domain(id: string): Promise<{ enabled: boolean } | null> {
    return this.#domains.get(id, () => this.#client.get(`/v3/domains/${encodeURIComponent(id)}`, readDomain));
  }
}
