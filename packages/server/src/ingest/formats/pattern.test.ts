import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { outcomes } from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';
import { compilePattern } from './pattern.ts';
import { fixedZone, parseZone } from './time-zone.ts';

const TIME = Date.UTC(2025, 11, 10, 9, 25, 32);
const STAMP = '10/Dec/2025:09:25:32 +0000';

function read(pattern: string, line: string, zone = fixedZone(0)) {
  return createReader({ format: 'auto', pattern: compilePattern(pattern), zone }).read(line, 0);
}

const record = (time: number, host: string | undefined) => [
  {
    kind: 'record',
    format: 'access',
    record: expect.objectContaining({ time, host, request: true, attack: null }),
  },
];

describe('a pattern of nginx', () => {
  const MAIN = `log_format  main  '$remote_addr - $remote_user [$time_local] "$request" '
                      '$status $body_bytes_sent "$http_referer" '
                      '"$http_user_agent" "$http_x_forwarded_for" $host';`;
  const LINE = `192.0.2.7 - - [${STAMP}] "GET / HTTP/1.1" 200 6 "-" "curl" "-" shop.example.com`;

  test.each([
    ['as a whole directive', MAIN, LINE, TIME, 'shop.example.com'],
    [
      'without the name of the directive',
      MAIN.replace(/^log_format\s+main\s+/, ''),
      LINE,
      TIME,
      'shop.example.com',
    ],
    [
      'with $time_iso8601',
      '$time_iso8601 $host "$request"',
      '2025-12-10T10:25:32+01:00 a.example "-"',
      TIME,
      'a.example',
    ],
    [
      'with $msec, which is more exact',
      '$msec [$time_local] $' + '{host}',
      `1765358732.123 [${STAMP}] a.example`,
      TIME + 123,
      'a.example',
    ],
    [
      'with the port after the host',
      '$host:$server_port $remote_addr [$time_local]',
      `[::1]:443 ::1 [${STAMP}]`,
      TIME,
      '[::1]',
    ],
    [
      'with the address',
      '[$time_local] "$scheme://$host$request_uri"',
      `[${STAMP}] "https://a.example/b/c"`,
      TIME,
      'a.example',
    ],
    ['without a host', '$remote_addr [$time_local]', `::1 [${STAMP}]`, TIME, undefined],
    [
      'with the better of two hosts',
      '$server_name $http_host $host [$time_local]',
      `_ b.example:80 a.example [${STAMP}]`,
      TIME,
      'a.example',
    ],
    [
      'with the next best when it is empty',
      '$host "$http_host" $server_name [$time_local]',
      `- "-" c.example [${STAMP}]`,
      TIME,
      'c.example',
    ],
    [
      'with tabs',
      '$time_iso8601\\t$host\\t$request',
      '2025-12-10T09:25:32+00:00\ta.example\tGET / HTTP/1.1',
      TIME,
      'a.example',
    ],
    [
      'as JSON',
      `escape=json '{"t":"$time_iso8601","h":"$http_host","ua":"$http_user_agent","s":$status}'`,
      '{"t":"2025-12-10T09:25:32+00:00","h":"a.example","ua":"x\\\\\\",\\"h\\":\\"evil\\u0000","s":200}',
      TIME,
      'a.example',
    ],
    ['with a user name of several words', MAIN, LINE.replace('- -', '- a [b] c'), TIME, 'shop.example.com'],
    [
      'that was cut after time and host',
      '$host [$time_local] "$request" $status "$http_user_agent"',
      `a.example [${STAMP}] "GET /aaaaa`,
      TIME,
      'a.example',
    ],
    [
      'that was cut between two values',
      '$host [$time_local] "$request" $status "$http_user_agent"',
      `a.example [${STAMP}] "GET /" 200 "cu`,
      TIME,
      'a.example',
    ],
    [
      'with percent signs of its own',
      '$host [$time_local] 100%d $status',
      `a.example [${STAMP}] 100%d 200`,
      TIME,
      'a.example',
    ],
  ])('%s', (_, pattern, line, time, host) => {
    expect(read(pattern, line)).toEqual(record(time, host));
  });

  test('lets no client choose the time or the host', () => {
    const forged = `x\\x22 \\x22-\\x22 evil.example [01/Jan/2020:00:00:00 +0000] \\x22`;
    expect(read(MAIN, LINE.replace('curl', forged))).toEqual(record(TIME, 'shop.example.com'));
    expect(read(MAIN, LINE.replace('- -', `- ${forged}`))).toEqual(record(TIME, 'shop.example.com'));
  });
});

