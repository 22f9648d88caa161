/**
 * Follows a log like `tail -F`, through rotation and restarts. Every file rotated from the path is counted completely,
 * even if `follow` was stopped or killed in between. Files are recognized by content (checkpoints.ts); the stored
 * state says which need not be read (docs/decisions/0015).
 */
import { dirname, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { pathInCommand } from '../printable.ts';
import { reached } from '../rare-states.ts';
import type { FollowedFile, FollowedPath, Store } from '../store/store.ts';
import type { Outcome } from './batch-reader.ts';
import { openLog } from './byte-stream.ts';
import { CompressedInput } from './compression.ts';
import { FileConflict, type FileIngest, ingestFile } from './file.ts';
import { type FileSystem, NODE_FILES, type OpenFile } from './file-system.ts';
import { LinesInFuture, type Pipeline } from './pipeline.ts';
import { FileChanged, PlainFile } from './plain-file.ts';
import {
  type FileIdentity,
  FollowedState,
  followedFile,
  identify,
  identifyPath,
  isSameFile,
  pathAndTarget,
  ROTATED_FILES_MAX,
  type RotatedFile,
  rotatedFiles,
} from './rotated-files.ts';
import { fileId, Tail } from './tail.ts';

/** Web servers write to a renamed file until they reopen their logs, and old workers even longer. */
const RETIRE_MS = 60_000;

/** Rotated files kept open at once. If more are recent, something touched them all. */
const RETIRING_MAX = 16;

/** The coarsest resolution of file times: two changes within it look like one. */
const FILE_TIME_MS_MAX = 2_000;

/** An unreadable file, which may be being compressed, is tried again when it has not changed for this long. */
const SETTLE_MS = 2_000;

/** A rename can hide a file from a list. A rotation is over before the list has been read this often. */
const LIST_ATTEMPTS_MAX = 10;

interface FollowOptions {
  path: string;
  ingest: FileIngest;
  store: Store;
  pipeline: Pipeline;
  now: () => number;
  fs?: FileSystem;
  /** When aborted, batches under way are counted and nothing more is read. */
  stop: AbortSignal;
  /** As in TailOptions. */
  holdsErrorLog?: boolean | undefined;
  counted(outcome: Outcome): void;
  /** Called if a file is skipped or lines may be lost. */
  warn(message: string): void;
}

interface RetiringFile {
  tail: Tail;
  /** False for a copy that somebody has made. */
  hasRotatedName: boolean;
  /** When it was last seen growing. */
  grownAt: number;
}

type SettledFile = Pick<RotatedFile, 'id' | 'mtimeMs' | 'bytes' | 'hasRotatedName'>;

export class Follower {
  readonly #options: FollowOptions;
  readonly #fs: FileSystem;
  readonly #path: string;
  #live: Tail | null = null;
  /** Files that are rotated, but possibly still being written to. */
  #retiring: RetiringFile[] = [];
  /** What the store knows about the path; null before the first scan. */
  #followed: FollowedState | null = null;
  /** The file that an earlier process has begun last, until it is known whether it still exists. */
  #begunBefore: FollowedPath['begun'] = null;
  /** The file that this process has begun last meanwhile. */
  #begunMeanwhile: FollowedPath['begun'] = null;
  /** Rotated files with nothing left to count, by ID. */
  #settled = new Map<string, Omit<SettledFile, 'id'> & { hash: string }>();
  /** Rotated files of the last list that were not read. */
  #unread: RotatedFile[] = [];
  /** Rotated files that could not be read, by ID. */
  #failed = new Map<string, { path: string; ctimeMs: number; isFinal: boolean }>();
  /** Files modified before this are older than the first follow of the path, unless they were begun. */
  #belongsFromMs = Number.POSITIVE_INFINITY;
  /** Modification times of the directories of rotated files; null before the first scan. */
  #directoryTimesMs: readonly number[] | null = null;
  #mustScan = true;
  /** Of the last file that waits because its lines are in the future. */
  #doubt: LinesInFuture | null = null;
  #hasWarnedOfCount = false;

  constructor(options: FollowOptions) {
    this.#options = options;
    this.#fs = options.fs ?? NODE_FILES;
    this.#path = resolve(options.path);
  }

  /**
   * Counts the new lines once. Returns true if there are already more, or may be. Throws CompressedInput if the log is not
   * text, and LinesInFuture if a file waits for the clock and all others were read.
   */
  async look(): Promise<boolean> {
    this.#doubt = null;
    const hasMore = await this.#look();
    if (this.#doubt && !hasMore) throw this.#doubt;
    return hasMore;
  }

  async #look(): Promise<boolean> {
    if (this.#mustScan || (await this.#directoryChanged()) || (await this.#failureChanged()))
      await this.#scan();
    // Newer files must not be begun before older ones: it would not be noticed if those are deleted before the next start.
    if (this.#options.stop.aborted) return false;
    for (const file of [...this.#retiring])
      await this.#readRetiring(file).catch((error) => this.#waitForClock(error));
    this.#live ??= await this.#openLive();
    await this.#warnOfBegun();
    if (this.#live === null) return false;
    await this.#beginCounted(this.#live);
    try {
      await this.#live.refuseCompressed();
    } catch (error) {
      // Opened again by the next look: there may be another file then.
      await this.#live.close();
      this.#live = null;
      throw error;
    }
    const read = await this.#live.read().catch((error) => this.#waitForClock(error));
    if (read === 'more') return true;
    if (read === 'truncated') {
      await this.#restartLive(this.#live);
      return true;
    }
    const now = await this.#fs.stat(this.#path).catch(() => null);
    if (now !== null && fileId(now) === this.#live.id) return false;
    reached(read === 'grown' ? 'follow.rotated-between-read-and-commit' : 'follow.live-file-replaced');
    // Lines that are held back must wait for the next look.
    const hasMore = !this.#live.isErrorLog;
    this.#retiring.push({ tail: this.#live, hasRotatedName: true, grownAt: this.#options.now() });
    this.#live = null;
    return hasMore;
  }

  /** Whether the lines that the next look counts are those of an error log. */
  get isErrorLog(): boolean {
    return [this.#live, ...this.#retiring.map(({ tail }) => tail)].some((tail) => tail?.isErrorLog);
  }

  /** Lines in the future must not keep other files waiting. Throws other errors. */
  #waitForClock(error: unknown): void {
    if (!(error instanceof LinesInFuture)) throw error;
    reached('follow.waits-for-clock');
    this.#doubt = error;
  }

  async close(): Promise<void> {
    for (const { tail } of this.#retiring) await tail.close();
    await this.#live?.close();
    this.#retiring = [];
    this.#live = null;
  }

  /** Counts the rotated files, oldest first. Files that have not changed are not opened again. */
  async #scan(): Promise<void> {
    // Read before the list: a file that appears meanwhile changes them, and the next call sees it.
    const directoryTimesMs = await this.#readDirectoryTimes();
    const files = await rotatedFiles(this.#path, this.#fs);
    if (files.length === ROTATED_FILES_MAX && !this.#hasWarnedOfCount) {
      this.#hasWarnedOfCount = true;
      this.#options.warn(
        `${this.#path} has ${ROTATED_FILES_MAX} rotated files or more; older ones are not read`,
      );
    }
    this.#followed ??= await this.#load(files);
    this.#belongsFromMs = Math.min(this.#belongsFromMs, this.#followed.current.since - FILE_TIME_MS_MAX);
    await this.#warnOfDeleted();
    this.#unread = files;
    this.#mustScan = false;
    try {
      for (const file of files)
        if (!this.#options.stop.aborted && (await this.#readRotated(file)))
          this.#unread = this.#unread.filter((other) => other !== file);
    } catch (error) {
      this.#mustScan = true;
      throw error;
    }
    if (this.#options.stop.aborted) return this.#state().save();
    const present = new Set(files.map(({ id }) => id));
    for (const known of [this.#settled, this.#failed])
      for (const id of known.keys()) if (!present.has(id)) known.delete(id);
    this.#followed.forgetAllBut([...this.#settled.values()]);
    await this.#followed.save();
    this.#directoryTimesMs = directoryTimesMs;
  }

  async #load(files: readonly RotatedFile[]): Promise<FollowedState> {
    const { ingest, store } = this.#options;
    const known = (await store.followedPaths(ingest.project)).find(
      ({ source, path }) => source === ingest.source.name && path === this.#path,
    );
    if (known) {
      this.#begunBefore = known.begun;
      return new FollowedState(store, ingest.project, known);
    }
    const first = await this.#firstState(files, await identifyPath(this.#path, this.#fs));
    await store.putFollowedPath(ingest.project, first);
    return new FollowedState(store, ingest.project, first);
  }

  /**
   * Warns if the file that was begun last is gone. Called when the live file is open: until then, somebody may empty it, and
   * afterwards its counted bytes show that.
   */
  async #warnOfBegun(): Promise<void> {
    if (this.#begunBefore === null) return;
    const { first_line_hash: hash, at } = this.#begunBefore;
    const isBegun = async (path: string, rotated?: RotatedFile) =>
      rotated?.hasRotatedName !== false && (await identifyPath(path, this.#fs))?.hash === hash;
    if (!(await this.#isRead(hash)) && !(await this.#isPresent(isBegun))) {
      reached('follow.begun-file-gone');
      this.#options.warn(
        `the file that was counted as ${this.#path} since ${new Date(at).toISOString()} is gone; ` +
          'lines written to it while follow was not running may be lost',
      );
    }
    this.#begunBefore = null;
    if (this.#begunMeanwhile === null) return;
    const state = this.#state();
    state.current = { ...state.current, begun: this.#begunMeanwhile };
    await state.save();
  }

  /** If `ingest` has counted the first lines of the live file, none of its batches here is the first. */
  async #beginCounted({ countedFirstLineHash: hash }: Tail): Promise<void> {
    const state = this.#state();
    if (hash === null || state.current.begun?.first_line_hash === hash) return;
    state.begin(hash, this.#options.now());
    await state.save();
  }

  /** Warns of files that were in the list before, and were deleted before it was their turn. */
  async #warnOfDeleted(): Promise<void> {
    for (const file of this.#unread) {
      if (!file.hasRotatedName || file.bytes === 0 || this.#state().isKnown(file)) continue;
      if (await this.#isPresent((_, other) => other !== undefined && isSameFile(file, other))) continue;
      reached('follow.listed-file-gone');
      this.#options.warn(
        `${file.path} (${formatBytes(file.bytes)}) was deleted before it was read; its lines may be lost`,
      );
    }
  }

  /** Whether a rotated file with this first line is read. A copy under another name may lack lines. */
  async #isRead(hash: string): Promise<boolean> {
    for (const { tail, hasRotatedName } of this.#retiring)
      if (hasRotatedName && (await tail.firstLineHash()) === hash) return true;
    return [...this.#settled.values()].some((file) => file.hasRotatedName && file.hash === hash);
  }

  /** Whether the log or a rotated file is the one that is searched for. */
  async #isPresent(
    isSearched: (path: string, rotated?: RotatedFile) => boolean | Promise<boolean>,
  ): Promise<boolean> {
    for (let attempt = 0; attempt < LIST_ATTEMPTS_MAX; attempt++) {
      const directoryTimesMs = await this.#readDirectoryTimes();
      const newestFirst = (await rotatedFiles(this.#path, this.#fs)).reverse();
      if (await isSearched(this.#path)) return true;
      for (const file of newestFirst) if (await isSearched(file.path, file)) return true;
      if (isDeepStrictEqual(await this.#readDirectoryTimes(), directoryTimesMs)) return false;
      reached('follow.list-changed-while-searched');
    }
    return true;
  }

  /**
   * Files that exist at the very first start were written before the path was followed. If `ingest` has counted one
   * of them, those after it belong to the path.
   */
  async #firstState(files: readonly RotatedFile[], live: FileIdentity | null): Promise<FollowedPath> {
    const source = this.#options.ingest.source.name;
    const found: { identity: FileIdentity | null; isBegun: boolean }[] = [];
    for (const { path, id } of files) {
      const identity = await identifyPath(path, this.#fs, id);
      found.push({ identity, isBegun: identity !== null && (await this.#isCounted(identity)) });
    }
    const lastBegun = found.findLastIndex(({ isBegun }) => isBegun);
    const isLiveBegun = live !== null && (await this.#isCounted(live));
    const end = isLiveBegun || lastBegun === -1 ? files.length : lastBegun;
    const leftAlone = files.slice(0, end).flatMap((file, i): FollowedFile[] => {
      const { identity = null, isBegun = false } = found[i] ?? {};
      if (identity === null || isBegun || identity.hash === live?.hash || !file.hasRotatedName) return [];
      this.#warnOfOlder(file);
      return [followedFile(file, identity.hash, 'left_alone')];
    });
    // From the clock of the file system, because it is compared with file times.
    const since = Math.min(this.#fs.now(), files[end]?.mtimeMs ?? Number.POSITIVE_INFINITY);
    // The live file belongs to the path from the start, even if it is rotated before its first line is counted.
    const begun = live === null ? null : { first_line_hash: live.hash, at: since };
    return { source, path: this.#path, since, begun, files: leftAlone };
  }

  /** Returns false if the file must be read again, because it is not the one in the list, or waits. */
  async #readRotated(file: RotatedFile): Promise<boolean> {
    const settled = this.#settled.get(file.id);
    if (settled?.mtimeMs === file.mtimeMs && settled.bytes === file.bytes) return true;
    const failed = this.#failed.get(file.id);
    if (failed && (failed.ctimeMs === file.ctimeMs || this.#isRecent(file.ctimeMs, SETTLE_MS))) return true;
    if ([this.#live, ...this.#retiring.map(({ tail }) => tail)].some((tail) => tail?.id === file.id))
      return true;
    let handle: OpenFile | null = null;
    let isKeptOpen = false;
    try {
      handle = await this.#fs.open(file.path);
      const { dev, ino, mtimeMs, size } = await handle.stat();
      // A file renamed since the list was made is in the next list.
      if (fileId({ dev, ino }) !== file.id) {
        reached('follow.rotated-file-renamed');
        this.#mustScan = true;
        return false;
      }
      isKeptOpen = await this.#readOpened({ ...file, mtimeMs, bytes: size }, handle);
      this.#failed.delete(file.id);
      return true;
    } catch (error) {
      return this.#fail(file, error);
    } finally {
      if (!isKeptOpen) await handle?.close();
    }
  }

  /** Returns true if the file is kept open, because a process may still write to it. */
  async #readOpened(file: RotatedFile, handle: OpenFile): Promise<boolean> {
    const { identity, isCompressed, unreadable } = await identify(handle);
    if (identity === null) {
      // Only reading shows whether a compressed file is empty or truncated.
      if (isCompressed) await this.#ingest(file, this.#contentOf(file, handle, true));
      return false;
    }
    const { hash } = identity;
    const known = this.#state().find(file, identity, isCompressed, unreadable !== null);
    if (known === undefined && this.#isOlder(file, identity, isCompressed)) return false;
    if (file.mtimeMs < this.#belongsFromMs && (known === undefined || known.state === 'finished')) {
      // A file that appeared later, but is older than the first follow of the path.
      if (known === undefined && !(await this.#wasBegun(identity))) {
        reached('follow.older-file-skipped');
        this.#settle(file, hash);
        this.#warnOfOlder(file);
        this.#state().record(file, hash, 'left_alone');
        return false;
      }
      // Files newer than one of the path belong to the path too.
      this.#belongsFromMs = file.mtimeMs;
    }
    if (known) {
      if (!this.#settled.has(file.id)) reached('follow.known-file-skipped');
      this.#settle(file, hash);
      return false;
    }
    if (unreadable !== null) {
      // It may still be written, and would cause a warning at each look.
      if (this.#isRecent(file.ctimeMs, SETTLE_MS)) throw unreadable;
      this.#leaveCompressed(file, hash, unreadable);
      return false;
    }
    if (!isCompressed && this.#isRecent(file.mtimeMs, RETIRE_MS) && this.#retiring.length < RETIRING_MAX) {
      reached('follow.recent-file-kept-open');
      const tail = await Tail.open(handle, this.#tailOptions(), true);
      const belongs = tail.countedFirstLineHash !== null || file.hasRotatedName;
      const { hasRotatedName } = file;
      if (belongs) this.#retiring.push({ tail, hasRotatedName, grownAt: this.#options.now() });
      else await this.#leaveOther(file, identity);
      return belongs;
    }
    if (isCompressed) reached('follow.compressed-file-read');
    const state = await this.#ingest(file, this.#contentOf(file, handle, isCompressed));
    const after = await this.#fs.stat(file.path).catch(() => null);
    const isUnchanged = after !== null && fileId(after) === file.id && after.mtimeMs === file.mtimeMs;
    if (state === 'interrupted' || !isUnchanged || after.size !== file.bytes) {
      reached('follow.rotated-file-changed-during-read');
      this.#mustScan = true;
    } else if (state === 'nothing known' && !file.hasRotatedName) await this.#leaveOther(file, identity);
    else this.#finished(file, hash);
    return false;
  }

  async #ingest(
    file: RotatedFile,
    stream: AsyncIterable<Uint8Array>,
  ): Promise<'read to its end' | 'nothing known' | 'interrupted'> {
    const { ingest, store, pipeline, counted, stop } = this.#options;
    const rotated = file.hasRotatedName ? 'whole' : 'if begun';
    const { begin } = this.#tailOptions();
    let isKnown = false;
    const progress = ingestFile(stream, ingest, store, pipeline, { rotated, stop, begin });
    for await (const step of progress) {
      isKnown = true;
      if (step.kind === 'counted') counted(step.outcome);
    }
    if (stop.aborted) return 'interrupted';
    return isKnown ? 'read to its end' : 'nothing known';
  }

  async #readRetiring(file: RetiringFile): Promise<void> {
    const { now, stop } = this.#options;
    const { tail, hasRotatedName } = file;
    let read = await tail.read();
    while (read === 'more' && !stop.aborted) {
      file.grownAt = now();
      read = await tail.read();
    }
    if (read === 'truncated') {
      reached('follow.retiring-file-truncated');
      return tail.locate(true);
    }
    if (read === 'grown') {
      reached('follow.retiring-file-grown');
      file.grownAt = now();
    }
    if (stop.aborted || now() - file.grownAt < RETIRE_MS) return;
    // Read before the last lines, so that a later write makes the file look unfinished.
    const { mtimeMs, size } = await tail.stat();
    if (!(await tail.finish())) {
      reached('follow.finish-refused');
      return;
    }
    reached('follow.retiring-file-finished');
    const hash = await tail.firstLineHash();
    if (hash !== null) this.#finished({ id: tail.id, mtimeMs, bytes: size, hasRotatedName }, hash);
    await this.#state().save();
    this.#retiring = this.#retiring.filter((other) => other !== file);
    await tail.close();
  }

  async #openLive(): Promise<Tail | null> {
    const handle = await this.#fs.open(this.#path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      reached('follow.live-file-missing');
      return null;
    });
    if (handle === null) return null;
    try {
      return await Tail.open(handle, this.#tailOptions(), false);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** After copytruncate: lines that had not been read are in the copy. */
  async #restartLive(live: Tail): Promise<void> {
    reached('follow.live-file-truncated');
    const before = live.countedFirstLineHash;
    await this.#scan();
    if (before !== null && (await this.#isRead(before))) reached('follow.copy-of-truncated-file-read');
    else if (before !== null) {
      reached('follow.truncated-without-copy');
      this.#options.warn(
        `${this.#path} was truncated, and no rotated copy of it was found; lines written just before that may be lost`,
      );
    }
    await live.locate(false);
  }

  async #directoryChanged(): Promise<boolean> {
    const timesMs = await this.#readDirectoryTimes();
    if (!isDeepStrictEqual(timesMs, this.#directoryTimesMs)) return true;
    return timesMs.some((timeMs) => this.#isRecent(timeMs, FILE_TIME_MS_MAX));
  }

  async #readDirectoryTimes(): Promise<number[]> {
    const directories = new Set((await pathAndTarget(this.#path, this.#fs)).map((name) => dirname(name)));
    const timesMs: number[] = [];
    for (const directory of directories)
      timesMs.push((await this.#fs.stat(directory).catch(() => null))?.mtimeMs ?? 0);
    return timesMs;
  }

  /** Whether a file that could not be read has changed, and is no longer changing. */
  async #failureChanged(): Promise<boolean> {
    for (const [id, { path, ctimeMs, isFinal }] of this.#failed) {
      const now = await this.#fs.stat(path).catch(() => null);
      if (now === null || this.#isRecent(now.ctimeMs, SETTLE_MS) || (isFinal && now.ctimeMs === ctimeMs))
        continue;
      reached('follow.failed-file-changed');
      this.#failed.delete(id);
      return true;
    }
    return false;
  }

  /** Records a damaged or unreadable file, which must not block the others. Returns false if it must be read again. */
  #fail(file: RotatedFile, error: unknown): boolean {
    const { code, message } = error as NodeJS.ErrnoException;
    // Another process counts it, or it was written again or renamed since the list was made: the next list shows which.
    const isOther = error instanceof FileConflict || error instanceof FileChanged || code === 'ENOENT';
    if (error instanceof FileConflict) reached('follow.rotated-file-conflict');
    if (error instanceof FileChanged) reached('follow.rotated-file-overwritten');
    if (code === 'ENOENT') reached('follow.rotated-file-vanished');
    if (error instanceof LinesInFuture) this.#doubt = error;
    if (isOther || error instanceof LinesInFuture) {
      this.#mustScan = true;
      return false;
    }
    const isCompressed = error instanceof CompressedInput;
    if (typeof code !== 'string' && !isCompressed) throw error;
    reached('follow.rotated-file-unreadable');
    const isFinal = !this.#isRecent(file.ctimeMs, SETTLE_MS);
    this.#failed.set(file.id, { path: file.path, ctimeMs: file.ctimeMs, isFinal });
    if (!isFinal) return true;
    if (isCompressed) this.#warnCompressed(file, error);
    else
      this.#options.warn(
        `${file.path} (${formatBytes(file.bytes)}) cannot be read to its end (${message}); ` +
          'lines before that are counted, and the file is read again when it changes',
      );
    return true;
  }

  #settle({ id, mtimeMs, bytes, hasRotatedName }: SettledFile, hash: string): void {
    this.#settled.set(id, { mtimeMs, bytes, hash, hasRotatedName });
  }

  #finished(file: SettledFile, hash: string): void {
    this.#settle(file, hash);
    this.#state().record(file, hash, 'finished');
  }

  /**
   * Whether the file begins like one that was left alone, but has another time: compression did not keep it, or a line
   * was added. Warns if this process did not see the change, because it may be another file.
   */
  #isOlder(file: RotatedFile, identity: FileIdentity, isCompressed: boolean): boolean {
    const older = this.#state().findOlder(file, identity, isCompressed);
    if (older === undefined) return false;
    const isSame = this.#settled.get(file.id)?.hash === identity.hash;
    if (!isSame)
      this.#warnSkipped(file, `it begins like a file that is older than the first follow of ${this.#path}`);
    this.#settle(file, identity.hash);
    this.#state().forget(older);
    this.#state().record(file, identity.hash, 'left_alone');
    return true;
  }

  async #leaveOther(file: RotatedFile, identity: FileIdentity): Promise<void> {
    this.#settle(file, identity.hash);
    // A shorter copy of a counted file.
    if (await this.#wasBegun(identity)) {
      reached('follow.file-was-begun-elsewhere');
      return;
    }
    reached('follow.other-name-skipped');
    this.#warnSkipped(file, 'its name does not look rotated');
    this.#state().record(file, identity.hash, 'other_name');
  }

  #leaveCompressed(file: RotatedFile, hash: string, compressed: CompressedInput): void {
    this.#settle(file, hash);
    this.#warnCompressed(file, compressed);
    this.#state().record(file, hash, 'other_name');
  }

  async #wasBegun(identity: FileIdentity): Promise<boolean> {
    const isBegun = this.#state().current.begun?.first_line_hash === identity.hash;
    return isBegun || this.#isCounted(identity);
  }

  /** Whether the source has a chunk with this first line. */
  async #isCounted(identity: FileIdentity): Promise<boolean> {
    const { ingest, store } = this.#options;
    const links = await store.batchesAfter(ingest.project, ingest.source.name, identity.start);
    return links.some(({ firstLineHash }) => firstLineHash === identity.hash);
  }

  #warnOfOlder(file: RotatedFile): void {
    this.#warnSkipped(file, `it is older than the first follow of ${this.#path}`);
  }

  #warnCompressed(file: RotatedFile, compressed: CompressedInput): void {
    const run = compressed.ingest(file.path);
    this.#options.warn(skipped(file, `it is ${compressed.what}. To count it, run ${run}`));
  }

  #warnSkipped(file: RotatedFile, reason: string): void {
    const plain = file.path.replace(UNSUPPORTED_COMPRESSION, '');
    const how = plain === file.path ? 'To count it,' : 'To count it, decompress it first, then';
    this.#options.warn(skipped(file, `${reason}. ${how} run 'wafstat ingest ${pathInCommand(plain)}'`));
  }

  #state(): FollowedState {
    if (this.#followed === null) throw new Error('the state of the path is loaded before any file is read');
    return this.#followed;
  }

  #isRecent(timeMs: number, withinMs: number): boolean {
    return Math.abs(this.#fs.now() - timeMs) < withinMs;
  }

  #contentOf({ bytes }: RotatedFile, handle: OpenFile, isCompressed: boolean): AsyncIterable<Uint8Array> {
    return isCompressed
      ? openLog(handle, undefined, bytes)
      : new PlainFile(handle, undefined, bytes, this.#fs);
  }

  #tailOptions() {
    return {
      ...this.#options,
      fs: this.#fs,
      begin: (firstLineHash: string) => {
        const state = this.#state().begin(firstLineHash, this.#options.now());
        if (this.#begunBefore === null) return state;
        // If this process is killed before it warns that the earlier file is gone, the next one must do so.
        this.#begunMeanwhile = state.begun;
        state.begun = this.#begunBefore;
        return state;
      },
    };
  }
}

const UNSUPPORTED_COMPRESSION = /\.(?:xz|bz2|zst|lz4|lzma|br|zip|Z)$/;

function skipped({ path, bytes }: RotatedFile, reasonAndRemedy: string): string {
  return `${path} (${formatBytes(bytes)}) is skipped: ${reasonAndRemedy} with the same --project and --source`;
}

function formatBytes(bytes: number): string {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return power === 0
    ? `${bytes} bytes`
    : `${(bytes / 1_000 ** power).toFixed(1)} ${['kB', 'MB', 'GB', 'TB'][power - 1]}`;
}
