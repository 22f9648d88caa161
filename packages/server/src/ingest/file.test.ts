import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { CATEGORIES } from '../event.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store } from '../store/store.ts';
import { FileConflict, type FileProgress, ingestFile } from './file.ts';
import { parseZone } from './formats/time-zone.ts';
import { LINE_BYTES_MAX } from './lines.ts';
import { LinesInFuture, Pipeline } from './pipeline.ts';

const NOW = Date.UTC(2026, 6, 1);

function setUp(store = memoryStore(() => NOW)) {
  const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => NOW);
  const ingest = {
    project: 'p',
    source: { name: 's', format: 'events' },
    reader: { format: 'events' as const },
  };
  return {
    store,
    ingest,
    async run(
      content: string | Buffer,
      parts = 7,
      stopAfter = Number.POSITIVE_INFINITY,
    ): Promise<FileProgress[]> {
      const progress: FileProgress[] = [];
      for await (const step of ingestFile(inParts(Buffer.from(content), parts), ingest, store, pipeline)) {
        progress.push(step);
        if (progress.length >= stopAfter) break;
      }
      return progress;
    },
    async requests(): Promise<number> {
      return (await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' }))[0][0] ?? 0;
    },
  };
}

async function* inParts(content: Buffer, parts: number): AsyncGenerator<Buffer> {
  const size = Math.max(1, Math.ceil(content.length / parts));
  for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
}

const line = (age_ms: number, padding = 0) =>
  `${JSON.stringify({ time: NOW - age_ms, pad: 'x'.repeat(padding) })}\n`;

test('a file ingested twice is counted once, in whatever parts it arrives', async () => {
  const { run, requests } = setUp();
  const content = line(1) + line(2) + line(3);
  await run(content, 1);
  expect(await requests()).toBe(3);
  expect((await run(content, 50)).map(({ kind }) => kind)).toEqual(['seen']);
  expect(await requests()).toBe(3);
});

test('a file that grows is counted once, however often it is ingested and wherever it was cut', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 30 }),
      fc.array(fc.nat()),
      async (ages, cuts) => {
        const { run, requests } = setUp();
        const content = ages.map((age) => line(age)).join('');
        for (const length of cuts.map((cut) => cut % (content.length + 1)).sort((a, b) => a - b)) {
          await run(content.slice(0, length));
        }
        await run(content);
        expect(await requests()).toBe(ages.length);
      },
    ),
  );
});

test('a file reads only the first chunks of files that start like it', async () => {
  const { store } = setUp();
  let links = 0;
  const counting: Store = {
    ...store,
    async batchesAfter(project, source, after) {
      const found = await store.batchesAfter(project, source, after);
      links += found.length;
      return found;
    },
  };
  const { run, requests } = setUp(counting);
  for (let round = 0; round < 2; round++) for (let file = 0; file < 20; file++) await run(line(file));
  expect(await requests()).toBe(20);
  expect(links).toBe(20);
});

test('files are counted once if another process counts some of them meanwhile', async () => {
  const step = fc.record({ file: fc.nat(2), grow: fc.nat(2), isOther: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
      const { store, run: runOther, requests } = setUp();
      const { run } = setUp(store);
      const lines = [1, 1, 1];
      const files = new Set<number>();
      for (const { file, grow, isOther } of steps) {
        const length = (lines[file] ?? 0) + grow;
        lines[file] = length;
        files.add(file);
        const content = Array.from({ length }, (_, i) => line(file * 100 + i)).join('');
        if (isOther) await runOther(content);
        else
          await run(content).catch(async (error) => {
            expect(error).toBeInstanceOf(FileConflict);
            await run(content);
          });
      }
      expect(await requests()).toBe([...files].reduce((sum, file) => sum + (lines[file] ?? 0), 0));
    }),
  );
});

