/** The normal form that every log format is parsed into, its closed sets, and names of hosts and networks. */
import { createHash } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { copyOf } from './copy-of.ts';
import { hasInvisible, printableStart } from './printable.ts';

/** The 13 attack categories, in the order of the interface specification. */
export const CATEGORIES = [
  'xss',
  'sqli',
  'cmdi',
  'cc',
  'custom',
  'illegal',
  'lfi',
  'robot',
  'antitamper',
  'rfi',
  'vuln',
  'whiteblackip',
  'webshell',
] as const;

export type Category = (typeof CATEGORIES)[number];

const CATEGORY_NUMBERS: ReadonlyMap<string, number> = new Map(
  CATEGORIES.map((name, number) => [name, number]),
);

export function isCategory(value: unknown): value is Category {
  return typeof value === 'string' && CATEGORY_NUMBERS.has(value);
}

/** The position of a category in CATEGORIES, or undefined for any other name. */
export function categoryNumber(name: string): number | undefined {
  return CATEGORY_NUMBERS.get(name);
}

/**
 * What the overview calls of the API family count, in their order. Null counts requests. The four groups before ATTACK
 * contain each category once, so they add up to ATTACK.
 */
export const OVERVIEW_GROUPS: Readonly<Record<OverviewKey, readonly Category[] | null>> = {
  ACCESS: null,
  CRAWLER: ['robot'],
  CC: ['cc'],
  PRECISE: ['custom', 'whiteblackip'],
  WEB_ATTACK: ['xss', 'sqli', 'cmdi', 'illegal', 'lfi', 'antitamper', 'rfi', 'vuln', 'webshell'],
  ATTACK: CATEGORIES,
};

export type OverviewKey = 'ACCESS' | 'CRAWLER' | 'CC' | 'PRECISE' | 'WEB_ATTACK' | 'ATTACK';

/** `count` requests, attacks, or requests that were attacks. */
export interface Event {
  /** Milliseconds since the epoch, a whole number. */
  time: number;
  /** The registered host, or null for traffic without a registered host (it counts in the project's total only). */
  hostId: string | null;
  request: boolean;
  attack: Category | null;
  count: number;
  /** The log records that this event stands for, if there are several; `count` is the sum of theirs. */
  recordCount?: number | undefined;
  details?: AttackDetails | undefined;
  /** Requests only: what the client got; absent if the log does not say. See `responseCode`. */
  status?: number | undefined;
  /** Requests only: what the server behind the firewall responded, if that differs; 0 if it did not. */
  upstreamStatus?: number | undefined;
  /** Requests only: how many of `count` have another code than `status`: codes, 0 for none, and counts, alternating. */
  otherCodes?: readonly number[] | undefined;
  /** Requests only: the bytes that clients sent and got, as the log counts them, of all `count` requests. */
  bytesIn?: number | undefined;
  bytesOut?: number | undefined;
  /** Attacks only: which request this is, if other logs may report it too. */
  flagged?: FlaggedRequest | undefined;
}

/** A flagged request, as far as a log identifies it. The logs of a source that report it count it once. */
export interface FlaggedRequest {
  /** `record`: the log has one record per request. `lines`: it may have several. `forged`: a client may have forged the IDs. */
  kind: 'record' | 'lines' | 'forged';
  /** The format of the log. */
  log: string;
  /** Keys of `requestKey`: one, but any number if `forged`. */
  ids: readonly string[];
  /** Stands for the ID where a log may have lost it: a hash of the path. */
  unnamed?: string | undefined;
}

/** A request ID as a key of the store, which has at most 33 characters. Those of web servers stay as they are. */
export function requestKey(id: string): string {
  return /^[\w.@-]{1,32}$/.test(id)
    ? copyOf(id)
    : `#${createHash('sha256').update(id).digest('base64url').slice(0, 24)}`;
}

/** The response codes of RFC 9110, and 0 for requests without one. Positions are numbers on disk. */
export const RESPONSE_CODES: readonly number[] = [...Array.from({ length: 500 }, (_, i) => 100 + i), 0];

/** The classes of response codes, by their first digit. */
export const CODE_CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx', 'none'] as const;

/** The codes whose pages `pages` lists. */
export const PAGE_CODES: readonly number[] = [404, 500, 502];

/** A code from a log; undefined for anything that is none. */
export function responseCode(value: string | number | undefined): number | undefined {
  if (typeof value === 'string' && !/^[1-5]\d\d$/.test(value)) return undefined;
  const code = Number(value);
  return Number.isInteger(code) && code >= 100 && code <= 599 ? code : undefined;
}

