/** Faults of the data directory: flipped bits, missing files; backup and compact. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { open } from 'lmdb';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { login } from './api.ts';
import { eventually, PROGRAM, type Process } from './process.ts';
import { Random, scaled } from './random.ts';
import { KEEP_ALL, ndjson, Sandbox } from './sandbox.ts';

const T = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;
const BIT_FLIPS = fileURLToPath(new URL('./bit-flips.mjs', import.meta.url));
const IDENTITY_FLIPS = fileURLToPath(new URL('./identity-flips.mjs', import.meta.url));
/** So many that some of them hit a record. */
const FLIPS = Math.max(25, scaled(100));
/** Fewer, because each checks two passwords. */
const LOGIN_FLIPS = Math.max(15, scaled(60));
/** Six have every combination of one or two compacts, and an ingest that continues before or after them. */
const ROUNDS_MIN = 6;
/** More of them until a compact has succeeded, which depends on where the ingest was stopped. */
const ROUNDS_MAX = 20;
/** Locks the first byte of a file until it is killed. */
const HOLD =
  'open F, "+<", $ARGV[0] or die; $l = pack "ssx4qqi", F_WRLCK, SEEK_SET, 0, 1, 0; fcntl F, F_SETLKW, $l; $| = 1; print "locked\\n"; sleep';
const SEED = Number(process.env.FUZZ_SEED ?? 13);

/** A line of identity-flips.mjs. */
interface FlipResult {
  position: number;
  verified: { status: number; text: string };
  before: { errors: number; wrong: string[] };
  repaired: { status: number; text: string };
  after: { errors: number; wrong: string[] };
}

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

describe('a flipped bit', () => {
  test('in a record gives right counts or an error, and never crashes verify', async () => {
    const random = new Random(SEED);
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, someEvents(random, 1_500), ...KEEP_ALL);
    // A backup has no free pages.
    await sandbox.runJson('backup', '--to', sandbox.path('copy'));
    const file = join(sandbox.path('copy'), 'statistics.mdb');
    const bytes = readFileSync(file);
    const flips = Array.from({ length: FLIPS }, () => {
      const offset = random.integer(0, bytes.length - 1);
      return { offset, bit: random.integer(0, 7), inRecord: isInRecord(bytes, offset) };
    });
    const hosts = (await sandbox.runJson<{ id: string }[]>('host', 'list', '--project', project)).map(
      ({ id }) => id,
    );
    const grids = [
      [T - HOUR_MS, T + 100 * HOUR_MS],
      Array.from({ length: 50 }, (_, i) => T + 1_234 + i * 5_432_109),
    ];
    const queries = grids.flatMap((edges) => [
      { project, edges },
      { project, hosts, edges },
      ...hosts.map((id) => ({ project, hosts: [id], edges })),
    ]);
    const args = [BIT_FLIPS, file, JSON.stringify(flips), JSON.stringify(queries)];
    const { stdout, stderr, status, signal } = spawnSync(process.execPath, args, {
      encoding: 'utf8',
      maxBuffer: 1e8,
    });
    const where = `seed ${SEED}: ${stderr}`;
    expect({ status, signal }, where).toEqual({ status: 0, signal: null });
    const queried = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { index: number; step: string; wrong?: number; errors?: number })
      .filter(({ step }) => step === 'queried');
    expect(queried.length).toBeGreaterThan(FLIPS / 4);
    expect(
      queried.filter(({ wrong }) => wrong !== 0).map(({ index }) => flips[index]),
      where,
    ).toEqual([]);
    expect(queried.some(({ errors = 0 }) => errors > 0)).toBe(true);
  });

  test('is a 503 that names verify; verify locates it, repair fixes it', async () => {
    const { project_id: project, ...installation } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T + 5, host: 'a.example', attack: 'sqli' }], ...KEEP_ALL);
    await sandbox.run(['compact', '--data', sandbox.data]);
    const file = join(sandbox.data, 'statistics.mdb');
    const bytes = readFileSync(file);
    // The hours of the project: level 0, the chunk of 16 days, scope 1.
    const key = Buffer.alloc(9);
    key.writeUInt32BE(Math.floor(T / (16 * 24 * HOUR_MS)), 1);
    key.writeUInt32BE(1, 5);
    const at = bytes.indexOf(key) + 9 + 4 + 3;
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    writeFileSync(file, bytes);

    const server = await sandbox.serve(KEEP_ALL);
    const api = await login(server.address, { ...installation, project_id: project });
    const response = await api.get(`waf/event/attack/type?from=${T}&to=${T + 24 * HOUR_MS}`);
    expect(response.status).toBe(503);
    expect(JSON.parse(response.text)).toMatchObject({
      error_code: 'WAF.5001',
      error_msg: expect.stringContaining('wafstat verify'),
    });

    const verified = await sandbox.start(['verify', '--data', sandbox.data]).end();
    expect(verified.status).toBe(1);
    expect(verified.stdout).toContain(`project ${project}`);
    expect(verified.stdout).toContain('wrong checksum');
    const repaired = await sandbox.start(['repair', '--data', sandbox.data]).end();
    expect(repaired.status, repaired.stdout).toBe(0);
    expect(repaired.stdout).toContain('recomputed from level 1');
    expect(await api.distribution(`from=${T}&to=${T + 24 * HOUR_MS}`)).toMatchObject({ sqli: 1 });
    expect((await sandbox.run(['verify', '--data', sandbox.data])).status).toBe(0);
  });
});

