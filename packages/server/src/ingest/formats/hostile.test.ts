/** Any bytes of any length: no line throws, takes long, or makes the reader's state grow. */
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { fixtureLines } from '../../../fixtures/read-fixture.ts';
import { DROP_REASONS } from '../../event.ts';
import { LineBlock } from '../lines.ts';
import { Pipeline } from '../pipeline.ts';
import { createReader, FORMAT_NAMES, type FormatName, STATE_LENGTH_MAX } from '../reader.ts';

const FIXTURES = readdirSync(new URL('../../../fixtures/', import.meta.url)).filter((name) =>
  name.endsWith('.log'),
);
const LINES = FIXTURES.flatMap(fixtureLines);
const DAY_MS = 86_400_000;

/** What a reader guarantees for any lines. */
function check(format: FormatName, lines: readonly string[]): void {
  const reader = createReader({ format });
  const parsed = [...lines.flatMap((line) => reader.read(line, 0)), ...reader.flush()];
  for (const each of parsed) {
    if (each.kind === 'dropped') expect(DROP_REASONS).toHaveProperty(each.reason);
    else {
      const { time, count, request, attack } = each.record;
      expect(Number.isSafeInteger(time)).toBe(true);
      expect(count).toBeGreaterThanOrEqual(1);
      expect(request || attack !== null).toBe(true);
    }
  }
  expect(reader.state().length).toBeLessThan(STATE_LENGTH_MAX);
  expect(createReader({ format }, reader.state()).flush()).toEqual([]);
}

/** A real line, modified. */
const mutated = fc
  .tuple(
    fc.constantFrom(...LINES),
    fc.nat(),
    fc.nat(40),
    fc.oneof(fc.string({ unit: 'binary' }), fc.constant('"'), fc.constant('\ud800')),
  )
  .map(([line, at, length, text]) => {
    const from = at % (line.length + 1);
    return line.slice(0, from) + text + line.slice(from + length);
  });
/** Real and modified lines in wrappers that unwrap.ts knows, or in similar ones. */
const wrapped = fc
  .tuple(
    fc.oneof(fc.constantFrom(...LINES), mutated),
    fc.constantFrom('stdout', 'stderr', 'x'),
    fc.constantFrom('P', 'F', '\n', ''),
    fc.constantFrom(
      (line: string, stream: string, end: string) =>
        JSON.stringify({ log: `${line}${end}`, stream, time: '' }),
      (line: string, stream: string, end: string) => `2026-07-01T12:00:00Z ${stream} ${end} ${line}`,
      (line: string, stream: string) => `${stream}  | ${line}`,
      (line: string, stream: string) => `<13>Nov 15 12:02:15 ${stream}: ${line}`,
      (line: string, stream: string) => `${line.length} <13>1 - ${stream} - - - - ${line}`,
      (line: string, stream: string, end: string) =>
        JSON.stringify({
          __REALTIME_TIMESTAMP: 1,
          MESSAGE: end === '' ? [1e9, -1, 0.5] : line,
          _PID: stream,
        }),
    ),
  )
  .map(([line, stream, end, wrap]) => wrap(line, stream, end));
const half = fc
  .tuple(fc.constantFrom(...LINES), fc.nat())
  .map(([line, at]) => line.slice(0, at % (line.length + 1)));
const key = fc.constantFrom(
  'transaction',
  'messages',
  '__proto__',
  'constructor',
  'time',
  'time_stamp',
  'unique_id',
  'request',
  'headers',
  'host',
  'httpRequest',
  'webaclId',
  'labels',
  'hostid',
  'attack-time',
  'status',
  'msec',
  'audit_data',
  'records',
  'properties',
  'category',
  'trackingReference',
  'ruleName',
  'ruleId',
  'transactionId',
  'action',
  'EdgeStartTimestamp',
  'Datetime',
  'Action',
  'RayID',
  'SecurityActions',
  'SecuritySources',
  'jsonPayload',
  'enforcedSecurityPolicy',
  'preconfiguredExprIds',
  'outcome',
  'timestamp',
  'start_time',
  'response_flags',
  'StartUTC',
  'DownstreamStatus',
  'x-edge-request-id',
  'url',
  'http',
);
const json = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    fc.constantFrom(
      '',
      'x',
      '1',
      1e308,
      -0,
      1e19,
      null,
      true,
      '2026-07-01T10:20:30Z',
      'Wed Jul  1 10:00:00 2026',
      'block',
      'DENY',
      'FrontDoorWebApplicationFirewallLog',
    ),
    fc.array(tie('value'), { maxLength: 4 }),
    fc
      .array(fc.tuple(key, tie('value')), { maxLength: 5 })
      .map((entries) => ({ toJSON: () => new Raw(entries) })),
  ),
})).value;

