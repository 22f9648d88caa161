import { copyFileSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import type { Key } from 'lmdb';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { CATEGORIES, type Event } from '../../event.ts';
import { checkDataFile, DamagedFile, pageProblems } from '../../lmdb/pages.ts';
import { AttackBlock } from '../attack-block.ts';
import { additionsOf, FIRST_BLOCKED, mergeCells, readCells, seriesOf } from '../cells.ts';
import { RecordWriter } from '../record-bytes.ts';
import { StoreDamaged } from '../store.ts';
import { parseBlockKey, putBlock, readBlock } from './attacks.ts';
import { lmdbStore } from './lmdb.ts';
import { repairStatistics } from './repair.ts';
import { addChecksum, CHANGES, CHECKSUM_BYTES, cellsSeed, openTables } from './schema.ts';
import { verifyStatistics } from './verify.ts';

const NOW = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const SOURCE = { name: 'test', format: 'events' };
const TABLES = ['cells', 'meta', 'projects', 'hosts', 'top-lists', 'attacks'];
const BINARY_TABLES: readonly string[] = ['cells', 'top-lists', 'attacks'];

const EVERY_ATTACK = { filter: { include: {}, exclude: {} }, isAscending: true, offset: 0, limit: 1_000 };

let directory: string;
let original: string;
let hosts: string[];
let queries: { project: string; hosts?: string[]; edges: number[] }[];
let copies = 0;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-damage-'));
  original = join(directory, 'statistics.mdb');
  const store = lmdbStore(original, () => NOW);
  hosts = [];
  for (const hostname of ['a', 'b', 'c']) {
    const added = await store.addHost({ project: 'p', hostname, limit: 10 });
    if ('host' in added) hosts.push(added.host.id);
  }
  for (let batch = 0; batch < 3; batch++) {
    const events = Array.from(
      { length: 40 },
      (_, i): Event => ({
        time: NOW + ((i * 7_919_333 + batch * 1_234_567) % (30 * HOUR_MS)),
        hostId: hosts[i % 4] ?? null,
        request: true,
        attack: CATEGORIES[i % 5] ?? null,
        count: 1 + (i % 3),
        details: { blocked: i % 2 === 0, source: `203.0.113.${i % 7}`, url: `/${i % 11}` },
      }),
    );
    await store.append({ project: 'p', source: SOURCE, id: `batch ${batch}`, events, dropped: {} });
  }
  await store.close();
  const edges = [
    [NOW - HOUR_MS, NOW + 48 * HOUR_MS],
    Array.from({ length: 30 }, (_, i) => NOW + i * HOUR_MS),
    Array.from({ length: 12 }, (_, i) => NOW + 1_234 + i * 5_678_901),
  ];
  queries = edges.flatMap((one) => [
    { project: 'p', edges: one },
    { project: 'p', hosts, edges: one },
    ...hosts.map((host) => ({ project: 'p', hosts: [host], edges: one })),
  ]);
});

afterAll(() => rmSync(directory, { recursive: true }));

test('a file with a deleted host is intact, even after a repair', async () => {
  const path = copy();
  const store = lmdbStore(path, () => NOW);
  await store.deleteHost({ project: 'p', id: hosts[0] ?? '' });
  await store.addHost({ project: 'p', hostname: 'a', limit: 3 });
  await store.close();
  expect((await verifyStatistics(path)).findings).toEqual([]);
  await repairStatistics(path);
  expect((await verifyStatistics(path)).findings).toEqual([]);
});

