/** The identity store in an LMDB file, separate from the statistics so that replacing those never affects it. */
import { closeSync, fstatSync, openSync, writeSync } from 'node:fs';
import type { Database, RootDatabase } from 'lmdb';
import type { AuditFile } from '../audit/audit-file.ts';
import { ChangeCounter } from '../lmdb/change-counter.ts';
import { CommitFailed, Committer, tryTo } from '../lmdb/commit.ts';
import { closingOnError, commitSync, inspectLmdb, openLmdb, openReadOnly } from '../lmdb/files.ts';
import { createIdentityStore, WriteQueue } from './copied-store.ts';
import { IdentityDamaged, IdentityNotWritable } from './errors.ts';
import type { IdentityStore } from './identity-store.ts';
import { type IdentityProblem, MIRRORED_TABLES, MirroredTable } from './mirrored-table.ts';
import { type RecordChange, RecordsCopy, type Update } from './records-copy.ts';

/** Increase when old files can no longer be read as they are. */
const IDENTITY_VERSION = 3;
/** Kept even if their tokens have expired. They take 25 MB on disk and 11 MB of memory. */
const REVOCATIONS_KEPT = 100_000;
/** Reserved beyond the last page in use: room for about 5,000 more revocations on a full disk. */
const RESERVED_BYTES = 1_048_576;
/** The log has this many changes. A process that has missed more loads all records. */
const LOGGED_CHANGES_MAX = 1_000;
/** After a change of more records, all other processes load all records. */
const LOGGED_RECORDS_MAX = 1_000;

/** All names of tables in the file. */
export const IDENTITY_TABLES = ['meta', ...MIRRORED_TABLES];

/** Kinds in the tables besides those of records: single values, and the changed records by the number of the change. */
const STATE = 'state';
const LOG = 'log';
type StateKey = 'mark' | 'changes' | 'statistics';

interface LmdbIdentity extends IdentityStore {
  /** The ID of the statistics file that belongs to this store, once there is one. */
  statisticsFileId(): number | undefined;
  setStatisticsFileId(id: number): void;
  /** Whether records were damaged when all were read. The other table has them, but they cannot be changed. */
  hasDamage(): boolean;
}

/** Reads the metadata of a file without changing it. */
export async function inspectLmdbIdentity(path: string) {
  return inspectLmdb(path, async (opened) => {
    const file = openFile(opened, true);
    try {
      const problem = versionProblem(file.version, path);
      if (problem !== null) return { versionProblem: problem.problem };
      const [fingerprint, statisticsFileId] = [stateOf(file, 'mark'), stateOf(file, 'statistics')];
      return { versionProblem: null, fingerprint, statisticsFileId };
    } finally {
      await file.root.close();
    }
  });
}

/** Damaged records of an intact file, for `verify`. Runs in one turn, and so in one snapshot. */
export async function identityProblems(path: string): Promise<IdentityProblem[]> {
  const file = openFile(path, true);
  try {
    const problem = versionProblem(file.version, path);
    return problem === null ? file.records.check().problems : [problem];
  } finally {
    await file.root.close();
  }
}

/** For `repair`. The pages of the file must be intact. If something is lost, nothing is changed. */
export async function repairIdentity(
  path: string,
): Promise<{ repairs: IdentityProblem[]; lost: IdentityProblem[] }> {
  const file = openFile(path);
  try {
    const version = versionProblem(file.version, path);
    if (version !== null && readVersion(file.version) !== null) return { repairs: [], lost: [version] };
    return commitSync(file, () => {
      const { problems, lost } = file.records.check();
      if (lost > 0) {
        const problem = 'damaged in both tables: restore identity.mdb from a backup';
        return { repairs: [], lost: problems.map((each) => ({ ...each, problem })) };
      }
      if (version !== null) file.version.putSync('version', IDENTITY_VERSION);
      if (problems.length > 0) {
        file.records.rebuildSync();
        // Without an entry in the log, other processes load all records.
        file.records.putSync([STATE, 'changes'], countChanges(file) + 1);
      }
      const repairs = version === null ? problems : [version, ...problems];
      return { repairs: repairs.map((each) => ({ ...each, problem: 'rebuilt' })), lost: [] };
    });
  } finally {
    await file.root.close();
  }
}

