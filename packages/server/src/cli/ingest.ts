/** `ingest` and `follow`: log files into the store. */
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { COUNTING_OPTIONS, DATA, STORE_OPTIONS } from '../config.ts';
import { FIRST_BYTES, isErrorLog, type Outcome, type ReadLimits } from '../ingest/batch-reader.ts';
import { ByteReader, decompress, openLog, ProgramMissing } from '../ingest/byte-stream.ts';
import { parserSetup } from '../ingest/chunk-parser.ts';
import { CompressedInput } from '../ingest/compression.ts';
import { FileConflict, type FileIngest, ingestFile, type Turn } from '../ingest/file.ts';
import { Follower } from '../ingest/follow.ts';
import { findInputs, type InputFile, isPatternOnly, MatchingLogs } from '../ingest/inputs.ts';
import { ParserThreads, THREADS_MAX, ThreadFailed } from '../ingest/parser-threads.ts';
import { LinesInFuture, Pipeline } from '../ingest/pipeline.ts';
import { FileChanged, PlainFile } from '../ingest/plain-file.ts';
import { rotatedFiles } from '../ingest/rotated-files.ts';
import { FILE_REPLACED } from '../lmdb/commit.ts';
import { isSourceName } from '../printable.ts';
import { afterRunning } from '../running-time.ts';
import {
  type Store,
  StoreDamaged,
  StoreMisconfigured,
  StoreNotWritable,
  StoreUnavailable,
} from '../store/store.ts';
import {
  command,
  type Io,
  NO_BAR,
  openStdin,
  printLine,
  progressBar,
  readProblem,
  UserError,
} from './command.ts';
import { hostWarnings, IngestSummary, idWarning, STANDARD_INPUT } from './ingest-summary.ts';
import { withProject } from './installation.ts';
import { oneOf, option, PROJECT, required, type Values } from './options.ts';
import { patternProblems, READER_OPTIONS, readerOptions } from './reader-options.ts';
import { notifyReady } from './systemd.ts';

const OPTIONS = {
  data: DATA,
  project: required(PROJECT),
  source: option('--source <name>', 'name of the log source', sourceName, { default: 'default' }),
  ...READER_OPTIONS,
  hosts: option(
    '--hosts <auto|registered>',
    'auto: register unknown hosts; registered: count their events in the project total only',
    oneOf('auto', 'registered'),
    { default: 'auto' },
  ),
  ...COUNTING_OPTIONS,
  ...STORE_OPTIONS,
};

/**
 * V8 optimizes a function when it has run this many bytes of code: 67,584 by default in Node.js 20.20. Functions that run
 * once per chunk reach the default too, in every thread, and gain nothing. With the default, compiling takes a fifth of the
 * processor time of three million lines; with this value, it takes a tenth.
 */
const OPTIMIZE_LATER = '--interrupt-budget=500000';

/** Errors that do not prevent another try. */
const TEMPORARY = [FileChanged, FileConflict, ThreadFailed];
/**
 * Two runs over one file at once conflict a few times at most: each time one of them has progressed. A file that changes
 * more often than this is not a log.
 */
const RETRIES_MAX = 100;
/** How long a store that fails is tried again: it may be busy, restart, or change its primary. */
const OUTAGE_MS_MAX = 60_000;
const LOST =
  'the file was truncated or overwritten while it was read: lines that were not read before are lost, unless you ingest a copy';
const CORRECT_CLOCK = 'correct the clock of this machine, or that of the machine that wrote the log';
/** Lines show in queries within a second of being written: this, a commit, and some reserve. */
const POLL_MS = 200;
/** System calls that fail if a followed file cannot be read. */
const FILE_CALLS = ['open', 'read', 'stat', 'fstat'];
/** How often `follow` looks for new logs that match a pattern. */
const MATCH_MS = 1_000;
/** Logs of one pattern. Each takes some 20 system calls a second. */
const MATCHES_MAX = 500;
/** A log that has been missing for longer is not being rotated. Longer than a rotated file is read to its end. */
const GONE_MS = 120_000;
/** The pause after the store or a file was unavailable. */
const RETRY_MS = 2_000;

