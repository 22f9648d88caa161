/** Real web servers with ModSecurity and the OWASP core rule set, from Debian, on loopback, each in a folder of its own. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
  needs: 'apt-get install nginx libnginx-mod-http-modsecurity modsecurity-crs',
  isThere: () =>
    existsSync('/usr/sbin/nginx') &&
    existsSync('/usr/lib/nginx/modules/ngx_http_modsecurity_module.so') &&
    existsSync('/usr/share/modsecurity-crs/rules'),
};

export const APACHE = {
  program: '/usr/sbin/apache2',
  needs: 'apt-get install apache2 libapache2-mod-security2 modsecurity-crs',
  isThere: () =>
    existsSync('/usr/sbin/apache2') &&
    existsSync('/usr/lib/apache2/modules/mod_security2.so') &&
    existsSync('/usr/share/modsecurity-crs/rules'),
};

const ENGINE = `
SecRuleEngine On
SecRequestBodyAccess On
SecRule REQUEST_URI "@beginsWith /own-rule" "id:10001,phase:1,deny,status:403,log,auditlog,msg:'Own rule'"
SecAuditEngine RelevantOnly
SecAuditLogRelevantStatus "^(?:5|4(?!04))"
SecAuditLogType Serial
SecAuditLogParts ABHZ
`;
const RULES =
  'Include /etc/modsecurity/crs/crs-setup.conf\nInclude /usr/share/modsecurity-crs/rules/*.conf\n';

/**
 * `auditTo`: an address to which the firewall itself sends each record, instead of writing it to a file.
 * `errorLevel`: at `error`, the default of nginx, its error log has verdicts, but not the rules behind them.
 */
export async function startNginx(
  auditFormat: 'JSON' | 'Native',
  auditTo?: string,
  errorLevel: 'info' | 'error' = 'info',
): Promise<WebServer> {
  const { folder, port } = await prepare();
  writeFileSync(
    join(folder, 'modsecurity.conf'),
    `${ENGINE.replace('Serial', auditTo ? 'HTTPS' : 'Serial')}SecAuditLog ${auditTo ?? `${folder}/audit.log`}\n` +
      `SecAuditLogFormat ${auditFormat}\n${RULES}`,
  );
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  writeFileSync(
    join(folder, 'nginx.conf'),
    `load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;
daemon off; master_process off; pid ${folder}/nginx.pid; error_log ${folder}/error.log ${errorLevel};
events {}
http {
  log_format vhost '$host:$server_port $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"';
  access_log ${folder}/access.log vhost;
  ${temporary.map((kind) => `${kind}_temp_path ${folder}/${kind};`).join(' ')}
  server {
    listen 127.0.0.1:${port}; root ${folder}/www;
    modsecurity on; modsecurity_rules_file ${folder}/modsecurity.conf;
    location / { try_files $uri /index.html; }
  }
}
`,
  );
  return start(NGINX.program, ['-p', folder, '-c', join(folder, 'nginx.conf')], folder, port);
}

/** An nginx that passes everything on to one address, with credentials that the sender cannot add by itself. */
export async function startRelay(target: string, authorization: string): Promise<WebServer> {
  const { folder, port } = await prepare();
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  writeFileSync(
    join(folder, 'nginx.conf'),
    `daemon off; master_process off; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
events {}
http {
  access_log ${folder}/access.log;
  ${temporary.map((kind) => `${kind}_temp_path ${folder}/${kind};`).join(' ')}
  server {
    listen 127.0.0.1:${port};
    location /audit { proxy_pass ${target}; proxy_set_header Authorization "${authorization}"; }
  }
}
`,
  );
  return start(NGINX.program, ['-p', folder, '-c', join(folder, 'nginx.conf')], folder, port);
}

