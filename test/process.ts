/** A started wafstat: what it prints, how it ends, and how to end it. */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';

export const PROGRAM = fileURLToPath(new URL('../packages/server/bin/wafstat.js', import.meta.url));

/** Far more than anything takes on a slow machine: a test that comes here has failed, and says what it waited for. */
const PATIENCE_MS = 60_000;

export interface Ended {
  status: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface StartOptions {
  /** All at once, or as it comes. */
  stdin?: string | Readable;
  env?: Readonly<Record<string, string>>;
  /** The leader of a process group of its own, so that a signal can be sent to all of it. */
  group?: boolean;
}

export class Process {
  readonly #child: ChildProcess;
  readonly #command: string;
  readonly #group: boolean;
  readonly ended: Promise<Ended>;
  stdout = '';
  stderr = '';
  #over = false;

  constructor(args: readonly string[], { stdin = '', env = {}, group = false }: StartOptions = {}) {
    this.#command = ['wafstat', ...args].join(' ');
    this.#group = group;
    // Nothing of the caller's environment may be taken for a setting.
    const PATH = process.env.PATH ?? '';
    const child = spawn(process.execPath, [PROGRAM, ...args], { env: { PATH, ...env }, detached: group });
    this.#child = child;
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    // A command that fails at once does not read what it is given.
    child.stdin.on('error', () => {});
    if (typeof stdin === 'string') child.stdin.end(stdin);
    else stdin.pipe(child.stdin);
    this.ended = new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (status, signal) => {
        this.#over = true;
        resolve({ status, signal, stdout: this.stdout, stderr: this.stderr });
      });
    });
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.#command} did not start`);
    return this.#child.pid;
  }

  /** What the process has said and done when it is over. */
  end(patience_ms = PATIENCE_MS): Promise<Ended> {
    return within(patience_ms, this.ended, () => `the end of ${this.#describe()}`);
  }

  /** The first line of standard output that begins so. */
  async line(beginning: string): Promise<string> {
    const find = () => wholeLines(this.stdout).find((line) => line.startsWith(beginning));
    return eventually(() => {
      const line = find();
      if (line === undefined && this.#over) throw new Error(`it ended: ${this.#describe()}`);
      return line;
    }, `a line '${beginning}...' of ${this.#command}`);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** To all processes of the group. Answers whether there was any. */
  signalGroup(signal: NodeJS.Signals): boolean {
    try {
      return process.kill(-this.pid, signal);
    } catch {
      return false;
    }
  }

  /** Ends it, and all of its group, in whatever state it is, as `kill -9` does. */
  async kill(): Promise<Ended> {
    if (this.#group) this.signalGroup('SIGKILL');
    else this.#child.kill('SIGKILL');
    return this.end();
  }

  #describe(): string {
    return `${this.#command}\n${this.stdout}\n${this.stderr}`;
  }
}

/** Lines that have their end already. */
export function wholeLines(text: string): string[] {
  return text.split('\n').slice(0, -1);
}

/** Asks again and again until there is an answer, and gives up with a sentence after the deadline. */
export async function eventually<T>(
  ask: () => T | undefined | Promise<T | undefined>,
  what: string,
  patience_ms = PATIENCE_MS,
): Promise<T> {
  const deadline = Date.now() + patience_ms;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (Date.now() > deadline) throw new Error(`waited ${patience_ms} ms in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export async function within<T>(patience_ms: number, promise: Promise<T>, what: () => string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`waited ${patience_ms} ms in vain for ${what()}`)),
      patience_ms,
    );
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
