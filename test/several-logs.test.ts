/** One request in several logs: recorded lines of nginx with ModSecurity, with other times and IDs. */
import { appendFileSync, readFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, type Distribution, login, sum } from './api.ts';
import { eventually, type Process } from './process.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const START = Math.floor(Date.now() / 1_000) * 1_000 - 2 * HOUR_MS;
const RANGE = `from=${START - HOUR_MS}&to=${START + 3 * HOUR_MS}`;

function fixture(name: string): string {
  return readFileSync(new URL(`../packages/server/fixtures/${name}.log`, import.meta.url), 'utf8');
}

/** An SQL injection in each log. The error log has the verdict only, as at the default level of nginx. */
const [AUDIT = ''] = fixture('modsecurity3-json').split('\n');
const [NATIVE = ''] = /^---q7TQEM1u---A--\n[\s\S]*?---Z--\n/.exec(fixture('modsecurity3-native')) ?? [];
const VERDICT = fixture('nginx-error')
  .split('\n')
  .find((line) => line.includes('Access denied') && line.includes('17947092439.491909')) as string;

interface FlaggedAt {
  n: number;
  time: number;
}

const idOf = ({ n, time }: FlaggedAt) => `${time / 1_000}${n % 10}.${100_000 + n}`;
/** `Mon, 16 Nov 2026 23:59:59 GMT`, in parts. */
const parts = ({ time }: FlaggedAt) => new Date(time).toUTCString().replace(',', '').split(' ');

function auditRecord(at: FlaggedAt): string {
  const [weekday, day = '', month, year, clock] = parts(at);
  const local = `${weekday} ${month} ${day.replace(/^0/, ' ')} ${clock} ${year}`;
  return `${AUDIT.replaceAll('17947092439.491909', idOf(at)).replace('Sun Nov 15 02:20:43 2026', local)}\n`;
}

function nativeRecord(at: FlaggedAt): string {
  const [, day, month, year, clock] = parts(at);
  return NATIVE.replaceAll('17947092442.688941', idOf(at))
    .replace('15/Nov/2026:02:20:44', `${day}/${month}/${year}:${clock}`)
    .replaceAll('q7TQEM1u', `q7TQ${1_000 + at.n}`);
}

function errorLine(at: FlaggedAt, line = VERDICT): string {
  const time = new Date(at.time).toISOString().slice(0, 19).replaceAll('-', '/').replace('T', ' ');
  // Every request has its own connection.
  return `${line
    .replaceAll('17947092439.491909', idOf(at))
    .replace('2026/11/15 02:20:43', time)
    .replace('*3 ', `*${100 + at.n} `)}\n`;
}

/** `count` requests, evenly within a time. */
function requestsWithin(spanMs: number, count: number, first = 0): FlaggedAt[] {
  const stepMs = Math.floor(spanMs / count / 1_000) * 1_000;
  return Array.from({ length: count }, (_, i) => ({ n: first + i, time: START + i * stepMs }));
}

const textOf = (requests: readonly FlaggedAt[], line: (at: FlaggedAt) => string) =>
  requests.map((at) => line(at)).join('');

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let api: Api;
let projects = 0;
const running: Process[] = [];

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
});

beforeEach(() => newProject());

afterEach(() => Promise.all(running.splice(0).map((process) => process.kill())));

afterAll(() => sandbox.clear());

async function newProject(): Promise<void> {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  api = await login(server.address, { ...installation, project_id: id });
}

const options = () => ['--data', sandbox.data, '--project', api.project];
const ingest = (files: string[], stdin = '') => sandbox.run(['ingest', ...options(), ...files], { stdin });

function start(command: 'ingest' | 'follow', files: string[], stdin?: PassThrough): Process {
  const process = sandbox.start([command, ...options(), ...files], stdin && { stdin });
  running.push(process);
  return process;
}

async function push(body: string): Promise<void> {
  const headers = { 'X-Auth-Token': api.token };
  const { status } = await call(server.address, `/ingest/v1/${api.project}`, {
    method: 'POST',
    headers,
    body,
  });
  expect(status).toBe(200);
}

/** The attacks by category, without the others. */
async function attacks(): Promise<Distribution> {
  const distribution = await api.distribution(RANGE);
  return Object.fromEntries(Object.entries(distribution).filter(([, n]) => n > 0));
}

async function counted(count: number): Promise<void> {
  await eventually(async () => sum(await attacks()) >= count || undefined, `${count} attacks`);
}

/** Waits until the source has dropped this many records as those of a counted request. */
async function joined(count: number): Promise<void> {
  await eventually(async () => {
    const { items } = await api.getJson<{ items: { dropped: Distribution }[] }>('connections');
    return (items[0]?.dropped.same_request ?? 0) >= count || undefined;
  }, `${count} records of counted requests`);
}

describe('an error log that is read after the audit log of an hour', () => {
  const requests = requestsWithin(HOUR_MS, 60);

  test.each(['ingested', 'pushed'])('and %s counts no request again', async (how) => {
    const [audit, error] = [textOf(requests, auditRecord), textOf(requests, errorLine)];
    if (how === 'pushed') for (const body of [audit, error]) await push(body);
    else
      for (const [name, text] of Object.entries({ audit, error }))
        expect(await ingest([sandbox.write(`${name}-${projects}.log`, text)])).toMatchObject({ status: 0 });
    expect(await attacks()).toEqual({ sqli: requests.length });
    await joined(requests.length);
  });
});

