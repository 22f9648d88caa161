import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, describe, expect, test } from 'vitest';
import { LOG_FORMATS, type LogFormat } from '../ingest/formats/format.ts';
import { runProgram } from './program.ts';

const DIRECTORY = mkdtempSync(join(tmpdir(), 'explain-'));
afterAll(() => rmSync(DIRECTORY, { recursive: true }));

const NOW = Date.UTC(2026, 6, 2);

async function run(argv: string[], input: string | Readable = '', stop = new AbortController().signal) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const io = {
    stdin: typeof input === 'string' ? Readable.from([Buffer.from(input)]) : input,
    stdout,
    stderr,
    env: {},
    now: () => NOW,
    stop,
  };
  const status = await runProgram(argv, io);
  stdout.end();
  stderr.end();
  return { status, out: await text(stdout), err: await text(stderr) };
}

const TRANSACTION = JSON.stringify({
  transaction: {
    time_stamp: 'Wed Jul  1 18:20:30 2026',
    unique_id: 'a',
    client_ip: '192.0.2.7',
    request: { uri: '/shop?id=1', headers: { Host: 'shop.example.com' } },
    response: { http_code: 403 },
    producer: { secrules_engine: 'Enabled' },
    messages: ['942100', '949110'].map((ruleId) => ({
      details: { ruleId, severity: '2', ver: 'OWASP_CRS/3.3.4' },
    })),
  },
});
const HIT =
  '[Wed Jul 01 10:20:30 2026] [x] ModSecurity: Warning. [file "f"] [id "10001"] [data "ARGS:q=a"] [hostname "h"] [uri "/"] [unique_id "b"]';
const LINES = `${TRANSACTION}\n\n${HIT}\n192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200 6\nnonsense`;

