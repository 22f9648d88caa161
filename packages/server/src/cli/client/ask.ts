/** Questions at the terminal, and secrets from wherever they come. */
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import { type Io, printLine, UserError } from '../command.ts';

/** `given` is one from the environment; without it the secret is asked for, or is all of standard input. */
export async function readSecret(name: string, given: string | undefined, io: Io): Promise<string> {
  if (given === undefined && io.stdin.isTTY) return ask(io, name, { hidden: true });
  const secret = given ?? (await readAll(io.stdin)).replace(/\r?\n$/, '');
  if (secret === '') throw new UserError(`the ${name} is empty`);
  return secret;
}

export interface Question {
  /** The answer when only Enter is pressed. */
  suggestion?: string | undefined;
  hidden?: boolean;
  /** Throws an Error that says what an answer must be. */
  parse?(answer: string): string;
}

/** Asks until there is an answer that can be used. The questions go to standard error: standard output is for data. */
export async function ask(io: Io, name: string, question: Question = {}): Promise<string> {
  const { suggestion, hidden = false, parse = (answer: string) => answer } = question;
  for (;;) {
    const prompt = suggestion === undefined ? `${name}: ` : `${name} [${suggestion}]: `;
    const answer = (await readAnswer(io, prompt, hidden)) || suggestion;
    if (answer === undefined) continue;
    try {
      return parse(answer);
    } catch (error) {
      printLine(io.stderr, (error as Error).message);
    }
  }
}

async function readAnswer(io: Io, prompt: string, hidden: boolean): Promise<string> {
  // Readline shows what is typed by writing it to its output: where nothing is shown, nothing stays on the screen.
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  const output = hidden ? silent : io.stderr;
  const line = createInterface({ input: io.stdin, output, terminal: true, signal: io.stop });
  const closed = new Promise<null>((resolve) => {
    line.once('close', () => resolve(null));
  });
  if (hidden) io.stderr.write(prompt);
  const answer = await Promise.race([line.question(hidden ? '' : prompt), closed]);
  line.close();
  // Where Enter was not shown, or not pressed, the next line has not begun.
  if (hidden || answer === null) io.stderr.write('\n');
  if (answer === null) throw new UserError('there was no answer');
  return answer;
}
