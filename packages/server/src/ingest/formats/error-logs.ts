/** Error logs of nginx, Apache and Caddy: rules matched by ModSecurity or Coraza, and requests rejected by limit_req. */
import { attackDetails, queryOf, type RawDetails } from '../../attack-details.ts';
import { judgement } from '../categories/classify.ts';
import {
  dropped,
  field,
  type JsonFormat,
  parseRequestLine,
  type Reading,
  type RuleMatch,
  requestRecord,
  ruleMatch,
  type TextFormat,
  type Trait,
} from './format.ts';
import { asText } from './json.ts';
import {
  CUT_BYTES_MIN,
  clientOf,
  hostnameBefore,
  isRuleMessage,
  messageAfter,
  parseRuleText,
  type RuleText,
  requestIds,
  UNIQUE_ID,
} from './rules.ts';
import { fixedZone, type LocalZone } from './time-zone.ts';
import { parseAnyTime, parseAsctime, parseLocalTime, parseTime, timeOfModsecurityId } from './timestamps.ts';

export const NGINX_TIME_TRAIT: Trait<string> = [
  'time in yyyy/mm/dd HH:MM:SS form at its start',
  (line) => /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} /.test(line),
];

export const nginxError: TextFormat = {
  name: 'nginx-error',
  traits: [
    NGINX_TIME_TRAIT,
    ['level like [error] after the time', (line) => /^\S+ \S+ \[[a-z]+\] /.test(line)],
  ],
  recognizes: (line) => line.startsWith('/', 4) && line.startsWith('/', 7),
  /** `2025/12/10 09:25:32 [error] 34#34: *8 message, client: .., server: .., request: "..", host: ".."` */
  parse(line, { zone }) {
    const time = parseLocalTime(line.slice(0, NGINX_TIME_LENGTH), zone);
    if (time === null || !line.startsWith(' [', NGINX_TIME_LENGTH)) return dropped('unknown_format');
    const process = line.indexOf('] ', NGINX_TIME_LENGTH) + 2;
    const star = line.indexOf(': *', process);
    const space = line.indexOf(' ', star + 3);
    if (process < 2 || star === -1 || space === -1) return dropped('other_log_line', time);
    const message = messageAfter(line, space + 1);
    if (message.startsWith('limiting requests, ')) return limitedRequest(message, time);
    if (!isRuleMessage(message)) return dropped('other_log_line', time);
    return nginxMatch(message, line.slice(process, space), time);
  },
};

/** `2025/12/10 09:25:32` */
export const NGINX_TIME_LENGTH = 19;
/** nginx may have cut a line whose message is this long. */
const NGINX_LONG_BYTES = 1_900;
/** No zone is further from UTC. */
const ZONE_MS_MAX = 15 * 3_600_000;

function limitedRequest(message: string, time: number): Reading {
  const evidence = [judgement('limit_req', 'cc', 'nginx refused the request')];
  const details = attackDetails({
    blocked: true,
    source: textBetween(message, ', client: ', ',', 0),
    ...requestOf(message, 0),
    rule: 'limit_req',
  });
  const record = requestRecord(time, nginxHost(message, 0));
  return { kind: 'record', record: { ...record, request: false, attack: 'cc', details, evidence } };
}

/** Where nginx's own text begins after a message. */
const NGINX_SUFFIX = '"], client: ';