test('verify reports an hour that keeps more attacks than were counted', async () => {
  const path = join(directory, `counted-${copies++}.mdb`);
  const store = lmdbStore(path, () => NOW);
  const attack = { hostId: null, request: false, attack: 'xss', count: 3 } as const;
  const events: Event[] = [
    { ...attack, time: NOW, details: { blocked: true } },
    { ...attack, time: NOW + HOUR_MS, details: { blocked: false } },
  ];
  await store.append({ project: 'p', source: SOURCE, events, dropped: {} });
  expect((await verifyStatistics(path)).problems).toBe(0);
  for await (const { hour, blocks } of store.transfer.attackHours('p')) {
    const moved = blocks.map((block) => AttackBlock.of(hour + 1, block.bytes));
    await store.transfer.putAttackHour('p', { hour: hour + 1, blocks: moved });
    break;
  }
  await store.close();
  const { findings } = await verifyStatistics(path);
  expect(findings).toEqual([
    {
      ...{ table: 'attacks', key: 'scope 1', project: 'p' },
      ...{ from: NOW + HOUR_MS, to: NOW + 2 * HOUR_MS },
      problem: 'blocked xss: 3 are kept, but 0 were counted',
    },
  ]);
});

describe('a damaged record', () => {
  test('is an error or has no effect: no result is wrong', async () => {
    const expected = await results(original);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...TABLES), fc.nat(), fc.nat(), async (table, record, bit) => {
        const path = await damaged((entries) => {
          const { key, value } = entries[record % entries.length] as Entry;
          const flipped = Buffer.from(value);
          flip(flipped, bit);
          return [{ key, value: flipped }];
        }, table);
        expectEqualOrDamaged(await results(path), expected);
      }),
      { numRuns: scaled(60) },
    );
  });

  test('is an error too if its key is damaged, so that it is not found', async () => {
    const expected = await results(original);
    const bytes = readFileSync(original);
    const keys = leafKeys(bytes);
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat(71), async (record, bit) => {
        const flipped = Buffer.from(bytes);
        const { at, length } = keys[record % keys.length] ?? { at: 0, length: 1 };
        flip(flipped.subarray(at, at + length), bit);
        const path = copy();
        writeFileSync(path, flipped);
        expectEqualOrDamaged(await results(path), expected);
      }),
      { numRuns: scaled(40) },
    );
  });

  test('of a busy minute, which lmdb-js returns as another type, is read like the others', async () => {
    const path = copy();
    const store = lmdbStore(path, () => NOW);
    const times = Array.from({ length: 30_000 }, (_, i) => NOW - HOUR_MS + 2 * i);
    const events = times.map(
      (time): Event => ({ time, hostId: null, request: true, attack: null, count: 3 }),
    );
    await store.append({ project: 'p', source: SOURCE, events, dropped: {} });
    const [requests] = await store.count({
      project: 'p',
      edges: [NOW - HOUR_MS + 1, NOW - HOUR_MS + 20_001],
      rows: 'timeline',
    });
    expect([...requests]).toEqual([30_000]);
    await store.append({ project: 'p', source: SOURCE, events, dropped: {} });
    expect([
      ...(await store.count({ project: 'p', edges: [NOW - HOUR_MS, NOW - 1], rows: 'timeline' }))[0],
    ]).toEqual([180_000]);
    await store.close();
    expect((await verifyStatistics(path)).problems).toBe(0);
  });

  test('rejects additions, so that it does not get a valid checksum', async () => {
    const isCounter = ({ key }: Entry) => scopeOf(key) !== CHANGES;
    const path = await damaged(
      (entries) =>
        entries.filter(isCounter).map(({ key, value }) => ({ key, value: lastByteChanged(value) })),
      'cells',
    );
    const store = lmdbStore(path, () => NOW);
    const events: Event[] = [{ time: NOW, hostId: null, request: true, attack: null, count: 1 }];
    await expect(store.append({ project: 'p', source: SOURCE, events, dropped: {} })).rejects.toThrow(
      StoreDamaged,
    );
    await store.close();
    expect((await results(path)).every((result) => result === 'damaged')).toBe(true);
  });

  test('is reported by verify, with project, host and time', async () => {
    const path = await damaged(
      (entries) => entries.slice(-1).map(({ key, value }) => ({ key, value: lastByteChanged(value) })),
      'cells',
    );
    const { problems, findings } = await verifyStatistics(path);
    expect(problems).toBeGreaterThan(0);
    const [finding] = findings;
    expect(finding).toMatchObject({ table: 'cells', project: 'p', problem: 'wrong checksum' });
    expect((finding?.to ?? 0) - (finding?.from ?? 0)).toBe(MINUTE_MS);
  });
});

