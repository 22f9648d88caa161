/** Every setting in one table: command line, environment, help text and checks all come from it. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { ACCESS_TYPES, ROLES, SYSTEM_ROLE } from './identity/records.ts';
import type { Overrides } from './ingest/categories/classify.ts';
import { parseOverrides } from './ingest/categories/classify.ts';
import { compilePattern, fitsPattern } from './ingest/formats/pattern.ts';
import { parseZone } from './ingest/formats/time-zone.ts';
import { parseTime } from './ingest/formats/timestamps.ts';
import { FORMAT_NAMES } from './ingest/reader.ts';
import { isLoopback } from './loopback.ts';

interface Setting<T> {
  /** As on the command line; a setting without `<...>` is a switch. The environment has it as WAFSTAT_NAME. */
  flag: string;
  about: string;
  default?: string;
  /** Throws an Error whose message says what the value must be. */
  parse(text: string): T;
}

const DAY_MS = 86_400_000;

export const SETTINGS = {
  data: setting('--data <dir>', 'folder that holds everything wafstat stores', text),
  store: setting(
    '--store <lmdb|clickhouse>',
    'where counts are kept: lmdb is a file in the data folder',
    oneOf('lmdb', 'clickhouse'),
    'lmdb',
  ),
  copyTo: setting('--to <lmdb|clickhouse>', 'store to copy to', oneOf('lmdb', 'clickhouse')),
  backupTo: setting('--to <dir>', 'folder to write the backup to; must be empty or not exist yet', text),
  acceptStatistics: setting(
    '--accept-statistics',
    'accept the current statistics file (or its absence) as belonging to this data folder',
    flag,
  ),
  clickhouseUrl: setting(
    '--clickhouse-url <urls>',
    'HTTP addresses of all ClickHouse servers, with commas; the first one keeps the ledger',
    urls,
  ),
  clickhouseInsecureHttp: setting(
    '--clickhouse-insecure-http',
    'plain HTTP to ClickHouse beyond loopback: the network between is private',
    flag,
  ),
  clickhouseDatabase: setting('--clickhouse-database <name>', 'database of the tables', sqlName, 'wafstat'),
  clickhouseUser: setting('--clickhouse-user <name>', 'user of ClickHouse', text, 'default'),
  clickhousePasswordFile: setting(
    '--clickhouse-password-file <file>',
    'file that holds the password of the ClickHouse user, in its first line',
    file,
  ),
  clickhouseCluster: setting(
    '--clickhouse-cluster <name>',
    "name of the cluster in the servers' configuration; cells are spread over its shards",
    sqlName,
  ),
  clickhouseReplicated: setting(
    '--clickhouse-replicated',
    'make replicated tables, after the macros shard and replica of the servers',
    flag,
  ),
  clickhouseMigrate: setting(
    '--clickhouse-migrate <auto|never>',
    "auto makes missing tables; with never 'wafstat migrate' must have made them",
    oneOf('auto', 'never'),
    'auto',
  ),
  clickhouseTimeout: setting(
    '--clickhouse-timeout <seconds>',
    'how long one statement of ClickHouse may take',
    integer(1, 600),
    '10',
  ),
  domain: setting('--domain <name>', 'name of the domain', text, 'default'),
  domainOf: setting('--domain <id or name>', 'domain; can be left out where there is only one', text),
  project: setting('--project <id or name>', 'project, by ID or name', text),
  projectName: setting('--project <name>', 'name of the first project', text, 'default'),
  userName: setting('--user <name>', 'name of the first user, who administers the domain', text, 'admin'),
  userOf: setting('--user <id or name>', 'user, by ID or name', text),
  access: setting(
    '--access <type>',
    `what the user may sign in to: ${ACCESS_TYPES.join(', ')}`,
    oneOf(...ACCESS_TYPES),
    'both',
  ),
  role: setting(
    '--role <role>',
    `what the user may do: ${ROLES.join(', ')} (admin: everything), or ${SYSTEM_ROLE}: tell other services who calls`,
    oneOf(...ROLES, SYSTEM_ROLE),
    'reader',
  ),
  since: setting(
    '--since <time>',
    'print entries from this time on, for example 2026-07-01T12:00:00+08:00',
    moment,
  ),
  auditUser: setting(
    '--user <id or name>',
    'only changes by this user; local:NAME on the command line',
    text,
  ),
  auditAction: setting(
    '--action <action>',
    "only this action, like user.add; 'user' selects all actions on users",
    text,
  ),
  description: setting('--description <text>', 'what the access key is for', anyText, ''),
  csv: setting('--csv <file>', 'write the key file here (CSV, readable by its owner only)', text),
  passwordStdin: setting(
    '--password-stdin',
    'read the password from standard input instead of making one',
    flag,
  ),
  json: setting('--json', 'print one JSON document', flag),
  id: setting('--id <id>', 'ID of the host instead of a made one', identifier),
  source: setting('--source <name>', 'name under which the log source is known', sourceName, 'default'),
  format: setting(
    '--format <format>',
    `format of the lines: ${FORMAT_NAMES.join(', ')}`,
    oneOf(...FORMAT_NAMES),
    'auto',
  ),
  pattern: setting(
    '--pattern <log_format>',
    "format of access lines as in the server's configuration (nginx log_format, Apache LogFormat), or nginx-proxy-manager",
    compilePattern,
  ),
  hostOfLogs: setting('--host <name>', 'host name for logs that do not name one', text),
  timezone: setting(
    '--timezone <zone>',
    'time zone of logs that do not name one, like +08:00 or Europe/Berlin',
    parseZone,
    '+00:00',
  ),
  categories: setting(
    '--categories <file>',
    'JSON file with the categories of single rules, like {"rules": {"942100": "custom", "10001": "none"}}',
    overrides,
  ),
  hosts: setting(
    '--hosts <auto|registered>',
    'auto registers unknown host names; with registered they count in the total of the project only',
    oneOf('auto', 'registered'),
    'auto',
  ),
  hostsMax: setting(
    '--hosts-max <n>',
    'host names from logs that are registered on first sight, per project; later ones count in the total only',
    integer(0, 100_000),
    '1000',
  ),
  sourcesMax: setting(
    '--sources-max <n>',
    'log sources of one project; lines of a new source beyond it are refused',
    integer(1, 100_000),
    '1000',
  ),
  retention: setting('--retention <time>', 'how long events are kept, like 180d or 36h', duration, '180d'),
  listen: setting(
    '--listen <host:port>',
    'address to listen on; port 0 picks a free one',
    address,
    '127.0.0.1:8080',
  ),
  healthListen: setting(
    '--health-listen <host:port>',
    'also serve /healthz and /readyz here, over plain HTTP; probes then do not wait behind the connections of clients',
    address,
  ),
  tlsCert: setting('--tls-cert <file>', 'certificate (PEM, with its chain): serve HTTPS', file),
  tlsKey: setting('--tls-key <file>', 'private key of the certificate (PEM)', file),
  insecureHttp: setting('--insecure-http', 'plain HTTP beyond loopback: something in front does TLS', flag),
  workers: setting('--workers <n>', 'processes that answer requests', integer(1, 256), '1'),
  publicUrl: setting(
    '--public-url <url>',
    'address under which clients reach the service, for the catalog',
    url,
  ),
  region: setting('--region <name>', 'region name in the catalog', text, 'default'),
  bodyLimit: setting(
    '--body-limit <bytes>',
    'largest push with a token; signed pushes have 12 MiB, other requests 64 KiB',
    integer(1_024, 1_099_511_627_776),
    '1073741824',
  ),
  trustProxy: setting(
    '--trust-proxy <addresses>',
    'proxies in front whose X-Forwarded-* headers are believed: IP addresses or ranges, with commas',
    proxies,
  ),
  maxConnections: setting(
    '--max-connections <n>',
    'maximum open connections per worker; further ones are closed',
    integer(1, 1_000_000),
    '10000',
  ),
  drainDelay: setting(
    '--drain-delay <seconds>',
    'on SIGTERM, how long /readyz answers 503 before the service stops accepting connections; set it to the check interval of the load balancer',
    integer(0, 300),
    '0',
  ),
  rateLimit: setting(
    '--rate-limit <n>',
    'requests per second for each user and worker, 0 for no limit',
    integer(0, 1_000_000),
    '0',
  ),
  identityUrl: setting(
    '--identity-url <url>',
    'service that says who calls, instead of a file of its own: another wafstat, or a Keystone v3',
    url,
  ),
  identityUser: setting('--identity-user <name>', 'user with which this process asks there', text),
  identityDomain: setting('--identity-domain <name>', 'domain of that user', text, 'default'),
  identityPasswordFile: setting(
    '--identity-password-file <file>',
    'file with the password of that user; WAFSTAT_IDENTITY_PASSWORD can hold it instead',
    file,
  ),
  identityCache: setting(
    '--identity-cache <time>',
    'how long an answer of it is believed: what is revoked there works so much longer at most',
    believed,
    '60s',
  ),
  logLevel: setting(
    '--log-level <level>',
    'error, warn, info or debug',
    oneOf('error', 'warn', 'info', 'debug'),
    'info',
  ),
  url: setting(
    '--url <url>',
    'address of the service; NODE_EXTRA_CA_CERTS names the certificate of a private authority',
    url,
  ),
  projectId: setting('--project <id>', 'project, by ID', identifier),
  ak: setting('--ak <id>', 'access key ID to sign with', text),
  skStdin: setting(
    '--sk-stdin',
    'read the secret access key from standard input; WAFSTAT_SK can hold it instead',
    flag,
  ),
  signInUser: setting('--user <name>', 'user to sign in as', text),
  signInDomain: setting('--domain <name>', "domain of the user, when it is not 'default'", text),
  signInPasswordStdin: setting(
    '--password-stdin',
    'read the password from standard input; WAFSTAT_PASSWORD can hold it instead',
    flag,
  ),
  token: setting(
    '--token <token>',
    'token to sign in with; the list of processes shows it, the environment keeps it to yourself',
    text,
  ),
  profile: setting('--profile <name>', "address and credentials that 'wafstat configure' saved", identifier),
  from: setting(
    '--from <time>',
    'start: milliseconds since the epoch, or a time like 2026-07-01T12:00:00+08:00',
    moment,
  ),
  horizonTime: setting('--set <time>', 'set the horizon back to this time', moment),
  to: setting('--to <time>', 'end, not part of the range; now when left out', moment),
  last: setting('--last <time>', 'length of the range without --from, like 24h, 7d or 90m', span, '24h'),
  localTime: setting('--timezone <offset>', 'local time, like +08:00', timezone, '+00:00'),
  hostIds: setting(
    '--host <id...>',
    'hosts by ID, all of the project when left out; can be repeated',
    identifiers,
  ),
  output: setting(
    '--output <form>',
    'plot, table, json (the answer as it came) or csv; plot on a terminal, else table',
    oneOf('plot', 'table', 'json', 'csv'),
  ),
} as const;

