/** Sources: events, formats, dropped records and their examples. */
import { expect, test } from 'vitest';
import { NO_SOURCE } from '../../packages/server/src/store/store.ts';
import { addHosts, batch, drawnAt, NOW } from './data.ts';
import type { Suite } from './suite.ts';

export function sourceTests({ fresh }: Suite): void {
  test('a source reports its events, its dropped records, and its first and last event', async () => {
    const { store } = await fresh();
    const ids = await addHosts(store, 'p');
    await store.append({
      ...batch('p', ids, [{ ...drawnAt(NOW - 5), host: 1 }]),
      dropped: { bad_time: 2 },
      examples: { bad_time: { text: 'one', time: NOW } },
    });
    await store.append({
      ...batch('p', ids, [{ ...drawnAt(NOW - 9), host: 0 }]),
      dropped: { bad_time: 1 },
      examples: { bad_time: { text: 'two', time: NOW } },
    });
    await store.append({
      ...batch('p', ids, []),
      source: { name: 'empty', format: 'f' },
      dropped: { not_json: 1 },
    });
    const [empty, test] = await store.sources('p');
    expect(empty).toMatchObject({ name: 'empty', events: 0, first_seen: null, last_seen: null, hosts: [] });
    expect(test).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{32}$/),
      name: 'test',
      format: 'events',
      hosts: [ids[0], ids[1]].sort(),
      events: 2,
      without_host: 0,
      dropped: { bad_time: 3 },
      examples: { bad_time: { text: 'two', time: NOW } },
      first_seen: NOW - 9,
      last_seen: NOW - 5,
      last_batch: NOW,
      usual_gap_ms: 0,
    });
    expect(await store.sources('q')).toEqual([]);
    const withoutHosts = [empty, test].map((source) => {
      const { hosts: _, ...rest } = source ?? {};
      return rest;
    });
    await store.append({ ...batch('a', [], [drawnAt(NOW - 5)]), source: NO_SOURCE });
    expect(await store.projects()).toEqual([
      { project: 'a', sources: [] },
      { project: 'p', sources: withoutHosts },
    ]);
  });

  test('a source with batches of several formats is mixed; a batch without any changes nothing', async () => {
    const { store } = await fresh();
    const expected = [
      ['auto', 'auto'],
      ['access', 'access'],
      ['auto', 'access'],
      ['access', 'access'],
      ['modsecurity3-json', 'mixed'],
      ['access', 'mixed'],
    ];
    const found: string[][] = [];
    for (const [format = ''] of expected) {
      await store.append({ ...batch('p', [], [drawnAt(NOW - 5)]), source: { name: 's', format } });
      found.push([format, (await store.sources('p'))[0]?.format ?? '']);
    }
    expect(found).toEqual(expected);
  });

  test('examples of dropped lines are deleted with the top lists, by their age or with the project', async () => {
    const { store } = await fresh();
    const dropping = (project: string, name: string, times: Record<string, number>) =>
      store.append({
        ...batch(project, [], []),
        source: { name, format: 'f' },
        dropped: { bad_time: 1 },
        examples: Object.fromEntries(
          Object.entries(times).map(([reason, time]) => [reason, { text: 'x', time }]),
        ),
      });
    const left = async (project: string) =>
      (await store.sources(project)).map(({ name, dropped, examples }) => [
        name,
        dropped,
        Object.keys(examples),
      ]);
    await dropping('p', 'a', { bad_time: NOW - 10, not_json: NOW - 5 });
    await dropping('p', 'b', { bad_time: NOW - 5 });
    await dropping('q', 'a', { bad_time: NOW - 10 });
    const dropped = { bad_time: 1 };
    await store.prune(0, { topListsBefore: NOW - 5 });
    expect(await left('p')).toEqual([
      ['a', dropped, ['not_json']],
      ['b', dropped, ['bad_time']],
    ]);
    expect(await left('q')).toEqual([['a', dropped, []]]);
    await dropping('q', 'a', { bad_time: NOW });
    await store.deleteDetails('p');
    expect(await left('p')).toEqual([
      ['a', dropped, []],
      ['b', dropped, []],
    ]);
    expect(await left('q')).toEqual([['a', { bad_time: 2 }, ['bad_time']]]);
    await store.prune(NOW + 1);
    expect(await left('q')).toEqual([['a', { bad_time: 2 }, []]]);
  });
}