test('a file that another process counts at the same moment is a conflict', async () => {
  const { store, run: runOther, requests } = setUp();
  const content = line(1) + line(2);
  const append: Store['append'] = async (batch) => {
    await runOther(content);
    return store.append(batch);
  };
  await expect(setUp({ ...store, append }).run(content)).rejects.toThrow(FileConflict);
  expect(await requests()).toBe(2);
});

test('lines split by a container runtime are counted once, wherever a run was stopped', async () => {
  const part = (log: string) =>
    `${JSON.stringify({ log, stream: 'stdout', time: '2026-07-01T00:00:00Z' })}\n`;
  const lines = Array.from({ length: 40 }, (_, i) => line(i, 100_000));
  // A chunk holds 1 MiB, so most chunks end inside a line.
  const content = lines.flatMap((text) => (text.match(/.{1,16384}/gs) ?? []).map(part)).join('');
  for (const stopAfter of [1, 2, 3]) {
    const { store, run, requests } = setUp();
    for (let i = 0; i < 3; i++) await run(content, 7, stopAfter + i);
    await run(content);
    expect(await requests()).toBe(lines.length);
    expect((await store.sources('p'))[0]?.dropped).toEqual({});
  }
});

test('a stopped run resumes after the chunks that were being counted', async () => {
  const { run, requests } = setUp();
  const content = Array.from({ length: 1_200 }, (_, i) => line(i, 10_000)).join('');
  expect(await run(content, 9, 2)).toHaveLength(2);
  const again = (await run(content, 9)).map(({ kind }) => kind);
  // Two chunks that were reported, and eight that were under way.
  expect(again).toEqual([...Array(10).fill('seen'), 'counted', 'counted']);
  expect(await requests()).toBe(1_200);
});

test('files with the same first line and different content are different files', async () => {
  const { run, requests } = setUp();
  // A shorter one, one of the same length, and a longer one.
  const contents = [[2, 3], [4], [5, 6], [7, 8, 9]].map((rest) =>
    [1, ...rest].map((age) => line(age)).join(''),
  );
  for (const content of contents) await run(content);
  expect(await requests()).toBe(12);
  for (const content of contents) expect((await run(content)).map(({ kind }) => kind)).toEqual(['seen']);
  expect(await requests()).toBe(12);
});

test('a last line without a line end is counted if it is complete, and left for the next run if not', async () => {
  const { run, requests } = setUp();
  const whole = line(1).trimEnd();
  expect(await run(`${line(5)}{"time":12`)).toMatchObject([
    { kind: 'counted' },
    { kind: 'unfinished', line: 2 },
  ]);
  expect(await requests()).toBe(1);
  const other = setUp();
  await other.run(line(5) + whole);
  expect(await other.requests()).toBe(2);
  await other.run(`${line(5)}${whole}\n${line(7)}`);
  expect(await other.requests()).toBe(3);
});

