/** Reading chunks in other threads gives the same result as reading them one after the other, for any bytes. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { texts } from '../../../../test/store-conformance/data.ts';
import type { Store } from '../store/store.ts';
import { decompress } from './byte-stream.ts';
import { ChunkParser, type ChunkTask, type ParsedChunk, parserSetup } from './chunk-parser.ts';
import { FileConflict, type FileProgress, ingestFile } from './file.ts';
import { compilePattern } from './formats/pattern.ts';
import { parseZone } from './formats/time-zone.ts';
import { CHUNK_BYTES_MAX, LINE_BYTES_MAX } from './lines.ts';
import type { ChunkParsers } from './parser-threads.ts';
import { type Limits, LinesInFuture, Pipeline } from './pipeline.ts';
import { FileChanged, PlainFile } from './plain-file.ts';
import { FileChunks } from './read-ahead.ts';
import type { ReaderOptions } from './reader.ts';

const NOW = Date.UTC(2026, 10, 15, 3, 0, 0);
const LIMITS: Limits = { retentionMs: 180 * 86_400_000, hostsMax: 5 };
const AUTO: ReaderOptions = { format: 'auto' };

/** Parses in this thread, but with copied messages, and results that arrive in any order. */
class TestParsers implements ChunkParsers {
  readonly #parser: ChunkParser;
  readonly #capacity: number;
  readonly #delays: readonly number[];
  #lastId = '';
  #tasks = 0;
  chunks = 0;
  pauses = 0;
  underWay = 0;

  constructor(reader: ReaderOptions, capacity: number, delays: readonly number[]) {
    this.#parser = new ChunkParser(structuredClone(parserSetup(reader, LIMITS)));
    this.#capacity = capacity;
    this.#delays = delays;
  }

  capacity(): number {
    return this.#capacity;
  }

  pause(): void {
    this.pauses++;
  }

  async parse(task: ChunkTask): Promise<ParsedChunk> {
    this.chunks++;
    this.underWay++;
    try {
      const received = structuredClone(task);
      const parsed = this.#parser.parse(received, () => received.after ?? this.#lastId);
      if (parsed === null) throw new FileChanged();
      this.#lastId = parsed.digests.id;
      const delay = this.#delays[this.#tasks++ % this.#delays.length] ?? 0;
      for (let turn = 0; turn < delay; turn++) await nextTurn();
      return structuredClone(parsed);
    } finally {
      this.underWay--;
    }
  }
}

interface Run {
  store?: Store;
  reader?: ReaderOptions;
  parsers?: ChunkParsers;
  from?: 'stream' | 'gzip' | 'file';
}

const directory = mkdtempSync(join(tmpdir(), 'wafstat-read-ahead-'));
afterAll(() => rmSync(directory, { recursive: true }));

async function open(content: Buffer, from: Run['from']): Promise<AsyncIterable<Uint8Array>> {
  if (from === 'gzip') return decompress(inParts(gzipSync(content, { level: 1 })));
  if (from !== 'file') return inParts(content);
  const path = join(directory, 'file.log');
  writeFileSync(path, content);
  return PlainFile.open(path);
}

async function run(
  content: Buffer,
  { store = memoryStore(() => NOW), reader = AUTO, parsers, from = parsers ? 'file' : 'stream' }: Run,
  onProgress: () => void = () => {},
) {
  const pipeline = new Pipeline(store, LIMITS, () => NOW);
  const ingest = { project: 'p', source: { name: 's', format: reader.format }, reader };
  const stream = await open(content, from);
  const progress: FileProgress[] = [];
  for await (const step of ingestFile(stream, ingest, store, pipeline, { parsers })) {
    progress.push(step);
    onProgress();
  }
  return progress;
}

async function* inParts(content: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < content.length; at += 300_000) yield content.subarray(at, at + 300_000);
}