export const ingestCommand = command({
  name: 'ingest <file...>',
  description:
    "count the lines of log files, also compressed ones, of directories, and of standard input ('-'); skips lines that were read before",
  examples: [
    'wafstat ingest --data ./data --project shop /var/log/nginx/access.log*',
    'wafstat ingest --data ./data --project shop ./logs archive.log.zst',
  ],
  options: OPTIONS,
  check: patternProblems,
  async run(values, operands, io) {
    io.letQueriesGoFirst?.();
    setFlagsFromString(OPTIMIZE_LATER);
    const { files, problems, skipped } = findInputs(operands);
    const errors = problems.map(({ path, code }) => new UserError(readProblem(path, code)));
    for (const { path, what } of skipped) printLine(io.stderr, `wafstat: ${path} is skipped: it is ${what}`);
    if (files.length === 0) return printErrors(errors, io);
    const left = { bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
    return withProject(values, io, async (store, project) => {
      const { horizon, freedBefore } = await store.retention();
      // Known to the readers, so that they report the lines that the store would not count.
      const limits = { ...readLimits(values), horizon };
      const parsers = new ParserThreads(parserSetup(readerOptions(values), limits), parserThreads());
      const run = {
        ...logSource(store, { ...values, project }, limits, io),
        store,
        left,
        outage: new Outage(),
      };
      const summary = new IngestSummary(io, { ...limits, freedBefore });
      try {
        const sorted = await errorLogsLast(files);
        errors.push(...(await ingestAll(sorted, { ...run, parsers, summary, io })));
      } finally {
        await parsers.close();
        // Printed even after an error: what was counted before it stays counted.
        summary.print();
      }
      return printErrors(errors, io) || (io.stop.aborted ? 1 : 0);
    });
  },
});

export const followCommand = command({
  name: 'follow <file...>',
  description: 'count the lines of log files as they are written; continues across log rotation and restarts',
  examples: [
    'wafstat follow --data ./data --project shop /var/log/nginx/access.log',
    "wafstat follow --data ./data --project shop '/var/log/nginx/*.log'",
  ],
  options: OPTIONS,
  check: patternProblems,
  run: (values, files, io) => {
    io.letQueriesGoFirst?.();
    const followAll = async (store: Store, project: string) => {
      const limits = readLimits(values);
      const { ingest, pipeline } = logSource(store, { ...values, project }, limits, io);
      // For the summary only: the horizon may move back while the command runs.
      const state = await store.retention().catch(() => null);
      const summary = new IngestSummary(io, {
        ...limits,
        horizon: state?.horizon,
        freedBefore: state?.freedBefore,
      });
      printLine(io.stderr, `wafstat follows ${files.join(', ')}`);
      const warnOfIds = idWarning((message) => printLine(io.stderr, `wafstat: ${message}`));
      const looking = new Set<Looking>();
      const holdsErrorLog = files.length > 1 || files.some(isPatternOnly);
      const follow = async (path: string, isMatch = false) => {
        const warn = (message: string) => printLine(io.stderr, `wafstat: ${message}`);
        const warnOfHosts = hostWarnings((message) => warn(`${path}: ${message}`));
        const counted = (outcome: Outcome) => {
          summary.addOutcome(path, outcome);
          warnOfHosts(outcome);
          warnOfIds(outcome);
        };
        if (!existsSync(path)) warn(`${path} does not exist yet: waiting for it`);
        const { now, stop } = io;
        const options = { path, ingest, store, pipeline, now, stop, holdsErrorLog, counted, warn };
        return followOne(new Follower(options), path, io, isMatch, looking);
      };
      const followers = files.map((file) =>
        isPatternOnly(file) ? followMatches(file, (path) => follow(path, true), io) : follow(file),
      );
      notifyReady(io);
      await Promise.all(followers);
      summary.print();
      return 0;
    };
    // It starts with the machine, perhaps before the database.
    return withProject(values, io, followAll, { waits: true });
  },
});

/** One thread per core, although the main thread counts what they read: while it waits, they use its core. */
function parserThreads(): number {
  const cores = availableParallelism();
  return cores === 1 ? 0 : Math.min(cores, THREADS_MAX);
}

/** `project` is an ID here. */
function logSource(
  store: Store,
  values: Values<Omit<typeof OPTIONS, 'data' | keyof typeof STORE_OPTIONS>>,
  read: ReadLimits,
  io: Io,
): { ingest: FileIngest; pipeline: Pipeline } {
  const { project, source, format, hosts, hostsMax, sourcesMax } = values;
  const limits = {
    ...read,
    hostsMax: hosts === 'registered' ? 0 : hostsMax,
    sourcesMax,
  };
  return {
    ingest: { project, source: { name: source, format }, reader: readerOptions(values) },
    pipeline: new Pipeline(store, limits, io.now),
  };
}

function readLimits({
  retention,
  attackSources,
}: Pick<Values<typeof OPTIONS>, 'retention' | 'attackSources'>): ReadLimits {
  return { retentionMs: retention, attackSources };
}

/** Returns the exit status. */
function printErrors(errors: readonly UserError[], io: Io): 0 | 1 {
  for (const { message } of errors) printLine(io.stderr, `wafstat: ${message}`);
  return errors.length > 0 ? 1 : 0;
}

interface Run {
  ingest: FileIngest;
  pipeline: Pipeline;
  store: Store;
  parsers: ParserThreads;
  /** What is still to be read. */
  left: { bytes: number };
  /** The files fail together. */
  outage: Outage;
  summary: IngestSummary;
  io: Io;
}

/**
 * Files up to this size are read while those before them are being counted, so that they share commits: 2,000 files of one
 * line take a tenth of the time. Their lines take less memory than the chunks of one large file: what is larger when it is
 * decompressed waits for its turn.
 */
const SMALL_FILE_BYTES_MAX = 65_536;
const SMALL_FILES_AT_ONCE = 64;

/** The place of a small file in the order in which files are counted. */
interface Place {
  turn: Turn;
  /** Resolves when all files before have been counted, or have failed. */
  allBefore: Promise<unknown>;
  /** From now on, later files wait until this one has been counted: it is tried again. */
  hold(): void;
  /** Whether another file has met an error that ends the run. */
  hasFailed(): boolean;
}

/** Resolves to the errors that kept files from being read to their end. Other files are still read, and counted in order. */
export async function ingestAll(files: readonly InputFile[], run: Run): Promise<UserError[]> {
  const errors: UserError[] = [];
  const doubted: InputFile[] = [];
  let failure: { error: unknown } | null = null;
  const reading = new Set<Promise<void>>();
  const held = new Set<InputFile>();
  let handedOver: Promise<unknown> = Promise.resolve();
  let counted: Promise<unknown> = Promise.resolve();
  for (const file of files) {
    const isSmall = file.isRegular && file.bytes <= SMALL_FILE_BYTES_MAX;
    while (reading.size >= (isSmall ? SMALL_FILES_AT_ONCE : 1)) await Promise.race(reading);
    if (run.io.stop.aborted || failure !== null) break;
    const allBefore = counted;
    // A file that is tried again was handed over before.
    const before = handedOver.then(() => (held.size > 0 ? allBefore : null));
    let finish = () => {};
    const own = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const place: Place = {
      turn: { before, finish },
      allBefore,
      hold: () => held.add(file),
      hasFailed: () => failure !== null,
    };
    const done: Promise<void> = ingestOne(file, run, isSmall ? place : null)
      .then((error) => {
        if (error?.cause instanceof LinesInFuture && file.isRegular) doubted.push(file);
        else if (error !== null) errors.push(error);
      })
      .catch((error: unknown) => {
        failure ??= { error };
      })
      .finally(() => {
        finish();
        held.delete(file);
        reading.delete(done);
      });
    reading.add(done);
    // A file that fails early does not let later ones overtake those before it.
    handedOver = before.then(() => own);
    counted = allBefore.then(() => done);
    if (!isSmall) await done;
  }
  await Promise.all(reading);
  // Another file may have shown that the clock is right.
  for (const file of doubted) {
    if (run.io.stop.aborted || failure !== null) break;
    const error = await ingestOne(file, run, null).catch((thrown: unknown) => {
      failure = { error: thrown };
      return null;
    });
    if (error !== null) errors.push(error);
  }
  run.outage.end();
  throwFailure(failure);
  return errors;
}

/** In a function, because the compiler does not know that callbacks set the variable. */
function throwFailure(failure: { error: unknown } | null): void {
  if (failure !== null) throw failure.error;
}

/** Resolves to the error that kept the file from being read to its end. `place` is null if no other file is being read. */
async function ingestOne(
  { path: file, bytes, isRegular }: InputFile,
  { ingest, pipeline, store, parsers, left, outage, summary, io }: Run,
  place: Place | null,
): Promise<UserError | null> {
  const isStdin = file === '-';
  const name = nameOf(file);
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  // A named pipe has no size, and cannot be read again.
  const total = bytes || null;
  let read = 0;
  const advance = (bytes: number) => {
    read += bytes;
    left.bytes -= bytes;
    bar.advance(bytes);
  };
  const startBar = () => (place === null ? progressBar(io, name, total, megabytes) : NO_BAR);
  let bar = startBar();
  let hasChanged = false;
  let turn = place?.turn;
  /** The next try reads the file from its start, and skips what has been counted. */
  const startAgain = async () => {
    bar = startBar();
    left.bytes += read;
    read = 0;
    await place?.allBefore;
    if (place) turn = { before: Promise.resolve(), finish: place.turn.finish };
  };
  /** Lines that the summary has. The next try reads them again. */
  let reported = 0;
  try {
    for (let retries = 0; !place?.hasFailed(); retries++) {
      let lines = 0;
      try {
        // The size of a compressed file is known only before decompression.
        const openPipe = () => (isStdin ? decompress(openStdin(io)) : openLog(file, advance));
        const stream = isRegular ? await PlainFile.open(file, advance, bytes, turn?.before) : openPipe();
        const bytesLeft = () => left.bytes;
        // Threads read one file at a time.
        const shared = turn ? { turn } : { parsers, bytesLeft };
        const options = { eager: isStdin, stop: io.stop, ...shared };
        for await (const progress of ingestFile(stream, ingest, store, pipeline, options)) {
          if (progress.kind === 'counted') outage.end();
          if (progress.kind !== 'unfinished') lines += progress.lines;
          if (progress.kind === 'seen' && lines <= reported) continue;
          reported = Math.max(reported, lines);
          summary.add(isStdin ? null : file, progress);
          if (progress.kind !== 'unfinished') bar.advance(isStdin ? progress.bytes : 0, progress.lines);
        }
        return null;
      } catch (error) {
        // After a thread has failed, the next try uses no threads.
        const isTemporary = TEMPORARY.some((kind) => error instanceof kind);
        if (isTemporary && isRegular && retries < RETRIES_MAX) {
          place?.hold();
          bar.end();
          if (error instanceof FileChanged && !hasChanged) printLine(io.stderr, `wafstat: ${name}: ${LOST}`);
          hasChanged ||= error instanceof FileChanged;
          if (error instanceof FileChanged) reported = 0;
          await startAgain();
          continue;
        }
        if (isOutage(error) && isRegular && !io.stop.aborted && !outage.isOver) {
          place?.hold();
          bar.end();
          if (outage.begin()) printLine(io.stderr, `wafstat: ${(error as Error).message}; retrying`);
          await pauseFor(RETRY_MS, io);
          await startAgain();
          continue;
        }
        if (io.stop.aborted) return null;
        return ingestError(error, file);
      }
    }
    return null;
  } finally {
    bar.end();
  }
}

/** A time in which the store fails, counted while this process runs: it may be busy itself. */
export class Outage {
  #timer: ReturnType<typeof afterRunning> | null = null;
  isOver = false;

  /** Returns false if it has begun before. */
  begin(): boolean {
    if (this.#timer !== null) return false;
    this.#timer = afterRunning(OUTAGE_MS_MAX, () => {
      this.isOver = true;
    });
    return true;
  }

  end(): void {
    this.#timer?.stop();
    this.#timer = null;
    this.isOver = false;
  }
}

