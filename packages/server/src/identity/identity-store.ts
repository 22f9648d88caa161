/** The contract of identity stores. */
import type { AuditEntry } from '../audit/audit-trail.ts';
import type { AccessKey, Alert, Annotation, Domain, Incident, Lease, Project, User } from './records.ts';

/** Named records, by kind. Names of domains are unique; names of projects and users are unique in their domain. */
export interface NamedRecords {
  domain: Domain;
  project: Project;
  user: User;
}
export type NamedKind = keyof NamedRecords;

export interface Records extends NamedRecords {
  /** The ID of the record is the access key ID. */
  key: AccessKey;
  /** The time when a revoked token expires. Records of expired tokens may be deleted. */
  revoked: number;
  /** The time of the last login, by the ID of the user and the hash of the network, with a space between them. */
  login: number;
  alert: Alert;
  incident: Incident;
  annotation: Annotation;
  /** The ID is the name of the work that one process does for all. */
  lease: Lease;
}

/** These change often, and no permission depends on them: they do not count in `changes`. */
export const UNCOUNTED_KINDS: readonly (keyof Records)[] = ['login', 'incident', 'annotation', 'lease'];

export type IdentityRecord = {
  [K in keyof Records]: { kind: K; id: string; value: Records[K] };
}[keyof Records];

/**
 * Several processes may use a store at the same time. Reads are synchronous. Each sees a committed state, which is at most
 * about a millisecond old in LMDB. In PostgreSQL it is at most STALENESS_MS_MAX old, provided that `confirm` was awaited when
 * the request arrived: whatever another process has revoked is then refused. Two reads may see different states.
 */
export interface IdentityStore {
  get<K extends keyof Records>(kind: K, id: string): Records[K] | undefined;
  /** The domain of a domain is `''`. */
  byName<K extends NamedKind>(kind: K, domainId: string, name: string): NamedRecords[K] | undefined;
  /** The name in the domain that equals this one, perhaps in another Unicode form. */
  similarName(kind: NamedKind, domainId: string, name: string): string | undefined;
  list<K extends NamedKind>(kind: K): NamedRecords[K][];
  projectsIn(domainId: string): Project[];
  keysOf(userId: string): AccessKey[];
  alerts(): Alert[];
  alertsOf(projectId: string): Alert[];
  /** In no particular order. */
  incidentsOf(alertId: string): Incident[];
  /** In no particular order. */
  annotationsOf(projectId: string): Annotation[];
  /** All records, to copy the store. */
  records(): Iterable<IdentityRecord>;

  /**
   * Waits until the records are as new as the contract promises; undefined if they already are. Rejects with
   * IdentityUnavailable if the database does not respond: the request must then be refused.
   */
  confirm(): Promise<void> | undefined;
  /**
   * Waits until the records are as new as this turn of the event loop. Resolves to whether they have changed. Rejects with
   * IdentityUnavailable.
   */
  refresh(): Promise<boolean>;
  /** A number that every change of a kind that counts, by any process, makes different from all earlier ones. */
  changes(): number;

  /**
   * Runs the changes in one transaction: when it resolves, all of them are durable. Changes of all processes run one after
   * the other, each on the state that the one before left, so that checks in `action` hold; it sees its own writes. If it
   * throws, nothing is changed. Rejects with IdentityUnavailable if nothing can be changed now, for example with
   * IdentityNotWritable when the disk is full.
   */
  change<T>(action: (write: IdentityWriter) => T): Promise<T>;
  /** Also deletes the user's entries from before `before`, and the oldest beyond `max`. Does not count as a change. */
  putKnownLogin(
    userId: string,
    hash: string,
    time: number,
    limits: { max: number; before: number },
  ): Promise<void>;
  /** Whether the records are encrypted with this master key. */
  matchesMasterKey(fingerprint: string): Promise<boolean>;
  /** Rejects with IdentityUnavailable while changes fail. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

/** Writes in a transaction. */
export interface IdentityWriter {
  put<K extends NamedKind>(kind: K, record: NamedRecords[K]): void;
  /** Also deletes the known logins of a user. */
  remove<K extends NamedKind>(kind: K, record: NamedRecords[K]): void;
  putKey(key: AccessKey): void;
  removeKey(key: AccessKey): void;
  putAlert(alert: Alert): void;
  /** Also deletes its incidents. */
  removeAlert(alert: Alert): void;
  putIncident(incident: Incident): void;
  removeIncident(incident: Incident): void;
  putAnnotation(annotation: Annotation): void;
  removeAnnotation(annotation: Annotation): void;
  putLease(name: string, lease: Lease): void;
  /**
   * Stores the token as revoked, and deletes old entries of expired tokens. `now` alone does not prove that a token has
   * expired: a clock that is ahead for a while must not make revoked tokens valid again.
   */
  revoke(token: { id: string; expires_at: number }, now: number): void;
  /** The entry is written with the change, or before it: no change lacks its entry. If that fails, so does the change. */
  audit(entry: AuditEntry): void;
}

/** Revoked credentials stop working within this time, in all processes. */
export const STALENESS_MS_MAX = 1_000;
