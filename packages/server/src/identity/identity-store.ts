/** The identity store: an LMDB file, separate from the statistics so that replacing those never affects it. */
import { hash } from 'node:crypto';
import { closeSync, fstatSync, openSync, writeSync } from 'node:fs';
import type { Key, RootDatabase } from 'lmdb';
import { PerTurnMemo } from '../cache.ts';
import { CommitFailed, Committer } from '../lmdb/commit.ts';
import { createPrivateFiles } from '../lmdb/files.ts';
import { openLmdb, writeAtOnce } from '../lmdb/open.ts';
import { IdentityNotWritable } from './errors.ts';
import type { AccessKey, Domain, Project, User } from './records.ts';

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
  /** By the SHA-256 of the access key ID in hex, which is the ID of the credential in Keystone. */
  keyByHash(hash: string): AccessKey | undefined;
  keysOf(userId: string): AccessKey[];
  isRevoked(tokenId: string): boolean;
  /** When the user last logged in from a network, which is given as a hash. */
  knownLogin(userId: string, hash: string): number | undefined;
  /** Deletes the user's entries from before `before`, and the oldest beyond `max`. Does not count as a change. */
  putKnownLogin(
    userId: string,
    hash: string,
    time: number,
    limits: { max: number; before: number },
  ): Promise<void>;
  /** Stores the fingerprint on the first call; later returns whether it is the same. */
  matchesMasterKey(fingerprint: string): boolean;
  /** The ID of the statistics file that belongs to this store, once there is one. */
  statisticsFileId(): number | undefined;
  setStatisticsFileId(id: number): void;
  /** The number of changes so far, by any process. Cached records are valid while it stays the same. */
  changes(): number;
  /**
   * Runs the changes in one transaction: when it resolves, all of them are durable. Rejects with IdentityNotWritable
   * when the disk is full or another process holds the write lock too long.
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
  /** Stores the token as revoked until it expires, and deletes expired entries. */
  revoke(token: { id: string; expires_at: number }, now: number): void;
}

/** No name or ID is longer; LMDB rejects keys over its limit, so longer ones are not looked up. */
const KEY_LENGTH_MAX = 256;

/** Increase when old files can no longer be read as they are. */
const IDENTITY_VERSION = 1;

export function openIdentityStore(path: string): IdentityStore {
  const db = openTables(path);
  const version = db.meta.get('version') ?? IDENTITY_VERSION;
  if (version !== IDENTITY_VERSION) {
    throw new Error(
      `${path} has format version ${version}, but this release reads version ${IDENTITY_VERSION}: use the release that wrote it`,
    );
  }
  // Files of earlier releases have no hashes of keys. Otherwise opening needs no write lock, which may be taken.
  if (!db.meta.doesExist('version') || db.keyHashes.getCount() !== db.keys.getCount()) {
    writeAtOnce(path, db.root, () => {
      db.meta.putSync('version', IDENTITY_VERSION);
      for (const access of [...db.keys.getKeys()]) db.keyHashes.putSync(hashOf(access), access);
    });
  }

  const idByName = (kind: 'domain' | 'project' | 'user', domain: string, name: string) =>
    name.length > KEY_LENGTH_MAX || domain.length > KEY_LENGTH_MAX
      ? undefined
      : db.names.get([kind, domain, name]);
  const lookUp = <V>(from: { get(id: string): V | undefined }, id: string | undefined) =>
    id === undefined || id.length > KEY_LENGTH_MAX ? undefined : from.get(id);
  const list = <V>(from: { getRange(): Iterable<{ value: V }> }) =>
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
    domain: (id) => lookUp(db.domains, id),
    domainByName: (name) => lookUp(db.domains, idByName('domain', '', name)),
    domains: () => list(db.domains),
    project: (id) => lookUp(db.projects, id),
    projectByName: (domainId, name) => lookUp(db.projects, idByName('project', domainId, name)),
    projects: () => list(db.projects),
    user: (id) => lookUp(db.users, id),
    userByName: (domainId, name) => lookUp(db.users, idByName('user', domainId, name)),
    users: () => list(db.users),
    key: (access) => lookUp(db.keys, access),
    keyByHash: (hash) => lookUp(db.keys, lookUp(db.keyHashes, hash)),
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
          // The user may have been deleted in the meantime.
          if (db.users.doesExist(userId)) db.knownLogins.putSync([userId, hash], time);
        })
        .catch(rethrow),
    matchesMasterKey(fingerprint) {
      if (!db.meta.doesExist('mark')) {
        writeAtOnce(path, db.root, () => db.meta.doesExist('mark') || db.meta.putSync('mark', fingerprint));
      }
      return db.meta.get('mark') === fingerprint;
    },
    statisticsFileId: () => {
      const id = db.meta.get('statistics');
      return typeof id === 'number' ? id : undefined;
    },
    setStatisticsFileId: (id) => writeAtOnce(path, db.root, () => void db.meta.putSync('statistics', id)),
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
  // The file holds password hashes, and others may have access to the directory.
  createPrivateFiles(path);
  const { root, table: openTable } = openLmdb(path);
  const table = <V, K extends Key>(name: string) => openTable<V, K>(name, { encoding: 'json' });
  return {
    root,
    meta: table<number | string, 'version' | 'mark' | 'changes' | 'statistics'>('meta'),
    domains: table<Domain, string>('domains'),
    projects: table<Project, string>('projects'),
    users: table<User, string>('users'),
    // Names of domains are unique; names of projects and users are unique in their domain.
    names: table<string, [kind: 'domain' | 'project' | 'user', domain: string, name: string]>('names'),
    keys: table<AccessKey, string>('keys'),
    userKeys: table<true, [user: string, access: string]>('user-keys'),
    keyHashes: table<string, string>('key-hashes'),
    revoked: table<number, string>('revoked'),
    revokedUntil: table<true, [expires: number, token: string]>('revoked-until'),
    knownLogins: table<number, [user: string, hash: string]>('known-logins'),
  };
}

/** Beyond the last page in use: room for about 5,000 more revocations on a full disk. */
const RESERVED_BYTES = 1_048_576;

/** Reserves space at the end of the file. Call in a transaction, so that no other process writes there. */
function reserveSpace(path: string, root: RootDatabase): void {
  // lmdb-js returns these, but does not declare them.
  const { lastPageNumber, pageSize } = root.getStats() as { lastPageNumber: number; pageSize: number };
  const end = (lastPageNumber + 1) * pageSize + RESERVED_BYTES;
  const file = openSync(path, 'r+');
  try {
    const { size } = fstatSync(file);
    // In large steps, not on every change.
    if (end - size > RESERVED_BYTES / 2) writeSync(file, Buffer.alloc(end - size), 0, end - size, size);
  } catch {
    // The change itself may still succeed.
  } finally {
    closeSync(file);
  }
}

function rethrow(error: unknown): never {
  if (error instanceof CommitFailed) throw new IdentityNotWritable(error);
  throw error;
}

function hashOf(access: string): string {
  return hash('sha256', access);
}