/** Everything that the store knows, and the chain of checkpoints. */
async function contentOf(store: Store) {
  const chain: { id: string; bytes: number; firstLineHash: string; hasState: boolean }[] = [];
  for (let after: string | undefined = ''; after !== undefined; after = chain.at(-1)?.id) {
    const links = await store.batchesAfter('p', 's', after);
    expect(links.length).toBeLessThanOrEqual(1);
    if (links.length === 0) break;
    for (const { id, bytes, firstLineHash, readerState } of links)
      chain.push({ id, bytes, firstLineHash, hasState: readerState !== '' });
  }
  const hours = Array.from({ length: 24 * 7 }, (_, i) => NOW - (24 * 7 - i) * 3_600_000);
  const edges = [0, ...hours, NOW, NOW + 2 * 86_400_000];
  return {
    chain,
    hosts: await store.hosts('p'),
    sources: await store.sources('p'),
    counts: texts([
      ...(await store.count({ project: 'p', edges, rows: 'everything' })),
      ...(await store.count({ project: 'p', edges, rows: 'codes' })),
    ]),
    urls: await store.top({ project: 'p', list: 'urls', limit: 100, from: 0, to: NOW + 1 }),
  };
}

async function expectSame(content: Buffer, options: Run, capacity: number, delays: readonly number[]) {
  const [plain, parallel] = [memoryStore(() => NOW), memoryStore(() => NOW)];
  const parsers = new TestParsers(options.reader ?? AUTO, capacity, delays);
  const expected = await run(content, { ...options, store: plain, from: 'stream' });
  const progress = await run(content, { ...options, store: parallel, parsers });
  // As text, because the order of formats and reasons is visible to the user.
  expect(JSON.stringify(progress)).toBe(JSON.stringify(expected));
  expect(await contentOf(parallel)).toEqual(await contentOf(plain));
  expect(parsers.underWay).toBe(0);
  return { chunks: parsers.chunks, pauses: parsers.pauses, expected };
}

const FIXTURES = new URL('../../fixtures/', import.meta.url);
const FIXTURE_LINES = readdirSync(FIXTURES)
  .filter((name) => name.endsWith('.log'))
  .flatMap((name) => readFileSync(new URL(name, FIXTURES), 'latin1').split('\n').slice(0, 12).filter(Boolean))
  .map((line) => Buffer.from(line, 'latin1'));
const STAMP = '[15/Nov/2026:02:20:43 +0000]';
const access = (host: string, padding: number, status = 200) =>
  `${host} 203.0.113.9 - - ${STAMP} "GET / HTTP/1.1" ${status} 1 "-" "${'x'.repeat(padding)}"`;
const event = (fields: object, padding: number) =>
  JSON.stringify({ time: NOW - 3_600_000, ...fields, pad: 'x'.repeat(padding) });

/** Long enough that a chunk has few lines, of any length around the limits. */
const padding = fc.oneof(
  { weight: 40, arbitrary: fc.integer({ min: 0, max: 90_000 }) },
  { weight: 1, arbitrary: fc.constantFrom(LINE_BYTES_MAX - 200, LINE_BYTES_MAX, 2 * LINE_BYTES_MAX + 5) },
);
const host = fc.constantFrom(
  'a.example',
  'b.example',
  'c.example',
  'd.example:8080',
  'e.example',
  'f.example',
);
/** Most lines need no state: otherwise, other threads would have nothing to do. */
const stateless = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(host, padding, fc.constantFrom(200, 200, 304, 404, 502))
      .map(([name, n, status]) => Buffer.from(access(name, n, status))),
  },
  {
    weight: 4,
    arbitrary: fc
      .tuple(
        fc.record(
          {
            host,
            host_id: fc.constantFrom('h1', 'h2'),
            attack: fc.constantFrom('xss', 'sqli', 'no such category'),
            request: fc.boolean(),
            count: fc.constantFrom(1, 3, 1_000_000, 1_000_001),
            blocked: fc.boolean(),
            url: fc.constantFrom('/a?secret=1', '/b'),
            source: fc.constant('203.0.113.7'),
            time: fc.constantFrom(NOW - 1_234, NOW + 1e9, 5),
          },
          { requiredKeys: ['host'] },
        ),
        padding,
      )
      .map(([fields, n]) => Buffer.from(event(fields, n))),
  },
  { weight: 2, arbitrary: fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('', '\r', '\0\0\0', `\0\0${access('a.example', 9)}`).map(Buffer.from),
  },
);
const anyLine = fc.oneof(
  { weight: 30, arbitrary: stateless },
  { weight: 1, arbitrary: fc.constantFrom(...FIXTURE_LINES) },
);
const content = (line: fc.Arbitrary<Buffer>) =>
  fc
    .tuple(
      fc.array(line, { minLength: 30, maxLength: 80, size: 'max' }),
      fc.constantFrom('\n', '\r\n'),
      fc.boolean(),
      fc.nat(1),
    )
    .map(([lines, end, hasLastEnd, repeats]) => {
      const once = Buffer.concat(lines.flatMap((each) => [each, Buffer.from(end)]));
      const all = Buffer.concat(Array<Buffer>(1 + repeats).fill(once));
      return hasLastEnd ? all : all.subarray(0, -end.length);
    });
