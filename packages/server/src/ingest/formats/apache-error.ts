/** Error log of Apache: rules matched by ModSecurity or Coraza. */
import { attackDetails } from '../attack-details.ts';
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { CUT_BYTES_MIN, clientOf, isRuleMessage, parseRuleText, requestIds, UNIQUE_ID } from './rules.ts';
import { fixedZone, type LocalZone } from './time-zone.ts';
import { parseAsctime, parseLocalTime, parseTime } from './timestamps.ts';

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
  parse: parseApacheError,
};

/** A line of about 8,192 bytes may have lost its ID; what looks like one may be text that a client wrote before it. */
const LONG_BYTES = 8_000;

/**
 * `[Sun Feb 21 22:27:04.221889 2021] [security2:error] [pid 16:tid 14] [client ..] [client ..] ModSecurity: ..`, or
 * another ErrorLogFormat that begins with the time: `[2021-02-21 22:27:04.221889] ..` for `%{cu}t`.
 */
function parseApacheError(line: string, { zone }: Context): Reading {
  const field = timeField(line);
  const time = parseErrorTime(field.time, zone);
  if (time === null) return dropped('unknown_format');
  const messageStart = messageAt(line, field.end);
  const message = line.slice(messageStart);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  const referer = refererOf(message);
  const text = message.slice(0, referer.at);
  const found = parseRuleText(text);
  if (found === null) return dropped('other_log_line');
  const { rule, uri } = found;
  const bytes = Buffer.byteLength(line);
  // Apache cuts a line at 8,192 bytes, after a long path. A short line without an ID is incomplete.
  if (found.uniqueId === '' && bytes < CUT_BYTES_MIN) return dropped('bad_record');
  const isUncertain = referer.isForged || (bytes >= LONG_BYTES && !text.endsWith('"]'));
  const connection = line.slice(field.end, messageStart);
  const source = clientOf(connection.slice(Math.max(connection.indexOf('[client '), 0)));
  return {
    kind: 'match',
    match: {
      id: isUncertain ? '' : found.uniqueId,
      time,
      host: isUncertain ? undefined : found.hostname || lastHostname(text) || undefined,
      rules: [rule],
      details: attackDetails({ blocked: rule.denied === true, source, url: uri }),
      written: time,
      connection,
      ...(isUncertain && { claimedIds: requestIds(message) }),
    },
  };
}

/**
 * Other programs also begin their lines with such a time. So a bracket must follow, as in the default format, or a
 * message about a rule.
 */
function isIsoLayout(line: string): boolean {
  if (!/^\[?\d{4}-\d{2}-\d{2}[T ]/.test(line)) return false;
  const { time, end } = timeField(line);
  if (time === '') return false;
  return (
    (line.startsWith('[') && line.startsWith('[', end)) || isRuleMessage(line.slice(messageAt(line, end)))
  );
}

const ISO_TIME = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d{2}:?\d{2}))?(?= )/;

/** `[Sun Feb 21 22:27:04.221889 2021 +0100] ` */
const TIME_LENGTH_MAX = 44;

function timeField(line: string): { time: string; end: number } {
  const head = line.slice(0, TIME_LENGTH_MAX);
  if (!line.startsWith('[')) {
    const time = ISO_TIME.exec(head)?.[0] ?? '';
    return { time, end: time.length + 1 };
  }
  const end = Math.max(head.indexOf('] '), 1);
  return { time: line.slice(1, end), end: end + 2 };
}

const UTC = fixedZone(0);

function parseErrorTime(text: string, zone: LocalZone): number | null {
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

/** ModSecurity 2 writes host and path after everything in which a client can write an unescaped quote. */
function lastHostname(text: string): string {
  const end = text.lastIndexOf('"] [uri "');
  const opening = ' [hostname "';
  const at = end === -1 ? -1 : text.lastIndexOf(opening, end);
  return at === -1 ? '' : text.slice(at + opening.length, end);
}
