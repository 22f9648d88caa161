/** Malformed requests on every route, anonymous and as a user of one project (FUZZ_SEED and FUZZ_SCALE: random.ts). */
import { connect } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Api, call, login } from './api.ts';
import { within } from './process.ts';
import { scaled } from './random.ts';
import { Sandbox, type Server } from './sandbox.ts';

const RUNS = scaled(300);
/** Concurrent connections of a run. */
const CONNECTIONS = 12;
/** Longer than the service waits for headers: only a hanging connection takes this long. */
const HANGING_MS = 30_000;

const sandbox = new Sandbox();
const END = Math.floor(Date.now() / 60_000) * 60_000;
const RANGE = `from=${END - 3_600_000}&to=${END}`;
/** Must appear in responses of its own project only. */
const CANARY = { hostname: 'canary-5f1d.example.net', source: 'canary-8c2e', count: 918_273 };

let server: Server;
let mine: Api;
let theirs: Api;
let theirHostId: string;
let cookie: string;
let routes: { method: string; path: string }[];

beforeAll(async () => {
  const installation = await sandbox.init();
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', 'mine');
  const { password } = await sandbox.runJson<{ password: string }>(
    ...['user', 'add', 'mallory', '--role', 'admin', '--project', 'mine'],
  );
  await sandbox.ingest('mine', [{ time: END - 90_000, host: 'a.example.com', attack: 'xss' }]);
  const { hostname: host, count, source } = CANARY;
  const canary = { time: END - 90_000, host, attack: 'sqli', count };
  await sandbox.ingest(installation.project_id, [canary], '--source', source);
  server = await sandbox.serve();
  const { address } = server;
  mine = await login(address, { ...installation, user: 'mallory', password, project_id: id });
  theirs = await login(address, installation);
  theirHostId = (await theirs.hostIds()).get(host) ?? '';
  cookie = await session(address, { domain: installation.domain, user: 'mallory', password });
  routes = await allRoutes(address);
});
afterAll(() => sandbox.clear());

async function session(address: string, body: object): Promise<string> {
  const headers = { 'Content-Type': 'application/json', 'X-Wafstat-Console': '1' };
  const request = { method: 'POST', headers, body: JSON.stringify(body) };
  const response = await call(address, '/console/api/session', request);
  const [first = ''] = response.headers['set-cookie'] ?? [];
  if (first === '') throw new Error(`no session: ${response.status} ${response.text}`);
  return first.split(';', 1)[0] ?? '';
}

async function allRoutes(address: string): Promise<{ method: string; path: string }[]> {
  const { text } = await call(address, '/openapi.json');
  const { paths } = JSON.parse(text) as { paths: Record<string, Record<string, unknown>> };
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => ({ method: method.toUpperCase(), path })),
  );
  const hidden = [
    'GET /',
    'GET /openapi.json',
    'GET /identity',
    'GET /identity/v3',
    'GET /console/',
    'GET /console/index.html',
    'GET /console/api/session',
    'POST /console/api/session',
    'POST /console/api/projects/{project_id}/figures',
  ].map((line) => {
    const [method = '', path = ''] = line.split(' ');
    return { method, path };
  });
  return [...documented, ...hidden];
}

/** A random request. Its projects and tokens are symbolic, because they are known only when the service runs. */
interface RandomRequest {
  route: number;
  project: 'mine' | 'theirs' | 'odd';
  credentials: 'none' | 'token' | 'cookie' | 'odd';
  method: string | null;
  form: 'origin' | 'absolute' | 'other';
  odd: string;
  query: readonly string[];
  version: string;
  headers: readonly string[];
  framing: Framing;
  body: string;
  lineEnd: string;
}

