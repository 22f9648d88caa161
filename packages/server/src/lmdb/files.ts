/**
 * LMDB files: how they are opened, their modes, and the disk space that is kept free. Nothing here waits for the write
 * lock unless the file is new: another process may hold it forever.
 */
import {
  chmodSync,
  closeSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmSync,
  type Stats,
  type StatsFs,
  statfsSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { type Database, type DatabaseOptions, type Key, openAsClass, type RootDatabase } from 'lmdb';
import { CommitFailed, FILE_REPLACED, isLmdbError } from './commit.ts';

interface OpenFile {
  path: string;
  root: RootDatabase;
  /**
   * Throws CommitFailed if the path no longer leads to the opened files. Call it in every write transaction: files are
   * replaced by a process that holds the write lock (decision 0031).
   */
  checkPath(): void;
}

interface LmdbFile extends OpenFile {
  table<V, K extends Key>(name: string, options: DatabaseOptions): Database<V, K>;
}

/** `compact` replaces the files at most once while they are opened; file systems with layers, when they are first written. */
const OPEN_ATTEMPTS_MAX = 5;
const OPEN_AGAIN_MS = 20;

/** Opens the file and its lock file so that both are those at the path. */
function openCurrent<T extends { root: RootDatabase }>(path: string, openFiles: () => T) {
  for (let attempt = 1; ; attempt++) {
    const ids = fileIds(path);
    let opened: T;
    try {
      opened = openFiles();
    } catch (error) {
      const cause = error instanceof CommitFailed ? error.cause : error;
      const isInvalid = isLmdbError(cause) && cause.code === INVALID_MUTEX;
      if (!isInvalid) throw error;
      if (attempt === OPEN_ATTEMPTS_MAX) {
        throw new CommitFailed(
          `${path} is in use by a process that is just opening it, or has been stopped while doing so; try again`,
          'another process holds the write lock',
          { cause: error },
        );
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, OPEN_AGAIN_MS);
      continue;
    }
    const checkPath = () => {
      if (fileIds(path) !== ids) throw replaced(path);
    };
    const { root } = opened;
    const isCurrent = closingOnError(root, () => fileIds(path) === ids);
    if (isCurrent) return { path, checkPath, ...opened };
    void root.close();
    if (attempt === OPEN_ATTEMPTS_MAX) throw replaced(path);
  }
}

/** Closes the file if the action fails: opened a second time by this process, it would refuse commits with EINVAL. */
export function closingOnError<T>(root: RootDatabase, action: () => T): T {
  try {
    return action();
  } catch (error) {
    void root.close();
    throw error;
  }
}

/**
 * EINVAL. The last process that closes a file destroys the mutexes in the lock file; LMDB does not create them again in a
 * process that was waiting for that one, only if all close the file and one opens it again.
 */
const INVALID_MUTEX = 22;

/** Device and inode of the data file and its lock file. */
function fileIds(path: string): string {
  return [path, `${path}-lock`]
    .map((file) => statSync(file, { bigint: true, throwIfNoEntry: false }))
    .map((stats) => (stats === undefined ? 'none' : `${stats.dev}:${stats.ino}`))
    .join(' ');
}

function replaced(path: string): CommitFailed {
  return new CommitFailed(
    `${path} or its lock file was deleted or replaced while this process had it open; nothing was changed. ` +
      'Stop all wafstat processes of this data directory, restore the file if it is missing, and start them again',
    FILE_REPLACED,
  );
}

export function openLmdb(path: string): LmdbFile {
  checkNoOtherLock(path);
  createPrivateFiles(path);
  checkLockFile(path);
  const { withoutLock, ...file } = openCurrent(path, () => openForWriting(path));
  return {
    ...file,
    table<V, K extends Key>(name: string, options: DatabaseOptions) {
      const { root } = file;
      const existingOnly = { ...options, create: false };
      // The types say otherwise, but it is undefined if the table does not exist.
      const existing: Database<V, K> | undefined = withoutLock(() => root.openDB(name, existingOnly));
      return existing ?? commitSync(file, () => root.openDB<V, K>(name, options));
    },
  };
}

function openForWriting(path: string) {
  const options = {
    path,
    noSubdir: true,
    maxDbs: 16,
    // Plain LMDB commits are on disk when they return. Overlapping sync would gain nothing: concurrent appends already
    // share a commit.
    overlappingSync: false,
    // Otherwise lmdb-js creates a promise per turn that nobody can catch, and a failed commit ends the process.
    eventTurnBatching: false,
  };
  return explainErrors(path, () => {
    const Opened = openAsClass(options) as unknown as LmdbClass;
    // lmdb-js opens tables in a write transaction, which waits for the lock. For existing tables, a read transaction is
    // enough.
    const { prototype } = Opened;
    const { transactionSync } = prototype;
    function withoutLock<T>(open: () => T): T {
      prototype.transactionSync = function (this: RootDatabase & { ensureReadTxn(): void }, action) {
        this.resetReadTxn();
        this.ensureReadTxn();
        return action();
      };
      try {
        return open();
      } finally {
        prototype.transactionSync = transactionSync;
      }
    }
    return { root: withoutLock(() => openRoot(Opened, options)), withoutLock };
  });
}

/** Closes the files if the constructor fails, so that they can be opened again. */
function openRoot(Opened: LmdbClass, options: object): RootDatabase {
  try {
    return new Opened(null, { ...options, isRoot: true });
  } catch (error) {
    void Opened.prototype.close.call({ isRoot: true } as never);
    throw error;
  }
}

/** Tables that do not exist are undefined, contrary to the types. */
export function openReadOnly(path: string): LmdbFile {
  checkNoOtherLock(path);
  createPrivateLock(path);
  const options = { path, noSubdir: true, maxDbs: 16, overlappingSync: false, readOnly: true };
  const file = openCurrent(path, () => ({
    root: openRoot(openAsClass(options) as unknown as LmdbClass, options),
  }));
  return { ...file, table: (name, options) => file.root.openDB(name, options) };
}

/**
 * Throws if the lock file is missing although another process writes to the data file: it was deleted, and two processes
 * with different lock files would overwrite each other's pages. LMDB creates and fills the lock file first.
 */
function checkNoOtherLock(path: string): void {
  const hasLock = () => (statSync(`${path}-lock`, { throwIfNoEntry: false })?.size ?? 0) > 0;
  const data = statSync(path, { throwIfNoEntry: false });
  if (hasLock() || data === undefined || data.size === 0) return;
  const [pid] = processesWith(data, { isWriting: true });
  if (pid === undefined || hasLock()) return;
  throw new CommitFailed(
    `${path} cannot be opened: its lock file was deleted while process ${pid} has ${path} open. ` +
      'Stop that process and start it again',
    FILE_REPLACED,
  );
}

/** Other processes of this machine that have the file open, as far as permissions show. */
export function processesWith(
  { dev, ino }: Pick<Stats, 'dev' | 'ino'>,
  { isWriting = false } = {},
): string[] {
  const isOther = (name: string) => /^\d+$/.test(name) && name !== String(process.pid);
  return list('/proc')
    .filter(isOther)
    .filter((pid) => {
      const directory = join('/proc', pid, 'fd');
      return list(directory).some((fd) => {
        try {
          const link = join(directory, fd);
          if (!readlinkSync(link).startsWith('/')) return false;
          const found = statSync(link);
          // The mode of the link says how the file was opened.
          return (
            found.dev === dev && found.ino === ino && (!isWriting || (lstatSync(link).mode & 0o200) !== 0)
          );
        } catch {
          return false;
        }
      });
    });
}

/** Empty if the directory is unreadable or the process has ended. */
function list(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

/**
 * LMDB creates a missing lock file beside the file. To change nothing, open a symbolic link in a temporary directory
 * instead: without a lock file, no other process uses the data.
 */
export async function inspectLmdb<T>(path: string, action: (path: string) => T | Promise<T>): Promise<T> {
  if (existsSync(`${path}-lock`)) return action(path);
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-'));
  try {
    const link = join(directory, 'link.mdb');
    symlinkSync(resolve(path), link);
    return await action(link);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** A synchronous write, for use while a file is being opened. */
export function commitSync<T>({ path, root, checkPath }: OpenFile, action: () => T): T {
  return explainErrors(path, () =>
    root.transactionSync(() => {
      checkPath();
      return action();
    }),
  );
}

/** What `openAsClass` returns; it is declared as a function. */
interface LmdbClass {
  new (name: null, options: object): RootDatabase;
  prototype: Pick<RootDatabase, 'transactionSync' | 'close'>;
}

function explainErrors<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!isLmdbError(error)) throw error;
    throw new CommitFailed(`${path} cannot be opened: ${error.message}`, 'the disk is full or fails', {
      cause: error,
    });
  }
}

/** More than a lock file takes. */
const LOCK_FILE_BYTES = 64 * 1024;
const PAGE_BYTES = 4_096;

/**
 * LMDB creates a sparse lock file and writes it through memory, where a full disk causes a SIGBUS. Only its first page
 * (60 readers) is used. The file is not opened here: closing it would release LMDB's locks on it.
 */
function checkLockFile(path: string): void {
  const lock = statSync(`${path}-lock`, { throwIfNoEntry: false });
  const directory = dirname(path);
  if ((lock && lock.blocks * 512 >= PAGE_BYTES) || !existsSync(directory)) return;
  const { bavail, bsize } = statfsSync(directory);
  if (bavail * bsize >= LOCK_FILE_BYTES) return;
  throw new CommitFailed(
    `${path} cannot be opened: the disk is full, and its lock file needs ${LOCK_FILE_BYTES} bytes`,
    'the disk is full',
  );
}

const FILE_MODE = 0o600;
const DIRECTORY_MODE = 0o700;

/**
 * LMDB creates its files with the modes of the umask, but accepts empty files as new. Existing files are not opened:
 * closing a lock file would release the locks that LMDB holds on it in this process.
 */
function createPrivateFiles(path: string): void {
  for (const file of [path, `${path}-lock`]) {
    try {
      closeSync(openSync(file, 'wx', FILE_MODE));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** For readers: they may not be allowed to create the lock file, and LMDB reads without one on a read-only disk. */
function createPrivateLock(path: string): void {
  if (!existsSync(path)) return;
  try {
    closeSync(openSync(`${path}-lock`, 'wx', FILE_MODE));
  } catch {
    // It exists, or LMDB reports why it cannot.
  }
}

/** Files of a data directory. Other files in it are left alone. */
const OWN_FILE = /^(?:(?:identity|statistics)\.mdb(?:-lock)?|master\.key|audit.*)$/;

/**
 * Makes the directory and its files accessible to their owner only. Returns a message for each change; `dryRun` changes
 * nothing.
 */
export function tightenModes(directory: string, { dryRun = false } = {}): string[] {
  const names = readdirSync(directory).filter((name) => OWN_FILE.test(name));
  return [directory, ...names.map((name) => join(directory, name))].flatMap((path) => tighten(path, dryRun));
}

function tighten(path: string, dryRun: boolean): string[] {
  const stats = lstatSync(path);
  const { mode, uid } = stats;
  const wanted = stats.isDirectory() ? DIRECTORY_MODE : stats.isFile() ? FILE_MODE : null;
  // A directory with the sticky bit, like /tmp, is shared.
  if (wanted === null || (mode & 0o077) === 0 || (mode & 0o1000) !== 0) return [];
  const was = (mode & 0o777).toString(8);
  if (uid !== process.getuid?.())
    return [`${path} has mode ${was} and belongs to another user: others may read it`];
  if (dryRun) return [`${path} has mode ${was}: the service will change it to ${wanted.toString(8)}`];
  chmodSync(path, wanted);
  return [`changed the mode of ${path} from ${was} to ${wanted.toString(8)}`];
}

/** Room for thousands of identity changes, and for other programs. */
const RESERVED_BYTES_MAX = 64 * 1_048_576;
/** On a small file system, this share is reserved. */
const RESERVED_SHARE = 0.05;
const MEASUREMENT_AGE_MS_MAX = 1_000;

export type FileSystem = Pick<StatsFs, 'bsize' | 'blocks' | 'bavail'>;

/** Keeps disk space free: appends stop before the disk is full, so that revocations and deletions still work. */
export class FreeSpace {
  readonly #directory: string;
  readonly #measure: (directory: string) => Promise<FileSystem>;
  readonly #monotonicNow: () => number;
  #measured: { at: number; error: CommitFailed | null } | null = null;

  constructor(
    directory: string,
    measure: (directory: string) => Promise<FileSystem> = statfs,
    monotonicNow = () => performance.now(),
  ) {
    this.#directory = directory;
    this.#measure = measure;
    this.#monotonicNow = monotonicNow;
  }

  /** Rejects with CommitFailed while less than the reserve is free. */
  async check(): Promise<void> {
    const at = this.#monotonicNow();
    if (this.#measured === null || at - this.#measured.at >= MEASUREMENT_AGE_MS_MAX) {
      this.#measured = { at, error: await this.#shortage() };
    }
    if (this.#measured.error !== null) throw this.#measured.error;
  }

  async #shortage(): Promise<CommitFailed | null> {
    const measured = await this.#measure(this.#directory).catch(() => null);
    // A disk that cannot be measured is no reason to refuse.
    if (measured === null) return null;
    const { bsize, blocks, bavail } = measured;
    const reserved = Math.min(RESERVED_BYTES_MAX, Math.floor(RESERVED_SHARE * blocks * bsize));
    const free = bavail * bsize;
    if (free >= reserved) return null;
    return new CommitFailed(
      `${this.#directory} has ${free} bytes free, less than the reserve of ${reserved}; nothing was counted`,
      'the disk is full',
    );
  }
}
