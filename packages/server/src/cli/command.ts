/** What a command is: which settings it takes, and what it does with them. */
import type { Readable, Writable } from 'node:stream';
import type { Origin, SettingName, Settings } from '../config.ts';
import type { LogStream } from '../log-stream.ts';
import { printable } from '../printable.ts';

/** The outside world of a command, so that tests can give it another one. */
export interface Io {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number };
  stderr: Writable & { isTTY?: boolean };
  /** Where the service writes its log; standard error when absent. */
  log?: LogStream;
  env: Readonly<Record<string, string | undefined>>;
  now: () => number;
  /** Aborted when the process is asked to stop. */
  stop: AbortSignal;
}

export interface Command {
  /** With its operands, like `host add <hostname>`. */
  name: string;
  about: string;
  settings: readonly SettingName[];
  required: readonly SettingName[];
  /** What is wrong with the settings as a whole, one sentence each; told together with what is wrong with one. */
  check?(origin: Origin, io: Io): readonly string[];
  /** Answers the exit status. */
  run(settings: never, operands: string[], io: Io, origin: Origin): Promise<number>;
}

/** Types a command by its own lists of settings. */
export function command<const N extends SettingName, const R extends N>(definition: {
  name: string;
  about: string;
  settings: readonly N[];
  required: readonly R[];
  check?(origin: Origin, io: Io): readonly string[];
  run(settings: Settings<N, R>, operands: string[], io: Io, origin: Origin): Promise<number>;
}): Command {
  return definition;
}

/** Something that the user can put right; the message is one sentence for them. */
export class UserError extends Error {}

/** Names come from logs and requests: what would change how the line looks is escaped. */
export function printLine(stream: Writable, line: string): void {
  stream.write(`${printable(line)}\n`);
}
