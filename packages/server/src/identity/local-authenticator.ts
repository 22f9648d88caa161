/** Authenticates against the local identity store: passwords, tokens, sessions and signatures. */
import { createSecretKey, type KeyObject } from 'node:crypto';
import type { LoginSource, RefusedLogin } from '../audit/audit-trail.ts';
import { VersionedCache } from '../cache.ts';
import { RateLimit } from '../rate-limit.ts';
import {
  type Authenticator,
  type Caller,
  type SessionRefusal,
  type SignatureRefusal,
  type SignedIn,
  sameSecret,
  type TokenRefusal,
} from './authenticator.ts';
import type { IdentityStore } from './identity-store.ts';
import { type LoginThrottle, LoginThrottled } from './login-throttle.ts';
import { type AccessKey, type Domain, type Project, type Role, rolesIn, type User } from './records.ts';
import { PASSWORD_LENGTH_MAX, type Passwords, type SecretCipher } from './secrets.ts';
import { type BodyHash, checkSignature, type PendingSignature, type SignedRequest } from './signature.ts';
import type { DeviceCookies, Session, Sessions, Token, TokenScope, Tokens } from './tokens.ts';

export type DomainReference = { id: string } | { name: string };
/** A user or a project. */
export type MemberReference = { id: string } | { name: string; domain: DomainReference };
/** A project name without a domain refers to the user's own domain. */
type ProjectReference = MemberReference | { name: string; domain: null };
export type ScopeReference = { project: ProjectReference } | { domain: DomainReference };

export interface PasswordLogin {
  user: MemberReference;
  password: string;
  scope: ScopeReference;
}

export interface TokenLogin {
  /** The token to exchange for one of another scope. */
  token: string;
  scope: ScopeReference;
}

/** A valid token with the records it refers to. */
export interface TokenDescription {
  token: Token;
  user: User;
  userDomain: Domain;
  scope: { project: Project; domain: Domain } | { domain: Domain };
  roles: readonly Role[];
  isExchanged: boolean;
}

export interface NewToken {
  text: string;
  description: TokenDescription;
}

export interface NewSession extends SignedIn {
  /** The signed session. */
  text: string;
  /** The signed device cookie. */
  device: string;
}

interface UsableKey {
  caller: Caller;
  secret: KeyObject;
}

/** Unknown users and wrong passwords look the same. */
type PasswordRefusal = 'wrong_credentials' | 'user_disabled';
export type LoginRefusal = PasswordRefusal | 'console_only' | 'no_such_scope';
export type ExchangeRefusal = TokenRefusal | 'no_such_scope';
export type SignInRefusal = PasswordRefusal | 'programmatic_only';

interface Dependencies {
  store: IdentityStore;
  passwords: Passwords;
  tokens: Tokens;
  sessions: Sessions;
  devices: DeviceCookies;
  cipher: SecretCipher;
  throttle: LoginThrottle;
  recordRefusal: (refused: RefusedLogin) => void;
  now: () => number;
}

/** Token exchanges of one user: a tool that visits all projects at once, then ten a second. */
const EXCHANGES_BURST = 200;
const EXCHANGES_REFILL_MS = 100;

export class LocalAuthenticator implements Authenticator {
  readonly #dependencies: Dependencies;
  readonly #store: IdentityStore;
  readonly #now: () => number;
  /** To check a token takes 0.9 us with it, 1.4 us if only its signature is cached, and about 8 us without. */
  readonly #validTokens = new VersionedCache<string, TokenDescription>('tokens', () => this.#store.changes());
  /** Decrypted secrets, which each check has in memory anyway. A changed key is another object. */
  readonly #secrets = new WeakMap<AccessKey, KeyObject>();
  readonly #exchanges: RateLimit;

  constructor(dependencies: Dependencies) {
    this.#dependencies = dependencies;
    this.#store = dependencies.store;
    this.#now = dependencies.now;
    this.#exchanges = new RateLimit(EXCHANGES_BURST, EXCHANGES_REFILL_MS, dependencies.now);
  }

