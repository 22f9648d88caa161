/** What identity stores in LMDB and PostgreSQL share: reads, checks and cascades are on the copy of all records. */
import type { AuditEntry } from '../audit/audit-trail.ts';
import type { IdentityStore, IdentityWriter } from './identity-store.ts';
import type { RecordChange, RecordsCopy } from './records-copy.ts';

/** Limits the time of a revocation. */
const REVOCATIONS_DELETED_MAX = 1_000;

/** What differs between LMDB and PostgreSQL: how records are stored, and how the copy follows the changes of others. */
interface IdentityBackend
  extends Pick<IdentityStore, 'confirm' | 'matchesMasterKey' | 'checkWrites' | 'close'> {
  /** Called before each read. Brings the copy up to date, if that needs no waiting. */
  sync(): void;
  /** Brings the copy up to date. Rejects with IdentityUnavailable. */
  refresh(): Promise<void>;
  /**
   * Calls `prepare` with the write lock, on a copy that is complete, and with the time of the back end. Then makes the changes and
   * the audit entries durable, and applies the changes to the copy.
   */
  commit<T>(prepare: (time: number) => PreparedChange<T>): Promise<T>;
}

export interface PreparedChange<T> {
  result: T;
  changes: RecordChange[];
  entries: AuditEntry[];
}

export function createIdentityStore(
  copy: RecordsCopy,
  backend: IdentityBackend,
  /** How many revocations are kept even if their tokens have expired: only clocks say so, which may be wrong. */
  revocationsKept: number,
): IdentityStore {
  const current = () => {
    backend.sync();
    return copy;
  };
  return {
    get: (kind, id) => current().get(kind, id),
    byName: (kind, domainId, name) => current().byName(kind, domainId, name),
    similarName: (kind, domainId, name) => current().similarlyNamed(kind, domainId, name)?.name,
    list: (kind) => current().list(kind),
    projectsIn: (domainId) => current().projectsIn(domainId),
    keysOf: (userId) => current().keysOf(userId),
    alerts: () => current().list('alert'),
    alertsOf: (projectId) => current().alertsOf(projectId),
    incidentsOf: (alertId) => current().incidentsOf(alertId),
    annotationsOf: (projectId) => current().annotationsOf(projectId),
    records: () => current().records(),
    changes: () => current().version,
    confirm: backend.confirm,
    async refresh() {
      const before = copy.version;
      await backend.refresh();
      return copy.version !== before;
    },
    change: (action) =>
      backend.commit((time) => {
        const entries: AuditEntry[] = [];
        const prepared = copy.prepare((set) =>
          action(createWriter(copy, { set, entries, time, revocationsKept })),
        );
        return { ...prepared, entries };
      }),
    putKnownLogin: (userId, hash, time, { max, before }) =>
      backend.commit(() => {
        const prepared = copy.prepare((set) => {
          for (const [i, login] of copy.loginsOf(userId).entries())
            if (i >= max - 1 || login.time < before) set({ kind: 'login', id: login.id, value: null });
          // The user may have been deleted in the meantime.
          if (copy.get('user', userId)) set({ kind: 'login', id: `${userId} ${hash}`, value: time });
        });
        return { ...prepared, entries: [] };
      }),
    matchesMasterKey: backend.matchesMasterKey,
    checkWrites: backend.checkWrites,
    close: backend.close,
  };
}

function createWriter(
  copy: RecordsCopy,
  {
    set,
    entries,
    time,
    revocationsKept,
  }: { set(change: RecordChange): void; entries: AuditEntry[]; time: number; revocationsKept: number },
): IdentityWriter {
  return {
    put: (kind, record) => set({ kind, id: record.id, value: record }),
    remove(kind, record) {
      set({ kind, id: record.id, value: null });
      for (const { id } of copy.loginsOf(record.id)) set({ kind: 'login', id, value: null });
    },
    putKey: (key) => set({ kind: 'key', id: key.access, value: key }),
    removeKey: ({ access }) => set({ kind: 'key', id: access, value: null }),
    putAlert: (alert) => set({ kind: 'alert', id: alert.id, value: alert }),
    removeAlert({ id }) {
      set({ kind: 'alert', id, value: null });
      for (const incident of copy.incidentsOf(id)) set({ kind: 'incident', id: incident.id, value: null });
    },
    putIncident: (incident) => set({ kind: 'incident', id: incident.id, value: incident }),
    removeIncident: ({ id }) => set({ kind: 'incident', id, value: null }),
    putAnnotation: (annotation) => set({ kind: 'annotation', id: annotation.id, value: annotation }),
    removeAnnotation: ({ id }) => set({ kind: 'annotation', id, value: null }),
    putLease: (name, lease) => set({ kind: 'lease', id: name, value: lease }),
    revoke(token, now) {
      set({ kind: 'revoked', id: token.id, value: token.expires_at });
      // A token has expired only if both clocks agree.
      const expired = copy.expiredTokens(Math.min(now, time), revocationsKept, REVOCATIONS_DELETED_MAX);
      for (const id of expired) set({ kind: 'revoked', id, value: null });
    },
    audit: (entry) => entries.push(entry),
  };
}

/** How long a change waits for earlier ones. */
const QUEUE_MS_MAX = 5_000;

/** Runs one write at a time: each is prepared on a copy that has those before it. */
export class WriteQueue {
  readonly #tooLate: (message: string) => Error;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(tooLate: (message: string) => Error) {
    this.#tooLate = tooLate;
  }

  run<T>(work: () => Promise<T>): Promise<T> {
    const queuedAt = performance.now();
    const result = this.#tail.then(() => {
      if (performance.now() - queuedAt <= QUEUE_MS_MAX) return work();
      throw this.#tooLate('the changes before this one take too long');
    });
    this.#tail = result.catch(() => {});
    return result;
  }

  /** Waits for all writes. */
  async idle(): Promise<void> {
    await this.#tail;
  }
}
