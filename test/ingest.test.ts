/** `wafstat ingest`: every line counts once or is reported as dropped. */
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { parserSetup } from '../packages/server/dist/ingest/chunk-parser.js';
import { type FileProgress, ingestFile } from '../packages/server/dist/ingest/file.js';
import { ParserThreads, ThreadFailed } from '../packages/server/dist/ingest/parser-threads.js';
import { Pipeline } from '../packages/server/dist/ingest/pipeline.js';
import { FileChanged, PlainFile } from '../packages/server/dist/ingest/plain-file.js';
import { fixtureLines } from '../packages/server/fixtures/read-fixture.ts';
import { type Api, login, sum } from './api.ts';
import { memoryStore } from './memory-store.ts';
import { type Ended, eventually, PROGRAM } from './process.ts';
import { describeEmbedded, type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.now();
const WINDOW = `from=${NOW - 200 * DAY_MS}&to=${NOW + 2 * DAY_MS}`;

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let api: Api;
let projects = 0;

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
});
afterAll(() => sandbox.clear());

/** Each test has its own project. */
beforeEach(async () => {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  api = await login(server.address, { ...installation, project_id: id });
});

const options = () => ['--data', sandbox.data, '--project', api.project, '--format', 'events'];
const ingest = (args: string[], stdin: string | Readable = ''): Promise<Ended> =>
  sandbox.run(['ingest', ...options(), ...args], { stdin });
const requests = async () => sum((await api.timeline(WINDOW)).requests);
const seconds = (from: number, n: number) =>
  Array.from({ length: n }, (_, i) => ({ time: NOW - (from + i) * 1_000 }));

test('the summary has the accepted and dropped lines and the speed', async () => {
  const file = sandbox.write('log', `${ndjson(seconds(0, 3))}rubbish\n\n${ndjson(seconds(3, 2))}`);
  const { status, stdout } = await ingest([file]);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^accepted +5$/m);
  expect(stdout).toMatch(/^dropped +1$/m);
  expect(stdout).toMatch(/^lines per second +\d+$/m);
  expect(await requests()).toBe(5);
});

test('the summary has records and what they count, by category in the order of the table', async () => {
  const events = [
    { time: NOW, attack: 'vuln', request: false },
    { time: NOW, attack: 'sqli', count: 20 },
    { time: NOW, attack: 'xss', request: false, count: 300 },
  ];
  const { stdout } = await ingest([sandbox.write('log', ndjson(events))]);
  const rows = stdout.split('\n').map((row) => row.trim().split(/ {2,}/));
  expect(rows).toEqual(
    expect.arrayContaining([
      ['accepted', '3'],
      ['requests', '20'],
      ['attacks', '321'],
    ]),
  );
  const categories = rows.slice(rows.findIndex(([name]) => name === 'attacks') + 1).slice(0, 4);
  expect(categories).toEqual([
    ['xss', '300'],
    ['sqli', '20'],
    ['vuln', '1'],
    ['dropped', '0'],
  ]);
});

describeEmbedded('top lists', () => {
  interface TopList {
    total: number;
    attacks: number;
    items: { key: string; num: number; host?: string }[];
  }

  test('the audit log of ModSecurity has sources, URLs and rules', async () => {
    const fixture = new URL('../packages/server/fixtures/modsecurity2-json.log', import.meta.url);
    const [, day, month, year, clock] =
      /(\d\d) (\w{3}) (\d{4}) ([\d:]+)/.exec(new Date(NOW - HOUR_MS).toUTCString()) ?? [];
    const recent = readFileSync(fixture, 'utf8').replaceAll(
      /\d\d\/\w{3}\/\d{4}:\d\d:\d\d:\d\d(\.\d+ )/g,
      `${day}/${month}/${year}:${clock}$1`,
    );
    const file = sandbox.write('audit.log', recent);
    const { status } = await sandbox.run(['ingest', '--data', sandbox.data, '--project', api.project, file]);
    expect(status).toBe(0);
    const { sqli = 0, ...others } = await api.distribution(WINDOW);
    const attacks = sqli + sum(others);
    const list = (name: string) => api.getJson<TopList>(`waf/overviews/attack/${name}${WINDOW}`);
    expect(sqli).toBeGreaterThan(0);
    const addresses = new Map<string, number>();
    for (const { transaction } of recent
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)))
      addresses.set(transaction.remote_address, (addresses.get(transaction.remote_address) ?? 0) + 1);
    const sources = await list('ip?');
    expect(sources).toMatchObject({ total: addresses.size, attacks });
    expect(sources.items.map(({ key }) => key)).toEqual([...addresses.keys()]);
    const urls = await list('url?top=1000&');
    expect(urls.items.reduce((total, { num }) => total + num, 0)).toBe(attacks);
    expect(urls.items.every(({ key }) => /^\/[^?]*$/.test(key))).toBe(true);
    expect(urls.items[0]?.host).toBe('shop.example.com');
    const rules = await list('rule?attacks=sqli&');
    expect(rules.items).toEqual([{ key: '942100', num: sqli, error: 0 }]);
    expect((await list('country?')).attacks).toBe(0);
  });
});

