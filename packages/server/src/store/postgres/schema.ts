/**
 * The tables. Every key begins with the project. Counts are in two of them: `segments` has the exact milliseconds of each
 * append, `rollups` the sums by minute, hour and day. Both are partitioned by time, like `top_lists`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Database, LockTimeout, type Run, StatementFailed } from '../../postgres/database.ts';
import type { Level } from '../plan.ts';
import { HOUR_MS, StoreMisconfigured } from '../store.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/**
 * From coarse to fine. A chunk of cells is one row, short enough to be updated in place. The last level is that of the
 * segments; queries read it only for minutes that an edge cuts.
 */
export const LEVELS = [
  { id: 0, cellMs: DAY_MS, cellsPerChunk: 32 },
  { id: 1, cellMs: HOUR_MS, cellsPerChunk: 24 },
  { id: 2, cellMs: MINUTE_MS, cellsPerChunk: 60 },
  { id: 3, cellMs: 1, cellsPerChunk: MINUTE_MS },
] as const satisfies readonly Level[];

export const ROLLUPS = LEVELS.slice(0, 3);
export const EXACT = LEVELS[3];
/** Kept only for whole projects, for `peaks`: with it, the busiest second of a month needs no exact milliseconds. */
export const SECONDS = { id: 4, cellMs: 1_000, cellsPerChunk: 60 } as const satisfies Level;

/** The host number of the project's totals in `rollups`, and of events without a host in `segments`. */
export const NO_HOST = 0;

/** Change counters cover as much time as a chunk of days. */
export const CHANGES_MS = LEVELS[0].cellMs * LEVELS[0].cellsPerChunk;

interface PartitionedTable {
  name: 'segments' | 'rollups' | 'top_lists' | 'attacks';
  /** The time span of a partition, into which chunks of all levels fit. */
  partitionMs: number;
  /** The unit of the partition key. */
  unitMs: number;
  settings: string;
}

/** Segments are most of the data, so they are freed in smaller steps. */
const PARTITIONED: readonly PartitionedTable[] = [
  {
    name: 'segments',
    partitionMs: 8 * DAY_MS,
    unitMs: MINUTE_MS,
    // Keeps records of up to 8 KB in the row.
    settings: 'toast_tuple_target = 8160',
  },
  {
    name: 'rollups',
    partitionMs: CHANGES_MS,
    unitMs: MINUTE_MS,
    // Rows are updated constantly: free space on the page makes that cheap.
    settings: 'fillfactor = 60, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05',
  },
  {
    name: 'top_lists',
    partitionMs: 8 * DAY_MS,
    unitMs: HOUR_MS,
    settings: 'fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05',
  },
  {
    name: 'attacks',
    partitionMs: 8 * DAY_MS,
    unitMs: HOUR_MS,
    settings: 'autovacuum_vacuum_scale_factor = 0.05',
  },
];

/** The error code if there is no partition for a row. */
const CHECK_VIOLATION = '23514';
/** Retention may drop a partition again before it is used, but not often. */
const PARTITION_TRIES = 5;

const DROP_LOCK_MS = 100;
const DROP_PAUSE_MS = 1_000;
const DROP_TRIES = 30;

