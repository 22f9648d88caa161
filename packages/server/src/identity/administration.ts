/** Making and changing domains, projects, users and access keys. Mistakes are IdentityErrors, whose message is for people. */
import { randomBytes } from 'node:crypto';
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
import type { IdentityStore } from './store.ts';

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

export class Administration {
  readonly #store: IdentityStore;
  readonly #passwords: Passwords;
  readonly #secrets: Secrets;
  readonly #now: () => number;

  constructor(store: IdentityStore, passwords: Passwords, secrets: Secrets, now: () => number) {
    this.#store = store;
    this.#passwords = passwords;
    this.#secrets = secrets;
    this.#now = now;
  }

  /** A domain with one project and one user who administers all of it, at once: the start of every installation. */
  async found(names: { domain: string; project: string; user: string }, password: string) {
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
    return this.#store.change((write) => {
      if (this.#store.domainByName(domain.name))
        throw new IdentityError(`there is a domain '${domain.name}' already`);
      write.putDomain(domain);
      write.putProject(project);
      write.putUser(user);
      return { domain, project, user };
    });
  }

  async addDomain(name: string): Promise<Domain> {
    const domain = newDomain(name);
    return this.#store.change((write) => {
      if (this.#store.domainByName(name)) throw new IdentityError(`there is a domain '${name}' already`);
      write.putDomain(domain);
      return domain;
    });
  }

  async addProject(domainId: string, name: string): Promise<Project> {
    const project = this.#newProject(domainId, name);
    return this.#store.change((write) => {
      if (this.#store.projectByName(domainId, name))
        throw new IdentityError(`there is a project '${name}' already`);
      write.putProject(project);
      return project;
    });
  }

  async addUser(given: NewUser): Promise<User> {
    const user = await this.#newUser(given);
    return this.#store.change((write) => {
      if (this.#store.userByName(user.domain_id, user.name)) {
        throw new IdentityError(`there is a user '${user.name}' already`);
      }
      write.putUser(user);
      return user;
    });
  }

  async setPassword(id: string, password: string): Promise<void> {
    const password_hash = await this.#hash(password);
    await this.#changeUser(id, (user) => ({ ...user, password_hash, token_epoch: user.token_epoch + 1 }));
  }

  async grantRole(userId: string, scopeId: string, role: Role): Promise<void> {
    await this.#changeUser(userId, (user) => {
      const held = new Set(user.roles[scopeId] ?? []).add(role);
      return { ...user, roles: { ...user.roles, [scopeId]: [...held] } };
    });
  }

  async revokeRole(userId: string, scopeId: string, role: Role): Promise<void> {
    await this.#changeUser(userId, (user) => {
      const left = (user.roles[scopeId] ?? []).filter((held) => held !== role);
      return { ...user, roles: { ...user.roles, [scopeId]: left } };
    });
  }

  async setSystemRole(userId: string, held: boolean): Promise<void> {
    await this.#changeUser(userId, ({ system_role: _, ...user }) =>
      held ? { ...user, system_role: SYSTEM_ROLE } : user,
    );
  }

  async setUserEnabled(id: string, enabled: boolean): Promise<void> {
    // Tokens that are out die for good, not only until the user is enabled again.
    await this.#changeUser(id, (user) => ({
      ...user,
      enabled,
      token_epoch: user.token_epoch + (enabled ? 0 : 1),
    }));
  }

  async setProjectEnabled(id: string, enabled: boolean): Promise<void> {
    await this.#store.change((write) => write.putProject({ ...this.project(id), enabled }));
  }

  async setDomainEnabled(id: string, enabled: boolean): Promise<void> {
    await this.#store.change((write) => write.putDomain({ ...this.domain(id), enabled }));
  }

  async removeUser(id: string): Promise<void> {
    await this.#store.change((write) => {
      for (const key of this.#store.keysOf(id)) write.removeKey(key);
      write.removeUser(this.user(id));
    });
  }

  /** Its counts stay until they are as old as all others; without the project nobody can ask for them. */
  async removeProject(id: string): Promise<void> {
    await this.#store.change((write) => {
      for (const user of this.#store.users()) {
        if (user.roles[id] === undefined) continue;
        const { [id]: _, ...roles } = user.roles;
        write.putUser({ ...user, roles });
      }
      write.removeProject(this.project(id));
    });
  }

  async removeDomain(id: string): Promise<void> {
    await this.#store.change((write) => {
      const domain = this.domain(id);
      const inside = [...this.#store.projects(), ...this.#store.users()].filter(
        ({ domain_id }) => domain_id === id,
      );
      if (inside.length > 0)
        throw new IdentityError(`the domain '${domain.name}' still has projects or users`);
      write.removeDomain(domain);
    });
  }

  /** The secret is in the answer, and never to be had again by a person. */
  async addKey(userId: string, description: string): Promise<AccessKeyInfo & { secret: string }> {
    checkDescription(description);
    const access = randomText(20, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789');
    const secret = randomText(40, 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789');
    return this.#store.change((write) => {
      const user_id = this.user(userId).id;
      if (this.#store.keysOf(user_id).length >= KEYS_PER_USER_MAX) throw new KeyLimitError('akSkNumExceed');
      const key: AccessKeyInfo = { access, user_id, description, status: 'active', created: this.#now() };
      write.putKey({ ...key, sealed_secret: this.#secrets.seal(access, secret) });
      return { ...key, secret };
    });
  }

  async changeKey(
    access: string,
    change: Partial<Pick<AccessKey, 'status' | 'description'>>,
  ): Promise<AccessKeyInfo> {
    checkDescription(change.description ?? '');
    return this.#store.change((write) => {
      const key = { ...this.#key(access), ...change };
      write.putKey(key);
      return withoutSecret(key);
    });
  }

  async removeKey(access: string): Promise<void> {
    await this.#store.change((write) => write.removeKey(this.#key(access)));
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

  async #changeUser(id: string, change: (user: User) => User): Promise<void> {
    await this.#store.change((write) => write.putUser(change(this.user(id))));
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
  if (name.length === 0 || name.length > NAME_LENGTH_MAX || /[\p{Cc}\p{Cs}]/u.test(name)) {
    throw new IdentityError(
      `the ${what} name must have 1 to ${NAME_LENGTH_MAX} characters and no control characters`,
    );
  }
}

function checkDescription(description: string): void {
  if (description.length > DESCRIPTION_LENGTH_MAX || /[\p{Cc}\p{Cs}]/u.test(description)) {
    throw new IdentityError(
      `a description has at most ${DESCRIPTION_LENGTH_MAX} characters and no control characters`,
    );
  }
}

function only<T extends { name: string }>(what: string, name: string, all: readonly T[]): T {
  const [one, another] = all.filter((candidate) => candidate.name === name);
  if (one === undefined) throw new IdentityError(`there is no ${what} '${name}'`);
  if (another) throw new IdentityError(`'${name}' is a ${what} in more than one domain: give its ID`);
  return one;
}

function byName<T extends { name: string }>(records: T[]): T[] {
  return records.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function withoutSecret({ sealed_secret: _, ...key }: AccessKey): AccessKeyInfo {
  return key;
}