const FRAMINGS = {
  none: () => '',
  length: (body: string) => `Content-Length: ${body.length}\n\n${body}`,
  short: (body: string) => `Content-Length: ${body.length >> 1}\n\n${body}`,
  long: (body: string) => `Content-Length: ${body.length + 7}\n\n${body}`,
  twice: (body: string) => `Content-Length: ${body.length}\nContent-Length: ${body.length}\n\n${body}`,
  'two lengths': (body: string) => `Content-Length: ${body.length}\nContent-Length: 0\n\n${body}`,
  'a list of lengths': (body: string) => `Content-Length: ${body.length}, ${body.length}\n\n${body}`,
  negative: (body: string) => `Content-Length: -1\n\n${body}`,
  hexadecimal: (body: string) => `Content-Length: 0x${body.length.toString(16)}\n\n${body}`,
  huge: (body: string) => `Content-Length: 99999999999999999999\n\n${body}`,
  'too large': (body: string) => `Content-Length: 4294967296\n\n${body}`,
  chunked: (body: string) => `Transfer-Encoding: chunked\n\n${chunk(body)}0\r\n\r\n`,
  'chunked with trailers': (body: string) =>
    `Transfer-Encoding: chunked\nTrailer: X-Auth-Token\n\n${chunk(body)}0\r\nX-Auth-Token: x\r\nHost: y\r\n\r\n`,
  'chunk extensions': (body: string) =>
    `Transfer-Encoding: chunked\n\n${body.length.toString(16)};a="\r\n";b\r\n${body}\r\n0\r\n\r\n`,
  'a bad chunk size': (body: string) => `Transfer-Encoding: chunked\n\nxyz\r\n${body}\r\n0\r\n\r\n`,
  'a negative chunk': (body: string) => `Transfer-Encoding: chunked\n\n-1\r\n${body}\r\n0\r\n\r\n`,
  'a huge chunk': (body: string) => `Transfer-Encoding: chunked\n\nfffffffffffffffff\r\n${body}\r\n0\r\n\r\n`,
  'an unended chunk': (body: string) => `Transfer-Encoding: chunked\n\n${chunk(body).slice(0, -2)}`,
  'chunks without a last': (body: string) => `Transfer-Encoding: chunked\n\n${chunk(body)}`,
  'chunked and a length': (body: string) =>
    `Content-Length: ${body.length}\nTransfer-Encoding: chunked\n\n${chunk(body)}0\r\n\r\n`,
  'chunked twice': (body: string) => `Transfer-Encoding: chunked, chunked\n\n${chunk(body)}0\r\n\r\n`,
  'chunked and more': (body: string) => `Transfer-Encoding: chunked, identity\n\n${chunk(body)}0\r\n\r\n`,
  'another coding': (body: string) => `Transfer-Encoding: gzip\n\n${body}`,
  'chunked behind a blank': (body: string) => `Transfer-Encoding : chunked\n\n${chunk(body)}0\r\n\r\n`,
  'chunked behind a tab': (body: string) => `Transfer-Encoding:\tchunked\n\n${chunk(body)}0\r\n\r\n`,
} as const satisfies Record<string, (body: string) => string>;
type Framing = keyof typeof FRAMINGS;

function chunk(body: string): string {
  return `${body.length.toString(16)}\r\n${body}\r\n`;
}

const ODD_TEXTS = [
  '\0',
  '\r',
  '\n',
  '\r\n',
  '\t',
  ' ',
  '\x7f',
  '\x80',
  '\xff\xfe',
  '\xc3\xa9',
  '\xed\xa0\x80',
  '%',
  '%0',
  '%00',
  '%zz',
  '%2e%2e%2f',
  '%c0%af',
  '%ff',
  '%0d%0aX-A: b',
  '../',
  '/..;/',
  '//',
  '\\',
  '?',
  '#',
  '*',
  '[',
  '__proto__',
  'constructor',
  "'",
  '"',
  '<script>',
  '$(x)',
  '1e999',
  '-1',
  'a'.repeat(300),
  'a'.repeat(70_000),
  'a'.repeat(300_000),
];
const HEADERS = [
  'Host: other.example.com',
  'Host: a b',
  'Host:',
  'X-Auth-Token: x',
  'X-Auth-Token:',
  'X-Subject-Token: x',
  'Authorization: Basic eDp5',
  'Authorization: Basic \xff',
  'Authorization: SDK-HMAC-SHA256 Access=a, SignedHeaders=host;x-sdk-date, Signature=0',
  'X-Sdk-Date: 20260701T120000Z',
  'Cookie: a=b; ;; =; __Host-x="',
  'Origin: null',
  'Origin: http://evil.example.com',
  'Sec-Fetch-Site: cross-site',
  'X-Forwarded-For: 192.0.2.1, \xff',
  'X-Forwarded-Host: evil.example.com',
  'X-HTTP-Method-Override: DELETE',
  'X-Original-URL: /console/api/session',
  'Expect: 100-continue',
  'Expect: x',
  'Upgrade: websocket\nConnection: Upgrade',
  'Upgrade: h2c\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABkAAQAAP__',
  'Connection: keep-alive, X-Auth-Token',
  'Content-Type: application/json',
  'Content-Type: multipart/form-data; boundary=',
  'Content-Type: \xff',
  'Content-Encoding: gzip',
  'Content-Encoding: br',
  'If-None-Match: *',
  'If-None-Match: W/"',
  'Cache-Control: no-cache',
  'Range: bytes=0-1,2-3,-1',
  'Accept: text/html',
  'Idempotency-Key: a',
  'Idempotency-Key:',
  'X-A: b\n folded: c',
  'X-A: b\n\tc',
  'X-A : b',
  ': b',
  'no colon',
  'X-A: \0',
  'X-A: a\rb',
  'X-\xff: b',
  `X-Long: ${'a'.repeat(20_000)}`,
  `X-Longer: ${'a'.repeat(300_000)}`,
  Array.from({ length: 3_000 }, (_, i) => `X-${i}: ${i}`).join('\n'),
];
const QUERIES = [
  RANGE,
  'from=0&to=1',
  'recent=today',
  'recent=yesterday&timezone=%2B08:00',
  'timezone=+08:00',
  'hosts=THEIR_HOST',
  'hosts=THEIR_HOST,a',
  'hosts[]=THEIR_HOST',
  'project_id=THEIR_PROJECT',
  'limit=1000&offset=0',
  'limit=-1',
  'source=s',
  'format=auto',
  'format=events',
  'hostname=canary',
  'user_id=x',
  'from=1e3&to=NaN',
  '&&&===',
];
const BODIES = [
  '',
  '{}',
  '[]',
  'null',
  '{"auth":{}}',
  '{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":1}}}}}',
  '{"auth":{"identity":{"methods":["token"],"token":{"id":"MY_TOKEN"}},"scope":{"project":{"id":"THEIR_PROJECT"}}}}',
  '{"credential":{"user_id":"x","description":"\\u0000"}}',
  '{"__proto__":{"admin":true},"constructor":{"prototype":1}}',
  `{"time":${END - 60_000},"host":"a.example.com"}\n`,
  `{"time":${END - 60_000},"host_id":"THEIR_HOST"}\n`,
  'not a log line\n'.repeat(50),
  '\x1f\x8b\x08\0\0\0\0\0\0\xff',
  '['.repeat(5_000),
  '\xff\xfe\0',
];

