/** Batches: each counts once; chunks of files and followed paths. */
import { expect, test } from 'vitest';
import type { FlaggedRequest } from '../../packages/server/src/event.ts';
import { startWith } from '../../packages/server/src/store/batches.ts';
import { compareFollowed, type Store } from '../../packages/server/src/store/store.ts';
import { batch, DAY_MS, drawnAt, followed, linked, NOW, type RandomEvent } from './data.ts';
import type { Suite } from './suite.ts';

export function batchTests({ fresh }: Suite): void {
  test('a batch id that the source already has changes nothing', async () => {
    const { store } = await fresh();
    const first = { ...batch('p', [], [drawnAt(NOW)]), id: 'x' };
    expect(await store.append(first)).toMatchObject({ kind: 'appended' });
    expect(await store.append(first)).toEqual({ kind: 'duplicate' });
    expect(await store.append({ ...first, source: { name: 'another', format: 'events' } })).toMatchObject({
      kind: 'appended',
    });
    expect(await store.append({ ...first, project: 'q' })).toMatchObject({ kind: 'appended' });
    const [requests] = await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect([...requests]).toEqual([2]);
    expect((await store.sources('p')).map(({ events }) => events)).toEqual([1, 1]);
  });

  test('a batch that is sent many times at once counts once', async () => {
    const { store } = await fresh();
    const same = { ...batch('p', [], [drawnAt(NOW)]), id: 'x' };
    const kinds = (await Promise.all(Array.from({ length: 20 }, () => store.append(same)))).map(
      ({ kind }) => kind,
    );
    expect(kinds.filter((kind) => kind === 'appended')).toHaveLength(1);
    const [requests] = await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect([...requests]).toEqual([1]);
  });

  test('a flagged request that several logs report counts once per source, in any order', async () => {
    const record = { kind: 'record', log: 'modsecurity3-json', ids: ['a'] } as const;
    const lines = { kind: 'lines', log: 'nginx-error', ids: ['a'] } as const;
    const forged = { kind: 'forged', log: 'nginx-error', ids: ['z', 'a'] } as const;
    const unnamed = { kind: 'forged', log: 'nginx-error', ids: [], unnamed: '/long' } as const;
    const long = { ...record, unnamed: '/long' };
    const other = { ...record, ids: ['b'] };
    const cases: [FlaggedRequest[], attacks: number][] = [
      [[record, lines], 1],
      [[lines, record, lines], 1],
      [[record, forged], 1],
      [[forged, record], 1],
      // One record covers one request, so a known ID does not hide others.
      [[record, forged, { ...forged, ids: ['y', 'a'] }], 2],
      [[forged, other, { ...record, ids: ['z'] }], 2],
      [[forged, record, { ...record, ids: ['z'] }], 2],
      // Without a complete log, forged IDs hide nothing.
      [[forged, lines, { ...lines, ids: ['z'] }], 3],
      [[lines, forged], 2],
      // A complete log has one record per request.
      [[record, record, lines], 2],
      [[lines, record, record], 2],
      [[unnamed, unnamed], 2],
      [[unnamed, long, unnamed, { ...long, ids: ['b'] }], 2],
      [[long, { ...long, ids: ['b'] }, unnamed, unnamed, unnamed], 3],
    ];
    const { store } = await fresh();
    for (const [i, [requests, attacks]] of cases.entries()) {
      const [alone, together] = [`alone ${i}`, `together ${i}`];
      const events = requests.map((flagged, n) => ({ ...flaggedAt(NOW + n), flagged }));
      for (const event of events)
        expect(await store.append(batch(alone, [], [event]))).toMatchObject({ kind: 'appended' });
      await store.append(batch(together, [], events));
      for (const project of [alone, together]) {
        expect(await attacksOf(store, project), JSON.stringify(requests)).toBe(attacks);
        const [source] = await store.sources(project);
        expect([source?.events, source?.dropped.same_request ?? 0]).toEqual([
          attacks,
          requests.length - attacks,
        ]);
      }
    }
  });

  test('a known flagged request still counts as a request, and is reported by its index', async () => {
    const { store } = await fresh();
    const flagged = { kind: 'lines', log: 'caddy', ids: ['a'] } as const;
    const again = { ...flaggedAt(NOW + 1), request: true, flagged };
    await store.append(batch('p', [], [{ ...flaggedAt(NOW), flagged }]));
    expect(await store.append(batch('p', [], [drawnAt(NOW), again]))).toMatchObject({ sameRequests: [1] });
    const [requests, attacks] = await store.count({ project: 'p', edges: [0, NOW + 10], rows: 'timeline' });
    expect([...requests, ...attacks]).toEqual([2, 1]);
    expect(await store.append(batch('p', [], [{ ...flaggedAt(NOW + 300_000), flagged }]))).toMatchObject({
      sameRequests: [0],
    });
    // The same ID later, in another source, and in another project are other requests.
    await store.append(batch('p', [], [{ ...flaggedAt(NOW + 300_001), flagged }]));
    await store.append({
      ...batch('p', [], [{ ...flaggedAt(NOW), flagged }]),
      source: { name: 'another', format: 'caddy' },
    });
    await store.append(batch('q', [], [{ ...flaggedAt(NOW), flagged }]));
    expect(await attacksOf(store, 'p')).toBe(3);
  });

  test('a batch is kept until the day of its newest event, counted or not, but at least until today', async () => {
    const { store } = await fresh();
    const flagged = { kind: 'lines', log: 'caddy', ids: ['a'] } as const;
    const append = (id: string, events: RandomEvent[]) => store.append({ ...batch('p', [], events), id });
    await append('no event', []);
    await append('newer', [drawnAt(NOW - 9 * DAY_MS), drawnAt(NOW + 2 * DAY_MS), drawnAt(NOW)]);
    // The project has newer events, but the batch has not.
    await append('older', [drawnAt(NOW - 9 * DAY_MS)]);
    const time = NOW + DAY_MS;
    await append('flagged', [{ ...flaggedAt(time), flagged }]);
    // Otherwise the batch would count once its request is forgotten.
    expect(await append('same request', [{ ...flaggedAt(time), flagged }])).toMatchObject({
      sameRequests: [0],
    });
    const link = { after: '', bytes: 1, firstLineHash: '', readerState: '', siblings: [] };
    await store.append({ ...batch('p', [], [drawnAt(NOW + 2 * DAY_MS)]), id: 'begun', link });
    const grown = { ...link, siblings: ['begun'], replaces: 'begun' };
    await store.append({ ...batch('p', [], [drawnAt(NOW)]), id: 'grown', link: grown });
    const days: Record<string, number> = {};
    for await (const batches of store.transfer.batches('p', 'test'))
      for (const { id, day } of batches) days[id] = day - Math.floor(NOW / DAY_MS);
    expect(days).toEqual({ 'no event': 0, newer: 2, older: 0, flagged: 1, 'same request': 1, grown: 2 });
  });

  test('chunks of a file are found by their predecessor', async () => {
    const { store } = await fresh();
    const { append, linksAfter } = linked(store);
    await append('one', { after: '', bytes: 10, readerState: 'c' });
    await append('another', { after: '', bytes: 20, siblings: ['one'] });
    await append('two', { after: 'one', bytes: 30 });
    expect(await linksAfter('')).toEqual([
      { id: 'another', bytes: 20, firstLineHash: '', readerState: '' },
      { id: 'one', bytes: 10, firstLineHash: '', readerState: 'c' },
    ]);
    expect(await linksAfter('one')).toEqual([{ id: 'two', bytes: 30, firstLineHash: '', readerState: '' }]);
    expect(await linksAfter('two')).toEqual([]);
    expect(await store.batchesAfter('p', 'nobody', '')).toEqual([]);
    expect(await store.batchesAfter('q', 'test', '')).toEqual([]);
  });

  test('first chunks are found by the start of their file, and all of them by an unknown start', async () => {
    const { store } = await fresh();
    const { append, linksAfter } = linked(store);
    const ids = async (after: string) => (await linksAfter(after)).map(({ id }) => id);
    const [a, b] = [startWith('a'), startWith('b')];
    await append('one', { after: a, bytes: 10 });
    await append('two', { after: b, bytes: 10 });
    expect(await ids(a)).toEqual(['one']);
    expect(await ids('')).toEqual(['one', 'two']);
    // A file whose start is unknown may be any of them.
    expect(await append('any', { after: '', bytes: 5 })).toEqual({ kind: 'conflict' });
    await append('any', { after: '', bytes: 5, siblings: ['one', 'two'] });
    expect(await ids(b)).toEqual(['any', 'two']);
    expect(await append('other', { after: b, bytes: 12, siblings: ['two'] })).toEqual({ kind: 'conflict' });
    await append('longer', { after: b, bytes: 12, siblings: ['any', 'two'], replaces: 'two' });
    expect(await ids(b)).toEqual(['any', 'longer']);
    expect(await ids('')).toEqual(['any', 'longer', 'one']);
  });

  test('a chunk that has grown replaces its earlier state', async () => {
    const { store } = await fresh();
    const { append, linksAfter } = linked(store);
    await append('one', { after: '', bytes: 10 });
    await append('grown', { after: '', bytes: 15, siblings: ['one'], replaces: 'one' });
    expect(await linksAfter('')).toEqual([{ id: 'grown', bytes: 15, firstLineHash: '', readerState: '' }]);
    const [requests] = await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect([...requests]).toEqual([2]);
  });

  test('a link is a conflict if another process has counted chunks of the same file', async () => {
    const { store } = await fresh();
    const { append, linksAfter } = linked(store);
    await append('one', { after: '', bytes: 10 });
    expect(await append('longer', { after: '', bytes: 12 })).toEqual({ kind: 'conflict' });
    expect(await append('x', { after: '', bytes: 12, siblings: ['gone'], replaces: 'gone' })).toEqual({
      kind: 'conflict',
    });
    expect(await append('x', { after: '', bytes: 12, siblings: ['one', 'gone'] })).toEqual({
      kind: 'conflict',
    });
    expect(await append('lost', { after: 'gone', bytes: 12 })).toEqual({ kind: 'conflict' });
    expect(await append('one', { after: '', bytes: 10 })).toEqual({ kind: 'duplicate' });
    expect(await linksAfter('')).toEqual([{ id: 'one', bytes: 10, firstLineHash: '', readerState: '' }]);
    await append('two', { after: 'one', bytes: 5 });
    expect(await append('grown', { after: '', bytes: 15, siblings: ['one'], replaces: 'one' })).toEqual({
      kind: 'conflict',
    });
    const [requests] = await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' });
    expect([...requests]).toEqual([2]);
  });

  test('the state of a followed path is stored with its batch or without one, but not with a rejected batch', async () => {
    const { store } = await fresh();
    expect(await store.followedPaths('p')).toEqual([]);
    const first = followed('/logs/a.log', NOW);
    await store.putFollowedPath('p', first);
    expect(await store.followedPaths('p')).toEqual([first]);
    expect(await store.sources('p')).toEqual([]);
    const second = { ...first, begun: { first_line_hash: 'h', at: NOW } };
    const one = { ...batch('p', [], [drawnAt(NOW)]), id: 'x', followed: second };
    await store.append(one);
    expect(await store.followedPaths('p')).toEqual([second]);
    const link = { after: 'unknown', bytes: 1, firstLineHash: '', readerState: '', siblings: [] };
    expect(await store.append({ ...one, followed: first })).toEqual({ kind: 'duplicate' });
    expect(await store.append({ ...one, id: 'y', link, followed: first })).toEqual({ kind: 'conflict' });
    expect(await store.followedPaths('p')).toEqual([second]);
    // Longer than the keys of some stores.
    const long = followed(`/${'long/'.repeat(800)}a.log`, NOW);
    const other = { ...followed('/logs/a.log', 1), source: 'other' };
    for (const each of [long, other]) await store.putFollowedPath('p', each);
    await store.prune(NOW + 10 * DAY_MS);
    expect(await store.followedPaths('p')).toEqual([other, second, long].sort(compareFollowed));
    expect(await store.followedPaths('q')).toEqual([]);
  });
}

function flaggedAt(time: number): RandomEvent {
  return { time, host: null, request: false, attack: 'sqli', count: 1 };
}

async function attacksOf(store: Store, project: string): Promise<number> {
  const [, attacks] = await store.count({ project, edges: [0, NOW + 1_000_000], rows: 'timeline' });
  return attacks[0] ?? 0;
}