describe('a file that was read while it was written', () => {
  const LATER = Date.UTC(2030, 0, 1);
  const YEARS_MS = 100 * 366 * 86_400_000;

  /** Reads any format, of any age. */
  function setUpLogs() {
    const store = memoryStore(() => LATER);
    const pipeline = new Pipeline(store, { retentionMs: YEARS_MS, hostsMax: 100 }, () => LATER);
    const reader = { format: 'auto' as const };
    const ingest = { project: 'p', source: { name: 's', format: 'auto' }, reader };
    return {
      store,
      async run(content: string | Buffer, options: Parameters<typeof ingestFile>[4] = {}) {
        const progress: FileProgress[] = [];
        const stream = inParts(Buffer.from(content), 3);
        for await (const step of ingestFile(stream, ingest, store, pipeline, options)) progress.push(step);
        return progress.filter(({ kind }) => kind === 'unfinished');
      },
      async counts() {
        const range = { project: 'p', edges: [0, LATER] };
        const [requests, ...attacks] = await store.count({ ...range, rows: 'everything' });
        const [source] = await store.sources('p');
        const hosts = (await store.hosts('p')).map(({ hostname }) => hostname).sort();
        const counts = attacks.map(([count = 0]) => count);
        const byCategory = counts.slice(0, CATEGORIES.length);
        return {
          hosts,
          requests: requests?.[0] ?? 0,
          attacks: byCategory.reduce((sum, count) => sum + count, 0),
          details: { byCategory, blocked: counts.slice(CATEGORIES.length) },
          events: source?.events ?? 0,
          dropped: source?.dropped ?? {},
        };
      },
    };
  }

  const fixture = (name: string) =>
    readFileSync(new URL(`../../fixtures/${name}`, import.meta.url)).toString('latin1');
  const access = (i: number) =>
    `a.example 192.0.2.1 - - [01/Jul/2026:10:00:0${i} +0000] "GET /${i} HTTP/1.1" 200 5 "-" "curl/8"\n`;
  const attack = (i: number) =>
    `2026/07/01 10:00:0${i} [error] 1#1: *${i} [client 192.0.2.7] ModSecurity: Access denied with code 403 ` +
    `(phase 2). [id "942100"] [ver "OWASP_CRS/4.0.0"] [tag "attack-sqli"] [hostname "a.example"] [uri "/"] ` +
    `[unique_id "17829000.${i}"], client: 192.0.2.7, server: a.example, request: "GET / HTTP/1.1", host: "a.example"\n`;
  const UNFINISHED = [{ kind: 'unfinished' }];

  /** Lines and records of one request are joined: a request that was cut is judged by the lines of the first run. */
  const JOINED = ['apache-error', 'azure-waf', 'caddy', 'cloudflare', 'nginx-error'];
  const NAMES = readdirSync(new URL('../../fixtures/', import.meta.url)).filter((name) =>
    name.endsWith('.log'),
  );

  test.each(NAMES)('has the same counts wherever it was cut: %s', async (name) => {
    const content = fixture(name).split('\n').slice(0, 40).join('\n');
    const whole = Buffer.from(`${content}\n`, 'latin1');
    const once = setUpLogs();
    await once.run(whole);
    const { hosts, requests, attacks, ...rest } = await once.counts();
    const isJoined = JOINED.some((each) => name.startsWith(each));
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(whole.length), { minLength: 1, maxLength: 3 }), async (cuts) => {
        const { run, counts } = setUpLogs();
        for (const length of cuts.sort((a, b) => a - b)) await run(whole.subarray(0, length));
        await run(whole);
        expect(await counts()).toMatchObject({ hosts, requests, attacks, ...(isJoined ? {} : rest) });
      }),
      { numRuns: scaled(12) },
    );
  });

  test('keeps half a line for the next run, although a request before it is pending', async () => {
    const { run, counts } = setUpLogs();
    expect(await run(attack(1) + attack(2).slice(0, 200))).toMatchObject([{ line: 2 }]);
    expect(await counts()).toMatchObject({ attacks: 1, dropped: {} });
    expect(await run(attack(1) + attack(2))).toEqual([]);
    expect(await counts()).toMatchObject({ attacks: 2, dropped: {} });
  });

  test('keeps a line of text without its end, which may be a part of it', async () => {
    for (const end of [70, access(2).length - 1]) {
      for (const before of ['', access(1)]) {
        const { run, counts } = setUpLogs();
        const requests = before === '' ? 0 : 1;
        expect(await run(before + access(2).slice(0, end))).toMatchObject([{ line: requests + 1 }]);
        expect(await counts()).toMatchObject({ requests, dropped: {} });
        expect(await run(before + access(2))).toEqual([]);
        expect(await counts()).toMatchObject({ requests: requests + 1, events: requests + 1, dropped: {} });
      }
    }
  });

  test('keeps a line of JSON with a whole record and a part of another', async () => {
    const { run, counts } = setUpLogs();
    const event = (age: number) => JSON.stringify({ time: NOW - age, request: true });
    const line = event(1) + event(2);
    expect(await run(line.slice(0, -3))).toMatchObject(UNFINISHED);
    expect(await counts()).toMatchObject({ requests: 0, dropped: {} });
    expect(await run(line)).toEqual([]);
    expect(await counts()).toMatchObject({ requests: 2, dropped: {} });
    // Another file without line ends is appended.
    expect(await run(line + event(3) + event(4))).toEqual([]);
    expect(await run(`${line + event(3) + event(4)}\n${event(5)}`)).toEqual([]);
    expect(await counts()).toMatchObject({ requests: 5, events: 5, dropped: {} });
  });

  test('keeps an open block of an audit log, and reports it until it is complete', async () => {
    for (const name of ['modsecurity2-native.log', 'modsecurity3-native.log']) {
      const [first = ''] = fixture(name).split(/(?<=-Z--\n)/);
      const once = setUpLogs();
      await once.run(first);
      const expected = await once.counts();
      const ends = [...first.matchAll(/\n/g)].map(({ index }) => index + 1).slice(0, -1);
      for (const end of ends) {
        const { run, counts } = setUpLogs();
        for (let i = 0; i < 2; i++) {
          expect(await run(first.slice(0, end))).toMatchObject(UNFINISHED);
          expect(await counts()).toMatchObject({ attacks: 0, dropped: {} });
        }
        expect(await run(first)).toEqual([]);
        expect(await counts()).toEqual(expected);
      }
    }
  });

  test('keeps the parts of a line that a container runtime has split', async () => {
    const part = (tag: string, text: string) => `2026-07-01T00:00:00Z stdout ${tag} ${text}\n`;
    const { run, counts } = setUpLogs();
    const first = part('P', access(1).slice(0, 40));
    expect(await run(first)).toMatchObject(UNFINISHED);
    expect(await run(first + part('F', access(1).slice(40).trimEnd()))).toEqual([]);
    expect(await counts()).toMatchObject({ requests: 1, dropped: {} });
  });

  test('can be sent to standard input, whose last line needs no line end', async () => {
    const { run, counts } = setUpLogs();
    const content = (access(1) + access(2)).trimEnd();
    expect(await run(content)).toMatchObject(UNFINISHED);
    expect(await run(content, { eager: true })).toEqual([]);
    expect(await counts()).toMatchObject({ requests: 2, dropped: {} });
    // The line end is not another line, and half a line is not counted again with the rest.
    await run(`${content}\n${access(3)}`);
    expect(await counts()).toMatchObject({ requests: 3, events: 3, dropped: {} });
    const [block = ''] = fixture('modsecurity2-native.log').split(/(?=--\w+-H--\n)/);
    expect(await run(block, { eager: true })).toEqual([]);
    expect(await counts()).toMatchObject({ requests: 3, dropped: { unfinished_record: 1 } });
  });

  test('counts once if its first line was counted without the rest', async () => {
    const { run, counts } = setUpLogs();
    await run(access(1).slice(0, 80), { eager: true });
    await run(access(1), { eager: true });
    await run(access(1) + access(2));
    expect(await counts()).toMatchObject({ requests: 2, events: 2, dropped: {} });
  });

  test('standard input that ends in half a line counts no line twice', async () => {
    const { run, counts } = setUpLogs();
    expect(await run(attack(1) + attack(2).slice(0, 60), { eager: true })).toMatchObject(UNFINISHED);
    expect(await counts()).toMatchObject({ attacks: 1, dropped: {} });
    expect(await run(attack(1) + attack(2), { eager: true })).toEqual([]);
    expect(await counts()).toMatchObject({ attacks: 2, dropped: {} });
  });
});