test('a pipe with alternating new and known hosts is counted to its end', async () => {
  const hosts = Array.from({ length: 400 }, (_, i) => (i % 2 ? 'known.example' : `new-${i}.example`));
  // Slow enough to be read one by one, faster than a commit.
  async function* lines() {
    for (const host of hosts) {
      yield `${JSON.stringify({ time: NOW - 1_000, host })}\n`;
      await sleep(1);
    }
  }
  const { status, stdout, stderr } = await ingest(['-'], Readable.from(lines()));
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  expect(stdout).toMatch(/^accepted +400$/m);
  expect(await requests()).toBe(400);
  expect((await api.hostIds()).size).toBe(201);
});

test('a file with many new hosts is counted in one run', async () => {
  const events = Array.from({ length: 30_000 }, (_, i) => ({
    time: NOW - 1_000 - i,
    host: i % 50 === 0 ? `new-${i}.example` : 'known.example',
    pad: 'x'.repeat(100),
  }));
  const { status, stdout } = await ingest([sandbox.write('many-hosts', ndjson(events))]);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^accepted +30000$/m);
  expect(stdout).not.toContain('read before');
});

test('a block that is cut by the end of a truncated gzip on standard input is counted when it is whole', async () => {
  const own = new Sandbox();
  onTestFinished(() => own.clear());
  await own.init();
  const location = ['--data', own.data, '--project', 'default'];
  const log = readFileSync(new URL('../packages/server/fixtures/modsecurity3-native.log', import.meta.url));
  const compressed = gzipSync(log, { level: 0 });
  const send = (source: string, length: number) =>
    own.run(['ingest', ...location, '--retention', '3653d', '--source', source, '-'], {
      stdin: Readable.from([compressed.subarray(0, length)]),
    });
  await send('once', compressed.length);
  expect((await send('cut', 7_590)).stderr).toContain('is damaged or truncated');
  await send('cut', compressed.length);
  const [cut, once] = await own.runJson<{ events: number; dropped: object }[]>(
    'source',
    'list',
    '--project',
    'default',
  );
  expect([cut?.events, cut?.dropped]).toEqual([once?.events, once?.dropped]);
  expect(once?.events).toBeGreaterThan(0);
});

test('a truncated gzip file is counted up to the damage, with an error after the summary', async () => {
  const pad = () => Array.from({ length: 40 }, () => Math.random().toString(36)).join('');
  const compressed = gzipSync(ndjson(seconds(0, 2_000).map((event) => ({ ...event, pad: pad() }))));
  const damaged = sandbox.write('damaged.gz', compressed.subarray(0, compressed.length / 2));
  const whole = sandbox.write('whole', ndjson(seconds(5_000, 7)));
  const { status, stdout, stderr } = await ingest([damaged, whole]);
  expect(status).toBe(1);
  expect(stderr.trim().split('\n').at(-1)).toMatch(/^wafstat: .*damaged\.gz is damaged or truncated/);
  const accepted = Number(/^accepted +(\d+)$/m.exec(stdout)?.[1]);
  expect(accepted).toBeGreaterThan(7);
  expect(accepted).toBeLessThan(2_007);
  expect(await requests()).toBe(accepted);
});

