/** `serve --check`: all problems at once, and nothing is created or changed. Repeated on every store. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { generate } from 'selfsigned';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { describeEmbedded, Sandbox } from './sandbox.ts';
import { freePort } from './web-server.ts';

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

const isEmbedded = inject('postgresUrl') === undefined;

async function check(args: string[] = [], env: Record<string, string> = {}) {
  const listen = args.includes('--listen') ? [] : ['--listen', '127.0.0.1:0'];
  const { status, stdout, stderr } = await sandbox.run(
    ['serve', '--check', '--data', sandbox.data, ...listen, ...args],
    { env },
  );
  return { status, notes: stdout.split('\n').slice(0, -1), problems: stderr.split('\n').slice(0, -1) };
}

/** Contents, modes and times of all files but the lock files, into which LMDB writes to read. */
function state() {
  if (!existsSync(sandbox.data)) return null;
  return readdirSync(sandbox.data)
    .sort()
    .map((name) => {
      const path = join(sandbox.data, name);
      const { mode, mtimeMs } = lstatSync(path);
      const content = name.endsWith('-lock')
        ? ''
        : createHash('sha256').update(readFileSync(path)).digest('hex');
      return { name, mode, content, mtimeMs: name.endsWith('-lock') ? 0 : mtimeMs };
    });
}

const OK = 'no problems found';
const EVENT = { time: Date.now() - 1_000, host: 'a.example', attack: 'sqli' };

test('before the first start, it says what will be created, and creates nothing', async () => {
  for (let run = 0; run < 2; run++) {
    const { status, notes, problems } = await check();
    expect({ status, problems }).toEqual({ status: 0, problems: [] });
    expect(notes).toContain(`note: ${sandbox.data} does not exist: the first start creates it`);
    expect(notes.filter((note) => note.includes('has no tables')).length).toBe(isEmbedded ? 0 : 1);
    expect(notes.at(-1)).toBe(OK);
  }
  expect(state()).toBeNull();
});

test('metrics beyond loopback get the same warning as when the service starts', async () => {
  const { notes } = await check(['--metrics-listen', '0.0.0.0:0']);
  expect(notes).toContainEqual(
    expect.stringContaining('everyone who can reach 0.0.0.0:0 can read the metrics'),
  );
  expect((await check(['--metrics-listen', '0'])).notes.join()).not.toContain('can read the metrics');
});

test('an installation with data is opened and not changed', async () => {
  const { project_id } = await sandbox.init();
  await sandbox.ingest(project_id, [EVENT]);
  // As after a restore: LMDB would create them.
  for (const name of readdirSync(sandbox.data)) if (name.endsWith('-lock')) rmSync(join(sandbox.data, name));
  const before = state();
  expect(await check()).toEqual({ status: 0, notes: [OK], problems: [] });
  expect(state()).toEqual(before);
});

test('the port of the running service is no problem, that of another installation or program is', async () => {
  await sandbox.init();
  const { address } = await sandbox.serve();
  const own = new URL(address).host;
  const other = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  const stranger = new Sandbox();
  try {
    expect(await check(['--listen', own])).toEqual({
      status: 0,
      notes: [`note: --listen: the service of this installation is running on ${own}`, OK],
      problems: [],
    });
    const { address: another } = await stranger.serve();
    expect(await check(['--listen', new URL(another).host])).toMatchObject({
      status: 1,
      problems: [expect.stringMatching(/^wafstat: cannot listen on .* the address is already in use/)],
    });
    const { port } = other.address() as { port: number };
    expect(await check(['--listen', `127.0.0.1:${port}`])).toMatchObject({
      status: 1,
      problems: [
        `wafstat: cannot listen on 127.0.0.1:${port} (--listen): the address is already in use; choose another address with --listen HOST:PORT`,
      ],
    });
  } finally {
    await stranger.clear();
    other.close();
  }
});

test('a program that sends the messages of the service is not the service', async () => {
  await sandbox.init();
  const message = 'the token in X-Auth-Token has expired: request a new one';
  const other = createHttpServer((_request, response) => {
    response.writeHead(401, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ error: { code: 401, title: 'Unauthorized', message } }));
  });
  await once(other.listen(0, '127.0.0.1'), 'listening');
  try {
    const { port } = other.address() as { port: number };
    expect(await check(['--listen', `127.0.0.1:${port}`])).toMatchObject({
      status: 1,
      problems: [expect.stringMatching(/^wafstat: cannot listen on .* the address is already in use/)],
    });
  } finally {
    other.close();
  }
});