/** Replaces placeholders by values that are known only when the service runs. */
function filled(text: string): string {
  return text
    .replaceAll('THEIR_HOST', theirHostId)
    .replaceAll('THEIR_PROJECT', theirs.project)
    .replaceAll('MY_TOKEN', mine.token);
}

function bytesOf(random: RandomRequest): string {
  const { project, credentials, odd, headers, framing, lineEnd, version } = random;
  const route = routes[random.route % routes.length] ?? { method: 'GET', path: '/' };
  const projectId = { mine: mine.project, theirs: theirs.project, odd }[project];
  const path = route.path.replace('{project_id}', projectId).replace(/\{\w+\}/, () => odd);
  const query = random.query.length === 0 ? '' : `?${random.query.join('&')}`;
  const target = { origin: path, absolute: `http://waf.example.com${path}`, other: odd }[random.form];
  const credential = {
    none: [],
    token: [`X-Auth-Token: ${mine.token}`],
    cookie: [`Cookie: ${cookie}`, 'X-Wafstat-Console: 1'],
    odd: [`X-Auth-Token: ${mine.token}${odd.slice(0, 300)}`],
  }[credentials];
  const [framed = '', ...body] = FRAMINGS[framing](filled(random.body)).split('\n\n');
  const lines = [...credential, ...headers, framed].flatMap((each) => (each === '' ? [] : each.split('\n')));
  const head = [
    `${random.method ?? route.method} ${target}${query} ${version}`,
    'Host: waf.example.com',
    ...lines,
  ];
  return `${filled(head.join(lineEnd))}${lineEnd}${lineEnd}${body.join('\n\n')}`;
}

/** Mostly valid values, so that most requests get past the first checks. */
const mostly = <T>(right: T, ...others: readonly T[]) =>
  fc.oneof({ weight: 15, arbitrary: fc.constant(right) }, fc.constantFrom(...others));
