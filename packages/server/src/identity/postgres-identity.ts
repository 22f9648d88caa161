/**
 * The identity store in PostgreSQL. Every change locks the row that has the number of the last one, so changes of all
 * processes run one after the other. Decision 0025 explains why a copy is at most a second old.
 */
import { randomInt } from 'node:crypto';
import { type AuditTable, openAuditTable } from '../audit/audit-table.ts';
import type { AuditEntry } from '../audit/audit-trail.ts';
import { Database, type DatabaseOptions, type Row, type Run } from '../postgres/database.ts';
import { afterRunning } from '../running-time.ts';
import { StoreMisconfigured, StoreNotWritable, StoreUnavailable } from '../store/store.ts';
import { createIdentityStore, type PreparedChange, WriteQueue } from './copied-store.ts';
import { AlreadyInitialised, IdentityNotWritable, IdentityUnavailable } from './errors.ts';
import { type IdentityRecord, type IdentityStore, STALENESS_MS_MAX } from './identity-store.ts';
import { type RecordChange, RecordsCopy, storedForm, type Update } from './records-copy.ts';

/** The pause between two polls, which leaves half a second for a slow one. */
const POLL_MS = 400;
/** How long a request waits for a poll. */
const WAIT_MS_MAX = 1_000;
/** The timeout of a poll. If the server has lost power, another connection then finds the new primary. */
const POLL_MS_MAX = 2_000;
/** After a failure, nothing is sent to the database for this long, however many requests arrive. */
const RETRY_MS = 100;
const TIMEOUT_MS_MAX = 5_000;
/** Any number of records can be copied, because each statement stays within its timeout. */
const RECORDS_PER_STATEMENT = 2_000;
/** One for polls, one for changes. Separate from those of the store, so that queries cannot delay polls. */
const CONNECTIONS = 2;
/**
 * Numbers grow by random steps. If the last changes are lost, in a failover to a standby that did not have them or by
 * restoring a backup, the numbers after that differ from those that were lost, and copies notice.
 */
const STEP_MAX = 16_777_216;
/** How long changes are kept. Copies that are older are loaded again as a whole. */
const HISTORY_MS = 86_400_000;
/** Kept even if they have expired: the database may have the same wrong clock. They take 1 MB of memory. */
const REVOCATIONS_KEPT = 10_000;

export interface PostgresIdentity extends IdentityStore {
  audit: AuditTable;
  /** Null if there is no installation yet. */
  masterKey(): Promise<StoredMasterKey | null>;
  /**
   * The store before its first change, which also stores the master key, or only its fingerprint. This change rejects with
   * AlreadyInitialised if another process was faster.
   */
  forBootstrap(key: StoredMasterKey): IdentityStore;
  /** The first change: all records of another store. Rejects with AlreadyInitialised. */
  copyFrom(records: Iterable<IdentityRecord>, key: StoredMasterKey, entry: AuditEntry): Promise<void>;
}

interface StoredMasterKey {
  fingerprint: string;
  /** Null if the installation does not keep it. */
  key: string | null;
}

interface PostgresIdentityOptions extends DatabaseOptions {
  /** Rejects if the tables are missing; may create them. */
  checkTables(database: Database): Promise<void>;
  /** For tests. */
  revocationsKept?: number;
}

