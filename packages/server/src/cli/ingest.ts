/** `ingest` and `follow`: log files into the store. */
import { existsSync, readdirSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { availableParallelism, constants, getPriority, setPriority } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { COUNTING_OPTIONS, DATA, STORE_OPTIONS } from '../config.ts';
import type { Outcome, ReadLimits } from '../ingest/batch-reader.ts';
import { decompress, openLog } from '../ingest/byte-stream.ts';
import { rememberFirstLinks } from '../ingest/checkpoints.ts';
import { parserSetup } from '../ingest/chunk-parser.ts';
import { CompressedInput } from '../ingest/compression.ts';
import { FileConflict, type FileIngest, ingestFile } from '../ingest/file.ts';
import { Follower } from '../ingest/follow.ts';
import { ParserThreads, THREADS_MAX, ThreadFailed } from '../ingest/parser-threads.ts';
import { Pipeline } from '../ingest/pipeline.ts';
import { FileChanged, PlainFile } from '../ingest/plain-file.ts';
import { isSourceName } from '../printable.ts';
import { type Store, StoreUnavailable } from '../store/store.ts';
import { command, type Io, openStdin, printLine, progressBar, readProblem, UserError } from './command.ts';
import { hostWarnings, IngestSummary, STANDARD_INPUT } from './ingest-summary.ts';
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
const LOST =
  'the file was truncated or overwritten while it was read: lines that were not read before are lost, unless you ingest a copy';
/** Lines show in queries within a second of being written: this, a commit, and some reserve. */
const POLL_MS = 200;
/** System calls that fail if a followed file cannot be read. */
const FILE_CALLS = ['open', 'read', 'stat', 'fstat'];
/** The pause after the store or a file was unavailable. */
const RETRY_MS = 2_000;

export const ingestCommand = command({
  name: 'ingest <file...>',
  description:
    "count the lines of log files; reads plain and gzip files, and standard input ('-'); skips lines that were read before",
  examples: [
    'wafstat ingest --data ./data --project shop /var/log/nginx/access.log*',
    'zstdcat access.log.zst | wafstat ingest --data ./data --project shop -',
  ],
  options: OPTIONS,
  check: patternProblems,
  async run(values, files, io) {
    letQueriesGoFirst();
    setFlagsFromString(OPTIMIZE_LATER);
    const left = { bytes: 0 };
    for (const file of files) left.bytes += await readableBytes(file);
    return withProject(values, io, async (opened, project) => {
      const { horizon, freedBefore } = await opened.retention();
      // Known to the readers, so that they report the lines that the store would not count.
      const limits = { ...readLimits(values), horizon };
      const parsers = new ParserThreads(parserSetup(readerOptions(values), limits), parserThreads());
      // A conflict needs a second read, which a stream does not allow.
      const store = files.includes('-')
        ? opened
        : rememberFirstLinks(opened, { project, source: { name: values.source, format: values.format } });
      const { ingest, pipeline } = logSource(store, { ...values, project }, limits, io);
      const summary = new IngestSummary(io, { ...limits, freedBefore });
      const errors: UserError[] = [];
      try {
        for (const file of files) {
          const error = await ingestOne(file, ingest, store, pipeline, parsers, left, summary, io);
          if (error !== null) errors.push(error);
        }
      } finally {
        await parsers.close();
        // Printed even after an error: what was counted before it stays counted.
        summary.print();
      }
      for (const { message } of errors) printLine(io.stderr, `wafstat: ${message}`);
      return errors.length > 0 || io.stop.aborted ? 1 : 0;
    });
  },
});

export const followCommand = command({
  name: 'follow <file...>',
  description: 'count the lines of log files as they are written; continues across log rotation and restarts',
  examples: ['wafstat follow --data ./data --project shop /var/log/nginx/access.log'],
  options: OPTIONS,
  check: patternProblems,
  run: (values, files, io) => {
    letQueriesGoFirst();
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
      const followers = files.map((path) => {
        const warn = (message: string) => printLine(io.stderr, `wafstat: ${message}`);
        const warnOfHosts = hostWarnings((message) => warn(`${path}: ${message}`));
        const counted = (outcome: Outcome) => {
          summary.addOutcome(path, outcome);
          warnOfHosts(outcome);
        };
        if (!existsSync(path)) warn(`${path} does not exist yet: waiting for it`);
        const options = { path, ingest, store, pipeline, now: io.now, stop: io.stop, counted, warn };
        return followOne(new Follower(options), path, io);
      });
      notifyReady(io);
      await Promise.all(followers);
      summary.print();
      return 0;
    };
    // It starts with the machine, perhaps before the database.
    return withProject(values, io, followAll, { waits: true });
  },
});

/**
 * Lowers the priority, because a service on the same machine has clients that wait. While 50,000 events per second came in on
 * two cores, its main thread waited 10 ms in a second for `follow`; with this, it waits 3.
 */
function letQueriesGoFirst(): void {
  const nice = Math.max(getPriority(), constants.priority.PRIORITY_BELOW_NORMAL);
  try {
    // On Linux, every thread has its own priority. Threads that start later inherit that of the main thread.
    const threads = process.platform === 'linux' ? readdirSync('/proc/self/task').map(Number) : [0];
    for (const thread of threads) setPriority(thread, nice);
  } catch {
    // Not allowed, for example in the systemd unit, which has its own setting.
  }
}

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