/** Whether the store may soon work again, without anyone doing something about it. */
function isOutage(error: unknown): boolean {
  const needsHelp = [StoreDamaged, StoreMisconfigured, StoreNotWritable];
  return error instanceof StoreUnavailable && !needsHelp.some((kind) => error instanceof kind);
}

function ingestError(error: unknown, file: string): UserError {
  const { code, message } = error as NodeJS.ErrnoException;
  const name = nameOf(file);
  if (error instanceof CompressedInput)
    return new UserError(error.remedy(file === '-' ? null : file, 'ingest ... -'));
  if (error instanceof LinesInFuture)
    return new UserError(
      `${name}: ${message}. Its lines were not counted: ${CORRECT_CLOCK}, then run the command again`,
      { cause: error },
    );
  if (error instanceof FileConflict)
    return new UserError(`${name}: another run is counting the same lines right now`);
  if (error instanceof FileChanged || error instanceof ThreadFailed)
    return new UserError(`${name}: ${message}; run the command again`);
  if (error instanceof ProgramMissing) return new UserError(`cannot read ${name}: ${message}`);
  if (code?.startsWith('Z_'))
    return new UserError(
      `${name} is damaged or truncated (${message}); the lines before the damage are counted`,
    );
  if (code?.startsWith('E')) return new UserError(readProblem(name, code));
  throw error;
}

