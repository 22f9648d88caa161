/** The tables and their creation. docs/storage.md describes them in prose. */
import type { ClickHouseClient } from '@clickhouse/client';
import { StoreMisconfigured } from '../store.ts';
import { Server, type ServerOptions } from './server.ts';

export interface ClickHouseOptions extends Omit<ServerOptions, 'url'> {
  /** All servers of the cluster, or the only one. The first one has the ledger. */
  urls: readonly string[];
  /** Name of the cluster in the configuration of the servers. Undefined for a single server. */
  cluster?: string | undefined;
  /** Whether tables are replicated, with the macros {shard} and {replica} of the servers. */
  replicated: boolean;
  /** Whether to create missing tables. */
  mayMigrate?: boolean | undefined;
}

/** Creates a client for an engine in this process, instead of one over HTTP. */
export type Connect = (url: string, database: string) => ClickHouseClient;

/**
 * Increased when older releases cannot read new rows, or when tables need changes. `migrate` upgrades older tables.
 * Since version 2, rows tell which attacks were blocked; the tables are the same.
 */
const SCHEMA_VERSION = 2;

/** Keys have few rows, and a lookup reads one granule per key. */
const LEDGER_ROWS_PER_MARK = 256;
/** A week: an insert of old logs creates few parts, and space is freed at most a week late. */
const MINUTES_PER_PARTITION = 7 * 1_440;

export function openServers(options: ClickHouseOptions, connect?: Connect): Server[] {
  return options.urls.map((url) => openServer(options, url, options.database, connect));
}

function openServer(options: ClickHouseOptions, url: string, database: string, connect?: Connect): Server {
  return new Server({ ...options, url, database }, connect?.(url, database));
}

/** Creates missing databases and tables, and upgrades older ones. Safe at any time, and in several processes at once. */
export async function migrate(options: ClickHouseOptions, connect?: Connect): Promise<void> {
  const { urls, database, user } = options;
  for (const url of urls) {
    const create = (server: Server) => server.run(`CREATE DATABASE IF NOT EXISTS ${database}`);
    await withServer(openServer(options, url, 'default', connect), create);
    const createAll = (server: Server) => createTables(server, options, url === urls[0]);
    await withServer(openServer(options, url, database, connect), createAll);
  }
  // Last: the version means that all tables exist.
  const first = openServer(options, urls[0] as string, database, connect);
  await withServer(first, () => writeVersion(first, user));
}

async function createTables(server: Server, options: ClickHouseOptions, isFirst: boolean): Promise<void> {
  const { cluster, database } = options;
  const settings = await mergeTreeSettings(server);
  // Replicas of the ledger are backups; only the first server is queried.
  if (isFirst || options.replicated) {
    await server.run(`
      CREATE TABLE IF NOT EXISTS ledger (key String, version UInt64, value String, written DateTime)
      ENGINE = ${engine('ReplacingMergeTree', options, 'ledger', 'version')} ORDER BY key
      SETTINGS index_granularity = ${LEDGER_ROWS_PER_MARK}${settings}`);
  }
  const local = cluster === undefined ? 'cells' : 'cells_shard';
  await server.run(`
    CREATE TABLE IF NOT EXISTS ${local} (
      project String, host String, minute UInt32, attempt UInt64,
      requests UInt64, attacks UInt64, categories Array(UInt64),
      at Array(UInt16), kind Array(UInt8), count Array(UInt64)
    ) ENGINE = ${engine('MergeTree', options, `${local}/{shard}`)}
    PARTITION BY intDiv(minute, ${MINUTES_PER_PARTITION}) ORDER BY (project, host, minute, attempt)
    SETTINGS index_granularity = 8192${settings}`);
  if (cluster !== undefined) {
    await server.run(`
      CREATE TABLE IF NOT EXISTS cells AS cells_shard
      ENGINE = Distributed(${cluster}, ${database}, cells_shard, cityHash64(project, host))`);
  }
}

/** Shards often use the same replica names, and all shards replicate the ledger. */
const REPLICA = "'{shard}-{replica}'";

function engine(name: string, options: ClickHouseOptions, path: string, ...more: string[]): string {
  if (!options.replicated) return `${name}(${more.join(', ')})`;
  return `Replicated${name}(${[`'/wafstat/${options.database}/${path}'`, REPLICA, ...more].join(', ')})`;
}

