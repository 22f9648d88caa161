import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { TuningItem, TuningReport } from '@wafstat/client';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runProgram } from '../program.ts';

const NOW = Date.UTC(2026, 10, 16, 12);

const ITEM: TuningItem = {
  rules: ['942100'],
  host: 'www.example.com',
  path: '/comment',
  variable: 'ARGS:text',
  attacks: 1_204,
  blocked: 0,
  sources: 183,
  days: 6,
  alone: 1_200,
  likely: 'false_positive',
  reasons: ['183 sources on 6 of 7 days, each with this rule only'],
  exclusion: '# why\nSecRule FIRST\n',
  opens_attacks: 0,
  first_seen: NOW - 6 * 86_400_000,
  last_seen: NOW - 1,
};
const DANGEROUS: TuningItem = { ...ITEM, path: '/a\u001b', opens_attacks: 3, exclusion: 'SecRule SECOND\n' };
const UNCLEAR: TuningItem = { ...ITEM, path: '/b', likely: 'unclear', exclusion: 'SecRule THIRD\u0007\n' };

let report: TuningReport;
let server: Server;
let requests: IncomingMessage[];

beforeEach(async () => {
  report = {
    total: 3,
    items: [ITEM, DANGEROUS, UNCLEAR],
    attacks: 5_000,
    kept_attacks: 5_000,
    complete: true,
    left_out: 0,
    blocking: {
      days: [{ day: '2026-11-16', attacks: 1_300, would_block: 1_250, false_positives: 1_200 }],
      would_block: 1_250,
      false_positives: 1_200,
      ready: false,
      text: 'A sentence.',
    },
  };
  requests = [];
  server = createServer((request, response) => {
    requests.push(request);
    response.setHeader('Content-Type', 'application/json').end(JSON.stringify(report));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});

afterEach(() => server.close());

async function tune(...args: string[]) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const printed = Promise.all([text(stdout), text(stderr)]);
  const { port } = server.address() as AddressInfo;
  const place = ['--url', `http://127.0.0.1:${port}`, '--project', 'a'.repeat(32), '--token', 't'];
  const stdin = Readable.from([]).pipe(new PassThrough());
  const stop = new AbortController().signal;
  const io = { stdin, stdout, stderr, env: {}, now: () => NOW, stop };
  const status = await runProgram(['tune', ...place, ...args], io);
  stdout.end();
  stderr.end();
  const [out, err] = await printed;
  return { status, out, err };
}

test('prints a table of the rows, and what would be blocked', async () => {
  const { status, out, err } = await tune();
  expect({ status, err }).toEqual({ status: 0, err: '' });
  expect(out.split('\n')).toEqual([
    '2026-11-09 12:00 to 2026-11-16 12:00 (+00:00): 3 rows',
    expect.stringMatching(/^likely +attacks +blocked +sources +days +alone +rules +variable +where +why$/),
    expect.stringMatching(
      /^false positive +1,204 +0 +183 +6 +1,200 +942100 +ARGS:text +www.example.com\/comment +183 sources on/,
    ),
    expect.stringContaining('www.example.com/a\\u001b'),
    expect.stringMatching(/^unclear /),
    '',
    'A sentence.',
    expect.stringMatching(/^day \(\+00:00\) +attacks +would be blocked +likely false positives$/),
    expect.stringMatching(/^2026-11-16 +1,300 +1,250 +1,200$/),
    '',
    'Exclusions for 1 row: repeat the command with --output modsecurity.',
    '',
  ]);
  const { search, pathname } = new URL(requests[0]?.url ?? '', 'http://localhost');
  expect(pathname).toBe(`/v1/${'a'.repeat(32)}/waf/tuning`);
  expect(search).toBe(
    `?from=${NOW - 7 * 86_400_000}&to=${NOW}&timezone=%2B00%3A00&threshold=5&id_from=10000`,
  );
});

test('prints the exclusions of likely false positives that open no attacks', async () => {
  const { out, err } = await tune('--output', 'modsecurity', '--threshold', '7', '--id-from', '123');
  expect(out).toBe(
    '# 1 exclusion from wafstat. Read each one, then load the file before the rules of CRS.\n' +
      '# IDs of rules must be unique: if you load several such files, give each another range (--id-from).\n' +
      '\n# why\nSecRule FIRST\n',
  );
  expect(err).toBe('wafstat: 1 row would let attacks pass and is left out; --force includes them\n');
  expect(requests[0]?.url).toContain('&threshold=7&id_from=123');
  const forced = await tune('--output', 'modsecurity', '--force');
  expect([forced.out.includes('SECOND'), forced.out.includes('THIRD'), forced.err]).toEqual([
    true,
    false,
    '',
  ]);
  const all = await tune('--output', 'modsecurity', '--all');
  expect([all.out.includes('SECOND'), all.out.includes('THIRD\\u0007\n')]).toEqual([false, true]);
});

test('prints CSV, JSON, and what is missing', async () => {
  report = { ...report, complete: false, kept_attacks: 4_000 };
  const { out, err } = await tune('--output', 'csv');
  expect(out.split('\r\n')[1]).toBe(
    'false_positive,1204,0,183,6,1200,0,2026-11-10T12:00:00.000Z,2026-11-16T11:59:59.999Z,942100,' +
      '"183 sources on 6 of 7 days, each with this rule only",www.example.com,/comment,ARGS:text',
  );
  expect(err).toContain('4,000 of 5,000 attacks of this range are kept');
  expect(JSON.parse((await tune('--output', 'json')).out)).toEqual(report);
});

test('prints the first 20 rows, and all with --all', async () => {
  report.items = Array.from({ length: 30 }, (_, i) => ({ ...ITEM, path: `/${i}` }));
  report.total = 30;
  const rows = ({ out }: { out: string }) =>
    out.split('\n').filter((line) => line.startsWith('false positive')).length;
  const first = await tune();
  expect([rows(first), first.out]).toEqual([20, expect.stringContaining(': 30 rows, the first 20\n')]);
  expect(rows(await tune('--all'))).toBe(30);
});

test('refuses options that have no effect', async () => {
  expect(await tune('--force')).toMatchObject({
    status: 2,
    err: expect.stringContaining('--force requires --output modsecurity'),
  });
  expect(await tune('--threshold', '0')).toMatchObject({ status: 2 });
});