describe('repair', () => {
  test('restores blocked attacks, which verify compares between levels', async () => {
    const path = await damaged((entries) => {
      const { key, value } = entries.find(
        ({ key }) => (key as Buffer)[0] === 0 && scopeOf(key) !== 0,
      ) as Entry;
      const [level, chunk, scope] = [0, (key as Buffer).readUInt32BE(1), scopeOf(key)];
      const cells = new Map(readCells(value.subarray(CHECKSUM_BYTES)));
      const blocked = [...cells].find(([code]) => seriesOf(code) >= FIRST_BLOCKED);
      cells.set(blocked?.[0] ?? 0, (blocked?.[1] ?? 0) + 1);
      const writer = new RecordWriter();
      mergeCells(undefined, additionsOf(cells), writer);
      return [{ key, value: addChecksum(writer.withHead(), cellsSeed(level, chunk, scope)) }];
    }, 'cells');
    const { findings } = await verifyStatistics(path);
    expect(findings.map(({ problem }) => problem)).toEqual([
      expect.stringMatching(/^blocked xss: \d+ at level 0, but \d+ at level 1$/),
    ]);
    expect((await repairStatistics(path)).lost).toEqual([]);
    expect((await verifyStatistics(path)).problems).toBe(0);
    expect(await results(path)).toEqual(await results(original));
  });

  test('restores the counters of any level', async () => {
    const expected = await results(original);
    await fc.assert(
      fc.asyncProperty(fc.nat(2), fc.nat(), fc.nat(), async (level, record, bit) => {
        const path = await damaged((entries) => {
          const all = entries.filter(({ key }) => (key as Buffer)[0] === level);
          const { key, value } = all[record % all.length] as Entry;
          const flipped = Buffer.from(value);
          flip(flipped, bit);
          return [{ key, value: flipped }];
        }, 'cells');
        const { lost, repaired } = await repairStatistics(path);
        expect(lost).toEqual([]);
        expect(repaired).toBeGreaterThanOrEqual(0);
        expect((await verifyStatistics(path)).findings).toEqual([]);
        expect(await results(path)).toEqual(expected);
      }),
      { numRuns: scaled(30) },
    );
  });

  test('keeps the counts of a minute whose exact times are lost, reports the minute, and changes versions', async () => {
    let minute = 0;
    const path = await damaged((entries) => {
      const { key, value } = entries.at(-1) as Entry;
      minute = (key as Buffer).readUInt32BE(1);
      return [{ key, value: lastByteChanged(value) }];
    }, 'cells');
    const version = async () => {
      const store = lmdbStore(path, () => NOW);
      const found = await store.version({ project: 'p', from: NOW, to: NOW + HOUR_MS });
      await store.close();
      return found;
    };
    const before = await version();
    const { lost } = await repairStatistics(path);
    expect(await version()).not.toBe(before);
    expect(lost).toHaveLength(1);
    expect(lost[0]).toMatchObject({ from: minute * MINUTE_MS, to: (minute + 1) * MINUTE_MS, project: 'p' });
    expect((await verifyStatistics(path)).problems).toBe(0);
    const expected = await results(original);
    const found = await results(path);
    // The first ten queries have edges on the minute.
    expect(found.slice(0, 10)).toEqual(expected.slice(0, 10));
  });

  test('removes a damaged top list, and reports its hour', async () => {
    const path = await damaged((entries) => {
      const { key, value } = entries[3] as Entry;
      return [{ key, value: lastByteChanged(value) }];
    }, 'top-lists');
    const { findings } = await verifyStatistics(path);
    expect(findings).toMatchObject([
      { table: 'top-lists', project: 'p', problem: 'invalid key or wrong checksum' },
    ]);
    const [{ from = 0, to = 0 } = {}] = findings;
    expect([from % HOUR_MS, to - from]).toEqual([0, HOUR_MS]);
    expect((await repairStatistics(path)).lost).toEqual([
      { ...findings[0], problem: 'invalid key or wrong checksum; removed' },
    ]);
    expect((await verifyStatistics(path)).problems).toBe(0);
    expect(await results(path)).not.toContain('damaged');
  });

  test('removes a damaged block of attacks, and reports its hour; the counts stay', async () => {
    const project = { project: 'p', from: NOW, to: NOW + 48 * HOUR_MS };
    const read = async (path: string) => {
      const store = lmdbStore(path, () => NOW);
      const { items } = await store.attacks({ ...project, ...EVERY_ATTACK });
      const edges = Array.from({ length: 49 }, (_, i) => NOW + i * HOUR_MS);
      const [counts] = await store.count({ project: 'p', edges, rows: 'attacks' });
      await store.close();
      return { items, counts };
    };
    const expected = await read(original);
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat(), async (record, bit) => {
        const path = await damaged((entries) => {
          const { key, value } = entries[record % entries.length] as Entry;
          const flipped = Buffer.from(value);
          flip(flipped, bit);
          return [{ key, value: flipped }];
        }, 'attacks');
        const { findings } = await verifyStatistics(path);
        expect(findings).toMatchObject([
          { table: 'attacks', project: 'p', problem: 'invalid key or wrong checksum' },
        ]);
        const [{ from = 0, to = 0, key } = { key: '' }] = findings;
        expect(key).toMatch(/^scope \d+, block \d+$/);
        expect([from % HOUR_MS, to - from]).toEqual([0, HOUR_MS]);
        expect((await repairStatistics(path)).lost).toEqual([
          { ...findings[0], problem: 'invalid key or wrong checksum; removed' },
        ]);
        expect((await verifyStatistics(path)).problems).toBe(0);
        const { items, counts } = await read(path);
        expect(counts).toEqual(expected.counts);
        expect(items.length).toBeLessThan(expected.items.length);
        const isElsewhere = ({ time }: { time: number }) => time < from || time >= to;
        expect(items.filter(isElsewhere)).toEqual(expected.items.filter(isElsewhere));
      }),
      { numRuns: scaled(20) },
    );
  });

  test('brings nothing back that an hour over the limit has dropped', async () => {
    const path = join(directory, `limited-${copies++}.mdb`);
    const eventsMax = 40;
    const store = lmdbStore(path, () => NOW, { eventsMax });
    const query = { project: 'p', from: NOW, to: NOW + HOUR_MS, ...EVERY_ATTACK };
    const append = (first: number, length: number) => {
      const events = Array.from({ length }, (_, i): Event => {
        const details = { id: `${first + i}` };
        return { time: NOW + first + i, hostId: null, request: false, attack: 'xss', count: 1, details };
      });
      return store.append({ project: 'p', source: SOURCE, events, dropped: {} });
    };
    await append(0, 100);
    // The last block has a lower threshold than the first, which still contains entries above it.
    await append(1_000, 10);
    const before = (await store.attacks(query)).items.map(({ id }) => id);
    await store.close();
    const { root, attacks } = openTables(path);
    const heads = [...attacks.getKeys()].filter((key) => parseBlockKey(key).part === undefined);
    const thresholds = heads.map((key) => readBlock(attacks, key).threshold);
    expect(thresholds).toHaveLength(2);
    expect(thresholds[1]).toBeLessThan(thresholds[0] ?? 0);
    const part = Buffer.concat([heads[1] ?? Buffer.alloc(0), Buffer.of(0)]);
    await root.transaction(() => attacks.putSync(part, lastByteChanged(attacks.get(part) as Buffer)));
    await root.close();
    expect((await repairStatistics(path)).lost).toHaveLength(1);
    expect((await verifyStatistics(path)).problems).toBe(0);
    const repaired = lmdbStore(path, () => NOW, { eventsMax });
    const after = (await repaired.attacks(query)).items.map(({ id }) => id);
    await repaired.close();
    expect(before).toEqual(expect.arrayContaining(after));
    expect(after.length).toBeGreaterThan(0);
  });

  test('removes a block of attacks that cannot be decoded, though its checksum is right', async () => {
    const path = copy();
    const { root, attacks } = openTables(path);
    const [key = Buffer.alloc(0)] = [...attacks.getKeys()];
    const block = AttackBlock.of(parseBlockKey(key).hour, readBlock(attacks, key).bytes.subarray(0, -1));
    await root.transaction(() => {
      putBlock((_, at, value) => attacks.putSync(at, value as Buffer), parseBlockKey(key), block);
    });
    await root.close();
    const { findings } = await verifyStatistics(path);
    expect(findings).toMatchObject([{ table: 'attacks', problem: 'a block of attacks is too short' }]);
    expect((await repairStatistics(path)).lost).toHaveLength(1);
    expect((await verifyStatistics(path)).problems).toBe(0);
  });

  test('restores a damaged storage version, which verify reports', async () => {
    const path = copy();
    const { root } = openTables(path);
    await root.openDB('meta', { encoding: 'binary' }).put('version', Buffer.from([0x12]));
    await root.close();
    expect((await verifyStatistics(path)).findings).toMatchObject([{ table: 'meta', key: 'version' }]);
    expect((await repairStatistics(path)).lost).toEqual([]);
    expect((await verifyStatistics(path)).problems).toBe(0);
    expect(await results(path)).toEqual(await results(original));
  });

  test.each(['deletedHosts', 'renamedHosts'] as const)(
    'replaces a damaged counter %s with a value that it never had',
    async (counter) => {
      const path = copy();
      const store = lmdbStore(path, () => NOW);
      for (const name of ['d', 'e']) {
        await store.renameHost({ project: 'p', id: hosts[1] ?? '', hostname: name });
      }
      await store.deleteHost({ project: 'p', id: hosts[0] ?? '' });
      await store.close();
      const expected = await results(path);
      const { root, meta } = openTables(path);
      const before = meta.get(counter) ?? 0;
      const raw = root.openDB<Buffer, string>('meta', { encoding: 'binary' });
      await raw.put(counter, lastByteChanged(raw.get(counter) ?? Buffer.alloc(0)));
      await root.close();
      expect((await verifyStatistics(path)).findings).toMatchObject([{ table: 'meta', key: counter }]);
      expect(await repairStatistics(path)).toMatchObject({ lost: [], repairs: [{ key: counter }] });
      expect((await verifyStatistics(path)).problems).toBe(0);
      expect(await results(path)).toEqual(expected);
      const repaired = openTables(path);
      // Caches compare it with the value that they have seen: counting from zero again would repeat that value.
      expect(repaired.meta.get(counter)).toBeGreaterThan(before);
      await repaired.root.close();
    },
  );

  test('removes a damaged salt, and the next change adds another one', async () => {
    const path = copy();
    const { root, meta } = openTables(path);
    const before = meta.get('salt');
    const raw = root.openDB<Buffer, string>('meta', { encoding: 'binary' });
    await raw.put('salt', lastByteChanged(raw.get('salt') ?? Buffer.alloc(0)));
    await root.close();
    expect((await verifyStatistics(path)).findings).toMatchObject([{ table: 'meta', key: 'salt' }]);
    expect(await repairStatistics(path)).toMatchObject({ lost: [], repairs: [{ key: 'salt' }] });
    expect((await verifyStatistics(path)).problems).toBe(0);
    const store = lmdbStore(path, () => NOW);
    await store.deleteHost({ project: 'p', id: hosts[0] ?? '' });
    await store.close();
    const repaired = openTables(path);
    expect([undefined, before]).not.toContain(repaired.meta.get('salt'));
    await repaired.root.close();
  });

  test('removes a link to a batch that does not exist, and restores the name of a host', async () => {
    const path = copy();
    const { root, batchLinks, hostnames } = openTables(path);
    await batchLinks.put([1, 'gone', 'batch 1'], { bytes: 1, first_line_hash: '', reader_state: '' });
    const [name] = [...hostnames.getKeys()];
    if (name) await hostnames.remove(name);
    await root.close();
    const { findings } = await verifyStatistics(path);
    expect(findings.map(({ table }) => table)).toEqual(['hosts', 'batch-links']);
    expect((await repairStatistics(path)).repairs).toEqual(findings);
    expect((await verifyStatistics(path)).problems).toBe(0);
  });

  const lines = (id: string): Event => {
    const flagged = { kind: 'lines', log: 'nginx-error', ids: [id] } as const;
    return { time: NOW, hostId: null, request: false, attack: 'sqli', count: 1, flagged };
  };

  /** A copy whose source remembers the requests a, b and c, in a batch each. */
  async function withRequests(): Promise<string> {
    const path = copy();
    const store = lmdbStore(path, () => NOW, { requestsMax: 3 });
    for (const id of ['a', 'b', 'c'])
      await store.append({ project: 'p', source: SOURCE, events: [lines(id)], dropped: {} });
    await store.close();
    return path;
  }

  /** Which of the requests are known, if the source sees them again in this order. */
  async function knownRequests(path: string, ids: readonly string[]): Promise<string[]> {
    const store = lmdbStore(path, () => NOW, { requestsMax: 3 });
    const known: string[] = [];
    for (const id of ids) {
      const batch = { project: 'p', source: SOURCE, events: [lines(id)], dropped: {} };
      if ('sameRequests' in (await store.append(batch))) known.push(id);
    }
    await store.close();
    return known;
  }

  test('keeps the other remembered requests if one is damaged', async () => {
    const path = await withRequests();
    const { root } = openTables(path);
    const raw = root.openDB<Buffer, Key>('requests', { encoding: 'binary' });
    const [, { key, value } = { key: '', value: Buffer.alloc(0) }] = [...raw.getRange()];
    await raw.put(key, lastByteChanged(value));
    await root.close();
    const { findings } = await verifyStatistics(path);
    expect(findings.map(({ table }) => table)).toEqual(['requests']);
    expect((await repairStatistics(path)).lost).toEqual([]);
    expect((await verifyStatistics(path)).findings).toEqual([]);
    expect(await knownRequests(path, ['a', 'b', 'c'])).toEqual(['a', 'c']);
  });

  test('deletes remembered requests of a source that does not exist', async () => {
    const path = await withRequests();
    const { root, requests } = openTables(path);
    const [[project, generation, source] = [0, 0, 0]] = [...requests.getKeys()];
    await requests.put([project, generation, source + 1, 'a'], NOW);
    await root.close();
    const { findings } = await verifyStatistics(path);
    expect(findings.map(({ table, problem }) => `${table}: ${problem}`)).toEqual([
      'requests: the source does not exist',
    ]);
    expect(await repairStatistics(path)).toMatchObject({ lost: [], repairs: findings });
    expect((await verifyStatistics(path)).findings).toEqual([]);
    expect(await knownRequests(path, ['a', 'b', 'c'])).toEqual(['a', 'b', 'c']);
  });
});

