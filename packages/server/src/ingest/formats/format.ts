/** What a log format is: a pure function from a line to a record, or to the reason why the line does not count. */
import type { RawDetails } from '../../attack-details.ts';
import {
  type AttackDetails,
  byteCount,
  type Category,
  type DropReason,
  type FlaggedRequest,
  PAGE_CODES,
  responseCode,
} from '../../event.ts';
import type { Classification, Decision, Rule } from '../categories/classify.ts';
import { asObject, type JsonObject } from './json.ts';
import type { PatternFields } from './pattern.ts';
import type { LocalZone } from './time-zone.ts';
import type { CommonTimeParser } from './timestamps.ts';

/** The names on the command line and in summaries. */
export const LOG_FORMATS = [
  'access',
  'access-json',
  'nginx-proxy-manager',
  'modsecurity3-json',
  'modsecurity2-json',
  'modsecurity-native',
  'nginx-error',
  'apache-error',
  'caddy',
  'coraza-json',
  'lts',
  'aws-waf',
  'aws-alb',
  'cloudfront',
  'cloudflare',
  'azure-waf',
  'cloud-armor',
  'envoy',
  'iis',
  'zoraxy',
  'traefik',
  'haproxy',
  'naxsi',
  'events',
] as const;

export type LogFormat = (typeof LOG_FORMATS)[number];

/**
 * Logs of web servers and their firewalls: both kinds may report the same request. Web servers copy the standard error of
 * backends into error logs, including line ends.
 */
export const LOG_KINDS: Readonly<Partial<Record<string, 'audit log' | 'error log'>>> = {
  'modsecurity3-json': 'audit log',
  'modsecurity2-json': 'audit log',
  'modsecurity-native': 'audit log',
  'coraza-json': 'audit log',
  'nginx-error': 'error log',
  'apache-error': 'error log',
  caddy: 'error log',
  naxsi: 'error log',
};

export interface LogRecord {
  /** Milliseconds since the epoch. */
  time: number;
  host?: string | undefined;
  hostId?: string | undefined;
  request: boolean;
  attack: Category | null;
  count: number;
  /** The number of log records that this one stands for, as in Event. */
  recordCount?: number | undefined;
  /** Attacks only. Built by attackDetails(), in attack-details.ts. */
  details?: AttackDetails | undefined;
  /** As in Event. */
  flagged?: FlaggedRequest | undefined;
  /** Requests only: as in Event. */
  status?: number | undefined;
  upstreamStatus?: number | undefined;
  otherCodes?: readonly number[] | undefined;
  bytesIn?: number | undefined;
  bytesOut?: number | undefined;
  /** The path of a request with one of PAGE_CODES, as in the log. */
  page?: string | undefined;
  /** Why the attack is in its category. */
  evidence?: readonly Classification[] | undefined;
  /** How the category was chosen, if rules were judged. */
  decision?: Decision | undefined;
}

/** The result for a line, or for several that belong together. */
export type Parsed = (
  | { kind: 'record'; record: LogRecord; format: LogFormat | 'none' }
  | {
      kind: 'dropped';
      reason: DropReason;
      /** `none`: the line is in no known format. */
      format: LogFormat | 'none';
      /** Of a line that was read, and has nothing to count. */
      time?: number | undefined;
      evidence?: readonly Classification[];
    }
) & {
  /** For `explain`: the variables of a pattern with their values. */
  fields?: PatternFields['fields'];
  /** For `explain`: why the line did not match. */
  hint?: string | undefined;
  /** What the line was wrapped in: `docker`, or `syslog in cri`. */
  wrapper?: string;
  /** For `explain`: the first and last line of a multi-line record. */
  lines?: LineRange | undefined;
  /** How a multi-line record begins, to show to a person. */
  start?: string;
};

export type LineRange = readonly [first: number, last: number];

/** A request logged by a firewall, or a part of it. */
export interface Transaction {
  /** The firewall's ID; '' if it has none, or the line was cut before it. */
  id: string;
  time: number;
  host: string | undefined;
  rules: readonly Rule[];
  /** As in the log. `blocked: true` is evidence: the request counts as an attack even without rules. */
  details: RawDetails;
  /** The log has a record of every request, so this also counts as a request, with this response. */
  request?: boolean;
  response?: RawResponse;
}

/** One matched rule of a request. More may follow. */
export interface RuleMatch extends Transaction {
  /** When the line was written: for a slow request, long after it began. */
  written: number;
  /** Distinguishes requests if the ID was cut off; '' if the log has no connections. */
  connection: string;
  /** Set if `id` is '' because a client may have forged it: all IDs in the line, possibly the real one too. */
  claimedIds?: readonly string[];
}

/** What a format makes of a line. The category of a transaction is decided later. */
export type Reading =
  | { kind: 'record'; record: LogRecord }
  | { kind: 'dropped'; reason: DropReason; time?: number | undefined }
  /** A line that names the columns of the following lines. */
  | { kind: 'header' }
  | { kind: 'transaction'; transaction: Transaction }
  | { kind: 'match'; match: RuleMatch };

/** What a parser needs besides the line. */
export interface Context {
  /** The zone of times that name none. */
  zone: LocalZone;
  commonTime: CommonTimeParser;
  /** The columns in the last `#Fields:` line; null before the first one. */
  columns: readonly string[] | null;
}

