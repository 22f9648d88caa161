/** The identity store in an LMDB file, separate from the statistics so that replacing those never affects it. */
import { closeSync, fstatSync, openSync, writeSync } from 'node:fs';
import type { Database, Key, RootDatabase } from 'lmdb';
import type { AuditFile } from '../audit/audit-file.ts';
import { ChangeCounter } from '../lmdb/change-counter.ts';
import { CommitFailed, Committer } from '../lmdb/commit.ts';
import { commitSync, inspectLmdb, openLmdb, openReadOnly } from '../lmdb/files.ts';
import { CheckedTable } from './checked-table.ts';
import { IdentityDamaged, IdentityNotWritable } from './errors.ts';
import type {
  IdentityRecord,
  IdentityStore,
  IdentityWriter,
  NamedKind,
  NamedRecords,
} from './identity-store.ts';
import type { AccessKey, Domain, Project, User } from './records.ts';

/** No name or ID is longer; LMDB rejects keys over its limit, so longer ones are not looked up. */
const KEY_LENGTH_MAX = 256;
/** Increase when old files can no longer be read as they are. */
export const IDENTITY_VERSION = 2;
/** Kept even if their tokens have expired: only the clock says so, which may be wrong. They take 25 MB. */
const REVOCATIONS_KEPT = 100_000;
/** Bounds the time of a revocation. */
const REVOCATIONS_DELETED_MAX = 1_000;
/** Reserved beyond the last page in use: room for about 5,000 more revocations on a full disk. */
const RESERVED_BYTES = 1_048_576;

/** All names of tables in the file. */
export const IDENTITY_TABLES = [
  ...['meta', 'state', 'domains', 'projects', 'users', 'names', 'keys', 'user-keys'],
  ...['revoked', 'revoked-until', 'known-logins'],
];

export type Tables = ReturnType<typeof openTables>;
type MetaKey = 'mark' | 'changes' | 'statistics';

export interface LmdbIdentity extends IdentityStore {
  /** The ID of the statistics file that belongs to this store, once there is one. */
  statisticsFileId(): number | undefined;
  setStatisticsFileId(id: number): void;
}

/** Reads the metadata of a file without changing it. */
export async function inspectLmdbIdentity(path: string) {
  return inspectLmdb(path, async (opened) => {
    const { root, table } = openReadOnly(opened);
    try {
      const problem = versionProblem(table('meta', { encoding: 'json' }), path);
      if (problem !== null) return { versionProblem: problem.problem };
      const meta = new CheckedTable<number | string, MetaKey>(table, 'state');
      const [fingerprint, statisticsFileId] = [meta.get('mark'), meta.get('statistics')];
      return { versionProblem: null, fingerprint, statisticsFileId };
    } finally {
      await root.close();
    }
  });
}

/** What `verify` and `repair` report. */
export interface IdentityProblem {
  table: string;
  key: string;
  problem: string;
}

export function versionProblem(table: Database<number, 'version'>, path: string): IdentityProblem | null {
  const version = readVersion(table);
  if (version === IDENTITY_VERSION) return null;
  const problem =
    version === null
      ? `the format version of ${path} is damaged: run 'wafstat repair'`
      : `${path} has format version ${version}, but this release reads version ${IDENTITY_VERSION}: use the release that wrote it`;
  return { table: 'meta', key: 'version', problem };
}

/** Null if it is damaged. A new file has none yet. */
export function readVersion(table: Database<number, 'version'>): number | null {
  try {
    return table.get('version') ?? IDENTITY_VERSION;
  } catch {
    return null;
  }
}

/** Damaged and missing records of an intact file, for `verify`. Runs in one turn, and so in one snapshot. */
export async function identityProblems(path: string) {
  const db = openTables(path, true);
  const found: IdentityProblem[] = [];
  const attempt = (table: string, action: () => void) => {
    try {
      action();
    } catch (error) {
      if (!(error instanceof IdentityDamaged)) throw error;
      found.push({ table, key: '', problem: error.message });
    }
  };
  const missing = (table: string, key: Key, problem: string) =>
    found.push({ table, key: JSON.stringify(key), problem });
  try {
    const problem = versionProblem(db.version, path);
    if (problem !== null) return [problem];
    for (const table of Object.values(db).filter((each) => each instanceof CheckedTable)) {
      attempt(table.name, () => {
        for (const _ of table.getKeys());
      });
    }
    // References can only be checked in readable tables.
    if (found.length > 0) return found;
    for (const { key, value } of db.names.getRange())
      if (db[`${key[0]}s`].get(value)?.name !== key[2])
        missing('names', key, 'the record with this name is missing');
    for (const [user, access] of db.userKeys.getKeys())
      if (db.keys.get(access)?.user_id !== user)
        missing('user-keys', [user, access], 'the key of this user is missing');
    for (const kind of ['domain', 'project', 'user'] as const)
      for (const { key, value } of db[`${kind}s`].getRange()) {
        if (db.names.get(nameOf(kind, value)) !== key)
          missing(`${kind}s`, key, 'the name of the record is missing');
      }
    for (const { key, value } of db.keys.getRange())
      if (!db.userKeys.doesExist([value.user_id, key]))
        missing('keys', key, 'the user does not have the key');
    return found;
  } finally {
    await db.root.close();
  }
}

