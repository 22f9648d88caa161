/** Settings of the service. Every option is also an environment variable, so that one file can configure everything. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { mailAddress } from './alerts/rules.ts';
import {
  duration,
  file,
  flag,
  flagOf,
  givenName,
  integer,
  isNetwork,
  listOfValues,
  nameOf,
  type Option,
  type Options,
  oneOf,
  option,
  text,
  url,
  type Values,
} from './cli/options.ts';
import { type Overrides, parseOverrides } from './ingest/categories/classify.ts';
import { isLoopback } from './loopback.ts';
import { parseDatabaseUrl } from './postgres/url.ts';
import {
  CACHE_BYTES,
  EVENTS_MAX_DEFAULT,
  EVENTS_MAX_LIMIT,
  TOP_KEYS_DEFAULT,
  TOP_KEYS_MAX,
} from './store/store.ts';

/** What top lists keep of attacks. */
const TOP_LIST_OPTIONS = grouped('Top lists:', {
  attackSources: setting(
    '--attack-sources <full|prefix|off>',
    'client addresses to keep of attacks: full, only their network (/24, IPv6 /48), or none',
    oneOf('full', 'prefix', 'off'),
    { default: 'full' },
  ),
  geoip: setting(
    '--geoip <file...>',
    'MMDB file with the countries or networks (ASN) of addresses; may be repeated; replaced files are read again',
    listOfValues(file),
  ),
  topKeys: setting(
    '--top-keys <n>',
    'how many distinct values a top list keeps per hour and per project or host; counts are exact up to this number',
    integer(16, TOP_KEYS_MAX),
    { default: String(TOP_KEYS_DEFAULT) },
  ),
});

/** What the list of attacks keeps, besides client addresses, and how many of them. */
const ATTACK_OPTIONS = grouped('Kept attacks:', {
  attackQueries: setting(
    '--attack-queries <on|off>',
    'keep the queries of attacked URLs, with secrets masked; off: keep the path only',
    oneOf('on', 'off'),
    { default: 'on' },
  ),
  attackValues: setting(
    '--attack-values <on|off>',
    'keep the values that matched rules, with secrets masked; off: keep only the rules and variables',
    oneOf('on', 'off'),
    { default: 'on' },
  ),
  eventsMax: setting(
    '--events-max <n>',
    'how many attacks to keep per project and hour; an hour with more keeps a random sample; 0: keep none, only count',
    integer(0, EVENTS_MAX_LIMIT),
    { default: String(EVENTS_MAX_DEFAULT) },
  ),
});

/** How alerts and reports are sent. */
export const ALERT_OPTIONS = grouped('Alerts:', {
  alertAllowPrivate: setting(
    '--alert-allow-private',
    'allow webhooks on loopback, link-local and private addresses, and plain HTTP (only if everyone who can add alerts may reach these)',
    flag,
  ),
  smtpUrl: setting(
    '--smtp-url <url>',
    'mail server for alerts and reports, like smtp://user@mail.example.com:587 (STARTTLS) or smtps://mail.example.com',
    smtpServer,
  ),
  smtpPasswordFile: setting(
    '--smtp-password-file <file>',
    'file whose first line is the password of the user in --smtp-url (or set WAFSTAT_SMTP_PASSWORD)',
    file,
  ),
  mailFrom: setting('--mail-from <address>', 'sender of mail, like wafstat@example.com', mailAddress),
});

