import {
  appendFileSync,
  copyFileSync,
  mkdtempSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { memoryStore } from '../store/memory.ts';
import { type Store, StoreUnavailable } from '../store/store.ts';
import { ingestFile } from './file.ts';
import { Follower } from './follow.ts';
import { openLog } from './open-log.ts';
import { Pipeline } from './pipeline.ts';

const NOW = Date.UTC(2026, 6, 1);
let folder: string;
let path: string;
let store: Store;
let written: number;
const clock = { now: NOW };

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'wafstat-follow-'));
  path = join(folder, 'access.log');
  clock.now = NOW;
  store = memoryStore(() => clock.now);
  written = 0;
});

afterEach(() => rmSync(folder, { recursive: true }));

/** No two lines are alike, as in a log. */
function lines(count: number): string {
  return Array.from({ length: count }, () => `{"time":${NOW - 1_000},"line":${++written}}\n`).join('');
}

const ingest = {
  project: 'p',
  source: { name: 's', format: 'events' },
  reader: { format: 'events' as const },
};

function pipeline() {
  return new Pipeline(store, { retention_ms: 86_400_000, hosts_max: 10 }, () => clock.now);
}

function follower(): Follower {
  return new Follower({
    path,
    ingest,
    store,
    pipeline: pipeline(),
    now: () => clock.now,
    counted() {},
    failed() {},
  });
}

async function lookAll(one: Follower): Promise<void> {
  while (await one.look());
}

async function requests(): Promise<number> {
  return (await store.series({ project: 'p', edges: [0, NOW + 1] })).requests[0] ?? 0;
}

test('a file that is not there yet is counted from its first line', async () => {
  const one = follower();
  await lookAll(one);
  writeFileSync(path, lines(3));
  await lookAll(one);
  expect(await requests()).toBe(3);
  appendFileSync(path, lines(2));
  await lookAll(one);
  expect(await requests()).toBe(5);
  await one.close();
});

test('half a line waits for its other half', async () => {
  const one = follower();
  const line = lines(1);
  writeFileSync(path, line.slice(0, 10));
  await lookAll(one);
  appendFileSync(path, line.slice(10));
  await lookAll(one);
  expect(await requests()).toBe(1);
  await one.close();
});

test('another process takes up where one was killed, and what was ingested before is not counted again', async () => {
  writeFileSync(path, lines(5));
  for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
  for (let i = 0; i < 4; i++) {
    appendFileSync(path, lines(3));
    const one = follower();
    await lookAll(one);
    await one.close();
  }
  expect(await requests()).toBe(17);
  for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
  expect(await requests()).toBe(17);
});

test('rotation by rename loses nothing, even what is written to the renamed file', async () => {
  const one = follower();
  writeFileSync(path, lines(4));
  await lookAll(one);
  appendFileSync(path, lines(1));
  renameSync(path, `${path}.1`);
  await lookAll(one);
  appendFileSync(`${path}.1`, lines(2));
  await lookAll(one);
  writeFileSync(path, lines(3));
  appendFileSync(`${path}.1`, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(11);
  clock.now += 120_000;
  await lookAll(one);
  appendFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(12);
  await one.close();
});

test('rotation by copytruncate takes what was not read yet from the copy', async () => {
  const one = follower();
  writeFileSync(path, lines(4));
  await lookAll(one);
  appendFileSync(path, lines(2));
  copyFileSync(path, `${path}.1`);
  truncateSync(path);
  // More than before, so that the length alone tells nothing.
  appendFileSync(path, lines(20));
  await lookAll(one);
  expect(await requests()).toBe(26);
  await one.close();
});

test('a rotation while nobody was looking is caught up with, packed or not', async () => {
  writeFileSync(path, lines(4));
  const before = follower();
  await lookAll(before);
  await before.close();
  appendFileSync(path, lines(2));
  renameSync(path, `${path}.1`);
  writeFileSync(path, lines(3));
  writeFileSync(`${path}.2.gz`, gzipSync(lines(50)));
  const one = follower();
  await one.catchUp();
  await lookAll(one);
  expect(await requests()).toBe(9);
  appendFileSync(path, lines(1));
  writeFileSync(`${path}.1.gz`, gzipSync(Buffer.from('')));
  await one.close();
  const again = follower();
  await again.catchUp();
  await lookAll(again);
  expect(await requests()).toBe(10);
  await again.close();
});

test('files that came and went between two looks are counted too', async () => {
  const one = follower();
  writeFileSync(`${path}.9`, lines(7));
  await one.catchUp();
  writeFileSync(path, lines(4));
  await lookAll(one);
  renameSync(path, `${path}.1`);
  writeFileSync(path, lines(3));
  renameSync(path, `${path}.2`);
  writeFileSync(path, lines(5));
  copyFileSync(path, `${path}.3`);
  truncateSync(path);
  appendFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(13);
  await one.close();
});

test('a copy that was made a moment earlier, and one made by hand, count nothing', async () => {
  const one = follower();
  await one.catchUp();
  writeFileSync(path, lines(5));
  await lookAll(one);
  copyFileSync(path, `${path}.bak`);
  appendFileSync(path, lines(1));
  await lookAll(one);
  copyFileSync(path, `${path}.1`);
  appendFileSync(path, lines(1));
  await lookAll(one);
  truncateSync(path);
  appendFileSync(path, lines(2));
  await lookAll(one);
  expect(await requests()).toBe(9);
  await one.close();
  const again = follower();
  await again.catchUp();
  await lookAll(again);
  expect(await requests()).toBe(9);
  await again.close();
});

test('a rotated file that is damaged does not keep the log from being followed', async () => {
  const one = follower();
  await one.catchUp();
  writeFileSync(path, lines(4));
  await lookAll(one);
  writeFileSync(`${path}.1.gz`, gzipSync(lines(100)).subarray(0, 40));
  written -= 100;
  truncateSync(path);
  appendFileSync(path, `{"time":${NOW - 1_000},"line":"after"}\n`);
  await lookAll(one);
  expect(await requests()).toBe(5);
  await one.close();
});

test('a store that fails in between costs nothing but time', async () => {
  const one = follower();
  writeFileSync(path, lines(3));
  const { append } = store;
  store.append = () => Promise.reject(new StoreUnavailable('down'));
  await expect(one.look()).rejects.toThrow('down');
  store.append = append;
  await lookAll(one);
  expect(await requests()).toBe(3);
  await one.close();
});

test('two followers of one file, and an ingest between them, count each line once', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('write', 'a', 'b', 'ingest', 'restart'), { maxLength: 40 }),
      async (steps) => {
        store = memoryStore(() => NOW);
        written = 0;
        writeFileSync(path, '');
        const both = { a: follower(), b: follower() };
        for (const step of steps) {
          if (step === 'write') appendFileSync(path, lines(2));
          else if (step === 'ingest')
            for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
          else if (step === 'restart') {
            await both.a.close();
            both.a = follower();
          } else await both[step].look();
        }
        await lookAll(both.a);
        await lookAll(both.b);
        expect(await requests()).toBe(written);
        await both.a.close();
        await both.b.close();
      },
    ),
    { numRuns: 60 },
  );
});

test('the trail of a file that grew by many small steps is short', async () => {
  const one = follower();
  writeFileSync(path, '');
  for (let i = 0; i < 200; i++) {
    appendFileSync(path, lines(1));
    await lookAll(one);
  }
  expect(await store.batchesAfter('p', 's', '')).toHaveLength(1);
  expect(await requests()).toBe(200);
  await one.close();
});
