/** Error log of nginx: rules matched by ModSecurity or Coraza, and requests rejected by limit_req. */
import { attackDetails } from '../attack-details.ts';
import {
  type Context,
  dropped,
  pathOfRequestLine,
  type Reading,
  requestRecord,
  type TextFormat,
} from './format.ts';
import { CUT_BYTES_MIN, clientOf, isRuleMessage, parseRuleText, requestIds } from './rules.ts';
import { parseLocalTime, timeOfModsecurityId } from './timestamps.ts';

export const nginxError: TextFormat = {
  name: 'nginx-error',
  traits: [
    [
      'time in yyyy/mm/dd HH:MM:SS form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} /.test(line),
    ],
    ['level like [error] after the time', (line) => /^\S+ \S+ \[[a-z]+\] /.test(line)],
  ],
  recognizes: (line) => line.charCodeAt(4) === SLASH && line.charCodeAt(7) === SLASH,
  parse: parseNginxError,
};

const SLASH = 0x2f;
/** `2025/12/10 09:25:32` */
const TIME_LENGTH = 19;
/** nginx may have cut a line whose message is this long. */
const LONG_BYTES = 1_900;
/** No zone is further from UTC. */
const ZONE_MS_MAX = 15 * 3_600_000;

/** `2025/12/10 09:25:32 [error] 34#34: *8 message, client: .., server: .., request: "..", host: ".."` */
function parseNginxError(line: string, { zone }: Context): Reading {
  const time = parseLocalTime(line.slice(0, TIME_LENGTH), zone);
  if (time === null || !line.startsWith(' [', TIME_LENGTH)) return dropped('unknown_format');
  const process = line.indexOf('] ', TIME_LENGTH) + 2;
  const star = line.indexOf(': *', process);
  const space = line.indexOf(' ', star + 3);
  if (process < 2 || star === -1 || space === -1) return dropped('other_log_line');
  const message = line.slice(space + 1);
  if (message.startsWith('limiting requests, ')) return limitedRequest(message, time);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  return ruleMatchOf(message, line.slice(process, space), time);
}

function limitedRequest(message: string, time: number): Reading {
  const evidence = [
    { rule: 'limit_req', points: 0, category: 'cc', because: 'nginx refused the request' },
  ] as const;
  const details = attackDetails({
    blocked: true,
    source: textBetween(message, ', client: ', ',', 0),
    url: pathOfRequestLine(textBetween(message, ', request: "', '"', 0) ?? ''),
    rule: 'limit_req',
  });
  const record = requestRecord(time, hostOf(message, 0));
  return { kind: 'record', record: { ...record, request: false, attack: 'cc', details, evidence } };
}

/** Where nginx's own text begins after a message. */
const SUFFIX = '"], client: ';

function ruleMatchOf(message: string, connection: string, written: number): Reading {
  const suffix = message.lastIndexOf(SUFFIX);
  const found = parseRuleText(suffix === -1 ? message : message.slice(0, suffix + 2));
  if (found === null) return dropped('other_log_line');
  const { rule, hostname, uri } = found;
  const bytes = Buffer.byteLength(message);
  // A short line without an ID is incomplete: the rest of it may follow.
  if (found.uniqueId === '' && suffix === -1 && bytes < CUT_BYTES_MIN) return dropped('bad_record');
  // A client can forge nginx's suffix: in its path, or in an argument so long that nginx cuts off the real one. Then
  // ID, host and client are all uncertain.
  const isForged = suffix !== -1 && message.indexOf(SUFFIX) !== suffix;
  const isUncertain = isForged || bytes >= LONG_BYTES || (bytes >= CUT_BYTES_MIN && !message.endsWith('"'));
  if (isUncertain) rule.doubtful = true;
  const host = suffix === -1 ? undefined : hostOf(message, suffix);
  const source =
    isUncertain || suffix === -1 ? clientOf(message) : textBetween(message, ', client: ', ',', suffix);
  return {
    kind: 'match',
    match: {
      id: isUncertain ? '' : found.uniqueId,
      time: timeOfRequest(isForged ? '' : found.uniqueId, written),
      host: isUncertain ? undefined : (host ?? (hostname || undefined)),
      rules: [rule],
      // Denials are logged at a higher level than matches, so a log of matches also has them.
      details: attackDetails({ blocked: rule.denied === true, source, url: uri }),
      written,
      connection,
      ...(isUncertain && { claimedIds: requestIds(message) }),
    },
  };
}

/** The time in the ID, which needs no zone; the line's own if they differ by more than any zone. */
function timeOfRequest(uniqueId: string, written: number): number {
  const time = timeOfModsecurityId(uniqueId);
  return time !== null && Math.abs(time - written) <= ZONE_MS_MAX ? time : written;
}

/** Undefined if there are two: the client controls the request line before the real host, and the referrer after it. */
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
