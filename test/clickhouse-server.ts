/** Real ClickHouse servers from Debian on loopback. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import setupPostgres from './postgres-server.ts';
import { eventually } from './process.ts';
import { freePort } from './web-server.ts';

export const CLICKHOUSE = {
  program: '/usr/sbin/clickhouse-server',
  needs: 'apt-get install clickhouse-server',
  isInstalled: () => existsSync('/usr/sbin/clickhouse-server'),
};

const chdbHome = new URL('chdb/', import.meta.url);
/** A current engine as a library. npm has it for linux-x64 only. */
export const CHDB = {
  home: chdbHome,
  needs: 'npm install, in the directory test/chdb',
  isInstalled: () => existsSync(new URL(`node_modules/@chdb/lib-linux-${process.arch}-gnu`, chdbHome)),
  isRequired: process.platform === 'linux' && process.arch === 'x64',
};

declare module 'vitest' {
  export interface ProvidedContext {
    clickhouseUrl: string | undefined;
  }
}

/** Global setup: one server of each kind for all files of a run. Each sandbox uses a separate database and schema. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const [clickhouse, stopPostgres] = await Promise.all([startClickHouse(), setupPostgres(project)]);
  project.provide('clickhouseUrl', clickhouse.urls[0]);
  return async () => {
    await Promise.all([clickhouse.stop(), stopPostgres()]);
  };
}

export class ClickHouseServer {
  readonly url: string;
  readonly #directory: string;
  #child: ChildProcess | null = null;
  #output = '';

  constructor(directory: string, httpPort: number, tcpPort: number) {
    this.#directory = directory;
    this.url = `http://127.0.0.1:${httpPort}`;
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'config.xml'), configuration(directory, httpPort, tcpPort));
    writeFileSync(join(directory, 'users.xml'), USERS);
  }

  async start(): Promise<void> {
    const args = [`--config-file=${join(this.#directory, 'config.xml')}`];
    const child = spawn(CLICKHOUSE.program, args, {
      cwd: this.#directory,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text) => {
        this.#output = `${this.#output}${text}`.slice(-10_000);
      });
    }
    await eventually(async () => {
      if (child.exitCode !== null) throw new Error(`clickhouse-server ended: ${this.#output}`);
      return (await fetch(`${this.url}/ping`).catch(() => null))?.ok || undefined;
    }, `clickhouse-server at ${this.url}`);
  }

  /** Like a power failure, except for data that the operating system has cached. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
  }

  /** Stops the process, as on an overloaded machine, until `resume`. */
  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }
}

export interface ClickHouse {
  /** Has the files of all servers. */
  directory: string;
  servers: ClickHouseServer[];
  urls: string[];
  stop(): Promise<void>;
}

/** Independent servers. */
export async function startClickHouse(count = 1): Promise<ClickHouse> {
  return start(mkdtempSync(join(tmpdir(), 'wafstat-clickhouse-')), count);
}

/** A server with little disk space. Null without the right to mount a file system. */
export async function startSmallClickHouse(bytes: number): Promise<ClickHouse | null> {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-clickhouse-'));
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs', directory]).status !== 0) {
    rmSync(directory, { recursive: true });
    return null;
  }
  return start(directory, 1, () => spawnSync('umount', [directory]));
}

async function start(directory: string, count: number, cleanUp = () => {}): Promise<ClickHouse> {
  const servers: ClickHouseServer[] = [];
  for (let i = 0; i < count; i++) {
    servers.push(new ClickHouseServer(join(directory, `server-${i}`), await freePort(), await freePort()));
  }
  const stop = async () => {
    await Promise.all(servers.map((server) => server.kill()));
    cleanUp();
    rmSync(directory, { recursive: true });
  };
  try {
    await Promise.all(servers.map((server) => server.start()));
  } catch (error) {
    // Stops the servers that did start.
    await stop();
    throw error;
  }
  return { directory, servers, urls: servers.map(({ url }) => url), stop };
}

function configuration(directory: string, httpPort: number, tcpPort: number): string {
  return `<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>${httpPort}</http_port><tcp_port>${tcpPort}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>${directory}/data/</path><tmp_path>${directory}/tmp/</tmp_path>
  <users_config>users.xml</users_config><default_profile>default</default_profile>
  <default_database>default</default_database><mark_cache_size>67108864</mark_cache_size>
</yandex>`;
}

const USERS = `<yandex>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users><default><password/><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota></default></users>
</yandex>`;
