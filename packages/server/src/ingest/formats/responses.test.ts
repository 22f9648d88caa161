/** What each format says about the response to a request. */
import { expect, test } from 'vitest';
import { fixtureLines } from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';
import { compilePattern } from './pattern.ts';

const STAMP = '[10/Dec/2025:09:25:32 +0000]';
const json = JSON.stringify;

function responsesOf(lines: readonly string[], pattern?: string) {
  const reader = createReader({
    format: 'auto',
    ...(pattern !== undefined && { pattern: compilePattern(pattern) }),
  });
  const parsed = [...lines.flatMap((line) => reader.read(line, 0)), ...reader.flush()];
  return parsed.flatMap((one) => {
    if (one.kind !== 'record' || !one.record.request) return [];
    const { status, upstreamStatus, bytesIn, bytesOut, page } = one.record;
    return [[status, upstreamStatus, bytesIn, bytesOut, page]];
  });
}

test.each([
  [
    'access',
    `192.0.2.7 - - ${STAMP} "GET /a?b HTTP/1.1" 404 153 "-" "-"`,
    [404, undefined, undefined, 153, '/a'],
  ],
  ['access', `192.0.2.7 - - ${STAMP} "GET /a HTTP/1.1" 304 -`, [304]],
  ['access', `192.0.2.7 - - ${STAMP} "GET /\\"x\\" HTTP/1.1" 200 5`, [200, undefined, undefined, 5]],
  ['access', `192.0.2.7 - - ${STAMP} "GET /aaaa`, []],
  [
    'access-json',
    json({ msec: 1_765_358_732.1, host: 'a', status: 502, upstream_status: '504, 502', request_uri: '/x?y' }),
    [502, 502, undefined, undefined, '/x'],
  ],
  [
    'access-json',
    json({
      msec: 1_765_358_732.1,
      status: '403',
      upstream_status: '-',
      body_bytes_sent: 9,
      request_length: 7,
    }),
    [403, 0, 7, 9],
  ],
  ['access-json', json({ msec: 1_765_358_732.1, status: 403, upstream_status: '' }), [403, 0]],
  [
    'access-json',
    json({ msec: 1_765_358_732.1, status: 403, upstream_status: '', OriginStatus: 404 }),
    [403, 404],
  ],
  ['access-json', json({ msec: 1_765_358_732.1, status: 403, upstream_status: null }), [403, 0]],
  ['access-json', json({ msec: 1_765_358_732.1, status: 403, upstream_status: 404 }), [403, 404]],
  ...['1404', 1404, '404x', '-404', 'x'].map((upstream_status): [string, string, number[]] => [
    'access-json',
    json({ msec: 1_765_358_732.1, status: 403, upstream_status }),
    [403, 0],
  ]),
  ...['404', '502, 404', '502 : 404', '502,404', '-, 404 '].map(
    (upstream_status): [string, string, number[]] => [
      'access-json',
      json({ msec: 1_765_358_732.1, status: 403, upstream_status }),
      [403, 404],
    ],
  ),
  [
    'ECS',
    json({
      '@timestamp': '2025-12-10T09:25:32Z',
      http: { request: { bytes: 5 }, response: { status_code: 500, bytes: 6 } },
      url: { path: '/e' },
    }),
    [500, undefined, 5, 6, '/e'],
  ],
  [
    'haproxy',
    '192.0.2.7:1 [10/Dec/2025:09:25:32.490] in app/web1 0/0/0/1/1 502 73 - - ---- 1/1/0/0/0 0/0 "GET /h?i HTTP/1.1"',
    [502, undefined, undefined, 73, '/h'],
  ],
  ...['000', '999', '-'].map((code): [string, string, (number | undefined)[]] => [
    'access',
    `192.0.2.7 - - [10/Dec/2025:09:25:32 +0000] "GET /a HTTP/1.1" ${code} 73 "-" "c"`,
    [undefined, undefined, undefined, 73],
  ]),
  [
    'haproxy',
    '192.0.2.7:1 [10/Dec/2025:09:25:32.490] in closed/web2 0/0/-1/-1/0 503 217 - - SC-- 1/1/0/0/0 0/0 "GET /h HTTP/1.1"',
    [503, 0, undefined, 217],
  ],
  [
    'haproxy',
    '192.0.2.7:1 [10/Dec/2025:09:25:32.490] in in/<NOSRV> 0/-1/-1/-1/0 -1 0 - - CR-- 1/1/0/0/0 0/0 "<BADREQ>"',
    [undefined, 0, undefined, 0],
  ],
  [
    'events',
    json({ time: 1_765_358_732_000, status: 404, url: '/p?q', bytes_out: 3 }),
    [404, undefined, undefined, 3, '/p'],
  ],
  [
    'events',
    json({ time: 1_765_358_732_000, host: 'a', status: 200, upstream_status: 0, bytes_in: 1 }),
    [200, 0, 1],
  ],
  ['events', json({ time: 1_765_358_732_000, host: 'a' }), []],
  [
    'events',
    json({ time: 1_765_358_732_000, count: 2, bytes_in: 2 ** 41, bytes_out: 2 ** 41 + 1 }),
    [undefined, undefined, 2 ** 41],
  ],
  [
    'events',
    json({ time: 1_765_358_732_000, count: 1_000_000, bytes_in: 2 ** 53 - 1, bytes_out: 2 ** 53 }),
    [undefined, undefined, 2 ** 53 - 1],
  ],
])('%s: %s', (_, line, expected) => {
  expect(responsesOf([line])).toEqual([Array.from({ length: 5 }, (__, i) => expected[i])]);
});

