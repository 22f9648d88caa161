/** Counting access lines from their bytes gives the same result as reading line by line, for any bytes. */
import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { countRecords } from '../event.ts';
import { AccessLines } from './access-lines.ts';
import type { ReadLines } from './batch-reader.ts';
import type { LogRecord } from './formats/format.ts';
import { fixedZone } from './formats/time-zone.ts';
import { countLineEnds, LineBlock, Words } from './lines.ts';
import { PageCounts } from './page-counts.ts';
import { Pipeline } from './pipeline.ts';
import { createReader, type ReaderOptions } from './reader.ts';

const NOW = Date.UTC(2026, 10, 15, 3, 0, 0);
const DAY_MS = 86_400_000;
const FIXTURES = new URL('../../fixtures/', import.meta.url);
const fixture = (name: string) => readFileSync(new URL(name, FIXTURES));
const FIXTURE_NAMES = readdirSync(FIXTURES).filter((name) => name.endsWith('.log'));
const FIXTURE_LINES = FIXTURE_NAMES.flatMap((name) => linesOf(fixture(name)));
const ACCESS_FIXTURES = [
  'nginx-combined.log',
  'nginx-vhost.log',
  'apache-common.log',
  'apache-vhost.log',
  'traefik-clf.log',
];

function linesOf(bytes: Buffer): Buffer[] {
  return bytes.toString('latin1').split('\n').filter(Boolean).map(latin1);
}

function latin1(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

interface Given {
  reader: ReaderOptions;
  retentionMs: number;
  hostsMax: number;
  first: number;
  flush: 'all' | 'aged' | 'nothing';
}

const GIVEN: Given = {
  reader: { format: 'auto' },
  retentionMs: 180 * DAY_MS,
  hostsMax: 100,
  first: 1,
  flush: 'all',
};

/** All results of the lines: as read, and as counted. */
async function resultsOf(bytes: Buffer, given: Given, way: 'by bytes' | 'by lines') {
  const store = memoryStore(() => NOW);
  const pipeline = new Pipeline(store, given, () => NOW);
  const reader = createReader(given.reader);
  const lines =
    way === 'by bytes' ? new LineBlock(bytes, given.first) : [...new LineBlock(bytes, given.first)];
  const read = pipeline.read(lines, reader, given.flush);
  expect(read.lineEnds).toBe(way === 'by bytes' ? countLineEnds(bytes) : 0);
  const asRead = {
    records: sorted(read),
    names: [...read.hosts],
    state: reader.state(),
    pages: pagesOf(read),
  };
  const selected = { project: 'p', edges: [0, NOW - DAY_MS, NOW - 60_000, NOW, NOW + DAY_MS] };
  const counted = await pipeline.count(read, { project: 'p', source: { name: 's', format: 'auto' } });
  return {
    ...asRead,
    // As text, because the order of formats and reasons is visible to the user.
    counted: JSON.stringify(counted),
    hosts: await store.hosts('p'),
    sources: await store.sources('p'),
    series: await store.count({ ...selected, rows: 'timeline' }),
    codes: String(await store.count({ ...selected, rows: 'codes' })),
    bytes: await store.count({ ...selected, rows: 'traffic' }),
  };
}

function pagesOf({ pages }: ReadLines): string[] {
  return pages
    .pages((name) => name)
    .map(({ paths, ...page }) => JSON.stringify([page, [...paths].sort()]))
    .sort();
}

/** One for each line: access lines of one host and second are one record, which has all of their codes and bytes. */
function sorted({ records }: ReadLines): string[] {
  return records
    .flatMap(({ recordCount: n = 1, bytesOut: _, otherCodes: others = [], ...record }) => {
      if (n > 1) expect(record.count).toBe(n);
      const codes = others.flatMap((code, i) =>
        Array<number>(i % 2 === 0 ? (others[i + 1] ?? 0) : 0).fill(code),
      );
      return Array.from({ length: n }, (_line, i) => {
        const { status, ...rest } = { ...record, count: n > 1 ? 1 : record.count };
        const code = i < codes.length ? codes[i] || undefined : status;
        return JSON.stringify({ ...rest, status: code });
      });
    })
    .sort();
}

async function expectSameResults(bytes: Buffer, given: Given = GIVEN): Promise<void> {
  expect(await resultsOf(bytes, given, 'by bytes')).toEqual(await resultsOf(bytes, given, 'by lines'));
}

function taken(bytes: Buffer): number {
  const records: LogRecord[] = [];
  const access = new AccessLines(bytes, records, {
    earliest: 0,
    latest: NOW,
    host: undefined,
    onHost: () => {},
    pages: new PageCounts(),
  });
  access.take(0);
  access.end();
  expect(countRecords(records)).toBe(access.taken);
  return access.taken;
}

describe('the lines of real servers', () => {
  test.each(FIXTURE_NAMES)('count the same: %s', async (name) => {
    await expectSameResults(fixture(name));
    await expectSameResults(fixture(name), { ...GIVEN, reader: { format: 'access', host: 'a.example' } });
  });

  test.each(ACCESS_FIXTURES)('are all taken from their bytes: %s', (name) => {
    expect(taken(fixture(name))).toBe(linesOf(fixture(name)).length);
  });

  test('mixed in one block count the same', async () => {
    await expectSameResults(Buffer.concat(FIXTURE_NAMES.map(fixture)));
  });
});

/** `[time]`, valid and nearly valid. */
const stamp = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('[15/Nov/2026:02:20:43 +0000]', '[15/Nov/2026:02:20:44 +0000]') },
  fc.constantFrom(
    '[15/Nov/2026:02:21:44 +0000]',
    '[15/Nov/2026:03:20:43 +0100]',
    '[15/Nov/2026:02:20:43 -0330]',
    '[15/Nov/2026:02:20:43 +0560]',
    '[15/Nov/2026:02:20:43 +1400]',
    '[15/Nov/2026:02:20:60 +0000]',
    '[15/Nov/2026:24:20:43 +0000]',
    '[15/nov/2026:02:20:43 +0000]',
    '[29/Feb/2024:02:20:43 +0000]',
    '[29/Feb/2025:02:20:43 +0000]',
    '[31/Apr/2026:02:20:43 +0000]',
    '[15/Nov/2025:02:20:43 +0000]',
    '[16/Nov/2026:02:59:59 +0000]',
    '[16/Nov/2026:03:00:00 +0000]',
    '[16/Nov/2026:03:00:01 +0000]',
    '[01/Jan/1970:00:00:00 +0000]',
    '[15/Nov/2026:02:20:43]',
    '[15/Nov/2026:02:20:43.1 +000]',
    '[15/Nov/2026:02:20:43 +00000]',
    `[${'\0'.repeat(26)}]`,
    `[${'\xff'.repeat(26)}]`,
    '[]',
    '',
  ),
);

