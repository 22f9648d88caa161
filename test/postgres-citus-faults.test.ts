/** Failures of a Citus cluster: nothing may be lost or counted twice, and projects on other workers work on. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrateDistributed, postgresStore } from '../packages/server/src/store/postgres/postgres.ts';
import { type Batch, type Store, StoreUnavailable } from '../packages/server/src/store/store.ts';
import { call, login } from './api.ts';
import { CITUS, CitusCluster } from './citus.ts';
import { type FlakyProxy, flakyProxy } from './flaky-proxy.ts';
import { PASSWORD, type PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Random } from './random.ts';
import { type Installation, ndjson, Sandbox } from './sandbox.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const PROJECTS = ['a', 'b', 'c', 'd', 'e', 'f'];
const SCHEMA = 'faults';
const CUT_RATE = 0.03;

describe.skipIf(!CITUS.isInstalled())(`with Citus (${CITUS.needs})`, () => {
  let cluster: CitusCluster;
  let proxy: FlakyProxy;
  let store: Store;
  beforeAll(async () => {
    const random = new Random(20_261_117);
    // The second worker is added later; the first one is behind a proxy.
    cluster = await CitusCluster.start(async ([first]) => {
      proxy = await flakyProxy(`http://127.0.0.1:${first?.port}`, CUT_RATE, () => random.next());
      proxy.behave();
      return [Number(new URL(proxy.url).port)];
    });
    await migrateDistributed(cluster.options(SCHEMA));
    store = postgresStore(cluster.options(SCHEMA, 10_000), () => NOW);
  });
  afterAll(async () => {
    await store?.close();
    await proxy?.stop();
    await cluster?.stop();
  });

  const batch = (project: string, id: string, count: number): Batch => ({
    project,
    source: { name: 'test', format: 'events' },
    id,
    events: Array.from({ length: count }, (_, i) => ({
      time: NOW - i * 1_000,
      hostId: null,
      request: true,
      attack: null,
      count: 1,
    })),
    dropped: {},
  });

  /** Batches that were sent, and the events that they must have added, by project. */
  const sent: Batch[] = [];

  /** Appends to all projects until `stop`. Each batch is retried until it is counted. */
  function appendUntil(isOver: () => boolean): { counted: () => number; done: Promise<void> } {
    let counted = 0;
    const done = Promise.all(
      PROJECTS.map(async (project) => {
        while (!isOver()) {
          const one = batch(project, `${sent.length}`, 1 + (sent.length % 5));
          sent.push(one);
          await appendOnce(one);
          counted++;
        }
      }),
    );
    done.catch(() => {});
    return { counted: () => counted, done: done.then(() => {}) };
  }

  async function appendOnce(one: Batch): Promise<void> {
    for (;;) {
      try {
        await store.append(one);
        return;
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        await sleep(10);
      }
    }
  }

  /** Runs `fault` while events come in, and waits until some were counted after it. */
  async function under(fault: () => Promise<void>): Promise<void> {
    let isOver = false;
    const { counted, done } = appendUntil(() => isOver);
    const more = async () => {
      const target = counted() + PROJECTS.length;
      await Promise.race([done, eventually(() => counted() >= target || undefined, 'batches to be counted')]);
    };
    try {
      await more();
      await fault();
      await more();
    } finally {
      isOver = true;
      await done;
    }
  }

  async function expectExactTotals(): Promise<void> {
    for (const project of PROJECTS) {
      const events = sent
        .filter((one) => one.project === project)
        .reduce((sum, one) => sum + one.events.length, 0);
      const [requests] = await store.count({ project, edges: [0, NOW + 1], rows: 'timeline' });
      expect(requests[0]).toBe(events);
      expect((await store.sources(project))[0]?.events ?? 0).toBe(events);
    }
    // Nothing of a batch that was retried is left in a prepared transaction.
    for (const one of sent.slice(-PROJECTS.length))
      expect(await store.append(one)).toEqual({ kind: 'duplicate' });
  }

  async function restart(server: PostgresServer): Promise<void> {
    await server.kill();
    await server.run();
  }

  const places = () => PROJECTS.map((project) => cluster.portOf(SCHEMA, project));

  test('events that come in while a new worker gets its share of the shards count once', async () => {
    const before = places();
    expect(new Set(before).size).toBe(1);
    await under(async () => {
      await cluster.addWorker(cluster.workers[1].port);
      await cluster.coordinator.query('SELECT citus_rebalance_start()');
      await eventually(async () => {
        const state = await cluster.coordinator.query(
          'SELECT state FROM citus_rebalance_status() ORDER BY job_id DESC LIMIT 1',
        );
        expect(['failed', 'cancelled', 'failing']).not.toContain(state);
        return state === 'finished' || undefined;
      }, 'the rebalance to finish');
    });
    expect(new Set(places()).size).toBe(2);
    await expectExactTotals();
  });

  test('batches count once if connections between coordinator and worker break at random places', async () => {
    const cuts = proxy.cuts();
    proxy.behave(false);
    await under(() =>
      eventually(() => proxy.cuts() >= cuts + 20 || undefined, 'connections to be cut').then(() => {}),
    );
    proxy.behave();
    await expectExactTotals();
  });

  test('an append whose worker does not confirm the commit says that its outcome is unknown', async () => {
    const onProxy =
      PROJECTS.find((project) => cluster.portOf(SCHEMA, project) !== cluster.workers[1].port) ?? '';
    const [first, one] = [batch(onProxy, 'first', 1), batch(onProxy, 'cut', 7)];
    // Creates the partitions, if it is the first of all.
    await store.append(first);
    let isCommitting = false;
    proxy.cutAt(
      (chunk) => (isCommitting ||= chunk.includes('COMMIT')),
      (chunk) => isCommitting && chunk.includes('COMMIT'),
    );
    await expect(store.append(one)).rejects.toMatchObject({ outcomeUnknown: true });
    proxy.cutAt(
      () => false,
      () => false,
    );
    expect(await store.append(one)).toEqual({ kind: 'duplicate' });
    sent.push(first, one);
    await expectExactTotals();
  });

  test('batches count once if a worker or the coordinator is killed', async () => {
    await under(() => restart(cluster.workers[0]));
    await under(() => restart(cluster.workers[1]));
    await under(() => restart(cluster.coordinator));
    await expectExactTotals();
  });

  test('while a worker is down, its projects get 503 and /readyz names them; all others work', async () => {
    const sandbox = new Sandbox();
    try {
      const env = {
        WAFSTAT_STORE: 'postgres',
        WAFSTAT_POSTGRES_URL: cluster.coordinator.url.replace('@', `:${encodeURIComponent(PASSWORD)}@`),
        WAFSTAT_POSTGRES_SCHEMA: SCHEMA,
        // Statements of Citus take seconds on a busy machine.
        WAFSTAT_POSTGRES_TIMEOUT: '60',
      };
      const run = async <T>(...args: string[]): Promise<T> => {
        const { status, stdout, stderr } = await sandbox.run(args, { env });
        expect([status, stderr]).toEqual([0, '']);
        return (args.includes('--json') ? JSON.parse(stdout) : stdout) as T;
      };
      const installation = await run<Installation>('init', '--json');
      const projects = [installation.project_id];
      const portOf = (id: string) => cluster.portOf(SCHEMA, id);
      while (new Set(projects.map(portOf)).size < 2) {
        const name = `project-${projects.length}`;
        projects.push(
          (await run<{ id: string }>('project', 'add', name, '--domain', 'default', '--json')).id,
        );
        await run('user', 'grant', 'admin', '--project', name, '--role', 'admin');
      }
      const process = sandbox.start(['serve', '--listen', '127.0.0.1:0'], { env });
      const address = (await process.line('wafstat listens on ')).slice('wafstat listens on '.length);
      const apis = new Map(
        await Promise.all(
          projects.map(
            async (id) => [id, await login(address, { ...installation, project_id: id })] as const,
          ),
        ),
      );
      const push = async (id: string, key: string) => {
        const response = await call(address, `/ingest/v1/${id}`, {
          method: 'POST',
          headers: { 'X-Auth-Token': apis.get(id)?.token ?? '', 'Idempotency-Key': key },
          body: ndjson([{ time: Date.now() - 60_000, host: 'a.example' }]),
        });
        return response.status;
      };
      const statuses = (key: string) => Promise.all(projects.map((id) => push(id, key)));
      const ready = async () => {
        const { status, text } = await call(address, '/readyz');
        return [status, JSON.parse(text)];
      };
      expect(await statuses('before')).toEqual(projects.map(() => 200));
      // A worker of a busy machine can take longer to respond than the probe waits.
      await expect.poll(ready).toEqual([200, { status: 'ready' }]);

      const [, down] = cluster.workers;
      await down.kill();
      const isDown = (id: string) => portOf(id) === down.port;
      const lost = projects.filter(isDown).toSorted();
      await expect.poll(ready).toEqual([200, { status: 'degraded', unavailable_projects: lost }]);
      expect(await statuses('during')).toEqual(projects.map((id) => (isDown(id) ? 503 : 200)));
      const queried = await Promise.all(
        projects.map(async (id) => {
          const path = `waf/event/timeline?from=${Date.now() - 3_600_000}&to=${Date.now()}`;
          return (await apis.get(id)?.query(path))?.status;
        }),
      );
      expect(queried).toEqual(projects.map((id) => (isDown(id) ? 503 : 200)));

      await down.run();
      await expect.poll(ready).toEqual([200, { status: 'ready' }]);
      expect(await statuses('during')).toEqual(projects.map(() => 200));
      for (const id of projects) {
        const range = `from=${Date.now() - 3_600_000}&to=${Date.now()}`;
        const { requests } = (await apis.get(id)?.timeline(range)) ?? { requests: [] };
        expect(requests.reduce((sum, { num }) => sum + num, 0)).toBe(2);
      }
    } finally {
      await sandbox.clear();
    }
  });
});