describe('a flipped bit in identity.mdb', () => {
  test('gives right results of logins and lookups or an error, verify finds it, and repair says what is lost', async () => {
    const random = new Random(SEED);
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T }], ...KEEP_ALL);
    const flips = JSON.stringify(Array.from({ length: LOGIN_FLIPS }, () => random.integer(0, 1e9 - 1) / 1e9));
    const { stdout, stderr, status, signal } = spawnSync(
      process.execPath,
      [IDENTITY_FLIPS, sandbox.data, project, flips],
      { encoding: 'utf8', maxBuffer: 1e8 },
    );
    expect({ status, signal }, `seed ${SEED}: ${stderr}`).toEqual({ status: 0, signal: null });
    const results = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as FlipResult);
    expect(results).toHaveLength(LOGIN_FLIPS);
    for (const { position, verified, before, repaired, after } of results) {
      const where = `seed ${SEED}, bit ${position}: ${verified.text} ${repaired.text}`;
      expect(before.wrong, where).toEqual([]);
      if (before.errors > 0) expect(verified.status, where).toBe(1);
      // Either everything is right again, or it says how to get it back. A revoked token never becomes valid.
      if (repaired.status === 0) expect(after, where).toEqual({ errors: 0, wrong: [] });
      else expect(repaired.text, where).toMatch(/^lost: .*('wafstat |restore .* from a backup)/m);
      const changed = after.wrong.filter((result) => result.startsWith('["revoked"'));
      expect(
        changed.filter((result) => !/"(revoked|user_gone|user_disabled)"\]$/.test(result)),
        where,
      ).toEqual([]);
    }
    const count = (isOne: (result: FlipResult) => boolean) => results.filter(isOne).length;
    expect(count(({ verified }) => verified.status === 1)).toBeGreaterThan(LOGIN_FLIPS / 5);
    expect(count(({ verified, repaired }) => verified.status === 1 && repaired.status === 0)).toBeGreaterThan(
      0,
    );
  });

  test('in a user changes nothing, and repair restores the user; in both copies, the service does not start', async () => {
    const { project_id: project, ...installation } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T }], ...KEEP_ALL);
    const add = ['user', 'add', 'ann', '--data', sandbox.data, '--role', 'reader', '--password-stdin'];
    expect((await sandbox.run(add, { stdin: 'a long password' })).status).toBe(0);
    const ann = { ...installation, project_id: project, user: 'ann', password: 'a long password' };
    // A backup has no old versions of pages.
    await sandbox.runJson('backup', '--to', sandbox.path('copy'));
    const bytes = readFileSync(join(sandbox.path('copy'), 'identity.mdb'));
    const file = join(sandbox.data, 'identity.mdb');
    const name = Buffer.from('"name":"ann"');
    const positions: number[] = [];
    for (let at = bytes.indexOf(name); at !== -1; at = bytes.indexOf(name, at + 1)) positions.push(at + 10);
    // Two in the log, two in the tables of records.
    expect(positions).toHaveLength(4);
    const damage = (offsets: number[]) => {
      const damaged = Buffer.from(bytes);
      for (const offset of offsets) damaged[offset] = 'a'.charCodeAt(0);
      writeFileSync(file, damaged);
    };
    for (const position of positions) {
      damage([position]);
      const server = await sandbox.serve(KEEP_ALL);
      await login(server.address, ann);
      await eventually(
        () => server.process.stderr.includes('identity.mdb has damaged records') || undefined,
        'the message in the log',
      );
      const verified = await sandbox.start(['verify', '--data', sandbox.data]).end();
      expect(verified.status).toBe(1);
      expect(verified.stdout).toContain('wrong checksum');
      const repaired = await sandbox.start(['repair', '--data', sandbox.data]).end();
      expect(repaired.status, repaired.stdout).toBe(0);
      expect(repaired.stdout).toContain('ok: ');
      // The service has noticed the repair, and can change the user.
      await login(server.address, ann);
      const disable = ['user', 'disable', 'ann', '--data', sandbox.data];
      expect((await sandbox.run(disable)).status).toBe(0);
      await server.process.kill();
    }
    expect((await sandbox.run(['audit', '--data', sandbox.data])).stdout).toContain('identity.repair');
    damage(positions);
    const refused = await sandbox
      .start(['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0', ...KEEP_ALL])
      .end();
    expect(refused.status).toBe(1);
    expect(refused.stderr).toContain("identity.mdb is damaged: run 'wafstat verify' and 'wafstat repair'");
    const repaired = await sandbox.start(['repair', '--data', sandbox.data]).end();
    expect(repaired.status).toBe(1);
    expect(repaired.stdout).toContain('restore identity.mdb from a backup');
  });
});

