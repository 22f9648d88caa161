/** Making and changing domains, projects, users and access keys. Mistakes are IdentityErrors, whose message is for people. */
import { randomBytes } from 'node:crypto';
import {
  type Actor,
  type AuditAction,
  type AuditEntry,
  type AuditObject,
  type AuditTrail,
  newAuditId,
} from '../audit/audit-trail.ts';
import { rolesIn } from './authentication.ts';
import { PASSWORD_LENGTH_MAX, type Passwords } from './passwords.ts';
import {
  type AccessKey,
  type AccessKeyInfo,
  type AccessType,
  type Domain,
  type Project,
  type Role,
  SYSTEM_ROLE,
  type User,
} from './records.ts';
import type { Secrets } from './secrets.ts';
import type { IdentityStore, IdentityWriter } from './store.ts';

/** Names are shown in lists and logs, and are keys: long enough for people, short enough for both. */
const NAME_LENGTH_MAX = 64;
/** The interface specification's limit. */
export const KEYS_PER_USER_MAX = 2;
const DESCRIPTION_LENGTH_MAX = 255;

/** Something a person asked of identity that cannot be. */
export class IdentityError extends Error {}

/** What the API family's clients look for when a user has two keys already. */
export class KeyLimitError extends IdentityError {}

export interface NewUser {
  name: string;
  domain_id: string;
  access: AccessType;
  password: string;
  /** Roles by the ID of the project or domain they are held in. */
  roles: Record<string, Role[]>;
  system_role?: typeof SYSTEM_ROLE;
}

/** The view for request handlers: reads need no actor; every change goes through `as(actor)`. */
export type AdministrationView = Pick<
  Administration,
  | 'as'
  | 'key'
  | 'keysOf'
  | 'domains'
  | 'domain'
  | 'onlyDomain'
  | 'projects'
  | 'project'
  | 'projectsOf'
  | 'users'
  | 'user'
>;

/** Makes the change and its line in the audit trail; `entry` can be completed with what is known only then. */
type Commit = <T>(apply: (write: IdentityWriter, entry: AuditEntry) => T) => Promise<T>;

export class Administration {
  readonly #store: IdentityStore;
  readonly #passwords: Passwords;
  readonly #secrets: Secrets;
  readonly #now: () => number;
  readonly #audit: AuditTrail;
  readonly #actor: Actor;

  constructor(
    store: IdentityStore,
    passwords: Passwords,
    secrets: Secrets,
    now: () => number,
    audit: AuditTrail,
    actor: Actor,
  ) {
    this.#store = store;
    this.#passwords = passwords;
    this.#secrets = secrets;
    this.#now = now;
    this.#audit = audit;
    this.#actor = actor;
  }

