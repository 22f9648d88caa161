/** Creates and changes domains, projects, users and access keys. Rejects impossible changes with an IdentityError. */
import { randomBytes } from 'node:crypto';
import {
  type Actor,
  type AuditAction,
  type AuditEntry,
  type AuditObject,
  type AuditTrail,
  newAuditEntry,
} from '../audit/audit-trail.ts';
import { hasInvisible } from '../printable.ts';
import type { Store } from '../store/store.ts';
import { IdentityError, KeyLimitError, UnknownRecord } from './errors.ts';
import type { IdentityStore, IdentityWriter, NamedKind } from './identity-store.ts';
import {
  type AccessKey,
  type AccessKeyInfo,
  type Alert,
  type AlertRule,
  type Annotation,
  administersDomain,
  type Domain,
  type Project,
  type Role,
  type User,
} from './records.ts';
import {
  generateKeyPair,
  PASSWORD_LENGTH_MAX,
  PASSWORD_LENGTH_MIN,
  type Passwords,
  type SecretCipher,
} from './secrets.ts';

/** Names are shown in lists and logs, and are keys of the store. */
const NAME_LENGTH_MAX = 64;
/** The interface specification's limit. */
export const KEYS_PER_USER_MAX = 2;
const DESCRIPTION_LENGTH_MAX = 255;
/** One process evaluates all of them every ten seconds. */
const ALERTS_MAX = 1_000;
const ALERTS_PER_PROJECT_MAX = 100;
/** Every process keeps all of them in memory: at most 1 MB per project. Those with the latest times stay. */
const ANNOTATIONS_PER_PROJECT_MAX = 1_000;
const ANNOTATION_LENGTH_MAX = 200;
const LINK_LENGTH_MAX = 500;
/** For plans of the next day. Annotations of a later time would stay in front of all others. */
const ANNOTATION_AHEAD_MS = 86_400_000;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}]/u;

export type NewUser = Pick<User, 'name' | 'domain_id' | 'access' | 'roles'> & {
  password: string;
  enabled?: boolean;
};

export interface NewAlert {
  name: string;
  rule: AlertRule;
  channel: { webhook: string } | { mail: string };
}

export type NewAnnotation = Pick<Annotation, 'time' | 'text' | 'link'>;

interface UserChanges {
  password?: string | undefined;
  enabled?: boolean | undefined;
}

/** Roles by the ID of their project or domain. */
type Roles = User['roles'];

/** The name of the user or project that is changed. Removing the last administrator or project of a domain needs it. */
export interface Confirmation {
  confirm?: string | undefined;
}

/** For request handlers: reads need no actor; every change goes through `as(actor)`. */
export type AdministrationView = Pick<
  Administration,
  | 'as'
  | 'key'
  | 'keysOf'
  | 'domains'
  | 'domain'
  | 'projects'
  | 'project'
  | 'projectsOf'
  | 'projectsWithRoles'
  | 'users'
  | 'user'
  | 'alertsOf'
  | 'alertNamed'
  | 'annotationsOf'
>;

/** Makes a change in a transaction. It completes `entry`, which then goes to the audit trail. */
type Change<T> = (write: IdentityWriter, entry: AuditEntry, passwordHash: string) => T;

interface Step<T> {
  action: AuditAction;
  object: AuditObject;
  change: Change<T>;
  /** Hashed before the transaction, which must not take that long. */
  password?: string | undefined;
}

interface Dependencies {
  store: IdentityStore;
  passwords: Passwords;
  cipher: SecretCipher;
  alertCipher: SecretCipher;
  audit: AuditTrail;
  now: () => number;
}

export class Administration {
  readonly #dependencies: Dependencies;
  readonly #store: IdentityStore;
  readonly #actor: Actor;

  constructor(dependencies: Dependencies, actor: Actor) {
    this.#dependencies = dependencies;
    this.#store = dependencies.store;
    this.#actor = actor;
  }

