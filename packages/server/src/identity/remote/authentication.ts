/** Who is it, and what may they do: looked up in the identity service, believed for a bounded time, judged here. */
import { createHash } from 'node:crypto';
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
import { type BodyHash, type Claim, checkSignature, type SignedRequest } from '../signature.ts';
import {
  type KnownKey,
  type KnownToken,
  type KnownUser,
  readDomain,
  readKey,
  readProject,
  readRoles,
  readToken,
  readUser,
} from './answers.ts';
import { type AnswerCache, createAnswerCache } from './cache.ts';
import type { IdentityService } from './service.ts';

/** Keystone's longest are some 2 KB, and web servers take no header of more than 8. */
const TOKEN_LENGTH_MAX = 8_000;

export class RemoteAuthentication implements Authenticator {
  readonly #service: IdentityService;
  readonly #now: () => number;
  readonly #tokens: AnswerCache<KnownToken>;
  readonly #keys: AnswerCache<KnownKey>;
  readonly #users: AnswerCache<KnownUser>;
  readonly #projects: AnswerCache<ReturnType<typeof readProject>>;
  readonly #domains: AnswerCache<ReturnType<typeof readDomain>>;
  readonly #roles: AnswerCache<Role[]>;

  constructor(service: IdentityService, cacheTtlMs: number, now: () => number) {
    this.#service = service;
    this.#now = now;
    const cache = <T>() => createAnswerCache<T>(cacheTtlMs, now);
    this.#tokens = cache();
    this.#keys = cache();
    this.#users = cache();
    this.#projects = cache();
    this.#domains = cache();
    this.#roles = cache();
  }

  checkToken(text: string): MaybePromise<Caller | TokenRefusal> {
    if (text.length > TOKEN_LENGTH_MAX) return 'not_valid';
    const known = this.#tokens.get(sha256(text), async () => {
      const body = await this.#service.look('/v3/auth/tokens?nocatalog', { 'X-Subject-Token': text });
      return body === null ? null : readToken(body);
    });
    return mapMaybe(known, (token) => this.#judgeToken(token));
  }

  /** Who has a token revoked through us need not wait until we would ask again. */
  forgetToken(text: string): void {
    this.#tokens.forget(sha256(text));
  }

  #judgeToken(token: KnownToken | null): Caller | TokenRefusal {
    if (token === null) return 'not_valid';
    return token.expires_at <= this.#now() ? 'expired' : token.caller;
  }

  /** Sessions of the console are kept where the console is. */
  checkSession(): 'unknown' {
    return 'unknown';
  }

  async admitKey({ access }: Pick<Claim, 'access'>): Promise<Caller | SignatureRefusal> {
    const key = await this.#key(access);
    const user = key && (await this.#user(key.user_id));
    if (key === null || user === null) return { reason: 'unknown_key' };
    if (key.signing === null) return { reason: 'inactive_key' };
    if (!user.enabled || !(await this.#domain(user.domain_id))?.enabled) return { reason: 'user_disabled' };
    if (user.access === 'console') return { reason: 'console_only' };
    if (key.project_id === null)
      return { user: { ...user, roles: {} }, scope: 'wherever the user has a role' };
    const roles = { [key.project_id]: await this.#rolesIn(user.id, key.project_id) };
    const project = { id: key.project_id, domain_id: user.domain_id };
    return { user: { ...user, roles }, scope: { project } };
  }

  async checkSignature(
    request: SignedRequest,
    claim: Claim,
    body: Uint8Array | BodyHash,
  ): Promise<SignatureRefusal | null> {
    // Looked up again: it may have been taken away while the body was on its way.
    const key = await this.#key(claim.access);
    if (key === null) return { reason: 'unknown_key' };
    if (key.signing === null) return { reason: 'inactive_key' };
    return signatureRefusal(checkSignature(request, claim, key.signing, body));
  }

  async checkSecret(access: string, secret: string): Promise<Caller | SignatureRefusal> {
    const caller = await this.admitKey({ access });
    if ('reason' in caller) return caller;
    const key = await this.#key(access);
    const right = key?.signing != null && sameSecret(secret, key.signing.secret);
    return right ? caller : { reason: 'wrong_secret' };
  }

  rolesInProject({ user, scope }: Caller, projectId: string): MaybePromise<readonly Role[]> {
    if (scope === 'wherever the user has a role') return this.#rolesIn(user.id, projectId);
    return 'project' in scope && scope.project.id === projectId ? (user.roles[projectId] ?? []) : [];
  }

  /** Only in what is enabled; tokens are void elsewhere too, but of them the identity service says so itself. */
  async #rolesIn(userId: string, projectId: string): Promise<Role[]> {
    const project = await this.#projects.get(projectId, () =>
      this.#look(`/v3/projects/${encodeURIComponent(projectId)}`, readProject),
    );
    if (!project?.enabled || !(await this.#domain(project.domain_id))?.enabled) return [];
    const query = new URLSearchParams({ 'user.id': userId, 'scope.project.id': projectId });
    const roles = await this.#roles.get(query.toString(), () =>
      this.#look(`/v3/role_assignments?${query}&effective&include_names`, (body) =>
        readRoles(body, projectId),
      ),
    );
    return roles ?? [];
  }

  /** Under the name that Keystone gives it, which is also all that its log gets to see. */
  async #key(access: string): Promise<KnownKey | null> {
    const hash = sha256(access);
    return this.#keys.get(hash, () => this.#look(`/v3/credentials/${hash}`, (body) => readKey(body, access)));
  }

  async #user(id: string): Promise<KnownUser | null> {
    return this.#users.get(id, () => this.#look(`/v3/users/${encodeURIComponent(id)}`, readUser));
  }

  async #domain(id: string): Promise<{ enabled: boolean } | null> {
    return this.#domains.get(id, () => this.#look(`/v3/domains/${encodeURIComponent(id)}`, readDomain));
  }

  async #look<T>(path: string, read: (body: unknown) => T | null): Promise<T | null> {
    const body = await this.#service.look(path);
    return body === null ? null : read(body);
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