describe('a pattern of Apache', () => {
  test.each([
    [
      'combined',
      '%h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"',
      `::1 - ann b [${STAMP}] "GET / HTTP/1.1" 200 6 "-" "a\\\\\\"b"`,
      TIME,
      undefined,
    ],
    [
      'as a whole directive',
      'LogFormat "%v:%p %h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" vhost_combined',
      `a.example:443 ::1 - - [${STAMP}] "GET / HTTP/1.1" 200 6 "-" "curl"`,
      TIME,
      'a.example',
    ],
    [
      'with the Host header',
      '%{Host}i %V %v %t',
      `a.example:8080 b.example c.example [${STAMP}]`,
      TIME,
      'a.example:8080',
    ],
    [
      'with a host in upper case',
      '%t "%{HOST}i" %!200,304{Referer}i',
      `[${STAMP}] "a.example" -`,
      TIME,
      'a.example',
    ],
    ['in milliseconds', '%{msec}t %v', '1765358732123 a.example', TIME + 123, 'a.example'],
    ['in microseconds', '%{usec}t %v', '1765358732123456 a.example', TIME + 123, 'a.example'],
    [
      'in seconds and their fraction',
      '%{sec}t.%{usec_frac}t %v',
      '1765358732.123456 a.example',
      TIME + 123,
      'a.example',
    ],
    [
      'in seconds and their fraction, without a dot',
      '%{sec}t%{msec_frac}t %v',
      '1765358732123 a.example',
      TIME + 123,
      'a.example',
    ],
    [
      'with the fraction inside the time',
      '[%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] %v',
      '[10/Dec/2025:10:25:32.123 +0100] a.example',
      TIME + 123,
      'a.example',
    ],
    [
      'with a time that names no zone',
      '%{%Y-%m-%d %H:%M:%S}t %v',
      '2025-12-10 10:25:32 a.example',
      TIME,
      'a.example',
    ],
    ['with the name of UTC', '%{%F %T %Z}t %v', '2025-12-10 09:25:32 UTC a.example', TIME, 'a.example'],
    ['with the hour of twelve', '%{%D %r}t %v', '12/10/25 10:25:32 AM a.example', TIME, 'a.example'],
    [
      'with names',
      '%{%A, %d %B %Y %H:%M:%S %z}t %v',
      'Wednesday, 10 December 2025 09:25:32 +0000 a.example',
      TIME,
      'a.example',
    ],
    ['with the time of %c', '%{begin:%c}t %v', 'Wed Dec 10 10:25:32 2025 a.example', TIME, 'a.example'],
    [
      'with start and end',
      '%{end:sec}t %{begin:sec}t %v',
      '1765358999 1765358732 a.example',
      TIME,
      'a.example',
    ],
    [
      'with the end only',
      '%{end:%FT%T}t.%{end:msec_frac}t%{end:%z}t %v',
      '2025-12-10T09:25:32.123+0000 a.example',
      TIME + 123,
      'a.example',
    ],
    [
      'with the fraction of another moment',
      '%{%FT%T%z}t %{end:msec_frac}t %v',
      '2025-12-10T09:25:32+0000 123 a.example',
      TIME,
      'a.example',
    ],
  ])('%s', (_, pattern, line, time, host) => {
    expect(read(pattern, line, parseZone('Europe/Berlin'))).toEqual(record(time, host));
  });
});

test.each([
  ['$remote_addr [$time_local] "$request" $status', `::1 [${STAMP}] hello`],
  ['$remote_addr [$time_local] "$request" $status', `::1 [${STAMP}] "GET /" abc`],
  ['$remote_addr [$time_local] "$request" $status', `::1 [${STAMP.replace('Dec', 'dec')}] "GET /" 200`],
  ['$remote_addr [$time_local] "$request" $status', '::1'],
  ['$remote_addr [$time_local] "$request" $status', '{"time":1}'],
  ['$remote_addr [$time_local] "$request" $status', '--622ca252-A--'],
  ['host=$host [$time_local]', `::1 [${STAMP}]`],
  ['%v %t', `a b [${STAMP}]`],
])('%s does not match %s', (pattern, line) => {
  expect(read(pattern, line)).toEqual([{ kind: 'dropped', reason: 'unknown_format', format: 'none' }]);
});

test('a time that does not exist is dropped as bad_time', () => {
  expect(outcomes(read('%v [%{%F %T}t]', 'a.example [2025-02-31 09:25:32]'))).toEqual(['bad_time']);
  expect(outcomes(read('$host [$time_local]', 'a [31/Feb/2025:09:25:32 +0000]'))).toEqual(['bad_time']);
});