const capacities = fc.integer({ min: 1, max: 6 });
const delays = fc.array(fc.nat(9), { minLength: 1, maxLength: 5 });
const origins = fc.constantFrom('stream' as const, 'gzip' as const, 'file' as const, 'file' as const);

describe('chunks that are read ahead count the same', () => {
  test.each(['stream', 'gzip', 'file'] as const)(
    'for lines that need no state, all but the last chunk of a file are read ahead: %s',
    async (from) => {
      const lines = Array.from({ length: 1_000 }, (_, i) => access(`${i % 7}.example`, 5_000 + i));
      const { chunks, pauses, expected } = await expectSame(
        Buffer.from(`${lines.join('\n')}\n`),
        { from },
        4,
        [9, 0, 4],
      );
      expect(expected.length).toBeGreaterThan(5);
      expect(chunks).toBe(from === 'file' ? expected.length - 1 : 0);
      expect(pauses).toBe(0);
    },
  );

  test('for any lines, from a stream or a file', async () => {
    await fc.assert(
      fc.asyncProperty(
        content(anyLine),
        capacities,
        delays,
        origins,
        async (bytes, capacity, turns, from) => {
          await expectSame(bytes, { from }, capacity, turns);
        },
      ),
      { numRuns: scaled(50) },
    );
  });

  test('after a line that later lines depend on, and before the next of its kind', async () => {
    const parts = FIXTURE_LINES.map((line) => line.toString('latin1'));
    const filler = Array.from({ length: 300 }, (_, i) => access('a.example', 10_000 + i));
    const lines = [...filler, ...parts, ...filler, ...parts, ...filler];
    const bytes = Buffer.from(lines.join('\n'), 'latin1');
    const { chunks, pauses, expected } = await expectSame(bytes, {}, 3, [0, 5]);
    // The state stays, so only chunks that were under way are read in vain.
    expect(chunks).toBeLessThan(expected.length - 1);
    expect(pauses).toBeGreaterThan(0);
  });

  test('for native blocks that continue in the next chunk', async () => {
    const block = readFileSync(new URL('modsecurity2-native.log', FIXTURES), 'latin1');
    const filler = access('a.example', 262_100);
    const lines = Array.from({ length: 12 }, () => `${filler}\n${filler}\n${filler}\n${block.trimEnd()}`);
    await expectSame(Buffer.from(lines.join('\n'), 'latin1'), {}, 3, [0, 5]);
  });

  test.each<[string, ReaderOptions, (i: number) => string]>([
    [
      'a pattern',
      { format: 'auto', pattern: compilePattern('$host [$time_local] $request_time') },
      (i) => `h${i % 3} ${STAMP} ${'1'.repeat(9_000)}`,
    ],
    [
      'a host',
      { format: 'access', host: 'given.example' },
      () => `203.0.113.9 - - ${STAMP} "GET /${'x'.repeat(9_000)}`,
    ],
    [
      'a zone with a clock that is set back',
      { format: 'auto', zone: parseZone('Europe/Berlin') },
      (i) =>
        `Oct 25 02:${String(i % 60).padStart(2, '0')}:00 lb haproxy[1]: 203.0.113.9:1 [25/Oct/2026:02:${String(((i / 3) % 60) | 0).padStart(2, '0')}:00.000] web api/s1 0/0/1/2/3 200 1 - - ---- 1/1/0/0/0 0/0 "GET /${'x'.repeat(9_000)} HTTP/1.1"`,
    ],
    [
      'categories of rules',
      { format: 'auto', overrides: new Map([['942100', 'custom']]) },
      (i) => event({ attack: 'xss', rule: `r${i % 4}` }, 9_000),
    ],
  ])('with %s', async (_name, reader, line) => {
    const lines = Array.from({ length: 500 }, (_, i) => line(i));
    const { chunks } = await expectSame(Buffer.from(lines.join('\n')), { reader }, 3, [0, 5]);
    expect(chunks).toBeGreaterThan(0);
  });

  test('after a crash at any batch, with or without threads before and after it', async () => {
    await fc.assert(
      fc.asyncProperty(
        content(anyLine),
        capacities,
        delays,
        fc.array(fc.tuple(fc.nat(6), fc.boolean()), { minLength: 1, maxLength: 3 }),
        origins,
        async (bytes, capacity, turns, crashes, from) => {
          const store = memoryStore(() => NOW);
          for (const [appends, isParallel] of crashes) {
            let left = appends;
            const failing: Store = {
              ...store,
              append: async (batch) => {
                if (left-- <= 0) throw new Error('crash');
                return store.append(batch);
              },
            };
            const parsers = isParallel ? new TestParsers(AUTO, capacity, turns) : undefined;
            await run(bytes, { store: failing, from, ...(parsers && { parsers }) }).catch((error: Error) => {
              // The rest of a file whose lines in time were counted before the crash is refused.
              fc.pre(!(error instanceof LinesInFuture));
              expect(error.message).toBe('crash');
            });
            expect(parsers?.underWay ?? 0).toBe(0);
          }
          const rest = run(bytes, { store, from, parsers: new TestParsers(AUTO, capacity, turns) });
          fc.pre(!((await rest.catch((error) => error)) instanceof LinesInFuture));
          await rest;
          const plain = memoryStore(() => NOW);
          await run(bytes, { store: plain });
          // The last chunk of a run may be extended, but not that of an earlier run.
          const { chain: _, ...content } = await contentOf(store);
          expect(await contentOf(plain)).toMatchObject(content);
        },
      ),
      { numRuns: scaled(15) },
    );
  });
});