/** More bytes of one request are an error of the log. */
export const BYTES_MAX = 2 ** 40;

/** The bytes of `requests` from a log; undefined for anything that is no number of bytes. */
export function byteCount(value: string | number | undefined, requests = 1): number | undefined {
  if (value === undefined || (typeof value === 'string' && !/^\d{1,13}$/.test(value))) return undefined;
  const bytes = Number(value);
  return Number.isSafeInteger(bytes) && bytes >= 0 && bytes <= BYTES_MAX * requests ? bytes : undefined;
}

/** How many log records the events stand for. */
export function countRecords(events: readonly Pick<Event, 'recordCount'>[]): number {
  let sum = 0;
  for (const { recordCount = 1 } of events) sum += recordCount;
  return sum;
}

/** What a log says about an attack besides its category. A field that the log does not have is absent. */
export interface AttackDetails {
  /** Whether the firewall stopped the request. */
  blocked?: boolean;
  /** The client's IP address in its canonical form, or a prefix of it like 203.0.113.0/24. */
  source?: string;
  /** The path of the URL, without the query, at most 512 bytes. */
  url?: string;
  /** The rule that decided the category. */
  rule?: string;
  /** ISO 3166-1 alpha-2, upper case. */
  country?: string;
  /** The ID of the request in its log, at most 128 bytes. */
  id?: string;
  method?: string;
  /** The query of the URL, without the question mark and with secrets masked. Path and query have at most 512 bytes. */
  query?: string;
  /** The response code. */
  status?: number;
  /** The matched rules, at most 32: the one that decided the category first. */
  rules?: readonly MatchedRule[];
  /** The inbound anomaly score. */
  score?: number;
  /** At most 128 bytes. */
  userAgent?: string;
}

export interface MatchedRule {
  id: string;
  /** What matched, like ARGS:q. */
  variable?: string;
  /** The value of the variable, or of a long one the part that matched, at most 128 bytes. */
  value?: string;
  severity?: string;
}

/** The points of a matched rule by its severity, as CRS scores. */
export const SEVERITY_POINTS: Readonly<Record<string, number>> = {
  critical: 5,
  error: 4,
  warning: 3,
  notice: 2,
};

/** The points of a CRS rule with a missing or unknown severity: most are CRITICAL, and a cut message must not count less. */
export const POINTS_WITHOUT_SEVERITY = 5;

/** Why a log record was not counted. A closed set, because operators alert on it and it is a key in the store. */
export const DROP_REASONS = {
  line_too_long: 'the line is longer than the limit of 1 MiB',
  unknown_format: 'the line does not match the given format, or any known one',
  not_json: 'the line is not JSON, or nests more than 500 levels deep',
  json_fragment:
    'the line is part of JSON that is printed over several lines: put each record on one line, for example with `jq -c .`',
  not_an_object: 'the line is JSON, but not an object',
  bad_time: 'the time is missing or malformed (in an event: whole milliseconds, or ISO 8601 with an offset)',
  bad_host: '`host` or `host_id` is not a string, or `host_id` is not an ID',
  bad_request: '`request` is not true or false',
  bad_attack: '`attack` is not one of the 13 category names',
  bad_count: '`count` is not a whole number from 1 to 1,000,000',
  bad_details:
    'a field of an attack is malformed: `blocked`, `source`, `url`, `rule`, `rules`, `country`, `id`, `method`, `status`, `score` or `user_agent`',
  too_many_records: 'the line has more than 10,000 records; the rest are skipped',
  nothing_to_count: 'the record is neither a request nor an attack',
  bad_record: 'the record lacks a field that its format requires',
  unfinished_record: 'the record is incomplete',
  other_log_line: 'the error log line reports neither a matched rule nor a refused request',
  not_an_attack:
    'no rule of the record has a category, and there is no verdict: the firewall logged it for its status or configuration',
  same_request: 'another record of the same request has been counted',
  too_old: 'the event is older than the retention time, or before the horizon of the store',
  in_future: 'the event is more than 24 hours in the future',
} as const;

export type DropReason = keyof typeof DROP_REASONS;