function nginxMatch(message: string, connection: string, written: number): Reading {
  const suffix = message.lastIndexOf(NGINX_SUFFIX);
  const found = parseRuleText(suffix === -1 ? message : message.slice(0, suffix + 2));
  if (found === null) return dropped('other_log_line');
  const bytes = Buffer.byteLength(message);
  // A short line without an ID is incomplete: the rest of it may follow.
  if (found.uniqueId === '' && suffix === -1 && bytes < CUT_BYTES_MIN) return dropped('bad_record');
  // A client can forge nginx's suffix: in its path, or in an argument so long that nginx cuts off the real one. Then
  // ID, host and client are all uncertain.
  const isForged = suffix !== -1 && message.indexOf(NGINX_SUFFIX) !== suffix;
  const isUncertain =
    isForged || bytes >= NGINX_LONG_BYTES || (bytes >= CUT_BYTES_MIN && !message.endsWith('"'));
  if (isUncertain) found.rule.doubtful = true;
  const host = suffix === -1 ? undefined : nginxHost(message, suffix);
  const source =
    isUncertain || suffix === -1 ? clientOf(message) : textBetween(message, ', client: ', ',', suffix);
  const { method, url = '' } = isUncertain || suffix === -1 ? {} : requestOf(message, suffix);
  return matchReading(found, message, isUncertain, {
    method,
    query: queryOf(url),
    time: timeOfRequest(isForged ? '' : found.uniqueId, written),
    written,
    connection,
    host: host ?? (found.hostname || undefined),
    source,
  });
}

type MatchLine = Pick<RuleMatch, 'time' | 'written' | 'connection' | 'host'> &
  Pick<RawDetails, 'source' | 'method' | 'query'>;

/** `isUncertain`: a client may have forged the ID and the host. */
function matchReading(found: RuleText, message: string, isUncertain: boolean, line: MatchLine): Reading {
  const { rule, uniqueId, uri, status } = found;
  const { time, written, connection, host, source, method, query = '' } = line;
  // Denials are logged at a higher level than matches, so a log of matches also has them. The path is decoded: a question
  // mark in it does not begin the query.
  const details = { blocked: rule.denied === true, source, method, url: uri, query, status };
  const match = { id: uniqueId, time, host, rules: [rule], details, written, connection };
  return isUncertain
    ? { kind: 'match', match: { ...match, id: '', host: undefined, claimedIds: requestIds(message) } }
    : { kind: 'match', match };
}

/** The time in the ID, which needs no zone; the line's own if they differ by more than any zone. */
function timeOfRequest(uniqueId: string, written: number): number {
  const time = timeOfModsecurityId(uniqueId);
  return time !== null && Math.abs(time - written) <= ZONE_MS_MAX ? time : written;
}

/** Undefined if there are two: the client controls the request line before the real host, and the referrer after it. */
function nginxHost(message: string, from: number): string | undefined {
  const opening = ', host: "';
  return isOnly(message, opening, from) ? textBetween(message, opening, '"', from) : undefined;
}

export function isOnly(message: string, text: string, from = 0): boolean {
  return message.indexOf(text, from) === message.lastIndexOf(text);
}

/** The request line after the client. A client can write a quote into it, but only one that ends its own request line. */
export function requestOf(message: string, from: number): ReturnType<typeof parseRequestLine> {
  const at = message.indexOf(', client: ', from);
  const line = at === -1 ? undefined : REQUEST.exec(message.slice(at))?.[1];
  return line === undefined ? {} : parseRequestLine(line);
}