test('a thread that fails ends the run, and the next run counts the rest', async () => {
  const lines = Array.from({ length: 1_000 }, (_, i) => access(`${i % 3}.example`, 5_000));
  const bytes = Buffer.from(`${lines.join('\n')}\n`);
  const store = memoryStore(() => NOW);
  const parsers = new TestParsers(AUTO, 2, [1]);
  let left = 2;
  const failing: ChunkParsers = {
    capacity: () => 2,
    pause: () => parsers.pause(),
    parse: (task) => (left-- > 0 ? parsers.parse(task) : Promise.reject(new Error('out of memory'))),
  };
  await expect(run(bytes, { store, parsers: failing })).rejects.toThrow('out of memory');
  await run(bytes, { store });
  const [source] = await store.sources('p');
  expect(source).toMatchObject({ events: 1_000, dropped: {} });
});

describe('a file that changes while threads read it', () => {
  const lines = Array.from({ length: 1_000 }, (_, i) => access(`${i % 3}.example`, 5_000));
  const bytes = Buffer.from(`${lines.join('\n')}\n`);
  const path = join(directory, 'file.log');
  const overwrite = (content: Buffer) => writeFileSync(path, content, { flag: 'r+' });

  /** Calls back around the parsing of each chunk. */
  function parsersWith(hooks: { before?: (chunk: number) => void; after?: (position: number) => void }) {
    const parsers = new TestParsers(AUTO, 4, [3]);
    const parse = parsers.parse.bind(parsers);
    parsers.parse = async (task) => {
      hooks.before?.(parsers.chunks);
      const parsed = await parse(task);
      hooks.after?.(task.part.position);
      return parsed;
    };
    return parsers;
  }

  async function expectAllCounted(content: Buffer, store: Store) {
    await run(content, { store, from: 'file', parsers: new TestParsers(AUTO, 4, [3]) });
    const [source] = await store.sources('p');
    expect(source).toMatchObject({ events: 1_000, dropped: {} });
  }

  test.each<[string, () => void]>([
    ['truncated', () => truncateSync(path, 2_500_000)],
    ['overwritten', () => overwrite(Buffer.alloc(bytes.length, 'x'))],
  ])('before a thread reads a chunk: %s', async (_how, change) => {
    const store = memoryStore(() => NOW);
    const parsers = parsersWith({ before: (chunk) => chunk === 2 && change() });
    await expect(run(bytes, { store, from: 'file', parsers })).rejects.toThrow(FileChanged);
    // The chunks before it are counted, and are not counted again.
    expect((await contentOf(store)).chain).toHaveLength(2);
    await expectAllCounted(bytes, store);
  });

  test.each<[string, (position: number) => void]>([
    ['truncated', (position) => truncateSync(path, position + 9)],
    ['overwritten', (position) => overwrite(changedFrom(position))],
  ])('before the main thread reads the last chunk again: %s', async (_how, change) => {
    const store = memoryStore(() => NOW);
    let last = 0;
    const after = (position: number) => {
      if (position + 2 * CHUNK_BYTES_MAX < bytes.length) return;
      last = position;
      change(position);
    };
    const parsers = parsersWith({ after });
    await expect(run(bytes, { store, from: 'file', parsers })).rejects.toThrow(FileChanged);
    await expectAllCounted(changedFrom(last), store);
  });

  test('so that a chunk ends where the chunk before it would have ended', async () => {
    const line = (length: number) => `${access('a.example', length - access('a.example', 0).length - 1)}\n`;
    const filler = line(5_000).repeat(1_000);
    const original = Buffer.from(line(100_000) + line(1_000_000) + filler);
    const changed = Buffer.from(line(100_000) + line(50_000) + line(1_000_000) + filler);
    const store = memoryStore(() => NOW);
    const parsers = parsersWith({ before: (chunk) => chunk === 0 && overwrite(changed) });
    await expect(run(original, { store, from: 'file', parsers })).rejects.toThrow(FileChanged);
    await run(changed, { store, from: 'file' });
    const [source] = await store.sources('p');
    expect(source).toMatchObject({ events: 1_003, dropped: {} });
  });

  /** The same lines, but other bytes. */
  const changedFrom = (position: number) =>
    Buffer.concat([
      bytes.subarray(0, position),
      Buffer.from(bytes.toString('latin1', position).replaceAll('x', 'y').replaceAll('eyample', 'example')),
    ]);
});