export type SettingName = keyof typeof SETTINGS;
type Parsed<N extends SettingName> = ReturnType<(typeof SETTINGS)[N]['parse']>;
/** Settings with a default always have a value; `required` ones too. */
export type Settings<N extends SettingName, R extends SettingName = never> = {
  [K in N]: K extends R
    ? Parsed<K>
    : Parsed<K> | ((typeof SETTINGS)[K] extends { default: string } ? never : undefined);
};

/** All that is wrong with the settings, one sentence each. */
export class SettingsError extends Error {
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

/** Where the value of a setting comes from; undefined when it is the default, or there is none. */
export type Origin = (name: SettingName) => 'command line' | 'environment' | undefined;

export function originOf(
  given: (name: SettingName) => string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): Origin {
  return (name) => {
    if (given(name) !== undefined) return 'command line';
    return env[variableOf(name)] === undefined ? undefined : 'environment';
  };
}

/** The command line wins over the environment, the environment over the default. */
export function readSettings<N extends SettingName, R extends SettingName>(
  names: readonly N[],
  required: readonly R[],
  given: (name: N) => string | undefined,
  env: Readonly<Record<string, string | undefined>>,
  alsoWrong: readonly string[] = [],
): Settings<N, R> {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const name of names) {
    const { flag: spelled, parse, default: fallback } = SETTINGS[name] as Setting<unknown>;
    const long = spelled.split(' ')[0];
    const value = given(name) ?? env[variableOf(name)] ?? fallback;
    if (value === undefined) {
      if ((required as readonly string[]).includes(name))
        problems.push(`${long} (or ${variableOf(name)}) is required`);
      continue;
    }
    try {
      values[name] = parse(value);
    } catch (error) {
      const origin =
        given(name) === undefined && env[variableOf(name)] !== undefined ? variableOf(name) : long;
      problems.push(`${origin} is '${withoutPassword(value)}', but ${(error as Error).message}`);
    }
  }
  problems.push(...conflicts(values), ...alsoWrong);
  if (problems.length > 0) throw new SettingsError(problems);
  return values as Settings<N, R>;
}