/** Everything but counts. */
const RECORD_TABLES = `
  CREATE TABLE schema_version (version int NOT NULL);
  CREATE TABLE retention (
    only_row bool PRIMARY KEY DEFAULT true CHECK (only_row),
    horizon bigint NOT NULL DEFAULT 0, freed_before bigint NOT NULL DEFAULT 0, note json,
    -- No top list has hours that begin before this.
    top_lists_before bigint NOT NULL DEFAULT 0
  );
  -- The row of a project is locked by each transaction that changes anything in it.
  CREATE TABLE projects (
    project text COLLATE "C" PRIMARY KEY,
    hosts int NOT NULL DEFAULT 0, sources int NOT NULL DEFAULT 0, appends bigint NOT NULL DEFAULT 0, latest bigint,
    -- Of flagged requests: the latest generation, and how many it has.
    generation int NOT NULL DEFAULT 1, generation_count int NOT NULL DEFAULT 0
  ) WITH (fillfactor = 50);
  CREATE TABLE hosts (
    project text COLLATE "C", id text COLLATE "C", number int NOT NULL,
    hostname text COLLATE "C" NOT NULL, created bigint NOT NULL,
    PRIMARY KEY (project, id), UNIQUE (project, hostname), UNIQUE (project, number)
  );
  CREATE TABLE sources (
    project text COLLATE "C", name text COLLATE "C", number int NOT NULL, record json NOT NULL,
    PRIMARY KEY (project, name)
  ) WITH (fillfactor = 50);
  CREATE TABLE source_hosts (
    project text COLLATE "C", source int, host int, PRIMARY KEY (project, source, host)
  );
  CREATE TABLE batches (
    project text COLLATE "C", source int, id text COLLATE "C", day int NOT NULL,
    after text COLLATE "C", bytes bigint, first_line_hash text, reader_state json,
    PRIMARY KEY (project, source, id)
  );
  CREATE INDEX batches_after ON batches (project, source, after) WHERE after IS NOT NULL;
  CREATE INDEX batches_day ON batches (project, day);
  CREATE TABLE followed_paths (
    project text COLLATE "C", id text COLLATE "C", record json NOT NULL, PRIMARY KEY (project, id)
  );
  -- Random additions, so that a restored database does not repeat an earlier sum.
  CREATE TABLE changes (
    project text COLLATE "C", chunk int, changes bigint NOT NULL, PRIMARY KEY (project, chunk)
  ) WITH (fillfactor = 50);
  INSERT INTO retention DEFAULT VALUES;
`;

/** The tables of identity/postgres-identity.ts and audit/audit-table.ts. */
const IDENTITY_TABLES = `
  CREATE TABLE identity_state (
    only_row bool PRIMARY KEY DEFAULT true CHECK (only_row),
    changes bigint NOT NULL DEFAULT 0, audit_bytes bigint NOT NULL DEFAULT 0,
    master_key_mark text, master_key text
  ) WITH (fillfactor = 50);
  -- The value of a deleted record is null.
  CREATE TABLE identity_records (
    kind text COLLATE "C", id text COLLATE "C", change bigint NOT NULL, value json, PRIMARY KEY (kind, id)
  );
  CREATE INDEX identity_records_change ON identity_records (change);
  CREATE INDEX identity_records_deleted ON identity_records (change) WHERE value IS NULL;
  CREATE TABLE identity_changes (change bigint PRIMARY KEY, time bigint NOT NULL);
  CREATE INDEX identity_changes_time ON identity_changes (time);
  CREATE TABLE audit_trail (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bytes int NOT NULL, record json NOT NULL
  );
  INSERT INTO identity_state DEFAULT VALUES;
`;

const TOP_LIST_TABLES = `
  -- The version is a random number that changes with the record.
  CREATE TABLE top_lists (
    project text COLLATE "C", host int, hour int, version bigint NOT NULL, record bytea NOT NULL,
    PRIMARY KEY (project, host, hour)
  ) PARTITION BY RANGE (hour);
  -- Kept attacks: blocks of attack-layout.ts. The first three numbers are also in their heads.
  CREATE TABLE attacks (
    project text COLLATE "C", hour int, number int, entries int NOT NULL, first int NOT NULL, last int NOT NULL,
    head bytea NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (project, hour, number)
  ) PARTITION BY RANGE (hour);
  -- Records and blocks are deflated already.
  ALTER TABLE top_lists ALTER record SET STORAGE EXTERNAL;
  ALTER TABLE attacks ALTER body SET STORAGE EXTERNAL;
`;

const REQUEST_TABLES = `
  -- Flagged requests, in the generations in which the project remembered them.
  CREATE TABLE requests (
    project text COLLATE "C", source int, key text COLLATE "C", generation int NOT NULL, time bigint NOT NULL,
    record json NOT NULL,
    PRIMARY KEY (project, source, key)
  ) WITH (fillfactor = 80);
  CREATE INDEX ON requests (project, generation);
`;

