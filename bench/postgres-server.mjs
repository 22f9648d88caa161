/** A separate PostgreSQL server from Debian on a free port, with its default durability. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync } from 'node:fs';
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

export async function start(directory) {
  const home = join(directory, 'postgres');
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
  const settings = { ...SETTINGS, port, listen_addresses: '127.0.0.1', unix_socket_directories: home };
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
    data,
    async stop() {
      child.kill('SIGINT');
      await ended;
    },
  };
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