/** What goes to a terminal or a journal. */
export function withoutPassword(value: string): string {
  return value.replace(/\/\/[^/@]*@/g, '//***@');
}

/** `tlsCert` is WAFSTAT_TLS_CERT. */
export function variableOf(name: SettingName): string {
  const flagName = SETTINGS[name].flag.split(' ')[0] ?? '';
  return `WAFSTAT_${flagName.slice(2).toUpperCase().replaceAll('-', '_')}`;
}

function conflicts(values: Record<string, unknown>): string[] {
  const { tlsCert, tlsKey, insecureHttp, listen, identityUrl, store, clickhouseUrl, clickhouseInsecureHttp } =
    values as Partial<Settings<SettingName>>;
  const { pattern, format } = values as Partial<Settings<SettingName>>;
  const problems: string[] = [];
  if (pattern !== undefined && !fitsPattern(format))
    problems.push(`--pattern is for access logs, but --format is ${format}`);
  if (store === 'clickhouse' && clickhouseUrl === undefined)
    problems.push('--store clickhouse needs --clickhouse-url (or WAFSTAT_CLICKHOUSE_URL)');
  if (store === 'lmdb' && clickhouseUrl !== undefined)
    problems.push('--clickhouse-url is for --store clickhouse, but the store is lmdb');
  const open = clickhouseUrl?.find((one) => one.startsWith('http:') && !isLoopback(new URL(one).hostname));
  if (open !== undefined && !clickhouseInsecureHttp) {
    problems.push(
      `--clickhouse-url ${open} sends password and counts in the clear: use https, ` +
        'or --clickhouse-insecure-http if the network between is private',
    );
  }
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    problems.push('--tls-cert and --tls-key go together');
  if (listen && !isLoopback(listen.host) && tlsCert === undefined && !insecureHttp) {
    problems.push(
      `--listen ${listen.host} is reachable from outside: give --tls-cert and --tls-key, ` +
        'or --insecure-http if something in front does TLS',
    );
  }
  if (
    identityUrl?.startsWith('http:') &&
    !isLoopback(new URL(identityUrl).hostname.replace(/^\[|\]$/g, ''))
  ) {
    problems.push('--identity-url must be https beyond loopback: secret access keys come from there');
  }
  return problems;
}

