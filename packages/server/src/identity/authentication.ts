/** Who is it, and what may they do: by password, token, session or signature. Speaks neither HTTP nor LMDB. */
import type { LoginSource, RefusedLogin } from '../audit/login-refusals.ts';
import { VersionedCache } from '../cache.ts';
import {
  type Authenticator,
  type Caller,
  type CallerUser,
  type SessionRefusal,
  type SignatureRefusal,
  type SignedIn,
  sameSecret,
  signatureRefusal,
  type TokenRefusal,
} from './authenticator.ts';
import type { Devices } from './devices.ts';
import { type LoginThrottle, LoginThrottled } from './login-throttle.ts';
import { PASSWORD_LENGTH_MAX, type Passwords } from './passwords.ts';
import { type Domain, type Project, type Role, SYSTEM_ROLE, type User } from './records.ts';
import type { Secrets } from './secrets.ts';
import type { Session, Sessions } from './sessions.ts';
import {
  type BodyHash,
  type Claim,
  checkSignature,
  type SignedRequest,
  type SigningKey,
  signingKey,
} from './signature.ts';
import type { IdentityStore } from './store.ts';
import type { Token, TokenScope, Tokens } from './tokens.ts';

export type DomainReference = { id: string } | { name: string };
export type UserReference = { id: string } | { name: string; domain: DomainReference };
export type ScopeReference =
  | { project: { id: string } | { name: string; domain: DomainReference } }
  | { domain: DomainReference }
  | { system: true };

export interface PasswordLogin {
  user: UserReference;
  password: string;
  scope: ScopeReference;
}

export interface IssuedToken {
  text: string;
  description: TokenDescription;
}

/** All there is to say about a valid token. */
export interface TokenDescription {
  token: Token;
  user: User;
  userDomain: Domain;
  scope: { project: Project; domain: Domain } | { domain: Domain } | { system: true };
  roles: readonly (Role | typeof SYSTEM_ROLE)[];
}

/** A session that has just begun. */
export interface NewSession extends SignedIn {
  /** The session, signed. */
  text: string;
  /** Tells at the next login that the user has signed in with this browser before. */
  device: string;
}

/** A key that may be used, with its secret opened: it would be in memory anyway while a signature is checked. */
interface KeyInUse {
  caller: Caller;
  signing: SigningKey;
}

export type LoginRefusal =
  /** The same for an unknown user and a wrong password. */
  'wrong_credentials' | 'user_disabled' | 'console_only' | 'no_such_scope';

export type SignInRefusal = 'wrong_credentials' | 'user_disabled' | 'programmatic_only';

export class Authentication implements Authenticator {
  readonly #store: IdentityStore;
  readonly #passwords: Passwords;
  readonly #tokens: Tokens;
  readonly #sessions: Sessions;
  readonly #secrets: Secrets;
  readonly #throttle: LoginThrottle;
  readonly #devices: Devices;
  readonly #recordRefusal: (refused: RefusedLogin) => void;
  readonly #now: () => number;
  readonly #goodTokens: VersionedCache<string, TokenDescription>;
  readonly #keysInUse: VersionedCache<string, KeyInUse>;
  readonly #rolesInProjects: VersionedCache<string, readonly Role[]>;

  constructor(
    store: IdentityStore,
    passwords: Passwords,
    tokens: Tokens,
    sessions: Sessions,
    secrets: Secrets,
    throttle: LoginThrottle,
    devices: Devices,
    recordRefusal: (refused: RefusedLogin) => void,
    now: () => number,
  ) {
    this.#store = store;
    this.#passwords = passwords;
    this.#tokens = tokens;
    this.#sessions = sessions;
    this.#secrets = secrets;
    this.#throttle = throttle;
    this.#devices = devices;
    this.#recordRefusal = recordRefusal;
    this.#now = now;
    this.#goodTokens = new VersionedCache(() => store.changes());
    this.#keysInUse = new VersionedCache(() => store.changes());
    this.#rolesInProjects = new VersionedCache(() => store.changes());
  }

