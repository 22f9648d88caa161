/** Real web servers with ModSecurity and the OWASP Core Rule Set, from Debian, on loopback, each in a temporary directory. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './process.ts';

export interface WebServer {
  address: string;
  accessLog: string;
  auditLog: string;
  errorLog: string;
  stop(): Promise<void>;
}

export const NGINX = {
  program: '/usr/sbin/nginx',
  module: '/usr/lib/nginx/modules/ngx_http_modsecurity_module.so',
  needs: 'apt-get install nginx libnginx-mod-http-modsecurity modsecurity-crs',
  isInstalled: () => [NGINX.program, NGINX.module, CRS].every((path) => existsSync(path)),
};

export const APACHE = {
  program: '/usr/sbin/apache2',
  module: '/usr/lib/apache2/modules/mod_security2.so',
  needs: 'apt-get install apache2 libapache2-mod-security2 modsecurity-crs',
  isInstalled: () => [APACHE.program, APACHE.module, CRS].every((path) => existsSync(path)),
};

export const HAPROXY = {
  program: '/usr/sbin/haproxy',
  needs: 'apt-get install haproxy',
  isInstalled: () => existsSync(HAPROXY.program),
};

const CRS = '/usr/share/modsecurity-crs/rules';

const ENGINE = `
SecRuleEngine On
SecRequestBodyAccess On
SecRule REQUEST_URI "@beginsWith /own-rule" "id:99001,phase:1,deny,status:403,log,auditlog,msg:'Own rule'"
SecAuditEngine RelevantOnly
SecAuditLogRelevantStatus "^(?:5|4(?!04))"
SecAuditLogType Serial
SecAuditLogParts ABHZ
`;
const RULES = `Include /etc/modsecurity/crs/crs-setup.conf\nInclude ${CRS}/*.conf\n`;

/**
 * `auditTo`: a URL to which ModSecurity sends each record, instead of writing it to a file.
 * `errorLevel`: at `error`, the default of nginx, the error log has decisions, but not the rules behind them.
 */
export async function startNginx(
  auditFormat: 'JSON' | 'Native',
  auditTo?: string,
  errorLevel: 'info' | 'error' = 'info',
): Promise<WebServer> {
  const { directory, port } = await prepare();
  writeFileSync(
    join(directory, 'modsecurity.conf'),
    `${ENGINE.replace('Serial', auditTo ? 'HTTPS' : 'Serial')}SecAuditLog ${auditTo ?? `${directory}/audit.log`}\n` +
      `SecAuditLogFormat ${auditFormat}\n${RULES}`,
  );
  const http = `
  log_format vhost '$host:$server_port $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"';
  access_log ${directory}/access.log vhost;
  server {
    listen 127.0.0.1:${port}; root ${directory}/www;
    modsecurity on; modsecurity_rules_file ${directory}/modsecurity.conf;
    location / { try_files $uri /index.html; }
  }`;
  return runNginx(directory, port, http, errorLevel, `load_module ${NGINX.module};`);
}

/** nginx with ModSecurity: `http` is in the `http` block, `engine` among the settings of ModSecurity, logs included. */
export async function startNginxWith(http: string, engine: string): Promise<WebServer> {
  const { directory, port } = await prepare();
  writeFileSync(join(directory, 'modsecurity.conf'), `${ENGINE}${engine}${RULES}`);
  const server = `
  server {
    listen 127.0.0.1:${port}; root ${directory}/www;
    modsecurity on; modsecurity_rules_file ${directory}/modsecurity.conf;
    location / { try_files $uri /index.html; }
  }`;
  return runNginx(directory, port, http + server, 'error', `load_module ${NGINX.module};`);
}

/** nginx with this `server` block, in which `listen 443 ssl` becomes a free port on loopback. */
export async function startProxy(server: string): Promise<WebServer> {
  const { directory, port } = await prepare();
  const http = server.replace('listen 443 ssl', `listen 127.0.0.1:${port} ssl`);
  return runNginx(directory, port, `access_log ${directory}/access.log;\n${http}`);
}

