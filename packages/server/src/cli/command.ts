/** What a command is, and how commands print. */
import { createRequire } from 'node:module';
import type { Readable, Writable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import { styleText } from 'node:util';
import { Help } from 'commander';
import type { LogStream } from '../log-stream.ts';
import { printable } from '../printable.ts';
import type { Environment, Given, Options, Source, Values } from './options.ts';

export const { version: VERSION } = createRequire(import.meta.url)('../../package.json') as {
  version: string;
};

/** The process as a command sees it, so that tests can replace it. */
export interface Io {
  stdin: Readable & { isTTY?: boolean; setRawMode?(isRaw: boolean): unknown };
  stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
  /** Opens the log of the service; standard error if absent. `isShared`: other processes write to it, too. */
  openLog?(isShared: boolean): Promise<LogStream>;
  env: Environment;
  /** The path of the program, for commands that the console shows. */
  program?: string;
  /** Lowers the priority of the process. Absent if the process does other work, too. */
  letQueriesGoFirst?(): void;
  now: () => number;
  /** Aborted when the process receives SIGTERM or SIGINT. */
  stop: AbortSignal;
}

interface Definition<O extends Options> {
  /** Shown below the options in the help text. */
  examples?: readonly string[];
  options: O;
  /** Problems between options, one sentence each; `values` has the options that are valid. */
  check?(values: Partial<Values<NoInfer<O>>>, source: Source<NoInfer<O>>, io: Io): readonly string[];
  /** Called if some options are invalid. Finds problems of the valid ones that take longer to find. */
  inspect?(
    values: Partial<Values<NoInfer<O>>>,
    source: Source<NoInfer<O>>,
    io: Io,
  ): Promise<readonly string[]>;
  /** Resolves to the exit status. `given` has the texts of options that are not left to their default. */
  run(
    values: Values<NoInfer<O>>,
    operands: string[],
    io: Io,
    source: Source<NoInfer<O>>,
    given: Given,
  ): Promise<number>;
}

/** A definition whose types are no longer known: program.ts passes to `run` what it read for `options`. */
export type Command = Definition<Options>;

export function command<O extends Options>(definition: Definition<O>): Command {
  return definition as unknown as Command;
}

export interface Subcommand extends Command {
  /** With its operands, such as `add <hostname>`. */
  name: string;
  description: string;
}

export function subcommand<O extends Options>(
  name: string,
  description: string,
  definition: Definition<O>,
): Subcommand {
  return { name, description, ...command(definition) };
}

/** An error that the user can fix; the message is one sentence. */
export class UserError extends Error {}

/** The message of an error that a person can fix; null for others, which are defects. */
export async function userMessage(error: unknown): Promise<string | null> {
  return (await isUserError(error)) ? (systemErrorMessage(error) ?? (error as Error).message) : null;
}

function systemErrorMessage(error: unknown): string | null {
  const { code, path } = error as NodeJS.ErrnoException;
  if (code === undefined || path === undefined) return null;
  if (code === 'EACCES' || code === 'EPERM')
    return `permission denied for ${path}: use another path, or run this command as a user with access, such as the one that runs the server`;
  if (code === 'ENOENT') return `${path} does not exist`;
  if (code === 'EEXIST' || code === 'ENOTDIR') return `${path} is a file, or inside one: use a directory`;
  return null;
}

/** Why the file with this name cannot be read. */
export function readProblem(name: string, code: string): string {
  if (code === 'ENOENT') return `${name} does not exist`;
  if (code === 'EMPTY') return `${name} has no files that can be read as logs`;
  if (code === 'EISDIR') return `${name} is a directory, not a file`;
  return `cannot read ${name}: ${code === 'EACCES' || code === 'EPERM' ? 'permission denied' : code}`;
}

async function isUserError(error: unknown): Promise<boolean> {
  // Errors of the operating system have a syscall, for example those of a full disk.
  if (error instanceof UserError || (error instanceof Error && 'syscall' in error)) return true;
  // Loaded here, because they take most of the start-up time of commands that do not use them.
  const identity = await import('../identity/errors.ts');
  const kinds = [
    (await import('../audit/audit-trail.ts')).AuditUnavailable,
    identity.IdentityError,
    identity.WrongMasterKey,
    identity.IdentityUnavailable,
    (await import('../ingest/pipeline.ts')).SourceLimitReached,
    (await import('../lmdb/commit.ts')).CommitFailed,
    (await import('../store/store.ts')).StoreUnavailable,
  ];
  return kinds.some((kind) => error instanceof kind);
}

/** Closes the resource after the action, also if that fails. */
export async function closing<R extends { close(): unknown }, T>(
  resource: R,
  action: (resource: R) => T | Promise<T>,
): Promise<T> {
  try {
    return await action(resource);
  } finally {
    await resource.close();
  }
}

/** Standard input. A stop closes it, because a terminal or a pipe may stay silent: reading it then fails. */
export function openStdin({ stdin, stop }: Io): Io['stdin'] {
  if (stop.aborted) stdin.destroy();
  stop.addEventListener('abort', () => stdin.destroy(), { once: true });
  return stdin;
}

/** A password or a key, which is all of standard input. */
export async function readStdin(io: Io): Promise<string> {
  const content = await readAll(openStdin(io)).catch((error) => {
    throw io.stop.aborted ? new UserError('stopped') : error;
  });
  return content.replace(/\r?\n$/, '');
}

/** Escapes control characters: names come from logs and requests. */
export function printLine(stream: Writable, line: string): void {
  stream.write(`${printable(line)}\n`);
}

/** By default, commander does not wrap to fewer than 40 columns. */
const WRAPPER = Object.assign(new Help(), { minWidthToWrap: 0 });

/** On a terminal, lines end between words. */
export function wrapped(stream: Io['stderr'], text: string): string {
  return stream.isTTY && stream.columns ? WRAPPER.boxWrap(text, stream.columns) : text;
}

/** Prints sentences after a prefix that may be colored. */
export function printText(stream: Io['stderr'], text: string, prefix = ''): void {
  stream.write(`${wrapped(stream, `${prefix}${printable(text)}`)}\n`);
}

/** Prints a warning or, in red, an error. */
export function warn(io: Pick<Io, 'stderr' | 'env'>, message: string, style: Style = 'yellow'): void {
  printText(io.stderr, message, `${styled('wafstat:', style, hasColors(io.stderr, io))} `);
}

/** See no-color.org. */
export function hasColors(stream: { isTTY?: boolean }, { env }: Pick<Io, 'env'>): boolean {
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
}

export type Style = 'bold' | 'cyan' | 'red' | 'yellow';

/** `isColored`: see hasColors. Newer versions of Node.js would look at the standard output of the process instead. */
export function styled(text: string, style: Style, isColored: boolean): string {
  return isColored ? styleText(style, text, { validateStream: false }) : text;
}

/** Prints one JSON document, or the text. Returns the exit status. */
export function printResult(io: Io, json: boolean | undefined, result: unknown, text: string): 0 {
  if (json) printLine(io.stdout, JSON.stringify(result));
  else printText(io.stdout, text);
  return 0;
}

/** Prints one JSON document, or aligned columns. Returns the exit status. */
export function printList<T>(
  { stdout }: Io,
  json: boolean | undefined,
  records: readonly T[],
  columns: (record: T) => string[],
): 0 {
  const lines = json ? [JSON.stringify(records)] : alignColumns(records.map(columns), 'left');
  for (const line of lines) printLine(stdout, line);
  return 0;
}

/** Aligns the first column left, and the rest as `others` says. */
export function alignColumns(rows: readonly (readonly string[])[], others: 'left' | 'right'): string[] {
  const widths = rows[0]?.map((_, i) => rows.reduce((width, row) => Math.max(width, row[i]?.length ?? 0), 0));
  const pad = (cell: string, i: number) =>
    i > 0 && others === 'right' ? cell.padStart(widths?.[i] ?? 0) : cell.padEnd(widths?.[i] ?? 0);
  return rows.map((row) => row.map(pad).join('  ').trimEnd());
}

const BAR_WIDTH_MAX = 30;
const REDRAW_MS = 100;
/** Rates are those of the last three seconds: lines that were counted before are skipped much faster than others. */
const RATE_DRAWS = 30;

interface ProgressBar {
  /** `lines` adds rates to the bar. */
  advance(amount: number, lines?: number): void;
  /** Erases the bar. */
  end(): void;
}

export const NO_BAR: ProgressBar = { advance() {}, end() {} };

/** Draws on a terminal and is silent elsewhere. `total` is null or 0 if it is unknown; `unit` formats what is done. */
export function progressBar(
  { stderr, now }: Pick<Io, 'stderr' | 'now'>,
  label: string,
  total: number | null,
  unit: (done: number) => string,
): ProgressBar {
  if (!stderr.isTTY) return NO_BAR;
  let done = 0;
  let lines = 0;
  const drawn: { at: number; done: number; lines: number }[] = [];

  function draw(at: number): void {
    drawn.push({ at, done, lines });
    if (drawn.length > RATE_DRAWS) drawn.shift();
    const first = drawn[0] ?? { at, done, lines };
    const seconds = (at - first.at) / 1_000;
    const rate = seconds > 0 ? (done - first.done) / seconds : 0;
    const lineRate = seconds > 0 ? Math.round((lines - first.lines) / seconds) : 0;
    const parts = [total ? `${unit(done)} of ${unit(total)}` : unit(done)];
    if (lineRate > 0) parts.push(`${lineRate.toLocaleString('en')} lines/s`, `${unit(rate)}/s`);
    if (total && rate > 0) parts.push(`${duration((total - done) / rate)} left`);
    const share = total ? Math.min(1, done / total) : null;
    const text = share === null ? parts.join(', ') : `${Math.round(share * 100)}% ${parts.join(', ')}`;
    const columns = (stderr.columns || 80) - 1;
    const name = printable(label);
    const width = Math.min(BAR_WIDTH_MAX, columns - name.length - text.length - 2);
    const line = share === null || width < 1 ? `${name} ${text}` : `${name} ${bar(share, width)} ${text}`;
    // A line that wraps would not be erased.
    stderr.write(`${ERASE_LINE}${line.slice(0, columns)}`);
  }

  return {
    advance(amount, newLines = 0) {
      done += amount;
      lines += newLines;
      const at = now();
      if (at - (drawn.at(-1)?.at ?? 0) >= REDRAW_MS) draw(at);
    },
    end() {
      stderr.write(ERASE_LINE);
    },
  };
}

const ERASE_LINE = '\r\u001b[K';

function bar(share: number, width: number): string {
  return '█'.repeat(Math.round(share * width)).padEnd(width, '░');
}

/** `8 s`, `2 min`, or `3 h 5 min`. */
function duration(seconds: number): string {
  const rounded = Math.max(0, Math.ceil(seconds));
  if (rounded < 60) return `${rounded} s`;
  const minutes = Math.round(rounded / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
