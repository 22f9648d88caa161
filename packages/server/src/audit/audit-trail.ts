/**
 * The audit trail: one record per administrative change. audit-file.ts keeps it in the data directory, audit-table.ts in
 * PostgreSQL. Decision 0020 explains the order of a change and its record.
 */
import { randomBytes } from 'node:crypto';
import { loginRefused } from '../diagnostics.ts';
import { printable } from '../printable.ts';
import { RateLimit } from '../rate-limit.ts';

/** In total, about 150,000 changes. Then the oldest quarter is deleted. */
export const AUDIT_BYTES_MAX = 64 * 1_048_576;
/** Longer records, of a user with roles in many projects, are written without `before` and `after`. */
const RECORD_BYTES_MAX = 16_384;
const TEXT_LENGTH_MAX = 256;
/**
 * Changes of one user over HTTP: this many at once, then one per second. Each syncs the disk, which blocks the process,
 * and many rotate older records out: at this rate that takes two days.
 */
const CHANGES_BURST = 100;
const CHANGES_REFILL_MS = 1_000;
/** Refused logins at once, separately for known and unknown users: enough to see what an attack looks like. */
const REFUSALS_BURST = 20;
/** Then 1,440 lines a day each, under 1 MB together, so that the trail still covers two months. */
const REFUSALS_REFILL_MS = 60_000;

export const AUDIT_ACTIONS = [
  'installation.create',
  'service.start',
  'domain.add',
  'domain.enable',
  'domain.disable',
  'domain.delete',
  'project.add',
  'project.enable',
  'project.disable',
  'project.delete',
  'user.add',
  'user.enable',
  'user.disable',
  'user.delete',
  'user.set_password',
  'role.grant',
  'role.revoke',
  'key.add',
  'key.update',
  'key.delete',
  'alert.add',
  'alert.delete',
  'annotation.add',
  'annotation.delete',
  'host.add',
  'host.rename',
  'host.delete',
  'events.delete',
  'horizon.set',
  'statistics.repair',
  'identity.repair',
  'login',
] as const;
export type AuditAction = (typeof AUDIT_ACTIONS)[number];

/** Who makes a change, and from where. */
export interface Actor {
  /** The user name, `local:<operating system user>` on the command line, or null for a login of an unknown user. */
  user: string | null;
  user_id?: string;
  via: 'api' | 'console' | 'command line';
  address?: string;
  request_id?: string;
}

export interface AuditObject {
  type:
    | 'installation'
    | 'service'
    | 'statistics'
    | 'domain'
    | 'project'
    | 'user'
    | 'key'
    | 'host'
    | 'alert'
    | 'annotation';
  id?: string;
  name?: string;
}

export interface AuditEntry extends Actor {
  /** A change whose commit failed has two lines with the same ID, and so has `events.delete`: the number is known later. */
  id: string;
  action: AuditAction;
  object: AuditObject;
  /** The domain whose administrators may read the entry. Absent if it concerns the whole installation. */
  domain_id?: string;
  /** The fields that changed; never a secret. */
  before?: Readonly<Record<string, unknown>>;
  after?: Readonly<Record<string, unknown>>;
  outcome: 'done' | 'refused' | 'failed';
  reason?: string;
  /** The number of similar entries omitted since the last one by the rate limit. */
  suppressed?: number;
}

export type AuditRecord = { time: string } & AuditEntry;

export interface AuditTrail {
  /** Call before a change: throws ChangesThrottled if the user makes too many. */
  admit(actor: Actor): void;
  /** Rejects with AuditUnavailable if the record cannot be written; the change must then not be made. */
  append(entry: AuditEntry): Promise<void>;
  /** Records a refused or failed change. Never rejects: a record that cannot be written is dropped. Need not be awaited. */
  note(entry: AuditEntry): Promise<void>;
  /** Sends a copy of every record. */
  mirror(to: (record: AuditRecord) => void): void;
  /** Newest first, those before the one with the marker. Throws UnknownMarker. */
  newest(marker?: string): AsyncIterable<MarkedRecord>;
}

export interface MarkedRecord {
  /** Its place in the trail. */
  marker: string;
  /** 'damaged': a line that is not a record, for example one that a full disk cut off. */
  record: AuditRecord | 'damaged';
}

/** Oldest first. */
export async function allRecords(trail: Pick<AuditTrail, 'newest'>): Promise<MarkedRecord['record'][]> {
  const records: MarkedRecord['record'][] = [];
  for await (const { record } of trail.newest()) records.push(record);
  return records.reverse();
}

