/** The audit trail in a table of PostgreSQL. A change and its record are in the same transaction. */
import { type Database, type Run, StatementFailed } from '../postgres/database.ts';
import { StoreUnavailable } from '../store/store.ts';
import {
  AUDIT_BYTES_MAX,
  type AuditEntry,
  type AuditRecord,
  type AuditTrail,
  AuditUnavailable,
  createTrail,
  formatRecord,
  UnknownMarker,
} from './audit-trail.ts';

/** The share that remains when the oldest records are deleted, unless they are too many for one deletion. */
const KEPT_SHARE = 3 / 4;
/** Limits a deletion: all changes wait for it, and fail if it takes too long. */
const DELETED_ROWS_MAX = 10_000;
const PAGE_ROWS = 1_000;

export interface AuditTable extends AuditTrail {
  /** Writes in a transaction. Call `committed` with the records after the commit. */
  insert(run: Run, entries: readonly AuditEntry[]): Promise<AuditRecord[]>;
  committed(records: readonly AuditRecord[]): void;
}

/** `enqueue` runs writes one after the other, so that they use one connection. */
export function openAuditTable(
  database: Database,
  enqueue: <T>(work: () => Promise<T>) => Promise<T>,
  now: () => number,
  bytesMax = AUDIT_BYTES_MAX,
): AuditTable {
  async function insert(run: Run, entries: readonly AuditEntry[]): Promise<AuditRecord[]> {
    if (entries.length === 0) return [];
    const time = new Date(now()).toISOString();
    const records = entries.map((entry) => ({ time, ...entry }));
    const lines = records.map(formatRecord);
    await run(
      'INSERT INTO audit_trail (bytes, record) SELECT octet_length(line), line::json FROM unnest($1::text[]) AS line',
      [lines],
    );
    const bytes = lines.reduce((sum, line) => sum + Buffer.byteLength(line), 0);
    const [state] = await run<{ bytes: number }>(
      'UPDATE identity_state SET audit_bytes = audit_bytes + $1 RETURNING audit_bytes AS bytes',
      [bytes],
    );
    if (state !== undefined && state.bytes > bytesMax) {
      await run(DELETE_OLDEST, [state.bytes - KEPT_SHARE * bytesMax]);
    }
    return records;
  }

  function committed(records: readonly AuditRecord[]): void {
    for (const record of records) trail.copy(record);
  }

  async function append(entry: AuditEntry): Promise<void> {
    try {
      committed(await enqueue(() => database.transaction((run) => insert(run, [entry]))));
    } catch (error) {
      if (!(error instanceof StoreUnavailable || error instanceof StatementFailed)) throw error;
      throw new AuditUnavailable(
        `nothing was changed, because the audit trail cannot be written: ${(error as Error).message}`,
        { cause: error },
      );
    }
  }

  /** A marker is the number of the row. */
  async function* newest(marker = String(Number.MAX_SAFE_INTEGER)) {
    if (!/^\d{1,16}$/.test(marker)) throw new UnknownMarker();
    for (let before = Number(marker); ; ) {
      const rows = await database.run<{ number: number; record: AuditRecord }>(
        'SELECT number, record FROM audit_trail WHERE number < $1 ORDER BY number DESC LIMIT $2',
        [before, PAGE_ROWS],
      );
      for (const { number, record } of rows) yield { marker: String(number), record };
      const last = rows.at(-1);
      if (last === undefined) return;
      before = last.number;
    }
  }

  const trail = createTrail(now, append, newest);
  return { ...trail, insert, committed };
}

/** The oldest records, of this many bytes or slightly more. */
const DELETE_OLDEST = `
  WITH oldest AS (SELECT number, bytes FROM audit_trail ORDER BY number LIMIT ${DELETED_ROWS_MAX}),
  ordered AS (SELECT number, bytes, sum(bytes) OVER (ORDER BY number) - bytes AS before FROM oldest),
  deleted AS (
    DELETE FROM audit_trail WHERE number IN (SELECT number FROM ordered WHERE before < $1) RETURNING bytes
  )
  UPDATE identity_state SET audit_bytes = audit_bytes - (SELECT coalesce(sum(bytes), 0) FROM deleted)`;