const REQUEST = /, request: "(.*?)"(?:, (?:subrequest|upstream|host|referrer): "|$)/s;

function textBetween(message: string, opening: string, closing: string, from: number): string | undefined {
  const at = message.indexOf(opening, from);
  const end = message.indexOf(closing, at + opening.length);
  return at === -1 || end === -1 ? undefined : message.slice(at + opening.length, end);
}

export const apacheError: TextFormat = {
  name: 'apache-error',
  traits: [
    [
      'time like [Wed Jul 01 12:00:00.123456 2026] or [2026-07-01 12:00:00.123456] at its start',
      (line) => /^\[?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d|\d{4}-\d{2}-\d{2}[T ]\d)/.test(line),
    ],
    [
      'module and level like [security2:error]',
      (line) => /\[[a-z0-9_]*:?(?:emerg|alert|crit|error|warn|notice|info|debug)\] /.test(line),
    ],
    ['message of ModSecurity or Coraza', (line) => / (?:ModSecurity|Coraza): /.test(line)],
  ],
  recognizes: (line) => (line.startsWith('[') && line.startsWith(' ', 4)) || isIsoLayout(line),
  /**
   * `[Sun Feb 21 22:27:04.221889 2021] [security2:error] [pid 16:tid 14] [client ..] [client ..] ModSecurity: ..`, or
   * another ErrorLogFormat that begins with the time: `[2021-02-21 22:27:04.221889] ..` for `%{cu}t`.
   */
  parse(line, { zone }) {
    const field = apacheTimeField(line);
    const time = parseApacheTime(field.time, zone);
    if (time === null) return dropped('unknown_format');
    const messageStart = messageAt(line, field.end);
    const message = messageAfter(line, messageStart);
    if (!isRuleMessage(message)) return dropped('other_log_line', time);
    const referer = refererOf(message);
    const text = message.slice(0, referer.at);
    const found = parseRuleText(text);
    if (found === null) return dropped('other_log_line');
    const bytes = Buffer.byteLength(line);
    // Apache cuts a line at 8,192 bytes, after a long path. A short line without an ID is incomplete.
    if (found.uniqueId === '' && bytes < CUT_BYTES_MIN) return dropped('bad_record');
    const isUncertain = referer.isForged || (bytes >= APACHE_LONG_BYTES && !text.endsWith('"]'));
    const connection = line.slice(field.end, messageStart);
    const source = clientOf(connection.slice(Math.max(connection.indexOf('[client '), 0)));
    // ModSecurity 2 writes host and path after everything in which a client can write an unescaped quote.
    const host = found.hostname || hostnameBefore(text, text.lastIndexOf('"] [uri "')) || undefined;
    return matchReading(found, message, isUncertain, { time, written: time, connection, host, source });
  },
};

/** A line of about 8,192 bytes may have lost its ID; what looks like one may be text that a client wrote before it. */
const APACHE_LONG_BYTES = 8_000;

/**
 * Other programs also begin their lines with such a time. So a bracket must follow, as in the default format, or a
 * message about a rule.
 */
function isIsoLayout(line: string): boolean {
  if (!/^\[?\d{4}-\d{2}-\d{2}[T ]/.test(line)) return false;
  const { time, end } = apacheTimeField(line);
  if (time === '') return false;
  return (
    (line.startsWith('[') && line.startsWith('[', end)) || isRuleMessage(line.slice(messageAt(line, end)))
  );
}

const APACHE_ISO_TIME =
  /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d{2}:?\d{2}))?(?= )/;

/** `[Sun Feb 21 22:27:04.221889 2021 +0100] ` */
const APACHE_TIME_LENGTH_MAX = 44;

function apacheTimeField(line: string): { time: string; end: number } {
  const head = line.slice(0, APACHE_TIME_LENGTH_MAX);
  if (!line.startsWith('[')) {
    const time = APACHE_ISO_TIME.exec(head)?.[0] ?? '';
    return { time, end: time.length + 1 };
  }
  const end = Math.max(head.indexOf('] '), 1);
  return { time: line.slice(1, end), end: end + 2 };
}

const UTC = fixedZone(0);

function parseApacheTime(text: string, zone: LocalZone): number | null {
  const [, local = '', offset] = /^(.*?) ?(Z|[+-]\d{2}:?\d{2})?$/.exec(text) ?? [];
  if (offset === undefined) return parseAsctime(local, zone) ?? parseLocalTime(local, zone);
  const asctime = parseAsctime(local, UTC);
  const offsetMs = parseTime(`1970-01-01T00:00${offset}`);
  return asctime === null || offsetMs === null ? parseTime(`${local}${offset}`) : asctime + offsetMs;
}

/** Fields without brackets before the message: level, module, process, thread, source file, client. No client text. */
const PLAIN_FIELD =
  /^(?:(?:[a-z0-9_]{1,32}:)?(?:emerg|alert|crit|error|warn|notice|info|debug|trace[1-8])|(?:pid|tid|client)|(?:pid |tid )?\d{1,20}(?::tid \d{1,20})?|[0-9a-fA-F.:]{3,45}|[\w.-]{1,48}\(\d{1,6}\)|[-|])[:,]? /;
