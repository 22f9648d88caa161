/**
 * Where an installation is. A data directory has identity, statistics, master key and audit trail; the store may be
 * elsewhere. Without a data directory, everything is in PostgreSQL, except for the counts if ClickHouse is the store.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { hasAuditFile, openAuditFile } from '../audit/audit-file.ts';
import { type Actor, type AuditTrail, newAuditEntry } from '../audit/audit-trail.ts';
import {
  type CLICKHOUSE_OPTIONS,
  DATA_REQUIRED,
  isLocal,
  type POSTGRES_OPTIONS,
  STORE_OPTIONS,
} from '../config.ts';
import { createIdentity, type EmbeddedIdentity, type Identity, openIdentity } from '../identity/identity.ts';
import type { IdentityRecord } from '../identity/identity-store.ts';
import type { PostgresIdentity } from '../identity/postgres-identity.ts';
import {
  createMasterKey,
  generateMasterKey,
  masterKeyFingerprint,
  parseMasterKey,
} from '../identity/secrets.ts';
import { tightenModes } from '../lmdb/files.ts';
import { checkDataFile, DamagedFile } from '../lmdb/pages.ts';
import type { Database, DatabaseOptions } from '../postgres/database.ts';
import { describeUrl } from '../postgres/url.ts';
import type { ClickHouseOptions } from '../store/clickhouse/clickhouse.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import { type Store, StoreMisconfigured, StoreUnavailable } from '../store/store.ts';
import { type Io, printLine, UserError } from './command.ts';
import { UsageError, type Values } from './options.ts';

export interface Installation {
  identity: Identity;
  store: Store;
  /** Messages for the log. */
  notices: readonly string[];
}

const MASTER_KEY_FILE = 'master.key';
/** Replaces the file. Not an option, because `ps` shows options to everyone. */
export const MASTER_KEY_VARIABLE = 'WAFSTAT_MASTER_KEY';
const RETRY_MS = 1_000;
const IDENTITY_FILE = 'identity.mdb';
const STATISTICS_FILE = 'statistics.mdb';

export type StoreValues = ({ store: 'lmdb' } | Values<typeof STORE_OPTIONS>) & { topKeys?: number };
type PostgresValues = Values<typeof POSTGRES_OPTIONS & Pick<typeof STORE_OPTIONS, 'postgresMigrate'>>;
/** Without `data`, the identity is in PostgreSQL. */
export type Place = StoreValues & { data?: string | undefined };

type World = Pick<Io, 'env' | 'now'>;

/** For commands on the files of a data directory. */
export function requireDirectory(data: string | undefined, { env }: Pick<Io, 'env'>): string {
  if (data !== undefined) return data;
  const store = env[STORE_OPTIONS.store.env];
  if (store === undefined || store === 'lmdb') throw new UsageError([DATA_REQUIRED]);
  const tools =
    store === 'postgres' ? 'PostgreSQL, such as pg_dump and pg_basebackup' : 'PostgreSQL and ClickHouse';
  throw new UsageError([
    `this command is for data directories, but the store is ${store}: use the tools of ${tools}`,
  ]);
}

/** What is missing in the options of a command that needs an identity. */
export function placeProblems(
  { store }: { store?: string | undefined },
  source: (name: 'data') => string | undefined,
): string[] {
  // For the other stores, serviceConflicts reports a missing URL.
  return store === 'lmdb' && source('data') === undefined ? [DATA_REQUIRED] : [];
}

export function statisticsFile(directory: string): string {
  return join(directory, STATISTICS_FILE);
}

export function identityFile(directory: string): string {
  return join(directory, IDENTITY_FILE);
}

export function masterKeyFile(directory: string): string {
  return join(directory, MASTER_KEY_FILE);
}

/** Where `compact` keeps the original file until the compacted one has replaced it. */
export function fileBeforeCompact(file: string): string {
  return `${file}.before-compact`;
}

export function isInitialised(directory: string): boolean {
  return fileExists(identityFile(directory));
}