function setting<T>(flag: string, about: string, parse: (text: string) => T): Omit<Setting<T>, 'default'>;
function setting<T>(
  flag: string,
  about: string,
  parse: (text: string) => T,
  fallback: string,
): Setting<T> & { default: string };
function setting<T>(flag: string, about: string, parse: (text: string) => T, fallback?: string) {
  return fallback === undefined ? { flag, about, parse } : { flag, about, parse, default: fallback };
}

function text(value: string): string {
  if (value.length === 0) throw new Error('must not be empty');
  return value;
}

function anyText(value: string): string {
  return value;
}

function flag(value: string): boolean {
  if (value === 'true' || value === '1') return true;
  if (value === 'false' || value === '0') return false;
  throw new Error('must be true or false');
}

function identifier(value: string): string {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(value)) throw new Error('an ID is 1 to 64 letters, digits, _ or -');
  return value;
}

/** It is a key in the store and stands in lists. */
function sourceName(value: string): string {
  if (value.length > 128 || /[\p{Cc}\p{Cs}]/u.test(text(value))) {
    throw new Error('must have 1 to 128 characters and no control characters');
  }
  return value;
}

function oneOf<T extends string>(...values: T[]) {
  return (value: string): T => {
    const found = values.find((candidate) => candidate === value);
    if (found === undefined) throw new Error(`must be ${values.join(', ')}`);
    return found;
  };
}

function integer(min: number, max: number) {
  return (value: string): number => {
    const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max)) throw new Error(`must be a whole number from ${min} to ${max}`);
    return number;
  };
}

