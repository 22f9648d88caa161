/** Queries while another process writes to the same embedded store. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Process } from './process.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-snapshots-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

const moduleAt = (path: string) =>
  JSON.stringify(new URL(`../packages/server/dist/${path}`, import.meta.url).href);

/** Appends one batch: an event before the end of the range, and one in the minute before. */
const WRITER = `
import { lmdbStore } from ${moduleAt('store/lmdb/lmdb.js')};
const [path, to] = process.argv.slice(1);
const store = lmdbStore(path);
const events = [to - 5, to - 60_000].map((time) => ({ time, hostId: null, request: true, attack: null, count: 1 }));
await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
await store.close();`;

/** Prints the counts of both points, again and again, each time right after another process has written. */
const READER = `
import { execFileSync } from 'node:child_process';
import { PointsCache } from ${moduleAt('statistics/points-cache.js')};
import { lmdbStore } from ${moduleAt('store/lmdb/lmdb.js')};
import { UTC } from ${moduleAt('zone.js')};
const [path, writer] = process.argv.slice(1);
const to = Math.floor(Date.now() / 60_000) * 60_000 + 30_000;
const append = () => execFileSync(process.execPath, ['--input-type=module', '-e', writer, path, to]);
append();
const store = lmdbStore(path);
const cache = new PointsCache(store);
async function counts() {
  const range = { project: 'p', from: to - 86_400_000, to, zone: UTC };
  const [requests] = (await cache.count('timeline', range)).counts;
  return [...requests].filter((num) => num > 0);
}
for (let i = 0; i < 3; i++) await counts();
const seen = [];
const versions = [];
async function look() {
  const range = { project: 'p', from: to - 86_400_000, to };
  const version = await store.version(range);
  versions.push([version, (await store.count({ ...range, edges: [range.from, to], rows: 'timeline' }))[0][0]]);
  seen.push(await counts());
}
for (let i = 0; i < 8; i++) {
  await new Promise((resolve) => setTimeout(resolve, 20));
  // What is read in this phase of the event loop must not be kept longer than the snapshot, which a timer ends.
  await new Promise((resolve) => setImmediate(() => {
    store.version({ project: 'p', from: to - 86_400_000, to });
    append();
    // At once, too: a part may be cached, and the rest read in a new snapshot.
    const early = i % 2 ? look() : undefined;
    setTimeout(() => resolve(Promise.resolve(early).then(look)), 1);
  }));
}
console.log(JSON.stringify({ seen, versions }));
await store.close();`;

test('what another process has committed is shown as a whole, and has a version of its own', async () => {
  const args = ['--input-type=module', '-e', READER, join(directory, 'statistics.mdb'), WRITER];
  const { status, stdout, stderr } = await new Process(args, { program: [process.execPath] }).end();
  expect([status, stderr]).toEqual([0, '']);
  const { seen, versions }: { seen: number[][]; versions: [string, number][] } = JSON.parse(stdout);
  expect(seen).toHaveLength(12);
  expect(seen.filter(([first, second]) => first !== second)).toEqual([]);
  // The last look sees all batches.
  expect(seen.at(-1)).toEqual([9, 9]);
  // Counts may be newer than the version that was read before them, but the next ones are not older.
  const newest = new Map<string, number>();
  for (const [version, count] of versions) newest.set(version, Math.max(count, newest.get(version) ?? 0));
  expect([...newest.values()]).toEqual([...newest.values()].sort((a, b) => a - b));
  expect(versions.at(-1)?.[1]).toBe(18);
});