describe('a data directory with a missing or damaged file', () => {
  test('is refused with a message that says what to do', async () => {
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T, host: 'a.example' }], ...KEEP_ALL);
    const file = join(sandbox.data, 'statistics.mdb');
    const bytes = readFileSync(file);
    const refusal = async () => {
      const args = ['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0'];
      const { status, signal, stderr } = await sandbox.start(args).end();
      expect({ status, signal }).toEqual({ status: 1, signal: null });
      return stderr;
    };
    truncateSync(file, bytes.length / 2);
    expect(await refusal()).toContain('statistics.mdb is truncated');
    truncateSync(file, 0);
    expect(await refusal()).toContain('statistics.mdb is empty, but it held the statistics');
    rmSync(file);
    expect(await refusal()).toContain('repair --data');
    writeFileSync(file, bytes);
    const identity = join(sandbox.data, 'identity.mdb');
    renameSync(identity, sandbox.path('identity.mdb'));
    expect(await refusal()).toContain('Restore identity.mdb and master.key from the backup');
    renameSync(sandbox.path('identity.mdb'), identity);
    // LMDB would create an empty table with the right name.
    const whole = readFileSync(identity);
    const renamed = Buffer.from(whole.toString('latin1').replaceAll('mirror', 'mirrox'), 'latin1');
    writeFileSync(identity, renamed);
    expect(await refusal()).toMatch(/identity\.mdb is damaged: page .* unknown table\. Run 'wafstat verify'/);
    expect((await sandbox.run(['verify', '--data', sandbox.data])).stdout).toContain('unknown table');
    expect((await sandbox.run(['repair', '--data', sandbox.data])).stdout).toContain(
      'restore the file from a backup',
    );
    expect(readFileSync(identity).equals(renamed)).toBe(true);
    writeFileSync(identity, whole);
    expect(await sandbox.runJson('source', 'list', '--project', project)).toHaveLength(1);
  });

  test('starts with empty statistics after repair --accept-statistics', async () => {
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T, host: 'a.example' }], ...KEEP_ALL);
    rmSync(join(sandbox.data, 'statistics.mdb'));
    expect((await sandbox.run(['source', 'list', '--data', sandbox.data, '--project', project])).status).toBe(
      1,
    );
    expect((await sandbox.run(['repair', '--data', sandbox.data, '--accept-statistics'])).status).toBe(0);
    expect(await sandbox.runJson('source', 'list', '--project', project)).toEqual([]);
  });
});

