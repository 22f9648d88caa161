/** How long a project remembers its flagged requests. */
import { expect, test } from 'vitest';
import type { Event } from '../../packages/server/src/event.ts';
import type { Store } from '../../packages/server/src/store/store.ts';
import { DAY_MS, NOW } from './data.ts';
import type { Suite } from './suite.ts';

const MINUTE_MS = 60_000;

/** Whether a source has counted the request before. */
async function isKnown(
  store: Store,
  id: string,
  { time = NOW, project = 'p', source = 's' }: { time?: number; project?: string; source?: string } = {},
): Promise<boolean> {
  const flagged = { kind: 'lines', log: 'nginx-error', ids: [id] } as const;
  const event: Event = { time, hostId: null, request: false, attack: 'sqli', count: 1, flagged };
  const appended = await store.append({
    project,
    source: { name: source, format: 'nginx-error' },
    events: [event],
    dropped: {},
  });
  return 'sameRequests' in appended;
}

export function flaggedRequestTests({ fresh }: Suite): void {
  test('a prune deletes the flagged requests before the time that it frees, and only those', async () => {
    const { store } = await fresh();
    const freed = NOW - DAY_MS;
    for (const project of ['p', 'q']) {
      await isKnown(store, 'before', { project, time: freed - 1 });
      await isKnown(store, 'since', { project, time: freed });
    }
    await store.prune(freed + MINUTE_MS, { freeBefore: freed });
    for (const project of ['p', 'q']) {
      expect(await isKnown(store, 'before', { project, time: freed + MINUTE_MS })).toBe(false);
      expect(await isKnown(store, 'since', { project, time: freed + MINUTE_MS })).toBe(true);
    }
  });

  test('the flagged requests of a project are deleted with its details', async () => {
    const { store } = await fresh();
    const owners = [{ source: 's' }, { source: 't' }, { project: 'q' }];
    for (const owner of owners) expect(await isKnown(store, 'a', owner)).toBe(false);
    for (const owner of owners) expect(await isKnown(store, 'a', owner)).toBe(true);
    await store.deleteDetails('p');
    for (const owner of owners) expect(await isKnown(store, 'a', owner)).toBe('project' in owner);
  });
}