describe('a file that is truncated and written again while it is read', () => {
  const path = join(directory, 'refilled.log');
  const LINE_BYTES = 8_000;
  const reader: ReaderOptions = { format: 'events' };
  /** Lines of one length, so that chunks of either content end with a line end. All begin and end differently. */
  const content = (count: number, firstAge: number) =>
    Array.from({ length: count }, (_, i) => {
      const [start, end] = [
        `{"time":${NOW - firstAge - i},"padding":"`,
        `","line":${1_000 + firstAge + i}}\n`,
      ];
      return `${start}${'x'.repeat(LINE_BYTES - start.length - end.length)}${end}`;
    }).join('');

  /** Replaces the file at the given step: before and after a thread reads a chunk, or while the main thread reads one. */
  async function runWith(hook: () => void, capacity: number, store: Store): Promise<void> {
    const file = await PlainFile.open(path);
    const parsers = new TestParsers(reader, capacity, [3]);
    const parse = parsers.parse.bind(parsers);
    parsers.parse = async (task) => {
      hook();
      const parsed = await parse(task);
      hook();
      return parsed;
    };
    const pipeline = new Pipeline(store, LIMITS, () => NOW);
    const ingest = { project: 'p', source: { name: 's', format: reader.format }, reader };
    for await (const _progress of ingestFile(file, ingest, store, pipeline, { parsers }));
  }

  /** Divides every read of a file into two. */
  async function splitReads(hook: () => void) {
    const handle = await openFile(path);
    const prototype = Object.getPrototypeOf(handle);
    await handle.close();
    const { read } = prototype;
    return vi.spyOn(prototype, 'read').mockImplementation(async function (this: unknown, ...args: unknown[]) {
      const [buffer, at, length, position] = args as [Buffer, number, number, number];
      const half = Math.ceil(length / 2);
      const { bytesRead } = await read.call(this, buffer, at, half, position);
      hook();
      if (bytesRead < half) return { bytesRead, buffer };
      const rest = await read.call(this, buffer, at + half, length - half, position + half);
      return { bytesRead: half + rest.bytesRead, buffer };
    });
  }

  test.each([
    ['in one thread', 0],
    ['in threads', 4],
  ])('counts each line once, %s', async (_how, capacity) => {
    const size = fc.integer({ min: 1, max: 700 });
    // None, a short one, one that is longer than half a read, and one that is longer than a read.
    const hole = fc.constantFrom(0, 1, 66, 140).map((lines) => '\0'.repeat(lines * LINE_BYTES));
    await fc.assert(
      fc.asyncProperty(size, size, fc.nat(12), hole, hole, async (before, after, step, oldHole, newHole) => {
        const store = memoryStore(() => NOW);
        writeFileSync(path, oldHole + content(before, 1));
        let left = step;
        const hook = () => {
          // The same inode, as after copytruncate.
          if (left-- === 0) writeFileSync(path, newHole + content(after, 1 + before));
        };
        const reads = await splitReads(hook);
        try {
          for (let isChanged = true; isChanged; ) {
            isChanged = await runWith(hook, capacity, store).then(
              () => false,
              (error) => {
                // Both are tried again, as in `ingest`.
                if (error instanceof FileChanged || error instanceof FileConflict) return true;
                throw error;
              },
            );
          }
        } finally {
          reads.mockRestore();
        }
        // The file may have been replaced after its end was read.
        await runWith(() => {}, capacity, store);
        const isReplaced = left < 0;
        const edges = Array.from({ length: before + after + 1 }, (_, i) => NOW - before - after + i);
        const counts = [...(await store.count({ project: 'p', edges, rows: 'timeline' }))[0]].reverse();
        // Long arrays compare much faster as text.
        expect(counts.slice(before).join()).toBe(
          Array(after)
            .fill(isReplaced ? 1 : 0)
            .join(),
        );
        // Lines that were not read before the truncation are lost.
        const first = counts.slice(0, before);
        const read = isReplaced ? first.filter((count) => count > 0).length : before;
        expect(first.join()).toBe([...Array(read).fill(1), ...Array(before - read).fill(0)].join());
        expect((await store.sources('p')).map(({ dropped }) => dropped)).toEqual([{}]);
      }),
      {
        numRuns: scaled(40),
        // A long hole becomes a short one between two halves of a read.
        examples: [[1, 65, 1, '\0'.repeat(140 * LINE_BYTES), '\0'.repeat(LINE_BYTES)]],
      },
    );
  });
});

