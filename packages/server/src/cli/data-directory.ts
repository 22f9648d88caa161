/** The data directory: identity, statistics and master key of an installation; and the store, which may be elsewhere. */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import type { Actor } from '../audit/audit-trail.ts';
import {
  type CLICKHOUSE_OPTIONS,
  DATA_REQUIRED,
  isLocal,
  type POSTGRES_OPTIONS,
  type STORE_OPTIONS,
} from '../config.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import { createMasterKey, parseMasterKey } from '../identity/secrets.ts';
import { tightenModes } from '../lmdb/files.ts';
import { checkDataFile, DamagedFile } from '../lmdb/pages.ts';
import type { ClickHouseOptions } from '../store/clickhouse/clickhouse.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { DatabaseOptions } from '../store/postgres/database.ts';
import type { Store } from '../store/store.ts';
import { type Io, UserError } from './command.ts';
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
const IDENTITY_FILE = 'identity.mdb';
const STATISTICS_FILE = 'statistics.mdb';

export type StoreValues = { store: 'lmdb' } | Values<typeof STORE_OPTIONS>;

type World = Pick<Io, 'env' | 'now'>;

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

/** `bootstrap` adds the first domain and user. The directory counts as initialised only after that. */
export async function createDataDirectory<T>(
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
  directory: string,
  world: World,
  values: StoreValues,
  action: (installation: Installation) => Promise<T>,
): Promise<T> {
  return withIdentity(directory, world, async (identity) => {
    const file = statisticsFile(directory);
    const notices = tightenModes(directory);
    if (isEmbedded(values)) checkStatisticsFile(file, identity.statisticsFile.id());
    return withOpenStore(values, file, world, (store) => {
      if (store.fileId !== undefined) checkFileId(directory, identity, store.fileId);
      return action({ identity, store, notices });
    });
  });
}

/** For commands that need no statistics. */
export async function withIdentity<T>(
  directory: string,
  world: World,
  action: (identity: Identity) => Promise<T>,
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

/** For processes with an external identity service; without a directory if the store is external, too. */
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

/** Opens the store and looks up the project. Without a data directory the project must be an ID. */
export async function withProject<T>(
  directory: string | undefined,
  world: World,
  values: StoreValues & { project: string },
  action: (store: Store, projectId: string) => Promise<T>,
): Promise<T> {
  const { project } = values;
  if (directory !== undefined) {
    return withInstallation(directory, world, values, ({ identity, store }) =>
      action(store, identity.administration.project(project).id),
    );
  }
  if (values.store === 'lmdb') throw new UsageError([DATA_REQUIRED]);
  if (!/^[0-9a-f]{32}$/.test(project)) {
    throw new UserError(`--project is '${project}', but without --data it must be the ID of a project`);
  }
  return withStore(null, world, values, (store) => action(store, project));
}

export async function openStore(values: StoreValues, file: string, { now, env }: World): Promise<Store> {
  if (isEmbedded(values)) return lmdbStore(file, now);
  // Loaded on demand: most installations use neither.
  if (values.store === 'postgres') {
    const { postgresStore } = await import('../store/postgres/postgres.ts');
    const mayMigrate = values.postgresMigrate === 'auto';
    return postgresStore({ ...postgresOptions(values, env), mayMigrate }, now);
  }
  const { clickhouseStore } = await import('../store/clickhouse/clickhouse.ts');
  return clickhouseStore(
    { ...clickhouseOptions(values, env), mayMigrate: values.clickhouseMigrate === 'auto' },
    now,
  );
}

function isEmbedded(values: StoreValues): values is { store: 'lmdb' } {
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
function checkFileId(directory: string, identity: Identity, fileId: number): void {
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
  await withIdentity(directory, world, async (identity) => {
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
  try {
    return given === undefined
      ? parseMasterKey(readFileSync(file, 'utf8'), file)
      : parseMasterKey(given, MASTER_KEY_VARIABLE);
  } catch (error) {
    throw new UserError((error as Error).message);
  }
}