describe('files of other programs', () => {
  const compress = (program: string, content: string | Buffer): Buffer => {
    const { status, stdout } = spawnSync(program, ['-c'], { input: content });
    expect(status).toBe(0);
    return stdout;
  };

  test.each(['xz', 'bzip2', 'zstd'].filter((program) => spawnSync(program, ['--help']).error === undefined))(
    'all streams of a file that %s has compressed are counted, once, and those before damage',
    async (program) => {
      const [one, two] = [ndjson(seconds(0, 300)), ndjson(seconds(300, 200))];
      const packed = Buffer.concat([compress(program, one), compress(program, two)]);
      const file = sandbox.write('packed', packed);
      expect(await ingest(['--host', 'a.example', file])).toMatchObject({ status: 0, stderr: '' });
      expect(await requests()).toBe(500);
      // The same lines, from standard input and decompressed.
      expect((await ingest(['-'], Readable.from([packed]))).stdout).toMatch(/^read before +500$/m);
      const plain = sandbox.write('plain', `${one}${two}${ndjson(seconds(500, 1))}`);
      await ingest([plain]);
      expect(await requests()).toBe(501);
      expect((await sandbox.run(['explain', file])).stdout).toMatch(/^accepted +500$/m);

      const damaged = sandbox.write('damaged', packed.subarray(0, -20));
      const { status, stdout, stderr } = await ingest(['--source', 'cut', damaged]);
      expect(status).toBe(1);
      expect(stderr).toMatch(
        /damaged is damaged or truncated \(.+\); the lines before the damage are counted\n$/,
      );
      const accepted = Number(/^accepted +(\d+)$/m.exec(stdout)?.[1]);
      expect(accepted).toBeGreaterThanOrEqual(300);
      expect(accepted).toBeLessThanOrEqual(500);
      expect(await requests()).toBe(501 + accepted);
    },
  );

  test('a file whose program is missing is refused with the name of the package', async () => {
    const file = sandbox.write('packed.xz', Buffer.from('fd377a585a000004', 'hex'));
    const plain = sandbox.write('plain', ndjson(seconds(0, 3)));
    const program = [process.execPath, PROGRAM] as const;
    const args = ['ingest', ...options(), '--host', 'a.example', file, plain];
    const { status, stderr } = await sandbox.start(args, { program, env: { PATH: sandbox.directory } }).end();
    expect(stderr).toBe(
      `wafstat: cannot read ${file}: the program xz is not installed: install the package xz-utils\n`,
    );
    expect(status).toBe(1);
    expect(await requests()).toBe(3);
  });

  test.each([
    ['little', 'fffe'],
    ['big', 'feff'],
  ])('text in UTF-16, %s endian, counts once while it grows', async (order, mark) => {
    const content = ndjson(seconds(0, 300));
    const encoded = Buffer.from(content, 'utf16le');
    const all = Buffer.concat([Buffer.from(mark, 'hex'), order === 'big' ? encoded.swap16() : encoded]);
    // Cut in a line, and in a character.
    for (const length of [2, 1_001, 5_000, 20_003, all.length, all.length]) {
      const { status } = await ingest([sandbox.write('utf16.log', all.subarray(0, length))]);
      expect(status).toBe(0);
    }
    expect(await requests()).toBe(300);
    expect((await ingest([sandbox.write('utf8.log', content)])).stdout).toMatch(/^read before +300$/m);
    expect((await sandbox.run(['explain', sandbox.path('utf16.log')])).stdout).toMatch(/^accepted +300$/m);
  });
});

describe('compressed files and archives that are not read', () => {
  /** Runs a program of the system, such as `xz -c FILE`. */
  const output = (program: string, ...args: string[]): Buffer => {
    const { status, stdout } = spawnSync(program, args, { cwd: sandbox.directory });
    expect(status).toBe(0);
    return stdout;
  };
  const KINDS = [
    ['zip', 'a zip archive', 'unzip -p', (file: string) => output('zip', '-q', '-', file)],
    ['tar', 'a tar archive', 'tar -xOf', (file: string) => output('tar', '-c', file)],
    ['tgz', 'a tar archive', 'tar -xOf', (file: string) => gzipSync(output('tar', '-c', file))],
    ['gz.gz', 'compressed with gzip', 'gzip -dc', () => gzipSync(gzipSync(ndjson(seconds(0, 300))))],
  ] as const;
  const isInstalled = (command: string) =>
    spawnSync(command.split(' ', 1)[0] ?? '', ['--help']).error === undefined;

  test.each(KINDS.filter(([, , command]) => isInstalled(command)))(
    'a .%s file is refused with the remedy, and the others count',
    async (suffix, what, command, compress) => {
      sandbox.write('packed.log', ndjson(seconds(0, 300)));
      const packed = sandbox.write(`packed.log.${suffix}`, compress('packed.log'));
      const plain = sandbox.write('plain', ndjson(seconds(0, 3)));
      const { status, stdout, stderr } = await ingest(['--host', 'a.example', packed, plain]);
      expect(stderr).toBe(
        `wafstat: ${packed} is ${what}: use '${command} ${packed} | wafstat ingest ... -'\n`,
      );
      expect(status).toBe(1);
      expect(stdout).toMatch(/^accepted +3$/m);
      expect(stdout).toMatch(/^dropped +0$/m);

      const piped = await ingest(['-'], Readable.from([readFileSync(packed)]));
      expect(piped.stderr).toMatch(
        new RegExp(`^wafstat: standard input is ${what}: (decompress|extract) .*\n$`),
      );
      expect(piped.status).toBe(1);
      const explained = await sandbox.run(['explain', packed]);
      expect(explained.stderr).toBe(
        `wafstat: ${packed} is ${what}: use '${command} ${packed} | wafstat explain'\n`,
      );
      expect(explained).toMatchObject({ status: 1, stdout: '' });
      expect(await requests()).toBe(3);

      // What the message says.
      const program = ['sh', '-c', `${command} ${packed} | "$0" "$@"`, process.execPath, PROGRAM] as const;
      const remedied = await sandbox
        .start(['ingest', ...options(), '--source', 'other', '-'], { program })
        .end();
      expect(remedied.stdout).toMatch(/^accepted +300$/m);
    },
  );

  test('a log line that begins like one is counted', async () => {
    const starts = ['BZh91AY&SY0123456', 'PK', `${'x'.repeat(257)}ustar  and more`, '(', '7zXZ'];
    const stamp = `${new Date(NOW - HOUR_MS).toUTCString().slice(5, 16).replaceAll(' ', '/')}:00:00:00 +0000`;
    const files = starts.map((start, i) =>
      sandbox.write(`start-${i}`, `${start} 203.0.113.9 - - [${stamp}] "GET / HTTP/1.1" 200 1\n`),
    );
    const args = ['ingest', '--data', sandbox.data, '--project', api.project, ...files];
    const { status, stdout } = await sandbox.run(args);
    expect(status).toBe(0);
    expect(stdout).toMatch(new RegExp(`^accepted +${starts.length}$`, 'm'));
  });
});

