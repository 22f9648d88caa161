/**
 * The audit trail: one JSON line per administrative change, appended to audit.log in the data directory. Several processes
 * can append at once, because each line is one write in append mode. Decision 0020 explains the order of a change and
 * its line.
 */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  createReadStream,
  existsSync,
  fchownSync,
  fdatasyncSync,
  fstatSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { printable } from '../printable.ts';
import { RateLimit } from '../rate-limit.ts';

const FILE = 'audit.log';
/** 64 MiB in total, about 150,000 changes. */
export const AUDIT_FILE_BYTES_MAX = 16 * 1_048_576;
/** The current file and three older ones. */
const FILES_MAX = 4;
/** Longer lines, of a user with roles in many projects, are written without `before` and `after`. */
const LINE_BYTES_MAX = 16_384;
const TEXT_LENGTH_MAX = 256;
/**
 * Changes of one user over HTTP: this many at once, then one per second. Each syncs the disk, which blocks the process,
 * and many rotate older records out: at this rate that takes two days.
 */
const CHANGES_BURST = 100;
const CHANGES_REFILL_MS = 1_000;
/** Refused logins of known and of unknown users each, at once: enough to see what an attack looks like. */
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
  'host.add',
  'host.rename',
  'horizon.set',
  'statistics.repair',
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
  type: 'installation' | 'service' | 'statistics' | 'domain' | 'project' | 'user' | 'key' | 'host';
  id?: string;
  name?: string;
}

export interface AuditEntry extends Actor {
  /** A change whose commit failed has two lines with the same ID. */
  id: string;
  action: AuditAction;
  object: AuditObject;
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
  /** Throws AuditUnavailable if the line cannot be written; the change must then not be made. */
  append(entry: AuditEntry): void;
  /** For refused or failed changes: a line that cannot be written is dropped. */
  note(entry: AuditEntry): void;
  /** Sends a copy of every record. */
  mirror(to: (record: AuditRecord) => void): void;
}

export class ChangesThrottled extends Error {
  readonly retryAfterS = 1;
}

export class AuditUnavailable extends Error {}

/** Without a directory, records go to the mirror only. */
export function createAuditTrail(directory: string | null, now: () => number): AuditTrail {
  const changes = new RateLimit(CHANGES_BURST, CHANGES_REFILL_MS, now);
  let mirror: (record: AuditRecord) => void = () => {};

  function append(entry: AuditEntry): void {
    const record: AuditRecord = { time: new Date(now()).toISOString(), ...entry };
    if (directory !== null) appendLine(directory, formatLine(record), now);
    mirror(record);
  }

  return {
    admit({ via, user_id }) {
      if (via === 'command line' || user_id === undefined) return;
      if (!changes.take(user_id)) throw new ChangesThrottled('too many changes by this user: retry in 1 s');
    },
    append,
    note(entry) {
      try {
        append(entry);
      } catch (error) {
        if (!(error instanceof AuditUnavailable)) throw error;
      }
    },
    mirror(to) {
      mirror = to;
    },
  };
}

export interface RefusedLogin {
  /** Null if the user does not exist: the name is not recorded, because people type passwords into the wrong field. */
  user: { id: string; name: string } | null;
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
    trail.note({
      ...newAuditEntry(actor, 'login', { type: 'user', ...user }),
      outcome: 'refused',
      reason,
      ...(suppressed > 0 ? { suppressed } : {}),
    });
  };
}

export function hasAuditTrail(directory: string): boolean {
  return existsSync(join(directory, FILE));
}

/** For a change that is about to be made. */
export function newAuditEntry(
  actor: Actor,
  action: AuditAction,
  object: AuditObject,
  values: Pick<AuditEntry, 'before' | 'after'> = {},
): AuditEntry {
  return { id: randomId(), ...actor, action, object, ...values, outcome: 'done' };
}

function randomId(): string {
  return randomBytes(8).toString('hex');
}