/** A proxy to one URL that adds credentials, because ModSecurity cannot. */
export async function startRelay(target: string, authorization: string): Promise<WebServer> {
  const { directory, port } = await prepare();
  const http = `
  access_log ${directory}/access.log;
  server {
    listen 127.0.0.1:${port};
    location /audit { proxy_pass ${target}; proxy_set_header Authorization "${authorization}"; }
  }`;
  return runNginx(directory, port, http);
}

export async function startApache(auditFormat: 'JSON' | 'Native'): Promise<WebServer> {
  const { directory, port } = await prepare();
  const settings = `
LogFormat "%V:%p %h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" vhost_combined
CustomLog ${directory}/access.log vhost_combined
DocumentRoot ${directory}/www
DirectoryIndex index.html
FallbackResource /index.html
SecDataDir ${directory}
SecTmpDir ${directory}
${ENGINE}SecAuditLog ${directory}/audit.log
SecAuditLogFormat ${auditFormat}
${RULES}`;
  return runApache(directory, port, settings, 'unique_id', 'security2');
}

/** Apache with ModSecurity and these settings, logs included. */
export async function startApacheWith(settings: string): Promise<WebServer> {
  const { directory, port } = await prepare();
  const common = `DocumentRoot ${directory}/www
DirectoryIndex index.html
FallbackResource /index.html
SecDataDir ${directory}
SecTmpDir ${directory}
`;
  return runApache(directory, port, `${common}${ENGINE}${settings}${RULES}`, 'unique_id', 'security2');
}

/** A server that writes each request to several logs: `access-0.log` in the first of the formats, and so on. */
export interface LoggingServer extends WebServer {
  port: number;
  logs: readonly string[];
}

/** `formats`: what follows the name in `log_format`. Requests for unknown names go to the default server. */
export async function startLoggingNginx(
  formats: readonly string[],
  hosts: readonly string[],
): Promise<LoggingServer> {
  const { directory, port } = await prepare();
  const server = (name: string, options = '') =>
    `server { listen 127.0.0.1:${port}${options}; server_name ${name}; root ${directory}/www; location / { try_files $uri /index.html; } }`;
  const logs = formats.map(
    (format, i) => `log_format f${i} ${format};\n  access_log ${directory}/access-${i}.log f${i};`,
  );
  const servers = [server('default.example.com', ' default_server'), ...hosts.map((host) => server(host))];
  const started = await runNginx(directory, port, [...logs, ...servers].join('\n  '));
  return { ...started, port, logs: formats.map((_, i) => join(directory, `access-${i}.log`)) };
}

/** `formats`: the quoted string of `LogFormat`. */
export async function startLoggingApache(
  formats: readonly string[],
  hosts: readonly string[],
): Promise<LoggingServer> {
  const { directory, port } = await prepare();
  const host = (name: string) =>
    `<VirtualHost 127.0.0.1:${port}>\nServerName ${name}\nDocumentRoot ${directory}/www\nFallbackResource /index.html\n</VirtualHost>`;
  const logs = formats.map(
    (format, i) => `LogFormat ${format} f${i}\nCustomLog ${directory}/access-${i}.log f${i}`,
  );
  const servers = ['default.example.com', ...hosts].map(host);
  const started = await runApache(directory, port, [...logs, ...servers].join('\n'));
  return { ...started, port, logs: formats.map((_, i) => join(directory, `access-${i}.log`)) };
}

/** nginx without ModSecurity. `httpOf`: the content of its `http` block. */
export async function startPlainNginx(
  httpOf: (directory: string, port: number) => string,
): Promise<WebServer> {
  const { directory, port } = await prepare();
  return runNginx(directory, port, httpOf(directory, port));
}

/** Apache without ModSecurity, with more modules. */
export async function startPlainApache(
  settingsOf: (directory: string) => string,
  ...modules: string[]
): Promise<WebServer> {
  const { directory, port } = await prepare();
  return runApache(directory, port, settingsOf(directory), ...modules);
}