export async function openPostgresIdentity(
  options: PostgresIdentityOptions,
  now: () => number,
): Promise<PostgresIdentity> {
  const { revocationsKept = REVOCATIONS_KEPT } = options;
  const database = new Database({
    ...options,
    timeoutMs: Math.min(options.timeoutMs, TIMEOUT_MS_MAX),
    connectionsMax: CONNECTIONS,
  });
  const copy = new RecordsCopy();
  /** The copy had all changes that were committed before this time. */
  let confirmedAt = Number.NEGATIVE_INFINITY;
  /** The fingerprint of the master key that this process uses; null if there is none yet. */
  let ownFingerprint: string | null = null;
  let failure: { error: Error; at: number } | null = null;
  let closed = false;

  /** With another master key, all keys and tokens would be useless to other processes, and theirs to this one. */
  function checkFingerprint(found: string | null | undefined): void {
    if (ownFingerprint === null || found === undefined || found === ownFingerprint) return;
    throw new StoreUnavailable('the database now contains a different installation: restart this process');
  }

  /** What is missing in the copy. Needs a transaction that sees one state of the database. */
  async function load(run: Run): Promise<Update> {
    const from = copy.number;
    const [state] = await run<{ changes: number; known: boolean }>(
      `SELECT changes, EXISTS (SELECT FROM identity_changes WHERE change = $1) AS known FROM identity_state`,
      [from],
    );
    if (state === undefined) throw new StoreMisconfigured('the table identity_state is empty');
    if (state.changes === from) return { from, to: from, changes: [], isWhole: false };
    const isWhole = !state.known;
    const changes = await (isWhole
      ? readAll(run)
      : run<RecordChange & Row>(
          'SELECT kind, id, value FROM identity_records WHERE change > $1 ORDER BY change',
          [from],
        ));
    return { from, to: state.changes, changes, isWhole };
  }

  async function poll(): Promise<void> {
    for (;;) {
      const sentAt = performance.now();
      const [state] = await database.run<{ changes: number; fingerprint: string | null }>(
        'SELECT changes, master_key_mark AS fingerprint FROM identity_state',
        [],
        POLL_MS_MAX,
      );
      checkFingerprint(state?.fingerprint);
      if (state?.changes === copy.number) {
        confirmedAt = Math.max(confirmedAt, sentAt);
        return;
      }
      // Applied after the transaction: a hundred thousand records take half a second.
      copy.apply(await database.transaction(load, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'));
    }
  }

  let running: Promise<void> | null = null;
  let queued: Promise<void> | null = null;

  function startPoll(): Promise<void> {
    running = poll()
      .then(
        () => {
          failure = null;
        },
        (error) => {
          failure = { error: unavailable(error), at: performance.now() };
          throw failure.error;
        },
      )
      .finally(() => {
        running = null;
      });
    return running;
  }

  /** Waits for a poll that is sent after this call. All calls during a poll share the next one. */
  function nextPoll(): Promise<void> {
    if (failure !== null && performance.now() - failure.at < RETRY_MS) return Promise.reject(failure.error);
    if (running === null) return startPoll();
    queued ??= running
      .catch(() => {})
      .then(() => {
        queued = null;
        return startPoll();
      });
    return queued;
  }

  let timer: NodeJS.Timeout | undefined;

  /** Polls until the store is closed. Failures are reported by the requests that depend on a poll. */
  function keepPolling(): void {
    timer = setTimeout(async () => {
      await nextPoll().catch(() => {});
      if (!closed) keepPolling();
    }, POLL_MS).unref();
  }

  const queue = new WriteQueue((message) => new StoreUnavailable(message));
  const audit = openAuditTable(database, (work) => queue.run(work), now);

  async function commit<T>(
    prepare: (databaseTime: number) => PreparedChange<T>,
    created?: StoredMasterKey,
  ): Promise<T> {
    try {
      return await queue.run(async () => {
        const next = await database.transaction(async (run) => {
          const [state] = await run<{ changes: number; fingerprint: string | null; time: number }>(
            `SELECT changes, master_key_mark AS fingerprint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS time
             FROM identity_state FOR UPDATE`,
          );
          if (created && state?.fingerprint)
            throw new AlreadyInitialised('the database already has a wafstat installation');
          checkFingerprint(state?.fingerprint);
          // Repeats if a poll meanwhile updates the copy to a state from before the lock.
          while (copy.number !== state?.changes) copy.apply(await load(run));
          const base = copy.number;
          const { result, changes, entries } = prepare(state.time);
          const to = changes.length > 0 ? base + 1 + randomInt(STEP_MAX) : base;
          if (changes.length > 0) await writeChanges(run, to, changes, now());
          if (created) await writeMasterKey(run, created);
          const records = await audit.insert(run, entries);
          await run('COMMIT');
          return { result, base, to, changes, records };
        });
        copy.apply({ from: next.base, to: next.to, changes: next.changes, isWhole: false });
        audit.committed(next.records);
        return next.result;
      });
    } catch (error) {
      throw changeError(error);
    }
  }

  /** `created` is stored with the first change. */
  const backed = (created?: StoredMasterKey): IdentityStore =>
    createIdentityStore(
      copy,
      {
        // A read cannot wait for the database: `confirm` and `refresh` do.
        sync() {},
        confirm() {
          const arrivedAt = performance.now();
          if (arrivedAt - confirmedAt <= STALENESS_MS_MAX) return undefined;
          return withinTime(async () => {
            while (arrivedAt - confirmedAt > STALENESS_MS_MAX) await (running ?? nextPoll());
          });
        },
        refresh: () => withinTime(nextPoll),
        commit: (prepare) => commit(prepare, created),
        async matchesMasterKey(fingerprint) {
          if (created) return true;
          const matches = (await storedMasterKey(database))?.fingerprint === fingerprint;
          if (matches) ownFingerprint = fingerprint;
          return matches;
        },
        async checkWrites() {
          await withinTime(nextPoll);
          await database.checkWritable().catch((error) => {
            if (!(error instanceof StoreNotWritable)) throw unavailable(error);
            throw new IdentityNotWritable(error.message, error.trouble, { cause: error });
          });
        },
        async close() {
          if (closed) return;
          closed = true;
          clearTimeout(timer);
          await queue.idle();
          await Promise.allSettled([running, queued]);
          await database.close();
        },
      },
      revocationsKept,
    );

  try {
    await options.checkTables(database);
    await startPoll();
  } catch (error) {
    await database.close();
    throw error instanceof IdentityUnavailable && error.cause ? error.cause : error;
  }
  keepPolling();
  return {
    ...backed(),
    audit,
    masterKey: () => storedMasterKey(database),
    forBootstrap: backed,
    copyFrom(records, key, entry) {
      // Before the transaction, which must not be idle for long: a hundred thousand users take seconds.
      const changes = Array.from(records, storedForm);
      return commit(() => ({ result: undefined, changes, entries: [entry] }), key);
    },
  };
}

/** All records, in the order of their changes. */
async function readAll(run: Run): Promise<RecordChange[]> {
  await run(`DECLARE all_records NO SCROLL CURSOR FOR
    SELECT kind, id, value FROM identity_records WHERE value IS NOT NULL ORDER BY change`);
  const records: RecordChange[] = [];
  for (;;) {
    const rows = await run<RecordChange & Row>(`FETCH ${RECORDS_PER_STATEMENT} FROM all_records`);
    records.push(...rows);
    if (rows.length < RECORDS_PER_STATEMENT) break;
  }
  await run('CLOSE all_records');
  return records;
}

/** Null if there is no installation yet. */
export async function storedMasterKey(database: Database): Promise<StoredMasterKey | null> {
  const [state] = await database.run<{ fingerprint: string | null; key: string | null }>(
    'SELECT master_key_mark AS fingerprint, master_key AS key FROM identity_state',
  );
  return state?.fingerprint ? { fingerprint: state.fingerprint, key: state.key } : null;
}

async function writeChanges(
  run: Run,
  number: number,
  changes: readonly RecordChange[],
  now: number,
): Promise<void> {
  // One after the other: the time of a statement begins when it is queued.
  for (const part of parts(changes, RECORDS_PER_STATEMENT)) {
    await run(
      `INSERT INTO identity_records (kind, id, change, value)
       SELECT kind, id, $1, value::json FROM unnest($2::text[], $3::text[], $4::text[]) AS changed(kind, id, value)
       ON CONFLICT (kind, id) DO UPDATE SET change = excluded.change, value = excluded.value`,
      [
        number,
        part.map(({ kind }) => kind),
        part.map(({ id }) => id),
        part.map(({ value }) => (value === null ? null : JSON.stringify(value))),
      ],
    );
  }
  await Promise.all([
    run('UPDATE identity_state SET changes = $1', [number]),
    run('INSERT INTO identity_changes (change, time) VALUES ($1, $2)', [number, now]),
    run(
      // Deletes by number, so that even after a wrong clock no change is kept that is older than a deleted one. `+ 0`
      // keeps PostgreSQL from searching the highest number first, among all changes of the day.
      `WITH forgotten AS (
         DELETE FROM identity_changes WHERE change <= (SELECT max(change + 0) FROM identity_changes WHERE time < $1)
         RETURNING change
       )
       DELETE FROM identity_records WHERE value IS NULL AND change <= (SELECT max(change) FROM forgotten)`,
      [now - HISTORY_MS],
    ),
  ]);
}

function parts<T>(items: readonly T[], size: number): T[][] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, i) => items.slice(i * size, (i + 1) * size));
}

