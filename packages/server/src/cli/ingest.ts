import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { DROP_REASONS, type DropReason } from '../event.ts';
import { type FileIngest, type FileProgress, ingestFile } from '../ingest/file.ts';
import { parseEvent } from '../ingest/formats/events.ts';
import { type Drop, Pipeline } from '../ingest/pipeline.ts';
import type { Store } from '../store/store.ts';
import { command, type Io, printLine, UserError } from './command.ts';
import { withInstallation } from './data-folder.ts';
import { type ProgressBar, progressBar } from './progress-bar.ts';

const FIRST_DROPS_MAX = 10;

export const ingestCommand = command({
  name: 'ingest <file...>',
  about:
    "count the log lines of files, or of standard input for '-'; lines that were counted before are left out",
  settings: ['data', 'project', 'source', 'format', 'retention', 'hostsMax'],
  required: ['data', 'project'],
  async run({ data, project, source, format, retention, hostsMax }, files, io) {
    for (const file of files) await checkReadable(file);
    return withInstallation(data, io, async ({ identity, store }) => {
      const pipeline = new Pipeline(store, { retention_ms: retention, hosts_max: hostsMax }, io.now);
      const ingest = {
        project: identity.administration.project(project).id,
        source: { name: source, format },
        parse: parseEvent,
      };
      const summary = new Summary(io);
      for (const file of files) await ingestOne(file, ingest, store, pipeline, summary, io);
      summary.print();
      return io.stop.aborted ? 1 : 0;
    });
  },
});

async function ingestOne(
  file: string,
  ingest: FileIngest,
  store: Store,
  pipeline: Pipeline,
  summary: Summary,
  io: Io,
): Promise<void> {
  const name = file === '-' ? 'standard input' : file;
  const stream: Readable = file === '-' ? io.stdin : createReadStream(file, { highWaterMark: 1 << 20 });
  const bar = progressBar(io.stderr, name, file === '-' ? null : (await stat(file)).size, io.now);
  for await (const progress of ingestFile(stream, ingest, store, pipeline)) {
    summary.add(name, progress, bar);
    if (io.stop.aborted) break;
  }
  bar.end();
}

class Summary {
  readonly #io: Io;
  readonly #started: number;
  #accepted = 0;
  #seen = 0;
  #lines = 0;
  #withoutHost = 0;
  #dropped = new Map<DropReason, number>();
  #firstDrops: (Drop & { file: string })[] = [];
  #unfinished: string[] = [];

  constructor(io: Io) {
    this.#io = io;
    this.#started = io.now();
  }

  add(file: string, progress: FileProgress, bar: ProgressBar): void {
    if (progress.kind === 'unfinished') {
      this.#unfinished.push(`${file}, line ${progress.line}`);
      return;
    }
    bar.advance(progress.bytes);
    this.#lines += progress.lines;
    if (progress.kind === 'seen' || progress.outcome.duplicate) {
      this.#seen += progress.lines;
      return;
    }
    const { accepted, dropped, first_drops, without_host } = progress.outcome;
    this.#accepted += accepted;
    this.#withoutHost += without_host;
    for (const [reason, n] of Object.entries(dropped) as [DropReason, number][]) {
      this.#dropped.set(reason, (this.#dropped.get(reason) ?? 0) + n);
    }
    this.#firstDrops.push(...first_drops.map((drop) => ({ ...drop, file })));
    this.#firstDrops.length = Math.min(this.#firstDrops.length, FIRST_DROPS_MAX);
  }

  print(): void {
    const { stdout, stderr, now } = this.#io;
    for (const { file, line, reason, text } of this.#firstDrops) {
      printLine(stderr, `${file}, line ${line}: ${DROP_REASONS[reason]}: ${visible(text)}`);
    }
    for (const place of this.#unfinished) printLine(stderr, `${place}: unfinished, left for the next run`);
    const seconds = Math.max(now() - this.#started, 1) / 1_000;
    const dropped = [...this.#dropped.values()].reduce((sum, n) => sum + n, 0);
    const row = (name: string, n: number, remark = '') =>
      printLine(stdout, `${name.padEnd(20)} ${n}${remark}`);
    row('accepted', this.#accepted);
    if (this.#withoutHost > 0)
      row('  of no known host', this.#withoutHost, ' (they count in the total of the project only)');
    row('dropped', dropped);
    for (const [reason, n] of this.#dropped) row(`  ${reason}`, n);
    if (this.#seen > 0) row('counted before', this.#seen);
    row('lines per second', Math.round(this.#lines / seconds));
  }
}

/** A log line is attacker input: nothing in it may act on the terminal. */
function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\ufffd');
}

async function checkReadable(file: string): Promise<void> {
  if (file === '-') return;
  try {
    if ((await stat(file)).isDirectory()) throw new UserError(`${file} is a folder, not a file`);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`${file} cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
}