/** HAProxy, which logs in UTC. `proxiesOf`: its frontends and backends. */
export async function startHaproxy(proxiesOf: (port: number) => string): Promise<WebServer> {
  const { directory, port } = await prepare();
  const file = join(directory, 'haproxy.cfg');
  writeFileSync(
    file,
    `global
  log stdout format raw local0
defaults
  mode http
  log global
  option dontlognull
  retries 0
  timeout connect 5s
  timeout client 30s
  timeout server 30s
${proxiesOf(port)}
`,
  );
  const command = `exec env TZ=UTC ${HAPROXY.program} -db -f ${file} >${directory}/access.log`;
  return start('/bin/sh', ['-c', command], directory, port);
}

async function prepare(): Promise<{ directory: string; port: number }> {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-web-server-'));
  chmodSync(directory, 0o777);
  mkdirSync(join(directory, 'www'));
  writeFileSync(join(directory, 'www', 'index.html'), 'hello\n');
  return { directory, port: await freePort() };
}

/** `http`: the content of the `http` block; `main`: directives before it. */
function runNginx(directory: string, port: number, http: string, errorLevel = 'error', main = '') {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  const file = join(directory, 'nginx.conf');
  writeFileSync(
    file,
    `${main}
daemon off; master_process off; pid ${directory}/nginx.pid; error_log ${directory}/error.log ${errorLevel};
events {}
http {
  ${temporary.map((kind) => `${kind}_temp_path ${directory}/${kind};`).join(' ')}
  ${http}
}
`,
  );
  return start(NGINX.program, ['-p', directory, '-c', file], directory, port);
}

function runApache(directory: string, port: number, settings: string, ...modules: string[]) {
  const loaded = ['mpm_event', 'authz_core', 'dir', ...modules];
  const file = join(directory, 'apache2.conf');
  writeFileSync(
    file,
    `ServerRoot ${directory}
PidFile ${directory}/apache2.pid
DefaultRuntimeDir ${directory}
Listen 127.0.0.1:${port}
ServerName localhost
UseCanonicalName Off
KeepAlive Off
User www-data
Group www-data
${loaded.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join('\n')}
ErrorLog ${directory}/error.log
${settings}
`,
  );
  return start(APACHE.program, ['-f', file, '-D', 'FOREGROUND'], directory, port);
}

async function start(program: string, args: string[], directory: string, port: number): Promise<WebServer> {
  let output = '';
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => {
      output += text;
    });
  }
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const address = `http://127.0.0.1:${port}`;
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`${program} ended: ${output}`);
    // Sends no request, so that the log has those of the test only.
    return canConnect(port);
  }, `${program} to listen`);
  return {
    address,
    accessLog: join(directory, 'access.log'),
    auditLog: join(directory, 'audit.log'),
    errorLog: join(directory, 'error.log'),
    async stop() {
      child.kill('SIGTERM');
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/**
 * Below the ports of outgoing connections (32768 and up, on Linux): the client of another test could take one of those
 * before the server listens.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    if (await canListen(port)) return port;
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer().on('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

function canConnect(port: number): Promise<true | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(undefined));
  });
}

/**
 * A load balancer with the configuration of docs/operations.md, except for TLS, in front of two servers, each like
 * `127.0.0.1:40000`.
 */
export async function startBalancer(servers: readonly [string, string]): Promise<WebServer> {
  const { directory, port } = await prepare();
  const page = readFileSync(new URL('../docs/operations.md', import.meta.url), 'utf8');
  const [, example = ''] = /```nginx[^\n]*\n(upstream wafstat [\s\S]*?)```/.exec(page) ?? [];
  const http = example
    .replace('10.0.0.11:8080', servers[0])
    .replace('10.0.0.12:8080', servers[1])
    .replace('listen 443 ssl', `listen 127.0.0.1:${port}`)
    .replaceAll(/^ *ssl_certificate.*$/gm, '');
  return runNginx(directory, port, `access_log ${directory}/access.log;\n${http}`);
}