const host = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom('www.example.com:443', 'shop.example.com', 'a', 'WWW.example.com'),
  },
  // The first two have the same hash.
  fc.constantFrom(
    'aaaaaaay',
    'aaabaaaZ',
    '[2001:db8::1]:443',
    '2001:db8::1',
    '-',
    '_',
    'm\xc3\xbcnchen',
    'a,',
  ),
  fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 9 }),
);
const client = fc.oneof(
  fc.constantFrom('192.0.2.7', '::1', '2001:db8::7', '-', '192.0.2.7, 192.0.2.8', '[::1]', ''),
  // X-Forwarded-For, whose beginning the client controls.
  fc
    .array(fc.constantFrom('192.0.2.7', '::1', '-', '', ',', 'a b', '[::1]'), { minLength: 2, maxLength: 4 })
    .map((addresses) => addresses.join(', ')),
);
const ident = fc.constantFrom('-', '- ', 'ann', '', '\t');
const user = fc.constantFrom('-', 'ann', 'ann b c', '', '[15/Nov/2026:02:20:43 +0000]', '"', '\xe9\xff', '[');
const rest = fc.constantFrom(
  ' "GET / HTTP/1.1" 200 6 "-" "curl/8"',
  ' "GET /a?b HTTP/1.1" 404 153 "-" "-"',
  ' "GET /a HTTP/1.1" 404 1099511627777',
  ' "GET /a HTTP/1.1" 000 9',
  ' "GET /a HTTP/1.1" 999 9 "-"',
  ' "GET /a HTTP/1.1" - 9',
  ' "GET /\\"?b HTTP/1.1" 500 0',
  ' "GET /\\x22 HTTP/1.1" 404 7',
  ' "GET /\\\\" 404 8',
  ' "GET /\\\xe9" 404 8',
  ' "GET /\\"',
  ' "GET /\\',
  ' "POST http://x/\xe9 HTTP/1.1" 502 12345678901234 ',
  ' "GET /c" 503',
  ' "GET /d HTTP/1.1" 404x 7',
  ' "GET /d HTTP/1.1" 700 7',
  ' "GET /d HTTP/1.1" 301 7x',
  ' "GET /d HTTP/1.1" 204\xc2\xa0',
  ' "GET /d HTTP/1.1" 206 7\xc2\xa0',
  ' "GET /e HTTP/1.1"  200 7',
  ' "',
  ' "-" 408 -',
  '  "GET',
  'x"GET',
  '"',
  '',
  ' "\xa0',
);