test.each([
  [
    '$remote_addr "$request"',
    'must contain the time: $time_local, $time_iso8601 or $msec for nginx, %t or %{...}t',
  ],
  ['%h %{%H:%M:%S}t', 'must contain the time'],
  ['%h %{%F}t %{end:%T}t', 'must contain the time'],
  ['combined', 'must contain variables like $time_local or %t'],
  ['', 'must contain variables'],
  ['%{%Q}t', '%{%Q}t contains %Q'],
  ['$remote_user$time_local', 'must have text between $remote_user and $time_local'],
  ['[$time_local] $status$host', 'must have text between $status and $host'],
  ['$'.repeat(4_097), 'must have at most 4096 characters'],
  ['$msec'.concat(' $a'.repeat(200)), 'must have at most 64 variables'],
])('%s is rejected: %s', (pattern, message) => {
  expect(() => compilePattern(pattern)).toThrow(message);
});

describe('Nginx Proxy Manager', () => {
  const LINES = [
    `[${STAMP}] - 200 200 - GET https shop.example.com "/a?b=[Client x]" [Client 192.0.2.7] [Length 6] [Gzip -] [Sent-to 10.0.0.2] "curl" "-"`,
    `[${STAMP}] HIT 502, 200 200 - GET http shop.example.com "/" [Client 192.0.2.7] [Length 6] [Gzip 2.31] [Sent-to 10.0.0.2] "a \\x22 b" "-"`,
    `[${STAMP}] 404 - GET http shop.example.com "/" [Client 192.0.2.7] [Length 552] [Gzip -] "curl" "-"`,
  ];

  test.each(LINES)('%s', (line) => {
    const expected = [{ kind: 'record', record: { time: TIME, host: 'shop.example.com', request: true } }];
    const auto = createReader({ format: 'auto' }).read(line, 0);
    expect(auto).toMatchObject([{ ...expected[0], format: 'nginx-proxy-manager' }]);
    expect(createReader({ format: 'nginx-proxy-manager' }).read(line, 0)).toEqual(auto);
    expect(read('nginx-proxy-manager', line)).toMatchObject(expected);
  });
});

describe('explained', () => {
  const pattern = compilePattern('$host [$time_local] "$request" $status');

  test('a line that matches shows each variable', () => {
    expect(pattern.explain(`a.example [${STAMP}] "GET /" 200`)).toEqual({
      fields: [
        ['$host', 'a.example'],
        ['$time_local', STAMP],
        ['$request', 'GET /'],
        ['$status', '200'],
      ],
    });
    expect(pattern.explain(`a.example [${STAMP}] "GE`).fields.at(-1)).toEqual(['$request', 'GE']);
  });

  test('a line that does not match shows how far it does, and what was expected', () => {
    expect(pattern.explain('a.example [yesterday] "GET /" 200')).toEqual({
      fields: [['$host', 'a.example']],
      mismatch:
        'expected $time_local (a time) followed by "] \\"" from character 12 on, found "yesterday] \\"GET /\\" 200"',
    });
    expect(compilePattern('[$msec] $host').explain('x')).toEqual({
      fields: [],
      mismatch: 'expected "[" from character 1 on, found "x"',
    });
  });
});

/** How each server writes a value of a client. */
const bytesOf = (text: string) => [...Buffer.from(text)];
const hex = (byte: number) => `\\x${byte.toString(16).toUpperCase().padStart(2, '0')}`;
const nginxDefault = (text: string) =>
  bytesOf(text)
    .map((byte) =>
      byte < 0x20 || byte > 0x7e || byte === 0x22 || byte === 0x5c ? hex(byte) : String.fromCharCode(byte),
    )
    .join('');
const nginxJson = (text: string) => JSON.stringify(text).slice(1, -1);
const apache = (text: string) =>
  bytesOf(text)
    .map((byte) => {
      if (byte === 0x22 || byte === 0x5c) return `\\${String.fromCharCode(byte)}`;
      if (byte < 0x20 || byte > 0x7e)
        return byte === 9 ? '\\t' : byte === 10 ? '\\n' : hex(byte).toLowerCase();
      return String.fromCharCode(byte);
    })
    .join('');

interface Request {
  time: number;
  host: string;
  port: number;
  address: string;
  status: number;
  user: string;
  line: string;
  agent: string;
}

