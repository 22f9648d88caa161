/** Questions on a terminal. */
import { createInterface } from 'node:readline/promises';
import { PassThrough, Writable } from 'node:stream';
import { printable } from '../printable.ts';
import { type Io, printText, UserError } from './command.ts';
import { flag, option } from './options.ts';

export const YES = option('--yes', 'do not ask for confirmation', flag);

/** Commands that delete something ask on a terminal; elsewhere, nobody can answer. */
export function confirmationProblems(
  { yes }: { yes?: boolean | undefined },
  _source: unknown,
  io: Io,
): string[] {
  return yes || io.stdin.isTTY ? [] : ['--yes is required without a terminal, because nobody can confirm'];
}

/** `what` is a sentence on what will be deleted. Rejects unless the user types the name. */
export async function confirm(io: Io, yes: boolean | undefined, name: string, what: string): Promise<void> {
  if (yes) return;
  printText(io.stderr, what);
  if ((await readInput(io, `Type ${printable(name)} to confirm: `, false)) !== name)
    throw new UserError('the name is different: nothing was deleted');
}

interface PromptOptions {
  /** The input if only Enter is pressed. */
  suggestion?: string | undefined;
  hidden?: boolean;
  /** Throws an Error that says what the input must be. */
  parse?(input: string): string;
}

/** Repeats until the input is valid. Prompts go to standard error, because standard output is for data. */
export async function prompt(io: Io, name: string, options: PromptOptions = {}): Promise<string> {
  const { suggestion, hidden = false, parse = (input: string) => input } = options;
  for (;;) {
    const label = suggestion === undefined ? `${name}: ` : `${name} [${suggestion}]: `;
    const input = (await readInput(io, label, hidden)) || suggestion;
    if (input === undefined) continue;
    try {
      return parse(input);
    } catch (error) {
      printText(io.stderr, (error as Error).message);
    }
  }
}

async function readInput(io: Io, label: string, hidden: boolean): Promise<string> {
  // Readline echoes input by writing it to its output.
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  const output = hidden ? silent : io.stderr;
  const typed = typedLine(io.stdin);
  const line = createInterface({ input: typed.input, output, terminal: true, signal: io.stop });
  // Settles before `question` rejects.
  const closed = new Promise<null>((resolve) => {
    line.once('close', () => resolve(null));
  });
  if (hidden) io.stderr.write(label);
  const input = await Promise.race([line.question(hidden ? '' : label), closed]);
  line.close();
  typed.release();
  // The cursor is still in the line of the prompt if Enter was not echoed, or not pressed.
  if (hidden || input === null) io.stderr.write('\n');
  if (input === null) throw new UserError('cancelled');
  return input;
}

/** What was pasted after the line of a prompt: the input of the next prompts. */
const pasted = new WeakMap<Io['stdin'], Buffer>();

/** The input of one prompt, up to its line end: readline loses pasted lines after it, and would echo a secret among them. */
function typedLine(stdin: Io['stdin']) {
  const input = Object.assign(new PassThrough(), {
    setRawMode: (isRaw: boolean) => stdin.setRawMode?.(isRaw),
  });
  let rest = pasted.get(stdin) ?? Buffer.alloc(0);
  let isComplete = false;
  const feed = (bytes: Buffer) => {
    rest = Buffer.concat([rest, bytes]);
    if (isComplete) return;
    const [line, lineEnd] = /^([^\r\n]*)(\r\n|[\r\n])?/.exec(rest.toString('latin1'))?.slice(1) ?? [];
    isComplete = lineEnd !== undefined;
    input.write(`${line}${isComplete ? '\r' : ''}`, 'latin1');
    rest = rest.subarray(`${line}${lineEnd ?? ''}`.length);
  };
  const end = () => input.end();
  feed(Buffer.alloc(0));
  stdin.on('data', feed).once('end', end).resume();
  if (stdin.readableEnded) end();
  return {
    input,
    release() {
      stdin.off('data', feed).off('end', end).pause();
      pasted.set(stdin, rest);
    },
  };
}