/** Milliseconds. A hundred years are as good as for ever, for those who count old logs. */
function duration(value: string): number {
  const match = /^(\d{1,6})([dh])$/.exec(value);
  const ms = match ? Number(match[1]) * (match[2] === 'd' ? DAY_MS : DAY_MS / 24) : Number.NaN;
  if (!(ms >= DAY_MS / 24 && ms <= 36_525 * DAY_MS))
    throw new Error('must be a time like 180d or 36h, from 1h to 36525d');
  return ms;
}

/** Milliseconds. Nobody should have to wait longer than an hour for a revoked key to be refused. */
function believed(value: string): number {
  const match = /^(\d{1,4})([sm])$/.exec(value);
  const ms = match ? Number(match[1]) * (match[2] === 'm' ? 60_000 : 1_000) : Number.NaN;
  if (!(ms >= 1_000 && ms <= 3_600_000)) throw new Error('must be a time like 60s or 5m, from 1s to 60m');
  return ms;
}

function proxies(value: string): string {
  for (const item of value.split(',')) {
    const [address = '', bits, ...more] = item.trim().split('/');
    const bitsMax = isIP(address) === 4 ? 32 : 128;
    const fits = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax);
    if (!isIP(address) || !fits || more.length > 0) {
      throw new Error('must be IP addresses or ranges like 10.0.0.0/8, separated by commas');
    }
  }
  return value;
}

/** Minutes east of UTC. */
function offset(value: string): number {
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(value);
  const minutes = match
    ? (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]))
    : Number.NaN;
  if (!(minutes >= -12 * 60 && minutes <= 14 * 60))
    throw new Error('must be an offset like +08:00, from -12:00 to +14:00');
  return minutes;
}

function span(value: string): number {
  const match = /^(\d{1,7})([mhd])$/.exec(value);
  const unitMs = { m: 60_000, h: DAY_MS / 24, d: DAY_MS }[match?.[2] ?? ''] ?? Number.NaN;
  const ms = Number(match?.[1]) * unitMs;
  if (!(ms > 0 && ms <= 3_653 * DAY_MS)) throw new Error('must be a time like 24h, 7d or 90m, up to 3653d');
  return ms;
}

/** Beyond it, times have no ISO 8601 form that others read. */
const YEAR_10000 = Date.UTC(10_000, 0);

function moment(value: string): number {
  const time = parseTime(/^\d+$/.test(value) ? Number(value) : value);
  if (time === null || time >= YEAR_10000) {
    throw new Error(
      'must be milliseconds since the epoch, or a time with its offset: 2026-07-01T12:00:00+08:00',
    );
  }
  return time;
}

export interface Timezone {
  text: string;
  offsetMs: number;
}

function timezone(value: string): Timezone {
  return { text: value, offsetMs: offset(value) * 60_000 };
}

/** A flag that was repeated arrives with commas, as does a list in the environment. */
function identifiers(value: string): string[] {
  return value.split(',').map(identifier);
}

export interface Address {
  host: string;
  port: number;
}

function address(value: string): Address {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(value);
  const port = Number(match?.[3] ?? Number.NaN);
  if (!match || !(port <= 65_535)) throw new Error('must be HOST:PORT, like 127.0.0.1:8080 or [::1]:8080');
  return { host: match[1] ?? match[2] ?? '', port };
}

function url(value: string, example = 'https://waf.example.com'): string {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.search || parsed.hash) {
    throw new Error(`must be an address like ${example}`);
  }
  return value.replace(/\/+$/, '');
}

function urls(value: string): string[] {
  return value.split(',').map((one) => {
    const address = url(one.trim(), 'http://127.0.0.1:8123');
    if (new URL(address).username || new URL(address).password) {
      throw new Error('must not hold a user or password: the list of processes shows it to all');
    }
    return address;
  });
}

/** It stands in statements as it is. */
function sqlName(value: string): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value)) {
    throw new Error('must be a name of letters, digits and _, at most 63');
  }
  return value;
}

function file(path: string): string {
  try {
    readFileSync(text(path));
  } catch (error) {
    throw new Error(`cannot be read (${(error as NodeJS.ErrnoException).code ?? 'not a file'})`);
  }
  return path;
}

/** Read once, with the other settings, so that a mistake is told before anything is counted. */
function overrides(path: string): Overrides {
  return parseOverrides(readFileSync(file(path), 'utf8'));
}
