/** Real ClickHouse servers from Debian on loopback. Several of them form a cluster of shards and replicas. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './process.ts';
import { freePort } from './web-server.ts';

export const CLICKHOUSE = {
  program: '/usr/sbin/clickhouse-server',
  needs: 'apt-get install clickhouse-server',
  isThere: () => existsSync('/usr/sbin/clickhouse-server'),
};

const chdbHome = new URL('chdb/', import.meta.url);
/** A current engine as a library. npm has it for linux-x64 only. */
export const CHDB = {
  home: chdbHome,
  needs: 'npm install, in the folder test/chdb',
  isThere: () => existsSync(new URL(`node_modules/@chdb/lib-linux-${process.arch}-gnu`, chdbHome)),
  mustBeThere: process.platform === 'linux' && process.arch === 'x64',
};

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
  readonly #folder: string;
  #child: ChildProcess | null = null;
  #output = '';

  constructor(folder: string, ports: Ports, layout: Layout) {
    this.#folder = folder;
    this.url = `http://127.0.0.1:${ports.http}`;
    mkdirSync(folder);
    writeFileSync(join(folder, 'config.xml'), configuration(folder, ports, layout));
    writeFileSync(join(folder, 'users.xml'), USERS);
  }

  async start(): Promise<void> {
    const args = [`--config-file=${join(this.#folder, 'config.xml')}`];
    const child = spawn(CLICKHOUSE.program, args, { cwd: this.#folder, stdio: ['ignore', 'pipe', 'pipe'] });
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
  const root = mkdtempSync(join(tmpdir(), 'wafstat-clickhouse-'));
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

function configuration(folder: string, own: Ports, { shards, zookeeperPort }: Layout): string {
  const replica = ({ tcp }: Ports) => `<replica><host>127.0.0.1</host><port>${tcp}</port></replica>`;
  const shard = (ports: readonly Ports[]) =>
    `<shard><internal_replication>true</internal_replication>${ports.map(replica).join('')}</shard>`;
  return `<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>${own.http}</http_port><tcp_port>${own.tcp}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>${folder}/data/</path><tmp_path>${folder}/tmp/</tmp_path>
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