test('problems of options, files, ports and the store are reported together', async () => {
  await sandbox.init();
  const wrongKey = { WAFSTAT_MASTER_KEY: randomBytes(32).toString('base64') };
  const port = await freePort();
  const sameTwice = ['--listen', `127.0.0.1:${port}`, '--health-listen', `0.0.0.0:${port}`];
  const found = await check([...sameTwice, '--retention', '3x', '--tls-cert', '/nowhere'], {
    ...wrongKey,
    ...(!isEmbedded && { WAFSTAT_POSTGRES_URL: 'postgres://nobody@127.0.0.1:1/nothing' }),
    WAFSTAT_LISTN: 'misspelled',
  });
  expect(found.status).toBe(2);
  expect(found.problems).toEqual([
    "wafstat: --tls-cert is '/nowhere', but cannot be read (ENOENT)",
    "wafstat: --retention is '3x', but must be a time like 180d or 36h, from 1h to 36525d",
    `wafstat: --health-listen and --listen use the same port ${port}: choose different ones`,
    `wafstat: ${join(sandbox.data, 'identity.mdb')} was created with another master key: provide that key`,
    ...(isEmbedded ? [] : [expect.stringContaining('PostgreSQL at 127.0.0.1:1/nothing does not respond')]),
  ]);
});

describeEmbedded('files of a data directory', () => {
  test('damaged, missing and wrong files are problems', async () => {
    const { project_id } = await sandbox.init();
    await sandbox.ingest(project_id, [EVENT]);
    const [statistics, identity] = ['statistics.mdb', 'identity.mdb'].map((name) => join(sandbox.data, name));
    truncateSync(statistics as string, 8_192);
    truncateSync(identity as string, 100);
    rmSync(join(sandbox.data, 'master.key'));
    const { status, problems } = await check();
    expect(status).toBe(1);
    expect(problems).toEqual([
      expect.stringContaining('master.key is missing'),
      expect.stringContaining(`${identity} is damaged`),
      expect.stringContaining(`${statistics} is truncated`),
    ]);
  });

  test('statistics of another directory are a problem', async () => {
    const { project_id } = await sandbox.init();
    await sandbox.ingest(project_id, [EVENT]);
    const other = new Sandbox();
    try {
      const { project_id: otherProject } = await other.init();
      await other.ingest(otherProject, [EVENT]);
      copyFileSync(join(other.data, 'statistics.mdb'), join(sandbox.data, 'statistics.mdb'));
    } finally {
      await other.clear();
    }
    const { status, problems } = await check();
    expect(status).toBe(1);
    expect(problems).toEqual([expect.stringContaining('does not belong to identity.mdb')]);
  });

  test('modes that the service will change, and misspelled variables, are notes', async () => {
    await sandbox.init();
    chmodSync(join(sandbox.data, 'master.key'), 0o644);
    const before = state();
    const { status, notes } = await check([], { WAFSTAT_LISTN: 'misspelled' });
    expect(status).toBe(0);
    expect(notes).toEqual([
      'note: the variable WAFSTAT_LISTN is not a setting of the service',
      `note: ${join(sandbox.data, 'master.key')} has mode 644: the service will change it to 600`,
      OK,
    ]);
    expect(state()).toEqual(before);
  });

  test('an expired certificate is a problem', async () => {
    await sandbox.init();
    const dates = { notBeforeDate: new Date('2020-01-01'), notAfterDate: new Date('2020-02-01') };
    const made = await generate([{ name: 'commonName', value: 'localhost' }], dates);
    const [cert, key] = [sandbox.write('cert.pem', made.cert), sandbox.write('key.pem', made.private)];
    expect(await check(['--tls-cert', cert, '--tls-key', key])).toMatchObject({
      status: 1,
      problems: [`wafstat: --tls-cert ${cert} expired on Feb  1 00:00:00 2020 GMT: renew it`],
    });
    expect(await check(['--tls-cert', key, '--tls-key', cert])).toMatchObject({
      status: 1,
      problems: [expect.stringContaining('are not a certificate and its key')],
    });
  });

  test('the first password goes into a new file, and no longer to standard output', async () => {
    const file = sandbox.path('initial-password');
    const { process } = await sandbox.serve(['--initial-password-file', file]);
    const password = readFileSync(file, 'utf8').trim();
    expect(password).toMatch(/^[\w-]{24}$/);
    expect(lstatSync(file).mode & 0o777).toBe(0o600);
    expect(await process.line('password ')).toBe(`password in ${file}: change it and delete the file`);
    expect(process.stdout).not.toContain(password);
    rmSync(sandbox.data, { recursive: true });
    expect(await check(['--initial-password-file', file])).toMatchObject({
      status: 1,
      problems: [
        `wafstat: --initial-password-file ${file} already exists: delete it, or choose another name`,
      ],
    });
  });
});
