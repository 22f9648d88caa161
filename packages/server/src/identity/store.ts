/** Identity at rest: a small LMDB file of its own, so that losing or moving the statistics never touches it. */
import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, writeSync } from 'node:fs';
import type { Key, RootDatabase } from 'lmdb';
import { PerTurnMemo } from '../cache.ts';
import { CommitFailed, Committer } from '../lmdb/commit.ts';
import { commitSync, createPrivateFiles, openLmdb } from '../lmdb/files.ts';
import type { AccessKey, Domain, Project, User } from './records.ts';
import { IdentityNotWritable } from './unavailable.ts';

export interface IdentityStore {
  domain(id: string): Domain | undefined;
  domainByName(name: string): Domain | undefined;
  domains(): Domain[];
  project(id: string): Project | undefined;
  projectByName(domainId: string, name: string): Project | undefined;
  projects(): Project[];
  user(id: string): User | undefined;
  userByName(domainId: string, name: string): User | undefined;
  users(): User[];
  key(access: string): AccessKey | undefined;
  /** By the SHA-256 of the access key ID, in hex: how Keystone names such a credential. */
  keyByHash(hash: string): AccessKey | undefined;
  keysOf(userId: string): AccessKey[];
  isRevoked(tokenId: string): boolean;
  /** When the user last logged in from a network, given as a hash. */
  knownLogin(userId: string, hash: string): number | undefined;
  /** Drops the user's entries from before `before`, and the oldest beyond `max`. Does not count as a change. */
  putKnownLogin(
    userId: string,
    hash: string,
    time: number,
    limits: { max: number; before: number },
  ): Promise<void>;
  /** Remembers the mark the first time; later, whether it is still the same. */
  hasMark(mark: string): boolean;
  /** The statistics file that belongs to this one, once there is one. */
  statisticsFileId(): number | undefined;
  setStatisticsFileId(id: number): void;
  /** How often anything has been changed, by whatever process: what was read before holds as long as it stays. */
  changes(): number;
  /**
   * Runs the changes in one transaction: all of them are durable when it resolves, or none was made. Rejects with
   * IdentityNotWritable when the disk is full, or another process holds the write lock too long.
   */
  change<T>(action: (write: IdentityWriter) => T): Promise<T>;
  /** Rejects with IdentityNotWritable while changes fail. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

export interface IdentityWriter {
  putDomain(domain: Domain): void;
  removeDomain(domain: Domain): void;
  putProject(project: Project): void;
  removeProject(project: Project): void;
  putUser(user: User): void;
  removeUser(user: User): void;
  putKey(key: AccessKey): void;
  removeKey(key: AccessKey): void;
  /** Remembers a token as revoked until it would have expired, and forgets those that have. */
  revoke(token: { id: string; expires_at: number }, now: number): void;
}

/** No name or ID is longer, and LMDB's keys have a limit: what a stranger sends beyond it is not found. */
const KEY_LENGTH_MAX = 256;

/** Raised when old files can no longer be read as they are. */
const IDENTITY_VERSION = 1;