/** Serialized by hand, because an object cannot have a key twice. */
class Raw {
  readonly entries: readonly (readonly [string, unknown])[];
  constructor(entries: readonly (readonly [string, unknown])[]) {
    this.entries = entries;
  }
}
function stringify(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(stringify).join(',')}]`;
  const raw = (value as { toJSON?: () => unknown } | null)?.toJSON?.();
  if (!(raw instanceof Raw)) return JSON.stringify(value);
  return `{${raw.entries.map(([name, inner]) => `${JSON.stringify(name)}:${stringify(inner)}`).join(',')}}`;
}

describe.each(FORMAT_NAMES)('as %s', (format) => {
  test('any text and any modified line gives records or drop reasons', () => {
    const line = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 300 }),
      mutated,
      wrapped,
      half,
      json.map(stringify),
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 8 }), (lines) => check(format, lines)),
      { numRuns: scaled(60) },
    );
  });

  test('lines in any order, cut anywhere, give records or drop reasons', () => {
    const lines = fc.array(fc.oneof(fc.constantFrom(...LINES), half), { maxLength: 60 });
    fc.assert(
      fc.property(lines, (some) => check(format, some)),
      { numRuns: scaled(40) },
    );
  });
});

/** Damage as from a broken disk, a hostile client or a torn write. */
const HOSTILE_BYTES = [
  '\0',
  '\r',
  '\x1b[2J',
  '\x7f',
  '\x80',
  '\xff\xfe',
  '\xc0\xaf',
  '\xed\xa0\x80',
  '\xef\xbb\xbf',
  '\xe2\x80\xae',
  '"',
  '\\',
  '\\u0000',
  '\\x22',
  '"]',
  '", "',
  '{',
  '}{',
  '[',
  ' - - [',
  '%s%n',
  '$(x)',
  '--622ca252-A--\n',
  '--622ca252-Z--\n',
  '#Fields: date time\n',
  '\n',
];
const edit = fc.record({
  kind: fc.constantFrom('flip', 'cut', 'repeat', 'splice', 'insert', 'stretch', 'truncate'),
  at: fc.nat(),
  length: fc.nat(60),
  bytes: fc.constantFrom(...HOSTILE_BYTES),
});
type Edit = typeof edit extends fc.Arbitrary<infer T> ? T : never;

function edited(log: Buffer, { kind, at, length, bytes }: Edit): Buffer {
  const from = at % (log.length + 1);
  const [before, after] = [log.subarray(0, from), log.subarray(from)];
  switch (kind) {
    case 'flip': {
      const copy = Buffer.from(log);
      if (from < copy.length) copy[from] = (copy[from] ?? 0) ^ (1 << (length % 8));
      return copy;
    }
    case 'cut':
      return Buffer.concat([before, after.subarray(length)]);
    case 'repeat':
      return Buffer.concat([before, after.subarray(0, length), after]);
    case 'splice':
      // Continues in the middle of the log, within a line.
      return Buffer.concat([before, log.subarray(log.length >> 1)]);
    case 'insert':
      return Buffer.concat([before, Buffer.from(bytes, 'latin1'), after]);
    case 'stretch':
      return Buffer.concat([before, Buffer.from(bytes.trim().repeat(200 * length), 'latin1'), after]);
    case 'truncate':
      return before;
  }
}

const NOW = Date.UTC(2026, 10, 15);
const LOG_RUNS = scaled(30);

/** A header line, which has no result of its own. */
function isHeader(line: string): boolean {
  return /^#(?:Version|Fields|Software|Date): /.test(line);
}

describe.each(FIXTURES)('the bytes of %s, damaged,', (fixture) => {
  const lines = fixtureLines(fixture);
  const damaged = fc
    .tuple(fc.nat(), fc.integer({ min: 1, max: 40 }), fc.array(edit, { minLength: 1, maxLength: 4 }))
    .map(([at, count, edits]) => {
      const some = lines.slice(at % lines.length).slice(0, count);
      return edits.reduce(edited, Buffer.from(`${some.join('\n')}\n`));
    });

  test('are counted or dropped, line by line, and the sums agree', async () => {
    await fc.assert(
      fc.asyncProperty(damaged, async (bytes) => {
        check(
          'auto',
          [...new LineBlock(bytes, 1)].map(({ text }) => text),
        );
        for (const { text } of new LineBlock(bytes, 1)) {
          const alone = createReader({ format: 'auto' });
          const parsed = [...alone.read(text, 0), ...alone.flush()];
          if (!isHeader(text)) expect(parsed.length, text).toBeGreaterThan(0);
        }
        const reader = createReader({ format: 'auto' });
        const parsed = [...new LineBlock(bytes, 1)].flatMap(({ text }) => reader.read(text, NOW));
        const results = parsed.length + reader.flush().length;
        const store = memoryStore(() => NOW);
        const pipeline = new Pipeline(store, { retentionMs: NOW, hostsMax: 100 }, () => NOW);
        const read = pipeline.read(new LineBlock(bytes, 1), createReader({ format: 'auto' }), 'all');
        const sum = read.records.reduce((total, { count }) => total + count, 0);
        const { same_request: known = 0 } = read.outcome.dropped;
        const counted = await pipeline.count(read, { project: 'p', source: { name: 's', format: 'auto' } });
        if (counted.kind !== 'counted') throw new Error(counted.kind);
        const { accepted, dropped } = counted.outcome;
        const drops = Object.values(dropped).reduce((total, n) => total + n, 0);
        expect(accepted + drops).toBe(results);
        expect(await store.sources('p')).toMatchObject([{ dropped }]);
        const [requests, attacks] = await store.count({
          project: 'p',
          edges: [0, NOW + 2 * DAY_MS],
          rows: 'timeline',
        });
        expect(Math.max(requests[0] ?? 0, attacks[0] ?? 0)).toBeLessThanOrEqual(sum);
        const repeated = (dropped.same_request ?? 0) - known;
        expect((requests[0] ?? 0) + (attacks[0] ?? 0)).toBeGreaterThanOrEqual(sum - repeated);
      }),
      { numRuns: LOG_RUNS },
    );
  });

  test('give the same result if another process continues in the middle', () => {
    fc.assert(
      fc.property(damaged, fc.nat(), (bytes, at) => {
        const texts = [...new LineBlock(bytes, 1)].map(({ text }) => text);
        const cut = at % (texts.length + 1);
        const whole = createReader({ format: 'auto' });
        const first = createReader({ format: 'auto' });
        const head = texts.slice(0, cut).flatMap((text) => first.read(text, 0));
        const second = createReader({ format: 'auto' }, first.state());
        const tail = texts.slice(cut).flatMap((text) => second.read(text, 0));
        expect([...head, ...tail, ...second.flush()]).toEqual([
          ...texts.flatMap((text) => whole.read(text, 0)),
          ...whole.flush(),
        ]);
      }),
      { numRuns: LOG_RUNS },
    );
  });
});

/** A parser with quadratic time would take half a minute for each of these. */
const LENGTH = 262_144;
const LONG: Record<string, string> = {
  'one letter': 'x'.repeat(LENGTH),
  brackets: '['.repeat(LENGTH),
  'closing brackets': ']'.repeat(LENGTH),
  objects: '{'.repeat(LENGTH),
  'empty objects': '{}'.repeat(LENGTH / 2),
  'an array of arrays': '['.repeat(LENGTH / 2) + ']'.repeat(LENGTH / 2),
  'an array of numbers': `[${'1,'.repeat(LENGTH / 2 - 2)}1]`,
  quotes: '"'.repeat(LENGTH),
  backslashes: `{"a":"${'\\'.repeat(LENGTH - 8)}`,
  keys: `{"transaction":{"time_stamp":"","request":{"headers":{${'"x":1,'.repeat(37_500)}"y":1}}}}`,
  messages: `{"transaction":{"time_stamp":"x","unique_id":"17653587322.343451","messages":[${'{"details":{"ruleId":"1"}},'.repeat(9_500)}{}]}}`,
  'an access line': `192.0.2.7 - - [10/Dec/2025:09:25:32 +0000] "GET /${'a'.repeat(LENGTH - 100)}`,
  'opening times': `192.0.2.7 - - ${'[10/Dec/2025:09:25:32 +0000] '.repeat(8_750)}`,
  dashes: '- '.repeat(LENGTH / 2),
  spaces: `a${' '.repeat(LENGTH - 2)}b`,
  'an error line of nginx': `2026/07/01 10:00:00 [error] 1#1: *1 ModSecurity: Warning. ${' [file "x"] [id "1"]'.repeat(12_500)}`,
  'paths of nginx': `2026/07/01 10:00:00 [error] 1#1: *1 ModSecurity: Warning. [id "1"${'"] [uri "'.repeat(27_500)}`,
  'clients of nginx': `2026/07/01 10:00:00 [error] 1#1: *1 ModSecurity: ${'"], client: '.repeat(20_000)}`,
  'stars of nginx': `2026/07/01 10:00:00 [error] ${': *'.repeat(75_000)}`,
  'an error line of Apache': `[Sun Feb 21 22:27:04 2021] ${'[client x] '.repeat(22_500)}`,
  'unended fields': `[Sun Feb 21 22:27:04 2021] [x] ModSecurity: ${' [file "'.repeat(30_000)}`,
  'ends of fields': `[Sun Feb 21 22:27:04 2021] [x] ModSecurity: [file "${'"]'.repeat(125_000)}`,
  'referers of Apache': `[Sun Feb 21 22:27:04 2021] [x] ModSecurity: ${'\\"], referer: '.repeat(17_500)}`,
  boundaries: '--622ca252-A--'.repeat(17_500),
  'tabs of Caddy': `2026/07/01 10:20:30.100${'\t'.repeat(LENGTH - 30)}`,
  'objects behind each other': `{"a":1}`.repeat(35_000),
  'labels of AWS': `{"webaclId":"","httpRequest":{},"timestamp":1,"action":"BLOCK","labels":[${'{"name":"awswaf:managed:aws:a:b"},'.repeat(7_000)}{}]}`,
  'fields of ALB': `http 2026-07-01T10:20:30.1Z ${'"'.repeat(LENGTH - 100)}`,
  'escaped quotes of ALB': `http 2026-07-01T10:20:30.1Z "${'\\"'.repeat(LENGTH / 2 - 50)}`,
  'columns of CloudFront': `#Fields: ${'a '.repeat(LENGTH / 2 - 50)}`,
  'long columns of CloudFront': `#Fields: ${'a'.repeat(LENGTH - 50)}`,
  'values of CloudFront': `2026-07-01\t10:20:30\t${'a\t'.repeat(LENGTH / 2 - 50)}`,
  'values of IIS': `2026-07-01 10:20:30 ${'a '.repeat(LENGTH / 2 - 50)}`,
  'quotes of Envoy': `[2026-07-01T10:20:30.456Z] "GET / HTTP/1.1" 200 RL ${'"'.repeat(LENGTH - 100)}`,
  'origins of Zoraxy': `[2026-07-01 10:20:30.456123] [router:x] ${' [origin:x'.repeat(LENGTH / 10 - 50)}`,
  'quoted headers': `"${'\\\\"'.repeat(LENGTH / 3 - 50)}`,
  'captures of HAProxy': `::1 [01/Jul/2026:10:20:30.100] a a/b 0/0/0/0/0 200 1 - - ---- 0/0/0/0/0 0/0 {${'a'.repeat(LENGTH - 200)}`,
  'quotes of HAProxy': `::1 [01/Jul/2026:10:20:30.100] a a/b 0/0/0/0/0 200 1 - - ---- 0/0/0/0/0 0/0 ${'"'.repeat(LENGTH - 200)}`,
  'timers of HAProxy': `::1 [01/Jul/2026:10:20:30.100] a a/b 0${'/0'.repeat(LENGTH / 2 - 50)}`,
  'scores of NAXSI': `2026/07/01 10:20:30 [error] 1#1: *1 NAXSI_FMT: ip=x${'&cscore1=$SQL'.repeat(20_000)}`,
  'JSON of NAXSI': `2026/07/01 10:20:30 [error] 1#1: *1 {"ip":"x"${',"$SQL":"'.repeat(27_500)}`,
  'events of Cloudflare': `{"Datetime":1,"Action":"block","RayID":"r","Source":"waf","Description":"${'a '.repeat(LENGTH / 2 - 100)}"}`,
  'actions of Cloudflare': `{"EdgeStartTimestamp":1,"SecurityActions":[${'"block",'.repeat(31_250)}"log"]}`,
  'names of Azure': `{"time":"2026-07-01T10:20:30Z","category":"FrontDoorWebApplicationFirewallLog","properties":{"trackingReference":"t","action":"Block","ruleName":"${'RuleSet-2.1-'.repeat(20_000)}"}}`,
  'expressions of Cloud Armor': `{"timestamp":"2026-07-01T10:20:30Z","httpRequest":{},"jsonPayload":{"enforcedSecurityPolicy":{"outcome":"DENY","preconfiguredExprIds":[${'"-id1-a",'.repeat(27_500)}"x"]}}}`,
  'an envelope': `{"records":[${'{"time":1},'.repeat(22_500)}{}]}`,
  'structured data of syslog': `<165>1 - a b c d ${'[a b="\\]"]'.repeat(25_000)}`,
  'unended structured data': `<165>1 - a b c d [${'"\\"'.repeat(62_500)}`,
  'names of syslog': `<13>Nov 15 12:02:15 ${'a'.repeat(LENGTH - 40)}`,
  'tags of syslog': `Nov 15 12:02:15 ${'a[b] '.repeat(50_000)}`,
  'lengths of syslog': '9 <13>a b c'.repeat(22_500),
  'messages without a length': `1 <1>${'x'.repeat(LENGTH - 10)}`,
  'spaces of compose': `web-1${' '.repeat(LENGTH - 10)}|`,
  'a part of Kubernetes': `2026-07-01T12:00:00Z stdout P ${' '.repeat(LENGTH - 60)}x`,
  'a part of Docker': `{"log":"${'x'.repeat(LENGTH - 100)}","stream":"stdout","time":""}`,
  'lines of journald': `{"__REALTIME_TIMESTAMP":"1","MESSAGE":"${'x\\n'.repeat(75_000)}"}`,
  'bytes of journald': `{"__REALTIME_TIMESTAMP":"1","MESSAGE":[${'10,'.repeat(85_000)}10]}`,
  'a long name': `{"hostid":"h","category":"attack","time":"2026-07-01T10:20:30Z","attack":"${'a'.repeat(LENGTH - 200)}"}`,
};

