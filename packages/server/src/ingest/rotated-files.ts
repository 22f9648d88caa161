/** The rotated files of a log, as logrotate, newsyslog or kubelet name them, and what the store knows about them. */
import { basename, dirname, extname, join } from 'node:path';
import { constants, gunzipSync } from 'node:zlib';
import type { FollowedFile, FollowedPath, Store } from '../store/store.ts';
import { isGzip } from './byte-stream.ts';
import { FIRST_LINE_BYTES_MAX, firstLineHash, startOf } from './checkpoints.ts';
import { type CompressedInput, compressionOf } from './compression.ts';
import { type FileSystem, NODE_FILES, type OpenFile } from './file-system.ts';
import { hasContent } from './lines.ts';
import { readAt } from './plain-file.ts';
import { fileId, readFirstLine } from './tail.ts';

/** Enough for hourly rotation over a month. The store keeps about 100 bytes for each file. */
export const ROTATED_FILES_MAX = 1_000;

/** The compressed first line is not longer than this, including the headers of gzip and of a deflate block. */
const COMPRESSED_BYTES = 2 * FIRST_LINE_BYTES_MAX;

export interface RotatedFile {
  path: string;
  /** See `fileId`. */
  id: string;
  mtimeMs: number;
  /** Changes with content, name, owner and permissions. */
  ctimeMs: number;
  bytes: number;
  /** Whether rotation gives such names. A file with another name, such as `access.log.bak`, may be anything. */
  hasRotatedName: boolean;
}

/** The newest ROTATED_FILES_MAX rotated files, oldest first. */
export async function rotatedFiles(path: string, fs = NODE_FILES): Promise<RotatedFile[]> {
  // cronolog and rotatelogs make the path a link to the newest file.
  const live = await fs.stat(path).catch(() => null);
  const files = new Map<string, RotatedFile>();
  for (const log of await pathAndTarget(path, fs)) {
    for (const file of await filesBeside(log, fs)) {
      const known = files.get(file.id);
      const isLive = live !== null && fileId(live) === file.id;
      if (!isLive && (known === undefined || (file.hasRotatedName && !known.hasRotatedName)))
        files.set(file.id, file);
    }
  }
  return [...files.values()].sort(oldestFirst).slice(-ROTATED_FILES_MAX);
}

/** The path and, if it is a link, its target: of the links in /var/log/containers, only the targets are rotated. */
export async function pathAndTarget(path: string, fs: FileSystem): Promise<string[]> {
  const target = await fs.realpath(path).catch(() => path);
  return [...new Set([path, target])];
}

async function filesBeside(path: string, fs: FileSystem): Promise<RotatedFile[]> {
  const directory = dirname(path);
  const name = basename(path);
  const names = await fs.readdir(directory).catch(() => []);
  const files = await Promise.all(
    names.map(async (other): Promise<RotatedFile[]> => {
      const kind = nameKind(other, name);
      if (kind === null) return [];
      const otherPath = join(directory, other);
      const found = await fs.stat(otherPath).catch(() => null);
      if (!found?.isFile()) return [];
      const { mtimeMs, ctimeMs, size: bytes } = found;
      const hasRotatedName = kind === 'rotated';
      return [{ path: otherPath, id: fileId(found), mtimeMs, ctimeMs, bytes, hasRotatedName }];
    }),
  );
  return files.flat();
}

/** `.1`, `.2.gz`, `-20260701`, `-2026-07-01-13.gz`, `.old`. */
const SUFFIX = /^[.-](\d[\d._-]*|old)(\.gz)?$/;
/** The part before the extension in `access-20260701.log`. Fewer digits may be a port, and another log. */
const DATE = /^[.-]\d{4}-?\d{2}-?\d{2}[\d._-]*$/;