test('a line beyond the limit is one drop of any length, and the lines after it are counted', async () => {
  for (const length of [LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 3 * LINE_BYTES_MAX + 17]) {
    const { store, run, requests } = setUp();
    const content = `${line(1)}${'x'.repeat(length)}\n${line(2)}nonsense\n`;
    const drops = (await run(content, 40)).flatMap((step) =>
      step.kind === 'counted' ? step.outcome.first_drops : [],
    );
    expect(drops.map(({ line: number, reason }) => [number, reason])).toEqual([
      [2, 'line_too_long'],
      [4, 'not_json'],
    ]);
    expect(await requests()).toBe(2);
    await run(content, 40);
    expect(await requests()).toBe(2);
    expect((await store.sources('p'))[0]?.dropped).toEqual({ line_too_long: 1, not_json: 1 });
  }
});

test('a file that ended inside a line beyond the limit goes on after that line', async () => {
  const { store, run, requests } = setUp();
  const content = `${'x'.repeat(2 * LINE_BYTES_MAX + 17)}\n${line(1)}`;
  for (const end of [LINE_BYTES_MAX, LINE_BYTES_MAX + 10, content.length]) await run(content.slice(0, end));
  expect(await requests()).toBe(1);
  expect((await store.sources('p'))[0]?.dropped).toEqual({ line_too_long: 1 });
});

