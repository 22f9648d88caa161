/**
 * The audit trail: one JSON line for each administrative change, appended to audit.log in the data folder. Any number of
 * processes append at once: each line is one write to a file opened for appending. Decision 0020 explains the order of
 * a change and its line.
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

const FILE = 'audit.log';
/** 64 MiB in all, about 150,000 changes. */
export const AUDIT_FILE_BYTES_MAX = 16 * 1_048_576;
/** The current file and three older ones. */
const FILES_MAX = 4;
/** A user with roles in many projects makes a long line; beyond this `before` and `after` are left out. */
const LINE_BYTES_MAX = 16_384;
const TEXT_LENGTH_MAX = 256;
/**
 * Changes of one user over HTTP: this many at once, then one a second. Each is synced to the disk, which blocks the
 * process, and whoever makes many drives older records out: at this rate that takes two days.
 */
const CHANGES_BURST = 100;
const CHANGE_MS = 1_000;
/** Users are known, so this is hardly reached; beyond it the longest unused are forgotten. */
const USERS_MAX = 10_000;

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

/** Who acts, and from where. */
export interface Actor {
  /** The name of the user, `local:<operating system user>` on the command line, or null for a login of an unknown user. */
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
  /** The same in both lines of a change whose commit failed after its line was written. */
  id: string;
  action: AuditAction;
  object: AuditObject;
  /** What the change replaced, and by what; only the fields that changed, and never a secret. */
  before?: Readonly<Record<string, unknown>>;
  after?: Readonly<Record<string, unknown>>;
  outcome: 'done' | 'refused' | 'failed';
  reason?: string;
  /** Entries like this one that were left out since the last one, because there were too many. */
  suppressed?: number;
}

export type AuditRecord = { time: string } & AuditEntry;

export interface AuditTrail {
  /** Before a change: throws ChangesThrottled when the user makes too many. */
  admit(actor: Actor): void;
  /** Throws AuditUnavailable when the line cannot be written: then the change must not be made. */
  append(entry: AuditEntry): void;
  /** For what was refused or has failed already: a line that cannot be written is given up. */
  note(entry: AuditEntry): void;
  /** From now on every record goes there too. */
  mirror(to: (record: AuditRecord) => void): void;
}

/** A user makes changes faster than the limit. */
export class ChangesThrottled extends Error {
  readonly retryAfterS = 1;
}

/** The audit trail cannot be written, so nothing may be changed. */
export class AuditUnavailable extends Error {}

/** Without a folder, records go to the mirror only. */
export function createAuditTrail(folder: string | null, now: () => number): AuditTrail {
  const budgets = new Map<string, { changes: number; at: number }>();
  let mirrored: (record: AuditRecord) => void = () => {};

  function append(entry: AuditEntry): void {
    const record: AuditRecord = { time: new Date(now()).toISOString(), ...entry };
    if (folder !== null) appendLine(folder, lineOf(record), now);
    mirrored(record);
  }

  return {
    admit({ via, user_id }) {
      if (via === 'command line' || user_id === undefined) return;
      const { changes, at } = budgets.get(user_id) ?? { changes: CHANGES_BURST, at: now() };
      // A clock that was set back adds nothing, and takes nothing away.
      const left = Math.min(CHANGES_BURST, changes + Math.max(0, now() - at) / CHANGE_MS);
      budgets.delete(user_id);
      budgets.set(user_id, { changes: left < 1 ? left : left - 1, at: now() });
      for (const oldest of budgets.keys()) {
        if (budgets.size <= USERS_MAX) break;
        budgets.delete(oldest);
      }
      if (left < 1) throw new ChangesThrottled('too many changes by this user: try again in 1 s');
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
      mirrored = to;
    },
  };
}

export function hasAuditTrail(folder: string): boolean {
  return existsSync(join(folder, FILE));
}

export function newAuditId(): string {
  return randomBytes(8).toString('hex');
}