export interface AuditFilter {
  /** Milliseconds since the epoch. */
  from?: number | undefined;
  /** Exclusive. */
  to?: number | undefined;
  /** The ID or the name of the acting user. */
  user?: string | undefined;
  /** An action, or a kind of actions: `user` for all on users. */
  action?: string | undefined;
}

export function matches({ time, user, user_id, action }: AuditRecord, filter: AuditFilter): boolean {
  const { from = 0, to = Number.POSITIVE_INFINITY } = filter;
  const at = Date.parse(time);
  return (
    at >= from &&
    at < to &&
    (filter.user === undefined || [user, user_id].includes(filter.user)) &&
    (filter.action === undefined || action === filter.action || action.startsWith(`${filter.action}.`))
  );
}

/** The record has been deleted, or there never was one. */
export class UnknownMarker extends Error {}

export class ChangesThrottled extends Error {
  readonly retryAfterS = 1;
}

export class AuditUnavailable extends Error {}

/** What audit trails share. `write` makes an entry durable; `copy` sends its record to the mirror. */
export function createTrail(
  now: () => number,
  write: (entry: AuditEntry) => Promise<void>,
  newest: AuditTrail['newest'],
): AuditTrail & { copy(record: AuditRecord): void } {
  const changes = new RateLimit(CHANGES_BURST, CHANGES_REFILL_MS, now);
  let copy: (record: AuditRecord) => void = () => {};
  return {
    admit({ via, user_id }) {
      if (via === 'command line' || user_id === undefined) return;
      if (!changes.take(user_id)) throw new ChangesThrottled('too many changes by this user: retry in 1 s');
    },
    append: write,
    note: (entry) =>
      write(entry).catch((error) => {
        if (!(error instanceof AuditUnavailable)) throw error;
      }),
    mirror(to) {
      copy = to;
    },
    copy: (record) => copy(record),
    newest,
  };
}

export interface RefusedLogin {
  /** Null if the user does not exist: the name is not recorded, because people type passwords into the wrong field. */
  user: { id: string; name: string; domain_id: string } | null;
  from: LoginSource;
  reason: string;
}

export interface LoginSource {
  address: string;
  via: 'api' | 'console';
  request_id?: string;
  /** The device cookie, if the browser sent one. */
  device?: string;
}

/** Rate-limited: anyone can cause refused logins, and must not rotate the records of changes out. */
export function recordLoginRefusals(trail: AuditTrail, now: () => number): (refused: RefusedLogin) => void {
  const limit = new RateLimit(REFUSALS_BURST, REFUSALS_REFILL_MS, now);
  const suppressedCounts = { known: 0, unknown: 0 };
  return ({ user, from: { via, address, request_id }, reason }) => {
    loginRefused.publish(reason);
    // Separate limits, so that guesses at invented names do not hide those at real users.
    const kind = user ? 'known' : 'unknown';
    if (!limit.take(kind)) {
      suppressedCounts[kind]++;
      return;
    }
    const suppressed = suppressedCounts[kind];
    suppressedCounts[kind] = 0;
    const actor: Actor = {
      user: user?.name ?? null,
      ...(user ? { user_id: user.id } : {}),
      via,
      address,
      ...(request_id === undefined ? {} : { request_id }),
    };
    void trail.note({
      ...newAuditEntry(actor, 'login', { type: 'user', ...(user ? { id: user.id, name: user.name } : {}) }),
      ...(user ? { domain_id: user.domain_id } : {}),
      outcome: 'refused',
      reason,
      ...(suppressed > 0 ? { suppressed } : {}),
    });
  };
}

/** The entry of a change that is about to be made. */
export function newAuditEntry(
  actor: Actor,
  action: AuditAction,
  object: AuditObject,
  values: Pick<AuditEntry, 'before' | 'after' | 'domain_id'> = {},
): AuditEntry {
  return { id: randomId(), ...actor, action, object, ...values, outcome: 'done' };
}

export function randomId(): string {
  return randomBytes(8).toString('hex');
}

/** Formats a record as one line of JSON of limited length. */
export function formatRecord(record: AuditRecord): string {
  const text = (value: AuditRecord) => printable(JSON.stringify(value, shorten));
  const whole = text(record);
  if (Buffer.byteLength(whole) <= RECORD_BYTES_MAX) return whole;
  const { before: _, after: __, ...rest } = record;
  return text({ ...rest, reason: rest.reason ?? 'before and after are too long to be recorded' });
}

function shorten(_key: string, value: unknown): unknown {
  return typeof value === 'string' && value.length > TEXT_LENGTH_MAX
    ? `${value.slice(0, TEXT_LENGTH_MAX)}...`
    : value;
}
