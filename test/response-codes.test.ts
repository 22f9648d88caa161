/** Response codes and bytes of real access logs equal an independent count of their lines. */
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Api, call, login, type Point } from './api.ts';
import { eventually } from './process.ts';
import { Random, scaled } from './random.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';
import {
  APACHE,
  freePort,
  HAPROXY,
  NGINX,
  startHaproxy,
  startPlainApache,
  startPlainNginx,
  type WebServer,
} from './web-server.ts';

const MINUTE_MS = 60_000;
const REQUESTS = 240;
const RANGES = scaled(300);
const HOSTS = ['shop.example.com', 'www.example.com'];
const PATHS = [
  '/',
  '/',
  '/',
  '/missing?a=1',
  '/missing',
  '/other',
  '/error',
  '/moved',
  '/gone',
  '/bad',
  '/%22x',
];

interface Counted {
  time: number;
  host: string;
  status: number;
  upstream: number;
  bytesIn: number;
  bytesOut: number;
}

interface Series {
  key: string;
  timeline: Point[];
}

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let webServer: WebServer | null = null;
let projects = 0;

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
});

afterEach(async () => {
  await webServer?.stop();
  webServer = null;
});

afterAll(() => sandbox.clear());

/** Sends requests with all codes of the server, and waits until its log has them. */
async function sendRequests({ address, accessLog }: WebServer): Promise<string[]> {
  for (let n = 0; n < REQUESTS; n += 8) {
    await Promise.all(
      Array.from({ length: 8 }, (_, i) =>
        call(address, PATHS[(n * 7 + i * 3) % PATHS.length] ?? '/', {
          headers: { Host: HOSTS[(n + i) % 2] ?? '', 'X-Padding': 'x'.repeat((n * 13 + i) % 400) },
        }),
      ),
    );
  }
  return eventually(async () => {
    const lines = readFileSync(accessLog, 'utf8').split('\n').filter(Boolean);
    return lines.length >= REQUESTS ? lines : undefined;
  }, 'all lines of the log');
}

/** Counts a log in a new project, and compares random ranges with the lines. */
async function expectCounts(log: string, lines: readonly Counted[], ...args: string[]): Promise<void> {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  const { stdout } = await sandbox.run(['ingest', '--data', sandbox.data, '--project', id, ...args, log]);
  expect(stdout).toMatch(new RegExp(`^accepted +${lines.length}$`, 'm'));
  const api = await login(server.address, { ...installation, project_id: id });
  const ids = await api.hostIds();
  const random = new Random(20_261_117);
  const times = lines.map(({ time }) => time);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  for (let i = 0; i < RANGES; i++) {
    const edges = [0, 1].map(() =>
      random.chance(0.5) ? random.pick(times) + random.integer(0, 1) : random.integer(first, last + 1),
    );
    const [from, to] = [Math.min(...edges), Math.max(...edges)];
    const host = random.chance(0.5) ? random.pick(HOSTS) : undefined;
    const ofHost = lines.filter((line) => host === undefined || line.host === host);
    const hosts = host === undefined ? '' : `&hosts=${ids.get(host)}`;
    const inRange = ofHost.filter(({ time }) => from <= time && time < to);
    for (const source of ['WAF', 'UPSTREAM'] as const) {
      const query = `waf/overviews/response-code/timeline?from=${from}&to=${to}&response_source=${source}${hosts}`;
      const expected = tally(inRange.map(({ status, upstream }) => (source === 'WAF' ? status : upstream)));
      expect({ query, counts: totalsOf(await api.getJson<Series[]>(query)) }).toEqual({
        query,
        counts: expected,
      });
    }
    await expectBytes(api, ofHost, from, to, hosts);
  }
}

/** Every point of up to a day, except the first and the last, is a minute: these two are extended to one. */
async function expectBytes(api: Api, lines: readonly Counted[], from: number, to: number, hosts: string) {
  if (to - from > 24 * 60 * MINUTE_MS || from === to) return;
  const path = `waf/overviews/bandwidth/timeline?from=${from}&to=${to}${hosts}`;
  const series = await api.getJson<Series[]>(path);
  const [received = [], sent = [], both = []] = series.map(({ timeline }) => timeline);
  const minutes = received.map(({ time }) => Math.ceil(time / MINUTE_MS) - 1);
  const rate = (minute: number, bytesOf: (line: Counted) => number) => {
    const inMinute = lines.filter(({ time }) => Math.floor(time / MINUTE_MS) === minute);
    return Math.round(inMinute.reduce((sum, line) => sum + bytesOf(line), 0) / 60);
  };
  const expected = (bytesOf: (line: Counted) => number) => minutes.map((minute) => rate(minute, bytesOf));
  const found = [received, sent, both].map((points) => points.map(({ num }) => num));
  expect({ path, found }).toEqual({
    path,
    found: [
      expected(({ bytesIn }) => bytesIn),
      expected(({ bytesOut }) => bytesOut),
      expected(({ bytesIn, bytesOut }) => bytesIn + bytesOut),
    ],
  });
}

function totalsOf(series: readonly Series[]): Record<string, number> {
  return Object.fromEntries(
    series.map(({ key, timeline }) => [key, timeline.reduce((sum, { num }) => sum + num, 0)]),
  );
}

function tally(codes: readonly number[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const code of codes) counts[code || 'none'] = (counts[code || 'none'] ?? 0) + 1;
  return counts;
}

