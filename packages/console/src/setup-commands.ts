/** The commands and settings that connect a log source, by the program that writes the log. */

export const PROGRAMS = {
  nginx: 'nginx + ModSecurity',
  apache: 'Apache',
  coraza: 'Coraza',
  aws: 'AWS WAF',
  kubernetes: 'Kubernetes',
  other: 'Other',
} as const;

export type Program = keyof typeof PROGRAMS;

export interface Target {
  /** The origin of the URL of the service. */
  origin: string;
  /** Project ID. */
  project: string;
  /** The path of the program on the server, or its name. */
  program: string;
  /** The options that name the installation. */
  options: readonly string[];
  key: { access: string; secret: string };
}

export interface Step {
  text: string;
  /** A shell command, or lines of a configuration. */
  code: string;
}

interface Instructions {
  /** What to configure first. */
  prepare: readonly Step[];
  /** On the machine of the service. */
  local: readonly Step[];
  /** On other machines: needs an ingest key. */
  remote: readonly Step[];
}

/** In place of a key that has not been created. */
export const PLACEHOLDER_KEY = { access: 'ACCESS_KEY_ID', secret: 'SECRET_ACCESS_KEY' };

/** All logs of a program are one source: a request that several of them report counts once. */
export function instructionsFor(program: Program, target: Target): Instructions {
  const follow = (source: string, files: string): Step => ({
    text: 'Count the lines as they are written, across rotation and restarts:',
    code: command(target, 'follow', `--source ${source}`, files),
  });
  const push = (source: string, ...files: readonly string[]): Step => ({
    text: 'Send whole files. A file that is sent again counts once, but one that has grown counts again as a whole: for files that grow, use a log shipper such as Vector or Fluent Bit with the same address and key, or follow on this server.',
    code: files.map((file) => curl(target, source, fileBody(file))).join('\n'),
  });
  switch (program) {
    case 'nginx':
      return {
        prepare: [
          { text: 'In nginx.conf, log the host name:', code: NGINX_FORMAT },
          {
            text: 'In modsecurity.conf, write the audit log as JSON:',
            code: auditLog('/var/log/nginx/modsec_audit.log', 'JSON', 'ABHZ'),
          },
        ],
        local: [follow('nginx', '/var/log/nginx/wafstat.log /var/log/nginx/modsec_audit.log')],
        remote: [push('nginx', '/var/log/nginx/wafstat.log', '/var/log/nginx/modsec_audit.log')],
      };
    case 'apache':
      return {
        prepare: [
          {
            text: 'In apache2.conf and modsecurity.conf, log the host name, and write the audit log:',
            code: `${APACHE_FORMAT}\n${auditLog('/var/log/apache2/modsec_audit.log', 'Native', 'ABHZ')}`,
          },
        ],
        local: [follow('apache', '/var/log/apache2/wafstat.log /var/log/apache2/modsec_audit.log')],
        remote: [push('apache', '/var/log/apache2/wafstat.log', '/var/log/apache2/modsec_audit.log')],
      };
    case 'coraza':
      return {
        prepare: [
          {
            text: 'Write the audit log as JSON. It has attacks only: also count the access log of the proxy.',
            // Part K has the matched rules, which ModSecurity writes in part H.
            code: auditLog('/var/log/coraza/audit.log', 'JSON', 'ABHKZ'),
          },
        ],
        local: [follow('coraza', '/var/log/coraza/audit.log')],
        remote: [
          {
            text: 'Coraza sends each audit record itself with these directives:',
            code: `SecAuditLogType HTTPS\nSecAuditLogParts ABHKZ\nSecAuditLogFormat JSON\nSecAuditLog ${withKey(target)}/ingest/v1/${target.project}?source=coraza`,
          },
        ],
      };
    case 'aws':
      return {
        prepare: [],
        local: [
          {
            text: 'Copy the logs from S3, and count them. Run it as often as you like: each line counts once.',
            code: `aws s3 sync s3://aws-waf-logs-BUCKET/ waf-logs/\nfind waf-logs -name '*.gz' -exec ${command(target, 'ingest', '--source aws', '{} +')}`,
          },
        ],
        remote: [
          {
            text: 'Send one log file from S3. A file that is sent again counts once.',
            code: `aws s3 cp s3://aws-waf-logs-BUCKET/KEY.gz waf-log.gz\n${curl(target, 'aws', `-H 'Content-Encoding: gzip' ${fileBody('waf-log.gz')}`)}`,
          },
        ],
      };
    case 'kubernetes':
      return {
        prepare: [],
        local: [follow('waf', '/var/log/containers/waf-*_default_nginx-*.log')],
        remote: [{ text: 'In the configuration of Fluent Bit:', code: fluentBit(target) }],
      };
    case 'other':
      return {
        prepare: [
          {
            text: 'See what each line counts as. Without a known format, name one with --format or --pattern:',
            code: `${quoted(target.program)} explain /var/log/waf.log`,
          },
        ],
        local: [follow('waf', '/var/log/waf.log')],
        remote: [push('waf', '/var/log/waf.log')],
      };
  }
}

/** Whether other machines cannot reach the service at this origin. */
export function isLocalOnly(origin: string): boolean {
  return /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(new URL(origin).hostname);
}

/** One attack, to see that it arrives. */
export function testEvent(target: Target): string {
  const event = `'{"time": '$(date +%s000)', "host": "www.example.com", "attack": "sqli"}'`;
  return curl(target, 'test', `--data-binary ${event}`);
}

function command({ program, options, project }: Target, verb: string, ...rest: string[]): string {
  return [quoted(program), verb, ...options.map(quoted), '--project', project, ...rest].join(' ');
}

function curl({ origin, project, key }: Target, source: string, data: string): string {
  return `curl --user ${key.access}:${key.secret} '${origin}/ingest/v1/${project}?source=${source}' ${data}`;
}

/** With a key from the content, so that a file that is sent again, after an error or by mistake, counts once. */
function fileBody(file: string): string {
  // macOS and some BSDs have shasum instead of sha256sum.
  const hash = `{ sha256sum 2>/dev/null || shasum -a 256; } < ${file} | cut -c1-64`;
  return `-H "Idempotency-Key: $(${hash})" --data-binary @${file}`;
}

function withKey({ origin, key }: Target): string {
  return origin.replace('://', `://${key.access}:${key.secret}@`);
}

function fluentBit({ origin, project, key }: Target): string {
  const { protocol, hostname, port } = new URL(origin);
  const isSecure = protocol === 'https:';
  return `[INPUT]
    Name          tail
    Path          /var/log/containers/waf-*.log
    Key           log

[OUTPUT]
    Name          http
    Match         *
    Host          ${hostname}
    Port          ${port || (isSecure ? 443 : 80)}
    Tls           ${isSecure ? 'On' : 'Off'}
    Uri           /ingest/v1/${project}?source=kubernetes
    http_User     ${key.access}
    http_Passwd   ${key.secret}
    Body_key      $log
    Headers_key   $headers`;
}

/** For a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const NGINX_FORMAT = `log_format wafstat '$host $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"';
access_log /var/log/nginx/wafstat.log wafstat;`;

const APACHE_FORMAT = `LogFormat "%V:%p %h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" wafstat
CustomLog /var/log/apache2/wafstat.log wafstat`;

function auditLog(path: string, format: 'JSON' | 'Native', parts: string): string {
  return `SecAuditEngine RelevantOnly
SecAuditLogType Serial
SecAuditLogParts ${parts}
SecAuditLogFormat ${format}
SecAuditLog ${path}`;
}
