/** Separate PostgreSQL servers from Debian on free ports, with their default durability. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { server } from './paths.mjs';

const { parseDatabaseUrl } = await import(join(server, 'dist/postgres/url.js'));
const programs = `/usr/lib/postgresql/${readdirSync('/usr/lib/postgresql').sort().at(-1)}/bin`;

/** More memory than the default, which is for very small machines. */
const SETTINGS = {
  shared_buffers: '1GB',
  max_wal_size: '4GB',
  max_connections: '200',
  checkpoint_timeout: '15min',
};

export async function start(directory, name = 'postgres', parameters = {}) {
  const home = join(directory, name);
  mkdirSync(home, { recursive: true });
  // PostgreSQL refuses to run as root; Debian's package adds this user.
  const id = (option) => Number(execFileSync('id', [option, 'postgres'], { encoding: 'utf8' }));
  const user = process.getuid() === 0 ? { uid: id('-u'), gid: id('-g') } : {};
  if (user.uid !== undefined) {
    chmodSync(directory, 0o711);
    chownSync(home, user.uid, user.gid);
  }
  const data = join(home, 'data');
  const options = { ...user, cwd: home, stdio: 'ignore' };
  execFileSync(
    `${programs}/initdb`,
    ['-U', 'wafstat', '-A', 'trust', '--locale=C', '-E', 'UTF8', '-D', data],
    options,
  );
  const port = await freePort();
  const settings = {
    ...SETTINGS,
    port,
    listen_addresses: '127.0.0.1',
    unix_socket_directories: home,
    ...parameters,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const child = spawn(`${programs}/postgres`, ['-D', data, ...args], options);
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const ready = () =>
    spawnSync(`${programs}/pg_isready`, ['-q', '-h', '127.0.0.1', '-p', String(port)]).status === 0;
  for (let attempt = 0; !ready(); attempt++) {
    if (attempt > 300 || child.exitCode !== null) throw new Error('PostgreSQL does not start');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return {
    url: `postgres://wafstat@127.0.0.1:${port}/postgres`,
    port,
    data,
    /** Of all processes of the server, ended ones included. */
    processorMs: () => processorMs(child.pid),
    sql: (statement) =>
      execFileSync(`${programs}/psql`, [
        '-h',
        '127.0.0.1',
        '-p',
        String(port),
        '-U',
        'wafstat',
        '-d',
        'postgres',
        '-c',
        statement,
      ]),
    async stop() {
      child.kill('SIGINT');
      await ended;
    },
  };
}

/** A Citus cluster: a coordinator and two workers. */
export async function startCitus(directory) {
  const parameters = {
    shared_preload_libraries: 'citus',
    shared_buffers: '512MB',
    'citus.node_conninfo': 'sslmode=disable',
    // Eight shards are enough to show what one costs; the default, 32, makes new partitions slower.
    'citus.shard_count': '8',
  };
  const names = ['coordinator', 'worker1', 'worker2'];
  const [coordinator, ...workers] = await Promise.all(
    names.map((name) => start(directory, name, parameters)),
  );
  for (const server of [coordinator, ...workers]) server.sql('CREATE EXTENSION citus');
  coordinator.sql(`SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`);
  for (const { port } of workers) coordinator.sql(`SELECT citus_add_node('127.0.0.1', ${port})`);
  const stop = () => Promise.all([coordinator, ...workers].map((server) => server.stop()));
  return { coordinator, workers, stop };
}

const TICK_MS = 1_000 / Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));

function processorMs(pid) {
  const children = spawnSync('pgrep', ['-P', String(pid)], { encoding: 'utf8' })
    .stdout.split('\n')
    .filter(Boolean);
  /** utime, stime, and those of ended children, which only the first process has. */
  const ticks = (id, fields) => {
    try {
      const values = readFileSync(`/proc/${id}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .split(' ');
      return fields.reduce((sum, field) => sum + Number(values[field - 3]), 0);
    } catch {
      return 0;
    }
  };
  const running = children.reduce((sum, id) => sum + ticks(id, [14, 15]), 0);
  return (running + ticks(pid, [14, 15, 16, 17])) * TICK_MS;
}

/** The options of a store on this server. */
export function storeOptions(url, schema = 'wafstat') {
  return {
    url: parseDatabaseUrl(url),
    ...{
      password: '',
      schema,
      usesTls: () => false,
      timeoutMs: 60_000,
      connectionsMax: 10,
      mayMigrate: true,
    },
  };
}

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}