  /** The same, on behalf of somebody else. */
  as(actor: Actor): Administration {
    return new Administration(this.#store, this.#passwords, this.#secrets, this.#now, this.#audit, actor);
  }

  /** A domain with one project and one user who administers all of it, at once: the start of every installation. */
  async found(names: { domain: string; project: string; user: string }, password: string) {
    return this.#change('installation.create', { type: 'installation' }, async (commit) => {
      const domain = newDomain(names.domain);
      const project = this.#newProject(domain.id, names.project);
      const roles = { [domain.id]: ['admin' as const] };
      const user = await this.#newUser({
        name: names.user,
        domain_id: domain.id,
        access: 'both',
        password,
        roles,
      });
      return commit((write, entry) => {
        if (this.#store.domainByName(domain.name))
          throw new IdentityError(`there is a domain '${domain.name}' already`);
        write.putDomain(domain);
        write.putProject(project);
        write.putUser(user);
        entry.after = { domain: named(domain), project: named(project), user: named(user) };
        return { domain, project, user };
      });
    });
  }

  async addDomain(name: string): Promise<Domain> {
    return this.#change('domain.add', { type: 'domain', name }, async (commit) => {
      const domain = newDomain(name);
      return commit((write, entry) => {
        if (this.#store.domainByName(name)) throw new IdentityError(`there is a domain '${name}' already`);
        write.putDomain(domain);
        entry.object.id = domain.id;
        return domain;
      });
    });
  }

  async addProject(domainId: string, name: string): Promise<Project> {
    return this.#change('project.add', { type: 'project', name }, async (commit) => {
      const project = this.#newProject(domainId, name);
      return commit((write, entry) => {
        if (this.#store.projectByName(domainId, name))
          throw new IdentityError(`there is a project '${name}' already`);
        write.putProject(project);
        entry.object.id = project.id;
        entry.after = { domain_id: domainId };
        return project;
      });
    });
  }

  async addUser(given: NewUser): Promise<User> {
    return this.#change('user.add', { type: 'user', name: given.name }, async (commit) => {
      const user = await this.#newUser(given);
      return commit((write, entry) => {
        if (this.#store.userByName(user.domain_id, user.name)) {
          throw new IdentityError(`there is a user '${user.name}' already`);
        }
        write.putUser(user);
        const { domain_id, access, roles, system_role } = user;
        entry.object.id = user.id;
        entry.after = { domain_id, access, roles, ...(system_role ? { system_role } : {}) };
        return user;
      });
    });
  }

  async setPassword(id: string, password: string): Promise<void> {
    await this.#change('user.set_password', { type: 'user', id }, async (commit) => {
      const password_hash = await this.#hash(password);
      // Tokens and sessions of the old password end.
      await commit((write, entry) => {
        const user = this.#userIn(entry, id);
        write.putUser({ ...user, password_hash, token_epoch: user.token_epoch + 1 });
      });
    });
  }

  async grantRole(userId: string, scopeId: string, role: Role): Promise<void> {
    await this.#changeRoles('role.grant', userId, scopeId, (held) => [...new Set(held).add(role)]);
  }

  async revokeRole(userId: string, scopeId: string, role: Role): Promise<void> {
    await this.#changeRoles('role.revoke', userId, scopeId, (held) => held.filter((one) => one !== role));
  }

  async #changeRoles(
    action: AuditAction,
    userId: string,
    scopeId: string,
    change: (held: readonly Role[]) => Role[],
  ): Promise<void> {
    await this.#change(action, { type: 'user', id: userId }, (commit) =>
      commit((write, entry) => {
        const user = this.#userIn(entry, userId);
        const before = user.roles[scopeId] ?? [];
        const after = change(before);
        write.putUser({ ...user, roles: { ...user.roles, [scopeId]: after } });
        entry.before = { scope_id: scopeId, roles: before };
        entry.after = { scope_id: scopeId, roles: after };
      }),
    );
  }

  async setSystemRole(userId: string, held: boolean): Promise<void> {
    await this.#change(held ? 'role.grant' : 'role.revoke', { type: 'user', id: userId }, (commit) =>
      commit((write, entry) => {
        const { system_role, ...user } = this.#userIn(entry, userId);
        write.putUser(held ? { ...user, system_role: SYSTEM_ROLE } : user);
        entry.before = { system_role: system_role ?? null };
        entry.after = { system_role: held ? SYSTEM_ROLE : null };
      }),
    );
  }

  async setUserEnabled(id: string, enabled: boolean): Promise<void> {
    await this.#change(enabled ? 'user.enable' : 'user.disable', { type: 'user', id }, (commit) =>
      commit((write, entry) => {
        const user = this.#userIn(entry, id);
        // Existing tokens end for good, not only until the user is enabled again.
        write.putUser({ ...user, enabled, token_epoch: user.token_epoch + (enabled ? 0 : 1) });
        entry.before = { enabled: user.enabled };
        entry.after = { enabled };
      }),
    );
  }

  async setProjectEnabled(id: string, enabled: boolean): Promise<void> {
    await this.#change(enabled ? 'project.enable' : 'project.disable', { type: 'project', id }, (commit) =>
      commit((write, entry) => {
        const project = this.project(id);
        write.putProject({ ...project, enabled });
        entry.object.name = project.name;
        entry.before = { enabled: project.enabled };
        entry.after = { enabled };
      }),
    );
  }

  async setDomainEnabled(id: string, enabled: boolean): Promise<void> {
    await this.#change(enabled ? 'domain.enable' : 'domain.disable', { type: 'domain', id }, (commit) =>
      commit((write, entry) => {
        const domain = this.domain(id);
        write.putDomain({ ...domain, enabled });
        entry.object.name = domain.name;
        entry.before = { enabled: domain.enabled };
        entry.after = { enabled };
      }),
    );
  }

  async removeUser(id: string): Promise<void> {
    await this.#change('user.delete', { type: 'user', id }, (commit) =>
      commit((write, entry) => {
        const keys = this.#store.keysOf(id);
        for (const key of keys) write.removeKey(key);
        const user = this.#userIn(entry, id);
        write.removeUser(user);
        const { domain_id, access, enabled, roles } = user;
        entry.before = { domain_id, access, enabled, roles, keys: keys.map((key) => key.access) };
      }),
    );
  }

  /** Its counts stay until they are as old as all others; without the project nobody can ask for them. */
  async removeProject(id: string): Promise<void> {
    await this.#change('project.delete', { type: 'project', id }, (commit) =>
      commit((write, entry) => {
        for (const user of this.#store.users()) {
          if (user.roles[id] === undefined) continue;
          const { [id]: _, ...roles } = user.roles;
          write.putUser({ ...user, roles });
        }
        const project = this.project(id);
        write.removeProject(project);
        entry.object.name = project.name;
        entry.before = { domain_id: project.domain_id, enabled: project.enabled };
      }),
    );
  }

  async removeDomain(id: string): Promise<void> {
    await this.#change('domain.delete', { type: 'domain', id }, (commit) =>
      commit((write, entry) => {
        const domain = this.domain(id);
        entry.object.name = domain.name;
        const inside = [...this.#store.projects(), ...this.#store.users()].filter(
          ({ domain_id }) => domain_id === id,
        );
        if (inside.length > 0)
          throw new IdentityError(`the domain '${domain.name}' still has projects or users`);
        write.removeDomain(domain);
        entry.before = { enabled: domain.enabled };
      }),
    );
  }

  /** The result holds the secret, which nobody can read again. */
  async addKey(userId: string, description: string): Promise<AccessKeyInfo & { secret: string }> {
    return this.#change('key.add', { type: 'key' }, async (commit) => {
      checkDescription(description);
      const access = randomText(20, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789');
      const secret = randomText(40, 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789');
      return commit((write, entry) => {
        const user = this.user(userId);
        entry.after = { user_id: user.id, user: user.name, description, status: 'active' };
        if (this.#store.keysOf(user.id).length >= KEYS_PER_USER_MAX) throw new KeyLimitError('akSkNumExceed');
        const key: AccessKeyInfo = {
          access,
          user_id: user.id,
          description,
          status: 'active',
          created: this.#now(),
        };
        write.putKey({ ...key, sealed_secret: this.#secrets.seal(access, secret) });
        entry.object.id = access;
        return { ...key, secret };
      });
    });
  }

  async changeKey(
    access: string,
    change: Partial<Pick<AccessKey, 'status' | 'description'>>,
  ): Promise<AccessKeyInfo> {
    return this.#change('key.update', { type: 'key', id: access }, async (commit) => {
      checkDescription(change.description ?? '');
      return commit((write, entry) => {
        const before = this.#key(access);
        const key = { ...before, ...change };
        write.putKey(key);
        entry.before = { user_id: before.user_id, description: before.description, status: before.status };
        entry.after = { description: key.description, status: key.status };
        return withoutSecret(key);
      });
    });
  }

  async removeKey(access: string): Promise<void> {
    await this.#change('key.delete', { type: 'key', id: access }, (commit) =>
      commit((write, entry) => {
        const key = this.#key(access);
        write.removeKey(key);
        entry.before = { user_id: key.user_id, description: key.description, status: key.status };
      }),
    );
  }

  /**
   * Every change goes through here. Its line is written inside the transaction, after all checks and before the commit:
   * no change is made without its line. If the commit then fails, a second line with the same ID says so.
   */
  async #change<T>(
    action: AuditAction,
    object: AuditObject,
    work: (commit: Commit) => Promise<T>,
  ): Promise<T> {
    this.#audit.admit(this.#actor);
    const entry: AuditEntry = { id: newAuditId(), ...this.#actor, action, object, outcome: 'done' };
    let isWritten = false;
    try {
      return await work((apply) =>
        this.#store.change((write) => {
          const result = apply(write, entry);
          this.#audit.append(entry);
          isWritten = true;
          return result;
        }),
      );
    } catch (error) {
      const reason = (error as Error).message;
      if (isWritten) this.#audit.note({ ...entry, outcome: 'failed', reason });
      else if (error instanceof IdentityError) this.#audit.note({ ...entry, outcome: 'refused', reason });
      throw error;
    }
  }

  /** The user that a change is about, by name too in its line. */
  #userIn(entry: AuditEntry, id: string): User {
    const user = this.user(id);
    entry.object.name = user.name;
    return user;
  }

  key(access: string): AccessKeyInfo {
    return withoutSecret(this.#key(access));
  }

  keysOf(userId: string): AccessKeyInfo[] {
    return this.#store.keysOf(userId).map(withoutSecret);
  }

  domains(): Domain[] {
    return byName(this.#store.domains());
  }

  projects(): Project[] {
    return byName(this.#store.projects());
  }

  /** The projects in which the user has any role. */
  projectsOf(user: Pick<User, 'roles'>): Project[] {
    return this.projects().filter((project) => project.enabled && rolesIn(user, { project }).length > 0);
  }

  users(): User[] {
    return byName(this.#store.users());
  }

  /** These take an ID or a name; a name that stands in several domains is not one thing. */
  domain(idOrName: string): Domain {
    const domain = this.#store.domain(idOrName) ?? this.#store.domainByName(idOrName);
    if (domain === undefined) throw new IdentityError(`there is no domain '${idOrName}'`);
    return domain;
  }

  /** The domain that is meant: the one that is named, or the only one there is. */
  onlyDomain(idOrName: string | undefined): Domain {
    if (idOrName !== undefined) return this.domain(idOrName);
    const [domain, another] = this.#store.domains();
    if (domain === undefined || another)
      throw new IdentityError('there is more than one domain: give --domain');
    return domain;
  }

  project(idOrName: string): Project {
    return this.#store.project(idOrName) ?? only('project', idOrName, this.#store.projects());
  }

  user(idOrName: string): User {
    return this.#store.user(idOrName) ?? only('user', idOrName, this.#store.users());
  }

  #key(access: string): AccessKey {
    const key = this.#store.key(access);
    if (key === undefined) throw new IdentityError(`there is no access key '${access}'`);
    return key;
  }

  #newProject(domain_id: string, name: string): Project {
    checkName('project', name);
    return { id: newId(), name, domain_id, enabled: true, created: this.#now() };
  }

  async #newUser({ password, ...given }: NewUser): Promise<User> {
    checkName('user', given.name);
    const password_hash = await this.#hash(password);
    return { id: newId(), enabled: true, created: this.#now(), token_epoch: 0, ...given, password_hash };
  }

  #hash(password: string): Promise<string> {
    if (password.length === 0) throw new IdentityError('the password is empty');
    if (password.length > PASSWORD_LENGTH_MAX) {
      throw new IdentityError(`the password is longer than ${PASSWORD_LENGTH_MAX} characters`);
    }
    return this.#passwords.hash(password);
  }
}

function newDomain(name: string): Domain {
  checkName('domain', name);
  return { id: newId(), name, enabled: true };
}

function named({ id, name }: { id: string; name: string }): { id: string; name: string } {
  return { id, name };
}

function newId(): string {
  return randomBytes(16).toString('hex');
}

/** Each character is as likely as any other: bytes that would favour some are thrown away. */
function randomText(length: number, alphabet: string): string {
  const fair = 256 - (256 % alphabet.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length))
      if (byte < fair && text.length < length) text += alphabet[byte % alphabet.length];
  }
  return text;
}

function checkName(what: string, name: string): void {
  if (name.length === 0 || name.length > NAME_LENGTH_MAX || /[\p{Cc}\p{Cf}\p{Cs}]/u.test(name)) {
    throw new IdentityError(
      `the ${what} name must have 1 to ${NAME_LENGTH_MAX} characters, and no control or format characters`,
    );
  }
}

function checkDescription(description: string): void {
  if (description.length > DESCRIPTION_LENGTH_MAX || /[\p{Cc}\p{Cf}\p{Cs}]/u.test(description)) {
    throw new IdentityError(
      `a description has at most ${DESCRIPTION_LENGTH_MAX} characters, and no control or format characters`,
    );
  }
}

function only<T extends { name: string }>(what: string, name: string, all: readonly T[]): T {
  const [one, another] = all.filter((candidate) => candidate.name === name);
  if (one === undefined)
    throw new IdentityError(`there is no ${what} '${name}' ('wafstat ${what} list' shows them)`);
  if (another) throw new IdentityError(`'${name}' is a ${what} in more than one domain: give its ID`);
  return one;
}

function byName<T extends { name: string }>(records: T[]): T[] {
  return records.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function withoutSecret({ sealed_secret: _, ...key }: AccessKey): AccessKeyInfo {
  return key;
}
