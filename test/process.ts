/** A `wafstat` process, and helpers that wait for something. */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const PROGRAM = fileURLToPath(new URL('../packages/server/bin/wafstat.js', import.meta.url));

/** Much longer than anything takes on a busy machine, and shorter than the time limit of a test. */
const TIMEOUT_MS = 180_000;

/** A poll is often a request: every 5 ms, they took a quarter of the processor time of tests that wait for a start. */
const PAUSE_MS_MAX = 20;

export interface Ended {
  status: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface StartOptions {
  stdin?: string | Readable;
  env?: Readonly<Record<string, string>>;
  /** Another way to run the program: a command and its first arguments. */
  program?: readonly [command: string, ...args: string[]];
  /** Starts a process group, so that a signal reaches the workers too. */
  group?: boolean;
}

/** Those that run, or have run during the current test. */
export const recentProcesses = new Set<Process>();

/** What is printed of the log of a process when a test fails. */
const LOG_LENGTH_MAX = 4_000;

export class Process {
  readonly #child: ChildProcess;
  readonly #command: string;
  readonly #group: boolean;
  readonly ended: Promise<Ended>;
  stdout = '';
  stderr = '';
  hasEnded = false;

  constructor(
    args: readonly string[],
    { stdin = '', env = {}, group = false, program = [process.execPath, PROGRAM] }: StartOptions = {},
  ) {
    this.#command = ['wafstat', ...args].join(' ');
    this.#group = group;
    // WAFSTAT_ variables of the caller must not become settings.
    const PATH = process.env.PATH ?? '';
    const [command, ...first] = program;
    const child = spawn(command, [...first, ...args], { env: { PATH, ...env }, detached: group });
    this.#child = child;
    recentProcesses.add(this);
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    // EPIPE: a command that fails at once does not read its input.
    child.stdin.on('error', () => {});
    if (typeof stdin === 'string') child.stdin.end(stdin);
    else stdin.pipe(child.stdin);
    this.ended = new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (status, signal) => {
        this.hasEnded = true;
        resolve({ status, signal, stdout: this.stdout, stderr: this.stderr });
      });
    });
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.#command} did not start`);
    return this.#child.pid;
  }

  /** Waits for the process to end. */
  end(timeoutMs = TIMEOUT_MS): Promise<Ended> {
    return within(timeoutMs, this.ended, () => `the end of ${this.#describe()}`);
  }

  /** Waits for a line of standard output with this prefix. */
  async line(prefix: string, timeoutMs = TIMEOUT_MS): Promise<string> {
    const find = () => {
      const line = wholeLines(this.stdout).find((text) => text.startsWith(prefix));
      if (line === undefined && this.hasEnded) throw new Error(`the process ended: ${this.#describe()}`);
      return line;
    };
    return eventually(find, `a line '${prefix}...' from ${this.#command}`, timeoutMs);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Signals every process of the group; false if there is none. */
  signalGroup(signal: NodeJS.Signals): boolean {
    try {
      return process.kill(-this.pid, signal);
    } catch {
      return false;
    }
  }

  /** `kill -9` of the process, or of its group. */
  async kill(): Promise<Ended> {
    if (this.#group) this.signalGroup('SIGKILL');
    else this.#child.kill('SIGKILL');
    return this.end();
  }

  /** The end of its log is where to look for what went wrong. */
  describeEnd(): string {
    return `${this.#command}\n${this.stderr.slice(-LOG_LENGTH_MAX)}`;
  }

  #describe(): string {
    return `${this.#command}\n${this.stdout}\n${this.stderr}`;
  }
}

/** The lines that end with a line feed. */
export function wholeLines(text: string): string[] {
  return text.split('\n').slice(0, -1);
}

/** Polls until the result is not undefined. After the timeout, the error names `what` it waited for. */
export async function eventually<T>(
  poll: () => T | undefined | Promise<T | undefined>,
  what: string,
  timeoutMs = TIMEOUT_MS,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (let pauseMs = 5; ; pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX)) {
    const result = await poll();
    if (result !== undefined) return result;
    if (Date.now() > deadline) throw new Error(`timed out after ${timeoutMs} ms: ${what}`);
    await sleep(pauseMs);
  }
}

export async function within<T>(timeoutMs: number, promise: Promise<T>, what: () => string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timed out after ${timeoutMs} ms: ${what()}`)), timeoutMs);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