/** `host:port client - - [time] "request" code bytes ...` */
function combinedLine(line: string): Counted {
  const [, host = '', time = '', status, bytes] =
    /^([^: ]+)\S* \S+ - - \[([^\]]+)\] "(?:[^"\\]|\\.)*" (\d{3}) (\d+|-)/.exec(line) ?? [];
  const [, date = '', clock = ''] = /^([^:]+):(.*)$/.exec(time) ?? [];
  const code = Number(status);
  return {
    time: Date.parse(`${date.replaceAll('/', ' ')} ${clock}`),
    host,
    status: code,
    upstream: code,
    bytesIn: 0,
    bytesOut: Number(bytes) || 0,
  };
}

describe.skipIf(!NGINX.isInstalled() && process.env.CI !== 'true')(`nginx (needs: ${NGINX.needs})`, () => {
  const VHOST = `'$host:$server_port $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'`;
  const PATTERN = '$host $msec "$request" $status "$upstream_status" $bytes_sent $request_length';

  test('in the combined format, and in a custom one with codes of upstream servers', async () => {
    const [backend, closed] = [await freePort(), await freePort()];
    webServer = await startPlainNginx(
      (directory, port) => `
  log_format vhost ${VHOST};
  log_format custom '${PATTERN}';
  access_log ${directory}/access.log vhost;
  access_log ${directory}/custom.log custom;
  server {
    listen 127.0.0.1:${port};
    location / { proxy_pass http://127.0.0.1:${backend}; proxy_set_header Host $host; }
    location /error { proxy_pass http://127.0.0.1:${backend}; proxy_intercept_errors on; error_page 503 =500 @error; }
    location @error { return 500; }
    location /bad { proxy_pass http://127.0.0.1:${closed}; }
    location /gone { return 410 'gone'; }
  }
  server {
    listen 127.0.0.1:${backend}; access_log off; root ${directory}/www;
    location /moved { return 301 /; }
    location /error { return 503; }
  }`,
    );
    const lines = await sendRequests(webServer);
    await expectCounts(webServer.accessLog, lines.map(combinedLine));
    const custom = webServer.accessLog.replace('access.log', 'custom.log');
    const counted = readFileSync(custom, 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line): Counted => {
        const [, host = '', time, status, upstream, bytesOut, bytesIn] =
          /^(\S+) (\S+) ".*" (\d+) "(.*)" (\d+) (\d+)$/.exec(line) ?? [];
        return {
          time: Math.round(Number(time) * 1_000),
          host,
          status: Number(status),
          upstream: Number(upstream?.split(/[,:] ?/).at(-1)) || 0,
          bytesIn: Number(bytesIn),
          bytesOut: Number(bytesOut),
        };
      });
    expect(new Set(counted.map(({ status, upstream }) => `${status} ${upstream}`))).toEqual(
      new Set(['200 200', '301 301', '404 404', '410 0', '500 503', '502 502']),
    );
    await expectCounts(custom, counted, '--pattern', PATTERN);
  });
});

describe.skipIf(!APACHE.isInstalled() && process.env.CI !== 'true')(`Apache (needs: ${APACHE.needs})`, () => {
  test('in the combined format with the virtual host', async () => {
    webServer = await startPlainApache(
      (directory) => `
LogFormat "%V:%p %h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" vhost_combined
CustomLog ${directory}/access.log vhost_combined
DocumentRoot ${directory}/www
DirectoryIndex index.html
Redirect 301 /moved /
Redirect 410 /gone
Redirect 500 /error
Redirect 502 /bad`,
      'alias',
    );
    const lines = (await sendRequests(webServer)).map(combinedLine);
    expect(new Set(lines.map(({ status }) => status))).toEqual(new Set([200, 301, 404, 410, 500, 502]));
    await expectCounts(webServer.accessLog, lines);
  });
});

describe.skipIf(!HAPROXY.isInstalled() && process.env.CI !== 'true')(
  `HAProxy (needs: ${HAPROXY.needs})`,
  () => {
    /** What clients get, and the server behind HAProxy responded; 200 for other paths. */
    const RESPONSES: Record<string, readonly [status: number, upstream: number]> = {
      '/missing': [404, 404],
      '/error': [500, 500],
      '/moved': [301, 301],
      '/gone': [410, 0],
      '/bad': [503, 0],
    };

    test('in its HTTP format, to the millisecond', async () => {
      const [backend, closed] = [await freePort(), await freePort()];
      webServer = await startHaproxy(
        (port) => `
frontend in
  bind 127.0.0.1:${port}
  option httplog
  http-request capture req.hdr(Host) len 64
  http-request return status 410 if { path /gone }
  use_backend closed if { path /bad }
  default_backend app
backend app
  server web1 127.0.0.1:${backend}
backend closed
  server web2 127.0.0.1:${closed}
frontend web1
  bind 127.0.0.1:${backend}
  no log
  http-request redirect location / code 301 if { path /moved }
  http-request return status 404 if { path /missing }
  http-request return status 500 if { path /error }
  http-request return status 200 content-type text/plain string "hello"`,
      );
      const lines = (await sendRequests(webServer)).map((line): Counted => {
        const [, day, month, year, clock, bytes, host = '', path = ''] =
          /^\S+ \[(\d+)\/(\w+)\/(\d+):([\d:.]+)\] .* (\d+) - - \S+ \S+ \S+ \{([^}]*)\} "GET ([^ ?]*)/.exec(
            line,
          ) ?? [];
        const [status, upstream] = RESPONSES[path] ?? [200, 200];
        const time = Date.parse(`${day} ${month} ${year} ${clock} UTC`);
        return { time, host, status, upstream, bytesIn: 0, bytesOut: Number(bytes) };
      });
      expect(new Set(lines.map(({ status }) => status))).toEqual(new Set([200, 301, 404, 410, 500, 503]));
      await expectCounts(webServer.accessLog, lines, '--timezone', '+00:00');
    });
  },
);