const hole = (bytes: number) => Buffer.alloc(bytes);

test('the line after a hole of any length is counted with its host', async () => {
  const named = (age_ms: number) => `${JSON.stringify({ time: NOW - age_ms, host: 'a.example' })}\n`;
  for (const bytes of [
    1,
    5_000,
    LINE_BYTES_MAX - 9,
    LINE_BYTES_MAX,
    LINE_BYTES_MAX + 9,
    3 * LINE_BYTES_MAX,
  ]) {
    const { store, run, requests } = setUp();
    const first = Buffer.concat([hole(bytes), Buffer.from(named(1))]);
    const content = Buffer.concat([first, Buffer.from(named(2)), hole(bytes), Buffer.from(named(3))]);
    await run(first, 40);
    expect(await requests()).toBe(1);
    expect((await run(content.subarray(0, first.length + 7), 3)).at(-1)).toMatchObject({
      kind: 'unfinished',
    });
    await run(content, 9);
    expect((await run(content, 2)).map(({ kind }) => kind)).not.toContain('counted');
    expect(await store.sources('p')).toMatchObject([{ events: 3, without_host: 0, dropped: {} }]);
    expect((await store.hosts('p')).map(({ hostname }) => hostname)).toEqual(['a.example']);
  }
});

test('a hole does not count towards the length limit of the line after it', async () => {
  const { store, run } = setUp();
  const lineOf = (bytes: number) =>
    `${line(1)
      .trimEnd()
      .padEnd(bytes - 1)}\n`;
  await run(
    Buffer.concat([
      hole(LINE_BYTES_MAX - 100),
      Buffer.from(lineOf(LINE_BYTES_MAX)),
      hole(LINE_BYTES_MAX + 100),
      Buffer.from(lineOf(LINE_BYTES_MAX + 1)),
      Buffer.from(line(2)),
    ]),
  );
  expect(await store.sources('p')).toMatchObject([{ events: 2, dropped: { line_too_long: 1 } }]);
});

test('each line between holes is counted once, wherever the file was cut and however it grew', async () => {
  const part = fc.oneof(
    { weight: 3, arbitrary: fc.integer({ min: 1, max: 9 }).map((age) => Buffer.from(line(age))) },
    fc.constantFrom(1, 100, 4_096, LINE_BYTES_MAX - 40, LINE_BYTES_MAX, LINE_BYTES_MAX + 1).map(hole),
    fc.constant(Buffer.from('\n')),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(part, { maxLength: 8 }),
      fc.array(fc.nat(), { maxLength: 4 }),
      async (parts, cuts) => {
        const { store, run } = setUp();
        const content = Buffer.concat(parts);
        for (const length of cuts.map((cut) => cut % (content.length + 1)).sort((a, b) => a - b)) {
          await run(content.subarray(0, length));
        }
        await run(content);
        const lines = parts.filter((each) => each[0] !== 0 && each.length > 1).length;
        const [source] = await store.sources('p');
        expect([source?.events ?? 0, source?.dropped ?? {}]).toEqual([lines, {}]);
      },
    ),
    { numRuns: scaled(60) },
  );
});

