/** The error log of Apache: lines of ModSecurity or Coraza about matched rules. */
import { attackDetails } from '../../event.ts';
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { fixedZone, type LocalZone, parseAsctime, parseLocalTime } from './log-time.ts';
import { clientOf, isRuleMessage } from './nginx-error.ts';
import { CUT_BYTES_MIN, parseRuleText, requestIds } from './rule-text.ts';
import { parseTime } from './time.ts';

export const apacheError: TextFormat = {
  name: 'apache-error',
  about: 'error log of Apache: rules of ModSecurity or Coraza',
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
  recognizes: (line) => (line.startsWith('[') && line.charCodeAt(4) === SPACE) || isIsoLayout(line),
  parse: parseApacheError,
};

const SPACE = 0x20;

/**
 * `[Sun Feb 21 22:27:04.221889 2021] [security2:error] [pid 16:tid 14] [client ..] [client ..] ModSecurity: ..`, or
 * another ErrorLogFormat that begins with the time: `[2021-02-21 22:27:04.221889] ..` for `%{cu}t`.
 */
function parseApacheError(line: string, { zone }: Context): Reading {
  const field = timeField(line);
  const { end } = field;
  const time = parseErrorTime(field.time, zone);
  if (time === null) return dropped('unknown_format');
  const messageStart = messageAt(line, end);
  const message = line.slice(messageStart);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  const referer = refererOf(message);
  const text = message.slice(0, referer.at);
  const found = parseRuleText(text);
  if (found === null) return dropped('other_log_line');
  const { rule, uri } = found;
  const bytes = Buffer.byteLength(line);
  // Apache cuts a line at 8,192 bytes, behind a long path. A short line without an id is half a line.
  if (found.uniqueId === '' && bytes < CUT_BYTES_MIN) return dropped('bad_record');
  const isUncertain = referer.isForged || (bytes >= LONG_BYTES && !text.endsWith('"]'));
  const uniqueId = isUncertain ? '' : found.uniqueId;
  const host = isUncertain ? undefined : found.hostname || hostnameBehind(text) || undefined;
  const process = line.slice(end, messageStart);
  const source = clientOf(process.slice(Math.max(process.indexOf('[client '), 0)));
  const details = attackDetails({ blocked: rule.denied === true, source, url: uri });
  return {
    kind: 'hit',
    hit: {
      id: uniqueId,
      time,
      host,
      rules: [rule],
      details,
      written: time,
      connection: process,
      ...(isUncertain && { claimedIds: requestIds(message) }),
    },
  };
}

/** A line of about 8,192 bytes may have lost its id, and what looks like one is what a client wrote in front of it. */
const LONG_BYTES = 8_000;

const ISO_TIME = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d{2}:?\d{2}))?(?= )/;

/** `[Sun Feb 21 22:27:04.221889 2021 +0100] ` */
const TIME_LENGTH_MAX = 44;

/**
 * Other programs begin their lines with such a time too. So brackets must follow, as in the default format, or what
 * follows must be a message about a rule.
 */
function isIsoLayout(line: string): boolean {
  if (!/^\[?\d{4}-\d{2}-\d{2}[T ]/.test(line)) return false;
  const { time, end } = timeField(line);
  if (time === '') return false;
  return (
    (line.startsWith('[') && line.startsWith('[', end)) || isRuleMessage(line.slice(messageAt(line, end)))
  );
}

function timeField(line: string): { time: string; end: number } {
  if (!line.startsWith('[')) {
    const time = ISO_TIME.exec(line.slice(0, TIME_LENGTH_MAX))?.[0] ?? '';
    return { time, end: time.length + 1 };
  }
  const end = Math.max(line.slice(0, TIME_LENGTH_MAX).indexOf('] '), 1);
  return { time: line.slice(1, end), end: end + 2 };
}

function parseErrorTime(text: string, zone: LocalZone): number | null {
  const [, local = '', offset] = /^(.*?) ?(Z|[+-]\d{2}:?\d{2})?$/.exec(text) ?? [];
  if (offset === undefined) return parseAsctime(local, zone) ?? parseLocalTime(local, zone);
  const asctime = parseAsctime(local, UTC);
  const east = parseTime(`1970-01-01T00:00${offset}`);
  return asctime === null || east === null ? parseTime(`${local}${offset}`) : asctime + east;
}

const UTC = fixedZone(0);

/** What Apache writes before a message without brackets: level, module, process, thread, source file, client. Never text of a client. */
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
 * Apache adds where the client said it came from, behind the id of the request. Clients write arguments in front of
 * that id and the referer behind it, and quotes are escaped in neither: if an id follows a referer, nobody can tell
 * which ones are real.
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

const UNIQUE_ID = '"] [unique_id "';

/** ModSecurity 2 writes host and path behind all that a client can write without a backslash in front of a quote. */
function hostnameBehind(text: string): string {
  const end = text.lastIndexOf('"] [uri "');
  const opening = ' [hostname "';
  const at = end === -1 ? -1 : text.lastIndexOf(opening, end);
  return at === -1 ? '' : text.slice(at + opening.length, end);
}
