/** A data directory and the processes that use it; `clear` ends the processes and deletes the directory. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, expect, inject } from 'vitest';
import { runProgram } from '../packages/server/dist/cli/program.js';
import { type Api, login } from './api.ts';
import { type Ended, eventually, Process, type StartOptions } from './process.ts';

/** What `wafstat init --json` prints. */
export interface Installation {
  domain_id: string;
  project_id: string;
  user_id: string;
  domain: string;
  project: string;
  user: string;
  password: string;
}

export interface Server {
  process: Process;
  /** Like `http://127.0.0.1:40000`. */
  address: string;
}

/** The longest retention that can be set, so that tests can use fixed dates. */
export const KEEP_ALL = ['--retention', '3653d'] as const;

/** For tests that do not depend on the store: the project `postgres` does not repeat them. */
export const describeEmbedded: (name: string, define: () => void) => void =
  inject('postgresUrl') === undefined ? describe : () => {};

export class Sandbox {
  readonly directory: string;
  readonly data: string;
  /** Settings of the store for all commands of the sandbox. */
  readonly #store = storeOfRun();
  readonly #started: Process[] = [];
  #files = 0;

  constructor(parent = tmpdir()) {
    this.directory = mkdtempSync(join(parent, 'wafstat-test-'));
    this.data = join(this.directory, 'data');
  }

  start(args: readonly string[], options: StartOptions = {}): Process {
    const started = new Process(args, { ...options, env: { ...this.#store, ...options.env } });
    this.#started.push(started);
    return started;
  }

  /**
   * Runs a command to its end, inside this process: starting Node.js would take longer than the command itself.
   * Use `start` where the process matters: signals, exit, several at a time.
   */
  async run(args: readonly string[], { stdin = '', env = {} }: StartOptions = {}): Promise<Ended> {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const printed = Promise.all([text(stdout), text(stderr)]);
    const status = await runProgram(args, {
      stdin: (typeof stdin === 'string' ? Readable.from(stdin === '' ? [] : [stdin]) : stdin).pipe(
        new PassThrough(),
      ),
      stdout,
      stderr,
      env: { ...this.#store, ...env },
      now: Date.now,
      stop: new AbortController().signal,
    });
    stdout.end();
    stderr.end();
    const [out, err] = await printed;
    return { status, signal: null, stdout: out, stderr: err };
  }

  /** Runs a command with `--data` and `--json`, which must succeed, and parses its output. */
  async runJson<T>(...args: string[]): Promise<T> {
    const { status, stdout, stderr } = await this.run([...args, '--data', this.data, '--json']);
    if (status !== 0) throw new Error(`wafstat ${args.join(' ')} failed: ${stderr}`);
    return JSON.parse(stdout);
  }

  async init(...args: string[]): Promise<Installation> {
    if (inject('isDistributed')) {
      const { stdout } = await this.run(['migrate', '--distributed']);
      expect(stdout).toContain('distributed projects, hosts, sources');
    }
    return this.runJson('init', ...args);
  }

  /** Starts the service on a free port and waits until it listens. */
  async serve(args: readonly string[] = [], options?: StartOptions): Promise<Server> {
    const process = this.start(['serve', '--data', this.data, '--listen', '127.0.0.1:0', ...args], options);
    const line = await process.line(LISTENS);
    return { process, address: line.slice(LISTENS.length) };
  }

  /** A new installation, its service, and a client with a token for its project. */
  async service(...args: string[]): Promise<{ installation: Installation; server: Server; api: Api }> {
    const installation = await this.init();
    const server = await this.serve(args);
    return { installation, server, api: await login(server.address, installation) };
  }

  /** Ingests events in the format `events`, which must succeed. */
  async ingest(project: string, events: readonly object[], ...args: string[]): Promise<Ended> {
    const file = this.write(`events-${++this.#files}.ndjson`, ndjson(events));
    const options = ['--data', this.data, '--project', project, '--format', 'events'];
    const ended = await this.run(['ingest', ...options, ...args, file]);
    if (ended.status !== 0) throw new Error(`ingest failed: ${ended.stderr}`);
    return ended;
  }

  path(name: string): string {
    return join(this.directory, name);
  }

  /** Returns the path of the file. */
  write(name: string, content: string | Buffer): string {
    const path = this.path(name);
    writeFileSync(path, content);
    return path;
  }

  async clear(): Promise<void> {
    await Promise.all(this.#started.map((process) => process.kill()));
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** In the project `postgres`, new tables on its server; otherwise the embedded store. */
function storeOfRun(): Readonly<Record<string, string>> {
  const postgresUrl = inject('postgresUrl');
  if (postgresUrl === undefined) return {};
  const name = `test_${randomBytes(8).toString('hex')}`;
  return {
    WAFSTAT_STORE: 'postgres',
    WAFSTAT_POSTGRES_URL: postgresUrl,
    WAFSTAT_POSTGRES_SCHEMA: name,
    // Statements of random queries can take longer than the default on a busy machine.
    WAFSTAT_POSTGRES_TIMEOUT: '120',
  };
}

const LISTENS = 'wafstat listens on ';

/** Where a service with `--metrics-listen` says that its metrics are. */
export function metricsUrl({ process }: Server): Promise<string> {
  return eventually(
    () => /metrics are at (http:[^"]+)/.exec(process.stderr)?.[1],
    'the address of the metrics in the log',
  );
}

export function ndjson(events: readonly object[]): string {
  return events.map((event) => `${JSON.stringify(event)}\n`).join('');
}
