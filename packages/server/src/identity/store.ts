/** Identity at rest: a small LMDB file of its own, so that losing or moving the statistics never touches it. */
import { chmodSync } from 'node:fs';
import { type Key, open } from 'lmdb';
import type { Domain, Project, User } from './records.ts';

export interface IdentityStore {
  domain(id: string): Domain | undefined;
  domainByName(name: string): Domain | undefined;
  project(id: string): Project | undefined;
  projectByName(domainId: string, name: string): Project | undefined;
  projects(): Project[];
  user(id: string): User | undefined;
  userByName(domainId: string, name: string): User | undefined;
  /** Runs the changes in one transaction: all of them are durable when it resolves, or none was made. */
  change<T>(action: (write: IdentityWriter) => T): Promise<T>;
  close(): Promise<void>;
}

export interface IdentityWriter {
  putDomain(domain: Domain): void;
  putProject(project: Project): void;
  putUser(user: User): void;
}

/** Raised when old files can no longer be read as they are. */
const IDENTITY_VERSION = 1;

export function openIdentityStore(path: string): IdentityStore {
  const root = open({ path, noSubdir: true, maxDbs: 16, overlappingSync: false });
  // It holds password hashes, and the folder may have been made by someone else.
  chmodSync(path, 0o600);
  const table = <V, K extends Key>(name: string) => root.openDB<V, K>(name, { encoding: 'json' });
  const meta = table<number, 'version'>('meta');
  const domains = table<Domain, string>('domains');
  const projects = table<Project, string>('projects');
  const users = table<User, string>('users');
  // Names are unique: those of domains everywhere, those of projects and users in their domain.
  const names = table<string, [kind: 'domain' | 'project' | 'user', domain: string, name: string]>('names');

  root.transactionSync(() => {
    const version = meta.get('version');
    if (version === undefined) meta.putSync('version', IDENTITY_VERSION);
    else if (version !== IDENTITY_VERSION) {
      throw new Error(`${path} has version ${version}, but this release reads version ${IDENTITY_VERSION}`);
    }
  });

  const named = (kind: 'domain' | 'project' | 'user', domain: string, name: string) =>
    names.get([kind, domain, name]);
  const found = <V>(from: { get(id: string): V | undefined }, id: string | undefined) =>
    id === undefined ? undefined : from.get(id);

  const writer: IdentityWriter = {
    putDomain(domain) {
      domains.putSync(domain.id, domain);
      names.putSync(['domain', '', domain.name], domain.id);
    },
    putProject(project) {
      projects.putSync(project.id, project);
      names.putSync(['project', project.domain_id, project.name], project.id);
    },
    putUser(user) {
      users.putSync(user.id, user);
      names.putSync(['user', user.domain_id, user.name], user.id);
    },
  };

  return {
    domain: (id) => domains.get(id),
    domainByName: (name) => found(domains, named('domain', '', name)),
    project: (id) => projects.get(id),
    projectByName: (domainId, name) => found(projects, named('project', domainId, name)),
    projects: () => [...projects.getRange()].map(({ value }) => value),
    user: (id) => users.get(id),
    userByName: (domainId, name) => found(users, named('user', domainId, name)),
    // A child transaction, because only that is rolled back when the action throws.
    change: (action) => root.childTransaction(() => action(writer)) as Promise<ReturnType<typeof action>>,
    close: () => root.close(),
  };
}