export function openLmdbIdentity(
  path: string,
  audit: AuditFile,
  revocationsKept = REVOCATIONS_KEPT,
): LmdbIdentity {
  const db = openTables(path);
  const problem = versionProblem(db.version, path);
  if (problem !== null) throw new IdentityDamaged(problem.problem);
  // Only a new file needs the write lock, which another process may hold.
  if (!db.version.doesExist('version'))
    commitSync(db, () => void db.version.putSync('version', IDENTITY_VERSION));

  const idByName = (kind: NamedKind, domain: string, name: string) =>
    name.length > KEY_LENGTH_MAX || domain.length > KEY_LENGTH_MAX
      ? undefined
      : db.names.get([kind, domain, name]);
  const lookUp = <V>(table: CheckedTable<V, string>, id: string | undefined) =>
    id === undefined || id.length > KEY_LENGTH_MAX ? undefined : table.get(id);
  const list = <V>(table: CheckedTable<V, string>) => [...table.getRange()].map(({ value }) => value);

  const countChanges = () => Number(db.meta.get('changes') ?? 0);
  const changes = new ChangeCounter(countChanges, () => db.root.resetReadTxn());
  let seenChanges = 0;
  const writer = createWriter(db, audit, revocationsKept);
  const committer = new Committer({
    path,
    root: () => db.root,
    checkPath: () => db.checkPath(),
    async reopen() {
      await db.root.close();
      Object.assign(db, openTables(path));
    },
    probe: () => db.version.putSync('version', IDENTITY_VERSION),
  });

  return {
    domain: (id: string) => lookUp(db.domains, id),
    domainByName: (name: string) => lookUp(db.domains, idByName('domain', '', name)),
    domains: () => list(db.domains),
    project: (id: string) => lookUp(db.projects, id),
    projectByName: (domainId: string, name: string) =>
      lookUp(db.projects, idByName('project', domainId, name)),
    projects: () => list(db.projects),
    projectsIn(domainId: string) {
      if (domainId.length > KEY_LENGTH_MAX) return [];
      const range = namesRange('project', domainId);
      return [...db.names.getRange(range)].flatMap(({ value }) => db.projects.get(value) ?? []);
    },
    user: (id: string) => lookUp(db.users, id),
    userByName: (domainId: string, name: string) => lookUp(db.users, idByName('user', domainId, name)),
    users: () => list(db.users),
    namesIn: (kind: NamedKind, domainId: string) =>
      domainId.length > KEY_LENGTH_MAX
        ? []
        : [...db.names.getKeys(namesRange(kind, domainId))].map(([, , name]) => name),
    key: (access: string) => lookUp(db.keys, access),
    keysOf: (userId: string) =>
      [...db.userKeys.getKeys({ start: [userId, ''], end: [userId, '\uffff'] })].flatMap(
        ([, access]) => db.keys.get(access) ?? [],
      ),
    isRevoked: (tokenId: string) => db.revoked.doesExist(tokenId),
    knownLogin: (userId: string, hash: string) =>
      userId.length > KEY_LENGTH_MAX ? undefined : db.knownLogins.get([userId, hash]),
    *records(): Generator<IdentityRecord> {
      for (const kind of ['domain', 'project', 'user'] as const) {
        // TypeScript cannot tell which table belongs to the kind.
        for (const { value } of db[`${kind}s`].getRange())
          yield { kind, id: value.id, value } as IdentityRecord;
      }
      for (const value of list(db.keys)) yield { kind: 'key', id: value.access, value };
      for (const { key, value } of db.revoked.getRange()) yield { kind: 'revoked', id: key, value };
      for (const { key, value } of db.knownLogins.getRange())
        yield { kind: 'login', id: key.join(' '), value };
    },
    putKnownLogin: (userId, hash, time, { max, before }) =>
      committer
        .run(() => {
          const byAge = knownLoginsOf(db, userId).sort((a, b) => b.value - a.value);
          for (const [i, { key, value }] of byAge.entries())
            if (i >= max - 1 || value < before) db.knownLogins.removeSync(key);
          // The user may have been deleted in the meantime.
          if (db.users.doesExist(userId)) db.knownLogins.putSync([userId, hash], time);
        })
        .catch(rethrow),
    async matchesMasterKey(fingerprint) {
      if (!db.meta.doesExist('mark')) {
        commitSync(db, () => db.meta.doesExist('mark') || db.meta.putSync('mark', fingerprint));
      }
      return db.meta.get('mark') === fingerprint;
    },
    statisticsFileId() {
      const id = db.meta.get('statistics');
      return typeof id === 'number' ? id : undefined;
    },
    setStatisticsFileId: (id) => commitSync(db, () => void db.meta.putSync('statistics', id)),
    changes() {
      seenChanges = changes.get();
      return seenChanges;
    },
    confirm: () => undefined,
    async refresh() {
      const before = seenChanges;
      seenChanges = changes.renew();
      return seenChanges !== before;
    },
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

/** The keys of all names of a kind in a domain. No ID has a `!`, and all their characters are above it. */
function namesRange(kind: NamedKind, domainId: string) {
  return { start: [kind, domainId, ''], end: [kind, `${domainId}!`, ''] };
}

type NameKey = [kind: NamedKind, domain: string, name: string];

export function nameOf(kind: NamedKind, record: { name: string; domain_id?: string }): NameKey {
  return [kind, record.domain_id ?? '', record.name];
}

/** Writes in a transaction. */
function createWriter(db: Tables, audit: AuditFile, revocationsKept: number): IdentityWriter {
  // TypeScript cannot tell which table belongs to K.
  const tableOf = <K extends NamedKind>(kind: K) =>
    db[`${kind}s`] as unknown as CheckedTable<NamedRecords[K], string>;

  return {
    put(kind, record) {
      tableOf(kind).putSync(record.id, record);
      db.names.putSync(nameOf(kind, record), record.id);
    },
    remove(kind, record) {
      tableOf(kind).removeSync(record.id);
      db.names.removeSync(nameOf(kind, record));
      for (const { key } of knownLoginsOf(db, record.id)) db.knownLogins.removeSync(key);
    },
    putKey(key) {
      db.keys.putSync(key.access, key);
      db.userKeys.putSync([key.user_id, key.access], true);
    },
    removeKey(key) {
      db.keys.removeSync(key.access);
      db.userKeys.removeSync([key.user_id, key.access]);
    },
    revoke(token, now) {
      db.revoked.putSync(token.id, token.expires_at);
      db.revokedUntil.putSync([token.expires_at, token.id], true);
      const limit = Math.min(db.revokedUntil.entryCount() - revocationsKept, REVOCATIONS_DELETED_MAX);
      if (limit <= 0) return;
      for (const [expires, id] of [...db.revokedUntil.getKeys({ end: [now], limit })]) {
        db.revoked.removeSync(id);
        db.revokedUntil.removeSync([expires, id]);
      }
    },
    // The line is durable before the commit.
    audit: (entry) => audit.appendSync(entry),
  };
}

function knownLoginsOf(db: Tables, userId: string) {
  return [...db.knownLogins.getRange({ start: [userId, ''], end: [userId, '\uffff'] })];
}

export function openTables(path: string, readOnly = false) {
  const { table: openTable, ...file } = readOnly ? openReadOnly(path) : openLmdb(path);
  const table = <V, K extends Key>(name: string) => new CheckedTable<V, K>(openTable, name);
  return {
    ...file,
    /** Without a checksum: older and newer releases must be able to read it. */
    version: openTable<number, 'version'>('meta', { encoding: 'json' }),
    meta: table<number | string, MetaKey>('state'),
    domains: table<Domain, string>('domains'),
    projects: table<Project, string>('projects'),
    users: table<User, string>('users'),
    // Names of domains are unique; names of projects and users are unique in their domain.
    names: table<string, NameKey>('names'),
    keys: table<AccessKey, string>('keys'),
    userKeys: table<true, [user: string, access: string]>('user-keys'),
    revoked: table<number, string>('revoked'),
    revokedUntil: table<true, [expires: number, token: string]>('revoked-until'),
    knownLogins: table<number, [user: string, hash: string]>('known-logins'),
  };
}

/** Reserves space at the end of the file. Call in a transaction, so that no other process writes there. */
function reserveSpace(path: string, root: RootDatabase): void {
  // lmdb-js returns these, but does not declare them.
  const { lastPageNumber, pageSize } = root.getStats() as { lastPageNumber: number; pageSize: number };
  const end = (lastPageNumber + 1) * pageSize + RESERVED_BYTES;
  const file = openSync(path, 'r+');
  try {
    const { size } = fstatSync(file);
    // Reserves in large steps, not on every change.
    if (end - size > RESERVED_BYTES / 2) writeSync(file, Buffer.alloc(end - size), 0, end - size, size);
  } catch {
    // The change itself may still succeed.
  } finally {
    closeSync(file);
  }
}

function rethrow(error: unknown): never {
  if (error instanceof CommitFailed) {
    const { message, trouble, outcomeUnknown } = error;
    throw new IdentityNotWritable(message, trouble, { cause: error, outcomeUnknown });
  }
  throw error;
}