export function openLmdbIdentity(
  path: string,
  audit: AuditFile,
  revocationsKept = REVOCATIONS_KEPT,
): LmdbIdentity {
  const file = openFile(path);
  closingOnError(file.root, () => {
    const problem = versionProblem(file.version, path);
    if (problem !== null) throw new IdentityDamaged(problem.problem);
    // Only a new file needs the write lock, which another process may hold.
    if (!file.version.doesExist('version'))
      commitSync(file, () => void file.version.putSync('version', IDENTITY_VERSION));
  });

  const copy = new RecordsCopy();
  const counter = new ChangeCounter(
    () => countChanges(file),
    () => file.root.resetReadTxn(),
  );
  const committer = new Committer({
    path,
    root: () => file.root,
    checkPath: () => file.checkPath(),
    async reopen() {
      await file.root.close();
      Object.assign(file, openFile(path));
    },
    probe: () => file.version.putSync('version', IDENTITY_VERSION),
  });
  const queue = new WriteQueue(
    (message) => new CommitFailed(`${message}; nothing was changed`, 'another process holds the write lock'),
  );
  function sync(): void {
    if (counter.get() > copy.number) copy.apply(load(file, copy.number, counter.renew()));
  }

  closingOnError(file.root, sync);
  const store = createIdentityStore(
    copy,
    {
      sync,
      confirm: () => undefined,
      async refresh() {
        counter.forget();
        sync();
      },
      commit: (prepare) =>
        queue
          .run(async () => {
            const { result, update } = await committer.run(() => {
              copy.apply(load(file, copy.number, countChanges(file)));
              const { result, changes, entries } = prepare(Number.POSITIVE_INFINITY);
              const update = { from: copy.number, to: copy.number + 1, changes, isWhole: false };
              write(file, update);
              // The lines are durable before the commit.
              for (const entry of entries) audit.appendSync(entry);
              reserveSpace(path, file.root);
              return { result, update };
            });
            copy.apply(update);
            return result;
          })
          .catch(rethrow)
          .finally(() => counter.forget()),
      async matchesMasterKey(fingerprint) {
        if (stateOf(file, 'mark') === undefined)
          commitSync(file, () => {
            if (stateOf(file, 'mark') === undefined) file.records.putSync([STATE, 'mark'], fingerprint);
          });
        return stateOf(file, 'mark') === fingerprint;
      },
      checkWrites: () => committer.check().catch(rethrow),
      close: () => committer.close(),
    },
    revocationsKept,
  );
  return {
    ...store,
    hasDamage: () => file.records.hasDamage,
    statisticsFileId() {
      const id = stateOf(file, 'statistics');
      return typeof id === 'number' ? id : undefined;
    },
    setStatisticsFileId: (id) => commitSync(file, () => file.records.putSync([STATE, 'statistics'], id)),
  };
}

type IdentityFile = ReturnType<typeof openFile>;

function openFile(path: string, readOnly = false) {
  const { table, ...file } = readOnly ? openReadOnly(path) : openLmdb(path);
  return closingOnError(file.root, () => ({
    ...file,
    /** Without a checksum: older and newer releases must be able to read it. */
    version: table<number, 'version'>('meta', { encoding: 'json' }),
    records: new MirroredTable(table),
  }));
}

function versionProblem(table: Database<number, 'version'>, path: string): IdentityProblem | null {
  const version = readVersion(table);
  if (version === IDENTITY_VERSION) return null;
  const problem =
    version === null
      ? `the format version of ${path} is damaged: run 'wafstat repair'`
      : `${path} has format version ${version}, but this release reads version ${IDENTITY_VERSION}: use the release that wrote it`;
  return { table: 'meta', key: 'version', problem };
}

/** Null if it is damaged. A new file has none yet. */
function readVersion(table: Database<number, 'version'>): number | null {
  return tryTo(() => table.get('version') ?? IDENTITY_VERSION);
}

function stateOf({ records }: IdentityFile, key: StateKey): number | string | undefined {
  return records.get([STATE, key]) as number | string | undefined;
}

function countChanges(file: IdentityFile): number {
  return Number(stateOf(file, 'changes') ?? 0);
}

/** The changes after `from`, or all records if the log does not have them. */
function load({ records }: IdentityFile, from: number, to: number): Update {
  const changes: RecordChange[] = [];
  for (let number = from + 1; number <= to; number++) {
    const logged = records.get([LOG, number]) as RecordChange[] | undefined;
    if (logged === undefined) return loadAll(records, from, to);
    changes.push(...logged);
  }
  return { from, to, changes, isWhole: false };
}

function loadAll(records: MirroredTable, from: number, to: number): Update {
  const changes = records
    .entries()
    .flatMap(({ key: [kind, id], value }) =>
      kind === STATE || kind === LOG ? [] : [{ kind, id, value } as RecordChange],
    );
  return { from, to, changes, isWhole: true };
}

function write({ records }: IdentityFile, { to, changes }: Update): void {
  for (const { kind, id, value } of changes) {
    if (value === null) records.removeSync([kind, id]);
    else records.putSync([kind, id], value);
  }
  if (changes.length <= LOGGED_RECORDS_MAX) records.putSync([LOG, to], changes);
  records.discardSync([LOG, to - LOGGED_CHANGES_MAX]);
  records.putSync([STATE, 'changes'], to);
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
