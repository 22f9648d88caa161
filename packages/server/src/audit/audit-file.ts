/**
 * The audit trail in a file: one JSON line per change, appended to audit.log in the data directory. Several processes can
 * append at once, because each line is one write in append mode.
 */
import {
  closeSync,
  constants,
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
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import {
  AUDIT_BYTES_MAX,
  type AuditEntry,
  type AuditRecord,
  type AuditTrail,
  AuditUnavailable,
  createTrail,
  formatRecord,
  type MarkedRecord,
  randomId,
  UnknownMarker,
} from './audit-trail.ts';

export const AUDIT_FILE = 'audit.log';
/** The current file and three older ones. */
const FILES_MAX = 4;
export const AUDIT_FILE_BYTES_MAX = AUDIT_BYTES_MAX / FILES_MAX;

export interface AuditFile extends AuditTrail {
  /** Like `append`, for synchronous transactions. Throws AuditUnavailable. */
  appendSync(entry: AuditEntry): void;
}

/** Without a directory, records go to the mirror only. */
export function openAuditFile(directory: string | null, now: () => number): AuditFile {
  function appendSync(entry: AuditEntry): void {
    const record: AuditRecord = { time: new Date(now()).toISOString(), ...entry };
    if (directory !== null) appendLine(directory, `${formatRecord(record)}\n`, now);
    trail.copy(record);
  }

  const trail = createTrail(
    now,
    async (entry) => appendSync(entry),
    async function* (marker) {
      if (directory !== null) yield* readBackwards(directory, marker);
    },
  );
  return { ...trail, appendSync };
}

export function hasAuditFile(directory: string): boolean {
  return existsSync(join(directory, AUDIT_FILE));
}

/** A marker is the inode of the file, which it keeps as an archive, and the offset of the line. */
async function* readBackwards(directory: string, marker?: string): AsyncGenerator<MarkedRecord> {
  const [, markedIno, markedOffset] = /^(\d+)-(\d+)$/.exec(marker ?? '') ?? [];
  let isFound = marker === undefined;
  const read = new Set<number>();
  async function* linesOf(name: string): AsyncGenerator<MarkedRecord> {
    const file = await openIfExists(join(directory, name));
    try {
      const { ino = 0, size = 0 } = (await file?.stat()) ?? {};
      if (file === null || read.has(ino)) return;
      read.add(ino);
      const isMarked = !isFound && String(ino) === markedIno && Number(markedOffset) <= size;
      isFound ||= isMarked;
      if (!isFound) return;
      for await (const { offset, line } of linesBefore(file, isMarked ? Number(markedOffset) : size))
        yield { marker: `${ino}-${offset}`, record: parseLine(line) };
    } finally {
      await file?.close();
    }
  }
  yield* linesOf(AUDIT_FILE);
  // Listed after the file was opened: meanwhile it may have become one of them.
  for (const name of archives(directory).reverse()) yield* linesOf(name);
  if (!isFound) throw new UnknownMarker();
}

/** Null if nothing is recorded yet, or if a rotation has deleted the file. */
async function openIfExists(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** How much is read at a time. */
const BLOCK_BYTES = 262_144;

/** The lines before a position, the last one first. */
async function* linesBefore(file: FileHandle, end: number): AsyncGenerator<{ offset: number; line: string }> {
  /** The end of a line that begins before the block. */
  let rest = Buffer.alloc(0);
  for (let start = end; start > 0; ) {
    const block = Buffer.alloc(Math.min(start, BLOCK_BYTES));
    start -= block.length;
    await file.read(block, 0, block.length, start);
    const bytes = Buffer.concat([block, rest]);
    let stop = bytes.length;
    while (stop > 0) {
      const newline = bytes.lastIndexOf(0x0a, stop - 1);
      if (newline === -1 && start > 0) break;
      const line = bytes.toString('utf8', newline + 1, stop);
      if (line !== '') yield { offset: start + newline + 1, line };
      stop = newline;
    }
    rest = bytes.subarray(0, Math.max(stop, 0));
  }
}

function parseLine(line: string): AuditRecord | 'damaged' {
  try {
    const record = JSON.parse(line) as Partial<AuditRecord> | null;
    // Only this module writes the file: a line with a time and an action is a whole record.
    return typeof record?.time === 'string' && typeof record.action === 'string'
      ? (record as AuditRecord)
      : 'damaged';
  } catch {
    return 'damaged';
  }
}

function appendLine(directory: string, line: string, now: () => number): void {
  const path = join(directory, AUDIT_FILE);
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
    return closedOnError(created, () => adopt(created, directory));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const file = openSync(path, flags);
  return closedOnError(file, () => {
    const stats = fstatSync(file);
    if (!stats.isFile() || stats.nlink !== 1) throw new Error('it is a link or not a regular file');
  });
}

/** Returns the file, or closes it if the check fails. */
function closedOnError(file: number, check: () => void): number {
  try {
    check();
    return file;
  } catch (error) {
    closeSync(file);
    throw error;
  }
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

/** Archive names are unique. A process that has the old file open appends its line to the archive. */
function rotateIfFull(directory: string, path: string, lineBytes: number, now: () => number): void {
  const full = statSync(path, { throwIfNoEntry: false });
  if (!full || full.size === 0 || full.size + lineBytes <= AUDIT_FILE_BYTES_MAX) return;
  const stamp = new Date(now()).toISOString().replace(/[-:.]/g, '');
  // Another process may be faster. Its new file must not become a short archive, which would replace the oldest one.
  if (statSync(path, { throwIfNoEntry: false })?.ino !== full.ino) return;
  try {
    renameSync(path, `${path}.${stamp}.${randomId()}`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  for (const name of archives(directory).slice(0, -(FILES_MAX - 1)))
    rmSync(join(directory, name), { force: true });
}

/** Oldest first, by the time in their names. */
function archives(directory: string): string[] {
  return readdirSync(directory)
    .filter((name) => /^audit\.log\.\d{8}T\d{9}Z\.[0-9a-f]{16}$/.test(name))
    .sort();
}
