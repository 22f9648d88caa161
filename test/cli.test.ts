/** The command line: what each command does, and what it says when it cannot. */
import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { askToken, call, login, tokenRequest } from './api.ts';
import { type Ended, PROGRAM, wholeLines } from './process.ts';
import { type Installation, Sandbox } from './sandbox.ts';

const ID = expect.stringMatching(/^[0-9a-f]{32}$/);

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

const onData = (...args: string[]) => sandbox.run([...args, '--data', sandbox.data]);

/** It failed, and all it said is one sentence for the user. */
function expectRefusal({ status, stdout, stderr }: Ended, ...words: string[]): void {
  expect(wholeLines(stderr)).toHaveLength(1);
  expect(stderr).toMatch(/^wafstat: /);
  for (const word of words) expect(stderr).toContain(word);
  expect(stdout).toBe('');
  expect(status).toBeGreaterThan(0);
}

test('the program is a file that runs by itself, under its own settings of Node.js', async () => {
  const { stdout } = await promisify(execFile)(PROGRAM, ['--version']);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

describe('init', () => {
  test('makes a domain, a project and a user, and shows the password that it made', async () => {
    const { status, stdout, stderr } = await onData('init');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    for (const word of ['default', 'admin', 'password']) expect(stdout).toContain(word);
  });

  test('--json prints one document with all of it', async () => {
    const { status, stdout } = await onData('init', '--json');
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toEqual({
      domain_id: ID,
      project_id: ID,
      user_id: ID,
      domain: 'default',
      project: 'default',
      user: 'admin',
      password: expect.stringMatching(/^.{16,}$/),
    });
  });

  test('the names can be chosen, and the password given on standard input', async () => {
    const args = ['--domain', 'acme', '--project', 'shop', '--user', 'alice', '--password-stdin', '--json'];
    const { stdout } = await sandbox.run(['init', '--data', sandbox.data, ...args], {
      stdin: 'open sesame\n',
    });
    const made: Installation = JSON.parse(stdout);
    expect(made).toMatchObject({ domain: 'acme', project: 'shop', user: 'alice' });
    expect(made).not.toHaveProperty('password');
    const { address } = await sandbox.serve();
    const answer = await askToken(address, tokenRequest({ ...made, password: 'open sesame' }));
    expect(answer.status).toBe(201);
  });

  test('an empty password is refused', async () => {
    expectRefusal(await onData('init', '--password-stdin'), 'password');
  });

  test('a second one on the same folder is refused and changes nothing', async () => {
    const made = await sandbox.init();
    expectRefusal(await onData('init'), sandbox.data, 'already');
    const { address } = await sandbox.serve();
    await login(address, made);
  });

  test('after one that was refused for a bad name it can be done again', async () => {
    expectRefusal(await onData('init', '--domain', 'x'.repeat(100)), 'domain', 'name');
    await sandbox.init();
  });

  test('the data folder is for its owner only', async () => {
    await sandbox.init();
    expect(statSync(sandbox.data).mode & 0o077).toBe(0);
  });

  test('a file in the place of the folder is refused in a sentence', async () => {
    const file = sandbox.write('file', '');
    expectRefusal(await sandbox.run(['init', '--data', file]), file);
  });
});

describe('project', () => {
  test('add makes one, list shows all by name', async () => {
    const { project_id } = await sandbox.init();
    const added = await sandbox.runJson<{ id: string; name: string }>('project', 'add', 'shop');
    expect(added).toMatchObject({ id: ID, name: 'shop' });
    expect(await sandbox.runJson('project', 'list')).toMatchObject([
      { id: project_id, name: 'default' },
      { id: added.id, name: 'shop' },
    ]);
    const rows = wholeLines((await onData('project', 'list')).stdout);
    for (const id of [project_id, added.id]) expect(rows.filter((row) => row.includes(id))).toHaveLength(1);
    expect((await onData('project', 'add', 'third')).stdout).toContain('third');
  });

  test('a name that is there already is refused', async () => {
    await sandbox.init();
    expectRefusal(await onData('project', 'add', 'default'), "'default'", 'already');
  });

  test('it goes to the domain of the installation, whatever that is called', async () => {
    await sandbox.init('--domain', 'acme');
    expect(await sandbox.runJson('project', 'add', 'shop')).toMatchObject({ id: ID, name: 'shop' });
  });
});

describe('host', () => {
  const host = (...args: string[]) => onData('host', ...args, '--project', 'default');

  test('add registers one under a made or a given ID, list shows all by name', async () => {
    await sandbox.init();
    const inProject = ['--project', 'default'];
    const shop = await sandbox.runJson<{ id: string }>('host', 'add', 'Shop.Example', ...inProject);
    expect(shop).toMatchObject({ id: ID, hostname: 'shop.example' });
    const blog = await sandbox.runJson('host', 'add', 'blog.example', '--id', 'My_blog-1', ...inProject);
    expect(blog).toMatchObject({ id: 'My_blog-1', hostname: 'blog.example' });
    expect(await sandbox.runJson('host', 'list', ...inProject)).toEqual([blog, shop]);
    const rows = wholeLines((await host('list')).stdout).map((line) => line.split(/ +/));
    expect(rows).toContainEqual(['My_blog-1', 'blog.example']);
    expect(rows).toContainEqual([shop.id, 'shop.example']);
    expect((await host('add', 'api.example')).stdout).toMatch(/api\.example.*[0-9a-f]{32}/);
  });

  test('a name or an ID that is there already is refused, with what it belongs to', async () => {
    await sandbox.init();
    await host('add', 'shop.example', '--id', 'one');
    const taken = [['shop.example'], ['SHOP.example.', '--id', 'two'], ['blog.example', '--id', 'one']];
    for (const refused of await Promise.all(taken.map((args) => host('add', ...args)))) {
      expectRefusal(refused, 'shop.example', 'already', 'one');
    }
  });

  test('what cannot be a name, an ID or a project is refused', async () => {
    await sandbox.init();
    expectRefusal(await host('add', 'two words'), "'two words'");
    expectRefusal(await host('add', 'shop.example', '--id', 'a.b'), '--id', "'a.b'");
    expectRefusal(
      await onData('host', 'add', 'shop.example', '--project', 'nowhere'),
      'project',
      "'nowhere'",
    );
  });

  test('the running server sees it at once', async () => {
    const { api, installation } = await sandbox.service();
    expect(await api.hostIds()).toEqual(new Map());
    await sandbox.runJson('host', 'add', 'shop.example', '--id', 's1', '--project', installation.project_id);
    expect(await api.hostIds()).toEqual(new Map([['shop.example', 's1']]));
  });
});

describe('settings', () => {
  test('all that is wrong is reported at once, a line each', async () => {
    const listen = ['--listen', 'here', '--workers', '0', '--retention', '5x', '--log-level', 'loud'];
    const more = ['--tls-cert', sandbox.path('none.pem'), '--public-url', 'ftp://x', '--rate-limit', '-1'];
    const { status, stdout, stderr } = await sandbox.run(['serve', ...listen, ...more]);
    expect(status).toBeGreaterThan(0);
    expect(stdout).toBe('');
    const lines = wholeLines(stderr);
    for (const name of [
      '--data',
      '--listen',
      '--workers',
      '--retention',
      '--log-level',
      '--tls-cert',
      '--public-url',
      '--rate-limit',
    ]) {
      expect(lines.filter((line) => line.startsWith(`wafstat: ${name} `))).toHaveLength(1);
    }
  });

  test('every option is also an environment variable, and the command line wins', async () => {
    const env = {
      WAFSTAT_DATA: sandbox.data,
      WAFSTAT_JSON: 'true',
      WAFSTAT_USER: 'bob',
      WAFSTAT_PROJECT: 'p',
    };
    const { stdout } = await sandbox.run(['init', '--user', 'alice'], { env });
    expect(JSON.parse(stdout)).toMatchObject({ user: 'alice', project: 'p', domain: 'default' });
    const added = await sandbox.run(['host', 'add', 'shop.example'], { env: { ...env, WAFSTAT_ID: 'h' } });
    expect(JSON.parse(added.stdout)).toMatchObject({ id: 'h' });
  });

  test('a wrong environment variable is reported by its own name', async () => {
    const env = { WAFSTAT_DATA: sandbox.data, WAFSTAT_WORKERS: 'many', WAFSTAT_INSECURE_HTTP: 'perhaps' };
    const { status, stderr } = await sandbox.run(['serve'], { env });
    expect(status).toBeGreaterThan(0);
    expect(stderr).toMatch(/^wafstat: WAFSTAT_WORKERS is 'many'/m);
    expect(stderr).toMatch(/^wafstat: WAFSTAT_INSECURE_HTTP is 'perhaps'/m);
  });

  test.each([
    ['project', 'list'],
    ['host', 'list', '--project', 'default'],
    ['ingest', '--project', 'default', '-'],
  ])('%s on a folder that is none of ours is refused', async (...args) => {
    expectRefusal(await onData(...args), sandbox.data, 'wafstat init');
  });
});

describe('help', () => {
  /** Sees that a command has help, and answers the commands in it if it is a group. */
  async function explained(words: readonly string[]): Promise<string[][]> {
    const { status, stdout, stderr } = await sandbox.run([...words, '--help']);
    expect({ words, status, stderr }).toEqual({ words, status: 0, stderr: '' });
    expect(stdout).toMatch(new RegExp(`^Usage: wafstat ${words.join(' ')}`));
    const [, list = ''] = stdout.split('\nCommands:\n');
    const names = [...list.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name = '']) => name);
    return names.filter((name) => name !== 'help').map((name) => [...words, name]);
  }

  test('every command has one, down to the last', async () => {
    const commands: string[] = [];
    const left: string[][] = [[]];
    while (left.length > 0) {
      const few = left.splice(0, 4);
      commands.push(...few.map((words) => words.join(' ')));
      left.push(...(await Promise.all(few.map(explained))).flat());
    }
    for (const command of [
      'init',
      'serve',
      'project add',
      'project list',
      'host add',
      'host list',
      'ingest',
    ]) {
      expect(commands).toContain(command);
    }
  });

  test('what is not understood fails and points to it', async () => {
    const wrong = ['nothing', 'serve --nothing', 'host add', 'init too much'];
    for (const ended of await Promise.all(wrong.map((words) => sandbox.run(words.split(' '))))) {
      expect(ended.status).toBeGreaterThan(0);
      expect(ended.stdout).toBe('');
      expect(ended.stderr).toContain('--help');
    }
  });
});