test.each([
  [
    '$remote_addr [$time_local] $status $upstream_status $bytes_sent $request_length "$request"',
    [502, 504, 9, 7, '/x'],
  ],
  ['%h [%t] %>s %X %O %I "%r"', [502, undefined, 9, 7, '/x']],
])('the pattern %s', (pattern, [status, upstream, sent, received, page]) => {
  const time = pattern.startsWith('%') ? `[${STAMP}]` : STAMP;
  const line = `192.0.2.7 ${time} 502 ${upstream ?? '-'} 9 7 "GET /x?y HTTP/1.1"`;
  expect(responsesOf([line], pattern)).toEqual([[status, upstream, received, sent, page]]);
});

test.each([
  ['envoy.log', [200, undefined, 0, 135, undefined]],
  ['envoy-text.log', [200, undefined, 0, 6, undefined]],
  ['traefik.log', [200, 200, 0, 135, undefined]],
  ['haproxy.log', [200, 0, undefined, 73, undefined]],
  ['aws-alb.log', [200, 200, 34, 366, undefined]],
  ['cloudflare.log', [200, undefined, undefined, undefined, undefined]],
  ['azure-waf.log', [403, undefined, 65, 553, undefined]],
  ['cloud-armor.log', [200, undefined, 100, undefined, undefined]],
  ['lts.log', [200, undefined, undefined, undefined, undefined]],
  ['zoraxy.log', [200, undefined, undefined, undefined, undefined]],
])('the first request of %s', (name, expected) => {
  expect(responsesOf(fixtureLines(name))[0]).toEqual(expected);
});

test.each(['cloudfront.log', 'iis.log'])('every request of %s has a code', (name) => {
  const codes = responsesOf(fixtureLines(name)).map(([status]) => status);
  expect(codes.length).toBeGreaterThan(0);
  expect(codes).not.toContain(undefined);
});

test.each([
  ['access-json', { method: 'GET', uri: '/x', status: 200, count: 3 }],
  ['access-json', { request: 'GET /x HTTP/1.1', status: 200, count: 3 }],
  ['access-json', { http: { request: { method: 'GET' } }, status: 200, count: 3 }],
  ['access-json', { time: undefined, msec: 1_765_358_732.1, status: 200, count: 3 }],
  ['events', { status: 404, url: '/x', count: 3 }],
  ['events', { status: 200, upstream_status: 200, bytes_in: 1, bytes_out: 2, count: 3 }],
])('%s has the number `count`: %j', (format, fields) => {
  const line = json({ time: '2025-12-10T09:25:32Z', host: 'a', ...fields });
  const [parsed] = createReader({ format: 'auto' }).read(line, 0);
  const count = format === 'events' ? 3 : 1;
  expect(parsed).toMatchObject({ kind: 'record', record: { status: fields.status, count } });
});