const PLAIN_FIELD_LENGTH_MAX = 80;
const FIELDS_MAX = 32;

function messageAt(line: string, from: number): number {
  let at = from;
  for (let fields = 0; fields < FIELDS_MAX; fields++) {
    const end = line.startsWith('[', at) ? line.indexOf('] ', at) + 2 : at + plainFieldLength(line, at);
    if (end <= at) break;
    at = end;
  }
  return at;
}

function plainFieldLength(line: string, at: number): number {
  return PLAIN_FIELD.exec(line.slice(at, at + PLAIN_FIELD_LENGTH_MAX))?.[0].length ?? 0;
}

/**
 * Apache appends the referer after the request ID. Clients control the arguments before that ID and the referer after
 * it, with unescaped quotes in both: if an ID follows a referer, it is unknown which are real.
 */
function refererOf(message: string): { at: number; isForged: boolean } {
  const lastId = message.lastIndexOf(UNIQUE_ID);
  let at = message.length;
  let isForged = false;
  for (let id = message.indexOf(UNIQUE_ID); id !== -1; id = message.indexOf(UNIQUE_ID, id + 1)) {
    const end = message.indexOf('"', id + UNIQUE_ID.length);
    if (end === -1 || !message.startsWith('"], referer: ', end)) continue;
    at = end + 2;
    if (id < lastId) isForged = true;
  }
  return { at: isForged ? message.length : at, isForged };
}

/** Caddy's access log is `access-json`. `{"level":"error","ts":1668790188.22,"logger":"http.handlers.waf","msg":"[client ..] Coraza: Warning. .."}` */
export const caddyJson: JsonFormat = {
  name: 'caddy',
  traits: [field('logger'), field('level'), field('msg'), field('ts')],
  recognizes: ({ logger, level, msg, request }) =>
    typeof logger === 'string' &&
    typeof level === 'string' &&
    typeof msg === 'string' &&
    request === undefined,
  parse(fields, { zone }) {
    const message = messageAfter(asText(fields.msg), 0);
    if (!isRuleMessage(message)) return dropped('other_log_line');
    const time = parseAnyTime(fields.ts, zone);
    return time === null ? dropped('bad_time') : caddyMatch(message, time);
  },
};

/** The form on a terminal: `2025/12/10 09:25:32.123	ERROR	http.handlers.waf	[client ..] Coraza: ..` */
export const caddyText: TextFormat = {
  name: 'caddy',
  traits: [
    [
      'time in yyyy/mm/dd HH:MM:SS.mmm form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} [\d:.]+/.test(line),
    ],
    ['tab between time, level and logger', (line) => line.includes('\t')],
    ['level like ERROR after the time', (line) => /^\S+ \S+\s+[A-Z]+\s/.test(line)],
  ],
  recognizes: (line) => line.startsWith('/', 4) && /^\d{4}\/\d{2}\/\d{2} [\d:.]{8,18}\t/.test(line),
  parse(line, { zone }) {
    const [timeText = '', level = '', logger = ''] = line.split('\t', 3);
    const time = parseLocalTime(timeText, zone);
    if (time === null) return dropped('unknown_format');
    const message = messageAfter(line, timeText.length + level.length + logger.length + 3);
    return isRuleMessage(message) ? caddyMatch(message, time) : dropped('other_log_line', time);
  },
};

function caddyMatch(message: string, time: number): Reading {
  // A message has a line for each value that matched; the rule is the same.
  const lineEnd = message.indexOf('\n');
  const found = parseRuleText(lineEnd === -1 ? message : message.slice(0, lineEnd));
  if (found === null) return dropped('other_log_line');
  const { rule, uniqueId, hostname, uri, status } = found;
  if (uniqueId === '') return dropped('bad_record');
  const details = {
    blocked: rule.denied === true,
    source: clientOf(message),
    url: uri,
    status,
  };
  return ruleMatch({ id: uniqueId, time, host: hostname || undefined, rules: [rule], details });
}