const request: fc.Arbitrary<RandomRequest> = fc.record({
  route: fc.nat(1_000),
  project: fc.constantFrom('mine', 'mine', 'mine', 'theirs', 'theirs', 'odd'),
  credentials: fc.constantFrom('none', 'token', 'token', 'cookie', 'odd'),
  method: mostly<string | null>(
    null,
    'GET',
    'HEAD',
    'OPTIONS',
    'PUT',
    'TRACE',
    'CONNECT',
    'PRI',
    'get',
    'X\0',
    '',
  ),
  form: mostly<RandomRequest['form']>('origin', 'absolute', 'other'),
  odd: fc.constantFrom(...ODD_TEXTS),
  query: fc.oneof(
    fc.constant([RANGE]),
    fc.array(fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...QUERIES) }, fc.constantFrom(...ODD_TEXTS)), {
      maxLength: 3,
    }),
  ),
  version: mostly(
    'HTTP/1.1',
    'HTTP/1.0',
    'HTTP/0.9',
    'HTTP/2.0',
    'HTTP/1.1 ',
    'http/1.1',
    'HTTP/1.10',
    '',
    'X',
  ),
  headers: fc.oneof(fc.constant([]), fc.array(fc.constantFrom(...HEADERS), { maxLength: 2 })),
  framing: fc.oneof(
    fc.constantFrom<Framing>('none', 'length'),
    mostly<Framing>('chunked', ...(Object.keys(FRAMINGS) as Framing[])),
  ),
  body: fc.constantFrom(...BODIES),
  lineEnd: fc.oneof(
    { weight: 60, arbitrary: fc.constant('\r\n') },
    fc.constantFrom('\n', '\r', '\r\r\n', '\0\r\n'),
  ),
});
const edit = fc.tuple(fc.nat(), fc.nat(4), fc.constantFrom('', ...ODD_TEXTS.slice(0, 24)));
const connection = fc.record({
  requests: fc.array(request, { minLength: 1, maxLength: 3 }),
  edits: fc.oneof({ weight: 4, arbitrary: fc.constant([]) }, fc.array(edit, { maxLength: 2 })),
  /** The client half-closes the connection, or resets it: at once, or after the first bytes of a response. */
  ending: mostly<'end' | 'break' | 'break late'>('end', 'break', 'break late'),
});

/** Sends the bytes, and returns everything that the server sends until the connection closes. */
function exchange(bytes: string, ending: 'end' | 'break' | 'break late'): Promise<string> {
  const { hostname, port } = new URL(server.address);
  const closed = new Promise<string>((resolve) => {
    const socket = connect(Number(port), hostname);
    let received = '';
    socket.setEncoding('latin1').on('data', (text: string) => {
      received += text;
      if (ending === 'break late') socket.destroy();
    });
    // The server may close while we still write.
    socket.on('error', () => {});
    socket.on('close', () => resolve(received));
    if (ending === 'break') socket.write(bytes, 'latin1', () => socket.destroy());
    else socket.end(bytes, 'latin1');
  });
  return within(
    HANGING_MS,
    closed,
    () => `the end of a connection that sent ${JSON.stringify(bytes.slice(0, 2_000))}`,
  );
}

function statusesOf(received: string): number[] {
  return Array.from(received.matchAll(/HTTP\/1\.1 (\d{3}) [^\r\n]*\r\n/g), ({ 1: status }) => Number(status));
}

test('mutated requests on any route cause no error or hang, and reveal nothing of another project', async () => {
  const before = await theirs.timeline(RANGE);
  const seen = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(
      fc.array(connection, { minLength: 1, maxLength: CONNECTIONS, size: 'max' }),
      async (connections) => {
        await Promise.all(
          connections.map(async ({ requests, edits, ending }) => {
            let bytes = requests.map(bytesOf).join('');
            for (const [at, length, text] of edits) {
              const from = at % (bytes.length + 1);
              bytes = bytes.slice(0, from) + text + bytes.slice(from + length);
            }
            const received = await exchange(bytes, ending);
            const about = () => `${JSON.stringify(bytes.slice(0, 3_000))}\n${received.slice(0, 3_000)}`;
            for (const status of statusesOf(received)) {
              seen.set(status, (seen.get(status) ?? 0) + 1);
              if (status >= 500 && status !== 503) throw new Error(`${status} for ${about()}`);
            }
            for (const secret of Object.values(CANARY)) {
              if (received.includes(String(secret))) throw new Error(`data of another project: ${about()}`);
            }
          }),
        );
      },
    ),
    { numRuns: RUNS },
  );
  // The requests reached routes as well as checks.
  for (const status of [200, 400, 401, 403, 404]) expect(seen.get(status), String(status)).toBeGreaterThan(0);

  expect((await call(server.address, '/healthz')).status).toBe(200);
  expect((await call(server.address, '/readyz')).status).toBe(200);
  expect(await theirs.timeline(RANGE)).toEqual(before);
  expect(await theirs.hostIds()).toEqual(new Map([[CANARY.hostname, theirHostId]]));
  expect((await mine.timeline(RANGE)).attacks.some(({ num }) => num > 0)).toBe(true);
  expect((await new Api(server.address, theirs.project, mine.token).get('waf/instance')).status).toBe(403);
  // Internal errors are logged with level 50; no request may cause one.
  expect(server.process.stdout + server.process.stderr).not.toMatch(/"level":[56]0/);
});