  /** The same administration on behalf of another actor. */
  as(actor: Actor): Administration {
    return new Administration(this.#dependencies, actor);
  }

  /** Creates the first domain, with one project and one user who administers it. */
  async bootstrap(names: { domain: string; project: string; user: string }, password: string) {
    const object = { type: 'installation' } as const;
    const change: Change<{ domain: Domain; project: Project; user: User }> = (write, entry, hash) => {
      const domain = newDomain(names.domain);
      const project = this.#newProject(domain.id, names.project);
      const roles: Roles = { [domain.id]: ['admin'] };
      const user = this.#newUser({ name: names.user, domain_id: domain.id, access: 'both', roles }, hash);
      this.#checkIsNew('domain', '', domain.name);
      write.put('domain', domain);
      write.put('project', project);
      write.put('user', user);
      entry.domain_id = domain.id;
      entry.after = { domain: named(domain), project: named(project), user: named(user) };
      return { domain, project, user };
    };
    return this.#change('installation.create', object, change, password);
  }

  async addDomain(name: string): Promise<Domain> {
    return this.#change('domain.add', { type: 'domain', name }, (write, entry) => {
      const domain = newDomain(name);
      this.#checkIsNew('domain', '', name);
      write.put('domain', domain);
      describe(entry, domain);
      return domain;
    });
  }

  async addProject(domainId: string, name: string, enabled = true): Promise<Project> {
    return this.#change('project.add', { type: 'project', name }, (write, entry) => {
      const project = { ...this.#newProject(domainId, name), enabled };
      this.#checkDomain(domainId);
      this.#checkIsNew('project', domainId, name);
      write.put('project', project);
      describe(entry, project);
      entry.after = { domain_id: domainId, ...(enabled ? {} : { enabled }) };
      return project;
    });
  }

  async addUser({ password, ...given }: NewUser): Promise<User> {
    const change: Change<User> = (write, entry, hash) => {
      const user = this.#newUser(given, hash);
      this.#checkDomain(user.domain_id);
      this.#checkScopes(user.roles);
      this.#checkIsNew('user', user.domain_id, user.name);
      write.put('user', user);
      const { domain_id, access, roles, enabled } = user;
      describe(entry, user);
      entry.after = { domain_id, access, roles, ...(enabled ? {} : { enabled }) };
      return user;
    };
    return this.#change('user.add', { type: 'user', name: given.name }, change, password);
  }

  /**
   * Revokes the user's tokens and sessions. `checked`: the user who has confirmed the old password. The change is refused if
   * that has been replaced since, or the user disabled.
   */
  async setPassword(id: string, password: string, checked?: User): Promise<User> {
    const [user] = await this.#runSteps([this.#passwordStep(id, password, checked)]);
    return user as User;
  }

  /** Makes all changes, or none. */
  async changeUser(
    id: string,
    { password, enabled }: UserChanges,
    confirmation: Confirmation = {},
  ): Promise<void> {
    const steps: Step<unknown>[] = [];
    if (password !== undefined) steps.push(this.#passwordStep(id, password));
    if (enabled !== undefined) steps.push(this.#enabledStep('user', id, enabled, confirmation));
    if (steps.length > 0) await this.#runSteps(steps);
  }

  #passwordStep(id: string, password: string, checked?: User): Step<User> {
    const change: Change<User> = (write, entry, password_hash) => {
      const user = describe(entry, this.user(id));
      if (checked && checked.token_epoch !== user.token_epoch)
        throw new IdentityError(
          'another password was set, or the user was disabled, meanwhile: sign in again',
        );
      const changed = { ...user, password_hash, token_epoch: user.token_epoch + 1 };
      write.put('user', changed);
      return changed;
    };
    return { action: 'user.set_password', object: { type: 'user', id }, change, password };
  }

  async changeRole(
    verb: 'grant' | 'revoke',
    userId: string,
    scopeId: string,
    role: Role,
    confirmation: Confirmation = {},
  ): Promise<void> {
    await this.#change(`role.${verb}`, { type: 'user', id: userId }, (write, entry) => {
      // Roles are the business of the domain in which they are held.
      const { domain_id } = this.#store.get('project', scopeId) ?? { domain_id: scopeId };
      const user = describe(entry, this.user(userId), domain_id);
      if (verb === 'grant') this.#checkScopes({ [scopeId]: [role] });
      const before = user.roles[scopeId] ?? [];
      const after =
        verb === 'grant' ? [...new Set(before).add(role)] : before.filter((held) => held !== role);
      const changed = { ...user, roles: { ...user.roles, [scopeId]: after } };
      this.#checkAdministrators(user, changed, confirmation);
      write.put('user', changed);
      entry.before = { scope_id: scopeId, roles: before };
      entry.after = { scope_id: scopeId, roles: after };
    });
  }

  async setEnabled(
    type: 'user' | 'project' | 'domain',
    id: string,
    enabled: boolean,
    confirmation: Confirmation = {},
  ): Promise<void> {
    await this.#runSteps([this.#enabledStep(type, id, enabled, confirmation)]);
  }

  #enabledStep(
    type: 'user' | 'project' | 'domain',
    id: string,
    enabled: boolean,
    confirmation: Confirmation,
  ): Step<void> {
    const change: Change<void> = (write, entry) => {
      const before = this[type](id);
      // Existing tokens stay revoked when the user is enabled again.
      const epoch = type === 'user' && !enabled ? { token_epoch: this.user(id).token_epoch + 1 } : {};
      describe(entry, before);
      if (type === 'user' && !enabled) this.#checkAdministrators(this.user(id), null, confirmation);
      if (type === 'project' && !enabled) this.#checkProjects(this.project(id), confirmation);
      write.put(type, { ...before, enabled, ...epoch });
      entry.before = { enabled: before.enabled };
      entry.after = { enabled };
    };
    const action = `${type}.${enabled ? 'enable' : 'disable'}` as const;
    return { action, object: { type, id }, change };
  }

  async removeUser(id: string, confirmation: Confirmation = {}): Promise<void> {
    await this.#change('user.delete', { type: 'user', id }, (write, entry) => {
      const keys = this.#store.keysOf(id);
      const user = describe(entry, this.user(id));
      this.#checkAdministrators(user, null, confirmation);
      for (const key of keys) write.removeKey(key);
      write.remove('user', user);
      const { domain_id, access, enabled, roles } = user;
      entry.before = { domain_id, access, enabled, roles, keys: keys.map((key) => key.access) };
    });
  }

  /**
   * The project's counts stay until their retention ends, but nobody can query them. Its top lists are deleted last, because
   * the change may be refused. If that fails, they are out of reach like the counts, and expire with their own retention.
   */
  async removeProject(
    id: string,
    store: Pick<Store, 'deleteDetails'>,
    confirmation: Confirmation = {},
  ): Promise<void> {
    await this.#change('project.delete', { type: 'project', id }, (write, entry) => {
      const project = describe(entry, this.project(id));
      this.#checkProjects(project, confirmation);
      this.#removeRoles(write, id);
      for (const alert of this.#store.alertsOf(id)) write.removeAlert(alert);
      for (const annotation of this.#store.annotationsOf(id)) write.removeAnnotation(annotation);
      write.remove('project', project);
      entry.before = { domain_id: project.domain_id, enabled: project.enabled };
    });
    await store.deleteDetails(id);
  }

  async removeDomain(id: string): Promise<void> {
    await this.#change('domain.delete', { type: 'domain', id }, (write, entry) => {
      const domain = describe(entry, this.domain(id));
      const members = [...this.#store.list('project'), ...this.#store.list('user')];
      if (members.some(({ domain_id }) => domain_id === id)) {
        throw new IdentityError(`domain '${domain.name}' still has projects or users: delete them first`);
      }
      // Users of other domains can have roles in it.
      this.#removeRoles(write, id);
      write.remove('domain', domain);
      entry.before = { enabled: domain.enabled };
    });
  }

  #removeRoles(write: IdentityWriter, scopeId: string): void {
    for (const user of this.#store.list('user')) {
      if (user.roles[scopeId] === undefined) continue;
      const { [scopeId]: _, ...roles } = user.roles;
      write.put('user', { ...user, roles });
    }
  }

  /** Returns the secret. No other method does. */
  async addKey(userId: string, description: string): Promise<AccessKeyInfo & { secret: string }> {
    return this.#change('key.add', { type: 'key' }, (write, entry) => {
      checkDescription(description);
      const { access, secret } = generateKeyPair();
      const user = this.user(userId);
      entry.domain_id = user.domain_id;
      entry.after = { user_id: user.id, user: user.name, description, status: 'active' };
      const { length } = this.#store.keysOf(user.id);
      if (length >= KEYS_PER_USER_MAX)
        throw new KeyLimitError(
          `user '${user.name}' already has ${length} access keys, the maximum: delete one first`,
        );
      const { cipher, now } = this.#dependencies;
      const key: AccessKeyInfo = { access, user_id: user.id, description, status: 'active', created: now() };
      write.putKey({ ...key, sealed_secret: cipher.encrypt(access, secret) });
      entry.object.id = access;
      return { ...key, secret };
    });
  }

  async changeKey(
    access: string,
    change: Partial<Pick<AccessKey, 'status' | 'description'>>,
  ): Promise<AccessKeyInfo> {
    return this.#change('key.update', { type: 'key', id: access }, (write, entry) => {
      checkDescription(change.description ?? '');
      const before = this.#changedKey(entry, access);
      const key = { ...before, ...change };
      write.putKey(key);
      entry.after = { description: key.description, status: key.status };
      return withoutSecret(key);
    });
  }

  async removeKey(access: string): Promise<void> {
    await this.#change('key.delete', { type: 'key', id: access }, (write, entry) => {
      write.removeKey(this.#changedKey(entry, access));
    });
  }

  /** `secret` signs the messages of a webhook; no other method returns it. */
  async addAlert(
    projectId: string,
    { name, rule, channel }: NewAlert,
  ): Promise<{ alert: Alert; secret?: string }> {
    return this.#change('alert.add', { type: 'alert', name }, (write, entry) => {
      checkName('alert', name);
      const { domain_id } = this.project(projectId);
      const others = this.#store.alertsOf(projectId);
      if (others.some((other) => other.name === name))
        throw new IdentityError(
          `the project already has an alert '${name}': delete it, or choose another name`,
        );
      checkAlertLimit(others.length, ALERTS_PER_PROJECT_MAX, 'the project');
      checkAlertLimit(this.#store.alerts().length, ALERTS_MAX, 'the installation');
      const common = { id: newId(), project_id: projectId, name, rule, created: this.#dependencies.now() };
      const { secret } = generateKeyPair();
      const alert: Alert =
        'mail' in channel
          ? { ...common, channel: 'mail', target: channel.mail }
          : {
              ...common,
              channel: 'webhook',
              target: `${new URL(channel.webhook).origin}/***`,
              sealed: this.#dependencies.alertCipher.encrypt(
                common.id,
                JSON.stringify({ url: channel.webhook, secret }),
              ),
            };
      write.putAlert(alert);
      describe(entry, alert, domain_id);
      entry.after = { project_id: projectId, rule, channel: alert.channel, target: alert.target };
      return 'mail' in channel ? { alert } : { alert, secret };
    });
  }

  /** Also deletes its incidents. */
  async removeAlert(projectId: string, idOrName: string): Promise<void> {
    await this.#change('alert.delete', { type: 'alert', name: idOrName }, (write, entry) => {
      const alert = describe(entry, this.alertNamed(projectId, idOrName), this.project(projectId).domain_id);
      const { project_id, rule, channel, target } = alert;
      write.removeAlert(alert);
      entry.before = { project_id, rule, channel, target };
    });
  }

  async addAnnotation(projectId: string, given: NewAnnotation): Promise<Annotation> {
    return this.#change('annotation.add', { type: 'annotation', name: given.text }, (write, entry) => {
      checkAnnotation(given, this.#dependencies.now());
      const { domain_id } = this.project(projectId);
      const { time, text, link } = given;
      // A deployment that adds one each time must not fail some day: the oldest ones go.
      const oldest = this.annotationsOf(projectId).slice(ANNOTATIONS_PER_PROJECT_MAX - 1);
      if (oldest[0] !== undefined && time < oldest[0].time)
        throw new IdentityError(
          `the project has ${ANNOTATIONS_PER_PROJECT_MAX} later annotations, the maximum, because every process keeps them in memory: delete some of them first`,
        );
      for (const annotation of oldest) write.removeAnnotation(annotation);
      const annotation = { id: newId(), project_id: projectId, time, text, link };
      write.putAnnotation(annotation);
      describe(entry, { id: annotation.id, name: text }, domain_id);
      const deleted = oldest.map(({ id }) => id);
      entry.after = { project_id: projectId, time, link, ...(deleted.length > 0 && { deleted }) };
      return annotation;
    });
  }

  async removeAnnotation(projectId: string, id: string): Promise<void> {
    await this.#change('annotation.delete', { type: 'annotation', id }, (write, entry) => {
      const found = this.#store.get('annotation', id);
      const annotation = known('annotation', id, found?.project_id === projectId ? found : undefined);
      const { time, text, link } = annotation;
      write.removeAnnotation(annotation);
      describe(entry, { id, name: text }, this.project(projectId).domain_id);
      entry.before = { project_id: projectId, time, link };
    });
  }

  async #change<T>(
    action: AuditAction,
    object: AuditObject,
    change: Change<T>,
    password?: string,
  ): Promise<T> {
    const [result] = await this.#runSteps([{ action, object, change, password }]);
    return result as T;
  }

  /**
   * Every change goes through here. All steps are one transaction. The audit lines are written in it, after all checks and
   * before the commit, so that no change lacks its line. If the commit fails, second lines with the same IDs say so.
   */
  async #runSteps<T>(steps: readonly Step<T>[]): Promise<T[]> {
    const { audit } = this.#dependencies;
    const prepared = steps.map(({ action, object, ...step }) => {
      audit.admit(this.#actor);
      return { ...step, entry: newAuditEntry(this.#actor, action, object), hash: '' };
    });
    let isChecked = false;
    try {
      for (const step of prepared)
        if (step.password !== undefined) step.hash = await this.#hash(step.password);
      return await this.#store.change((write) => {
        const results = prepared.map(({ change, entry, hash }) => change(write, entry, hash));
        for (const { entry } of prepared) write.audit(entry);
        isChecked = true;
        return results;
      });
    } catch (error) {
      const reason = (error as Error).message;
      const outcome = isChecked ? 'failed' : 'refused';
      if (isChecked || error instanceof IdentityError)
        for (const { entry } of prepared) void audit.note({ ...entry, outcome, reason });
      throw error;
    }
  }

  /** Must run in the transaction of the change: what the caller has checked may have been deleted meanwhile. */
  #checkDomain(id: string): void {
    known('domain', id, this.#store.get('domain', id));
  }

  /** Like `#checkDomain`. */
  #checkScopes(roles: Roles): void {
    const ids = Object.keys(roles).filter((id) => roles[id]?.length);
    for (const id of ids)
      known('project or domain', id, this.#store.get('project', id) ?? this.#store.get('domain', id));
  }

  /** Throws if no administrator who can sign in would remain in the domain. `after` is null if the user is deleted. */
  #checkAdministrators(before: User, after: User | null, { confirm }: Confirmation): void {
    const { domain_id } = before;
    const administers = (user: User) => user.enabled && administersDomain(user, domain_id);
    // The console is for users of the domain only.
    const others = this.#store
      .list('user')
      .filter((user) => user.domain_id === domain_id && user.id !== before.id);
    if (!administers(before) || (after && administers(after)) || others.some(administers)) return;
    this.#checkConfirmed(
      confirm,
      before.name,
      `user '${before.name}' is the last administrator of the domain, and nobody could manage it afterwards`,
    );
  }

  #checkProjects(project: Project, { confirm }: Confirmation): void {
    const { id, name, domain_id, enabled } = project;
    const others = this.#store.list('project').filter((one) => one.domain_id === domain_id && one.id !== id);
    // The command line asks for the name before a project is deleted.
    if (!enabled || this.#actor.via === 'command line' || others.some((one) => one.enabled)) return;
    this.#checkConfirmed(
      confirm,
      name,
      `project '${name}' is the last enabled project of the domain, and nobody could read statistics or send logs afterwards`,
    );
  }

  #checkConfirmed(confirm: string | undefined, name: string, consequence: string): void {
    if (confirm === name) return;
    const how = this.#actor.via === 'command line' ? 'use --force' : `repeat the call with confirm=${name}`;
    throw new IdentityError(`${consequence}: to do it anyway, ${how}`);
  }

  alertsOf(projectId: string): Alert[] {
    return byName(this.#store.alertsOf(projectId));
  }

  alertNamed(projectId: string, idOrName: string): Alert {
    const found = this.#store
      .alertsOf(projectId)
      .find(({ id, name }) => id === idOrName || name === idOrName);
    return known('alert', idOrName, found);
  }

  /** Newest first. */
  annotationsOf(projectId: string): Annotation[] {
    return this.#store.annotationsOf(projectId).sort((a, b) => b.time - a.time || (a.id < b.id ? -1 : 1));
  }

  key(access: string): AccessKeyInfo {
    return withoutSecret(this.#key(access));
  }

  keysOf(userId: string): AccessKeyInfo[] {
    return this.#store.keysOf(userId).map(withoutSecret);
  }

  domains(): Domain[] {
    return byName(this.#store.list('domain'));
  }

  projects(): Project[] {
    return byName(this.#store.list('project'));
  }

  /** The enabled projects in which the user has any role. */
  projectsOf(user: Pick<User, 'roles'>): Project[] {
    return this.projectsWithRoles(user).filter(({ enabled }) => enabled);
  }

  /**
   * Includes disabled projects. Reads only the projects and domains that the roles name: an installation may have thousands
   * of others.
   */
  projectsWithRoles({ roles }: Pick<User, 'roles'>): Project[] {
    const ids = Object.keys(roles).filter((id) => roles[id]?.length);
    const found = ids.flatMap((id) =>
      [this.#store.get('project', id) ?? [], this.#store.projectsIn(id)].flat(),
    );
    return byName([...new Map(found.map((project) => [project.id, project])).values()]);
  }

  users(): User[] {
    return byName(this.#store.list('user'));
  }

  domain(id: string): Domain {
    return known('domain', id, this.#store.get('domain', id));
  }

  project(id: string): Project {
    return known('project', id, this.#store.get('project', id));
  }

  user(id: string): User {
    return known('user', id, this.#store.get('user', id));
  }

  /**
   * Finds a domain by ID or name. `projectNamed` and `userNamed` also reject a name that several domains use. For the command
   * line only: a record of another domain may have the ID of a deleted record as its name.
   */
  domainNamed(idOrName: string): Domain {
    return this.#store.get('domain', idOrName) ?? onlyNamed('domain', idOrName, this.#store.list('domain'));
  }

  projectNamed(idOrName: string): Project {
    return (
      this.#store.get('project', idOrName) ?? onlyNamed('project', idOrName, this.#store.list('project'))
    );
  }

  userNamed(idOrName: string): User {
    return this.#store.get('user', idOrName) ?? onlyNamed('user', idOrName, this.#store.list('user'));
  }

  /** The given domain; by default the only one. */
  onlyDomain(idOrName: string | undefined): Domain {
    if (idOrName !== undefined) return this.domainNamed(idOrName);
    const [domain, another] = this.#store.list('domain');
    if (domain === undefined || another)
      throw new IdentityError('there are several domains: choose one with --domain');
    return domain;
  }

  #key(access: string): AccessKey {
    return known('access key', access, this.#store.get('key', access));
  }

  #changedKey(entry: AuditEntry, access: string): AccessKey {
    const key = this.#key(access);
    const { user_id, description, status } = key;
    entry.domain_id = this.user(user_id).domain_id;
    entry.before = { user_id, description, status };
    return key;
  }

  #newProject(domain_id: string, name: string): Project {
    checkName('project', name);
    return { id: newId(), name, domain_id, enabled: true, created: this.#dependencies.now() };
  }

  #newUser(given: Omit<NewUser, 'password'>, password_hash: string): User {
    checkName('user', given.name);
    const created = this.#dependencies.now();
    return { id: newId(), enabled: true, created, token_epoch: 0, ...given, password_hash };
  }

  #hash(password: string): Promise<string> {
    if (password.length < PASSWORD_LENGTH_MIN || password.length > PASSWORD_LENGTH_MAX) {
      throw new IdentityError(
        `the password must have ${PASSWORD_LENGTH_MIN} to ${PASSWORD_LENGTH_MAX} characters`,
      );
    }
    return this.#dependencies.passwords.hash(password);
  }

  /** Names are stored as given, in any Unicode form, but two forms of one name look the same. */
  #checkIsNew(kind: NamedKind, domainId: string, name: string): void {
    const existing = this.#store.similarName(kind, domainId, name);
    if (existing !== undefined) throw new IdentityError(`${kind} '${existing}' already exists`);
  }
}

/** Adds the record that changes, and its domain, to the audit entry. */
function describe<T extends { id: string; name: string; domain_id?: string }>(
  entry: AuditEntry,
  record: T,
  domainId = record.domain_id ?? record.id,
): T {
  entry.object = { ...entry.object, id: record.id, name: record.name };
  entry.domain_id = domainId;
  return record;
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

/** Two names must not look the same. */
function checkName(what: string, name: string): void {
  const { length } = name;
  if (length > 0 && length <= NAME_LENGTH_MAX && !hasInvisible(name) && name.trim() === name) return;
  throw new IdentityError(
    `the ${what} name must have 1 to ${NAME_LENGTH_MAX} characters, without invisible characters, and no space at its ends`,
  );
}

function checkDescription(text: string): void {
  if (text.length <= DESCRIPTION_LENGTH_MAX && !UNPRINTABLE.test(text)) return;
  throw new IdentityError(
    `the description must have 0 to ${DESCRIPTION_LENGTH_MAX} characters, without control or format characters`,
  );
}

/** The text is shown in charts, and the link is something to click. */
function checkAnnotation({ time, text, link }: NewAnnotation, now: number): void {
  if (!Number.isSafeInteger(time) || time < 0 || time > now + ANNOTATION_AHEAD_MS)
    throw new IdentityError(
      'time must be a whole number of milliseconds since the epoch, at most a day from now',
    );
  if (text.trim() === '' || [...text].length > ANNOTATION_LENGTH_MAX || hasInvisible(text))
    throw new IdentityError(
      `text must have 1 to ${ANNOTATION_LENGTH_MAX} characters, without invisible characters`,
    );
  if (link === null) return;
  const isHttp = /^https?:\/\//i.test(link) && URL.canParse(link);
  if (!isHttp || link.length > LINK_LENGTH_MAX || hasInvisible(link) || link.includes(' '))
    throw new IdentityError(`link must be an http or https URL of up to ${LINK_LENGTH_MAX} characters`);
}

function checkAlertLimit(count: number, max: number, whose: string): void {
  if (count >= max)
    throw new IdentityError(
      `${whose} already has ${max} alerts, the maximum, because all are evaluated every 10 s: delete one first`,
    );
}

function known<T>(what: string, id: string, found: T | undefined): T {
  if (found === undefined) throw new UnknownRecord(`unknown ${what} '${id}'`);
  return found;
}

function onlyNamed<T extends { name: string }>(what: string, name: string, all: readonly T[]): T {
  const [one, another] = all.filter((candidate) => candidate.name === name);
  if (one === undefined)
    throw new UnknownRecord(`unknown ${what} '${name}' ('wafstat ${what} list' shows the ${what}s)`);
  if (another) throw new IdentityError(`several domains have a ${what} '${name}': use its ID`);
  return one;
}

function byName<T extends { name: string }>(records: T[]): T[] {
  return records.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function withoutSecret({ sealed_secret: _, ...key }: AccessKey): AccessKeyInfo {
  return key;
}