  async login(login: PasswordLogin, from: LoginSource): Promise<IssuedToken | LoginRefusal> {
    return this.#recorded(login.user, from, () => this.#login(login, from));
  }

  async #login(login: PasswordLogin, from: LoginSource): Promise<IssuedToken | LoginRefusal> {
    const user = await this.#checkPassword(login.user, login.password, from);
    if (typeof user === 'string') return user;
    if (user.access === 'console') return 'console_only';
    const scope = this.#findScope(login.scope);
    // A project that does not exist and one that the user has no part in look alike.
    const roles = scope ? rolesHeld(user, scope) : [];
    if (scope === undefined || roles.length === 0) return 'no_such_scope';
    const { text, token } = this.#tokens.issue(user, tokenScope(scope), this.#now());
    const description = this.#describe(token);
    return typeof description === 'string' ? 'no_such_scope' : { text, description };
  }

  /** Opens a session of the console. */
  async signIn(
    user: UserReference,
    password: string,
    from: LoginSource,
  ): Promise<NewSession | SignInRefusal> {
    return this.#recorded(user, from, async () => {
      const known = await this.#checkPassword(user, password, from);
      return typeof known === 'string' ? known : this.startSession(known);
    });
  }

  /** A refused login leaves a line in the audit trail, whatever it was refused for. */
  async #recorded<T extends object | string>(
    reference: UserReference,
    from: LoginSource,
    login: () => Promise<T>,
  ): Promise<T> {
    const record = (reason: string) => {
      const user = this.#findUser(reference);
      this.#recordRefusal({ user: user ? { id: user.id, name: user.name } : null, from, reason });
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

  /** A new session for a user whose password was checked just now. */
  startSession(user: User): NewSession | SignInRefusal {
    const { text } = this.#sessions.issue(user, this.#now());
    const signedIn = this.checkSession(text);
    if (typeof signedIn === 'string') return signedIn === 'programmatic_only' ? signedIn : 'user_disabled';
    return { ...signedIn, text, device: this.#devices.issue(user, this.#now()) };
  }

  /** Checks a session against the current user, domain and roles. */
  checkSession(text: string): SignedIn | SessionRefusal {
    const session = this.#sessions.read(text);
    if (session === null) return 'unknown';
    const user = this.#standing(session);
    if (typeof user === 'string') return user;
    return user.user.access === 'programmatic' ? 'programmatic_only' : { session, ...user };
  }

  /** Revokes the session; copies of the cookie stop working too. */
  endSession(session: Session): Promise<void> {
    return this.#store.change((write) => write.revoke(session, this.#now()));
  }

  /** For what a user must confirm with the password though signed in; counts as an attempt to guess it. */
  async confirmPassword(
    user: User,
    password: string,
    from: LoginSource,
  ): Promise<'right' | 'wrong_credentials' | 'user_disabled'> {
    const checked = await this.#recorded({ id: user.id }, from, () =>
      this.#checkPassword({ id: user.id }, password, from),
    );
    return typeof checked === 'string' ? checked : 'right';
  }

  async #checkPassword(
    reference: UserReference,
    password: string,
    { address, device = '' }: LoginSource,
  ): Promise<User | 'wrong_credentials' | 'user_disabled'> {
    const user = this.#findUser(reference);
    const known = user ? this.#devices.read(device, user, this.#now()) : null;
    const matches = await this.#throttle.attempt(
      user?.id ?? this.#unknownAccount(reference),
      { address, device: known },
      async () =>
        password.length <= PASSWORD_LENGTH_MAX && this.#passwords.verify(user?.password_hash, password),
    );
    if (user === undefined || !matches) return 'wrong_credentials';
    return user.enabled && this.#store.domain(user.domain_id)?.enabled ? user : 'user_disabled';
  }

  /**
   * One account for each user that does not exist, however it is named: if naming the domain by its ID gave an attacker
   * a second account, the delays would tell which users exist.
   */
  #unknownAccount(reference: UserReference): string {
    if ('id' in reference) return `unknown ${JSON.stringify(reference.id)}`;
    const domain = this.#findDomain(reference.domain)?.id ?? reference.domain;
    return `unknown ${JSON.stringify([domain, reference.name])}`;
  }

  /** Checks a token against the current user, domain and roles; cached while nothing changes. */
  checkToken(text: string): TokenDescription | TokenRefusal {
    const known = this.#goodTokens.get(text);
    if (known !== undefined && timeRefusal(known.token, this.#now()) === null) return known;
    const token = this.#tokens.read(text);
    const description = token === null ? 'unknown' : this.#describe(token);
    if (typeof description !== 'string') this.#goodTokens.set(text, description);
    return description;
  }

  #describe(token: Token): TokenDescription | TokenRefusal {
    const standing = this.#standing(token);
    if (typeof standing === 'string') return standing;
    const { user, domain: userDomain } = standing;
    const scope = this.#findScope(scopeReference(token));
    if (scope === undefined) return 'scope_gone';
    const roles = rolesHeld(user, scope);
    return roles.length === 0 ? 'role_lost' : { token, user, userDomain, scope, roles };
  }

  /** The user of a token or session that is still good, whatever it is for. */
  #standing(
    given: Pick<Token, 'id' | 'user_id' | 'epoch' | 'issued_at' | 'expires_at'>,
  ): { user: User; domain: Domain } | Exclude<SessionRefusal, 'programmatic_only'> {
    const refusal = timeRefusal(given, this.#now());
    if (refusal !== null) return refusal;
    if (this.#store.isRevoked(given.id)) return 'revoked';
    const user = this.#store.user(given.user_id);
    const domain = user && this.#store.domain(user.domain_id);
    if (user === undefined || domain === undefined) return 'user_gone';
    if (!user.enabled || !domain.enabled) return 'user_disabled';
    return given.epoch === user.token_epoch ? { user, domain } : 'superseded';
  }

  revokeToken(token: Token): Promise<void> {
    return this.#store.change((write) => write.revoke(token, this.#now()));
  }

  /** First half of checking a signature, before the body is read: is there such a key, and may it be used? */
  admitKey({ access }: Pick<Claim, 'access'>): Caller | SignatureRefusal {
    const key = this.#key(access);
    return 'caller' in key ? key.caller : key;
  }

  #key(access: string): KeyInUse | SignatureRefusal {
    const known = this.#keysInUse.get(access);
    if (known !== undefined) return known;
    const key = this.#store.key(access);
    const user = key && this.#store.user(key.user_id);
    if (key === undefined || user === undefined) return { reason: 'unknown_key' };
    if (key.status !== 'active') return { reason: 'inactive_key' };
    if (!user.enabled || !this.#store.domain(user.domain_id)?.enabled) return { reason: 'user_disabled' };
    if (user.access === 'console') return { reason: 'console_only' };
    const caller: Caller = { user, scope: 'wherever the user has a role' };
    const inUse = { caller, signing: signingKey(this.#secrets.open(access, key.sealed_secret)) };
    this.#keysInUse.set(access, inUse);
    return inUse;
  }

  /** Second half, with the body. Not throttled: an HMAC of a 40-character secret cannot be guessed. */
  checkSignature(request: SignedRequest, claim: Claim, body: Uint8Array | BodyHash): SignatureRefusal | null {
    // Looked up again: it may have been taken away while the body was on its way.
    const key = this.#key(claim.access);
    if (!('signing' in key)) return key;
    return signatureRefusal(checkSignature(request, claim, key.signing, body));
  }

  /** For log shippers that can sign nothing: the secret itself, as a password. Only ever asked for on the way in. */
  async checkSecret(access: string, secret: string): Promise<Caller | SignatureRefusal> {
    const key = this.#key(access);
    if ('reason' in key) return key;
    return sameSecret(secret, key.signing.secret) ? key.caller : { reason: 'wrong_secret' };
  }

  /** The roles of a caller in a project, however the caller was authenticated. */
  rolesInProject({ user, scope }: Caller, projectId: string): readonly Role[] {
    if (scope !== 'wherever the user has a role') {
      return 'project' in scope && scope.project.id === projectId ? rolesIn(user, scope) : [];
    }
    const name = `${user.id} ${projectId}`;
    const known = this.#rolesInProjects.get(name);
    if (known !== undefined) return known;
    const found = this.#findScope({ project: { id: projectId } });
    // Read again: the caller was found when the headers came, and may have lost the role while the body was on its way.
    const current = this.#store.user(user.id);
    const roles = current && found && 'project' in found ? rolesIn(current, found) : [];
    this.#rolesInProjects.set(name, roles);
    return roles;
  }

  #findDomain(reference: DomainReference): Domain | undefined {
    return 'id' in reference ? this.#store.domain(reference.id) : this.#store.domainByName(reference.name);
  }

  #findUser(reference: UserReference): User | undefined {
    if ('id' in reference) return this.#store.user(reference.id);
    const domain = this.#findDomain(reference.domain);
    return domain && this.#store.userByName(domain.id, reference.name);
  }

  /** Only what is enabled can be a scope. */
  #findScope(reference: ScopeReference): TokenDescription['scope'] | undefined {
    if ('system' in reference) return reference;
    if ('domain' in reference) {
      const domain = this.#findDomain(reference.domain);
      return domain?.enabled ? { domain } : undefined;
    }
    const project = this.#findProject(reference.project);
    const domain = project && this.#store.domain(project.domain_id);
    return project?.enabled && domain?.enabled ? { project, domain } : undefined;
  }

  #findProject(reference: { id: string } | { name: string; domain: DomainReference }): Project | undefined {
    if ('id' in reference) return this.#store.project(reference.id);
    const domain = this.#findDomain(reference.domain);
    return domain && this.#store.projectByName(domain.id, reference.name);
  }
}

