/** The options of top lists and kept attacks, from the command line to the store. */
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { mmdbFile } from '../../../../test/mmdb.ts';
import type { AttackList } from '../store/attack-list.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store, TopList } from '../store/store.ts';
import { runProgram } from './program.ts';

const NOW = Date.now();

let directory: string;
let data: string[];
let installation: { project_id: string; password: string };

function memoryIo(stdin: string, stop: AbortSignal) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const input = Object.assign(Readable.from([Buffer.from(stdin)]), { isTTY: false });
  return { stdin: input, stdout, stderr, env: { HOME: directory }, now: () => NOW, stop };
}

async function run(argv: string[], stdin = ''): Promise<string> {
  const io = memoryIo(stdin, new AbortController().signal);
  const status = await runProgram([...argv, ...data], io);
  const { stdout, stderr } = io;
  stdout.end();
  stderr.end();
  const out = await text(stdout);
  expect({ status, err: await text(stderr) }).toEqual({ status: 0, err: '' });
  return out;
}

async function inStore<T>(action: (store: Store) => Promise<T>, eventsMax?: number): Promise<T> {
  const store = lmdbStore(join(directory, 'data', 'statistics.mdb'), () => NOW, { eventsMax });
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

function sourcesOf(project: string): Promise<TopList> {
  return inStore((store) => store.top({ project, list: 'sources', from: 0, to: NOW, limit: 100 }));
}

function keptOf(project: string, eventsMax?: number): Promise<AttackList> {
  const query = { filter: { include: {}, exclude: {} }, isAscending: true, offset: 0, limit: 100 };
  return inStore((store) => store.attacks({ project, from: 0, to: NOW, ...query }), eventsMax);
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'wafstat-top-'));
  data = ['--data', join(directory, 'data')];
  installation = JSON.parse(await run(['init', '--json']));
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
  expect(prefixes).toMatchObject({ attacks: 40, distinct: 40, distinctIs: 'exact', error: 0 });
  expect(prefixes.items[0]).toEqual({ key: '198.51.0.0/24', count: 1, error: 0 });

  await run([...ingest, '--source', 'b', '--attack-sources', 'off'], lines.join('\n'));
  expect(await sourcesOf(id)).toEqual(prefixes);

  await run([...ingest, '--source', 'c', '--top-keys', '16'], lines.join('\n'));
  const bounded = await sourcesOf(id);
  expect(bounded.items).toHaveLength(16);
  expect(bounded).toMatchObject({ attacks: 80, distinctIs: 'estimate' });

  await run(['project', 'delete', 'shop', '--yes']);
  expect(await sourcesOf(id)).toMatchObject({ attacks: 0, distinct: 0, items: [] });
  expect(
    await inStore((store) => store.count({ project: id, edges: [0, NOW], rows: 'timeline' })),
  ).toMatchObject({ 1: Float64Array.of(120) });
});

test('ingest looks up countries in the files of --geoip, and refuses other files', async () => {
  const { id } = JSON.parse(await run(['project', 'add', 'located', '--json']));
  const [file, bad] = [join(directory, 'countries.mmdb'), join(directory, 'bad.mmdb')];
  await writeFile(file, mmdbFile({ '192.0.2.0/24': { country: { iso_code: 'DE' } } }));
  await writeFile(bad, 'no countries');
  const line = JSON.stringify({ time: NOW - 1, host: 'a.example', attack: 'sqli', source: '192.0.2.7' });
  const ingest = ['ingest', '-', '--project', 'located', '--format', 'events'];
  await run([...ingest, '--geoip', file], line);
  const list = await inStore((store) =>
    store.top({ project: id, list: 'countries', from: 0, to: NOW, limit: 9 }),
  );
  expect(list.items).toEqual([{ key: 'DE', count: 1, error: 0 }]);
  const serve = ['serve', '--listen', '127.0.0.1:0'];
  for (const command of [ingest, serve, [...serve, '--check']]) {
    const io = memoryIo(line, new AbortController().signal);
    expect(await runProgram([...command, '--geoip', file, '--geoip', bad, ...data], io)).toBe(1);
    io.stderr.end();
    expect(await text(io.stderr)).toContain(`--geoip: ${bad} is not a readable MMDB file (`);
  }
});

test('ingest keeps as many attacks as --events-max says, and a deleted project has none', async () => {
  const { id } = JSON.parse(await run(['project', 'add', 'limited', '--json']));
  const ingest = async (source: string, limit: number) => {
    const attacks = Array.from({ length: 40 }, (_, i) => ({
      time: NOW - 1,
      host: 'a.example',
      attack: 'xss',
      url: `/${source}${i}`,
    }));
    const options = [
      '--project',
      'limited',
      '--format',
      'events',
      '--source',
      source,
      '--events-max',
      `${limit}`,
    ];
    await run(['ingest', '-', ...options], attacks.map((attack) => JSON.stringify(attack)).join('\n'));
    return (await keptOf(id, limit)).kept;
  };
  expect(await ingest('a', 0)).toBe(0);
  expect(await ingest('b', 100)).toBe(40);
  expect(await ingest('c', 7)).toBe(7);
  await ingest('d', 0);
  expect((await keptOf(id, 7)).kept).toBe(7);
  const [, attacks] = await inStore((store) =>
    store.count({ project: id, edges: [0, NOW], rows: 'timeline' }),
  );
  expect(attacks[0]).toBe(160);
  await run(['project', 'delete', 'limited', '--yes']);
  expect(await keptOf(id)).toMatchObject({ kept: 0, items: [] });
});

test('serve applies its options to pushes', async () => {
  const stopping = new AbortController();
  onTestFinished(() => stopping.abort());
  const io = memoryIo('', stopping.signal);
  const options = ['--listen', '127.0.0.1:0', '--attack-sources', 'prefix', '--details-retention', '2h'];
  const served = runProgram(['serve', ...options, ...data], io);
  let printed = '';
  while (!/http:\S+/.test(printed)) printed += await once(io.stdout, 'data');
  const url = /http:\S+/.exec(printed)?.[0] ?? '';
  const { project_id: project, password } = installation;
  const user = { name: 'admin', password, domain: { name: 'default' } };
  const identity = { methods: ['password'], password: { user } };
  const auth = { identity, scope: { project: { id: project } } };
  const login = await fetch(`${url}/v3/auth/tokens`, { method: 'POST', body: JSON.stringify({ auth }) });
  // The retention of top lists has passed the second attack before it arrives.
  while ((await inStore((store) => store.retention())).note === null) await setTimeout(10);
  const attacks = [
    { time: NOW - 1, attack: 'sqli', source: '2001:db8:1:2::3' },
    { time: NOW - 4 * 3_600_000, attack: 'sqli', source: '203.0.113.7' },
  ];
  const push = await fetch(`${url}/ingest/v1/${project}?format=events`, {
    method: 'POST',
    headers: { 'X-Auth-Token': login.headers.get('X-Subject-Token') ?? '' },
    body: attacks.map((attack) => JSON.stringify(attack)).join('\n'),
  });
  expect(await push.json()).toMatchObject({ accepted: 2 });
  stopping.abort();
  expect(await served).toBe(0);
  expect(await sourcesOf(project)).toMatchObject({
    attacks: 1,
    items: [{ key: '2001:db8:1::/48', count: 1, error: 0 }],
  });
  expect(await keptOf(project)).toMatchObject({ kept: 1, items: [{ source: '2001:db8:1::/48' }] });
});