/** A property of all lines of a format. `explain` names the first that a line lacks. */
export type Trait<T> = readonly [about: string, test: (value: T) => boolean];

interface Format<T> {
  name: LogFormat;
  traits: readonly Trait<T>[];
  parse(value: T, context: Context): Reading;
}

export interface TextFormat extends Format<string> {
  /** A cheap check: `parse` may still reject the line. */
  recognizes(line: string, context: Context): boolean;
}

export interface JsonFormat extends Format<JsonObject> {
  recognizes(fields: JsonObject): boolean;
}

export function dropped(reason: DropReason, time?: number): Reading {
  return { kind: 'dropped', reason, time };
}

/** What a log says about the response to a request, as it spells it. */
export interface RawResponse {
  status?: string | number | undefined;
  /** The code of the server behind the firewall. Undefined if the log does not have it; anything else is a code, or no response. */
  upstream?: string | number | undefined;
  bytesIn?: string | number | undefined;
  bytesOut?: string | number | undefined;
  /** A path or a URL. */
  url?: string | undefined;
}

const NO_RESPONSE: RawResponse = {};

export function requestRecord(time: number, host: string | undefined, response = NO_RESPONSE): LogRecord {
  // All fields of requests, so that records have one shape: events with codes took a tenth less time in a measurement.
  const record: LogRecord = {
    time,
    host,
    hostId: undefined,
    request: true,
    attack: null,
    count: 1,
    recordCount: undefined,
    status: undefined,
    upstreamStatus: undefined,
    otherCodes: undefined,
    bytesIn: undefined,
    bytesOut: undefined,
    details: undefined,
    flagged: undefined,
    page: undefined,
    evidence: undefined,
  };
  if (response !== NO_RESPONSE) setResponse(record, response);
  return record;
}

const LAST_CODE = /(?:^|[\s,:])(\d{3})$/;

/** Sets what the log says about the response. */
export function setResponse(record: LogRecord, response: RawResponse): void {
  const { upstream, url } = response;
  record.status = responseCode(response.status);
  // nginx lists all servers that it tried, the last one last.
  if (upstream !== undefined) {
    const last = typeof upstream === 'number' ? upstream : LAST_CODE.exec(upstream.trimEnd())?.[1];
    record.upstreamStatus = responseCode(last) ?? 0;
  }
  record.bytesIn = byteCount(response.bytesIn, record.count);
  record.bytesOut = byteCount(response.bytesOut, record.count);
  if (record.status !== undefined && url !== undefined && PAGE_CODES.includes(record.status))
    record.page = pageOf(url);
}

/** Longer than any path that is kept, in a request line. */
export const REQUEST_LENGTH_MAX = 1_024;

/** The start of a URL without its query. */
export function pageOf(url: string): string | undefined {
  const end = url.slice(0, REQUEST_LENGTH_MAX).search(/[?#]/);
  return url.slice(0, end === -1 ? REQUEST_LENGTH_MAX : end) || undefined;
}

export function requestReading(time: number, host: string | undefined, response = NO_RESPONSE): Reading {
  return { kind: 'record', record: requestRecord(time, host, response) };
}

/** A matched rule from a log without connections. Without an ID, no other line can belong to its request. */
export function ruleMatch(transaction: Transaction): Reading {
  const { id, time, host, rules, details } = transaction;
  return id === ''
    ? { kind: 'transaction', transaction }
    : { kind: 'match', match: { id, time, host, rules, details, written: time, connection: '' } };
}

/** The object has this field, or one of several alternatives. */
export function field(about: string, names: readonly string[] = [about]): Trait<JsonObject> {
  const list = names.length === 1 ? '' : `: ${names.slice(0, -1).join(', ')} or ${names.at(-1)}`;
  return [`${about}${list}`, (fields) => names.some((name) => fields[name] !== undefined)];
}

export function objectField(name: string): Trait<JsonObject> {
  return [`${name} object`, (fields) => asObject(fields[name]) !== null];
}

/** `[10/Dec/2025:09:25:32 +0000]` */
export const COMMON_TIME = /\[\d{2}\/[A-Z][a-z]{2}\/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}\]/;

/** The rest of a line after its first fields, which are separated by spaces. */
export function restAfter(line: string, fields: readonly string[]): string {
  return line.slice(fields.reduce((length, text) => length + text.length + 1, 0));
}

/** The host of an absolute URL, as in `https://shop.example.com:443/path`; undefined for a path. */
export function hostOfUrl(url: string): string | undefined {
  // Bounds the search for the end of the host, which has at most 253 characters.
  const match = /^[a-z][a-z0-9+.-]{0,15}:\/\/(?:[^/?#@]*@)?([^/?#]+)/i.exec(url.slice(0, 512));
  return match?.[1] === '-' ? undefined : match?.[1];
}

/** `GET /path?query HTTP/1.1`. `url` is undefined for text that is no request line. */
export function parseRequestLine(line: string): { method?: string; url?: string } {
  const start = line.indexOf(' ') + 1;
  if (start === 0) return {};
  const end = line.indexOf(' ', start);
  return { method: line.slice(0, start - 1), url: line.slice(start, end === -1 ? line.length : end) };
}