test.each(Object.keys(LONG))('a quarter of a megabyte of %s is read at once, in every format', (name) => {
  const line = LONG[name] ?? '';
  expect(line.length).toBeGreaterThan(170_000);
  expect(line.length).toBeLessThanOrEqual(LENGTH);
  /** Processor time in milliseconds, because other processes may be busy. */
  const timeToRead = (format: FormatName): number => {
    const reader = createReader({ format });
    const started = process.cpuUsage();
    reader.read(line, 0);
    reader.flush();
    expect(reader.state().length).toBeLessThan(10_000);
    return process.cpuUsage(started).user / 1_000;
  };
  for (const format of FORMAT_NAMES) {
    // Linear time is far below. The first time, the code is not optimized yet, which takes a slow machine long.
    const isFast = [1, 2, 3].some(() => timeToRead(format) < 500);
    expect(isFast, format).toBe(true);
  }
});

/** The longest line. */
const MEGABYTE = 1_048_576;

test('a few stored characters do not keep a long line in memory', () => {
  setFlagsFromString('--expose-gc');
  // TypeScript does not know the global that the flag adds.
  const collectGarbage = runInNewContext('gc') as () => void;
  const reader = createReader({ format: 'auto' });
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < 100; i++) {
    const line =
      `[Sun Feb 21 22:27:04 2021] [x] ModSecurity: Warning ${'x'.repeat(MEGABYTE - 400)} [file "f"] ` +
      `[id "123456789012345"] [hostname "shop.example.com"] [uri "/"] [unique_id "request-number-${i}-of-many"]`;
    reader.read(Buffer.from(line).toString(), 0);
  }
  collectGarbage();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(20 * MEGABYTE);
  expect(reader.flush()).toHaveLength(100);
});

test('recurring rules and details of attacks do not keep long lines in memory', () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const reader = createReader({ format: 'auto' });
  const parsed = [];
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < 1_000; i++) {
    const line =
      `{"transaction":{"client_ip":"203.0.113.101","time_stamp":"","unique_id":"1794709243${i % 10}.${100_000 + i}",` +
      `"request":{"uri":"/a/long/path/${i}","body":"${'x'.repeat(60_000)}"},"messages":[{"details":{"match":"",` +
      `"ruleId":"942100","file":"/rules/of/site/${i}/REQUEST-942-APPLICATION-ATTACK-SQLI.conf","ver":"OWASP_CRS/4"}}]}}`;
    parsed.push(
      reader.read(Buffer.from(line).toString(), 0).map((each) => each.kind === 'record' && each.record),
    );
  }
  collectGarbage();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(10 * MEGABYTE);
  expect(parsed[999]).toMatchObject([
    { attack: 'sqli', details: { source: '203.0.113.101', url: '/a/long/path/999', rule: '942100' } },
  ]);
});
