/**
 * The tables: `cells` on each shard in ClickHouse, and what coordinates appends in PostgreSQL, beside the tables that
 * store/postgres/ has. docs/storage.md describes them in prose.
 */
import type { ClickHouseClient } from '@clickhouse/client';
import type { Database } from '../../postgres/database.ts';
import {
  checkTables,
  inspectTables,
  migrate as migrateTables,
  RECORD_TABLES,
  REQUEST_TABLES,
  type Tables,
  TOP_LIST_TABLES,
} from '../postgres/schema.ts';
import { StoreMisconfigured } from '../store.ts';
import { Server, type ServerOptions } from './server.ts';

export interface ShardOptions extends Omit<ServerOptions, 'url'> {
  /** One for each shard. Their order must not change. */
  urls: readonly string[];
}

/** Creates a client for an engine in this process, instead of one over HTTP. */
export type Connect = (url: string, database: string) => ClickHouseClient;

export const MINUTE_MS = 60_000;
export const MINUTES_PER_DAY = 1_440;
/** Long enough that an insert of old logs creates few parts. Space is freed up to this much later. */
const MINUTES_PER_PARTITION = 8 * MINUTES_PER_DAY;

/**
 * What a row of `cells` sums up. `codes` and `counts` are cells of cells.ts: the exact milliseconds of a minute, the
 * seconds of a minute (as their first milliseconds), or only the series.
 */
export const LEVELS = {
  /** One host in one minute. NO_HOST: events without a host. */
  hostMinute: 0,
  /** The whole project in one minute. */
  projectMinute: 1,
  /** One host in one hour. NO_HOST: the whole project. */
  hour: 2,
} as const;
export const NO_HOST = 0;

/**
 * The part of the key before the host. On the level of hosts and minutes, it is the hour: a query of one host reads a few
 * rows of each hour, and one of a single minute the rows of all hosts in that hour. On other levels it is 0.
 */
export function bucketOf(level: number, minute: number): number {
  return level === LEVELS.hostMinute ? Math.floor(minute / 60) : 0;
}

/** The default of current releases. With 150, the default of older ones, a hundred inserts per second are delayed. */
const PARTS_MAX = 1_000;

const CELLS = (settings: string) => `
  CREATE TABLE IF NOT EXISTS cells (
    project String, level UInt8, bucket UInt32, host UInt32, minute UInt32, attempt UInt64,
    requests UInt64, attacks UInt64, codes Array(UInt32), counts Array(UInt64)
  ) ENGINE = MergeTree PARTITION BY intDiv(minute, ${MINUTES_PER_PARTITION})
  ORDER BY (project, level, bucket, host, minute, attempt) SETTINGS index_granularity = 1024, parts_to_delay_insert = ${PARTS_MAX}, parts_to_throw_insert = ${3 * PARTS_MAX}${settings}`;

/** Identifies a database as a shard of an installation. */
const SHARD = `
  CREATE TABLE IF NOT EXISTS shard (installation String, number UInt32, version UInt32)
  ENGINE = MergeTree ORDER BY number SETTINGS index_granularity = 8192`;
const SHARD_VERSION = 1;

/** Timelines of PostgreSQL have separate ranges of attempt numbers: after a failover, none is used again. */
export const ATTEMPTS_PER_TIMELINE = 2 ** 40;

