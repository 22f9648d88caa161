/** What a command is, and how commands print. */
import { createRequire } from 'node:module';
import type { Readable, Writable } from 'node:stream';
import type { LogStream } from '../log-stream.ts';
import { printable } from '../printable.ts';
import type { Environment, Options, Source, Values } from './options.ts';

export const { version: VERSION } = createRequire(import.meta.url)('../../package.json') as {
  version: string;
};

/** The process as a command sees it, so that tests can replace it. */
export interface Io {
  stdin: Readable & { isTTY?: boolean; setRawMode?(isRaw: boolean): unknown };
  stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number };
  stderr: Writable & { isTTY?: boolean };
  /** Opens the log of the service; standard error if absent. `isShared`: other processes write to it, too. */
  openLog?(isShared: boolean): Promise<LogStream>;
  env: Environment;
  /** The path of the program, for commands that the console shows. */
  program?: string;
  now: () => number;
  /** Aborted when the process receives SIGTERM or SIGINT. */
  stop: AbortSignal;
}

interface Definition<O extends Options> {
  /** With its operands, like `host add <hostname>`. */
  name: string;
  description: string;
  /** Shown below the options in the help text. */
  examples?: readonly string[];
  options: O;
  /** Problems between options, one sentence each; `values` has the options that are valid. */
  check?(values: Partial<Values<NoInfer<O>>>, source: Source<NoInfer<O>>, io: Io): readonly string[];
  /** If options are invalid: further problems of the valid ones, which take longer to find. */
  inspect?(
    values: Partial<Values<NoInfer<O>>>,
    source: Source<NoInfer<O>>,
    io: Io,
  ): Promise<readonly string[]>;
  /** Resolves to the exit status. */
  run(values: Values<NoInfer<O>>, operands: string[], io: Io, source: Source<NoInfer<O>>): Promise<number>;
}

/** A definition whose types are no longer known: program.ts passes to `run` what it read for `options`. */
export type Command = Definition<Options>;

export function command<O extends Options>(definition: Definition<O>): Command {
  return definition as unknown as Command;
}

/** An error that the user can fix; the message is one sentence. */
export class UserError extends Error {}

/** The message of an error that a person can fix; null for others, which are defects and get a stack trace. */
export async function userMessage(error: unknown): Promise<string | null> {
  return (await isUserError(error)) ? (systemErrorMessage(error) ?? (error as Error).message) : null;
}

function systemErrorMessage(error: unknown): string | null {
  const { code, path } = error as NodeJS.ErrnoException;
  if (code === undefined || path === undefined) return null;
  if (code === 'EACCES' || code === 'EPERM')
    return `permission denied for ${path}: run this command as the user that runs the server`;
  if (code === 'ENOENT') return `${path} does not exist`;
  if (code === 'EEXIST' || code === 'ENOTDIR') return `${path} is a file, or inside one: use a directory`;
  return null;
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

/** Escapes control characters: names come from logs and requests. */
export function printLine(stream: Writable, line: string): void {
  stream.write(`${printable(line)}\n`);
}

/** Prints one JSON document, or the text. Returns the exit status. */
export function printResult(io: Io, json: boolean | undefined, result: unknown, text: string): 0 {
  printLine(io.stdout, json ? JSON.stringify(result) : text);
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

/** The first column is on the left; `others` aligns the rest. */
export function alignColumns(rows: readonly (readonly string[])[], others: 'left' | 'right'): string[] {
  const widths = rows[0]?.map((_, i) => rows.reduce((width, row) => Math.max(width, row[i]?.length ?? 0), 0));
  const pad = (cell: string, i: number) =>
    i > 0 && others === 'right' ? cell.padStart(widths?.[i] ?? 0) : cell.padEnd(widths?.[i] ?? 0);
  return rows.map((row) => row.map(pad).join('  ').trimEnd());
}

const BAR_WIDTH = 30;
const REDRAW_MS = 100;

/** Draws on a terminal and is silent elsewhere. `total` is null if it is unknown; `unit` formats what is done. */
export function progressBar(
  { stderr, now }: Pick<Io, 'stderr' | 'now'>,
  label: string,
  total: number | null,
  unit: (done: number) => string,
): { advance(amount: number): void; end(): void } {
  if (!stderr.isTTY) return { advance() {}, end() {} };
  let done = 0;
  let drawnAt = 0;
  function draw(): void {
    const share = total ? Math.min(1, done / total) : null;
    const bar =
      share === null
        ? ''
        : ` ${'█'.repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH, '░')} ${Math.round(share * 100)}%`;
    stderr.write(`\r\u001b[K${label}${bar} ${unit(done)}`);
    drawnAt = now();
  }
  return {
    advance(amount) {
      done += amount;
      if (now() - drawnAt >= REDRAW_MS) draw();
    },
    end() {
      draw();
      stderr.write('\n');
    },
  };
}