describe('a backup', () => {
  test('made during an ingest is consistent, private, and can be served', async () => {
    const { project_id: project, ...installation } = await sandbox.init();
    const random = new Random(SEED);
    // Few events of many bytes: each chunk of a megabyte is a commit that a backup may meet.
    const events = someEvents(random, 20_000).map((event) => ({ ...event, padding: 'x'.repeat(400) }));
    const log = sandbox.write('events.ndjson', ndjson(events));
    await sandbox.ingest(project, [{ time: T, host: 'host0.example' }], ...KEEP_ALL);
    const ingest = sandbox.start([
      'ingest',
      '--data',
      sandbox.data,
      '--project',
      project,
      '--format',
      'events',
      ...KEEP_ALL,
      log,
    ]);
    const backups: string[] = [];
    do {
      const to = sandbox.path(`backup-${backups.length}`);
      const { status, stderr } = await sandbox.run(['backup', '--data', sandbox.data, '--to', to]);
      expect(status, stderr).toBe(0);
      backups.push(to);
    } while (!ingest.hasEnded);
    expect((await ingest.ended).status).toBe(0);
    for (const backup of backups) {
      expect(readdirSync(backup).sort()).toEqual([
        'audit.log',
        'identity.mdb',
        'master.key',
        'statistics.mdb',
      ]);
      const modes = [backup, ...readdirSync(backup).map((name) => join(backup, name))].map(
        (path) => statSync(path).mode & 0o777,
      );
      expect(modes).toEqual([0o700, 0o600, 0o600, 0o600, 0o600]);
    }
    // Every request is an attack: a torn copy would have more of one.
    const last = backups.at(-1) ?? '';
    const keepAttacks = [...KEEP_ALL, '--details-retention', '3653d'];
    const server = sandbox.start(['serve', '--data', last, '--listen', '127.0.0.1:0', ...keepAttacks]);
    const line = await server.line('wafstat listens on ');
    const api = await login(line.slice('wafstat listens on '.length), {
      ...installation,
      project_id: project,
    });
    const { attacks } = await api.timeline(`from=${T - HOUR_MS}&to=${T + 200 * HOUR_MS}`);
    const counted = attacks.reduce((sum: number, { num }: { num: number }) => sum + num, 0);
    const types = await api.distribution(`from=${T - HOUR_MS}&to=${T + 200 * HOUR_MS}`);
    expect(Object.values(types).reduce((sum, num) => sum + num, 0)).toBe(counted);
    const list = await api.getJson(`waf/event?from=${T - HOUR_MS}&to=${T + 200 * HOUR_MS}`);
    expect(list).toMatchObject({ attacks: counted, complete: true });
  });

  test('is served without the ETags that the original had for other counts', async () => {
    const { project_id: project, ...installation } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T, attack: 'xss' }], ...KEEP_ALL);
    await sandbox.runJson('backup', '--to', sandbox.path('copy'));
    const serve = async (data: string) => {
      const server = sandbox.start(['serve', '--data', data, '--listen', '127.0.0.1:0', ...KEEP_ALL]);
      const address = (await server.line('wafstat listens on ')).slice('wafstat listens on '.length);
      const { token } = await login(address, { ...installation, project_id: project });
      const url = `${address}/v1/${project}/waf/event/attack/type?from=${T}&to=${T + HOUR_MS}`;
      const get = (known = '') => fetch(url, { headers: { 'X-Auth-Token': token, 'If-None-Match': known } });
      const push = (event: object) =>
        fetch(`${address}/ingest/v1/${project}`, {
          method: 'POST',
          headers: { 'X-Auth-Token': token },
          body: JSON.stringify({ time: T, ...event }),
        });
      return { get, push };
    };
    const [original, copy] = [await serve(sandbox.data), await serve(sandbox.path('copy'))];
    const first = (await original.get()).headers.get('etag') ?? '';
    expect((await copy.get(first)).status).toBe(304);
    expect((await original.push({ attack: 'xss', count: 100 })).status).toBe(200);
    const etag = (await original.get()).headers.get('etag') ?? '';
    expect((await original.get(etag)).status).toBe(304);
    expect((await copy.push({ attack: 'sqli', count: 7 })).status).toBe(200);
    const response = await copy.get(etag);
    expect([response.status, await response.json()]).toEqual([200, expect.objectContaining({ sqli: 7 })]);
  });

  test('needs an empty target, and leaves nothing behind when it fails', async () => {
    await sandbox.init();
    mkdirSync(sandbox.path('full'));
    writeFileSync(sandbox.path('full/x'), '');
    const { status, stderr } = await sandbox.run([
      'backup',
      '--data',
      sandbox.data,
      '--to',
      sandbox.path('full'),
    ]);
    expect(status).toBe(1);
    expect(stderr).toContain('is not empty');
    // Three pages: most of the rest is reserved space and may be missing.
    truncateSync(join(sandbox.data, 'identity.mdb'), 3 * 4_096);
    const args = ['backup', '--data', sandbox.data, '--to', sandbox.path('none')];
    expect((await sandbox.start(args).end()).status).toBe(1);
    expect(readdirSync(sandbox.directory).filter((name) => name.startsWith('none'))).toEqual([]);
  });
});

