import { expect, test } from 'vitest';
import type { Database, Run } from '../../postgres/database.ts';
import { StoreUnavailable } from '../store.ts';
import { createWorkerProbe } from './distribute.ts';

/** A coordinator with one worker, which has the project `p`. */
function coordinator(transaction: (action: (run: Run) => Promise<unknown>) => Promise<unknown>): Database {
  const run = async (sql: string) =>
    sql.includes('pg_dist_placement') ? [{ id: 'p' }] : [{ id: 1, name: 'worker1.example', port: 5432 }];
  return { run, transaction } as unknown as Database;
}

const statements = (probe: () => Promise<unknown[]>) =>
  (async (sql: string) => (sql.includes('master_run_on_worker') ? probe() : [])) as Run;

test('a worker is unavailable if it refuses connections, or does not respond in time', async () => {
  const refuses = statements(async () => [{ success: false }]);
  const hangs = statements(async () => {
    throw new StoreUnavailable('canceling statement due to statement timeout');
  });
  for (const run of [refuses, hangs])
    expect(await createWorkerProbe(coordinator((action) => action(run)))([])).toEqual(['p']);
  const responds = statements(async () => [{ success: true }]);
  expect(await createWorkerProbe(coordinator((action) => action(responds)))([])).toEqual([]);
});

test('a coordinator without a free connection says nothing about its workers', async () => {
  const busy = coordinator(async () => {
    throw new StoreUnavailable('timeout exceeded when trying to connect');
  });
  await expect(createWorkerProbe(busy)([])).rejects.toThrow('timeout exceeded');
});

test('checks that arrive during a probe share it, so that they cannot use up the connections', async () => {
  let probes = 0;
  const responds = statements(async () => [{ success: true }]);
  const probe = createWorkerProbe(
    coordinator((action) => {
      probes++;
      return action(responds);
    }),
  );
  await Promise.all([probe([]), probe([]), probe([])]);
  expect(probes).toBe(1);
  await probe([]);
  expect(probes).toBe(2);
});