/** All records, oldest first; 'damaged' for each line that is none, for example one that a full disk cut off. */
export async function* readAuditTrail(directory: string): AsyncGenerator<AuditRecord | 'damaged'> {
  for (const name of [...archives(directory), FILE]) {
    const input = createReadStream(join(directory, name), 'utf8');
    try {
      for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY }))
        if (line !== '') yield parseLine(line);
    } catch (error) {
      // Nothing recorded yet, or deleted by a rotation.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

function parseLine(line: string): AuditRecord | 'damaged' {
  try {
    const record = JSON.parse(line) as Partial<AuditRecord> | null;
    // Only this module writes the file: a line with a time and an action is a whole record.
    return typeof record?.time === 'string' && record.action ? (record as AuditRecord) : 'damaged';
  } catch {
    return 'damaged';
  }
}

function formatLine(record: AuditRecord): string {
  const text = (value: AuditRecord) => `${printable(JSON.stringify(value, shorten))}\n`;
  const line = text(record);
  if (Buffer.byteLength(line) <= LINE_BYTES_MAX) return line;
  const { before: _, after: __, ...rest } = record;
  return text({ ...rest, reason: rest.reason ?? 'before and after are too long to be recorded' });
}

function shorten(_key: string, value: unknown): unknown {
  return typeof value === 'string' && value.length > TEXT_LENGTH_MAX
    ? `${value.slice(0, TEXT_LENGTH_MAX)}...`
    : value;
}

function appendLine(directory: string, line: string, now: () => number): void {
  const path = join(directory, FILE);
  try {
    rotateIfFull(directory, path, Buffer.byteLength(line), now);
    const file = openTrail(path, directory);
    try {
      const { size } = fstatSync(file);
      const bytes = Buffer.from(size > 0 && !endsWithNewline(file, size) ? `\n${line}` : line);
      const written = writeSync(file, bytes);
      if (written < bytes.length) throw new Error('the disk is full');
      // The line must be durable before the change is.
      fdatasyncSync(file);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw new AuditUnavailable(
      `nothing was changed, because the audit trail ${path} cannot be written: ${(error as Error).message}`,
    );
  }
}

/** Does not follow links: the owner of the directory could make root write to, and give away, any file. */
function openTrail(path: string, directory: string): number {
  const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDWR } = constants;
  const flags = O_APPEND | O_RDWR | O_NOFOLLOW;
  try {
    const created = openSync(path, flags | O_CREAT | O_EXCL, 0o600);
    adopt(created, directory);
    return created;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const file = openSync(path, flags);
  const stats = fstatSync(file);
  if (stats.isFile() && stats.nlink === 1) return file;
  closeSync(file);
  throw new Error('it is a link or not a regular file');
}

/** If root runs a command on the directory of the service, the service must be able to write the file afterwards. */
function adopt(file: number, directory: string): void {
  const { uid, gid } = statSync(directory);
  if (fstatSync(file).uid !== uid) fchownSync(file, uid, gid);
}

/** The next line must not be appended to one that a full disk cut off. */
function endsWithNewline(file: number, size: number): boolean {
  const last = Buffer.alloc(1);
  readSync(file, last, 0, 1, size - 1);
  return last[0] === 0x0a;
}

/**
 * Archive names are unique, so two processes that rotate at once lose nothing: at worst the second archive is short. A
 * process that has the old file open appends its line to the archive.
 */
function rotateIfFull(directory: string, path: string, lineBytes: number, now: () => number): void {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size === 0 || size + lineBytes <= AUDIT_FILE_BYTES_MAX) return;
  const stamp = new Date(now()).toISOString().replace(/[-:.]/g, '');
  renameSync(path, `${path}.${stamp}.${randomId()}`);
  for (const name of archives(directory).slice(0, -(FILES_MAX - 1)))
    rmSync(join(directory, name), { force: true });
}

/** Oldest first, by the time in their names. */
function archives(directory: string): string[] {
  return readdirSync(directory)
    .filter((name) => /^audit\.log\.\d{8}T\d{9}Z\.[0-9a-f]{16}$/.test(name))
    .sort();
}
