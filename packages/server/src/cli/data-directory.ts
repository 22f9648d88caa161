/** The files of a data directory: identity, statistics, master key and audit trail. */
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
} from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join, relative, resolve, sep } from 'node:path';
import type { Actor } from '../audit/audit-trail.ts';
import { DATA_REQUIRED, STORE_OPTIONS } from '../config.ts';
import { AlreadyInitialised } from '../identity/errors.ts';
import { type EmbeddedIdentity, type Identity, openIdentity } from '../identity/identity.ts';
import { IDENTITY_TABLES } from '../identity/lmdb-identity.ts';
import { createMasterKey, parseMasterKey } from '../identity/secrets.ts';
import { checkDataFile, DamagedFile } from '../lmdb/pages.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import { walkPages } from '../store/lmdb/verify.ts';
import { closing, type Io, UserError } from './command.ts';
import { UsageError } from './options.ts';

const MASTER_KEY_FILE = 'master.key';
/** Replaces the master key file. Not an option, because `ps` shows options to everyone. */
export const MASTER_KEY_VARIABLE = 'WAFSTAT_MASTER_KEY';
const IDENTITY_FILE = 'identity.mdb';
const STATISTICS_FILE = 'statistics.mdb';
/**
 * What may be in a directory that becomes a data directory: a new volume has lost+found, network file systems and shells
 * add hidden files, the units of systemd and of the container put the first password there, and operators may put a JSON file
 * with the categories of rules there.
 */
const EXPECTED_FILE =
  /^(?:\..*|lost\+found|(?:identity|statistics)\.mdb.*|master\.key.*|audit\.log(?:\..*)?|initial-password|.+\.json)$/;

const FILE_SETTINGS = [
  'tlsCert',
  'tlsKey',
  'initialPasswordFile',
  'identityPasswordFile',
  'postgresPasswordFile',
] as const;
/** Settings that are paths of files. Operators may keep these in the data directory. */
export type FileSettings = { [name in (typeof FILE_SETTINGS)[number]]?: string | undefined };

export type CommandContext = Pick<Io, 'env' | 'now'>;