/** Clocks of several machines differ by less. */
const CLOCK_SKEW_MS_MAX = 60_000;

/** A token or session lives between its two times; one from the future was issued before the clock was set back. */
function timeRefusal(
  { issued_at, expires_at }: Pick<Token, 'issued_at' | 'expires_at'>,
  now: number,
): 'expired' | 'issued_in_future' | null {
  if (expires_at <= now) return 'expired';
  return issued_at > now + CLOCK_SKEW_MS_MAX ? 'issued_in_future' : null;
}

/** A role in a domain holds in all its projects. */
export function rolesIn(
  user: Pick<User, 'roles'>,
  scope: { project: Pick<Project, 'id' | 'domain_id'> } | { domain: Pick<Domain, 'id'> },
): readonly Role[] {
  if (!('project' in scope)) return user.roles[scope.domain.id] ?? [];
  const own = user.roles[scope.project.id];
  const inherited = user.roles[scope.project.domain_id];
  return own && inherited ? [...new Set([...own, ...inherited])] : (own ?? inherited ?? []);
}

export function administersDomain(user: CallerUser, domainId: string): boolean {
  return user.roles[domainId]?.includes('admin') ?? false;
}

/** No other role, of whatever domain, is one in the system. */
function rolesHeld(user: User, scope: TokenDescription['scope']): TokenDescription['roles'] {
  if (!('system' in scope)) return rolesIn(user, scope);
  return user.system_role === SYSTEM_ROLE ? [SYSTEM_ROLE] : [];
}

function tokenScope(scope: TokenDescription['scope']): TokenScope {
  if ('project' in scope) return { project_id: scope.project.id };
  return 'domain' in scope ? { domain_id: scope.domain.id } : { system: true };
}

function scopeReference(token: TokenScope): ScopeReference {
  if ('project_id' in token) return { project: { id: token.project_id } };
  return 'domain_id' in token ? { domain: { id: token.domain_id } } : { system: true };
}
