/** A Citus cluster on loopback: a coordinator and two workers. */
import { existsSync } from 'node:fs';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';

export const CITUS = {
  needs: 'the extension citus',
  isInstalled: () => existsSync(`${POSTGRES.extensions}/citus.control`),
};

const PARAMETERS = {
  shared_preload_libraries: 'citus',
  // To move shards while they are written.
  wal_level: 'logical',
  // Few, because each partition of a table is one table per shard.
  'citus.shard_count': '4',
  'citus.node_conninfo': 'sslmode=disable',
};

export class CitusCluster {
  readonly coordinator: PostgresServer;
  readonly workers: readonly PostgresServer[];

  private constructor(coordinator: PostgresServer, workers: readonly PostgresServer[]) {
    this.coordinator = coordinator;
    this.workers = workers;
  }

  /** `portOf`: where the coordinator connects to a worker. */
  static async start(
    portOf: (worker: PostgresServer) => number | Promise<number> = ({ port }) => port,
  ): Promise<CitusCluster> {
    const [coordinator, ...workers] = (await Promise.all(
      Array.from({ length: 3 }, () => PostgresServer.start({ parameters: PARAMETERS })),
    )) as [PostgresServer, ...PostgresServer[]];
    const authinfo = `INSERT INTO pg_dist_authinfo VALUES (0, 'wafstat', 'password=''${PASSWORD}''')`;
    for (const server of [coordinator, ...workers]) server.sql(`CREATE EXTENSION citus; ${authinfo}`);
    coordinator.sql(`SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`);
    for (const worker of workers)
      coordinator.sql(`SELECT citus_add_node('127.0.0.1', ${await portOf(worker)})`);
    return new CitusCluster(coordinator, workers);
  }

  async stop(): Promise<void> {
    await Promise.all([this.coordinator, ...this.workers].map((server) => server.stop()));
  }
}