const hostile = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 30 }),
  fc.constantFrom(
    '',
    '-',
    '"',
    '\\',
    '\\"',
    '" "',
    '] "',
    `[${STAMP}] "x" 200 evil.example`,
    '","h":"evil.example',
    ' [',
    ' - ',
  ),
);
const requests: fc.Arbitrary<Request> = fc.record({
  time: fc.integer({ min: Date.UTC(2002, 0), max: Date.UTC(2068, 0) }),
  host: fc.constantFrom('shop.example.com', 'a', '[2001:db8::1]', '192.0.2.1', 'xn--mnchen-3ya.example'),
  port: fc.integer({ min: 1, max: 65_535 }),
  address: fc.constantFrom('192.0.2.7', '2001:db8::7', '::1'),
  status: fc.integer({ min: 100, max: 599 }),
  user: hostile,
  line: hostile,
  agent: hostile,
});

const two = (n: number) => String(n).padStart(2, '0');
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
/** The local time in a zone 90 minutes east of UTC. */
const clockOf = (time: number) => {
  const date = new Date(time + 90 * 60_000);
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate()];
  const clock = date.toISOString().slice(11, 19);
  return {
    year,
    month,
    day,
    clock,
    common: `${two(day)}/${MONTHS[month - 1]}/${year}:${clock} +0130`,
    ms: String(date.getUTCMilliseconds()).padStart(3, '0'),
  };
};

/** A variable as the pattern has it, what the server writes for it, and how exact a time is. */
type Variable = [pattern: string, value: (request: Request) => string, exactMs?: number];

const NGINX_TIMES: Variable[] = [
  ['[$time_local]', ({ time }) => `[${clockOf(time).common}]`, 1_000],
  [
    '"$time_iso8601"',
    ({ time }) => `"${new Date(time + 5_400_000).toISOString().slice(0, 19)}+01:30"`,
    1_000,
  ],
  ['$msec', ({ time }) => (time / 1_000).toFixed(3), 1],
];
const APACHE_TIMES: Variable[] = [
  ['%t', ({ time }) => `[${clockOf(time).common}]`, 1_000],
  ['%{msec}t', ({ time }) => String(time), 1],
  ['%{sec}t.%{usec_frac}t', ({ time }) => `${Math.floor(time / 1_000)}.${clockOf(time).ms}999`, 1],
  [
    '"%{%FT%T}t.%{msec_frac}t%{%z}t"',
    ({ time }) => `"${new Date(time + 5_400_000).toISOString().slice(0, 23)}+0130"`,
    1,
  ],
  [
    '%{%d/%b/%y %R:%S}t',
    ({ time }) => {
      const { day, month, year, clock } = clockOf(time);
      return `${two(day)}/${MONTHS[month - 1]}/${two(year % 100)} ${clock}`;
    },
    1_000,
  ],
];
const plain = (names: [string, string, string, string]): Variable[] => [
  [names[0], ({ host }) => host],
  [`${names[0]}:${names[1]}`, ({ host, port }) => `${host}:${port}`],
  [names[2], ({ address }) => address],
  [names[3], ({ status }) => String(status)],
];
const quoted = (names: string[], escaped: (text: string) => string): Variable[] => [
  [`"${names[0]}"`, ({ line }) => `"${escaped(line)}"`],
  [`"${names[1]}"`, ({ agent }) => `"${escaped(agent)}"`],
];

const server = (times: Variable[], host: Variable[], others: Variable[]) =>
  fc
    .tuple(
      fc.constantFrom(...times),
      fc.constantFrom(...host),
      fc.subarray(others),
      fc.constantFrom(' ', ' - ', '|', '\t', ' || '),
    )
    .chain(([time, named, more, separator]) =>
      fc
        .shuffledSubarray([time, named, ...more], { minLength: more.length + 2 })
        .map((variables) => ({ variables, separator })),
    );

const nginxPlain = plain(['$host', '$server_port', '$remote_addr', '$status']);
const apachePlain = plain(['%v', '%p', '%h', '%>s']);
const anyPattern = fc.oneof(
  server(NGINX_TIMES, nginxPlain.slice(0, 2), [
    ...nginxPlain.slice(2),
    ...quoted(['$request', '$http_user_agent'], nginxDefault),
  ]),
  server(APACHE_TIMES, apachePlain.slice(0, 2), [
    ...apachePlain.slice(2),
    ...quoted(['%r', '%{User-Agent}i'], apache),
  ]),
);