/** Unlike `existsSync`, throws EACCES without permission for the directory, which would look empty. */
export function fileExists(path: string): boolean {
  try {
    statSync(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') throw error;
    return false;
  }
}

/** `bootstrap` adds the first domain and user. Rejects with AlreadyInitialised if PostgreSQL has an installation. */
export async function createInstallation<T>(
  place: Place,
  world: World,
  bootstrap: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (place.data !== undefined) return createDataDirectory(place.data, world, bootstrap);
  return withPostgresIdentity(postgresValues(place), world, async (store) => {
    const given = world.env[MASTER_KEY_VARIABLE];
    const masterKey = given === undefined ? generateMasterKey() : readMasterKey(given, MASTER_KEY_VARIABLE);
    const key = given === undefined ? masterKey.toString('base64') : null;
    const identity = await createIdentity(
      {
        store: store.forBootstrap({ fingerprint: masterKeyFingerprint(masterKey), key }),
        audit: store.audit,
        masterKey,
        now: world.now,
        name: '',
      },
      { actor: localActor() },
    );
    return bootstrap(identity);
  });
}

/** Whether there is an installation. */
export async function hasInstallation(place: Place, world: World): Promise<boolean> {
  if (place.data !== undefined) return isInitialised(place.data);
  const { storedMasterKey } = await import('../identity/postgres-identity.ts');
  return withDatabase(place, world, async (database) => (await storedMasterKey(database)) !== null);
}

/** The directory counts as initialised only after `bootstrap`. */
async function createDataDirectory<T>(
  directory: string,
  world: World,
  bootstrap: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (existsSync(statisticsFile(directory))) {
    throw new UserError(
      `${directory} has ${STATISTICS_FILE} but no ${IDENTITY_FILE}, so nobody can query its projects. ` +
        `Restore ${IDENTITY_FILE} and ${MASTER_KEY_FILE} from the backup; to start over, move ${STATISTICS_FILE} away`,
    );
  }
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const keyFile = masterKeyFile(directory);
  if (world.env[MASTER_KEY_VARIABLE] === undefined && !existsSync(keyFile)) createMasterKey(keyFile);
  const unfinished = `${identityFile(directory)}.unfinished`;
  const discard = () => {
    for (const path of [unfinished, `${unfinished}-lock`]) rmSync(path, { force: true });
  };
  discard();
  const identity = await openIdentity(unfinished, masterKey(directory, world), world.now, {
    actor: localActor(),
  });
  try {
    const result = await bootstrap(identity);
    await identity.close();
    renameSync(unfinished, identityFile(directory));
    return result;
  } finally {
    discard();
  }
}

/** Opens identity and statistics for an action, and closes them after it. */
export async function withInstallation<T>(
  place: Place,
  world: World,
  action: (installation: Installation) => Promise<T>,
): Promise<T> {
  const { data } = place;
  if (data === undefined) {
    return withIdentity(place, world, (identity) =>
      withOpenStore(place, '', world, (store) => action({ identity, store, notices: [] })),
    );
  }
  return withEmbeddedIdentity(data, world, async (identity) => {
    const file = statisticsFile(data);
    const notices = tightenModes(data);
    if (isEmbedded(place)) checkStatisticsFile(file, identity.statisticsFile.id());
    return withOpenStore(place, file, world, (store) => {
      if (store.fileId !== undefined) checkFileId(data, identity, store.fileId);
      return action({ identity, store, notices });
    });
  });
}

/** For commands that need no statistics. */
export async function withIdentity<T>(
  place: Place,
  world: World,
  action: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (place.data !== undefined) return withEmbeddedIdentity(place.data, world, action);
  return withPostgresIdentity(postgresValues(place), world, async (store) => {
    const masterKey = masterKeyIn(await store.masterKey(), place, world);
    const name = `the installation in ${describePostgres(place)}`;
    const parts = { store, audit: store.audit, masterKey, now: world.now, name };
    return action(await createIdentity(parts, { actor: localActor() }));
  });
}

async function withEmbeddedIdentity<T>(
  directory: string,
  world: World,
  action: (identity: EmbeddedIdentity) => Promise<T>,
): Promise<T> {
  if (!isInitialised(directory)) {
    throw new UserError(
      `${directory} is not a wafstat data directory: create one with 'wafstat init --data ${directory}'`,
    );
  }
  checkFile(identityFile(directory));
  const identity = await openIdentity(identityFile(directory), masterKey(directory, world), world.now, {
    actor: localActor(),
  });
  try {
    return await action(identity);
  } finally {
    await identity.close();
  }
}

/** Copies the identity of a data directory into PostgreSQL, and verifies the copy. Resolves to the number of records by kind. */
export async function copyIdentity(
  directory: string,
  target: PostgresValues,
  world: World,
): Promise<Record<IdentityRecord['kind'], number>> {
  const [records, key] = await withEmbeddedIdentity(directory, world, async (identity) => {
    const ownKey = world.env[MASTER_KEY_VARIABLE] !== undefined;
    const used = masterKey(directory, world);
    return [
      [...identity.records()],
      { fingerprint: masterKeyFingerprint(used), key: ownKey ? null : used.toString('base64') },
    ] as const;
  });
  const counts = { domain: 0, project: 0, user: 0, key: 0, revoked: 0, login: 0 };
  for (const { kind } of records) counts[kind]++;
  const after = { copied_from: directory, records: counts };
  const entry = newAuditEntry(localActor(), 'installation.create', { type: 'installation' }, { after });
  await withPostgresIdentity(target, world, (store) => store.copyFrom(records, key, entry));
  await withPostgresIdentity(target, world, async (store) => {
    const text = (all: Iterable<IdentityRecord>) =>
      [...all].map(({ kind, id, value }) => JSON.stringify([kind, id, value])).sort();
    if (isDeepStrictEqual(text(records), text(store.records()))) return;
    throw new UserError('verification failed: the records differ. Was something changed during the copy?');
  });
  return counts;
}

function postgresValues(place: Place): PostgresValues {
  if (isEmbedded(place)) throw new UsageError([DATA_REQUIRED]);
  return place;
}

/** For commands that do not need all records of the identity. */
async function withDatabase<T>(
  place: Place,
  { env }: World,
  action: (database: Database) => Promise<T>,
): Promise<T> {
  const values = postgresValues(place);
  const { Database } = await import('../postgres/database.ts');
  const { checkTables, POSTGRES_TABLES } = await import('../store/postgres/schema.ts');
  const options = postgresOptions(values, env);
  // A standby may lag behind.
  const database = new Database({ ...options, url: { ...options.url, needsPrimary: true } });
  try {
    await checkTables(database, values.postgresMigrate === 'auto', POSTGRES_TABLES);
    return await action(database);
  } finally {
    await database.close();
  }
}

/** Opens the identity store; needs no master key. */
async function withPostgresIdentity<T>(
  values: PostgresValues,
  { env, now }: World,
  action: (store: PostgresIdentity) => Promise<T>,
): Promise<T> {
  // Loaded on demand: most installations do not use it.
  const { openPostgresIdentity } = await import('../identity/postgres-identity.ts');
  const { checkTables, POSTGRES_TABLES } = await import('../store/postgres/schema.ts');
  const mayMigrate = values.postgresMigrate === 'auto';
  const store = await openPostgresIdentity(
    {
      ...postgresOptions(values, env),
      checkTables: (database) => checkTables(database, mayMigrate, POSTGRES_TABLES),
    },
    now,
  );
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

/** Needs no master key: the trail must be readable if the key is lost. */
export async function withAuditTrail<T>(
  place: Place,
  world: World,
  action: (trail: AuditTrail) => Promise<T>,
): Promise<T> {
  const { data } = place;
  if (data === undefined) {
    const { openAuditTable } = await import('../audit/audit-table.ts');
    return withDatabase(place, world, (database) =>
      action(openAuditTable(database, (work) => work(), world.now)),
    );
  }
  // A process with Keystone records its starts in a directory without identity.mdb.
  if (!isInitialised(data) && !hasAuditFile(data)) {
    throw new UserError(`${data} is not a wafstat data directory: it has neither identity.mdb nor audit.log`);
  }
  return action(openAuditFile(data, world.now));
}

/** For processes with Keystone; without a directory if the store is external, too. */
export async function withStore<T>(
  directory: string | null,
  world: World,
  values: StoreValues,
  action: (store: Store) => Promise<T>,
): Promise<T> {
  const file = statisticsFile(directory ?? '');
  if (directory !== null) mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (isEmbedded(values)) checkStatisticsFile(file, undefined);
  return withOpenStore(values, file, world, action);
}

async function withOpenStore<T>(
  values: StoreValues,
  file: string,
  world: World,
  action: (store: Store) => T | Promise<T>,
): Promise<T> {
  const store = await openStore(values, file, world);
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

/** Waits for a database that is down. A misconfigured one must be fixed first. */
export async function whenAvailable<T>(
  work: () => Promise<T>,
  { stderr, stop }: Pick<Io, 'stderr' | 'stop'>,
): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || error instanceof StoreMisconfigured || stop.aborted)
        throw error;
      printLine(stderr, `wafstat: ${error.message}; retrying`);
      await sleep(RETRY_MS, undefined, { signal: stop }).catch(() => {});
    }
  }
}

