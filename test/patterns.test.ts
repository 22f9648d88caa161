/** Real web servers with custom log formats and hostile requests. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventually } from './process.ts';
import { type Installation, Sandbox } from './sandbox.ts';
import { APACHE, type LoggingServer, NGINX, startLoggingApache, startLoggingNginx } from './web-server.ts';

const HOSTS = ['shop.example.com', 'www.example.com'];

const NGINX_FORMATS = [
  `'$remote_addr - $remote_user [$time_local] "$request" '
   '$status $body_bytes_sent "$http_referer" '
   '"$http_user_agent" "$http_x_forwarded_for" $host'`,
  `'$host $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'`,
  `'$msec|$host|"$http_user_agent"|"$http_referer"|$status|$request_time'`,
  `'"$http_user_agent" "$http_referer" [$time_iso8601] \${host}:$server_port'`,
  `'$time_iso8601 "$scheme://$host$request_uri" $status "$http_user_agent"'`,
  `escape=json '{"time":"$time_iso8601","ua":"$http_user_agent","ref":"$http_referer","user":"$remote_user","req":"$request","host":"$host","status":$status}'`,
  `'[$time_local] $upstream_cache_status $upstream_status $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $body_bytes_sent] [Gzip $gzip_ratio] [Sent-to $server_addr] "$http_user_agent" "$http_referer"'`,
  `"$time_local\\t$host\\t\\"$http_user_agent\\"\\t$status"`,
];

const APACHE_FORMATS = [
  '"%V:%p %h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\""',
  '"%h %l %u [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] \\"%r\\" %>s \\"%{User-Agent}i\\" %v"',
  '"%{usec}t %D \\"%{User-Agent}i\\" \\"%{Referer}i\\" %v"',
  '"\\"%{Referer}i\\" \\"%{User-Agent}i\\" %{end:%Y-%m-%dT%H:%M:%S}t.%{end:usec_frac}t%{end:%z}t %v:%p"',
  '"%{sec}t.%{msec_frac}t\\t%v\\t%m\\t\\"%U%q\\"\\t%>s\\t%b\\t\\"%{User-agent}i\\""',
  '"{\\"t\\":\\"%{%FT%T%z}t\\",\\"ua\\":\\"%{User-Agent}i\\",\\"r\\":\\"%r\\",\\"h\\":\\"%V\\",\\"s\\":%>s}"',
  '"%{begin:%c}t|%V|%>s|\\"%{User-Agent}i\\""',
];

/** Values that a client chooses: quotes, backslashes, text like the rest of a line, bytes that are not UTF-8. */
const HOSTILE = [
  'curl/8.7.1',
  '"',
  '\\',
  '\\"',
  '\\\\"" "',
  '\\x22',
  '" "-" evil.example [01/Jan/2020:00:00:00 +0000] "',
  '" 200 5 "-" "x" evil.example',
  'x|evil.example|200',
  '","host":"evil.example","ua":"',
  '\xff\xfe\x80 \xc3\xbc',
  '\tevil.example\t',
  '$host %v %{Host}i',
  `[01/Jan/2020:00:00:00 +0000] evil.example ${'x'.repeat(4_000)}`,
];

let sandbox: Sandbox;
let installation: Installation;
let webServer: LoggingServer | null = null;

beforeEach(async () => {
  sandbox = new Sandbox();
  installation = await sandbox.init();
});

afterEach(async () => {
  await webServer?.stop();
  webServer = null;
  await sandbox.clear();
});

/** Sends the bytes on one connection, and resolves when the server closes it. */
function send(port: number, request: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.end(Buffer.from(request, 'latin1')));
    socket.on('error', () => {}).on('close', () => resolve());
    socket.resume();
  });
}

/** Sends every hostile text as user agent, referer, user and query to each host, and requests that are not HTTP. */
async function attack(port: number): Promise<number> {
  const requests = HOSTS.flatMap((host) =>
    HOSTILE.map((text) => {
      const user = Buffer.from(`${text}:x`, 'latin1').toString('base64');
      return [
        `GET /?q=${encodeURIComponent(text.replace(/[^ -~]/g, '?'))} HTTP/1.1`,
        `Host: ${host}`,
        `User-Agent: ${text}`,
        `Referer: ${text}`,
        `Authorization: Basic ${user}`,
        'Connection: close\r\n\r\n',
      ].join('\r\n');
    }),
  );
  const odd = [
    '\x16\x03\x01\x02\r\n\r\n',
    'GET /"\\ HTTP/1.1\r\nHost: a b\r\n\r\n',
    'GET / HTTP/1.0\r\n\r\n',
    '"\r\n\r\n',
  ];
  for (const request of [...requests, ...odd]) await send(port, request);
  return requests.length + odd.length;
}

async function expectAllRead(server: LoggingServer, formats: readonly string[]): Promise<void> {
  const since = Math.floor(Date.now() / 1_000) * 1_000;
  const sent = await attack(server.port);
  const ofHost = (sent - 4) / HOSTS.length;
  for (const [i, pattern] of formats.entries()) {
    const log = server.logs[i] ?? '';
    await eventually(
      async () => readFileSync(log).filter((byte) => byte === 10).length === sent || undefined,
      `${sent} lines in ${log}`,
    );
    const explained = await sandbox.run(['explain', log, '--json', '--pattern', pattern]);
    const records: { time?: number; host?: string; dropped?: string }[] = JSON.parse(explained.stdout);
    expect(
      records.filter(({ dropped }) => dropped !== undefined),
      pattern,
    ).toEqual([]);
    for (const host of HOSTS)
      expect(
        records.filter((each) => each.host === host),
        `${pattern} ${host}`,
      ).toHaveLength(ofHost);
    for (const { time = 0, host } of records) {
      expect(time).toBeGreaterThanOrEqual(since);
      expect(time).toBeLessThanOrEqual(Date.now());
      expect(host).not.toContain('evil');
    }
    const options = ['--data', sandbox.data, '--project', installation.project, '--source', `s${i}`];
    for (const counted of i === 0 ? [sent, 0] : [sent]) {
      const { stdout } = await sandbox.run(['ingest', ...options, '--pattern', pattern, log]);
      expect(stdout).toMatch(new RegExp(`^accepted +${counted}$`, 'm'));
      expect(stdout).toMatch(/^dropped +0$/m);
    }
  }
}

describe.skipIf(!NGINX.isInstalled() && process.env.CI !== 'true')(`nginx (needs: ${NGINX.needs})`, () => {
  test('every request is parsed with the pattern of its log', async () => {
    webServer = await startLoggingNginx(NGINX_FORMATS, HOSTS);
    await expectAllRead(webServer, NGINX_FORMATS);
    const proxyManager = NGINX_FORMATS.findIndex((format) => format.includes('[Sent-to '));
    const { stdout } = await sandbox.run(['explain', webServer.logs[proxyManager] ?? '', '--json']);
    const formats: { format: string }[] = JSON.parse(stdout);
    expect(new Set(formats.map(({ format }) => format))).toEqual(new Set(['nginx-proxy-manager']));
  });
});

describe.skipIf(!APACHE.isInstalled() && process.env.CI !== 'true')(`Apache (needs: ${APACHE.needs})`, () => {
  test('every request is parsed with the pattern of its log', async () => {
    webServer = await startLoggingApache(APACHE_FORMATS, HOSTS);
    await expectAllRead(webServer, APACHE_FORMATS);
  });
});