/** Options of the listener and of requests. */
export const SERVER_OPTIONS = {
  listen: setting(
    '--listen <[host:]port>',
    'address to listen on; a port alone is on loopback; port 0 picks a free port',
    address,
    { default: '127.0.0.1:8080' },
  ),
  healthListen: setting(
    '--health-listen <[host:]port>',
    'also serve /healthz and /readyz on this address (plain HTTP), where probes do not compete with clients',
    address,
  ),
  metricsListen: setting(
    '--metrics-listen <[host:]port>',
    'serve Prometheus metrics at /metrics on this address (plain HTTP, no authentication); a port alone is on loopback',
    address,
  ),
  metricsHosts: setting(
    '--metrics-hosts <n>',
    'maximum number of hosts with metrics of their own, in all projects together; every scrape reads each from the store',
    integer(0, 1_000),
    { default: '0' },
  ),
  tlsCert: setting('--tls-cert <file>', 'TLS certificate with its chain (PEM); enables HTTPS', file),
  tlsKey: setting('--tls-key <file>', 'private key of the TLS certificate (PEM)', file),
  insecureHttp: setting(
    '--insecure-http',
    'allow plain HTTP on non-loopback addresses (only behind a TLS-terminating proxy)',
    flag,
  ),
  trustProxy: setting(
    '--trust-proxy <addresses>',
    'trust X-Forwarded-* headers of these proxies: IP addresses or CIDR ranges, separated by commas',
    proxies,
  ),
  basicReads: setting(
    '--basic-reads <on|off>',
    'accept access keys as HTTP Basic credentials for reading, over HTTPS or from the same machine',
    oneOf('on', 'off'),
    { default: 'on' },
  ),
  eventsRole: setting(
    '--events-role <reader|admin>',
    'role that users need to read single attacks, which contain client addresses and parts of requests',
    oneOf('reader', 'admin'),
    { default: 'reader' },
  ),
  corsOrigin: setting(
    '--cors-origin <url...>',
    'let web pages of this origin call the API, like https://app.example.com; may be repeated',
    listOfValues(origin),
  ),
  publicUrl: setting(
    '--public-url <url>',
    'URL of the service in the service catalog [default: the requested address]',
    url,
  ),
  region: setting('--region <name>', 'region name in the service catalog', text, { default: 'default' }),
  categories: setting(
    '--categories <file>',
    'JSON file that overrides the categories of rules, for example {"rules": {"942100": "custom", "10001": "none"}}',
    overrides,
  ),
  retention: setting(
    '--retention <time>',
    'how long to keep events, for example 180d or 36h',
    // A hundred years are enough for those who want to keep everything.
    duration('dh', '1h', '36525d', '180d or 36h'),
    { default: '180d' },
  ),
  logLevel: setting(
    '--log-level <level>',
    'minimum level of log lines: error, warn, info or debug',
    oneOf('error', 'warn', 'info', 'debug'),
    { default: 'info' },
  ),
  logFormat: setting(
    '--log-format <pretty|json>',
    'pretty: lines for people, none for each request; json: one object per line [default: pretty on a terminal, otherwise json]',
    oneOf('pretty', 'json'),
  ),
  drainDelay: setting(
    '--drain-delay <seconds>',
    'on SIGTERM, respond 503 to /readyz for this long before closing the listener; set it to the health-check interval of the load balancer',
    integer(0, 300),
    { default: '0' },
  ),
  ...ALERT_OPTIONS,
  ...TOP_LIST_OPTIONS,
  ...ATTACK_OPTIONS,
  ...grouped('Top lists:', {
    detailsRetention: setting(
      '--details-retention <time>',
      'how long to keep top lists, attacks and examples of dropped lines, which contain client addresses; never longer than --retention',
      duration('dh', '1h', '36525d', '30d or 36h'),
      { default: '30d' },
    ),
  }),
  ...grouped('Limits:', {
    hostsMax: setting(
      '--hosts-max <n>',
      'maximum number of hosts to register automatically per project; events of further hosts count in the project total only',
      integer(0, 100_000),
      { default: '1000' },
    ),
    sourcesMax: setting(
      '--sources-max <n>',
      'maximum number of log sources per project; lines of further sources are rejected',
      integer(1, 100_000),
      { default: '1000' },
    ),
    bodyLimit: setting(
      '--body-limit <bytes>',
      'maximum body of a push with a token (signed pushes: 12 MiB, other requests: 64 KiB)',
      integer(1_024, 1_099_511_627_776, 'bytes'),
      { default: '1073741824' },
    ),
    cache: setting(
      '--cache <bytes>',
      'maximum memory of the large caches per worker; 0 turns them off',
      integer(0, 1_099_511_627_776, 'bytes'),
      { default: String(CACHE_BYTES) },
    ),
    maxConnections: setting(
      '--max-connections <n>',
      'maximum number of open connections per worker; further connections are closed',
      integer(1, 1_000_000),
      { default: '10000' },
    ),
    rateLimit: setting(
      '--rate-limit <n>',
      'maximum number of requests per second, per user and worker; 0 for no limit',
      integer(0, 1_000_000),
      { default: '0' },
    ),
  }),
};

