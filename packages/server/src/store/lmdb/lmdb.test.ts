import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Event } from '../../event.ts';
import { durableStoreConformance } from '../conformance.ts';
import { lmdbStore } from './lmdb.ts';
import { openSchema } from './schema.ts';

durableStoreConformance('the embedded store', open);

async function open(now: () => number) {
  const folder = mkdtempSync(join(tmpdir(), 'wafstat-store-'));
  const path = join(folder, 'statistics.mdb');
  let store = lmdbStore(path, now);
  return {
    folder,
    store,
    another: () => lmdbStore(path, now),
    async reopen() {
      await store.close();
      store = lmdbStore(path, now);
      return store;
    },
    async destroy() {
      await store.close();
      rmSync(folder, { recursive: true });
    },
  };
}

describe('the embedded store', () => {
  const NOW = Date.UTC(2026, 6, 1);
  const DAY_MS = 86_400_000;
  const batch = {
    project: 'p',
    source: { name: 'test', format: 'events' },
    id: 'x',
    link: { after: '', bytes: 1, head: '', carry: '', siblings: [] },
    events: [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }],
    dropped: {},
  };

  test('a prune frees every record that lies before the horizon', async () => {
    const { folder, store, destroy } = await open(() => NOW);
    const events = Array.from({ length: 5_000 }, (_, i) => ({ ...batch.events[0], time: NOW - i * 60_000 }));
    await store.append({ ...batch, events: events as Event[] });
    await store.prune(NOW + 100 * DAY_MS);
    await store.close();
    const { root, cells } = openSchema(join(folder, 'statistics.mdb'));
    expect(cells.getCount()).toBe(0);
    await root.close();
    await destroy();
  });

  test('one batch that cannot be stored does not take the others of its group with it', async () => {
    const { store, destroy } = await open(() => NOW);
    const { link: _, ...good } = batch;
    const bad = { ...good, id: 'bad', events: batch.events.map((event) => ({ ...event, count: 0 })) };
    const outcomes = await Promise.allSettled([store.append(good), store.append(bad)]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    const { requests } = await store.series({ project: 'p', edges: [0, NOW + 1] });
    expect([...requests]).toEqual([1]);
    expect((await store.sources('p'))[0]?.events).toBe(1);
    await destroy();
  });

  test('a file of another storage version is refused by name', async () => {
    const { folder, store } = await open(() => NOW);
    await store.close();
    const path = join(folder, 'statistics.mdb');
    const { root, version } = openSchema(path);
    await version.put('version', 99);
    await root.close();
    expect(() => openSchema(path)).toThrow(/storage version 99, but this release reads versions up to 2/);
    rmSync(folder, { recursive: true });
  });
});