/** All records that are there, oldest first, and the number of lines that are none (a full disk cuts a line off). */
export async function* readAuditTrail(folder: string): AsyncGenerator<AuditRecord | 'damaged'> {
  for (const name of [...archives(folder), FILE]) {
    const input = createReadStream(join(folder, name), 'utf8');
    try {
      for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY }))
        if (line !== '') yield parsed(line);
    } catch (error) {
      // Nothing recorded yet, or rotated away meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

function parsed(line: string): AuditRecord | 'damaged' {
  try {
    const record = JSON.parse(line) as Partial<AuditRecord> | null;
    // Only we write the file: what has a time and an action is a whole record.
    return typeof record?.time === 'string' && record.action ? (record as AuditRecord) : 'damaged';
  } catch {
    return 'damaged';
  }
}

function lineOf(record: AuditRecord): string {
  const text = (value: AuditRecord) => `${printable(JSON.stringify(value, shortened))}\n`;
  const line = text(record);
  if (Buffer.byteLength(line) <= LINE_BYTES_MAX) return line;
  const { before: _, after: __, ...rest } = record;
  return text({ ...rest, reason: rest.reason ?? 'before and after are too long to be recorded' });
}

function shortened(_key: string, value: unknown): unknown {
  return typeof value === 'string' && value.length > TEXT_LENGTH_MAX
    ? `${value.slice(0, TEXT_LENGTH_MAX)}...`
    : value;
}

function appendLine(folder: string, line: string, now: () => number): void {
  const path = join(folder, FILE);
  try {
    rotateIfFull(folder, path, Buffer.byteLength(line), now);
    const file = openTrail(path, folder);
    try {
      const { size } = fstatSync(file);
      const bytes = Buffer.from(size > 0 && !endsWithNewline(file, size) ? `\n${line}` : line);
      const written = writeSync(file, bytes);
      if (written < bytes.length) throw new Error('the disk is full');
      // The change is durable when it is committed, so its line must be before.
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

/** Never through a link: whoever owns the folder could have root write to, and give away, any file. */
function openTrail(path: string, folder: string): number {
  const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDWR } = constants;
  const flags = O_APPEND | O_RDWR | O_NOFOLLOW;
  try {
    const created = openSync(path, flags | O_CREAT | O_EXCL, 0o600);
    adopt(created, folder);
    return created;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const file = openSync(path, flags);
  const stats = fstatSync(file);
  if (stats.isFile() && stats.nlink === 1) return file;
  closeSync(file);
  throw new Error('it is not a plain file');
}

/** Root may run a command on the folder of the service, which must be able to write the file afterwards. */
function adopt(file: number, folder: string): void {
  const { uid, gid } = statSync(folder);
  if (fstatSync(file).uid !== uid) fchownSync(file, uid, gid);
}

/** A line that a full disk cut off must not swallow the next one. */
function endsWithNewline(file: number, size: number): boolean {
  const last = Buffer.alloc(1);
  readSync(file, last, 0, 1, size - 1);
  return last[0] === 0x0a;
}

/**
 * The archive's name is unique, so two processes that rotate at once lose nothing: at worst the second archive is short.
 * A process that has the old file open writes its line into the archive.
 */
function rotateIfFull(folder: string, path: string, lineBytes: number, now: () => number): void {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size === 0 || size + lineBytes <= AUDIT_FILE_BYTES_MAX) return;
  const stamp = new Date(now()).toISOString().replace(/[-:.]/g, '');
  renameSync(path, `${path}.${stamp}.${newAuditId()}`);
  for (const name of archives(folder).slice(0, -(FILES_MAX - 1))) rmSync(join(folder, name), { force: true });
}

/** Oldest first, by the time in their names. */
function archives(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => /^audit\.log\.\d{8}T\d{9}Z\.[0-9a-f]{16}$/.test(name))
    .sort();
}
