/** `wafstat follow`: live writers, rotation, kills. */
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { getPriority } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { type Api, login, sum } from './api.ts';
import { eventually, type Process } from './process.ts';
import { Random, scaled } from './random.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const START = Date.now() - 3_600_000;
const RANGE = `from=${START}&to=${START + 1_000_000}`;

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
/** Each test has its own project, log directory and processes. */
let api: Api;
let log: string;
let written: number;
let projects = 0;
const running: Process[] = [];

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
});

beforeEach(async () => {
  const name = `project-${++projects}`;
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', name);
  api = await login(server.address, { ...installation, project_id: id });
  mkdirSync(sandbox.path(name));
  log = join(sandbox.path(name), 'access.log');
  written = 0;
});

afterEach(() => Promise.all(running.splice(0).map((process) => process.kill())));

afterAll(() => sandbox.clear());

function follow(path = log): Process {
  const process = sandbox.start(['follow', '--data', sandbox.data, '--project', api.project, path]);
  running.push(process);
  return process;
}

/** Lines that all differ; every third one is an attack. */
function lines(count: number, padding = ''): string {
  let text = '';
  for (let i = 0; i < count; i++) {
    const attack = written % 3 === 0 ? ',"attack":"sqli"' : '';
    text += `{"time":${START + (written % 1_000_000)},"host":"h${written % 5}.example.com","line":${written}${attack}${padding}}\n`;
    written++;
  }
  return text;
}

async function requests(): Promise<number> {
  return sum((await api.timeline(RANGE)).requests);
}

async function expectAllCounted(): Promise<void> {
  await eventually(async () => ((await requests()) >= written ? true : undefined), `${written} requests`);
  const timeline = await api.timeline(RANGE);
  expect(sum(timeline.requests)).toBe(written);
  expect(sum(timeline.attacks)).toBe(Math.ceil(written / 3));
  expect(sum(await api.distribution(RANGE))).toBe(Math.ceil(written / 3));
}

test('each new line is counted without waiting for the next one', async () => {
  const following = follow();
  writeFileSync(log, lines(1));
  await expectAllCounted();
  for (let i = 0; i < 5; i++) {
    appendFileSync(log, lines(1));
    await expectAllCounted();
  }
  following.signal('SIGTERM');
  expect((await following.end()).status).toBe(0);
});

test('kill -9 at random moments: every line counts once', async () => {
  const random = new Random(1);
  writeFileSync(log, '');
  for (let i = 0; i < scaled(5); i++) {
    const following = follow();
    const until = performance.now() + 200 + random.next() * 500;
    while (performance.now() < until) {
      const text = lines(random.integer(1, 2_000));
      // A writer's buffer may end in the middle of a line.
      const cut = random.integer(0, text.length);
      appendFileSync(log, text.slice(0, cut));
      await sleep(random.next() * 20);
      appendFileSync(log, text.slice(cut));
    }
    await following.kill();
  }
  const last = follow();
  await expectAllCounted();
  await last.kill();
});

test('rotation by rename and by copytruncate under load loses nothing', async () => {
  const random = new Random(2);
  const following = follow();
  writeFileSync(log, lines(1));
  await expectAllCounted();
  for (let rotation = 1; rotation <= 6; rotation++) {
    for (let i = 0; i < 20; i++) {
      appendFileSync(log, lines(random.integer(1, 300)));
      await sleep(random.next() * 20);
    }
    if (rotation % 2 === 1) {
      renameSync(log, `${log}.${rotation}`);
      // The web server keeps writing to the renamed file until it reopens its log.
      appendFileSync(`${log}.${rotation}`, lines(50));
      writeFileSync(log, '');
      appendFileSync(`${log}.${rotation}`, lines(50));
    } else {
      copyFileSync(log, `${log}.${rotation}`);
      truncateSync(log);
    }
  }
  appendFileSync(log, lines(10));
  await expectAllCounted();
  await following.kill();
});

test('lines before and after a rotation between two runs are counted', async () => {
  writeFileSync(log, lines(1_000));
  const first = follow();
  await expectAllCounted();
  await first.kill();
  appendFileSync(log, lines(500));
  renameSync(log, `${log}.1`);
  writeFileSync(log, lines(300));
  const second = follow();
  await expectAllCounted();
  await second.kill();
});

test('files written and rotated between two runs are counted', async () => {
  writeFileSync(log, lines(100));
  const first = follow();
  await expectAllCounted();
  await first.kill();
  rotate('rename');
  writeFileSync(log, lines(1_000));
  rotate('rename');
  writeFileSync(log, lines(60));
  const second = follow();
  await expectAllCounted();
  await second.kill();
});