const COORDINATION_TABLES = `
  CREATE TABLE installation (
    only_row bool PRIMARY KEY DEFAULT true CHECK (only_row),
    id text NOT NULL DEFAULT gen_random_uuid()::text, shards int NOT NULL DEFAULT 0
  );
  INSERT INTO installation DEFAULT VALUES;
  -- attempt: the latest number. first_attempt: no number below counts.
  ALTER TABLE projects ADD shard int, ADD attempt bigint NOT NULL DEFAULT 0,
    ADD first_attempt bigint NOT NULL DEFAULT 0;
  -- Numbers that do not count: attempts that are open, and aborted ones until the floors of their days exclude them.
  -- A range of numbers without days was lost in a failover.
  CREATE TABLE attempts (
    project text COLLATE "C", number bigint, first bigint NOT NULL, aborted bool NOT NULL DEFAULT false,
    compacts bool NOT NULL DEFAULT false, expires timestamptz NOT NULL, days int[],
    PRIMARY KEY (project, number)
  ) WITH (fillfactor = 50);
  -- floor: no lower number counts on this day. attempts, cells: since the last compaction. compacted: cells after it.
  -- replaced_below: lower numbers can be deleted some time after replaced_at.
  CREATE TABLE days (
    project text COLLATE "C", day int, floor bigint NOT NULL DEFAULT 0,
    attempts int NOT NULL DEFAULT 0, cells bigint NOT NULL DEFAULT 0, compacted bigint NOT NULL DEFAULT 0,
    changed timestamptz NOT NULL DEFAULT now(), replaced_below bigint, replaced_at timestamptz,
    PRIMARY KEY (project, day)
  ) WITH (fillfactor = 50);
  CREATE INDEX days_replaced ON days (replaced_at) WHERE replaced_below IS NOT NULL;
`;

const COORDINATION: Tables = {
  store: 'clickhouse',
  name: 'attempts',
  upgrades: [`${RECORD_TABLES}${TOP_LIST_TABLES}${COORDINATION_TABLES}`, REQUEST_TABLES],
};

export class Shards {
  readonly #options: ShardOptions;
  readonly #connect: Connect | undefined;
  readonly #servers: readonly Server[];
  readonly #checked = new Map<number, Promise<void>>();
  /** Shards whose last insert has failed. */
  readonly #suspects = new Set<number>();
  #installation = '';

  constructor(options: ShardOptions, connect?: Connect) {
    this.#options = options;
    this.#connect = connect;
    this.#servers = options.urls.map((url) => openServer(options, url, options.database, connect));
  }

  get count(): number {
    return this.#servers.length;
  }