test('a file of a development build is refused, and verify and repair change nothing', async () => {
  const path = copy();
  const { root, version } = openTables(path);
  await version.put('version', 2);
  await root.close();
  const before = readFileSync(path);
  const sentence =
    /has storage version 2, but this release reads version 7: a development build wrote it\. Move it away/;
  expect(() => lmdbStore(path, () => NOW)).toThrow(sentence);
  await expect(verifyStatistics(path)).rejects.toThrow(sentence);
  await expect(repairStatistics(path)).rejects.toThrow(sentence);
  expect(readFileSync(path).equals(before)).toBe(true);
});

describe('a truncated file', () => {
  test('is refused at any length, before LMDB maps it', () => {
    const bytes = readFileSync(original).length;
    fc.assert(
      fc.property(fc.integer({ min: 1, max: bytes - 1 }), (length) => {
        const path = copy();
        truncateSync(path, length);
        try {
          checkDataFile(path);
          // The missing part was not in use.
          expect(pageProblems(path).problems).toEqual([]);
        } catch (error) {
          expect(error).toBeInstanceOf(DamagedFile);
        }
        rmSync(path);
      }),
      { numRuns: scaled(50) },
    );
  });
});

interface Entry {
  key: Buffer | string | [number, string];
  value: Buffer;
}