export function openIdentityStore(path: string): IdentityStore {
  const db = openTables(path);
  const version = db.meta.get('version') ?? IDENTITY_VERSION;
  if (version !== IDENTITY_VERSION) {
    throw new Error(`${path} has version ${version}, but this release reads version ${IDENTITY_VERSION}`);
  }
  // Files of earlier days have keys without hashes. Otherwise opening needs no lock, which another process may hold.
  if (!db.meta.doesExist('version') || db.keyHashes.getCount() !== db.keys.getCount()) {
    commitSync(path, db.root, () => {
      db.meta.putSync('version', IDENTITY_VERSION);
      for (const access of [...db.keys.getKeys()]) db.keyHashes.putSync(hashOf(access), access);
    });
  }

  const named = (kind: 'domain' | 'project' | 'user', domain: string, name: string) =>
    name.length > KEY_LENGTH_MAX || domain.length > KEY_LENGTH_MAX
      ? undefined
      : db.names.get([kind, domain, name]);
  const found = <V>(from: { get(id: string): V | undefined }, id: string | undefined) =>
    id === undefined || id.length > KEY_LENGTH_MAX ? undefined : from.get(id);
  const all = <V>(from: { getRange(): Iterable<{ value: V }> }) =>
    [...from.getRange()].map(({ value }) => value);

  const knownLoginsOf = (userId: string) => [
    ...db.knownLogins.getRange({ start: [userId, ''], end: [userId, '\uffff'] }),
  ];

  const countChanges = () => Number(db.meta.get('changes') ?? 0);
  const changes = new PerTurnMemo(countChanges);

  const writer: IdentityWriter = {
    putDomain(domain) {
      db.domains.putSync(domain.id, domain);
      db.names.putSync(['domain', '', domain.name], domain.id);
    },
    removeDomain(domain) {
      db.domains.removeSync(domain.id);
      db.names.removeSync(['domain', '', domain.name]);
    },
    putProject(project) {
      db.projects.putSync(project.id, project);
      db.names.putSync(['project', project.domain_id, project.name], project.id);
    },
    removeProject(project) {
      db.projects.removeSync(project.id);
      db.names.removeSync(['project', project.domain_id, project.name]);
    },
    putUser(user) {
      db.users.putSync(user.id, user);
      db.names.putSync(['user', user.domain_id, user.name], user.id);
    },
    removeUser(user) {
      db.users.removeSync(user.id);
      db.names.removeSync(['user', user.domain_id, user.name]);
      for (const { key } of knownLoginsOf(user.id)) db.knownLogins.removeSync(key);
    },
    putKey(key) {
      db.keys.putSync(key.access, key);
      db.userKeys.putSync([key.user_id, key.access], true);
      db.keyHashes.putSync(hashOf(key.access), key.access);
    },
    removeKey(key) {
      db.keys.removeSync(key.access);
      db.userKeys.removeSync([key.user_id, key.access]);
      db.keyHashes.removeSync(hashOf(key.access));
    },
    revoke(token, now) {
      db.revoked.putSync(token.id, token.expires_at);
      db.revokedUntil.putSync([token.expires_at, token.id], true);
      for (const [expires, id] of [...db.revokedUntil.getKeys({ end: [now], limit: 1_000 })]) {
        db.revoked.removeSync(id);
        db.revokedUntil.removeSync([expires, id]);
      }
    },
  };

  const committer = new Committer({
    path,
    root: () => db.root,
    async reopen() {
      await db.root.close();
      Object.assign(db, openTables(path));
    },
    probe: () => db.meta.putSync('version', IDENTITY_VERSION),
  });

  return {
    domain: (id) => found(db.domains, id),
    domainByName: (name) => found(db.domains, named('domain', '', name)),
    domains: () => all(db.domains),
    project: (id) => found(db.projects, id),
    projectByName: (domainId, name) => found(db.projects, named('project', domainId, name)),
    projects: () => all(db.projects),
    user: (id) => found(db.users, id),
    userByName: (domainId, name) => found(db.users, named('user', domainId, name)),
    users: () => all(db.users),
    key: (access) => found(db.keys, access),
    keyByHash: (hash) => found(db.keys, found(db.keyHashes, hash)),
    keysOf: (userId) =>
      [...db.userKeys.getKeys({ start: [userId, ''], end: [userId, '\uffff'] })].flatMap(
        ([, access]) => db.keys.get(access) ?? [],
      ),
    isRevoked: (tokenId) => db.revoked.doesExist(tokenId),
    knownLogin: (userId, hash) =>
      userId.length > KEY_LENGTH_MAX ? undefined : db.knownLogins.get([userId, hash]),
    putKnownLogin: (userId, hash, time, { max, before }) =>
      committer
        .run(() => {
          const byAge = knownLoginsOf(userId).sort((a, b) => b.value - a.value);
          for (const [i, { key, value }] of byAge.entries())
            if (i >= max - 1 || value < before) db.knownLogins.removeSync(key);
          // The user may have been deleted meanwhile.
          if (db.users.doesExist(userId)) db.knownLogins.putSync([userId, hash], time);
        })
        .catch(rethrow),
    hasMark(mark) {
      if (!db.meta.doesExist('mark')) {
        commitSync(path, db.root, () => db.meta.doesExist('mark') || db.meta.putSync('mark', mark));
      }
      return db.meta.get('mark') === mark;
    },
    statisticsFileId: () => {
      const id = db.meta.get('statistics');
      return typeof id === 'number' ? id : undefined;
    },
    setStatisticsFileId: (id) => commitSync(path, db.root, () => void db.meta.putSync('statistics', id)),
    changes: () => changes.get(),
    change: (action) =>
      committer
        .run(() => {
          db.meta.putSync('changes', countChanges() + 1);
          const result = action(writer);
          reserveSpace(path, db.root);
          return result;
        })
        .catch(rethrow)
        .finally(() => changes.forget()),
    checkWrites: () => committer.check().catch(rethrow),
    close: () => committer.close(),
  };
}

function openTables(path: string) {
  // It holds password hashes, and the folder may have been made by someone else.
  createPrivateFiles(path);
  const { root, table: openTable } = openLmdb(path);
  const table = <V, K extends Key>(name: string) => openTable<V, K>(name, { encoding: 'json' });
  return {
    root,
    meta: table<number | string, 'version' | 'mark' | 'changes' | 'statistics'>('meta'),
    domains: table<Domain, string>('domains'),
    projects: table<Project, string>('projects'),
    users: table<User, string>('users'),
    // Names are unique: those of domains everywhere, those of projects and users in their domain.
    names: table<string, [kind: 'domain' | 'project' | 'user', domain: string, name: string]>('names'),
    keys: table<AccessKey, string>('keys'),
    userKeys: table<true, [user: string, access: string]>('user-keys'),
    keyHashes: table<string, string>('key-hashes'),
    revoked: table<number, string>('revoked'),
    revokedUntil: table<true, [expires: number, token: string]>('revoked-until'),
    knownLogins: table<number, [user: string, hash: string]>('known-logins'),
  };
}

/** Of the file, beyond the last page in use: on a full disk there is room for some 5,000 more revocations. */
const RESERVED_BYTES = 1_048_576;

/** Reserves space at the end of the file. Only in a transaction, because no other process writes there then. */
function reserveSpace(path: string, root: RootDatabase): void {
  // What lmdb-js returns, but does not declare.
  const { lastPageNumber, pageSize } = root.getStats() as { lastPageNumber: number; pageSize: number };
  const end = (lastPageNumber + 1) * pageSize + RESERVED_BYTES;
  const file = openSync(path, 'r+');
  try {
    const { size } = fstatSync(file);
    // In large steps, not with each change.
    if (end - size > RESERVED_BYTES / 2) writeSync(file, Buffer.alloc(end - size), 0, end - size, size);
  } catch {
    // No room to reserve is no reason to refuse the change itself.
  } finally {
    closeSync(file);
  }
}

function rethrow(error: unknown): never {
  if (error instanceof CommitFailed) throw new IdentityNotWritable(error);
  throw error;
}

function hashOf(access: string): string {
  return createHash('sha256').update(access).digest('hex');
}
