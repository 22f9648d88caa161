/**
 * Where an installation is. With a data directory, identity is there; the statistics may be in another store. Without
 * one, everything is in PostgreSQL.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { hasAuditFile, openAuditFile } from '../audit/audit-file.ts';
import { type AuditTrail, newAuditEntry } from '../audit/audit-trail.ts';
import {
  DATA_REQUIRED,
  type IDENTITY_OPTIONS,
  isLocal,
  type POSTGRES_OPTIONS,
  type STORE_OPTIONS,
} from '../config.ts';
import { createIdentity, type Identity } from '../identity/identity.ts';
import type { IdentityRecord } from '../identity/identity-store.ts';
import type { PostgresIdentity } from '../identity/postgres-identity.ts';
import { openRemoteIdentity, type RemoteIdentity } from '../identity/remote/remote-identity.ts';
import { generateMasterKey, masterKeyFingerprint } from '../identity/secrets.ts';
import { tightenModes } from '../lmdb/files.ts';
import type { Database, DatabaseOptions } from '../postgres/database.ts';
import { describeUrl } from '../postgres/url.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import { type Store, StoreMisconfigured, StoreUnavailable } from '../store/store.ts';
import { closing, type Io, UserError, warn } from './command.ts';
import {
  type CommandContext,
  checkFileId,
  checkNotForeign,
  checkStatisticsFile,
  createDataDirectory,
  createDirectory,
  type FileSettings,
  isInitialised,
  localActor,
  MASTER_KEY_VARIABLE,
  masterKey,
  readMasterKey,
  statisticsFile,
  withEmbeddedIdentity,
} from './data-directory.ts';
import { UsageError, type Values } from './options.ts';

export interface Installation {
  identity: Identity;
  store: Store;
  /** Messages for the log. */
  notices: readonly string[];
}

const RETRY_MS = 1_000;

type StoreValues = ({ store: 'lmdb' } | Values<typeof STORE_OPTIONS>) & {
  topKeys?: number;
  eventsMax?: number;
  cache?: number;
};
type PostgresValues = Values<typeof POSTGRES_OPTIONS & Pick<typeof STORE_OPTIONS, 'postgresMigrate'>>;
/** Without `data`, the identity is in PostgreSQL. */
export type Location = StoreValues & FileSettings & { data?: string | undefined };

/** `bootstrap` adds the first domain and user. Rejects with AlreadyInitialised if PostgreSQL has an installation. */
export async function createInstallation<T>(
  location: Location,
  context: CommandContext,
  bootstrap: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (location.data !== undefined) return createDataDirectory(location.data, location, context, bootstrap);
  return withPostgresIdentity(postgresValues(location), context, async (store) => {
    const given = context.env[MASTER_KEY_VARIABLE];
    const masterKey = given === undefined ? generateMasterKey() : readMasterKey(given, MASTER_KEY_VARIABLE);
    const key = given === undefined ? masterKey.toString('base64') : null;
    const identity = await createIdentity(
      {
        store: store.forBootstrap({ fingerprint: masterKeyFingerprint(masterKey), key }),
        audit: store.audit,
        masterKey,
        now: context.now,
        name: '',
      },
      { actor: localActor() },
    );
    return bootstrap(identity);
  });
}

/** Whether there is an installation. */
export async function hasInstallation(location: Location, context: CommandContext): Promise<boolean> {
  if (location.data !== undefined) return isInitialised(location.data);
  const { storedMasterKey } = await import('../identity/postgres-identity.ts');
  return withDatabase(location, context, async (database) => (await storedMasterKey(database)) !== null);
}

/** Opens identity and statistics for an action, and closes them after it. */
export async function withInstallation<T>(
  location: Location,
  context: CommandContext,
  action: (installation: Installation) => Promise<T>,
): Promise<T> {
  const { data } = location;
  if (data === undefined) {
    return withIdentity(location, context, (identity) =>
      withOpenStore(location, '', context, (store) => action({ identity, store, notices: [] })),
    );
  }
  return withEmbeddedIdentity(data, context, async (identity) => {
    const file = statisticsFile(data);
    const notices = [...identity.notices, ...tightenModes(data)];
    if (isEmbedded(location)) checkStatisticsFile(file, identity.statisticsFile.id());
    return withOpenStore(location, file, context, (store) => {
      if (store.fileId !== undefined) checkFileId(data, identity, store.fileId);
      return action({ identity, store, notices });
    });
  });
}

/** Opens the identity for commands that need no statistics. */
export async function withIdentity<T>(
  location: Location,
  context: CommandContext,
  action: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (location.data !== undefined) return withEmbeddedIdentity(location.data, context, action);
  return withPostgresIdentity(postgresValues(location), context, async (store) => {
    const masterKey = masterKeyIn(await store.masterKey(), location, context);
    const name = `the installation in ${describePostgres(location)}`;
    const parts = { store, audit: store.audit, masterKey, now: context.now, name };
    return action(await createIdentity(parts, { actor: localActor() }));
  });
}