/**
 * Opens the store and looks up the project. Without a data directory, the ID of a project needs no look-up: the identity
 * may be in Keystone. `waits`: for a database that is down.
 */
export async function withProject<T>(
  place: Place & { project: string },
  world: World & Pick<Io, 'stderr' | 'stop'>,
  action: (store: Store, projectId: string) => Promise<T>,
  { waits = false }: { waits?: boolean } = {},
): Promise<T> {
  const { project, data } = place;
  if (data !== undefined) {
    return withInstallation(place, world, ({ identity, store }) =>
      action(store, identity.administration.project(project).id),
    );
  }
  if (isEmbedded(place)) throw new UsageError([DATA_REQUIRED]);
  const id = /^[0-9a-f]{32}$/.test(project) ? project : await findProject(place, world, waits);
  return withStore(null, world, place, (store) => action(store, id));
}

async function findProject(
  place: Place & { project: string },
  world: World & Pick<Io, 'stderr' | 'stop'>,
  waits: boolean,
): Promise<string> {
  const find = () =>
    withIdentity(place, world, async ({ administration }) => administration.project(place.project).id);
  return waits ? whenAvailable(find, world) : find();
}

export async function openStore(values: StoreValues, file: string, { now, env }: World): Promise<Store> {
  if (isEmbedded(values)) return lmdbStore(file, now, { topKeys: values.topKeys });
  // Loaded on demand: most installations use neither.
  if (values.store === 'postgres') {
    const { postgresStore } = await import('../store/postgres/postgres.ts');
    const mayMigrate = values.postgresMigrate === 'auto';
    return postgresStore({ ...postgresOptions(values, env), mayMigrate, topKeys: values.topKeys }, now);
  }
  const { clickhouseStore } = await import('../store/clickhouse/clickhouse.ts');
  const mayMigrate = values.clickhouseMigrate === 'auto';
  return clickhouseStore({ ...clickhouseOptions(values, env), mayMigrate, topKeys: values.topKeys }, now);
}