const COUNT_TABLES = `
  CREATE TABLE segments (
    project text COLLATE "C", minute int, append bigint, cells bytea NOT NULL,
    PRIMARY KEY (project, minute, append)
  ) PARTITION BY RANGE (minute);
  CREATE TABLE rollups (
    project text COLLATE "C", level smallint, host int, minute int, counts bytea NOT NULL,
    PRIMARY KEY (project, level, host, minute)
  ) PARTITION BY RANGE (minute);
  -- Records do not compress.
  ALTER TABLE segments ALTER cells SET STORAGE EXTERNAL;
  ALTER TABLE rollups ALTER counts SET STORAGE EXTERNAL;
`;

/** The version of the first release. Earlier ones are those of development builds. */
const VERSION = 9;
const TABLES = [
  ...[RECORD_TABLES, COUNT_TABLES, IDENTITY_TABLES, TOP_LIST_TABLES, REQUEST_TABLES],
  `INSERT INTO schema_version VALUES (${VERSION})`,
].join(';\n');

/** Serializes changes of the tables, among all processes. */
export async function lockSchema(run: Run, schema: string): Promise<void> {
  await run('SELECT pg_advisory_xact_lock(8243091, hashtext($1))', [schema]);
}

async function hasTable(run: Run, schema: string, table: string): Promise<boolean> {
  const rows = await run(
    `SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
    [schema, table],
  );
  return rows.length > 0;
}

/** Creates the tables. Can be repeated. */
export async function migrate(database: Database): Promise<void> {
  const { schema } = database;
  await database.checkSessions();
  await database.transaction(async (run) => {
    await lockSchema(run, schema);
    const version = await readVersion(run, schema);
    if (version !== null) return checkVersion(version, schema);
    const schemas = await run('SELECT FROM pg_namespace WHERE nspname = $1', [schema]);
    // An administrator may have created it: that takes more privileges than the tables.
    if (schemas.length === 0) await run(`CREATE SCHEMA "${schema}"`);
    for (const statement of TABLES.split(/;\n/)) if (statement.trim() !== '') await run(statement);
  });
}

/** Rejects if the tables cannot be used. */
export async function checkTables(database: Database, mayMigrate: boolean): Promise<void> {
  const { schema } = database;
  await database.checkSessions();
  const read = () => database.transaction((run) => readVersion(run, schema));
  let found = await read();
  if (mayMigrate && found === null) {
    await migrate(database);
    found = await read();
  }
  if (found === null) {
    throw new StoreMisconfigured(
      `the schema ${schema} of PostgreSQL has no tables; create them with 'wafstat migrate'`,
    );
  }
  checkVersion(found, schema);
}

/** Resolves to whether the tables exist in this version, or else can be created. Changes nothing. */
export async function inspectTables(database: Database, mayMigrate: boolean): Promise<boolean> {
  const { schema } = database;
  await database.checkSessions();
  const found = await database.transaction((run) => readVersion(run, schema), 'BEGIN READ ONLY');
  if (!mayMigrate || found !== null) {
    await checkTables(database, false);
    await database.checkWritable();
    return true;
  }
  const [row] = await database.run<{ may: boolean }>(
    `SELECT CASE WHEN to_regnamespace($1) IS NULL THEN has_database_privilege(current_database(), 'CREATE')
     ELSE has_schema_privilege($1, 'CREATE') END AS may`,
    [schema],
  );
  if (!row?.may) {
    throw new StoreMisconfigured(
      `the user may not create tables in the schema ${schema} of PostgreSQL: grant CREATE, or run 'wafstat migrate' as another user`,
    );
  }
  await database.checkWritable();
  return false;
}

function checkVersion(version: number, schema: string): void {
  if (version === VERSION) return;
  const advice =
    version < VERSION
      ? 'a development build created them: choose another --postgres-schema, or drop this one'
      : 'use a newer release';
  throw new StoreMisconfigured(
    `the tables in the schema ${schema} of PostgreSQL have version ${version}, ` +
      `but this release needs version ${VERSION}; ${advice}`,
  );
}

/** Null if the tables do not exist. Rejects if the schema is that of another program, many of which have such a table. */
async function readVersion(run: Run, schema: string): Promise<number | null> {
  if (!(await hasTable(run, schema, 'schema_version'))) return null;
  if (!(await hasTable(run, schema, 'segments'))) {
    throw new StoreMisconfigured(
      `the schema ${schema} of PostgreSQL belongs to another program: choose another --postgres-schema`,
    );
  }
  // The statement names the schema: otherwise PostgreSQL reports a missing table if the user has no access to it.
  const [row] = await run<{ version: number }>(`SELECT version FROM "${schema}".schema_version`);
  return row?.version ?? null;
}

/**
 * Runs a transaction that adds rows of these minutes to these tables, and creates the partitions that it lacks. It must
 * not add rows to freed time, for which there may be no partition.
 */
export async function inPartitions<T>(
  database: Database,
  names: readonly PartitionedTable['name'][],
  times: () => Iterable<number>,
  action: (run: Run) => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await database.transaction(action);
    } catch (error) {
      // The partition may also have been dropped, because its time was freed: the next try reads what was freed.
      const isMissing = error instanceof StatementFailed && error.code === CHECK_VIOLATION;
      if (!isMissing || tries === PARTITION_TRIES) throw error;
      await createPartitions(database, names, times());
    }
  }
}

/**
 * Creates the missing partitions for these times, except freed ones. Attaching does not block queries and appends. The
 * lock makes `dropPartitions` see what this creates, or this see what was freed.
 */
async function createPartitions(
  database: Database,
  names: readonly PartitionedTable['name'][],
  times: Iterable<number>,
): Promise<void> {
  await database.transaction(async (run) => {
    await lockSchema(run, database.schema);
    const [row] = await run<{ freed: number }>('SELECT freed_before AS freed FROM retention');
    const freed = row?.freed ?? 0;
    const wanted = new Map<string, { table: PartitionedTable; number: number }>();
    for (const time of times) {
      if (time + MINUTE_MS <= freed) continue;
      for (const table of PARTITIONED) {
        if (!names.includes(table.name)) continue;
        const number = Math.floor(time / table.partitionMs);
        wanted.set(partitionName(table, number), { table, number });
      }
    }
    for (const [name, { table, number }] of wanted) {
      if (await hasTable(run, database.schema, name)) continue;
      const [first, end] = [number, number + 1].map((each) => (each * table.partitionMs) / table.unitMs);
      await run(`CREATE TABLE ${name} (LIKE ${table.name} INCLUDING ALL) WITH (${table.settings})`);
      await run(`ALTER TABLE ${table.name} ATTACH PARTITION ${name} FOR VALUES FROM (${first}) TO (${end})`);
    }
  });
}

/**
 * Drops the partitions that end before a time. All queries wait while this waits for one that reads the table, so it waits
 * only for a moment, and tries again: a backup may read for hours.
 */
export async function dropPartitions(
  database: Database,
  names: readonly PartitionedTable['name'][],
  before: number,
  stop?: AbortSignal,
): Promise<void> {
  for (const table of PARTITIONED) {
    if (!names.includes(table.name)) continue;
    const rows = await database.transaction(async (run) => {
      await lockSchema(run, database.schema);
      return run<{ name: string }>(
        `SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace n ON n.oid = p.relnamespace
         WHERE n.nspname = $1 AND p.relname = $2`,
        [database.schema, table.name],
      );
    });
    const end = Math.floor(before / table.partitionMs);
    for (const { name } of rows) {
      if (stop?.aborted) return;
      const number = partitionNumber(name);
      if (number < end) await dropPartition(database, partitionName(table, number), stop);
    }
  }
}

async function dropPartition(database: Database, name: string, stop: AbortSignal | undefined): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await database.transaction(async (run) => {
        // On the workers of Citus, too.
        await run("SET LOCAL citus.propagate_set_commands = 'local'");
        await run(`SET LOCAL lock_timeout = ${DROP_LOCK_MS}`);
        await run(`DROP TABLE IF EXISTS ${name}`);
      });
      return;
    } catch (error) {
      if (!(error instanceof LockTimeout) || tries === DROP_TRIES) throw error;
      await sleep(DROP_PAUSE_MS);
      if (stop?.aborted) return;
    }
  }
}

/** `_m12` for partition -12: a name cannot have a minus sign. */
function partitionName({ name }: PartitionedTable, number: number): string {
  return `${name}_${number < 0 ? 'm' : ''}${Math.abs(number)}`;
}

function partitionNumber(name: string): number {
  const [, sign, digits] = /_(m?)(\d+)$/.exec(name) ?? [];
  return sign === 'm' ? -Number(digits) : Number(digits);
}