/** Copies the identity of a data directory into PostgreSQL, and verifies the copy. Resolves to the number of records by kind. */
export async function copyIdentity(
  directory: string,
  target: PostgresValues,
  context: CommandContext,
): Promise<Record<IdentityRecord['kind'], number>> {
  const [records, key] = await withEmbeddedIdentity(directory, context, async (identity) => {
    const ownKey = context.env[MASTER_KEY_VARIABLE] !== undefined;
    const used = masterKey(directory, context);
    return [
      [...identity.records()],
      { fingerprint: masterKeyFingerprint(used), key: ownKey ? null : used.toString('base64') },
    ] as const;
  });
  const counts = {
    domain: 0,
    project: 0,
    user: 0,
    key: 0,
    revoked: 0,
    login: 0,
    alert: 0,
    incident: 0,
    annotation: 0,
    lease: 0,
  };
  for (const { kind } of records) counts[kind]++;
  const after = { copied_from: directory, records: counts };
  const entry = newAuditEntry(localActor(), 'installation.create', { type: 'installation' }, { after });
  await withPostgresIdentity(target, context, (store) => store.copyFrom(records, key, entry));
  await withPostgresIdentity(target, context, async (store) => {
    const text = (all: Iterable<IdentityRecord>) =>
      [...all].map(({ kind, id, value }) => JSON.stringify([kind, id, value])).sort();
    if (isDeepStrictEqual(text(records), text(store.records()))) return;
    throw new UserError('verification failed: the records differ. Was something changed during the copy?');
  });
  return counts;
}

function postgresValues(location: Location): PostgresValues {
  if (isEmbedded(location)) throw new UsageError([DATA_REQUIRED]);
  return location;
}

/** Opens the database for commands that do not need all records of the identity. */
async function withDatabase<T>(
  location: Location,
  { env }: CommandContext,
  action: (database: Database) => Promise<T>,
): Promise<T> {
  const values = postgresValues(location);
  const { checkTables } = await import('../store/postgres/schema.ts');
  return withConnection(values, env, async (database) => {
    await checkTables(database, values.postgresMigrate === 'auto');
    return action(database);
  });
}

/** Opens the database, whatever is in it. */
export async function withConnection<T>(
  values: Values<typeof POSTGRES_OPTIONS>,
  env: Io['env'],
  action: (database: Database) => Promise<T>,
): Promise<T> {
  const { Database } = await import('../postgres/database.ts');
  return closing(new Database(postgresOptions(values, env)), action);
}

/** Opens the identity store; needs no master key. */
async function withPostgresIdentity<T>(
  values: PostgresValues,
  { env, now }: CommandContext,
  action: (store: PostgresIdentity) => Promise<T>,
): Promise<T> {
  // Loaded on demand: most installations do not use it.
  const { openPostgresIdentity } = await import('../identity/postgres-identity.ts');
  const { checkTables } = await import('../store/postgres/schema.ts');
  const mayMigrate = values.postgresMigrate === 'auto';
  const store = await openPostgresIdentity(
    {
      ...postgresOptions(values, env),
      checkTables: (database) => checkTables(database, mayMigrate),
    },
    now,
  );
  return closing(store, action);
}

/** Needs no master key: the trail must be readable if the key is lost. */
export async function withAuditTrail<T>(
  location: Location,
  context: CommandContext,
  action: (trail: AuditTrail) => Promise<T>,
): Promise<T> {
  const { data } = location;
  if (data === undefined) {
    const { openAuditTable } = await import('../audit/audit-table.ts');
    return withDatabase(location, context, (database) =>
      action(openAuditTable(database, (work) => work(), context.now)),
    );
  }
  // A process with Keystone records its starts in a directory without identity.mdb.
  if (!isInitialised(data) && !hasAuditFile(data)) {
    throw new UserError(`${data} is not a wafstat data directory: it has neither identity.mdb nor audit.log`);
  }
  return action(openAuditFile(data, context.now));
}

/** Opens the store for processes with Keystone; without a directory if the store is external, too. */
export async function withStore<T>(
  directory: string | null,
  context: CommandContext,
  values: StoreValues & FileSettings,
  action: (store: Store) => Promise<T>,
): Promise<T> {
  const file = statisticsFile(directory ?? '');
  if (directory !== null) {
    checkNotForeign(directory, values);
    createDirectory(directory);
  }
  if (isEmbedded(values)) checkStatisticsFile(file, undefined);
  return withOpenStore(values, file, context, action);
}

async function withOpenStore<T>(
  values: StoreValues,
  file: string,
  context: CommandContext,
  action: (store: Store) => T | Promise<T>,
): Promise<T> {
  return closing(await openStore(values, file, context), action);
}

/** Waits for a database that is down. A misconfigured one must be fixed first. */
export async function whenAvailable<T>(
  work: () => Promise<T>,
  io: Pick<Io, 'stderr' | 'env' | 'stop'>,
): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || error instanceof StoreMisconfigured || io.stop.aborted)
        throw error;
      warn(io, `${error.message}; retrying`);
      await sleep(RETRY_MS, undefined, { signal: io.stop }).catch(() => {});
    }
  }
}