describe('explain', () => {
  test('prints how each record is counted, and why', async () => {
    const { status, out } = await run(
      ['explain', '--timezone', '+08:00', '--host', 'other.example.com'],
      LINES,
    );
    expect(status).toBe(0);
    expect(out.split('\n')).toEqual([
      'line 1: counted as an attack (sqli); format modsecurity3-json',
      '  time  2026-07-01T10:20:30.000Z',
      '  host  shop.example.com',
      '  rule  942100: sqli, 5 points, paranoia level 1, rule id 942xxx',
      '  rule  949110: verdict, denied the request, rule id 949xxx',
      '  why   All rules that matched are of this category. (step: only)',
      '  decided by rule 942100',
      '  blocked     yes',
      '  source      192.0.2.7',
      '  url         /shop?id=1',
      '  status      403',
      '  id          a',
      'line 3: counted as an attack (custom); format apache-error',
      '  time  2026-07-01T02:20:30.000Z',
      '  host  h',
      '  rule  10001: custom, 0 points, not a CRS rule',
      '  why   All rules that matched are of this category. (step: only)',
      '  decided by rule 10001',
      '  matched     10001  ARGS:q  a',
      '  blocked     no',
      '  url         /',
      '  id          b',
      'line 4: counted as a request; format access',
      '  time  2026-07-01T10:20:30.000Z',
      '  host  other.example.com',
      'line 5: not counted (unknown_format): the line does not match the given format, or any known one',
      '  see   docs/log-formats.md#unknown_format',
      '',
      'lines                5',
      'accepted             3',
      '  modsecurity3-json  1',
      '  apache-error       1',
      '  access             1',
      'requests             1',
      'attacks              2',
      '  sqli               1',
      '  custom             1',
      'dropped              1',
      '  unknown_format     1',
      '',
    ]);
  });

  test('ends with what the records count, which can be more than one each; JSON has records only', async () => {
    const events = [{ count: 3 }, { count: 2, attack: 'xss' }, { attack: 'sqli', request: false }];
    const lines = events.map((event) => JSON.stringify({ time: NOW, ...event })).join('\n');
    const { out } = await run(['explain', '--format', 'events'], lines);
    expect(out.slice(out.indexOf('\n\n') + 2).split('\n')).toEqual([
      'lines                3',
      'accepted             3',
      '  events             3',
      'requests             5',
      'attacks              3',
      '  xss                2',
      '  sqli               1',
      'dropped              0',
      '',
    ]);
    const json = JSON.parse((await run(['explain', '--format', 'events', '--json'], lines)).out);
    expect(json.map(({ line }: { line: number }) => line)).toEqual([1, 2, 3]);
    expect((await run(['explain'])).out).toBe(
      '\nlines                0\naccepted             0\nrequests             0\nattacks              0\ndropped              0\n',
    );
  });

  test('names the wrapper of a line', async () => {
    const line = `2026-07-01T10:20:30.123456789Z stdout F ${TRANSACTION}`;
    expect((await run(['explain'], line)).out).toContain(
      'line 1: counted as an attack (sqli); format modsecurity3-json, wrapped in cri\n',
    );
    expect(JSON.parse((await run(['explain', '--json'], line)).out)).toMatchObject([{ wrapper: 'cri' }]);
  });

  test('names all lines of a record, not the line that completed it', async () => {
    const hit = (id: string, rule: string, second: number) =>
      `[Wed Jul 01 10:00:${second} 2026] [security2:error] [pid 1] [client 192.0.2.7:1] ModSecurity: Warning. Matched. ` +
      `[file "/crs/x.conf"] [line "1"] [id "${rule}"] [ver "OWASP_CRS/3.3.4"] [hostname "h"] [uri "/"] [unique_id "${id}"]`;
    const block = ['A--', 'B--', 'H--', 'Z--'].map((part) => `--622ca252-${part}`);
    const head = '[01/Jul/2026:10:00:00 +0000] c 192.0.2.7 22387 192.0.2.1 80';
    const message = 'Message: Warning. Matched. [file "/crs/x.conf"] [id "941100"] [ver "OWASP_CRS/3.3.4"]';
    const lines = [hit('a', '942100', 10), hit('a', '942190', 10), hit('b', '941100', 50)];
    lines.push(...block.toSpliced(3, 0, message).toSpliced(1, 0, head));
    const { out } = await run(['explain'], `${lines.join('\n')}\n`);
    expect(out.split('\n').filter((each) => /^\S/.test(each))).toEqual([
      'lines 1-2: counted as an attack (sqli); format apache-error',
      'line 3: counted as an attack (xss); format apache-error',
      'lines 4-9: counted as an attack (xss); format modsecurity-native',
      'lines                9',
      'accepted             3',
      'requests             0',
      'attacks              3',
      'dropped              0',
    ]);
    const printed = JSON.parse((await run(['explain', '--json'], `${lines.join('\n')}\n`)).out);
    expect(printed[0]).toMatchObject({ line: 3, lines: [1, 2] });
  });

  test('shows the lines after the holes that copytruncate leaves, long or short', async () => {
    const line = '192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200 6';
    const { out } = await run(['explain'], `${'\0'.repeat(1_500_000)}${line}\n\0\0${line}`);
    expect(out.match(/^line \d: .*/gm)).toEqual([
      'line 1: counted as a request; format access',
      'line 2: counted as a request; format access',
    ]);
  });

  test('prints the same as one JSON document, from a file', async () => {
    const file = join(DIRECTORY, 'log');
    writeFileSync(file, LINES);
    const { out } = await run(['explain', file, '--json']);
    expect(JSON.parse(out)).toMatchObject([
      {
        line: 1,
        format: 'modsecurity3-json',
        attack: 'sqli',
        request: false,
        blocked: true,
        source: '192.0.2.7',
        url: '/shop?id=1',
        id: 'a',
        status: 403,
        rule: '942100',
        rules: [
          { id: '942100', severity: 'critical' },
          { id: '949110', severity: 'critical' },
        ],
        decision: { category: 'sqli', rule: '942100', step: 'only' },
        evidence: [{ rule: '942100', points: 5, level: 1 }, { verdict: true }],
      },
      { line: null, lines: [3, 3], format: 'apache-error', attack: 'custom' },
      { line: 4, format: 'access', attack: null, request: true, evidence: [] },
      { line: 5, format: 'none', dropped: 'unknown_format' },
    ]);
    expect(JSON.parse((await run(['explain', '--json'])).out)).toEqual([]);
  });

  test('names the format nearest to an unknown line, and what the line lacks', async () => {
    const lines: [string, string][] = [
      [
        '192.0.2.7 - - [01/Jul/2026:10:20:30] "GET / HTTP/1.1" 200',
        'access (no time in [dd/Mon/yyyy:HH:MM:SS +zone] form)',
      ],
      ['192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] GET / 200', 'access (no quoted request after the time)'],
      [
        '2026-07-01 10:20:30 10.0.0.1 GET / - 443 - 192.0.2.7 curl/8 - 200 0 0 15',
        'iis (no #Fields: line before it, with as many names as the line has columns)',
      ],
      ['2026/07/01 10:20:30 error 1#1: x', 'nginx-error (no level like [error] after the time)'],
      [
        '[2026-07-01 10:20:30] hello ModSecurity: x',
        'apache-error (no module and level like [security2:error])',
      ],
      ['{"time_iso8601": "2026-07-01T10:20:30Z"}', 'access-json (no request: '],
      ['{"transaction": {}, "audit_data": {}}', 'modsecurity2-json (no transaction.time)'],
    ];
    for (const [line, nearest] of lines) {
      const { out } = await run(['explain'], line);
      expect(out).toContain(`  nearest: ${nearest}`);
      expect(JSON.parse((await run(['explain', '--json'], line)).out)).toMatchObject([
        {
          dropped: 'unknown_format',
          hint: expect.stringContaining(nearest),
          see: 'docs/log-formats.md#unknown_format',
        },
      ]);
    }
    const badTime = '192.0.2.7 - - [31/Feb/2026:10:20:30 +0000] "GET / HTTP/1.1" 200';
    expect((await run(['explain'], badTime)).out).toContain('not counted (bad_time)');
    expect((await run(['explain'], 'nonsense')).out).not.toContain('nearest');
    const given = await run(['explain', '--format', 'access'], '{"time": 1}');
    expect(given.out).toContain('nearest: access (no ');
  });

  const NEAR_MISSES: Record<LogFormat, string> = {
    access: '192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] GET / 200',
    'access-json': '{"status":200,"host":"shop.example.com"}',
    'nginx-proxy-manager':
      '[10/Dec/2025:09:25:32 +0000] - 200 200 GET https shop.example.com "/" [Client 192.0.2.7]',
    'modsecurity3-json': '{"transaction":{"client_ip":"192.0.2.7"}}',
    'modsecurity2-json': '{"transaction":{},"audit_data":{}}',
    'modsecurity-native': '--622ca252-B--',
    'nginx-error': '2026/07/01 10:20:30 error 1#1: x',
    'apache-error': '01.07.2026 10:20:30 [security2:error] ModSecurity: Warning.',
    caddy: '2026/07/01 10:20:30.123 ERROR http.handlers.waf [client 192.0.2.7] Coraza: Warning.',
    'coraza-json': '{"transaction":{},"messages":[]}',
    lts: '{"hostid":"x","category":"other"}',
    'aws-waf': '{"httpRequest":{},"action":"BLOCK"}',
    'aws-alb':
      'https 2026-07-01 app/lb 192.0.2.7:1 - 0 0 0 200 200 1 1 "GET https://a.example.com/ HTTP/1.1"',
    cloudfront: '01.07.2026\t10:20:30\tFRA50\t512\t192.0.2.7\tGET',
    cloudflare: '{"RayID":"x","ClientRequestHost":"a.example.com"}',
    'azure-waf':
      '{"time":"2026-07-01T10:20:30Z","category":"ApplicationGatewayPerformanceLog","properties":{}}',
    'cloud-armor': '{"httpRequest":{},"jsonPayload":{}}',
    envoy: '{"authority":"a.example.com","path":"/","response_flags":"-"}',
    iis: '2026-07-01 10:20:30 10.0.0.1 GET / - 443 - 192.0.2.7 curl/8 - 200 0 0 15',
    zoraxy: '2026-07-01 [router:host-http] [origin:a.example.com] [client: 192.0.2.7] GET / 200',
    traefik: '{"RequestHost":"a.example.com","RequestPath":"/"}',
    haproxy:
      '192.0.2.7:1 [06/Feb/2026:12:14:14] web web/a 0/0/0/1/2 200 5 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"',
    naxsi: '26/07/01 10:20:30 [error] 34#34: *8 NAXSI_FMT: ip=192.0.2.7',
    events: '{"host":"a.example.com"}',
  };

  test.each(LOG_FORMATS)('names the nearest format: %s', async (format) => {
    for (const argv of [['explain'], ['explain', '--format', format]]) {
      const { out } = await run(argv, NEAR_MISSES[format]);
      expect(out).toContain('not counted');
      expect(out).toContain(`nearest: ${format} (no `);
      expect(out).not.toContain('valid date');
    }
  });

  test('reports a line that is not JSON for a JSON format', async () => {
    const { out } = await run(['explain', '--format', 'cloudflare'], 'nonsense');
    expect(out).toContain('nearest: cloudflare (no JSON object)');
  });

  test('shows each variable of a pattern with its value', async () => {
    const pattern = '$host [$time_local] "$request" $status';
    const line = 'shop.example.com [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200';
    const { out } = await run(['explain', '--pattern', pattern], `${line}\n${line.replace('200', 'x')}`);
    expect(out.split('\n')).toEqual([
      'line 1: counted as a request; format access',
      '  time  2026-07-01T10:20:30.000Z',
      '  host  shop.example.com',
      '  $host        shop.example.com',
      '  $time_local  01/Jul/2026:10:20:30 +0000',
      '  $request     GET / HTTP/1.1',
      '  $status      200',
      'line 2: not counted (unknown_format): the line does not match the given format, or any known one',
      '  $host        shop.example.com',
      '  $time_local  01/Jul/2026:10:20:30 +0000',
      '  $request     GET / HTTP/1.1',
      '  expected $status (a number) up to the end of the line from character 64 on, found "x"',
      '  see   docs/log-formats.md#unknown_format',
      '',
      'lines                2',
      'accepted             1',
      '  access             1',
      'requests             1',
      'attacks              0',
      'dropped              1',
      '  unknown_format     1',
      '',
    ]);
    const [record] = JSON.parse((await run(['explain', '--json', '--pattern', pattern], line)).out);
    expect(record.fields).toContainEqual(['$status', '200']);
  });

  test('rejects a pattern without a time, and a pattern with another format', async () => {
    const without = await run(['explain', '--pattern', '$host "$request"'], 'x');
    expect(without).toMatchObject({
      status: 2,
      err: expect.stringContaining('must contain the time: $time_local'),
    });
    const other = await run(['explain', '--pattern', '%t', '--format', 'events'], 'x');
    expect(other.err).toContain('--pattern is for access logs, but --format is events');
    const zone = await run(['explain', '--timezone', 'Europe/Berlinn'], 'x');
    expect(zone.err).toContain("--timezone is 'Europe/Berlinn', but must be an offset like +08:00");
  });

  test('prints a problem of many lines in full three times', async () => {
    const part = [
      'the line is part of JSON that is printed over several lines: put each record on one line, for example with `jq -c .`',
      '  see   docs/log-formats.md#json_fragment',
    ].join('\n');
    const record = { a: ['x', 'y'], b: { c: { d: 1, e: 2 } } };
    const { out } = await run(['explain'], JSON.stringify(record, null, 1));
    expect(out.slice(0, out.indexOf('\n\n'))).toBe(
      [
        ...[1, 2].map((line) => `line ${line}: not counted (json_fragment): ${part}`),
        `line 3: not counted (json_fragment): ${part}`,
        'line 4: not counted (not_an_object): the line is JSON, but not an object',
        '  see   docs/log-formats.md#not_an_object',
        'lines 5-12: not counted (json_fragment), as above',
      ].join('\n'),
    );
    expect(out).toMatch(/^dropped +12$/m);
    expect(JSON.parse((await run(['explain', '--json'], JSON.stringify(record, null, 1))).out)).toHaveLength(
      12,
    );
  });

  test('folds only lines in a row with the same problem', async () => {
    const repeated = ['[1]', '[1]', '[1]', '[1]', HIT, '[1]', '[1, 2]', '', '[1]'].join('\n');
    const { out } = await run(['explain'], repeated);
    expect(out.split('\n').filter((line) => / as above$|counted as/.test(line))).toEqual([
      'line 4: not counted (unknown_format), as above',
      'line 5: counted as an attack (custom); format apache-error',
      'lines 6-7: not counted (unknown_format), as above',
      'line 9: not counted (unknown_format), as above',
    ]);
    expect(out).toMatch(/^dropped +7$/m);
  });

  test('names the reason for records that ingest drops as too old or in the future', async () => {
    const day = 86_400_000;
    const times = [-181, -179, 2].map((days) => NOW + days * day);
    const lines = times.map((time) => JSON.stringify({ time, attack: 'xss' })).join('\n');
    const { out } = await run(['explain', '--format', 'events'], lines);
    expect(out.match(/^line .*/gm)).toEqual([
      'line 1: not counted (too_old): the event is older than the retention time, or before the horizon of the store; ' +
        'otherwise a request and an attack (xss); format events',
      'line 2: counted as a request and an attack (xss); format events',
      'line 3: not counted (in_future): the event is more than 24 hours in the future; ' +
        'otherwise a request and an attack (xss); format events',
    ]);
    expect(out).toContain(`\n  time  ${new Date(times[0] ?? 0).toISOString()}\n`);
    expect(out).toContain('\n  see   docs/log-formats.md#in_future\n');
    expect(out).toMatch(/^accepted +1$/m);
    expect(out).toMatch(/^dropped +2\n {2}too_old +1\n {2}in_future +1$/m);
    const old = Array.from({ length: 50 }, (_, i) => `{"time":${i}}`).join('\n');
    const many = await run(['explain', '--format', 'events'], old);
    expect(many.out).toContain('\nlines 4-50: not counted (too_old), as above\n');
    expect(out).toContain(
      '\nRecords older than 180 days, the default of --retention: 1. ' +
        'To count them, use a longer --retention for ingest and for the server.\n',
    );
    expect((await run(['explain'], LINES)).out).not.toContain('--retention');
    expect(JSON.parse((await run(['explain', '--json'], lines)).out)).toMatchObject([
      { line: 1, dropped: 'too_old', attack: 'xss' },
      { line: 2, attack: 'xss' },
      { line: 3, dropped: 'in_future', see: 'docs/log-formats.md#in_future' },
    ]);
  });

  test('a record that stays incomplete holds back at most 1,000 results', async () => {
    const access = '192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200 6';
    const { out } = await run(['explain'], [HIT, ...Array(1_500).fill(access)].join('\n'));
    const numbers = (out.match(/^line \d+/gm) ?? []).map((text) => Number(text.slice('line '.length)));
    const others = Array.from({ length: 1_500 }, (_, i) => i + 2);
    expect(numbers).toEqual([...others.slice(0, 500), 1, ...others.slice(500)]);
  });

  test('shows why an audit record is not an attack, and overrides', async () => {
    const file = join(DIRECTORY, 'categories.json');
    writeFileSync(file, '{"rules": {"942100": "none"}}');
    const { out } = await run(['explain', '--categories', file], TRANSACTION);
    expect(out).toContain('line 1: not counted (not_an_attack)');
    expect(out).toContain('942100: none, override');
  });

  test('prints hosts as they are stored', async () => {
    const line = (host: string) => `${host} 192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200`;
    const { out } = await run(['explain'], [line('Shop.Example.com:443'), line('x'.repeat(300))].join('\n'));
    expect(out).toContain('\n  host  shop.example.com\n');
    expect(out).toMatch(/\n {2}host {2}x{300} \(not a host name, ignored\)\n/);
    const [record] = JSON.parse((await run(['explain', '--json'], line('Shop.Example.com:443'))).out);
    expect(record.host).toBe('shop.example.com');
  });

  test('escapes control characters of the log', async () => {
    const line = JSON.stringify({ time: 8.7e15, host: '\u001b[2J\u009b2J\u202e\u0000\ud800\u{e0001}' });
    for (const argv of [['explain'], ['explain', '--json']]) {
      const { out } = await run(argv, line);
      expect(out.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]/u);
    }
    const [record] = JSON.parse((await run(['explain', '--json'], line)).out);
    expect(record.host).toBe('\u001b[2J\u009b2J\u202e\u0000\ud800\u{e0001}');
  });

  test('reports a missing file, and all invalid options at once', async () => {
    expect(await run(['explain', join(DIRECTORY, 'none')])).toMatchObject({ status: 1 });
    const file = join(DIRECTORY, 'wrong.json');
    writeFileSync(file, '{"rules": {"1": "x", "y": "xss"}}');
    const { status, err } = await run(['explain', '--categories', file, '--format', 'w3c']);
    expect(status).toBe(2);
    expect(err).toMatch(/rule "1" is "x".*"y" is not a rule id/);
    expect(err).toContain("--format is 'w3c'");
  });
});