/** A copy in which records of a table are replaced, or removed when there is no value. */
async function damaged(
  change: (entries: Entry[]) => { key: Entry['key']; value?: Buffer }[],
  table: string,
): Promise<string> {
  const path = copy();
  const { root } = openTables(path);
  const raw = root.openDB<Buffer, Entry['key']>(
    table,
    BINARY_TABLES.includes(table) ? { encoding: 'binary', keyEncoding: 'binary' } : { encoding: 'binary' },
  );
  // The version has no checksum, but one flipped bit does not make it another valid version.
  const entries = [...raw.getRange()].filter(({ key }) => key !== 'version');
  for (const { key, value } of change(entries)) {
    if (value === undefined) await raw.remove(key);
    else await raw.put(key, value);
  }
  await root.close();
  return path;
}

function copy(): string {
  const path = join(directory, `copy-${++copies}.mdb`);
  copyFileSync(original, path);
  return path;
}

/** A JSON text for each query, or 'damaged'. */
async function results(path: string): Promise<string[]> {
  let store: ReturnType<typeof lmdbStore>;
  try {
    store = lmdbStore(path, () => NOW);
  } catch (error) {
    expect(error).toBeInstanceOf(StoreDamaged);
    return queries.map(() => 'damaged');
  }
  const found: string[] = [];
  for (const { edges, ...selection } of queries) {
    try {
      const query = { ...selection, edges };
      const range = { ...selection, from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
      const onePoint = { ...selection, edges: [range.from, range.to] };
      const counts = [
        await store.count({ ...query, rows: 'timeline' }),
        await store.count({ ...onePoint, rows: 'categories' }),
        await store.count({ ...query, rows: 'everything' }),
        await store.peaks(query),
      ];
      const byHost = await store.count({ ...onePoint, rows: 'attacks', byHost: true });
      const top = { ...range, limit: 100 };
      const lists = edges.length === 2 && [
        await store.top({ ...top, list: 'sources' }),
        await store.top({ ...top, list: 'urls', categories: ['xss'] }),
        await store.attacks({ ...range, ...EVERY_ATTACK }),
      ];
      const rows = counts.flat().map((row) => [...row]);
      found.push(JSON.stringify([...rows, [...byHost].map(([id, [row]]) => [id, row[0]]), lists]));
    } catch (error) {
      expect(error).toBeInstanceOf(StoreDamaged);
      found.push('damaged');
    }
  }
  await store.close();
  return found;
}

/** Where the binary keys are in the file: in nodes with a key of this length and a value. */
function leafKeys(bytes: Buffer): { at: number; length: number }[] {
  const { root, cells, topLists } = openTables(original);
  const keys = [...cells.getKeys(), ...topLists.getKeys()].map((key) => Buffer.from(key));
  root.close();
  return keys.flatMap((key) => {
    const found: { at: number; length: number }[] = [];
    const { length } = key;
    for (let at = bytes.indexOf(key); at !== -1; at = bytes.indexOf(key, at + 1)) {
      if (bytes.readUInt16LE(at - 2) === length && bytes.readUInt16LE(at - 4) === 0)
        found.push({ at, length });
    }
    return found;
  });
}

function expectEqualOrDamaged(found: readonly string[], expected: readonly string[]): void {
  for (const [i, result] of found.entries()) if (result !== 'damaged') expect(result).toBe(expected[i]);
}

function scopeOf(key: Entry['key']): number {
  return (key as Buffer).readUInt32BE(5);
}

function flip(bytes: Buffer, bit: number): void {
  const at = bit % (bytes.length * 8);
  bytes[at >> 3] = (bytes[at >> 3] ?? 0) ^ (1 << (at & 7));
}

function lastByteChanged(value: Buffer): Buffer {
  const changed = Buffer.from(value);
  flip(changed, changed.length * 8 - 1);
  return changed;
}