test('kill -9 while a rotated file is being read: the next run reads the rest', async () => {
  writeFileSync(log, lines(1));
  const first = follow();
  await expectAllCounted();
  await first.kill();
  // Few lines of many bytes: each chunk of a megabyte is a commit, after which the process can be killed.
  appendFileSync(log, lines(40_000, `,"padding":"${'x'.repeat(1_000)}"`));
  rotate('rename');
  writeFileSync(log, lines(150));
  rotate('rename');
  writeFileSync(log, lines(7));
  // Rotated an hour ago: no longer written to.
  const hourAgo = Date.now() / 1_000 - 3_600;
  for (const [i, file] of ['.2', '.1'].entries()) utimesSync(`${log}${file}`, hourAgo + i, hourAgo + i);
  let kills = 0;
  for (let before = await requests(); kills < 3 && before < written; before = await requests()) {
    const following = follow();
    await eventually(async () => ((await requests()) > before ? true : undefined), 'some progress');
    await following.kill();
    if ((await requests()) < written) kills++;
  }
  expect(kills).toBeGreaterThan(0);
  const last = follow();
  await expectAllCounted();
  await last.kill();
});

const ROTATIONS = ['rename', 'copytruncate', 'compress', 'dateext'] as const;

test.each(ROTATIONS)(
  'kill -9 and rotation (%s) under a live writer: every line counts once',
  async (kind) => {
    const random = new Random(3);
    writeFileSync(log, lines(1));
    const first = follow();
    await expectAllCounted();
    await first.kill();
    for (let i = 0; i < scaled(4); i++) {
      const before = await requests();
      appendFileSync(log, lines(random.integer(1, 500)));
      const following = follow();
      // Mostly kill it after it has counted something, sometimes earlier.
      if (random.chance(0.8))
        await eventually(async () => ((await requests()) > before ? true : undefined), 'some progress');
      for (let steps = random.integer(1, 12); steps > 0; steps--) {
        const text = lines(random.integer(1, 2_000));
        const cut = random.integer(0, text.length);
        appendFileSync(log, text.slice(0, cut));
        await sleep(random.next() * 40);
        appendFileSync(log, text.slice(cut));
        if (random.chance(0.15)) rotate(random.chance(0.8) ? kind : random.pick(ROTATIONS));
      }
      await following.kill();
      // Sometimes several rotations pass before the next run.
      for (let away = random.integer(0, 2); away > 0; away--) {
        appendFileSync(log, lines(random.integer(1, 500)));
        rotate(kind);
      }
    }
    const last = follow();
    await expectAllCounted();
    await last.kill();
  },
);

test.runIf(process.platform === 'linux')('queries go first: every thread has a low priority', async () => {
  writeFileSync(log, lines(100));
  const { pid } = follow();
  await expectAllCounted();
  const threads = readdirSync(`/proc/${pid}/task`).map(Number);
  expect(threads.length).toBeGreaterThan(1);
  for (const thread of threads) expect(getPriority(thread)).toBeGreaterThanOrEqual(10);
});

test('the first record without a host is reported once', async () => {
  const following = follow();
  for (let line = 0; line < 3; line++) {
    appendFileSync(log, `{"time":${START + line}}\n`);
    await eventually(async () => (await requests()) === line + 1 || undefined, `${line + 1} requests`);
  }
  const sentence = `${log}: records have no host, so they count in the project's total only. Name the host in the log`;
  await eventually(() => following.stderr.includes(sentence) || undefined, 'a warning');
  const { stderr } = await following.kill();
  expect(stderr.split(sentence)).toHaveLength(2);
});

test('files older than the first run are skipped, with a warning that names their size', async () => {
  writeFileSync(`${log}.1`, 'x'.repeat(3_000));
  writeFileSync(log, lines(10));
  const first = follow();
  await expectAllCounted();
  const { stderr } = await first.kill();
  expect(stderr).toContain(`${log}.1 (3.0 kB) is skipped: it is older than the first follow of ${log}`);
  expect(stderr).toContain(`wafstat ingest ${log}.1`);
  const second = follow();
  appendFileSync(log, lines(1));
  await expectAllCounted();
  expect((await second.kill()).stderr).not.toContain('is skipped');
});

test('a directory is refused, with what to do instead', async () => {
  mkdirSync(log);
  const following = follow(`${log}/`);
  const { status, stderr } = await following.end();
  expect(status).toBe(1);
  expect(stderr).toContain(
    `wafstat: ${log}/ is a directory: follow its logs with a pattern like '${log}/*.log'`,
  );
});

test('a file that cannot be read is reported once, and when it can be read again', async () => {
  const following = follow();
  await eventually(() => following.stderr.includes('waiting for it') || undefined, 'a warning');
  // A directory, because root may read every file.
  mkdirSync(log);
  const problem = `wafstat: ${log} is a directory, not a file; retrying\n`;
  await eventually(() => following.stderr.includes(problem) || undefined, 'a warning');
  // Longer than the pause before another try.
  await sleep(3_000);
  rmSync(log, { recursive: true });
  const missing = `wafstat: ${log} does not exist: waiting for it\n`;
  await eventually(() => following.stderr.includes(missing) || undefined, 'a warning');
  expect(following.stderr).not.toContain('reading continues');
  writeFileSync(log, lines(3));
  await expectAllCounted();
  await eventually(
    () => following.stderr.includes(`wafstat: ${log}: reading continues\n`) || undefined,
    'a line',
  );
  const { stderr } = await following.kill();
  for (const message of [problem, missing]) expect(stderr.split(message)).toHaveLength(2);
});

