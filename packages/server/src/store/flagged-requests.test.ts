import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import type { Event } from '../event.ts';
import { countedEvents, FlaggedRequests, NO_REQUESTS } from './flagged-requests.ts';
import { weighBatch } from './group-commit.ts';
import { lmdbStore } from './lmdb/lmdb.ts';
import { openSchema } from './lmdb/schema.ts';

const directory = mkdtempSync(join(tmpdir(), 'wafstat-flagged-'));
afterAll(() => rmSync(directory, { recursive: true }));

function lines(id: string): Event {
  const flagged = { kind: 'lines', log: 'nginx-error', ids: [id] } as const;
  return { time: 1_000, hostId: null, request: false, attack: 'sqli', count: 1, flagged };
}

test('a project forgets the older half of its requests, of all sources', async () => {
  const stores = [
    memoryStore(() => 1_000, { requestsMax: 4 }),
    lmdbStore(join(directory, 'statistics'), () => 1_000, { requestsMax: 4 }),
  ];
  for (const store of stores) {
    const append = async (project: string, name: string, ...ids: string[]) => {
      const source = { name, format: 'nginx-error' };
      const appended = await store.append({ project, source, events: ids.map(lines), dropped: {} });
      return ('sameRequests' in appended && appended.sameRequests) || [];
    };
    expect(await append('p', 's', 'a', 'b')).toEqual([]);
    expect(await append('p', 't', 'a', 'c')).toEqual([]);
    expect(await append('p', 's', 'a', 'b')).toEqual([0, 1]);
    expect(await append('q', 's', 'a', 'b')).toEqual([]);
    // The fifth request begins another half, and the first is forgotten.
    expect(await append('p', 's', 'd')).toEqual([]);
    expect(await append('p', 't', 'a', 'c')).toEqual([0, 1]);
    expect(await append('p', 's', 'd', 'b')).toEqual([0]);
    // Within one batch, too.
    expect(await append('p', 's', 'x', 'y', 'x', 'z', 'd', 'x')).toEqual([2, 5]);
    expect(await append('q', 's', 'a', 'b')).toEqual([0, 1]);
    await store.close();
  }
});

test('the embedded store has no more requests of a project than it remembers', async () => {
  const path = join(directory, 'full');
  const store = lmdbStore(path, () => 1_000, { requestsMax: 100 });
  for (let i = 0; i < 1_000; i += 10) {
    const events = Array.from({ length: 10 }, (_, n) => lines(`${i + n}`));
    const source = { name: `s${i % 70}`, format: 'nginx-error' };
    await store.append({ project: 'p', source, events, dropped: {} });
  }
  await store.close();
  const schema = openSchema(path);
  const { length } = [...schema.requests.getKeys()];
  await schema.root.close();
  expect(length).toBeGreaterThanOrEqual(50);
  expect(length).toBeLessThanOrEqual(100);
});

test('flagged requests add to the weight of a batch, and are decided in steps', () => {
  const source = { name: 's', format: 'nginx-error' };
  const events = Array.from({ length: 2_000 }, (_, i) => lines(`${i}`));
  const withoutIds = events.map((event) => ({ ...event, flagged: undefined }));
  const batch = { project: 'p', source, events, dropped: {} };
  expect(weighBatch(batch)).toBe(weighBatch({ ...batch, events: withoutIds }) + 25 * 2_000);
  const requests = new FlaggedRequests(NO_REQUESTS, 10_000, () => undefined);
  expect([...countedEvents(batch, 0, requests)]).toHaveLength(10);
});