test('a host option that is not a host name is refused before anything is read', async () => {
  const file = sandbox.write('host-option', ndjson(seconds(0, 3)));
  for (const [host, problem] of [
    ['bad host', 'must be a host name, such as www.example.com'],
    ['https://a.example', 'must be a host name, such as www.example.com, not a URL'],
  ] as const) {
    const { status, stderr } = await ingest(['--host', host, file]);
    expect(stderr).toContain(`--host is '${host}', but ${problem}`);
    expect(status).toBe(2);
  }
  expect((await ingest(['--host', 'Good.example:8080', file])).stdout).toMatch(/^accepted +3$/m);
  expect([...(await api.hostIds()).keys()]).toEqual(['good.example']);
});

test('a source whose lines are all too old has their format', async () => {
  const line = '203.0.113.9 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1\n';
  const file = sandbox.write('old-access', line);
  await sandbox.run(['ingest', '--data', sandbox.data, '--project', api.project, file]);
  expect(await api.getJson('connections')).toMatchObject({
    items: [{ format: 'access', dropped: { too_old: 1 } }],
  });
});

test('a hole left by copytruncate is not a dropped line', async () => {
  const log = Buffer.concat([
    Buffer.alloc(3_000_000),
    Buffer.from(ndjson([{ time: NOW, host: 'a.example' }])),
  ]);
  const { stdout } = await ingest([sandbox.write('hole', log)]);
  expect(stdout).toMatch(/^accepted +1$/m);
  expect(stdout).toMatch(/^dropped +0$/m);
  expect([...(await api.hostIds()).keys()]).toEqual(['a.example']);
});

test('each bad line is counted by reason and shown with its number; the others count', async () => {
  const time = NOW - 1_000;
  const lines = [
    ['', JSON.stringify({ time })],
    ['not_json', '{"time": '],
    ['not_an_object', '[1]'],
    ['not_an_object', 'null'],
    ['bad_time', '{}'],
    ['bad_time', '{"time": "2025-01-01T00:00:00"}'],
    ['bad_time', '{"time": 1.5}'],
    ['bad_host', JSON.stringify({ time, host: 7 })],
    ['bad_host', JSON.stringify({ time, host_id: 'a.b' })],
    ['bad_request', JSON.stringify({ time, request: 'yes' })],
    ['bad_attack', JSON.stringify({ time, attack: 'XSS' })],
    ['bad_count', JSON.stringify({ time, count: 0 })],
    ['bad_count', JSON.stringify({ time, count: 1_000_001 })],
    ['nothing_to_count', JSON.stringify({ time, request: false })],
    ['too_old', JSON.stringify({ time: NOW - 181 * DAY_MS })],
    ['in_future', JSON.stringify({ time: NOW + 25 * HOUR_MS })],
    ['', JSON.stringify({ time, attack: 'xss', request: false, count: 1_000_000 })],
  ] as const;
  const file = sandbox.write('bad-lines', lines.map(([, line]) => `${line}\n`).join(''));
  const { status, stdout, stderr } = await ingest([file, '--source', 'edge']);
  expect(status).toBe(0);
  const dropped: Record<string, number> = {};
  for (const [reason] of lines) if (reason) dropped[reason] = (dropped[reason] ?? 0) + 1;
  expect(stdout).toMatch(/^accepted +2$/m);
  expect(stdout).toMatch(/^dropped +15$/m);
  for (const [reason, n] of Object.entries(dropped))
    expect(stdout).toMatch(new RegExp(`^ +${reason} +${n}$`, 'm'));
  for (const number of [2, 3, 4, 5, 6]) expect(stderr).toContain(`${file}, line ${number}: `);
  expect(await api.getJson('connections')).toMatchObject({ items: [{ name: 'edge', events: 2, dropped }] });
  expect((await api.distribution(WINDOW)).xss).toBe(1_000_000);
});

