/** The command line: what each command does, and its error messages. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { call, login, requestToken, tokenRequest } from './api.ts';
import { type Ended, PROGRAM, wholeLines } from './process.ts';
import { type Installation, Sandbox } from './sandbox.ts';

const ID = expect.stringMatching(/^[0-9a-f]{32}$/);

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

const onData = (...args: string[]) => sandbox.run([...args, '--data', sandbox.data]);

/** The command failed with one sentence for the user. */
function expectRefusal({ status, stdout, stderr }: Ended, ...words: string[]): void {
  expect(wholeLines(stderr)).toHaveLength(1);
  expect(stderr).toMatch(/^wafstat: /);
  for (const word of words) expect(stderr).toContain(word);
  expect(stdout).toBe('');
  expect(status).toBeGreaterThan(0);
}

test('the program is executable', async () => {
  const { stdout } = await promisify(execFile)(PROGRAM, ['--version']);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test.each(['stdout', 'stderr'] as const)('a reader of %s that has left is no failure', async (name) => {
  const args = name === 'stdout' ? ['--help'] : ['timeline', '--no-such-option'];
  const child = spawn(process.execPath, [PROGRAM, ...args], { env: { PATH: process.env.PATH } });
  child[name].destroy();
  const [status, signal] = await once(child, 'exit');
  expect({ status, signal }).toEqual({ status: name === 'stdout' ? 0 : 2, signal: null });
});

test('without a build the program prints the command that builds it', async () => {
  const bin = sandbox.path('bin');
  cpSync(dirname(PROGRAM), bin, { recursive: true });
  sandbox.write('package.json', '{"type": "module"}');
  const run = promisify(execFile)(process.execPath, [`${bin}/wafstat.js`]);
  await expect(run).rejects.toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(/^wafstat: .*'npm run setup'.*\n$/),
  });
});