/** The directory of a command that works on its files. */
export function requireDirectory(data: string | undefined, { env }: Pick<Io, 'env'>): string {
  if (data !== undefined) return data;
  const store = env[STORE_OPTIONS.store.env];
  if (store === undefined || store === 'lmdb') throw new UsageError([DATA_REQUIRED]);
  throw new UsageError([
    `this command is for data directories, but the store is ${store}: use the tools of PostgreSQL, such as pg_dump and pg_basebackup`,
  ]);
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

export function isInitialised(directory: string): boolean {
  return fileExists(identityFile(directory));
}

/** Unlike `existsSync`, throws if the answer is unknown: without permission, a directory would look empty. */
export function fileExists(path: string): boolean {
  try {
    statSync(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error;
    return false;
  }
}

/** Throws if the directory belongs to other programs: the files and the mode of a data directory would disturb them. */
export function checkNotForeign(directory: string, settings: FileSettings): void {
  if (!fileExists(directory) || isInitialised(directory) || fileExists(statisticsFile(directory))) return;
  const real = (path: string) => (fileExists(path) ? realpathSync(path) : resolve(path));
  const named = FILE_SETTINGS.flatMap((name) => settings[name] ?? []).flatMap((path) =>
    // The path as given, and as the target of links.
    [relative(resolve(directory), resolve(path)), relative(real(directory), real(path))].map(
      (inside) => inside.split(sep)[0],
    ),
  );
  const foreign = readdirSync(directory)
    .sort()
    .find((name) => !EXPECTED_FILE.test(name) && !named.includes(name));
  if (foreign === undefined) return;
  throw new UserError(
    `${directory} is not empty, and not a wafstat data directory: it contains ${foreign}. ` +
      `Use a new or empty directory, such as ${join(directory, 'wafstat')}`,
  );
}

/** With its parents. Node.js' own `recursive` never returns for a directory in /proc. */
export function createDirectory(directory: string): void {
  const path = resolve(directory);
  if (fileExists(path)) return;
  createDirectory(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Another process was faster.
    if (code === 'EEXIST' && fileExists(path)) return;
    if (code === 'ENOENT') throw new UserError(`cannot create ${path}: use another path`);
    throw error;
  }
}

/** The directory counts as initialised only after `bootstrap`. Rejects with AlreadyInitialised if another process is faster. */
export async function createDataDirectory<T>(
  directory: string,
  settings: FileSettings,
  context: CommandContext,
  bootstrap: (identity: Identity) => Promise<T>,
): Promise<T> {
  checkNoStatistics(directory);
  checkNotForeign(directory, settings);
  createDirectory(directory);
  const keyFile = masterKeyFile(directory);
  if (context.env[MASTER_KEY_VARIABLE] === undefined && !existsSync(keyFile)) createMasterKey(keyFile);
  // Another process may do the same.
  const unfinished = `${identityFile(directory)}.unfinished-${randomBytes(4).toString('hex')}`;
  const identity = await openIdentity(unfinished, masterKey(directory, context), context.now, {
    actor: localActor(),
  });
  try {
    const result = await bootstrap(identity);
    await identity.close();
    // Unlike a rename, this fails if the file exists.
    linkSync(unfinished, identityFile(directory));
    return result;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new AlreadyInitialised(`${directory} is already a wafstat data directory`);
  } finally {
    for (const path of [unfinished, `${unfinished}-lock`]) rmSync(path, { force: true });
  }
}

/** Throws if a directory without identity has statistics. */
export function checkNoStatistics(directory: string): void {
  if (!existsSync(statisticsFile(directory))) return;
  throw new UserError(
    `${directory} has ${STATISTICS_FILE} but no ${IDENTITY_FILE}, so nobody can query its projects. ` +
      `Restore ${IDENTITY_FILE} and ${MASTER_KEY_FILE} from the backup; to start over, move ${STATISTICS_FILE} away`,
  );
}

export async function withEmbeddedIdentity<T>(
  directory: string,
  context: CommandContext,
  action: (identity: EmbeddedIdentity) => Promise<T>,
): Promise<T> {
  if (!isInitialised(directory)) {
    throw new UserError(
      `${directory} is not a wafstat data directory: create one with 'wafstat init --data ${directory}'`,
    );
  }
  await checkIdentityFile(identityFile(directory));
  const identity = await openIdentity(identityFile(directory), masterKey(directory, context), context.now, {
    actor: localActor(),
  });
  return closing(identity, action);
}

/** Accepts the current statistics file, or a new one, as that of the data directory. */
export async function acceptStatistics(directory: string, context: CommandContext): Promise<void> {
  await withEmbeddedIdentity(directory, context, async (identity) => {
    const file = statisticsFile(directory);
    if (existsSync(file) && statSync(file).size > 0) checkFile(file);
    const store = lmdbStore(file, context.now);
    if (store.fileId !== undefined) identity.statisticsFile.set(store.fileId);
    await store.close();
  });
}

/** A missing or empty file would look like an installation without any requests. */
export function checkStatisticsFile(file: string, knownId: number | undefined): void {
  const bytes = existsSync(file) ? statSync(file).size : 0;
  if (bytes > 0) checkFile(file);
  else if (knownId !== undefined) {
    throw new UserError(
      `${file} is ${existsSync(file) ? 'empty' : 'missing'}, but it held the statistics of this data directory. ` +
        `Restore it from a backup; to continue without them, run ${acceptCommand(dirname(file))}`,
    );
  }
}

/** Stores the ID of the file at the first start, and refuses another file later. */
export function checkFileId(directory: string, identity: EmbeddedIdentity, fileId: number): void {
  const known = identity.statisticsFile.id();
  if (known === undefined) identity.statisticsFile.set(fileId);
  else if (known !== fileId) throw wrongStatisticsFile(directory);
}

export function wrongStatisticsFile(directory: string): UserError {
  return new UserError(
    `${statisticsFile(directory)} does not belong to ${IDENTITY_FILE}: it is from another data directory ` +
      `or was recreated. Restore the right one from a backup; to keep this one, run ${acceptCommand(directory)}`,
  );
}

function acceptCommand(directory: string): string {
  return `'wafstat repair --data ${directory} --accept-statistics'`;
}

/** Call it before LMDB maps the file: LMDB crashes on a truncated one. */
export function checkFile(file: string): void {
  try {
    checkDataFile(file);
  } catch (error) {
    if (!(error instanceof DamagedFile)) throw error;
    throw new UserError(`${error.message}. Restore it from a backup`);
  }
}

/** Reads all pages, which are few: LMDB could crash on a damaged one, or find a wrong record. */
async function checkIdentityFile(file: string): Promise<void> {
  checkFile(file);
  const [problem] = (await walkPages(file, IDENTITY_TABLES)).problems;
  if (problem === undefined) return;
  throw new UserError(
    `${file} is damaged: ${problem.key} ${problem.problem}. Run 'wafstat verify' and 'wafstat repair' with --data ${dirname(file)}`,
  );
}

export function masterKey(directory: string, { env }: CommandContext): Buffer {
  const given = env[MASTER_KEY_VARIABLE];
  const file = masterKeyFile(directory);
  if (given === undefined && !existsSync(file)) {
    throw new UserError(`${file} is missing: restore it from a backup, or set ${MASTER_KEY_VARIABLE}`);
  }
  return given === undefined
    ? readMasterKey(readFileSync(file, 'utf8'), file)
    : readMasterKey(given, MASTER_KEY_VARIABLE);
}

export function readMasterKey(text: string, origin: string): Buffer {
  try {
    return parseMasterKey(text, origin);
  } catch (error) {
    throw new UserError((error as Error).message);
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
