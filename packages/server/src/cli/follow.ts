import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Follower } from '../ingest/follow.ts';
import type { Outcome } from '../ingest/pipeline.ts';
import { StoreUnavailable } from '../store/store.ts';
import { command, type Io, printLine } from './command.ts';
import { withProject } from './data-folder.ts';
import { logSource, SOURCE_SETTINGS } from './ingest.ts';
import { hostWarnings, IngestSummary } from './ingest-summary.ts';
import { STORE_SETTINGS } from './store.ts';

/** A line is visible in queries within a second of being written: this, a commit, and room to spare. */
const LOOK_MS = 200;
/** When the store does not answer or a file cannot be read, it is tried again after this. */
const RETRY_MS = 2_000;

export const followCommand = command({
  name: 'follow <file...>',
  about: 'count the lines of log files as they are written, through rotation and restarts',
  settings: ['data', ...SOURCE_SETTINGS, ...STORE_SETTINGS],
  required: ['project'],
  run: ({ data, ...settings }, files, io) =>
    withProject(data, io, settings, async (store, project) => {
      const { ingest, pipeline } = logSource(store, { ...settings, project }, io);
      const summary = new IngestSummary(io);
      printLine(io.stderr, `wafstat follows ${files.join(', ')}`);
      const followers = files.map((path) => {
        const warn = (message: string) => printLine(io.stderr, `wafstat: ${message}`);
        const warnOfHosts = hostWarnings((message) => warn(`${path}: ${message}`));
        const counted = (outcome: Outcome) => {
          summary.addOutcome(path, outcome);
          warnOfHosts(outcome);
        };
        const options = { path, ingest, store, pipeline, now: io.now, stop: io.stop, counted, warn };
        if (!existsSync(path)) printLine(io.stderr, `wafstat: ${path} is not there yet: waiting for it`);
        return followOne(new Follower(options), path, io);
      });
      await Promise.all(followers);
      summary.print();
      return 0;
    }),
});

async function followOne(follower: Follower, path: string, io: Io): Promise<void> {
  const attempt = async (action: () => Promise<boolean>) => {
    try {
      return await action();
    } catch (error) {
      // Nothing is lost: the place in the file moves only with the counts.
      if (!(error instanceof StoreUnavailable) && !(error as NodeJS.ErrnoException).code) throw error;
      printLine(io.stderr, `wafstat: ${path}: ${(error as Error).message}; trying again`);
      await pause(RETRY_MS, io.stop);
      return false;
    }
  };
  while (!io.stop.aborted) if (!(await attempt(() => follower.look()))) await pause(LOOK_MS, io.stop);
  await follower.close();
}

async function pause(ms: number, stop: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: stop }).catch(() => {});
}
