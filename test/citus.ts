/** A Citus cluster on loopback: a coordinator and two workers. */
import { existsSync } from 'node:fs';
import type { TestProject } from 'vitest/node';
import { parseDatabaseUrl } from '../packages/server/src/postgres/url.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';

export const CITUS = {
  needs: 'the extension citus, which CITUS_INSTALL can install',
  isInstalled: () => existsSync(`${POSTGRES.extensions}/citus.control`),
};

declare module 'vitest' {
  export interface ProvidedContext {
    isDistributed: boolean | undefined;
  }
}

/** Global setup: one cluster for all files of a run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const cluster = await CitusCluster.start();
  const { url } = cluster.coordinator;
  project.provide('postgresUrl', url.replace('@', `:${encodeURIComponent(PASSWORD)}@`));
  project.provide('isDistributed', true);
  return () => cluster.stop();
}

const PARAMETERS = {
  shared_preload_libraries: 'citus',
  // To move shards while they are written.
  wal_level: 'logical',
  // Few, because each partition of a table is one table per shard.
  'citus.shard_count': '2',
  'citus.node_conninfo': 'sslmode=disable',
  // The defaults, 5 s and 5 s, are for jobs that take minutes.
  'citus.background_task_queue_interval': '100',
  'citus.defer_shard_delete_interval': '500',
};

export class CitusCluster {
  readonly coordinator: PostgresServer;
  readonly workers: readonly [PostgresServer, PostgresServer];

  private constructor(coordinator: PostgresServer, workers: readonly [PostgresServer, PostgresServer]) {
    this.coordinator = coordinator;
    this.workers = workers;
  }

  /** `ports`: where the coordinator connects to the workers, if not directly. Workers without one are not added. */
  static async start(
    ports: (workers: readonly PostgresServer[]) => Promise<readonly number[]> = async (workers) =>
      workers.map(({ port }) => port),
  ): Promise<CitusCluster> {
    const [coordinator, ...workers] = (await Promise.all(
      Array.from({ length: 3 }, () => PostgresServer.start({ parameters: PARAMETERS })),
    )) as [PostgresServer, PostgresServer, PostgresServer];
    const authinfo = `INSERT INTO pg_dist_authinfo VALUES (0, 'wafstat', 'password=''${PASSWORD}''')`;
    await Promise.all(
      [coordinator, ...workers].map((server) => server.query(`CREATE EXTENSION citus; ${authinfo}`)),
    );
    const cluster = new CitusCluster(coordinator, workers);
    await coordinator.query(`SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`);
    for (const port of await ports(workers)) await cluster.addWorker(port);
    return cluster;
  }

  async addWorker(port: number): Promise<void> {
    await this.coordinator.query(`SELECT citus_add_node('127.0.0.1', ${port})`);
  }

  /** The port of the worker that has a project. */
  portOf(schema: string, project: string): number {
    const shard = `get_shard_id_for_distribution_column('${schema}.projects', '${project}')`;
    return Number(
      this.coordinator.sql(`SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = ${shard}`),
    );
  }

  /** Options of a store. */
  options(schema: string, timeoutMs = 30_000) {
    return {
      url: parseDatabaseUrl(this.coordinator.url),
      password: PASSWORD,
      schema,
      usesTls: () => false,
      timeoutMs,
      connectionsMax: 10,
      mayMigrate: false,
    };
  }

  async stop(): Promise<void> {
    await Promise.all([this.coordinator, ...this.workers].map((server) => server.stop()));
  }
}