test('a pattern follows logs that appear later, and counts rotated files once', async () => {
  const directory = dirname(log);
  const following = follow(`${directory}/*.log*`);
  const waiting = `wafstat: ${directory}/*.log* matches no log yet: waiting for one\n`;
  await eventually(() => following.stderr.includes(waiting) || undefined, 'a warning');
  writeFileSync(log, lines(3));
  await expectAllCounted();
  writeFileSync(join(directory, 'other.log'), lines(4));
  await expectAllCounted();
  renameSync(log, `${log}.1`);
  appendFileSync(`${log}.1`, lines(2));
  writeFileSync(log, lines(5));
  await expectAllCounted();
  appendFileSync(join(directory, 'other.log'), lines(1));
  await expectAllCounted();
  following.signal('SIGTERM');
  const { stdout } = await following.end();
  expect(stdout).toMatch(/^accepted +15$/m);
});

test('a pattern follows many logs beside a link to itself, also after a restart', async () => {
  const directory = dirname(log);
  const logs = Array.from({ length: 40 }, (_, i) => join(directory, `${i}.log`));
  const writeAll = () => {
    for (const path of logs) appendFileSync(path, lines(2));
  };
  symlinkSync('loop.log', join(directory, 'loop.log'));
  writeAll();
  for (let run = 0; run < 2; run++) {
    const following = follow(`${directory}/*.log`);
    await expectAllCounted();
    writeAll();
    await expectAllCounted();
    appendFileSync(log, lines(3));
    await expectAllCounted();
    following.signal('SIGTERM');
    expect(await following.end()).toMatchObject({
      status: 0,
      stderr: `wafstat follows ${directory}/*.log\n`,
    });
  }
});

test('a log in UTF-16 is not followed, with the remedy', async () => {
  writeFileSync(log, Buffer.from(`\ufeff${lines(2)}`, 'utf16le'));
  const following = follow();
  const warning = `wafstat: ${log} is text in UTF-16: use 'wafstat ingest ... ${log}'; waiting for another file\n`;
  await eventually(() => following.stderr.includes(warning) || undefined, 'a warning');
  expect(await requests()).toBe(0);
});

test('compressed files and archives are skipped with the remedy', async () => {
  const xz = Buffer.concat([Buffer.from('fd377a585a000004', 'hex'), Buffer.from(lines(5))]);
  written = 0;
  writeFileSync(log, xz);
  const following = follow();
  const liveWarning = `wafstat: ${log} is compressed with xz: use 'wafstat ingest ... ${log}'; waiting for another file\n`;
  await eventually(() => following.stderr.includes(liveWarning) || undefined, 'a warning');

  renameSync(log, `${log}.1`);
  writeFileSync(log, lines(3));
  await expectAllCounted();
  const warning =
    `${log}.1 (${xz.length} bytes) is skipped: it is compressed with xz. ` +
    `To count it, run 'wafstat ingest ... ${log}.1' with the same --project and --source`;
  await eventually(() => following.stderr.includes(warning) || undefined, 'a warning');
  const { stderr } = await following.kill();
  expect(stderr.split(liveWarning)).toHaveLength(2);
  expect(stderr.split(warning)).toHaveLength(2);
  expect(await api.getJson('connections')).toMatchObject({ items: [{ events: 3, dropped: {} }] });
});

/** What logrotate does. */
function rotate(kind: (typeof ROTATIONS)[number]): void {
  if (kind === 'dateext') {
    let day = 20260701;
    while (existsSync(`${log}-${day}`)) day++;
    renameSync(log, `${log}-${day}`);
  } else {
    const names = readdirSync(dirname(log));
    const numberOf = (name: string) => Number(/\.log\.(\d+)/.exec(name)?.[1] ?? 0);
    const numbered = names.filter((name) => name.startsWith(`${basename(log)}.`));
    for (const name of numbered.sort((a, b) => numberOf(b) - numberOf(a))) {
      const moved = `${log}.${numberOf(name) + 1}`;
      if (name.endsWith('.gz')) renameSync(`${log}.${numberOf(name)}.gz`, `${moved}.gz`);
      else renameSync(`${log}.${numberOf(name)}`, moved);
    }
    if (kind === 'copytruncate') {
      copyFileSync(log, `${log}.1`);
      truncateSync(log);
      return;
    }
    renameSync(log, `${log}.1`);
    if (kind === 'compress' && existsSync(`${log}.2`)) compress(`${log}.2`);
  }
  writeFileSync(log, '');
}

function compress(file: string): void {
  const { atime, mtime } = statSync(file);
  writeFileSync(`${file}.gz`, gzipSync(readFileSync(file)));
  utimesSync(`${file}.gz`, atime, mtime);
  rmSync(file);
}