/** What is counted and kept: `serve`, `ingest` and `follow` must agree on it. */
export const COUNTING_OPTIONS = {
  retention: SERVER_OPTIONS.retention,
  hostsMax: SERVER_OPTIONS.hostsMax,
  sourcesMax: SERVER_OPTIONS.sourcesMax,
  ...TOP_LIST_OPTIONS,
  ...ATTACK_OPTIONS,
};

export const IDENTITY_OPTIONS = grouped('Keystone options:', {
  identityUrl: setting(
    '--identity-url <url>',
    "authenticate against this Keystone v3 instead of wafstat's own users",
    identityUrl,
  ),
  identityUser: setting('--identity-user <name>', 'user to authenticate as', text),
  identityDomain: setting('--identity-domain <name>', 'domain of --identity-user', text, {
    default: 'default',
  }),
  identityPasswordFile: setting(
    '--identity-password-file <file>',
    'file with the password of --identity-user (or set WAFSTAT_IDENTITY_PASSWORD)',
    file,
  ),
  identityCache: setting(
    '--identity-cache <time>',
    'how long to cache identity lookups; revoked credentials keep working for at most this long',
    duration('sm', '1s', '60m', '60s or 5m'),
    { default: '60s' },
  ),
});

export const POSTGRES_OPTIONS = grouped('PostgreSQL options:', {
  postgresUrl: setting(
    '--postgres-url <url>',
    'URL of the database, like postgres://wafstat@db1,db2:5432/wafstat; if there are several servers, the primary is used',
    parseDatabaseUrl,
  ),
  postgresPasswordFile: setting(
    '--postgres-password-file <file>',
    'file whose first line is the password of the user (or set WAFSTAT_POSTGRES_PASSWORD)',
    file,
  ),
  postgresInsecure: setting(
    '--postgres-insecure',
    'allow unencrypted connections to PostgreSQL on non-loopback addresses (only in a private network)',
    flag,
  ),
  postgresSchema: setting('--postgres-schema <name>', 'schema of the tables', schemaName, {
    default: 'wafstat',
  }),
  postgresConnections: setting(
    '--postgres-connections <n>',
    'maximum number of connections per process for the statistics; users and projects need two more',
    integer(2, 1_000),
    { default: '10' },
  ),
  postgresTimeout: setting('--postgres-timeout <seconds>', 'timeout of a single statement', integer(1, 600), {
    default: '10',
  }),
});

/** Options of every command that reads or writes statistics. */
export const STORE_OPTIONS = {
  store: setting(
    '--store <lmdb|postgres>',
    'where to store the statistics; lmdb is a file in the data directory',
    oneOf('lmdb', 'postgres'),
    { default: 'lmdb' },
  ),
  ...POSTGRES_OPTIONS,
  ...grouped('PostgreSQL options:', {
    postgresMigrate: setting(
      '--postgres-migrate <auto|never>',
      "auto: create tables at start; never: 'wafstat migrate' must have done so",
      oneOf('auto', 'never'),
      { default: 'auto' },
    ),
  }),
};

export const DATA = setting(
  '--data <dir>',
  'data directory; without it, users and projects are in PostgreSQL',
  text,
);
/** Options of commands that work on an installation: its users, projects and statistics. */
export const LOCATION_OPTIONS = { data: DATA, ...STORE_OPTIONS };
/** The option of commands that work on the files of a data directory. */
export const DIRECTORY = setting('--data <dir>', 'data directory', text);

