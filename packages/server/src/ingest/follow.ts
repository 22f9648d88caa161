/**
 * A file that is being written to, like `tail -F`: through rotation by rename and by copytruncate, from before it is
 * there, and over restarts of ours. What was counted is known by its content (trail.ts), so a rotated copy is taken
 * up where the file itself was left.
 */
import { type FileHandle, open, readdir, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Store } from '../store/store.ts';
import { countLineEnds, LINE_BYTES_MAX } from './blocks.ts';
import { FileConflict, type FileIngest, ingestFile, isEmpty, nextPiece } from './file.ts';
import { openLog } from './open-log.ts';
import type { Line, Outcome, Pipeline } from './pipeline.ts';
import { createReader, type LineReader } from './reader.ts';
import { Trail } from './trail.ts';

/** So many bytes before our place are compared at each look: other ones mean that the file was cut and written anew. */
const FINGERPRINT_BYTES = 256;

/** A web server goes on writing to a renamed file until it is told to reopen its logs, and its last workers longer. */
const RETIRE_MS = 60_000;

/** File systems tell the time of a change no finer than this; a later one may show the same time. */
const FOLDER_TIME_MS_MAX = 50;

/** Rotated files that are none of ours are passed over, but not without end. */
const STRANGERS_MAX = 20;

export interface FollowOptions {
  path: string;
  ingest: FileIngest;
  store: Store;
  pipeline: Pipeline;
  now: () => number;
  counted(outcome: Outcome): void;
  /** A rotated file could not be read. */
  failed(path: string, message: string): void;
}

interface OpenFile extends Place {
  handle: FileHandle;
  device: number;
  inode: number;
  /** When it was last found to have grown. */
  grown: number;
}

/** How far a file has been counted. */
interface Place {
  position: number;
  /** The bytes before the position. */
  fingerprint: Buffer;
  trail: Trail;
  reader: LineReader;
  lines: number;
}

export class Follower {
  readonly #options: FollowOptions;
  #current: OpenFile | null = null;
  /** Renamed, but perhaps still written to. */
  #leaving: OpenFile[] = [];
  /** The rotated files that were there at the last look at the folder; null before the first. */
  #rotated: Set<string> | null = null;
  #folderTime = 0;

  constructor(options: FollowOptions) {
    this.#options = options;
  }

