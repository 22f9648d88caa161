/** PostgreSQL from Debian: a separate server on a socket in the directory, with prepared statements. */
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { COUNTS, distributionSql, TABLES, timelineSql, upsertSql } from './tables.mjs';

const VERSIONS = '/usr/lib/postgresql';
const PROGRAMS = join(VERSIONS, readdirSync(VERSIONS).sort().at(-1), 'bin');
/** Enough to keep all data in memory, as with the other peers. */
const SETTINGS = ['shared_buffers=1GB', 'max_parallel_workers_per_gather=0', 'jit=off', 'fsync=off'];

export async function load(directory) {
  const data = join(directory, 'postgres');
  rmSync(data, { recursive: true, force: true });
  mkdirSync(data);
  asOwner(data, [join(PROGRAMS, 'initdb'), '--auth=trust', '--username=bench', '--no-sync', data]);
  const stop = await start(data);
  const client = new pg.Client(address(data));
  await client.connect();
  for (const table of TABLES) {
    const columns = COUNTS.map((name) => `${name} INTEGER`).join();
    await client.query(`CREATE TABLE ${table} (scope INTEGER, t INTEGER, ${columns})`);
    await copy(data, table, join(directory, `${table}.csv`));
    await client.query(`ALTER TABLE ${table} ADD PRIMARY KEY (scope, t)`);
    await client.query(`VACUUM (ANALYZE, FREEZE) ${table}`);
  }
  await client.end();
  await stop();
}

/** Uses psql, because the driver has no COPY. */
function copy(data, table, file) {
  execFileSync('psql', [
    '-q',
    '-h',
    data,
    '-U',
    'bench',
    '-c',
    `\\copy ${table} FROM '${file}' CSV`,
    'postgres',
  ]);
}

export async function open(directory) {
  const data = join(directory, 'postgres');
  const stop = await start(data);
  const pool = new pg.Pool({ ...address(data), max: 4 });
  // Idle connections fail when the server stops.
  pool.on('error', () => {});
  const all = async (sql, values) => {
    const name = `${sql.slice(0, 50)} ${values.length}`;
    return (await pool.query({ name, text: sql, values, rowMode: 'array' })).rows;
  };
  const mark = (_value, i) => `$${i + 1}`;
  return {
    // The driver returns 64-bit sums as text.
    timeline: (table, scopes, from, to) => all(timelineSql(table, scopes, mark), [...scopes, from, to]),
    distribution: async (scopes, from, to) =>
      (await all(distributionSql(scopes, mark), [...scopes, from, to]))[0],
    async append(rows) {
      const client = await pool.connect();
      await client.query('BEGIN');
      for (const table of TABLES) {
        const columns = ['scope', 't', ...COUNTS].map((_, i) => rows[table].map((row) => row[i]));
        const source = `SELECT * FROM unnest(${columns.map((_, i) => `$${i + 1}::int[]`)})`;
        await client.query({ name: table, text: upsertSql(table, source), values: columns });
      }
      await client.query('COMMIT');
      client.release();
    },
    async close() {
      await pool.end();
      await stop();
    },
  };
}

function address(data) {
  return { host: data, user: 'bench', database: 'postgres' };
}

async function start(data) {
  const settings = [...SETTINGS, 'listen_addresses=', `unix_socket_directories=${data}`].flatMap((s) => [
    '-c',
    s,
  ]);
  const [command, ...args] = ownerCommand(data, [join(PROGRAMS, 'postgres'), '-D', data, ...settings]);
  const child = spawn(command, args, { stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  for (let attempt = 0; ; attempt++) {
    const client = new pg.Client(address(data));
    try {
      await client.connect();
      await client.end();
      break;
    } catch (error) {
      if (attempt > 300 || child.exitCode !== null) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  return async () => {
    child.kill('SIGINT');
    await ended;
  };
}

function asOwner(data, args) {
  const [command, ...rest] = ownerCommand(data, args);
  execFileSync(command, rest, { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** PostgreSQL does not run as root; Debian's package creates this user. */
function ownerCommand(data, args) {
  if (process.getuid() !== 0) return args;
  const [uid, gid] = ['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, 'postgres'])));
  chownSync(data, uid, gid);
  chmodSync(data, 0o700);
  return ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', ...args];
}