/**
 * Error logs are read last: of a request that an audit log reports too, they may have the verdict only, and what comes first
 * decides the category. Files whose names differ in numbers only, such as rotated ones, are of one kind.
 */
async function errorLogsLast(files: readonly InputFile[]): Promise<InputFile[]> {
  const kinds = new Map<string, boolean>();
  const [others, errorLogs]: [InputFile[], InputFile[]] = [[], []];
  for (const file of files) {
    const kind = file.path.replace(/[0-9a-f]*\d[0-9a-f]*/gi, '0');
    const isLast = kinds.get(kind) ?? (await startsLikeErrorLog(file.path));
    kinds.set(kind, isLast);
    (isLast ? errorLogs : others).push(file);
  }
  return [...others, ...errorLogs];
}

/** By its first lines. A log that cannot be read is reported later. */
async function startsLikeErrorLog(file: string): Promise<boolean> {
  const stats = file === '-' ? null : await stat(file).catch(() => null);
  // A pipe cannot be read twice.
  if (!stats?.isFile()) return false;
  const bytes = new ByteReader(openLog(file));
  try {
    return isErrorLog(await bytes.peek(FIRST_BYTES));
  } catch {
    return false;
  } finally {
    await bytes.close();
  }
}

function nameOf(file: string): string {
  return file === '-' ? STANDARD_INPUT : file;
}

