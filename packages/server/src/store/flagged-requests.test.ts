import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { Event } from '../event.ts';
import { lmdbStore } from './lmdb/lmdb.ts';
import { memoryStore } from './memory.ts';

const directory = mkdtempSync(join(tmpdir(), 'wafstat-flagged-'));
afterAll(() => rmSync(directory, { recursive: true }));

function lines(id: string): Event {
  const flagged = { kind: 'lines', log: 'nginx-error', ids: [id] } as const;
  return { time: 1_000, hostId: null, request: false, attack: 'sqli', count: 1, flagged };
}

test('a source forgets the oldest requests, and only those', async () => {
  const stores = [
    memoryStore(() => 1_000, { requestsMax: 3 }),
    lmdbStore(join(directory, 'statistics'), () => 1_000, { requestsMax: 3 }),
  ];
  for (const store of stores) {
    const sameRequests: boolean[] = [];
    for (const id of ['a', 'b', 'c', 'a', 'd', 'b', 'a', 'd', 'c', 'a', 'b']) {
      const source = { name: 's', format: 'nginx-error' };
      const appended = await store.append({ project: 'p', source, events: [lines(id)], dropped: {} });
      sameRequests.push('sameRequests' in appended);
    }
    const expected = [false, false, false, true, false, true, false, true, true, true, false];
    expect(sameRequests).toEqual(expected);
    await store.close();
  }
});