test('a line over the limit is dropped, and later line numbers are right', async () => {
  const long = JSON.stringify({ time: NOW, padding: 'x'.repeat(3_000_000) });
  const file = sandbox.write(
    'long-line',
    `${ndjson(seconds(0, 2))}${long}\n${ndjson(seconds(2, 2))}rubbish\n`,
  );
  const { stdout, stderr } = await ingest([file]);
  expect(stdout).toMatch(/^accepted +4$/m);
  expect(stdout).toMatch(/^ +line_too_long +1$/m);
  expect(stderr).toContain(`${file}, line 3: `);
  expect(stderr).toContain(`${file}, line 6: `);
  expect(await requests()).toBe(4);
});

test('Windows line ends and a byte order mark are ignored', async () => {
  const content = `\ufeff${ndjson(seconds(0, 3)).replaceAll('\n', '\r\n')}`;
  expect((await ingest(['-'], content)).stdout).toMatch(/^accepted +3$/m);
});

test('events within the retention and up to a day ahead are counted', async () => {
  const times = [NOW - 179 * DAY_MS, NOW + 23 * HOUR_MS];
  await sandbox.ingest(
    api.project,
    times.map((time) => ({ time })),
  );
  for (const time of times) {
    expect(sum((await api.timeline(`from=${time}&to=${time + 1}`)).requests)).toBe(1);
  }
});

test('control characters of a line do not reach the terminal', async () => {
  const { stderr } = await ingest(['-'], '\u001b]0;owned\u0007\u001b[31m\n');
  expect(stderr).toContain('standard input, line 1: ');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that there are none is what is tested.
  expect(stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f]/);
});

describe('exactly once', () => {
  test('the same file counts once, also under another name', async () => {
    const content = ndjson(seconds(0, 100));
    const file = sandbox.write('twice', content);
    await ingest([file]);
    const { status, stdout } = await ingest([file, sandbox.write('copy', content)]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^accepted +0$/m);
    expect(stdout).toMatch(/^read before +200$/m);
    expect(await requests()).toBe(100);
  });

  test('only the new lines of a grown file are counted', async () => {
    const file = sandbox.write('grown', '');
    const content = ndjson(seconds(0, 30));
    let length = 0;
    for (const next of [200, 201, 450, content.length]) {
      appendFileSync(file, content.slice(length, next));
      length = next;
      await ingest([file]);
    }
    expect(await requests()).toBe(30);
    expect(await api.getJson('connections')).toMatchObject({ items: [{ events: 30, dropped: {} }] });
  });

  test('an incomplete last line is reported and left for the next run', async () => {
    const file = sandbox.write('half', `${ndjson(seconds(0, 2))}{"time": `);
    const { status, stdout, stderr } = await ingest([file]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^dropped +0$/m);
    expect(stderr).toContain(`${file}, line 3`);
    appendFileSync(file, `${NOW}}\n`);
    expect((await ingest([file])).stdout).toMatch(/^accepted +1$/m);
    expect(await requests()).toBe(3);
  });

  test('a line of text without its line end is left too, unless the file is sent to standard input', async () => {
    const time = `${new Date(NOW).toISOString().slice(0, 19)}+00:00`;
    const pattern = ['--pattern', '$host [$time_iso8601] "$request" $status'];
    const count = (name: string, stdin = '') =>
      sandbox.run(['ingest', '--data', sandbox.data, '--project', api.project, ...pattern, name], { stdin });
    const content = `a.example [${time}] "GET / HTTP/1.1" 200\nb.example [${time}] "GET / HTTP/1.1" 200`;
    const file = sandbox.write('no-line-end', content);
    const { stdout, stderr } = await count(file);
    expect(stdout).toMatch(/^accepted +1$/m);
    expect(stderr).toContain(`${file}, line 2: incomplete, left for the next run`);
    expect(stderr).toContain("run 'wafstat ingest - < FILE'");
    expect((await count('-', content)).stdout).toMatch(/^accepted +1$/m);
    appendFileSync(file, '\n');
    expect((await count(file)).stdout).toMatch(/^accepted +0$/m);
    expect(await requests()).toBe(2);
  });

  test('concurrent runs count the same file once', async () => {
    const file = sandbox.write('at-once', ndjson(seconds(0, 40_000)));
    const run = () => sandbox.start(['ingest', ...options(), file]).end();
    const runs = await Promise.all([run(), run(), run()]);
    expect(runs.map(({ status }) => status)).toEqual([0, 0, 0]);
    expect(await requests()).toBe(40_000);
  });

  test('the same content from another source counts', async () => {
    const file = sandbox.write('sensor', ndjson(seconds(0, 5)));
    await ingest([file, '--source', 'one']);
    await ingest([file, '--source', 'two']);
    expect(await requests()).toBe(10);
  });
});

