/** The rotated files of a log: what logrotate, newsyslog, kubelet and the like make of `access.log`, in the same folder. */
import { type FileHandle, readdir, realpath, stat } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { constants, gunzipSync } from 'node:zlib';
import { hasContent } from './blocks.ts';
import { earlierFirstLineHash, FIRST_LINE_BYTES_MAX, firstLineHash } from './checkpoints.ts';
import { fileId, readAt, readFirstLine } from './tail.ts';

/** Hourly rotation for a month. What is known about each file is stored, some 100 bytes. */
export const ROTATED_FILES_MAX = 1_000;

/** Compressed, the first line takes no more than this, with the headers of gzip and of a deflate block. */
const COMPRESSED_BYTES = 2 * FIRST_LINE_BYTES_MAX;

export interface RotatedFile {
  path: string;
  /** As `fileId` writes it. */
  id: string;
  mtimeMs: number;
  /** Changes with content, name, owner and permissions. */
  ctimeMs: number;
  bytes: number;
  /** The name is one that rotation gives. Others, like `access.log.bak`, may be anything. */
  hasRotatedName: boolean;
}

/** Oldest first, and at most the newest ROTATED_FILES_MAX. */
export async function rotatedFiles(path: string): Promise<RotatedFile[]> {
  // The path may be a link to the newest of the files, as cronolog and rotatelogs make it.
  const live = await stat(path).catch(() => null);
  const files = new Map<string, RotatedFile>();
  for (const log of await namesOf(path)) {
    for (const file of await filesBeside(log)) {
      const known = files.get(file.id);
      const isLive = live !== null && fileId(live) === file.id;
      if (!isLive && (known === undefined || (file.hasRotatedName && !known.hasRotatedName)))
        files.set(file.id, file);
    }
  }
  return [...files.values()].sort(oldestFirst).slice(-ROTATED_FILES_MAX);
}

/** The path and, if it is a link, the file behind it: links in /var/log/containers are not rotated, their targets are. */
export async function namesOf(path: string): Promise<string[]> {
  const target = await realpath(path).catch(() => path);
  return [...new Set([path, target])];
}

async function filesBeside(path: string): Promise<RotatedFile[]> {
  const folder = dirname(path);
  const name = basename(path);
  const names = await readdir(folder).catch(() => []);
  const files = await Promise.all(
    names.map(async (other): Promise<RotatedFile[]> => {
      const kind = kindOf(other, name);
      if (kind === null) return [];
      const found = await stat(join(folder, other)).catch(() => null);
      if (!found?.isFile()) return [];
      const { mtimeMs, ctimeMs, size } = found;
      const hasRotatedName = kind === 'rotated';
      return [
        { path: join(folder, other), id: fileId(found), mtimeMs, ctimeMs, bytes: size, hasRotatedName },
      ];
    }),
  );
  return files.flat();
}

/** `.1`, `.2.gz`, `-20260701`, `-2026-07-01-13.gz`, `.old`. */
const SUFFIX = /^[.-](\d[\d._-]*|old)(\.gz)?$/;
/** What stands before the extension in `access-20260701.log`. Fewer digits may be a port, and another log. */
const DATE = /^[.-]\d{4}-?\d{2}-?\d{2}[\d._-]*$/;

export function kindOf(other: string, name: string): 'rotated' | 'other' | null {
  if (other.startsWith(name) && other !== name) {
    const suffix = other.slice(name.length);
    if (SUFFIX.test(suffix)) return 'rotated';
    return /^[.-]/.test(suffix) ? 'other' : null;
  }
  const extension = extname(name);
  const stem = basename(name, extension);
  const plain = other.endsWith('.gz') ? other.slice(0, -'.gz'.length) : other;
  if (extension === '' || !plain.startsWith(stem) || !plain.endsWith(extension)) return null;
  return DATE.test(plain.slice(stem.length, -extension.length)) ? 'rotated' : null;
}

/** Compression keeps the time. Of equal times, a higher number is older and a later date is newer. */
function oldestFirst(a: RotatedFile, b: RotatedFile): number {
  if (a.mtimeMs !== b.mtimeMs) return a.mtimeMs - b.mtimeMs;
  const numbers = [a, b].map((file) => /\.(\d{1,5})(\.gz)?$/.exec(file.path)?.[1]);
  if (numbers[0] !== undefined && numbers[1] !== undefined) return Number(numbers[1]) - Number(numbers[0]);
  return a.path < b.path ? -1 : 1;
}

/** What a file is recognized by under another name, compressed or not. */
export interface Identity {
  hash: string;
  /** As earlier releases stored it. */
  earlierHash: string;
}

/** `identity` is null when nothing can be read that tells the file from others. */
export async function recognize(
  handle: FileHandle,
): Promise<{ identity: Identity | null; isCompressed: boolean }> {
  const bytes = await readAt(handle, 0, COMPRESSED_BYTES);
  const isCompressed = bytes[0] === 0x1f && bytes[1] === 0x8b;
  const start = isCompressed ? gunzipSync(bytes, { finishFlush: constants.Z_SYNC_FLUSH }) : bytes;
  const line = isCompressed ? start : await readFirstLine(handle);
  if (!hasContent(line)) return { identity: null, isCompressed };
  return {
    identity: { hash: firstLineHash(line), earlierHash: earlierFirstLineHash(start) },
    isCompressed,
  };
}
