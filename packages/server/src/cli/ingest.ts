import { stat } from 'node:fs/promises';
import type { SettingName, Settings } from '../config.ts';
import { decompress, openLog } from '../ingest/byte-stream.ts';
import { FileConflict, type FileIngest, ingestFile } from '../ingest/file.ts';
import { Pipeline } from '../ingest/pipeline.ts';
import type { Store } from '../store/store.ts';
import { command, type Io, printLine, UserError } from './command.ts';
import { withProject } from './data-folder.ts';
import { IngestSummary } from './ingest-summary.ts';
import { progressBar } from './progress-bar.ts';
import { STORE_SETTINGS } from './store.ts';

/** Settings of a log source, the same however its lines come in. */
export const SOURCE_SETTINGS = [
  'project',
  'source',
  'format',
  'pattern',
  'hostOfLogs',
  'timezone',
  'hosts',
  'categories',
  'retention',
  'hostsMax',
  'sourcesMax',
] as const satisfies readonly SettingName[];

/** Two runs over one file at once disagree a few times at most: each time one of them has got further. */
const CONFLICTS_MAX = 100;

export const ingestCommand = command({
  name: 'ingest <file...>',
  about:
    "count the log lines of files (plain or gzip), or of standard input for '-'; lines that were read before are skipped",
  settings: ['data', ...SOURCE_SETTINGS, ...STORE_SETTINGS],
  required: ['project'],
  async run({ data, ...settings }, files, io) {
    for (const file of files) await checkReadable(file);
    return withProject(data, io, settings, async (store, project) => {
      const { ingest, pipeline } = logSource(store, { ...settings, project }, io);
      const summary = new IngestSummary(io);
      const errors: UserError[] = [];
      try {
        // A file that cannot be read to its end must not keep the others from being counted.
        for (const file of files) {
          const error = await ingestOne(file, ingest, store, pipeline, summary, io);
          if (error !== null) errors.push(error);
        }
      } finally {
        // Whatever ends the run, what was counted before it stays counted.
        summary.print();
      }
      for (const { message } of errors) printLine(io.stderr, `wafstat: ${message}`);
      return errors.length > 0 || io.stop.aborted ? 1 : 0;
    });
  },
});

/** What the settings say about where lines belong, and how they are read; `project` is an ID here. */
export function logSource(
  store: Store,
  settings: Settings<(typeof SOURCE_SETTINGS)[number], 'project'>,
  io: Io,
): { ingest: FileIngest; pipeline: Pipeline } {
  const { project, source, format, pattern, hostOfLogs, timezone, hosts, categories } = settings;
  const { retention, hostsMax, sourcesMax } = settings;
  return {
    ingest: {
      project,
      source: { name: source, format },
      reader: { format, pattern, host: hostOfLogs, zone: timezone, overrides: categories },
    },
    pipeline: new Pipeline(
      store,
      { retentionMs: retention, hostsMax: hosts === 'registered' ? 0 : hostsMax, sourcesMax },
      io.now,
    ),
  };
}

/** Answers why the file could not be read to its end, or null. */
async function ingestOne(
  file: string,
  ingest: FileIngest,
  store: Store,
  pipeline: Pipeline,
  summary: IngestSummary,
  io: Io,
): Promise<UserError | null> {
  const name = file === '-' ? 'standard input' : file;
  const bar = progressBar(io.stderr, name, file === '-' ? null : (await stat(file)).size, io.now);
  // A pipe may be silent for ever; a stop must not wait for it.
  if (file === '-') io.stop.addEventListener('abort', () => io.stdin.destroy(), { once: true });
  for (let conflicts = 0; ; conflicts++) {
    try {
      const stream = file === '-' ? decompress(io.stdin) : openLog(file);
      for await (const progress of ingestFile(stream, ingest, store, pipeline, {
        eager: file === '-',
        stop: io.stop,
      })) {
        summary.add(name, progress);
        bar.advance(progress.bytes);
      }
      break;
    } catch (error) {
      // A file is read again from its start, where what the other has counted is seen; a stream is gone.
      if (error instanceof FileConflict && file !== '-' && conflicts < CONFLICTS_MAX) continue;
      if (io.stop.aborted) break;
      bar.end();
      const explanation = explained(error, name);
      if (explanation instanceof UserError) return explanation;
      throw explanation;
    }
  }
  bar.end();
  return null;
}

function explained(error: unknown, name: string): unknown {
  const { code, message } = error as NodeJS.ErrnoException;
  if (error instanceof FileConflict)
    return new UserError(`${name}: another run counts the same lines at this moment`);
  if (code?.startsWith('Z_'))
    return new UserError(
      `${name} is damaged or truncated gzip (${message}); the lines before that are counted`,
    );
  if (code?.startsWith('E')) return new UserError(`${name} cannot be read: ${code}`);
  return error;
}

async function checkReadable(file: string): Promise<void> {
  if (file === '-') return;
  try {
    if ((await stat(file)).isDirectory()) throw new UserError(`${file} is a folder, not a file`);
  } catch (error) {
    if (error instanceof UserError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new UserError(code === 'ENOENT' ? `there is no file ${file}` : `${file} cannot be read: ${code}`);
  }
}