describe('compact', () => {
  test('shrinks the file, refuses while a server runs, and changes no count', async () => {
    const { project_id: project } = await sandbox.init();
    const random = new Random(SEED);
    for (let i = 0; i < 5; i++) await sandbox.ingest(project, someEvents(random, 2_000), ...KEEP_ALL);
    const before = await sandbox.runJson('source', 'list', '--project', project);
    const server = await sandbox.serve(KEEP_ALL);
    const refused = await sandbox.run(['compact', '--data', sandbox.data]);
    expect(refused.status).toBe(1);
    expect(refused.stderr).toContain('is in use: stop the server');
    server.process.signal('SIGTERM');
    await server.process.end();
    const { bytes_before, bytes_after } = await sandbox.runJson<{
      bytes_before: number;
      bytes_after: number;
    }>('compact');
    expect(bytes_after).toBeLessThan(bytes_before);
    expect(await sandbox.runJson('source', 'list', '--project', project)).toEqual(before);
    expect((await sandbox.run(['verify', '--data', sandbox.data])).status).toBe(0);
    expect(unfinished()).toEqual([]);
  });

  test('refuses a file of another storage version, as the service does, and changes nothing', async () => {
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T, host: 'a.example' }], ...KEEP_ALL);
    const file = join(sandbox.data, 'statistics.mdb');
    for (const version of [6, 8]) {
      const opened = open({ path: file, noSubdir: true, maxDbs: 16, overlappingSync: false });
      opened.openDB('meta', { encoding: 'json' }).putSync('version', version);
      await opened.close();
      const bytes = readFileSync(file);
      const refused = await sandbox.run(['compact', '--data', sandbox.data]);
      expect(refused.status).toBe(1);
      expect(refused.stderr).toContain(
        `${file} has storage version ${version}, but this release reads version 7`,
      );
      const served = await sandbox.run(['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0']);
      expect(served.stderr).toBe(refused.stderr);
      expect(readFileSync(file).equals(bytes)).toBe(true);
      expect(unfinished()).toEqual([]);
    }
  });

  test('loses no event of an ingest that is opening the file, and may run twice at the same time', async () => {
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T }], ...KEEP_ALL);
    const options = ['--data', sandbox.data, '--project', project, '--format', 'events', ...KEEP_ALL];
    const counted = async () =>
      (await sandbox.runJson<{ events: number }[]>('source', 'list', '--project', project)).map(
        ({ events }) => events,
      );
    const ends = { compacted: 0, refused: 0 };
    let rounds = 0;
    while (rounds < ROUNDS_MIN || (ends.compacted === 0 && rounds < ROUNDS_MAX)) {
      const round = ++rounds;
      // Creates the lock file, which the last compact may have removed.
      await counted();
      const log = sandbox.write(`${round}.ndjson`, ndjson([{ time: T + round }, { time: T }]));
      const ingest = await startAndStop(['ingest', ...options, log]);
      const compacts = [1, 2].slice(round % 2).map(() => sandbox.start(['compact', '--data', sandbox.data]));
      // Every third one continues while the file is compacted.
      if (round % 3 === 0) ingest.signal('SIGCONT');
      for (const compact of compacts) {
        const { status, stderr } = await compact.end();
        ends[status === 0 ? 'compacted' : 'refused']++;
        expect([status, stderr]).toEqual(
          status === 0
            ? [0, '']
            : [1, expect.stringMatching(/statistics\.mdb (is in use|or its lock file was deleted)/)],
        );
      }
      ingest.signal('SIGCONT');
      const { status, stdout, stderr } = await ingest.end();
      expect([status, stdout], stderr).toEqual([0, expect.stringMatching(/accepted +2\n/)]);
    }
    expect(await counted(), JSON.stringify(ends)).toEqual([1 + 2 * rounds]);
    // Both happen, depending on where the ingest was stopped.
    expect(ends.compacted).toBeGreaterThan(0);
    expect((await sandbox.run(['verify', '--data', sandbox.data])).status).toBe(0);
    expect(unfinished()).toEqual([]);
  });

  /** Stops it after it has opened the lock file, and before LMDB opens the data file: LMDB locks the first byte in between. */
  async function startAndStop(args: readonly string[]): Promise<Process> {
    const lock = join(sandbox.data, 'statistics.mdb-lock');
    const holder = sandbox.start([], { program: ['perl', '-MFcntl=:DEFAULT,:seek', '-e', HOLD, lock] });
    await holder.line('locked');
    const started = sandbox.start(args);
    const files = `/proc/${started.pid}/fd`;
    const hasOpen = () => readdirSync(files).some((fd) => readlinkSync(join(files, fd)) === lock);
    await eventually(() => ignoreErrors(hasOpen) || undefined, 'the lock file to be opened');
    started.signal('SIGSTOP');
    await holder.kill();
    return started;
  }

  const unfinished = () => readdirSync(sandbox.data).filter((name) => name.includes('unfinished'));
});