  async login(login: PasswordLogin, from: LoginSource): Promise<NewToken | LoginRefusal> {
    return this.#recordRefusals(login.user, from, async () => {
      const user = await this.#checkPassword(login.user, login.password, from);
      if (typeof user === 'string') return user;
      if (user.access === 'console') return 'console_only';
      const { tokens } = this.#dependencies;
      return this.#newToken(user, login.scope, (scope) => tokens.issue(user, scope, this.#now()));
    });
  }

  /** The new token expires with the old one, or earlier. */
  async exchange(login: TokenLogin, from: LoginSource): Promise<NewToken | ExchangeRefusal> {
    const { tokens } = this.#dependencies;
    const given = tokens.read(login.token);
    const describe = async () => {
      if (given === null) return 'unknown';
      await this.#store.refresh();
      return this.#describe(given);
    };
    // Only refused tokens are recorded: with a valid one, anybody could fill the quota of records with refused scopes.
    const old = await this.#recordRefusals(given && { id: given.user_id }, from, describe);
    if (typeof old === 'string') return old;
    if (!this.#exchanges.take(old.user.id)) throw new LoginThrottled('exchanges');
    return this.#newToken(old.user, login.scope, (scope) =>
      tokens.exchange(old.token, old.user, scope, this.#now()),
    );
  }

  #newToken(
    user: User,
    reference: ScopeReference,
    issue: (scope: TokenScope) => { text: string; token: Token },
  ): NewToken | 'no_such_scope' {
    const scope = this.#findScope(reference, user.domain_id);
    // A project that does not exist and one in which the user has no role look the same.
    if (scope === undefined || rolesIn(user, scope).length === 0) return 'no_such_scope';
    const { text, token } = issue(tokenScope(scope));
    const description = this.#describe(token);
    return typeof description === 'string' ? 'no_such_scope' : { text, description };
  }

  /** Starts a console session. */
  async signIn(
    user: MemberReference,
    password: string,
    from: LoginSource,
  ): Promise<NewSession | SignInRefusal> {
    return this.#recordRefusals(user, from, async () => {
      const checked = await this.#checkPassword(user, password, from);
      return typeof checked === 'string' ? checked : this.startSession(checked);
    });
  }

  /** Writes refused logins to the audit trail. */
  async #recordRefusals<T extends object | string>(
    reference: MemberReference | null,
    from: LoginSource,
    login: () => Promise<T>,
  ): Promise<T> {
    const record = (reason: string) => {
      const user = (reference && this.#findUser(reference)) ?? null;
      this.#dependencies.recordRefusal({ user, from, reason });
    };
    try {
      const result = await login();
      if (typeof result === 'string') record(result);
      return result;
    } catch (error) {
      if (error instanceof LoginThrottled) record('throttled');
      throw error;
    }
  }

  /** Call it only for a user whose password was just checked. */
  async startSession(user: User): Promise<NewSession | SignInRefusal> {
    const { sessions, devices, now } = this.#dependencies;
    const text = sessions.issue(user, now());
    const signedIn = await this.checkSession(text);
    if (typeof signedIn === 'string') return signedIn === 'programmatic_only' ? signedIn : 'user_disabled';
    return { ...signedIn, text, device: devices.issue(user, now()) };
  }

  /**
   * Checks a session against the current user, domain and roles. Reads the newest records, because the console shows what
   * was changed a moment ago, perhaps by another process.
   */
  async checkSession(text: string): Promise<SignedIn | SessionRefusal> {
    const session = this.#dependencies.sessions.read(text);
    if (session === null) return 'unknown';
    await this.#store.refresh();
    const owner = this.#checkOwner(session);
    if (typeof owner === 'string') return owner;
    return owner.user.access === 'programmatic' ? 'programmatic_only' : { session, ...owner };
  }

  /** Revokes a token or session; copies of a session cookie stop working too. */
  revoke(given: Token | Session): Promise<void> {
    return this.#store.change((write) => write.revoke(given, this.#now()));
  }

  /**
   * Checks the password of a signed-in user before an important change. Throttled like a login. Resolves to the user that had
   * the password, who may have another one by now.
   */
  confirmPassword({ id }: User, password: string, from: LoginSource): Promise<User | PasswordRefusal> {
    return this.#recordRefusals({ id }, from, () => this.#checkPassword({ id }, password, from));
  }

  async #checkPassword(
    reference: MemberReference,
    password: string,
    { address, device = '' }: LoginSource,
  ): Promise<User | PasswordRefusal> {
    // Not counted as a failure: such attempts cost nothing, and could evict the counters of real ones.
    if (password.length > PASSWORD_LENGTH_MAX) return 'wrong_credentials';
    const { devices, throttle, passwords } = this.#dependencies;
    await this.#store.refresh();
    const user = this.#findUser(reference);
    const knownDevice = user ? devices.read(device, user, this.#now()) : null;
    const matches = await throttle.attempt(
      user?.id ?? this.#unknownAccount(reference),
      { address, device: knownDevice },
      () => passwords.verify(user?.password_hash, password),
    );
    if (user === undefined || !matches) return 'wrong_credentials';
    return user.enabled && this.#store.get('domain', user.domain_id)?.enabled ? user : 'user_disabled';
  }

  /**
   * The throttle's account for a user that does not exist. The same for every way to refer to the domain, or the delays
   * would reveal which users exist.
   */
  #unknownAccount(reference: MemberReference): string {
    if ('id' in reference) return `unknown ${JSON.stringify(reference.id)}`;
    const domain = this.#findDomain(reference.domain)?.id ?? reference.domain;
    return `unknown ${JSON.stringify([domain, reference.name])}`;
  }

  /** Checks a token against the current user, domain and roles; cached while nothing changes. */
  async checkToken(text: string): Promise<TokenDescription | TokenRefusal> {
    const pending = this.#store.confirm();
    if (pending !== undefined) await pending;
    const known = this.#validTokens.get(text);
    if (known !== undefined && timeRefusal(known.token, this.#now()) === null) return known;
    const token = this.#dependencies.tokens.read(text);
    if (token === null) return 'unknown';
    return this.#current(
      () => {
        const description = this.#describe(token);
        // Cached in the same turn: after an await, the cache may be of a version that has revoked the token.
        if (typeof description !== 'string') this.#validTokens.set(text, description);
        return description;
      },
      (result) => typeof result === 'string',
    );
  }

  /**
   * Refuses only on the basis of the newest records, so that what another process has just added works at once. Invented
   * credentials cause a read of the database, but concurrent requests share it.
   */
  async #current<T>(check: () => T, isRefusal: (result: T) => boolean): Promise<T> {
    const pending = this.#store.confirm();
    if (pending !== undefined) await pending;
    const result = check();
    return isRefusal(result) && (await this.#store.refresh()) ? check() : result;
  }

  #describe(token: Token): TokenDescription | TokenRefusal {
    const owner = this.#checkOwner(token);
    if (typeof owner === 'string') return owner;
    const { user, domain: userDomain } = owner;
    const scope = this.#findScope(scopeReference(token));
    if (scope === undefined) return 'scope_gone';
    const roles = rolesIn(user, scope);
    if (roles.length === 0) return 'role_lost';
    return { token, user, userDomain, scope, roles, isExchanged: token.login_id !== undefined };
  }

  /** The user of a token or session, if both are still valid. */
  #checkOwner(
    given: Token | Session,
  ): { user: User; domain: Domain } | Exclude<SessionRefusal, 'programmatic_only'> {
    const refusal = timeRefusal(given, this.#now());
    if (refusal !== null) return refusal;
    if (this.#store.get('revoked', given.id) !== undefined) return 'revoked';
    if ('login_id' in given && given.login_id && this.#store.get('revoked', given.login_id) !== undefined)
      return 'revoked';
    const user = this.#store.get('user', given.user_id);
    const domain = user && this.#store.get('domain', user.domain_id);
    if (user === undefined || domain === undefined) return 'user_gone';
    if (!user.enabled || !domain.enabled) return 'user_disabled';
    return given.epoch === user.token_epoch ? { user, domain } : 'superseded';
  }

  async admitKey({ access }: Pick<PendingSignature, 'access'>): Promise<Caller | SignatureRefusal> {
    const key = await this.#key(access);
    return 'caller' in key ? key.caller : key;
  }

  #key(access: string): Promise<UsableKey | SignatureRefusal> {
    return this.#current(
      () => this.#findKey(access),
      (result) => 'reason' in result,
    );
  }

  #findKey(access: string): UsableKey | SignatureRefusal {
    const key = this.#store.get('key', access);
    const user = key && this.#store.get('user', key.user_id);
    if (key === undefined || user === undefined) return { reason: 'unknown_key' };
    if (key.status !== 'active') return { reason: 'inactive_key' };
    if (!user.enabled || !this.#store.get('domain', user.domain_id)?.enabled)
      return { reason: 'user_disabled' };
    if (user.access === 'console') return { reason: 'console_only' };
    return { caller: { user, scope: 'unscoped' }, secret: this.#secretOf(key) };
  }

  #secretOf(key: AccessKey): KeyObject {
    const known = this.#secrets.get(key);
    if (known !== undefined) return known;
    const { cipher } = this.#dependencies;
    const secret = createSecretKey(cipher.decrypt(key.access, key.sealed_secret), 'utf8');
    this.#secrets.set(key, secret);
    return secret;
  }

  /** Not throttled: an HMAC with a 40-character secret cannot be guessed. */
  async checkSignature(
    request: SignedRequest,
    pending: PendingSignature,
    body: Uint8Array | BodyHash,
  ): Promise<SignatureRefusal | null> {
    // Looked up again: the key may have been revoked while the body was arriving.
    const key = await this.#key(pending.access);
    return 'reason' in key ? key : checkSignature(request, pending, key.secret, body);
  }

  /** Not throttled: the secret cannot be guessed. */
  async checkSecret(access: string, secret: string, from: LoginSource): Promise<Caller | SignatureRefusal> {
    const key = await this.#key(access);
    if (!('reason' in key) && sameSecret(secret, key.secret)) return key.caller;
    const user = this.#store.get('user', this.#store.get('key', access)?.user_id ?? '') ?? null;
    const refusal: SignatureRefusal = 'reason' in key ? key : { reason: 'wrong_secret' };
    this.#dependencies.recordRefusal({ user, from, reason: refusal.reason });
    return refusal;
  }

  async rolesInProject({ user, scope }: Caller, projectId: string): Promise<readonly Role[]> {
    if (scope !== 'unscoped') {
      return 'project' in scope && scope.project.id === projectId ? rolesIn(user, scope) : [];
    }
    return this.#current(
      () => this.#rolesOf(user.id, projectId),
      (roles) => roles.length === 0,
    );
  }

  projectNamed({ user, scope }: Caller, name: string): string | undefined {
    const found = this.#findScope({ project: { name, domain: null } }, user.domain_id);
    if (found === undefined || !('project' in found) || rolesIn(user, found).length === 0) return undefined;
    const { id } = found.project;
    return scope === 'unscoped' || ('project' in scope && scope.project.id === id) ? id : undefined;
  }

  #rolesOf(userId: string, projectId: string): readonly Role[] {
    const found = this.#findScope({ project: { id: projectId } });
    // Read again: the user may have lost the role while the body was arriving.
    const current = this.#store.get('user', userId);
    return current && found && 'project' in found ? rolesIn(current, found) : [];
  }

  #findDomain(reference: DomainReference): Domain | undefined {
    return 'id' in reference
      ? this.#store.get('domain', reference.id)
      : this.#store.byName('domain', '', reference.name);
  }

  #findUser(reference: MemberReference): User | undefined {
    if ('id' in reference) return this.#store.get('user', reference.id);
    const domain = this.#findDomain(reference.domain);
    return domain && this.#store.byName('user', domain.id, reference.name);
  }

  #findProject(reference: ProjectReference, ownDomainId: string): Project | undefined {
    if ('id' in reference) return this.#store.get('project', reference.id);
    const domain = this.#findDomain(reference.domain ?? { id: ownDomainId });
    return domain && this.#store.byName('project', domain.id, reference.name);
  }

  /** Disabled projects and domains are not found. */
  #findScope(reference: ScopeReference, ownDomainId = ''): TokenDescription['scope'] | undefined {
    const project = 'project' in reference ? this.#findProject(reference.project, ownDomainId) : undefined;
    const domain =
      'domain' in reference
        ? this.#findDomain(reference.domain)
        : project && this.#store.get('domain', project.domain_id);
    if (!domain?.enabled) return undefined;
    if ('domain' in reference) return { domain };
    return project?.enabled ? { project, domain } : undefined;
  }
}

/** More than the clocks of an installation's machines differ. */
const TOKEN_CLOCK_SKEW_MS_MAX = 60_000;

function timeRefusal(
  { issued_at, expires_at }: Token | Session,
  now: number,
): 'expired' | 'issued_in_future' | null {
  if (expires_at <= now) return 'expired';
  return issued_at > now + TOKEN_CLOCK_SKEW_MS_MAX ? 'issued_in_future' : null;
}

function tokenScope(scope: TokenDescription['scope']): TokenScope {
  return 'project' in scope ? { project_id: scope.project.id } : { domain_id: scope.domain.id };
}

function scopeReference(token: TokenScope): ScopeReference {
  return 'project_id' in token ? { project: { id: token.project_id } } : { domain: { id: token.domain_id } };
}
