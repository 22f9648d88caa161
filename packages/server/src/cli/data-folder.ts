/** The folder that holds an installation: identity, statistics, and the master key. */
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import type { Actor } from '../audit/audit-trail.ts';
import { SettingsError, variableOf } from '../config.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import { createMasterKey, parseMasterKey, readMasterKey } from '../identity/master-key.ts';
import type { Store } from '../store/store.ts';
import { type Io, UserError } from './command.ts';
import { openStore, type StoreSettings } from './store.ts';

export interface Installation {
  identity: Identity;
  store: Store;
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
    const store = await openStore(settings, join(folder, STATISTICS_FILE), world.now);
    try {
      return await action({ identity, store });
    } finally {
      await store.close();
    }
  });
}

/** The store alone, for a process whose identity is kept elsewhere; without a folder when the store is too. */
export async function withStore<T>(
  folder: string | null,
  { now }: World,
  settings: StoreSettings,
  action: (store: Store) => Promise<T>,
): Promise<T> {
  if (folder !== null) mkdirSync(folder, { recursive: true, mode: 0o700 });
  const store = await openStore(settings, join(folder ?? '', STATISTICS_FILE), now);
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
      `${folder} is not a wafstat data folder: make one with 'wafstat init --data ${folder}'`,
    );
  }
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