/** What to do about dropped records. "Nothing to do": the console and the alert rule do not warn of them. */
export const DROP_FIXES: Readonly<Record<DropReason, string>> = {
  line_too_long: 'Send each record on its own line, and leave request and response bodies out of the log.',
  unknown_format:
    "Run 'wafstat explain' on a few lines. Name the format with --format, or describe it with a pattern.",
  not_json: 'Check that the source sends JSON lines only, or choose the format of the other lines.',
  json_fragment: 'Print each record on one line, for example with `jq -c .`.',
  not_an_object: 'Send one JSON object per line.',
  bad_time: 'Log the time in the default form of the program, or in ISO 8601 with an offset.',
  bad_host: 'Send the host name as a string in `host`, or the ID of a host in `host_id`.',
  bad_request: 'Send true or false in `request`, or leave it out.',
  bad_attack: "Send one of the 13 category names in `attack`; 'wafstat categories' lists them.",
  bad_count: 'Send a whole number from 1 to 1,000,000 in `count`, or leave it out.',
  bad_details: 'Correct the field, or leave it out: docs/log-formats.md says what each may contain.',
  too_many_records: 'Send at most 10,000 records in a line.',
  nothing_to_count: 'Set `request` to true, or name a category in `attack`.',
  bad_record: 'Log all fields that the format requires: docs/log-formats.md lists them.',
  unfinished_record:
    'Check that the log is complete: the program may have stopped while it wrote the record.',
  other_log_line: 'Nothing to do: an error log has other messages, too.',
  not_an_attack: 'Nothing to do, unless you expect a category: then map the rule with --categories.',
  same_request: 'Nothing to do: each request counts once.',
  too_old:
    "Send events sooner. To count older ones, raise --retention of the server, and move the horizon back with 'wafstat horizon --data DIR --set TIME'. Then read the logs again with another --source.",
  in_future: 'Correct the clock or the time zone of the machine that writes the log.',
};

/** Limits what one line can add, so that a typing error cannot bury a month of real traffic. */
export const EVENT_COUNT_MAX = 1_000_000;

/** Host, domain and project IDs: what the `hosts` parameter and the path accept. */
export const ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;

/** The longest name DNS allows. */
const HOSTNAME_LENGTH_MAX = 253;

/** The name under which a host is registered. Null for text that cannot be a host name: logs hold attacker input. */
export function normalHostname(text: string): string | null {
  const name = withoutPort(text.trim()).toLowerCase().replace(/\.$/, '');
  if (name.length === 0 || name.length > HOSTNAME_LENGTH_MAX) return null;
  // A Host header has no control characters or spaces. Lone surrogates cannot be stored: UTF-8 decoders replace them with
  // U+FFFD. Invisible characters make one name look like another.
  if (/[ \ufffd]/.test(name) || hasInvisible(name)) return null;
  return name.includes(':') && !isIPv6(name.replace(/^\[(.*)\]$/, '$1')) ? null : name;
}

/** A name that people enter, as they spell it. Throws an Error whose message says what it must be. */
export function enteredHostname(text: string): string {
  const rule = 'must be a host name, such as www.example.com';
  if (text.includes('://')) throw new Error(`${rule}, not a URL`);
  if (normalHostname(text) === null) throw new Error(rule);
  return text;
}

/** `example.com:8080` and `[2001:db8::1]:443`; a bare IPv6 address has more than one colon and no port. */
function withoutPort(name: string): string {
  return /^(\[[^\]]*\]|[^:]*):[0-9]{0,5}$/.exec(name)?.[1] ?? name;
}

/** The network of a canonical address, like 203.0.113.0/24 or 2001:db8:1:2::/64. A network stays as it is. */
export function networkOf(address: string, bits: { ipv4: 24 | 32; ipv6: 48 | 64 }): string {
  if (address.includes('/')) return address;
  if (!address.includes(':')) {
    return bits.ipv4 === 32 ? address : `${address.slice(0, address.lastIndexOf('.'))}.0/24`;
  }
  const [head = '', tail = ''] = address.split('::');
  const [first, last] = [head, tail].map((part) => (part === '' ? [] : part.split(':'))) as [
    string[],
    string[],
  ];
  const zeros = Array<string>(Math.max(0, 8 - first.length - last.length)).fill('0');
  const groups = [...first, ...zeros, ...last].slice(0, bits.ipv6 / 16);
  while (groups.at(-1) === '0') groups.pop();
  return `${groups.join(':')}::/${bits.ipv6}`;
}

/** The path in top lists. */
export const TOP_URL_BYTES_MAX = 256;

/** The path as top lists have it. */
export function topUrl(path: string): string {
  // A UTF-16 code unit has at most three bytes in UTF-8.
  const isShort = 3 * path.length <= TOP_URL_BYTES_MAX || Buffer.byteLength(path) <= TOP_URL_BYTES_MAX;
  return isShort ? path : printableStart(path, TOP_URL_BYTES_MAX);
}
