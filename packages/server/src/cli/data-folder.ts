/** The folder that holds an installation: identity, statistics, and the master key. */
import { accessSync, constants, existsSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import type { Actor } from '../audit/audit-trail.ts';
import { SettingsError, variableOf } from '../config.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import { createMasterKey, parseMasterKey, readMasterKey } from '../identity/secrets.ts';
import { tightenModes } from '../lmdb/files.ts';
import { checkDataFile, DamagedFile } from '../lmdb/pages.ts';
import type { Store } from '../store/store.ts';
import { type Io, UserError } from './command.ts';
import { isEmbedded, openStore, type StoreSettings } from './store.ts';

export interface Installation {
  identity: Identity;
  store: Store;
  /** Sentences for the log. */
  notices: readonly string[];
}

const MASTER_KEY_FILE = 'master.key';
/** Instead of the file. In the environment only: a command line stands in the list of processes for all to read. */
export const MASTER_KEY_VARIABLE = 'WAFSTAT_MASTER_KEY';
const IDENTITY_FILE = 'identity.mdb';
const STATISTICS_FILE = 'statistics.mdb';

export const FOLDER_REQUIRED = `--data (or ${variableOf('data')}) is required`;

type World = Pick<Io, 'env' | 'now'>;

export function isInitialised(folder: string): boolean {
  return existsSync(join(folder, IDENTITY_FILE));
}

/** Makes the folder; `found` puts the first domain and user into it. A half-made one does not count as made. */
export async function createDataFolder<T>(
  folder: string,
  world: World,
  found: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (existsSync(join(folder, STATISTICS_FILE))) {
    throw new UserError(
      `${folder} has ${STATISTICS_FILE} but no ${IDENTITY_FILE}, without which nobody can ask for its projects. ` +
        `Restore ${IDENTITY_FILE} and ${MASTER_KEY_FILE} from the backup; to start over, move ${STATISTICS_FILE} away`,
    );
  }
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const keyFile = join(folder, MASTER_KEY_FILE);
  if (world.env[MASTER_KEY_VARIABLE] === undefined && !existsSync(keyFile)) createMasterKey(keyFile);
  const unfinished = join(folder, `${IDENTITY_FILE}.unfinished`);
  const discard = () => {
    for (const path of [unfinished, `${unfinished}-lock`]) rmSync(path, { force: true });
  };
  discard();
  const identity = await openIdentity(unfinished, masterKey(folder, world), world.now, {
    actor: localActor(),
  });
  try {
    const made = await found(identity);
    await identity.close();
    renameSync(unfinished, join(folder, IDENTITY_FILE));
    return made;
  } finally {
    discard();
  }
}

/** Opens what a command works on, and closes it whatever comes. */
export async function withInstallation<T>(
  folder: string,
  world: World,
  settings: StoreSettings,
  action: (installation: Installation) => Promise<T>,
): Promise<T> {
  return withIdentity(folder, world, async (identity) => {
    const file = join(folder, STATISTICS_FILE);
    const notices = tightenModes(folder);
    if (isEmbedded(settings)) checkStatisticsFile(file, identity.statisticsFile.id());
    const store = await openStore(settings, file, world.now);
    try {
      if (store.fileId !== undefined) claimStatisticsFile(folder, identity, store.fileId);
      return await action({ identity, store, notices });
    } finally {
      await store.close();
    }
  });
}

/** A missing or empty file would pass for one without a single request. */
function checkStatisticsFile(file: string, knownId: number | undefined): void {
  const bytes = existsSync(file) ? statSync(file).size : 0;
  if (bytes > 0) checkFile(file);
  else if (existsSync(interruptedCompaction(file))) {
    throw new UserError(
      `${file} is missing, because 'wafstat compact' was interrupted: rename ${interruptedCompaction(file)} back to it`,
    );
  } else if (knownId !== undefined) {
    throw new UserError(
      `${file} is ${existsSync(file) ? 'empty' : 'missing'}, but it held the statistics of this data folder. ` +
        `Restore it from a backup; to go on without them, run ${acceptCommand(dirname(file))}`,
    );
  }
}

/** Remembers the file at the first start, and refuses another one later. */
function claimStatisticsFile(folder: string, identity: Identity, fileId: number): void {
  const known = identity.statisticsFile.id();
  if (known === undefined) identity.statisticsFile.set(fileId);
  else if (known !== fileId) {
    throw new UserError(
      `${join(folder, STATISTICS_FILE)} is not the file that belongs to ${IDENTITY_FILE}: it is from another data folder ` +
        `or was recreated. Restore the right one from a backup; to keep this one, run ${acceptCommand(folder)}`,
    );
  }
}

function acceptCommand(folder: string): string {
  return `'wafstat repair --data ${folder} --accept-statistics'`;
}

/** What is there now, even nothing, becomes the statistics of the folder. */
export async function acceptStatistics(folder: string, world: World): Promise<void> {
  await withIdentity(folder, world, async (identity) => {
    const file = join(folder, STATISTICS_FILE);
    if (existsSync(file) && statSync(file).size > 0) checkFile(file);
    const store = await openStore({ store: 'lmdb' }, file, world.now);
    if (store.fileId !== undefined) identity.statisticsFile.set(store.fileId);
    await store.close();
  });
}

export function statisticsFile(folder: string): string {
  return join(folder, STATISTICS_FILE);
}

export function identityFile(folder: string): string {
  return join(folder, IDENTITY_FILE);
}

export function masterKeyFile(folder: string): string {
  return join(folder, MASTER_KEY_FILE);
}

/** Where the statistics are for a moment while they are compacted. */
export function interruptedCompaction(file: string): string {
  return `${file}.before-compact`;
}

/** Before it is mapped: LMDB does not survive a file that was cut off. */
function checkFile(file: string): void {
  try {
    checkDataFile(file);
  } catch (error) {
    if (!(error instanceof DamagedFile)) throw error;
    throw new UserError(`${error.message}. Restore it from a backup`);
  }
}

/** The store alone, for a process whose identity is kept elsewhere; without a folder when the store is too. */
export async function withStore<T>(
  folder: string | null,
  { now }: World,
  settings: StoreSettings,
  action: (store: Store) => Promise<T>,
): Promise<T> {
  const file = join(folder ?? '', STATISTICS_FILE);
  if (folder !== null) mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (isEmbedded(settings)) checkStatisticsFile(file, undefined);
  const store = await openStore(settings, file, now);
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

/**
 * The store, and the project that log lines belong to. On a machine without the folder, which needs another store,
 * nobody can be asked for projects: then it is given by its ID.
 */
export async function withProject<T>(
  folder: string | undefined,
  world: World,
  settings: StoreSettings & { project: string },
  action: (store: Store, projectId: string) => Promise<T>,
): Promise<T> {
  const { project } = settings;
  if (folder !== undefined) {
    return withInstallation(folder, world, settings, ({ identity, store }) =>
      action(store, identity.administration.project(project).id),
    );
  }
  if (settings.store === 'lmdb') throw new SettingsError([FOLDER_REQUIRED]);
  if (!/^[0-9a-f]{32}$/.test(project)) {
    throw new UserError(`without --data, --project must be the ID of a project, and '${project}' is none`);
  }
  return withStore(null, world, settings, (store) => action(store, project));
}

/** The same for those who count nothing. */
export async function withIdentity<T>(
  folder: string,
  world: World,
  action: (identity: Identity) => Promise<T>,
): Promise<T> {
  if (!isInitialised(folder)) {
    throw new UserError(
      isForbidden(folder)
        ? `no permission to read ${folder}: run this as the user that the server runs as`
        : `${folder} is not a wafstat data folder: make one with 'wafstat init --data ${folder}'`,
    );
  }
  checkFile(join(folder, IDENTITY_FILE));
  const identity = await openIdentity(join(folder, IDENTITY_FILE), masterKey(folder, world), world.now, {
    actor: localActor(),
  });
  try {
    return await action(identity);
  } finally {
    await identity.close();
  }
}

/** Who runs the command, for the audit trail. */
export function localActor(): Actor {
  return { user: `local:${osUser()}`, via: 'command line' };
}

function osUser(): string {
  try {
    return userInfo().username;
  } catch {
    // Containers run under user IDs that have no name.
    return 'unknown';
  }
}

function masterKey(folder: string, { env }: World): Buffer {
  const given = env[MASTER_KEY_VARIABLE];
  const file = join(folder, MASTER_KEY_FILE);
  if (given === undefined && !existsSync(file)) {
    throw new UserError(`${folder} has no ${MASTER_KEY_FILE}: give the key in ${MASTER_KEY_VARIABLE}`);
  }
  try {
    return given === undefined ? readMasterKey(file) : parseMasterKey(given, MASTER_KEY_VARIABLE);
  } catch (error) {
    throw new UserError((error as Error).message);
  }
}

/** A folder that may not be looked into seems to be empty. */
function isForbidden(folder: string): boolean {
  try {
    accessSync(folder, constants.R_OK | constants.X_OK);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES';
  }
}