/** Files that are closed while they are listed. */
function ignoreErrors<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch {
    return undefined;
  }
}

test('files are readable by their owner only; wrong modes are corrected and logged', async () => {
  const { project_id: project } = await sandbox.init();
  await sandbox.ingest(project, [{ time: T, host: 'a.example' }], ...KEEP_ALL);
  const modes = () =>
    readdirSync(sandbox.data).map((name) => statSync(join(sandbox.data, name)).mode & 0o777);
  expect(new Set(modes())).toEqual(new Set([0o600]));
  for (const name of readdirSync(sandbox.data)) chmodSync(join(sandbox.data, name), 0o644);
  chmodSync(sandbox.data, 0o755);
  const server = await sandbox.serve(KEEP_ALL);
  expect(new Set(modes())).toEqual(new Set([0o600]));
  expect(statSync(sandbox.data).mode & 0o777).toBe(0o700);
  await eventually(
    async () => server.process.stderr.includes('statistics.mdb from 644 to 600') || undefined,
    'the line in the log',
  );
  expect(existsSync(join(sandbox.data, 'statistics.mdb'))).toBe(true);
});

describe('a directory of other programs', () => {
  const commands = (data: string) => [
    ['serve', '--data', data, '--listen', '127.0.0.1:0'],
    ['init', '--data', data],
    // Not on its usual port, which another test may use: it would say so.
    ['demo', '--data', data, '--listen', '127.0.0.1:0'],
    ['serve', '--data', data, '--listen', '127.0.0.1:0', '--check'],
  ];

  test('is refused, and nothing in it changes', async () => {
    const logs = sandbox.path('logs');
    mkdirSync(logs);
    chmodSync(logs, 0o755);
    // Other programs have files with names like these, too.
    for (const name of ['master.key', 'access.log', 'audit']) writeFileSync(join(logs, name), '');
    for (const command of commands(logs)) {
      const { status, stdout, stderr } = await sandbox.start(command).end();
      expect([command, status, stdout, stderr]).toEqual([
        command,
        1,
        '',
        `wafstat: ${logs} is not empty, and not a wafstat data directory: it contains access.log. ` +
          `Use a new or empty directory, such as ${join(logs, 'wafstat')}\n`,
      ]);
    }
    expect(readdirSync(logs).sort()).toEqual(['access.log', 'audit', 'master.key']);
    expect(statSync(logs).mode & 0o777).toBe(0o755);
    expect((await sandbox.run(['init', '--data', join(logs, 'wafstat')])).status).toBe(0);
    expect(statSync(join(logs, 'wafstat')).mode & 0o777).toBe(0o700);
    expect(statSync(logs).mode & 0o777).toBe(0o755);
  });

  test('is refused for the statistics of a server with Keystone', async () => {
    writeFileSync(sandbox.path('access.log'), '');
    const server = sandbox.start(
      [
        'serve',
        '--data',
        sandbox.directory,
        '--listen',
        '127.0.0.1:0',
        '--identity-url',
        'http://127.0.0.1:1',
      ],
      { env: { WAFSTAT_IDENTITY_USER: 'wafstat', WAFSTAT_IDENTITY_PASSWORD: 'secret' } },
    );
    const { status, stderr } = await server.end();
    expect([status, stderr]).toEqual([
      1,
      expect.stringContaining('it contains access.log. Use a new or empty'),
    ]);
    expect(readdirSync(sandbox.directory)).toEqual(['access.log']);
  });
});

