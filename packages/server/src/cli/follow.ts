/** `follow`: the lines of log files into the store, as they are written. */
import { existsSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Outcome } from '../ingest/batch-reader.ts';
import { CompressedInput } from '../ingest/compression.ts';
import { Follower } from '../ingest/follow.ts';
import { isPatternOnly, MatchingLogs } from '../ingest/inputs.ts';
import { LinesInFuture } from '../ingest/pipeline.ts';
import { rotatedFiles } from '../ingest/rotated-files.ts';
import { FILE_REPLACED } from '../lmdb/commit.ts';
import { type Store, StoreNotWritable, StoreUnavailable } from '../store/store.ts';
import { command, type Io, printText, readProblem, UserError, warn } from './command.ts';
import { hostWarnings, IngestSummary, idWarning } from './ingest-summary.ts';
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
import { patternProblems } from './reader-options.ts';
import { notifyReady } from './systemd.ts';

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

export const followCommand = command({
  examples: [
    'wafstat follow --data ./data --project shop /var/log/nginx/access.log',
    "wafstat follow --data ./data --project shop '/var/log/nginx/*.log'",
  ],
  options: LOG_OPTIONS,
  check: patternProblems,
  run: (values, files, io) => {
    for (const file of files) refuseDirectory(file);
    io.letQueriesGoFirst?.();
    const followAll = async (store: Store, project: string) => {
      const limits = readLimits(values);
      const geo = await openGeoIp(values.geoip);
      geo?.watch({ info: (message) => printText(io.stderr, message), warn: (message) => warn(io, message) });
      const { ingest, pipeline } = logSource(store, { ...values, project }, limits, io, geo);
      // For the summary only: the horizon may move back while the command runs.
      const state = await store.retention().catch(() => null);
      const summary = new IngestSummary(io, {
        ...limits,
        horizon: state?.horizon,
        freedBefore: state?.freedBefore,
      });
      printText(io.stderr, `wafstat follows ${files.join(', ')}`);
      const warnOfIds = idWarning((message) => warn(io, message));
      const looking = new Set<Looking>();
      const holdsErrorLog = files.length > 1 || files.some(isPatternOnly);
      const follow = async (path: string, isMatch = false) => {
        const warnOfHosts = hostWarnings((message) => warn(io, `${path}: ${message}`));
        const counted = (outcome: Outcome) => {
          summary.addOutcome(path, outcome);
          warnOfHosts(outcome);
          warnOfIds(outcome);
        };
        if (!existsSync(path)) warn(io, `${path} does not exist yet: waiting for it`);
        const { now, stop } = io;
        const options = {
          ...{ path, ingest, store, pipeline, now, stop, holdsErrorLog, counted },
          warn: (message: string) => warn(io, message),
        };
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

function refuseDirectory(path: string): void {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
  throw new UserError(
    `${path} is a directory: follow its logs with a pattern like '${path.replace(/\/+$/, '')}/*.log', in quotes, ` +
      "or count its files once with 'wafstat ingest'",
  );
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
      if (problem !== '' && problem !== warned) warn(io, problem);
      warned = problem;
    }
    // Not for the logs: a promise that lives as long as the process would keep what each race over it leaves behind.
    await pauseFor(MATCH_MS, io);
  }
  throwFailure(failure);
  await Promise.all(followed.values());
  throwFailure(failure);
}

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
        if (missing !== problem) warn(io, missing ?? `${path}: reading continues`);
        problem = missing;
      }
    } catch (error) {
      // No lines are lost: the position in the file is stored with the counts.
      const message = followProblem(error, path);
      // The message has the current time.
      const found = error instanceof LinesInFuture ? `lines in the future since ${error.time}` : message;
      if (found !== problem) warn(io, message);
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