  /** Counts what is new; to be called again and again. True when there may be more at once. */
  async look(): Promise<boolean> {
    for (const file of this.#leaving) await this.#lookAtLeaving(file);
    this.#current ??= await this.#open();
    const file = this.#current;
    if (file === null) return false;
    if (await this.#readOn(file)) return true;
    const replaced = await this.#wasReplaced(file);
    if (replaced) {
      file.grown = this.#options.now();
      this.#leaving.push(file);
      this.#current = null;
    }
    // A file may have come and gone, or been copied and cut, without our ever having had it open.
    if (await this.#folderChanged()) await this.catchUp();
    return replaced;
  }

  /**
   * Finishes rotated files: what was written to them while we were away, or copied before we had read it, and what
   * came and went between two looks. The newest first: when one of them is done already, so are the older ones.
   */
  async catchUp(): Promise<void> {
    const files = await rotatedFiles(this.#options.path);
    const before = this.#rotated;
    this.#rotated = new Set(files.map(({ identity }) => identity));
    const open = new Set(
      [...this.#leaving, this.#current].map((file) => file && `${file.device}:${file.inode}`),
    );
    let strangers = 0;
    let done = false;
    for (const { path, file, identity } of files) {
      if (open.has(file)) continue;
      // One that was not there before is ours as a whole, unless it is an old one that was just packed.
      const whole = before !== null && !before.has(identity) && !path.endsWith('.gz');
      if (!whole && (done || strangers > STRANGERS_MAX)) continue;
      const state = await this.#finish(path, whole);
      if (state === 'stranger') strangers++;
      if (state === 'done already') done = true;
    }
  }

  async close(): Promise<void> {
    for (const file of [...this.#leaving, this.#current]) await file?.handle.close();
    this.#leaving = [];
    this.#current = null;
  }

  async #open(): Promise<OpenFile | null> {
    const handle = await open(this.#options.path, 'r').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null;
      throw error;
    });
    if (handle === null) return null;
    const { dev: device, ino: inode } = await handle.stat();
    return { handle, device, inode, grown: this.#options.now(), ...(await this.#placeIn(handle)) };
  }

  /** Where the part of a file ends that has been counted. */
  async #placeIn(handle: FileHandle): Promise<Place> {
    const { ingest, store } = this.#options;
    const trail = new Trail(store, ingest);
    const place: Place = {
      position: 0,
      fingerprint: Buffer.alloc(0),
      trail,
      reader: createReader(ingest.reader),
      lines: 0,
    };
    const peek = (bytes: number) => readAt(handle, place.position, bytes);
    for (let known = await trail.known(peek); known; known = await trail.known(peek)) {
      place.position += known.bytes.length;
      place.lines += countLineEnds(known.bytes);
      place.fingerprint = tail(place.fingerprint, known.bytes);
      place.reader = createReader(ingest.reader, known.carry);
    }
    return place;
  }

  /** True when there may be more to read at once. */
  async #readOn(file: OpenFile): Promise<boolean> {
    // One read for both, so that the file cannot be cut between the check and the use.
    const { fingerprint, position } = file;
    const seen = await readAt(
      file.handle,
      position - fingerprint.length,
      fingerprint.length + LINE_BYTES_MAX,
    );
    if (!seen.subarray(0, fingerprint.length).equals(fingerprint)) {
      // It was cut and is written anew from its start; what we had not read is in the copy that was made.
      await this.catchUp();
      Object.assign(file, await this.#placeIn(file.handle));
      return true;
    }
    const piece = nextPiece(seen.subarray(fingerprint.length), file.trail.insideLine, file.lines + 1);
    if ((await this.#count(file, piece.bytes, piece.lines, 'aged')) === 'conflict') {
      // Someone else has counted here: see how far they came.
      Object.assign(file, await this.#placeIn(file.handle));
      return true;
    }
    if (piece.bytes.length > 0) file.grown = this.#options.now();
    return piece.bytes.length > 0;
  }

  async #count(
    file: OpenFile,
    bytes: Buffer,
    lines: Iterable<Line>,
    flush: 'all' | 'aged',
  ): Promise<'counted' | 'conflict'> {
    const { ingest, pipeline, counted } = this.#options;
    // A copy, so that a failed append leaves nothing half done: the lines are read again at the next look.
    const reader = createReader(ingest.reader, file.reader.state());
    const read = pipeline.read(lines, reader, flush);
    if (bytes.length === 0 && isEmpty(read)) return 'counted';
    const { id, link } = file.trail.extend(bytes, reader.state());
    const result = await pipeline.count(read, { project: ingest.project, source: ingest.source, id, link });
    if (result.kind !== 'counted') return 'conflict';
    file.trail.advance(id, bytes);
    file.reader = reader;
    file.position += bytes.length;
    file.lines += countLineEnds(bytes);
    file.fingerprint = tail(file.fingerprint, bytes);
    counted(result.outcome);
    return 'counted';
  }

  async #lookAtLeaving(file: OpenFile): Promise<void> {
    if (await this.#readOn(file)) return;
    if (this.#options.now() - file.grown < RETIRE_MS) return;
    await this.#count(file, Buffer.alloc(0), [], 'all');
    this.#leaving = this.#leaving.filter((other) => other !== file);
    await file.handle.close();
  }

  async #folderChanged(): Promise<boolean> {
    const { mtimeMs } = await stat(dirname(this.#options.path));
    const changed = mtimeMs !== this.#folderTime || Date.now() - mtimeMs < FOLDER_TIME_MS_MAX;
    this.#folderTime = mtimeMs;
    return changed;
  }

  async #wasReplaced({ device, inode }: OpenFile): Promise<boolean> {
    const now = await stat(this.#options.path).catch(() => null);
    return now === null || now.dev !== device || now.ino !== inode;
  }

  async #finish(path: string, whole: boolean): Promise<'stranger' | 'done already' | 'done now'> {
    const { ingest, store, pipeline, counted } = this.#options;
    let state: 'stranger' | 'done already' | 'done now' = 'stranger';
    try {
      for await (const progress of ingestFile(openLog(path), ingest, store, pipeline, {
        rotated: whole ? 'whole' : 'if begun',
      })) {
        if (progress.kind === 'counted') {
          state = 'done now';
          counted(progress.outcome);
        } else if (state === 'stranger') state = 'done already';
      }
    } catch (error) {
      // Then another process is finishing it.
      if (error instanceof FileConflict) return state;
      const { code, message } = error as NodeJS.ErrnoException;
      if (typeof code !== 'string') throw error;
      // One that is damaged, or not ours to read, must not keep us from the others.
      this.#options.failed(path, message);
    }
    return state;
  }
}

interface RotatedFile {
  path: string;
  /** Device and inode. */
  file: string;
  /** The same with the time of birth, because inodes are used again. */
  identity: string;
  modified: number;
}

/** `access.log.1`, `access.log-20260701.gz`: what logrotate and its like make of `access.log`, newest first. */
async function rotatedFiles(path: string): Promise<RotatedFile[]> {
  const folder = dirname(path);
  const name = basename(path);
  const names = await readdir(folder).catch(() => []);
  const rotated = names.filter((other) => other.startsWith(`${name}.`) || other.startsWith(`${name}-`));
  const files = await Promise.all(
    rotated.map(async (other) => {
      const found = await stat(join(folder, other)).catch(() => null);
      if (!found?.isFile()) return [];
      const file = `${found.dev}:${found.ino}`;
      return [
        {
          path: join(folder, other),
          file,
          identity: `${file}:${found.birthtimeMs}`,
          modified: found.mtimeMs,
        },
      ];
    }),
  );
  return files.flat().sort((a, b) => b.modified - a.modified);
}

async function readAt(handle: FileHandle, position: number, bytes: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(bytes);
  let length = 0;
  while (length < bytes) {
    const { bytesRead } = await handle.read(buffer, length, bytes - length, position + length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return buffer.subarray(0, length);
}

function tail(before: Buffer, bytes: Buffer): Buffer {
  const joined = bytes.length >= FINGERPRINT_BYTES ? bytes : Buffer.concat([before, bytes]);
  return Buffer.from(joined.subarray(Math.max(0, joined.length - FINGERPRINT_BYTES)));
}
