/** What a command is, and how commands print. */
import type { Readable, Writable } from 'node:stream';
import type { LogStream } from '../log-stream.ts';
import { printable } from '../printable.ts';
import type { Environment, Options, Source, Values } from './options.ts';

/** The process as a command sees it, so that tests can replace it. */
export interface Io {
  stdin: Readable & { isTTY?: boolean; setRawMode?(isRaw: boolean): unknown };
  stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number };
  stderr: Writable & { isTTY?: boolean };
  /** Log of the service; standard error if absent. */
  log?: LogStream;
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