/** Follows the logs that match a pattern, also those that appear later. */
async function followMatches(
  pattern: string,
  follow: (path: string) => Promise<void>,
  io: Io,
): Promise<void> {
  const matching = new MatchingLogs(pattern);
  const followed = new Map<string, Promise<void>>();
  let hasEnded = false;
  let failure: { error: unknown } | null = null;
  let warned = '';
  while (!io.stop.aborted && failure === null) {
    if (hasEnded || matching.mayDiffer(io.now())) {
      hasEnded = false;
      const found = matching.look(new Set(followed.keys()), io.now());
      for (const path of found) {
        if (followed.has(path) || followed.size >= MATCHES_MAX) continue;
        const following = follow(path)
          .catch((error: unknown) => {
            failure ??= { error };
          })
          .finally(() => {
            followed.delete(path);
            hasEnded = true;
          });
        followed.set(path, following);
      }
      const missed = found.filter((path) => !followed.has(path)).length;
      const problem =
        missed > 0
          ? `${pattern} matches more than ${MATCHES_MAX} logs: ${missed} of them are not followed`
          : followed.size === 0
            ? `${pattern} matches no log yet: waiting for one`
            : '';
      if (problem !== '' && problem !== warned) printLine(io.stderr, `wafstat: ${problem}`);
      warned = problem;
    }
    // Not for the logs: a promise that lives as long as the process would keep what each race over it leaves behind.
    await pauseFor(MATCH_MS, io);
  }
  throwFailure(failure);
  await Promise.all(followed.values());
  throwFailure(failure);
}