/** X-Forwarded-For in quotes, and what looks like it. */
const quoted = fc.oneof(
  fc.constantFrom(
    '"-" ',
    '"192.0.2.7, 192.0.2.8" ',
    '"" ',
    '"\\"" ',
    '"\\\\" ',
    '"a""b" ',
    '"a", ',
    '"a":',
    '"a" : ',
  ),
  fc
    .tuple(
      fc.oneof(host, stamp, fc.constantFrom('[15/Nov/2026:02:20:43 +0000] ')),
      fc.constantFrom('" ', '"', ' '),
    )
    .map(([text, end]) => `"${text}${end}`),
);
const accessLine = fc
  .tuple(fc.option(quoted, { freq: 3 }), fc.option(host), client, ident, user, stamp, rest)
  .map(([forwarded, named, ...fields]) =>
    latin1(
      `${forwarded ?? ''}${named === null ? '' : `${named} `}${fields.slice(0, 4).join(' ')}${fields[4]}`,
    ),
  );

const realLine = fc.constantFrom(...FIXTURE_LINES);
/** Before a line: wrappers that unwrap.ts knows, and near misses. */
const prefix = fc.constantFrom(
  '<13>Nov 15 12:02:15 edge nginx[123]: ',
  '<190>Nov  5 12:02:15 nginx: ',
  'Nov 15 12:02:15 edge nginx: ',
  'Nov 5 12:02:15 edge nginx: ',
  'Nov 15 12-02-15 edge nginx: ',
  '2026-07-01T12:00:00.123456+02:00 edge nginx: ',
  '2026-07-01T12:00:00Z edge nginx ',
  '2026-07-01T12:00:00Z nginx: ',
  '2026-07-01T12:00:00Z - nginx: ',
  '<165>1 2026-07-01T12:00:00.000Z - - - - - ',
  '<165>1 - - - - - [a b="c"] \xef\xbb\xbf',
  '78 <165>1 - - - - - - ',
  '7 <13>',
  '2026-07-01T12:00:00.123456789Z stdout F ',
  '2026-07-01T12:00:00.123456789Z stdout P ',
  '2026-07-01T12:00:00.123456789Z stderr F ',
  'web-1  | ',
  'web-1 | ',
  'web.1.x@node    | ',
  '\x1b[36mweb-1  | \x1b[0m',
);
const prefixed = fc
  .tuple(prefix, fc.option(prefix, { freq: 4 }), fc.oneof(accessLine, realLine))
  .map(([outer, inner, line]) => Buffer.concat([latin1(outer), latin1(inner ?? ''), line]));
const inDocker = fc
  .tuple(accessLine, fc.constantFrom('', '\n'), fc.constantFrom('stdout', 'stderr'))
  .map(([line, end, stream]) =>
    Buffer.from(JSON.stringify({ log: `${line.toString()}${end}`, stream, time: '2026-07-01T12:00:00Z' })),
  );
const anyBytes = fc.uint8Array({ maxLength: 120 }).map((bytes) => Buffer.from(bytes));
/** A line with a change, mostly in its first hundred bytes, which decide how it is read. */
const mutated = fc
  .tuple(
    fc.oneof(accessLine, realLine, prefixed),
    fc.oneof(fc.nat(100), fc.nat()),
    fc.nat(12),
    fc.oneof(
      anyBytes,
      fc.constantFrom(...[' ', '[', ']', '"', '-', ',', '/', '\r', '\t', '\xa0', '\xef\xbb\xbf'].map(latin1)),
    ),
  )
  .map(([line, offset, length, bytes]) => {
    const at = offset % (line.length + 1);
    return Buffer.concat([line.subarray(0, at), bytes, line.subarray(at + length)]);
  });