export async function startApache(auditFormat: 'JSON' | 'Native'): Promise<WebServer> {
  const { folder, port } = await prepare();
  const modules = ['mpm_event', 'authz_core', 'unique_id', 'dir', 'security2'];
  writeFileSync(
    join(folder, 'apache2.conf'),
    `ServerRoot ${folder}
PidFile ${folder}/apache2.pid
DefaultRuntimeDir ${folder}
Listen 127.0.0.1:${port}
ServerName localhost
UseCanonicalName Off
KeepAlive Off
User www-data
Group www-data
${modules.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join('\n')}
ErrorLog ${folder}/error.log
LogFormat "%V:%p %h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" vhost_combined
CustomLog ${folder}/access.log vhost_combined
DocumentRoot ${folder}/www
DirectoryIndex index.html
FallbackResource /index.html
SecDataDir ${folder}
SecTmpDir ${folder}
${ENGINE}SecAuditLog ${folder}/audit.log
SecAuditLogFormat ${auditFormat}
${RULES}`,
  );
  return start(APACHE.program, ['-f', join(folder, 'apache2.conf'), '-D', 'FOREGROUND'], folder, port);
}

/** A server that writes each request to several logs: `access-0.log` in the first of the formats, and so on. */
export interface LoggingServer extends WebServer {
  port: number;
  logs: readonly string[];
}

/** What follows the name in `log_format`. Names that the server does not know are of the default server. */
export async function startLoggingNginx(
  formats: readonly string[],
  hosts: readonly string[],
): Promise<LoggingServer> {
  const { folder, port } = await prepare();
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  const server = (name: string, options = '') =>
    `server { listen 127.0.0.1:${port}${options}; server_name ${name}; root ${folder}/www; location / { try_files $uri /index.html; } }`;
  writeFileSync(
    join(folder, 'nginx.conf'),
    `daemon off; master_process off; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
events {}
http {
  ${formats.map((format, i) => `log_format f${i} ${format};\n  access_log ${folder}/access-${i}.log f${i};`).join('\n  ')}
  ${temporary.map((kind) => `${kind}_temp_path ${folder}/${kind};`).join(' ')}
  ${server('default.example.com', ' default_server')}
  ${hosts.map((host) => server(host)).join('\n  ')}
}
`,
  );
  const started = await start(NGINX.program, ['-p', folder, '-c', join(folder, 'nginx.conf')], folder, port);
  return { ...started, port, logs: formats.map((_, i) => join(folder, `access-${i}.log`)) };
}

/** The quoted string of `LogFormat`. */
export async function startLoggingApache(
  formats: readonly string[],
  hosts: readonly string[],
): Promise<LoggingServer> {
  const { folder, port } = await prepare();
  const modules = ['mpm_event', 'authz_core', 'dir'];
  const host = (name: string) =>
    `<VirtualHost 127.0.0.1:${port}>\nServerName ${name}\nDocumentRoot ${folder}/www\nFallbackResource /index.html\n</VirtualHost>`;
  writeFileSync(
    join(folder, 'apache2.conf'),
    `ServerRoot ${folder}
PidFile ${folder}/apache2.pid
DefaultRuntimeDir ${folder}
Listen 127.0.0.1:${port}
ServerName localhost
UseCanonicalName Off
KeepAlive Off
User www-data
Group www-data
${modules.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join('\n')}
ErrorLog ${folder}/error.log
${formats.map((format, i) => `LogFormat ${format} f${i}\nCustomLog ${folder}/access-${i}.log f${i}`).join('\n')}
${['default.example.com', ...hosts].map(host).join('\n')}
`,
  );
  const args = ['-f', join(folder, 'apache2.conf'), '-D', 'FOREGROUND'];
  const started = await start(APACHE.program, args, folder, port);
  return { ...started, port, logs: formats.map((_, i) => join(folder, `access-${i}.log`)) };
}

async function prepare(): Promise<{ folder: string; port: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'wafstat-web-server-'));
  chmodSync(folder, 0o777);
  mkdirSync(join(folder, 'www'));
  writeFileSync(join(folder, 'www', 'index.html'), 'hello\n');
  return { folder, port: await freePort() };
}

async function start(program: string, args: string[], folder: string, port: number): Promise<WebServer> {
  let said = '';
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => {
      said += text;
    });
  }
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const address = `http://127.0.0.1:${port}`;
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`${program} ended: ${said}`);
    // Not a request: the first one is the first of the test.
    return canConnect(port);
  }, `${program} to listen`);
  return {
    address,
    accessLog: join(folder, 'access.log'),
    auditLog: join(folder, 'audit.log'),
    errorLog: join(folder, 'error.log'),
    async stop() {
      child.kill('SIGTERM');
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Below the ports that the system gives to outgoing connections (32768 and up, on Linux): one of those may be taken by
 * another test's client before the server that it is meant for listens.
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
