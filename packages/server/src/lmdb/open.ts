/** Opens the LMDB files. Nothing here waits for the write lock unless the file is new: another process may hold it for ever. */
import { existsSync, statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Database, type DatabaseOptions, type Key, open, openAsClass, type RootDatabase } from 'lmdb';
import { CommitFailed, isLmdbError } from './commit.ts';

/** More than a lock file takes. */
const LOCK_FILE_BYTES = 64 * 1024;
const PAGE_BYTES = 4_096;

export interface LmdbFile {
  root: RootDatabase;
  table<V, K extends Key>(name: string, options: DatabaseOptions): Database<V, K>;
}

export function openLmdb(path: string): LmdbFile {
  checkLockFile(path);
  const options = {
    path,
    noSubdir: true,
    maxDbs: 16,
    // Plain LMDB commits: when one has returned, it is on disk. The alternative (overlapping sync) gains
    // nothing here, where concurrent appends already share a commit.
    overlappingSync: false,
    // With it, lmdb-js makes a promise for each turn that nobody can catch, and a failed commit ends the process.
    eventTurnBatching: false,
  };
  return explained(path, () => {
    // Declared as a function, but it returns the class.
    const Opened = openAsClass(options) as unknown as LmdbClass;
    // lmdb-js opens tables in a write transaction, which waits for the lock. A read transaction does for those that exist.
    const { prototype } = Opened;
    const { transactionSync } = prototype;
    function withoutLock<T>(open: () => T): T {
      prototype.transactionSync = function (this: ReadTransactions, action) {
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
    const root = withoutLock(() => new Opened(null, { ...options, isRoot: true }));
    return {
      root,
      table<V, K extends Key>(name: string, tableOptions: DatabaseOptions) {
        const existingOnly = { ...tableOptions, create: false };
        // Declared otherwise, but undefined when there is no such table.
        const existing = withoutLock(() => root.openDB<V, K>(name, existingOnly)) as
          | Database<V, K>
          | undefined;
        return existing ?? explained(path, () => root.openDB<V, K>(name, tableOptions));
      },
    };
  });
}

/** For programs that only look. Tables that do not exist are undefined, against what the types say. */
export function openReadOnly(path: string): LmdbFile {
  const root = open({ path, noSubdir: true, maxDbs: 16, overlappingSync: false, readOnly: true });
  return { root, table: (name, options) => root.openDB(name, options) };
}

/** A write that opening needs, at once. */
export function writeAtOnce<T>(path: string, root: RootDatabase, action: () => T): T {
  return explained(path, () => root.transactionSync(action));
}

interface LmdbClass {
  new (name: null, options: object): RootDatabase;
  prototype: Pick<RootDatabase, 'transactionSync'>;
}

interface ReadTransactions {
  resetReadTxn(): void;
  ensureReadTxn(): void;
}

function explained<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!isLmdbError(error)) throw error;
    throw new CommitFailed(`${path} cannot be opened: ${error.message}`, 'the disk is full or fails', {
      cause: error,
    });
  }
}

/**
 * LMDB makes the lock file sparse and writes it through memory, where a full disk is a SIGBUS. Its first page, with 60
 * readers, is all that is used. (Not opened here: to close it would release the locks that LMDB has on it.)
 */
function checkLockFile(path: string): void {
  const lock = statSync(`${path}-lock`, { throwIfNoEntry: false });
  const folder = dirname(path);
  if ((lock && lock.blocks * 512 >= PAGE_BYTES) || !existsSync(folder)) return;
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize >= LOCK_FILE_BYTES) return;
  throw new CommitFailed(
    `${path} cannot be opened: the disk is full, and ${LOCK_FILE_BYTES} bytes are needed for its lock file`,
    'the disk is full',
  );
}