describe('serve', () => {
  test('the first start makes everything and prints the password once', async () => {
    const first = await sandbox.serve();
    const password = /^password (\S+)/m.exec(first.process.stdout)?.[1] ?? '';
    const project_id = /^project .*\b([0-9a-f]{32})\b/m.exec(first.process.stdout)?.[1] ?? '';
    const account = { user: 'admin', domain: 'default', password, project_id };
    await login(first.address, account);
    first.process.signal('SIGTERM');
    expect((await first.process.end()).status).toBe(0);

    const second = await sandbox.serve();
    expect(second.process.stdout).not.toContain('password');
    await login(second.address, account);
  });

  test('beyond loopback it wants TLS, or to be told that something in front does it', async () => {
    const refused = await onData('serve', '--listen', '0.0.0.0:0');
    expectRefusal(refused, '0.0.0.0', '--tls-cert', '--insecure-http');
    const { address } = await sandbox.serve(['--listen', '0.0.0.0:0', '--insecure-http']);
    const { port } = new URL(address);
    expect((await call(`http://127.0.0.1:${port}`, '/healthz')).status).toBe(200);
  });

  test('a port that is taken is refused in a sentence', async () => {
    const { address } = await sandbox.serve();
    expectRefusal(await onData('serve', '--listen', new URL(address).host), new URL(address).host);
  });

  test('a certificate without its key, or none at all in the file, is refused in a sentence', async () => {
    await sandbox.init();
    const file = sandbox.write('empty.pem', '');
    expectRefusal(await onData('serve', '--listen', '127.0.0.1:0', '--tls-cert', file), '--tls-key');
    const pair = ['--tls-cert', file, '--tls-key', file];
    expectRefusal(await onData('serve', '--listen', '127.0.0.1:0', ...pair), 'certificate');
  });
});