const half = fc.tuple(fc.oneof(accessLine, realLine), fc.nat(100)).map(([line, at]) => line.subarray(0, at));
/** Lines of other formats that contain an access line, which clients can write into most of them. */
const OTHER_FORMATS = [
  'http 2026-11-15T02:20:43.1Z app/a/b 192.0.2.7:1 - [15/Nov/2026:02:20:44 +0000] "GET',
  'grpcs 2026-11-15T - - [15/Nov/2026:02:20:44 +0000] "GET',
  '2026-11-15\t02:20:43\ta b - - [15/Nov/2026:02:20:44 +0000] "GET',
  '1794709243\ta b - - [15/Nov/2026:02:20:44 +0000] "GET',
  '1794709243000\ta b - - [15/Nov/2026:02:20:44 +0000] "GET',
  '#Fields: date time - - [15/Nov/2026:02:20:44 +0000] "GET',
  '192.0.2.7:1 [15/Nov/2026:02:20:43.100] a a/b 0/0/0/0/0 200 1 - - ---- 0/0/0/0/0 0/0 {x - [15/Nov/2026:02:20:44 +0000] "GET',
  '2026/11/15 02:20:43 [error] 1#1: *1 NAXSI_FMT: ip=x - - [15/Nov/2026:02:20:44 +0000] "GET',
];

const other = fc.constantFrom(
  ...[
    '',
    '   ',
    '\r',
    '--622ca252-A--',
    '--622ca252-Z--',
    '---abcdefgh---A--',
    `{"time":${NOW},"host":"www.example.com:443"}`,
    '2026/11/15 02:20:43 [error] 1#1: *1 limiting requests, excess: 1, client: x, host: "shop.example.com"',
    '1.1.//1/ 192.0.2.7 - - [15/Nov/2026:02:20:43 +0000] "',
    'abc[15/Nov/2026:02:20:43 +0000] "x - - [15/Nov/2026:02:20:44 +0000] "',
    '::1 x[15/Nov/2026:02:20:43 +0000] "GET - [15/Nov/2026:02:20:44 +0000] "',
    ...OTHER_FORMATS,
  ].map(latin1),
);
const afterHole = fc
  .tuple(fc.constantFrom(1, 3, 4, 5, 20_000), fc.oneof(accessLine, realLine))
  .map(([bytes, line]) => Buffer.concat([Buffer.alloc(bytes), line]));
const lineEnding = fc.constantFrom('\n', '\n', '\n', '\r\n', '\n\n', ' \n').map(latin1);

/** Few lines, repeated, to test state that is kept from line to line. */
const block = fc
  .tuple(
    fc.array(
      fc.oneof(
        { weight: 3, arbitrary: accessLine },
        mutated,
        realLine,
        prefixed,
        inDocker,
        half,
        other,
        anyBytes,
        afterHole,
      ),
      {
        minLength: 1,
        maxLength: 6,
      },
    ),
    fc.array(fc.tuple(fc.nat(5), lineEnding), { maxLength: 24 }),
    fc.boolean(),
  )
  .map(([lines, order, ended]) => {
    const parts = order.flatMap(([which, ending]) => [lines[which % lines.length] ?? latin1(''), ending]);
    return Buffer.concat(ended ? parts : parts.slice(0, -1));
  });

const given: fc.Arbitrary<Given> = fc.record({
  reader: fc.record({
    format: fc.constantFrom(
      'auto',
      'auto',
      'access',
      'access',
      'events',
      'modsecurity-native',
      'nginx-error',
    ),
    host: fc.constantFrom(undefined, undefined, 'other.example.com', 'shop.example.com', ''),
    zone: fc.constantFrom(0, 330).map(fixedZone),
  }),
  retentionMs: fc.constantFrom(3_600_000, 180 * DAY_MS, 100 * 365 * DAY_MS),
  hostsMax: fc.constantFrom(0, 2, 100),
  first: fc.constantFrom(1, 1_000),
  flush: fc.constantFrom('all', 'aged', 'nothing'),
});

test('any lines count the same', async () => {
  await fc.assert(fc.asyncProperty(block, given, expectSameResults), { numRuns: scaled(3_000) });
});

test('the generated lines are of both kinds', () => {
  const sample = fc.sample(accessLine, { numRuns: 500, seed: 5 });
  const takenCount = sample.filter((line) => taken(line) === 1).length;
  expect(takenCount).toBeGreaterThan(30);
  expect(takenCount).toBeLessThan(470);
});