export const SERVICE_OPTIONS = {
  data: DATA,
  workers: setting('--workers <n>', 'number of worker processes', integer(1, 256), { default: '1' }),
  initialPasswordFile: setting(
    '--initial-password-file <file>',
    'at the first start, write the generated password into this new file instead of printing it',
    text,
  ),
  ...SERVER_OPTIONS,
  ...IDENTITY_OPTIONS,
  ...STORE_OPTIONS,
};

/** The names that `init` and the first `serve` or `demo` use, and that queries suggest. */
export const DEFAULT_NAMES = { domain: 'default', project: 'default', user: 'admin' };

export const DATA_REQUIRED = `${nameOf(DATA)} is required`;

/** Service options that contradict each other, among those that a command has. */
export function serviceConflicts(
  values: Partial<Values<typeof SERVICE_OPTIONS>>,
  source: (name: 'data' | 'postgresUrl') => 'cli' | 'env' | undefined,
): string[] {
  const { tlsCert, tlsKey, insecureHttp, listen } = values;
  const problems = postgresConflicts(values, source('postgresUrl'));
  if (values.store === 'lmdb' && source('data') === undefined) problems.push(DATA_REQUIRED);
  if (values.metricsHosts && values.metricsListen === undefined)
    problems.push('--metrics-hosts requires --metrics-listen');
  problems.push(...samePorts(values), ...mailConflicts(values));
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    problems.push('--tls-cert and --tls-key require each other');
  if (listen && !isLoopback(listen.host) && tlsCert === undefined && !insecureHttp) {
    problems.push(
      `--listen ${listen.host} is reachable from other machines: use --tls-cert and --tls-key, ` +
        'or --insecure-http behind a TLS-terminating proxy',
    );
  }
  return problems;
}

function mailConflicts({
  smtpUrl,
  smtpPasswordFile,
  mailFrom,
}: Partial<Values<typeof ALERT_OPTIONS>>): string[] {
  if (smtpUrl !== undefined && mailFrom === undefined) return ['--smtp-url requires --mail-from'];
  if (smtpUrl === undefined && mailFrom !== undefined) return ['--mail-from requires --smtp-url'];
  if (smtpUrl === undefined && smtpPasswordFile !== undefined)
    return ['--smtp-password-file requires --smtp-url'];
  return [];
}

function samePorts(values: Partial<Values<typeof SERVER_OPTIONS>>): string[] {
  const listeners = (['listen', 'healthListen', 'metricsListen'] as const).flatMap((name) =>
    values[name] ? [{ flag: flagOf(SERVER_OPTIONS[name]), ...values[name] }] : [],
  );
  return listeners.flatMap((one, i) => {
    const other = listeners.slice(0, i).find((earlier) => overlap(earlier, one));
    return other
      ? [`${one.flag} and ${other.flag} use the same port ${one.port}: choose different ones`]
      : [];
  });
}

function overlap(a: ListenAddress, b: ListenAddress): boolean {
  if (a.port !== b.port || a.port === 0) return false;
  const includes = (host: string, other: string) =>
    host === other || host === '::' || (host === '0.0.0.0' && isIP(other) === 4);
  return includes(a.host, b.host) || includes(b.host, a.host);
}

function postgresConflicts(
  { store, postgresUrl, postgresInsecure = false }: Partial<Values<typeof STORE_OPTIONS>>,
  urlSource: 'cli' | 'env' | undefined,
): string[] {
  if (postgresUrl === undefined) {
    const isMissing = store === 'postgres' && urlSource === undefined;
    return isMissing ? [`--store postgres requires ${nameOf(POSTGRES_OPTIONS.postgresUrl)}`] : [];
  }
  const problems: string[] = [];
  const name = givenName(POSTGRES_OPTIONS.postgresUrl, urlSource);
  if (store === 'lmdb') problems.push(`${name} requires --store postgres, but the store is lmdb`);
  if (urlSource === 'cli' && postgresUrl.password !== null) {
    problems.push(
      '--postgres-url must not contain a password, because `ps` shows it: ' +
        'use --postgres-password-file, WAFSTAT_POSTGRES_PASSWORD or WAFSTAT_POSTGRES_URL',
    );
  }
  const far = postgresUrl.servers.find(({ host }) => !isLocal(host));
  if (far && postgresUrl.tls === 'off' && !postgresInsecure) {
    problems.push(
      `${name} would send counts, password hashes and keys to ${far.host} unencrypted: remove sslmode=disable, ` +
        'or use --postgres-insecure in a private network',
    );
  }
  return problems;
}