describe('categories', () => {
  test('prints the whole table, as text and as JSON', async () => {
    const { out } = await run(['categories']);
    for (const word of [
      'version 3',
      '200002',
      '4. A webshell rule among them wins; otherwise the category with the most points does.',
      '942xxx',
      'attack-sqli',
      'REQUEST-930-APPLICATION-ATTACK-LFI',
      'antiscan_*',
      'RATE_BASED',
    ]) {
      expect(out).toContain(word);
    }
    const table = JSON.parse((await run(['categories', '--json'])).out);
    expect(table).toMatchObject({
      version: 3,
      points: { critical: 5 },
      custom_rule: 'custom',
      overrides: [],
    });
    expect(table.crs.find(({ category }: { category: string }) => category === 'sqli').rules).toEqual([
      '942xxx',
    ]);
  });

  test('prints overrides', async () => {
    const file = join(DIRECTORY, 'categories.json');
    writeFileSync(file, '{"rules": {"942100": "custom", "10001": "none"}}');
    expect((await run(['categories', '--categories', file])).out).toMatch(
      /Overrides\n {2}none +10001\n {2}custom +942100/,
    );
  });
});

test.each([
  ['explain', ['explain'], { status: 0, err: '' }],
  [
    'init',
    ['init', '--data', join(DIRECTORY, 'new'), '--password-stdin'],
    { status: 1, err: 'wafstat: stopped\n' },
  ],
])('%s stops while standard input is silent', async (_, argv, expected) => {
  const stopping = new AbortController();
  const silent = new PassThrough();
  const running = run(argv, silent, stopping.signal);
  await expect.poll(() => silent.listenerCount('readable')).toBeGreaterThan(0);
  stopping.abort();
  expect(await running).toMatchObject(expected);
});