describe('init', () => {
  test('creates a domain, a project and a user, and prints the generated password', async () => {
    const { status, stdout, stderr } = await onData('init');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    for (const word of ['default', 'admin', 'password']) expect(stdout).toContain(word);
  });

  test('--json prints one JSON document', async () => {
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

  test('names are options, and the password can come from standard input', async () => {
    const args = ['--domain', 'acme', '--project', 'shop', '--user', 'alice', '--password-stdin', '--json'];
    const { stdout } = await sandbox.run(['init', '--data', sandbox.data, ...args], {
      stdin: 'open sesame\n',
    });
    const created: Installation = JSON.parse(stdout);
    expect(created).toMatchObject({ domain: 'acme', project: 'shop', user: 'alice' });
    expect(created).not.toHaveProperty('password');
    const { address } = await sandbox.serve();
    const response = await requestToken(address, tokenRequest({ ...created, password: 'open sesame' }));
    expect(response.status).toBe(201);
  });

  test('an empty or short password is rejected', async () => {
    expectRefusal(await onData('init', '--password-stdin'), '--password-stdin', 'empty');
    const init = ['init', '--data', sandbox.data, '--password-stdin'];
    expectRefusal(
      await sandbox.run(init, { stdin: '7 chars\n' }),
      'the password must have 8 to 1024 characters',
    );
    await sandbox.init();
  });

  test('a second init of the same directory is rejected and changes nothing', async () => {
    const created = await sandbox.init();
    expectRefusal(await onData('init'), sandbox.data, 'already');
    const { address } = await sandbox.serve();
    await login(address, created);
  });

  test('after an init with an invalid name, init can be repeated', async () => {
    expectRefusal(await onData('init', '--domain', 'x'.repeat(100)), 'domain', 'name');
    await sandbox.init();
  });

  test('only the owner can read the data directory', async () => {
    await sandbox.init();
    expect(statSync(sandbox.data).mode & 0o077).toBe(0);
  });

  test('a file in place of the directory is rejected', async () => {
    const file = sandbox.write('file', '');
    expectRefusal(await sandbox.run(['init', '--data', file]), file);
  });
});

describe('project', () => {
  test('add creates a project, list shows all by name', async () => {
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

  test('a name that exists is rejected', async () => {
    await sandbox.init();
    expectRefusal(await onData('project', 'add', 'default'), "'default'", 'already');
  });

  test('add uses the only domain, whatever its name', async () => {
    await sandbox.init('--domain', 'acme');
    expect(await sandbox.runJson('project', 'add', 'shop')).toMatchObject({ id: ID, name: 'shop' });
  });
});

describe('host', () => {
  const host = (...args: string[]) => onData('host', ...args, '--project', 'default');

  test('add registers a host with a derived or a given ID, list shows all by name', async () => {
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

  test('a name or an ID that exists is rejected, with its owner', async () => {
    await sandbox.init();
    await host('add', 'shop.example', '--id', 'one');
    const taken = [['shop.example'], ['SHOP.example.', '--id', 'two'], ['blog.example', '--id', 'one']];
    for (const refused of await Promise.all(taken.map((args) => host('add', ...args)))) {
      expectRefusal(refused, 'shop.example', 'already', 'one');
    }
  });

  test('an invalid name, ID or project is rejected', async () => {
    await sandbox.init();
    expectRefusal(await host('add', 'two words'), "'two words'");
    expectRefusal(await host('add', 'shop.example', '--id', 'a.b'), '--id', "'a.b'");
    expectRefusal(
      await onData('host', 'add', 'shop.example', '--project', 'nowhere'),
      'project',
      "'nowhere'",
    );
  });

  test('the running server sees a new host immediately', async () => {
    const { api, installation } = await sandbox.service();
    expect(await api.hostIds()).toEqual(new Map());
    await sandbox.runJson('host', 'add', 'shop.example', '--id', 's1', '--project', installation.project_id);
    expect(await api.hostIds()).toEqual(new Map([['shop.example', 's1']]));
  });
});

describe('options', () => {
  test('all problems are reported at once, one line each', async () => {
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

  test('service options are also environment variables, and the command line wins', async () => {
    const env = { WAFSTAT_DATA: sandbox.data };
    await sandbox.run(['init'], { env });
    expect((await sandbox.run(['project', 'list'], { env })).stdout).toContain('default');
    const ended = await sandbox.run(['project', 'list', '--data', '/nonexistent'], { env });
    expectRefusal(ended, '/nonexistent');
  });

  test('options of a single command cannot be set by environment variables', async () => {
    const env = { WAFSTAT_USER: 'bob', WAFSTAT_PROJECT: 'p', WAFSTAT_DOMAIN: 'd', WAFSTAT_JSON: 'true' };
    const { stdout } = await sandbox.run(['init', '--data', sandbox.data], { env });
    expect(stdout).toMatch(/^domain +default\nproject +default .*\nuser +admin$/m);
    const added = await sandbox.run(['user', 'add', 'carol', '--data', sandbox.data], { env });
    expect({ status: added.status, stderr: added.stderr }).toEqual({ status: 0, stderr: '' });
    expect((await onData('user', 'list')).stdout).toContain('reader in domain default');
    const host = await sandbox.run(['host', 'list', '--data', sandbox.data], { env });
    expect(host.stderr).toBe('wafstat: --project is required\n');
  });

  test('an invalid environment variable is reported by its name', async () => {
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
  ])('%s on another directory is rejected', async (...args) => {
    expectRefusal(await onData(...args), sandbox.data, 'wafstat init');
  });
});

describe('help', () => {
  /** Checks the help of a command, and resolves to its subcommands. */
  async function checkHelp(words: readonly string[]): Promise<string[][]> {
    const { status, stdout, stderr } = await sandbox.run([...words, '--help']);
    expect({ words, status, stderr }).toEqual({ words, status: 0, stderr: '' });
    expect(stdout).toMatch(new RegExp(`^Usage: wafstat ${words.join(' ')}`));
    const start = stdout.search(words.length === 0 ? /^Server commands:$/m : /^Commands:$/m);
    const list = start === -1 ? '' : stdout.slice(start);
    const names = [...list.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name = '']) => name);
    return names.filter((name) => name !== 'help').map((name) => [...words, name]);
  }

  test('every command and subcommand has a help text', async () => {
    const commands: string[] = [];
    const left: string[][] = [[]];
    while (left.length > 0) {
      const few = left.splice(0, 4);
      commands.push(...few.map((words) => words.join(' ')));
      left.push(...(await Promise.all(few.map(checkHelp))).flat());
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

  test('unknown commands, options and operands point to the help', async () => {
    const wrong = ['nothing', 'serve --nothing', 'host add', 'init too much'];
    for (const ended of await Promise.all(wrong.map((words) => sandbox.run(words.split(' '))))) {
      expect(ended.status).toBeGreaterThan(0);
      expect(ended.stdout).toBe('');
      expect(ended.stderr).toContain('--help');
    }
  });
});

describe('serve', () => {
  test('the first start creates the data directory, prints the password once, and where the console is', async () => {
    const first = await sandbox.serve();
    // The last line, so that nothing hides it.
    const [, password = ''] = /^password (\S+)/.exec(await first.process.line('password ')) ?? [];
    const printed = wholeLines(first.process.stdout).map((line) => line.split(' ')[0]);
    expect(printed).toEqual(['wafstat', 'console:', 'domain', 'project', 'user', 'password']);
    const project_id = /^project .*\b([0-9a-f]{32})\b/m.exec(first.process.stdout)?.[1] ?? '';
    const account = { user: 'admin', domain: 'default', password, project_id };
    await login(first.address, account);
    expect(await first.process.line('console: ')).toBe(`console: ${first.address}/console/`);
    first.process.signal('SIGTERM');
    expect((await first.process.end()).status).toBe(0);

    const second = await sandbox.serve();
    expect(second.process.stdout).not.toContain('password');
    await login(second.address, account);
  });

  test('beyond loopback it requires TLS or --insecure-http', async () => {
    const refused = await onData('serve', '--listen', '0.0.0.0:0');
    expectRefusal(refused, '0.0.0.0', '--tls-cert', '--insecure-http');
    const { address } = await sandbox.serve(['--listen', '0.0.0.0:0', '--insecure-http']);
    const { port } = new URL(address);
    expect((await call(`http://127.0.0.1:${port}`, '/healthz')).status).toBe(200);
  });

  test('an address in use is reported in one sentence', async () => {
    const { address } = await sandbox.serve();
    expectRefusal(await onData('serve', '--listen', new URL(address).host), new URL(address).host);
  });

  test('a first start that cannot listen creates nothing', async () => {
    const other = new Sandbox();
    const { address } = await other.serve();
    expectRefusal(await onData('serve', '--listen', new URL(address).host), new URL(address).host);
    expect(existsSync(sandbox.data)).toBe(false);
    const health = ['--listen', '127.0.0.1:0', '--health-listen', new URL(address).host];
    expectRefusal(await onData('serve', ...health), '--health-listen');
    expect(existsSync(sandbox.data)).toBe(false);
    await other.clear();
  });

  test('a certificate without its key, and a file without a certificate, are rejected', async () => {
    await sandbox.init();
    const file = sandbox.write('empty.pem', '');
    expectRefusal(await onData('serve', '--listen', '127.0.0.1:0', '--tls-cert', file), '--tls-key');
    const pair = ['--tls-cert', file, '--tls-key', file];
    expectRefusal(await onData('serve', '--listen', '127.0.0.1:0', ...pair), 'certificate');
  });
});

describe('query commands', () => {
  const HOUR_MS = 3_600_000;

  /** A service with these events, and functions that run a query command on it: `query` expects no message. */
  async function setUp(events: readonly object[], ...args: string[]) {
    const installation = await sandbox.init();
    await sandbox.ingest(installation.project_id, events, ...args);
    const { address } = await sandbox.serve();
    const connection = ['--url', address, '--project', 'default', '--user', 'admin'];
    const env = { WAFSTAT_PASSWORD: installation.password };
    const run = (...words: string[]) => sandbox.run([...words, ...connection], { env });
    const query = async (...words: string[]) => {
      const { status, stdout, stderr } = await run(...words);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      return stdout;
    };
    return { run, query };
  }

  test('hosts lists each host once, however many there are', async () => {
    const names = Array.from({ length: 2_345 }, (_, i) => `host-${String(i).padStart(4, '0')}.example`);
    const time = Date.now() - HOUR_MS;
    const { query } = await setUp(
      names.map((host) => ({ time, host })),
      '--hosts-max',
      '3000',
    );
    const { total, items } = JSON.parse(await query('hosts', '--output', 'json'));
    expect(total).toBe(names.length);
    expect(items.map(({ hostname }: { hostname: string }) => hostname)).toEqual(names);
    const lines = wholeLines(await query('hosts'));
    expect(lines).toHaveLength(names.length + 1);
    expect(lines[0]).toMatch(/^id +name +registered/);
    // On the last page.
    const [, last = ''] = wholeLines(
      await query('timeline', '--output', 'csv', '--host', 'host-2344.example'),
    );
    expect(last.trim()).toMatch(/,\d,0$/);
  });

  test('the timeline by category, the types and the timeline count the same attacks', async () => {
    const start = Math.floor(Date.now() / HOUR_MS - 2) * HOUR_MS;
    const categories = ['xss', 'sqli', 'robot', 'cc', undefined] as const;
    const events = Array.from({ length: 300 }, (_, i) => ({
      time: start + i * 20_011,
      host: `${'abc'[i % 3]}.example`,
      attack: categories[i % categories.length],
      count: 1 + (i % 7),
    }));
    const { query } = await setUp(events);
    const range = ['--from', String(start + 100_000), '--to', String(start + 5_000_000), '--output', 'csv'];
    for (const hosts of [[], ['--host', 'a.example', '--host', 'c.example']]) {
      const rows = async (...words: string[]) => {
        const [header = [], ...lines] = (await query(...words, ...range, ...hosts))
          .trimEnd()
          .split('\r\n')
          .map((line) => line.split(','));
        const sums = header.map((_, i) => lines.reduce((sum, line) => sum + Number(line[i]), 0));
        return { lines, header, sums };
      };
      const byCategory = await rows('timeline', '--by', 'category');
      const types = await rows('types');
      const timeline = await rows('timeline');
      expect(byCategory.header.slice(1)).toEqual(types.lines.map(([type]) => type));
      expect(byCategory.sums.slice(1)).toEqual(types.lines.map(([, n]) => Number(n)));
      expect(byCategory.lines.map(([time]) => time)).toEqual(timeline.lines.map(([time]) => time));
      expect(byCategory.lines.map((line) => line.slice(1).reduce((sum, n) => sum + Number(n), 0))).toEqual(
        timeline.lines.map(([, , attacks]) => Number(attacks)),
      );
      const counted = events.filter(
        ({ time, host, attack }) =>
          attack !== undefined &&
          time >= start + 100_000 &&
          time < start + 5_000_000 &&
          (hosts.length === 0 || hosts.includes(host)),
      );
      expect(timeline.sums[2]).toBe(counted.reduce((sum, { count }) => sum + count, 0));
      expect(timeline.sums[2]).toBeGreaterThan(0);
    }
  });

  test('events lists the attacks that the counters count, page by page, and deletes those of a source', async () => {
    const start = Math.floor(Date.now() / HOUR_MS - 2) * HOUR_MS;
    const events = Array.from({ length: 2_300 }, (_, i) => ({
      ...{ time: start + i * 1_000, host: 'a.example', attack: i % 3 === 0 ? 'xss' : 'sqli' },
      ...{
        id: `request-${i}`,
        method: 'GET',
        url: `/item/${i % 10},${i % 7}?q=%0d`,
        source: `192.0.2.${i % 5}`,
      },
      rules: [{ id: `94210${i % 2}`, variable: 'ARGS:q', value: `\u001b[31m${i}`, severity: 'critical' }],
    }));
    const { run, query } = await setUp(events);
    const range = ['--from', String(start), '--to', String(start + HOUR_MS)];
    const list = async (...words: string[]): Promise<{ id: string }[]> =>
      wholeLines(await query('events', ...range, '--all', '--output', 'json', ...words)).map((line) =>
        JSON.parse(line),
      );
    const ids = (items: readonly { id: string }[]) => items.map(({ id }) => id);
    const newest = events.toReversed();
    expect(ids(await list())).toEqual(ids(newest));
    const selected = newest.filter(
      ({ source, url, attack }) => source !== '192.0.2.1' && url.startsWith('/item/4,4') && attack === 'sqli',
    );
    expect(selected.length).toBeGreaterThan(0);
    expect(
      ids(await list('--not-source', '192.0.2.1', '--attack-url', '/item/4,4', '--category', 'sqli')),
    ).toEqual(ids(selected));
    const [title = '', header = '', ...rows] = wholeLines(await query('events', ...range));
    expect(title).toContain('2,300 events, the newest 50 events');
    expect(header).toMatch(/^time \(\+00:00\) +host +source +request +category +rule +action +id$/);
    expect(rows).toHaveLength(50);
    expect(await query('event', 'request-7')).toMatch(/^942101 +critical +ARGS:q +%1B\[31m7$/m);
    await query('events', '--delete', '--source', '192.0.2.3', '--yes');
    const types = wholeLines(await query('types', ...range, '--output', 'csv'));
    expect(types.reduce((sum, line) => sum + (Number(line.split(',')[1]) || 0), 0)).toBe(2_300);
    expect(await run('events', ...range, '--source', '192.0.2.3', '--output', 'json')).toMatchObject({
      status: 0,
      stdout: '',
      stderr: expect.stringContaining('1,840 of 2,300 attacks of this range are kept'),
    });
    const filtered = await run('types', ...range, '--source', '192.0.2.1', '--output', 'csv');
    expect(filtered.stderr).toContain('1,840 of 2,300 attacks of this range are kept');
    expect(filtered.stdout).toContain('sqli,307\r\n');
    expectRefusal(await run('event', 'request-3'), 'request-3', 'WAF.4000');
    expect((await onData('audit')).stdout).toContain('events.delete');
  });
});
