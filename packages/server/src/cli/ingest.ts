/** `ingest`: log files into the store. */
import { availableParallelism } from 'node:os';
import { setFlagsFromString } from 'node:v8';
import { decompress, openLog, ProgramMissing } from '../ingest/byte-stream.ts';
import { parserSetup } from '../ingest/chunk-parser.ts';
import { CompressedInput } from '../ingest/compression.ts';
import { FileConflict, type FileIngest, ingestFile, type Turn } from '../ingest/file.ts';
import { findInputs, type InputFile } from '../ingest/inputs.ts';
import { ParserThreads, THREADS_MAX, ThreadFailed } from '../ingest/parser-threads.ts';
import { LinesInFuture, type Pipeline } from '../ingest/pipeline.ts';
import { FileChanged, PlainFile } from '../ingest/plain-file.ts';
import { afterRunning } from '../running-time.ts';
import {
  type Store,
  StoreDamaged,
  StoreMisconfigured,
  StoreNotWritable,
  StoreUnavailable,
} from '../store/store.ts';
import { command, type Io, NO_BAR, openStdin, progressBar, readProblem, UserError, warn } from './command.ts';
import { IngestSummary, STANDARD_INPUT } from './ingest-summary.ts';
import { withProject } from './installation.ts';
import {
  CORRECT_CLOCK,
  LOG_OPTIONS,
  logSource,
  pauseFor,
  RETRY_MS,
  readLimits,
  startsLikeErrorLog,
  throwFailure,
} from './log-source.ts';
import { openGeoIp } from './open-geoip.ts';
import { patternProblems, readerOptions } from './reader-options.ts';

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

export const ingestCommand = command({
  examples: [
    'wafstat ingest --data ./data --project shop /var/log/nginx/access.log*',
    'wafstat ingest --data ./data --project shop ./logs archive.log.zst',
  ],
  options: LOG_OPTIONS,
  check: patternProblems,
  async run(values, operands, io) {
    io.letQueriesGoFirst?.();
    setFlagsFromString(OPTIMIZE_LATER);
    const { files, problems, skipped } = findInputs(operands);
    const errors = problems.map(({ path, code }) => new UserError(readProblem(path, code)));
    for (const { path, what } of skipped) warn(io, `${path} is skipped: it is ${what}`);
    if (files.length === 0) return printErrors(errors, io);
    const left = { bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
    return withProject(values, io, async (store, project) => {
      const { horizon, freedBefore } = await store.retention();
      // Known to the readers, so that they report the lines that the store would not count.
      const limits = { ...readLimits(values), horizon };
      const geo = await openGeoIp(values.geoip);
      const parsers = new ParserThreads(parserSetup(readerOptions(values), limits), parserThreads());
      const run = {
        ...logSource(store, { ...values, project }, limits, io, geo),
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

/** One thread per core, although the main thread counts what they read: while it waits, they use its core. */
function parserThreads(): number {
  const cores = availableParallelism();
  return cores === 1 ? 0 : Math.min(cores, THREADS_MAX);
}

/** Returns the exit status. */
function printErrors(errors: readonly UserError[], io: Io): 0 | 1 {
  for (const { message } of errors) warn(io, message, 'red');
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
          if (error instanceof FileChanged && !hasChanged) warn(io, `${name}: ${LOST}`);
          hasChanged ||= error instanceof FileChanged;
          if (error instanceof FileChanged) reported = 0;
          await startAgain();
          continue;
        }
        if (isOutage(error) && isRegular && !io.stop.aborted && !outage.isOver) {
          place?.hold();
          bar.end();
          if (outage.begin()) warn(io, `${(error as Error).message}; retrying`);
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

function nameOf(file: string): string {
  return file === '-' ? STANDARD_INPUT : file;
}
