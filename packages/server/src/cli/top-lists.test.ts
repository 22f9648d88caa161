/** The options of top lists, from the command line to the store. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store, TopList } from '../store/store.ts';
import { runProgram } from './program.ts';

const NOW = Date.now();

let directory: string;
let data: string[];

async function run(argv: string[], stdin = ''): Promise<string> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const stop = new AbortController().signal;
  const env = { HOME: directory };
  const input = Readable.from([Buffer.from(stdin)]);
  const status = await runProgram([...argv, ...data], {
    stdin: Object.assign(input, { isTTY: false }),
    stdout,
    stderr,
    env,
    now: () => NOW,
    stop,
  });
  stdout.end();
  stderr.end();
  const out = await text(stdout);
  expect({ status, err: await text(stderr) }).toEqual({ status: 0, err: '' });
  return out;
}

async function inStore<T>(action: (store: Store) => Promise<T>): Promise<T> {
  const store = lmdbStore(join(directory, 'data', 'statistics.mdb'), () => NOW);
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

function sourcesOf(project: string): Promise<TopList> {
  return inStore((store) => store.top({ project, list: 'sources', from: 0, to: NOW, limit: 100 }));
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'wafstat-top-'));
  data = ['--data', join(directory, 'data')];
  await run(['init', '--json']);
});

afterAll(() => rm(directory, { recursive: true }));

test('ingest keeps as much of the sources as its options say, and a deleted project has no lists', async () => {
  const { id } = JSON.parse(await run(['project', 'add', 'shop', '--json']));
  const lines = Array.from({ length: 40 }, (_, i) =>
    JSON.stringify({
      time: NOW - 1,
      host: 'a.example',
      attack: 'sqli',
      source: `198.51.${i}.7`,
      url: `/${i}`,
    }),
  );
  const ingest = ['ingest', '-', '--project', 'shop', '--format', 'events'];
  await run([...ingest, '--source', 'a', '--attack-sources', 'prefix'], lines.join('\n'));
  const prefixes = await sourcesOf(id);
  expect(prefixes).toMatchObject({ total: 40, distinct: 40, distinctIs: 'exact', error: 0 });
  expect(prefixes.items[0]).toEqual({ key: '198.51.0.0/24', count: 1, error: 0 });

  await run([...ingest, '--source', 'b', '--attack-sources', 'off'], lines.join('\n'));
  expect(await sourcesOf(id)).toEqual(prefixes);

  await run([...ingest, '--source', 'c', '--top-keys', '16'], lines.join('\n'));
  const bounded = await sourcesOf(id);
  expect(bounded.items).toHaveLength(16);
  expect(bounded).toMatchObject({ total: 80, distinctIs: 'estimate' });

  await run(['project', 'delete', 'shop']);
  expect(await sourcesOf(id)).toMatchObject({ total: 0, distinct: 0, items: [] });
  expect(await inStore((store) => store.series({ project: id, edges: [0, NOW] }))).toMatchObject({
    attacks: Float64Array.of(120),
  });
});
