/** What can be asked of identity, and done to it. Speaks neither HTTP nor LMDB. */
import { randomBytes } from 'node:crypto';
import type { Passwords } from './passwords.ts';
import { PASSWORD_LENGTH_MAX } from './passwords.ts';
import type { Domain, Project, Role, User } from './records.ts';
import type { IdentityStore } from './store.ts';
import type { Token, Tokens } from './tokens.ts';

/** Who calls, and what they may do where they called. */
export interface Caller {
  user: User;
  project: Project;
  roles: readonly Role[];
}

export interface PasswordLogin {
  user: { name: string; domain: DomainReference } | { id: string };
  password: string;
  project: { id: string } | { name: string; domain: DomainReference };
}

export type DomainReference = { id: string } | { name: string };

export type Login =
  | {
      kind: 'token';
      text: string;
      token: Token;
      user: User;
      domain: Domain;
      project: Project;
      roles: readonly Role[];
    }
  /** The same for an unknown user and a wrong password. */
  | { kind: 'wrong_credentials' }
  | { kind: 'no_such_scope' };

export type TokenCheck = { kind: 'caller'; caller: Caller } | { kind: 'unknown' | 'expired' | 'void' };

/** Names are shown in lists and logs, and are keys: long enough for people, short enough for both. */
const NAME_LENGTH_MAX = 64;

export class Identity {
  readonly #store: IdentityStore;
  readonly #passwords: Passwords;
  readonly #tokens: Tokens;
  readonly #now: () => number;

  constructor(store: IdentityStore, passwords: Passwords, tokens: Tokens, now: () => number) {
    this.#store = store;
    this.#passwords = passwords;
    this.#tokens = tokens;
    this.#now = now;
  }

  async login(login: PasswordLogin): Promise<Login> {
    const user = this.#findUser(login.user);
    const matches =
      login.password.length <= PASSWORD_LENGTH_MAX &&
      (await this.#passwords.verify(user?.password_hash, login.password));
    if (user === undefined || !matches) return { kind: 'wrong_credentials' };
    const project = this.#findProject(login.project);
    const domain = this.#store.domain(user.domain_id);
    const roles = project ? rolesIn(user, project) : [];
    // A project that does not exist and one that the user has no part in look alike.
    if (project === undefined || domain === undefined || roles.length === 0) return { kind: 'no_such_scope' };
    return {
      kind: 'token',
      ...this.#tokens.issue(user, project.id, this.#now()),
      user,
      domain,
      project,
      roles,
    };
  }

  /** What a token is worth now: the user and the roles are looked up afresh on every call. */
  checkToken(text: string): TokenCheck {
    const token = this.#tokens.read(text);
    if (token === null) return { kind: 'unknown' };
    if (token.expires_at <= this.#now()) return { kind: 'expired' };
    const user = this.#store.user(token.user_id);
    const project = this.#store.project(token.project_id);
    if (user === undefined || project === undefined || token.epoch !== user.token_epoch) {
      return { kind: 'void' };
    }
    const roles = rolesIn(user, project);
    return roles.length === 0 ? { kind: 'void' } : { kind: 'caller', caller: { user, project, roles } };
  }

  /** A domain with one project and one user who administers all of it: the start of every installation. */
  async found(names: { domain: string; project: string; user: string }, password: string) {
    for (const [what, name] of Object.entries(names)) checkName(what, name);
    const now = this.#now();
    const domain: Domain = { id: newId(), name: names.domain };
    const project: Project = { id: newId(), name: names.project, domain_id: domain.id, created: now };
    const user: User = {
      id: newId(),
      name: names.user,
      domain_id: domain.id,
      password_hash: await this.#hash(password),
      created: now,
      token_epoch: 0,
      roles: { [domain.id]: ['admin'] },
    };
    return this.#store.change((write) => {
      if (this.#store.domainByName(names.domain))
        throw new IdentityError(`there is a domain '${names.domain}' already`);
      write.putDomain(domain);
      write.putProject(project);
      write.putUser(user);
      return { domain, project, user };
    });
  }

  async addProject(domainName: string, name: string): Promise<Project> {
    checkName('project', name);
    const domain = this.#store.domainByName(domainName);
    if (domain === undefined) throw new IdentityError(`there is no domain '${domainName}'`);
    const project: Project = { id: newId(), name, domain_id: domain.id, created: this.#now() };
    return this.#store.change((write) => {
      if (this.#store.projectByName(domain.id, name))
        throw new IdentityError(`there is a project '${name}' already`);
      write.putProject(project);
      return project;
    });
  }

  async setPassword(user: User, password: string): Promise<void> {
    const password_hash = await this.#hash(password);
    await this.#store.change((write) => {
      write.putUser({ ...user, password_hash, token_epoch: user.token_epoch + 1 });
    });
  }

  projects(): Project[] {
    return this.#store.projects().sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** An ID wins over a name; a name that stands in several domains is not one project. */
  projectByIdOrName(idOrName: string): Project {
    const byId = this.#store.project(idOrName);
    if (byId) return byId;
    const [project, another] = this.#store.projects().filter(({ name }) => name === idOrName);
    if (project === undefined) throw new IdentityError(`there is no project '${idOrName}'`);
    if (another) throw new IdentityError(`'${idOrName}' is a project in more than one domain: give its ID`);
    return project;
  }

  domainOf(record: { domain_id: string }): Domain | undefined {
    return this.#store.domain(record.domain_id);
  }

  userByName(domain: DomainReference, name: string): User | undefined {
    return this.#findUser({ name, domain });
  }

  #hash(password: string): Promise<string> {
    if (password.length === 0) throw new IdentityError('the password is empty');
    if (password.length > PASSWORD_LENGTH_MAX) {
      throw new IdentityError(`the password is longer than ${PASSWORD_LENGTH_MAX} characters`);
    }
    return this.#passwords.hash(password);
  }

  #findDomain(reference: DomainReference): Domain | undefined {
    return 'id' in reference ? this.#store.domain(reference.id) : this.#store.domainByName(reference.name);
  }

  #findUser(reference: PasswordLogin['user']): User | undefined {
    if ('id' in reference) return this.#store.user(reference.id);
    const domain = this.#findDomain(reference.domain);
    return domain && this.#store.userByName(domain.id, reference.name);
  }

  #findProject(reference: PasswordLogin['project']): Project | undefined {
    if ('id' in reference) return this.#store.project(reference.id);
    const domain = this.#findDomain(reference.domain);
    return domain && this.#store.projectByName(domain.id, reference.name);
  }
}

/** Something a person asked of identity that cannot be; the message is for them. */
export class IdentityError extends Error {}

export function newId(): string {
  return randomBytes(16).toString('hex');
}

/** A role in a domain holds in all its projects. */
function rolesIn(user: User, project: Project): Role[] {
  return [...(user.roles[project.id] ?? []), ...(user.roles[project.domain_id] ?? [])];
}

function checkName(what: string, name: string): void {
  if (name.length === 0 || name.length > NAME_LENGTH_MAX || /[\p{Cc}\p{Cs}]/u.test(name)) {
    throw new IdentityError(
      `the ${what} name must have 1 to ${NAME_LENGTH_MAX} characters and no control characters`,
    );
  }
}