test('- is standard input, and several files are read in order', async () => {
  expect((await ingest(['-'], ndjson(seconds(0, 4)))).stdout).toMatch(/^accepted +4$/m);
  const files = [sandbox.write('a', ndjson(seconds(10, 2))), sandbox.write('b', ndjson(seconds(20, 3)))];
  expect((await ingest(files)).stdout).toMatch(/^accepted +5$/m);
  expect(await requests()).toBe(9);
});

test('a project can be given by name, and an unknown one is refused', async () => {
  const file = sandbox.write('named', ndjson(seconds(0, 1)));
  const named = ['ingest', '--data', sandbox.data, '--project', `project-${projects}`, file];
  expect((await sandbox.run(named)).status).toBe(0);
  expect(await requests()).toBe(1);
  const { status, stderr } = await sandbox.run(named.with(4, 'nowhere'));
  expect(status).toBe(1);
  expect(stderr).toBe("wafstat: unknown project 'nowhere' ('wafstat project list' shows the projects)\n");
});

test('a missing file is an error, and the others are counted', async () => {
  const file = sandbox.write('good', ndjson(seconds(0, 1)));
  const missing = sandbox.path('missing');
  const { status, stderr } = await ingest(['--host', 'a.example', missing, file, sandbox.path('no-*.log')]);
  expect(status).toBe(1);
  expect(stderr).toBe(
    `wafstat: ${missing} does not exist\n` +
      `wafstat: ${sandbox.path('no-*.log')} has no files that can be read as logs\n`,
  );
  expect(await requests()).toBe(1);
  const alone = await ingest([missing]);
  expect(alone).toMatchObject({ status: 1, stdout: '', stderr: `wafstat: ${missing} does not exist\n` });
});

test('a directory is read with its files, and a pattern with those that match', async () => {
  const directory = sandbox.path('logs');
  mkdirSync(join(directory, 'inner'), { recursive: true });
  const write = (name: string, content: string | Buffer) => writeFileSync(join(directory, name), content);
  write('one.log', ndjson(seconds(0, 1)));
  write('inner/two.log', ndjson(seconds(1, 2)));
  write('three.log.gz', gzipSync(ndjson(seconds(3, 4))));
  write('.hidden', ndjson(seconds(10, 8)));
  write('wtmp', Buffer.from([7, 0, 0, 0, 1, 2, 3, 0]));
  symlinkSync(directory, join(directory, 'inner', 'circle'));
  const { status, stderr } = await ingest(['--host', 'a.example', directory]);
  expect(stderr.trim().split('\n').sort()).toEqual([
    `wafstat: ${directory}/.hidden is skipped: it is hidden`,
    `wafstat: ${directory}/inner/circle is skipped: it is a link to a directory`,
    `wafstat: ${directory}/wtmp is skipped: it is binary`,
  ]);
  expect(status).toBe(0);
  expect(await requests()).toBe(7);
  const matched = await ingest(['--host', 'a.example', '--source', 'other', `${directory}/[it]*/t?o.log`]);
  expect(matched).toMatchObject({ status: 0, stderr: '' });
  expect(await requests()).toBe(9);
});

test('many small files share commits, count once, and stay so when they are read again', async () => {
  const directory = sandbox.path('small');
  mkdirSync(directory);
  for (let i = 0; i < 300; i++) {
    const content = ndjson(seconds(i, 1));
    writeFileSync(join(directory, `${i}.log`), i % 2 === 0 ? content : gzipSync(content));
    // A copy, which may be read at the same time.
    if (i % 10 === 0) writeFileSync(join(directory, `${i}.copy`), content);
  }
  for (let run = 0; run < 2; run++) {
    expect(await ingest(['--host', 'a.example', directory])).toMatchObject({ status: 0 });
    expect(await requests()).toBe(300);
  }
});

