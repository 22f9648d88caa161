/**
 * Tables on Citus: an extension of PostgreSQL that distributes rows over servers, its workers. Every key begins with the
 * project and no transaction changes two of them, so a transaction of a project runs on one worker.
 */
import type { Database, Run } from '../../postgres/database.ts';
import { StoreMisconfigured, StoreUnavailable } from '../store.ts';
import { lockSchema } from './schema.ts';

/** The others have the shards of a project on the same worker as this one. */
const FIRST_TABLE = 'projects';
const DISTRIBUTED = [
  ...[FIRST_TABLE, 'hosts', 'sources', 'source_hosts', 'batches', 'followed_paths', 'changes'],
  ...['segments', 'rollups', 'top_lists', 'attacks', 'requests'],
];
/** Every worker has a copy, because the statements of a project read it. */
const REFERENCE = 'retention';

export interface Distributed {
  /** Those that were not distributed before. */
  tables: string[];
  /** Their addresses. */
  workers: string[];
}

/** Distributes the tables with their rows. Can be repeated. */
export function distributeTables(database: Database): Promise<Distributed> {
  const { schema } = database;
  return database.transaction(async (run) => {
    await lockSchema(run, schema);
    const workers = await listWorkers(run);
    const known = await run<{ name: string }>(
      `SELECT c.relname AS name FROM pg_dist_partition d JOIN pg_class c ON c.oid = d.logicalrelid
       JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`,
      [schema],
    );
    const isDistributed = new Set(known.map(({ name }) => name));
    const tables = [...DISTRIBUTED, REFERENCE].filter((name) => !isDistributed.has(name));
    for (const name of tables) {
      const table = `"${schema}".${name}`;
      if (name === REFERENCE) await run('SELECT create_reference_table($1)', [table]);
      else {
        const other = name === FIRST_TABLE ? 'none' : `"${schema}".${FIRST_TABLE}`;
        await run("SELECT create_distributed_table($1, 'project', colocate_with => $2)", [table, other]);
      }
      // The workers have the rows now. Citus hides those that are left here.
      await run('SELECT truncate_local_data_after_distributing_table($1)', [table]);
    }
    return { tables, workers };
  });
}

async function listWorkers(run: Run): Promise<string[]> {
  const installed = await run("SELECT FROM pg_extension WHERE extname = 'citus'");
  if (installed.length === 0) {
    throw new StoreMisconfigured(
      "the database has no extension citus: set shared_preload_libraries = 'citus', restart PostgreSQL and run CREATE EXTENSION citus",
    );
  }
  const workers = await run<{ address: string }>(
    `SELECT concat(nodename, ':', nodeport) AS address FROM pg_dist_node
     WHERE isactive AND shouldhaveshards AND noderole = 'primary' ORDER BY nodeid`,
  );
  if (workers.length === 0) {
    throw new StoreMisconfigured(
      "Citus has no workers: add one with SELECT citus_add_node('worker1.example', 5432)",
    );
  }
  return workers.map(({ address }) => address);
}

export async function areTablesDistributed(database: Database): Promise<boolean> {
  const [row] = await database.run<{ has: boolean }>(
    `SELECT to_regclass('pg_dist_partition') IS NOT NULL AS has`,
  );
  if (!row?.has) return false;
  const found = await database.run(
    `SELECT FROM pg_dist_partition WHERE logicalrelid = '${FIRST_TABLE}'::regclass`,
  );
  return found.length > 0;
}

/** A worker that does not respond in this time is unavailable. */
const PROBE_MS = 2_000;
const PROJECTS_MAX = 100;

/**
 * Finds the projects on workers that do not respond: those of the identity tables and `others`. Readiness is public, so calls
 * share a probe: each needs a connection per worker.
 */
export function createWorkerProbe(database: Database): (others: Iterable<string>) => Promise<string[]> {
  let running: Promise<string[]> | null = null;
  return (others) => {
    running ??= projectsWithoutWorker(database, others).finally(() => {
      running = null;
    });
    return running;
  };
}

async function projectsWithoutWorker(database: Database, others: Iterable<string>): Promise<string[]> {
  const nodes = await database.run<{ id: number; name: string; port: number }>(
    `SELECT nodeid AS id, nodename AS name, nodeport AS port FROM pg_dist_node
     WHERE isactive AND shouldhaveshards AND noderole = 'primary'`,
  );
  const isDown = await Promise.all(nodes.map(({ name, port }) => isWorkerDown(database, name, port)));
  const down = nodes.filter((_, i) => isDown[i]).map(({ id }) => id);
  if (down.length === 0) return [];
  const rows = await database.run<{ id: string }>(
    `SELECT i.id FROM (
       SELECT id FROM identity_records WHERE kind = 'project' AND value IS NOT NULL UNION SELECT unnest($1::text[])
     ) AS i JOIN pg_dist_placement p ON p.shardid = get_shard_id_for_distribution_column('${FIRST_TABLE}', i.id)
     JOIN pg_dist_node n ON n.groupid = p.groupid
     WHERE n.nodeid = ANY($2::int[]) ORDER BY i.id LIMIT ${PROJECTS_MAX}`,
    [[...others], down],
  );
  return rows.map(({ id }) => id);
}

async function isWorkerDown(database: Database, name: string, port: number): Promise<boolean> {
  let hasBegun = false;
  try {
    return await database.transaction(async (run) => {
      await run(`SET LOCAL statement_timeout = ${PROBE_MS}`);
      hasBegun = true;
      const [row] = await run<{ success: boolean }>(
        "SELECT success FROM master_run_on_worker(ARRAY[$1], ARRAY[$2::int], ARRAY['SELECT 1'], false)",
        [name, port],
      );
      return !row?.success;
    });
  } catch (error) {
    // Without a connection to the coordinator, nothing is known about the worker.
    if (!hasBegun || !(error instanceof StoreUnavailable)) throw error;
    return true;
  }
}