/**
 * Opens the store and looks up the project. Without a data directory, the ID of a project needs no look-up: the identity
 * may be in Keystone. `waits`: whether to wait for a database that is down.
 */
export async function withProject<T>(
  location: Location & { project: string },
  context: CommandContext & Pick<Io, 'stderr' | 'stop'>,
  action: (store: Store, projectId: string) => Promise<T>,
  { waits = false }: { waits?: boolean } = {},
): Promise<T> {
  const { project, data } = location;
  if (data !== undefined) {
    return withInstallation(location, context, ({ identity, store }) =>
      action(store, identity.administration.projectNamed(project).id),
    );
  }
  if (isEmbedded(location)) throw new UsageError([DATA_REQUIRED]);
  const id = /^[0-9a-f]{32}$/.test(project) ? project : await findProject(location, context, waits);
  return withStore(null, context, location, (store) => action(store, id));
}

async function findProject(
  location: Location & { project: string },
  context: CommandContext & Pick<Io, 'stderr' | 'stop'>,
  waits: boolean,
): Promise<string> {
  const find = () =>
    withIdentity(
      location,
      context,
      async ({ administration }) => administration.projectNamed(location.project).id,
    );
  return waits ? whenAvailable(find, context) : find();
}

export async function openStore(
  values: StoreValues,
  file: string,
  { now, env }: CommandContext,
): Promise<Store> {
  const options = { topKeys: values.topKeys, eventsMax: values.eventsMax, cacheBytes: values.cache };
  if (isEmbedded(values)) return lmdbStore(file, now, options);
  // Loaded on demand: most installations do not use it.
  const { postgresStore } = await import('../store/postgres/postgres.ts');
  const mayMigrate = values.postgresMigrate === 'auto';
  return postgresStore({ ...postgresOptions(values, env), mayMigrate, ...options }, now);
}

function isEmbedded(values: StoreValues): values is { store: 'lmdb' } {
  return values.store === 'lmdb';
}

/** Not an option, because `ps` shows options to everyone. */
export const POSTGRES_PASSWORD_VARIABLE = 'WAFSTAT_POSTGRES_PASSWORD';
export function postgresOptions(values: Values<typeof POSTGRES_OPTIONS>, env: Io['env']): DatabaseOptions {
  const { postgresUrl: url, postgresPasswordFile: file, postgresInsecure = false } = values;
  if (url === undefined) throw new TypeError('the URL of PostgreSQL is missing');
  const password = file === undefined ? (env[POSTGRES_PASSWORD_VARIABLE] ?? url.password) : firstLine(file);
  return {
    url,
    password: password ?? '',
    schema: values.postgresSchema,
    usesTls: (host) => url.tls === 'verify' || (url.tls === 'default' && !isLocal(host) && !postgresInsecure),
    timeoutMs: values.postgresTimeout * 1_000,
    connectionsMax: values.postgresConnections,
  };
}

function firstLine(file: string): string {
  return readFileSync(file, 'utf8').split(/\r?\n/)[0] ?? '';
}

export function masterKeyIn(
  stored: Awaited<ReturnType<PostgresIdentity['masterKey']>>,
  location: Location,
  { env }: CommandContext,
): Buffer {
  if (stored === null) {
    throw new UserError(
      `${describePostgres(location)} has no wafstat installation: create one with 'wafstat init' or 'wafstat serve'`,
    );
  }
  const given = env[MASTER_KEY_VARIABLE];
  if (given !== undefined) return readMasterKey(given, MASTER_KEY_VARIABLE);
  if (stored.key !== null) return readMasterKey(stored.key, 'the table identity_state');
  throw new UserError(
    `${describePostgres(location)} does not contain the master key: set ${MASTER_KEY_VARIABLE}, as when it was created`,
  );
}

/** The servers, the database and the schema. */
export function describePostgres(location: Location | PostgresValues): string {
  if (!('postgresUrl' in location) || location.postgresUrl === undefined) return 'PostgreSQL';
  return `the schema ${location.postgresSchema} of ${describeUrl(location.postgresUrl)}`;
}

/** Replaces --identity-password-file. Not an option, because `ps` shows options to everyone. */
export const IDENTITY_PASSWORD_VARIABLE = 'WAFSTAT_IDENTITY_PASSWORD';

/** Null without --identity-url. */
export function remoteIdentity(
  values: Values<typeof IDENTITY_OPTIONS>,
  { env, now }: Io,
): RemoteIdentity | null {
  const { identityUrl, identityUser, identityDomain, identityPasswordFile, identityCache } = values;
  if (identityUrl === undefined || identityUser === undefined) return null;
  const password =
    identityPasswordFile === undefined
      ? env[IDENTITY_PASSWORD_VARIABLE]
      : readFileSync(identityPasswordFile, 'utf8').replace(/\r?\n$/, '');
  if (!password) throw new UserError('the password of --identity-user is empty');
  return openRemoteIdentity({
    // Keystone's own configuration often includes the version in the URL.
    baseUrl: identityUrl.replace(/\/v3$/, ''),
    user: { name: identityUser, domain: identityDomain, password },
    cacheTtlMs: identityCache,
    now,
  });
}
