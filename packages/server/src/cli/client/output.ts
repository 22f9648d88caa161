/** Output of client commands: the same formats for all, safe to print on a terminal. */
import { type Io, printLine, wrapped } from '../command.ts';
import { oneOf, option } from '../options.ts';
import { responseProblem } from './connection.ts';
import { type Terminal, terminalOf } from './plot.ts';
import type { Connection } from './profiles.ts';

export const LIST_OUTPUT = option('--output <format>', 'table, csv or json', oneOf('table', 'json', 'csv'), {
  default: 'table',
});

export const PLOT_OUTPUT = option(
  '--output <format>',
  'plot, table, csv, or json for the unchanged response [default: plot on a terminal, otherwise table]',
  oneOf('plot', 'table', 'json', 'csv'),
);

export interface Renderer<T> {
  table(result: T): string[];
  csv(result: T): string;
  plot?(result: T, terminal: Terminal): string[];
}

const NEWLINE = 0x0a;

/** `body` is the response that `result` was parsed from, if it was one response. */
export function printOutput<T>(
  io: Io,
  format: 'plot' | 'table' | 'json' | 'csv',
  { result, body }: { result: T; body?: Uint8Array },
  { table, csv, plot }: Renderer<T>,
  connection: Pick<Connection, 'url'>,
): void {
  const { stdout } = io;
  try {
    switch (format) {
      case 'json':
        // On a terminal, JSON from the network must not control it: text can contain C1 control characters.
        if (body === undefined || stdout.isTTY) printLine(stdout, JSON.stringify(result));
        else stdout.write(body.at(-1) === NEWLINE ? body : Buffer.concat([body, Buffer.of(NEWLINE)]));
        break;
      case 'csv':
        stdout.write(csv(result));
        break;
      case 'table':
        for (const line of table(result)) printLine(stdout, line);
        break;
      case 'plot':
        // Not escaped, because of the colors: a plot escapes what comes from elsewhere. Only the title may be too long.
        for (const [i, line] of (plot?.(result, terminalOf(io)) ?? []).entries())
          stdout.write(`${i === 0 ? wrapped(stdout, line) : line}\n`);
    }
  } catch (error) {
    throw responseProblem(error, connection);
  }
}