async function writeMasterKey(run: Run, { fingerprint, key }: StoredMasterKey): Promise<void> {
  await run('UPDATE identity_state SET master_key_mark = $1, master_key = $2', [fingerprint, key]);
}

/** Rejects with IdentityUnavailable if the database takes too long. The work continues. */
async function withinTime(work: () => Promise<void>): Promise<void> {
  let timer: { stop(): void } | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = afterRunning(WAIT_MS_MAX, () => {
      reject(new IdentityUnavailable('PostgreSQL does not respond in time, so rights may have changed'));
    });
  });
  const done = work();
  // If it fails later, nobody waits for it.
  done.catch(() => {});
  try {
    await Promise.race([done, late]);
  } finally {
    timer?.stop();
  }
}

function unavailable(error: unknown): Error {
  return error instanceof StoreUnavailable
    ? new IdentityUnavailable(error.message, { cause: error })
    : (error as Error);
}

function changeError(error: unknown): unknown {
  if (!(error instanceof StoreUnavailable) || error instanceof StoreMisconfigured) return error;
  const { message, outcomeUnknown } = error;
  if (error instanceof StoreNotWritable)
    return new IdentityNotWritable(message, error.trouble, { cause: error, outcomeUnknown });
  const outcome = outcomeUnknown ? 'whether the change was made is unknown' : 'nothing was changed';
  const options = { cause: error, outcomeUnknown };
  return new IdentityNotWritable(`${message}; ${outcome}`, 'the database does not respond', options);
}