function isEmbedded(values: StoreValues): values is { store: 'lmdb'; topKeys?: number } {
  return values.store === 'lmdb';
}

/** Not an option, because `ps` shows options to everyone. */
const POSTGRES_PASSWORD_VARIABLE = 'WAFSTAT_POSTGRES_PASSWORD';

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

export function clickhouseOptions(
  values: Values<typeof CLICKHOUSE_OPTIONS> & Values<typeof POSTGRES_OPTIONS>,
  env: Io['env'],
): ClickHouseOptions {
  const { clickhousePasswordFile: file } = values;
  return {
    urls: values.clickhouseUrl ?? [],
    database: values.clickhouseDatabase,
    user: values.clickhouseUser,
    password: file === undefined ? '' : firstLine(file),
    timeoutMs: values.clickhouseTimeout * 1_000,
    // Another schema than that of the PostgreSQL store, so that `copy` can use both.
    postgres: { ...postgresOptions(values, env), schema: `${values.postgresSchema}_clickhouse` },
  };
}

/** A missing or empty file would look like an installation without any requests. */
function checkStatisticsFile(file: string, knownId: number | undefined): void {
  const bytes = existsSync(file) ? statSync(file).size : 0;
  if (bytes > 0) checkFile(file);
  else if (existsSync(fileBeforeCompact(file))) {
    throw new UserError(
      `${file} is missing, because 'wafstat compact' was interrupted: rename ${fileBeforeCompact(file)} to ${file}`,
    );
  } else if (knownId !== undefined) {
    throw new UserError(
      `${file} is ${existsSync(file) ? 'empty' : 'missing'}, but it held the statistics of this data directory. ` +
        `Restore it from a backup; to continue without them, run ${acceptCommand(dirname(file))}`,
    );
  }
}

