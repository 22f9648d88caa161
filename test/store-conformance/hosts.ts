/** Hosts: names, IDs, limits, renames and deletions. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Store } from '../../packages/server/src/store/store.ts';
import { memoryStore } from '../memory-store.ts';
import { addHosts, batch, drawnAt, HOSTNAMES, NOW } from './data.ts';
import type { Suite } from './suite.ts';

export function hostTests({ fresh, runs }: Suite): void {
  test('a host name has one ID, an ID has one name, and the limit is respected', async () => {
    const { store } = await fresh();
    const add = (hostname: string, id?: string) => store.addHost({ project: 'p', hostname, id, limit: 3 });
    const added = await add('b.example');
    expect(added).toMatchObject({ kind: 'added', host: { hostname: 'b.example', created: NOW } });
    expect(added.kind === 'added' && added.host.id).toMatch(/^[0-9a-f]{32}$/);
    expect(await add('b.example', 'other')).toEqual({ ...added, kind: 'exists' });
    expect(await add('a.example', 'chosen')).toMatchObject({ kind: 'added', host: { id: 'chosen' } });
    expect(await add('c.example', 'chosen')).toMatchObject({
      kind: 'id_taken',
      host: { hostname: 'a.example' },
    });
    expect(await add('d.example')).toMatchObject({ kind: 'added' });
    expect(await add('e.example')).toEqual({ kind: 'full' });
    expect(await add('a.example')).toMatchObject({ kind: 'exists' });
    expect((await store.hosts('p')).map(({ hostname }) => hostname)).toEqual([
      'a.example',
      'b.example',
      'd.example',
    ]);
    expect(await store.hosts('q')).toEqual([]);
  });

  test('a renamed host keeps its ID and its counts, and its old name becomes available', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    const [id = '', otherId = ''] = ids;
    const [old = '', other = ''] = HOSTNAMES;
    await store.append(batch('p', ids, [{ ...drawnAt(NOW), host: 0 }]));
    const rename = (hostId: string, hostname: string) =>
      store.renameHost({ project: 'p', id: hostId, hostname });
    const renamed = { kind: 'renamed', host: { id, hostname: 'new.example', created: NOW } };
    expect(await rename(id, 'new.example')).toEqual(renamed);
    expect(await rename(id, 'new.example')).toEqual(renamed);
    expect(await rename(id, other)).toMatchObject({ kind: 'name_taken', host: { id: otherId } });
    expect(await rename('unknown', 'x.example')).toEqual({ kind: 'unknown' });
    expect(await store.renameHost({ project: 'q', id, hostname: 'x.example' })).toEqual({
      kind: 'unknown',
    });
    const again = await store.addHost({ project: 'p', hostname: old, limit: 1_000 });
    expect(again).toMatchObject({ kind: 'added', host: { hostname: old } });
    expect('host' in again && again.host.id).not.toBe(id);
    expect(await store.addHost({ project: 'p', hostname: 'new.example', limit: 0 })).toMatchObject({
      kind: 'exists',
      host: { id },
    });
    expect(await store.hosts('p')).toHaveLength(HOSTNAMES.length + 1);
    const [requests] = await store.count({
      project: 'p',
      hosts: [id],
      edges: [NOW, NOW + 1],
      rows: 'timeline',
    });
    expect([...requests]).toEqual([1]);
  });

  test('the counts of a deleted host stay in the project; a host of the same name counts from zero', async () => {
    // After the deletion, the hour gets more values than fit into one record.
    const { store } = await fresh({ topKeys: 16 });
    const oracle = memoryStore(() => NOW);
    const attack = {
      ...drawnAt(NOW - 5),
      attack: 'xss',
      details: { source: '192.0.2.1', url: '/a' },
    } as const;
    for (const each of [store, oracle]) {
      const ids = await addHosts(each, 'p');
      const [id = ''] = ids;
      const events = [
        { ...attack, host: 0 },
        { ...attack, host: 1 },
        { ...attack, host: null },
      ];
      await each.append(batch('p', ids, events));
      const selection = { project: 'p', hosts: [id], edges: [NOW - 9, NOW + 9] };
      const attacks = async () => [...(await each.count({ ...selection, rows: 'timeline' }))[1]];
      // More than once, because stores cache repeated selections.
      for (let i = 0; i < 3; i++) expect(await attacks()).toEqual([attack.count]);
      const listed = async () =>
        (await each.top({ ...selection, from: NOW - 9, to: NOW, list: 'sources', limit: 9 })).attacks;
      expect(await listed()).toBe(1);
      const versions = [await each.version({ project: 'p', from: NOW - 9, to: NOW })];
      const deleted = { kind: 'deleted', host: { id, hostname: HOSTNAMES[0], created: NOW } };
      expect(await each.deleteHost({ project: 'p', id })).toEqual(deleted);
      expect(await each.deleteHost({ project: 'p', id })).toEqual({ kind: 'unknown' });
      expect(await each.deleteHost({ project: 'q', id })).toEqual({ kind: 'unknown' });
      versions.push(await each.version({ project: 'p', from: NOW - 9, to: NOW }));
      expect(versions[0]).not.toBe(versions[1]);
      // A batch that was resolved before.
      expect(await each.append(batch('p', ids, [{ ...attack, host: 0 }]))).toMatchObject({
        unknownHosts: 1,
      });
      expect(await listed()).toBe(0);
      expect(await attacks()).toEqual([0]);
      const hostnames = [HOSTNAMES[0] ?? ''];
      const [again] = await each.resolveHosts({ project: 'p', hostnames, limit: 9 });
      expect(again).not.toBe(id);
      const sources = Array.from({ length: 20 }, (_, i) => ({ ...attack.details, source: `192.0.2.${i}` }));
      const more = sources.map((details) => ({ ...attack, time: NOW - 4, details, host: 0 }));
      await each.append(batch('p', [again ?? ''], more));
      expect(await listed()).toBe(0);
    }
    const range = { project: 'p', from: NOW - 9, to: NOW };
    const summary = async (each: Store) => {
      const hosts = await each.hosts('p');
      const events = [];
      for await (const part of each.transfer.events('p')) events.push(...part.events);
      return {
        hosts,
        sources: (await each.sources('p')).map(({ id: _, ...source }) => source),
        attacks: await each.count({ project: 'p', edges: [NOW - 9, NOW], rows: 'attacks', byHost: true }),
        series: await Promise.all(
          [undefined, ...hosts.map(({ id }) => [id])].map((ids) =>
            each.count({ ...range, hosts: ids, edges: [NOW - 9, NOW - 4, NOW], rows: 'timeline' }),
          ),
        ),
        lists: await Promise.all(
          [undefined, ...hosts.map(({ id }) => [id])].map(
            async (ids) => (await each.top({ ...range, hosts: ids, list: 'sources', limit: 9 })).attacks,
          ),
        ),
        events: events
          .filter(({ attack: category }) => category !== null)
          .map(({ hostId, time, count }) => [hostId, time, count] as const)
          .reduce<Record<string, number>>((sums, [hostId, time, count]) => {
            const key = `${hostId} ${time}`;
            return Object.assign(sums, { [key]: (sums[key] ?? 0) + count });
          }, {}),
      };
    };
    expect(await summary(store)).toEqual(await summary(oracle));
  });

  test('concurrent callers that add the same host get the same ID', async () => {
    const { store } = await fresh();
    const added = await Promise.all(
      Array.from({ length: 10 }, () => store.addHost({ project: 'p', hostname: 'a.example', limit: 10 })),
    );
    expect(new Set(added.map((one) => 'host' in one && one.host.id)).size).toBe(1);
    expect(await store.hosts('p')).toHaveLength(1);
  });

  test('resolving names together equals resolving them one by one, also after renames and deletions and at the limit', async () => {
    const { store } = await fresh();
    const names = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'ü/%.example', 'A');
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('resolve' as const),
        names: fc.array(names, { maxLength: 8 }),
        limit: fc.nat(9),
      }),
      fc.record({ kind: fc.constant('rename' as const), from: names, to: names }),
      fc.record({ kind: fc.constant('delete' as const), from: names }),
      fc.record({
        kind: fc.constant('add' as const),
        name: names,
        id: fc.constantFrom(undefined, 'x', 'y'),
      }),
    );
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 8 }), async (steps) => {
        const project = `p${run++}`;
        const oracle = memoryStore(() => NOW);
        for (const next of steps) {
          const [got, want] = await Promise.all(
            [store, oracle].map(async (each) => {
              if (next.kind === 'resolve')
                return each.resolveHosts({ project, hostnames: next.names, limit: next.limit });
              if (next.kind === 'add')
                return each.addHost({ project, hostname: next.name, id: next.id, limit: 9 });
              const host = (await each.hosts(project)).find(({ hostname }) => hostname === next.from);
              const id = host?.id ?? 'none';
              return next.kind === 'delete'
                ? each.deleteHost({ project, id })
                : each.renameHost({ project, id, hostname: next.to });
            }),
          );
          expect(got).toEqual(want);
          expect(await store.hosts(project)).toEqual(await oracle.hosts(project));
        }
      }),
      { numRuns: runs(100) },
    );
  });

  test('concurrent callers that resolve the same new names get the same IDs, and the limit is respected', async () => {
    const { store } = await fresh();
    const hostnames = Array.from({ length: 30 }, (_, i) => `${i}.example`);
    const resolved = await Promise.all(
      Array.from({ length: 5 }, () => store.resolveHosts({ project: 'p', hostnames, limit: 20 })),
    );
    const hosts = new Map((await store.hosts('p')).map(({ hostname, id }) => [hostname, id]));
    expect([...hosts.keys()].sort()).toEqual(hostnames.slice(0, 20).sort());
    for (const ids of resolved) expect(ids).toEqual(hostnames.map((name) => hosts.get(name) ?? null));
  });

  test('concurrent callers that resolve different names respect the limit, and a deleted host makes room', async () => {
    const { store } = await fresh();
    const names = (group: string) => Array.from({ length: 15 }, (_, i) => `${i}.${group}.example`);
    const resolve = (group: string) =>
      store.resolveHosts({ project: 'p', hostnames: names(group), limit: 20 });
    await Promise.all(['a', 'b'].map(resolve));
    const hosts = await store.hosts('p');
    expect(hosts).toHaveLength(20);
    const add = () => store.addHost({ project: 'p', hostname: 'new.example', limit: 20 });
    expect(await add()).toEqual({ kind: 'full' });
    await store.deleteHost({ project: 'p', id: hosts[0]?.id ?? '' });
    expect(await add()).toMatchObject({ kind: 'added' });
  });
}