test.runIf(spawnSync('script', ['--version']).status === 0)(
  'on a terminal, a bar shows the progress until the end; elsewhere, nothing does',
  async () => {
    const file = sandbox.write('progress.ndjson', ndjson(seconds(0, 100_000)));
    const args = ['ingest', ...options(), file];
    // Runs the command in a pseudo-terminal, and copies what it prints.
    const command = ['stty columns 200;', process.execPath, PROGRAM, ...args].join(' ');
    const terminal = ['script', '--quiet', '--return', '--command', command, '/dev/null'] as const;
    const { status, stdout } = await sandbox.start([], { program: terminal }).end();
    expect(status).toBe(0);
    const drawn = stdout.split('\r\u001b[K');
    expect(drawn.slice(1, -1).join('\n')).toMatch(
      /progress\.ndjson █*░* \d+% [\d.]+ MB of [\d.]+ MB, [\d,]+ lines\/s, [\d.]+ MB\/s, \d+ s left/,
    );
    expect(drawn.at(-1)).toMatch(/^accepted +100000\r$/m);
    expect(drawn.at(-1)).not.toMatch(/[█░]/);
    const plain = await sandbox.start([...args, '--host', 'a.example', '--source', 'other']).end();
    expect(plain.stderr).toBe('');
    expect(plain.stdout).not.toContain('\u001b');
  },
);

test('threads count a file like the main thread alone', async () => {
  const file = sandbox.write('large.log', largeLog());
  const reader = { format: 'auto' as const };
  const limits = { retentionMs: 365 * DAY_MS, hostsMax: 5 };
  const countWith = async (parsers?: ParserThreads) => {
    const store = memoryStore(() => NOW);
    const source = { project: 'p', source: { name: 's', format: 'auto' }, reader };
    const progress: FileProgress[] = [];
    const pipeline = new Pipeline(store, limits, () => NOW);
    const stream = await PlainFile.open(file);
    for await (const step of ingestFile(stream, source, store, pipeline, { parsers })) progress.push(step);
    return { progress, hosts: await store.hosts('p'), sources: await store.sources('p') };
  };
  const threads = new ParserThreads(parserSetup(reader, limits), 2);
  try {
    threads.start();
    await eventually(async () => threads.capacity(0) > 0 || undefined, 'ready threads');
    const parse = vi.spyOn(threads, 'parse');
    expect(await countWith(threads)).toEqual(await countWith());
    expect(parse.mock.calls.length).toBeGreaterThan(10);
  } finally {
    await threads.close();
  }
});

test.runIf(availableParallelism() > 1)('the program reads a large file in threads', async () => {
  const file = sandbox.write('larger.log', largeLog().repeat(5));
  const { stdout, threads } = await ingestWithProfiles('profiles', file);
  expect(stdout).toMatch(/^accepted +19600$/m);
  expect(stdout).toMatch(/^dropped +400$/m);
  expect(threads).toBeGreaterThan(0);

  const again = await ingestWithProfiles('again', file);
  expect(again.stdout).toMatch(/^read before +20000$/m);
  expect(again.threads).toBe(0);
});

test('the program starts no threads for an error log, whose lines depend on each other', async () => {
  const lines = fixtureLines('apache-error.log');
  // Short lines in the first chunk, which shows that they depend on each other. Then few lines of many bytes.
  const repeated = (bytes: number, line: string) => Array(Math.ceil(bytes / line.length)).fill(line);
  const long = lines.map((line) => `${line}${'x'.repeat(4_000)}`);
  const content = [...repeated(2e6, lines.join('\n')), ...repeated(18e6, long.join('\n'))];
  const file = sandbox.write('error.log', content.join('\n'));
  const { stdout, threads } = await ingestWithProfiles('error', file);
  expect(stdout).toMatch(/^dropped +[1-9]/m);
  expect(threads).toBe(0);
});

/** The number of threads that have read lines: Node.js writes a profile for each. */
async function ingestWithProfiles(name: string, file: string) {
  const profiles = sandbox.path(name);
  const program = [process.execPath, '--cpu-prof', `--cpu-prof-dir=${profiles}`, PROGRAM] as const;
  const args = ['ingest', '--data', sandbox.data, '--project', api.project, file];
  const { status, stdout } = await sandbox.start(args, { program }).end();
  expect(status).toBe(0);
  const called = readdirSync(profiles).map((each) => readFileSync(join(profiles, each), 'utf8'));
  return { stdout, threads: called.filter((profile) => profile.includes('/parser-thread.js')).length };
}