  /** Chooses the shard of a project that has none yet. */
  choose(project: string): number {
    // FNV-1a: any stable hash will do, because the choice is stored.
    let hash = 0x811c9dc5;
    for (const byte of Buffer.from(project)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
    return hash % this.count;
  }

  /** Rejects if PostgreSQL cannot be used with this list of shards. */
  async check(database: Database, mayMigrate: boolean): Promise<void> {
    await checkTables(database, mayMigrate, COORDINATION);
    let found = await readInstallation(database);
    if (found.shards === 0 && mayMigrate) {
      await migrate(database, this.#options, this.#connect);
      found = await readInstallation(database);
    }
    if (found.shards === 0) throw new StoreMisconfigured(noTables(this.#options.database));
    if (found.shards !== this.count) {
      throw new StoreMisconfigured(
        `there are ${found.shards} shards, but --clickhouse-url lists ${this.count}: list all in their order. ` +
          "To add shards, append them to the list and run 'wafstat migrate'",
      );
    }
    this.#installation = found.id;
  }

  /**
   * Resolves to whether all tables exist, or else can be created. Rejects with the problems of all shards, as an
   * AggregateError. Changes nothing.
   */
  async inspect(database: Database, mayMigrate: boolean): Promise<boolean> {
    const isCreated =
      (await inspectTables(database, mayMigrate, COORDINATION)) &&
      (!mayMigrate || (await readInstallation(database)).shards > 0);
    if (isCreated) await this.check(database, false);
    const { urls, database: name } = this.#options;
    const shards = urls.map((url, number) =>
      isCreated
        ? this.get(number)
        : withServer(openServer(this.#options, url, 'default', this.#connect), async (server) =>
            checkTablesOf(await readTables(server, name), name, url),
          ),
    );
    const failed = (await Promise.allSettled(shards)).filter((result) => result.status === 'rejected');
    if (failed.length > 0) throw new AggregateError(failed.map(({ reason }) => reason));
    return isCreated;
  }

  /** Rejects if the server is not this shard: its counts would be wrong. */
  async get(number: number): Promise<Server> {
    const server = this.#servers[number];
    if (server === undefined) throw new Error(`there is no shard ${number}`);
    let checked = this.#checked.get(number);
    if (checked === undefined) {
      checked = this.#checkShard(server, number).catch((error) => {
        this.#checked.delete(number);
        throw error;
      });
      this.#checked.set(number, checked);
    }
    await checked;
    return server;
  }

  failed(number: number): void {
    this.#suspects.add(number);
  }

  /** Rejects if an insert has failed and the server still does not respond. */
  async ready(number: number): Promise<void> {
    const server = await this.get(number);
    if (!this.#suspects.has(number)) return;
    await server.ping();
    this.#suspects.delete(number);
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  async #checkShard(server: Server, number: number): Promise<void> {
    const { database, urls } = this.#options;
    // A missing database accepts no connection, so this connects to another one.
    const tables = await withServer(
      openServer(this.#options, urls[number] ?? '', 'default', this.#connect),
      (any) => readTables(any, database),
    );
    checkTablesOf(tables, database, urls[number] ?? '');
    if (!tables.has('shard')) throw new StoreMisconfigured(noTables(database));
    const found = await readShard(server);
    if (found === undefined) throw new StoreMisconfigured(noTables(database));
    if (found.version !== SHARD_VERSION) {
      throw new StoreMisconfigured(
        `the tables of ClickHouse at ${urls[number]} have version ${found.version}, but this release needs version ${SHARD_VERSION}`,
      );
    }
    checkIdentity(found, this.#installation, number, urls[number] ?? '', database);
  }
}

interface Shard {
  installation: string;
  number: number;
  version: number;
}

function noTables(database: string): string {
  return `the database ${database} of ClickHouse has no tables; create them with 'wafstat migrate'`;
}

function checkIdentity(found: Shard, installation: string, number: number, url: string, name: string): void {
  if (found.installation !== installation) {
    throw new StoreMisconfigured(
      `the database ${name} of ClickHouse at ${url} belongs to other tables in PostgreSQL: ` +
        'check --postgres-url, --postgres-schema and --clickhouse-database',
    );
  }
  if (found.number !== number) {
    throw new StoreMisconfigured(
      `ClickHouse at ${url} is shard ${found.number + 1}, but --clickhouse-url lists it as shard ${number + 1}: restore the order`,
    );
  }
}

function openServer(options: ShardOptions, url: string, database: string, connect?: Connect): Server {
  return new Server({ ...options, url, database }, connect?.(url, database));
}

async function readInstallation(database: Database): Promise<{ id: string; shards: number }> {
  const [row] = await database.run<{ id: string; shards: number }>('SELECT id, shards FROM installation');
  return { id: row?.id ?? '', shards: row?.shards ?? 0 };
}

async function readShard(server: Server): Promise<Shard | undefined> {
  const [row] = await server.select<Shard>('SELECT installation, number, version FROM shard');
  return row;
}

/** The engines of the tables in a database, by name. */
async function readTables(server: Server, database: string): Promise<Map<string, string>> {
  const rows = await server.select<{ name: string; engine: string }>(
    'SELECT name, engine FROM system.tables WHERE database = {database:String}',
    { database },
  );
  return new Map(rows.map(({ name, engine }) => [name, engine]));
}

function checkTablesOf(tables: ReadonlyMap<string, string>, database: string, url: string): void {
  if (tables.has('ledger')) {
    throw new StoreMisconfigured(
      `the database ${database} of ClickHouse at ${url} has tables of an older release, which this release cannot read. ` +
        "Copy each project with the older release ('wafstat copy --from clickhouse --to lmdb'), then with this one into " +
        'another --clickhouse-database; or ingest the logs again. Nothing was changed',
    );
  }
  const engine = tables.get('cells');
  if (engine !== undefined && engine !== 'MergeTree') {
    throw new StoreMisconfigured(
      `the table cells of ClickHouse at ${url} has the engine ${engine}, but only MergeTree is supported: ` +
        'a replica may return counts that are too old',
    );
  }
}

/** Creates missing tables, and adds shards at the end of the list. Can be repeated. */
export async function migrate(database: Database, options: ShardOptions, connect?: Connect): Promise<void> {
  await migrateTables(database, COORDINATION);
  const { id, shards } = await readInstallation(database);
  const { urls, database: name } = options;
  if (urls.length < shards) {
    throw new StoreMisconfigured(
      `there are ${shards} shards, but --clickhouse-url lists only ${urls.length}: shards cannot be removed`,
    );
  }
  for (const [number, url] of urls.entries()) {
    await withServer(openServer(options, url, 'default', connect), async (server) => {
      checkTablesOf(await readTables(server, name), name, url);
      await server.run(`CREATE DATABASE IF NOT EXISTS ${name}`);
    });
    await withServer(openServer(options, url, name, connect), async (server) => {
      await server.run(CELLS(await mergeTreeSettings(server)));
      await server.run(SHARD);
      const found = await readShard(server);
      if (found !== undefined) checkIdentity(found, id, number, url, name);
      else if (number < shards) {
        throw new StoreMisconfigured(
          `ClickHouse at ${url} has lost the counts of shard ${number + 1}: restore them from a backup`,
        );
      } else {
        await server.run(
          'INSERT INTO shard (installation, number, version) SELECT {id:String}, {number:UInt32}, {version:UInt32}',
          { id, number, version: SHARD_VERSION },
        );
      }
    });
  }
  for (const [number, url] of urls.entries()) {
    await withServer(openServer(options, url, name, connect), (server) =>
      excludeUnknown(database, server, number),
    );
  }
  // Updated last: the number means that all tables exist.
  await database.run('UPDATE installation SET shards = greatest(shards, $1)', [urls.length]);
}

/**
 * Excludes attempts that PostgreSQL does not know, because it was restored from a backup that is older than the rows. Their
 * numbers are not given out again.
 */
async function excludeUnknown(database: Database, server: Server, shard: number): Promise<void> {
  const rows = await server.select<{ project: string; latest: string }>(
    'SELECT project, max(attempt) AS latest FROM cells GROUP BY project',
  );
  for (const { project, latest } of rows) {
    const values = [project, Number(latest)];
    await database.transaction(async (run) => {
      await run('INSERT INTO projects (project) VALUES ($1) ON CONFLICT DO NOTHING', [project]);
      await run('SELECT FROM projects WHERE project = $1 FOR UPDATE', [project]);
      await run(
        `INSERT INTO attempts (project, number, first, aborted, expires)
         SELECT project, $2, attempt + 1, true, clock_timestamp() FROM projects WHERE project = $1 AND attempt < $2`,
        values,
      );
      await run(
        'UPDATE projects SET attempt = $2, shard = coalesce(shard, $3) WHERE project = $1 AND attempt < $2',
        [...values, shard],
      );
    });
  }
}

/** Makes inserts survive a power failure, if the server supports it (20.10 and later). */
async function mergeTreeSettings(server: Server): Promise<string> {
  const rows = await server.select<{ name: string }>(
    `SELECT name FROM system.merge_tree_settings WHERE name IN ('fsync_after_insert', 'fsync_part_directory')`,
  );
  return rows.map(({ name }) => `, ${name} = 1`).join('');
}

/** Drops the partitions before a time. */
export async function dropCellsBefore(server: Server, database: string, time: number): Promise<void> {
  const partition = Math.max(0, Math.floor(time / MINUTE_MS / MINUTES_PER_PARTITION));
  const rows = await server.select<{ partition: string }>(
    `SELECT DISTINCT partition FROM system.parts
     WHERE database = {database:String} AND table = 'cells' AND active AND toUInt32(partition) < {partition:UInt32}`,
    { database, partition },
  );
  for (const row of rows) await server.run(`ALTER TABLE cells DROP PARTITION ${Number(row.partition)}`);
}

async function withServer<T>(server: Server, action: (server: Server) => Promise<T>): Promise<T> {
  try {
    return await action(server);
  } finally {
    await server.close();
  }
}