/** Whether a PostgreSQL server is this machine: an absolute path is the directory of a Unix socket. */
export function isLocal(host: string): boolean {
  return host.startsWith('/') || isLoopback(host);
}

/** `--tls-cert` is WAFSTAT_TLS_CERT. */
function setting<T, const E extends Partial<Option<T>>>(
  flags: string,
  description: string,
  parse: (text: string) => T,
  extras?: E,
) {
  const env = `WAFSTAT_${flags.split(' ', 1)[0]?.slice(2).toUpperCase().replaceAll('-', '_')}`;
  return { ...option(flags, description, parse, extras), env };
}

function grouped<O extends Options>(group: string, options: O): O {
  const entries = Object.entries(options).map(([name, option]) => [name, { ...option, group }]);
  return Object.fromEntries(entries) as O;
}

export interface ListenAddress {
  host: string;
  port: number;
}

/** A port alone is on loopback. Not `:8080`, which in other programs means all addresses. */
function address(value: string): ListenAddress {
  const match = /^(?:(?:\[([^\]]+)\]|([^:]+)):)?(\d{1,5})$/.exec(value);
  const port = Number(match?.[3] ?? Number.NaN);
  if (!match || !(port <= 65_535))
    throw new Error('must be a port on loopback, like 8080, or HOST:PORT, like 10.0.0.5:8080 or [::1]:8080');
  return { host: match[1] ?? match[2] ?? '127.0.0.1', port };
}

function smtpServer(value: string): { host: string; port: number; secure: boolean; user: string | null } {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  if (
    parsed === null ||
    !/^smtps?:$/.test(parsed.protocol) ||
    parsed.hostname === '' ||
    /[?#]|:\/\/[^/]*\/./.test(value)
  )
    throw new Error('must be a URL like smtp://user@mail.example.com:587 or smtps://mail.example.com');
  if (parsed.password)
    throw new Error('must not contain a password, because `ps` shows it: use --smtp-password-file');
  const secure = parsed.protocol === 'smtps:';
  return {
    host: parsed.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: parsed.port === '' ? (secure ? 465 : 587) : Number(parsed.port),
    secure,
    user: parsed.username === '' ? null : decodeURIComponent(parsed.username),
  };
}

function proxies(value: string): string {
  if (!value.split(',').every((item) => isNetwork(item.trim())))
    throw new Error('must be IP addresses or ranges like 10.0.0.0/8, separated by commas');
  return value;
}

function origin(value: string): string {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  // The URL of an origin has nothing else, except for a slash.
  if (parsed && /^https?:$/.test(parsed.protocol) && parsed.href === `${parsed.origin}/`)
    return parsed.origin;
  throw new Error(
    'must be an origin like https://app.example.com: scheme, host, perhaps a port, no path, not *',
  );
}

function identityUrl(value: string): string {
  const parsed = url(value);
  if (parsed.startsWith('http:') && !isLoopback(new URL(parsed).hostname)) {
    throw new Error('must be https on non-loopback addresses, because it returns secret access keys');
  }
  return parsed;
}

/** Becomes part of statements unescaped. */
function schemaName(value: string): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value)) {
    throw new Error('must be 1 to 63 letters, digits and _, not beginning with a digit');
  }
  return value;
}

function overrides(path: string): Overrides {
  return parseOverrides(readFileSync(file(path), 'utf8'));
}