/** Makes inserts survive a power failure, if the server supports it (20.10 and later). */
async function mergeTreeSettings(server: Server): Promise<string> {
  const rows = await server.select<{ name: string }>(
    `SELECT name FROM system.merge_tree_settings WHERE name IN ('fsync_after_insert', 'fsync_part_directory')`,
  );
  return rows.map(({ name }) => `, ${name} = 1`).join('');
}

async function writeVersion(server: Server, user: string): Promise<void> {
  await server.run(
    `INSERT INTO ledger (key, version, value, written)
     SELECT 'user', toUInt64(toUnixTimestamp(now())), {user:String}, now()`,
    { user },
  );
  if (((await readVersion(server)) ?? 0) < SCHEMA_VERSION) {
    await server.run(
      `INSERT INTO ledger (key, version, value, written)
       SELECT 'schema', max(version) + 1, toString({version:UInt64}), now() FROM ledger WHERE key = 'schema'`,
      { version: SCHEMA_VERSION },
    );
  }
}

/** Null if not all tables exist yet. */
async function readVersion(server: Server): Promise<number | null> {
  const value = await readValue(server, 'schema');
  return value === '' ? null : Number(value);
}

async function readValue(server: Server, key: 'schema' | 'user'): Promise<string> {
  const [row] = await server.select<{ value: string }>(
    `SELECT argMax(value, version) AS value FROM ledger WHERE key = {key:String}`,
    { key },
  );
  return row?.value ?? '';
}

/** Rejects if the tables cannot be used. */
export async function checkTables(
  first: Server,
  options: ClickHouseOptions,
  connect?: Connect,
): Promise<void> {
  let version = (await hasLedger(options, connect)) ? await readVersion(first) : null;
  // Older tables are not upgraded here: older processes that still run would count wrongly.
  if (version === null && options.mayMigrate) {
    await migrate(options, connect);
    version = await readVersion(first);
  }
  if (version === SCHEMA_VERSION) return checkUser(first, options.user);
  throw new StoreMisconfigured(
    version === null
      ? `the database ${options.database} of ClickHouse has no tables; create them with 'wafstat migrate'`
      : `the tables in ClickHouse have version ${version}, but this release needs version ${SCHEMA_VERSION}` +
          (version < SCHEMA_VERSION ? `; stop all older processes and run 'wafstat migrate'` : ''),
  );
}

/** Query IDs exclude each other per user: with two users, two processes could both write the same version. */
async function checkUser(first: Server, user: string): Promise<void> {
  const owner = await readValue(first, 'user');
  if (owner === user) return;
  throw new StoreMisconfigured(
    `the tables are written by the ClickHouse user ${owner}, and all processes must use the same one; ` +
      `to change to ${user}, stop them all and run 'wafstat migrate' as that user`,
  );
}

async function hasLedger(options: ClickHouseOptions, connect?: Connect): Promise<boolean> {
  const rows = await withServer(
    openServer(options, options.urls[0] as string, 'default', connect),
    (server) =>
      server.select(`SELECT 1 FROM system.tables WHERE database = {database:String} AND name = 'ledger'`, {
        database: options.database,
      }),
  );
  return rows.length > 0;
}

/** Drops the partitions before a minute. */
export async function dropCellsBefore(
  servers: readonly Server[],
  { cluster, database }: ClickHouseOptions,
  minute: number,
): Promise<void> {
  const table = cluster === undefined ? 'cells' : 'cells_shard';
  for (const server of servers) {
    const rows = await server.select<{ partition: string }>(
      `SELECT DISTINCT partition FROM system.parts
       WHERE database = {database:String} AND table = {table:String} AND active
         AND toUInt32(partition) < {partition:UInt32}`,
      { database, table, partition: Math.floor(minute / MINUTES_PER_PARTITION) },
    );
    for (const { partition } of rows)
      await server.run(`ALTER TABLE ${table} DROP PARTITION ${Number(partition)}`);
  }
}

async function withServer<T>(server: Server, action: (server: Server) => Promise<T>): Promise<T> {
  try {
    return await action(server);
  } finally {
    await server.close();
  }
}
