/**
 * Repairs the identity file: names and lists of keys from the records that they belong to, and domains and projects from their
 * names. A damaged user or access key is removed, because nothing else has its password or secret.
 */
import { commitSync } from '../lmdb/files.ts';
import {
  IDENTITY_VERSION,
  type IdentityProblem,
  nameOf,
  openTables,
  readVersion,
  type Tables,
  versionProblem,
} from './lmdb-identity.ts';
import type { Domain, Project, User } from './records.ts';

interface IdentityRepairs {
  repairs: IdentityProblem[];
  /** What must be entered again, with the command for it; or what only a backup has, and then nothing is changed. */
  lost: IdentityProblem[];
}

const NAMED = ['domain', 'project', 'user'] as const;

/** The pages of the file must be intact. */
export async function repairIdentity(path: string, now: number): Promise<IdentityRepairs> {
  const db = openTables(path);
  try {
    const version = versionProblem(db.version, path);
    if (version !== null && readVersion(db.version) !== null) return { repairs: [], lost: [version] };
    return commitSync(db, () => {
      if (version !== null) db.version.putSync('version', IDENTITY_VERSION);
      return repair(db, now);
    });
  } finally {
    await db.root.close();
  }
}

/** An argument of a command that may contain spaces. */
function word(text: string): string {
  return /^[\w.@-]+$/.test(text) ? text : JSON.stringify(text);
}

function repair(db: Tables, now: number): IdentityRepairs {
  const scans = {
    domain: db.domains.scan(),
    project: db.projects.scan(),
    user: db.users.scan(),
    names: db.names.scan(),
    keys: db.keys.scan(),
    userKeys: db.userKeys.scan(),
    revoked: db.revoked.scan(),
    revokedUntil: db.revokedUntil.scan(),
    knownLogins: db.knownLogins.scan(),
    meta: db.meta.scan(),
  };
  const lost: IdentityProblem[] = [];
  const lose = (table: string, key: string, problem: string) => lost.push({ table, key, problem });
  const byId = <T extends { id: string }>(entries: { value: T }[]) =>
    new Map(entries.map(({ value }) => [value.id, value]));
  const records = {
    domain: byId<Domain>(scans.domain.intact),
    project: byId<Project>(scans.project.intact),
    user: byId<User>(scans.user.intact),
  };
  const keys = new Map(scans.keys.intact.map(({ value }) => [value.access, value]));

  const found = { domain: 0, project: 0, user: 0, keys: 0 };
  const lostUsers = new Map<string, { name: string; domain_id: string }>();
  for (const {
    key: [kind, domain_id, name],
    value: id,
  } of scans.names.intact) {
    if (records[kind].has(id)) continue;
    found[kind]++;
    if (kind === 'user') lostUsers.set(id, { name, domain_id });
    else if (kind === 'domain') records.domain.set(id, { id, name, enabled: false });
    else records.project.set(id, { id, name, domain_id, enabled: false, created: now });
    if (kind !== 'user')
      lose(
        `${kind}s`,
        id,
        `the ${kind} ${name} was restored from its name, disabled: enable it with 'wafstat ${kind} enable ${id}'`,
      );
  }
  for (const [id, { name, domain_id }] of lostUsers) {
    const domain = records.domain.get(domain_id)?.name ?? domain_id;
    lose(
      'users',
      id,
      `the user ${name} and its access keys were removed: add it again with 'wafstat user add ${word(name)} --domain ${word(domain)} --role ROLE'`,
    );
  }
  for (const {
    key: [userId, access],
  } of scans.userKeys.intact) {
    if (keys.has(access)) continue;
    found.keys++;
    const name = records.user.get(userId)?.name ?? lostUsers.get(userId)?.name ?? userId;
    lose(
      'keys',
      access,
      `the access key of ${name} was removed: add one with 'wafstat key add --user ${word(name)}'`,
    );
  }
  for (const key of keys.values()) if (!records.user.has(key.user_id)) keys.delete(key.access);

  // What no other record has: a removed project would orphan its statistics, a removed revocation would make a token valid.
  const isKnown = (key: string) => scans.meta.intact.some((entry) => entry.key === key);
  const unknown = [
    ...(['domain', 'project', 'user', 'keys'] as const).filter(
      (table) => scans[table].damaged.length > found[table],
    ),
    ...(scans.revoked.damaged.length > 0 && scans.revokedUntil.damaged.length > 0 ? ['revoked'] : []),
    ...(scans.meta.damaged.length > 0 && !isKnown('mark') ? ['state'] : []),
  ];
  if (unknown.length > 0) {
    const problem = `damaged, and no other record has its data: restore identity.mdb from a backup`;
    return { repairs: [], lost: unknown.map((table) => ({ table, key: '', problem })) };
  }

  const names = NAMED.flatMap((kind) =>
    [...records[kind].values()].map((record) => ({ key: nameOf(kind, record), value: record.id })),
  );
  const userKeys = [...keys.values()].map(({ user_id, access }) => ({
    key: [user_id, access] as [string, string],
    value: true as const,
  }));
  const revoked = new Map([
    ...scans.revoked.intact.map(({ key, value }) => [key, value] as const),
    ...scans.revokedUntil.intact.map(({ key: [expires, token] }) => [token, expires] as const),
  ]);
  const repairs: IdentityProblem[] = [];
  const replace = <K, V>(
    table: { name: string; replaceSync(entries: readonly { key: K; value: V }[]): void },
    { intact, damaged }: { intact: readonly { key: K; value: V }[]; damaged: readonly string[] },
    entries: readonly { key: K; value: V }[],
  ) => {
    const texts = (all: readonly object[]) =>
      all
        .map((entry) => JSON.stringify(entry))
        .sort()
        .join();
    if (damaged.length === 0 && texts(intact) === texts(entries)) return;
    table.replaceSync(entries);
    if (!lost.some((one) => one.table === table.name))
      repairs.push({ table: table.name, key: damaged.join(', '), problem: 'rebuilt from intact records' });
  };
  const withId = <T extends { id: string }>(all: Map<string, T>) =>
    [...all].map(([key, value]) => ({ key, value }));
  replace(db.domains, scans.domain, withId(records.domain));
  replace(db.projects, scans.project, withId(records.project));
  replace(db.users, scans.user, withId(records.user));
  replace(db.names, scans.names, names);
  replace(
    db.keys,
    scans.keys,
    [...keys].map(([key, value]) => ({ key, value })),
  );
  replace(db.userKeys, scans.userKeys, userKeys);
  replace(
    db.revoked,
    scans.revoked,
    [...revoked].map(([key, value]) => ({ key, value })),
  );
  replace(
    db.revokedUntil,
    scans.revokedUntil,
    [...revoked].map(([token, expires]) => ({ key: [expires, token], value: true })),
  );
  // Known networks only make logins faster. Without its ID, the next start accepts the statistics file.
  replace(db.knownLogins, scans.knownLogins, scans.knownLogins.intact);
  replace(db.meta, scans.meta, scans.meta.intact);
  if (repairs.length + lost.length > 0) {
    // Caches of other processes must notice: larger than any number of changes.
    const { value = 0 } = scans.meta.intact.find(({ key }) => key === 'changes') ?? {};
    db.meta.putSync('changes', Math.max(Number(value) + 1, isKnown('changes') ? 0 : now));
  }
  return { repairs, lost };
}
