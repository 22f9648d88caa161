import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runProgram } from './program.ts';

let directory: string;

/** `answer` is typed at the first question of a terminal. Without it, standard input is no terminal. */
async function run(argv: readonly string[], answer?: string) {
  const stdin = Object.assign(new PassThrough(), { isTTY: answer !== undefined });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const printed = { out: '', err: '' };
  stdout.on('data', (text) => {
    printed.out += text;
  });
  stderr.on('data', (text) => {
    printed.err += text;
  });
  const running = runProgram([...argv, '--data', join(directory, 'data')], {
    ...{ stdin, stdout, stderr, env: {}, now: Date.now },
    stop: new AbortController().signal,
  });
  if (answer !== undefined) {
    while (!printed.err.includes('to confirm: ')) await once(stderr, 'data');
    stdin.write(`${answer}\r`);
  }
  return { status: await running, ...printed };
}

/** A command that succeeds. Resolves to what it prints. */
async function done(...argv: string[]): Promise<string> {
  const { status, out, err } = await run(argv);
  expect({ argv, status, err }).toEqual({ argv, status: 0, err: '' });
  return out;
}

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'wafstat-identity-'));
  await done('init');
});

afterEach(() => rm(directory, { recursive: true }));

test('the last administrator stays, unless --force is given', async () => {
  const refusal = {
    status: 1,
    err: "wafstat: user 'admin' is the last administrator of the domain, and nobody could manage it afterwards: to do it anyway, use --force\n",
  };
  const changes = [
    ['user', 'revoke', 'admin', '--role', 'admin'],
    ['user', 'disable', 'admin'],
    ['user', 'delete', 'admin', '--yes'],
  ];
  for (const change of changes) expect(await run(change)).toMatchObject(refusal);
  // A reader and a disabled administrator do not count.
  await done('user', 'add', 'reader');
  await done('user', 'add', 'second', '--role', 'admin');
  await done('user', 'disable', 'second');
  for (const change of changes) expect(await run(change)).toMatchObject(refusal);
  for (const change of changes) await done(...change, '--force');
  await done('user', 'enable', 'second');
  await done('user', 'delete', 'reader', '--yes');
});

describe('what is deleted', () => {
  let key: string;

  beforeEach(async () => {
    await done('domain', 'add', 'acme');
    await done('project', 'add', 'shop', '--domain', 'default');
    await done('user', 'add', 'alice', '--domain', 'default');
    await done('host', 'add', 'www.example.com', '--id', 'www', '--project', 'shop');
    key = JSON.parse(await done('key', 'add', '--user', 'alice', '--json')).access;
  });

  const deletions = (): (readonly [name: string, argv: string[], list: string[]])[] => [
    [key, ['key', 'delete', key], ['key', 'list', '--user', 'alice']],
    [
      'www.example.com',
      ['host', 'delete', 'www', '--project', 'shop'],
      ['host', 'list', '--project', 'shop'],
    ],
    ['alice', ['user', 'delete', 'alice'], ['user', 'list']],
    ['shop', ['project', 'delete', 'shop'], ['project', 'list']],
    ['acme', ['domain', 'delete', 'acme'], ['domain', 'list']],
  ];

  test('is confirmed with its name on a terminal', async () => {
    for (const [name, argv, list] of deletions()) {
      const { status, err } = await run(argv, `${name.slice(1)}`);
      expect({ status, err }).toEqual({
        status: 1,
        err: expect.stringMatching(/^This deletes .* to confirm: .*nothing was deleted\n$/s),
      });
      expect(await done(...list)).toContain(name);
      expect(await run(argv, name)).toMatchObject({ status: 0 });
      expect(await done(...list)).not.toContain(name);
    }
  });

  test('needs --yes without a terminal', async () => {
    for (const [name, argv, list] of deletions()) {
      expect(await run(argv)).toEqual({
        status: 2,
        out: '',
        err: 'wafstat: --yes is required without a terminal, because nobody can confirm\n',
      });
      expect(await done(...list)).toContain(name);
      expect(await run([...argv, '--yes'])).toMatchObject({ status: 0, err: '' });
      expect(await done(...list)).not.toContain(name);
    }
  });
});

test('user add prints what the user may do, and how to narrow it', async () => {
  const everywhere = await done('user', 'add', 'alice');
  expect(everywhere).toContain('alice has the role reader in all projects of the domain default.\n');
  const [, grant = '', revoke = ''] = /run '([^']+)', then '([^']+)'/.exec(everywhere) ?? [];
  await done(...grant.replace('PROJECT', 'default').split(' ').slice(1));
  await done(...revoke.split(' ').slice(1));
  expect(await done('user', 'list')).toMatch(/alice .*reader in project default$/m);
  const narrow = await done('user', 'add', 'bob', '--project', 'default', '--role', 'ingest');
  expect(narrow).toContain('bob has the role ingest in the project default.\n');
  expect(narrow).not.toContain('limit');
});

test('key add warns if the user cannot use the key, and never overwrites a file', async () => {
  await done('user', 'add', 'carol', '--access', 'console');
  const { status, err } = await run(['key', 'add', '--user', 'carol']);
  expect({ status, err }).toEqual({
    status: 0,
    err: expect.stringMatching(/^wafstat: carol can log in to the console only: requests with this key/),
  });
  const file = join(directory, 'key.csv');
  await writeFile(file, 'mine');
  expect(await run(['key', 'add', '--user', 'admin', '--csv', file])).toEqual({
    status: 1,
    out: '',
    err: `wafstat: --csv ${file} already exists, and may have the secret of another key: use another name\n`,
  });
  expect(await readFile(file, 'utf8')).toBe('mine');
});

test('host rename keeps the ID, and refuses the name of another host', async () => {
  const inProject = ['--project', 'default'];
  await done('host', 'add', 'old.example.com', '--id', 'h1', ...inProject);
  await done('host', 'add', 'other.example.com', '--id', 'h2', ...inProject);
  const rename = (...names: string[]) => run(['host', 'rename', ...names, ...inProject]);
  expect(await rename('old.example.com', 'other.example.com')).toMatchObject({
    status: 1,
    err: 'wafstat: other.example.com is already registered, with the ID h2\n',
  });
  expect(await rename('nowhere', 'new.example.com')).toMatchObject({
    status: 1,
    err: expect.stringContaining("no host 'nowhere'"),
  });
  expect(await rename('h1', 'not a name')).toMatchObject({ status: 1 });
  expect(await rename('old.example.com', 'New.example.com.')).toMatchObject({ status: 0, err: '' });
  expect(await done('host', 'list', ...inProject)).toBe('h1  new.example.com\nh2  other.example.com\n');
  expect(await rename('h1')).toMatchObject({
    status: 2,
    err: "wafstat: <hostname> is missing: see 'wafstat host rename --help'\n",
  });
});
