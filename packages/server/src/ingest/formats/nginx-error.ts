/** The error log of nginx: lines of ModSecurity or Coraza about matched rules, and requests that limit_req refused. */
import { attackDetails } from '../../event.ts';
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { parseLocalTime } from './log-time.ts';
import { timeOfId } from './modsecurity-id.ts';
import { pathOfRequestLine } from './modsecurity2-json.ts';
import { CUT_BYTES_MIN, parseRuleText, requestIds } from './rule-text.ts';

export const nginxError: TextFormat = {
  name: 'nginx-error',
  about: 'error log of nginx: rules of ModSecurity or Coraza, and `limiting requests`',
  traits: [
    [
      'time in yyyy/mm/dd HH:MM:SS form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} /.test(line),
    ],
    ['level like [error] behind the time', (line) => /^\S+ \S+ \[[a-z]+\] /.test(line)],
  ],
  recognizes: (line) => line.charCodeAt(4) === SLASH && line.charCodeAt(7) === SLASH,
  parse: parseNginxError,
};

const SLASH = 0x2f;
/** `2025/12/10 09:25:32` */
const TIME_LENGTH = 19;
/** A message of a line that nginx may have cut; what stands in front of it takes some bytes too. */
const LONG_BYTES = 1_900;

/** `2025/12/10 09:25:32 [error] 34#34: *8 message, client: .., server: .., request: "..", host: ".."` */
function parseNginxError(line: string, { zone }: Context): Reading {
  const local = parseLocalTime(line.slice(0, TIME_LENGTH), zone);
  if (local === null || !line.startsWith(' [', TIME_LENGTH)) return dropped('unknown_format');
  const process = line.indexOf('] ', TIME_LENGTH) + 2;
  const star = line.indexOf(': *', process);
  const space = line.indexOf(' ', star + 3);
  if (process < 2 || star === -1 || space === -1) return dropped('other_log_line');
  const message = line.slice(space + 1);
  if (message.startsWith('limiting requests, ')) return limited(message, local);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  return hit(message, line.slice(process, space), local);
}

/** `ModSecurity: Warning. ..`, or with the client in front. */
export function isRuleMessage(message: string): boolean {
  const at = message.startsWith('[client ') ? message.indexOf('] ') + 2 : 0;
  return message.startsWith('ModSecurity: ', at) || message.startsWith('Coraza: ', at);
}

function limited(message: string, time: number): Reading {
  const evidence = [
    { rule: 'limit_req', points: 0, category: 'cc', because: 'nginx refused the request' },
  ] as const;
  const host = hostOf(message, 0);
  const details = attackDetails({
    blocked: true,
    source: textBetween(message, ', client: ', ',', 0),
    url: pathOfRequestLine(textBetween(message, ', request: "', '"', 0) ?? ''),
    rule: 'limit_req',
  });
  return {
    kind: 'record',
    record: { time, host, hostId: undefined, request: false, attack: 'cc', count: 1, details, evidence },
  };
}

function hit(message: string, connection: string, local: number): Reading {
  const suffix = message.lastIndexOf(SUFFIX);
  const found = parseRuleText(suffix === -1 ? message : message.slice(0, suffix + 2));
  if (found === null) return dropped('other_log_line');
  const { rule, hostname, uri } = found;
  const bytes = Buffer.byteLength(message);
  // A short line without an id is half a line: the rest of it may follow.
  if (found.uniqueId === '' && suffix === -1 && bytes < CUT_BYTES_MIN) return dropped('bad_record');
  // A client can write what stands behind a message: into its path, or into an argument so long that nginx cuts off
  // the real one. Nobody can tell then which id, host and client are real.
  const isForged = suffix !== -1 && message.indexOf(SUFFIX) !== suffix;
  const isUncertain = isForged || bytes >= LONG_BYTES || (bytes >= CUT_BYTES_MIN && !message.endsWith('"'));
  if (isUncertain) rule.doubtful = true;
  const uniqueId = isUncertain ? '' : found.uniqueId;
  const host = suffix === -1 ? undefined : hostOf(message, suffix);
  const details = attackDetails({
    // Denials are logged at a higher level than matches, so a log of matches has them too.
    blocked: rule.denied === true,
    source:
      isUncertain || suffix === -1 ? clientOf(message) : textBetween(message, ', client: ', ',', suffix),
    url: uri,
  });
  return {
    kind: 'hit',
    hit: {
      id: uniqueId,
      time: timeOfRequest(isForged ? '' : found.uniqueId, local),
      host: isUncertain ? undefined : (host ?? (hostname || undefined)),
      rules: [rule],
      details,
      written: local,
      connection,
      ...(isUncertain && { claimedIds: requestIds(message) }),
    },
  };
}

const SUFFIX = '"], client: ';

/** The log names no zone, but the id does not need one. What is further away than any zone is no id of this request. */
function timeOfRequest(uniqueId: string, local: number): number {
  const time = timeOfId(uniqueId);
  return time !== null && Math.abs(time - local) <= ZONE_MS_MAX ? time : local;
}

const ZONE_MS_MAX = 15 * 3_600_000;

/** `[client 127.0.0.1] ModSecurity: ..` or, of Coraza, `[client "127.0.0.1"] ..` */
export function clientOf(message: string): string | undefined {
  return /^\[client "?([^"\]]{1,64})/.exec(message)?.[1];
}

/** Undefined when there are two: the request line in front of the real one and the referrer behind it are the client's. */
function hostOf(message: string, from: number): string | undefined {
  const opening = ', host: "';
  const isOnly = message.indexOf(opening, from) === message.lastIndexOf(opening);
  return isOnly ? textBetween(message, opening, '"', from) : undefined;
}

function textBetween(message: string, opening: string, closing: string, from: number): string | undefined {
  const at = message.indexOf(opening, from);
  const end = message.indexOf(closing, at + opening.length);
  return at === -1 || end === -1 ? undefined : message.slice(at + opening.length, end);
}