describe.runIf(availableParallelism() > 1)('after a thread has failed', () => {
  /** A program whose threads fail at this chunk of theirs, and the file that shows it. */
  function failingProgram(name: string, chunk: number) {
    const failed = sandbox.path(`${name}.failed`);
    // Runs in every thread before its program.
    const preload = sandbox.write(
      `${name}.cjs`,
      `const { isMainThread, parentPort } = require('node:worker_threads');
      let tasks = 0;
      if (!isMainThread) parentPort.on('message', () => {
        if (++tasks < ${chunk}) return;
        require('node:fs').writeFileSync(${JSON.stringify(failed)}, '');
        throw Object.assign(new Error('out of memory'), { code: 'ERR_WORKER_OUT_OF_MEMORY' });
      });`,
    );
    return { failed, program: [process.execPath, '--require', preload, PROGRAM] as const };
  }

  test('a file is read again without threads, and standard input after it, too', async () => {
    const file = sandbox.write('failing.log', largeLog().repeat(5));
    const { failed, program } = failingProgram('file', 1);
    const args = ['ingest', '--data', sandbox.data, '--project', api.project, file, '-'];
    const stdin = ndjson([{ time: NOW, host: 'stdin.example' }]).repeat(100);
    const { status, stdout, stderr } = await sandbox.start(args, { program, stdin }).end();
    expect(existsSync(failed)).toBe(true);
    expect(stderr).not.toContain('cannot read');
    expect(status).toBe(0);
    expect(stdout).toMatch(/^accepted +19700$/m);
    expect(stdout).toMatch(/^dropped +400$/m);
  });
});

test('threads can be closed while one waits for another that has failed', async () => {
  const limits = { retentionMs: 365 * DAY_MS };
  const threads = new ParserThreads(parserSetup({ format: 'auto' }, limits), 2);
  threads.start();
  await eventually(async () => threads.capacity(0) > 0 || undefined, 'ready threads');
  // No open file has this number.
  const part = { fd: 2 ** 20, position: 0, length: 1, start: { offset: 0, bytes: Buffer.alloc(0) } };
  const task = { part, now: NOW, after: null };
  const failing = threads.parse(task);
  const waiting = threads.parse(task);
  await expect(failing).rejects.toThrow(ThreadFailed);
  await expect(waiting).rejects.toThrow(ThreadFailed);
  expect(threads.capacity(0)).toBe(0);
  await threads.close();
  await expect(threads.parse(task)).rejects.toThrow(ThreadFailed);
});

test.each([
  ['truncated', 20, 'line'],
  ['overwritten', 7, 'line'],
  ['written again', 5, 'LINE'],
])('threads continue after a file was %s', async (_how, length, start) => {
  const bytes = Buffer.from(start);
  const threads = new ParserThreads(parserSetup({ format: 'auto' }, { retentionMs: 365 * DAY_MS }), 2);
  const file = await open(sandbox.write('changed.log', 'line\n12345'), 'r');
  try {
    threads.start();
    await eventually(async () => threads.capacity(0) > 0 || undefined, 'ready threads');
    const part = { fd: file.fd, position: 0, length: 5, start: { offset: 0, bytes: Buffer.from('line') } };
    const task = { part, now: NOW, after: '' };
    const [before, changed, waiting] = [
      threads.parse(task),
      threads.parse({ ...task, part: { ...part, length, start: { offset: 0, bytes } }, after: null }),
      threads.parse({ ...task, after: null }),
    ];
    await expect(changed).rejects.toThrow(FileChanged);
    await waiting;
    expect(await threads.parse(task)).toEqual(await before);
    expect(threads.capacity(0)).toBeGreaterThan(0);
  } finally {
    await threads.close();
    await file.close();
  }
});

/** 16 MB: lines of an access log, events, and lines that are dropped. */
function largeLog(): string {
  const stamp = `${new Date(NOW - HOUR_MS).toUTCString().slice(5, 16).replaceAll(' ', '/')}:00:00:00 +0000`;
  const lines = Array.from({ length: 4_000 }, (_, i) => {
    const padding = 'x'.repeat(4_000 + (i % 7));
    if (i % 50 === 0) return `not a log line ${padding}`;
    if (i % 5 === 0)
      return JSON.stringify({ time: NOW - i, host: `h${i % 4}.example`, attack: 'xss', padding });
    return `h${i % 9}.example 203.0.113.9 - - [${stamp}] "GET / HTTP/1.1" 200 1 "-" "${padding}"`;
  });
  return `${lines.join('\n')}\n`;
}
