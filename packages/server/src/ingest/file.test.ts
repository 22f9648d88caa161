import fc from 'fast-check';
import { expect, test } from 'vitest';
import { memoryStore } from '../store/memory.ts';
import { LINE_BYTES_MAX } from './blocks.ts';
import { type FileProgress, ingestFile } from './file.ts';
import { Pipeline } from './pipeline.ts';

const NOW = Date.UTC(2026, 6, 1);

function setUp() {
  const store = memoryStore(() => NOW);
  const pipeline = new Pipeline(store, { retention_ms: 86_400_000, hosts_max: 10 }, () => NOW);
  const ingest = {
    project: 'p',
    source: { name: 's', format: 'events' },
    reader: { format: 'events' as const },
  };
  return {
    store,
    async run(
      content: string | Buffer,
      pieces = 7,
      stopAfter = Number.POSITIVE_INFINITY,
    ): Promise<FileProgress[]> {
      const progress: FileProgress[] = [];
      for await (const step of ingestFile(inPieces(Buffer.from(content), pieces), ingest, store, pipeline)) {
        progress.push(step);
        if (progress.length >= stopAfter) break;
      }
      return progress;
    },
    async requests(): Promise<number> {
      return (await store.series({ project: 'p', edges: [0, NOW + 1] })).requests[0] ?? 0;
    },
  };
}

async function* inPieces(content: Buffer, pieces: number): AsyncGenerator<Buffer> {
  const size = Math.max(1, Math.ceil(content.length / pieces));
  for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
}

const line = (age_ms: number, padding = 0) =>
  `${JSON.stringify({ time: NOW - age_ms, pad: 'x'.repeat(padding) })}\n`;

test('a file given twice counts once, in whatever pieces it arrives', async () => {
  const { run, requests } = setUp();
  const content = line(1) + line(2) + line(3);
  await run(content, 1);
  expect(await requests()).toBe(3);
  expect((await run(content, 50)).map(({ kind }) => kind)).toEqual(['seen']);
  expect(await requests()).toBe(3);
});

test('a file that has grown counts what is new, however often it is given and wherever it was cut', async () => {
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

test('lines that a container runtime split count once, wherever a run was stopped', async () => {
  const part = (log: string) =>
    `${JSON.stringify({ log, stream: 'stdout', time: '2026-07-01T00:00:00Z' })}\n`;
  const lines = Array.from({ length: 40 }, (_, i) => line(i, 100_000));
  // A piece holds 1 MiB, so most pieces end inside of a line.
  const content = lines.flatMap((text) => (text.match(/.{1,16384}/gs) ?? []).map(part)).join('');
  for (const stopAfter of [1, 2, 3]) {
    const { store, run, requests } = setUp();
    for (let i = 0; i < 3; i++) await run(content, 7, stopAfter + i);
    await run(content);
    expect(await requests()).toBe(lines.length);
    expect((await store.sources('p'))[0]?.dropped).toEqual({});
  }
});

test('a run that was stopped is taken up where it ended, with the piece that was under way', async () => {
  const { run, requests } = setUp();
  const content = Array.from({ length: 400 }, (_, i) => line(i, 10_000)).join('');
  expect(await run(content, 9, 2)).toHaveLength(2);
  const again = await run(content, 9);
  expect(again.map(({ kind }) => kind)).toEqual(['seen', 'seen', 'seen', 'counted']);
  expect(await requests()).toBe(400);
});

test('files that begin alike and then differ are different files', async () => {
  const { run, requests } = setUp();
  await run(line(1) + line(2));
  await run(line(1) + line(3));
  expect(await requests()).toBe(4);
});

test('a line without an end counts when it is whole, and waits when it is not', async () => {
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

test('a line beyond the limit is one drop, however long it is, and what follows counts', async () => {
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

test('the same text under another source name is another file', async () => {
  const { store, run, requests } = setUp();
  await run(line(1));
  const pipeline = new Pipeline(store, { retention_ms: 86_400_000, hosts_max: 10 }, () => NOW);
  const ingest = {
    project: 'p',
    source: { name: 'other', format: 'events' },
    reader: { format: 'events' as const },
  };
  for await (const _ of ingestFile(inPieces(Buffer.from(line(1)), 1), ingest, store, pipeline));
  expect(await requests()).toBe(2);
});