const pauseFor = (ms: number, io: Io) => sleep(ms, undefined, { signal: io.stop }).catch(() => {});

/** A log that is followed, for those that wait for it. */
interface Looking {
  /** False for error logs, and for logs that cannot be read. */
  isAwaited: boolean;
  /** Called when a look that begins from now on has found the end of the log. */
  waiting: (() => void)[];
}

/** Resolves when the other logs have been read to the end that they have now, or further. */
async function othersAreRead(all: ReadonlySet<Looking>, one: Looking): Promise<void> {
  const others = [...all].filter((other) => other !== one && other.isAwaited);
  await Promise.all(others.map(({ waiting }) => new Promise<void>((end) => waiting.push(end))));
}

/**
 * `isMatch`: the path was found by a pattern, so it is no longer followed when the log is gone for good. `all`: the logs of
 * the command. An error log is read after the others, so that the audit records of its requests are counted first.
 */
async function followOne(
  follower: Follower,
  path: string,
  io: Io,
  isMatch: boolean,
  all: Set<Looking>,
): Promise<void> {
  const looking: Looking = { isAwaited: true, waiting: [] };
  all.add(looking);
  // The first look reads rotated files, too.
  const [rotated] = (await rotatedFiles(resolve(path))).slice(-1);
  looking.isAwaited = !(
    (await startsLikeErrorLog(path)) ||
    (rotated && (await startsLikeErrorLog(rotated.path)))
  );
  if (!looking.isAwaited) await othersAreRead(all, looking);
  let problem: string | null = null;
  let existedAt = io.now();
  while (!io.stop.aborted) {
    if (isMatch && existsSync(path)) existedAt = io.now();
    if (isMatch && io.now() - existedAt > GONE_MS) break;
    const waiting = looking.waiting.splice(0);
    let pauseMs = POLL_MS;
    let isAtEnd = true;
    try {
      isAtEnd = !(await follower.look());
      if (isAtEnd) looking.isAwaited = !follower.isErrorLog;
      else pauseMs = 0;
      if (problem !== null) {
        const missing = existsSync(path) ? null : `${path} does not exist: waiting for it`;
        if (missing !== problem) printLine(io.stderr, `wafstat: ${missing ?? `${path}: reading continues`}`);
        problem = missing;
      }
    } catch (error) {
      // No lines are lost: the position in the file is stored with the counts.
      const message = followProblem(error, path);
      // The message has the current time.
      const found = error instanceof LinesInFuture ? `lines in the future since ${error.time}` : message;
      if (found !== problem) printLine(io.stderr, `wafstat: ${message}`);
      problem = found;
      pauseMs = RETRY_MS;
      // The lines that the store has not taken come before those of an error log.
      isAtEnd = !(error instanceof StoreUnavailable);
      looking.isAwaited = !isAtEnd && !follower.isErrorLog;
    }
    if (isAtEnd) for (const end of waiting) end();
    else looking.waiting.unshift(...waiting);
    if (pauseMs === 0) continue;
    await pauseFor(pauseMs, io);
    if (follower.isErrorLog) await othersAreRead(all, looking);
  }
  all.delete(looking);
  for (const end of looking.waiting) end();
  await follower.close();
}

/** A problem that may pass. Throws other errors. */
function followProblem(error: unknown, path: string): string {
  const { code, syscall = '', message } = error as NodeJS.ErrnoException;
  if (error instanceof CompressedInput)
    return `${path} is ${error.what}: use ${error.ingest(path)}; waiting for another file`;
  if (error instanceof LinesInFuture)
    return `${path}: ${message}; ${CORRECT_CLOCK}; waiting for that, and no line is lost meanwhile`;
  // Only a new process can open the right files.
  if (error instanceof StoreNotWritable && error.trouble === FILE_REPLACED) throw error;
  if (error instanceof StoreUnavailable) return `${path}: ${message}; retrying`;
  if (!code) throw error;
  return `${FILE_CALLS.includes(syscall) ? readProblem(path, code) : `${path}: ${message}`}; retrying`;
}

function sourceName(value: string): string {
  if (!isSourceName(value)) throw new Error('must be 1 to 128 characters, none of them invisible');
  return value;
}