/** Resolves to the error that kept the file from being read to its end, so that the other files are still read. */
async function ingestOne(
  file: string,
  ingest: FileIngest,
  store: Store,
  pipeline: Pipeline,
  parsers: ParserThreads,
  left: { bytes: number },
  summary: IngestSummary,
  io: Io,
): Promise<UserError | null> {
  const isStdin = file === '-';
  const name = nameOf(file);
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const stats = isStdin ? null : await stat(file);
  // A named pipe has no size, and cannot be read again.
  const total = stats?.size || null;
  const isRereadable = stats?.isFile() ?? false;
  const advance = (bytes: number) => {
    left.bytes -= bytes;
    bar.advance(bytes);
  };
  let bar = progressBar(io, name, total, megabytes);
  let hasChanged = false;
  try {
    for (let retries = 0; ; retries++) {
      try {
        // The size of a compressed file is known only before decompression.
        const plain = isRereadable ? await PlainFile.open(file, advance) : null;
        const stream = plain ?? (isStdin ? decompress(openStdin(io)) : openLog(file, advance));
        const options = { eager: isStdin, stop: io.stop, parsers, bytesLeft: () => left.bytes };
        for await (const progress of ingestFile(stream, ingest, store, pipeline, options)) {
          summary.add(isStdin ? null : file, progress);
          if (progress.kind !== 'unfinished') bar.advance(isStdin ? progress.bytes : 0, progress.lines);
        }
        return null;
      } catch (error) {
        // The next try reads the file from its start, and skips what has been counted. After a thread has failed, it uses
        // no threads.
        const isTemporary = TEMPORARY.some((kind) => error instanceof kind);
        if (isTemporary && isRereadable && retries < RETRIES_MAX) {
          bar.end();
          if (error instanceof FileChanged && !hasChanged) printLine(io.stderr, `wafstat: ${name}: ${LOST}`);
          hasChanged ||= error instanceof FileChanged;
          bar = progressBar(io, name, total, megabytes);
          continue;
        }
        if (io.stop.aborted) return null;
        return ingestError(error, file);
      }
    }
  } finally {
    bar.end();
  }
}

function ingestError(error: unknown, file: string): UserError {
  const { code, message } = error as NodeJS.ErrnoException;
  const name = nameOf(file);
  if (error instanceof CompressedInput)
    return new UserError(error.remedy(file === '-' ? null : file, 'ingest ... -'));
  if (error instanceof FileConflict)
    return new UserError(`${name}: another run is counting the same lines right now`);
  if (error instanceof FileChanged || error instanceof ThreadFailed)
    return new UserError(`${name}: ${message}; run the command again`);
  if (code?.startsWith('Z_'))
    return new UserError(
      `${name} is damaged or truncated gzip (${message}); the lines before the damage are counted`,
    );
  if (code?.startsWith('E')) return new UserError(readProblem(name, code));
  throw error;
}

function nameOf(file: string): string {
  return file === '-' ? STANDARD_INPUT : file;
}

/** The size of the file; 0 if it is unknown. */
async function readableBytes(file: string): Promise<number> {
  if (file === '-') return 0;
  const stats = await stat(file).catch(({ code = 'unknown error' }: NodeJS.ErrnoException) => {
    throw new UserError(readProblem(file, code));
  });
  if (stats.isDirectory()) throw new UserError(readProblem(file, 'EISDIR'));
  return stats.size;
}

async function followOne(follower: Follower, path: string, io: Io): Promise<void> {
  const pause = (ms: number) => sleep(ms, undefined, { signal: io.stop }).catch(() => {});
  let problem: string | null = null;
  while (!io.stop.aborted) {
    try {
      const hasMore = await follower.look();
      if (problem !== null) {
        const missing = existsSync(path) ? null : `${path} does not exist: waiting for it`;
        if (missing !== problem) printLine(io.stderr, `wafstat: ${missing ?? `${path}: reading continues`}`);
        problem = missing;
      }
      if (!hasMore) await pause(POLL_MS);
    } catch (error) {
      // No lines are lost: the position in the file is stored with the counts.
      const found = followProblem(error, path);
      if (found !== problem) printLine(io.stderr, `wafstat: ${found}`);
      problem = found;
      await pause(RETRY_MS);
    }
  }
  await follower.close();
}

/** A problem that may pass. Throws other errors. */
function followProblem(error: unknown, path: string): string {
  const { code, syscall = '', message } = error as NodeJS.ErrnoException;
  if (error instanceof CompressedInput)
    return `${error.remedy(path, 'ingest ... -')}; waiting for another file`;
  if (error instanceof StoreUnavailable) return `${path}: ${message}; retrying`;
  if (!code) throw error;
  return `${FILE_CALLS.includes(syscall) ? readProblem(path, code) : `${path}: ${message}`}; retrying`;
}

function sourceName(value: string): string {
  if (!isSourceName(value)) throw new Error('must be 1 to 128 characters, none of them invisible');
  return value;
}
