/**
 * The audit trail in a file: one JSON line per change, appended to audit.log in the data directory. Several processes can
 * append at once, because each line is one write in append mode.
 */
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
import {
  AUDIT_BYTES_MAX,
  type AuditEntry,
  type AuditRecord,
  type AuditTrail,
  AuditUnavailable,
  formatRecord,
  limitChanges,
  randomId,
} from './audit-trail.ts';

const FILE = 'audit.log';
/** The current file and three older ones. */
const FILES_MAX = 4;
export const AUDIT_FILE_BYTES_MAX = AUDIT_BYTES_MAX / FILES_MAX;

export interface AuditFile extends AuditTrail {
  /** Like `append`, for synchronous transactions. Throws AuditUnavailable. */
  appendSync(entry: AuditEntry): void;
}

/** Without a directory, records go to the mirror only. */
export function openAuditFile(directory: string | null, now: () => number): AuditFile {
  let mirror: (record: AuditRecord) => void = () => {};

  function appendSync(entry: AuditEntry): void {
    const record: AuditRecord = { time: new Date(now()).toISOString(), ...entry };
    if (directory !== null) appendLine(directory, `${formatRecord(record)}\n`, now);
    mirror(record);
  }

  return {
    admit: limitChanges(now),
    appendSync,
    async append(entry) {
      appendSync(entry);
    },
    async note(entry) {
      try {
        appendSync(entry);
      } catch (error) {
        if (!(error instanceof AuditUnavailable)) throw error;
      }
    },
    mirror(to) {
      mirror = to;
    },
    async *records() {
      if (directory !== null) yield* readLines(directory);
    },
  };
}

export function hasAuditFile(directory: string): boolean {
  return existsSync(join(directory, FILE));
}

async function* readLines(directory: string): AsyncGenerator<AuditRecord | 'damaged'> {
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
