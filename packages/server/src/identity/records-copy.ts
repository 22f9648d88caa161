/**
 * All records of an identity store in memory, with their indexes. Each process has a copy, which follows the records in LMDB
 * or PostgreSQL: every change has a number, and a copy with the last number is complete.
 */
import {
  type IdentityRecord,
  type NamedKind,
  type NamedRecords,
  type Records,
  UNCOUNTED_KINDS,
} from './identity-store.ts';
import type { AccessKey, Alert, Annotation, Incident, Project } from './records.ts';

type Tables = { readonly [K in keyof Records]: Map<string, Records[K]> };

/** An added or changed record, or a deleted one, whose value is null. */
export interface RecordChange {
  kind: keyof Records;
  id: string;
  value: Records[keyof Records] | null;
}

/** The changes between two numbers; `isWhole`: all records. */
export interface Update {
  from: number;
  to: number;
  changes: readonly RecordChange[];
  isWhole: boolean;
}

export class RecordsCopy {
  /** The number of the last change in the copy. */
  number = -1;
  /** Grows when records change, except those of UNCOUNTED_KINDS. */
  version = 0;
  readonly #tables: Tables = {
    domain: new Map(),
    project: new Map(),
    user: new Map(),
    key: new Map(),
    revoked: new Map(),
    login: new Map(),
    alert: new Map(),
    incident: new Map(),
    annotation: new Map(),
    lease: new Map(),
  };
  readonly #idsByName = new Map<string, string>();
  /** No revoked token expires earlier. */
  #earliestExpiry = Number.POSITIVE_INFINITY;
  /** The IDs of the keys and known logins of a user, the projects of a domain, the alerts and annotations of a project, and incidents. */
  readonly #idsByOwner = new Map<string, Set<string>>();

  get<K extends keyof Records>(kind: K, id: string): Records[K] | undefined {
    return this.#tables[kind].get(id);
  }

  byName<K extends NamedKind>(kind: K, domainId: string, name: string): NamedRecords[K] | undefined {
    const similar = this.similarlyNamed(kind, domainId, name);
    return similar?.name === name ? similar : undefined;
  }

  /** The record whose name is the same in another Unicode form. */
  similarlyNamed<K extends NamedKind>(kind: K, domainId: string, name: string): NamedRecords[K] | undefined {
    return this.#tables[kind].get(this.#idsByName.get(nameKey(kind, domainId, name)) ?? '');
  }

  list<K extends keyof Records>(kind: K): Records[K][] {
    return [...this.#tables[kind].values()];
  }

  projectsIn(domainId: string): Project[] {
    return this.#idsOf('project', domainId).flatMap((id) => this.get('project', id) ?? []);
  }

  keysOf(userId: string): AccessKey[] {
    return this.#idsOf('key', userId)
      .sort()
      .flatMap((access) => this.get('key', access) ?? []);
  }

  alertsOf(projectId: string): Alert[] {
    return this.#idsOf('alert', projectId).flatMap((id) => this.get('alert', id) ?? []);
  }

  incidentsOf(alertId: string): Incident[] {
    return this.#idsOf('incident', alertId).flatMap((id) => this.get('incident', id) ?? []);
  }

  annotationsOf(projectId: string): Annotation[] {
    return this.#idsOf('annotation', projectId).flatMap((id) => this.get('annotation', id) ?? []);
  }

  /** The user's known logins, the latest first. */
  loginsOf(userId: string): { id: string; time: number }[] {
    return this.#idsOf('login', userId)
      .map((id) => ({ id, time: this.get('login', id) ?? 0 }))
      .sort((a, b) => b.time - a.time);
  }

  /** The revoked tokens that expire before `time`, the oldest first, without the newest `kept` of all. */
  expiredTokens(time: number, kept: number, max: number): string[] {
    const { revoked } = this.#tables;
    const surplus = revoked.size - kept;
    // Of 100,000 entries, a search takes 40 ms: it must not be part of every revocation.
    if (surplus < Math.ceil(kept / 128) || time <= this.#earliestExpiry) return [];
    const expired = [...revoked].filter(([, expires]) => expires < time);
    if (expired.length === 0)
      this.#earliestExpiry = [...revoked.values()].reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    return expired
      .sort(([, a], [, b]) => a - b)
      .slice(0, Math.min(surplus, max))
      .map(([id]) => id);
  }

  *records(): Generator<IdentityRecord> {
    for (const [kind, table] of Object.entries(this.#tables))
      for (const [id, value] of table) yield { kind, id, value } as IdentityRecord;
  }

  /** Does nothing if the copy has changed since `from`. */
  apply({ from, to, changes, isWhole }: Update): void {
    if (this.number !== from) return;
    if (isWhole)
      for (const map of [...Object.values(this.#tables), this.#idsByName, this.#idsByOwner]) map.clear();
    for (const change of changes) this.#set(change);
    this.number = to;
    if (isWhole || changes.some(({ kind }) => !UNCOUNTED_KINDS.includes(kind))) this.version++;
  }

  /** Runs the action on the copy, then undoes it: others must not see uncommitted changes. */
  prepare<T>(action: (set: (change: RecordChange) => void) => T): { result: T; changes: RecordChange[] } {
    const changes = new Map<string, RecordChange>();
    const undo: RecordChange[] = [];
    const set = (change: RecordChange) => {
      const { kind, id } = change;
      undo.push({ kind, id, value: this.get(kind, id) ?? null });
      const stored = storedForm(change);
      this.#set(stored);
      changes.set(`${kind} ${id}`, stored);
    };
    try {
      const result = action(set);
      return { result, changes: [...changes.values()] };
    } finally {
      for (const change of undo.reverse()) this.#set(change);
    }
  }

  #set({ kind, id, value }: RecordChange): void {
    // TypeScript cannot tell that the value is of this kind.
    const table = this.#tables[kind] as Map<string, typeof value>;
    const before = table.get(id);
    if (before !== undefined) this.#index({ kind, id, value: before } as IdentityRecord, false);
    if (value === null) table.delete(id);
    else {
      table.set(id, value);
      this.#index({ kind, id, value } as IdentityRecord, true);
    }
  }

  #index(record: IdentityRecord, add: boolean): void {
    const { kind, id } = record;
    if (kind === 'key') this.#indexOwner(kind, record.value.user_id, id, add);
    else if (kind === 'login') this.#indexOwner(kind, id.slice(0, id.indexOf(' ')), id, add);
    else if (kind === 'alert' || kind === 'annotation')
      this.#indexOwner(kind, record.value.project_id, id, add);
    else if (kind === 'incident') this.#indexOwner(kind, record.value.alert_id, id, add);
    else if (kind === 'lease') return;
    else if (kind === 'revoked') this.#earliestExpiry = Math.min(this.#earliestExpiry, record.value);
    else {
      const domainId = 'domain_id' in record.value ? record.value.domain_id : '';
      if (kind === 'project') this.#indexOwner(kind, domainId, id, add);
      const name = nameKey(kind, domainId, record.value.name);
      if (add) this.#idsByName.set(name, id);
      // Another record may have taken over the name.
      else if (this.#idsByName.get(name) === id) this.#idsByName.delete(name);
    }
  }

  #indexOwner(kind: string, ownerId: string, id: string, add: boolean): void {
    const owner = `${kind} ${ownerId}`;
    const ids = this.#idsByOwner.get(owner) ?? new Set();
    if (add) this.#idsByOwner.set(owner, ids.add(id));
    else if (ids.delete(id) && ids.size === 0) this.#idsByOwner.delete(owner);
  }

  #idsOf(kind: string, ownerId: string): string[] {
    return [...(this.#idsByOwner.get(`${kind} ${ownerId}`) ?? [])];
  }
}

/** The form in which all other processes will read it. */
export function storedForm({ kind, id, value }: RecordChange): RecordChange {
  return { kind, id, value: value === null ? null : JSON.parse(JSON.stringify(value)) };
}

/** Two forms of one name look the same. */
function nameKey(kind: NamedKind, domainId: string, name: string): string {
  return JSON.stringify([kind, domainId, name.normalize()]);
}