test('one stream with the audit log and then the error log of 29 minutes', async () => {
  const requests = requestsWithin(29 * MINUTE_MS, 29);
  const stdin = textOf(requests, auditRecord) + textOf(requests, errorLine);
  expect(await ingest(['-'], stdin)).toMatchObject({ status: 0, stderr: '' });
  expect(await attacks()).toEqual({ sqli: 29 });
});

test('pushes in both orders count each request once; the first record decides the category', async () => {
  const requests = requestsWithin(20 * MINUTE_MS, 20);
  await push(textOf(requests, errorLine));
  await push(textOf(requests, auditRecord));
  expect(await attacks()).toEqual({ vuln: 20 });
  await newProject();
  for (const at of requests) {
    await push(auditRecord(at));
    await push(errorLine(at));
  }
  expect(await attacks()).toEqual({ sqli: 20 });
});

test('a native audit log with the error log, in any order of one command', async () => {
  const requests = requestsWithin(HOUR_MS, 60);
  const native = sandbox.write('native.log', textOf(requests, nativeRecord));
  const error = sandbox.write('native-error.log', textOf(requests, errorLine));
  for (const files of [
    [native, error],
    [error, native],
  ]) {
    await newProject();
    expect(await ingest(files)).toMatchObject({ status: 0, stderr: '' });
    expect(await attacks()).toEqual({ sqli: 60 });
  }
});

describe('kill -9', () => {
  const requests = requestsWithin(HOUR_MS, 200);

  test('of ingest between the logs, and inside the error log', async () => {
    const audit = sandbox.write('killed-audit.log', textOf(requests, auditRecord));
    const error = sandbox.write('killed-error.log', textOf(requests, errorLine));
    // Error logs are read after standard input, which does not end.
    const between = start('ingest', [audit, '-', error], new PassThrough());
    await counted(200);
    expect(await between.kill()).toMatchObject({ signal: 'SIGKILL' });
    const stdin = new PassThrough();
    const inside = start('ingest', ['-'], stdin);
    stdin.write(textOf(requests.slice(0, 100), errorLine));
    // The last request may have more lines.
    await joined(99);
    expect(await inside.kill()).toMatchObject({ signal: 'SIGKILL' });
    for (const files of [[error], [error, audit]]) expect(await ingest(files)).toMatchObject({ status: 0 });
    expect(await attacks()).toEqual({ sqli: 200 });
  });

  test('of follow while both logs are written', async () => {
    const [audit, error] = [sandbox.write('kill-audit.log', ''), sandbox.write('kill-error.log', '')];
    let follow = start('follow', [error, audit]);
    for (const at of requests) {
      appendFileSync(error, errorLine(at));
      // As in nginx, which logs the request when it ends.
      await sleep(3);
      appendFileSync(audit, auditRecord(at));
      if (at.n % 50 !== 49) continue;
      await counted(at.n - 40);
      await follow.kill();
      follow = start('follow', [error, audit]);
    }
    await joined(200);
    expect(await attacks()).toEqual({ sqli: 200 });
  });
});

describe('follow reads an error log after the other logs', () => {
  const requests = requestsWithin(HOUR_MS, 100);

  /** Writes the verdicts first, as nginx does. */
  async function write(error: string, audit: string): Promise<void> {
    for (const at of requests) {
      appendFileSync(error, errorLine(at));
      await sleep(10);
      appendFileSync(audit, auditRecord(at));
    }
  }

  test.each(['empty', 'missing'])('if the error log is %s at the start', async (state) => {
    const audit = sandbox.write(`${state}-audit.log`, '');
    const error =
      state === 'empty' ? sandbox.write('empty-error.log', '') : sandbox.path('missing-error.log');
    const follow = start('follow', [error, audit]);
    await eventually(() => follow.stderr.includes('wafstat follows') || undefined, 'the start');
    await write(error, audit);
    await joined(100);
    expect(await attacks()).toEqual({ sqli: 100 });
  });

  test('if both match a pattern, and the process is stopped for a while', async () => {
    const [audit, error] = [sandbox.write('stopped-audit.log', ''), sandbox.write('stopped-error.log', '')];
    const follow = start('follow', [sandbox.path('stopped-*.log')]);
    await eventually(() => follow.stderr.includes('wafstat follows') || undefined, 'the start');
    const writing = write(error, audit);
    for (let stops = 0; stops < 3; stops++) {
      await sleep(150);
      follow.signal('SIGSTOP');
      await sleep(500);
      follow.signal('SIGCONT');
    }
    await writing;
    await joined(100);
    expect(await attacks()).toEqual({ sqli: 100 });
  });
});

test('attacks without an ID are reported once if an audit log and an error log are read', async () => {
  const requests = requestsWithin(10 * MINUTE_MS, 10);
  // nginx cuts lines at 2,048 bytes: here, before the ID.
  const cut = VERDICT.replace('[data ""]', `[data "${'A'.repeat(2_048)}`).slice(0, 2_047);
  expect(cut).not.toContain('unique_id');
  const audit = sandbox.write('cut-audit.log', textOf(requests, auditRecord));
  const error = sandbox.write(
    'cut-error.log',
    textOf(requests, (at) => errorLine(at, cut)),
  );
  const warning = /Some attacks in the audit log or the error log have no request ID/g;
  const { status, stderr } = await ingest([audit, error]);
  expect([status, stderr.match(warning)?.length]).toEqual([0, 1]);
  expect(sum(await attacks())).toBe(20);
  await newProject();
  const follow = start('follow', [audit, error]);
  await counted(20);
  appendFileSync(error, errorLine({ n: 10, time: START }, cut));
  await counted(21);
  follow.signal('SIGTERM');
  const ended = await follow.end();
  expect(ended.stderr.match(/^wafstat: Some attacks .* have no request ID/gm)).toHaveLength(1);
});