/** Stores the ID of the file at the first start, and refuses another file later. */
function checkFileId(directory: string, identity: EmbeddedIdentity, fileId: number): void {
  const known = identity.statisticsFile.id();
  if (known === undefined) identity.statisticsFile.set(fileId);
  else if (known !== fileId) {
    throw new UserError(
      `${statisticsFile(directory)} does not belong to ${IDENTITY_FILE}: it is from another data directory ` +
        `or was recreated. Restore the right one from a backup; to keep this one, run ${acceptCommand(directory)}`,
    );
  }
}

function acceptCommand(directory: string): string {
  return `'wafstat repair --data ${directory} --accept-statistics'`;
}

/** Makes the current statistics file, or a new one, that of the data directory. */
export async function acceptStatistics(directory: string, world: World): Promise<void> {
  await withEmbeddedIdentity(directory, world, async (identity) => {
    const file = statisticsFile(directory);
    if (existsSync(file) && statSync(file).size > 0) checkFile(file);
    await withOpenStore({ store: 'lmdb' }, file, world, ({ fileId }) => {
      if (fileId !== undefined) identity.statisticsFile.set(fileId);
    });
  });
}

/** Before LMDB maps the file: it crashes on a truncated one. */
function checkFile(file: string): void {
  try {
    checkDataFile(file);
  } catch (error) {
    if (!(error instanceof DamagedFile)) throw error;
    throw new UserError(`${error.message}. Restore it from a backup`);
  }
}

/** The operating system's user, for the audit trail. */
export function localActor(): Actor {
  return { user: `local:${osUser()}`, via: 'command line' };
}

function osUser(): string {
  try {
    return userInfo().username;
  } catch {
    // Containers run under user IDs without a name.
    return 'unknown';
  }
}

function masterKey(directory: string, { env }: World): Buffer {
  const given = env[MASTER_KEY_VARIABLE];
  const file = masterKeyFile(directory);
  if (given === undefined && !existsSync(file)) {
    throw new UserError(`${file} is missing: restore it from a backup, or set ${MASTER_KEY_VARIABLE}`);
  }
  return given === undefined
    ? readMasterKey(readFileSync(file, 'utf8'), file)
    : readMasterKey(given, MASTER_KEY_VARIABLE);
}

function masterKeyIn(
  stored: Awaited<ReturnType<PostgresIdentity['masterKey']>>,
  place: Place,
  { env }: World,
): Buffer {
  if (stored === null) {
    throw new UserError(
      `${describePostgres(place)} has no wafstat installation: create one with 'wafstat init' or 'wafstat serve'`,
    );
  }
  const given = env[MASTER_KEY_VARIABLE];
  if (given !== undefined) return readMasterKey(given, MASTER_KEY_VARIABLE);
  if (stored.key !== null) return readMasterKey(stored.key, 'the table identity_state');
  throw new UserError(
    `${describePostgres(place)} does not contain the master key: set ${MASTER_KEY_VARIABLE}, as when it was created`,
  );
}

function readMasterKey(text: string, origin: string): Buffer {
  try {
    return parseMasterKey(text, origin);
  } catch (error) {
    throw new UserError((error as Error).message);
  }
}

/** The servers, the database and the schema. */
export function describePostgres(place: Place | PostgresValues): string {
  if (!('postgresUrl' in place) || place.postgresUrl === undefined) return 'PostgreSQL';
  return `the schema ${place.postgresSchema} of ${describeUrl(place.postgresUrl)}`;
}