test('a line that a server writes for a pattern is read with it', () => {
  fc.assert(
    fc.property(
      anyPattern,
      requests,
      fc.string({ unit: 'grapheme', maxLength: 3 }),
      ({ variables, separator }, request, tail) => {
        const end = tail.replace(/[\w\s"\\$%\p{Cc}]/gu, '');
        const pattern = `${variables.map(([text]) => text).join(separator)}${end}`;
        const line = `${variables.map(([, value]) => value(request)).join(separator)}${end}`;
        const exactMs = Math.max(...variables.map(([, , exact]) => exact ?? 0));
        const time = Math.floor(request.time / exactMs) * exactMs;
        expect(read(pattern, line, fixedZone(90))).toEqual(record(time, request.host));
      },
    ),
    { numRuns: scaled(2_000) },
  );
});

test('a user name between spaces is the text up to the time, whatever it contains', () => {
  const pattern = '$remote_addr - $remote_user [$time_local] "$request" $status "$http_user_agent" $host';
  fc.assert(
    fc.property(requests, (request) => {
      const { address, user, line, status, agent, host, time } = request;
      const [name, first, last] = [user, line, agent].map(nginxDefault);
      const text = `${address} - ${name} [${clockOf(time).common}] "${first}" ${status} "${last}" ${host}`;
      expect(read(pattern, text)).toEqual(record(Math.floor(time / 1_000) * 1_000, host));
    }),
    { numRuns: scaled(1_000) },
  );
});

test('JSON that a server writes with escape=json is read with its pattern', () => {
  const pattern = `log_format j escape=json '{"a":"$remote_user","t":$msec,"r":"$request","h":"$host","ua":"$http_user_agent"}';`;
  fc.assert(
    fc.property(requests, ({ user, time, line, host, agent }) => {
      const [a, r, ua] = [user, line, agent].map(nginxJson);
      const text = `{"a":"${a}","t":${(time / 1_000).toFixed(3)},"r":"${r}","h":"${host}","ua":"${ua}"}`;
      expect(read(pattern, text)).toEqual(record(time, host));
    }),
    { numRuns: scaled(1_000) },
  );
});

test('any line takes linear time, whatever the pattern', () => {
  const patterns = [
    '$a $b $c $d $e $f $g $h [$time_local] $host',
    'escape=none $a "$b" "$c" "$d" [$time_local] "$host"',
    '$remote_addr $remote_user $status $scheme $request_method $connection $msec',
    '%u %u %u %u %l %v:%p %t "%r"',
    '"$a" "$b" "$c" [$time_local] "$d"',
  ];
  const parts = [
    ' ',
    '"',
    '\\',
    '\\"',
    ' "',
    '" "',
    'a ',
    '1 ',
    ' [',
    'a:1 ',
    `[${STAMP}] `,
    `a [${STAMP}] "`,
  ];
  for (const pattern of patterns) {
    const { parse } = compilePattern(pattern);
    const reader = createReader({
      format: 'auto',
      pattern: { text: pattern, parse, explain: () => ({ fields: [] }) },
    });
    for (const part of parts) expect(reader.read(part.repeat(100_000 / part.length), 0)).toHaveLength(1);
  }
});

test('any text is a pattern or is rejected, and any line can be read with it', () => {
  const token = fc.constantFrom(
    '$',
    '%',
    '{',
    '}',
    '"',
    "'",
    '\\',
    '$time_local',
    '%t',
    '%{',
    '%{%F}t',
    '$host',
    ' ',
    '[',
    'log_format a ',
    'LogFormat ',
    'escape=json ',
    '%>s',
    '%%',
    ';',
  );
  fc.assert(
    fc.property(
      fc.array(fc.oneof(token, fc.string({ maxLength: 4 })), { maxLength: 12 }),
      fc.string({ unit: 'binary' }),
      (tokens, line) => {
        const text = tokens.join('');
        try {
          compilePattern(text);
        } catch (error) {
          expect((error as Error).message).toMatch(/^(?:must |%)/);
          return;
        }
        const { explain } = compilePattern(text);
        expect(read(text, line)).toHaveLength(1);
        expect(read(text, text)).toHaveLength(1);
        expect(explain(line).fields.length).toBeLessThanOrEqual(64);
      },
    ),
    { numRuns: scaled(3_000) },
  );
});

test('a pattern needs no state between lines', () => {
  const reader = createReader({ format: 'auto', pattern: compilePattern('$host [$time_local]') });
  reader.read(`a [${STAMP}]`, 0);
  expect(reader.state()).toBe('');
  expect(reader.takesAccess()).toBe(false);
});