test.each([
  '::1 - - ',
  '::ffff:192.0.2.7 - - ',
  '2001:db8::7 - ann ',
  '_ 192.0.2.7 - - ',
  '*.example.com 192.0.2.7 - - ',
  'shop.example.com:443 [2001:db8::7] - - ',
  'shop.example.com:443 192.0.2.7, 192.0.2.8 - - ',
  'shop.example.com 192.0.2.7, 192.0.2.8, 192.0.2.9 - ann ',
  '192.0.2.7, 192.0.2.8, 192.0.2.9 - - ',
  'shop.example.com 192.0.2.7, - - ',
])('%j before the time counts the same', async (front) => {
  await expectSameResults(latin1(`${front}[15/Nov/2026:02:20:43 +0000] "GET / HTTP/1.1" 200 6`));
});

test('a line after a hole is counted with its host', async () => {
  const line = latin1('shop.example.com ::1 - - [15/Nov/2026:02:20:43 +0000] "GET / HTTP/1.1" 200 6\n');
  const bytes = Buffer.concat([line, Buffer.alloc(50_000), line, Buffer.alloc(1), line, line]);
  await expectSameResults(bytes);
  const { hosts, sources } = await resultsOf(bytes, GIVEN, 'by bytes');
  expect(hosts.map(({ hostname }) => hostname)).toEqual(['shop.example.com']);
  expect(sources).toMatchObject([{ events: 4, without_host: 0, dropped: {} }]);
});

test.each(OTHER_FORMATS)('%j is not mistaken for an access line', async (line) => {
  expect(taken(latin1(line))).toBe(0);
  await expectSameResults(latin1(line));
  await expectSameResults(latin1(line), { ...GIVEN, reader: { format: 'access' } });
});

test('a virtual host before an X-Forwarded-For list is read from the bytes', () => {
  const line =
    'shop.example.com:443 192.0.2.7, 192.0.2.8 - - [15/Nov/2026:02:20:43 +0000] "GET / HTTP/1.1" 200';
  expect(taken(latin1(line))).toBe(1);
});

test.each(['"-" ', '"192.0.2.7, 192.0.2.8" ', '"" ', '"x" shop.example.com:443 ', '"-" ::1, '])(
  'a line that begins with %s is read from the bytes',
  async (front) => {
    const line = latin1(`${front}192.0.2.7 - - [15/Nov/2026:02:20:43 +0000] "GET / HTTP/1.1" 200 6\n`);
    expect(taken(Buffer.concat([line, line]))).toBe(2);
    await expectSameResults(Buffer.concat([line, line]));
    const { sources } = await resultsOf(line, GIVEN, 'by bytes');
    expect(sources).toMatchObject([{ events: 1, dropped: {} }]);
  },
);

test.each(['/\\x22', '/\\"', '/\\\\', '/a\\x22?b', '\\x16\\x03'])(
  'a request with the escaped bytes %s is read from the bytes',
  async (path) => {
    const line = latin1(`192.0.2.7 - - [15/Nov/2026:02:20:43 +0000] "GET ${path} HTTP/1.1" 404 6\n`);
    expect(taken(Buffer.concat([line, line]))).toBe(2);
    await expectSameResults(Buffer.concat([line, line]));
  },
);

test('a wrapper before an access line is not mistaken for a virtual host', async () => {
  const line = 'shop.example.com 192.0.2.7 - - [15/Nov/2026:02:20:43 +0000] "GET / HTTP/1.1" 200 6';
  for (const front of [
    'Nov 15 12:02:15 edge nginx: ',
    '<165>1 2026-07-01T12:00:00.000Z - nginx - - - ',
    '2026-07-01T12:00:00.123456+02:00 edge nginx: ',
    '2026-07-01T12:00:00.123456789Z stdout F ',
    'web-1  | ',
  ]) {
    const { hosts } = await resultsOf(latin1(`${front}${line}\n`), GIVEN, 'by bytes');
    expect(hosts.map(({ hostname }) => hostname)).toEqual(['shop.example.com']);
  }
});

test.each(['{x', '}x', '{}', ']x', '"x', '[]x', '{"time":1}'])(
  'the host %j counts the same',
  async (host) => {
    await expectSameResults(
      latin1(`${host}:80 192.0.2.7 - - [15/Nov/2026:02:20:44 +0000] "GET / HTTP/1.1" 200 6\n`),
    );
  },
);

test('hosts with the same hash are counted separately', async () => {
  const hosts = ['aaaaaaay', 'aaabaaaZ'];
  const [one, two] = hosts.map((name) => {
    const words = new Words(latin1(`${name} ::1`));
    expect(words.wordEnd(0, words.bytes.length)).toBe(name.length);
    return words.hash;
  });
  expect(one).toBe(two);
  const lines = hosts.map((name) => `${name} ::1 - - [15/Nov/2026:02:20:43 +0000] "GET /"\n`);
  const bytes = latin1(`${lines[0]}${lines[1]}${lines[0]}`);
  expect(taken(bytes)).toBe(1);
  await expectSameResults(bytes);
});