test('a rotated file that begins with a hole is not mistaken for a shorter copy of another file', async () => {
  const { store, run, requests } = setUp();
  await run(Buffer.concat([hole(500_000), Buffer.from(line(1) + line(2))]));
  const other = Buffer.concat([hole(10_000), Buffer.from(line(3))]);
  const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => NOW);
  const ingest = {
    project: 'p',
    source: { name: 's', format: 'events' },
    reader: { format: 'events' as const },
  };
  const rotated = (content: Buffer) =>
    ingestFile(inParts(content, 3), ingest, store, pipeline, { rotated: 'whole' });
  for await (const _ of rotated(other));
  expect(await requests()).toBe(3);
  // An earlier copy of a file that was counted further adds nothing.
  await run(Buffer.concat([hole(500_000), Buffer.from(line(1) + line(2) + line(4))]));
  for await (const _ of rotated(Buffer.concat([hole(500_000), Buffer.from(line(1))])));
  expect(await requests()).toBe(4);
});

test('a rotated file as long as a counted one with the same first line is another file', async () => {
  const { store, ingest, run, requests } = setUp();
  await run(line(1) + line(2));
  const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => NOW);
  const other = Buffer.from(line(1) + line(3));
  for await (const _ of ingestFile(inParts(other, 3), ingest, store, pipeline, { rotated: 'whole' }));
  expect(await requests()).toBe(4);
});

test('chunks of a file with the same content each count', async () => {
  const { run, requests } = setUp();
  const chunk = line(1, LINE_BYTES_MAX / 2 - 100).repeat(2);
  expect((await run(chunk.repeat(3))).map(({ kind }) => kind)).toEqual(['counted', 'counted', 'counted']);
  expect(await requests()).toBe(6);
});

test('the same content under another source name is counted again', async () => {
  const { store, run, requests } = setUp();
  await run(line(1));
  const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => NOW);
  const ingest = {
    project: 'p',
    source: { name: 'other', format: 'events' },
    reader: { format: 'events' as const },
  };
  for await (const _ of ingestFile(inParts(Buffer.from(line(1)), 1), ingest, store, pipeline));
  expect(await requests()).toBe(2);
});

test.each([true, false])(
  'batches stay in order although new host names take longer to resolve (eager: %s)',
  async (eager) => {
    const directory = mkdtempSync(join(tmpdir(), 'wafstat-file-'));
    const store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
    const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 1_000 }, () => NOW);
    const ingest = {
      project: 'p',
      source: { name: 's', format: 'events' },
      reader: { format: 'events' as const },
    };
    // On a pipe each line is a batch; in a file, a line of this length nearly fills one.
    const pad = 'x'.repeat(eager ? 0 : 700_000);
    const lines = Array.from(
      { length: eager ? 400 : 24 },
      (_, i) => `${JSON.stringify({ time: NOW, host: i % 2 ? 'known.example' : `new-${i}.example`, pad })}\n`,
    );
    async function* pipe() {
      for (const each of lines) {
        yield Buffer.from(each);
        await nextTurn();
      }
    }
    const steps: FileProgress[] = [];
    try {
      for await (const step of ingestFile(pipe(), ingest, store, pipeline, { eager })) steps.push(step);
      expect(new Set(steps.map(({ kind }) => kind))).toEqual(new Set(['counted']));
      expect((await store.sources('p'))[0]).toMatchObject({ events: lines.length, dropped: {} });
      expect(await store.hosts('p')).toHaveLength(lines.length / 2 + 1);
    } finally {
      await store.close();
      rmSync(directory, { recursive: true });
    }
  },
);