test.each([
  [3, 1],
  [1_000, 2],
])('a file of %i lines is read from %i offsets by the main thread', async (lineCount, offsets) => {
  const lines = Array.from({ length: lineCount }, () => `${access('a.example', 5_000)}\n`);
  const from = vi.spyOn(PlainFile.prototype, 'from');
  try {
    await run(Buffer.from(lines.join('')), { from: 'file', parsers: new TestParsers(AUTO, 4, [3]) });
    expect(from).toHaveBeenCalledTimes(offsets);
  } finally {
    from.mockRestore();
  }
});

test('a failure to read ahead is reported when it is the turn of the chunk', async () => {
  const lines = Array.from({ length: 1_000 }, (_, i) => access(`${i % 3}.example`, 5_000));
  const parsers = new TestParsers(AUTO, 4, [9]);
  const { take } = FileChunks.prototype;
  let left = 2;
  vi.spyOn(FileChunks.prototype, 'take').mockImplementation(function (this: FileChunks) {
    if (left-- === 0) throw new RangeError('no memory');
    return take.call(this);
  });
  const store = memoryStore(() => NOW);
  const appended: number[] = [];
  const watching: Store = {
    ...store,
    append: (batch) => {
      appended.push(batch.events.length);
      return store.append(batch);
    },
  };
  // If the failure were unhandled until then, the process would end.
  await expect(run(Buffer.from(lines.join('\n')), { store: watching, parsers })).rejects.toThrow('no memory');
  vi.restoreAllMocks();
  expect(appended).toHaveLength(2);
  expect(parsers.underWay).toBe(0);
});