export function nameKind(other: string, name: string): 'rotated' | 'other' | null {
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

/** Whether `nameKind` is `rotated` beside any of the logs, without comparing the name with each of them. */
export function isRotatedName(name: string, isLog: (name: string) => boolean): boolean {
  const plain = name.endsWith('.gz') ? name.slice(0, -'.gz'.length) : name;
  const extension = plain.slice(plain.lastIndexOf('.'));
  for (const { index } of name.matchAll(/[.-]/g)) {
    const stem = name.slice(0, index);
    for (const log of [stem, stem + extension]) {
      if (isLog(log) && nameKind(name, log) === 'rotated') return true;
    }
  }
  return false;
}

/** Compression keeps the time. At equal times, a higher number is older and a later date is newer. */
function oldestFirst(a: RotatedFile, b: RotatedFile): number {
  if (a.mtimeMs !== b.mtimeMs) return a.mtimeMs - b.mtimeMs;
  const numbers = [a, b].map((file) => /\.(\d{1,5})(\.gz)?$/.exec(file.path)?.[1]);
  if (numbers[0] !== undefined && numbers[1] !== undefined) return Number(numbers[1]) - Number(numbers[0]);
  return a.path < b.path ? -1 : 1;
}

/** Whether an entry of a later list is the same file, perhaps renamed, growing or compressed. */
export function isSameFile(file: RotatedFile, later: RotatedFile): boolean {
  if (later.id === file.id) return later.path === file.path || later.mtimeMs === file.mtimeMs;
  return (
    later.path.endsWith('.gz') &&
    !file.path.endsWith('.gz') &&
    wholeSeconds(later.mtimeMs) === wholeSeconds(file.mtimeMs)
  );
}

/** Recognizes a file under another name, compressed or not. */
export interface FileIdentity {
  hash: string;
  /** See `startOf`. */
  start: string;
}

/**
 * `identity` is null if nothing readable distinguishes the file from others. `isCompressed`: with gzip. `unreadable`: what
 * the content is if it is not text.
 */
export async function identify(
  handle: OpenFile,
): Promise<{ identity: FileIdentity | null; isCompressed: boolean; unreadable: CompressedInput | null }> {
  const bytes = await readAt(handle, 0, COMPRESSED_BYTES);
  const isCompressed = isGzip(bytes);
  const start = isCompressed ? gunzipSync(bytes, { finishFlush: constants.Z_SYNC_FLUSH }) : bytes;
  const line = isCompressed ? start : await readFirstLine(handle);
  const unreadable = compressionOf(start);
  if (!hasContent(line)) return { identity: null, isCompressed, unreadable };
  return {
    identity: { hash: firstLineHash(line), start: startOf(line) },
    isCompressed,
    unreadable,
  };
}

/** Null if the file is empty, cannot be read, or does not have this `id`, because files were renamed. */
export async function identifyPath(path: string, fs: FileSystem, id?: string): Promise<FileIdentity | null> {
  const handle = await fs.open(path).catch(() => null);
  if (handle === null) return null;
  try {
    if (id !== undefined && fileId(await handle.stat()) !== id) return null;
    return (await identify(handle)).identity;
  } catch {
    return null;
  } finally {
    await handle.close();
  }
}

export type FileVersion = Pick<RotatedFile, 'mtimeMs' | 'bytes'>;

/** What the store keeps about a followed path, with changes that are not stored yet. */
export class FollowedState {
  readonly #store: Store;
  readonly #project: string;
  #stored: FollowedPath;
  current: FollowedPath;

  constructor(store: Store, project: string, stored: FollowedPath) {
    this.#store = store;
    this.#project = project;
    this.#stored = stored;
    this.current = stored;
  }

  /** The entry of a file that need not be read. */
  find(
    file: RotatedFile,
    identity: FileIdentity,
    isCompressed: boolean,
    isUnreadable: boolean,
  ): FollowedFile | undefined {
    return this.current.files.find((known) => {
      if (known.first_line_hash !== identity.hash) return false;
      // A file with another name is counted once rotation gives it such a name, unless it is not text.
      if (known.state === 'other_name' && file.hasRotatedName && !isUnreadable) return false;
      // Compression changes the length and keeps the time, but not always the part of a second.
      if (isCompressed || known.state === 'left_alone')
        return wholeSeconds(known.modified_ms) === wholeSeconds(file.mtimeMs);
      return known.modified_ms === file.mtimeMs && known.bytes === file.bytes;
    });
  }

  /** Whether a file that is gone had an entry, by its time and length. Compression changes both, but not the second. */
  isKnown({ path, mtimeMs, bytes }: RotatedFile): boolean {
    return this.current.files.some((known) =>
      path.endsWith('.gz')
        ? wholeSeconds(known.modified_ms) === wholeSeconds(mtimeMs)
        : known.modified_ms === mtimeMs && known.bytes === bytes,
    );
  }

  /** A file that was left alone and may be this one: it has grown, or compression did not keep its time. */
  findOlder(file: RotatedFile, { hash }: FileIdentity, isCompressed: boolean): FollowedFile | undefined {
    return this.current.files.find(
      ({ first_line_hash, state, bytes }) =>
        first_line_hash === hash && state === 'left_alone' && (isCompressed || file.bytes >= bytes),
    );
  }

  forget(file: FollowedFile): void {
    this.#setFiles(this.current.files.filter((other) => other !== file));
  }

  record(file: FileVersion, hash: string, state: FollowedFile['state']): void {
    const others = this.current.files.filter(
      ({ first_line_hash, modified_ms }) => first_line_hash !== hash || modified_ms !== file.mtimeMs,
    );
    this.#setFiles([...others, followedFile(file, hash, state)]);
  }

  /** The state to store in the transaction of the batch that begins a file. */
  begin(hash: string, at: number): FollowedPath {
    this.#setFiles(this.current.files.filter(({ first_line_hash }) => first_line_hash !== hash));
    this.current.begun = { first_line_hash: hash, at };
    return this.current;
  }

  /** Forgets finished files that are gone. Those left alone stay known: a rename can hide one from the list. */
  forgetAllBut(present: readonly { hash: string; mtimeMs: number }[]): void {
    const isPresent = (file: FollowedFile) =>
      present.some(
        ({ hash, mtimeMs }) =>
          hash === file.first_line_hash && wholeSeconds(mtimeMs) === wholeSeconds(file.modified_ms),
      );
    const files = this.current.files.filter((file) => file.state === 'left_alone' || isPresent(file));
    if (files.length < this.current.files.length) this.#setFiles(files);
  }

  async save(): Promise<void> {
    const state = this.current;
    if (state === this.#stored) return;
    await this.#store.putFollowedPath(this.#project, state);
    this.#stored = state;
  }

  #setFiles(files: FollowedFile[]): void {
    this.current = { ...this.current, files };
  }
}

export function followedFile(
  { mtimeMs, bytes }: FileVersion,
  hash: string,
  state: FollowedFile['state'],
): FollowedFile {
  return { first_line_hash: hash, state, modified_ms: mtimeMs, bytes };
}

function wholeSeconds(timeMs: number): number {
  return Math.floor(timeMs / 1_000);
}