test('a line of nearly the maximum length counts the same', async () => {
  const line = '::1 - - [15/Nov/2026:02:20:43 +0000] "GET /';
  for (const text of [
    line + 'x'.repeat(1_000_000),
    `${'x'.repeat(1_000_000)} ${line}`,
    `a ${' '.repeat(1_000_000)}${line}`,
    `a${'['.repeat(1_000_000)}${line}`,
    `${line}${'\xff'.repeat(1_000_000)}`,
  ]) {
    await expectSameResults(latin1(`${line}\n${text}\n${line}\n`));
  }
});

describe('bytes compared four at a time', () => {
  const bytes = fc.uint8Array({ maxLength: 40 }).map((array) => Buffer.from(array));
  const ascii = fc.array(fc.constantFrom(0, 1, 0x1f, 0x20, 0x21, 0x5a, 0x5b, 0x5c, 0x7f), { maxLength: 40 });

  test('wordEnd returns the offset of the first space that is not in the last three bytes', () => {
    fc.assert(
      fc.property(fc.oneof(bytes, ascii.map(Buffer.from)), fc.nat(40), fc.nat(40), (text, a, b) => {
        const [from = 0, end = 0] = [a, b].map((n) => Math.min(n, text.length)).sort((m, n) => m - n);
        const at = text.subarray(from, end).indexOf(0x20);
        const words = new Words(text);
        const found = words.wordEnd(from, end);
        if (found === -1) expect(at === -1 || at >= end - from - 3).toBe(true);
        else expect(found).toBe(from + at);
        if (found === -1) return;
        const copy = new Words(Buffer.from(`${text.toString('latin1', from, found)}    `, 'latin1'));
        copy.wordEnd(0, copy.bytes.length);
        expect(words.hash).toBe(copy.hash);
      }),
      { numRuns: scaled(1_000) },
    );
  });

  test('find returns the offset of a byte unless a stop byte comes first', () => {
    const letter = fc.constantFrom(0x20, 0x5b);
    fc.assert(
      fc.property(ascii, letter, letter, fc.nat(40), fc.nat(40), (array, byte, stop, a, b) => {
        const text = Buffer.from(array);
        const [from = 0, end = 0] = [a, b].map((n) => Math.min(n, text.length)).sort((m, n) => m - n);
        const at = text.subarray(from, end).findIndex((each) => each === byte || each === stop);
        const expected = at === -1 || text[from + at] !== byte ? -1 : from + at;
        expect(new Words(text).find(byte, from, end, stop)).toBe(expected);
      }),
      { numRuns: scaled(1_000) },
    );
  });

  test('find never searches past a byte that is not ASCII', () => {
    fc.assert(
      fc.property(bytes, fc.constantFrom(0x20, 0x5b), (text, byte) => {
        const found = new Words(text).find(byte, 0, text.length, byte);
        if (found === -1) return;
        expect(found).toBe(text.indexOf(byte));
        expect(text.subarray(0, found).every((each) => each < 0x80)).toBe(true);
      }),
      { numRuns: scaled(1_000) },
    );
  });

  test('isSame compares ASCII with ASCII, and text without NUL bytes with anything', () => {
    const byte = fc.oneof(fc.constantFrom(0, 1, 0x7f, 0x80, 0xf0, 0xff), fc.nat(255));
    const change = fc.tuple(fc.nat(40), byte);
    fc.assert(
      fc.property(fc.array(fc.nat(127), { maxLength: 40 }), fc.array(change), (text, changes) => {
        const isSame = (one: Buffer, other: Buffer) =>
          new Words(Buffer.concat([one, other])).isSame(0, one.length, one.length);
        const one = Buffer.from(text.map((each) => each || 1));
        const other = Buffer.from(one);
        const [ascii, otherAscii] = [Buffer.from(text), Buffer.from(text)];
        for (const [at, changed] of changes.filter(([each]) => each < text.length)) {
          other[at] = changed;
          otherAscii[at] = changed & 0x7f;
        }
        expect(isSame(one, other)).toBe(one.equals(other));
        expect(isSame(ascii, otherAscii)).toBe(ascii.equals(otherAscii));
        expect(isSame(ascii, ascii)).toBe(true);
      }),
      { numRuns: scaled(1_000) },
    );
  });
});