test('lines in the hour repeated by daylight saving time count in the right hour, wherever the file was cut', async () => {
  const now = Date.UTC(2026, 9, 25, 12);
  // Every ten minutes from 01:00 to 03:50, with the hour from 02:00 on twice.
  const clock = ['01', '02', '02', '03'].flatMap((hour) =>
    ['00', '10', '20', '30', '40', '50'].map((m) => `${hour}:${m}`),
  );
  const lines = clock.map(
    (time) =>
      `2026/10/25 ${time}:00 [error] 1#1: *1 limiting requests, excess: 1, client: ::1, host: "a.example"\n`,
  );
  const edges = [23, 24, 25, 26, 27].map((hour) => Date.UTC(2026, 9, 24, hour));
  for (let cut = 0; cut <= lines.length; cut++) {
    const store = memoryStore(() => now);
    const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => now);
    const reader = { format: 'auto' as const, zone: parseZone('Europe/Berlin') };
    const ingest = { project: 'p', source: { name: 's', format: 'auto' }, reader };
    for (const part of [lines.slice(0, cut), lines]) {
      for await (const _ of ingestFile(inParts(Buffer.from(part.join('')), 1), ingest, store, pipeline));
    }
    const [, attacks] = await store.count({ project: 'p', edges, rows: 'timeline' });
    expect([...attacks]).toEqual([6, 6, 6, 6]);
  }
});

describe('lines in the future', () => {
  const future = (padding = 0) => line(-48 * 3_600_000, padding);
  const dropsOf = (progress: FileProgress[]) =>
    progress.reduce(
      (sum, step) => sum + (step.kind === 'counted' ? (step.outcome.dropped.in_future ?? 0) : 0),
      0,
    );

  test('are dropped if one line of the file is in time, wherever it is', async () => {
    for (const content of [
      line(1).repeat(4) + future().repeat(6),
      future().repeat(6) + line(1),
      // In another chunk.
      future(LINE_BYTES_MAX / 2).repeat(6) + line(1),
    ]) {
      const { run, requests } = setUp();
      expect(dropsOf(await run(content))).toBe(6);
      expect(await requests()).toBe(content.startsWith(line(1)) ? 4 : 1);
    }
  });

  test('make a file wait that has no line in time, and name both times', async () => {
    const { store, run } = setUp();
    for (const others of ['', line(30 * 86_400_000), 'no log line\n']) {
      const refused = run(others + future() + others);
      await expect(refused).rejects.toThrow(LinesInFuture);
      await expect(refused).rejects.toThrow(
        /2026-07-03T00:00:00.000Z; the clock of this machine says 2026-07-01T00:00:00.000Z/,
      );
    }
    expect(await store.sources('p')).toEqual([]);
  });

  test('are dropped after another file had a line in time', async () => {
    const { run } = setUp();
    await run(line(1));
    expect(dropsOf(await run(future()))).toBe(1);
  });

  test('are dropped among lines of an error log that report no attack, and are in time', async () => {
    const { store, ingest } = setUp();
    const pipeline = new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => NOW);
    const other = '2026/06/30 12:00:00 [error] 7#7: *1 open() "/x" failed, client: 192.0.2.1\n';
    const limited =
      '2026/07/30 12:00:00 [error] 7#7: *1 limiting requests, excess: 1.0 by zone "z", client: 192.0.2.1\n';
    const outcomes: FileProgress[] = [];
    const content = Buffer.from(other.repeat(500) + limited);
    const reader = { format: 'auto' as const };
    for await (const step of ingestFile(inParts(content, 1), { ...ingest, reader }, store, pipeline))
      outcomes.push(step);
    expect(outcomes).toMatchObject([{ outcome: { dropped: { other_log_line: 500, in_future: 1 } } }]);
  });

  test('wait without records, however many chunks there are', async () => {
    const { store, run } = setUp();
    // A record in each chunk is evidence at once, so none is kept.
    const chunk = future(LINE_BYTES_MAX / 3).repeat(2) + line(1);
    expect(dropsOf(await run(chunk.repeat(20)))).toBe(40);
    expect((await store.sources('p'))[0]).toMatchObject({ events: 20 });
  });
});
