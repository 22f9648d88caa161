/** Real ClickHouse servers and ZooKeeper from Debian on loopback. Several servers form a cluster of shards and replicas. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { eventually } from './process.ts';
import { freePort } from './web-server.ts';

/**
 * For databases: every insert creates and deletes dozens of small files, and half of the processor time of a server was
 * ext4 searching for free inodes. Containers often have a very small /dev/shm.
 */
export const MEMORY = freeBytes('/dev/shm') > 2 ** 30 ? '/dev/shm' : tmpdir();

function freeBytes(folder: string): number {
  if (!existsSync(folder)) return 0;
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

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

/** Global setup: one server for all files of a run. Each sandbox uses a separate database. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const clickhouse = await startClickHouse();
  project.provide('clickhouseUrl', clickhouse.urls[0]);
  return clickhouse.stop;
}

/** The name of the cluster in the configuration of its servers. */
export const CLUSTER = 'wafstat';

interface Ports {
  http: number;
  tcp: number;
  /** For replication. */
  interserver: number;
}

/** The servers of each shard, and the ZooKeeper that they need for replication. */
interface Layout {
  shards: readonly (readonly Ports[])[];
  zookeeperPort: number | undefined;
}

export class ClickHouseServer {
  readonly url: string;
  readonly #directory: string;
  #child: ChildProcess | null = null;
  #output = '';

  constructor(directory: string, ports: Ports, layout: Layout) {
    this.#directory = directory;
    this.url = `http://127.0.0.1:${ports.http}`;
    mkdirSync(directory);
    writeFileSync(join(directory, 'config.xml'), configuration(directory, ports, layout));
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
  servers: ClickHouseServer[];
  urls: string[];
  stop(): Promise<void>;
}

/** With a ZooKeeper, every shard has two replicas. The first replicas of all shards come first. */
export async function startClickHouse(shards = 1, zookeeperPort?: number): Promise<ClickHouse> {
  const root = mkdtempSync(join(MEMORY, 'wafstat-clickhouse-'));
  const replicas = zookeeperPort === undefined ? 1 : 2;
  const ports: Ports[] = [];
  for (let i = 0; i < shards * replicas; i++) {
    ports.push({ http: await freePort(), tcp: await freePort(), interserver: await freePort() });
  }
  const shardPorts = Array.from({ length: shards }, (_, shard) =>
    ports.filter((_, i) => i % shards === shard),
  );
  const layout = { shards: shardPorts, zookeeperPort };
  const servers = ports.map((own, i) => new ClickHouseServer(join(root, `server-${i}`), own, layout));
  const stop = async () => {
    await Promise.all(servers.map((server) => server.kill()));
    rmSync(root, { recursive: true });
  };
  try {
    await Promise.all(servers.map((server) => server.start()));
  } catch (error) {
    // Stops the servers that did start.
    await stop();
    throw error;
  }
  return { servers, urls: servers.map(({ url }) => url), stop };
}

function configuration(directory: string, own: Ports, { shards, zookeeperPort }: Layout): string {
  const replica = ({ tcp }: Ports) => `<replica><host>127.0.0.1</host><port>${tcp}</port></replica>`;
  const shard = (ports: readonly Ports[]) =>
    `<shard><internal_replication>true</internal_replication>${ports.map(replica).join('')}</shard>`;
  return `<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>${own.http}</http_port><tcp_port>${own.tcp}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>${directory}/data/</path><tmp_path>${directory}/tmp/</tmp_path>
  <users_config>users.xml</users_config><default_profile>default</default_profile>
  <default_database>default</default_database><mark_cache_size>67108864</mark_cache_size>
  <remote_servers><${CLUSTER}>${shards.map(shard).join('')}</${CLUSTER}></remote_servers>
  ${zookeeperPort === undefined ? '' : replication(own, shards, zookeeperPort)}
</yandex>`;
}

function replication(own: Ports, shards: Layout['shards'], zookeeperPort: number): string {
  const shard = shards.findIndex((ports) => ports.includes(own));
  return `<zookeeper><node><host>127.0.0.1</host><port>${zookeeperPort}</port></node></zookeeper>
  <interserver_http_host>127.0.0.1</interserver_http_host><interserver_http_port>${own.interserver}</interserver_http_port>
  <macros><shard>${shard}</shard><replica>${shards[shard]?.indexOf(own)}</replica></macros>`;
}

const USERS = `<yandex>
  <profiles><default/></profiles><quotas><default/></quotas>
  <users>${['default', 'second']
    .map(
      (name) =>
        `<${name}><password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></${name}>`,
    )
    .join('')}</users>
</yandex>`;

const JARS = '/usr/share/java';
const NEEDED = ['zookeeper', 'zookeeper-jute', 'slf4j-api', 'slf4j-simple', 'netty-all', 'metrics-core'];

export const ZOOKEEPER = {
  needs: 'apt-get install zookeeper',
  isInstalled: () => existsSync(join(JARS, 'zookeeper.jar')),
};

/** Replicas of ClickHouse need it. */
export async function startZooKeeper(): Promise<{ port: number; stop(): Promise<void> }> {
  const directory = mkdtempSync(join(MEMORY, 'wafstat-zookeeper-'));
  const port = await freePort();
  const file = join(directory, 'zoo.cfg');
  writeFileSync(
    file,
    `tickTime=2000\ndataDir=${directory}/data\nclientPort=${port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n`,
  );
  const jars = NEEDED.map((name) => join(JARS, `${name}.jar`)).join(':');
  const main = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
  const child = spawn('java', ['-Xmx128m', '-cp', jars, main, file], { stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error('ZooKeeper ended');
    return (await serves(port)) || undefined;
  }, 'ZooKeeper');
  return {
    port,
    async stop() {
      child.kill('SIGKILL');
      await ended;
      rmSync(directory, { recursive: true });
    },
  };
}

/** The port is open before ZooKeeper serves requests, so its state must be read. */
function serves(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    let received = '';
    const socket = connect(port, '127.0.0.1', () => socket.write('srvr'));
    // A request that comes too early never gets a response.
    socket.setTimeout(500, () => socket.destroy());
    socket.on('data', (text) => {
      received += text;
    });
    socket.on('error', () => {}).on('close', () => resolve(received.includes('Mode: standalone')));
  });
}