test('a new volume, files that settings name, and leftovers of wafstat are no reason to refuse', async () => {
  const { data } = sandbox;
  mkdirSync(join(data, 'lost+found'), { recursive: true });
  mkdirSync(join(data, 'secrets'));
  for (const name of [
    '.bash_history',
    'identity.mdb.unfinished',
    'audit.log',
    'statistics.mdb.old',
    'rules.json',
  ])
    writeFileSync(join(data, name), '');
  const passwordFile = join(data, 'secrets', 'first');
  const settings = ['--initial-password-file', passwordFile];
  const check = ['serve', '--data', data, '--listen', '127.0.0.1:0', '--check', ...settings];
  expect(await sandbox.run(check)).toMatchObject({ status: 0, stderr: '' });
  await sandbox.serve(settings);
  expect(readFileSync(passwordFile, 'utf8')).not.toBe('');
  expect(statSync(data).mode & 0o777).toBe(0o700);
});

test('of several processes that create an installation at the same time, exactly one succeeds', async () => {
  const created = await Promise.all(
    Array.from({ length: 3 }, () => sandbox.start(['init', '--data', sandbox.data, '--json']).end()),
  );
  const [one, ...others] = created.toSorted((a, b) => Number(a.status) - Number(b.status));
  expect(others.map(({ status, stderr }) => [status, stderr])).toEqual(
    Array(2).fill([1, expect.stringContaining('is already a wafstat data directory')]),
  );
  const users = await sandbox.runJson<{ id: string }[]>('user', 'list');
  expect(users.map(({ id }) => id)).toEqual([JSON.parse(one?.stdout ?? '').user_id]);
  expect(readdirSync(sandbox.data).filter((name) => /unfinished|key\./.test(name))).toEqual([]);
});

test('a directory that cannot be created is an error, also in /proc', async () => {
  const server = sandbox.start(['serve', '--data', '/proc/wafstat/data', '--listen', '127.0.0.1:0']);
  expect(await server.end()).toMatchObject({
    status: 1,
    stderr: 'wafstat: cannot create /proc/wafstat: use another path\n',
  });
});

test('commands without permission for the data directory name the permission', async () => {
  await sandbox.init();
  chmodSync(sandbox.data, 0o000);
  // Permissions do not apply to root.
  const user = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  const commands = [
    ['audit'],
    ['backup', '--to', sandbox.path('backup')],
    ['compact'],
    ['horizon'],
    ['init'],
    ['repair'],
    ['serve', '--listen', '127.0.0.1:0'],
    ['user', 'list'],
    ['verify'],
  ];
  for (const command of commands) {
    const args = [PROGRAM, ...command, '--data', sandbox.data];
    const { status, stderr } = spawnSync(process.execPath, args, { ...user, encoding: 'utf8' });
    expect([command, status, stderr]).toEqual([
      command,
      1,
      expect.stringMatching(
        /^wafstat: permission denied for .*\/data\b.*: use another path, or run this command as a user with access, .*\n$/,
      ),
    ]);
  }
  chmodSync(sandbox.data, 0o700);
});

test('a log without permission to read it is reported as such', () => {
  const log = sandbox.write('secret.log', '');
  chmodSync(log, 0o000);
  const user = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  const { status, stderr } = spawnSync(process.execPath, [PROGRAM, 'explain', log], {
    ...user,
    encoding: 'utf8',
  });
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: `wafstat: cannot read ${log}: permission denied\n`,
  });
});

function someEvents(random: Random, count: number): object[] {
  return Array.from({ length: count }, () => ({
    time: T + random.integer(0, 72 * HOUR_MS),
    host: `host${random.integer(0, 4)}.example`,
    attack: random.chance(0.5) ? 'sqli' : 'xss',
  }));
}

/** Whether the byte belongs to a key or a value, not to the tree around them (docs/storage.md). */
function isInRecord(bytes: Buffer, offset: number): boolean {
  const page = bytes.subarray(Math.floor(offset / 4_096) * 4_096).subarray(0, 4_096);
  const isLeaf = (page.readUInt16LE(18) & 0xff) === 2 && offset >= 8_192;
  const count = isLeaf ? page.readUInt16LE(20) / 2 : 0;
  return Array.from({ length: count }, (_, i) => 24 + page.readUInt16LE(24 + 2 * i)).some((node) => {
    const keyAt = node + 8;
    const end = keyAt + page.readUInt16LE(node + 6) + page.readUInt32LE(node);
    return page.readUInt16LE(node + 4) === 0 && offset % 4_096 >= keyAt && offset % 4_096 < end;
  });
}

describe('a file that is deleted or replaced while it is in use', () => {
  test.each(['statistics.mdb', 'statistics.mdb-lock', 'identity.mdb'])(
    '%s: the log says so without a request, changes are refused, and the service is not ready',
    async (name) => {
      const { server, api } = await sandbox.service(...KEEP_ALL);
      const push = () =>
        fetch(`${server.address}/ingest/v1/${api.project}`, {
          method: 'POST',
          headers: { 'X-Auth-Token': api.token },
          body: JSON.stringify({ time: T }),
        });
      expect((await push()).status).toBe(200);
      rmSync(join(sandbox.data, name));
      const message = `${join(sandbox.data, name.replace('-lock', ''))} or its lock file was deleted or replaced`;
      await eventually(() => server.process.stderr.includes(message) || undefined, 'the reason in the log');
      expect((await fetch(`${server.address}/readyz`)).status).toBe(503);
      const changed =
        name === 'identity.mdb'
          ? await fetch(`${server.address}/v3/auth/tokens`, {
              method: 'DELETE',
              headers: { 'X-Auth-Token': api.token, 'X-Subject-Token': api.token },
            })
          : await push();
      expect(changed.status).toBe(503);
      expect(await changed.text()).toContain('a file of the data directory was deleted or replaced');
    },
  );

  test('an ingest that runs ends with status 1; another one does not start beside it without its lock file', async () => {
    const { project_id: project } = await sandbox.init();
    await sandbox.ingest(project, [{ time: T }], ...KEEP_ALL);
    const options = ['--data', sandbox.data, '--project', project, '--format', 'events', ...KEEP_ALL];
    const stdin = new PassThrough();
    const first = sandbox.start(['ingest', ...options, '-'], { stdin });
    stdin.write(ndjson([{ time: T + 1 }]));
    const events = async () =>
      (await sandbox.runJson<{ events: number }[]>('source', 'list', '--project', project))[0]?.events;
    await eventually(async () => (await events()) === 2 || undefined, 'the first line to be counted');
    rmSync(join(sandbox.data, 'statistics.mdb-lock'));
    const log = sandbox.write('second.ndjson', ndjson([{ time: T + 2 }]));
    const second = await sandbox.start(['ingest', ...options, log]).end();
    expect(second).toMatchObject({ status: 1, signal: null });
    expect(second.stderr).toContain(`its lock file was deleted while process ${first.pid} has`);
    stdin.end(ndjson([{ time: T + 3 }]));
    const ended = await first.end();
    expect(ended).toMatchObject({ status: 1, signal: null });
    expect(ended.stderr).toContain('was deleted or replaced while this process had it open');
    expect(await events()).toBe(2);
    expect((await sandbox.run(['verify', '--data', sandbox.data])).status).toBe(0);
  });
});
